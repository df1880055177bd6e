//! numpy arrays that a scorer borrows for as long as it lives.
//!
//! Nothing is copied: an array is kept alive by a reference to it. Whoever changes a fitted array in
//! place changes what is scored; positions are checked again when they are used, so that the worst
//! that follows is an error.

use manylabel_base::Error;
use manylabel_base::range::same;
use manylabel_sparse::{CsrView, Index};
use numpy::{Element, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use std::ops::Deref;
use std::ptr::NonNull;

/// The values of an array in one piece.
pub(crate) struct Held<T> {
    start: NonNull<T>,
    len: usize,
    _array: Py<PyAny>,
}

// SAFETY: what is pointed to is plain numbers, and only ever read through this.
unsafe impl<T: Element> Send for Held<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for Held<T> {}

impl<T> Held<T> {
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
        // SAFETY: these are the values of an array that `_array` keeps alive, and numpy refuses to
        // resize an array that others refer to.
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

/// A matrix; its values lie row after row if it is in C order.
pub(crate) struct HeldMatrix<T> {
    values: Held<T>,
    pub(crate) shape: (usize, usize),
    in_order: bool,
}

impl<T> HeldMatrix<T> {
    /// The values, row after row.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] with `name` if they lie in another order.
    pub(crate) fn by_rows(&self, name: &'static str) -> Result<&[T], Error> {
        if self.in_order {
            return Ok(&self.values);
        }
        Err(Error::Param {
            name,
            expected: "laid out in C order",
            got: format!("another layout of {} x {}", self.shape.0, self.shape.1),
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

/// The arrays of a `scipy.sparse` matrix, compressed by row or by column.
#[derive(FromPyObject)]
pub(crate) struct HeldSparse<I: Element, T: Element> {
    pub(crate) indptr: Held<I>,
    pub(crate) indices: Held<I>,
    pub(crate) data: Held<T>,
    shape: (usize, usize),
}

impl<I: Element + Index, T: Element> HeldSparse<I, T> {
    /// The checked view of compressed rows; `name` is the array to blame.
    pub(crate) fn rows(&self, name: &'static str) -> Result<CsrView<'_, I, T>, Error> {
        self.check_ends(name, self.shape.0)?;
        CsrView::new(name, &self.indptr, &self.indices, &self.data, self.shape.1)
    }

    /// The checked view of weights `coef_` in compressed columns: of a matrix (`n_labels`, `n_features`),
    /// with a row of the view for each feature. Nobody may know how many features there should be.
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

    fn check_ends(&self, matrix: &'static str, n_rows: usize) -> Result<(), Error> {
        if self.indptr.len().checked_sub(1) == Some(n_rows) {
            return Ok(());
        }
        Err(Error::Csr {
            matrix,
            row: 0,
            rule: format!("{} entries of indptr for {n_rows} rows", self.indptr.len()),
        })
    }
}

/// A matrix with positions of either width.
#[derive(FromPyObject)]
pub(crate) enum HeldCsr<T: Element> {
    I32(HeldSparse<i32, T>),
    I64(HeldSparse<i64, T>),
}

/// Evaluates `$body` with `$m` bound to the arrays of `$matrix`, whatever their positions.
macro_rules! with_held {
    ($matrix:expr, |$m:ident| $body:expr) => {
        match $matrix {
            $crate::held::HeldCsr::I32($m) => $body,
            $crate::held::HeldCsr::I64($m) => $body,
        }
    };
}
pub(crate) use with_held;
