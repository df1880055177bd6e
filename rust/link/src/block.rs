//! Output weights of some labels: least squares, and what the loss refines from there.

use crate::labels::{ENTRIES, Labels};
use crate::moments::moments;
use crate::psgd::Problem;
use crate::{Loss, Solver, newton, psgd};
use manylabel_base::{Error, collected, copied, extend, filled, reserved};
use manylabel_sparse::CsrOwned;
use rayon::prelude::*;

/// The target of a label that is present, at least, if none is given.
const LEAST_SHRINK: f64 = 0.75;

/// Weights of a block of labels, in the coordinates of the problem's features.
pub(crate) struct Solved {
    pub(crate) weights: Vec<f32>,
    pub(crate) validation_loss: Vec<f64>,
    pub(crate) n_iter: Vec<i32>,
}

pub(crate) fn solve_block(
    problem: &Problem<'_>,
    labels: &Labels,
    block: &[u32],
    y: &CsrOwned,
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
    // A label that is present must stay nearer to 1 than to 0, however few rows there are.
    let shrink = params
        .shrink
        .unwrap_or_else(|| (1.0 - 1.0 / n as f64).max(LEAST_SHRINK));
    let mut sums = moments(problem, labels, block, shrink)?;
    if !problem.whitened {
        factor.whiten_exactly(&mut sums, watch)?;
        factor.unwhiten_exactly(&mut sums, watch)?;
    }
    let mut solution = filled("weights", 0.0, sums.len())?;
    solution
        .par_iter_mut()
        .zip(&sums)
        .for_each(|(weight, &sum)| *weight = sum as f32);
    drop(sums);
    let mut weights = copied("weights", &solution)?;
    let (mut validation_loss, mut n_iter) = (Vec::new(), Vec::new());
    match (params.loss, params.solver) {
        (Loss::Squared, _) => watch.step(block.len())?,
        (_, Solver::Psgd) => {
            if params.preflate {
                preflate(labels, block, n, &mut weights, size);
            }
            watch.step(block.len())?;
            let of_block = columns(y, block, problem.held_out)?;
            validation_loss = psgd::refine(problem, &solution, &mut weights, &of_block)?;
        }
        (_, Solver::NewtonCg) => {
            let positive = block.iter().map(|&label| labels.rows(label));
            let positive = collected("number of labels", positive)?;
            n_iter = newton::refine(problem, &mut weights, &positive, shrink, ridge)?;
        }
    }
    Ok(Solved {
        weights,
        validation_loss,
        n_iter,
    })
}

/// Enlarges the start of rare classes: by `100 √π_max / √(π_max + 9999 π)`.
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

/// The labels of some rows, as far as they are in the block, numbered as there; nothing of others.
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
