//! Visits to rows: search for labels that violate the margin, solve the block, update the weights.

use super::block;
use super::params::{Params, Search};
use super::problem::{Duals, Problem, State};
use super::weights::Weights;
use fastrand::Rng;
use manylabel_base::{Error, Watch, collected, copied, extend, filled, push};
use manylabel_sparse::TopK;

/// What memory is asked for in a visit.
const ACTIVE: &str = "active labels of a row";

/// Space for one row's scores, reused between rows.
pub(super) struct Scratch {
    pub(super) scores: Vec<f32>,
    pub(super) best: TopK,
    /// Scores of the active labels.
    pub(super) active: Vec<f64>,
    pub(super) b: Vec<f64>,
    pub(super) e: Vec<f64>,
    /// Labels whose duals change, and by how much.
    pub(super) changes: Vec<(u32, f32)>,
    /// Cumulated absolute values of a row.
    pub(super) sums: Vec<f64>,
}

/// Work of a pass and how far from the optimum it found the rows.
#[derive(Default)]
pub(super) struct Pass {
    pub(super) search: usize,
    pub(super) rest: usize,
    pub(super) gap: f64,
    pub(super) loss: f64,
}

impl Scratch {
    pub(super) fn new(n_labels: usize) -> Result<Self, Error> {
        Ok(Self {
            scores: filled("scores of a row", 0.0, n_labels)?,
            best: TopK::new(0)?,
            active: Vec::new(),
            b: Vec::new(),
            e: Vec::new(),
            changes: Vec::new(),
            sums: Vec::new(),
        })
    }
}

/// A fit under way.
pub(super) struct Fit<'a> {
    pub(super) params: &'a Params,
    pub(super) problem: &'a Problem,
    pub(super) rng: Rng,
    pub(super) n_candidates: usize,
    pub(super) scratch: Scratch,
}

impl Fit<'_> {
    /// Visits each of `rows` once.
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

    /// Keeps which weights are not zero and solves for these without `l1`.
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

    /// Takes what `rows` have taught back, and lets the other rows adapt to it.
    ///
    /// Without that the scores of the rows forgotten would be far too low for their labels. One pass
    /// searches and one does not: without a search, without a second pass, or with one over the rows
    /// farthest from the optimum alone, intercepts came out so large on some sets that ranks suffered.
    /// Few candidates do, as a row has few active labels; blocks of many would take most of the time.
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

    /// Scores the active labels of a row: one by one, or with all others where that is faster.
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

    /// Scores the active labels of a row one by one.
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

    /// Scores all labels and adds the best of those that are not active, if they violate the
    /// margin.
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

    /// As [`search_all`](Self::search_all), by estimates from some of the features.
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
            self.problem.x.n_cols as f64,
            self.problem.y.n_cols as f64,
        );
        let nnz = self.problem.x.indices.len() as f64;
        // One feature in so many (Yen et al., section 3.3, as their program has it).
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
        extend("features of a row", sums, cumulated)?;
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
        self.score_one_by_one(weights, row, duals, pass)?;
        let problem = self.problem;
        self.add_best(row, duals, |best| problem.score_of(weights, row, best.0))
    }

    /// Adds the labels of the best scores that are not active in a row; their scores proper are `exact`.
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
        // Yen et al.'s program takes what scores more than −1. Where a label of the row scores less than
        // 0, labels below −1 violate its margin as well; without them the optimum is missed.
        let positive = &active[..self.problem.y.row(row).0.len()];
        let least = positive.iter().copied().fold(0.0, f64::min);
        let lowest = least - 1.0;
        for &label in &duals.labels {
            scores[label as usize] = f32::NEG_INFINITY;
        }
        // Of equal scores, as all are at the beginning, those first seen from a random place on.
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

    /// Solves for the duals of the active set and carries their change over to the weights.
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
        // What nobody found does not violate the margin more.
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
    use manylabel_sparse::CsrOwned;

    /// `Σ_i α_i x_i`, feature by feature, label by label.
    fn sums_of_duals(problem: &Problem, state: &State) -> Vec<Vec<f64>> {
        let mut v = vec![vec![0.0; problem.y.n_cols]; problem.x.n_cols];
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
        let problem = Problem::new(x, y, None, &params).expect("in range");
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

        // Then without l1, on the support, and of some rows no trace.
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
