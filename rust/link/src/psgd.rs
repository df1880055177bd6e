//! Minimizes the logistic loss and the softmax loss by preconditioned stochastic gradients with
//! momentum.
//!
//! Let Φ be the features of all n training rows, V the output weights, and Ỹ the smoothed targets.
//! Let C be the least-squares Gram matrix, and let b be a batch of |b| rows. With the momentum α
//! and the step size η, a step is
//!
//! ```text
//! D ← αD + η(1−α) (n/|b|) C⁻¹ (|b|/n ΦᵀỸ − Φ_bᵀP_b),    V ← V + D
//! ```
//!
//! where P are the predicted probabilities. The part of the gradient that contains the targets is
//! computed over all rows, which reduces its variance. `C⁻¹ΦᵀỸ` is the least-squares solution V₀.
//! The step is therefore `D ← αD + η(1−α) (V₀ − (n/|b|) C⁻¹Φ_bᵀP_b)`. C bounds the curvature of the
//! losses, so η = 1 is safe. There is no explicit penalty. The ridge in C, label smoothing and the
//! small number of passes regularize the result.
//!
//! Let L be the Cholesky factor of C. With `U = LᵀV` and the *whitened* features `Ψ = ΦL⁻ᵀ`, the
//! same steps do not contain C. The start is `U₀ = ΨᵀỸ`, and the direction is
//! `U₀ − (n/|b|) Ψ_bᵀP_b`. Whitening takes one triangular solve per row, once. Preconditioning
//! takes two triangular solves per label and batch. With ten batches, these are twenty solves per
//! label and pass. Features are whitened if this takes less time and if features are kept in
//! memory.
//!
//! Unknown pairs of row and label have targets and probabilities of 0 in the gradient, so they do not contribute to
//! it. In the least-squares start, their targets are 0.
//!
//! A pass takes O(n s m) for n rows, s features and m labels. Without whitening, it also takes O(s²
//! m) per batch.

use crate::design::Design;
use crate::gram::Factor;
use crate::lanes::{sigmoids, softmax, softplus};
use crate::{Loss, Params};
use faer::{Accum, MatMut, MatRef};
use fastrand::Rng;
use manylabel_base::{Error, Tasks, Watch, copied, filled, push};
use manylabel_dense::matmul;
use manylabel_sparse::Labels;
use rayon::prelude::*;

/// Number of rows and columns of the tiles of the gradient, which has the shape labels × features.
/// Each tile is computed by one thread.
const LABELS: usize = 128;
const FEATURES: usize = 256;

/// Number of weights that one thread updates between two checks for a stop request.
const NUMBERS_OF_STEP: usize = 1 << 16;

/// Limits the size of a batch of rows. The batch has one array of features and one array of
/// probabilities. Each array has at most this many numbers, which take 400 MB in single precision.
const NUMBERS_OF_BATCH: usize = 100_000_000;

/// Returns the number of rows in a batch, for `n` training rows. It is a tenth of the rows, or less
/// if an array of the batch would need more than 400 MB. `widest` is the number of features or of
/// labels, whichever is larger.
pub(crate) fn batch_rows(n: usize, widest: usize) -> usize {
    n.div_ceil(10).min(NUMBERS_OF_BATCH.div_ceil(widest))
}

/// Returns the number of rows of a batch for which one thread computes probabilities. It depends
/// only on the size of the batch.
fn tile_rows(batch: usize) -> usize {
    batch.div_ceil(8).clamp(16, 256)
}

/// The inputs for fitting a group of labels.
pub(crate) struct Problem<'a> {
    /// The parameters.
    pub(crate) params: &'a Params,
    /// The features of all rows.
    pub(crate) design: &'a Design,
    /// The Cholesky factor of the Gram matrix.
    pub(crate) factor: &'a Factor,
    /// Whether `design` contains whitened features. Otherwise it contains the original features.
    pub(crate) whitened: bool,
    /// Training rows, in increasing order.
    pub(crate) train: &'a [u32],
    /// Held-out rows, in increasing order. Their loss decides when to stop. The list may be empty.
    pub(crate) held_out: &'a [u32],
    /// The weight of each row.
    pub(crate) weights: &'a [f32],
    /// Counts progress and holds the stop request of the caller.
    pub(crate) watch: &'a Watch,
}

/// Improves the weights `start`, with one row per label, by stochastic gradients. Returns the
/// held-out loss after each pass. The result is empty if no rows are held out.
///
/// `gradient` is the least-squares solution, which is part of every step (see the module). `start`
/// may differ from it. `y` holds the labels of all rows, numbered by their position in the block of
/// labels. If rows are held out, the weights of the pass with the smallest held-out loss are kept.
/// Passes end after `n_iter_no_change` consecutive passes without improvement.
///
/// The order of the rows is the same for every block of labels.
pub(crate) fn refine(
    problem: &Problem<'_>,
    gradient: &[f32],
    start: &mut Vec<f32>,
    y: Labels<'_>,
) -> Result<Vec<f64>, Error> {
    let Problem { params, design, .. } = *problem;
    let (size, n) = (design.size, problem.train.len());
    let n_labels = start.len() / size;
    let length = batch_rows(n, size.max(n_labels));
    let mut features = filled("a batch of features", 0.0, length * size)?;
    let mut probabilities = filled("a batch of probabilities", 0.0, length * n_labels)?;
    let mut sums = filled("the gradient", 0.0, start.len())?;
    let mut velocity = filled("the momentum", 0.0, start.len())?;
    let mut order = copied("number of rows", problem.train)?;
    // A separate generator makes the order of rows the same for every block of labels.
    let mut rng = Rng::with_seed(params.seed ^ 0x5eed);
    let (mut step, mut losses) = (params.step_size * (1.0 - params.momentum), Vec::new());
    let mut best: Option<(f64, Vec<f32>)> = None;
    let mut waited = 0;
    for pass in 0..params.n_passes {
        rng.shuffle(&mut order);
        for batch in order.chunks(length) {
            let features = &mut features[..batch.len() * size];
            let probabilities = &mut probabilities[..batch.len() * n_labels];
            design.fill(batch, features, problem.watch)?;
            problem.probabilities(batch, y, features, start, probabilities)?;
            problem.gradient(features, probabilities, &mut sums, batch.len())?;
            if !problem.whitened {
                problem.factor.precondition(&mut sums, problem.watch)?;
            }
            let share = (n as f64 / batch.len() as f64) as f32;
            let (step, momentum) = (step as f32, params.momentum as f32);
            let moves = start
                .par_chunks_mut(NUMBERS_OF_STEP)
                .zip(velocity.par_chunks_mut(NUMBERS_OF_STEP));
            let slopes = sums
                .par_chunks(NUMBERS_OF_STEP)
                .zip(gradient.par_chunks(NUMBERS_OF_STEP));
            moves
                .zip(slopes)
                .try_each(|((weights, velocity), (sums, gradient))| {
                    problem.watch.step(0)?;
                    for j in 0..weights.len() {
                        velocity[j] =
                            momentum * velocity[j] + step * (gradient[j] - share * sums[j]);
                        weights[j] += velocity[j];
                    }
                    Ok(())
                })?;
        }
        if params.decay < 1.0 {
            step *= params.decay;
            velocity
                .par_iter_mut()
                .for_each(|v| *v *= params.decay as f32);
        }
        problem.watch.step(n_labels)?;
        if problem.held_out.is_empty() {
            continue;
        }
        let loss = problem.held_out_loss(start, y, &mut features, &mut probabilities, length)?;
        push("number of passes", &mut losses, loss)?;
        if best.as_ref().is_none_or(|(least, _)| loss < *least) {
            waited = 0;
            best = Some((loss, copied("number of weights", start)?));
        } else {
            waited += 1;
            if waited == params.n_iter_no_change {
                let left = params.n_passes - pass - 1;
                problem.watch.step(n_labels.saturating_mul(left))?;
                break;
            }
        }
    }
    if let Some((_, weights)) = best {
        *start = weights;
    }
    Ok(losses)
}

impl Problem<'_> {
    /// Computes the probabilities of the labels for a batch of rows, and multiplies them by the
    /// weights of the rows. The probabilities of unknown labels are set to 0.
    fn probabilities(
        &self,
        batch: &[u32],
        y: Labels<'_>,
        features: &[f32],
        weights: &[f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let n_labels = weights.len() / self.design.size;
        self.products(
            features,
            weights,
            out,
            |at, row| {
                let weight = self.weights[batch[at] as usize];
                match self.params.loss {
                    Loss::Softmax => softmax(row, weight),
                    Loss::Logistic | Loss::Squared => sigmoids(row, weight),
                }
                // The target of an unknown pair is 0. Its probability is set to 0 too, so its
                // gradient is 0.
                for &label in y.unknown_of(batch[at] as usize) {
                    row[label as usize] = 0.0;
                }
            },
            n_labels,
        )
    }

    /// Computes scores from features. Calls `finish` for each row with the number of the row and
    /// its scores. Rows are divided among threads.
    pub(crate) fn products(
        &self,
        features: &[f32],
        weights: &[f32],
        out: &mut [f32],
        finish: impl Fn(usize, &mut [f32]) + Sync,
        n_labels: usize,
    ) -> Result<(), Error> {
        let size = self.design.size;
        let rows = tile_rows(features.len() / size);
        let weights = MatRef::from_column_major_slice(weights, size, n_labels);
        out.par_chunks_mut(rows * n_labels)
            .zip(features.par_chunks(rows * size))
            .enumerate()
            .try_each(|(tile, (out, features))| {
                self.watch.step(0)?;
                multiply(features, weights, out);
                for (i, row) in out.chunks_mut(n_labels).enumerate() {
                    finish(tile * rows + i, row);
                }
                Ok(())
            })
    }

    /// Computes `out = ΦᵀP` from features Φ and probabilities P, with one row per label. The result
    /// is divided into tiles, which are computed in parallel.
    fn gradient(
        &self,
        features: &[f32],
        probabilities: &[f32],
        out: &mut [f32],
        n_rows: usize,
    ) -> Result<(), Error> {
        let size = self.design.size;
        let n_labels = out.len() / size;
        let features = MatRef::from_row_major_slice(features, n_rows, size);
        let probabilities = MatRef::from_row_major_slice(probabilities, n_rows, n_labels);
        tiles(MatMut::from_column_major_slice_mut(out, size, n_labels))?
            .into_par_iter()
            .try_each(|(first_feature, first_label, tile)| {
                self.watch.step(0)?;
                let features = features.subcols(first_feature, tile.nrows());
                let probabilities = probabilities.subcols(first_label, tile.ncols());
                matmul(
                    tile,
                    Accum::Replace,
                    features.transpose(),
                    probabilities,
                    1.0,
                );
                Ok(())
            })
    }

    /// Returns the loss on the held-out rows. The losses of the labels of a row are summed, and the
    /// weighted mean over rows is returned.
    ///
    /// `features` and `scores` are workspaces for a batch of `length` rows. The targets are not
    /// smoothed here.
    fn held_out_loss(
        &self,
        weights: &[f32],
        y: Labels<'_>,
        features: &mut [f32],
        scores: &mut [f32],
        length: usize,
    ) -> Result<f64, Error> {
        let size = self.design.size;
        let n_labels = weights.len() / size;
        let (mut loss, mut weight) = (0.0, 0.0);
        for rows in self.held_out.chunks(length) {
            let features = &mut features[..rows.len() * size];
            let scores = &mut scores[..rows.len() * n_labels];
            self.design.fill(rows, features, self.watch)?;
            self.products(features, weights, scores, |_, _| {}, n_labels)?;
            for (&row, scores) in rows.iter().zip(scores.chunks(n_labels)) {
                let (row, of_row) = (row as usize, f64::from(self.weights[row as usize]));
                let partition = match self.params.loss {
                    Loss::Softmax => {
                        let highest = scores.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
                        let sum: f64 = scores.iter().map(|s| f64::from(s - highest).exp()).sum();
                        f64::from(highest) + sum.ln()
                    }
                    Loss::Logistic | Loss::Squared => scores.iter().map(|&s| softplus(s)).sum(),
                };
                let unknown = y.unknown_of(row).iter();
                let unknown: f64 = unknown.map(|&label| softplus(scores[label as usize])).sum();
                let present = y
                    .ones
                    .row(row)
                    .0
                    .iter()
                    .map(|&label| f64::from(scores[label as usize]));
                loss += of_row * (partition - unknown - present.sum::<f64>());
                weight += of_row;
            }
        }
        Ok(loss / weight)
    }
}

/// Computes the scores `Φ v` from features Φ and weights v, row by row. `weights` has shape
/// (features, labels).
pub(crate) fn multiply(features: &[f32], weights: MatRef<'_, f32>, out: &mut [f32]) {
    let (size, n_labels) = weights.shape();
    let n_rows = features.len() / size;
    matmul(
        MatMut::from_row_major_slice_mut(out, n_rows, n_labels),
        Accum::Replace,
        MatRef::from_row_major_slice(features, n_rows, size),
        weights,
        1.0,
    );
}

/// Divides a matrix into tiles. Returns the first row, the first column and the view of each tile.
fn tiles(matrix: MatMut<'_, f32>) -> Result<Vec<(usize, usize, MatMut<'_, f32>)>, Error> {
    let mut tiles = Vec::new();
    let (mut rest, mut col) = (matrix, 0);
    while rest.ncols() > 0 {
        let width = LABELS.min(rest.ncols());
        let (mut column, others) = rest.split_at_col_mut(width);
        let mut row = 0;
        while column.nrows() > 0 {
            let height = FEATURES.min(column.nrows());
            let (tile, below) = column.split_at_row_mut(height);
            push("number of labels", &mut tiles, (row, col, tile))?;
            row += height;
            column = below;
        }
        col += width;
        rest = others;
    }
    Ok(tiles)
}
