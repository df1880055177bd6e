//! `manylabel.link`: the smooth link, and scoring by it.

use crate::csr::{PyCsr, with_view};
use crate::error::to_py;
use crate::held::{Held, HeldMatrix};
use crate::named::named;
use crate::run::run;
use crate::scorer::{Scorer, Source};
use manylabel_base::Error;
use manylabel_link as link;
use manylabel_link::{Kernel, Loss, Params, Projection, Solver};
use manylabel_score::Model;
use manylabel_sparse::CsrOwned;
use numpy::{
    Element, IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;

/// Parameters by the names the user knows.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PyParams {
    kernel: String,
    n_features: usize,
    gamma: Option<f64>,
    loss: String,
    solver: String,
    l2_link: f64,
    n_passes: usize,
    step_size: f64,
    momentum: f64,
    decay: f64,
    shrink: Option<f64>,
    preflate: bool,
    n_iter_no_change: usize,
    max_iter: usize,
    tol: f64,
    max_memory: Option<u64>,
    seed: u64,
    learn_threshold: bool,
}

const KERNELS: [(&str, Kernel); 8] = [
    ("gaussian", Kernel::Gaussian),
    ("matern-3", Kernel::Matern3),
    ("matern-5", Kernel::Matern5),
    ("cauchy", Kernel::Cauchy),
    ("linear", Kernel::Linear),
    ("quasi-gaussian", Kernel::QuasiGaussian),
    ("quasi-matern-3", Kernel::QuasiMatern3),
    ("quasi-matern-5", Kernel::QuasiMatern5),
];

impl TryFrom<PyParams> for Params {
    type Error = Error;

    fn try_from(params: PyParams) -> Result<Self, Error> {
        Ok(Self {
            kernel: named(
                "kernel",
                "\"gaussian\", \"matern-3\", \"matern-5\", \"cauchy\", \"linear\", \
                 \"quasi-gaussian\", \"quasi-matern-3\" or \"quasi-matern-5\"",
                &KERNELS,
                &params.kernel,
            )?,
            n_features: params.n_features,
            gamma: params.gamma,
            loss: named(
                "loss",
                "\"squared\", \"logistic\" or \"softmax\"",
                &[
                    ("squared", Loss::Squared),
                    ("logistic", Loss::Logistic),
                    ("softmax", Loss::Softmax),
                ],
                &params.loss,
            )?,
            solver: named(
                "solver",
                "\"psgd\" or \"newton-cg\"",
                &[("psgd", Solver::Psgd), ("newton-cg", Solver::NewtonCg)],
                &params.solver,
            )?,
            l2: params.l2_link,
            n_passes: params.n_passes,
            step_size: params.step_size,
            momentum: params.momentum,
            decay: params.decay,
            shrink: params.shrink,
            preflate: params.preflate,
            n_iter_no_change: params.n_iter_no_change,
            max_iter: params.max_iter,
            tol: params.tol,
            max_memory: params.max_memory,
            seed: params.seed,
            learn_threshold: params.learn_threshold,
        })
    }
}

/// What scoring needs of a fitted estimator.
#[derive(FromPyObject)]
pub(crate) struct PyLink {
    #[pyo3(attribute("projection_"))]
    projection: HeldMatrix<f64>,
    #[pyo3(attribute("projection_intercept_"))]
    projection_intercept: Held<f64>,
    #[pyo3(attribute("frequencies_"))]
    frequencies: HeldMatrix<f32>,
    #[pyo3(attribute("phases_"))]
    phases: Held<f32>,
    #[pyo3(attribute("coef_"))]
    weights: HeldMatrix<f32>,
    #[pyo3(attribute("intercept_"))]
    intercept: Held<f32>,
}

impl Source for PyLink {
    fn model(&self) -> Result<Box<dyn Model + '_>, Error> {
        let projection = self.projection.by_rows("projection_")?;
        let n_features = self.projection.shape.0;
        Ok(Box::new(link::Scorer::new(
            Projection::new(projection, &self.projection_intercept, n_features)?,
            self.frequencies.by_rows("frequencies_")?,
            &self.phases,
            self.weights.by_rows("coef_")?,
            &self.intercept,
        )?))
    }
}

/// Prepares a fitted estimator.
#[pyfunction]
pub(crate) fn link_scorer(model: PyLink) -> PyResult<Scorer> {
    Scorer::new(model)
}

/// The values of a matrix, row after row; `as_slice` takes Fortran order for contiguous too.
fn by_rows<'a, T: Element>(
    name: &'static str,
    matrix: &'a PyReadonlyArray2<'_, T>,
) -> PyResult<&'a [T]> {
    if !matrix.is_c_contiguous() {
        return Err(to_py(Error::Param {
            name,
            expected: "laid out in C order",
            got: format!("strides {:?}", matrix.strides()),
        }));
    }
    Ok(matrix.as_slice()?)
}

fn projection<'a>(
    weights: &'a PyReadonlyArray2<'_, f64>,
    intercept: &'a PyReadonlyArray1<'_, f64>,
    n_features: usize,
) -> PyResult<Projection<'a>> {
    let weights = by_rows("projection_", weights)?;
    Projection::new(weights, intercept.as_slice()?, n_features).map_err(to_py)
}

/// Checks the ranges of parameters, ahead of a fit.
#[pyfunction]
pub(crate) fn check_link(params: PyParams) -> PyResult<()> {
    Params::try_from(params)
        .and_then(Params::check)
        .map(drop)
        .map_err(to_py)
}

/// Fits the link: frequencies, phases, weights, intercepts, the ridge used, held-out losses, Newton
/// steps, the threshold and gamma.
#[expect(clippy::type_complexity, reason = "a tuple is what Python unpacks")]
#[expect(clippy::too_many_arguments, reason = "Python names them all")]
#[pyfunction]
#[pyo3(signature = (x, projection_weights, projection_intercept, predictions, y, sample_weight, held_out, params, n_threads, progress))]
pub(crate) fn fit_link<'py>(
    py: Python<'py>,
    x: PyCsr<'py>,
    projection_weights: PyReadonlyArray2<'py, f64>,
    projection_intercept: PyReadonlyArray1<'py, f64>,
    predictions: Option<PyReadonlyArray2<'py, f32>>,
    y: PyCsr<'py>,
    sample_weight: Option<PyReadonlyArray1<'py, f32>>,
    held_out: Option<PyReadonlyArray1<'py, bool>>,
    params: PyParams,
    n_threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<(
    Bound<'py, PyArray2<f32>>,
    Bound<'py, PyArray1<f32>>,
    Bound<'py, PyArray2<f32>>,
    Bound<'py, PyArray1<f32>>,
    f64,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<i32>>,
    f64,
    f64,
)> {
    let params = Params::try_from(params)
        .and_then(Params::check)
        .map_err(to_py)?;
    let sample_weight = sample_weight
        .as_ref()
        .map(|weights| weights.as_slice())
        .transpose()?;
    let held_out = held_out.as_ref().map(|mask| mask.as_slice()).transpose()?;
    let predictions = predictions
        .as_ref()
        .map(|values| by_rows("predictions", values))
        .transpose()?;
    let y = with_view!(y, "Y", |y| CsrOwned::from_view(y, false).map_err(to_py)?);
    let model = with_view!(x, "X", |x| {
        let projection = projection(&projection_weights, &projection_intercept, x.n_cols())?;
        run(py, n_threads, progress.as_ref(), |watch| {
            params.fit(
                x,
                projection,
                predictions,
                &y,
                sample_weight,
                held_out,
                watch,
            )
        })?
    });
    let width = projection_intercept.len() + 1;
    let (n_features, n_labels) = (model.phases.len(), model.intercept.len());
    let n_inputs = if n_features > 0 {
        n_features
    } else {
        width - 1
    };
    let frequencies = model.frequencies.into_pyarray(py);
    let weights = model.weights.into_pyarray(py);
    Ok((
        frequencies.reshape([width, n_features])?,
        model.phases.into_pyarray(py),
        weights.reshape([n_labels, n_inputs])?,
        model.intercept.into_pyarray(py),
        model.ridge,
        model.validation_loss.into_pyarray(py),
        model.n_iter.into_pyarray(py),
        model.threshold,
        model.gamma,
    ))
}
