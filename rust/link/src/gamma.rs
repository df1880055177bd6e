//! How fast the link may bend: the bandwidth of least leave-one-out error.
//!
//! With the Cholesky factor L of the Gram matrix, least squares predict `ψ_i · Σ_j ω_j ψ_j y_j` for
//! `ψ = L⁻¹φ`, the leverage of a row is `ω |ψ|²`, and its residual by a fit without it the residual over
//! one less that. Some hundred features and some thousand rows tell bandwidths apart.

use crate::design::Design;
use crate::fit::{Labels, gram};
use crate::{Kernel, Params, kernel};
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use fastrand::Rng;
use manylabel_base::{Error, Watch, filled};

/// Multiples that are compared. Weak signals want the nearly linear link of the first, strong ones of
/// many rows the last, which is what the median of distances suggests.
const GAMMAS: [f64; 3] = [0.25, 0.5, 1.0];

/// What is compared with, at most: some per cent of a fit of 2000 features.
const FEATURES: usize = 500;
const ROWS: usize = 4000;
const LABELS: usize = 64;

#[expect(clippy::too_many_arguments, reason = "all that a fit knows by then")]
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
    let mut rows: Vec<u32> = (0..train.len() as u32).collect();
    rng.shuffle(&mut rows);
    rows.truncate(ROWS);
    rows.sort_unstable();
    let of_rows = |row: &u32| train[*row as usize] as usize;
    let weights: Vec<f32> = rows.iter().map(|row| weights[of_rows(row)]).collect();
    let targets = targets(labels, &rows)?;
    let n_features = params.n_features.min(FEATURES);
    let mut best = (f64::INFINITY, GAMMAS[0]);
    for gamma in GAMMAS {
        watch.step(0)?;
        let own = rows
            .iter()
            .flat_map(|row| &h[of_rows(row) * width..][..width]);
        let own = own.copied().collect();
        let mut rng = rng.clone();
        let (frequencies, phases) =
            kernel::draw(params.kernel, width, n_features, gamma, q, &mut rng);
        let mut design = Design::new(own, width, frequencies, phases);
        design.keep(watch)?;
        // Squares of differences of cosines of short frequencies go as gamma squared, and so does the
        // ridge that suppresses them as much: with one for all the shortest would seem the worst.
        let l2 = params.l2 * gamma * gamma;
        let error = error(&mut design, &weights, &targets, l2, watch)?;
        if error < best.0 {
            best = (error, gamma);
        }
    }
    Ok(best.1)
}

/// 0/1 targets of some labels, one row a label: every so-manieth in order of their number of rows.
fn targets(labels: &Labels, rows: &[u32]) -> Result<Vec<f32>, Error> {
    let mut by_rows = labels.seen.clone();
    by_rows.sort_by_key(|&label| labels.rows(label).len());
    let n_labels = by_rows.len().min(LABELS);
    let mut targets = filled("targets", 0.0, n_labels * rows.len())?;
    for (i, targets) in targets.chunks_mut(rows.len()).enumerate() {
        let label = by_rows[(2 * i + 1) * by_rows.len() / (2 * n_labels)];
        for row in labels.rows(label) {
            if let Ok(at) = rows.binary_search(row) {
                targets[at] = 1.0;
            }
        }
    }
    Ok(targets)
}

/// Sum of squared residuals of least squares without the row each.
fn error(
    design: &mut Design,
    weights: &[f32],
    targets: &[f32],
    l2: f64,
    watch: &Watch,
) -> Result<f64, Error> {
    let (n, size) = (weights.len(), design.size);
    let n_labels = targets.len() / n.max(1);
    let rows: Vec<u32> = (0..n as u32).collect();
    let (factor, _) = gram(design, &rows, weights, watch)?.factor(l2, watch)?;
    design.whiten(&factor, watch)?;
    let mut features = filled("features", 0.0f32, n * size)?;
    design.fill(&rows, &mut features, watch)?;
    let mut weighted = targets.to_vec();
    for targets in weighted.chunks_mut(n.max(1)) {
        for (target, weight) in targets.iter_mut().zip(weights) {
            *target *= weight;
        }
    }
    let psi = MatRef::from_row_major_slice(&features, n, size);
    let mut sums = filled("sums of features", 0.0f32, n_labels * size)?;
    let mut predicted = filled("predictions", 0.0f32, n_labels * n)?;
    let (replace, seq) = (Accum::Replace, Par::Seq);
    let by_label = MatRef::from_row_major_slice(&weighted, n_labels, n);
    let out = MatMut::from_row_major_slice_mut(&mut sums, n_labels, size);
    matmul(out, replace, by_label, psi, 1.0, seq);
    let sums = MatRef::from_row_major_slice(&sums, n_labels, size);
    let out = MatMut::from_row_major_slice_mut(&mut predicted, n_labels, n);
    matmul(out, replace, sums, psi.transpose(), 1.0, seq);
    let mut total = 0.0;
    for (row, features) in features.chunks(size).enumerate() {
        let weight = f64::from(weights[row]);
        let square: f64 = features.iter().map(|&f| f64::from(f) * f64::from(f)).sum();
        let rest = (1.0 - weight * square).max(1e-3);
        for label in 0..n_labels {
            let at = label * n + row;
            let residual = f64::from(targets[at] - predicted[at]) / rest;
            total += weight * residual * residual;
        }
    }
    Ok(total)
}
