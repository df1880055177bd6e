//! Sums over training rows: of products of features, and of features by label.

use crate::Loss;
use crate::design::Design;
use crate::gram::Gram;
use crate::labels::Labels;
use crate::psgd::Problem;
use manylabel_base::{Error, Watch, filled};
use rayon::prelude::*;

/// Rows of features that are added to the Gram matrix at a time: short enough for sums in `f32`.
pub(crate) const GRAM_ROWS: usize = 512;

/// Rows of features that sums over positive rows are taken of at a time.
pub(crate) const MOMENT_ROWS: usize = 1024;

/// `ΦᵀΩΦ` of the rows `train`.
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

/// `ΦᵀΩỸ`, one row a label, with smoothed targets.
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
    let mut sums = filled("sums of features", 0.0f64, block.len() * size)?;
    let mut total = filled("sums of features", 0.0f64, size)?;
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
            .try_for_each(|(sum, &label)| {
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
    }
    sums.par_chunks_mut(size).for_each(|sum| {
        for (sum, total) in sum.iter_mut().zip(&total) {
            *sum = slope * *sum + offset * total;
        }
    });
    Ok(sums)
}
