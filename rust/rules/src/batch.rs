//! Computes sums and products over up to eight rows of gradients at a time.
//!
//! The outer loops run over chunks of labels. The inner loops run over the rows of the batch. The sum of a
//! chunk stays in registers while the rows are added. So each sum is loaded and stored once per batch instead
//! of once per row.
//!
//! Each label is summed separately, in the order of the rows. Splitting the rows into other batches therefore
//! gives exactly the same results.
//!
//! In the formulas, w is the weight of a row, g is its gradient, and `g_k` is the entry of g for label k. `Σ`
//! is the sum over the rows of the batch, and `Σ_k` is the sum over labels. An index i marks the numbers of
//! row i.

use crate::lanes::{WIDTH, chunks, chunks_mut, dot, total};

/// Largest number of rows per batch. A larger number would not help, because most calls add only a few rows.
pub(crate) const ROWS_AT_ONCE: usize = 8;

/// Smallest number of rows for which [`Batch::products`] uses two loops. With fewer rows, the second loop
/// would have to wait for the stores of the first loop. Such batches therefore use one loop, which completes
/// each product before it starts the next product.
const FEW_ROWS: usize = 5;

/// One number per row of a batch.
pub(crate) type OfRows = [f64; ROWS_AT_ONCE];

/// Up to [`ROWS_AT_ONCE`] rows of gradients with their weights. Each row is padded to a multiple of eight
/// labels.
pub(crate) struct Batch<'a> {
    /// The gradients of all training rows, in chunks of eight labels.
    gradients: &'a [[f64; WIDTH]],
    /// Index in `gradients` of the first chunk of each row of the batch.
    starts: [usize; ROWS_AT_ONCE],
    /// Weights of the rows. Entries beyond `n_rows` are 0.
    weights: OfRows,
    /// `w (1 − Σ_k |g_k|)` of the rows.
    rests: OfRows,
    /// Number of rows in the batch.
    n_rows: usize,
}

impl<'a> Batch<'a> {
    /// Collects the first [`ROWS_AT_ONCE`] of `rows`. `weights` and `rests` have one entry for every training
    /// row. `rests` holds `1 − Σ_k |g_k|` for each row, which this function multiplies by the weight of the
    /// row.
    #[inline(always)]
    pub(crate) fn new(
        gradients: &'a [f64],
        stride: usize,
        rows: &[u32],
        weights: &[f64],
        rests: &[f64],
    ) -> Self {
        let mut batch = Self {
            gradients: chunks(gradients),
            starts: [0; ROWS_AT_ONCE],
            weights: [0.0; ROWS_AT_ONCE],
            rests: [0.0; ROWS_AT_ONCE],
            n_rows: rows.len().min(ROWS_AT_ONCE),
        };
        for i in 0..batch.n_rows {
            let row = rows[i] as usize;
            batch.starts[i] = row * (stride / WIDTH);
            batch.weights[i] = weights[row];
            batch.rests[i] = weights[row] * rests[row];
        }
        batch
    }

    /// Returns chunk `c` (eight labels) of every row of the batch, in the order of the rows.
    #[inline(always)]
    fn column(&self, c: usize) -> impl Iterator<Item = &'a [f64; WIDTH]> {
        let gradients = self.gradients;
        let starts = &self.starts[..self.n_rows];
        starts.iter().map(move |&start| &gradients[start + c])
    }

    /// Computes `y += Σ_i a_i g_i` over the rows i of the batch. `a` has one factor per row.
    #[inline(always)]
    pub(crate) fn add_to(&self, a: &OfRows, y: &mut [f64]) {
        for (c, out) in chunks_mut(y).iter_mut().enumerate() {
            let mut sums = *out;
            for (x, a) in self.column(c).zip(a) {
                for lane in 0..WIDTH {
                    sums[lane] += a * x[lane];
                }
            }
            *out = sums;
        }
    }

    /// Adds sums over the rows of the batch to the arrays in `sums`. The sums are `Σ w g`,
    /// `Σ w |g| (1 − |g|)`, `Σ w |g|` and `Σ w |g| (1 − Σ_k |g_k|)`, in this order. Only the first `N` of
    /// these sums are computed; `N` must be at least 2.
    #[inline(always)]
    pub(crate) fn add_moments_to<const N: usize>(&self, sums: [&mut [f64]; N]) {
        let sums = sums.map(chunks_mut);
        for c in 0..sums[0].len() {
            let mut these: [[f64; WIDTH]; N] = std::array::from_fn(|kind| sums[kind][c]);
            let weights = self.weights.iter().zip(&self.rests);
            for (x, (weight, rest)) in self.column(c).zip(weights) {
                for lane in 0..WIDTH {
                    let magnitude = x[lane].abs();
                    these[0][lane] += weight * x[lane];
                    these[1][lane] += weight * (magnitude - magnitude * magnitude);
                    if N > 2 {
                        these[2][lane] += weight * magnitude;
                    }
                    if N > 3 {
                        these[3][lane] += rest * magnitude;
                    }
                }
            }
            for kind in 0..N {
                sums[kind][c] = these[kind];
            }
        }
    }

    /// Returns `factor · w_i · g_iᵀx` for each row i of the batch. Entries beyond the batch are 0.
    #[inline(always)]
    pub(crate) fn products(&self, factor: f64, x: &[f64]) -> OfRows {
        let mut products = self.weights;
        let n_chunks = x.len() / WIDTH;
        if self.n_rows < FEW_ROWS {
            for (product, &start) in products.iter_mut().zip(&self.starts[..self.n_rows]) {
                let row = self.gradients[start..start + n_chunks].as_flattened();
                *product *= factor * dot(row, x);
            }
            return products;
        }
        // The lanes of each row are added in a second loop. By then, the stores of the first loop have
        // completed.
        let mut sums = [[0.0; WIDTH]; ROWS_AT_ONCE];
        let x = chunks(x);
        for (out, &start) in sums.iter_mut().zip(&self.starts[..self.n_rows]) {
            let mut sum = [0.0; WIDTH];
            for (g, x) in self.gradients[start..start + n_chunks].iter().zip(x) {
                for lane in 0..WIDTH {
                    sum[lane] += g[lane] * x[lane];
                }
            }
            *out = sum;
        }
        for (product, sum) in products[..self.n_rows].iter_mut().zip(&sums) {
            *product *= factor * total(sum);
        }
        products
    }
}
