//! Defines the Python function of `manylabel.linear` that fits PD-Sparse. The module `linear` contains the
//! scorer for the fitted weights.

use crate::arrays::{F32s, F64s, handed};
use crate::csr::{CsrArrays, csr_arrays, values};
use crate::params::{Named, from_named};
use crate::run::Job;
use crate::table::{AnyExamples, PyColumns, rows, slices};
use manylabel_linear::pdsparse::{Checked, Params, Search};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

/// Reads and checks the parameters of a fit.
fn checked(params: &Named<'_>) -> PyResult<Checked> {
    from_named!(params, Params {
        seed, l1, max_iter, tol, n_candidates, post_solve, fit_intercept, learn_cut,
        n_iter_no_change;
        c: params.get("C")?,
        search: params.choice("search", &[
            ("exact", Search::Exact), ("sampled", Search::Sampled)
        ])?,
    })
}

/// Fits PD-Sparse. `columns`, if given, has the shift and the scale of each column of a dense X.
///
/// `held_out` marks the held-out rows. The fit keeps the weights of the pass with the best precision on these
/// rows.
///
/// Returns a tuple:
///
/// - the arrays of the weights (`n_features`, `n_labels`) in compressed rows;
/// - the intercepts;
/// - the number of passes;
/// - the duality gap;
/// - the held-out precision after each pass;
/// - the learned threshold or None.
#[pyfunction]
pub(crate) fn fit_pdsparse<'py>(
    py: Python<'py>,
    examples: AnyExamples<'py>,
    columns: Option<PyColumns<'py>>,
    held_out: Option<PyReadonlyArray1<'py, bool>>,
    params: Named<'py>,
    job: Job,
) -> PyResult<(
    CsrArrays<'py>,
    F32s<'py>,
    usize,
    f64,
    F64s<'py>,
    Option<f32>,
)> {
    let unit: bool = params.get("normalize")?;
    let params = checked(&params)?;
    let held_out = values(held_out.as_ref())?;
    let (x, y, sample_weight) = &examples;
    let (x, y) = (x.arrays()?, y.unchecked("Y")?);
    let (columns, sample_weight) = (slices(columns.as_ref())?, values(sample_weight.as_ref())?);
    let model = job.run(py, |watch| {
        let y = y.to_labels()?;
        let rows = rows(x, columns, unit, watch)?;
        params.fit(rows, y.view(), sample_weight, held_out, watch)
    })?;
    Ok((
        csr_arrays(py, model.weights)?,
        handed(py, model.intercept)?,
        model.n_iter,
        model.dual_gap,
        handed(py, model.validation)?,
        model.cut,
    ))
}
