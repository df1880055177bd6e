//! Visits rows. A visit finds labels that violate the margin of a row, solves for the dual
//! variables of the row, and updates the weights.
//!
//! A pass visits each row once in random order. A visit computes scores of its row. From these
//! scores, it also computes what the row contributes to the loss and to the duality gap, before the
//! weights are updated. This takes no extra time. [`Pass`] sums these contributions. The weights
//! change from visit to visit, so the sums do not belong to a single model. They only indicate when
//! it is worthwhile to compute the true gap.

use super::block;
use super::params::{Params, Search};
use super::problem::{Duals, Problem, State};
use super::weights::Weights;
use fastrand::Rng;
use manylabel_base::{Error, Watch, collected, copied, extend, filled, push};
use manylabel_sparse::TopK;

/// Name in error messages about memory that a visit allocates.
const ACTIVE: &str = "number of active labels of a row";

/// The workspace for a visit to a row. It is reused from row to row.
pub(super) struct Scratch {
    /// The scores of all labels, or estimates of them; shape (`n_labels`).
    pub(super) scores: Vec<f32>,
    /// The labels with the highest scores among the labels that are not active. The dual variable
    /// of a label may differ from 0 only if the label is active.
    pub(super) best: TopK,
    /// The scores of the active labels, whose dual variables may differ from 0.
    pub(super) active: Vec<f64>,
    /// Before the projection, the part b of the point to project (see `block.rs`). After the
    /// projection, the negated dual variables of the active labels that the row does not have.
    pub(super) b: Vec<f64>,
    /// Before the projection, the part e of the point to project (see `block.rs`). After the
    /// projection, the dual variables of the labels that the row has.
    pub(super) e: Vec<f64>,
    /// The labels whose dual variables change, and the changes.
    pub(super) changes: Vec<(u32, f32)>,
    /// The cumulative sums of the absolute values of a row. They are used to sample features.
    pub(super) sums: Vec<f64>,
}

/// Counts the work of a pass over the rows, and sums the loss and the duality gap over the rows.
/// The terms of a row are computed before the pass changes the dual variables of the row.
#[derive(Default)]
pub(super) struct Pass {
    /// The work of all searches for labels: the number of weights read, plus an eighth for each
    /// label.
    pub(super) search: usize,
    /// The work outside of searches: the number of weights read or changed.
    pub(super) rest: usize,
    /// The sum of the terms of the rows in the duality gap.
    pub(super) gap: f64,
    /// The sum of the losses of the rows, each multiplied by its cost `C_i`.
    pub(super) loss: f64,
}

impl Scratch {
    /// Allocates a workspace for rows of `n_labels` labels.
    pub(super) fn new(n_labels: usize) -> Result<Self, Error> {
        Ok(Self {
            scores: filled("number of scores of a row", 0.0, n_labels)?,
            best: TopK::new(0)?,
            active: Vec::new(),
            b: Vec::new(),
            e: Vec::new(),
            changes: Vec::new(),
            sums: Vec::new(),
        })
    }
}

/// A fit in progress. Its weights and dual variables are stored separately, in a [`State`].
pub(super) struct Fit<'a> {
    pub(super) params: &'a Params,
    pub(super) problem: &'a Problem<'a>,
    /// The random number generator. It draws the order of rows, the first label among equal scores,
    /// and the features of sampled searches.
    pub(super) rng: Rng,
    /// The largest number of labels that a visit adds to an active set. The active set of a row
    /// contains the labels whose dual variables may differ from 0.
    pub(super) n_candidates: usize,
    pub(super) scratch: Scratch,
}

impl Fit<'_> {
    /// Visits each row of `rows` once, in random order. If `search` is false, no labels are added
    /// to active sets (labels whose dual variables may differ from 0).
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    pub(super) fn pass(
        &mut self,
        state: &mut State,
        rows: &[u32],
        search: bool,
        watch: &Watch,
    ) -> Result<Pass, Error> {
        let mut order = copied("number of rows", rows)?;
        self.rng.shuffle(&mut order);
        self.scratch.best = TopK::new(self.n_candidates.min(self.scratch.scores.len()))?;
        let mut pass = Pass::default();
        for row in order {
            watch.step(0)?;
            let row = row as usize;
            let duals = &mut state.duals[row];
            match (search, self.params.search) {
                (true, Search::Exact) => self.search_all(&state.weights, row, duals, &mut pass),
                (true, Search::Sampled) => self.search_some(&state.weights, row, duals, &mut pass),
                (false, _) => self.score_active(&state.weights, row, duals, &mut pass),
            }?;
            self.solve(state, row, &mut pass)?;
        }
        Ok(pass)
    }

    /// Fits the nonzero weights again without `l1`, while all other weights stay 0. It takes at
    /// most `max_iter` passes. No dual variables become nonzero for further labels.
    pub(super) fn post_solve(
        &mut self,
        state: &mut State,
        max_iter: usize,
        watch: &Watch,
    ) -> Result<(), Error> {
        state.weights.fix_supports();
        for _ in 0..max_iter {
            let pass = self.pass(state, &self.problem.order, false, watch)?;
            let (squares, _) = state.weights.norms();
            if pass.gap <= self.params.tol * (squares + pass.loss) {
                break;
            }
        }
        Ok(())
    }

    /// Subtracts the terms of `rows` (in increasing order) from the weights, which are weighted
    /// sums of rows before they are reduced by l1. Then adapts the dual variables (duals) of all
    /// other rows, as if `rows` had not been used for training.
    ///
    /// Without the adaptation, the scores of the removed rows would be far too low for their
    /// labels. The adaptation consists of two passes over the other rows, the first with search and
    /// the second without. Three faster variants were tried: no search, no second pass, and a
    /// second pass over only the rows farthest from the optimum. On some data sets, they led to
    /// intercepts so large that rankings became worse. A search adds only a few labels to the duals
    /// of a row, because a row has few nonzero duals. With many labels, solving for the duals would
    /// take most of the time.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`pass`](Self::pass).
    pub(super) fn forget(
        &mut self,
        state: &mut State,
        rows: &[u32],
        watch: &Watch,
    ) -> Result<(), Error> {
        let problem = self.problem;
        for &row in rows {
            let row = row as usize;
            let duals = &mut state.duals[row];
            let n_positive = problem.y.row(row).0.len();
            let (cols, values) = problem.x.row(row);
            let Scratch {
                changes, scores, ..
            } = &mut self.scratch;
            changes.clear();
            let pairs = duals.labels.iter().zip(&duals.alpha);
            let taken_back = pairs.map(|(&label, &alpha)| (label, -alpha as f32));
            extend(ACTIVE, changes, taken_back)?;
            changes.retain(|&(_, change)| change != 0.0);
            state.weights.add_row((cols, values), changes, scores)?;
            duals.alpha.fill(0.0);
            duals.labels.truncate(n_positive);
            duals.alpha.truncate(n_positive);
        }
        let others = problem.order.iter().copied();
        let others = others.filter(|row| rows.binary_search(row).is_err());
        let others = collected("number of rows", others)?;
        let kept = std::mem::replace(&mut self.n_candidates, problem.mean_labels());
        self.pass(state, &others, true, watch)?;
        self.n_candidates = kept;
        self.pass(state, &others, false, watch)?;
        Ok(())
    }

    /// Computes the scores of the active labels of a row. Only active labels may have nonzero dual
    /// variables. The scores are computed one by one or together with all other scores, whichever
    /// is faster.
    fn score_active(
        &mut self,
        weights: &Weights,
        row: usize,
        duals: &Duals,
        pass: &mut Pass,
    ) -> Result<(), Error> {
        let Scratch { scores, active, .. } = &mut self.scratch;
        let cols = self.problem.x.row(row).0;
        if !weights.is_faster_to_walk(cols, scores.len(), duals.labels.len()) {
            return self.score_one_by_one(weights, row, duals, pass);
        }
        pass.rest += self.problem.score(weights, row, scores);
        let scores = duals.labels.iter().map(|&label| scores[label as usize]);
        active.clear();
        extend(ACTIVE, active, scores.map(f64::from))
    }

    /// Computes the scores of the active labels of a row one by one. Only active labels may have
    /// nonzero dual variables.
    fn score_one_by_one(
        &mut self,
        weights: &Weights,
        row: usize,
        duals: &Duals,
        pass: &mut Pass,
    ) -> Result<(), Error> {
        let scores = duals
            .labels
            .iter()
            .map(|&label| self.problem.score_of(weights, row, label));
        self.scratch.active.clear();
        pass.rest += self.problem.x.row(row).0.len() * duals.labels.len();
        extend(ACTIVE, &mut self.scratch.active, scores)
    }

    /// Runs the exact search. It computes the scores of all labels. Then it adds the labels with
    /// the highest scores to the active set. Only labels that are not active and violate the margin
    /// are added.
    fn search_all(
        &mut self,
        weights: &Weights,
        row: usize,
        duals: &mut Duals,
        pass: &mut Pass,
    ) -> Result<(), Error> {
        let Scratch { scores, active, .. } = &mut self.scratch;
        let n_terms = self.problem.score(weights, row, scores);
        pass.search += n_terms + scores.len() / 8;
        let labels = duals.labels.iter();
        active.clear();
        extend(
            ACTIVE,
            active,
            labels.map(|&label| f64::from(scores[label as usize])),
        )?;
        self.add_best(row, duals, |best| f64::from(best.1))
    }

    /// Runs the sampled search. It works like [`search_all`](Self::search_all), but estimates the
    /// scores from a sample of the row's features. Feature j is drawn with probability
    /// `|x_j| / Σ|x|`, so the estimates are unbiased. For active labels and for labels that are
    /// added, exact scores are computed.
    fn search_some(
        &mut self,
        weights: &Weights,
        row: usize,
        duals: &mut Duals,
        pass: &mut Pass,
    ) -> Result<(), Error> {
        let (cols, values) = self.problem.x.row(row);
        let (n, d, m) = (
            self.problem.order.len() as f64,
            self.problem.x.n_cols() as f64,
            self.problem.y.n_cols as f64,
        );
        let x = self.problem.x.view();
        let nnz = x.n_entries(0, x.n_rows()) as f64;
        // The number of draws is the number of features of the row divided by `rate` (Yen et al., section
        // 3.3, with the constants of their program).
        let rate = (5.0 * d * m / (self.params.c * m.max(2.0).ln() * nnz))
            .min(nnz / n / 10.0)
            .ceil()
            .max(1.0);
        let n_drawn = (cols.len() as f64 / rate).ceil() as usize;
        let Scratch { scores, sums, .. } = &mut self.scratch;
        sums.clear();
        let mut sum = 0.0;
        let cumulated = values.iter().map(|&value| {
            sum += f64::from(value.abs());
            sum
        });
        extend("number of features of a row", sums, cumulated)?;
        scores.fill(0.0);
        pass.search += scores.len() / 8;
        let unit = (sum / n_drawn as f64) as f32;
        for _ in 0..n_drawn {
            let drawn = self.rng.f64() * sum;
            let at = sums
                .partition_point(|&sum| sum <= drawn)
                .min(cols.len() - 1);
            let (col, unit) = (cols[at] as usize, unit.copysign(values[at]));
            pass.search += weights.n_weights(col);
            for (label, weight) in weights.of_feature(col) {
                scores[label as usize] += unit * weight;
            }
        }
        self.problem.hide_unknown(row, scores);
        self.score_one_by_one(weights, row, duals, pass)?;
        let problem = self.problem;
        self.add_best(row, duals, |best| problem.score_of(weights, row, best.0))
    }

    /// Adds labels with the highest scores to the active set of a row. A label is added only if it
    /// is not active yet and violates the margin by its exact score. `exact` computes the exact
    /// score from a label and its score or estimate.
    fn add_best(
        &mut self,
        row: usize,
        duals: &mut Duals,
        exact: impl Fn((u32, f32)) -> f64,
    ) -> Result<(), Error> {
        let Scratch {
            scores,
            best,
            active,
            ..
        } = &mut self.scratch;
        // The program of Yen et al. adds only labels with scores above −1. But if a label of the row
        // has a score below 0, labels with scores below −1 violate the margin, too. Without these
        // labels, the optimum would be missed.
        let positive = &active[..self.problem.y.row(row).0.len()];
        let least = positive.iter().copied().fold(0.0, f64::min);
        let lowest = least - 1.0;
        for &label in &duals.labels {
            scores[label as usize] = f32::NEG_INFINITY;
        }
        // At the beginning, all scores are equal. So the order of labels with equal scores starts at a random
        // label.
        let start = self.rng.usize(..scores.len());
        let (before, from) = scores.split_at(start);
        let mut number = 0;
        for part in [from, before] {
            for chunk in part.chunks(16) {
                let floor = best.floor().max(lowest as f32);
                if chunk
                    .iter()
                    .fold(f32::NEG_INFINITY, |best, &score| best.max(score))
                    > floor
                {
                    for (number, &score) in (number..).zip(chunk) {
                        if f64::from(score) > lowest {
                            best.push(number, score);
                        }
                    }
                }
                number += chunk.len() as u32;
            }
        }
        let (start, n_labels) = (start as u32, scores.len() as u32);
        for (number, score) in best.drain_by_label() {
            let label = (number + start) % n_labels;
            let score = exact((label, score));
            if score > lowest {
                push(ACTIVE, &mut duals.labels, label)?;
                push(ACTIVE, &mut duals.alpha, 0.0)?;
                push(ACTIVE, active, score)?;
            }
        }
        Ok(())
    }

    /// Solves for the dual variables of the active set and updates the weights. Removes labels from
    /// the active set if their dual variable is 0. Also adds the loss and the gap of the row,
    /// computed before the update, to `pass`.
    fn solve(&mut self, state: &mut State, row: usize, pass: &mut Pass) -> Result<(), Error> {
        let problem = self.problem;
        let Scratch {
            scores,
            active,
            b,
            e,
            changes,
            ..
        } = &mut self.scratch;
        let n_positive = problem.y.row(row).0.len();
        let (square, cost) = (problem.squares[row], problem.cost[row]);
        let duals = &mut state.duals[row];

        let (positive, negative) = active.split_at(n_positive);
        let least = positive.iter().copied().fold(f64::INFINITY, f64::min);
        // After an exact search, the labels that were not returned violate the margin at most as much as
        // these labels. After a sampled search, they may violate it more.
        let most = negative.iter().copied().fold(-1.0 + least, f64::max);
        let loss = cost * (1.0 + most - least).max(0.0);
        let products = duals.alpha.iter().zip(active.iter());
        pass.loss += loss;
        pass.gap += loss
            + duals.alpha[n_positive..].iter().sum::<f64>()
            + products.map(|(alpha, score)| alpha * score).sum::<f64>();

        let pairs = duals.alpha.iter().zip(active.iter());
        let (positive, negative) = (pairs.clone().take(n_positive), pairs.skip(n_positive));
        e.clear();
        extend(
            ACTIVE,
            e,
            positive.map(|(alpha, score)| alpha - score / square),
        )?;
        b.clear();
        extend(
            ACTIVE,
            b,
            negative.map(|(alpha, score)| (1.0 + score) / square - alpha),
        )?;
        if b.is_empty() {
            return Ok(());
        }
        block::solve(b, e, cost)?;

        let (cols, values) = problem.x.row(row);
        let new = e.iter().copied().chain(b.iter().map(|&u| -u));
        changes.clear();
        for ((&label, alpha), new) in duals.labels.iter().zip(&mut duals.alpha).zip(new) {
            let change = (new - *alpha) as f32;
            *alpha = new;
            if change != 0.0 {
                push(ACTIVE, changes, (label, change))?;
            }
        }
        pass.rest += cols.len() * changes.len();
        state.weights.add_row((cols, values), changes, scores)?;
        let mut kept = n_positive;
        for at in n_positive..duals.labels.len() {
            if duals.alpha[at] != 0.0 {
                duals.labels.swap(kept, at);
                duals.alpha.swap(kept, at);
                kept += 1;
            }
        }
        duals.labels.truncate(kept);
        duals.alpha.truncate(kept);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylabel_sparse::{CsrOwned, Stored};

    /// Computes `Σ_i α_i x_i`, feature by feature, label by label.
    fn sums_of_duals(problem: &Problem<'_>, state: &State) -> Vec<Vec<f64>> {
        let mut v = vec![vec![0.0; problem.y.n_cols]; problem.x.n_cols()];
        for (row, duals) in state.duals.iter().enumerate() {
            for (&label, &alpha) in duals.labels.iter().zip(&duals.alpha) {
                let (cols, values) = problem.x.row(row);
                for (&col, &value) in cols.iter().zip(values) {
                    v[col as usize][label as usize] += alpha * f64::from(value);
                }
            }
        }
        v
    }

    #[test]
    fn weights_are_those_of_the_duals() {
        let (n, d, c) = (60, 12, 9);
        let mut rng = Rng::with_seed(0);
        let mut sparse = |n_cols: usize, share: f64| {
            let mut out = CsrOwned {
                indptr: vec![0],
                indices: Vec::new(),
                values: Vec::new(),
                n_cols,
            };
            for _ in 0..n {
                out.indices
                    .extend((0..n_cols as u32).filter(|_| rng.f64() < share));
                out.values
                    .resize_with(out.indices.len(), || rng.f32() + 0.5);
                out.indptr.push(out.indices.len());
            }
            out
        };
        let (x, y) = (sparse(d, 0.4), sparse(c, 0.2));
        let params = Params::default();
        let problem = Problem::new(Stored::Owned(x), y, None, None, &params).expect("in range");
        let mut state = State {
            weights: Weights::new(d, 0.05).expect("small"),
            duals: problem.empty_duals().expect("small"),
        };
        let mut fit = Fit {
            params: &params,
            problem: &problem,
            rng: Rng::with_seed(1),
            n_candidates: 2,
            scratch: Scratch::new(c).expect("small"),
        };
        for _ in 0..20 {
            fit.pass(&mut state, &problem.order, true, &Watch::new())
                .expect("nobody stops it");
        }
        for (row, duals) in state.duals.iter().enumerate() {
            let positives = problem.y.row(row).0;
            let (mut up, mut down) = (0.0, 0.0);
            for (at, (&label, &alpha)) in duals.labels.iter().zip(&duals.alpha).enumerate() {
                assert_eq!(at < positives.len(), positives.contains(&label));
                *if at < positives.len() {
                    &mut up
                } else {
                    &mut down
                } += alpha;
                assert!(if at < positives.len() {
                    alpha >= 0.0
                } else {
                    alpha < 0.0
                });
            }
            assert!((up + down).abs() < 1e-9 && up <= 1.0 + 1e-9);
        }
        for (feature, v) in sums_of_duals(&problem, &state).iter().enumerate() {
            for (label, &v) in v.iter().enumerate() {
                let w = v.signum() * (v.abs() - 0.05).max(0.0);
                let found = f64::from(state.weights.get(feature, label as u32));
                assert!((found - w).abs() < 1e-5, "{found} is not {w}");
            }
        }
        let gap = problem
            .dual_gap(&state, 0.05, &Watch::new())
            .expect("nobody stops it");
        assert!((-1e-4..2.0).contains(&gap), "{gap}");

        // Then the test fits without l1 on the support and removes some rows. It checks that the weights no
        // longer depend on these rows.
        let had: Vec<Vec<bool>> = (0..d)
            .map(|feature| {
                let mut had = vec![false; c];
                let labels = state.weights.of_feature(feature);
                labels.for_each(|(label, _)| had[label as usize] = true);
                had
            })
            .collect();
        let forgotten = [3, 8, 20, 41];
        fit.post_solve(&mut state, 5, &Watch::new())
            .expect("nobody stops it");
        fit.forget(&mut state, &forgotten, &Watch::new())
            .expect("nobody stops it");
        for row in forgotten {
            let duals = &state.duals[row as usize];
            assert!(duals.alpha.iter().all(|&alpha| alpha == 0.0));
        }
        let v = sums_of_duals(&problem, &state);
        let mut n_weights = 0;
        for feature in 0..d {
            for label in (0..c).filter(|&label| had[feature][label]) {
                let found = f64::from(state.weights.get(feature, label as u32));
                assert!((found - v[feature][label]).abs() < 1e-4);
                n_weights += 1;
            }
        }
        assert!(n_weights > d);
    }
}
