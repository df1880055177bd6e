//! Computes the output weights of a group of labels, which is called a block.
//!
//! 1. Features are summed by label over the training rows. The sums are weighted by smoothed
//!    targets.
//! 2. The least-squares solution is computed from these sums and the Gram matrix. If features are
//!    whitened (multiplied by `L⁻ᵀ`, where L is the Cholesky factor of the Gram matrix), the sums
//!    are already the solution. With the squared loss, `known.rs` then leaves out unknown pairs of row
//!    and label.
//! 3. For the squared loss, this is the result. For other losses, preconditioned stochastic
//!    gradients (psgd) or Newton's method continue from the least-squares solution.
//!
//! Usually, the weights of a label do not depend on the other labels. The division of labels into
//! blocks then changes results only by rounding. With the softmax or with held-out rows, the
//! weights of different labels depend on each other. One block then contains all labels.

use crate::labels::{ENTRIES, Labels};
use crate::moments::moments;
use crate::psgd::Problem;
use crate::{Loss, Solver, known, newton, psgd};
use manylabel_base::{Error, collected, copied, extend, filled, reserved};
use manylabel_sparse::{CsrOwned, Labels as Known};
use rayon::prelude::*;

/// Smallest target of a label that a row has, if the user does not set the label smoothing.
const LEAST_SHRINK: f64 = 0.75;

/// The weights of a group of labels, and information about their fit.
pub(crate) struct Solved {
    /// One row of weights per label. If features are whitened, the weights are for the whitened
    /// features. The last number of a row is the weight of the constant feature.
    pub(crate) weights: Vec<f32>,
    /// The loss on held-out rows after each pass. Empty if no rows are held out.
    pub(crate) validation_loss: Vec<f64>,
    /// Number of Newton steps for each label. Empty for other solvers.
    pub(crate) n_iter: Vec<i32>,
}

/// Computes the output weights of the labels in `block`, which are in increasing order.
///
/// `y` holds the labels of all rows, including held-out rows, and the unknown pairs of row and label. The
/// unknown pairs are left out of the loss. `ridge` is the absolute ridge, which only Newton's method uses. The
/// watch counts finished labels and passes.
pub(crate) fn solve_block(
    problem: &Problem<'_>,
    labels: &Labels,
    block: &[u32],
    y: Known<'_>,
    ridge: f64,
) -> Result<Solved, Error> {
    let Problem {
        params,
        design,
        factor,
        watch,
        ..
    } = *problem;
    let size = design.size;
    let n = problem.train.len();
    // The target of a label that a row has must stay nearer to 1 than to 0, even if there are very
    // few rows.
    let shrink = params
        .shrink
        .unwrap_or_else(|| (1.0 - 1.0 / n as f64).max(LEAST_SHRINK));
    let mut sums = moments(problem, labels, block, shrink)?;
    if !problem.whitened {
        factor.whiten_exactly(&mut sums, watch)?;
        factor.unwhiten_exactly(&mut sums, watch)?;
    }
    if params.loss == Loss::Squared && labels.unknown.is_some() {
        known::leave_out(problem, labels, block, &mut sums)?;
    }
    let mut solution = filled("number of weights", 0.0, sums.len())?;
    solution
        .par_iter_mut()
        .zip(&sums)
        .for_each(|(weight, &sum)| *weight = sum as f32);
    drop(sums);
    let mut weights = copied("number of weights", &solution)?;
    let (mut validation_loss, mut n_iter) = (Vec::new(), Vec::new());
    match (params.loss, params.solver) {
        (Loss::Squared, _) => watch.step(block.len())?,
        (_, Solver::Psgd) => {
            if params.preflate {
                preflate(labels, block, n, &mut weights, size);
            }
            watch.step(block.len())?;
            let of_block = columns(y.ones, block, problem.held_out)?;
            let all = collected("number of rows", 0..y.ones.n_rows() as u32)?;
            let unknown = y.unknown.map(|unknown| columns(unknown, block, &all));
            let unknown = unknown.transpose()?;
            let of_block = Known {
                ones: &of_block,
                unknown: unknown.as_ref(),
            };
            validation_loss = psgd::refine(problem, &solution, &mut weights, of_block)?;
        }
        (_, Solver::NewtonCg) => {
            n_iter = newton::refine(problem, &mut weights, labels, block, shrink, ridge)?;
        }
    }
    Ok(Solved {
        weights,
        validation_loss,
        n_iter,
    })
}

/// Multiplies the starting weights of each label by `100 √π_max / √(π_max + 9999 π)`. Here π is the
/// fraction of the `n` rows that have the label, and `π_max` is the largest fraction. This
/// increases the weights of rare labels. The formula is from the code of Karampatziakis and
/// Mineiro.
fn preflate(labels: &Labels, block: &[u32], n: usize, weights: &mut [f32], size: usize) {
    let share = |label: u32| labels.rows(label).len() as f64 / n as f64;
    let most = block.iter().map(|&label| share(label)).fold(0.0, f64::max);
    for (weights, &label) in weights.chunks_mut(size).zip(block) {
        let factor = (1e4 * most).sqrt() / (most + 9999.0 * share(label)).sqrt();
        for weight in weights {
            *weight *= factor as f32;
        }
    }
}

/// Returns the labels of the given rows that are in `block`. The labels are numbered by their
/// position in `block`. All other rows of the result are empty.
fn columns(y: &CsrOwned, block: &[u32], rows: &[u32]) -> Result<CsrOwned, Error> {
    let mut indptr = reserved("number of rows", y.n_rows() + 1)?;
    indptr.push(0);
    let mut indices = Vec::new();
    let mut wanted = rows.iter().peekable();
    for row in 0..y.n_rows() {
        if wanted.next_if(|&&next| next as usize == row).is_some() {
            let of_row = y.row(row).0.iter();
            let of_row = of_row.filter_map(|label| Some(block.binary_search(label).ok()? as u32));
            extend(ENTRIES, &mut indices, of_row)?;
        }
        indptr.push(indices.len());
    }
    Ok(CsrOwned {
        indptr,
        values: filled(ENTRIES, 1.0, indices.len())?,
        indices,
        n_cols: block.len(),
    })
}
