//! A few rows at a time, whose numbers are gone through label by label.
//!
//! A sum over rows stays in registers while the rows pass by, and products of rows are added up
//! across all rows at once. Each label is still added up on its own and in the order of rows, so
//! that it makes no difference which rows come together.

use crate::lanes::{WIDTH, chunks, chunks_mut, dot, total};

/// Most rows of a batch: few, since most sets to be added are small.
pub(crate) const ROWS_AT_ONCE: usize = 8;

/// Below so many rows, what is kept for later would be asked for before it has arrived.
const FEW_ROWS: usize = 5;

/// A number for each row of a batch.
pub(crate) type OfRows = [f64; ROWS_AT_ONCE];

/// Padded rows of gradients, and a weight of each.
pub(crate) struct Batch<'a> {
    /// The gradients of all rows, by chunks.
    gradients: &'a [[f64; WIDTH]],
    /// Where each row begins there.
    starts: [usize; ROWS_AT_ONCE],
    weights: OfRows,
    /// The weights times what the gradients lack of a sum of 1.
    rests: OfRows,
    n_rows: usize,
}

impl<'a> Batch<'a> {
    /// Of at most [`ROWS_AT_ONCE`] rows, with weights and rests of all rows.
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

    /// The chunks at `c`.
    #[inline(always)]
    fn column(&self, c: usize) -> impl Iterator<Item = &'a [f64; WIDTH]> {
        let gradients = self.gradients;
        let starts = &self.starts[..self.n_rows];
        starts.iter().map(move |&start| &gradients[start + c])
    }

    /// `y += Σ a x`.
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

    /// Adds `Σ w x`, `Σ w |x| (1 − |x|)`, `Σ w |x|` and `Σ w' |x|`, where w' are the rests, to the
    /// first `N` of four.
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

    /// The product of each row with x, times `factor` and its weight.
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
        // Totals are taken in a loop of their own: what they read has arrived by then.
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
