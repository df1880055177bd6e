//! Computes the sums over the training rows that least squares needs. These are the products of
//! features with each other, and the sums of features by label.
//!
//! Features are computed for one block of rows at a time, and the products of each block are added
//! to the sums.

use crate::Loss;
use crate::design::Design;
use crate::gram::Gram;
use crate::labels::Labels;
use crate::psgd::Problem;
use manylabel_base::{Error, Tasks, Watch, filled};
use rayon::prelude::*;

/// Number of rows that are added to the Gram matrix at a time. It is small enough that sums over
/// these rows can be in single precision.
pub(crate) const GRAM_ROWS: usize = 512;

/// Number of rows whose features are computed at a time for the sums by label.
pub(crate) const MOMENT_ROWS: usize = 1024;

/// Computes the Gram matrix `ΦᵀΩΦ` over the rows `train`, without a ridge. Φ are the features and Ω
/// holds the weights. `weights` has one weight for every row of the design.
pub(crate) fn gram(
    design: &Design,
    train: &[u32],
    weights: &[f32],
    watch: &Watch,
) -> Result<Gram, Error> {
    let size = design.size;
    let mut gram = Gram::zeros(size)?;
    let mut right = filled("a block of features", 0.0, GRAM_ROWS * size)?;
    let mut left = filled("a block of features", 0.0, GRAM_ROWS * size)?;
    for rows in train.chunks(GRAM_ROWS) {
        let right = &mut right[..rows.len() * size];
        let left = &mut left[..rows.len() * size];
        design.fill(rows, right, watch)?;
        for ((left, right), &row) in left.chunks_mut(size).zip(right.chunks(size)).zip(rows) {
            let weight = weights[row as usize];
            for (left, right) in left.iter_mut().zip(right) {
                *left = weight * right;
            }
        }
        gram.add(left, right, watch)?;
    }
    Ok(gram)
}

/// Computes `ΦᵀΩỸ` for a group of labels in double precision, with one row of length `size` per
/// label. Φ are the features, and Ω holds the weights of the rows.
///
/// Ỹ are smoothed targets. Let s be `shrink`. The targets are `(2s − 1) y + (1 − s)`: s for labels that a row
/// has, and 1 − s for other labels. For the softmax, the targets are `s y + (1 − s)/m`, where m is the number
/// of labels that occur in at least one row. The sum of the targets of a row is then 1. The targets of unknown
/// pairs are 0. The matrix Ỹ is never stored: the part of the targets that is the same for all rows is
/// multiplied by the sum of all features. Takes O(stored entries of these labels × size) time.
pub(crate) fn moments(
    problem: &Problem<'_>,
    labels: &Labels,
    block: &[u32],
    shrink: f64,
) -> Result<Vec<f64>, Error> {
    let Problem {
        params,
        design,
        train,
        weights,
        watch,
        ..
    } = *problem;
    let size = design.size;
    let (slope, offset) = if params.loss == Loss::Softmax {
        (shrink, (1.0 - shrink) / labels.seen.len() as f64)
    } else {
        (2.0 * shrink - 1.0, 1.0 - shrink)
    };
    let mut sums = filled("the matrix of sums of features", 0.0f64, block.len() * size)?;
    let n_missing = if labels.unknown.is_some() {
        sums.len()
    } else {
        0
    };
    let mut missing = filled("the matrix of sums of features", 0.0f64, n_missing)?;
    let mut total = filled("the matrix of sums of features", 0.0f64, size)?;
    let mut features = filled("a block of features", 0.0, MOMENT_ROWS * size)?;
    for (at, rows) in train.chunks(MOMENT_ROWS).enumerate() {
        let first = (at * MOMENT_ROWS) as u32;
        let features = &mut features[..rows.len() * size];
        design.fill(rows, features, watch)?;
        let add = |sum: &mut [f64], row: usize| {
            let weight = f64::from(weights[rows[row] as usize]);
            for (sum, &feature) in sum.iter_mut().zip(&features[row * size..][..size]) {
                *sum += weight * f64::from(feature);
            }
        };
        for row in 0..rows.len() {
            add(&mut total, row);
        }
        sums.par_chunks_mut(size)
            .zip(block)
            .try_each(|(sum, &label)| {
                watch.step(0)?;
                let positive = labels.rows(label);
                let begin = positive.partition_point(|&row| row < first);
                for &row in &positive[begin..] {
                    if row as usize >= first as usize + rows.len() {
                        break;
                    }
                    add(sum, (row - first) as usize);
                }
                Ok(())
            })?;
        missing
            .par_chunks_mut(size)
            .zip(block)
            .try_each(|(sum, &label)| {
                watch.step(0)?;
                let unknown = labels.unknown_rows(label);
                let begin = unknown.partition_point(|&row| row < first);
                let end =
                    unknown.partition_point(|&row| (row as usize) < first as usize + rows.len());
                for &row in &unknown[begin..end] {
                    add(sum, (row - first) as usize);
                }
                Ok(())
            })?;
    }
    sums.par_chunks_mut(size).for_each(|sum| {
        for (sum, total) in sum.iter_mut().zip(&total) {
            *sum = slope * *sum + offset * total;
        }
    });
    for (sum, missing) in sums.iter_mut().zip(&missing) {
        *sum -= offset * missing;
    }
    Ok(sums)
}
