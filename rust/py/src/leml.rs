//! `manylabel.linear`: LEML, and scoring by factors of low rank.

use crate::csr::{PyCsr, with_view};
use crate::error::to_py;
use crate::held::{Held, HeldMatrix};
use crate::named::named;
use crate::run::run;
use crate::scorer::{Scorer, Source};
use manylabel_base::Error;
use manylabel_linear::leml::{self, Loss, Params};
use manylabel_score::Model;
use manylabel_sparse::CsrOwned;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;

/// Parameters by the names the user knows.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PyParams {
    rank: usize,
    alpha: Option<f64>,
    loss: String,
    max_iter: usize,
    tol: f64,
    cg_max_iter: usize,
    cg_tol: f64,
    fit_intercept: bool,
    normalize: bool,
    seed: u64,
    learn_cut: bool,
}

impl TryFrom<PyParams> for Params {
    type Error = Error;

    fn try_from(params: PyParams) -> Result<Self, Error> {
        Ok(Self {
            rank: params.rank,
            alpha: params.alpha,
            loss: named(
                "loss",
                "\"squared\", \"logistic\" or \"squared-hinge\"",
                &[
                    ("squared", Loss::Squared),
                    ("logistic", Loss::Logistic),
                    ("squared-hinge", Loss::SquaredHinge),
                ],
                &params.loss,
            )?,
            max_iter: params.max_iter,
            tol: params.tol,
            cg_max_iter: params.cg_max_iter,
            cg_tol: params.cg_tol,
            fit_intercept: params.fit_intercept,
            normalize: params.normalize,
            seed: params.seed,
            learn_cut: params.learn_cut,
        })
    }
}

/// Fits LEML: features, their factors, factors of labels (transposed), intercepts, objective after
/// each turn, the weight of squares, the threshold that was learned if any.
#[expect(clippy::type_complexity, reason = "a tuple is what Python unpacks")]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
#[pyfunction]
#[pyo3(signature = (x, y, observed, sample_weight, params, n_threads, progress))]
pub(crate) fn fit_leml<'py>(
    py: Python<'py>,
    x: PyCsr<'py>,
    y: PyCsr<'py>,
    observed: Option<PyCsr<'py>>,
    sample_weight: Option<PyReadonlyArray1<'py, f32>>,
    params: PyParams,
    n_threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<(
    Bound<'py, PyArray1<i32>>,
    Bound<'py, PyArray2<f32>>,
    Bound<'py, PyArray2<f32>>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray1<f64>>,
    f64,
    Option<f64>,
)> {
    let params = Params::try_from(params)
        .and_then(Params::check)
        .map_err(to_py)?;
    let sample_weight = sample_weight
        .as_ref()
        .map(|weights| weights.as_slice())
        .transpose()?;
    let y = with_view!(y, "Y", |y| CsrOwned::from_view(y, false).map_err(to_py)?);
    let observed = match observed {
        None => None,
        Some(observed) => Some(with_view!(observed, "observed", |observed| {
            CsrOwned::from_view(observed, false).map_err(to_py)?
        })),
    };
    let model = with_view!(x, "X", |x| run(
        py,
        n_threads,
        progress.as_ref(),
        |watch| params.fit(x, &y, observed.as_ref(), sample_weight, watch)
    )?);
    let (n_features, n_labels) = (model.features.len(), model.intercept.len());
    Ok((
        model.features.into_pyarray(py),
        model.w.into_pyarray(py).reshape([n_features, model.rank])?,
        model.ht.into_pyarray(py).reshape([model.rank, n_labels])?,
        model.intercept.into_pyarray(py),
        model.objective.into_pyarray(py),
        model.alpha,
        model.cut.map(f64::from),
    ))
}

/// What scoring needs of an estimator with factors of low rank.
#[derive(FromPyObject)]
pub(crate) struct PyLowRank {
    #[pyo3(attribute("features_"))]
    features: Held<i32>,
    #[pyo3(attribute("feature_factors_"))]
    w: HeldMatrix<f32>,
    #[pyo3(attribute("label_factors_"))]
    ht: HeldMatrix<f32>,
    #[pyo3(attribute("intercept_"))]
    intercept: Held<f32>,
    n_features_in_: usize,
    #[pyo3(attribute("_normalizes_rows"))]
    normalize: bool,
}

impl Source for PyLowRank {
    fn model(&self) -> Result<Box<dyn Model + '_>, Error> {
        Ok(Box::new(leml::Scorer::new(
            &self.features,
            self.w.by_rows("feature_factors_")?,
            self.ht.by_rows("label_factors_")?,
            &self.intercept,
            (self.n_features_in_, self.ht.shape.0),
            self.normalize,
        )?))
    }
}

/// Prepares a fitted estimator with factors of low rank.
#[pyfunction]
pub(crate) fn low_rank_scorer(model: PyLowRank) -> PyResult<Scorer> {
    Scorer::new(model)
}
