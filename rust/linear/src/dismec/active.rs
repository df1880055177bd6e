//! Solves for the weights of a rare label with only a few rows.
//!
//! The *rows in play* are the positive rows of the label and the negative rows that violate the margin.
//! All other rows form the *background*. The background is replaced by one negative row: its features
//! are the mean m of the rows, and its cost is the sum of their costs. Because the loss is convex, the
//! loss of this row is a lower bound of the sum of the losses in the background. The two are equal if
//! all background rows have the same score. Dual coordinate descent (Hsieh et al., ICML 2008,
//! algorithms 1 and 3) solves for the dual variables α of the rows in play and κ of the background:
//!
//! ```text
//! w = Σ_i s_i α_i x_i − κ m,    α_i, κ ≥ 0
//! ```
//!
//! `m · x_i` is computed once for all labels. So a step costs O(entries) for a row and O(1) for the
//! background. The mean of all rows is used for m. It differs only slightly from the mean of the
//! background, because few rows are in play.
//!
//! First, a descent uses only the positive rows. Then the following is repeated [`Effort::searches`]
//! times. All rows are scored for sixteen labels in one pass, and the worst violators of each label are
//! kept. These violators join the rows in play in up to [`Effort::joins`] portions, the worst violators
//! first, and a descent follows each portion. After the worst violators have joined, most other
//! violators no longer violate the margin.
//!
//! Each descent has its own random number generator, seeded by the label and the number of rows in
//! play. So the labels of a panel do not influence each other.

use super::effort::Effort;
use super::problem::Problem;
use super::unseen::Unseen;
use crate::panel::{LANES, Lanes, Mask, above, times_panel};
use fastrand::Rng;
use manylabel_base::{Error, Watch, extend, few, filled, push};

/// A negative row is a violator if its score exceeds −1 by more than this. Rows closer to the margin
/// have little loss, and there are many of them.
const MARGIN: f32 = 0.1;

/// Number of steps for rows between two steps for the background.
const BACKGROUND_EVERY: usize = 16;

/// The largest number of passes that adapt the weights to the absence of the held-out rows.
const PASSES_TO_UNLEARN: usize = 3;

/// Number of rows scored between two checks of the watch.
const ROWS_PER_STEP: usize = 1 << 12;

/// The name of growing vectors in error messages.
const IN_PLAY: &str = "number of rows in the working set";

/// The state of one label.
#[derive(Debug, Default)]
struct Lane {
    /// `Σ_i s_i α_i x_i`: the weights without the contribution of the background; (dim).
    weights: Vec<f32>,
    /// The rows in play: first the positive rows, then the negative rows in the order in which they
    /// joined.
    rows: Vec<u32>,
    /// The number of positive rows among `rows`.
    n_positive: usize,
    /// The dual variable of each row in `rows`.
    alpha: Vec<f32>,
    /// The dual variable of the background.
    kappa: f64,
    /// `weights · mean`, which is updated with each step.
    mean_dot: f64,
    /// The sum of the costs of the rows in the background.
    background_cost: f64,
    /// Violators that the last search found and that have not joined yet, with their scores.
    found: Vec<(f32, u32)>,
    /// The largest number of passes of a descent so far.
    passes: usize,
}

/// The vectors of one panel. They are reused for the next panel.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The labels of the panel. There are [`LANES`] lanes.
    lanes: Vec<Lane>,
    /// The weights of all lanes, interleaved for scoring; (dim).
    panel: Vec<Lanes>,
    /// The scores of up to [`ROWS_PER_STEP`] rows.
    scores: Vec<Lanes>,
    /// The lanes in which each row is in play; (n).
    in_play: Vec<Mask>,
    /// The order in which a descent visits the rows in play.
    order: Vec<u32>,
}

impl Workspace {
    /// Allocates a workspace for panels of `problem`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the workspace does not fit in memory.
    pub(crate) fn new(problem: &Problem) -> Result<Self, Error> {
        let (n, dim) = (problem.n_rows(), problem.dim());
        let lanes = (0..LANES).map(|_| {
            Ok(Lane {
                weights: filled("number of features", 0.0, dim)?,
                ..Lane::default()
            })
        });
        Ok(Self {
            lanes: few::<_, Result<_, Error>>(lanes)?,
            panel: filled("number of features", Lanes::default(), dim)?,
            scores: filled("number of scores", Lanes::default(), ROWS_PER_STEP.min(n))?,
            in_play: filled("number of rows", 0, n)?,
            order: Vec::new(),
        })
    }

    /// Returns the weights of one lane, in the order of the columns of `Problem::x`.
    pub(crate) fn weights(&self, lane: usize) -> impl Iterator<Item = f32> {
        self.lanes[lane].weights.iter().copied()
    }
}

/// The parameters of a descent.
struct Rule {
    /// The spread of projected gradients at which the descent ends.
    tol: f64,
    /// The largest number of passes.
    max_iter: usize,
    /// The seed that the user gave.
    seed: u64,
}

/// Solves for up to [`LANES`] labels and leaves the weights in `space`. Returns, for each label, the
/// largest number of passes of a descent. This number is `max_iter` if a descent did not converge.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the watch was stopped.
pub(crate) fn solve(
    problem: &Problem,
    labels: &[u32],
    params: &super::Params,
    effort: &Effort,
    space: &mut Workspace,
    watch: &Watch,
) -> Result<[usize; LANES], Error> {
    let rule = Rule {
        tol: effort.dual_tol * params.tol,
        max_iter: params.max_iter,
        seed: params.seed,
    };
    let Workspace {
        lanes,
        panel,
        scores,
        in_play,
        order,
    } = space;
    let lanes = &mut lanes[..labels.len()];
    in_play.fill(0);
    for (at, (lane, &label)) in lanes.iter_mut().zip(labels).enumerate() {
        lane.begin(problem, label)?;
        for &row in &lane.rows {
            in_play[row as usize] |= 1 << at;
        }
        lane.descend(problem, &rule, label, order, watch)?;
    }
    for _ in 0..effort.searches {
        search(problem, effort, lanes, panel, scores, in_play, watch)?;
        for (at, (lane, &label)) in lanes.iter_mut().zip(labels).enumerate() {
            for join in 0..effort.joins {
                if join > 0 {
                    lane.rescore_found(problem);
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
    let mut n_iter = [0; LANES];
    for (lane, n_iter) in lanes.iter_mut().zip(&mut n_iter) {
        lane.add_background(problem);
        *n_iter = lane.passes;
    }
    Ok(n_iter)
}

/// Continues from the panel that was solved last as if the held-out rows were absent. Then calls `tell`
/// with each held-out row and its scores.
///
/// The held-out rows are removed from the rows in play, together with their contribution to the
/// weights. A descent then adapts the other rows. No search follows, because removing a tenth of the
/// rows hardly changes which rows should be in play. The weights in `space` are overwritten.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short, [`Error::Stopped`] if the watch was stopped, or any
/// error of `tell`.
pub(crate) fn unlearn(
    problem: &Problem,
    unseen: &Unseen,
    labels: &[u32],
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
    let panel = &mut space.panel;
    for (at, (lane, &label)) in space.lanes.iter_mut().zip(labels).enumerate() {
        lane.forget(problem, unseen);
        lane.descend(problem, &rule, label, &mut space.order, watch)?;
        lane.add_background(problem);
        for (weights, &weight) in panel.iter_mut().zip(&lane.weights) {
            weights.0[at] = weight;
        }
    }
    for &row in &unseen.rows {
        times_panel(&problem.x, row as usize, panel, &mut space.scores[..1]);
        tell(row, &space.scores[0].0)?;
    }
    watch.step(0)
}

/// Scores all rows for all lanes, and keeps the worst violators of each lane that are not in play. The
/// time is O(nnz(X)).
fn search(
    problem: &Problem,
    effort: &Effort,
    lanes: &mut [Lane],
    panel: &mut [Lanes],
    scores: &mut [Lanes],
    in_play: &[Mask],
    watch: &Watch,
) -> Result<(), Error> {
    for (at, lane) in lanes.iter_mut().enumerate() {
        lane.found.clear();
        for (weights, &weight) in panel.iter_mut().zip(&lane.weights) {
            weights.0[at] = weight;
        }
    }
    let kappa = manylabel_simd::Lanes(std::array::from_fn(|at| {
        lanes.get(at).map_or(0.0, |lane| lane.kappa as f32)
    }));
    // Lanes without a label may have the weights of an earlier panel.
    let used = Mask::MAX >> (LANES - lanes.len());
    for first in (0..problem.n_rows()).step_by(ROWS_PER_STEP) {
        watch.step(0)?;
        let n_rows = ROWS_PER_STEP.min(problem.n_rows() - first);
        let scores = &mut scores[..n_rows];
        times_panel(&problem.x, first, panel, scores);
        for (row, scores) in (first..).zip(scores) {
            scores.add_scaled(-problem.mean_dot[row], &kappa);
            let mut violated = above(scores, MARGIN - 1.0) & !in_play[row] & used;
            while violated != 0 {
                let at = violated.trailing_zeros() as usize;
                push(
                    "number of violators",
                    &mut lanes[at].found,
                    (scores.0[at], row as u32),
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
    }
    Ok(())
}

/// Orders violators by decreasing score, so that the worst violator comes first. If scores are equal,
/// the lower row comes first.
#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that sorting needs"
)]
fn worst_first(a: &(f32, u32), b: &(f32, u32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

impl Lane {
    /// Starts `label`: the weights are 0, the positive rows are in play, and all other rows are in the
    /// background.
    fn begin(&mut self, problem: &Problem, label: u32) -> Result<(), Error> {
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
        self.background_cost = problem.total_cost;
        for &row in &self.rows {
            self.background_cost -= f64::from(problem.cost[row as usize]);
        }
        Ok(())
    }

    /// Returns the number of negative rows that join at a time.
    fn n_joining(&self, effort: &Effort) -> usize {
        (effort.join_per_positive * self.n_positive).max(effort.min_join)
    }

    /// Returns the score of a row, including the contribution of the background.
    fn score(&self, problem: &Problem, row: u32) -> f32 {
        let (cols, values) = problem.x.row(row as usize);
        sparse_dot(cols, values, &self.weights) - self.kappa as f32 * problem.mean_dot[row as usize]
    }

    /// Updates the scores of the violators that have not joined yet.
    fn rescore_found(&mut self, problem: &Problem) {
        let mut found = std::mem::take(&mut self.found);
        for (score, row) in &mut found {
            *score = self.score(problem, *row);
        }
        self.found = found;
    }

    /// Moves the worst of the found rows that still violate the margin into play, in order of rows.
    /// Returns the number of rows moved.
    fn join_worst(&mut self, problem: &Problem, effort: &Effort) -> Result<usize, Error> {
        let n_joining = self.n_joining(effort);
        // Move the violators to the front. If there are too many, move the worst violators to the
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
        for (_, row) in self.found.drain(..n_violators) {
            push(IN_PLAY, &mut self.rows, row)?;
            push(IN_PLAY, &mut self.alpha, 0.0)?;
            self.background_cost -= f64::from(problem.cost[row as usize]);
        }
        Ok(n_violators)
    }

    /// Runs dual coordinate descent over the rows in play and the background, with shrinking. It ends
    /// when the spread of projected gradients in a pass is at most `rule.tol`.
    ///
    /// Each pass visits the active rows in a new random order. A pass takes O(entries of these rows)
    /// time.
    fn descend(
        &mut self,
        problem: &Problem,
        rule: &Rule,
        label: u32,
        order: &mut Vec<u32>,
        watch: &Watch,
    ) -> Result<(), Error> {
        // Each descent has its own generator, so it does not depend on the other labels of the panel.
        let mut rng = Rng::with_seed(rule.seed ^ (u64::from(label) << 32) ^ self.rows.len() as u64);
        order.clear();
        extend(IN_PLAY, order, 0..self.rows.len() as u32)?;
        let mut n_active = order.len();
        // Shrinking: skip a variable at 0 if its gradient exceeds the largest gradient of the last
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

    /// Returns `s_i` of a row in play.
    fn sign(&self, at: usize) -> f64 {
        if at < self.n_positive { 1.0 } else { -1.0 }
    }

    /// Returns the dual gradient of a row in play, and its projection for the constraint `α ≥ 0`.
    fn gradient(&self, problem: &Problem, at: usize) -> (f64, f64) {
        let row = self.rows[at];
        let alpha = f64::from(self.alpha[at]);
        let score = f64::from(self.score(problem, row));
        let gradient = self.sign(at) * score - 1.0 + alpha / f64::from(problem.cost[row as usize]);
        (
            gradient,
            if alpha == 0.0 {
                gradient.min(0.0)
            } else {
                gradient
            },
        )
    }

    /// Minimizes the dual objective over the variable of one row in play, and updates the weights.
    fn step(&mut self, problem: &Problem, at: usize, gradient: f64) {
        let row = self.rows[at] as usize;
        let curvature = f64::from(problem.row_squares[row]) + f64::from(problem.cost[row]).recip();
        let alpha = f64::from(self.alpha[at]);
        let new = (alpha - gradient / curvature).max(0.0) as f32;
        let change = self.sign(at) * (f64::from(new) - alpha);
        self.alpha[at] = new;
        self.mean_dot += change * f64::from(problem.mean_dot[row]);
        self.add_row(problem, row, change as f32);
    }

    /// Adds `scale` times a row to the weights.
    fn add_row(&mut self, problem: &Problem, row: usize, scale: f32) {
        let (cols, values) = problem.x.row(row);
        for (&col, &value) in cols.iter().zip(values) {
            self.weights[col as usize] += scale * value;
        }
    }

    /// Minimizes the dual objective over the variable of the background.
    fn step_background(&mut self, problem: &Problem) {
        // If all rows are in play, the background cost consists of rounding errors only.
        if self.background_cost <= 1e-9 * problem.total_cost {
            self.kappa = 0.0;
            return;
        }
        let ease = self.background_cost.recip();
        let score = self.mean_dot - self.kappa * problem.mean_square;
        let gradient = -score - 1.0 + ease * self.kappa;
        self.kappa = (self.kappa - gradient / (problem.mean_square + ease)).max(0.0);
    }

    /// Adds the contribution of the background, `−κ m`, to the weights.
    fn add_background(&mut self, problem: &Problem) {
        add_scaled(-self.kappa as f32, &problem.mean, &mut self.weights);
    }

    /// Removes the held-out rows from play and from the background, and removes their contribution from
    /// the weights. Also removes the contribution of the background, which
    /// [`add_background`](Self::add_background) added.
    fn forget(&mut self, problem: &Problem, unseen: &Unseen) {
        add_scaled(self.kappa as f32, &problem.mean, &mut self.weights);
        let mut n_left = 0;
        let mut n_positive = 0;
        self.background_cost = unseen.total_cost;
        for at in 0..self.rows.len() {
            let (row, alpha) = (self.rows[at] as usize, self.alpha[at]);
            if unseen.cost[row] > 0.0 {
                (self.rows[n_left], self.alpha[n_left]) = (row as u32, alpha);
                n_left += 1;
                n_positive += usize::from(at < self.n_positive);
                self.background_cost -= f64::from(problem.cost[row]);
                continue;
            }
            let change = -self.sign(at) * f64::from(alpha);
            self.mean_dot += change * f64::from(problem.mean_dot[row]);
            self.add_row(problem, row, change as f32);
        }
        self.rows.truncate(n_left);
        self.alpha.truncate(n_left);
        self.n_positive = n_positive;
    }
}

/// Returns `Σ_j values_j w[cols_j]`. Four partial sums are used, so that an addition does not wait for
/// the addition before it.
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

/// Computes `y += scale x`.
fn add_scaled(scale: f32, x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += scale * x;
    }
}
