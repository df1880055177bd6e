//! What the loss leaves open, and rows that were not trained on decide: how much the frequencies of
//! labels count in a ranking, and above which score a label is named.

use crate::cut::Tally;
use fastrand::Rng;
use manylabel_base::{Error, collected, copied, extend, few, filled};
use rayon::prelude::*;

/// Factors of the log frequencies to choose among, beside 0. The margin the loss asks for is 1, so
/// that nothing depends on the scale of the features. The largest makes a label ten times as frequent
/// as another gain 4.6 margins, the smallest a two-hundredth of one.
const LEAST_FACTOR_EXPONENT: i32 = -9;
const MOST_FACTOR_EXPONENT: i32 = 1;
const N_FACTORS: usize = (MOST_FACTOR_EXPONENT - LEAST_FACTOR_EXPONENT + 2) as usize;

/// One row in so many is held out at a time.
const ONE_ROW_IN: usize = 10;

/// At most so many rows are held out: their scores then are a small part of a fit, and the standard
/// error of the mean number of labels named is a few percent.
const MOST_ROWS: usize = 2000;

/// So many rows are to be held out in all where the training set has so many, a part at a time, in at
/// most [`MOST_PARTS`] parts.
const ENOUGH_ROWS: usize = 100;
const MOST_PARTS: usize = 5;

/// Rows to hold out, drawn from all, a part after the other.
pub(super) fn parts(n_rows: usize, seed: u64) -> Result<Vec<Vec<u32>>, Error> {
    if n_rows < 2 {
        return Ok(Vec::new());
    }
    let size = (n_rows / ONE_ROW_IN).clamp(1, MOST_ROWS);
    let n_parts = ENOUGH_ROWS
        .div_ceil(size)
        .clamp(1, MOST_PARTS.min(n_rows / size));
    let mut rows = collected("number of rows", 0..n_rows as u32)?;
    // Not the order of the first pass.
    Rng::with_seed(seed ^ 0x5eed_0f9a_2715_c0de).shuffle(&mut rows);
    few(rows.chunks(size).take(n_parts).map(|part| {
        let mut part = copied("held-out rows", part)?;
        part.sort_unstable();
        Ok(part)
    }))
}

/// A row's weight and its mean precision at the ranks of its labels, for every factor.
type Ranked = (f64, [f32; N_FACTORS]);

/// Rows whose scores are looked at together, and of each the labels it carries and its weight.
pub(super) struct Block {
    /// Without intercepts; of (`rows`, `n_labels`).
    pub(super) scores: Vec<f32>,
    pub(super) rows: Vec<(Vec<u32>, f32)>,
}

/// What the scores of held-out rows say.
pub(super) struct Looks<'a> {
    log_frequencies: &'a [f32],
    factors: Vec<f32>,
    /// For every factor.
    tallies: Vec<Tally>,
    /// Rows that carry a label which was trained on.
    ranked: Vec<Ranked>,
}

impl<'a> Looks<'a> {
    /// `fit_intercept` tells whether there is more than one factor, 0. `wanted` is the weight of the
    /// true pairs of row and label.
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

    /// Looks at rows.
    ///
    /// A tally sees one row after the other, so that it soon knows which scores cannot matter.
    pub(super) fn push(&mut self, block: &Block) -> Result<(), Error> {
        let (n_labels, terms) = (self.log_frequencies.len(), self.log_frequencies);
        if n_labels == 0 {
            return Ok(());
        }
        let rows = || block.scores.chunks_exact(n_labels).zip(&block.rows);
        let tallies = self.factors.par_iter().zip(&mut self.tallies);
        tallies.try_for_each(|(&factor, tally)| {
            for (scores, &(_, weight)) in rows() {
                tally.push_sums(scores, factor, terms, weight)?;
            }
            Ok(())
        })?;
        let rows: Vec<_> = few(rows().filter(|(_, (carried, _))| !carried.is_empty()));
        let ranked = rows.into_par_iter().map(|(scores, (carried, weight))| {
            let mut precisions = [0.0; N_FACTORS];
            let mut shifted = filled("scores of a row", 0.0, n_labels)?;
            for (precision, &factor) in precisions.iter_mut().zip(&self.factors) {
                for (shifted, (score, term)) in shifted.iter_mut().zip(scores.iter().zip(terms)) {
                    *shifted = score + factor * term;
                }
                *precision = mean_precision(&shifted, carried)?;
            }
            Ok((f64::from(*weight), precisions))
        });
        let ranked = manylabel_base::parts(ranked)?;
        extend("held-out rows", &mut self.ranked, ranked)
    }

    /// The factor and the cut that goes with it.
    ///
    /// The factor is the smallest whose rankings are not worse than the best ones by more than the
    /// standard error of the difference (Breiman et al., 1984, section 3.4.3).
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

/// The mean, over the labels a row carries, of the share of these among labels whose scores are no
/// lower; 0 without labels.
fn mean_precision(scores: &[f32], positives: &[u32]) -> Result<f32, Error> {
    let of_positives = || positives.iter().map(|&label| scores[label as usize]);
    let least = of_positives().fold(f32::INFINITY, f32::min);
    // No other score matters, and these are few where the ranking is good.
    let first = scores.iter().copied().filter(|&score| score >= least);
    let first = collected("scores of a row", first)?;
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
        check(&[0], 1.0 / 3.0); // the equal one counts against it
        check(&[1, 2], 0.75);
        check(&[0, 3], 2.0 / 3.0);
    }
}
