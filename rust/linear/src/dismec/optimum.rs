//! Minimizes the objectives of sixteen labels, which are called a panel, over all rows.
//!
//! The objective is convex and piecewise quadratic. Inside a piece, the set of active rows (rows
//! with a nonzero loss) is fixed. Nonlinear conjugate gradients suit such an objective. Inside a
//! piece, they are as good as linear conjugate gradients. When the set of active rows changes, they
//! simply continue. Newton's method with linear conjugate gradients would have to start a new
//! Newton step.
//!
//! With the gradient g, a diagonal preconditioner M and the direction p, a step is
//!
//! ```text
//! β = max(0, M⁻¹g·(g − g_last) / p·(g − g_last))     (Hestenes–Stiefel)
//! p ← β p − M⁻¹g,    w ← w + a p,    a by a line search
//! ```
//!
//! where β is set to 0 (a restart) if p would not be a descent direction. A step of a panel costs
//! one product with X, one product with its transpose, and a few passes over vectors. The line
//! search uses the cached products `X w` and `X p`.
//!
//! Each label of a panel has one SIMD lane, and all lanes take steps together. The steps of a lane that has
//! converged have length 0, so its weights do not change while the other lanes continue. In the shapes of
//! arrays, n is the number of rows, and dim is the number of features, including the feature for the
//! intercept.
//!
//! An unknown pair of row and label is a negative pair with the score [`UNKNOWN_SCORE`], which steps do not change.
//! So it has no loss, and the loops over rows need no test for unknown pairs.

use super::fit::{Kept, large};
use super::logistic;
use super::params::Loss;
use super::problem::{Columns, Problem};
use super::start::{Carry, Start};
use super::targets::UNKNOWN_SCORE;
use super::unseen::Unseen;
use crate::panel::{LANES, Lanes, Mask, Sums, times_panel};
use manylabel_base::{Error, Watch, budget, filled, push};
use manylabel_simd::{STRETCH, wide};
use manylabel_sparse::CsrRef;

/// Number of Newton steps of the line search. They find a root of the derivative along the
/// direction. The derivative is piecewise linear. After three steps, the root is accurate enough:
/// more Newton steps do not reduce the number of conjugate-gradient steps.
pub(super) const LINE_STEPS: usize = 3;

/// The preconditioner uses the estimated diagonal of the Hessian, multiplied by this factor. The
/// full diagonal would overestimate the curvature of frequent features, because the active rows
/// (rows with a nonzero loss) are not a random sample.
pub(super) const DIAGONAL_SHARE: f64 = 0.1;

/// The number of steps of the fit of a panel, divided by the number of steps that adapt its weights to the
/// rows that are not held out. The second number is limited by [`STEPS_TO_UNLEARN`]. These steps add about
/// a sixth to the time of the panel.
const STEPS_PER_STEP_TO_UNLEARN: usize = 6;

/// The smallest and the largest number of steps that adapt the weights to the rows that are not
/// held out. With these limits, the thresholds are similar to thresholds of fits without these rows
/// (`tests/linear/test_threshold.py`).
pub(super) const STEPS_TO_UNLEARN: (usize, usize) = (2, 6);

/// The largest number of steps of labels that begin with their weights in a fit to similar rows. On eurlex57k, three
/// trees rank equally well with 0, 1, 6 and unlimited steps. One step adapts the weights to the rows that are new.
const STEPS_FROM_CARRIED: usize = 1;

/// The smallest absolute value of the weights that a label carries to a fit to similar rows. Smaller weights would
/// take memory and have nearly no effect on scores.
const LEAST_CARRIED: f32 = 1e-3;

/// Number of rows that a product processes between two checks for a stop request.
const ROWS_PER_STEP: usize = 1 << 15;

/// The vectors for one panel, which is a group of sixteen labels. They are reused for the next
/// panel.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The weights w; shape (dim).
    weights: Vec<Lanes>,
    /// The gradient g; shape (dim).
    gradient: Vec<Lanes>,
    /// The gradient g of the previous step; shape (dim).
    last_gradient: Vec<Lanes>,
    /// The search direction p; shape (dim).
    direction: Vec<Lanes>,
    /// For each row, the score minus the target, where targets are 1 and −1; shape (n).
    errors: Vec<Lanes>,
    /// For each row, the change of its score along the search direction, `x_i · p`; shape (n).
    along: Vec<Lanes>,
    /// For each row and label, the derivative of the loss of the row with respect to the score of the label;
    /// shape (n).
    pulls: Vec<Lanes>,
    /// For each row, those of the sixteen labels that the row has; shape (n).
    positive: Vec<Mask>,
    /// How the losses of the rows are computed.
    losses: Losses,
}

/// How the losses of the rows are computed. Loops without factors are faster.
#[derive(Debug, Clone, Copy)]
enum Losses {
    /// The squared hinge loss. All factors are 1.
    Hinge,
    /// The squared hinge loss with factors.
    WeightedHinge(Factors),
    /// The logistic loss with factors.
    Logistic(Factors),
}

/// The factors of the costs of negative rows and of positive rows, for each label of a panel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Factors {
    negative: Lanes,
    positive: Lanes,
}

impl Workspace {
    /// Allocates the vectors that are needed to fit groups of sixteen labels of `problem`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the vectors do not fit in memory.
    pub(crate) fn new(problem: &Problem<'_>) -> Result<Self, Error> {
        let of_features = || filled("number of features", Lanes::default(), problem.dim());
        let by_feature = || budget::in_any_order(of_features);
        let by_row = || filled("number of rows", Lanes::default(), problem.n_rows());
        Ok(Self {
            weights: by_feature()?,
            gradient: by_feature()?,
            last_gradient: by_feature()?,
            direction: by_feature()?,
            errors: by_row()?,
            along: by_row()?,
            pulls: by_row()?,
            positive: filled("number of rows", 0, problem.n_rows())?,
            losses: Losses::Hinge,
        })
    }

    /// Returns the weights of one of the sixteen labels that are not 0 and have an absolute value of at least `prune`,
    /// and the intercept, which follows `n_features` weights.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn kept(&self, n_features: usize, lane: usize, prune: f32) -> Result<Kept, Error> {
        let weights = self.weights.iter().map(|weights| weights.0[lane]);
        large(weights, n_features, prune)
    }

    /// Returns the state of one of the sixteen labels that [`solve`] has just solved. Weights with an absolute value
    /// below [`LEAST_CARRIED`] are left out.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if it does not fit in memory.
    pub(crate) fn carry(&self, lane: usize) -> Result<Carry, Error> {
        let mut carried = Vec::new();
        for (col, weights) in (0..).zip(&self.weights) {
            let weight = weights.0[lane];
            if weight.abs() >= LEAST_CARRIED {
                push("number of weights", &mut carried, (col, weight))?;
            }
        }
        Ok(Carry::Weights(carried))
    }

    /// Returns the weights of the last call of [`solve`] or [`unlearn`], with one lane for each label;
    /// shape (dim).
    pub(crate) fn unlearned(&self) -> &[Lanes] {
        &self.weights
    }
}

/// Minimizes the objectives f of up to [`LANES`] labels and leaves the weights in `space`. Returns
/// the number of steps for each label, which is `max_iter` for a label that did not converge.
///
/// `from` has weights from which the steps begin. `None`, and labels without such weights, begin with the weights of
/// [`begin`]. A label that continues an earlier fit to similar rows ([`Carry::Weights`]) takes at most
/// [`STEPS_FROM_CARRIED`] steps, and counts as converged. Otherwise the weights at the end are the same within the
/// tolerance.
///
/// For a label, let n be the number of rows for which it is known, n₊ the number of positive rows and n₋
/// the number of negative rows. A label has converged when `‖∇f‖ ≤ tol · max(1, min(n₊, n₋))/n · ‖∇f(0)‖`
/// (the rule of LIBLINEAR).
///
/// # Errors
///
/// Returns [`Error::Stopped`] if the caller requested a stop.
pub(crate) fn solve(
    problem: &Problem<'_>,
    columns: &Columns<'_>,
    labels: &[u32],
    from: Option<&Start>,
    (tol, max_iter): (f64, usize),
    space: &mut Workspace,
    watch: &Watch,
) -> Result<[usize; LANES], Error> {
    let factors = factors(problem, labels);
    space.losses = match problem.loss {
        Loss::SquaredHinge if !problem.has_factors() => Losses::Hinge,
        Loss::SquaredHinge => Losses::WeightedHinge(factors),
        Loss::Logistic => Losses::Logistic(factors),
    };
    let slope_at_zero = match problem.loss {
        Loss::SquaredHinge => 1.0,
        Loss::Logistic => logistic::SLOPE_AT_ZERO,
    };
    let stop = begin(problem, labels, tol * slope_at_zero, space);
    if let Some(from) = from {
        for (lane, &label) in labels.iter().enumerate() {
            from.read(problem, label, lane, &mut space.weights);
        }
    }
    product(problem.x.view(), &space.weights, &mut space.errors, watch)?;
    space.positive.fill(0);
    for (lane, &label) in labels.iter().enumerate() {
        for &row in problem.positives(label) {
            space.positive[row as usize] |= 1 << lane;
        }
    }
    subtract_targets(&space.positive, &mut space.errors);
    for (lane, &label) in labels.iter().enumerate() {
        for &row in problem.unknown(label) {
            space.errors[row as usize].0[lane] = UNKNOWN_SCORE;
        }
    }
    let most = std::array::from_fn(|lane| match labels.get(lane) {
        Some(&label) if from.is_some_and(|from| from.carries_weights(label)) => {
            STEPS_FROM_CARRIED.min(max_iter - 1)
        }
        Some(_) => max_iter,
        None => 0,
    });
    let costs = (&problem.cost[..], problem.total_cost);
    descend(problem, columns, costs, &stop, &most, space, watch)
}

/// Returns the number of steps that adapt the weights of a panel to the rows that are not held out, if a threshold
/// is learned. `n_steps` is the number of steps of the fit of the panel.
pub(super) fn steps_to_unlearn(n_steps: usize) -> usize {
    let (least, most) = STEPS_TO_UNLEARN;
    (n_steps / STEPS_PER_STEP_TO_UNLEARN).clamp(least, most)
}

/// Adapts the weights in `space` to the rows that are not held out. Then calls `tell` with each
/// held-out row and its scores. The weights must have just been fitted to all rows. The function takes `n_steps`
/// steps.
///
/// The weights minimize the objective that includes the held-out rows. Without these rows, the
/// gradient of the objective is therefore small: it is minus the gradient of the loss of the
/// held-out rows. A few steps then come close to the minimum. The weights in `space` are
/// overwritten.
///
/// # Errors
///
/// Returns [`Error::Stopped`] if the caller requested a stop, or any error of `tell`.
pub(crate) fn unlearn(
    problem: &Problem<'_>,
    columns: &Columns<'_>,
    unseen: &Unseen,
    (n_labels, n_steps): (usize, usize),
    space: &mut Workspace,
    watch: &Watch,
    mut tell: impl FnMut(u32, &[f32; LANES]) -> Result<(), Error>,
) -> Result<(), Error> {
    let costs = (&unseen.cost[..], unseen.total_cost);
    let most = std::array::from_fn(|lane| if lane < n_labels { n_steps } else { 0 });
    descend(problem, columns, costs, &[0.0; LANES], &most, space, watch)?;
    for &row in &unseen.rows {
        let (error, positive) = (&space.errors[row as usize], space.positive[row as usize]);
        let scores = std::array::from_fn(|lane| error.0[lane] - sign(positive, lane));
        tell(row, &scores)?;
    }
    Ok(())
}

/// Takes conjugate-gradient steps until each label has converged or has taken its largest number of steps, which is
/// in `most`. Returns the number of steps for each label.
///
/// The arguments include the costs of all rows and the sum of the costs. `stop` contains, for each
/// label, the gradient norm at which it has converged. `errors` and `positive` in `space` must
/// match the weights when the function is called. They also match the weights when it returns.
fn descend(
    problem: &Problem<'_>,
    columns: &Columns<'_>,
    (cost, total_cost): (&[f32], f64),
    stop: &Sums,
    most: &[usize; LANES],
    space: &mut Workspace,
    watch: &Watch,
) -> Result<[usize; LANES], Error> {
    let mut n_iter = [0; LANES];
    let mut live = Mask::MAX;
    let mut step = Lanes::default();
    let mut last_slope = [0.0; LANES];
    // The vectors may be those of another panel, and they may be infinite. The first step has the length 0, and 0 · ∞
    // would be NaN.
    space.direction.fill(Lanes::default());
    space.along.fill(Lanes::default());
    for iter in 0.. {
        let active = match &space.losses {
            Losses::Hinge => advance(
                cost,
                &step,
                &space.along,
                &space.positive,
                &mut space.errors,
                &mut space.pulls,
            ),
            Losses::WeightedHinge(factors) => advance_weighted(
                cost,
                factors,
                &step,
                &space.along,
                &space.positive,
                &mut space.errors,
                &mut space.pulls,
            ),
            Losses::Logistic(factors) => logistic::advance(
                cost,
                factors,
                &step,
                &space.along,
                &space.positive,
                &mut space.errors,
                &mut space.pulls,
            ),
        };
        for (lane, &most) in most.iter().enumerate() {
            if most == iter {
                live &= !(1 << lane);
            }
        }
        if live == 0 {
            add_scaled(&step, &space.direction, &mut space.weights);
            break;
        }
        std::mem::swap(&mut space.gradient, &mut space.last_gradient);
        product(columns.xt.view(), &space.pulls, &mut space.gradient, watch)?;
        // The diagonal of the Hessian is about 1 + Σ_i cost_i x_ij² times the fraction of active rows.
        let share = |lane: usize| DIAGONAL_SHARE * active[lane] / total_cost;
        let share = Lanes::of(&std::array::from_fn(share));
        let dots = complete(
            (&columns.squares, &share),
            &step,
            &space.direction,
            &space.last_gradient,
            &mut space.weights,
            &mut space.gradient,
        );
        for lane in 0..LANES {
            if dots.gradient[lane].sqrt() <= stop[lane] {
                live &= !(1 << lane);
            }
        }
        if live == 0 {
            break;
        }
        let mut turn_by = [0.0; LANES];
        for lane in 0..LANES {
            let curvature = dots.along[lane] - last_slope[lane];
            let mut beta = ((dots.scaled[lane] - dots.scaled_last[lane]) / curvature).max(0.0);
            // The method restarts in the first step, if the curvature is lost in rounding errors, or if the
            // objective would increase along p.
            if iter == 0 || curvature <= 0.0 || beta * dots.along[lane] >= dots.scaled[lane] {
                beta = 0.0;
            }
            turn_by[lane] = beta;
            last_slope[lane] = beta * dots.along[lane] - dots.scaled[lane];
        }
        let regularization = turn(
            (&columns.squares, &share),
            &Lanes::of(&turn_by),
            &space.gradient,
            &space.weights,
            &mut space.direction,
        );
        product(problem.x.view(), &space.direction, &mut space.along, watch)?;
        step = line_search(cost, regularization, space, live);
        for (lane, n_iter) in n_iter.iter_mut().enumerate() {
            *n_iter += usize::from(live >> lane & 1);
        }
    }
    Ok(n_iter)
}

/// Initializes the weights. Returns, for each label, the gradient norm at which it has converged.
///
/// The initial weights are a linear combination of the mean positive row and the mean of all rows. With
/// these weights, the mean positive row has the score 1, and the mean of all rows has the score −1.
/// (Schultheis, Babbar: Speeding-up one-versus-all training for extreme classification via mean-separating
/// initialization, Machine Learning 2022.)
fn begin(problem: &Problem<'_>, labels: &[u32], tol: f64, space: &mut Workspace) -> Sums {
    // First compute the sum of the positive rows, weighted by cost.
    space.weights.fill(Lanes::default());
    let mut positive_cost = [0.0f64; LANES];
    for (lane, &label) in labels.iter().enumerate() {
        for &row in problem.positives(label) {
            let cost = problem.cost[row as usize];
            positive_cost[lane] += f64::from(cost);
            let (cols, values) = problem.x.row(row as usize);
            for (&col, &value) in cols.iter().zip(values) {
                space.weights[col as usize].0[lane] += cost * value;
            }
        }
    }
    // Then compute the sum of the unknown rows, weighted by cost. It is stored in the vector of the last
    // gradient, which is not needed yet.
    let unknown = &mut space.last_gradient;
    unknown.fill(Lanes::default());
    let mut unknown_cost = [0.0f64; LANES];
    for (lane, &label) in labels.iter().enumerate() {
        for &row in problem.unknown(label) {
            let cost = problem.cost[row as usize];
            unknown_cost[lane] += f64::from(cost);
            let (cols, values) = problem.x.row(row as usize);
            for (&col, &value) in cols.iter().zip(values) {
                unknown[col as usize].0[lane] += cost * value;
            }
        }
    }
    let total = problem.total_cost;
    let factors: [_; LANES] = std::array::from_fn(|lane| {
        let factors = labels.get(lane).map(|&label| problem.factors(label));
        let factors = factors.unwrap_or_default();
        (f64::from(factors.positive), f64::from(factors.negative))
    });
    let (mut at_zero, mut with_self, mut with_mean) =
        ([0.0f64; LANES], [0.0f64; LANES], [0.0f64; LANES]);
    for ((sum, &mean), unknown) in space.weights.iter().zip(&problem.mean).zip(&*unknown) {
        let mean = f64::from(mean);
        for lane in 0..LANES {
            let sum = f64::from(sum.0[lane]);
            let known = total * mean - f64::from(unknown.0[lane]);
            let (positive, negative) = factors[lane];
            at_zero[lane] += ((positive + negative) * sum - negative * known).powi(2);
            with_self[lane] += sum * sum;
            with_mean[lane] += sum * mean;
        }
    }
    let (mut of_positive, mut of_mean) = (Lanes::default(), Lanes::default());
    for lane in 0..labels.len() {
        let cost = positive_cost[lane];
        // `at_zero` is the squared gradient norm at zero. The distance from zero to the minimum is at most
        // this norm, because f is 1-strongly convex. If the norm is below 1e-12, the initial weights are
        // zero. With other initial weights, squares would underflow in single precision.
        if at_zero[lane] < 1e-24 {
            continue;
        }
        let (pp, pm, mm) = (
            with_self[lane] / (cost * cost),
            with_mean[lane] / cost,
            problem.mean_square,
        );
        let determinant = pp * mm - pm * pm;
        if determinant > 1e-6 * pp * mm {
            of_positive.0[lane] = ((mm + pm) / determinant / cost) as f32;
            of_mean.0[lane] = (-(pp + pm) / determinant) as f32;
        } else if mm > 0.0 {
            // The mean positive row is parallel to the mean row, for example because all rows are positive.
            let total = total - unknown_cost[lane];
            let target = if 2.0 * cost > total { 1.0 } else { -1.0 };
            of_mean.0[lane] = (target / mm) as f32;
        }
    }
    for (weights, &mean) in space.weights.iter_mut().zip(&problem.mean) {
        for lane in 0..LANES {
            weights.0[lane] = of_positive.0[lane] * weights.0[lane] + of_mean.0[lane] * mean;
        }
    }
    std::array::from_fn(|lane| {
        let label = labels.get(lane);
        let n = label.map_or(problem.n_rows(), |&label| problem.n_known(label));
        let n_positive = label.map_or(0, |&label| problem.positives(label).len());
        let rarer = n_positive.min(n - n_positive).max(1);
        tol * rarer as f64 / n as f64 * at_zero[lane].sqrt()
    })
}

/// Returns the step length of each label in `live` along its search direction. It is close to a
/// root of the derivative of the objective. The step length of all other labels is 0. `regularization` has the
/// products of the direction with the weights and with itself.
fn line_search(cost: &[f32], regularization: (Sums, Sums), space: &Workspace, live: Mask) -> Lanes {
    let (with_weights, with_self) = regularization;
    let Workspace {
        along,
        positive,
        errors,
        ..
    } = space;
    let mut step = Lanes::default();
    for _ in 0..LINE_STEPS {
        let (first, second) = match &space.losses {
            Losses::Hinge => slope(cost, &step, along, positive, errors),
            Losses::WeightedHinge(factors) => {
                slope_weighted(cost, factors, &step, along, positive, errors)
            }
            Losses::Logistic(factors) => {
                let rows = (&along[..], &positive[..], &errors[..]);
                return logistic::line_search(cost, factors, regularization, rows, live);
            }
        };
        for lane in 0..LANES {
            let at = f64::from(step.0[lane]);
            let first = with_weights[lane] + at * with_self[lane] + first[lane];
            let second = with_self[lane] + second[lane];
            if live >> lane & 1 == 1 && second > 0.0 {
                step.0[lane] = (at - first / second).max(0.0) as f32;
            }
        }
    }
    step
}

/// Computes `out = x p`, and regularly checks for a stop request.
fn product(x: CsrRef<'_>, p: &[Lanes], out: &mut [Lanes], watch: &Watch) -> Result<(), Error> {
    for (chunk, out) in out.chunks_mut(ROWS_PER_STEP).enumerate() {
        watch.step(0)?;
        times_panel(x, chunk * ROWS_PER_STEP, p, out);
    }
    Ok(())
}

/// Subtracts the targets from the scores of each row. The target is 1 for labels that the row has,
/// and −1 for other labels.
fn subtract_targets(positive: &[Mask], errors: &mut [Lanes]) {
    for (errors, &positive) in errors.iter_mut().zip(positive) {
        for lane in 0..LANES {
            errors.0[lane] += sign(positive, lane);
        }
    }
}

/// Returns the sign −1 for a label that the row has, and 1 for other labels. The error of a row is its
/// score minus its target. The loss of the row is nonzero if `error · sign > 0`.
#[inline(always)]
pub(super) fn sign(positive: Mask, lane: usize) -> f32 {
    if positive & (1 << lane) != 0 {
        -1.0
    } else {
        1.0
    }
}

/// Returns the cost of a row (the factor of its loss) if the loss is nonzero, otherwise 0.
#[inline(always)]
fn cost_where_active(cost: f32, error: f32, positive: Mask, lane: usize) -> f32 {
    if error * sign(positive, lane) > 0.0 {
        cost
    } else {
        0.0
    }
}

/// Returns the factors of up to [`LANES`] labels.
fn factors(problem: &Problem, labels: &[u32]) -> Factors {
    let mut factors = Factors {
        negative: Lanes::default(),
        positive: Lanes::default(),
    };
    for (lane, &label) in labels.iter().enumerate() {
        let of_label = problem.factors(label);
        factors.negative.0[lane] = of_label.negative;
        factors.positive.0[lane] = of_label.positive;
    }
    factors
}

/// Adds `step * along` to the errors (scores minus targets) of the rows. `along` is the product of X
/// and the search direction. Computes the derivatives of the loss at the new errors (`pulls`). Returns,
/// for each label, the total cost of the rows with a nonzero loss.
#[wide]
fn advance(
    cost: &[f32],
    step: &Lanes,
    along: &[Lanes],
    positive: &[Mask],
    errors: &mut [Lanes],
    pulls: &mut [Lanes],
) -> Sums {
    advance_by(
        |cost, _, _| cost,
        cost,
        step,
        along,
        positive,
        errors,
        pulls,
    )
}

/// Does the same as [`advance`], with factors of the costs.
#[wide]
fn advance_weighted(
    cost: &[f32],
    factors: &Factors,
    step: &Lanes,
    along: &[Lanes],
    positive: &[Mask],
    errors: &mut [Lanes],
    pulls: &mut [Lanes],
) -> Sums {
    let weigh = |cost: f32, positive: Mask, lane: usize| cost * factor(factors, positive, lane);
    advance_by(weigh, cost, step, along, positive, errors, pulls)
}

/// Returns the factor of the cost of a row, for one label.
#[inline(always)]
pub(super) fn factor(factors: &Factors, positive: Mask, lane: usize) -> f32 {
    if positive & (1 << lane) != 0 {
        factors.positive.0[lane]
    } else {
        factors.negative.0[lane]
    }
}

/// Does the work of [`advance`]. `weigh` returns the cost of a row for one label.
#[inline(always)]
fn advance_by(
    weigh: impl Fn(f32, Mask, usize) -> f32,
    cost: &[f32],
    step: &Lanes,
    along: &[Lanes],
    positive: &[Mask],
    errors: &mut [Lanes],
    pulls: &mut [Lanes],
) -> Sums {
    let mut active = [0.0; LANES];
    for first in (0..errors.len()).step_by(STRETCH) {
        let rows = first..(first + STRETCH).min(errors.len());
        let mut part = Lanes::default();
        let moving = errors[rows.clone()]
            .iter_mut()
            .zip(&mut pulls[rows.clone()]);
        let fixed = along[rows.clone()]
            .iter()
            .zip(&positive[rows.clone()])
            .zip(&cost[rows]);
        for ((error, pull), ((along, &positive), &cost)) in moving.zip(fixed) {
            for lane in 0..LANES {
                let moved = error.0[lane] + step.0[lane] * along.0[lane];
                let cost = weigh(cost, positive, lane);
                let cost = cost_where_active(cost, moved, positive, lane);
                error.0[lane] = moved;
                pull.0[lane] = cost * moved;
                part.0[lane] += cost;
            }
        }
        part.add_to(&mut active);
    }
    active
}

/// Returns the first and second derivatives of the loss along the search direction, after a step of
/// length `step`.
#[wide]
fn slope(
    cost: &[f32],
    step: &Lanes,
    along: &[Lanes],
    positive: &[Mask],
    errors: &[Lanes],
) -> (Sums, Sums) {
    slope_by(|cost, _, _| cost, cost, step, along, positive, errors)
}

/// Does the same as [`slope`], with factors of the costs.
#[wide]
fn slope_weighted(
    cost: &[f32],
    factors: &Factors,
    step: &Lanes,
    along: &[Lanes],
    positive: &[Mask],
    errors: &[Lanes],
) -> (Sums, Sums) {
    let weigh = |cost: f32, positive: Mask, lane: usize| cost * factor(factors, positive, lane);
    slope_by(weigh, cost, step, along, positive, errors)
}

/// Does the work of [`slope`]. `weigh` returns the cost of a row for one label.
#[inline(always)]
fn slope_by(
    weigh: impl Fn(f32, Mask, usize) -> f32,
    cost: &[f32],
    step: &Lanes,
    along: &[Lanes],
    positive: &[Mask],
    errors: &[Lanes],
) -> (Sums, Sums) {
    let (mut first, mut second) = ([0.0; LANES], [0.0; LANES]);
    for start in (0..errors.len()).step_by(STRETCH) {
        let rows = start..(start + STRETCH).min(errors.len());
        let (mut first_part, mut second_part) = (Lanes::default(), Lanes::default());
        let fixed = along[rows.clone()]
            .iter()
            .zip(&positive[rows.clone()])
            .zip(&cost[rows.clone()]);
        for (error, ((along, &positive), &cost)) in errors[rows].iter().zip(fixed) {
            for lane in 0..LANES {
                let moved = error.0[lane] + step.0[lane] * along.0[lane];
                let cost = weigh(cost, positive, lane);
                let cost = cost_where_active(cost, moved, positive, lane);
                let pull = cost * along.0[lane];
                first_part.0[lane] += pull * moved;
                second_part.0[lane] += pull * along.0[lane];
            }
        }
        first_part.add_to(&mut first);
        second_part.add_to(&mut second);
    }
    (first, second)
}

/// Returns the gradient divided by the diagonal of the preconditioner.
#[inline(always)]
fn scaled(column_square: f32, share: &Lanes, gradient: &Lanes) -> Lanes {
    manylabel_simd::Lanes(std::array::from_fn(|lane| {
        gradient.0[lane] / (1.0 + share.0[lane] * column_square)
    }))
}

/// Dot products of the gradient g, the preconditioned gradient M⁻¹g and the last direction p.
struct Dots {
    /// The product g·g, where g is the gradient.
    gradient: Sums,
    /// The product M⁻¹g·g, where g is the gradient and M is the preconditioner.
    scaled: Sums,
    /// The product of M⁻¹g with the gradient of the previous step, where g is the gradient and M is
    /// the preconditioner.
    scaled_last: Sums,
    /// The product p·g of the last direction p and the gradient g.
    along: Sums,
}

/// Completes a step and the gradient g at its end: `w = w + step p`, and `g = g + w`. Computes all dot products that
/// the next step needs. Everything happens in one pass over the features, because these vectors do not fit in the
/// cache. `last` is the gradient before the step.
#[wide]
fn complete(
    (column_squares, share): (&[f32], &Lanes),
    step: &Lanes,
    direction: &[Lanes],
    last: &[Lanes],
    weights: &mut [Lanes],
    gradient: &mut [Lanes],
) -> Dots {
    let zero = [0.0; LANES];
    let mut dots = Dots {
        gradient: zero,
        scaled: zero,
        scaled_last: zero,
        along: zero,
    };
    for first in (0..gradient.len()).step_by(STRETCH) {
        let rows = first..(first + STRETCH).min(gradient.len());
        let mut part = [Lanes::default(); 4];
        let changed = weights[rows.clone()]
            .iter_mut()
            .zip(&mut gradient[rows.clone()]);
        let others = last[rows.clone()]
            .iter()
            .zip(&direction[rows.clone()])
            .zip(&column_squares[rows]);
        for ((weights, gradient), ((last, direction), &column_square)) in changed.zip(others) {
            weights.add_product(step, direction);
            gradient.add_scaled(1.0, weights);
            let scaled = scaled(column_square, share, gradient);
            part[0].add_product(gradient, gradient);
            part[1].add_product(&scaled, gradient);
            part[2].add_product(&scaled, last);
            part[3].add_product(direction, gradient);
        }
        part[0].add_to(&mut dots.gradient);
        part[1].add_to(&mut dots.scaled);
        part[2].add_to(&mut dots.scaled_last);
        part[3].add_to(&mut dots.along);
    }
    dots
}

/// Computes the next direction, `p = beta p − M⁻¹ g`, where M is the preconditioner. Returns `w · p` and `p · p`.
#[wide]
fn turn(
    (column_squares, share): (&[f32], &Lanes),
    beta: &Lanes,
    gradient: &[Lanes],
    weights: &[Lanes],
    direction: &mut [Lanes],
) -> (Sums, Sums) {
    let (mut with_weights, mut with_self) = ([0.0; LANES], [0.0; LANES]);
    for first in (0..direction.len()).step_by(STRETCH) {
        let rows = first..(first + STRETCH).min(direction.len());
        let (mut weights_part, mut self_part) = (Lanes::default(), Lanes::default());
        let others = gradient[rows.clone()]
            .iter()
            .zip(&weights[rows.clone()])
            .zip(&column_squares[rows.clone()]);
        for (direction, ((gradient, weights), &column_square)) in
            direction[rows].iter_mut().zip(others)
        {
            let scaled = scaled(column_square, share, gradient);
            for lane in 0..LANES {
                direction.0[lane] = beta.0[lane] * direction.0[lane] - scaled.0[lane];
            }
            weights_part.add_product(weights, direction);
            self_part.add_product(direction, direction);
        }
        weights_part.add_to(&mut with_weights);
        self_part.add_to(&mut with_self);
    }
    (with_weights, with_self)
}

/// Computes `y = y + scale x`, with one scale per lane.
#[wide]
fn add_scaled(scale: &Lanes, x: &[Lanes], y: &mut [Lanes]) {
    for (y, x) in y.iter_mut().zip(x) {
        y.add_product(scale, x);
    }
}
