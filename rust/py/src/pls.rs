//! Defines the Python functions of `manylabel.pls`. They fit randomized label embeddings and project features
//! with the fitted matrices.
//!
//! X may be sparse or dense, in single or double precision. The model has the precision of X.

use crate::arrays::{F64s, handed};
use crate::csr::{PyCsr, values, with_labels};
use crate::error::to_py;
use crate::features::PyFeatures;
use crate::params::{Named, from_named};
use crate::run::{Job, run, score};
use manylabel_base::Error;
use manylabel_pls::{
    Checked, Components, Embedding, Matrix, Model, Params, ROWS_AT_ONCE, Ridge, Solver, Variant,
    project,
};
use manylabel_sparse::{Dense, Features, Real, with_sparse};
use numpy::{
    Element, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods,
};
use pyo3::prelude::*;

/// Reads and checks the parameters of a fit.
pub(crate) fn checked(params: &Named<'_>) -> PyResult<Checked> {
    let ridge = |name| -> PyResult<Ridge> {
        let given = params.unless_auto(name)?;
        Ok(given.map_or(Ridge::Auto, Ridge::Of))
    };
    from_named!(params, Params {
        seed, n_oversamples, n_iter, center, fit_intercept, max_iter, tol, tol_of_unknown, most_rounds,
        leave_one_out;
        n_components: match params.get("n_components")? {
            PyComponents::Count(k) => Components::Count(k),
            PyComponents::Share(share) => Components::Share(share),
        },
        l2: ridge("l2")?,
        l2_final: ridge("l2_final")?,
        variant: params.choice("variant", &[("power", Variant::Power), ("ritz", Variant::Ritz)])?,
        embedding: params.choice("embedding", &[
            ("rembrandt", Embedding::Rembrandt), ("gaussian", Embedding::Gaussian),
            ("pca", Embedding::Pca)
        ])?,
        solver: params.choice("solver", &[
            ("auto", Solver::Auto), ("cholesky", Solver::Cholesky), ("cg", Solver::Cg),
            ("dual", Solver::Dual)
        ])?,
    })
}

/// The parameter `n_components`. An integer is a number of components. Any other number is the fraction
/// of the label covariance to keep.
#[derive(FromPyObject)]
enum PyComponents {
    Count(usize),
    Share(f64),
}

/// Returns the number of components. If the parameter is a fraction, returns the smallest number of
/// components that keep this fraction of the label covariance.
#[pyfunction]
pub(crate) fn pls_n_components(
    py: Python<'_>,
    y: PyCsr<'_>,
    sample_weight: Option<PyReadonlyArray1<'_, f32>>,
    params: Named<'_>,
    n_threads: usize,
) -> PyResult<usize> {
    let params = checked(&params)?;
    let sample_weight = values(sample_weight.as_ref())?;
    let y = y.unchecked("Y")?;
    run(py, n_threads, None, |watch| {
        with_labels!(y, |y| params.n_components(y, sample_weight, watch))
    })
}

/// Evaluates `$body` with `$x` bound to the [`Matrix`] of the features `$given`, for any type of
/// features.
macro_rules! with_matrix {
    ($given:expr, |$x:ident| $body:expr) => {
        match $given.features()? {
            Features::Dense(Dense::F32(dense)) => {
                let $x = Matrix::<i32, f32>::Dense(dense);
                $body
            }
            Features::Dense(Dense::F64(dense)) => {
                let $x = Matrix::<i32, f64>::Dense(dense);
                $body
            }
            Features::Sparse(sparse) => with_sparse!(sparse, |sparse| {
                let $x = Matrix::Sparse(sparse);
                $body
            }),
        }
    };
}

/// A model in the precision of X.
enum AnyModel {
    Single(Model<f32>),
    Double(Model<f64>),
}

impl From<Model<f32>> for AnyModel {
    fn from(model: Model<f32>) -> Self {
        Self::Single(model)
    }
}

impl From<Model<f64>> for AnyModel {
    fn from(model: Model<f64>) -> Self {
        Self::Double(model)
    }
}

/// Fits an embedding.
///
/// Returns a tuple:
///
/// - U (`n_labels`, k) or None;
/// - W (`n_features`, k);
/// - the intercept;
/// - the eigenvalues or None;
/// - the number of conjugate gradient steps;
/// - the number of right-hand sides that have not converged;
/// - the ridges of U and of W;
/// - the leave-one-out predictions (`n_rows`, k) or None.
#[pyfunction]
pub(crate) fn fit_pls<'py>(
    py: Python<'py>,
    x: PyFeatures<'py>,
    y: PyCsr<'py>,
    sample_weight: Option<PyReadonlyArray1<'py, f32>>,
    params: Named<'py>,
    job: Job,
) -> PyResult<Fitted<'py>> {
    let params = checked(&params)?;
    let sample_weight = values(sample_weight.as_ref())?;
    let (n_features, n_labels) = (x.shape().1, y.shape().1);
    let (x, y) = (x.given()?, y.unchecked("Y")?);
    let model = job.run(py, |watch| {
        with_labels!(y, |y| with_matrix!(x, |x| {
            params.fit(x, y, sample_weight, watch).map(AnyModel::from)
        }))
    })?;
    match model {
        AnyModel::Single(model) => fitted(py, model, n_features, n_labels),
        AnyModel::Double(model) => fitted(py, model, n_features, n_labels),
    }
}

/// The result of [`fit_pls`].
pub(crate) type Fitted<'py> = (
    Option<Bound<'py, PyAny>>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Option<F64s<'py>>,
    usize,
    usize,
    (f64, f64),
    Option<Bound<'py, PyAny>>,
);

/// Converts a model to numpy arrays.
pub(crate) fn fitted<T: Real + Element>(
    py: Python<'_>,
    model: Model<T>,
    n_features: usize,
    n_labels: usize,
) -> PyResult<Fitted<'_>> {
    let k = model.n_components;
    let by_row = |values: Vec<T>, n_rows| -> PyResult<Bound<'_, PyAny>> {
        Ok(handed(py, values)?.reshape([n_rows, k])?.into_any())
    };
    let predictions = match model.leave_one_out {
        Some(values) => {
            let n_rows = values.len() / k;
            Some(handed(py, values)?.reshape([n_rows, k])?.into_any())
        }
        None => None,
    };
    Ok((
        model
            .label_embedding
            .map(|u| by_row(u, n_labels))
            .transpose()?,
        by_row(model.coef, n_features)?,
        handed(py, model.intercept)?.into_any(),
        model
            .eigenvalues
            .map(|values| handed(py, values))
            .transpose()?,
        model.n_steps,
        model.n_unfinished,
        (model.l2, model.l2_of_coef),
        predictions,
    ))
}

/// A fitted matrix (`n_features`, k) with its intercept (k,), in single or double precision.
#[derive(FromPyObject)]
pub(crate) enum PyCoef<'py> {
    Single(PyReadonlyArray2<'py, f32>, PyReadonlyArray1<'py, f32>),
    Double(PyReadonlyArray2<'py, f64>, PyReadonlyArray1<'py, f64>),
}

/// Returns `XW + b`, of shape (`n_rows`, k), for a matrix W with the intercept b. The result has the
/// precision of W.
#[pyfunction]
pub(crate) fn pls_project<'py>(
    py: Python<'py>,
    x: PyFeatures<'py>,
    coef: PyCoef<'py>,
    n_threads: usize,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match &coef {
        PyCoef::Single(coef, intercept) => {
            projected(py, &x, coef, intercept, n_threads)?.into_any()
        }
        PyCoef::Double(coef, intercept) => {
            projected(py, &x, coef, intercept, n_threads)?.into_any()
        }
    })
}

/// Does the work of [`pls_project`] for one precision of W.
fn projected<'py, T: Real + Element>(
    py: Python<'py>,
    x: &PyFeatures<'py>,
    coef: &PyReadonlyArray2<'py, T>,
    intercept: &PyReadonlyArray1<'py, T>,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray2<T>>> {
    if coef.shape()[1] != intercept.len() || !coef.is_c_contiguous() {
        return Err(to_py(Error::Param {
            name: "coef_",
            expected: "in C order, with a column for each entry of intercept_",
            got: format!(
                "shape {:?}, strides {:?} and {} entries of intercept_",
                coef.shape(),
                coef.strides(),
                intercept.len()
            ),
        }));
    }
    let (coef, intercept) = (coef.as_slice()?, intercept.as_slice()?);
    let (n_rows, given) = (x.shape().0, x.given()?);
    let rows = score(py, n_rows <= ROWS_AT_ONCE, n_threads, |watch| {
        with_matrix!(given, |x| project(x, coef, intercept, watch))
    })?;
    handed(py, rows)?.reshape([n_rows, intercept.len()])
}
