//! `manylabel.linear`: DiSMEC, and scoring by sparse weights.

use crate::csr::{Borrowed, CsrArrays, PyCsr, csr_arrays, with_view};
use crate::error::to_py;
use crate::run::{run, score};
use manylabel_base::Error;
use manylabel_linear::dismec::{Params, Solver};
use manylabel_linear::{ROWS_AT_ONCE, Scorer};
use manylabel_sparse::{ColumnScaling, CsrOwned, Index};
use numpy::{Element, IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
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

/// `coef_`, an array by feature: the attributes of a (`n_labels`, `n_features`) CSC matrix.
#[derive(FromPyObject)]
pub(crate) enum PyCoef<'py> {
    I32(Borrowed<'py, i32, f32>),
    I64(Borrowed<'py, i64, f32>),
}

/// What scoring needs of a fitted estimator.
#[derive(FromPyObject)]
pub(crate) struct PyLinear<'py> {
    #[pyo3(attribute("coef_"))]
    coef: PyCoef<'py>,
    #[pyo3(attribute("intercept_"))]
    intercept: PyReadonlyArray1<'py, f32>,
    #[pyo3(attribute("_normalizes_rows"))]
    normalize: bool,
}

impl PyLinear<'_> {
    fn scorer<'a, I: Element + Index>(
        &'a self,
        coef: &'a Borrowed<'_, I, f32>,
    ) -> PyResult<Scorer<'a, I, I>> {
        let (indptr, indices) = (coef.indptr.as_slice()?, coef.indices.as_slice()?);
        Scorer::new(
            indptr,
            indices,
            coef.data.as_slice()?,
            self.intercept.as_slice()?,
            self.normalize,
        )
        .map_err(to_py)
    }
}

/// Evaluates `$body` with `$scorer` bound to the scorer of `$model`, whatever its index type.
macro_rules! with_scorer {
    ($model:expr, |$scorer:ident| $body:expr) => {
        match &$model.coef {
            PyCoef::I32(coef) => {
                let $scorer = $model.scorer(coef)?;
                $body
            }
            PyCoef::I64(coef) => {
                let $scorer = $model.scorer(coef)?;
                $body
            }
        }
    };
}

/// Up to so many scores take a moment.
const FEW_SCORES: usize = 1 << 20;

/// Whether so few rows are scored in a moment.
pub(crate) fn few(n_rows: usize, n_labels: usize) -> bool {
    n_rows <= 1 || (n_rows <= ROWS_AT_ONCE && n_rows.saturating_mul(n_labels) <= FEW_SCORES)
}

/// The `k` best labels of each row, as the arrays of a CSR matrix.
#[pyfunction]
#[pyo3(signature = (model, x, k, n_threads))]
pub(crate) fn linear_topk<'py>(
    py: Python<'py>,
    model: PyLinear<'py>,
    x: PyCsr<'py>,
    k: usize,
    n_threads: usize,
) -> PyResult<CsrArrays<'py>> {
    let top = with_view!(x, "X", |x| with_scorer!(model, |scorer| {
        score(py, few(x.n_rows(), scorer.n_labels()), n_threads, |watch| {
            scorer.topk(x, k, watch)
        })?
    }));
    Ok(csr_arrays(py, top))
}

/// The labels of each row with scores above `threshold`, as the arrays of a CSR matrix.
#[pyfunction]
#[pyo3(signature = (model, x, threshold, n_threads))]
pub(crate) fn linear_above<'py>(
    py: Python<'py>,
    model: PyLinear<'py>,
    x: PyCsr<'py>,
    threshold: f32,
    n_threads: usize,
) -> PyResult<CsrArrays<'py>> {
    let above = with_view!(x, "X", |x| with_scorer!(model, |scorer| {
        score(py, few(x.n_rows(), scorer.n_labels()), n_threads, |watch| {
            scorer.above(x, threshold, watch)
        })?
    }));
    Ok(csr_arrays(py, above))
}

/// All scores, (`n_rows`, `n_labels`).
#[pyfunction]
#[pyo3(signature = (model, x, n_threads))]
pub(crate) fn linear_decision<'py>(
    py: Python<'py>,
    model: PyLinear<'py>,
    x: PyCsr<'py>,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    with_view!(x, "X", |x| with_scorer!(model, |scorer| {
        let scores = score(py, few(x.n_rows(), scorer.n_labels()), n_threads, |watch| {
            scorer.decision(x, watch)
        })?;
        scores
            .into_pyarray(py)
            .reshape([x.n_rows(), scorer.n_labels()])
    }))
}
