//! Scores that the cut is learned from: those of rows that the weights have not seen.
//!
//! A fit over the other rows alone would cost as much again. Instead some labels, once solved, are
//! made to forget the rows held out: their part of the solution is taken back, a few steps let the
//! other rows answer, and the rows held out are scored. The model itself stays as it is.

use super::problem::Problem;
use crate::cut::Tally;
use crate::panel::LANES;
use fastrand::Rng;
use manylabel_base::{Error, collected, copied};
use std::sync::{Mutex, PoisonError};

/// Of each kind of label, frequent and rare, so many of the most frequent are made to forget: they
/// are named most;
const FIRST_LABELS: usize = 64;

/// and of the others as many again,
const OTHER_LABELS: usize = 64;

/// or one in so many, whichever is more. Their cost is then a few hundredths of the fit.
const ONE_LABEL_IN: usize = 20;

/// Rows held out, but for at most a quarter of all: their labels are counted, and of fewer the count
/// would be off by a tenth and more.
const FEWEST_ROWS: usize = 64;

/// Labels that the rows held out must carry: the count of fewer is off by a third and more, and the
/// threshold of the loss is the better guess.
const FEWEST_POSITIVES: usize = 10;

/// The rows held out, and what is known of their scores.
pub(crate) struct Unseen {
    /// In increasing order.
    pub(crate) rows: Vec<u32>,
    /// Costs of all rows, 0 for those held out; (n).
    pub(crate) cost: Vec<f32>,
    /// Sum of these.
    pub(crate) total_cost: f64,
    wanted: f64,
    tally: Mutex<Tally>,
}

/// Which panels of one kind of label are made to forget, labels being sorted by frequency: the
/// first, and of the others one in so many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    every: usize,
    /// Labels that each of the others stands for.
    weight: f32,
}

impl Sample {
    const FIRST: usize = FIRST_LABELS / LANES;

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

    /// How many labels each label of a panel stands for, if the panel is drawn.
    pub(crate) fn weight(self, panel: usize) -> Option<f32> {
        match panel.checked_sub(Self::FIRST) {
            None => Some(1.0),
            Some(at) => (at % self.every == self.every / 2).then_some(self.weight),
        }
    }

    /// The labels drawn, with how many each stands for.
    pub(crate) fn labels(self, labels: &[u32]) -> impl Iterator<Item = (u32, f32)> {
        let panels = labels.chunks(LANES).enumerate();
        let drawn = panels.filter_map(move |(at, labels)| Some((labels, self.weight(at)?)));
        drawn.flat_map(|(labels, weight)| labels.iter().map(move |&label| (label, weight)))
    }
}

impl Unseen {
    /// Holds rows out; `drawn` are the labels that will be told of, with what each stands for.
    ///
    /// None if there is nothing to learn from.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if memory does not hold the costs.
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

    /// Counts the scores of one panel, which `score` computes and tells row by row.
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

    /// The cut above which as many labels are named as the rows held out carry.
    pub(crate) fn cut(&self) -> Option<f32> {
        self.lock().cut(0.0)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tally> {
        // A panic elsewhere cannot have left the tally half changed.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Draws the rows held out, in increasing order: one in ten, or more where that would be few.
///
/// Always the same ones: a threshold that depends on a seed would be all that an exact solver draws.
/// (They are those of the generator's `choose_multiple`, whose memory cannot be refused.)
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
