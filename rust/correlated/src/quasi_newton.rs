//! Minimizes the objective by quasi-Newton steps. After each gradient, all labels take a step.
//!
//! **Model.** The loss of a label is approximated by a quadratic function of its free parameters.
//! These are the intercept, and all weights and couplings that are nonzero or should become
//! nonzero. The initial curvature of this function is a multiple of the matrix of second moments of
//! the columns. The curvature of the loss has this form if the predictions are the same for all
//! rows. The curvature of the function is then updated with the last few differences of gradients,
//! by the BFGS formula (Broyden, Fletcher, Goldfarb and Shanno).
//!
//! **Step.** Coordinate descent decreases the sum of the quadratic functions and the penalties,
//! label by label. A coupling is in the quadratic functions of both its labels. Labels that have no
//! coupling with each other are processed in parallel. Their order depends only on the data, so
//! results do not depend on the number of threads.
//!
//! **Check.** The next gradient shows whether the step of a label was too long. If so, the step is
//! shortened and the estimated curvature is increased.
//!
//! This method needs far fewer gradients than the first-order solver (FISTA). If columns are
//! correlated, the curvature is small along some directions, and the first-order solver converges
//! slowly. However, this method needs a dense matrix for every label, with one row and column for
//! each free parameter. The objective may increase. The caller checks whether it has increased.

mod curvature;
mod problem;

use self::curvature::{Secant, Shape};
use self::problem::{Coordinate, Halves, Local, Tie, sweep, ties};
use crate::gradient::Pass;
use crate::gram::Gram;
use crate::iterate::{Iterate, overwrite};
use crate::objective::{Objective, Slope};
use crate::stop::{Outcome, Progress, Stop};
use crate::stored::stored;
use crate::wide::Float;
use manylabel_base::{Error, Watch, collected, copied, filled, parts, parts_with, push, reserved};
use rayon::prelude::*;

/// Largest number of gradients. After this many gradients, few labels are left to optimize. The
/// first-order solver then computes gradients only for groups of labels that are not finished.
const MAX_GRADIENTS: usize = 25;

/// Coordinate descent for a label ends when the KKT violation is at most this fraction of the
/// violation at the last gradient.
const LEFT: f64 = 0.1;

/// A step of a label is too long if the objective rises steeply at the end of the step: the slope
/// along the step is larger than this fraction of the absolute value of the slope at the start.
const OVERSHOT: f64 = 0.5;

/// Names of arrays in error messages about memory.
const LABELS: &str = "number of labels";
const PAIRS: &str = "number of pairs of labels";
const COLUMNS: &str = "number of parameters of a label";

/// The quasi-Newton solver. It keeps its estimates of the curvature from one call to the next.
pub(crate) struct QuasiNewton<T> {
    /// Second moments of all columns: features, labels and the constant.
    gram: Gram<T>,
    /// For each label, the estimate of the curvature of its loss.
    shapes: Vec<Shape<T>>,
}

stored!([T: Float] QuasiNewton<T> { gram, shapes });

/// A run of the solver, from one pass over the rows to the next.
pub(crate) struct Run<T, const N: usize> {
    /// The current point, where the next gradient is computed.
    now: Iterate<T, N>,
    /// The last gradient of the loss.
    slope: Slope<T, N>,
    /// For each panel (group of labels), whether it has changed and needs a new gradient.
    active: Vec<bool>,
    /// The labels that have moved since the last gradient, and their parameters before this step.
    moved: Vec<(usize, Local<T>)>,
    stop: Stop,
    /// Number of gradients computed in this run.
    n_iter: usize,
}

stored!([T: Float, const N: usize] Run<T, N> { now, slope, active, moved, stop, n_iter });

/// What follows after a pass over the rows.
pub(crate) enum Next<T, const N: usize> {
    /// The run needs another pass.
    Pass(Run<T, N>),
    /// The run has ended.
    End(Outcome<T, N>),
}

impl<T: Float, const N: usize> Run<T, N> {
    /// Starts a run at a point. The run ends when no KKT violation exceeds the tolerance, or when the limit on
    /// gradients is reached. At most [`MAX_GRADIENTS`] gradients are computed.
    pub(crate) fn new(
        objective: &Objective<T, N>,
        start: Iterate<T, N>,
        stop: Stop,
    ) -> Result<Self, Error> {
        Ok(Self {
            now: start,
            slope: Slope::new(objective)?,
            active: filled(LABELS, true, objective.n_panels())?,
            moved: Vec::new(),
            stop: Stop {
                max_iter: stop.max_iter.min(MAX_GRADIENTS),
                ..stop
            },
            n_iter: 0,
        })
    }

    /// Returns the pass over the rows that the run needs next.
    pub(crate) fn pass(&self) -> Pass<'_, T, N> {
        Pass {
            active: &self.active,
            at: &self.now,
            with_loss: false,
        }
    }
}

/// The work of one step, between two gradients.
struct Stage<'o, T, const N: usize> {
    /// The function to minimize.
    objective: &'o Objective<T, N>,
    /// The current point (all weights, intercepts and couplings). It changes label by label.
    now: Iterate<T, N>,
    /// The couplings at the last gradient.
    couplings: Vec<T>,
    /// The last gradient of the loss.
    slope: Slope<T, N>,
    /// For each pair of labels, the slopes and curvatures of the coupling of these labels. The loss
    /// of each label is approximated by a quadratic function (see the module documentation), so a
    /// coupling has two slopes and two curvatures.
    halves: Vec<Halves<T>>,
    /// For each label, the largest KKT violation.
    violations: Vec<f64>,
    /// For each panel (group of labels), whether it has changed and needs a new gradient.
    active: Vec<bool>,
    /// For each label, the fraction of its last step that is kept. It is 1 unless the step was too
    /// long.
    shares: Vec<f64>,
    /// A label does not take a step if its KKT violation is at most this number.
    rest: f64,
}

/// The result of coordinate descent for one label.
struct Solved<T> {
    /// The number of the label.
    label: usize,
    /// The free parameters of the label, and their values at the last gradient.
    local: Local<T>,
    /// The new values of these parameters.
    values: Vec<T>,
    /// For each parameter, the slope of the label's quadratic function at the new values.
    slopes: Vec<T>,
    /// For each parameter, the curvature of the label's quadratic function along this parameter.
    curvatures: Vec<T>,
}

impl<T: Float> QuasiNewton<T> {
    /// Creates a solver that has not taken any steps. `gram` holds the second moments. `variances`
    /// has the number p (1 − p) for every label, where p is the fraction of rows with the label.
    pub(crate) fn new(gram: Gram<T>, variances: &[f64]) -> Result<Self, Error> {
        let shapes = variances.iter().map(|&variance| Shape::new(variance));
        Ok(Self {
            gram,
            shapes: collected(LABELS, shapes)?,
        })
    }

    /// Continues a run after the pass over the rows that [`Run::pass`] describes: takes a step.
    ///
    /// A label does not move if its violation is at most half the tolerance. Gradients are computed
    /// by panel (a group of labels). The next gradient includes a panel only if one of its labels
    /// has moved, or is coupled with a label that has moved.
    pub(crate) fn proceed<const N: usize>(
        &mut self,
        objective: &Objective<T, N>,
        run: Run<T, N>,
        progress: &mut Progress,
        watch: &Watch,
    ) -> Result<Next<T, N>, Error> {
        let Self { gram, shapes } = self;
        let Run {
            mut moved,
            stop,
            mut n_iter,
            ..
        } = run;
        let mut stage = Stage {
            objective,
            now: run.now,
            couplings: Vec::new(),
            slope: run.slope,
            halves: Vec::new(),
            violations: Vec::new(),
            active: run.active,
            shares: filled(LABELS, 1.0, objective.n_labels())?,
            rest: stop.tol / 2.0,
        };
        n_iter += 1;
        let free = stage.look()?;
        let violations = stage.violations.iter().copied();
        progress.report(violations.clone(), stop.tol, watch)?;
        let converged = violations.fold(0.0, f64::max) <= stop.tol;
        if converged || n_iter == stop.max_iter {
            return Ok(Next::End(Outcome {
                iterate: stage.now,
                converged,
                n_iter,
            }));
        }
        for pair in 0..stage.halves.len() {
            stage.halves[pair].curvature = stage.prior(gram, shapes, pair);
        }
        let this = &stage;
        let learned = moved.par_drain(..).map(|(label, before)| {
            let columns = copied(COLUMNS, &before.columns)?;
            let after = this.at(label, columns, copied(COLUMNS, &before.ties)?)?;
            let secant = Secant::new(&before, &after)?;
            Ok((label, this.share(&before, &after), before, secant))
        });
        let learned = parts(learned)?;
        let mut back = Vec::new();
        for (label, share, before, secant) in learned {
            watch.step(0)?;
            shapes[label].learn(
                gram,
                secant,
                objective.variance[label],
                share,
                &before.ties,
                &stage.halves,
            )?;
            if share < 1.0 {
                stage.shares[label] = share;
                push(LABELS, &mut back, (label, before))?;
            }
        }
        stage.active.fill(false);
        for (label, before) in &back {
            stage.retreat(*label, before);
        }
        let ties = ties(objective.pairs(), objective.n_labels())?;
        for class in stage.classes(&ties, &free)? {
            let this = &stage;
            let solved = parts_with(
                class.par_iter(),
                || Ok(Vec::new()),
                |matrix, &label| {
                    watch.step(0)?;
                    let local = this.free(label, &ties[label], &free)?;
                    shapes[label].fill(gram, &local, &this.halves, matrix)?;
                    this.solve(label, local, matrix)
                },
            );
            for solved in solved? {
                if solved.values.iter().all(|value| value.f64().is_finite()) {
                    stage.take(&solved);
                    push(LABELS, &mut moved, (solved.label, solved.local))?;
                }
            }
        }
        Ok(Next::Pass(Run {
            now: stage.now,
            slope: stage.slope,
            active: stage.active,
            moved,
            stop,
            n_iter,
        }))
    }
}

impl<T: Float, const N: usize> Stage<'_, T, N> {
    /// Reads the gradient of the last pass and computes the KKT violations. Returns, for each pair of labels, whether its
    /// coupling may move in this step.
    fn look(&mut self) -> Result<Vec<bool>, Error> {
        self.objective.write(&self.active, &mut self.slope)?;
        overwrite(PAIRS, &mut self.couplings, &self.now.couplings)?;
        self.violations = self.objective.violations(&self.now, &self.slope)?;
        self.halves.clear();
        let mut free = reserved(PAIRS, self.couplings.len())?;
        let pairs = self.objective.pairs().iter().zip(&self.slope.halves);
        for ((&(i, k), &slope), &value) in pairs.zip(&self.couplings) {
            let halves = Halves {
                slope,
                curvature: [T::default(); 2],
            };
            push(PAIRS, &mut self.halves, halves)?;
            let found = self.objective.pair.violation(value, slope[0] + slope[1]);
            let found = found.f64();
            for label in [i, k] {
                let violation = &mut self.violations[label as usize];
                *violation = violation.max(found);
            }
            free.push(found > LEFT * self.rest || value.f64() != 0.0);
        }
        Ok(free)
    }

    /// Converts a column of the second moments to a row in the weights of a panel (group of N
    /// labels). The rows are the features, followed by the intercept. Returns `None` if the column
    /// is a label.
    fn row(&self, col: u32) -> Option<usize> {
        let (width, col) = (self.objective.height() - 1, col as usize);
        if col < width {
            Some(col)
        } else {
            (col == width + self.objective.n_labels()).then_some(width)
        }
    }

    /// Returns an initial estimate of the curvature of a coupling, for the losses of its two
    /// labels.
    ///
    /// Predictions for one label are often much less certain in rows that have the other label than
    /// in average rows. Let σ be the predicted probability for a row. If the mean of σ is q, the
    /// mean of σ(1−σ) is at most q(1−q). The estimate is half of this upper bound. The mean q is
    /// computed separately for rows with and without the other label. It follows from the slopes.
    fn prior(&self, gram: &Gram<T>, shapes: &[Shape<T>], pair: usize) -> [T; 2] {
        let (i, k) = self.objective.pairs()[pair];
        let (i, k) = (i as usize, k as usize);
        let slope = self.halves[pair].slope;
        let share = &self.objective.gradient().labels.share;
        let width = self.objective.height() - 1;
        let both = gram.row(width + i)[width + k].f64() + share[i] * share[k];
        std::array::from_fn(|side| {
            let (label, other) = if side == 0 { (i, k) } else { (k, i) };
            let bias = self.slope.weights[label / N * (width + 1) + width].0[label % N].f64();
            let m = share[other];
            let holders = slope[side].f64() + m * bias + both;
            let others = share[label] + bias - holders;
            let bound = |sum: f64, of: f64| {
                let q = (sum / of).clamp(0.0, 1.0);
                of * q * (1.0 - q)
            };
            let seen = (1.0 - m).powi(2) * bound(holders, m) + m * m * bound(others, 1.0 - m);
            T::of((0.5 * seen).max(shapes[label].scale * self.objective.variance[other]))
        })
    }

    /// Undoes part of the last step of a label. A coupling has one fraction to keep for each of its
    /// two labels. The smaller fraction is used.
    fn retreat(&mut self, label: usize, before: &Local<T>) {
        let (panel, lane) = (label / N, label % N);
        let first = panel * self.objective.height();
        self.active[panel] = true;
        let part = |old: T, new: T, share: f64| old + T::of(share) * (new - old);
        for (&col, &old) in before.columns.iter().zip(&before.values) {
            if let Some(row) = self.row(col) {
                let value = &mut self.now.weights[first + row].0[lane];
                *value = part(old, *value, self.shares[label]);
            }
        }
        for &(at, tie) in &before.ties {
            let share = self.shares[label].min(self.shares[tie.other as usize]);
            let pair = tie.pair as usize;
            self.now.couplings[pair] = part(before.values[at], self.couplings[pair], share);
            self.active[tie.other as usize / N] = true;
        }
    }

    /// Divides the labels that move in this step into classes. Two labels of the same class have no
    /// common coupling that can move. Labels that do not move, and labels whose step was just
    /// shortened, are left out. The classes are found by greedy graph colouring, in the order of
    /// the labels.
    fn classes(&self, ties: &[Vec<Tie>], free: &[bool]) -> Result<Vec<Vec<usize>>, Error> {
        let n_labels = self.violations.len();
        let mut classes: Vec<Vec<usize>> = Vec::new();
        let mut class_of = filled(LABELS, usize::MAX, n_labels)?;
        // `taken` holds, for each class, the last label that cannot be added to the class.
        let mut taken: Vec<usize> = Vec::new();
        for label in 0..n_labels {
            if self.violations[label] <= self.rest || self.shares[label] < 1.0 {
                continue;
            }
            for tie in &ties[label] {
                let class = class_of[tie.other as usize];
                if free[tie.pair as usize] && class != usize::MAX {
                    taken[class] = label;
                }
            }
            let class = taken.iter().position(|&by| by != label);
            let class = class.unwrap_or(classes.len());
            if class == classes.len() {
                push(LABELS, &mut classes, Vec::new())?;
                push(LABELS, &mut taken, usize::MAX)?;
            }
            push(LABELS, &mut classes[class], label)?;
            class_of[label] = class;
        }
        Ok(classes)
    }

    /// Returns the free parameters of a label. These are the intercept, and all weights and
    /// couplings that are nonzero or should become nonzero.
    fn free(&self, label: usize, ties: &[Tie], free: &[bool]) -> Result<Local<T>, Error> {
        let (height, lane) = (self.objective.height(), label % N);
        let rows = label / N * height..(label / N + 1) * height;
        let (y, g) = (&self.now.weights[rows.clone()], &self.slope.weights[rows]);
        let width = height - 1;
        let mut columns = Vec::new();
        for (col, net) in self.objective.features[..width].iter().enumerate() {
            let (y, g) = (y[col].0[lane], g[col].0[lane]);
            if y.f64() != 0.0 || net.violation(y, g).f64() > LEFT * self.rest {
                push(COLUMNS, &mut columns, col as u32)?;
            }
        }
        let mut found = Vec::new();
        for tie in ties.iter().filter(|tie| free[tie.pair as usize]) {
            push(COLUMNS, &mut found, (columns.len(), *tie))?;
            push(COLUMNS, &mut columns, width as u32 + tie.other)?;
        }
        let constant = width + self.objective.n_labels();
        push(COLUMNS, &mut columns, constant as u32)?;
        self.at(label, columns, found)
    }

    /// Returns the values and slopes of the given columns at the last gradient. `ties` lists the
    /// columns that are couplings, together with their positions.
    fn at(
        &self,
        label: usize,
        columns: Vec<u32>,
        ties: Vec<(usize, Tie)>,
    ) -> Result<Local<T>, Error> {
        let (height, lane) = (self.objective.height(), label % N);
        // Couplings are not stored in these matrices. For columns that are couplings, the row of
        // the intercept is read, and the loop below replaces the values.
        let row = |&col: &u32| label / N * height + (col as usize).min(height - 1);
        let weight = |col| self.now.weights[row(col)].0[lane];
        let slope = |col| self.slope.weights[row(col)].0[lane];
        let mut values = collected(COLUMNS, columns.iter().map(weight))?;
        let mut slopes = collected(COLUMNS, columns.iter().map(slope))?;
        let mut shares = copied(COLUMNS, &slopes)?;
        for &(at, tie) in &ties {
            let half = &self.halves[tie.pair as usize];
            values[at] = self.couplings[tie.pair as usize];
            slopes[at] = half.slope[tie.side];
            shares[at] = T::of(0.5) * (half.slope[0] + half.slope[1]);
        }
        Ok(Local {
            columns,
            ties,
            values,
            slopes,
            shares,
        })
    }

    /// Returns the fraction of the last step of a label that is kept. It is 1 if the step was not
    /// too long.
    ///
    /// The objective is convex. If its slope along the step is not positive at the end of the step,
    /// the objective has not increased. If the slope at the end is positive and too large (see
    /// [`OVERSHOT`]), the slope is interpolated linearly between the two ends of the step. The
    /// fraction is the point where the interpolated slope is zero, limited to the range from 0.1 to
    /// 0.9.
    fn share(&self, before: &Local<T>, after: &Local<T>) -> f64 {
        let Objective { features, pair, .. } = self.objective;
        let (mut start, mut end) = (0.0, 0.0);
        let mut ties = before.ties.iter().map(|&(at, _)| at).peekable();
        for (at, &col) in before.columns.iter().enumerate() {
            let (old, new) = (before.values[at], after.values[at]);
            let penalty = if ties.next_if_eq(&at).is_some() {
                0.5 * (pair.cost(new) - pair.cost(old))
            } else {
                let net = features[(col as usize).min(features.len() - 1)];
                net.cost(new) - net.cost(old)
            };
            let step = new.f64() - old.f64();
            start += before.shares[at].f64() * step + penalty;
            end += after.shares[at].f64() * step + penalty;
        }
        if end > OVERSHOT * start.abs() {
            (start / (start - end)).clamp(0.1, 0.9)
        } else {
            1.0
        }
    }

    /// Decreases the quadratic function of a label plus the penalties, by coordinate descent.
    /// `matrix` is the curvature of the quadratic function.
    fn solve(&self, label: usize, local: Local<T>, matrix: &[T]) -> Result<Solved<T>, Error> {
        let n = local.columns.len();
        let zero = T::default();
        let mut values = copied(COLUMNS, &local.values)?;
        let mut slopes = copied(COLUMNS, &local.slopes)?;
        let features = &self.objective.features;
        let coordinates = local.columns.iter().map(|&col| Coordinate {
            net: features[(col as usize).min(features.len() - 1)],
            slope: zero,
            curvature: zero,
            fixed: false,
        });
        let mut coordinates = collected(COLUMNS, coordinates)?;
        for &(at, tie) in &local.ties {
            let half = &self.halves[tie.pair as usize];
            coordinates[at] = Coordinate {
                net: self.objective.pair,
                slope: half.slope[1 - tie.side],
                curvature: half.curvature[1 - tie.side],
                fixed: self.shares[tie.other as usize] < 1.0,
            };
            // The step of the other label may have changed this coupling since the last gradient.
            let now = self.now.couplings[tie.pair as usize];
            let moved = now - values[at];
            if moved.f64() != 0.0 {
                values[at] = now;
                for (slope, &curvature) in slopes.iter_mut().zip(&matrix[at * n..][..n]) {
                    *slope += moved * curvature;
                }
            }
        }
        let enough = T::of(LEFT * self.violations[label]);
        sweep(matrix, &mut coordinates, enough, &mut values, &mut slopes);
        let curvatures = (0..n).map(|at| matrix[at * n + at]);
        let curvatures = collected(COLUMNS, curvatures)?;
        Ok(Solved {
            label,
            local,
            values,
            slopes,
            curvatures,
        })
    }

    /// Moves the parameters of a label to the result of its coordinate descent.
    fn take(&mut self, solved: &Solved<T>) {
        let (panel, lane) = (solved.label / N, solved.label % N);
        let first = panel * self.objective.height();
        self.active[panel] = true;
        for (&col, &value) in solved.local.columns.iter().zip(&solved.values) {
            if let Some(row) = self.row(col) {
                self.now.weights[first + row].0[lane] = value;
            }
        }
        for &(at, tie) in &solved.local.ties {
            self.now.couplings[tie.pair as usize] = solved.values[at];
            self.active[tie.other as usize / N] = true;
            let half = &mut self.halves[tie.pair as usize];
            half.slope[tie.side] = solved.slopes[at];
            half.curvature[tie.side] = solved.curvatures[at];
        }
    }
}
