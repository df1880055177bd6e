//! Scores held-out rows and learns the threshold (the cut) from these scores.
//!
//! Training rows have higher scores for their own labels than new rows, so a threshold learned from
//! training rows would be too high. A second fit without some rows would cost as much as the first.
//! Instead, the solution is changed for a sample of the labels, as if the held-out rows were absent.
//! The contribution of the held-out rows is removed, a few steps adapt the weights to the other rows,
//! and the held-out rows are scored. This happens after the weights of the model have been taken from
//! the workspace, so the model is unchanged.
//!
//! One row in ten is held out. At the cut, the number of predicted pairs of row and label equals the
//! number of true pairs. Each pair is weighted by the cost of the row and by the number of labels that
//! the sampled label represents.

use super::problem::Problem;
use crate::cut::Tally;
use crate::panel::LANES;
use fastrand::Rng;
use manylabel_base::{Error, collected, copied};
use std::sync::{Mutex, PoisonError};

/// The number of most frequent labels of each kind (frequent and rare) that are in the sample. These
/// labels are predicted most often.
const FIRST_LABELS: usize = 64;

/// The smallest number of other labels in the sample, if there are that many.
const OTHER_LABELS: usize = 64;

/// The fraction of the other labels that is in the sample is one divided by this number, if this gives
/// more labels than [`OTHER_LABELS`]. The sample then costs a few hundredths of the time of the fit.
const ONE_LABEL_IN: usize = 20;

/// The smallest number of held-out rows, unless it is more than a quarter of all rows. With fewer rows,
/// the mean number of labels per row would be a poor estimate, with errors of a tenth or more.
const FEWEST_ROWS: usize = 64;

/// The smallest number of true pairs of a held-out row and a sampled label. With fewer pairs, their
/// number would have errors of a third or more. In this case no threshold is learned, because the
/// natural threshold of the loss is the better choice.
const FEWEST_POSITIVES: usize = 10;

/// The held-out rows, and the tally of their scores.
pub(crate) struct Unseen {
    /// The held-out rows, in increasing order.
    pub(crate) rows: Vec<u32>,
    /// The costs of all rows, where held-out rows have the cost 0; (n).
    pub(crate) cost: Vec<f32>,
    /// The sum of `cost`.
    pub(crate) total_cost: f64,
    /// The total weight of the true pairs of held-out rows and sampled labels.
    wanted: f64,
    /// The tally of the scores of all panels so far.
    tally: Mutex<Tally>,
}

/// The panels of one kind of label that are in the sample. Labels are sorted by frequency. The sample
/// has the first panels, and one in `every` of the other panels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    every: usize,
    /// The number of labels that each sampled label of the other panels represents.
    weight: f32,
}

impl Sample {
    /// The number of panels that are always in the sample.
    const FIRST: usize = FIRST_LABELS / LANES;

    /// Returns the sample for `n_labels` labels of one kind.
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

    /// Returns the number of labels that each label of a panel represents, or None if the panel is not
    /// in the sample.
    pub(crate) fn weight(self, panel: usize) -> Option<f32> {
        match panel.checked_sub(Self::FIRST) {
            None => Some(1.0),
            Some(at) => (at % self.every == self.every / 2).then_some(self.weight),
        }
    }

    /// Returns the labels of `labels` that are in the sample, each with the number of labels it
    /// represents.
    pub(crate) fn labels(self, labels: &[u32]) -> impl Iterator<Item = (u32, f32)> {
        let panels = labels.chunks(LANES).enumerate();
        let drawn = panels.filter_map(move |(at, labels)| Some((labels, self.weight(at)?)));
        drawn.flat_map(|(labels, weight)| labels.iter().map(move |&label| (label, weight)))
    }
}

impl Unseen {
    /// Chooses the held-out rows. `drawn` holds the sampled labels, each with the number of labels it
    /// represents.
    ///
    /// Returns None if there are too few rows or labels to learn a threshold.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the costs do not fit in memory.
    pub(crate) fn new(
        problem: &Problem,
        drawn: impl Iterator<Item = (u32, f32)>,
    ) -> Result<Option<Self>, Error> {
        let rows = held_out_rows(problem.n_rows())?;
        let mut cost = copied("number of rows", &problem.cost)?;
        for &row in &rows {
            cost[row as usize] = 0.0;
        }
        let held = |row: &&u32| cost[**row as usize] == 0.0;
        let (mut wanted, mut n_positive) = (0.0, 0);
        for (label, weight) in drawn {
            for &row in problem.positives(label).iter().filter(held) {
                wanted += f64::from(weight) * f64::from(problem.cost[row as usize]);
                n_positive += 1;
            }
        }
        let total_cost = cost.iter().map(|&cost| f64::from(cost)).sum();
        let learnable = n_positive >= FEWEST_POSITIVES && total_cost > 0.0;
        Ok(learnable.then(|| Self {
            rows,
            cost,
            total_cost,
            wanted,
            tally: Mutex::new(Tally::new(wanted)),
        }))
    }

    /// Makes an instance that removes the influence of the given rows and has no tally.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the costs do not fit in memory.
    pub(crate) fn of_rows(problem: &Problem, rows: &[u32]) -> Result<Self, Error> {
        let mut cost = copied("number of rows", &problem.cost)?;
        for &row in rows {
            cost[row as usize] = 0.0;
        }
        Ok(Self {
            rows: copied("number of held-out rows", rows)?,
            total_cost: cost.iter().map(|&cost| f64::from(cost)).sum(),
            cost,
            wanted: 0.0,
            tally: Mutex::new(Tally::new(0.0)),
        })
    }

    /// Counts the scores of one panel of `n_labels` labels, each of which represents `weight` labels.
    /// `score` must call its argument with each held-out row and its scores.
    ///
    /// # Errors
    ///
    /// Returns any error of `score`. Returns [`Error::TooLarge`] if the tally does not fit in memory.
    pub(crate) fn count(
        &self,
        problem: &Problem,
        n_labels: usize,
        weight: f32,
        score: impl FnOnce(&mut dyn FnMut(u32, &[f32; LANES]) -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut of_panel = Tally::new(self.wanted);
        score(&mut |row, scores| {
            let weight = weight * problem.cost[row as usize];
            for &score in &scores[..n_labels] {
                of_panel.push(score, weight)?;
            }
            Ok(())
        })?;
        self.lock().merge(of_panel)
    }

    /// Returns the threshold at which the number of predicted labels equals the number of labels of the
    /// held-out rows. Returns None if there is no such threshold.
    pub(crate) fn cut(&self) -> Option<f32> {
        self.lock().cut(0.0)
    }

    /// Returns the tally of all panels.
    fn lock(&self) -> std::sync::MutexGuard<'_, Tally> {
        // After a panic the fit fails anyway, so the value behind a poisoned lock may be used.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Draws the held-out rows, one in ten, or a larger fraction of a small training set. Returns them in
/// increasing order.
///
/// The draw depends only on the number of rows and not on the seed, because the exact solver uses no
/// other random numbers. The reservoir sampling draws the same rows as `choose_multiple` of `fastrand`.
/// That function would abort if memory is short.
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
