//! scipy matrices, borrowed by their own attribute names; no element is copied.

use manylabel_base::Error;
use manylabel_score::Features;
use manylabel_sparse::{CsrOwned, CsrView, Index};
use numpy::{Element, IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

/// The arrays of one `scipy.sparse` CSR or CSC matrix.
#[derive(FromPyObject)]
pub(crate) struct Borrowed<'py, I: Element, T: Element> {
    pub(crate) indptr: PyReadonlyArray1<'py, I>,
    pub(crate) indices: PyReadonlyArray1<'py, I>,
    pub(crate) data: PyReadonlyArray1<'py, T>,
    shape: (usize, usize),
}

impl<I: Element + Index, T: Element> Borrowed<'_, I, T> {
    /// The checked view; `name` is the argument to blame.
    pub(crate) fn view(&self, name: &'static str) -> Result<CsrView<'_, I, T>, Error> {
        // Contiguity is settled in `estimator/validation.py`; a stray strided array is an error, not a copy.
        let strided = |what| Error::Csr {
            matrix: name,
            row: 0,
            rule: format!("{what} is not contiguous"),
        };
        let indptr = self.indptr.as_slice().map_err(|_| strided("indptr"))?;
        let indices = self.indices.as_slice().map_err(|_| strided("indices"))?;
        let data = self.data.as_slice().map_err(|_| strided("data"))?;
        if indptr.len() != self.shape.0 + 1 {
            return Err(Error::Shape {
                what: "length of indptr",
                expected: self.shape.0 + 1,
                got: indptr.len(),
            });
        }
        CsrView::new(name, indptr, indices, data, self.shape.1)
    }
}

/// Any CSR matrix `estimator/validation.py` lets through: 32- or 64-bit indices, single or double values.
#[derive(FromPyObject)]
pub(crate) enum PyCsr<'py> {
    I32F32(Borrowed<'py, i32, f32>),
    I64F32(Borrowed<'py, i64, f32>),
    I32F64(Borrowed<'py, i32, f64>),
    I64F64(Borrowed<'py, i64, f64>),
}

/// A matrix of single values, positions of either width.
#[derive(FromPyObject)]
pub(crate) enum PyCsr32<'py> {
    I32(Borrowed<'py, i32, f32>),
    I64(Borrowed<'py, i64, f32>),
}

/// Whether the core takes a matrix as it is: a CSR matrix of known types, laid out in one piece,
/// its structure valid, its columns sorted and unique. O(rows + nnz), and never an exception.
#[pyfunction]
pub(crate) fn is_canonical(matrix: &Bound<'_, PyAny>) -> bool {
    fn valid<I: Element + Index, T: Element>(matrix: &Borrowed<'_, I, T>) -> bool {
        matrix.view("X").is_ok()
    }
    match matrix.extract() {
        Ok(PyCsr::I32F32(matrix)) => valid(&matrix),
        Ok(PyCsr::I64F32(matrix)) => valid(&matrix),
        Ok(PyCsr::I32F64(matrix)) => valid(&matrix),
        Ok(PyCsr::I64F64(matrix)) => valid(&matrix),
        Err(_) => false,
    }
}

/// Evaluates `$body` with `$view` bound to the checked view of `$csr`, whatever its types.
macro_rules! with_view {
    ($csr:expr, $name:literal, |$view:ident| $body:expr) => {
        match &$csr {
            $crate::csr::PyCsr::I32F32(m) => with_view!(@ m, $name, $view, $body),
            $crate::csr::PyCsr::I64F32(m) => with_view!(@ m, $name, $view, $body),
            $crate::csr::PyCsr::I32F64(m) => with_view!(@ m, $name, $view, $body),
            $crate::csr::PyCsr::I64F64(m) => with_view!(@ m, $name, $view, $body),
        }
    };
    (@ $m:ident, $name:literal, $view:ident, $body:expr) => {{
        let $view = $m.view($name).map_err($crate::error::to_py)?;
        $body
    }};
}
pub(crate) use with_view;

impl PyCsr<'_> {
    /// The checked matrix X.
    pub(crate) fn features(&self) -> PyResult<Features<'_>> {
        with_view!(self, "X", |x| Ok(x.into()))
    }
}

/// The three arrays of a compressed sparse matrix for scipy: indptr, indices, data. Positions are
/// 32-bit wherever they fit.
pub(crate) type CsrArrays<'py> = (
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
    Bound<'py, PyArray1<f32>>,
);

/// Hands a matrix to numpy; values are moved, positions converted.
pub(crate) fn csr_arrays(py: Python<'_>, matrix: CsrOwned) -> CsrArrays<'_> {
    let (indptr, indices) = positions(py, &matrix.indptr, &matrix.indices, matrix.n_cols);
    (indptr, indices, matrix.values.into_pyarray(py))
}

/// indptr and indices of a matrix for numpy, 32-bit wherever they fit.
pub(crate) fn positions<'py>(
    py: Python<'py>,
    ends: &[usize],
    cols: &[u32],
    n_cols: usize,
) -> (Bound<'py, PyAny>, Bound<'py, PyAny>) {
    fn convert<'py, I: Element>(
        py: Python<'py>,
        ends: &[usize],
        cols: &[u32],
        from: impl Fn(usize) -> I,
    ) -> (Bound<'py, PyAny>, Bound<'py, PyAny>) {
        let indptr: Vec<I> = ends.iter().map(|&end| from(end)).collect();
        let indices: Vec<I> = cols.iter().map(|&col| from(col as usize)).collect();
        (
            indptr.into_pyarray(py).into_any(),
            indices.into_pyarray(py).into_any(),
        )
    }
    if i32::try_from(cols.len().max(n_cols)).is_ok() {
        convert(py, ends, cols, |position| position as i32)
    } else {
        convert(py, ends, cols, |position| position as i64)
    }
}
