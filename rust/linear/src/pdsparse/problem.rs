//! Defines the training set and the state of a fit. Also computes scores, the precision at 1 and the
//! duality gap.

use super::held_out::{Block, Looks};
use super::params::Params;
use super::weights::Weights;
use manylabel_base::{Error, Tasks, Watch, collected, copied, few, filled, parts, reserved};
use manylabel_sparse::{CsrOwned, Stored};
use rayon::prelude::*;

/// The largest number of labels that a visit to a row may add to its active set, if the fit chooses
/// this number. The active set contains the labels whose dual variables may differ from 0.
pub(super) const MOST_CANDIDATES: usize = 100;

/// Number of held-out rows that are scored together. The scores of 64 rows and 20,000 labels take 5 MB.
const ROWS_OF_LOOK: usize = 64;

/// Number of rows in a unit of parallel work, in passes that only score rows.
const ROWS_OF_TASK: usize = 256;

/// The training set, which does not change during a fit. Features that are 0 in every row, and labels
/// that occur in no training row, are left out.
pub(super) struct Problem<'x> {
    /// All rows, including the held-out rows; shape (n, d).
    pub(super) x: Stored<'x>,
    /// The labels of each training row; shape (n, `n_labels`). Held-out rows have no entries.
    pub(super) y: CsrOwned,
    /// The unknown labels of each row, including the held-out rows; shape (n, `n_labels`). `None` if all pairs
    /// are known. An unknown label is never active, so the loss of its row does not contain the label.
    pub(super) unknown: Option<CsrOwned>,
    /// The cost of each row, `C_i = C m_i`, where `m_i` is the weight of the row; shape (n).
    pub(super) cost: Vec<f64>,
    /// The squared length of each row, `‖x_i‖²`; shape (n).
    pub(super) squares: Vec<f64>,
    /// The rows used for training, in increasing order. Each of them has at least one feature and
    /// at least one label. Rows that have all of their known labels are not used.
    pub(super) order: Vec<u32>,
}

/// The dual variables (duals) of one row that may differ from 0. Their labels are called active.
/// The labels that the row has come first. Then come the active labels that the row does not have.
#[derive(Debug, Clone, Default)]
pub(super) struct Duals {
    /// The active labels of the row. Only their dual variables may differ from 0.
    pub(super) labels: Vec<u32>,
    /// The dual variable of each label in `labels`: ≥ 0 for labels that the row has, ≤ 0 for other
    /// labels.
    pub(super) alpha: Vec<f64>,
}

/// The state that changes during a fit. A visit to a row changes the duals and the weights
/// together, so `weights` always matches `duals` between visits.
#[derive(Debug)]
pub(super) struct State {
    pub(super) weights: Weights,
    /// The dual variables of each row; shape (n). Rows that are not used for training have none.
    pub(super) duals: Vec<Duals>,
}

impl State {
    /// Returns a copy.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the copy does not fit in memory.
    pub(super) fn copied(&self) -> Result<Self, Error> {
        let mut duals = reserved("number of rows", self.duals.len())?;
        for Duals { labels, alpha } in &self.duals {
            duals.push(Duals {
                labels: copied("number of labels of a row", labels)?,
                alpha: copied("number of labels of a row", alpha)?,
            });
        }
        Ok(Self {
            weights: self.weights.copied()?,
            duals,
        })
    }
}

impl<'x> Problem<'x> {
    /// Creates a problem with the given rows. `weights` holds the weights of the rows. If it is
    /// None, all weights are 1.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if scores might leave the range of `f32`. This is the case if the
    /// sum of the costs times the largest squared length of a row exceeds 1e30. Returns
    /// [`Error::TooLarge`] if there is not enough memory.
    pub(super) fn new(
        x: Stored<'x>,
        y: CsrOwned,
        unknown: Option<CsrOwned>,
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
                    "small enough that C * sum(sample_weight) * (largest squared length of a row) \
                     is at most 1e30 (`normalize=True` scales rows to length 1)",
                )
            } else {
                (
                    "C",
                    "small enough that C * sum(sample_weight) * (largest squared length of a row) \
                     is at most 1e30 (`normalize=True` scales rows to length 1)",
                )
            };
            return Err(Error::Param {
                name,
                expected,
                got: format!("a product of {magnitude:.1e}"),
            });
        }
        let has_a_say = |row: usize| {
            let n_positive = y.row(row).0.len();
            let n_known = y.n_cols
                - unknown
                    .as_ref()
                    .map_or(0, |unknown| unknown.row(row).0.len());
            squares[row] > 0.0 && n_positive > 0 && n_positive < n_known
        };
        let order = (0..n as u32).filter(|&row| has_a_say(row as usize));
        Ok(Self {
            order: collected("number of rows", order)?,
            x,
            y,
            unknown,
            cost,
            squares,
        })
    }

    /// Returns the mean number of labels per training row, rounded up. The result is limited to the
    /// range from 1 to [`MOST_CANDIDATES`].
    pub(super) fn mean_labels(&self) -> usize {
        let n_labels = self.y.indices.len();
        let mean = n_labels.div_ceil(self.order.len().max(1));
        mean.clamp(1, MOST_CANDIDATES)
    }

    /// Returns the initial dual variables, which are all 0. Only active labels may get another
    /// value. The active labels of a row are initially the labels that the row has.
    pub(super) fn empty_duals(&self) -> Result<Vec<Duals>, Error> {
        let mut duals = filled("number of rows", Duals::default(), self.x.n_rows())?;
        for &row in &self.order {
            let labels = copied("number of labels of a row", self.y.row(row as usize).0)?;
            let alpha = filled("number of labels of a row", 0.0, labels.len())?;
            duals[row as usize] = Duals { labels, alpha };
        }
        Ok(duals)
    }

    /// Computes the scores of all labels for a row. The score of an unknown label is −∞. Returns the number of
    /// nonzero weights that were read.
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
        self.hide_unknown(row, scores);
        n_terms
    }

    /// Sets the scores of the unknown labels of a row to −∞.
    #[inline]
    pub(super) fn hide_unknown(&self, row: usize, scores: &mut [f32]) {
        if let Some(unknown) = &self.unknown {
            for &label in unknown.row(row).0 {
                scores[label as usize] = f32::NEG_INFINITY;
            }
        }
    }

    /// Returns the score of one label for a row, in O(features of the row) time.
    #[inline]
    pub(super) fn score_of(&self, weights: &Weights, row: usize, label: u32) -> f64 {
        let (cols, values) = self.x.row(row);
        let terms = cols.iter().zip(values);
        terms
            .map(|(&col, &value)| f64::from(value) * f64::from(weights.get(col as usize, label)))
            .sum()
    }

    /// Returns the precision at 1. This is the fraction of rows for which the label with the
    /// highest score is a label of the row. Rows of `rows` without labels are not counted. If
    /// scores are equal, the lower label is preferred. `labels` holds, for each label of this
    /// problem, its number in `y`.
    pub(super) fn precision(
        &self,
        weights: &Weights,
        rows: &[usize],
        labels: &[u32],
        y: &CsrOwned,
        watch: &Watch,
    ) -> Result<f64, Error> {
        let n_right = rows.par_chunks(ROWS_OF_TASK).map(|rows| {
            let mut scores = filled("number of scores of a row", 0.0, labels.len())?;
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

    /// Calls `seen` with the scores, labels and weights of `rows`. `known(row)` must return the
    /// labels of a row that occur in training, and `weight(row)` its weight.
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
            let mut scores = filled(
                "number of scores of held-out rows",
                0.0,
                rows.len() * n_labels,
            )?;
            let of_rows = scores.par_chunks_mut(n_labels).zip(rows);
            of_rows.try_each(|(scores, &row)| {
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

    /// Returns the duality gap of a state. The dual problem is a minimization here, so the gap is
    /// the sum of the primal and the dual objective. All rows used for training are scored, on all
    /// threads.
    pub(super) fn dual_gap(&self, state: &State, l1: f64, watch: &Watch) -> Result<f64, Error> {
        let sums = self.order.par_chunks(ROWS_OF_TASK).map(|rows| {
            let mut scores = filled("number of scores of a row", 0.0, self.y.n_cols)?;
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

/// Returns `max_{k∉y} z_k − min_{k∈y} z_k`, where z are the scores of a row and y are its labels
/// (`positives`). Overwrites the scores of the labels in y.
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
