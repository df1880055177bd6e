//! Assigns labels to bins, so that labels with similar optimal scores get the same score. This method is
//! gradient-based label binning (GBLB, sections 3.2 and 3.3).
//!
//! The criterion of a label is the optimal score of the label if no other label is scored:
//! `c_k = −g_k / (h_kk + ω)` (equation 11). Here, `g_k` and `h_kk` are the sums of the gradients and of the
//! Hessian diagonals of label k over a set of rows, and ω is the L2 weight. Negative criteria are divided
//! into B₋ bins and positive criteria into B₊ bins. The bins for one sign have equal width and cover the
//! range of the criteria with this sign. A criterion c is in bin `at(c)` (equations 14 and 15):
//!
//! ```text
//! at(c) = min(⌊(c − lowest) / width⌋, B − 1),    width = (highest − lowest) / B
//! ```
//!
//! Here, `lowest` and `highest` are the smallest and the largest criterion with this sign, and B is the
//! number of its bins. Labels with a gradient of 0 belong to no bin, and their score is exactly 0. If all
//! criteria with one sign are equal up to rounding, their labels are in the same bin. [`Binning`] gives the
//! number of bins B of a sign as a function of the number of labels with that sign. Some bins may be empty.
//! Empty bins are skipped when scores are computed.
//!
//! In the exact search for conditions, every candidate set of rows has its own bins. The search therefore
//! calls [`Binner::assign`] once per candidate. A call takes O(labels) time and does not sort. The order of
//! the labels affects neither the criteria nor the bins.

use crate::Binning;
use crate::batch::ROWS_AT_ONCE;
use crate::lanes::{WIDTH, chunks, chunks_mut, total};

/// The bin number of labels that belong to no bin. Bin numbers are stored as `f64`, so that SIMD comparisons
/// of `f64` can select the labels of a bin.
pub(crate) const NONE: f64 = -1.0;

/// Criteria (optimal scores of single labels) count as equal if their difference, relative to the largest
/// criterion, is below this value. The tolerance is needed because differences of equal sums may contain
/// rounding errors.
const ROUNDING: f64 = 1e-9;

/// A number that is added to the denominator before a division by a diagonal entry of the Hessian. The number
/// matters only without L2 regularization. The square of the number is still a normal floating-point number.
pub(crate) const LEAST_DIAGONAL: f64 = 1e-150;

/// Assigns labels to bins.
///
/// The criterion of a label is its optimal score if no other label is scored. Bins of negative criteria are
/// numbered from 0 upwards. Bins of positive criteria are numbered from `n_bins − 1` downwards. With this
/// numbering, few labels change their bin number when the number of bins of a sign changes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Binner {
    /// The parameters for the number of bins of each sign.
    binning: Binning,
    /// Largest total number of bins of both signs. The maximum is taken over all possible numbers of labels
    /// with negative optimal scores; the other labels have positive optimal scores. Empty bins are included.
    /// All bin numbers are below `n_bins`.
    pub(crate) n_bins: usize,
    /// True if there is at most one bin for each sign. The bin of a label then depends only on the sign of
    /// its gradient.
    pub(crate) signs_only: bool,
    /// The L2 weight ω.
    l2: f64,
}

impl Binner {
    /// Prepares the binning of `n_labels` labels, in O(`n_labels`).
    pub(crate) fn new(binning: Binning, n_labels: usize, l2: f64) -> Self {
        let mut binner = Self {
            binning,
            n_bins: 0,
            signs_only: false,
            l2,
        };
        binner.signs_only = binner.count(n_labels) <= 1;
        binner.n_bins = (0..=n_labels)
            .map(|negative| binner.count(negative) + binner.count(n_labels - negative))
            .max()
            .unwrap_or(0);
        binner
    }

    /// Returns the number of bins for `n` labels of one sign:
    /// `min(clamp(⌈ratio · n⌉, min_bins, max_bins), n)`.
    fn count(&self, n: usize) -> usize {
        let Binning {
            ratio,
            min_bins,
            max_bins,
        } = self.binning;
        // A tiny amount is subtracted, so that rounding does not turn 0.04 · 25 labels into 2 bins
        // instead of 1.
        let share = (ratio * n as f64 - 1e-9).ceil() as usize;
        share.clamp(min_bins, max_bins).min(n)
    }

    /// Writes the bin number of every label to `bins`. The number is [`NONE`] for labels without a bin. `g`
    /// and `h` are the sums of gradients and of Hessian diagonals over a set of rows. Diagonals below 0,
    /// which rounding may cause, count as 0.
    ///
    /// `criteria` is a workspace. All four slices have the same length, which is a multiple of eight labels.
    #[inline(always)]
    pub(crate) fn assign(&self, g: &[f64], h: &[f64], criteria: &mut [f64], bins: &mut [f64]) {
        if self.signs_only {
            for (g, bins) in chunks(g).iter().zip(chunks_mut(bins)) {
                for lane in 0..WIDTH {
                    let bin = if g[lane] > 0.0 {
                        0.0
                    } else {
                        self.n_bins as f64 - 1.0
                    };
                    bins[lane] = if g[lane] == 0.0 { NONE } else { bin };
                }
            }
            return;
        }
        // These arrays hold, for each sign, the smallest magnitude, the largest magnitude and the number of
        // labels.
        let mut lowest = [[f64::INFINITY; WIDTH]; 2];
        let mut highest = [[0.0f64; WIDTH]; 2];
        let mut counts = [[0.0; WIDTH]; 2];
        for ((g, h), c) in chunks(g).iter().zip(chunks(h)).zip(chunks_mut(criteria)) {
            for lane in 0..WIDTH {
                let h = if h[lane] > 0.0 { h[lane] } else { 0.0 };
                c[lane] = -g[lane] / (h + self.l2 + LEAST_DIAGONAL);
                for (sign, c) in [-c[lane], c[lane]].into_iter().enumerate() {
                    let here = c > 0.0;
                    let low = if here { c } else { f64::INFINITY };
                    let high = if here { c } else { 0.0 };
                    lowest[sign][lane] = if low < lowest[sign][lane] {
                        low
                    } else {
                        lowest[sign][lane]
                    };
                    highest[sign][lane] = if high > highest[sign][lane] {
                        high
                    } else {
                        highest[sign][lane]
                    };
                    counts[sign][lane] += if here { 1.0 } else { 0.0 };
                }
            }
        }
        let mut low = [0.0; 2];
        let mut width = [0.0; 2];
        let mut last = [0.0; 2];
        for sign in 0..2 {
            let (mut lo, mut hi, mut n) = (f64::INFINITY, 0.0, 0.0);
            for lane in 0..WIDTH {
                lo = if lowest[sign][lane] < lo {
                    lowest[sign][lane]
                } else {
                    lo
                };
                hi = if highest[sign][lane] > hi {
                    highest[sign][lane]
                } else {
                    hi
                };
                n += counts[sign][lane];
            }
            if n > 0.0 {
                let bins = self.count(n as usize) as f64;
                last[sign] = bins - 1.0;
                // The first bin of negative criteria starts at the criterion with the largest
                // magnitude.
                low[sign] = if sign == 0 { -hi } else { lo };
                // Differences as small as rounding errors count as 0.
                width[sign] = if hi - lo > ROUNDING * hi {
                    (hi - lo) / bins
                } else {
                    0.0
                };
            }
        }
        // If all criteria are equal, all labels are in the first bin.
        let width = width.map(|width| if width > 0.0 { width } else { f64::INFINITY });
        let from_end = (self.n_bins - 1) as f64;
        for (c, bins) in chunks(criteria).iter().zip(chunks_mut(bins)) {
            for lane in 0..WIDTH {
                let c = c[lane];
                let positive = c > 0.0;
                let low = if positive { low[1] } else { low[0] };
                let width = if positive { width[1] } else { width[0] };
                let last = if positive { last[1] } else { last[0] };
                let at = (c - low) / width;
                let at = if at < last { at } else { last };
                let at = at.floor();
                let bin = if positive { from_end - at } else { at };
                bins[lane] = if c == 0.0 { NONE } else { bin };
            }
        }
    }
}

/// Largest number of bins for which [`add_up`] makes one masked pass over the labels per bin. Adding to bins
/// in memory would be slower, because an addition may have to wait for the previous addition.
const FEW_BINS: usize = 8;

/// Returns `x` if `keep` is true, else 0. The function masks the binary representation, because the
/// compiler would turn an `if` into a branch.
#[inline(always)]
fn masked(x: f64, keep: bool) -> f64 {
    f64::from_bits(x.to_bits() & u64::from(keep).wrapping_neg())
}

/// Returns the sums of every eighth label, over the labels of bin `b`.
#[inline(always)]
fn masked_sums(x: &[f64], bins: &[f64], b: usize) -> [f64; WIDTH] {
    let mut sums = [0.0; WIDTH];
    for (x, bins) in chunks(x).iter().zip(chunks(bins)) {
        for lane in 0..WIDTH {
            sums[lane] += masked(x[lane], bins[lane] == b as f64);
        }
    }
    sums
}

/// Computes `out[b] = Σ_{k in bin b} x_k`. Labels without a bin are skipped. `out` has one entry
/// per bin.
#[inline(always)]
pub(crate) fn add_up(x: &[f64], bins: &[f64], out: &mut [f64]) {
    if out.len() <= FEW_BINS {
        for (b, out) in out.iter_mut().enumerate() {
            *out = total(&masked_sums(x, bins, b));
        }
    } else {
        out.fill(0.0);
        for (x, &bin) in x.iter().zip(bins) {
            if bin >= 0.0 {
                out[bin as usize] += x;
            }
        }
    }
}

/// Applies [`add_up`] to up to [`ROWS_AT_ONCE`] rows with the same bins. The result for row i and bin b is
/// `out[b][i]`. The other entries of `out` are not changed.
#[inline(always)]
pub(crate) fn add_up_rows(rows: &[&[f64]], bins: &[f64], out: &mut [[f64; ROWS_AT_ONCE]]) {
    if out.len() <= FEW_BINS {
        let mut sums = [[0.0; WIDTH]; ROWS_AT_ONCE];
        for (b, out) in out.iter_mut().enumerate() {
            for (sums, row) in sums.iter_mut().zip(rows) {
                *sums = masked_sums(row, bins, b);
            }
            // The lanes are added in a second loop, so that the first loop uses whole registers.
            for ((out, sums), _) in out.iter_mut().zip(&sums).zip(rows) {
                *out = total(sums);
            }
        }
    } else {
        for (i, row) in rows.iter().enumerate() {
            for out in out.iter_mut() {
                out[i] = 0.0;
            }
            for (x, &bin) in row.iter().zip(bins) {
                if bin >= 0.0 {
                    out[bin as usize][i] += x;
                }
            }
        }
    }
}

/// Applies [`add_up`] to two rows with the same bins. Also counts the labels of each bin in
/// `sizes`.
#[inline(always)]
pub(crate) fn add_up_both(
    [x, y]: [&[f64]; 2],
    bins: &[f64],
    [x_out, y_out, sizes]: [&mut [f64]; 3],
) {
    if sizes.len() <= FEW_BINS {
        for b in 0..sizes.len() {
            let (mut x_sums, mut y_sums, mut counts) = ([0.0; WIDTH], [0.0; WIDTH], [0.0; WIDTH]);
            for ((x, y), bins) in chunks(x).iter().zip(chunks(y)).zip(chunks(bins)) {
                for lane in 0..WIDTH {
                    let keep = bins[lane] == b as f64;
                    x_sums[lane] += masked(x[lane], keep);
                    y_sums[lane] += masked(y[lane], keep);
                    counts[lane] += masked(1.0, keep);
                }
            }
            (x_out[b], y_out[b], sizes[b]) = (total(&x_sums), total(&y_sums), total(&counts));
        }
    } else {
        x_out.fill(0.0);
        y_out.fill(0.0);
        sizes.fill(0.0);
        for ((x, y), &bin) in x.iter().zip(y).zip(bins) {
            if bin >= 0.0 {
                let bin = bin as usize;
                x_out[bin] += x;
                y_out[bin] += y;
                sizes[bin] += 1.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::padded;

    /// Computes bins directly from the definition. Returns, for each label, the sign of its optimal score and
    /// the number of its bin among the bins for this sign.
    fn expected(binning: Binning, g: &[f64], h: &[f64], l2: f64) -> Vec<Option<(bool, usize)>> {
        let criteria: Vec<f64> = g.iter().zip(h).map(|(g, h)| -g / (h + l2)).collect();
        let mut bins = vec![None; g.len()];
        for positive in [false, true] {
            let of_sign = |c: f64| c != 0.0 && (c > 0.0) == positive;
            let these: Vec<f64> = criteria.iter().copied().filter(|&c| of_sign(c)).collect();
            let share = (binning.ratio * these.len() as f64 - 1e-9).ceil() as usize;
            let n = share
                .max(binning.min_bins)
                .min(binning.max_bins)
                .min(these.len());
            let low = these.iter().copied().fold(f64::INFINITY, f64::min);
            let high = these.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let width = (high - low) / n as f64;
            for (bin, &c) in bins.iter_mut().zip(&criteria) {
                if of_sign(c) {
                    let at = if width == 0.0 {
                        0
                    } else {
                        ((c - low) / width) as usize
                    };
                    *bin = Some((positive, at.min(n - 1)));
                }
            }
        }
        bins
    }

    #[test]
    fn bins_are_those_of_the_definition() {
        let mut rng = fastrand::Rng::with_seed(3);
        let binnings = [
            (0.04, 1, usize::MAX),
            (0.32, 1, usize::MAX),
            (1.0, 1, 1),
            (0.1, 3, 5),
            (1.0, 1, 50),
        ];
        for round in 0..2000 {
            let (ratio, min_bins, max_bins) = binnings[round % binnings.len()];
            let binning = Binning {
                ratio,
                min_bins,
                max_bins,
            };
            let n = 1 + rng.usize(0..60);
            let kind = round / 5 % 4;
            let g: Vec<f64> = (0..n)
                .map(|_| match kind {
                    0 => rng.f64() - 0.5,
                    1 => f64::from(rng.i32(-2..3)),
                    2 => rng.f64(), // only one sign
                    _ => 0.5,       // equal criteria
                })
                .collect();
            let h: Vec<f64> = (0..n)
                .map(|_| if kind == 0 { rng.f64() } else { 0.25 })
                .collect();
            let padded_row = |x: &[f64]| {
                let mut row = x.to_vec();
                row.resize(padded(n), 0.0);
                row
            };
            let binner = Binner::new(binning, n, 1.0);
            let mut bins = vec![0.0; padded(n)];
            let mut criteria = bins.clone();
            binner.assign(&padded_row(&g), &padded_row(&h), &mut criteria, &mut bins);
            assert!(bins[n..].iter().all(|&bin| bin == NONE));
            for (k, expected) in expected(binning, &g, &h, 1.0).into_iter().enumerate() {
                let number = match expected {
                    None => NONE,
                    Some((false, at)) => at as f64,
                    Some((true, at)) => (binner.n_bins - 1 - at) as f64,
                };
                assert_eq!(bins[k], number, "label {k} of {g:?}");
            }
            let mut sums = vec![0.0; binner.n_bins];
            add_up(&padded_row(&g), &bins, &mut sums);
            for (b, sum) in sums.iter().enumerate() {
                let of_bin = g.iter().zip(&bins).filter(|(_, bin)| **bin == b as f64);
                assert!((sum - of_bin.map(|(g, _)| g).sum::<f64>()).abs() < 1e-12);
            }
            let row = padded_row(&g);
            let twice: Vec<f64> = row.iter().map(|g| 2.0 * g).collect();
            let mut of_rows = vec![[-1.0; ROWS_AT_ONCE]; binner.n_bins];
            add_up_rows(&[&row, &twice, &row], &bins, &mut of_rows);
            for (sum, of_rows) in sums.iter().zip(&of_rows) {
                assert_eq!(of_rows[..4], [*sum, 2.0 * sum, *sum, -1.0]);
            }
        }
    }

    #[test]
    fn numbers_of_bins() {
        let n_bins = |ratio, n| {
            let binning = Binning {
                ratio,
                min_bins: 1,
                max_bins: usize::MAX,
            };
            Binner::new(binning, n, 1.0).count(n)
        };
        assert_eq!(
            (n_bins(0.04, 25), n_bins(0.04, 26), n_bins(0.04, 50)),
            (1, 2, 2)
        );
        assert_eq!(
            (n_bins(0.1, 30), n_bins(1.0, 7), n_bins(0.04, 0)),
            (3, 7, 0)
        );
    }
}
