//! Holds the numpy arrays that a scorer, or the training set of a fit, borrows as long as it exists.
//!
//! Nothing is copied: a reference keeps each array alive. If an array is changed in place, the scores or the weights
//! change. Indices are checked again whenever they are used, so a change causes at worst an error.

use crate::csr::Attributes;
use manylabel_base::Error;
use manylabel_base::range::same;
use manylabel_sparse::{CsrView, Index};
use numpy::ndarray::{ArrayView2, Ix2, RawArrayView};
use numpy::{Element, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::{PyKeyboardInterrupt, PyTypeError};
use pyo3::prelude::*;
use std::iter;
use std::ops::Deref;
use std::ptr::NonNull;

/// The values of a contiguous numpy array.
pub(crate) struct Held<T> {
    start: NonNull<T>,
    len: usize,
    /// A reference that keeps the values alive.
    _array: Py<PyAny>,
}

// SAFETY: the values are plain numbers, and are only read through this type.
unsafe impl<T: Element> Send for Held<T> {}
// SAFETY: the values are plain numbers, and are only read through this type.
unsafe impl<T: Element> Sync for Held<T> {}

impl<T> Held<T> {
    /// Keeps `array` alive and borrows `values`, which must be the values of `array`.
    fn new(values: &[T], array: &Bound<'_, PyAny>) -> Self {
        Self {
            start: NonNull::from(values).cast(),
            len: values.len(),
            _array: array.clone().unbind(),
        }
    }
}

impl<T> Deref for Held<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `_array` keeps the array of these values alive, and numpy does not resize an array that
        // has other references.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<'a, 'py, T: Element + 'a> FromPyObject<'a, 'py> for Held<T> {
    type Error = PyErr;

    fn extract(array: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let values: PyReadonlyArray1<'py, T> = array.extract()?;
        Ok(Self::new(values.as_slice()?, &array))
    }
}

/// The bits of the values of a contiguous numpy array of type float16.
pub(crate) struct HeldHalf(Held<u16>);

impl HeldHalf {
    /// Returns the bits of the values.
    pub(crate) fn bits(&self) -> &[u16] {
        &self.0
    }
}

impl<'a, 'py> FromPyObject<'a, 'py> for HeldHalf {
    type Error = PyErr;

    fn extract(array: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        // The comparison is false if the array has the other byte order.
        if !array.getattr("dtype")?.eq("float16")? {
            return Err(PyTypeError::new_err("the array must have dtype float16"));
        }
        // The view keeps the array alive.
        let bits = array.call_method1("view", ("uint16",))?;
        Ok(Self(bits.extract()?))
    }
}

/// The values of a matrix with any strides.
pub(crate) struct HeldView<T> {
    values: RawArrayView<T, Ix2>,
    /// A reference that keeps the values alive.
    _array: Py<PyAny>,
}

// SAFETY: the values are plain numbers, and are only read through this type.
unsafe impl<T: Element> Send for HeldView<T> {}
// SAFETY: the values are plain numbers, and are only read through this type.
unsafe impl<T: Element> Sync for HeldView<T> {}

impl<T> HeldView<T> {
    /// Borrows the values.
    pub(crate) fn view(&self) -> ArrayView2<'_, T> {
        // SAFETY: as for `Held`. The functions that check X pass only aligned arrays.
        unsafe { self.values.deref_into_view() }
    }
}

impl<'a, 'py, T: Element + 'a> FromPyObject<'a, 'py> for HeldView<T> {
    type Error = PyErr;

    fn extract(array: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let values: PyReadonlyArray2<'py, T> = array.extract()?;
        Ok(Self {
            values: values.as_array().raw_view(),
            _array: array.to_owned().unbind(),
        })
    }
}

/// The values of a contiguous matrix in C order or Fortran order.
pub(crate) struct HeldMatrix<T> {
    values: Held<T>,
    /// The numbers of rows and columns.
    pub(crate) shape: (usize, usize),
    /// True if the values are in C order.
    in_order: bool,
}

impl<T> HeldMatrix<T> {
    /// Returns the values, row by row.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] for the parameter `name` if the values are in Fortran order.
    pub(crate) fn by_rows(&self, name: &'static str) -> Result<&[T], Error> {
        if self.in_order {
            return Ok(&self.values);
        }
        Err(Error::Param {
            name,
            expected: "laid out in C order",
            got: format!(
                "a {} x {} matrix in another order",
                self.shape.0, self.shape.1
            ),
        })
    }
}

impl<'a, 'py, T: Element + 'a> FromPyObject<'a, 'py> for HeldMatrix<T> {
    type Error = PyErr;

    fn extract(array: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let values: PyReadonlyArray2<'py, T> = array.extract()?;
        Ok(Self {
            values: Held::new(values.as_slice()?, &array),
            shape: (values.shape()[0], values.shape()[1]),
            in_order: values.is_c_contiguous(),
        })
    }
}

/// The arrays of a `scipy.sparse` matrix in CSR or CSC form, read from scipy's attributes.
pub(crate) struct HeldSparse<I: Element, T: Element> {
    pub(crate) indptr: Held<I>,
    pub(crate) indices: Held<I>,
    pub(crate) data: Held<T>,
    /// The shape (rows, columns) of the matrix. It does not depend on whether the form is CSR or CSC.
    shape: (usize, usize),
}

impl<I: Element, T: Element> HeldSparse<I, T> {
    /// Borrows the arrays.
    ///
    /// # Errors
    ///
    /// Raises an exception if an array has another type or is not contiguous.
    fn new(read: &Attributes<'_>) -> PyResult<Self> {
        Ok(Self {
            indptr: read.indptr.extract()?,
            indices: read.indices.extract()?,
            data: read.data.extract()?,
            shape: read.shape,
        })
    }
}

impl<I: Element + Index, T: Element> HeldSparse<I, T> {
    /// Returns the checked view of a CSR matrix. `name` is the name of the attribute in error messages.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Csr`] for the first invalid row.
    pub(crate) fn rows(&self, name: &'static str) -> Result<CsrView<'_, I, T>, Error> {
        self.check_ends(name, self.shape.0)?;
        CsrView::new(name, &self.indptr, &self.indices, &self.data, self.shape.1)
    }

    /// Returns the checked view of the weights `coef_`, a CSC matrix (`n_labels`, `n_features`). The view is
    /// a CSR matrix with one row for each feature. `n_features` is None if the caller does not know the
    /// number of features.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the matrix has a different shape. Returns [`Error::Csr`] for the first
    /// invalid column.
    pub(crate) fn by_feature(
        &self,
        n_labels: usize,
        n_features: Option<usize>,
    ) -> Result<CsrView<'_, I, T>, Error> {
        const TURNED: &str = "coef_.T";
        same("rows of coef_", n_labels, self.shape.0)?;
        let n_features = n_features.unwrap_or(self.shape.1);
        same("columns of coef_", n_features, self.shape.1)?;
        self.check_ends(TURNED, self.shape.1)?;
        CsrView::new(TURNED, &self.indptr, &self.indices, &self.data, n_labels)
    }

    /// Checks that the length of indptr is the number of rows plus 1.
    fn check_ends(&self, matrix: &'static str, n_rows: usize) -> Result<(), Error> {
        if self.indptr.len().checked_sub(1) == Some(n_rows) {
            return Ok(());
        }
        Err(Error::Csr {
            matrix,
            row: 0,
            rule: format!("indptr has {} entries for {n_rows} rows", self.indptr.len()),
        })
    }
}

/// A sparse matrix with 32-bit or 64-bit indices.
pub(crate) enum HeldCsr<T: Element> {
    I32(HeldSparse<i32, T>),
    I64(HeldSparse<i64, T>),
}

impl<'a, 'py, T: Element + 'a> FromPyObject<'a, 'py> for HeldCsr<T> {
    type Error = PyErr;

    fn extract(matrix: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let read = Attributes::read(&matrix)?;
        Ok(if read.has_short_indices() {
            Self::I32(HeldSparse::new(&read)?)
        } else {
            Self::I64(HeldSparse::new(&read)?)
        })
    }
}

/// Converts an argument that contains a [`HeldCsr`] in a field. `PyO3` replaces an exception for a field by a
/// `TypeError` with this exception as its cause. `KeyboardInterrupt` is passed on instead (see [`Attributes`]).
///
/// # Errors
///
/// Raises `KeyboardInterrupt` if Ctrl-C is pressed, and otherwise the exception of the conversion.
pub(crate) fn interruptible<'a, 'py, T>(argument: &'a Bound<'py, PyAny>) -> PyResult<T>
where
    T: FromPyObject<'a, 'py, Error = PyErr>,
{
    let py = argument.py();
    argument.extract().map_err(|error: PyErr| {
        iter::successors(error.cause(py), |cause| cause.cause(py))
            .find(|cause| cause.is_instance_of::<PyKeyboardInterrupt>(py))
            .unwrap_or(error)
    })
}

/// Evaluates `$body` with `$m` bound to the arrays of `$matrix`, for 32-bit or 64-bit indices.
macro_rules! with_held {
    ($matrix:expr, |$m:ident| $body:expr) => {
        match $matrix {
            $crate::held::HeldCsr::I32($m) => $body,
            $crate::held::HeldCsr::I64($m) => $body,
        }
    };
}
pub(crate) use with_held;
