//! `manylabel.correlated`: the correlated logistic model, and decoding by it.

use crate::csr::{Borrowed, CsrArrays, PyCsr, PyCsr32, csr_arrays, positions, with_view};
use crate::error::to_py;
use crate::named::named;
use crate::run::{run, score};
use manylabel_base::Error;
use manylabel_correlated::{
    Coding, Matrix, Method, Model, Params, ROWS_AT_ONCE, Scorer, Solver, Start,
};
use manylabel_sparse::{CsrView, Index};
use numpy::{Element, IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;

/// Parameters by the names the user knows.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PyParams {
    l2_features: f64,
    l2_pairs: f64,
    epsilon: f64,
    coding: String,
    solver: String,
    standardize: bool,
    tol: f64,
    max_iter: usize,
}

impl TryFrom<PyParams> for Params {
    type Error = Error;

    fn try_from(params: PyParams) -> Result<Self, Error> {
        Ok(Self {
            l2_features: params.l2_features,
            l2_pairs: params.l2_pairs,
            epsilon: params.epsilon,
            coding: named(
                "coding",
                "\"01\" or \"pm1\"",
                &[("01", Coding::ZeroOne), ("pm1", Coding::PlusMinus)],
                &params.coding,
            )?,
            solver: named(
                "solver",
                "\"auto\", \"fista\" or \"reference\"",
                &[
                    ("auto", Solver::Auto),
                    ("fista", Solver::Fista),
                    ("reference", Solver::Reference),
                ],
                &params.solver,
            )?,
            standardize: params.standardize,
            tol: params.tol,
            max_iter: params.max_iter,
        })
    }
}

fn method(name: &str) -> Result<Method, Error> {
    named(
        "decoder",
        "\"auto\", \"exact\", \"search\" or \"bp\"",
        &[
            ("auto", Method::Auto),
            ("exact", Method::Exact),
            ("search", Method::Search),
            ("bp", Method::Messages),
        ],
        name,
    )
}

/// Raises `ValueError` for a decoder that there is not.
#[pyfunction]
pub(crate) fn check_decoder(name: &str) -> PyResult<()> {
    method(name).map(drop).map_err(to_py)
}

/// A CSR matrix of doubles; or by feature the attributes of a (`n_labels`, `n_features`) CSC matrix.
#[derive(FromPyObject)]
pub(crate) enum PyDoubles<'py> {
    I32(Borrowed<'py, i32, f64>),
    I64(Borrowed<'py, i64, f64>),
}

impl PyDoubles<'_> {
    /// A copy of the compressed rows, or columns, of `width` positions; their structure is checked.
    fn to_rows(&self, name: &'static str, width: usize) -> PyResult<Matrix> {
        fn copied<I: Element + Index>(
            matrix: &Borrowed<'_, I, f64>,
            name: &'static str,
            width: usize,
        ) -> PyResult<Matrix> {
            let (indptr, indices) = (matrix.indptr.as_slice()?, matrix.indices.as_slice()?);
            CsrView::new(name, indptr, indices, matrix.data.as_slice()?, width).map_err(to_py)?;
            Ok(Matrix {
                ends: indptr.iter().map(|end| end.get()).collect(),
                cols: indices.iter().map(|col| col.get() as u32).collect(),
                values: matrix.data.as_slice()?.to_vec(),
                n_cols: width,
            })
        }
        match self {
            Self::I32(matrix) => copied(matrix, name, width),
            Self::I64(matrix) => copied(matrix, name, width),
        }
    }
}

/// The fitted attributes of an estimator that score rows, and how it decodes.
#[derive(FromPyObject)]
pub(crate) struct PyCorrelated<'py> {
    #[pyo3(attribute("coef_"))]
    coef: PyDoubles<'py>,
    #[pyo3(attribute("intercept_"))]
    intercept: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("correlations_"))]
    correlations: PyDoubles<'py>,
    #[pyo3(attribute("label_sets_"))]
    label_sets: PyCsr32<'py>,
    #[pyo3(attribute("label_set_energies_"))]
    label_set_energies: PyReadonlyArray1<'py, f64>,
    decoder: String,
}

/// What a scorer borrows that Python does not hold in the form it wants.
struct Owned {
    couplings: Matrix,
    set_ends: Vec<usize>,
    set_labels: Vec<u32>,
}

impl PyCorrelated<'_> {
    fn owned(&self) -> PyResult<Owned> {
        fn sets<I: Element + Index>(
            sets: &Borrowed<'_, I, f32>,
        ) -> PyResult<(Vec<usize>, Vec<u32>)> {
            sets.view("label_sets_").map_err(to_py)?;
            let (indptr, indices) = (sets.indptr.as_slice()?, sets.indices.as_slice()?);
            Ok((
                indptr.iter().map(|end| end.get()).collect(),
                indices.iter().map(|label| label.get() as u32).collect(),
            ))
        }
        let (set_ends, set_labels) = match &self.label_sets {
            PyCsr32::I32(matrix) => sets(matrix)?,
            PyCsr32::I64(matrix) => sets(matrix)?,
        };
        Ok(Owned {
            couplings: self
                .correlations
                .to_rows("correlations_", self.intercept.len()?)?,
            set_ends,
            set_labels,
        })
    }

    fn scorer<'a, I: Element + Index>(
        &'a self,
        coef: &'a Borrowed<'_, I, f64>,
        owned: &'a Owned,
    ) -> PyResult<Scorer<'a, I, I>> {
        let weights = (
            coef.indptr.as_slice()?,
            coef.indices.as_slice()?,
            coef.data.as_slice()?,
        );
        let intercept = self.intercept.as_slice()?;
        let energies = self.label_set_energies.as_slice()?;
        method(&self.decoder)
            .and_then(|method| Scorer::new(weights, intercept, &owned.couplings, method))
            .and_then(|scorer| scorer.with_sets(&owned.set_ends, &owned.set_labels, energies))
            .map_err(to_py)
    }
}

/// Evaluates `$body` with `$scorer` bound to the scorer of `$model`, whatever its index type.
macro_rules! with_scorer {
    ($model:expr, |$scorer:ident| $body:expr) => {{
        let owned = $model.owned()?;
        match &$model.coef {
            PyDoubles::I32(coef) => {
                let $scorer = $model.scorer(coef, &owned)?;
                $body
            }
            PyDoubles::I64(coef) => {
                let $scorer = $model.scorer(coef, &owned)?;
                $body
            }
        }
    }};
}

/// indptr, indices, data of a matrix of doubles.
type DoubleArrays<'py> = (
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyArray1<f64>>,
);

fn double_arrays(py: Python<'_>, matrix: Matrix) -> DoubleArrays<'_> {
    let (ends, cols) = positions(py, &matrix.ends, &matrix.cols, matrix.n_cols);
    (ends, cols, matrix.values.into_pyarray(py))
}

/// Fits the correlated logistic model: (`n_features`, `n_labels`) weights in compressed rows,
/// intercepts, couplings, label sets with their energies, objective, violation, gradients taken,
/// whether it converged. `start`: a fitted estimator of the same features and labels.
#[expect(clippy::type_complexity, reason = "a tuple is what Python unpacks")]
#[expect(clippy::too_many_arguments, reason = "as every fit, and a start")]
#[pyfunction]
#[pyo3(signature = (x, y, sample_weight, start, params, n_threads, progress))]
pub(crate) fn fit_correlated<'py>(
    py: Python<'py>,
    x: PyCsr<'py>,
    y: PyCsr<'py>,
    sample_weight: Option<PyReadonlyArray1<'py, f32>>,
    start: Option<PyCorrelated<'py>>,
    params: PyParams,
    n_threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<(
    DoubleArrays<'py>,
    Bound<'py, PyArray1<f64>>,
    DoubleArrays<'py>,
    (Bound<'py, PyAny>, Bound<'py, PyAny>),
    Bound<'py, PyArray1<f64>>,
    (f64, f64, usize, bool),
)> {
    let params = Params::try_from(params)
        .and_then(Params::check)
        .map_err(to_py)?;
    let sample_weight = sample_weight
        .as_ref()
        .map(|weights| weights.as_slice())
        .transpose()?;
    let from = start
        .as_ref()
        .map(|model| {
            let intercept = model.intercept.as_slice()?;
            let weights = model.coef.to_rows("coef_", intercept.len())?;
            PyResult::Ok((weights, intercept, model.owned()?))
        })
        .transpose()?;
    let start = from.as_ref().map(|(weights, intercept, owned)| Start {
        weights,
        intercept,
        couplings: &owned.couplings,
    });
    let model: Model = with_view!(x, "X", |x| with_view!(y, "Y", |y| run(
        py,
        n_threads,
        progress.as_ref(),
        |watch| params.fit(x, y, sample_weight, start.as_ref(), watch)
    )?));
    let n_labels = model.intercept.len();
    let (set_ends, set_labels) = positions(py, &model.sets.ends, &model.sets.labels, n_labels);
    Ok((
        double_arrays(py, model.weights),
        model.intercept.into_pyarray(py),
        double_arrays(py, model.couplings),
        (set_ends, set_labels),
        model.sets.energies.into_pyarray(py),
        (
            model.objective,
            model.violation,
            model.n_iter,
            model.converged,
        ),
    ))
}

/// Rows times couplings that are decoded in a moment, also by a hundred rounds of messages.
const FEW_COUPLINGS: usize = 1 << 17;

/// Whether so few rows are decoded in a moment.
fn few(n_rows: usize, model: &PyCorrelated<'_>) -> PyResult<bool> {
    let n_couplings = match &model.correlations {
        PyDoubles::I32(matrix) => matrix.data.len()?,
        PyDoubles::I64(matrix) => matrix.data.len()?,
    };
    Ok(n_rows <= ROWS_AT_ONCE && n_rows * n_couplings <= FEW_COUPLINGS)
}

/// The log-odds of every label given the decoded others, (`n_rows`, `n_labels`).
#[pyfunction]
#[pyo3(signature = (model, x, n_threads))]
pub(crate) fn correlated_decision<'py>(
    py: Python<'py>,
    model: PyCorrelated<'py>,
    x: PyCsr<'py>,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    with_view!(x, "X", |x| with_scorer!(model, |scorer| {
        let scores = score(py, few(x.n_rows(), &model)?, n_threads, |watch| {
            scorer.decision(x, watch)
        })?;
        scores
            .into_pyarray(py)
            .reshape([x.n_rows(), scorer.n_labels()])
    }))
}

/// The probability of every label, (`n_rows`, `n_labels`).
#[pyfunction]
#[pyo3(signature = (model, x, n_threads))]
pub(crate) fn correlated_marginals<'py>(
    py: Python<'py>,
    model: PyCorrelated<'py>,
    x: PyCsr<'py>,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    with_view!(x, "X", |x| with_scorer!(model, |scorer| {
        let found = score(py, few(x.n_rows(), &model)?, n_threads, |watch| {
            scorer.marginals(x, watch)
        })?;
        found
            .into_pyarray(py)
            .reshape([x.n_rows(), scorer.n_labels()])
    }))
}

/// The `k` best labels of each row, as the arrays of a CSR matrix.
#[pyfunction]
#[pyo3(signature = (model, x, k, n_threads))]
pub(crate) fn correlated_topk<'py>(
    py: Python<'py>,
    model: PyCorrelated<'py>,
    x: PyCsr<'py>,
    k: usize,
    n_threads: usize,
) -> PyResult<CsrArrays<'py>> {
    let top = with_view!(x, "X", |x| with_scorer!(model, |scorer| {
        score(py, few(x.n_rows(), &model)?, n_threads, |watch| {
            scorer.topk(x, k, watch)
        })?
    }));
    Ok(csr_arrays(py, top))
}

/// The most probable label set of each row, as the arrays of a CSR matrix.
#[pyfunction]
#[pyo3(signature = (model, x, n_threads))]
pub(crate) fn correlated_predict<'py>(
    py: Python<'py>,
    model: PyCorrelated<'py>,
    x: PyCsr<'py>,
    n_threads: usize,
) -> PyResult<CsrArrays<'py>> {
    let sets = with_view!(x, "X", |x| with_scorer!(model, |scorer| {
        score(py, few(x.n_rows(), &model)?, n_threads, |watch| {
            scorer.predict(x, watch)
        })?
    }));
    Ok(csr_arrays(py, sets))
}
