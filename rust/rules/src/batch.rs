//! A few rows at a time, whose numbers are gone through label by label.
//!
//! A sum over rows stays in registers while the rows pass by, and products of rows are added up
//! across all rows at once. Each label is still added up on its own and in the order of rows, so
//! that it makes no difference which rows come together.

use crate::lanes::{WIDTH, chunks, chunks_mut, total};

/// Most rows of a batch: few enough that all stay in the nearest cache.
pub(crate) const ROWS_AT_ONCE: usize = 16;

/// Padded rows of gradients, and a weight of each.
pub(crate) struct Batch<'a> {
    /// The gradients of all rows, by chunks.
    gradients: &'a [[f64; WIDTH]],
    /// Where each row begins there.
    starts: [usize; ROWS_AT_ONCE],
    weights: [f64; ROWS_AT_ONCE],
    n_rows: usize,
}

impl<'a> Batch<'a> {
    /// Of at most [`ROWS_AT_ONCE`] rows, of which each weighs `weight(row)`.
    #[inline(always)]
    pub(crate) fn new(
        gradients: &'a [f64],
        stride: usize,
        rows: &[u32],
        weight: impl Fn(u32) -> f64,
    ) -> Self {
        let mut batch = Self {
            gradients: chunks(gradients),
            starts: [0; ROWS_AT_ONCE],
            weights: [0.0; ROWS_AT_ONCE],
            n_rows: rows.len().min(ROWS_AT_ONCE),
        };
        for (&row, (start, out)) in rows
            .iter()
            .zip(batch.starts.iter_mut().zip(&mut batch.weights))
        {
            *start = row as usize * (stride / WIDTH);
            *out = weight(row);
        }
        batch
    }

    /// The chunks at `c`, and the weights.
    #[inline(always)]
    fn column(&self, c: usize) -> impl Iterator<Item = (&'a [f64; WIDTH], f64)> {
        let gradients = self.gradients;
        let starts = &self.starts[..self.n_rows];
        let rows = starts.iter().zip(&self.weights);
        rows.map(move |(&start, &weight)| (&gradients[start + c], weight))
    }

    /// `y += Σ w x`.
    #[inline(always)]
    pub(crate) fn add_to(&self, y: &mut [f64]) {
        for (c, out) in chunks_mut(y).iter_mut().enumerate() {
            let mut sums = *out;
            for (x, weight) in self.column(c) {
                for lane in 0..WIDTH {
                    sums[lane] += weight * x[lane];
                }
            }
            *out = sums;
        }
    }

    /// Adds `Σ w x`, `Σ w |x| (1 − |x|)`, `Σ w |x|` and `Σ w' |x|` to the first `N` of four.
    /// `w'` are the weights of `other`, which has the same rows.
    #[inline(always)]
    pub(crate) fn add_moments_to<const N: usize>(&self, other: &Self, sums: [&mut [f64]; N]) {
        let sums = sums.map(chunks_mut);
        let n_chunks = sums[0].len();
        for c in 0..n_chunks {
            let mut these: [[f64; WIDTH]; N] = std::array::from_fn(|kind| sums[kind][c]);
            for ((x, weight), other) in self.column(c).zip(&other.weights) {
                for lane in 0..WIDTH {
                    let magnitude = x[lane].abs();
                    these[0][lane] += weight * x[lane];
                    these[1][lane] += weight * (magnitude - magnitude * magnitude);
                    if N > 2 {
                        these[2][lane] += weight * magnitude;
                    }
                    if N > 3 {
                        these[3][lane] += other * magnitude;
                    }
                }
            }
            for kind in 0..N {
                sums[kind][c] = these[kind];
            }
        }
    }

    /// Multiplies each weight by `factor` times the product of its row with x.
    #[inline(always)]
    pub(crate) fn weigh_by_products(&mut self, factor: f64, x: &[f64]) {
        // Totals are taken in a loop of their own: what they read has arrived by then.
        let mut sums = [[0.0; WIDTH]; ROWS_AT_ONCE];
        let x = chunks(x);
        for (out, &start) in sums.iter_mut().zip(&self.starts[..self.n_rows]) {
            let mut sum = [0.0; WIDTH];
            for (g, x) in self.gradients[start..start + x.len()].iter().zip(x) {
                for lane in 0..WIDTH {
                    sum[lane] += g[lane] * x[lane];
                }
            }
            *out = sum;
        }
        for (weight, sum) in self.weights[..self.n_rows].iter_mut().zip(&sums) {
            *weight *= factor * total(sum);
        }
    }
}
