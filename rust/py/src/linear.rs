//! Defines the Python functions of `manylabel.linear` for DiSMEC. They fit the model and make the scorer of
//! sparse weights.

use crate::arrays::{F32s, F64s, I32s, handed};
use crate::csr::{CsrArrays, Examples, PyCsr, PyFactors, csr_arrays, values};
use crate::error::to_py;
use crate::held::{Held, HeldCsr, interruptible, with_held};
use crate::params::{Named, from_named};
use crate::pieces::PyPrepared;
use crate::run::{Job, run};
use crate::scorer::{Scorer, Source};
use manylabel_base::range::{ensure, same};
use manylabel_base::{Error, collected};
use manylabel_linear as linear;
use manylabel_linear::dismec::{Checked, Loss, Params, Solver, Start, Targets};
use manylabel_score::Model;
use manylabel_sparse::{ColumnScaling, ScaledColumns, with_sparse};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

/// Reads and checks the parameters of a fit.
pub(crate) fn checked(params: &Named<'_>) -> PyResult<Checked> {
    from_named!(params, Params {
        seed, prune, fit_intercept, normalize, tol, max_iter, learn_cut;
        c: params.get("C")?,
        loss: loss(params)?,
        solver: params.choice("solver", &[("fast", Solver::Fast), ("exact", Solver::Exact)])?,
    })
}

/// Reads the parameter `loss`.
pub(crate) fn loss(params: &Named<'_>) -> PyResult<Loss> {
    params.choice(
        "loss",
        &[
            ("squared_hinge", Loss::SquaredHinge),
            ("logistic", Loss::Logistic),
        ],
    )
}

/// Scales columns to unit variance. If `center` is true, the means of columns that are mostly nonzero are
/// subtracted first.
///
/// Returns the arrays of the scaled matrix, the shift of each column, and the scale of each column. The
/// shift is subtracted first. Then the difference is multiplied by the scale.
#[pyfunction]
pub(crate) fn standardize_columns<'py>(
    py: Python<'py>,
    x: PyCsr<'py>,
    sample_weight: Option<PyReadonlyArray1<'py, f32>>,
    center: bool,
) -> PyResult<(CsrArrays<'py>, F64s<'py>, F64s<'py>)> {
    let sample_weight = values(sample_weight.as_ref())?;
    let x = x.unchecked("X")?;
    let (scaling, scaled) = run(py, 1, None, |watch| {
        with_sparse!(x.sparse()?, |x| {
            let scaling = ColumnScaling::learn(x, sample_weight, center, watch)?;
            let scaled = scaling.apply(x, watch)?;
            Ok((scaling, scaled))
        })
    })?;
    Ok((
        csr_arrays(py, scaled)?,
        handed(py, scaling.shift)?,
        handed(py, scaling.scale)?,
    ))
}

/// Scales columns with known shifts and scales, as [`standardize_columns`] does. Returns the arrays of the scaled
/// matrix.
#[pyfunction]
pub(crate) fn scale_columns<'py>(
    py: Python<'py>,
    x: PyCsr<'py>,
    shift: PyReadonlyArray1<'py, f64>,
    scale: PyReadonlyArray1<'py, f64>,
) -> PyResult<CsrArrays<'py>> {
    let (shift, scale) = (shift.as_slice()?, scale.as_slice()?);
    let x = x.unchecked("X")?;
    let scaled = run(py, 1, None, |watch| {
        with_sparse!(x.sparse()?, |x| {
            let columns = scaled_columns(shift, scale)?;
            same("number of scaled columns", x.n_cols(), columns.n_cols())?;
            columns.apply(x, watch)
        })
    })?;
    csr_arrays(py, scaled)
}

/// Borrows the shifts and scales of columns.
///
/// # Errors
///
/// Returns [`Error::Shape`] if there are not equally many of them, and [`Error::Param`] if a number is not finite.
pub(crate) fn scaled_columns<'a>(
    shift: &'a [f64],
    scale: &'a [f64],
) -> Result<ScaledColumns<'a>, Error> {
    same("number of scales", shift.len(), scale.len())?;
    for (name, numbers) in [("column_shift_", shift), ("column_scale_", scale)] {
        let wrong = numbers.iter().find(|number| !number.is_finite());
        let got = wrong.copied().unwrap_or_default();
        ensure(name, wrong.is_none(), "finite", got)?;
    }
    ScaledColumns::new(shift, scale)
}

/// Fits DiSMEC. `prepared` has the rows of X that [`scale_rows`](crate::pieces::scale_rows) has written, or None to
/// copy the rows of X. `start`, if given, has weights (`n_labels`, `n_features`) and intercepts from which the
/// fit begins. `factors`, if given, has the factors of the costs of each label.
///
/// Returns a tuple:
///
/// - the arrays of the weights (`n_features`, `n_labels`) in compressed rows;
/// - the intercepts;
/// - the number of iterations for each label;
/// - the learned threshold or None.
#[pyfunction]
pub(crate) fn fit_dismec<'py>(
    py: Python<'py>,
    examples: Examples<'py>,
    prepared: Option<PyPrepared>,
    start: Option<(PyCsr<'py>, PyReadonlyArray1<'py, f32>)>,
    factors: Option<PyFactors<'py>>,
    params: Named<'py>,
    job: Job,
) -> PyResult<(CsrArrays<'py>, F32s<'py>, I32s<'py>, Option<f32>)> {
    let params = checked(&params)?;
    let (x, y, sample_weight) = examples.unchecked()?;
    let prepared = prepared.as_ref();
    let factors = factors.map(|factors| factors.to_owned()).transpose()?;
    let start = start
        .as_ref()
        .map(|(weights, intercept)| {
            Ok::<_, PyErr>((weights.unchecked("weights")?, intercept.as_slice()?))
        })
        .transpose()?;
    let model = job.run(py, |watch| {
        let y = y.to_labels()?;
        let targets = Targets {
            labels: y.view(),
            factors: factors.as_deref(),
        };
        let mut task = match prepared {
            Some(rows) => params.prepared_task(rows.view()?, targets, sample_weight, watch)?,
            None => params.task(x.sparse()?, targets, sample_weight, watch)?,
        };
        drop(y);
        if let Some((weights, intercept)) = start {
            task.start_from(Start::new(weights.to_owned()?, intercept)?)?;
        }
        task.model(watch)
    })?;
    Ok((
        csr_arrays(py, model.weights)?,
        handed(py, model.intercept)?,
        counts(py, &model.n_iter)?,
        model.cut,
    ))
}

/// Converts numbers of iterations to a numpy array.
///
/// # Errors
///
/// Raises `MemoryError` if there is no memory for the array.
pub(crate) fn counts<'py>(py: Python<'py>, counts: &[u32]) -> PyResult<I32s<'py>> {
    let counts = counts.iter().map(|&n| i32::try_from(n).unwrap_or(i32::MAX));
    handed(py, collected("number of labels", counts).map_err(to_py)?)
}

/// The attributes of a fitted estimator with sparse weights that scoring needs.
#[derive(FromPyObject)]
pub(crate) struct PyLinear {
    /// The weights, a CSC matrix (`n_labels`, `n_features`), read as a CSR matrix of the transpose. In this
    /// form, the weights of a feature are contiguous.
    #[pyo3(attribute("coef_"))]
    coef: HeldCsr<f32>,
    #[pyo3(attribute("intercept_"))]
    intercept: Held<f32>,
    /// The number of features. Models that are not estimators do not have this attribute.
    #[pyo3(attribute("n_features_in_"), default)]
    n_features: Option<usize>,
    #[pyo3(attribute("_normalizes_rows"))]
    normalize: bool,
}

impl Source for PyLinear {
    fn model(&self) -> Result<Box<dyn Model + '_>, Error> {
        with_held!(&self.coef, |coef| {
            coef.by_feature(self.intercept.len(), self.n_features)?;
            Ok(Box::new(linear::Scorer::new(
                &coef.indptr,
                &coef.indices,
                &coef.data,
                &self.intercept,
                self.normalize,
            )?))
        })
    }
}

/// Prepares a fitted estimator with sparse weights for scoring.
#[pyfunction]
pub(crate) fn linear_scorer(
    #[pyo3(from_py_with = interruptible)] model: PyLinear,
) -> PyResult<Scorer> {
    Scorer::new(model)
}
