//! exp
use crate::csr::{PyCsr, with_view};
use crate::error::to_py;
use crate::run::run;
use manylabel_linear::Params;
use manylabel_sparse::CsrOwned;
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

#[pyfunction]
#[allow(clippy::type_complexity)]
pub(crate) fn fit_exp<'py>(py: Python<'py>, x: PyCsr<'py>, y: PyCsr<'py>, c: f64, prune: f64, tol: f64, max_iter: usize, knob: Vec<f64>, n_threads: usize)
 -> PyResult<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<f32>>, Bound<'py, PyArray1<f32>>, Bound<'py, PyArray1<i32>>, Vec<f64>)> {
    let x = with_view!(x, "X", |v| CsrOwned::from_view(v, true)).map_err(to_py)?;
    let y = with_view!(y, "Y", |v| CsrOwned::from_view(v, false)).map_err(to_py)?;
    let p = Params { c, prune, tol, max_iter, knob }.check().map_err(to_py)?;
    let f = run(py, n_threads, None, |w| p.fit(&x, &y, w))?;
    Ok((f.weights.indptr.iter().map(|&i| i as i64).collect::<Vec<_>>().into_pyarray(py), f.weights.indices.into_pyarray(py), f.weights.values.into_pyarray(py), f.intercept.into_pyarray(py), f.n_iter.into_pyarray(py), f.stats.to_vec()))
}
