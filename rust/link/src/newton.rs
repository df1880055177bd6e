//! Minimizes the logistic loss plus ridge by Newton's method. The objective for each label is
//! `Σ_i ω_i [log(1 + e^{ŝ_i}) − ỹ_i ŝ_i] + λ‖v‖²`. Here `ŝ_i` is the score of row i, `ỹ_i` its
//! target and `ω_i` its weight. v are the output weights of the label.
//!
//! The labels are independent of each other. One thread processes sixteen labels at a time, with
//! the same passes over the features. Newton steps are computed approximately by conjugate
//! gradients. The preconditioner is the least-squares Gram matrix. This matrix and the Hessian have
//! large and small curvature in similar directions. A step is halved until the loss decreases
//! enough. Halving needs no features, because scores are linear in the step.
//!
//! Unknown pairs of row and label have no loss. Their targets are NaN, and their residuals and curvatures are 0.
//!
//! The objective is strictly convex for λ > 0, so the result does not depend on the start. For n
//! rows and s features, a conjugate-gradient step takes O(n s) time per label for two products with
//! the features, and O(s²) time for one solve.

use crate::labels::Labels;
use crate::lanes::softplus;
use crate::psgd::{Problem, multiply};
use faer::{Accum, MatMut, MatRef};
use manylabel_base::{Error, Tasks, collected, copied, filled};
use manylabel_dense::matmul;
use rayon::prelude::*;

/// Number of labels that are multiplied with the features together.
const LABELS: usize = 16;

/// Names of arrays in error messages about memory.
const LABEL_NUMBERS: &str = "number of labels";
const SCORES: &str = "number of scores of some labels";
const WEIGHTS: &str = "number of weights of some labels";

/// Number of rows that are multiplied at a time, so that they stay in the cache.
const ROWS: usize = 256;

/// Largest number of conjugate-gradient steps per Newton step.
const MOST_CG_STEPS: usize = 100;
/// Largest number of times that a Newton step is halved.
const MOST_HALVINGS: usize = 30;

/// A step must decrease the loss by at least this fraction of the decrease that the gradient
/// predicts (Armijo's rule). The value 1e-4 is suggested by Nocedal and Wright, *Numerical
/// Optimization*, section 3.1.
const ARMIJO: f64 = 1e-4;

/// Returns the number of bytes that one thread needs. A thread processes sixteen labels. For these
/// labels it stores targets, scores, changes of scores, curvatures, products with the rows, and
/// seven vectors of weights. It also stores a block of features.
pub(crate) fn bytes_of_a_thread(n_rows: usize, size: usize) -> u64 {
    let vectors = n_rows
        .saturating_mul(5)
        .saturating_add(size.saturating_mul(7));
    let features = size.saturating_mul(ROWS.min(n_rows));
    (vectors.saturating_mul(LABELS).saturating_add(features) as u64).saturating_mul(4)
}

/// Improves the weights `start`, with one row per label of `block`, until they are optimal.
///
/// The rows that have a label have the target `shrink`. All other rows for which the label is known have the
/// target `1 − shrink`. `ridge` is the absolute ridge λ. Returns the number of Newton steps for each label. It is one more than
/// the limit if the method did not converge.
pub(crate) fn refine(
    problem: &Problem<'_>,
    start: &mut [f32],
    labels: &Labels,
    block: &[u32],
    shrink: f64,
    ridge: f64,
) -> Result<Vec<i32>, Error> {
    let size = problem.design.size;
    let mut steps = filled(LABEL_NUMBERS, 0, block.len())?;
    start
        .par_chunks_mut(LABELS * size)
        .zip(block.par_chunks(LABELS))
        .zip(steps.par_chunks_mut(LABELS))
        .try_each(|((weights, block), steps)| {
            Chunk::new(problem, labels, block, shrink, ridge)?.minimize(weights, steps)?;
            problem.watch.step(block.len())
        })?;
    Ok(steps)
}

/// Up to sixteen labels that are processed together, with their targets.
struct Chunk<'a> {
    /// The features, the weights of rows, and the parameters.
    problem: &'a Problem<'a>,
    /// Number of labels, at most [`LABELS`].
    n_labels: usize,
    /// Smoothed targets, with one row of `n_labels` numbers per training row. The targets of unknown pairs are
    /// NaN.
    targets: Vec<f32>,
    /// The absolute ridge λ.
    ridge: f64,
}

impl<'a> Chunk<'a> {
    /// Computes the targets of up to sixteen labels. See [`refine`] for the arguments.
    fn new(
        problem: &'a Problem<'a>,
        labels: &Labels,
        block: &[u32],
        shrink: f64,
        ridge: f64,
    ) -> Result<Self, Error> {
        let n_labels = block.len();
        let n_targets = problem.train.len() * n_labels;
        let mut targets = filled("number of targets", (1.0 - shrink) as f32, n_targets)?;
        for (at, &label) in block.iter().enumerate() {
            for &row in labels.rows(label) {
                targets[row as usize * n_labels + at] = shrink as f32;
            }
            for &row in labels.unknown_rows(label) {
                targets[row as usize * n_labels + at] = f32::NAN;
            }
        }
        Ok(Self {
            problem,
            n_labels,
            targets,
            ridge,
        })
    }

    /// Minimizes the loss of each label, starting from `weights`. Counts the Newton steps in
    /// `steps`, which must be zero at the start.
    ///
    /// A label is finished when the norm of its gradient is at most `tol` times the norm of its
    /// gradient at zero weights.
    fn minimize(&self, weights: &mut [f32], steps: &mut [i32]) -> Result<(), Error> {
        let Problem { params, watch, .. } = *self.problem;
        let (size, n_labels) = (self.problem.design.size, self.n_labels);
        let most = i32::try_from(params.max_iter).unwrap_or(i32::MAX - 1);
        let no_scores = filled(SCORES, 0.0, self.targets.len())?;
        let no_weights = filled(WEIGHTS, 0.0, weights.len())?;
        let origin = self.gradient(&no_scores, &no_weights)?;
        drop((no_scores, no_weights));
        let allowed = norms(&origin, size).map(|norm| params.tol * norm);
        drop(origin);
        let mut scores = self.scores(weights)?;
        loop {
            let gradient = self.gradient(&scores, weights)?;
            let lengths = norms(&gradient, size);
            let is_above = |label: usize| lengths[label] > allowed[label];
            let active: [bool; LABELS] = std::array::from_fn(|label| {
                label < n_labels && is_above(label) && steps[label] < most
            });
            if !active.contains(&true) {
                for (label, steps) in steps.iter_mut().enumerate() {
                    *steps += i32::from(is_above(label));
                }
                return Ok(());
            }
            let direction = self.direction(&scores, &gradient, &active)?;
            let change = self.scores(&direction)?;
            for label in (0..n_labels).filter(|&label| active[label]) {
                let range = label * size..(label + 1) * size;
                let (v, d) = (&mut weights[range.clone()], &direction[range.clone()]);
                let slope = dot(&gradient[range], d);
                let (vd, dd) = (dot(v, d), dot(d, d));
                let before = self.loss(label, &scores, &change, 0.0);
                // Near the minimum, the decrease is smaller than the rounding errors of the scores. Then
                // the step is taken, because the Newton step still makes the gradient smaller.
                let rounding = f64::from(f32::EPSILON) * before;
                let mut step = 1.0;
                let falls = |step: f64| {
                    let after = self.loss(label, &scores, &change, step)
                        + self.ridge * (2.0 * step * vd + step * step * dd);
                    after - before <= ARMIJO * step * slope + rounding
                };
                let mut halvings = 0;
                while halvings < MOST_HALVINGS && !falls(step) {
                    watch.step(0)?;
                    step *= 0.5;
                    halvings += 1;
                }
                steps[label] += 1;
                if halvings == MOST_HALVINGS {
                    // Any further decrease would be smaller than rounding errors.
                    steps[label] = most;
                    continue;
                }
                for (v, d) in v.iter_mut().zip(d) {
                    *v += step as f32 * d;
                }
                for at in (label..scores.len()).step_by(n_labels) {
                    scores[at] += step as f32 * change[at];
                }
            }
        }
    }

    /// Returns the loss of one label at the scores `scores + step · change`. The ridge is not
    /// included.
    fn loss(&self, label: usize, scores: &[f32], change: &[f32], step: f64) -> f64 {
        let at = (label..scores.len()).step_by(self.n_labels);
        at.zip(self.problem.train)
            .filter(|&(at, _)| !self.targets[at].is_nan())
            .map(|(at, &row)| {
                let score = scores[at] + step as f32 * change[at];
                let loss = softplus(score) - f64::from(self.targets[at]) * f64::from(score);
                f64::from(self.problem.weights[row as usize]) * loss
            })
            .sum()
    }

    /// Returns the gradient `Φᵀ ω(σ(s) − ỹ) + 2λv`, with one row per label. Here s are the scores
    /// and ỹ are the targets.
    fn gradient(&self, scores: &[f32], weights: &[f32]) -> Result<Vec<f32>, Error> {
        let residuals = scores.iter().zip(&self.targets);
        let residuals = residuals.map(|(&score, &target)| {
            if target.is_nan() {
                0.0
            } else {
                probability(score) - target
            }
        });
        let mut residuals = collected(SCORES, residuals)?;
        self.weigh(&mut residuals);
        self.back(&residuals, weights)
    }

    /// Returns an approximate solution d of `H d = −g` for the active labels, and zero for the
    /// other labels. H is the Hessian and g is the gradient.
    ///
    /// The iteration for a label stops when its residual is 5 % of the initial residual. The loops
    /// in other crates are for sparse X and cannot be used here. Here, features are dense, the
    /// weights of a label are contiguous for matrix products, and the preconditioner is a Cholesky
    /// factor.
    fn direction(
        &self,
        scores: &[f32],
        gradient: &[f32],
        active: &[bool; LABELS],
    ) -> Result<Vec<f32>, Error> {
        let (size, n_labels) = (self.problem.design.size, self.n_labels);
        let curvature = scores.iter().zip(&self.targets);
        let curvature = curvature.map(|(&score, target)| {
            if target.is_nan() {
                0.0
            } else {
                probability(score) * (1.0 - probability(score))
            }
        });
        let mut curvature = collected(SCORES, curvature)?;
        self.weigh(&mut curvature);
        let mut d = filled(WEIGHTS, 0.0, gradient.len())?;
        let mut residual = collected(WEIGHTS, gradient.iter().map(|g| -g))?;
        let first = norms(&residual, size);
        let mut going = *active;
        let mut search = filled(WEIGHTS, 0.0, d.len())?;
        let mut energy = [0.0; LABELS];
        for inner in 0..MOST_CG_STEPS {
            let mut solved = copied(WEIGHTS, &residual)?;
            let factor = self.problem.factor;
            factor.precondition(&mut solved, self.problem.watch)?;
            for label in 0..n_labels {
                let range = label * size..(label + 1) * size;
                let now = dot(&residual[range.clone()], &solved[range.clone()]);
                let beta = if inner > 0 { now / energy[label] } else { 0.0 };
                energy[label] = now;
                let going = if going[label] { 1.0 } else { 0.0 };
                for (s, z) in search[range.clone()].iter_mut().zip(&solved[range]) {
                    *s = going * (z + beta as f32 * *s);
                }
            }
            let mut along = self.scores(&search)?;
            for (a, c) in along.iter_mut().zip(&curvature) {
                *a *= c;
            }
            let product = self.back(&along, &search)?;
            for label in (0..n_labels).filter(|&label| going[label]) {
                let range = label * size..(label + 1) * size;
                let bend = dot(&search[range.clone()], &product[range.clone()]);
                let alpha = energy[label] / bend;
                if !alpha.is_finite() {
                    continue;
                }
                for at in range {
                    d[at] += alpha as f32 * search[at];
                    residual[at] -= alpha as f32 * product[at];
                }
            }
            let left = norms(&residual, size);
            for label in 0..n_labels {
                let forcing = (left[label] / first[label].max(f64::MIN_POSITIVE)).min(1.0);
                going[label] &= forcing > 0.05 && energy[label] > 0.0;
            }
            if !going.contains(&true) {
                break;
            }
        }
        Ok(d)
    }

    /// Multiplies the entries of each row by the weight of the row.
    fn weigh(&self, values: &mut [f32]) {
        for (values, &row) in values.chunks_mut(self.n_labels).zip(self.problem.train) {
            let weight = self.problem.weights[row as usize];
            for value in values {
                *value *= weight;
            }
        }
    }

    /// Computes the scores `Φ v` from the weights v and the features Φ, row by row.
    fn scores(&self, weights: &[f32]) -> Result<Vec<f32>, Error> {
        let (size, n_labels) = (self.problem.design.size, self.n_labels);
        let mut out = filled(SCORES, 0.0, self.targets.len())?;
        let weights = MatRef::from_column_major_slice(weights, size, n_labels);
        self.each_block(|at, features| {
            let n_rows = features.len() / size;
            let out = &mut out[at * n_labels..][..n_rows * n_labels];
            multiply(features, weights, out);
        })?;
        Ok(out)
    }

    /// Returns `Φᵀ r + 2λ v`, with one row per label. r are the residuals, v are the weights and Φ
    /// are the features.
    fn back(&self, residuals: &[f32], weights: &[f32]) -> Result<Vec<f32>, Error> {
        let (size, n_labels) = (self.problem.design.size, self.n_labels);
        let decay = weights.iter().map(|v| (2.0 * self.ridge) as f32 * v);
        let mut out = collected(WEIGHTS, decay)?;
        self.each_block(|at, features| {
            let n_rows = features.len() / size;
            let residuals = &residuals[at * n_labels..][..n_rows * n_labels];
            matmul(
                MatMut::from_column_major_slice_mut(&mut out, size, n_labels),
                Accum::Add,
                MatRef::from_row_major_slice(features, n_rows, size).transpose(),
                MatRef::from_row_major_slice(residuals, n_rows, n_labels),
                1.0,
            );
        })?;
        Ok(out)
    }

    /// Calls `work` for consecutive blocks of training rows. The arguments of `work` are the
    /// position of the first row and the features of the block.
    fn each_block(&self, mut work: impl FnMut(usize, &[f32])) -> Result<(), Error> {
        let Problem {
            design,
            train,
            watch,
            ..
        } = self.problem;
        let n_numbers = ROWS.min(train.len()) * design.size;
        let mut features = filled("a block of features", 0.0, n_numbers)?;
        for (block, rows) in train.chunks(ROWS).enumerate() {
            watch.step(0)?;
            let features = &mut features[..rows.len() * design.size];
            design.fill(rows, features, watch)?;
            work(block * ROWS, features);
        }
        Ok(())
    }
}

/// Returns `σ(score)`.
fn probability(score: f32) -> f32 {
    1.0 / (1.0 + (-score).exp())
}

/// Returns the inner product in double precision.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter()
        .zip(b)
        .map(|(&a, &b)| f64::from(a) * f64::from(b))
        .sum()
}

/// Returns the norm of each row of `rows`. A row has `size` numbers, and there are at most
/// [`LABELS`] rows. Unused entries of the result are 0.
fn norms(rows: &[f32], size: usize) -> [f64; LABELS] {
    let mut norms = [0.0; LABELS];
    for (norm, row) in norms.iter_mut().zip(rows.chunks(size)) {
        *norm = dot(row, row).sqrt();
    }
    norms
}
