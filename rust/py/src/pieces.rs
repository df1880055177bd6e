//! Defines the Python functions that fit DiSMEC in pieces, and that prepare rows in arrays of the caller.

use crate::arrays::{F32s, F64s, I32s, handed};
use crate::csr::{CsrArrays, Examples, PyCsr, PyFactors, csr_arrays};
use crate::error::to_py;
use crate::held::Held;
use crate::linear::{checked, counts};
use crate::params::Named;
use crate::run::Job;
use manylabel_base::{Error, collected};
use manylabel_linear::Tally;
use manylabel_linear::dismec::{Prepared, Targets, Task};
use manylabel_sparse::{CsrMut, CsrRef, scale_into, with_sparse};
use numpy::{PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;
use self_cell::self_cell;

/// The row ends, columns and values of a matrix that [`scale_rows`] or [`transpose_rows`] has written.
type HeldRows = (Held<usize>, Held<u32>, Held<f32>);

/// The arrays that [`scale_rows`] or [`transpose_rows`] fills: row ends, columns and values.
type Filled<'py> = (
    PyReadwriteArray1<'py, usize>,
    PyReadwriteArray1<'py, u32>,
    PyReadwriteArray1<'py, f32>,
);

/// Rows that are prepared for a fit: a tuple of the rows, their transpose or None, the original numbers of their
/// columns, and the number of features of X.
pub(crate) struct PyPrepared {
    x: HeldRows,
    xt: Option<HeldRows>,
    features: Held<u32>,
    n_features: usize,
    /// The number of columns of the rows, which includes the column of ones.
    n_cols: usize,
}

impl<'a, 'py> FromPyObject<'a, 'py> for PyPrepared {
    type Error = PyErr;

    fn extract(tuple: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let (x, xt, features, n_features, n_cols): (
            HeldRows,
            Option<HeldRows>,
            Held<u32>,
            usize,
            usize,
        ) = tuple.extract()?;
        Ok(Self {
            x,
            xt,
            features,
            n_features,
            n_cols,
        })
    }
}

impl PyPrepared {
    /// Borrows the arrays, after their lengths are checked.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`CsrRef::new`].
    pub(crate) fn view(&self) -> Result<Prepared<'_>, Error> {
        let (indptr, indices, values) = &self.x;
        let x = CsrRef::new(indptr, indices, values, self.n_cols)?;
        let n_rows = x.n_rows();
        let xt = self.xt.as_ref();
        let xt = xt.map(|(indptr, indices, values)| CsrRef::new(indptr, indices, values, n_rows));
        Ok(Prepared {
            x,
            xt: xt.transpose()?,
            features: &self.features,
            n_features: self.n_features,
        })
    }
}

self_cell!(
    struct Cell {
        owner: Option<PyPrepared>,

        #[not_covariant]
        dependent: Task,
    }
);

/// The training set of `DiSMEC`, for fits of ranges of panels. A panel is a group of sixteen labels.
#[pyclass(frozen, module = "manylabel._core")]
pub(crate) struct DismecTask(Cell);

/// The result of a piece: the labels; the arrays of their weights (labels of the piece, `n_features`); their
/// intercepts; their numbers of iterations; and the statistics for the threshold or None.
type PyPiece<'py> = (
    I32s<'py>,
    CsrArrays<'py>,
    F32s<'py>,
    I32s<'py>,
    Option<PyTally<'py>>,
);

/// The total weight of the pairs to predict, and the scores of held-out pairs with their weights.
pub(crate) type PyTally<'py> = (f64, F32s<'py>, F64s<'py>);

/// Returns the statistics for the threshold as Python objects.
pub(crate) fn told<'py>(py: Python<'py>, tally: &Tally) -> PyResult<PyTally<'py>> {
    let (scores, weights): (Vec<_>, Vec<_>) = tally.pairs().iter().copied().unzip();
    Ok((tally.wanted(), handed(py, scores)?, handed(py, weights)?))
}

#[pymethods]
impl DismecTask {
    /// Prepares a training set. `prepared` has the rows of X that [`scale_rows`] has written, or None to copy the
    /// rows of X. `factors`, if given, has the factors of the costs of each label.
    #[new]
    fn new(
        py: Python<'_>,
        examples: Examples<'_>,
        prepared: Option<PyPrepared>,
        factors: Option<PyFactors<'_>>,
        params: Named<'_>,
        job: Job,
    ) -> PyResult<Self> {
        let params = checked(&params)?;
        let (x, y, sample_weight) = examples.unchecked()?;
        let factors = factors.map(|factors| factors.to_owned()).transpose()?;
        let cell = job.run(py, |watch| {
            let y = y.to_labels()?;
            let targets = Targets {
                labels: y.view(),
                factors: factors.as_deref(),
            };
            Cell::try_new(prepared, |prepared| match prepared {
                Some(rows) => params.prepared_task(rows.view()?, targets, sample_weight, watch),
                None => params.task(x.sparse()?, targets, sample_weight, watch),
            })
        })?;
        Ok(Self(cell))
    }

    /// The number of units, which are panels.
    #[getter]
    fn n_units(&self) -> usize {
        self.0.with_dependent(|_, task| task.n_panels())
    }

    /// Fits the panels `first..end`.
    fn fit<'py>(
        &self,
        py: Python<'py>,
        first: usize,
        end: usize,
        job: Job,
    ) -> PyResult<PyPiece<'py>> {
        let piece = self
            .0
            .with_dependent(|_, task| job.run(py, |watch| task.fit(first..end, watch)))?;
        let labels = piece.labels.iter().map(|&label| label as i32);
        let labels = collected("number of labels", labels).map_err(to_py)?;
        let tally = piece.tally.map(|tally| told(py, &tally));
        Ok((
            handed(py, labels)?,
            csr_arrays(py, piece.weights)?,
            handed(py, piece.intercept)?,
            counts(py, &piece.n_iter)?,
            tally.transpose()?,
        ))
    }
}

/// Returns the threshold that is learned from the statistics of all pieces, or None.
#[pyfunction]
pub(crate) fn dismec_cut(
    wanted: f64,
    scores: PyReadonlyArray1<'_, f32>,
    weights: PyReadonlyArray1<'_, f64>,
) -> PyResult<Option<f32>> {
    let mut tally = Tally::new(wanted);
    for (&score, &weight) in scores.as_slice()?.iter().zip(weights.as_slice()?) {
        tally.push_weighted(score, weight).map_err(to_py)?;
    }
    Ok(tally.cut(0.0))
}

/// Writes the rows of X into arrays of the caller, in the form that the fit of `DiSMEC` uses. If `normalize` is
/// true, rows are scaled to unit length. If `ones` is true, a column of ones is added. Columns without entries are
/// left out.
///
/// The arrays of columns and values must have one entry for each stored value of X and, if `ones` is true, one
/// more entry for each row. The last row end is the number of entries that are used. Returns the original
/// number of each column, without the column of ones.
#[pyfunction]
pub(crate) fn scale_rows<'py>(
    py: Python<'py>,
    x: PyCsr<'py>,
    normalize: bool,
    ones: bool,
    out: Filled<'py>,
    job: Job,
) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let x = x.unchecked("X")?;
    let (mut indptr, mut indices, mut values) = out;
    let mut out = CsrMut {
        indptr: indptr.as_slice_mut()?,
        indices: indices.as_slice_mut()?,
        values: values.as_slice_mut()?,
    };
    let features = job.run(py, |watch| {
        with_sparse!(x.sparse()?, |x| scale_into(
            x, normalize, ones, &mut out, watch
        ))
    })?;
    handed(py, features)
}

/// Writes the transpose of rows that [`scale_rows`] has written into arrays of the caller. `n_cols` is the number of
/// columns of the rows.
#[pyfunction]
pub(crate) fn transpose_rows(
    py: Python<'_>,
    rows: HeldRows,
    n_cols: usize,
    out: Filled<'_>,
    job: Job,
) -> PyResult<()> {
    let (mut indptr, mut indices, mut values) = out;
    let mut out = CsrMut {
        indptr: indptr.as_slice_mut()?,
        indices: indices.as_slice_mut()?,
        values: values.as_slice_mut()?,
    };
    job.run(py, |watch| {
        CsrRef::new(&rows.0, &rows.1, &rows.2, n_cols)?.transpose_into(&mut out, watch)
    })
}
