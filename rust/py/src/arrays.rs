//! The arrays that results are handed out in: their names, and how vectors become arrays.

use numpy::{Element, IntoPyArray, PyArray1, PyArray2};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) type U8s<'py> = Bound<'py, PyArray1<u8>>;
pub(crate) type I32s<'py> = Bound<'py, PyArray1<i32>>;
pub(crate) type I64s<'py> = Bound<'py, PyArray1<i64>>;
pub(crate) type F32s<'py> = Bound<'py, PyArray1<f32>>;
pub(crate) type F64s<'py> = Bound<'py, PyArray1<f64>>;
/// Row after row.
pub(crate) type F32Rows<'py> = Bound<'py, PyArray2<f32>>;

/// Hands a vector to numpy without a copy.
///
/// # Errors
///
/// As [`granted`].
pub(crate) fn handed<T: Element>(
    py: Python<'_>,
    values: Vec<T>,
) -> PyResult<Bound<'_, PyArray1<T>>> {
    granted(|| Ok(values.into_pyarray(py)))
}

/// Makes objects of Python by functions that panic where the interpreter has no memory for one, and for
/// no other reason.
///
/// # Errors
///
/// What `make` returns, `MemoryError` if it panics.
pub(crate) fn granted<T>(make: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // What is half done is dropped, and nobody has seen it.
    catch_unwind(AssertUnwindSafe(make))
        .unwrap_or_else(|_| Err(PyMemoryError::new_err("no memory for an object of Python")))
}
