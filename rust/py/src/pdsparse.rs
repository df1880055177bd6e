//! `manylabel.linear`: PD-Sparse. Its weights are scored as all sparse weights are, in `linear`.

use crate::csr::{CsrArrays, PyCsr, csr_arrays, values};
use crate::error::to_py;
use crate::params::Named;
use crate::run::run;
use manylabel_linear::pdsparse::{Checked, Params, Search};
use manylabel_score::with_sparse;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

fn checked(params: &Named<'_>) -> PyResult<Checked> {
    let params = Params {
        c: params.get("C")?,
        l1: params.get("l1")?,
        max_iter: params.get("max_iter")?,
        tol: params.get("tol")?,
        search: params.choice(
            "search",
            &[("exact", Search::Exact), ("sampled", Search::Sampled)],
        )?,
        n_candidates: params.get("n_candidates")?,
        post_solve: params.get("post_solve")?,
        normalize: params.get("normalize")?,
        fit_intercept: params.get("fit_intercept")?,
        learn_cut: params.get("learn_cut")?,
        n_iter_no_change: params.get("n_iter_no_change")?,
        seed: params.get("random_state")?,
    };
    params.check().map_err(to_py)
}

/// Fits PD-Sparse: the arrays of (`n_features`, `n_labels`) weights in compressed rows, intercepts,
/// passes, duality gap, held-out precision after each pass, the learned cut if asked for.
#[expect(clippy::type_complexity, reason = "a tuple is what Python unpacks")]
#[expect(clippy::too_many_arguments, reason = "Python names them")]
#[pyfunction]
#[pyo3(signature = (x, y, sample_weight, held_out, params, n_threads, progress))]
pub(crate) fn fit_pdsparse<'py>(
    py: Python<'py>,
    x: PyCsr<'py>,
    y: PyCsr<'py>,
    sample_weight: Option<PyReadonlyArray1<'py, f32>>,
    held_out: Option<PyReadonlyArray1<'py, bool>>,
    params: Named<'py>,
    n_threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<(
    CsrArrays<'py>,
    Bound<'py, PyArray1<f32>>,
    usize,
    f64,
    Bound<'py, PyArray1<f64>>,
    Option<f32>,
)> {
    let params = checked(&params)?;
    let sample_weight = values(sample_weight.as_ref())?;
    let held_out = values(held_out.as_ref())?;
    let (x, y) = (x.unchecked("X")?, y.unchecked("Y")?);
    let model = run(py, n_threads, progress.as_ref(), |watch| {
        let y = y.to_owned()?;
        with_sparse!(x.sparse()?, |x| params.fit(
            x,
            &y,
            sample_weight,
            held_out,
            watch
        ))
    })?;
    Ok((
        csr_arrays(py, model.weights),
        model.intercept.into_pyarray(py),
        model.n_iter,
        model.dual_gap,
        model.validation.into_pyarray(py),
        model.cut,
    ))
}
