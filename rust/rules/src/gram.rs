//! Computes Gram matrices of gradients, `Σ w g gᵀ` over a set of rows. Here g is the gradient of a
//! row, with one number per label, and w is the weight of the row.
//!
//! Under the example-wise loss, the Hessian of a set of rows is `diag(Σ w |g|) − Σ w g gᵀ`. The second term
//! is computed as a matrix in two cases. In the first case, the entries of the matrix are summed by bins of
//! labels. In the second case, a head with one score per label is computed from many rows. In all other
//! cases, products with the rows themselves take less time (`head/solve.rs`).
//!
//! The time to compute a matrix is O(rows · labels²). The method depends on the size:
//!
//! - Up to [`FEW_ROWS`] rows are added one by one as outer products.
//! - With up to [`FEW_LABELS`] labels, tiles of the product are summed in registers, directly from
//!   the gradients ([`add_products`]). This method needs fused multiply-add instructions.
//! - In all other cases, rows are copied, scaled by √w, and multiplied by the `faer` library.
//!
//! Rows are processed in blocks of fixed size, and the products of the blocks are added in order.
//! The result therefore does not depend on the number of threads.

use crate::lanes::{Aligned, WIDTH, add_scaled};
use crate::statistics::{PARALLEL_FROM, ROWS, Statistics};
use faer::{MatMut, MatRef};
use manylabel_base::{Error, parts};
use manylabel_dense::lower_matmul;
use manylabel_simd::{has_512_bits, has_fused_multiply_add, wide};
use rayon::prelude::*;

/// Largest number of gradients per block of rows. A block of this size takes 16 MB. A block has at least
/// [`ROWS`] rows, even if these rows have more gradients.
const NUMBERS_OF_BLOCK: usize = 1 << 21;

/// Largest number of rows that are added to a matrix one by one.
const FEW_ROWS: usize = 4;

/// Number of blocks of rows whose products are in memory at the same time.
const BLOCKS_AT_ONCE: usize = 4;

/// Largest number of labels, rounded up to a multiple of eight, for which products are summed in registers,
/// without copying the gradients.
const FEW_LABELS: usize = 64;

/// Number of rows per pass over all pairs of labels, if there are at most [`FEW_LABELS`] labels. The
/// gradients of these rows stay in the first-level cache.
const NEAR_ROWS: usize = 64;

/// The matrix `Σ w g gᵀ` over a set of rows. It is a full symmetric matrix, stored row by row. Each row is
/// padded to a multiple of eight numbers.
#[derive(Debug)]
pub(crate) struct Gram {
    /// Length of a matrix row, and number of matrix rows.
    pub(crate) stride: usize,
    /// The entries, row by row.
    pub(crate) data: Aligned,
}

impl Gram {
    /// Returns the matrix of an empty set of rows, which is zero.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the matrix does not fit in memory.
    pub(crate) fn new(stride: usize) -> Result<Self, Error> {
        let data = square(stride)?;
        Ok(Self { stride, data })
    }

    /// Computes the matrix of `rows`. `weights` has one entry for every training row. The time is O(rows ·
    /// labels²).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`](manylabel_base::Watch::step). Returns [`Error::TooLarge`]
    /// if the matrix does not fit in memory.
    pub(crate) fn over(
        statistics: &Statistics<'_>,
        rows: &[u32],
        weights: &[f64],
    ) -> Result<Self, Error> {
        let mut gram = Self::new(statistics.stride)?;
        gram.add_rows(1.0, statistics, rows, weights)?;
        Ok(gram)
    }

    /// Returns a copy of the matrix.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the copy does not fit in memory.
    pub(crate) fn copied(&self) -> Result<Self, Error> {
        let data = self.data.copied(PRODUCTS)?;
        Ok(Self { data, ..*self })
    }

    /// Adds `scale` times the matrix `Σ w g gᵀ` of `rows`. A `scale` of −1 removes rows.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`over`](Self::over). After an error, only some of the rows may have been
    /// added.
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
            if stride <= FEW_LABELS && has_fused_multiply_add() {
                let add_products = if has_512_bits() {
                    add_products::<8>
                } else {
                    add_products::<4>
                };
                add_products(&mut product, statistics, rows, weights);
                return Ok(product);
            }
            let weighted = weighted_rows(statistics, rows, weights)?;
            let weighted = MatRef::from_row_major_slice(&weighted, rows.len(), stride);
            lower_matmul(
                MatMut::from_row_major_slice_mut(&mut product, stride, stride),
                weighted.transpose(),
                weighted,
            );
            Ok(product)
        };
        // Blocks are long, because each block has its own matrix of products. At most `BLOCKS_AT_ONCE` of
        // these matrices exist at a time.
        let long = ROWS.max((4 * stride).min(NUMBERS_OF_BLOCK / stride.max(1)));
        for rows in rows.chunks(BLOCKS_AT_ONCE * long) {
            if rows.len() * stride * stride < 8 * PARALLEL_FROM {
                for rows in rows.chunks(long) {
                    add_part(&mut self.data, scale, &part(rows)?);
                }
            } else {
                for part in &parts(rows.par_chunks(long).map(part))? {
                    add_part(&mut self.data, scale, part);
                }
            }
        }
        mirror(&mut self.data, stride);
        Ok(())
    }

    /// Returns row `k` of the matrix.
    #[inline(always)]
    pub(crate) fn row(&self, k: usize) -> &[f64] {
        &self.data[k * self.stride..(k + 1) * self.stride]
    }

    /// Adds `scale · x xᵀ` for a vector x, which is padded to a multiple of eight numbers.
    #[inline(always)]
    pub(crate) fn add_outer(&mut self, scale: f64, x: &[f64]) {
        for (row, &entry) in self.data.chunks_exact_mut(self.stride).zip(x) {
            add_scaled(row, scale * entry, x);
        }
    }
}

/// The text in errors if one number per pair of labels does not fit in memory.
pub(crate) const PRODUCTS: &str = "number of pairs of labels";

/// Allocates zeros for all pairs of labels.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the numbers do not fit in memory.
fn square(stride: usize) -> Result<Aligned, Error> {
    Aligned::zeros(PRODUCTS, stride.saturating_mul(stride))
}

/// Adds `scale` times a part of the sum to the matrix.
#[wide]
fn add_part(matrix: &mut [f64], scale: f64, part: &[f64]) {
    add_scaled(matrix, scale, part);
}

/// Copies the lower triangle of a square matrix with rows of `stride` numbers to the upper triangle. `stride` is a
/// multiple of [`WIDTH`]. The matrix is copied tile by tile, because single entries of a column are far apart.
#[wide]
fn mirror(matrix: &mut [f64], stride: usize) {
    for first in (0..stride).step_by(WIDTH) {
        for column in (0..=first).step_by(WIDTH) {
            let mut tile = [[0.0; WIDTH]; WIDTH];
            for (i, row) in tile.iter_mut().enumerate() {
                row.copy_from_slice(&matrix[(first + i) * stride + column..][..WIDTH]);
            }
            for j in 0..WIDTH {
                let out = &mut matrix[(column + j) * stride + first..][..WIDTH];
                for i in 0..WIDTH {
                    // On the diagonal, entries below it stay.
                    if column < first || i > j {
                        out[i] = tile[i][j];
                    }
                }
            }
        }
    }
}

/// Returns the gradients of rows, row after row, each row multiplied by the square root of its
/// weight.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the copy does not fit in memory.
#[wide]
fn weighted_rows(
    statistics: &Statistics<'_>,
    rows: &[u32],
    weights: &[f64],
) -> Result<Aligned, Error> {
    let mut weighted = Aligned::zeros("the matrix of gradients", rows.len() * statistics.stride)?;
    for (out, &row) in weighted.chunks_mut(statistics.stride).zip(rows) {
        let root = weights[row as usize].sqrt();
        for (out, g) in out.iter_mut().zip(statistics.gradient(row)) {
            *out = root * g;
        }
    }
    Ok(weighted)
}

/// Adds `scale · w g gᵀ` to the matrix for each row, one row at a time.
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

/// Adds `Σ w g gᵀ` over rows to a matrix, for at most [`FEW_LABELS`] labels. Some entries above the
/// diagonal are not computed. The caller copies the lower triangle to the upper triangle.
///
/// The matrix is computed in tiles of `SIDE` matrix rows and one chunk of eight columns. `SIDE` is 4 or 8.
/// The sums of a tile must fit in the registers. With 4 matrix rows, they take 8 of the 16 registers of AVX2.
/// With 8 matrix rows, they take 8 of the 32 registers of AVX-512. Fewer than 8 registers would not hide the
/// latency of the additions. Each entry is summed in the order of the rows, whatever the size of the tiles.
#[wide]
pub(crate) fn add_products<const SIDE: usize>(
    matrix: &mut [f64],
    statistics: &Statistics<'_>,
    rows: &[u32],
    weights: &[f64],
) {
    let stride = statistics.stride;
    for rows in rows.chunks(NEAR_ROWS) {
        let none: &[f64] = &[];
        let mut gradients = [none; NEAR_ROWS];
        for (gradient, &row) in gradients.iter_mut().zip(rows) {
            *gradient = statistics.gradient(row);
        }
        let gradients = &gradients[..rows.len()];
        for first in (0..stride).step_by(WIDTH) {
            let mut weighted = [[0.0; WIDTH]; NEAR_ROWS];
            for ((weighted, gradient), &row) in weighted.iter_mut().zip(gradients).zip(rows) {
                for (out, g) in weighted.iter_mut().zip(&gradient[first..first + WIDTH]) {
                    *out = weights[row as usize] * g;
                }
            }
            for label in (first..statistics.n_labels).step_by(SIDE) {
                let mut sums = [[0.0; WIDTH]; SIDE];
                for (gradient, weighted) in gradients.iter().zip(&weighted) {
                    for (sums, &g) in sums.iter_mut().zip(&gradient[label..label + SIDE]) {
                        for lane in 0..WIDTH {
                            sums[lane] = g.mul_add(weighted[lane], sums[lane]);
                        }
                    }
                }
                let matrix = &mut matrix[label * stride..][..SIDE * stride];
                for (out, sums) in matrix.chunks_mut(stride).zip(&sums) {
                    for (out, sum) in out[first..first + WIDTH].iter_mut().zip(sums) {
                        *out += sum;
                    }
                }
            }
        }
    }
}
