//! Defines the types and conversions of the arrays that the module returns to Python.

use crate::error::to_py;
use crate::spill;
use manylabel_base::collected;
use numpy::{Element, IntoPyArray, PyArray1, PyArray2};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) type U8s<'py> = Bound<'py, PyArray1<u8>>;
pub(crate) type I32s<'py> = Bound<'py, PyArray1<i32>>;
pub(crate) type I64s<'py> = Bound<'py, PyArray1<i64>>;
pub(crate) type F32s<'py> = Bound<'py, PyArray1<f32>>;
pub(crate) type F64s<'py> = Bound<'py, PyArray1<f64>>;
/// A numpy matrix in single precision, in C order.
pub(crate) type F32Rows<'py> = Bound<'py, PyArray2<f32>>;

/// Moves a vector into a numpy array without a copy, unless the vector is in the file of `spill`. Python may keep the
/// array after the file has been closed.
///
/// # Errors
///
/// Returns the same errors as [`granted`].
pub(crate) fn handed<T: Element>(
    py: Python<'_>,
    values: Vec<T>,
) -> PyResult<Bound<'_, PyArray1<T>>> {
    let values = if spill::holds(values.as_ptr().cast()) {
        manylabel_base::budget::kept_out(|| {
            collected("a result", values.iter().map(|value| value.clone_ref(py)))
        })
        .map_err(to_py)?
    } else {
        values
    };
    granted(|| Ok(values.into_pyarray(py)))
}

/// Calls `make`, which creates Python objects and panics if the interpreter has no memory for an object.
/// `make` must not panic for any other reason.
///
/// # Errors
///
/// Returns any error of `make`. Raises `MemoryError` if `make` panics.
pub(crate) fn granted<T>(make: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    // After a panic, unfinished objects are dropped, and nothing else refers to them.
    catch_unwind(AssertUnwindSafe(make))
        .unwrap_or_else(|_| Err(PyMemoryError::new_err("no memory for a Python object")))
}
