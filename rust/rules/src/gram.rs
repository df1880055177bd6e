//! Products of the gradients of labels, summed over rows.

use crate::lanes::{Aligned, WIDTH, add_scaled, chunks, chunks_mut};
use crate::statistics::{PARALLEL_FROM, ROWS, Statistics};
use faer::linalg::matmul::triangular::{BlockStructure, matmul};
use faer::{Accum, MatMut, MatRef, Par};
use manylabel_base::{Error, parts};
use manylabel_simd::wide;
use rayon::prelude::*;

/// Rows of a block of a product of gradients have together at most so many numbers, 16 MB.
const NUMBERS_OF_BLOCK: usize = 1 << 21;

/// Up to so many rows are added to a matrix one after the other.
const FEW_ROWS: usize = 4;

/// Blocks whose products are held at once.
const BLOCKS_AT_ONCE: usize = 4;

/// Labels (padded) up to which products are summed in registers, from gradients where they are;
/// more are multiplied block by block, from copies.
const FEW_LABELS: usize = 64;

/// Rows whose gradients stay in the first-level cache while all pairs of few labels pass by.
const NEAR_ROWS: usize = 64;

/// Labels on one side of the products that are in registers together; on the other side are up to
/// as many chunks.
const SIDE: usize = 4;

/// `Σ w g gᵀ` over a set of rows: a full symmetric matrix of padded rows.
#[derive(Debug)]
pub(crate) struct Gram {
    pub(crate) stride: usize,
    pub(crate) data: Aligned,
}

impl Gram {
    /// Over no row.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    pub(crate) fn new(stride: usize) -> Result<Self, Error> {
        let data = square(stride)?;
        Ok(Self { stride, data })
    }

    /// Over `rows`, of which each weighs `weights[row]`; O(rows × labels²).
    ///
    /// # Errors
    ///
    /// As [`Watch::step`](manylabel_base::Watch::step), [`Error::TooLarge`].
    pub(crate) fn over(
        statistics: &Statistics<'_>,
        rows: &[u32],
        weights: &[f64],
    ) -> Result<Self, Error> {
        let mut gram = Self::new(statistics.stride)?;
        gram.add_rows(1.0, statistics, rows, weights)?;
        Ok(gram)
    }

    /// The same matrix at another place.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    pub(crate) fn copied(&self) -> Result<Self, Error> {
        let data = self.data.copied(PRODUCTS)?;
        Ok(Self { data, ..*self })
    }

    /// Adds `scale` times the matrix of `rows`.
    ///
    /// # Errors
    ///
    /// As [`over`](Self::over).
    pub(crate) fn add_rows(
        &mut self,
        scale: f64,
        statistics: &Statistics<'_>,
        rows: &[u32],
        weights: &[f64],
    ) -> Result<(), Error> {
        let stride = self.stride;
        if rows.len() <= FEW_ROWS {
            add_outer_each(self, scale, statistics, rows, weights);
            return Ok(());
        }
        let part = |rows: &[u32]| {
            statistics.ask()?;
            let mut product = square(stride)?;
            if stride <= FEW_LABELS && is_fused() {
                add_products(&mut product, statistics, rows, weights);
                return Ok(product);
            }
            let weighted = weighted_rows(statistics, rows, weights)?;
            let weighted = MatRef::from_row_major_slice(&weighted, rows.len(), stride);
            matmul(
                MatMut::from_row_major_slice_mut(&mut product, stride, stride),
                BlockStructure::TriangularLower,
                Accum::Replace,
                weighted.transpose(),
                BlockStructure::Rectangular,
                weighted,
                BlockStructure::Rectangular,
                1.0,
                Par::Seq,
            );
            Ok(product)
        };
        // Blocks are long, since each makes a matrix of its own, and a few at a time.
        let long = ROWS.max((4 * stride).min(NUMBERS_OF_BLOCK / stride.max(1)));
        for rows in rows.chunks(BLOCKS_AT_ONCE * long) {
            if rows.len() * stride * stride < 64 * PARALLEL_FROM {
                for rows in rows.chunks(long) {
                    add_scaled(&mut self.data, scale, &part(rows)?);
                }
            } else {
                for part in &parts(rows.par_chunks(long).map(part))? {
                    add_scaled(&mut self.data, scale, part);
                }
            }
        }
        for k in 0..stride {
            for j in 0..k {
                self.data[j * stride + k] = self.data[k * stride + j];
            }
        }
        Ok(())
    }

    /// One row.
    #[inline(always)]
    pub(crate) fn row(&self, k: usize) -> &[f64] {
        &self.data[k * self.stride..(k + 1) * self.stride]
    }

    /// Adds `scale · x xᵀ`.
    #[inline(always)]
    pub(crate) fn add_outer(&mut self, scale: f64, x: &[f64]) {
        for (row, &entry) in self.data.chunks_exact_mut(self.stride).zip(x) {
            add_scaled(row, scale * entry, x);
        }
    }
}

/// What is too large where a number for each pair of labels does not fit in memory.
pub(crate) const PRODUCTS: &str = "products of labels";

/// Zeros for all pairs of labels.
fn square(stride: usize) -> Result<Aligned, Error> {
    Aligned::zeros(PRODUCTS, stride.saturating_mul(stride))
}

/// The gradients of rows, times the roots of their weights.
#[wide]
fn weighted_rows(
    statistics: &Statistics<'_>,
    rows: &[u32],
    weights: &[f64],
) -> Result<Aligned, Error> {
    let mut weighted = Aligned::zeros("gradients", rows.len() * statistics.stride)?;
    for (out, &row) in weighted.chunks_mut(statistics.stride).zip(rows) {
        let root = weights[row as usize].sqrt();
        for (out, g) in out.iter_mut().zip(statistics.gradient(row)) {
            *out = root * g;
        }
    }
    Ok(weighted)
}

#[wide]
fn add_outer_each(
    gram: &mut Gram,
    scale: f64,
    statistics: &Statistics<'_>,
    rows: &[u32],
    weights: &[f64],
) {
    for &row in rows {
        let gradient = statistics.gradient(row);
        gram.add_outer(scale * weights[row as usize], gradient);
    }
}

/// Whether a product and a sum are one instruction; elsewhere `mul_add` is a call.
fn is_fused() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

/// Adds `Σ w g gᵀ` over rows to a matrix of few labels, of which the upper triangle is not used.
#[wide]
fn add_products(matrix: &mut [f64], statistics: &Statistics<'_>, rows: &[u32], weights: &[f64]) {
    let stride = statistics.stride;
    for rows in rows.chunks(NEAR_ROWS) {
        let none: &[[f64; WIDTH]] = &[];
        let mut weighted = [(none, 0.0); NEAR_ROWS];
        for (out, &row) in weighted.iter_mut().zip(rows) {
            *out = (chunks(statistics.gradient(row)), weights[row as usize]);
        }
        let weighted = &weighted[..rows.len()];
        for label in (0..statistics.n_labels).step_by(SIDE) {
            let matrix = &mut matrix[label * stride..][..SIDE * stride];
            // Two chunks at least, if there are: one alone leaves most of the time to reading.
            let n_chunks = (label / WIDTH + 1).max(2).min(stride / WIDTH);
            let at_once = n_chunks.div_ceil(n_chunks.div_ceil(SIDE));
            for first in (0..n_chunks).step_by(at_once) {
                match at_once.min(n_chunks - first) {
                    1 => add_block::<1>(matrix, weighted, label, first),
                    2 => add_block::<2>(matrix, weighted, label, first),
                    3 => add_block::<3>(matrix, weighted, label, first),
                    _ => add_block::<SIDE>(matrix, weighted, label, first),
                }
            }
        }
    }
}

/// The same for [`SIDE`] rows of the matrix, those from `label`, and `B` chunks of each, those from
/// `first`.
#[inline(always)]
fn add_block<const B: usize>(
    matrix: &mut [f64],
    weighted: &[(&[[f64; WIDTH]], f64)],
    label: usize,
    first: usize,
) {
    let mut sums = [[[0.0; WIDTH]; B]; SIDE];
    for &(row, weight) in weighted {
        let labels = &row.as_flattened()[label..label + SIDE];
        let mut others = [[0.0; WIDTH]; B];
        for (other, chunk) in others.iter_mut().zip(&row[first..first + B]) {
            for lane in 0..WIDTH {
                other[lane] = weight * chunk[lane];
            }
        }
        for i in 0..SIDE {
            for c in 0..B {
                for lane in 0..WIDTH {
                    sums[i][c][lane] = labels[i].mul_add(others[c][lane], sums[i][c][lane]);
                }
            }
        }
    }
    let stride = matrix.len() / SIDE;
    for (out, sums) in matrix.chunks_mut(stride).zip(&sums) {
        for (out, sums) in chunks_mut(out)[first..first + B].iter_mut().zip(sums) {
            for lane in 0..WIDTH {
                out[lane] += sums[lane];
            }
        }
    }
}
