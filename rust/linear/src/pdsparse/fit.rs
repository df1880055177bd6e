//! Passes over the rows: search, solve the block, update the weights.

use super::block;
use super::held_out::{self, Block, Looks};
use super::params::{Checked, Params, Search};
use super::weights::Weights;
use crate::shape::same;
use fastrand::Rng;
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::{CsrOwned, CsrView, Index, TopK, Value};
use rayon::prelude::*;

/// Candidates per visit that growing their number ends at.
const MOST_CANDIDATES: usize = 100;

/// Held-out rows whose scores are looked at together: scores of 64 rows and 20,000 labels are 5 MB.
const ROWS_OF_LOOK: usize = 64;

/// Rows of a task of the passes that only score.
const ROWS_OF_TASK: usize = 256;

/// A fitted model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Weights of every feature: row j of (`n_features`, `n_labels`).
    pub weights: CsrOwned,
    /// −∞ for a label that no training row carries; (`n_labels`).
    pub intercept: Vec<f32>,
    /// The score above which as many labels are named on held-out rows as are true, if asked for and
    /// if there is one.
    pub cut: Option<f32>,
    /// Passes over the rows, those of the post-solve not counted.
    pub n_iter: usize,
    /// Primal plus (minimized) dual objective before the post-solve; 0 at the optimum.
    pub dual_gap: f64,
    /// Share of held-out rows whose best label is right, after each pass; empty if none are held out.
    pub validation: Vec<f64>,
}

/// What does not change in a fit. Features and labels are those that training rows have.
struct Problem {
    x: CsrOwned,
    /// Labels of the training rows; held-out rows have none.
    y: CsrOwned,
    /// `C m_i`.
    cost: Vec<f64>,
    /// `‖x_i‖²`.
    squares: Vec<f64>,
    /// Rows that have a say.
    order: Vec<u32>,
}

/// The duals of a row: first of all labels it carries, then of its active others.
#[derive(Debug, Clone, Default)]
struct Duals {
    labels: Vec<u32>,
    alpha: Vec<f64>,
}

/// What changes in a fit.
#[derive(Debug, Clone)]
struct State {
    weights: Weights,
    duals: Vec<Duals>,
}

/// Space for one row's scores, reused between rows.
struct Scratch {
    scores: Vec<f32>,
    best: TopK,
    /// Scores of the active labels.
    active: Vec<f64>,
    b: Vec<f64>,
    e: Vec<f64>,
    /// Labels whose duals change, and by how much.
    changes: Vec<(u32, f32)>,
    /// Cumulated absolute values of a row.
    sums: Vec<f64>,
}

/// Work of a pass and how far from the optimum it found the rows.
#[derive(Default)]
struct Pass {
    search: usize,
    rest: usize,
    gap: f64,
    loss: f64,
}

impl Checked {
    /// Fits weights to the rows of `x` and `y`, whose stored entries are the labels a row carries.
    ///
    /// `weights`, if given, multiplies the loss of each row; all are > 0. Rows marked in `held_out`
    /// are not trained on: after each pass the share of them whose best label is right is found, and
    /// the best pass counts. `watch` counts passes.
    ///
    /// A visit to row i takes `Σ_{j∈x_i} (weights of feature j) + n_labels` for an exact search. Rows
    /// come one after the other, on one thread; passes that only score use all.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the rows of `x`, `y`, `weights` and `held_out` differ, [`Error::Param`] if
    /// `C` is too large for single precision, [`Error::TooLarge`], [`Error::Stopped`].
    #[expect(
        clippy::too_many_lines,
        reason = "the algorithm's steps, one after the other"
    )]
    pub fn fit<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        y: &CsrOwned,
        weights: Option<&[f32]>,
        held_out: Option<&[bool]>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        let params = &self.0;
        let n = x.n_rows();
        for (what, got) in [
            ("rows of Y", y.n_rows()),
            ("length of sample_weight", weights.map_or(n, <[f32]>::len)),
            ("length of held_out", held_out.map_or(n, <[bool]>::len)),
        ] {
            same(what, n, got)?;
        }
        let is_held = |row: usize| held_out.is_some_and(|held_out| held_out[row]);

        let (n_features, n_labels) = (x.n_cols(), y.n_cols);
        let mut x = CsrOwned::from_view(x, params.normalize)?;
        let features = x.drop_empty_columns()?;
        let mut train = without(y, is_held);
        let labels = train.drop_empty_columns()?;
        watch.step(0)?;
        let problem = Problem::new(x, train, weights, params)?;
        let mut fit = Fit {
            params,
            problem: &problem,
            rng: Rng::with_seed(params.seed),
            n_candidates: params.n_candidates.unwrap_or_else(|| problem.mean_labels()),
            scratch: Scratch::new(labels.len()),
        };
        let mut state = State {
            weights: Weights::new(problem.x.n_cols, params.l1 as f32),
            duals: problem.empty_duals(),
        };

        let held: Vec<usize> = (0..n).filter(|&row| is_held(row)).collect();
        let mut validation = Vec::new();
        let mut best: Option<(f64, usize, State)> = None;
        let mut n_iter = 0;
        while n_iter < params.max_iter {
            let pass = fit.pass(&mut state, &problem.order, true, watch)?;
            n_iter += 1;
            watch.step(1)?;
            if held_out.is_some() {
                let precision = problem.precision(&state.weights, &held, &labels, y, watch)?;
                validation.push(precision);
                if best.as_ref().is_none_or(|(best, ..)| precision > *best) {
                    best = Some((precision, n_iter, state.clone()));
                }
                let since = best.as_ref().map_or(0, |(_, at, _)| n_iter - at);
                if since >= params.n_iter_no_change {
                    break;
                }
            }
            let (squares, sizes) = state.weights.norms();
            let primal = squares + params.l1 * sizes + pass.loss;
            if pass.gap <= params.tol * primal {
                break;
            }
            if params.n_candidates.is_none() && pass.search > 2 * pass.rest {
                fit.n_candidates = (2 * fit.n_candidates).min(MOST_CANDIDATES);
            }
        }
        let mut n_post = n_iter;
        let mut precision_of_best = None;
        if let Some((precision, at, of_best)) = best {
            (precision_of_best, n_post, state) = (Some(precision), at, of_best);
        }
        let dual_gap = problem.dual_gap(&state, params.l1, watch)?;
        // The weights before the post-solve, where they are better.
        let mut before = None;
        if params.post_solve && params.l1 > 0.0 {
            before = precision_of_best.map(|_| state.weights.clone());
            fit.post_solve(&mut state, n_post, watch)?;
            let precision = precision_of_best
                .map(|_| problem.precision(&state.weights, &held, &labels, y, watch))
                .transpose()?;
            if precision >= precision_of_best {
                before = None;
            }
        }
        let best = before.as_ref().unwrap_or(&state.weights);
        let found = best.to_csr(labels.len());
        let row_weight = |row: usize| weights.map_or(1.0, |weights| weights[row]);
        let trained_on = (0..n).filter(|&row| !is_held(row));
        let log_frequencies = log_frequencies(&problem.y, trained_on, row_weight);
        let (mut factor, mut cut) = (0.0, None);
        if params.fit_intercept || params.learn_cut {
            let looks = |rows: &[u32], y: &CsrOwned| {
                let wanted = rows.iter().map(|&row| {
                    let n_carried = y.row(row as usize).0.len();
                    f64::from(row_weight(row as usize)) * n_carried as f64
                });
                Looks::new(&log_frequencies, params.fit_intercept, wanted.sum())
            };
            let mut seen;
            if held_out.is_some() {
                let rows: Vec<u32> = held.iter().map(|&row| row as u32).collect();
                let known = |row: usize| {
                    let carried = y.row(row).0.iter();
                    let places = carried.filter_map(|label| labels.binary_search(label).ok());
                    places.map(|at| at as u32).collect()
                };
                seen = looks(&rows, y);
                problem.look(best, &rows, &mut seen, (known, row_weight), watch)?;
            } else {
                let parts = held_out::parts(n, params.seed);
                let known = |row: usize| problem.y.row(row).0.to_vec();
                seen = looks(&parts.concat(), &problem.y);
                for rows in &parts {
                    fit.forget(&mut state, rows, watch)?;
                    problem.look(&state.weights, rows, &mut seen, (known, row_weight), watch)?;
                }
            }
            (factor, cut) = seen.decide();
        }
        let mut intercept = vec![f32::NEG_INFINITY; n_labels];
        for (&label, log_frequency) in labels.iter().zip(&log_frequencies) {
            // Adding 0 makes -0 0.
            intercept[label as usize] = factor * log_frequency + 0.0;
        }
        Ok(Model {
            weights: spread(&found, &features, n_features, &labels, n_labels)?,
            intercept,
            cut: cut.filter(|_| params.learn_cut),
            n_iter,
            dual_gap,
            validation,
        })
    }
}

/// `y` with the rows that `is_left_out` names made empty.
fn without(y: &CsrOwned, is_left_out: impl Fn(usize) -> bool) -> CsrOwned {
    let mut out = CsrOwned {
        indptr: vec![0],
        indices: Vec::with_capacity(y.indices.len()),
        values: Vec::with_capacity(y.values.len()),
        n_cols: y.n_cols,
    };
    for row in 0..y.n_rows() {
        if !is_left_out(row) {
            let (labels, values) = y.row(row);
            out.indices.extend_from_slice(labels);
            out.values.extend_from_slice(values);
        }
        out.indptr.push(out.indices.len());
    }
    out
}

/// Gives rows and columns their places among all features and labels back.
fn spread(
    found: &CsrOwned,
    features: &[u32],
    n_features: usize,
    labels: &[u32],
    n_labels: usize,
) -> Result<CsrOwned, Error> {
    let mut indptr = filled("number of features", 0, n_features + 1)?;
    for (row, &feature) in features.iter().enumerate() {
        indptr[feature as usize + 1] = found.row(row).0.len();
    }
    for feature in 0..n_features {
        indptr[feature + 1] += indptr[feature];
    }
    Ok(CsrOwned {
        indptr,
        indices: found
            .indices
            .iter()
            .map(|&label| labels[label as usize])
            .collect(),
        values: found.values.clone(),
        n_cols: n_labels,
    })
}

/// The logarithms of the shares of `rows` that carry a label; half a row more does, of one row more, of
/// the mean weight, so that no label is certain.
fn log_frequencies(
    y: &CsrOwned,
    rows: impl Iterator<Item = usize>,
    weight: impl Fn(usize) -> f32,
) -> Vec<f32> {
    let (mut counts, mut total, mut n_rows) = (vec![0.0; y.n_cols], 0.0, 0.0);
    for row in rows {
        let weight = f64::from(weight(row));
        (total, n_rows) = (total + weight, n_rows + 1.0);
        for &label in y.row(row).0 {
            counts[label as usize] += weight;
        }
    }
    let mean = if total > 0.0 { total / n_rows } else { 1.0 };
    let shares = counts
        .iter()
        .map(|count| (count + 0.5 * mean) / (total + mean));
    shares.map(|share: f64| share.ln() as f32).collect()
}

impl Problem {
    fn new(
        x: CsrOwned,
        y: CsrOwned,
        weights: Option<&[f32]>,
        params: &Params,
    ) -> Result<Self, Error> {
        const LARGEST: f64 = 1e30;
        let n = x.n_rows();
        let squares: Vec<f64> = (0..n)
            .map(|row| x.row(row).1.iter().map(|&v| f64::from(v).powi(2)).sum())
            .collect();
        let cost: Vec<f64> = (0..n)
            .map(|row| params.c * weights.map_or(1.0, |weights| f64::from(weights[row])))
            .collect();
        let longest = squares.iter().copied().fold(1.0, f64::max);
        let magnitude = longest * cost.iter().sum::<f64>();
        if magnitude.is_nan() || magnitude > LARGEST {
            return Err(Error::Param {
                name: "C",
                expected: "such that C times the sum of sample_weight times the largest squared \
                           length of a row is at most 1e30 (see `normalize`)",
                got: format!("{magnitude:.1e}"),
            });
        }
        let has_a_say = |row: usize| {
            let n_positive = y.row(row).0.len();
            squares[row] > 0.0 && n_positive > 0 && n_positive < y.n_cols
        };
        Ok(Self {
            order: (0..n as u32)
                .filter(|&row| has_a_say(row as usize))
                .collect(),
            x,
            y,
            cost,
            squares,
        })
    }

    /// The mean number of labels of a row that has a say, as a number of candidates.
    fn mean_labels(&self) -> usize {
        let n_labels = self.y.indices.len();
        let mean = n_labels.div_ceil(self.order.len().max(1));
        mean.clamp(1, MOST_CANDIDATES)
    }

    fn empty_duals(&self) -> Vec<Duals> {
        let mut duals = vec![Duals::default(); self.x.n_rows()];
        for &row in &self.order {
            let labels = self.y.row(row as usize).0.to_vec();
            let alpha = vec![0.0; labels.len()];
            duals[row as usize] = Duals { labels, alpha };
        }
        duals
    }

    /// Writes the scores of all labels for a row; returns how many terms they have.
    fn score(&self, weights: &Weights, row: usize, scores: &mut [f32]) -> usize {
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
    fn score_of(&self, weights: &Weights, row: usize, label: u32) -> f64 {
        let (cols, values) = self.x.row(row);
        let terms = cols.iter().zip(values);
        terms
            .map(|(&col, &value)| f64::from(value) * f64::from(weights.get(col as usize, label)))
            .sum()
    }

    /// Share of rows, of those that carry a label, whose best label is one they carry.
    fn precision(
        &self,
        weights: &Weights,
        rows: &[usize],
        labels: &[u32],
        y: &CsrOwned,
        watch: &Watch,
    ) -> Result<f64, Error> {
        let n_right = rows.par_chunks(ROWS_OF_TASK).map(|rows| {
            let mut scores = vec![0.0; labels.len()];
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
        let n_right: usize = n_right.collect::<Result<Vec<_>, Error>>()?.iter().sum();
        let n_labeled = rows.iter().filter(|&&row| !y.row(row).0.is_empty()).count();
        Ok(n_right as f64 / n_labeled.max(1) as f64)
    }

    /// Lets `seen` look at the scores of `rows`. Of a row the labels it carries, of those that were
    /// trained on, and its weight are told.
    fn look(
        &self,
        weights: &Weights,
        rows: &[u32],
        seen: &mut Looks<'_>,
        (known, weight): (
            impl Fn(usize) -> Vec<u32> + Sync,
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
            let rows = rows.map(|row| (known(row), weight(row))).collect();
            seen.push(&Block { scores, rows });
        }
        Ok(())
    }

    fn dual_gap(&self, state: &State, l1: f64, watch: &Watch) -> Result<f64, Error> {
        let sums = self.order.par_chunks(ROWS_OF_TASK).map(|rows| {
            let mut scores = vec![0.0; self.y.n_cols];
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
        let sum: f64 = sums.collect::<Result<Vec<_>, Error>>()?.iter().sum();
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

impl Scratch {
    fn new(n_labels: usize) -> Self {
        Self {
            scores: vec![0.0; n_labels],
            best: TopK::new(0),
            active: Vec::new(),
            b: Vec::new(),
            e: Vec::new(),
            changes: Vec::new(),
            sums: Vec::new(),
        }
    }
}

/// A fit under way.
struct Fit<'a> {
    params: &'a Params,
    problem: &'a Problem,
    rng: Rng,
    n_candidates: usize,
    scratch: Scratch,
}

impl Fit<'_> {
    /// Visits each of `rows` once.
    fn pass(
        &mut self,
        state: &mut State,
        rows: &[u32],
        search: bool,
        watch: &Watch,
    ) -> Result<Pass, Error> {
        let mut order = rows.to_vec();
        self.rng.shuffle(&mut order);
        self.scratch.best = TopK::new(self.n_candidates);
        let mut pass = Pass::default();
        for row in order {
            watch.step(0)?;
            let row = row as usize;
            let duals = &mut state.duals[row];
            match (search, self.params.search) {
                (true, Search::Exact) => self.search_all(&state.weights, row, duals, &mut pass),
                (true, Search::Sampled) => self.search_some(&state.weights, row, duals, &mut pass),
                (false, _) => self.score_active(&state.weights, row, duals, &mut pass),
            }
            self.solve(state, row, &mut pass);
        }
        Ok(pass)
    }

    /// Keeps which weights are not zero and solves for these without `l1`.
    fn post_solve(
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
    fn forget(&mut self, state: &mut State, rows: &[u32], watch: &Watch) -> Result<(), Error> {
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
            changes.extend(pairs.map(|(&label, &alpha)| (label, -alpha as f32)));
            changes.retain(|&(_, change)| change != 0.0);
            state.weights.add_row((cols, values), changes, scores);
            duals.alpha.fill(0.0);
            duals.labels.truncate(n_positive);
            duals.alpha.truncate(n_positive);
        }
        let mut others = problem.order.clone();
        others.retain(|row| rows.binary_search(row).is_err());
        let kept = std::mem::replace(&mut self.n_candidates, problem.mean_labels());
        self.pass(state, &others, true, watch)?;
        self.n_candidates = kept;
        self.pass(state, &others, false, watch)?;
        Ok(())
    }

    /// Scores the active labels of a row: one by one, or with all others where that is faster.
    fn score_active(&mut self, weights: &Weights, row: usize, duals: &Duals, pass: &mut Pass) {
        let Scratch { scores, active, .. } = &mut self.scratch;
        let cols = self.problem.x.row(row).0;
        if !weights.is_faster_to_walk(cols, scores.len(), duals.labels.len()) {
            return self.score_one_by_one(weights, row, duals, pass);
        }
        pass.rest += self.problem.score(weights, row, scores);
        let scores = duals.labels.iter().map(|&label| scores[label as usize]);
        active.clear();
        active.extend(scores.map(f64::from));
    }

    /// Scores the active labels of a row one by one.
    fn score_one_by_one(&mut self, weights: &Weights, row: usize, duals: &Duals, pass: &mut Pass) {
        let scores = duals
            .labels
            .iter()
            .map(|&label| self.problem.score_of(weights, row, label));
        self.scratch.active.clear();
        self.scratch.active.extend(scores);
        pass.rest += self.problem.x.row(row).0.len() * duals.labels.len();
    }

    /// Scores all labels and adds the best of those that are not active, if they violate the
    /// margin.
    fn search_all(&mut self, weights: &Weights, row: usize, duals: &mut Duals, pass: &mut Pass) {
        let Scratch { scores, active, .. } = &mut self.scratch;
        let n_terms = self.problem.score(weights, row, scores);
        pass.search += n_terms + scores.len() / 8;
        active.clear();
        active.extend(
            duals
                .labels
                .iter()
                .map(|&label| f64::from(scores[label as usize])),
        );
        self.add_best(duals, |best| f64::from(best.1));
    }

    /// As [`search_all`](Self::search_all), by estimates from some of the features.
    fn search_some(&mut self, weights: &Weights, row: usize, duals: &mut Duals, pass: &mut Pass) {
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
        sums.extend(values.iter().map(|&value| {
            sum += f64::from(value.abs());
            sum
        }));
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
        self.score_one_by_one(weights, row, duals, pass);
        let problem = self.problem;
        self.add_best(duals, |best| problem.score_of(weights, row, best.0));
    }

    /// Adds the labels of the best scores that are not active; their scores proper are `exact`.
    fn add_best(&mut self, duals: &mut Duals, exact: impl Fn((u32, f32)) -> f64) {
        let Scratch {
            scores,
            best,
            active,
            ..
        } = &mut self.scratch;
        for &label in &duals.labels {
            scores[label as usize] = f32::NEG_INFINITY;
        }
        // Of equal scores, as all are at the beginning, those first seen from a random place on.
        let start = self.rng.usize(..scores.len());
        let (before, from) = scores.split_at(start);
        let mut number = 0;
        for part in [from, before] {
            for chunk in part.chunks(16) {
                let floor = best.floor().max(-1.0);
                if chunk
                    .iter()
                    .fold(f32::NEG_INFINITY, |best, &score| best.max(score))
                    > floor
                {
                    for (number, &score) in (number..).zip(chunk) {
                        if score > -1.0 {
                            best.push(number, score);
                        }
                    }
                }
                number += chunk.len() as u32;
            }
        }
        let (start, n_labels) = (start as u32, scores.len() as u32);
        best.drain_by_label(|number, score| {
            let label = (number + start) % n_labels;
            let score = exact((label, score));
            if score > -1.0 {
                duals.labels.push(label);
                duals.alpha.push(0.0);
                active.push(score);
            }
        });
    }

    /// Solves for the duals of the active set and carries their change over to the weights.
    fn solve(&mut self, state: &mut State, row: usize, pass: &mut Pass) {
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
        e.clear();
        e.extend(
            pairs
                .clone()
                .take(n_positive)
                .map(|(alpha, score)| alpha - score / square),
        );
        b.clear();
        b.extend(
            pairs
                .skip(n_positive)
                .map(|(alpha, score)| (1.0 + score) / square - alpha),
        );
        if b.is_empty() {
            return;
        }
        block::solve(b, e, cost);

        let (cols, values) = problem.x.row(row);
        let new = e.iter().copied().chain(b.iter().map(|&u| -u));
        changes.clear();
        for ((&label, alpha), new) in duals.labels.iter().zip(&mut duals.alpha).zip(new) {
            let change = (new - *alpha) as f32;
            *alpha = new;
            if change != 0.0 {
                changes.push((label, change));
            }
        }
        pass.rest += cols.len() * changes.len();
        state.weights.add_row((cols, values), changes, scores);
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            weights: Weights::new(d, 0.05),
            duals: problem.empty_duals(),
        };
        let mut fit = Fit {
            params: &params,
            problem: &problem,
            rng: Rng::with_seed(1),
            n_candidates: 2,
            scratch: Scratch::new(c),
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
