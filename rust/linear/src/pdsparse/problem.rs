//! What a fit is of: rows, their costs, and what weights score on them.

use super::held_out::{Block, Looks};
use super::params::Params;
use super::weights::Weights;
use manylabel_base::{Error, Watch, collected, copied, few, filled, parts, reserved};
use manylabel_sparse::CsrOwned;
use rayon::prelude::*;

/// Candidates per visit that growing their number ends at.
pub(super) const MOST_CANDIDATES: usize = 100;

/// Held-out rows whose scores are looked at together: scores of 64 rows and 20,000 labels are 5 MB.
const ROWS_OF_LOOK: usize = 64;

/// Rows of a task of the passes that only score.
const ROWS_OF_TASK: usize = 256;

/// What does not change in a fit. Features and labels are those that training rows have.
pub(super) struct Problem {
    pub(super) x: CsrOwned,
    /// Labels of the training rows; held-out rows have none.
    pub(super) y: CsrOwned,
    /// `C m_i`.
    pub(super) cost: Vec<f64>,
    /// `‖x_i‖²`.
    pub(super) squares: Vec<f64>,
    /// Rows that have a say.
    pub(super) order: Vec<u32>,
}

/// The duals of a row: first of all labels it carries, then of its active others.
#[derive(Debug, Clone, Default)]
pub(super) struct Duals {
    pub(super) labels: Vec<u32>,
    pub(super) alpha: Vec<f64>,
}

/// What changes in a fit.
#[derive(Debug)]
pub(super) struct State {
    pub(super) weights: Weights,
    pub(super) duals: Vec<Duals>,
}

impl State {
    pub(super) fn copied(&self) -> Result<Self, Error> {
        let mut duals = reserved("number of rows", self.duals.len())?;
        for Duals { labels, alpha } in &self.duals {
            duals.push(Duals {
                labels: copied("labels of a row", labels)?,
                alpha: copied("labels of a row", alpha)?,
            });
        }
        Ok(Self {
            weights: self.weights.copied()?,
            duals,
        })
    }
}

impl Problem {
    pub(super) fn new(
        x: CsrOwned,
        y: CsrOwned,
        weights: Option<&[f32]>,
        params: &Params,
    ) -> Result<Self, Error> {
        const LARGEST: f64 = 1e30;
        let n = x.n_rows();
        let square = |row| x.row(row).1.iter().map(|&v| f64::from(v).powi(2)).sum();
        let squares: Vec<f64> = collected("number of rows", (0..n).map(square))?;
        let weight = |row: usize| weights.map_or(1.0, |weights| f64::from(weights[row]));
        let cost = collected("number of rows", (0..n).map(|row| params.c * weight(row)))?;
        let longest = squares.iter().copied().fold(1.0, f64::max);
        let total = cost.iter().sum::<f64>();
        let magnitude = longest * total;
        if magnitude.is_nan() || magnitude > LARGEST {
            let (name, expected) = if longest > total {
                (
                    "X",
                    "such that the largest squared length of a row, times C and the sum of \
                     sample_weight, is at most 1e30 (see `normalize`)",
                )
            } else {
                (
                    "C",
                    "such that C times the sum of sample_weight times the largest squared \
                     length of a row is at most 1e30 (see `normalize`)",
                )
            };
            return Err(Error::Param {
                name,
                expected,
                got: format!("{magnitude:.1e}"),
            });
        }
        let has_a_say = |row: usize| {
            let n_positive = y.row(row).0.len();
            squares[row] > 0.0 && n_positive > 0 && n_positive < y.n_cols
        };
        let order = (0..n as u32).filter(|&row| has_a_say(row as usize));
        Ok(Self {
            order: collected("number of rows", order)?,
            x,
            y,
            cost,
            squares,
        })
    }

    /// The mean number of labels of a row that has a say, as a number of candidates.
    pub(super) fn mean_labels(&self) -> usize {
        let n_labels = self.y.indices.len();
        let mean = n_labels.div_ceil(self.order.len().max(1));
        mean.clamp(1, MOST_CANDIDATES)
    }

    pub(super) fn empty_duals(&self) -> Result<Vec<Duals>, Error> {
        let mut duals = filled("number of rows", Duals::default(), self.x.n_rows())?;
        for &row in &self.order {
            let labels = copied("labels of a row", self.y.row(row as usize).0)?;
            let alpha = filled("labels of a row", 0.0, labels.len())?;
            duals[row as usize] = Duals { labels, alpha };
        }
        Ok(duals)
    }

    /// Writes the scores of all labels for a row; returns how many terms they have.
    #[inline]
    pub(super) fn score(&self, weights: &Weights, row: usize, scores: &mut [f32]) -> usize {
        scores.fill(0.0);
        let (cols, values) = self.x.row(row);
        let mut n_terms = 0;
        for (&col, &value) in cols.iter().zip(values) {
            n_terms += weights.n_weights(col as usize);
            for (label, weight) in weights.of_feature(col as usize) {
                scores[label as usize] += value * weight;
            }
        }
        n_terms
    }

    /// The score of one label for a row.
    #[inline]
    pub(super) fn score_of(&self, weights: &Weights, row: usize, label: u32) -> f64 {
        let (cols, values) = self.x.row(row);
        let terms = cols.iter().zip(values);
        terms
            .map(|(&col, &value)| f64::from(value) * f64::from(weights.get(col as usize, label)))
            .sum()
    }

    /// Share of rows, of those that carry a label, whose best label is one they carry.
    pub(super) fn precision(
        &self,
        weights: &Weights,
        rows: &[usize],
        labels: &[u32],
        y: &CsrOwned,
        watch: &Watch,
    ) -> Result<f64, Error> {
        let n_right = rows.par_chunks(ROWS_OF_TASK).map(|rows| {
            let mut scores = filled("scores of a row", 0.0, labels.len())?;
            let mut n_right = 0usize;
            for &row in rows {
                watch.step(0)?;
                self.score(weights, row, &mut scores);
                let best = (0..)
                    .zip(&scores)
                    .fold((0, f32::NEG_INFINITY), |best, (at, &score)| {
                        if score > best.1 { (at, score) } else { best }
                    });
                let best = labels.get(best.0);
                n_right += usize::from(best.is_some_and(|best| y.row(row).0.contains(best)));
            }
            Ok(n_right)
        });
        let n_right: usize = parts(n_right)?.iter().sum();
        let n_labeled = rows.iter().filter(|&&row| !y.row(row).0.is_empty()).count();
        Ok(n_right as f64 / n_labeled.max(1) as f64)
    }

    /// Lets `seen` look at the scores of `rows`. Of a row the labels it carries, of those that were
    /// trained on, and its weight are told.
    pub(super) fn look(
        &self,
        weights: &Weights,
        rows: &[u32],
        seen: &mut Looks<'_>,
        (known, weight): (
            impl Fn(usize) -> Result<Vec<u32>, Error> + Sync,
            impl Fn(usize) -> f32 + Sync,
        ),
        watch: &Watch,
    ) -> Result<(), Error> {
        let n_labels = self.y.n_cols;
        if n_labels == 0 {
            return Ok(());
        }
        for rows in rows.chunks(ROWS_OF_LOOK) {
            let mut scores = filled("scores of held-out rows", 0.0, rows.len() * n_labels)?;
            let of_rows = scores.par_chunks_mut(n_labels).zip(rows);
            of_rows.try_for_each(|(scores, &row)| {
                watch.step(0)?;
                self.score(weights, row as usize, scores);
                Ok(())
            })?;
            let rows = rows.iter().map(|&row| row as usize);
            let rows = few::<_, Result<_, Error>>(rows.map(|row| Ok((known(row)?, weight(row)))))?;
            seen.push(&Block { scores, rows })?;
        }
        Ok(())
    }

    pub(super) fn dual_gap(&self, state: &State, l1: f64, watch: &Watch) -> Result<f64, Error> {
        let sums = self.order.par_chunks(ROWS_OF_TASK).map(|rows| {
            let mut scores = filled("scores of a row", 0.0, self.y.n_cols)?;
            let mut sum = 0.0;
            for &row in rows {
                watch.step(0)?;
                let row = row as usize;
                self.score(&state.weights, row, &mut scores);
                let positives = self.y.row(row).0;
                let loss = 1.0 + worst_violation(&mut scores, positives);
                sum += self.cost[row] * f64::from(loss).max(0.0);
                sum += state.duals[row].alpha[positives.len()..]
                    .iter()
                    .sum::<f64>();
            }
            Ok(sum)
        });
        let sum: f64 = parts(sums)?.iter().sum();
        let (squares, sizes) = state.weights.norms();
        Ok(2.0 * squares + l1 * sizes + sum)
    }
}

/// `max_{k∉y} − min_{k∈y}` of the scores, of which those of y are lost.
fn worst_violation(scores: &mut [f32], positives: &[u32]) -> f32 {
    let mut least = f32::INFINITY;
    for &label in positives {
        least = least.min(scores[label as usize]);
        scores[label as usize] = f32::NEG_INFINITY;
    }
    scores
        .iter()
        .fold(f32::NEG_INFINITY, |most, &score| most.max(score))
        - least
}
