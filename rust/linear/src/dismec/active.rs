//! Computes the weights of a rare label from only a few rows.
//!
//! The *working set* consists of the positive rows of the label, and of the negative rows that violate
//! the margin. All other rows form the *background*. The solver replaces the background by one negative
//! row. The features of this row are the mean m of all rows, and its cost is the sum of the costs of
//! the background rows. The loss is convex, so the loss of the replacement is a lower bound of the loss
//! of the background. The two losses are equal if all background rows have the same score. Dual
//! coordinate descent (Hsieh et al., ICML 2008, algorithms 1 and 3) finds a dual variable α for each
//! row of the working set, and one dual variable κ for the background:
//!
//! ```text
//! w = Σ_i s_i α_i x_i − κ m,    α_i, κ ≥ 0
//! ```
//!
//! Here, `x_i` is row i of the working set, and `s_i` is 1 if the row is positive and −1 if it is negative.
//! `m · x_i` is computed once for all labels. So a step takes O(entries of the row) time for a row, and O(1)
//! time for the background. The mean m of all rows differs only slightly from the mean of the background,
//! because the working set has few rows.
//!
//! Rows for which the label is unknown are neither in the working set nor in the background. For a label with
//! such rows, m is the mean of the rows for which the label is known:
//!
//! ```text
//! m_known = m + m_rest,    m_rest = (u m − Σ_unknown cost_i x_i) / (total − u)
//! ```
//!
//! Here, u is the cost of the unknown rows, and total is the cost of all rows. `m_rest` is computed once for
//! each label. `m_known · x_i` is computed once for each row of the working set. To score all rows, the
//! solver adds `−κ m_rest` to the weights. So unknown rows need no approximation, and a step takes as long as for a
//! label without unknown rows.
//!
//! The first run of coordinate descent uses only the positive rows. Then [`Effort::searches`]
//! searches follow. A search computes approximate scores of all rows for thirty-two labels in one pass
//! (see `packed.rs`), and keeps the worst
//! violators of each label. These violators are added to the working set in up to [`Effort::joins`]
//! portions, the worst violators first. Coordinate descent runs again after each portion. When the
//! worst violators have been added, most other violators no longer violate the margin.
//!
//! Each run of coordinate descent has its own random number generator. Its seed depends on the label and the
//! size of the working set. So the labels that are solved together do not influence each other, except that
//! one search suffices if all of them continue an earlier fit. In the shapes
//! of arrays, n is the number of rows, and dim is the number of features, including the feature for the
//! intercept.

use super::effort::Effort;
use super::packed::{GROUP, Group, Packed, Scores, Shifted, pack, times_packed};
use super::problem::Problem;
use super::start::{Carry, Start};
use super::targets::{Factors, UNKNOWN_SCORE};
use super::unseen::Unseen;
use crate::panel::{LANES, Lanes, above, interleave, times_panel};
use fastrand::Rng;
use manylabel_base::{Error, Watch, extend, few, filled, push};

/// A negative row counts as a violator of the margin if its score exceeds −1 by more than this
/// number. Rows with scores closer to −1 have little loss, and there are many of them.
const MARGIN: f32 = 0.1;

/// A search also finds rows whose approximate score is lower than that of a violator by at most this number. The exact
/// scores of the rows that join first then decide which of them violate the margin. Rounded weights change the scores of
/// rows of unit length by about 0.002. Longer rows have larger errors, so a search then misses some violators near the
/// margin. A row that a search misses has a loss of about `MARGIN²`.
const SLACK: f32 = 0.01;

/// The number of steps for rows of the working set between two steps for the background. The working set
/// consists of the rows that the solver uses for a label, and all other rows form the background.
const BACKGROUND_EVERY: usize = 16;

/// The largest number of passes that adapt the weights to the rows that are not held out.
const PASSES_TO_UNLEARN: usize = 3;

/// A label carries at most `n₊ + max(4 n₊, 200)` rows to a fit to similar rows, where n₊ is the number of its positive
/// rows. Negative rows with large dual variables are preferred. These are two portions of
/// [`Effort::OF_BLOCK`](super::Effort::OF_BLOCK).
const CARRIED_PER_POSITIVE: usize = 4;

/// See [`CARRIED_PER_POSITIVE`].
const LEAST_CARRIED: usize = 200;

/// Number of rows scored between two checks for a stop request.
const ROWS_PER_STEP: usize = 1 << 12;

/// Name of growing vectors in error messages about memory.
const IN_PLAY: &str = "number of rows in the working set";

/// The state of one label in the solver.
#[derive(Debug, Default)]
struct Lane {
    /// The weights without the term of the background (the rows outside the working set),
    /// `Σ_i s_i α_i x_i`; shape (dim).
    weights: Vec<f32>,
    /// The working set: the rows that the solver uses for the label. The positive rows come first.
    /// Then come the negative rows, in the order in which they were added.
    rows: Vec<u32>,
    /// The number of positive rows in `rows`.
    n_positive: usize,
    /// The dual variable of each row in `rows`.
    alpha: Vec<f32>,
    /// The dot product of each row in `rows` and the mean row of the label.
    dots: Vec<f32>,
    /// The factors by which the costs of positive rows and of negative rows are multiplied.
    factors: Factors,
    /// The rows for which the label is unknown.
    unknown: Vec<u32>,
    /// `m_rest`: the mean row of the label minus the mean of all rows; shape (dim). It is not valid if the label
    /// has no unknown rows. It is empty until the first label with unknown rows.
    rest: Vec<f32>,
    /// The squared length of the mean row of the label.
    mean_square: f64,
    /// The dual variable κ of the background, which consists of the rows outside the working set.
    kappa: f64,
    /// The dot product of `weights` and the mean row of the label. It is updated with each step.
    mean_dot: f64,
    /// The sum of the costs of the rows outside the working set (the background).
    background_cost: f64,
    /// Rows that the last search found, with their scores. They have not been added to the working set yet.
    found: Vec<(f32, u32)>,
    /// The number of passes in the longest run of coordinate descent so far.
    passes: usize,
}

/// The vectors for one panel, which is a group of thirty-two labels. They are reused for the next
/// panel.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The states of the labels of the panel. There are always [`GROUP`] states.
    lanes: Vec<Lane>,
    /// The rounded weights of all labels, interleaved for searches; shape (dim).
    packed: Vec<Packed>,
    /// The approximate scores of up to [`ROWS_PER_STEP`] rows.
    scores: Vec<Scores>,
    /// The weights of sixteen labels, interleaved for scoring held-out rows; shape (dim). It is empty until the
    /// first call of [`unlearn`].
    panel: Vec<Lanes>,
    /// For each row, the labels whose working set contains the row; shape (n).
    in_play: Vec<Group>,
    /// The order in which coordinate descent visits the rows of the working set.
    order: Vec<u32>,
}

impl Workspace {
    /// Allocates the vectors that are needed to fit groups of thirty-two labels of `problem`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the vectors do not fit in memory.
    pub(crate) fn new(problem: &Problem<'_>) -> Result<Self, Error> {
        let (n, dim) = (problem.n_rows(), problem.dim());
        let lanes = (0..GROUP).map(|_| {
            Ok(Lane {
                weights: filled("number of features", 0.0, dim)?,
                ..Lane::default()
            })
        });
        Ok(Self {
            lanes: few::<_, Result<_, Error>>(lanes)?,
            packed: filled("number of features", Packed::default(), dim)?,
            scores: filled("number of scores", Scores::default(), ROWS_PER_STEP.min(n))?,
            panel: Vec::new(),
            in_play: filled("number of rows", 0, n)?,
            order: Vec::new(),
        })
    }

    /// Returns the weights of one of the labels of the panel, in the order of the columns of
    /// `Problem::x`.
    pub(crate) fn weights(&self, lane: usize) -> &[f32] {
        &self.lanes[lane].weights
    }

    /// Returns the state of one of the labels that [`solve`] has just solved. Of the negative rows, only those with
    /// the largest dual variables are kept.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if it does not fit in memory.
    pub(crate) fn carry(&self, lane: usize) -> Result<Carry, Error> {
        let lane = &self.lanes[lane];
        let mut duals = Vec::new();
        for (at, (&row, &alpha)) in lane.rows.iter().zip(&lane.alpha).enumerate() {
            if alpha > 0.0 {
                push(IN_PLAY, &mut duals, (row, lane.sign(at) as f32 * alpha))?;
            }
        }
        let n_negatives = (CARRIED_PER_POSITIVE * lane.n_positive).max(LEAST_CARRIED);
        let n_kept = lane.n_positive + n_negatives;
        if duals.len() > n_kept {
            // All positive rows come before the negative rows.
            let key = |&(row, dual): &(u32, f32)| (dual < 0.0, dual.min(0.0), row);
            duals.select_nth_unstable_by(n_kept, |a, b| {
                let (a, b) = (key(a), key(b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
            });
            duals.truncate(n_kept);
        }
        duals.sort_unstable_by_key(|&(row, _)| row);
        Ok(Carry::Duals(duals))
    }

    /// Returns the weights that the last call of [`unlearn`] computed, with one lane for each label; shape
    /// (dim).
    pub(crate) fn unlearned(&self) -> &[Lanes] {
        &self.panel
    }
}

/// The stopping rule and the seed of a run of coordinate descent.
struct Rule {
    /// The run ends when the largest and the smallest projected gradient differ by at most this
    /// number.
    tol: f64,
    /// The largest number of passes over the working set.
    max_iter: usize,
    /// The seed that the user gave.
    seed: u64,
}

/// Computes the weights of up to [`GROUP`] rare labels and leaves them in `space`. Returns, for
/// each label, the number of passes in its longest run of coordinate descent. This number is
/// `max_iter` if a run did not converge.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
/// requested a stop.
pub(crate) fn solve(
    problem: &Problem<'_>,
    labels: &[u32],
    from: Option<&Start>,
    params: &super::Params,
    effort: &Effort,
    space: &mut Workspace,
    watch: &Watch,
) -> Result<[usize; GROUP], Error> {
    let rule = Rule {
        tol: effort.dual_tol * params.tol,
        max_iter: params.max_iter,
        seed: params.seed,
    };
    let Workspace {
        lanes,
        packed,
        scores,
        in_play,
        order,
        ..
    } = space;
    let lanes = &mut lanes[..labels.len()];
    in_play.fill(0);
    let mut n_started = 0;
    for (at, (lane, &label)) in lanes.iter_mut().zip(labels).enumerate() {
        lane.begin(problem, label)?;
        if let Some(duals) = from.and_then(|from| from.duals(label)) {
            lane.resume(problem, duals)?;
            n_started += 1;
        }
        // Unknown rows never join the working set.
        for &row in lane.rows.iter().chain(&lane.unknown) {
            in_play[row as usize] |= 1 << at;
        }
        lane.descend(problem, &rule, label, order, watch)?;
    }
    // The carried rows include most of the rows that violate the margin.
    let searches = if n_started == labels.len() {
        1
    } else {
        effort.searches
    };
    for _ in 0..searches {
        search(problem, effort, lanes, packed, scores, in_play, watch)?;
        for (at, (lane, &label)) in lanes.iter_mut().zip(labels).enumerate() {
            for join in 0..effort.joins {
                if join > 0 {
                    lane.rescore_found(problem, usize::MAX);
                }
                let joined = lane.join_worst(problem, effort)?;
                if joined == 0 {
                    break;
                }
                for &row in &lane.rows[lane.rows.len() - joined..] {
                    in_play[row as usize] |= 1 << at;
                }
                lane.descend(problem, &rule, label, order, watch)?;
            }
        }
    }
    let mut n_iter = [0; GROUP];
    for (lane, n_iter) in lanes.iter_mut().zip(&mut n_iter) {
        lane.add_background(problem);
        *n_iter = lane.passes;
    }
    Ok(n_iter)
}

/// Adapts the weights of up to sixteen of the labels that were solved last to the rows that are not held out. Then
/// calls `tell` with each held-out row and its scores. `first` is the position of the first of these labels.
///
/// The held-out rows are removed from the working sets, and their terms are subtracted from the
/// weights, which are weighted sums of rows. Coordinate descent then adapts the dual variables of
/// the other rows. No search for more rows follows, because removing a tenth of the rows hardly
/// changes which rows violate the margin. The weights in `space` are overwritten.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory, [`Error::Stopped`] if the caller requested a
/// stop, or any error of `tell`.
pub(crate) fn unlearn(
    problem: &Problem<'_>,
    unseen: &Unseen,
    (first, labels): (usize, &[u32]),
    params: &super::Params,
    space: &mut Workspace,
    watch: &Watch,
    mut tell: impl FnMut(u32, &[f32; LANES]) -> Result<(), Error>,
) -> Result<(), Error> {
    let rule = Rule {
        tol: Effort::FULL.dual_tol * params.tol,
        max_iter: PASSES_TO_UNLEARN,
        seed: params.seed,
    };
    if space.panel.is_empty() {
        space.panel = filled("number of features", Lanes::default(), problem.dim())?;
    }
    let panel = &mut space.panel;
    let lanes = &mut space.lanes[first..first + labels.len()];
    for (lane, &label) in lanes.iter_mut().zip(labels) {
        lane.forget(problem, unseen);
        lane.descend(problem, &rule, label, &mut space.order, watch)?;
        lane.add_background(problem);
    }
    interleave(&lanes.iter().map(|lane| &lane.weights[..]), panel);
    space.in_play.fill(0);
    for (at, lane) in lanes.iter().enumerate() {
        for &row in &lane.unknown {
            space.in_play[row as usize] |= 1 << at;
        }
    }
    let mut scores = [Lanes::default()];
    for &row in &unseen.rows {
        times_panel(problem.x.view(), row as usize, panel, &mut scores);
        let mut unknown = space.in_play[row as usize];
        while unknown != 0 {
            scores[0].0[unknown.trailing_zeros() as usize] = UNKNOWN_SCORE;
            unknown &= unknown - 1;
        }
        tell(row, &scores[0].0)?;
    }
    watch.step(0)
}

/// Scores all rows for up to thirty-two labels. For each label, keeps the rows outside its working set that
/// violate the margin most. The time is O(nnz(X)).
fn search(
    problem: &Problem<'_>,
    effort: &Effort,
    lanes: &mut [Lane],
    packed: &mut [Packed],
    scores: &mut [Scores],
    in_play: &[Group],
    watch: &Watch,
) -> Result<(), Error> {
    for lane in lanes.iter_mut() {
        lane.found.clear();
        lane.shift(-lane.kappa as f32);
    }
    let labels: Vec<Shifted<'_>> = few(lanes
        .iter()
        .map(|lane| (&lane.weights[..], lane.kappa as f32)));
    pack(&labels, &problem.mean, packed);
    for lane in lanes.iter_mut() {
        lane.shift(lane.kappa as f32);
    }
    // Lanes without a label have the score 0.
    let used = Group::MAX >> (GROUP - lanes.len());
    for first in (0..problem.n_rows()).step_by(ROWS_PER_STEP) {
        watch.step(0)?;
        let n_rows = ROWS_PER_STEP.min(problem.n_rows() - first);
        let scores = &mut scores[..n_rows];
        times_packed(problem.x.view(), first, packed, scores);
        for (row, scores) in (first..).zip(scores) {
            let half = |at: usize| Group::from(above(&scores[at], MARGIN - 1.0 - SLACK));
            let mut violated = half(0) | half(1) << LANES;
            violated &= !in_play[row] & used;
            while violated != 0 {
                let at = violated.trailing_zeros() as usize;
                push(
                    "number of violators",
                    &mut lanes[at].found,
                    (scores[at / LANES].0[at % LANES], row as u32),
                )?;
                violated &= violated - 1;
            }
        }
    }
    for lane in lanes {
        let kept = effort.joins_kept * lane.n_joining(effort);
        if lane.found.len() > kept {
            lane.found.select_nth_unstable_by(kept, worst_first);
            lane.found.truncate(kept);
        }
        // The first portion is chosen next.
        let n_joining = lane.n_joining(effort);
        if lane.found.len() > n_joining {
            lane.found.select_nth_unstable_by(n_joining, worst_first);
        }
        lane.rescore_found(problem, n_joining);
    }
    Ok(())
}

/// Orders rows that violate the margin by decreasing score, so that the worst violator comes first.
/// If scores are equal, the row with the lower number comes first.
#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that sorting needs"
)]
fn worst_first(a: &(f32, u32), b: &(f32, u32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

impl Lane {
    /// Starts a new label. All weights are 0. The working set contains the positive rows, and all
    /// other rows are in the background.
    fn begin(&mut self, problem: &Problem<'_>, label: u32) -> Result<(), Error> {
        self.weights.fill(0.0);
        self.rows.clear();
        extend(
            IN_PLAY,
            &mut self.rows,
            problem.positives(label).iter().copied(),
        )?;
        self.n_positive = self.rows.len();
        self.alpha.clear();
        extend(IN_PLAY, &mut self.alpha, self.rows.iter().map(|_| 0.0))?;
        (self.kappa, self.mean_dot, self.passes) = (0.0, 0.0, 0);
        self.factors = problem.factors(label);
        self.background_cost = problem.total_cost;
        for &row in &self.rows {
            self.background_cost -= f64::from(problem.cost[row as usize]);
        }
        self.forget_unknown(problem, label)?;
        self.dots.clear();
        for at in 0..self.rows.len() {
            let dot = self.mean_dot_of(problem, self.rows[at]);
            push(IN_PLAY, &mut self.dots, dot)?;
        }
        Ok(())
    }

    /// Continues with dual variables of an earlier fit. Negative rows with dual variables join the working set.
    fn resume(&mut self, problem: &Problem<'_>, duals: &[(u32, f32)]) -> Result<(), Error> {
        let mut at = 0;
        for &(row, dual) in duals {
            if dual < 0.0 {
                push(IN_PLAY, &mut self.rows, row)?;
                push(IN_PLAY, &mut self.alpha, -dual)?;
                let dot = self.mean_dot_of(problem, row);
                push(IN_PLAY, &mut self.dots, dot)?;
                self.background_cost -= f64::from(problem.cost[row as usize]);
                continue;
            }
            // Both lists of positive rows are in increasing order.
            while self.rows[at] < row {
                at += 1;
            }
            self.alpha[at] = dual;
        }
        for at in 0..self.rows.len() {
            let change = self.sign(at) * f64::from(self.alpha[at]);
            if change != 0.0 {
                self.mean_dot += change * f64::from(self.dots[at]);
                self.add_row(problem, self.rows[at] as usize, change as f32);
            }
        }
        Ok(())
    }

    /// Removes the rows for which the label is unknown from the background and from the mean row.
    fn forget_unknown(&mut self, problem: &Problem, label: u32) -> Result<(), Error> {
        let rows = problem.unknown(label);
        self.unknown.clear();
        extend(IN_PLAY, &mut self.unknown, rows.iter().copied())?;
        self.mean_square = problem.mean_square;
        if rows.is_empty() {
            return Ok(());
        }
        if self.rest.is_empty() {
            self.rest = filled("number of features", 0.0, problem.dim())?;
        }
        self.rest.fill(0.0);
        let mut cost_unknown = 0.0;
        for &row in rows {
            let cost = problem.cost[row as usize];
            cost_unknown += f64::from(cost);
            let (cols, values) = problem.x.row(row as usize);
            for (&col, &value) in cols.iter().zip(values) {
                self.rest[col as usize] += cost * value;
            }
        }
        self.background_cost -= cost_unknown;
        let cost_known = problem.total_cost - cost_unknown;
        self.mean_square = 0.0;
        for (rest, &mean) in self.rest.iter_mut().zip(&problem.mean) {
            let mean = f64::from(mean);
            let known = (cost_unknown * mean - f64::from(*rest)) / cost_known;
            *rest = known as f32;
            self.mean_square += (mean + known).powi(2);
        }
        Ok(())
    }

    /// Adds `scale` times `m_rest` to the weights. Does nothing if the label is known for all rows.
    fn shift(&mut self, scale: f32) {
        if !self.unknown.is_empty() {
            add_scaled(scale, &self.rest, &mut self.weights);
        }
    }

    /// Returns the dot product of a row and the mean row of the label.
    fn mean_dot_of(&self, problem: &Problem, row: u32) -> f32 {
        let dot = problem.mean_dot[row as usize];
        if self.unknown.is_empty() {
            return dot;
        }
        let (cols, values) = problem.x.row(row as usize);
        dot + sparse_dot(cols, values, &self.rest)
    }

    /// Returns the cost of a row of the working set.
    fn cost(&self, problem: &Problem, at: usize) -> f32 {
        let factor = if at < self.n_positive {
            self.factors.positive
        } else {
            self.factors.negative
        };
        factor * problem.cost[self.rows[at] as usize]
    }

    /// Returns the number of rows in a portion. Negative rows that violate the margin are added to the
    /// working set in portions.
    fn n_joining(&self, effort: &Effort) -> usize {
        (effort.join_per_positive * self.n_positive).max(effort.min_join)
    }

    /// Returns the score of a row. It includes the term of the background (the rows outside the
    /// working set). `dot` is the dot product of the row and the mean row of the label.
    fn score(&self, problem: &Problem<'_>, row: u32, dot: f32) -> f32 {
        let (cols, values) = problem.x.row(row as usize);
        sparse_dot(cols, values, &self.weights) - self.kappa as f32 * dot
    }

    /// Computes the exact scores of the first `most` found rows that have not been added to the working set.
    fn rescore_found(&mut self, problem: &Problem<'_>, most: usize) {
        let mut found = std::mem::take(&mut self.found);
        for (score, row) in found.iter_mut().take(most) {
            *score = self.score(problem, *row, self.mean_dot_of(problem, *row));
        }
        self.found = found;
    }

    /// Adds one portion of violators to the working set: the violators with the highest scores that
    /// still violate the margin. They are added in increasing order of their row numbers. Returns
    /// the number of rows added.
    fn join_worst(&mut self, problem: &Problem<'_>, effort: &Effort) -> Result<usize, Error> {
        let n_joining = self.n_joining(effort);
        // Move the violators to the front. If there are more than `n_joining`, move the worst of them to the
        // front.
        let mut n_violators = 0;
        for at in 0..self.found.len() {
            if self.found[at].0 > MARGIN - 1.0 {
                self.found.swap(at, n_violators);
                n_violators += 1;
            }
        }
        if n_violators > n_joining {
            self.found[..n_violators].select_nth_unstable_by(n_joining, worst_first);
            n_violators = n_joining;
        }
        self.found[..n_violators].sort_unstable_by_key(|&(_, row)| row);
        for at in 0..n_violators {
            let row = self.found[at].1;
            push(IN_PLAY, &mut self.rows, row)?;
            push(IN_PLAY, &mut self.alpha, 0.0)?;
            let dot = self.mean_dot_of(problem, row);
            push(IN_PLAY, &mut self.dots, dot)?;
            self.background_cost -= f64::from(problem.cost[row as usize]);
        }
        self.found.drain(..n_violators);
        Ok(n_violators)
    }

    /// Runs dual coordinate descent over the working set and the background, with shrinking. The
    /// run ends when the largest and the smallest projected gradient of a pass differ by at most
    /// `rule.tol`.
    ///
    /// Each pass visits the active rows in a new random order. A pass takes O(entries of these
    /// rows) time.
    fn descend(
        &mut self,
        problem: &Problem<'_>,
        rule: &Rule,
        label: u32,
        order: &mut Vec<u32>,
        watch: &Watch,
    ) -> Result<(), Error> {
        // Each run has its own generator, so it does not depend on the other labels of the panel.
        let mut rng = Rng::with_seed(rule.seed ^ (u64::from(label) << 32) ^ self.rows.len() as u64);
        order.clear();
        extend(IN_PLAY, order, 0..self.rows.len() as u32)?;
        let mut n_active = order.len();
        // Shrinking skips a variable at 0 if its gradient exceeds the largest projected gradient of the last
        // pass.
        let mut shrink_above = f64::INFINITY;
        let mut passes = 0;
        while passes < rule.max_iter {
            watch.step(0)?;
            passes += 1;
            rng.shuffle(&mut order[..n_active]);
            let (mut largest, mut smallest) = (f64::NEG_INFINITY, f64::INFINITY);
            let mut at = 0;
            while at < n_active {
                if at % BACKGROUND_EVERY == 0 {
                    self.step_background(problem);
                }
                let (gradient, projected) = self.gradient(problem, order[at] as usize);
                if projected == 0.0 && gradient > shrink_above {
                    n_active -= 1;
                    order.swap(at, n_active);
                    continue;
                }
                largest = largest.max(projected);
                smallest = smallest.min(projected);
                if projected != 0.0 {
                    self.step(problem, order[at] as usize, gradient);
                }
                at += 1;
            }
            if largest - smallest <= rule.tol {
                if n_active == order.len() {
                    break;
                }
                // The descent has converged on the active variables, so check all variables again.
                n_active = order.len();
                shrink_above = f64::INFINITY;
            } else {
                shrink_above = if largest > 0.0 {
                    largest
                } else {
                    f64::INFINITY
                };
            }
        }
        self.passes = self.passes.max(passes);
        Ok(())
    }

    /// Returns the sign `s_i` of a row of the working set: 1 for a positive row, −1 for a negative
    /// row.
    fn sign(&self, at: usize) -> f64 {
        if at < self.n_positive { 1.0 } else { -1.0 }
    }

    /// Returns the gradient of the dual objective for a row of the working set, and the projected
    /// gradient for the constraint `α ≥ 0`.
    fn gradient(&self, problem: &Problem<'_>, at: usize) -> (f64, f64) {
        let row = self.rows[at];
        let alpha = f64::from(self.alpha[at]);
        let score = f64::from(self.score(problem, row, self.dots[at]));
        let gradient = self.sign(at) * score - 1.0 + alpha / f64::from(self.cost(problem, at));
        (
            gradient,
            if alpha == 0.0 {
                gradient.min(0.0)
            } else {
                gradient
            },
        )
    }

    /// Minimizes the dual objective over the dual variable of one row of the working set. Then
    /// updates the weights.
    fn step(&mut self, problem: &Problem<'_>, at: usize, gradient: f64) {
        let row = self.rows[at] as usize;
        let ease = f64::from(self.cost(problem, at)).recip();
        let curvature = f64::from(problem.row_squares[row]) + ease;
        let alpha = f64::from(self.alpha[at]);
        let new = (alpha - gradient / curvature).max(0.0) as f32;
        let change = self.sign(at) * (f64::from(new) - alpha);
        self.alpha[at] = new;
        self.mean_dot += change * f64::from(self.dots[at]);
        self.add_row(problem, row, change as f32);
    }

    /// Adds `scale` times a row to the weights.
    fn add_row(&mut self, problem: &Problem<'_>, row: usize, scale: f32) {
        let (cols, values) = problem.x.row(row);
        for (&col, &value) in cols.iter().zip(values) {
            self.weights[col as usize] += scale * value;
        }
    }

    /// Minimizes the dual objective over the dual variable of the background (the rows outside the
    /// working set).
    fn step_background(&mut self, problem: &Problem<'_>) {
        // If the working set contains all rows, the cost of the background consists only of
        // rounding errors.
        if self.background_cost <= 1e-9 * problem.total_cost {
            self.kappa = 0.0;
            return;
        }
        let ease = (f64::from(self.factors.negative) * self.background_cost).recip();
        let score = self.mean_dot - self.kappa * self.mean_square;
        let gradient = -score - 1.0 + ease * self.kappa;
        self.kappa = (self.kappa - gradient / (self.mean_square + ease)).max(0.0);
    }

    /// Adds the term of the background (the rows outside the working set) to the weights. It is
    /// `−κ m`, where m is the mean row and κ is the dual variable of the background.
    fn add_background(&mut self, problem: &Problem<'_>) {
        add_scaled(-self.kappa as f32, &problem.mean, &mut self.weights);
        self.shift(-self.kappa as f32);
    }

    /// Removes the held-out rows from the working set and from the background. Subtracts their
    /// terms from the weights. Also subtracts the term of the background, which
    /// [`add_background`](Self::add_background) added.
    fn forget(&mut self, problem: &Problem<'_>, unseen: &Unseen) {
        add_scaled(self.kappa as f32, &problem.mean, &mut self.weights);
        self.shift(self.kappa as f32);
        let mut n_left = 0;
        let mut n_positive = 0;
        self.background_cost = unseen.total_cost;
        for &row in &self.unknown {
            self.background_cost -= f64::from(unseen.cost[row as usize]);
        }
        for at in 0..self.rows.len() {
            let (row, alpha) = (self.rows[at] as usize, self.alpha[at]);
            if unseen.cost[row] > 0.0 {
                (self.rows[n_left], self.alpha[n_left]) = (row as u32, alpha);
                self.dots[n_left] = self.dots[at];
                n_left += 1;
                n_positive += usize::from(at < self.n_positive);
                self.background_cost -= f64::from(problem.cost[row]);
                continue;
            }
            let change = -self.sign(at) * f64::from(alpha);
            self.mean_dot += change * f64::from(self.dots[at]);
            self.add_row(problem, row, change as f32);
        }
        self.rows.truncate(n_left);
        self.alpha.truncate(n_left);
        self.dots.truncate(n_left);
        self.n_positive = n_positive;
    }
}

/// Returns `Σ_j values_j w[cols_j]`. Four partial sums are used, so that no addition waits for the
/// previous addition.
#[inline]
fn sparse_dot(cols: &[u32], values: &[f32], w: &[f32]) -> f32 {
    let (mut a, mut b, mut c, mut d) = (0.0f32, 0.0f32, 0.0f32, 0.0f32);
    let (cols4, values4) = (cols.chunks_exact(4), values.chunks_exact(4));
    for (&col, &value) in cols4.remainder().iter().zip(values4.remainder()) {
        a += value * w[col as usize];
    }
    for (col, value) in cols4.zip(values4) {
        a += value[0] * w[col[0] as usize];
        b += value[1] * w[col[1] as usize];
        c += value[2] * w[col[2] as usize];
        d += value[3] * w[col[3] as usize];
    }
    (a + b) + (c + d)
}

/// Computes `y = y + scale x`.
fn add_scaled(scale: f32, x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += scale * x;
    }
}
