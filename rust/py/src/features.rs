//! Borrows the feature matrix X that the Python module `estimator/validation.py` passes. X is sparse or
//! dense, in single or double precision.

use crate::csr::{PyCsr, Unchecked};
use crate::error::to_py;
use manylabel_base::Error;
use manylabel_sparse::{DenseView, Features};
use numpy::{PyReadonlyArray2, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// A feature matrix of Python. No element is copied.
pub(crate) enum PyFeatures<'py> {
    Dense32(PyReadonlyArray2<'py, f32>),
    Dense64(PyReadonlyArray2<'py, f64>),
    Sparse(PyCsr<'py>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for PyFeatures<'py> {
    type Error = PyErr;

    /// Converts x to one of the variants. The function first tests whether x is a numpy array, because a
    /// failed conversion takes as long as scoring a row.
    fn extract(x: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if x.cast::<PyUntypedArray>().is_err() {
            return x.extract().map(Self::Sparse);
        }
        match x.extract() {
            Ok(x) => Ok(Self::Dense32(x)),
            Err(_) => Ok(Self::Dense64(x.extract()?)),
        }
    }
}

/// A feature matrix whose structure is checked later, while the GIL is released.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    Dense32(DenseView<'a, f32>),
    Dense64(DenseView<'a, f64>),
    Sparse(Unchecked<'a>),
}

impl PyFeatures<'_> {
    /// Borrows the arrays as slices.
    ///
    /// # Errors
    ///
    /// Raises `ValueError` if a dense matrix is not in C order, or if an array of a sparse matrix is
    /// not contiguous.
    pub(crate) fn given(&self) -> PyResult<Given<'_>> {
        Ok(match self {
            Self::Dense32(x) => Given::Dense32(DenseView::new(&x.as_array()).map_err(to_py)?),
            Self::Dense64(x) => Given::Dense64(DenseView::new(&x.as_array()).map_err(to_py)?),
            Self::Sparse(x) => Given::Sparse(x.unchecked("X")?),
        })
    }

    /// Returns the numbers of rows and features.
    pub(crate) fn shape(&self) -> (usize, usize) {
        match self {
            Self::Dense32(x) => (x.shape()[0], x.shape()[1]),
            Self::Dense64(x) => (x.shape()[0], x.shape()[1]),
            Self::Sparse(x) => x.shape(),
        }
    }
}

impl<'a> Given<'a> {
    /// Checks the structure of a sparse matrix. A dense matrix needs no check.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Unchecked::sparse`].
    pub(crate) fn features(self) -> Result<Features<'a>, Error> {
        Ok(match self {
            Self::Dense32(x) => x.into(),
            Self::Dense64(x) => x.into(),
            Self::Sparse(x) => Features::Sparse(x.sparse()?),
        })
    }
}
