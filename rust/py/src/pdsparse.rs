//! `manylabel.linear`: PD-Sparse. Its weights are scored as all sparse weights are, in `linear`.

use crate::csr::{CsrArrays, PyCsr, csr_arrays, with_view};
use crate::error::to_py;
use crate::named::named;
use crate::run::run;
use manylabel_base::Error;
use manylabel_linear::pdsparse::{Params, Search};
use manylabel_sparse::CsrOwned;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

/// Parameters by the names the user knows.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the user's"
)]
pub(crate) struct PyParams {
    #[pyo3(item("C"))]
    c: f64,
    l1: f64,
    max_iter: usize,
    tol: f64,
    search: String,
    n_candidates: Option<usize>,
    post_solve: bool,
    normalize: bool,
    fit_intercept: bool,
    learn_cut: bool,
    n_iter_no_change: usize,
    seed: u64,
}

impl TryFrom<PyParams> for Params {
    type Error = Error;

    fn try_from(params: PyParams) -> Result<Self, Error> {
        Ok(Self {
            c: params.c,
            l1: params.l1,
            max_iter: params.max_iter,
            tol: params.tol,
            search: named(
                "search",
                "\"exact\" or \"sampled\"",
                &[("exact", Search::Exact), ("sampled", Search::Sampled)],
                &params.search,
            )?,
            n_candidates: params.n_candidates,
            post_solve: params.post_solve,
            normalize: params.normalize,
            fit_intercept: params.fit_intercept,
            learn_cut: params.learn_cut,
            n_iter_no_change: params.n_iter_no_change,
            seed: params.seed,
        })
    }
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
    params: PyParams,
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
    let params = Params::try_from(params)
        .and_then(Params::check)
        .map_err(to_py)?;
    let sample_weight = sample_weight
        .as_ref()
        .map(|weights| weights.as_slice())
        .transpose()?;
    let held_out = held_out.as_ref().map(|mask| mask.as_slice()).transpose()?;
    let y = with_view!(y, "Y", |y| CsrOwned::from_view(y, false).map_err(to_py)?);
    let model = with_view!(x, "X", |x| run(
        py,
        n_threads,
        progress.as_ref(),
        |watch| params.fit(x, &y, sample_weight, held_out, watch)
    )?);
    Ok((
        csr_arrays(py, model.weights),
        model.intercept.into_pyarray(py),
        model.n_iter,
        model.dual_gap,
        model.validation.into_pyarray(py),
        model.cut,
    ))
}
