//! Chooses intercepts and the threshold on held-out rows, because the ranking loss does not
//! determine them.
//!
//! The intercept of label k is `f · log(frequency of k)`, with one factor f ≥ 0 for all labels.
//! There are [`N_FACTORS`] possible factors. For each factor, the rankings of the held-out rows are
//! measured by the label ranking average precision. This is the precision at the rank of a true
//! label, averaged first over the true labels of a row and then over rows. A [`Tally`] finds the
//! threshold at which the number of predicted labels equals the number of true labels.
//! [`Looks::decide`] chooses the factor.
//!
//! If the user does not give held-out rows, a few groups of training rows are held out, one group
//! after the other. Before a group is scored, a copy of the model is adapted to the other rows
//! (`Fit::forget`).

use crate::cut::Tally;
use fastrand::Rng;
use manylabel_base::{Error, Tasks, collected, copied, extend, few, filled};
use rayon::prelude::*;

/// The exponent of the smallest positive factor f of the intercepts. The possible factors are 0 and
/// the powers of 2 with exponents from the smallest to the largest. They do not depend on the scale
/// of the features, because the margin of the loss is 1. Consider a label that is ten times as
/// frequent as another label. With the largest factor, its intercept is larger by 4.6 times the
/// margin. With the smallest positive factor, it is larger by a two-hundredth of the margin.
const LEAST_FACTOR_EXPONENT: i32 = -9;
/// The exponent of the largest factor f of the intercepts.
const MOST_FACTOR_EXPONENT: i32 = 1;
/// The number of possible factors f: 0, and one power of 2 for each exponent.
const N_FACTORS: usize = (MOST_FACTOR_EXPONENT - LEAST_FACTOR_EXPONENT + 2) as usize;

/// One row in this many is held out at a time.
const ONE_ROW_IN: usize = 10;

/// The largest number of rows that are held out at a time. Scoring these rows takes a small part of
/// the time of a fit. With this many rows, the standard error of the mean number of predicted
/// labels is a few percent.
const MOST_ROWS: usize = 2000;

/// Groups of held-out rows are added until they have this many rows in total. There are at most
/// [`MOST_PARTS`] groups.
const ENOUGH_ROWS: usize = 100;
/// The largest number of groups of held-out rows.
const MOST_PARTS: usize = 5;

/// Draws disjoint groups of rows, which are held out one after the other. The rows of a group are
/// in increasing order. If there are fewer than two rows, no groups are returned.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory.
pub(super) fn parts(n_rows: usize, seed: u64) -> Result<Vec<Vec<u32>>, Error> {
    if n_rows < 2 {
        return Ok(Vec::new());
    }
    let size = (n_rows / ONE_ROW_IN).clamp(1, MOST_ROWS);
    let n_parts = ENOUGH_ROWS
        .div_ceil(size)
        .clamp(1, MOST_PARTS.min(n_rows / size));
    let mut rows = collected("number of rows", 0..n_rows as u32)?;
    // The seed differs from the seed of the fit, so that the order differs from the order of the first
    // pass.
    Rng::with_seed(seed ^ 0x5eed_0f9a_2715_c0de).shuffle(&mut rows);
    few(rows.chunks(size).take(n_parts).map(|part| {
        let mut part = copied("number of held-out rows", part)?;
        part.sort_unstable();
        Ok(part)
    }))
}

/// The weight of a row, and for each factor its mean precision. The mean precision of a row is the
/// mean of the precisions at the ranks of its labels.
type Ranked = (f64, [f32; N_FACTORS]);

/// A group of held-out rows.
pub(super) struct Block {
    /// The scores of the rows without intercepts, row by row; shape (rows, `n_labels`).
    pub(super) scores: Vec<f32>,
    /// The labels of each row, and its weight.
    pub(super) rows: Vec<(Vec<u32>, f32)>,
}

/// Statistics of the scores of held-out rows, for each possible factor of the intercepts. The
/// intercept of a label is the factor times the logarithm of its frequency.
pub(super) struct Looks<'a> {
    /// The logarithm of the frequency of each label; shape (`n_labels`).
    log_frequencies: &'a [f32],
    /// The possible factors of the intercepts, in increasing order. The first factor is 0.
    factors: Vec<f32>,
    /// For each factor, a [`Tally`] of the scores. It finds the threshold.
    tallies: Vec<Tally>,
    /// The weight and the mean precisions of each row. Only rows with a label that occurs in
    /// training are included.
    ranked: Vec<Ranked>,
}

impl<'a> Looks<'a> {
    /// Returns statistics without rows. If `fit_intercept` is false, 0 is the only factor of the
    /// intercepts. `wanted` is the total weight of the true pairs of row and label.
    pub(super) fn new(log_frequencies: &'a [f32], fit_intercept: bool, wanted: f64) -> Self {
        let exponents =
            (LEAST_FACTOR_EXPONENT..=MOST_FACTOR_EXPONENT).take_while(|_| fit_intercept);
        let factors = exponents.map(|exponent| 2.0_f32.powi(exponent));
        let factors: Vec<f32> = few(std::iter::once(0.0).chain(factors));
        Self {
            log_frequencies,
            tallies: few(factors.iter().map(|_| Tally::new(wanted))),
            factors,
            ranked: Vec::new(),
        }
    }

    /// Adds the scores of some rows. Work is parallel over factors and over rows.
    ///
    /// Each factor has a [`Tally`] that finds its threshold. It receives the rows one after the
    /// other, so it can soon ignore scores that cannot influence the threshold.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(super) fn push(&mut self, block: &Block) -> Result<(), Error> {
        let (n_labels, terms) = (self.log_frequencies.len(), self.log_frequencies);
        if n_labels == 0 {
            return Ok(());
        }
        let rows = || block.scores.chunks_exact(n_labels).zip(&block.rows);
        let tallies = self.factors.par_iter().zip(&mut self.tallies);
        tallies.try_each(|(&factor, tally)| {
            for (scores, &(_, weight)) in rows() {
                tally.push_sums(scores, factor, terms, weight)?;
            }
            Ok(())
        })?;
        let rows: Vec<_> = few(rows().filter(|(_, (carried, _))| !carried.is_empty()));
        let ranked = rows.into_par_iter().map(|(scores, (carried, weight))| {
            let mut precisions = [0.0; N_FACTORS];
            let mut shifted = filled("number of scores of a row", 0.0, n_labels)?;
            for (precision, &factor) in precisions.iter_mut().zip(&self.factors) {
                for (shifted, (score, term)) in shifted.iter_mut().zip(scores.iter().zip(terms)) {
                    *shifted = score + factor * term;
                }
                *precision = mean_precision(&shifted, carried)?;
            }
            Ok((f64::from(*weight), precisions))
        });
        let ranked = manylabel_base::parts(ranked)?;
        extend("number of held-out rows", &mut self.ranked, ranked)
    }

    /// Chooses the factor of the intercepts. Returns the factor and its threshold.
    ///
    /// The best factor has the highest mean precision. The function chooses the smallest factor
    /// that is almost as good: the difference of the mean precisions is at most the standard error
    /// of this difference. This is the one-standard-error rule of Breiman et al. (1984, section
    /// 3.4.3).
    pub(super) fn decide(self) -> (f32, Option<f32>) {
        let mean_and_error = |value: &dyn Fn(&Ranked) -> f64| {
            let total: f64 = self.ranked.iter().map(|row| row.0).sum();
            let mean = self
                .ranked
                .iter()
                .map(|row| row.0 * value(row))
                .sum::<f64>()
                / total;
            let squares = self
                .ranked
                .iter()
                .map(|row| (row.0 * (value(row) - mean)).powi(2));
            let n = self.ranked.len() as f64;
            (mean, (squares.sum::<f64>() * n / (n - 1.0)).sqrt() / total)
        };
        let mut chosen = 0;
        if self.ranked.len() > 1 {
            let mean = |at: usize| mean_and_error(&|row| f64::from(row.1[at])).0;
            let means: Vec<f64> = few((0..self.factors.len()).map(mean));
            let best = (0..means.len())
                .rev()
                .max_by(|&a, &b| means[a].total_cmp(&means[b]))
                .unwrap_or(0);
            chosen = (0..best)
                .find(|&at| {
                    let (mean, error) = mean_and_error(&|row| f64::from(row.1[best] - row.1[at]));
                    mean <= error
                })
                .unwrap_or(best);
        }
        let cut = self
            .tallies
            .into_iter()
            .nth(chosen)
            .and_then(|mut tally| tally.cut(0.0));
        (self.factors[chosen], cut)
    }
}

/// Returns the mean of the precisions at the ranks of the true labels `positives`, or 0 if there
/// are none. The precision at the rank of a label is the fraction of `positives` among the labels
/// with the same or a higher score.
fn mean_precision(scores: &[f32], positives: &[u32]) -> Result<f32, Error> {
    let of_positives = || positives.iter().map(|&label| scores[label as usize]);
    let least = of_positives().fold(f32::INFINITY, f32::min);
    // Scores below the lowest score of a positive label do not matter. In a good ranking, only a
    // few scores are left.
    let first = scores.iter().copied().filter(|&score| score >= least);
    let first = collected("number of scores of a row", first)?;
    let shares = of_positives().map(|score| {
        let right = of_positives().filter(|&other| other >= score).count();
        let all = first.iter().filter(|&&other| other >= score).count();
        right as f32 / all as f32
    });
    Ok(shares.sum::<f32>() / positives.len().max(1) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_leave_rows_to_train_on() {
        let parts = |n_rows, seed| parts(n_rows, seed).expect("small");
        assert!(parts(0, 0).is_empty() && parts(1, 0).is_empty());
        for (n_rows, sizes) in [
            (2, vec![1; 2]),
            (9, vec![1; 5]),
            (333, vec![33; 4]),
            (1000, vec![100]),
            (50_000, vec![2000]),
        ] {
            let parts = parts(n_rows, 7);
            let found: Vec<usize> = parts.iter().map(Vec::len).collect();
            assert_eq!(found, sizes);
            let mut rows = parts.concat();
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len(), sizes.iter().sum::<usize>());
            assert!(rows.iter().all(|&row| (row as usize) < n_rows));
            assert!(parts.iter().all(|part| part.is_sorted()));
        }
    }

    #[test]
    fn precision_at_the_ranks_of_the_labels() {
        let scores = [0.5, 0.9, 0.1, 0.5];
        let check = |positives: &[u32], expected: f32| {
            let found = mean_precision(&scores, positives).expect("small");
            assert!((found - expected).abs() < 1e-6);
        };
        check(&[], 0.0);
        check(&[1], 1.0);
        check(&[2], 0.25);
        check(&[0], 1.0 / 3.0); // the other label with an equal score counts against it
        check(&[1, 2], 0.75);
        check(&[0, 3], 2.0 / 3.0);
    }
}
