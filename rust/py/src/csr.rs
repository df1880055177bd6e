//! Borrows the arrays of scipy's sparse matrices by their attribute names. No element is copied.
//!
//! Three types represent a matrix. [`PyCsr`] holds references to the numpy arrays. [`Unchecked`] holds slices
//! of these arrays, which can be sent to other threads. [`Sparse`] is a matrix with a checked structure. The
//! check takes O(rows + nnz) time and does not need the GIL.

use crate::arrays::handed;
use crate::error::to_py;
use crate::features::{Given, PyFeatures};
use manylabel_base::range::same;
use manylabel_base::{Error, collected};
use manylabel_linear::dismec::Factors;
use manylabel_sparse::{CsrOwned, CsrView, DenseView, Index, LabelsOwned, Sparse};
use numpy::{Element, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// The attributes of a `scipy.sparse` CSR or CSC matrix, before their types are known.
///
/// scipy computes the shape in Python, so Ctrl-C can raise `KeyboardInterrupt` while it is read. Conversions that
/// `PyO3` derives try one type after the other, and replace all exceptions by a `TypeError`. So the attributes are
/// read here, once, and the exception is passed on.
pub(crate) struct Attributes<'py> {
    pub(crate) indptr: Bound<'py, PyAny>,
    pub(crate) indices: Bound<'py, PyAny>,
    pub(crate) data: Bound<'py, PyAny>,
    pub(crate) shape: (usize, usize),
}

impl<'py> Attributes<'py> {
    /// Reads the attributes of `matrix`.
    ///
    /// # Errors
    ///
    /// Raises `AttributeError` if `matrix` is not such a matrix, and the exceptions of its properties.
    pub(crate) fn read(matrix: &Bound<'py, PyAny>) -> PyResult<Self> {
        Ok(Self {
            indptr: matrix.getattr("indptr")?,
            indices: matrix.getattr("indices")?,
            data: matrix.getattr("data")?,
            shape: matrix.getattr("shape")?.extract()?,
        })
    }

    /// Returns true if indptr is an array with 32 bits.
    pub(crate) fn has_short_indices(&self) -> bool {
        self.indptr.cast::<PyArray1<i32>>().is_ok()
    }

    /// Borrows the arrays.
    ///
    /// # Errors
    ///
    /// Raises `TypeError` if an array has another type.
    fn borrow<I: Element, T: Element>(&self) -> PyResult<Borrowed<'py, I, T>> {
        Ok(Borrowed {
            indptr: self.indptr.extract()?,
            indices: self.indices.extract()?,
            data: self.data.extract()?,
            shape: self.shape,
        })
    }
}

/// The arrays of one `scipy.sparse` CSR or CSC matrix.
pub(crate) struct Borrowed<'py, I: Element, T: Element> {
    pub(crate) indptr: PyReadonlyArray1<'py, I>,
    pub(crate) indices: PyReadonlyArray1<'py, I>,
    pub(crate) data: PyReadonlyArray1<'py, T>,
    shape: (usize, usize),
}

impl<I: Element + Index, T: Element> Borrowed<'_, I, T> {
    /// Borrows the arrays as slices. `name` is the name of the argument in error messages.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Csr`] if an array is not contiguous.
    fn arrays(&self, name: &'static str) -> Result<Arrays<'_, I, T>, Error> {
        // `estimator/validation.py` makes arrays contiguous. So an array that is not contiguous is an
        // error and is not copied here.
        let strided = |what| Error::Csr {
            matrix: name,
            row: 0,
            rule: format!("{what} is not contiguous"),
        };
        Ok(Arrays {
            name,
            indptr: self.indptr.as_slice().map_err(|_| strided("indptr"))?,
            indices: self.indices.as_slice().map_err(|_| strided("indices"))?,
            data: self.data.as_slice().map_err(|_| strided("data"))?,
            shape: self.shape,
        })
    }
}

/// The arrays of a CSR matrix whose structure has not been checked yet.
#[derive(Clone, Copy)]
pub(crate) struct Arrays<'a, I, T> {
    name: &'static str,
    indptr: &'a [I],
    indices: &'a [I],
    data: &'a [T],
    shape: (usize, usize),
}

impl<'a, I: Index, T> Arrays<'a, I, T> {
    /// Checks the structure, in O(rows + nnz) time.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the length of indptr is not the number of rows plus 1. Returns
    /// [`Error::Csr`] for the first invalid row.
    fn view(self) -> Result<CsrView<'a, I, T>, Error> {
        same("length of indptr", self.shape.0 + 1, self.indptr.len())?;
        CsrView::new(
            self.name,
            self.indptr,
            self.indices,
            self.data,
            self.shape.1,
        )
    }
}

/// A CSR matrix that the Python module `estimator/validation.py` passes. Indices have 32 or 64 bits, and
/// values have single or double precision.
pub(crate) enum PyCsr<'py> {
    I32F32(Borrowed<'py, i32, f32>),
    I64F32(Borrowed<'py, i64, f32>),
    I32F64(Borrowed<'py, i32, f64>),
    I64F64(Borrowed<'py, i64, f64>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for PyCsr<'py> {
    type Error = PyErr;

    fn extract(matrix: pyo3::Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let read = Attributes::read(&matrix)?;
        let is_single = read.data.cast::<PyArray1<f32>>().is_ok();
        Ok(match (read.has_short_indices(), is_single) {
            (true, true) => Self::I32F32(read.borrow()?),
            (false, true) => Self::I64F32(read.borrow()?),
            (true, false) => Self::I32F64(read.borrow()?),
            (false, false) => Self::I64F64(read.borrow()?),
        })
    }
}

/// Returns true if the extension module accepts a matrix without conversion. Such a matrix is a CSR matrix
/// with supported types, contiguous arrays and a valid structure. The columns of each row are sorted and
/// unique. The check takes O(rows + nnz) time.
///
/// # Errors
///
/// Raises `KeyboardInterrupt` if Ctrl-C is pressed while the attributes are read, and no other exception.
#[pyfunction]
pub(crate) fn is_canonical(matrix: &Bound<'_, PyAny>) -> PyResult<bool> {
    let matrix = match matrix.extract::<PyCsr<'_>>() {
        Err(error) if error.is_instance_of::<PyKeyboardInterrupt>(matrix.py()) => {
            return Err(error);
        }
        Err(_) => return Ok(false),
        Ok(matrix) => matrix,
    };
    let arrays = matrix.unchecked("X");
    Ok(arrays.is_ok_and(|arrays| arrays.sparse().is_ok()))
}

/// A matrix of supported types whose structure has not been checked yet. [`sparse`](Self::sparse) is
/// called inside [`run`](crate::run::run), while the GIL is released.
#[derive(Clone, Copy)]
pub(crate) enum Unchecked<'a> {
    I32F32(Arrays<'a, i32, f32>),
    I64F32(Arrays<'a, i64, f32>),
    I32F64(Arrays<'a, i32, f64>),
    I64F64(Arrays<'a, i64, f64>),
    /// Dense rows, and the numbers of all columns.
    Dense32(DenseView<'a, f32>, &'a [i32]),
    Dense64(DenseView<'a, f64>, &'a [i32]),
}

impl<'a> Unchecked<'a> {
    /// Checks the structure.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] or [`Error::Csr`] if the structure is not valid.
    pub(crate) fn sparse(self) -> Result<Sparse<'a>, Error> {
        Ok(match self {
            Self::I32F32(m) => Sparse::I32F32(m.view()?),
            Self::I64F32(m) => Sparse::I64F32(m.view()?),
            Self::I32F64(m) => Sparse::I32F64(m.view()?),
            Self::I64F64(m) => Sparse::I64F64(m.view()?),
            Self::Dense32(x, columns) => Sparse::I32F32(CsrView::of_dense(x, columns)?),
            Self::Dense64(x, columns) => Sparse::I32F64(CsrView::of_dense(x, columns)?),
        })
    }

    /// Checks the structure. Then copies the matrix in single precision, without explicit zeros.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`sparse`](Self::sparse). Also returns [`Error::TooLarge`] if memory
    /// is short, and [`Error::Param`] if a value is infinite.
    pub(crate) fn to_owned(self) -> Result<CsrOwned, Error> {
        self.sparse()?.to_owned(false)
    }

    /// Checks the structure. Then copies a matrix of labels, in which NaN stands for an unknown pair of row and
    /// label.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`to_owned`](Self::to_owned).
    pub(crate) fn to_labels(self) -> Result<LabelsOwned, Error> {
        self.sparse()?.to_labels()
    }
}

impl PyCsr<'_> {
    /// Returns the numbers of rows and columns according to the shape of the matrix.
    pub(crate) fn shape(&self) -> (usize, usize) {
        match self {
            Self::I32F32(m) => m.shape,
            Self::I64F32(m) => m.shape,
            Self::I32F64(m) => m.shape,
            Self::I64F64(m) => m.shape,
        }
    }

    /// Borrows the arrays as slices. `name` is the name of the argument in error messages.
    ///
    /// # Errors
    ///
    /// Raises `ValueError` if an array is not contiguous.
    pub(crate) fn unchecked(&self, name: &'static str) -> PyResult<Unchecked<'_>> {
        let arrays = match self {
            Self::I32F32(m) => m.arrays(name).map(Unchecked::I32F32),
            Self::I64F32(m) => m.arrays(name).map(Unchecked::I64F32),
            Self::I32F64(m) => m.arrays(name).map(Unchecked::I32F64),
            Self::I64F64(m) => m.arrays(name).map(Unchecked::I64F64),
        };
        arrays.map_err(to_py)
    }
}

/// X of a fit: sparse, or dense in C order. A dense X is read like a sparse X of which all entries are stored.
pub(crate) struct PyRows<'py> {
    x: PyFeatures<'py>,
    /// The numbers of all columns of X if X is dense.
    columns: Vec<i32>,
}

impl<'a, 'py> FromPyObject<'a, 'py> for PyRows<'py> {
    type Error = PyErr;

    fn extract(x: pyo3::Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let x: PyFeatures<'py> = x.extract()?;
        let n_columns = match x {
            PyFeatures::Sparse(_) => 0,
            _ => i32::try_from(x.shape().1)?,
        };
        Ok(Self {
            x,
            columns: collected("number of columns of X", 0..n_columns).map_err(to_py)?,
        })
    }
}

impl PyRows<'_> {
    /// Borrows the arrays as slices.
    ///
    /// # Errors
    ///
    /// Raises `ValueError` if an array is not contiguous.
    pub(crate) fn unchecked(&self) -> PyResult<Unchecked<'_>> {
        Ok(match self.x.given()? {
            Given::Sparse(x) => x,
            Given::Dense32(x) => Unchecked::Dense32(x, &self.columns),
            Given::Dense64(x) => Unchecked::Dense64(x, &self.columns),
        })
    }
}

/// The data of a fit: a tuple of X, Y, and the row weights or None.
pub(crate) struct Examples<'py>(PyRows<'py>, PyCsr<'py>, Option<PyReadonlyArray1<'py, f32>>);

impl<'a, 'py> FromPyObject<'a, 'py> for Examples<'py> {
    type Error = PyErr;

    fn extract(tuple: pyo3::Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let (x, y, weights) = tuple.extract()?;
        Ok(Self(x, y, weights))
    }
}

impl Examples<'_> {
    /// Borrows the arrays as slices.
    ///
    /// # Errors
    ///
    /// Raises `ValueError` if an array is not contiguous.
    pub(crate) fn unchecked(&self) -> PyResult<(Unchecked<'_>, Unchecked<'_>, Option<&[f32]>)> {
        let Self(x, y, weights) = self;
        Ok((x.unchecked()?, y.unchecked("Y")?, values(weights.as_ref())?))
    }

    /// Returns the numbers of features and labels.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.0.x.shape().1, self.1.shape().1)
    }
}

/// The factors of the costs of labels: one array for the positive rows, one for the negative rows.
#[derive(FromPyObject)]
pub(crate) struct PyFactors<'py>(PyReadonlyArray1<'py, f32>, PyReadonlyArray1<'py, f32>);

impl PyFactors<'_> {
    /// Copies the factors.
    ///
    /// # Errors
    ///
    /// Raises `ValueError` if an array is not contiguous or the arrays have different lengths. Raises `MemoryError`
    /// if memory is short.
    pub(crate) fn to_owned(&self) -> PyResult<Vec<Factors>> {
        let (positive, negative) = (self.0.as_slice()?, self.1.as_slice()?);
        same("factors of labels", positive.len(), negative.len()).map_err(to_py)?;
        let factors = positive.iter().zip(negative);
        let factors = factors.map(|(&positive, &negative)| Factors { positive, negative });
        collected("number of labels", factors).map_err(to_py)
    }
}

/// Evaluates `$body` with `$view` bound to the checked view of the labels. Labels have values in single
/// precision, and 32-bit or 64-bit indices.
macro_rules! with_labels {
    ($labels:expr, |$view:ident| $body:expr) => {
        match $labels.sparse()? {
            manylabel_sparse::Sparse::I32F32($view) => $body,
            manylabel_sparse::Sparse::I64F32($view) => $body,
            _ => Err(manylabel_base::Error::Param {
                name: "Y",
                expected: "a matrix of dtype float32",
                got: "a matrix of another type".into(),
            }),
        }
    };
}
pub(crate) use with_labels;

/// Borrows the values of a numpy array, or returns `None` if there is no array.
///
/// # Errors
///
/// Raises an exception of numpy if the array is not contiguous.
pub(crate) fn values<'a, T: Element>(
    array: Option<&'a PyReadonlyArray1<'_, T>>,
) -> PyResult<Option<&'a [T]>> {
    Ok(array.map(|array| array.as_slice()).transpose()?)
}

/// The arrays of a compressed sparse matrix for scipy: indptr, indices and data. The arrays indptr and
/// indices have 32 bits if their numbers fit, otherwise 64 bits.
pub(crate) type CsrArrays<'py> = (
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyArray1<f32>>,
);

/// Converts a matrix to numpy arrays. Values are moved without a copy, and indptr and indices are converted.
///
/// # Errors
///
/// Raises `MemoryError` if there is no memory for indptr and indices.
pub(crate) fn csr_arrays(py: Python<'_>, matrix: CsrOwned) -> PyResult<CsrArrays<'_>> {
    let (indptr, indices) = positions(py, &matrix.indptr, &matrix.indices, matrix.n_cols)?;
    Ok((indptr, indices, handed(py, matrix.values)?))
}

/// The arrays indptr and indices of a matrix, which have the same type.
type Positions<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Converts indptr and indices to numpy arrays. The arrays have 32 bits if the number of entries and the
/// number of columns fit in 32 bits, otherwise 64 bits.
///
/// # Errors
///
/// Raises `MemoryError` if there is no memory for the arrays.
pub(crate) fn positions<'py>(
    py: Python<'py>,
    ends: &[usize],
    cols: &[u32],
    n_cols: usize,
) -> PyResult<Positions<'py>> {
    fn convert<'py, I: Element>(
        py: Python<'py>,
        ends: &[usize],
        cols: &[u32],
        from: impl Fn(usize) -> I,
    ) -> PyResult<Positions<'py>> {
        let indptr = collected("indptr", ends.iter().map(|&end| from(end))).map_err(to_py)?;
        let indices = cols.iter().map(|&col| from(col as usize));
        let indices = collected("indices", indices).map_err(to_py)?;
        Ok((
            handed(py, indptr)?.into_any(),
            handed(py, indices)?.into_any(),
        ))
    }
    if i32::try_from(cols.len().max(n_cols)).is_ok() {
        convert(py, ends, cols, |position| position as i32)
    } else {
        convert(py, ends, cols, |position| position as i64)
    }
}
