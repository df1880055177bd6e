//! scipy matrices, borrowed by their own attribute names; no element is copied.

use manylabel_base::Error;
use manylabel_sparse::{CsrView, Index};
use numpy::{Element, PyReadonlyArray1};
use pyo3::prelude::*;

/// The arrays of one `scipy.sparse` CSR or CSC matrix.
#[derive(FromPyObject)]
pub(crate) struct Borrowed<'py, I: Element, T: Element> {
    indptr: PyReadonlyArray1<'py, I>,
    indices: PyReadonlyArray1<'py, I>,
    data: PyReadonlyArray1<'py, T>,
    shape: (usize, usize),
}

impl<I: Element + Index, T: Element> Borrowed<'_, I, T> {
    /// The checked view; `name` is the argument to blame.
    pub(crate) fn view(&self, name: &'static str) -> Result<CsrView<'_, I, T>, Error> {
        // Contiguity is settled in `_validation.py`; a stray strided array is an error, not a copy.
        let strided = |what| Error::Csr { matrix: name, row: 0, rule: format!("{what} is not contiguous") };
        let indptr = self.indptr.as_slice().map_err(|_| strided("indptr"))?;
        let indices = self.indices.as_slice().map_err(|_| strided("indices"))?;
        let data = self.data.as_slice().map_err(|_| strided("data"))?;
        if indptr.len() != self.shape.0 + 1 {
            return Err(Error::Shape { what: "length of indptr", expected: self.shape.0 + 1, got: indptr.len() });
        }
        CsrView::new(name, indptr, indices, data, self.shape.1)
    }
}

/// Any CSR matrix `_validation.py` lets through: 32- or 64-bit indices, single or double values.
#[derive(FromPyObject)]
pub(crate) enum PyCsr<'py> {
    I32F32(Borrowed<'py, i32, f32>),
    I64F32(Borrowed<'py, i64, f32>),
    I32F64(Borrowed<'py, i32, f64>),
    I64F64(Borrowed<'py, i64, f64>),
}

/// Evaluates `$body` with `$view` bound to the checked view of `$csr`, whatever its types.
macro_rules! with_view {
    ($csr:expr, $name:literal, |$view:ident| $body:expr) => {
        match &$csr {
            $crate::csr::PyCsr::I32F32(m) => m.view($name).and_then(|$view| $body),
            $crate::csr::PyCsr::I64F32(m) => m.view($name).and_then(|$view| $body),
            $crate::csr::PyCsr::I32F64(m) => m.view($name).and_then(|$view| $body),
            $crate::csr::PyCsr::I64F64(m) => m.view($name).and_then(|$view| $body),
        }
    };
}
pub(crate) use with_view;
