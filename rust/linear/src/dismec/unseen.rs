//! Scores held-out rows and learns the threshold (the cut) from these scores.
//!
//! Training rows have higher scores for their own labels than new rows. A threshold learned from
//! training rows would therefore be too high. A second fit without some rows would take as long as
//! the first fit. Instead, a few solver steps adapt a copy of the fitted weights to the other rows,
//! for a sample of the labels. The weights of a rare label are a weighted sum of training rows. For
//! these labels, the terms of the held-out rows are subtracted before the steps. The adapted copy
//! scores the held-out rows. The model does not change.
//!
//! One row in ten is held out. At the threshold, the number of predicted pairs of row and label equals
//! the number of true pairs. Each pair is weighted by the cost of its row and by a weight of its label.
//! The weight of a label is the number of labels that it represents in the sample.

use super::problem::Problem;
use crate::cut::Tally;
use crate::panel::LANES;
use fastrand::Rng;
use manylabel_base::{Error, collected, copied};
use std::sync::{Mutex, PoisonError};

/// The number of most frequent labels that are always in the sample. The number applies separately
/// to rare labels and to other labels. The most frequent labels are predicted most often.
const FIRST_LABELS: usize = 64;

/// The smallest number of less frequent labels in the sample. If there are fewer such labels, all
/// of them are in the sample.
const OTHER_LABELS: usize = 64;

/// One in this many of the less frequent labels is in the sample, if this gives more labels than
/// [`OTHER_LABELS`]. The sample then takes a few hundredths of the time of the fit.
const ONE_LABEL_IN: usize = 20;

/// The smallest number of held-out rows. However, at most a quarter of all rows is held out. With fewer
/// held-out rows, the mean number of labels per row would have an error of a tenth or more.
const FEWEST_ROWS: usize = 64;

/// The smallest number of true pairs of a held-out row and a sampled label. With fewer pairs, their
/// number would have an error of a third or more. No threshold is then learned, because the natural
/// threshold of the loss is better.
const FEWEST_POSITIVES: usize = 10;

/// The held-out rows.
#[derive(Debug)]
pub(crate) struct Unseen {
    /// The held-out rows, in increasing order.
    pub(crate) rows: Vec<u32>,
    /// The cost of each row, which is 0 for held-out rows; shape (n).
    pub(crate) cost: Vec<f32>,
    /// The sum of the entries of `cost`.
    pub(crate) total_cost: f64,
    /// The total weight of the true pairs of held-out rows and sampled labels.
    wanted: f64,
}

/// The labels that are in the sample, for one kind of label: rare labels or other labels. Labels are
/// sorted by frequency and divided into groups of sixteen. The sample has the groups of the most
/// frequent labels, and one in `every` of the other groups.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    every: usize,
    /// The number of labels that a less frequent label in the sample represents. The most frequent
    /// labels are all in the sample, so each of them represents only itself.
    weight: f32,
}

impl Sample {
    /// The number of groups of sixteen labels that are always in the sample.
    const FIRST: usize = FIRST_LABELS / LANES;

    /// Returns the sample for `n_labels` labels of one kind: rare labels or other labels.
    pub(crate) fn of(n_labels: usize) -> Self {
        let others = n_labels.saturating_sub(FIRST_LABELS);
        let panels = others.div_ceil(LANES);
        let wanted = OTHER_LABELS.max(others / ONE_LABEL_IN) / LANES;
        let every = (panels / wanted).max(1);
        let drawn = (every / 2..panels).step_by(every);
        let drawn: usize = drawn.map(|at| LANES.min(others - at * LANES)).sum();
        Self {
            every,
            weight: others as f32 / drawn.max(1) as f32,
        }
    }

    /// Returns the number of labels that each label of a group of sixteen labels represents. Returns None if the
    /// group is not in the sample.
    pub(crate) fn weight(self, group: usize) -> Option<f32> {
        match group.checked_sub(Self::FIRST) {
            None => Some(1.0),
            Some(at) => (at % self.every == self.every / 2).then_some(self.weight),
        }
    }

    /// Returns those of the given labels that are in the sample, each with the number of labels
    /// that it represents.
    pub(crate) fn labels(self, labels: &[u32]) -> impl Iterator<Item = (u32, f32)> {
        let panels = labels.chunks(LANES).enumerate();
        let drawn = panels.filter_map(move |(at, labels)| Some((labels, self.weight(at)?)));
        drawn.flat_map(|(labels, weight)| labels.iter().map(move |&label| (label, weight)))
    }
}

impl Unseen {
    /// Chooses the held-out rows. `full` has the cost of each row, and `positives` returns the rows of a label.
    /// `drawn` holds the sampled labels, each with the number of labels that it represents.
    ///
    /// Returns None if there are too few rows or labels to learn a threshold.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the costs do not fit in memory.
    pub(crate) fn new<'a>(
        full: &[f32],
        positives: impl Fn(u32) -> &'a [u32],
        drawn: impl Iterator<Item = (u32, f32)>,
    ) -> Result<Option<Self>, Error> {
        let rows = held_out_rows(full.len())?;
        let mut cost = copied("number of rows", full)?;
        for &row in &rows {
            cost[row as usize] = 0.0;
        }
        let held = |row: &&u32| cost[**row as usize] == 0.0;
        let (mut wanted, mut n_positive) = (0.0, 0);
        for (label, weight) in drawn {
            for &row in positives(label).iter().filter(held) {
                wanted += f64::from(weight) * f64::from(full[row as usize]);
                n_positive += 1;
            }
        }
        let total_cost = cost.iter().map(|&cost| f64::from(cost)).sum();
        let learnable = n_positive >= FEWEST_POSITIVES && total_cost > 0.0;
        Ok(learnable.then_some(Self {
            rows,
            cost,
            total_cost,
            wanted,
        }))
    }

    /// Creates an instance for the given held-out rows. With this instance, weights are adapted to
    /// the other rows, but no threshold is learned.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the costs do not fit in memory.
    pub(crate) fn of_rows(problem: &Problem<'_>, rows: &[u32]) -> Result<Self, Error> {
        let mut cost = copied("number of rows", &problem.cost)?;
        for &row in rows {
            cost[row as usize] = 0.0;
        }
        Ok(Self {
            rows: copied("number of held-out rows", rows)?,
            total_cost: cost.iter().map(|&cost| f64::from(cost)).sum(),
            cost,
            wanted: 0.0,
        })
    }

    /// Returns empty statistics, from which the threshold is found after [`count`](Self::count).
    pub(crate) fn tally(&self) -> Tally {
        Tally::new(self.wanted)
    }

    /// Adds the scores of the held-out rows to `tally` for one panel, which is a group of labels. The panel
    /// has `n_labels` labels, and each of them represents `weight` labels. `score` must call its
    /// argument with each held-out row and its scores.
    ///
    /// # Errors
    ///
    /// Returns any error of `score`. Returns [`Error::TooLarge`] if the statistics do not fit in
    /// memory.
    pub(crate) fn count(
        &self,
        problem: &Problem<'_>,
        n_labels: usize,
        weight: f32,
        tally: &Mutex<Tally>,
        score: impl FnOnce(&mut dyn FnMut(u32, &[f32; LANES]) -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut of_panel = self.tally();
        score(&mut |row, scores| {
            let weight = weight * problem.cost[row as usize];
            for &score in &scores[..n_labels] {
                of_panel.push(score, weight)?;
            }
            Ok(())
        })?;
        // After a panic the fit fails in any case, so the value behind a poisoned lock may be used.
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.merge(of_panel)
    }
}

/// Draws the held-out rows at random and returns them in increasing order. One row in ten is held
/// out, or a larger fraction of a small training set.
///
/// The draw depends only on the number of rows. It does not depend on the seed, because the exact
/// solver uses no other random numbers. Reservoir sampling draws the same rows as `choose_multiple`
/// of the crate `fastrand`. That function would abort the process if there is not enough memory.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the rows do not fit in memory.
pub fn held_out_rows(n_rows: usize) -> Result<Vec<u32>, Error> {
    let n_held = (n_rows / 10).max(FEWEST_ROWS.min(n_rows / 4)).max(1);
    let mut rng = Rng::with_seed(n_rows as u64);
    let mut rows = collected("number of held-out rows", 0..n_held.min(n_rows) as u32)?;
    for row in n_held..n_rows {
        if let Some(place) = rows.get_mut(rng.usize(..=row)) {
            *place = row as u32;
        }
    }
    rows.sort_unstable();
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_those_of_the_generator() {
        for n_rows in [1, 5, 100, 700, 5000] {
            let rows = held_out_rows(n_rows).expect("small");
            let mut rng = Rng::with_seed(n_rows as u64);
            let mut expected = rng.choose_multiple(0..n_rows as u32, rows.len());
            expected.sort_unstable();
            assert_eq!(rows, expected);
        }
    }
}
