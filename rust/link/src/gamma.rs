//! Chooses γ, the factor of the frequencies, by leave-one-out error. A larger γ allows a more
//! nonlinear link.
//!
//! Let L be the Cholesky factor of the Gram matrix, and `ψ_i = L⁻¹φ_i` for the features `φ_i` of
//! row i. Let `ω_i` be the weight of row i. Least squares predicts `ψ_i · Σ_j ω_j ψ_j y_j` for row
//! i. The leverage of the row is `ω_i |ψ_i|²`. A fit without the row would have a larger residual
//! for this row: its residual divided by one minus its leverage. One fit therefore gives all
//! leave-one-out errors.
//!
//! A few values of γ are compared by fits to a sample of the rows, usually with fewer features. The
//! best value in this comparison should also be best for the final fit. The final fit differs from
//! the comparison in three ways:
//!
//! - Preconditioned stochastic gradients (`psgd.rs`) continue from least squares and remove part of
//!   the effect of the ridge. Let π be the fraction of the rows that have a label. Each step
//!   removes about π (1 − π) of the remaining effect of the ridge for this label. So many small
//!   steps have the same effect as a smaller ridge.
//! - The final fit has more rows. With more rows, leave-one-out errors decrease towards a limit,
//!   which is caused only by the ridge and the bandwidth.
//! - The final fit has more features. A kernel with high frequencies needs more features for a good
//!   approximation than a kernel with low frequencies. So the comparison uses more features if the
//!   final fit takes longer, up to the number of features of the final fit.
//!
//! The choice takes about a tenth of the time of the fit. It may take longer, because it uses at
//! least [`FEW_FEATURES`] features.

use crate::design::{Design, PREDICTIONS};
use crate::labels::Labels;
use crate::moments::gram;
use crate::psgd::batch_rows;
use crate::threshold::work;
use crate::{Kernel, Loss, Params, Solver, kernel};
use faer::{Accum, MatMut, MatRef};
use fastrand::Rng;
use manylabel_base::{Error, Watch, collected, copied, extend, filled, reserved};
use manylabel_dense::matmul;
use std::cmp::Reverse;

/// The values of γ that are compared, in this order. 1/4 gives a nearly linear link and is best for
/// weak signals. 1 is the value suggested by the median of distances, and is best for strong
/// signals in many rows.
///
/// If the error with 1/4 is smaller than the error with 1/2, the value 1 is not tried. Errors have
/// a single minimum, so 1 cannot be the best value then.
const GAMMAS: [f64; 3] = [0.5, 0.25, 1.0];

/// Largest number of rows in the comparison.
const MOST_ROWS: usize = 4000;
/// Largest number of labels in the comparison. The most frequent labels are used. They cause most
/// of the error and are usually ranked first.
const MOST_LABELS: usize = 64;

/// Name of the rows in error messages about memory.
const ROWS: &str = "number of rows";

/// Smallest number of features in the comparison. More features are used as long as the comparison
/// takes at most the fraction [`SHARE_OF_FIT`] of the work of the fit.
const FEW_FEATURES: usize = 500;
/// The fraction of the work of the fit that the comparison may take.
const SHARE_OF_FIT: f64 = 0.1;

/// Returns the value of γ with the smallest error. Returns 1 for the linear kernel.
///
/// `h` holds the linear predictions and a constant, in rows of length `width`. `q` is the median of
/// the squared distances, `train` lists the training rows, and `weights` has one weight for every
/// row. All values of γ are compared on the same sample of rows and with the same random numbers.
///
/// # Errors
///
/// [`Error::TooLarge`] if there is not enough memory. [`Error::Stopped`] if the caller requested a
/// stop. [`Error::Param`] if the Gram matrix is not finite.
#[expect(clippy::too_many_arguments, reason = "the choice has this many inputs")]
pub(crate) fn choose(
    params: &Params,
    h: &[f32],
    width: usize,
    q: f64,
    train: &[u32],
    weights: &[f32],
    labels: &Labels,
    watch: &Watch,
) -> Result<f64, Error> {
    if params.kernel == Kernel::Linear {
        return Ok(1.0);
    }
    let mut rng = Rng::with_seed(params.seed ^ 0x9a);
    let mut rows = collected(ROWS, 0..train.len() as u32)?;
    rng.shuffle(&mut rows);
    rows.truncate(MOST_ROWS);
    rows.sort_unstable();
    let of_rows = |row: &u32| train[*row as usize] as usize;
    let weights = collected(ROWS, rows.iter().map(|row| weights[of_rows(row)]))?;
    let common = commonest(labels)?;
    let targets = targets(labels, &common, &rows)?;
    let n_features = features(params, labels, train.len());
    let l2 = params.l2 / steps(params, labels, train.len());
    let share = rows.len() as f64 / train.len().max(1) as f64;
    let mut best = (f64::INFINITY, GAMMAS[0]);
    for gamma in GAMMAS {
        watch.step(0)?;
        let mut own = reserved(PREDICTIONS, rows.len() * width)?;
        for row in &rows {
            let of_row = &h[of_rows(row) * width..][..width];
            extend(PREDICTIONS, &mut own, of_row.iter().copied())?;
        }
        let mut rng = rng.clone();
        let (frequencies, phases) =
            kernel::draw(params.kernel, width, n_features, gamma, q, &mut rng, watch)?;
        let mut design = Design::new(own, width, frequencies, phases);
        design.keep(watch)?;
        let error = error(&mut design, &weights, &targets, l2, share, watch)?;
        if error < best.0 {
            best = (error, gamma);
        }
        if best.1 < GAMMAS[0] {
            break;
        }
    }
    Ok(best.1)
}

/// Returns the number of random features in the comparison of values of γ, for a fit to `n` rows.
pub(crate) fn features(params: &Params, labels: &Labels, n: usize) -> usize {
    // `of_fit` is the number of multiply-adds that fit V. `of_square` is the number of
    // multiply-adds that three Gram matrices with whitening take, divided by the square of the
    // number of features. The same constant factor is left out of both numbers.
    let of_fit = n as f64 * params.n_features as f64 * work(params, params.n_features, labels);
    let of_square = (GAMMAS.len() * n.min(MOST_ROWS)) as f64;
    let affordable = (SHARE_OF_FIT * of_fit / of_square).sqrt() as usize;
    params.n_features.min(affordable.max(FEW_FEATURES))
}

/// Returns the number of bytes that the comparison of values of γ takes. It stores a Gram matrix
/// with its factors, and two copies of the features.
pub(crate) fn bytes(params: &Params, labels: &Labels, n: usize, width: usize) -> u64 {
    let (size, n_rows) = (
        features(params, labels, n) as u64 + 1,
        n.min(MOST_ROWS) as u64,
    );
    let of_row = 4 * width as u64 + 8 * size;
    let square = size.saturating_mul(size).saturating_mul(20);
    square.saturating_add(n_rows.saturating_mul(of_row))
}

/// Returns the labels with the most rows, in decreasing order of their number of rows. At most
/// [`MOST_LABELS`] labels are returned. If two labels have the same number of rows, the lower label
/// comes first.
fn commonest(labels: &Labels) -> Result<Vec<u32>, Error> {
    let mut by_rows = copied("number of labels", &labels.seen)?;
    by_rows.sort_unstable_by_key(|&label| (Reverse(labels.rows(label).len()), label));
    by_rows.truncate(MOST_LABELS);
    Ok(by_rows)
}

/// Returns the ratio of the effect of the ridge in least squares to its effect in the fit. A ratio
/// above 1 means that the ridge has less effect in the fit. All labels share one ratio. It is a
/// mean over labels, weighted by their numbers of rows.
fn steps(params: &Params, labels: &Labels, n: usize) -> f64 {
    let (mut sum, mut positive) = (0.0, 0.0);
    for &label in &labels.seen {
        let of_label = labels.rows(label).len() as f64;
        let share = of_label / n as f64;
        sum += of_label * share * (1.0 - share);
        positive += of_label;
    }
    // The mean curvature of the logistic loss. Labels are weighted by their numbers of rows, as
    // they are in the error.
    let curvature = if positive > 0.0 { sum / positive } else { 0.0 };
    match (params.loss, params.solver) {
        (Loss::Squared, _) => 1.0,
        (_, Solver::Psgd) => {
            let batches = n.div_ceil(batch_rows(n, params.n_features.max(labels.seen.len())));
            let (decay, n_passes) = (params.decay, params.n_passes as f64);
            let decays = if decay < 1.0 {
                (1.0 - decay.powf(n_passes)) / (1.0 - decay)
            } else {
                n_passes
            };
            1.0 + params.step_size * batches as f64 * decays * curvature
        }
        // At the optimum, the ridge has its full effect, and the curvature is smaller than the
        // curvature of the squared loss.
        (_, Solver::NewtonCg) => curvature.max(f64::MIN_POSITIVE.sqrt()),
    }
}

/// Returns the 0/1 targets of the given labels for the given rows, one row of targets per label.
fn targets(labels: &Labels, common: &[u32], rows: &[u32]) -> Result<Vec<f32>, Error> {
    let mut targets = filled("number of targets", 0.0, common.len() * rows.len())?;
    for (&label, targets) in common.iter().zip(targets.chunks_mut(rows.len().max(1))) {
        for row in labels.rows(label) {
            if let Ok(at) = rows.binary_search(row) {
                targets[at] = 1.0;
            }
        }
    }
    Ok(targets)
}

/// Returns an estimate of the squared error on new rows, summed over rows and labels. The estimate
/// is for a fit with `1 / share` times as many rows as the design has.
///
/// With infinitely many rows, the residuals of the fit and the leave-one-out residuals would be
/// equal. With finitely many rows, the residuals of the fit are smaller than this limit. The
/// leave-one-out residuals are larger than the limit by about the same amount. The estimate is
/// therefore between the leave-one-out error and the mean of the two errors. If `share` is small,
/// the estimate is close to the mean.
fn error(
    design: &mut Design,
    weights: &[f32],
    targets: &[f32],
    l2: f64,
    share: f64,
    watch: &Watch,
) -> Result<f64, Error> {
    let (n, size) = (weights.len(), design.size);
    let n_labels = targets.len() / n.max(1);
    let rows = collected(ROWS, 0..n as u32)?;
    let (factor, _) = gram(design, &rows, weights, watch)?.factor(l2, watch)?;
    design.whiten(&factor, watch)?;
    let mut features = filled("the matrix of features", 0.0f32, n * size)?;
    design.fill(&rows, &mut features, watch)?;
    let mut weighted = copied("number of targets", targets)?;
    for targets in weighted.chunks_mut(n.max(1)) {
        for (target, weight) in targets.iter_mut().zip(weights) {
            *target *= weight;
        }
    }
    let psi = MatRef::from_row_major_slice(&features, n, size);
    let mut sums = filled("the matrix of sums of features", 0.0f32, n_labels * size)?;
    let mut predicted = filled("number of predictions", 0.0f32, n_labels * n)?;
    let by_label = MatRef::from_row_major_slice(&weighted, n_labels, n);
    let out = MatMut::from_row_major_slice_mut(&mut sums, n_labels, size);
    matmul(out, Accum::Replace, by_label, psi, 1.0);
    let sums = MatRef::from_row_major_slice(&sums, n_labels, size);
    let out = MatMut::from_row_major_slice_mut(&mut predicted, n_labels, n);
    matmul(out, Accum::Replace, sums, psi.transpose(), 1.0);
    let (mut fitted, mut left_out) = (0.0, 0.0);
    for (row, features) in features.chunks(size).enumerate() {
        let weight = f64::from(weights[row]);
        let square: f64 = features.iter().map(|&f| f64::from(f) * f64::from(f)).sum();
        let rest = (1.0 - weight * square).max(1e-3);
        for label in 0..n_labels {
            let at = label * n + row;
            let residual = f64::from(targets[at] - predicted[at]);
            fitted += weight * residual * residual;
            left_out += weight * (residual / rest).powi(2);
        }
    }
    Ok(f64::midpoint(left_out, fitted) + share * (left_out - fitted) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::error;
    use crate::design::Design;
    use manylabel_base::Watch;

    const ROWS: usize = 12;

    /// Returns the residual of row `of` in a ridge regression with one feature and a constant. The
    /// regression is fitted to all rows except the row `without`.
    fn residual(
        x: &[f64],
        y: &[f64],
        weights: &[f32],
        ridge: f64,
        of: usize,
        without: Option<usize>,
    ) -> f64 {
        let (mut xx, mut x1, mut one, mut xy, mut y1) = (ridge, 0.0, ridge, 0.0, 0.0);
        for row in (0..ROWS).filter(|&row| Some(row) != without) {
            let weight = f64::from(weights[row]);
            xx += weight * x[row] * x[row];
            x1 += weight * x[row];
            one += weight;
            xy += weight * x[row] * y[row];
            y1 += weight * y[row];
        }
        let determinant = xx * one - x1 * x1;
        y[of] - ((xy * one - y1 * x1) * x[of] + y1 * xx - xy * x1) / determinant
    }

    #[test]
    fn errors_are_between_those_with_and_without_the_row() {
        let x: Vec<f64> = (0..ROWS).map(|i| (1.3 * i as f64).sin()).collect();
        let y: Vec<f64> = (0..ROWS).map(|i| f64::from(u8::from(i % 3 > 0))).collect();
        let weights: Vec<f32> = (0..ROWS).map(|i| 0.5 + 0.1 * i as f32).collect();
        let squares = x
            .iter()
            .zip(&weights)
            .map(|(x, &w)| f64::from(w) * (x * x + 1.0));
        let ridge = 0.1 * squares.sum::<f64>() / 2.0;
        let sum = |left_out: bool| -> f64 {
            let of = |row: usize| {
                let r = residual(&x, &y, &weights, ridge, row, left_out.then_some(row));
                f64::from(weights[row]) * r * r
            };
            (0..ROWS).map(of).sum()
        };
        for share in [1.0, 0.25] {
            let h = x.iter().flat_map(|&x| [x as f32, 1.0]).collect();
            let mut design = Design::new(h, 2, Vec::new(), Vec::new());
            let watch = Watch::new();
            design.keep(&watch).expect("not stopped");
            let targets: Vec<f32> = y.iter().map(|&y| y as f32).collect();
            let got =
                error(&mut design, &weights, &targets, 0.1, share, &watch).expect("not stopped");
            let middle = f64::midpoint(sum(true), sum(false));
            let expected = middle + share * (sum(true) - middle);
            assert!((got / expected - 1.0).abs() < 1e-4, "{got} {expected}");
        }
    }
}
