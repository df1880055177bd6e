//! `manylabel.linear`: DiSMEC, and scoring by sparse weights.

use crate::csr::{CsrArrays, PyCsr, csr_arrays, with_view};
use crate::error::to_py;
use crate::held::{Held, HeldCsr, with_held};
use crate::run::run;
use crate::scorer::{Scorer, Source};
use manylabel_base::Error;
use manylabel_linear as linear;
use manylabel_linear::dismec::{Params, Solver};
use manylabel_score::Model;
use manylabel_sparse::{ColumnScaling, CsrOwned};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

/// Parameters by the names the user knows.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PyParams {
    #[pyo3(item("C"))]
    c: f64,
    prune: f64,
    fit_intercept: bool,
    normalize: bool,
    solver: String,
    tol: f64,
    max_iter: usize,
    learn_cut: bool,
    seed: u64,
}

impl TryFrom<PyParams> for Params {
    type Error = Error;

    fn try_from(params: PyParams) -> Result<Self, Error> {
        let solver = match params.solver.as_str() {
            "exact" => Solver::Exact,
            "fast" => Solver::Fast,
            _ => {
                let got = format!("{:?}", params.solver);
                return Err(Error::Param {
                    name: "solver",
                    expected: "\"fast\" or \"exact\"",
                    got,
                });
            }
        };
        let PyParams {
            c,
            prune,
            fit_intercept,
            normalize,
            tol,
            max_iter,
            learn_cut,
            seed,
            ..
        } = params;
        Ok(Self {
            c,
            prune,
            fit_intercept,
            normalize,
            solver,
            tol,
            max_iter,
            learn_cut,
            seed,
        })
    }
}

/// Scales columns to unit variance: the arrays of the scaled matrix, what was subtracted from the
/// columns, and what they were then multiplied by.
#[expect(clippy::type_complexity, reason = "a tuple is what Python unpacks")]
#[pyfunction]
#[pyo3(signature = (x, sample_weight, center))]
pub(crate) fn standardize_columns<'py>(
    py: Python<'py>,
    x: PyCsr<'py>,
    sample_weight: Option<PyReadonlyArray1<'py, f32>>,
    center: bool,
) -> PyResult<(
    CsrArrays<'py>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
)> {
    let sample_weight = sample_weight
        .as_ref()
        .map(|weights| weights.as_slice())
        .transpose()?;
    let (scaling, scaled) = with_view!(x, "X", |x| run(py, 1, None, |watch| {
        let scaling = ColumnScaling::learn(x, sample_weight, center, watch)?;
        let scaled = scaling.apply(x, watch)?;
        Ok((scaling, scaled))
    })?);
    Ok((
        csr_arrays(py, scaled),
        scaling.shift.into_pyarray(py),
        scaling.scale.into_pyarray(py),
    ))
}

/// Raises `ValueError` for parameters that no fit takes.
#[pyfunction]
pub(crate) fn check_dismec(params: PyParams) -> PyResult<()> {
    let params = Params::try_from(params).and_then(Params::check);
    params.map(drop).map_err(to_py)
}

/// Fits DiSMEC: the arrays of (`n_features`, `n_labels`) weights in compressed rows, intercepts,
/// steps of each label, and the cut.
#[expect(clippy::type_complexity, reason = "a tuple is what Python unpacks")]
#[pyfunction]
#[pyo3(signature = (x, y, sample_weight, params, n_threads, progress))]
pub(crate) fn fit_dismec<'py>(
    py: Python<'py>,
    x: PyCsr<'py>,
    y: PyCsr<'py>,
    sample_weight: Option<PyReadonlyArray1<'py, f32>>,
    params: PyParams,
    n_threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<(
    CsrArrays<'py>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<i32>>,
    Option<f32>,
)> {
    let params = Params::try_from(params)
        .and_then(Params::check)
        .map_err(to_py)?;
    let sample_weight = sample_weight
        .as_ref()
        .map(|weights| weights.as_slice())
        .transpose()?;
    let y = with_view!(y, "Y", |y| CsrOwned::from_view(y, false).map_err(to_py)?);
    let model = with_view!(x, "X", |x| run(
        py,
        n_threads,
        progress.as_ref(),
        |watch| { params.fit(x, &y, sample_weight, watch) }
    )?);
    let n_iter: Vec<i32> = model
        .n_iter
        .iter()
        .map(|&n| i32::try_from(n).unwrap_or(i32::MAX))
        .collect();
    Ok((
        csr_arrays(py, model.weights),
        model.intercept.into_pyarray(py),
        n_iter.into_pyarray(py),
        model.cut,
    ))
}

/// What scoring needs of an estimator with sparse weights.
#[derive(FromPyObject)]
pub(crate) struct PyLinear {
    /// The attributes of a (`n_labels`, `n_features`) CSC matrix: an array by feature.
    #[pyo3(attribute("coef_"))]
    coef: HeldCsr<f32>,
    #[pyo3(attribute("intercept_"))]
    intercept: Held<f32>,
    #[pyo3(attribute("_normalizes_rows"))]
    normalize: bool,
}

impl Source for PyLinear {
    fn model(&self) -> Result<Box<dyn Model + '_>, Error> {
        with_held!(&self.coef, |coef| Ok(Box::new(linear::Scorer::new(
            &coef.indptr,
            &coef.indices,
            &coef.data,
            &self.intercept,
            self.normalize,
        )?)))
    }
}

/// Prepares a fitted estimator with sparse weights.
#[pyfunction]
pub(crate) fn linear_scorer(model: PyLinear) -> PyResult<Scorer> {
    Scorer::new(model)
}
