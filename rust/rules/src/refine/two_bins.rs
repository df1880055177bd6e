//! One bin of either sign and few labels, as the usual 4 % are of up to 25 labels: all sums fit
//! in registers or the nearest cache, and the matrix `Σ w g gᵀ` of the growing set is kept up, so
//! that bins may change at every step without a second look at a row.

use super::Parent;
use super::sweep::Evaluator;
use crate::lanes::{WIDTH, chunks, total};
use crate::statistics::{Gram, Statistics};

/// Most chunks of labels that are done in this way.
pub(crate) const MOST_CHUNKS: usize = 4;

type Chunk = [f64; WIDTH];

/// `C` chunks of labels, under the example-wise loss with the paper's Hessian.
pub(crate) struct TwoBins<'a, const C: usize> {
    statistics: &'a Statistics,
    weights: &'a [f64],
    l2: f64,
    g: [Chunk; C],
    h: [Chunk; C],
    /// Rows of `Σ w g gᵀ` over the growing set.
    outer: Vec<[Chunk; C]>,
    all_g: [Chunk; C],
    all_h: [Chunk; C],
    all_outer: Vec<[Chunk; C]>,
}

impl<'a, const C: usize> TwoBins<'a, C> {
    pub(crate) fn new(
        statistics: &'a Statistics,
        parent: &Parent<'a>,
        gram: &Gram,
        l2: f64,
    ) -> Self {
        let n = statistics.n_labels;
        Self {
            statistics,
            weights: parent.weights,
            l2,
            g: [[0.0; WIDTH]; C],
            h: [[0.0; WIDTH]; C],
            outer: vec![[[0.0; WIDTH]; C]; n],
            all_g: fixed(parent.sums.g()),
            all_h: fixed(parent.sums.h()),
            all_outer: (0..n).map(|k| fixed(gram.row(k))).collect(),
        }
    }

    /// Quality by sums and by the rows of the products.
    #[inline(always)]
    fn quality(&self, g: &[Chunk; C], h: &[Chunk; C], row: impl Fn(usize) -> [Chunk; C]) -> f64 {
        // Which labels are in either bin: of those with positive gradients and of negative.
        let mut bins = [[[0.0; WIDTH]; C]; 2];
        let mut sums = [[[0.0; WIDTH]; 3]; 2];
        for c in 0..C {
            for lane in 0..WIDTH {
                let (g, h) = (g[c][lane], if h[c][lane] > 0.0 { h[c][lane] } else { 0.0 });
                let masks = [f64::from(u8::from(g > 0.0)), f64::from(u8::from(g < 0.0))];
                for bin in 0..2 {
                    bins[bin][c][lane] = masks[bin];
                    sums[bin][0][lane] += masks[bin];
                    sums[bin][1][lane] += masks[bin] * g;
                    sums[bin][2][lane] += masks[bin] * h;
                }
            }
        }
        let mut products = [[0.0; WIDTH]; C];
        let first: &[f64] = bins[0].as_flattened();
        for (k, &mask) in first.iter().take(self.outer.len()).enumerate() {
            let row = row(k);
            for c in 0..C {
                for lane in 0..WIDTH {
                    products[c][lane] += mask * row[c][lane];
                }
            }
        }
        let mut between = [0.0; WIDTH];
        for c in 0..C {
            for lane in 0..WIDTH {
                between[lane] += products[c][lane] * bins[1][c][lane];
            }
        }
        let between = total(&between);
        let [[n, g, h], [n_other, g_other, h_other]] = sums.map(|sums| sums.map(|sum| total(&sum)));
        let (h, h_other) = (h + self.l2 * n, h_other + self.l2 * n_other);
        // An empty bin leaves a row and a column of zeros.
        if n == 0.0 || n_other == 0.0 {
            let (g, h) = if n == 0.0 { (g_other, h_other) } else { (g, h) };
            return if h > 0.0 { -0.5 * g * g / h } else { 0.0 };
        }
        let determinant = h * h_other - between * between;
        let gain = g * g * h_other + 2.0 * g * g_other * between + g_other * g_other * h;
        if determinant > 0.0 {
            -0.5 * gain / determinant
        } else {
            0.0
        }
    }
}

impl<const C: usize> Evaluator for TwoBins<'_, C> {
    fn restart(&mut self) {
        self.g = [[0.0; WIDTH]; C];
        self.h = [[0.0; WIDTH]; C];
        self.outer.fill([[0.0; WIDTH]; C]);
    }

    #[inline(always)]
    fn take(&mut self, row: u32) {
        let weight = self.weights[row as usize];
        let x: [Chunk; C] = fixed(self.statistics.gradient(row));
        for c in 0..C {
            for lane in 0..WIDTH {
                let magnitude = x[c][lane].abs();
                self.g[c][lane] += weight * x[c][lane];
                self.h[c][lane] += weight * (magnitude - magnitude * magnitude);
            }
        }
        for (out, &entry) in self.outer.iter_mut().zip(x.as_flattened()) {
            let scaled = weight * entry;
            for c in 0..C {
                for lane in 0..WIDTH {
                    out[c][lane] += scaled * x[c][lane];
                }
            }
        }
    }

    #[inline(always)]
    fn of_taken(&mut self, _: f64) -> Option<f64> {
        Some(self.quality(&self.g, &self.h, |k| self.outer[k]))
    }

    #[inline(always)]
    fn of_others(&mut self, _: f64) -> Option<f64> {
        let (g, h) = (
            difference(&self.all_g, &self.g),
            difference(&self.all_h, &self.h),
        );
        Some(self.quality(&g, &h, |k| difference(&self.all_outer[k], &self.outer[k])))
    }
}

/// The first `C` chunks of a padded row.
#[inline(always)]
fn fixed<const C: usize>(row: &[f64]) -> [Chunk; C] {
    let mut out = [[0.0; WIDTH]; C];
    out.copy_from_slice(&chunks(row)[..C]);
    out
}

#[inline(always)]
fn difference<const C: usize>(a: &[Chunk; C], b: &[Chunk; C]) -> [Chunk; C] {
    let mut out = *a;
    for c in 0..C {
        for lane in 0..WIDTH {
            out[c][lane] -= b[c][lane];
        }
    }
    out
}
