//! Names for the arrays that results are handed out in.

use numpy::{PyArray1, PyArray2};
use pyo3::prelude::*;

pub(crate) type U8s<'py> = Bound<'py, PyArray1<u8>>;
pub(crate) type I32s<'py> = Bound<'py, PyArray1<i32>>;
pub(crate) type I64s<'py> = Bound<'py, PyArray1<i64>>;
pub(crate) type F32s<'py> = Bound<'py, PyArray1<f32>>;
pub(crate) type F64s<'py> = Bound<'py, PyArray1<f64>>;
/// Row after row.
pub(crate) type F32Rows<'py> = Bound<'py, PyArray2<f32>>;
