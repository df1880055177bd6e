//! Defines the Python functions of `manylabel.link`. They fit the smooth link and make its scorer.

use crate::arrays::{F32Rows, F32s, F64s, I32s, handed};
use crate::csr::{Examples, values};
use crate::error::to_py;
use crate::held::{Held, HeldMatrix};
use crate::params::{Named, from_named};
use crate::run::Job;
use crate::scorer::{Scorer, Source};
use manylabel_base::Error;
use manylabel_base::range::same;
use manylabel_link as link;
use manylabel_link::{Checked, Kernel, Loss, Params, Projection, Solver};
use manylabel_score::Model;
use numpy::{Element, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// The kernel functions with their names in Python.
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

/// Reads and checks the parameters of a fit. Python has already replaced `n_features` and `l2_link` by
/// numbers.
fn checked(params: &Named<'_>) -> PyResult<Checked> {
    from_named!(params, Params {
        seed, n_features, n_passes, step_size, momentum, decay, shrink, preflate, n_iter_no_change,
        max_iter, tol, max_memory, learn_threshold;
        kernel: params.choice("kernel", &KERNELS)?,
        gamma: params.unless_auto("gamma")?,
        loss: params.choice("loss", &[
            ("logistic", Loss::Logistic), ("squared", Loss::Squared), ("softmax", Loss::Softmax)
        ])?,
        solver: params.choice("solver", &[
            ("psgd", Solver::Psgd), ("newton-cg", Solver::NewtonCg)
        ])?,
        l2: params.get("l2_link")?,
    })
}

/// The attributes of a fitted estimator that scoring needs.
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
    #[pyo3(attribute("_normalizes_rows"))]
    normalize: bool,
    n_features_in_: usize,
}

impl Source for PyLink {
    fn model(&self) -> Result<Box<dyn Model + '_>, Error> {
        let n_components = self.projection_intercept.len();
        let n_waves = self.phases.len();
        let n_inputs = if n_waves > 0 { n_waves } else { n_components };
        for (what, expected, got) in [
            (
                "rows of projection_",
                self.n_features_in_,
                self.projection.shape.0,
            ),
            (
                "columns of projection_",
                n_components,
                self.projection.shape.1,
            ),
            (
                "rows of frequencies_",
                n_components + 1,
                self.frequencies.shape.0,
            ),
            ("columns of frequencies_", n_waves, self.frequencies.shape.1),
            ("rows of coef_", self.intercept.len(), self.weights.shape.0),
            ("columns of coef_", n_inputs, self.weights.shape.1),
        ] {
            same(what, expected, got)?;
        }
        let projection = self.projection.by_rows("projection_")?;
        Ok(Box::new(link::Scorer::new(
            Projection::new(projection, &self.projection_intercept, self.n_features_in_)?
                .of_unit_rows(self.normalize),
            self.frequencies.by_rows("frequencies_")?,
            &self.phases,
            self.weights.by_rows("coef_")?,
            &self.intercept,
        )?))
    }
}

/// Prepares a fitted estimator for scoring.
#[pyfunction]
pub(crate) fn link_scorer(model: PyLink) -> PyResult<Scorer> {
    Scorer::new(model)
}

/// Returns the values of a matrix, row by row. The function checks that the matrix is in C order, because
/// `as_slice` also accepts Fortran order.
///
/// # Errors
///
/// Raises `ValueError` if the matrix is not in C order. `name` is the name of the matrix in the message.
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

/// Returns the projection of features to components: a matrix (`n_features`, k) with an intercept (k,).
fn projection<'a>(
    weights: &'a PyReadonlyArray2<'_, f64>,
    intercept: &'a PyReadonlyArray1<'_, f64>,
    n_features: usize,
) -> PyResult<Projection<'a>> {
    let weights = by_rows("projection_", weights)?;
    Projection::new(weights, intercept.as_slice()?, n_features).map_err(to_py)
}

/// Checks the parameters before a fit. Raises `ValueError` if a parameter is out of range, or if two
/// parameters contradict each other.
#[pyfunction]
pub(crate) fn check_link(params: Named<'_>) -> PyResult<()> {
    checked(&params).map(drop)
}

/// The result of [`fit_link`].
type Fitted<'py> = (
    F32Rows<'py>,
    F32s<'py>,
    F32Rows<'py>,
    F32s<'py>,
    f64,
    F64s<'py>,
    I32s<'py>,
    f64,
    f64,
);

/// Fits the smooth link.
///
/// If `predictions` (`n_rows`, k) is not None, these numbers replace the projections of the rows. `held_out`
/// marks the held-out rows, whose loss determines when the fit stops.
///
/// Returns a tuple:
///
/// - the frequencies (k + 1, random features);
/// - the phases;
/// - the weights (`n_labels`, inputs);
/// - the intercepts;
/// - the ridge used;
/// - the held-out loss after each pass;
/// - the number of Newton steps for each label;
/// - the threshold;
/// - gamma.
#[expect(clippy::too_many_arguments, reason = "Python names them all")]
#[pyfunction]
pub(crate) fn fit_link<'py>(
    py: Python<'py>,
    examples: Examples<'py>,
    projection_weights: PyReadonlyArray2<'py, f64>,
    projection_intercept: PyReadonlyArray1<'py, f64>,
    predictions: Option<PyReadonlyArray2<'py, f32>>,
    held_out: Option<PyReadonlyArray1<'py, bool>>,
    params: Named<'py>,
    job: Job,
) -> PyResult<Fitted<'py>> {
    let params = checked(&params)?;
    let held_out = values(held_out.as_ref())?;
    let predictions = predictions
        .as_ref()
        .map(|of_rows| by_rows("predictions", of_rows))
        .transpose()?;
    let (n_features, _) = examples.sizes();
    let projection = projection(&projection_weights, &projection_intercept, n_features)?;
    let (x, y, sample_weight) = examples.unchecked()?;
    let model = job.run(py, |watch| {
        let y = y.to_labels()?;
        params.fit(
            x.sparse()?,
            projection,
            predictions,
            y.view(),
            sample_weight,
            held_out,
            watch,
        )
    })?;
    let width = projection_intercept.len() + 1;
    let (n_features, n_labels) = (model.phases.len(), model.intercept.len());
    let n_inputs = if n_features > 0 {
        n_features
    } else {
        width - 1
    };
    let frequencies = handed(py, model.frequencies)?;
    let weights = handed(py, model.weights)?;
    Ok((
        frequencies.reshape([width, n_features])?,
        handed(py, model.phases)?,
        weights.reshape([n_labels, n_inputs])?,
        handed(py, model.intercept)?,
        model.ridge,
        handed(py, model.validation_loss)?,
        handed(py, model.n_iter)?,
        model.threshold,
        model.gamma,
    ))
}
