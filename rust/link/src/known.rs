//! Leaves unknown pairs of row and label out of the least-squares solution.
//!
//! Let C be the Gram matrix of all training rows, with the ridge. A label with unknown pairs has the system
//! `(C − Σ_unknown ω_i φ_i φ_iᵀ) v = Σ_known ω_i ỹ_i φ_i`. Here `φ_i` are the features of row i, `ỹ_i` is its target
//! and `ω_i` its weight. Conjugate gradients solve the system, with the Cholesky factor of C as the preconditioner.
//! If few pairs are unknown, the two matrices differ little, and a few steps are enough.
//!
//! All labels of a block take steps together, so that the factor is read once for a step. Labels without unknown
//! pairs take no steps. A step takes O(s²) time for each other label and O(s) time for each unknown pair, where s is
//! the number of features.

use crate::labels::Labels;
use crate::moments::MOMENT_ROWS;
use crate::psgd::Problem;
use manylabel_base::{Error, Tasks, collected, copied, filled};
use rayon::prelude::*;

/// A label has converged when its error is this fraction of its first correction, in the norm of C. It is the
/// rounding error of single precision.
const TOL: f64 = 1e-7;

/// The largest number of steps. It is needed only if almost all rows of a label are unknown.
const MOST_STEPS: usize = 200;

/// Name of arrays in error messages about memory.
const WEIGHTS: &str = "number of weights of labels with unknown entries";

/// Replaces the solutions of systems with C by the solutions of the systems of the labels. `solution` has one row per
/// label of `block`. The right-hand sides must not contain unknown pairs.
pub(crate) fn leave_out(
    problem: &Problem<'_>,
    labels: &Labels,
    block: &[u32],
    solution: &mut [f64],
) -> Result<(), Error> {
    let size = problem.design.size;
    let is_open = |label: &u32| !labels.unknown_rows(*label).is_empty();
    let places = (0..block.len()).filter(|&at| is_open(&block[at]));
    let places = collected("number of labels", places)?;
    let labels_of = |at: usize| labels.unknown_rows(block[places[at]]);
    let mut weights = filled(WEIGHTS, 0.0, places.len() * size)?;
    for (weights, &at) in weights.chunks_mut(size).zip(&places) {
        weights.copy_from_slice(&solution[at * size..][..size]);
    }
    // With the solution for C, the residual consists of the terms of the unknown pairs.
    let mut residual = corrections(problem, labels_of, &weights)?;
    let mut direction = filled(WEIGHTS, 0.0, weights.len())?;
    // The products of C and the directions. C itself is not needed, because the directions are combinations of
    // solutions of systems with C.
    let mut of_direction = filled(WEIGHTS, 0.0, weights.len())?;
    let mut before = filled("number of labels", f64::INFINITY, places.len())?;
    let mut goals = filled("number of labels", 0.0, places.len())?;
    for step in 0..MOST_STEPS {
        let mut solved = copied(WEIGHTS, &residual)?;
        problem.factor.whiten_exactly(&mut solved, problem.watch)?;
        if step == 0 {
            for (goal, solved) in goals.iter_mut().zip(solved.chunks(size)) {
                *goal = TOL * TOL * dot(solved, solved);
            }
        }
        problem
            .factor
            .unwhiten_exactly(&mut solved, problem.watch)?;
        let mut open = false;
        for (at, before) in before.iter_mut().enumerate() {
            let range = at * size..(at + 1) * size;
            let rho = dot(&residual[range.clone()], &solved[range.clone()]);
            let going = rho > goals[at];
            open |= going;
            let (beta, scale) = if going {
                (rho / *before, 1.0)
            } else {
                (0.0, 0.0)
            };
            *before = rho;
            for at in range {
                direction[at] = scale * solved[at] + beta * direction[at];
                of_direction[at] = scale * residual[at] + beta * of_direction[at];
            }
        }
        if !open {
            break;
        }
        let unknown = corrections(problem, labels_of, &direction)?;
        for (at, &rho) in before.iter().enumerate() {
            let range = at * size..(at + 1) * size;
            let (p, of_p) = (&direction[range.clone()], &of_direction[range.clone()]);
            let length = rho / (dot(p, of_p) - dot(p, &unknown[range.clone()]));
            if !(length.is_finite() && length > 0.0) {
                continue; // the label has converged
            }
            for at in range {
                weights[at] += length * direction[at];
                residual[at] -= length * (of_direction[at] - unknown[at]);
            }
        }
    }
    for (weights, &at) in weights.chunks(size).zip(&places) {
        solution[at * size..][..size].copy_from_slice(weights);
    }
    Ok(())
}

/// Returns `Σ_unknown ω_i φ_i (φ_i · v)` for the weights v of each label. `rows_of` returns the unknown rows of a
/// label, as positions in the list of training rows.
fn corrections<'a>(
    problem: &Problem<'_>,
    rows_of: impl Fn(usize) -> &'a [u32] + Sync,
    weights: &[f64],
) -> Result<Vec<f64>, Error> {
    let size = problem.design.size;
    let mut out = filled(WEIGHTS, 0.0, weights.len())?;
    out.par_chunks_mut(size)
        .zip(weights.par_chunks(size))
        .enumerate()
        .try_each(|(at, (out, weights))| {
            for places in rows_of(at).chunks(MOMENT_ROWS) {
                problem.watch.step(0)?;
                let rows = places.iter().map(|&place| problem.train[place as usize]);
                let rows = collected("number of rows", rows)?;
                let mut features = filled("a block of features", 0.0, rows.len() * size)?;
                problem.design.fill(&rows, &mut features, problem.watch)?;
                for (&row, features) in rows.iter().zip(features.chunks(size)) {
                    let products = features.iter().zip(weights);
                    let score: f64 = products.map(|(&f, v)| f64::from(f) * v).sum();
                    let scale = f64::from(problem.weights[row as usize]) * score;
                    for (out, &feature) in out.iter_mut().zip(features) {
                        *out += scale * f64::from(feature);
                    }
                }
            }
            Ok::<(), Error>(())
        })?;
    Ok(out)
}

/// Returns the inner product.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
