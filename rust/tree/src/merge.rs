//! Merges the labels that a row reached in several trees.
//!
//! A row reaches a few thousand labels, and most of them in several trees. A hash table finds the entry of a label,
//! which takes less time than sorting the labels.

use crate::params::Combine;
use crate::walk::{CANDIDATES, Found, LOWEST, finite};
use manylabel_base::{Error, extend, push};
use manylabel_sparse::TopK;
use std::f64::consts::LN_2;

/// Marks an empty entry of the table. Labels are below 2³¹.
const EMPTY: (u32, u32) = (u32::MAX, 0);

/// The labels of a row whose mean scores are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted {
    /// All labels.
    All,
    /// At least this number of the best labels.
    Best(usize),
    /// At least the labels whose mean score, before the threshold is subtracted, is above a value.
    Above(f32),
}

/// The labels of one row. A thread uses the same value for all of its rows. Takes at most 36 bytes per tree for each
/// label of the row.
#[derive(Debug, Default)]
pub(crate) struct Merge {
    /// A hash table with open addressing. An entry has a label and its position in `labels`.
    table: Vec<(u32, u32)>,
    /// The labels of the row, in the order in which they are found.
    labels: Vec<u32>,
    /// The score of each label of the row in each tree. NaN if the tree did not score the label.
    scores: Vec<f32>,
    /// Finds a score that enough labels reach.
    best: Option<TopK>,
}

impl Merge {
    /// Appends each label of a row that is wanted, and perhaps some others, to `out`, with its mean score over several
    /// trees, minus `threshold`.
    ///
    /// `dropped` has, for each tree, the logarithm of the probability of the best node that was dropped from the
    /// beam. With [`Combine::Leaf`], the mean score is the mean margin over the trees that scored the label. With
    /// [`Combine::Product`], it is the logarithm of the mean probability over all trees. If a tree did not
    /// score the label, its probability in this tree is estimated. Let q be the probability of the best node that
    /// was dropped from the beam of the tree. The estimate is the mean probability in the other trees, but at most
    /// (q/2)ʷ, where w is the exponent of the path. No label below a dropped node can have a higher probability
    /// than qʷ.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn row(
        &mut self,
        found: &[Found],
        dropped: &[f32],
        combine: Combine,
        threshold: f32,
        wanted: Wanted,
        out: &mut Vec<(u32, f32)>,
    ) -> Result<(), Error> {
        let n_trees = dropped.len();
        let least = match (combine, wanted) {
            (Combine::Product { .. }, Wanted::Best(n_best)) => {
                self.least(found, n_best, n_trees, threshold)?
            }
            // Except for rounding, no mean is above the largest score of the label in any tree.
            (_, Wanted::Above(score)) => score - rounding(score),
            _ => f32::NEG_INFINITY,
        };
        self.gather(found, least, n_trees)?;
        for (&label, scores) in self.labels.iter().zip(self.scores.chunks(n_trees)) {
            let known = scores.iter().filter(|score| !score.is_nan());
            let known = known.map(|&score| f64::from(score));
            let mean = match combine {
                Combine::Leaf => (known.clone().sum::<f64>() / known.count() as f64) as f32,
                Combine::Product { path_weight } => {
                    let missing = scores.iter().zip(dropped);
                    let missing = missing.filter(|(score, _)| score.is_nan());
                    let bounds = missing.map(|(_, &dropped)| match dropped {
                        f32::NEG_INFINITY => f64::NEG_INFINITY, // also if the exponent is 0
                        dropped => path_weight * (f64::from(dropped) - LN_2),
                    });
                    log_mean(known, bounds, n_trees).max(LOWEST)
                }
            };
            push(CANDIDATES, out, (label, finite(mean - threshold)))?;
        }
        Ok(())
    }

    /// Returns a score that each of the `n_best` best labels of a row has in at least one tree.
    ///
    /// Let p be the largest probability of a label in any tree. Its mean probability over the trees is at least
    /// p / `n_trees` and at most p. So if `n_best` labels have a probability of at least r in any tree, a label
    /// with p < r / `n_trees` in all trees is not among the best labels.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn least(
        &mut self,
        found: &[Found],
        n_best: usize,
        n_trees: usize,
        threshold: f32,
    ) -> Result<f32, Error> {
        // A label has one score for each tree, so these scores have at least `n_best` different labels.
        let n_scores = n_best.saturating_mul(n_trees);
        if found.len() <= n_scores {
            return Ok(f32::NEG_INFINITY);
        }
        let best = match &mut self.best {
            Some(best) if best.k() == n_scores => best,
            best => best.insert(TopK::new(n_scores)?),
        };
        for &Found { label, score, .. } in found {
            if score > best.floor() {
                best.push(label, score);
            }
        }
        let reached = best.floor();
        best.clear();
        // The difference of a score and the threshold is rounded too.
        let rounding = rounding(reached.abs() + threshold.abs());
        Ok(reached - (n_trees as f32).ln() - rounding)
    }

    /// Fills `labels` and `scores` with the labels of a row that have at least the score `least` in any tree.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn gather(&mut self, found: &[Found], least: f32, n_trees: usize) -> Result<(), Error> {
        let n_enough = found.iter().filter(|found| found.score >= least).count();
        // At most half of the entries are used, so that a search takes few steps.
        let n_entries = (2 * n_enough).next_power_of_two();
        let shift = 64 - n_entries.trailing_zeros();
        self.table.clear();
        extend(
            CANDIDATES,
            &mut self.table,
            std::iter::repeat_n(EMPTY, n_entries),
        )?;
        self.labels.clear();
        self.scores.clear();
        for &Found { label, score, .. } in found {
            if score >= least {
                let entry = self.entry(label, shift);
                if self.table[entry] == EMPTY {
                    self.table[entry] = (label, self.labels.len() as u32);
                    push(CANDIDATES, &mut self.labels, label)?;
                }
            }
        }
        extend(
            CANDIDATES,
            &mut self.scores,
            std::iter::repeat_n(f32::NAN, self.labels.len() * n_trees),
        )?;
        for &Found { slot, label, score } in found {
            let entry = self.table[self.entry(label, shift)];
            if entry != EMPTY {
                self.scores[entry.1 as usize * n_trees + slot as usize % n_trees] = score;
            }
        }
        Ok(())
    }

    /// Returns the position of a label in the table, or the empty entry at which it can be inserted. `shift` is
    /// 64 minus the binary logarithm of the number of entries.
    #[inline]
    fn entry(&self, label: u32, shift: u32) -> usize {
        // Fibonacci hashing: 2⁶⁴ divided by the golden ratio (Knuth, volume 3, section 6.4).
        let hash = u64::from(label).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut entry = hash.checked_shr(shift).unwrap_or(0) as usize;
        while self.table[entry] != EMPTY && self.table[entry].0 != label {
            entry = (entry + 1) % self.table.len();
        }
        entry
    }
}

/// Returns more than the rounding error of a score.
fn rounding(score: f32) -> f32 {
    1e-3 + 1e-6 * score.abs()
}

/// Returns the logarithm of the mean of `n_trees` probabilities. `known` has the logarithms of the known
/// probabilities. `bounds` has the logarithm of an upper bound for each of the others. Each unknown probability
/// is estimated by the mean of the known ones, but at most by its bound.
///
/// The largest known probability is factored out, so that the logarithms of very small probabilities are
/// precise.
fn log_mean(
    known: impl Iterator<Item = f64> + Clone,
    bounds: impl Iterator<Item = f64>,
    n_trees: usize,
) -> f32 {
    let highest = known.clone().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    let mut n_known = 0;
    // One of the known probabilities is the highest, and most bounds are higher. They need no exponential.
    let ratio = |logarithm: f64| {
        if logarithm < highest {
            manylabel_simd::exp(logarithm - highest)
        } else {
            1.0
        }
    };
    for logarithm in known {
        sum += ratio(logarithm);
        n_known += 1;
    }
    let mean = sum / f64::from(n_known);
    for bound in bounds {
        sum += mean.min(ratio(bound));
    }
    ((sum / n_trees as f64).ln() + highest) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_label_of_a_row_is_merged_once_and_rows_do_not_mix() {
        let combine = Combine::Product { path_weight: 1.0 };
        let found = |slot: u32, label: u32, p: f32| Found {
            slot,
            label,
            score: p.ln(),
        };
        let mut merge = Merge::default();
        let rows = [
            vec![found(0, 5, 0.5), found(0, 2, 0.1), found(1, 5, 0.1)],
            vec![found(3, 2, 0.4), found(2, 2, 0.2), found(2, 9, 0.3)],
        ];
        let none = [f32::NEG_INFINITY; 2];
        for (row, expected) in rows
            .iter()
            .zip([[(5, 0.3), (2, 0.05)], [(2, 0.3), (9, 0.15)]])
        {
            let mut out = Vec::new();
            merge
                .row(row, &none, combine, 0.0, Wanted::All, &mut out)
                .expect("small");
            for ((label, score), (expected, p)) in out.iter().zip(expected) {
                assert_eq!(*label, expected);
                assert!((score.exp() - p).abs() < 1e-6, "{score} {p}");
            }
            assert_eq!(out.len(), 2);
        }
    }

    proptest! {
        #[test]
        fn the_best_labels_are_the_same_if_others_are_dropped(
            scores in prop::collection::vec((0u32..40, 0u32..3, -9i8..1), 1..120),
            dropped in prop::array::uniform3(-8i8..0),
            k in 1usize..6,
            threshold in -2i8..1,
            is_product: bool,
        ) {
            let mut seen = std::collections::HashSet::new();
            let found: Vec<Found> = scores
                .into_iter()
                .filter(|&(label, slot, _)| seen.insert((label, slot)))
                .map(|(label, slot, score)| Found { slot, label, score: f32::from(score) })
                .collect();
            let dropped = dropped.map(f32::from);
            let combine = if is_product {
                Combine::Product { path_weight: 0.5 }
            } else {
                Combine::Leaf
            };
            let mut merge = Merge::default();
            let mut ranked = |wanted| {
                let mut out = Vec::new();
                merge
                    .row(&found, &dropped, combine, f32::from(threshold), wanted, &mut out)
                    .expect("small");
                out.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
                out
            };
            let all = ranked(Wanted::All);
            let best = ranked(Wanted::Best(k));
            prop_assert_eq!(&best[..k.min(best.len())], &all[..k.min(all.len())]);
            for &(_, score) in &all {
                let n_above = all.iter().filter(|label| label.1 > score).count();
                let above = ranked(Wanted::Above(score + f32::from(threshold)));
                prop_assert_eq!(&above[..n_above], &all[..n_above]);
            }
        }
    }

    #[test]
    fn labels_below_the_wanted_score_in_all_trees_are_dropped() {
        let found = [
            (0, 5, 0.5),
            (0, 2, 0.1),
            (1, 5, 0.1),
            (1, 3, 0.3),
            (1, 2, 0.1),
        ];
        let found = found.map(|(slot, label, score)| Found { slot, label, score });
        let mut out = Vec::new();
        Merge::default()
            .row(
                &found,
                &[0.0; 2],
                Combine::Leaf,
                0.0,
                Wanted::Above(0.2),
                &mut out,
            )
            .expect("small");
        assert_eq!(out, [(5, 0.3), (3, 0.3)]);
    }

    #[test]
    fn missing_trees_count_with_the_mean_or_their_bound() {
        let mean = |known: &[f64], bounds: &[f64]| {
            let logarithms = |of: &[f64]| of.iter().map(|p| p.ln()).collect::<Vec<_>>();
            let (known, bounds) = (logarithms(known), logarithms(bounds));
            let n_trees = known.len() + bounds.len();
            f64::from(log_mean(known.into_iter(), bounds.into_iter(), n_trees)).exp()
        };
        let close =
            |got: f64, expected: f64| assert!((got - expected).abs() < 1e-6, "{got} {expected}");
        close(mean(&[0.5, 0.1], &[]), 0.3);
        close(mean(&[0.4], &[0.9, 1.0]), 0.4); // the bounds are above the mean
        close(mean(&[0.4], &[0.1]), 0.25);
        close(mean(&[0.4, 0.2], &[0.0]), 0.2); // no node was dropped
        // Probabilities that an f64 cannot hold.
        let tiny = log_mean([-2000.0, -2000.0].into_iter(), std::iter::empty(), 2);
        assert!((tiny + 2000.0).abs() < 1e-3);
    }
}
