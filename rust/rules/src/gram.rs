//! Gram matrices of gradients: `Σ w g gᵀ` over a set of rows.
//!
//! Under the example-wise loss, the Hessian of a set of rows is `diag(Σ w |g|) − Σ w g gᵀ`. The
//! second term is kept as a matrix where many candidates need it: for sets of rows that bins are
//! aggregated from, and for heads of all labels if there are many rows. Otherwise products with the
//! rows themselves are cheaper (`head/solve.rs`).
//!
//! Computing a matrix costs O(rows · labels²). Three ways are used, by size:
//!
//! - Up to [`FEW_ROWS`] rows are added one by one, as outer products.
//! - Up to [`FEW_LABELS`] labels, tiles of the product are summed in registers, directly from the
//!   gradients. Needs fused multiply-add.
//! - Otherwise rows are copied, scaled by √w, and multiplied by `faer`.
//!
//! Rows are processed in blocks of fixed size and the products of blocks are added in order, so
//! that the result does not depend on the number of threads.

use crate::lanes::{Aligned, WIDTH, add_scaled, chunks, chunks_mut};
use crate::statistics::{PARALLEL_FROM, ROWS, Statistics};
use faer::linalg::matmul::triangular::{BlockStructure, matmul};
use faer::{Accum, MatMut, MatRef, Par};
use manylabel_base::{Error, parts};
use manylabel_simd::wide;
use rayon::prelude::*;

/// Most gradients per block of rows, 16 MB, unless [`ROWS`] rows are more.
const NUMBERS_OF_BLOCK: usize = 1 << 21;

/// Up to this many rows are added to a matrix one by one.
const FEW_ROWS: usize = 4;

/// Blocks whose products are in memory at the same time.
const BLOCKS_AT_ONCE: usize = 4;

/// Labels (padded) up to which products are summed in registers, without a copy of the gradients.
const FEW_LABELS: usize = 64;

/// Rows per pass over all pairs of few labels: their gradients stay in the first-level cache.
const NEAR_ROWS: usize = 64;

/// Rows of the matrix that are summed in registers together, and most chunks of each of them.
const SIDE: usize = 4;

/// `Σ w g gᵀ` over a set of rows: a full symmetric matrix, one padded row after the other.
#[derive(Debug)]
pub(crate) struct Gram {
    /// Length of a row, and number of rows.
    pub(crate) stride: usize,
    /// The entries, row by row.
    pub(crate) data: Aligned,
}

impl Gram {
    /// The matrix of an empty set of rows.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    pub(crate) fn new(stride: usize) -> Result<Self, Error> {
        let data = square(stride)?;
        Ok(Self { stride, data })
    }

    /// The matrix of `rows`; `weights` are those of all training rows. Takes O(rows · labels²).
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

    /// A copy of the matrix.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    pub(crate) fn copied(&self) -> Result<Self, Error> {
        let data = self.data.copied(PRODUCTS)?;
        Ok(Self { data, ..*self })
    }

    /// Adds `scale` times the matrix of `rows`. A `scale` of −1 removes rows.
    ///
    /// # Errors
    ///
    /// As [`over`](Self::over); part of the rows may have been added then.
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
        // Blocks are long because each has a matrix of its own, and only a few exist at a time.
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

    /// Row `k` of the matrix.
    #[inline(always)]
    pub(crate) fn row(&self, k: usize) -> &[f64] {
        &self.data[k * self.stride..(k + 1) * self.stride]
    }

    /// Adds `scale · x xᵀ`, for a padded row x.
    #[inline(always)]
    pub(crate) fn add_outer(&mut self, scale: f64, x: &[f64]) {
        for (row, &entry) in self.data.chunks_exact_mut(self.stride).zip(x) {
            add_scaled(row, scale * entry, x);
        }
    }
}

/// What errors name if a number per pair of labels does not fit in memory.
pub(crate) const PRODUCTS: &str = "products of labels";

/// Zeros for all pairs of labels.
///
/// # Errors
///
/// [`Error::TooLarge`].
fn square(stride: usize) -> Result<Aligned, Error> {
    Aligned::zeros(PRODUCTS, stride.saturating_mul(stride))
}

/// The gradients of rows times the roots of their weights, row after row.
///
/// # Errors
///
/// [`Error::TooLarge`].
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

/// Adds `scale · w g gᵀ` of each row in turn.
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

/// Whether a product and a sum are one instruction. Elsewhere `mul_add` is a slow function call.
fn is_fused() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}

/// Adds `Σ w g gᵀ` over rows to a matrix of few labels. Some entries above the diagonal are left
/// out; the caller mirrors the lower triangle.
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
            // At least two chunks, if there are: with one, most of the time goes to loads.
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

/// [`add_products`] for [`SIDE`] rows of the matrix, from row `label` on, and `B` chunks of each,
/// from chunk `first` on. `matrix` holds these rows only; `weighted` has gradients and weight of
/// each row.
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
