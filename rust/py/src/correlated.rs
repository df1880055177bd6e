//! Defines the Python functions of `manylabel.correlated`. They fit the correlated logistic model and make
//! its scorer.

use crate::arrays::{F64s, handed};
use crate::csr::{Examples, PyCsr, Unchecked, positions};
use crate::error::to_py;
use crate::held::{Held, HeldCsr, interruptible, with_held};
use crate::params::{Named, from_named};
use crate::run::Job;
use crate::scorer::{Scorer, Source};
use manylabel_base::range::same;
use manylabel_base::{Error, collected, copied};
use manylabel_correlated as correlated;
use manylabel_correlated::{Checked, Coding, Matrix, Method, Model, Params, Solver, Start};
use manylabel_sparse::{CsrView, Index};
use pyo3::prelude::*;

/// Reads and checks the parameters of a fit.
pub(crate) fn checked(params: &Named<'_>) -> PyResult<Checked> {
    from_named!(params, Params {
        l2_features, l2_pairs, epsilon, standardize, tol, max_iter;
        coding: params.choice("coding", &[("01", Coding::ZeroOne), ("pm1", Coding::PlusMinus)])?,
        solver: params.choice("solver", &[
            ("auto", Solver::Auto), ("fista", Solver::Fista), ("reference", Solver::Reference)
        ])?,
    })
}

/// Checks the parameters before a fit. Raises `ValueError` if a parameter is out of range, or if two
/// parameters contradict each other.
#[pyfunction]
pub(crate) fn check_correlated(params: Named<'_>) -> PyResult<()> {
    checked(&params).map(drop)
}

/// Checks the structure of a CSR matrix with `width` columns, or of a CSC matrix with `width` rows, and
/// copies the matrix. `name` is the name of the attribute in error messages.
fn to_rows(matrix: &HeldCsr<f64>, name: &'static str, width: usize) -> Result<Matrix, Error> {
    with_held!(matrix, |matrix| {
        CsrView::new(name, &matrix.indptr, &matrix.indices, &matrix.data, width)?;
        let (ends, cols) = positions_of(name, &matrix.indptr, &matrix.indices)?;
        Ok(Matrix {
            ends,
            cols,
            values: copied(name, &matrix.data)?,
            n_cols: width,
        })
    })
}

/// Converts indptr and indices to the types of the crate that scores.
fn positions_of<I: Index>(
    name: &'static str,
    indptr: &[I],
    indices: &[I],
) -> Result<(Vec<usize>, Vec<u32>), Error> {
    Ok((
        collected(name, indptr.iter().map(|end| end.get()))?,
        collected(name, indices.iter().map(|col| col.get() as u32))?,
    ))
}

/// The attributes of a fitted estimator that scoring needs. They include three sparse matrices: `coef_`
/// (`n_labels`, `n_features`) in CSC form, `correlations_` (`n_labels`, `n_labels`) in CSR form, and
/// `label_sets_` (any number of rows, `n_labels`) in CSR form.
#[derive(FromPyObject)]
pub(crate) struct PyCorrelated {
    #[pyo3(attribute("coef_"))]
    coef: HeldCsr<f64>,
    #[pyo3(attribute("intercept_"))]
    intercept: Held<f64>,
    #[pyo3(attribute("correlations_"))]
    correlations: HeldCsr<f64>,
    #[pyo3(attribute("label_sets_"))]
    label_sets: HeldCsr<f32>,
    #[pyo3(attribute("label_set_energies_"))]
    label_set_energies: Held<f64>,
    #[pyo3(attribute("n_features_in_"))]
    n_features: usize,
    #[pyo3(attribute("_threshold"))]
    threshold: f64,
}

impl PyCorrelated {
    /// Copies the couplings between labels. The copy has one row for each label.
    fn couplings(&self) -> Result<Matrix, Error> {
        let n_labels = self.intercept.len();
        let couplings = to_rows(&self.correlations, "correlations_", n_labels)?;
        same("rows of correlations_", n_labels, couplings.ends.len() - 1)?;
        Ok(couplings)
    }
}

/// A fitted estimator, prepared for scoring. Scoring needs some arrays in another form than Python, and this
/// struct holds converted copies of these arrays.
struct Decoded {
    fitted: PyCorrelated,
    /// The method that decodes label sets.
    method: Method,
    couplings: Matrix,
    /// The ends of the label sets in `set_labels`. Label set s has the labels
    /// `set_labels[set_ends[s]..set_ends[s + 1]]`.
    set_ends: Vec<usize>,
    set_labels: Vec<u32>,
}

impl Source for Decoded {
    fn model(&self) -> Result<Box<dyn manylabel_score::Model + '_>, Error> {
        let PyCorrelated {
            coef,
            intercept,
            label_set_energies,
            n_features,
            threshold,
            ..
        } = &self.fitted;
        with_held!(coef, |coef| {
            coef.by_feature(intercept.len(), Some(*n_features))?;
            let weights = (&*coef.indptr, &*coef.indices, &*coef.data);
            let scorer = correlated::Scorer::new(weights, intercept, &self.couplings, self.method)?;
            let scorer = scorer.with_threshold(*threshold)?;
            Ok(Box::new(scorer.with_sets(
                &self.set_ends,
                &self.set_labels,
                label_set_energies,
            )?))
        })
    }
}

/// Prepares a fitted estimator for scoring. The only parameter used is `decoder`.
#[pyfunction]
pub(crate) fn correlated_scorer(
    #[pyo3(from_py_with = interruptible)] model: PyCorrelated,
    params: Named<'_>,
) -> PyResult<Scorer> {
    let (set_ends, set_labels) = with_held!(&model.label_sets, |sets| {
        sets.rows("label_sets_").map_err(to_py)?;
        positions_of("label_sets_", &sets.indptr, &sets.indices).map_err(to_py)?
    });
    Scorer::new(Decoded {
        method: params.choice(
            "decoder",
            &[
                ("auto", Method::Auto),
                ("exact", Method::Exact),
                ("search", Method::Search),
                ("bp", Method::Messages),
            ],
        )?,
        couplings: model.couplings().map_err(to_py)?,
        set_ends,
        set_labels,
        fitted: model,
    })
}

/// The arrays indptr, indices and data of a sparse matrix in double precision.
type DoubleArrays<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, F64s<'py>);

fn double_arrays(py: Python<'_>, matrix: Matrix) -> PyResult<DoubleArrays<'_>> {
    let (ends, cols) = positions(py, &matrix.ends, &matrix.cols, matrix.n_cols)?;
    Ok((ends, cols, handed(py, matrix.values)?))
}

/// The result of [`fit_correlated`].
pub(crate) type Fitted<'py> = (
    DoubleArrays<'py>,
    F64s<'py>,
    DoubleArrays<'py>,
    (Bound<'py, PyAny>, Bound<'py, PyAny>),
    F64s<'py>,
    (f64, f64, usize, bool),
);

/// Fits the correlated logistic model. `unknown`, if given, has the pairs of row and label that are unknown.
///
/// `start` is a fitted estimator with the same features and labels, or None. If it is not None, the fit
/// starts from the weights and couplings of `start`.
///
/// Returns a tuple:
///
/// - the arrays of the weights (`n_features`, `n_labels`) in compressed rows;
/// - the intercepts;
/// - the arrays of the couplings (`n_labels`, `n_labels`);
/// - the arrays indptr and indices of the label sets;
/// - the energies of the label sets;
/// - a tuple of the objective, the KKT violation, the number of iterations, and whether the fit
///   converged.
#[pyfunction]
pub(crate) fn fit_correlated<'py>(
    py: Python<'py>,
    examples: Examples<'py>,
    unknown: Option<PyCsr<'py>>,
    #[pyo3(from_py_with = interruptible)] start: Option<PyCorrelated>,
    params: Named<'py>,
    job: Job,
) -> PyResult<Fitted<'py>> {
    let params = checked(&params)?;
    let from = start
        .as_ref()
        .map(|model| {
            let weights = to_rows(&model.coef, "coef_", model.intercept.len())?;
            Ok((weights, &*model.intercept, model.couplings()?))
        })
        .transpose()
        .map_err(to_py)?;
    let start = from.as_ref().map(|(weights, intercept, couplings)| Start {
        weights,
        intercept,
        couplings,
    });
    let (x, y, sample_weight) = examples.unchecked()?;
    let unknown = unknown.as_ref().map(|unknown| unknown.unchecked("Y"));
    let unknown = unknown.transpose()?;
    let model: Model = job.run(py, |watch| {
        let unknown = unknown.map(Unchecked::to_owned).transpose()?;
        params.fit(
            x.sparse()?,
            y.sparse()?,
            unknown.as_ref(),
            sample_weight,
            start.as_ref(),
            watch,
        )
    })?;
    fitted(py, model)
}

/// Returns the items of [`Fitted`].
pub(crate) fn fitted(py: Python<'_>, model: Model) -> PyResult<Fitted<'_>> {
    let n_labels = model.intercept.len();
    let (set_ends, set_labels) = positions(py, &model.sets.ends, &model.sets.labels, n_labels)?;
    Ok((
        double_arrays(py, model.weights)?,
        handed(py, model.intercept)?,
        double_arrays(py, model.couplings)?,
        (set_ends, set_labels),
        handed(py, model.sets.energies)?,
        (
            model.objective,
            model.violation,
            model.n_iter,
            model.converged,
        ),
    ))
}
