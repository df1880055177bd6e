//! The state of one label in the solver of rare labels: its working set and coordinate descent.

use super::weights::{Weights, row_dot};
use super::{BACKGROUND_EVERY, IN_PLAY, MARGIN, worst_first};
use crate::dismec::effort::Effort;
use crate::dismec::problem::Problem;
use crate::dismec::targets::Factors;
use crate::dismec::unseen::Unseen;
use fastrand::Rng;
use manylabel_base::{Error, Watch, extend, filled, push};
use manylabel_sparse::CsrRef;

/// The state of one label in the solver. The argument `x` of its functions is X, or a copy of X in which other rows than
/// those of the label may be empty.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// The weights without the term of the background (the rows outside the working set),
    /// `Σ_i s_i α_i x_i`.
    pub(super) weights: Weights,
    /// The working set: the rows that the solver uses for the label. The positive rows come first.
    /// Then come the negative rows, in the order in which they were added.
    pub(super) rows: Vec<u32>,
    /// The number of positive rows in `rows`.
    pub(super) n_positive: usize,
    /// The dual variable of each row in `rows`.
    pub(super) alpha: Vec<f32>,
    /// The dot product of each row in `rows` and the mean row of the label.
    dots: Vec<f32>,
    /// `1 / cost_i` for each row in `rows`.
    eases: Vec<f64>,
    /// The step of each row in `rows` for a gradient of 1: `1 / (‖x_i‖² + 1 / cost_i)`.
    steps: Vec<f64>,
    /// The factors by which the costs of positive rows and of negative rows are multiplied.
    factors: Factors,
    /// The rows for which the label is unknown.
    pub(super) unknown: Vec<u32>,
    /// `m_rest`: the mean row of the label minus the mean of all rows; shape (dim). It is not valid if the label
    /// has no unknown rows. It is empty until the first label with unknown rows.
    pub(super) rest: Vec<f32>,
    /// The squared length of the mean row of the label.
    mean_square: f64,
    /// The dual variable κ of the background, which consists of the rows outside the working set.
    pub(super) kappa: f64,
    /// The dot product of `weights` and the mean row of the label. It is updated with each step.
    mean_dot: f64,
    /// The sum of the costs of the rows outside the working set (the background).
    background_cost: f64,
    /// Rows that the last search found, with their scores. They have not been added to the working set yet.
    pub(super) found: Vec<(f32, u32)>,
    /// The number of passes in the longest run of coordinate descent so far.
    pub(super) passes: usize,
}

/// The stopping rule and the seed of a run of coordinate descent.
pub(super) struct Rule {
    /// The run ends when the largest and the smallest projected gradient differ by at most this
    /// number.
    pub(super) tol: f64,
    /// The largest number of passes over the working set.
    pub(super) max_iter: usize,
    /// The seed that the user gave.
    pub(super) seed: u64,
}

impl Lane {
    /// Starts a new label. All weights are 0. The working set contains the positive rows, and all
    /// other rows are in the background.
    ///
    /// `place` has [`NOWHERE`](super::weights::NOWHERE) for each feature, also afterwards. The same holds for the
    /// other functions that take it.
    pub(super) fn begin(
        &mut self,
        problem: &Problem<'_>,
        x: CsrRef<'_>,
        label: u32,
        place: &mut [u32],
    ) -> Result<(), Error> {
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
        self.forget_unknown(problem, x, label)?;
        self.weights.clear();
        if !self.unknown.is_empty() {
            self.weights.fill_up(problem.dim())?;
        }
        self.dots.clear();
        self.eases.clear();
        self.steps.clear();
        for at in 0..self.rows.len() {
            self.take_in(problem, x, self.rows[at], place)?;
        }
        self.weights.unmount(place);
        Ok(())
    }

    /// Prepares the next row of the working set: its dot product with the mean row, its step, and its copy.
    fn take_in(
        &mut self,
        problem: &Problem<'_>,
        x: CsrRef<'_>,
        row: u32,
        place: &mut [u32],
    ) -> Result<(), Error> {
        let dot = self.mean_dot_of(problem, x, row);
        let ease = f64::from(self.cost(problem, self.dots.len())).recip();
        let curvature = f64::from(problem.row_squares[row as usize]) + ease;
        push(IN_PLAY, &mut self.dots, dot)?;
        push(IN_PLAY, &mut self.eases, ease)?;
        push(IN_PLAY, &mut self.steps, curvature.recip())?;
        self.weights.take_in(x, row, place)
    }

    /// Continues with dual variables of an earlier fit. Negative rows with dual variables join the working set. Dual
    /// variables whose sign does not match the label are left out.
    pub(super) fn resume(
        &mut self,
        problem: &Problem<'_>,
        x: CsrRef<'_>,
        duals: &[(u32, f32)],
        place: &mut [u32],
    ) -> Result<(), Error> {
        self.weights.mount(place);
        for &(row, dual) in duals {
            let positive = self.rows[..self.n_positive].binary_search(&row);
            if let Ok(at) = positive
                && dual > 0.0
            {
                self.alpha[at] = dual;
            }
            if positive.is_err() && dual < 0.0 && self.unknown.binary_search(&row).is_err() {
                push(IN_PLAY, &mut self.rows, row)?;
                push(IN_PLAY, &mut self.alpha, -dual)?;
                self.take_in(problem, x, row, place)?;
                self.background_cost -= f64::from(problem.cost[row as usize]);
            }
        }
        self.weights.unmount(place);
        for at in 0..self.rows.len() {
            let change = self.sign(at) * f64::from(self.alpha[at]);
            if change != 0.0 {
                self.add_row(x, at, change);
            }
        }
        Ok(())
    }

    /// Removes the rows for which the label is unknown from the background and from the mean row.
    fn forget_unknown(
        &mut self,
        problem: &Problem<'_>,
        x: CsrRef<'_>,
        label: u32,
    ) -> Result<(), Error> {
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
            let (cols, values) = x.row(row as usize);
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
    pub(super) fn shift(&mut self, scale: f32) {
        if !self.unknown.is_empty() {
            self.weights.shift(scale, &self.rest);
        }
    }

    /// Returns the dot product of a row and the mean row of the label.
    fn mean_dot_of(&self, problem: &Problem<'_>, x: CsrRef<'_>, row: u32) -> f32 {
        let dot = problem.mean_dot[row as usize];
        if self.unknown.is_empty() {
            return dot;
        }
        dot + row_dot(x.row(row as usize), &self.rest)
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
    pub(super) fn n_joining(&self, effort: &Effort) -> usize {
        (effort.join_per_positive * self.n_positive).max(effort.min_join)
    }

    /// Returns the largest number of violators that a search keeps.
    pub(super) fn n_kept(&self, effort: &Effort) -> usize {
        let n_portions = effort.joins_kept;
        (n_portions * effort.join_per_positive * self.n_positive).max(effort.min_kept)
    }

    /// Computes the exact scores of the first `most` found rows that have not been added to the working set. `full`
    /// has a zero for each feature, also afterwards.
    pub(super) fn rescore_found(
        &mut self,
        problem: &Problem<'_>,
        x: CsrRef<'_>,
        most: usize,
        full: &mut [f32],
    ) {
        let mut found = std::mem::take(&mut self.found);
        self.weights.add_to(full);
        let weights = self.weights.full().unwrap_or(full);
        for (score, row) in found.iter_mut().take(most) {
            let dot = self.mean_dot_of(problem, x, *row);
            *score = row_dot(x.row(*row as usize), weights) - self.kappa as f32 * dot;
        }
        self.weights.clear_from(full);
        self.found = found;
    }

    /// Adds one portion of violators to the working set: the violators with the highest scores that
    /// still violate the margin. They are added in increasing order of their row numbers. Returns
    /// the number of rows added.
    pub(super) fn join_worst(
        &mut self,
        problem: &Problem<'_>,
        x: CsrRef<'_>,
        effort: &Effort,
        place: &mut [u32],
    ) -> Result<usize, Error> {
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
        self.weights.mount(place);
        for at in 0..n_violators {
            let row = self.found[at].1;
            push(IN_PLAY, &mut self.rows, row)?;
            push(IN_PLAY, &mut self.alpha, 0.0)?;
            self.take_in(problem, x, row, place)?;
            self.background_cost -= f64::from(problem.cost[row as usize]);
        }
        self.weights.unmount(place);
        self.found.drain(..n_violators);
        Ok(n_violators)
    }

    /// Runs dual coordinate descent over the working set and the background, with shrinking. The
    /// run ends when the largest and the smallest projected gradient of a pass differ by at most
    /// `rule.tol`.
    ///
    /// Each pass visits the active rows in a new random order. A pass takes O(entries of these
    /// rows) time.
    pub(super) fn descend(
        &mut self,
        problem: &Problem<'_>,
        x: CsrRef<'_>,
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
                let (gradient, projected) = self.gradient(x, order[at] as usize);
                if projected == 0.0 && gradient > shrink_above {
                    n_active -= 1;
                    order.swap(at, n_active);
                    continue;
                }
                largest = largest.max(projected);
                smallest = smallest.min(projected);
                if projected != 0.0 {
                    self.step(x, order[at] as usize, gradient);
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
    pub(super) fn sign(&self, at: usize) -> f64 {
        if at < self.n_positive { 1.0 } else { -1.0 }
    }

    /// Returns the gradient of the dual objective for a row of the working set, and the projected
    /// gradient for the constraint `α ≥ 0`.
    fn gradient(&self, x: CsrRef<'_>, at: usize) -> (f64, f64) {
        let row = self.rows[at];
        let alpha = f64::from(self.alpha[at]);
        let score = self.weights.dot(x, at, row) - self.kappa as f32 * self.dots[at];
        let score = f64::from(score);
        let gradient = self.sign(at) * score - 1.0 + alpha * self.eases[at];
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
    fn step(&mut self, x: CsrRef<'_>, at: usize, gradient: f64) {
        let alpha = f64::from(self.alpha[at]);
        let new = (alpha - gradient * self.steps[at]).max(0.0) as f32;
        let change = self.sign(at) * (f64::from(new) - alpha);
        self.alpha[at] = new;
        self.add_row(x, at, change);
    }

    /// Adds `scale` times a row of the working set to the weights.
    fn add_row(&mut self, x: CsrRef<'_>, at: usize, scale: f64) {
        self.mean_dot += scale * f64::from(self.dots[at]);
        self.weights.add_row(x, at, self.rows[at], scale as f32);
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

    /// Removes the held-out rows from the working set and from the background. Subtracts their
    /// terms from the weights.
    pub(super) fn forget(&mut self, problem: &Problem<'_>, x: CsrRef<'_>, unseen: &Unseen) {
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
                self.weights.move_row(at, n_left);
                self.dots[n_left] = self.dots[at];
                (self.eases[n_left], self.steps[n_left]) = (self.eases[at], self.steps[at]);
                n_left += 1;
                n_positive += usize::from(at < self.n_positive);
                self.background_cost -= f64::from(problem.cost[row]);
                continue;
            }
            self.add_row(x, at, -self.sign(at) * f64::from(alpha));
        }
        self.rows.truncate(n_left);
        self.alpha.truncate(n_left);
        self.dots.truncate(n_left);
        self.eases.truncate(n_left);
        self.steps.truncate(n_left);
        self.weights.truncate(n_left);
        self.n_positive = n_positive;
    }
}
