//! `manylabel.pls`: randomized label embeddings, and projections by them.

use crate::csr::{Borrowed, PyCsr32};
use crate::error::to_py;
use crate::named::named;
use crate::run::{run, run_here};
use manylabel_base::{Error, Watch};
use manylabel_pls::{
    Components, DenseView, Embedding, Matrix, Model, Params, ROWS_AT_ONCE, Ridge, Solver, Variant,
    project,
};
use manylabel_sparse::{CsrView, Index, Real};
use numpy::{
    Element, IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;

/// Parameters by the names the user knows.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PyParams {
    n_components: PyComponents,
    n_oversamples: usize,
    n_iter: usize,
    l2: PyRidge,
    l2_final: PyRidge,
    variant: String,
    embedding: String,
    center: bool,
    fit_intercept: bool,
    solver: String,
    max_iter: usize,
    tol: Option<f64>,
    seed: u64,
    leave_one_out: bool,
}

/// A number, or "auto".
#[derive(FromPyObject)]
pub(crate) enum PyRidge {
    Of(f64),
    Named(String),
}

impl PyRidge {
    fn checked(self, name: &'static str) -> Result<Ridge, Error> {
        match self {
            Self::Of(l2) => Ok(Ridge::Of(l2)),
            Self::Named(text) => named(
                name,
                "\"auto\" or a number",
                &[("auto", Ridge::Auto)],
                &text,
            ),
        }
    }
}

/// A count or a share.
#[derive(FromPyObject)]
pub(crate) enum PyComponents {
    Count(usize),
    Share(f64),
}

impl TryFrom<PyParams> for Params {
    type Error = Error;

    fn try_from(params: PyParams) -> Result<Self, Error> {
        Ok(Self {
            n_components: match params.n_components {
                PyComponents::Count(k) => Components::Count(k),
                PyComponents::Share(share) => Components::Share(share),
            },
            n_oversamples: params.n_oversamples,
            n_iter: params.n_iter,
            l2: params.l2.checked("l2")?,
            l2_final: params.l2_final.checked("l2_final")?,
            variant: named(
                "variant",
                "\"power\" or \"ritz\"",
                &[("power", Variant::Power), ("ritz", Variant::Ritz)],
                &params.variant,
            )?,
            embedding: named(
                "embedding",
                "\"rembrandt\", \"gaussian\" or \"pca\"",
                &[
                    ("rembrandt", Embedding::Rembrandt),
                    ("gaussian", Embedding::Gaussian),
                    ("pca", Embedding::Pca),
                ],
                &params.embedding,
            )?,
            center: params.center,
            fit_intercept: params.fit_intercept,
            solver: named(
                "solver",
                "\"auto\", \"cholesky\", \"cg\" or \"dual\"",
                &[
                    ("auto", Solver::Auto),
                    ("cholesky", Solver::Cholesky),
                    ("cg", Solver::Cg),
                    ("dual", Solver::Dual),
                ],
                &params.solver,
            )?,
            max_iter: params.max_iter,
            tol: params.tol,
            seed: params.seed,
            leave_one_out: params.leave_one_out,
        })
    }
}

/// X as `estimator/validation.py` lets it through: sparse or dense, of either precision.
#[derive(FromPyObject)]
pub(crate) enum PyMatrix<'py> {
    Dense32(PyReadonlyArray2<'py, f32>),
    Dense64(PyReadonlyArray2<'py, f64>),
    I32F32(Borrowed<'py, i32, f32>),
    I64F32(Borrowed<'py, i64, f32>),
    I32F64(Borrowed<'py, i32, f64>),
    I64F64(Borrowed<'py, i64, f64>),
}

fn dense<'a, T: Element + Real>(
    x: &'a PyReadonlyArray2<'_, T>,
) -> Result<Matrix<'a, i32, T>, Error> {
    let (n_rows, n_cols) = (x.shape()[0], x.shape()[1]);
    let strided = || Error::Param {
        name: "X",
        expected: "laid out in C order",
        got: format!("strides {:?}", x.strides()),
    };
    if !x.is_c_contiguous() {
        return Err(strided());
    }
    let values = x.as_slice().map_err(|_| strided())?;
    DenseView::new(values, n_rows, n_cols).map(Matrix::Dense)
}

/// Evaluates `$body` with `$view` bound to the matrix in `$x`, whatever its types.
macro_rules! with_matrix {
    ($x:expr, |$view:ident| $body:expr) => {
        match &$x {
            PyMatrix::Dense32(x) => with_matrix!(@ dense(x), $view, $body),
            PyMatrix::Dense64(x) => with_matrix!(@ dense(x), $view, $body),
            PyMatrix::I32F32(x) => with_matrix!(@ x.view("X").map(Matrix::Sparse), $view, $body),
            PyMatrix::I64F32(x) => with_matrix!(@ x.view("X").map(Matrix::Sparse), $view, $body),
            PyMatrix::I32F64(x) => with_matrix!(@ x.view("X").map(Matrix::Sparse), $view, $body),
            PyMatrix::I64F64(x) => with_matrix!(@ x.view("X").map(Matrix::Sparse), $view, $body),
        }
    };
    (@ $matrix:expr, $view:ident, $body:expr) => {{
        let $view = $matrix.map_err(to_py)?;
        $body
    }};
}

/// The number of components that a share of the label covariance takes, or the number given.
#[pyfunction]
#[pyo3(signature = (y, sample_weight, params, n_threads))]
pub(crate) fn pls_n_components(
    py: Python<'_>,
    y: PyCsr32<'_>,
    sample_weight: Option<PyReadonlyArray1<'_, f32>>,
    params: PyParams,
    n_threads: usize,
) -> PyResult<usize> {
    let params = Params::try_from(params)
        .and_then(Params::check)
        .map_err(to_py)?;
    let sample_weight = sample_weight
        .as_ref()
        .map(|weights| weights.as_slice())
        .transpose()?;
    match &y {
        PyCsr32::I32(y) => {
            let y = y.view("Y").map_err(to_py)?;
            run(py, n_threads, None, |watch| {
                params.n_components(y, sample_weight, watch)
            })
        }
        PyCsr32::I64(y) => {
            let y = y.view("Y").map_err(to_py)?;
            run(py, n_threads, None, |watch| {
                params.n_components(y, sample_weight, watch)
            })
        }
    }
}

/// Fits an embedding: U or None, W, intercept, eigenvalues or None, steps, unfinished right-hand sides,
/// the ridges used, and predictions of rows by fits without them or None.
#[pyfunction]
#[pyo3(signature = (x, y, sample_weight, params, n_threads, progress))]
pub(crate) fn fit_pls<'py>(
    py: Python<'py>,
    x: PyMatrix<'py>,
    y: PyCsr32<'py>,
    sample_weight: Option<PyReadonlyArray1<'py, f32>>,
    params: PyParams,
    n_threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<Fitted<'py>> {
    let params = Params::try_from(params)
        .and_then(Params::check)
        .map_err(to_py)?;
    let sample_weight = sample_weight
        .as_ref()
        .map(|weights| weights.as_slice())
        .transpose()?;
    let progress = progress.as_ref();
    with_matrix!(x, |x| match &y {
        PyCsr32::I32(y) => {
            let y: CsrView<'_, i32, f32> = y.view("Y").map_err(to_py)?;
            let model = run(py, n_threads, progress, |watch| {
                params.fit(x, y, sample_weight, watch)
            })?;
            fitted(py, model, x.n_cols(), y.n_cols())
        }
        PyCsr32::I64(y) => {
            let y: CsrView<'_, i64, f32> = y.view("Y").map_err(to_py)?;
            let model = run(py, n_threads, progress, |watch| {
                params.fit(x, y, sample_weight, watch)
            })?;
            fitted(py, model, x.n_cols(), y.n_cols())
        }
    })
}

type Fitted<'py> = (
    Option<Bound<'py, PyAny>>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Option<Bound<'py, PyArray1<f64>>>,
    usize,
    usize,
    (f64, f64),
    Option<Bound<'py, PyAny>>,
);

fn fitted<T: Real + Element>(
    py: Python<'_>,
    model: Model<T>,
    n_features: usize,
    n_labels: usize,
) -> PyResult<Fitted<'_>> {
    let k = model.n_components;
    let by_row = |values: Vec<T>, n_rows| -> PyResult<Bound<'_, PyAny>> {
        Ok(values.into_pyarray(py).reshape([n_rows, k])?.into_any())
    };
    let predictions = match model.leave_one_out {
        Some(values) => {
            let n_rows = values.len() / k;
            Some(values.into_pyarray(py).reshape([n_rows, k])?.into_any())
        }
        None => None,
    };
    Ok((
        model
            .label_embedding
            .map(|u| by_row(u, n_labels))
            .transpose()?,
        by_row(model.coef, n_features)?,
        model.intercept.into_pyarray(py).into_any(),
        model.eigenvalues.map(|values| values.into_pyarray(py)),
        model.n_steps,
        model.n_unfinished,
        (model.l2, model.l2_of_coef),
        predictions,
    ))
}

/// A fitted matrix with its intercept, of either precision.
#[derive(FromPyObject)]
pub(crate) enum PyCoef<'py> {
    Single(PyReadonlyArray2<'py, f32>, PyReadonlyArray1<'py, f32>),
    Double(PyReadonlyArray2<'py, f64>, PyReadonlyArray1<'py, f64>),
}

/// Rows of X times a matrix with an intercept, (`n_rows`, k).
#[pyfunction]
#[pyo3(signature = (x, coef, n_threads))]
pub(crate) fn pls_project<'py>(
    py: Python<'py>,
    x: PyMatrix<'py>,
    coef: PyCoef<'py>,
    n_threads: usize,
) -> PyResult<Bound<'py, PyAny>> {
    with_matrix!(x, |x| match &coef {
        PyCoef::Single(coef, intercept) =>
            Ok(projected(py, x, coef, intercept, n_threads)?.into_any()),
        PyCoef::Double(coef, intercept) =>
            Ok(projected(py, x, coef, intercept, n_threads)?.into_any()),
    })
}

fn projected<'py, I: Index, V: Real, T: Real + Element>(
    py: Python<'py>,
    x: Matrix<'_, I, V>,
    coef: &PyReadonlyArray2<'py, T>,
    intercept: &PyReadonlyArray1<'py, T>,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray2<T>>> {
    if coef.shape()[1] != intercept.len() || !coef.is_c_contiguous() {
        return Err(to_py(Error::Param {
            name: "coef_",
            expected: "in C order, with a column for each entry of intercept_",
            got: format!(
                "shape {:?}, strides {:?} for {} entries",
                coef.shape(),
                coef.strides(),
                intercept.len()
            ),
        }));
    }
    let (coef, intercept) = (coef.as_slice()?, intercept.as_slice()?);
    let work = |watch: &Watch| project(x, coef, intercept, watch);
    let rows = if x.n_rows() <= ROWS_AT_ONCE {
        run_here(py, work)?
    } else {
        run(py, n_threads, None, work)?
    };
    rows.into_pyarray(py).reshape([x.n_rows(), intercept.len()])
}
