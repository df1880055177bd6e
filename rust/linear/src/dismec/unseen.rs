//! Scores of rows that the weights have not seen, from which the cut is learned.
//!
//! Training rows score higher for their own labels than new rows do, so a threshold learned from them would
//! be too high. A second fit without some rows would cost as much again. Instead, for a sample of the
//! labels, the solution just found is changed to one without the held-out rows: their contribution is
//! removed, a few steps adapt the weights to the other rows, and the held-out rows are scored. This happens
//! after the weights of the model have been taken from the workspace, so the model is unchanged.
//!
//! One row in ten is held out. The cut is the score above which as many pairs of row and label are predicted
//! as are true, weighted by the cost of the row and by the number of labels that a sampled label stands for.

use super::problem::Problem;
use crate::cut::Tally;
use crate::panel::LANES;
use fastrand::Rng;
use manylabel_base::{Error, collected, copied};
use std::sync::{Mutex, PoisonError};

/// How many of the most frequent labels of each kind (frequent and rare) are in the sample: these are
/// predicted most often.
const FIRST_LABELS: usize = 64;

/// The least number of other labels in the sample, as far as there are as many.
const OTHER_LABELS: usize = 64;

/// One in this many other labels is in the sample, if that is more than [`OTHER_LABELS`]. The sample then
/// costs a few hundredths of the fit.
const ONE_LABEL_IN: usize = 20;

/// The fewest rows held out, unless that is more than a quarter of all rows. With fewer, the number of their
/// labels is a poor estimate, off by a tenth and more.
const FEWEST_ROWS: usize = 64;

/// The fewest sampled labels that the held-out rows must carry in all. With fewer, their number is off by a
/// third and more, and the threshold of the loss is the better guess.
const FEWEST_POSITIVES: usize = 10;

/// The held-out rows, and the tally of their scores.
pub(crate) struct Unseen {
    /// The held-out rows, in increasing order.
    pub(crate) rows: Vec<u32>,
    /// The costs of all rows, 0 for those held out; (n).
    pub(crate) cost: Vec<f32>,
    /// The sum of `cost`.
    pub(crate) total_cost: f64,
    /// The total weight of true pairs of held-out rows and sampled labels.
    wanted: f64,
    /// The scores of all panels so far.
    tally: Mutex<Tally>,
}

/// Which panels of one kind of label are in the sample, labels being sorted by frequency: the first
/// panels, and one in `every` of the others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    every: usize,
    /// The number of labels that each sampled label of the other panels stands for.
    weight: f32,
}

impl Sample {
    /// The number of panels that are always in the sample.
    const FIRST: usize = FIRST_LABELS / LANES;

    /// The sample of `n_labels` labels of one kind.
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

    /// The number of labels that each label of a panel stands for; None if the panel is not in the sample.
    pub(crate) fn weight(self, panel: usize) -> Option<f32> {
        match panel.checked_sub(Self::FIRST) {
            None => Some(1.0),
            Some(at) => (at % self.every == self.every / 2).then_some(self.weight),
        }
    }

    /// The sampled ones of `labels`, each with the number of labels it stands for.
    pub(crate) fn labels(self, labels: &[u32]) -> impl Iterator<Item = (u32, f32)> {
        let panels = labels.chunks(LANES).enumerate();
        let drawn = panels.filter_map(move |(at, labels)| Some((labels, self.weight(at)?)));
        drawn.flat_map(|(labels, weight)| labels.iter().map(move |&label| (label, weight)))
    }
}

impl Unseen {
    /// Chooses the held-out rows. `drawn` are the sampled labels, each with the number it stands for.
    ///
    /// Returns None if there is too little to learn from.
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

    /// Counts the scores of one panel of `n_labels` labels, each of which stands for `weight` labels.
    /// `score` calls its argument with each held-out row and its scores.
    ///
    /// # Errors
    ///
    /// Those of `score`. Returns [`Error::TooLarge`] if the tally does not fit in memory.
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

    /// The score above which as many labels are predicted as the held-out rows carry; None if there is none.
    pub(crate) fn cut(&self) -> Option<f32> {
        self.lock().cut(0.0)
    }

    /// The tally of all panels.
    fn lock(&self) -> std::sync::MutexGuard<'_, Tally> {
        // After a panic the fit fails anyway, so a poisoned lock may be used.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Draws the held-out rows: one in ten, or more of small training sets; in increasing order.
///
/// The draw depends on the number of rows alone, not on the seed, since the exact solver uses no other
/// random numbers. It is reservoir sampling that gives the rows of `fastrand`'s `choose_multiple`, which
/// would abort if memory is short.
fn held_out_rows(n_rows: usize) -> Result<Vec<u32>, Error> {
    let n_held = (n_rows / 10).max(FEWEST_ROWS.min(n_rows / 4)).max(1);
    let mut rng = Rng::with_seed(n_rows as u64);
    let mut rows = collected("held-out rows", 0..n_held.min(n_rows) as u32)?;
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
