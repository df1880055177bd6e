//! Borrows a dense matrix X for fits, in half, single or double precision and with any strides, and defines the
//! Python functions for fits of DiSMEC to such a matrix.

use crate::arrays::{F32Rows, F32s, F64s, I32s, handed};
use crate::csr::{PyCsr, PyFactors, Unchecked, values};
use crate::held::{Held, HeldMatrix, HeldView, interruptible};
use crate::linear::{checked, counts};
use crate::params::Named;
use crate::pieces::{PyTally, told};
use crate::run::{Job, run};
use crate::scorer::{Scorer, Source};
use manylabel_base::range::same;
use manylabel_base::{Error, Watch};
use manylabel_linear::DenseScorer;
use manylabel_linear::dismec::{DenseStart, DenseTask, Targets};
use manylabel_score::Model;
use manylabel_sparse::{Rows, Table, TableRows};
use numpy::{PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArray};
use pyo3::prelude::*;
use self_cell::self_cell;

/// X of a fit that reads a sparse X, and a dense X in any memory order.
pub(crate) enum PyTableOrCsr<'py> {
    Table(PyTable),
    Csr(PyCsr<'py>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for PyTableOrCsr<'py> {
    type Error = PyErr;

    /// Tests the type first, so that an exception of `PyCsr`, such as `KeyboardInterrupt`, is passed on.
    fn extract(x: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if x.cast::<PyUntypedArray>().is_ok() {
            x.extract().map(Self::Table)
        } else {
            x.extract().map(Self::Csr)
        }
    }
}

/// The borrowed arrays of [`PyTableOrCsr`]. The structure of a sparse X is checked later, while the GIL is released.
#[derive(Clone, Copy)]
pub(crate) enum TableOrCsr<'a> {
    Table(Table<'a>),
    Csr(Unchecked<'a>),
}

impl PyTableOrCsr<'_> {
    /// Borrows the arrays.
    ///
    /// # Errors
    ///
    /// Raises `ValueError` if an array of a sparse matrix is not contiguous.
    pub(crate) fn arrays(&self) -> PyResult<TableOrCsr<'_>> {
        Ok(match self {
            Self::Table(x) => TableOrCsr::Table(x.view()),
            Self::Csr(x) => TableOrCsr::Csr(x.unchecked("X")?),
        })
    }
}

/// X, Y and the weights of the rows or None.
pub(crate) type AnyExamples<'py> = (
    PyTableOrCsr<'py>,
    PyCsr<'py>,
    Option<PyReadonlyArray1<'py, f32>>,
);

/// Returns the rows of X for a fit. Sparse rows are copied, and dense rows are read from X. `columns`, if given, has the
/// shift and the scale of each column of a dense X. If `unit` is true, rows are scaled to unit length.
///
/// # Errors
///
/// Returns the errors of [`TableRows::exact`] and [`Rows::copied`].
pub(crate) fn rows<'a>(
    x: TableOrCsr<'a>,
    columns: Option<(&[f64], &[f64])>,
    unit: bool,
    watch: &Watch,
) -> Result<Rows<'a>, Error> {
    match x {
        TableOrCsr::Csr(x) => Rows::copied(x.sparse()?, unit),
        TableOrCsr::Table(x) => {
            let rows = TableRows::exact(x, columns, unit, watch)?;
            Ok(Rows::Dense(rows))
        }
    }
}

/// A dense matrix of Python. No element is copied. A matrix in half precision is passed as a view of its bits,
/// with dtype uint16.
#[derive(FromPyObject)]
pub(crate) enum PyTable {
    F32(HeldView<f32>),
    F64(HeldView<f64>),
    F16(HeldView<u16>),
}

impl PyTable {
    /// Borrows the array.
    pub(crate) fn view(&self) -> Table<'_> {
        match self {
            Self::F16(x) => Table::F16(x.view()),
            Self::F32(x) => Table::F32(x.view()),
            Self::F64(x) => Table::F64(x.view()),
        }
    }
}

/// X, Y and the weights of the rows or None.
type Examples<'py> = (PyTable, PyCsr<'py>, Option<PyReadonlyArray1<'py, f32>>);

/// The shift and the scale of each column.
pub(crate) type PyColumns<'py> = (PyReadonlyArray1<'py, f64>, PyReadonlyArray1<'py, f64>);

/// Borrows the shift and the scale of each column.
pub(crate) fn slices<'a>(
    columns: Option<&'a PyColumns<'_>>,
) -> PyResult<Option<(&'a [f64], &'a [f64])>> {
    let columns = columns.map(|(shift, scale)| Ok((shift.as_slice()?, scale.as_slice()?)));
    columns.transpose()
}

/// Returns the shift and the scale of each column of a dense X. [`standardize_columns`] computes the same numbers
/// for a sparse X.
///
/// [`standardize_columns`]: crate::linear::standardize_columns
#[pyfunction]
pub(crate) fn column_scaling<'py>(
    py: Python<'py>,
    x: PyTable,
    sample_weight: Option<PyReadonlyArray1<'py, f32>>,
    center: bool,
) -> PyResult<(F64s<'py>, F64s<'py>)> {
    let sample_weight = values(sample_weight.as_ref())?;
    let x = x.view();
    let scaling = run(py, 1, None, |watch| {
        x.column_scaling(sample_weight, center, watch)
    })?;
    Ok((handed(py, scaling.shift)?, handed(py, scaling.scale)?))
}

self_cell!(
    struct Cell {
        owner: PyTable,

        #[not_covariant]
        dependent: DenseTask,
    }
);

/// The training set of `DiSMEC` with a dense X, for fits of all labels or of ranges of units. A unit is a group of up
/// to 256 labels.
#[pyclass(frozen, module = "manylabel._core")]
pub(crate) struct DismecDenseTask(Cell);

/// The weights (`n_labels`, `n_features`) of the scaled columns; the intercepts; the number of iterations for each
/// label; and the learned threshold or None.
type PyModel<'py> = (F32Rows<'py>, F32s<'py>, I32s<'py>, Option<f32>);

/// The result of a piece: the labels; their weights (labels of the piece, `n_features`); their intercepts; their
/// numbers of iterations; and the statistics for the threshold or None.
type PyPiece<'py> = (
    I32s<'py>,
    F32Rows<'py>,
    F32s<'py>,
    I32s<'py>,
    Option<PyTally<'py>>,
);

#[pymethods]
impl DismecDenseTask {
    /// Prepares a training set. `columns`, if given, has the shift and the scale of each column. `factors`, if given,
    /// has the factors of the costs of each label.
    #[new]
    fn new(
        py: Python<'_>,
        examples: Examples<'_>,
        columns: Option<PyColumns<'_>>,
        factors: Option<PyFactors<'_>>,
        params: Named<'_>,
        job: Job,
    ) -> PyResult<Self> {
        let by_row: bool = params.get("normalize")?;
        let ones: bool = params.get("fit_intercept")?;
        let params = checked(&params)?;
        let (x, y, sample_weight) = examples;
        let (y, sample_weight) = (y.unchecked("Y")?, values(sample_weight.as_ref())?);
        let columns = slices(columns.as_ref())?;
        let factors = factors.map(|factors| factors.to_owned()).transpose()?;
        let cell = job.run(py, |watch| {
            let y = y.to_labels()?;
            let targets = Targets {
                labels: y.view(),
                factors: factors.as_deref(),
            };
            Cell::try_new(x, |x| {
                let rows = TableRows::new(x.view(), columns, by_row, ones, watch)?;
                params.dense_task(rows, targets, sample_weight, watch)
            })
        })?;
        Ok(Self(cell))
    }

    /// Fits all labels. `start`, if given, has weights (`n_labels`, `n_features`) of the scaled columns and intercepts,
    /// from which the steps begin.
    fn model<'py>(
        &self,
        py: Python<'py>,
        start: Option<(PyReadonlyArray2<'py, f32>, PyReadonlyArray1<'py, f32>)>,
        job: Job,
    ) -> PyResult<PyModel<'py>> {
        let start = match &start {
            None => None,
            Some((weights, intercept)) => Some(DenseStart {
                weights: weights.as_slice()?,
                intercept: intercept.as_slice()?,
            }),
        };
        self.0.with_dependent(|_, task| {
            let model = job.run(py, |watch| task.model(start, watch))?;
            let shape = [model.intercept.len(), task.n_features()];
            Ok((
                handed(py, model.weights)?.reshape(shape)?,
                handed(py, model.intercept)?,
                counts(py, &model.n_iter)?,
                model.cut,
            ))
        })
    }

    /// The number of units.
    #[getter]
    fn n_units(&self) -> usize {
        self.0.with_dependent(|_, task| task.n_units())
    }

    /// Fits the units `first..end`.
    fn fit<'py>(
        &self,
        py: Python<'py>,
        first: usize,
        end: usize,
        job: Job,
    ) -> PyResult<PyPiece<'py>> {
        self.0.with_dependent(|_, task| {
            let piece = job.run(py, |watch| task.fit(first..end, watch))?;
            let shape = [piece.labels.len(), task.n_features()];
            Ok((
                counts(py, &piece.labels)?,
                handed(py, piece.weights)?.reshape(shape)?,
                handed(py, piece.intercept)?,
                counts(py, &piece.n_iter)?,
                piece.tally.map(|tally| told(py, &tally)).transpose()?,
            ))
        })
    }
}

/// The attributes of a fitted estimator with dense weights that scoring needs.
#[derive(FromPyObject)]
pub(crate) struct PyDenseLinear {
    #[pyo3(attribute("coef_"))]
    coef: HeldMatrix<f32>,
    #[pyo3(attribute("intercept_"))]
    intercept: Held<f32>,
    #[pyo3(attribute("n_features_in_"))]
    n_features: usize,
    #[pyo3(attribute("_normalizes_rows"))]
    normalize: bool,
}

impl Source for PyDenseLinear {
    fn model(&self) -> Result<Box<dyn Model + '_>, Error> {
        same("labels of coef_", self.intercept.len(), self.coef.shape.0)?;
        same("features of coef_", self.n_features, self.coef.shape.1)?;
        Ok(Box::new(DenseScorer::new(
            self.coef.by_rows("coef_")?,
            &self.intercept,
            self.n_features,
            self.normalize,
        )?))
    }
}

/// Prepares a fitted estimator with dense weights for scoring.
#[pyfunction]
pub(crate) fn dense_linear_scorer(
    #[pyo3(from_py_with = interruptible)] model: PyDenseLinear,
) -> PyResult<Scorer> {
    Scorer::new(model)
}
