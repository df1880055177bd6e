//! Accelerated proximal gradients (FISTA), with a step length and a momentum for each label.
//!
//! **Steps.** The loss is a sum over labels i of convex functions of (`w_i`, `c_i`·, `β_i`). Let
//! `L_i` bound the curvature of the i-th function where columns have unit variance. Then steps of
//! `1/L_i` for the weights of label i, and of `1/(L_i` `v_k` + `L_k` `v_i`) for the coupling of i
//! and k, whose columns have variances `v_k` and `v_i`, majorize the whole loss. The coupling has
//! both terms because it is in the losses of both labels. The proximal step for the elastic net has
//! a closed form: soft threshold by `t l1`, then divide by `1 + 2 t l2`.
//!
//! **Curvature.** The curvature of a row is σ(1−σ), for rare labels a hundred times less than its
//! bound ¼. So `L_i` starts at the curvature of constant predictions. It then follows up or down
//! what the differences of gradients show, of weights and of couplings. A curvature seen along a
//! path is no bound: the objective is computed now and then, and if it has risen, the descent goes
//! back to the last such check and uses the true bound from there on.
//!
//! **Momentum** restarts label by label where a step turns back (O'Donoghue and Candès, *Adaptive
//! Restart for Accelerated Gradient Schemes*, 2015).
//!
//! **Resting panels.** Panels whose labels are all well within the tolerance take no part in
//! gradients until all panels are. A gradient of all panels then confirms convergence, or continues
//! with a stricter criterion for resting.
//!
//! The state takes about seven numbers per weight: w and y, their predecessors, two gradients, and
//! the point of the last check.

use crate::iterate::{Iterate, overwrite};
use crate::objective::{Objective, Slope};
use crate::penalty::{Net, soft};
use crate::stop::{Outcome, Stop};
use crate::wide::{Float, Wide};
use manylabel_base::{Error, collected, filled};
use manylabel_simd::wide;
use manylabel_sparse::Value;
use rayon::prelude::*;

/// Factor of a label's curvature after each step; what the step itself shows is a lower limit.
/// Directions of high curvature converge soon; if they come back, the next difference of gradients
/// shows it.
const FORGET: f64 = 0.7;

/// Gradients between two checks of the objective. A check takes several times as long as a
/// gradient.
const LOOK: usize = 250;

/// Smallest curvature, as a share of the bound, so that steps do not grow without end where the
/// loss is flat.
const LEAST: f64 = 1e-6;

/// The solver, with what is known about the curvature of the labels from one call to the next.
pub(crate) struct Fista<T, const N: usize> {
    /// One entry per lane, including the lanes without a label.
    paces: Vec<Pace>,
    /// The largest eigenvalue of the correlations among columns, once computed.
    eigenvalue: Option<f64>,
    /// Whether steps have been too long, so that the bound of the curvature is used from now on.
    cautious: bool,
    /// Memory of the last descent, for the next.
    path: Option<Path<T, N>>,
}

/// How one label descends.
#[derive(Clone, Copy)]
struct Pace {
    /// The curvature `L_i`; infinite for lanes without a label, which never move.
    curvature: f64,
    /// τ of the momentum.
    tau: f64,
    /// The largest KKT violation at the last gradient.
    violation: f64,
    /// ⟨y − w⁺, w⁺ − w⟩ in the metric of the step; positive where the step turns back.
    turn: f64,
}

/// The points and gradients of a descent, besides the point y where gradients are taken.
struct Path<T, const N: usize> {
    /// The result of the last proximal step.
    w: Iterate<T, N>,
    /// The result of the step before that.
    w_before: Iterate<T, N>,
    /// The point of the gradient before the last.
    y_before: Iterate<T, N>,
    /// The gradient at y.
    slope: Slope<T, N>,
    /// The gradient at `y_before`.
    slope_before: Slope<T, N>,
    /// Which panels do not rest.
    active: Vec<bool>,
    /// Whether there is no earlier gradient yet to compare the next one with.
    first: bool,
}

/// One panel's part of a path: one row per feature, and one for the intercepts.
struct Panel<'a, T, const N: usize> {
    w: &'a mut [Wide<T, N>],
    w_before: &'a mut [Wide<T, N>],
    y: &'a [Wide<T, N>],
    y_before: &'a [Wide<T, N>],
    g: &'a [Wide<T, N>],
    g_before: &'a [Wide<T, N>],
}

impl<T: Float, const N: usize> Fista<T, N> {
    /// A solver that knows nothing about curvature yet.
    pub(crate) fn new(n_labels: usize) -> Result<Self, Error> {
        let pace = Pace {
            curvature: f64::INFINITY,
            tau: 1.0,
            violation: 0.0,
            turn: 0.0,
        };
        Ok(Self {
            paces: filled("number of labels", pace, n_labels.next_multiple_of(N))?,
            eigenvalue: None,
            cautious: false,
            path: None,
        })
    }

    /// A solver in another precision that takes over what is known about curvature.
    pub(crate) fn convert<U: Float>(&self) -> Result<Fista<U, N>, Error> {
        let mut other = Fista::new(self.paces.len())?;
        other.eigenvalue = self.eigenvalue;
        for (pace, known) in other.paces.iter_mut().zip(&self.paces) {
            pace.curvature = known.curvature;
        }
        Ok(other)
    }

    /// Descends from y until no KKT violation exceeds the tolerance or gradients run out.
    ///
    /// If it converges, the outcome is the point at which the violation was measured; otherwise it
    /// is the result of the last proximal step, or the last check if the objective had risen since
    /// then.
    pub(crate) fn minimize(
        &mut self,
        objective: &mut Objective<'_, T, N>,
        mut y: Iterate<T, N>,
        stop: Stop<'_, '_>,
    ) -> Result<Outcome<T, N>, Error> {
        let bound = self.bound(objective)?;
        let mut path = match self.path.take() {
            Some(path) => path,
            None => Path::new(objective)?,
        };
        let Stop {
            tol,
            max_iter,
            progress,
        } = stop;
        let mut rest = tol / 2.0;
        self.settle(&mut path, &y)?;
        let mut look = y.try_clone()?;
        let (mut n_iter, mut converged) = (0, false);
        while n_iter < max_iter {
            n_iter += 1;
            std::mem::swap(&mut path.slope, &mut path.slope_before);
            objective.slope(&path.active, &y, &mut path.slope)?;
            self.step(&mut path, objective, &y, bound)?;
            let of_labels = self.paces[..objective.n_labels()].iter();
            progress.report(of_labels.map(|pace| pace.violation), tol)?;
            if path.active.iter().all(|&active| active) && self.within(tol) {
                converged = true;
                break;
            }
            let last = n_iter == max_iter;
            if n_iter % LOOK == 0 || last {
                if objective.risen(&look, &path.w)? {
                    self.cautious = true;
                    y.copy(&look)?;
                    self.settle(&mut path, &y)?;
                    continue;
                }
                look.copy(&path.w)?;
            }
            if last {
                std::mem::swap(&mut y, &mut look);
                break;
            }
            for (active, paces) in path.active.iter_mut().zip(self.paces.chunks(N)) {
                *active &= paces.iter().any(|pace| pace.violation > rest);
            }
            if path.active.iter().any(|&active| active) {
                self.extrapolate(&mut path, objective, &mut y)?;
            } else {
                rest /= 2.0;
                self.settle(&mut path, &y)?;
            }
        }
        self.path = Some(path);
        Ok(Outcome {
            iterate: y,
            converged,
            n_iter,
        })
    }

    /// A bound of the curvature of any label, where columns have unit variance. The first call also
    /// computes the eigenvalue and sets each label's curvature to that of constant predictions.
    fn bound(&mut self, objective: &Objective<'_, T, N>) -> Result<f64, Error> {
        let eigenvalue = if let Some(known) = self.eigenvalue {
            known
        } else {
            // The eigenvalue of the constant column is 1.
            let found = objective.largest_eigenvalue()?.max(1.0);
            for (pace, variance) in self.paces.iter_mut().zip(&objective.variance) {
                pace.curvature = variance * found;
            }
            *self.eigenvalue.insert(found)
        };
        // Twice the bound ¼ of σ(1−σ), because the eigenvalue is an estimate from below.
        Ok(0.5 * eigenvalue)
    }

    /// Begins a descent at a point: no momentum, all panels active.
    fn settle(&mut self, path: &mut Path<T, N>, y: &Iterate<T, N>) -> Result<(), Error> {
        path.w.copy(y)?;
        overwrite("couplings", &mut path.w_before.couplings, &y.couplings)?;
        path.active.fill(true);
        path.first = true;
        for pace in &mut self.paces {
            pace.tau = 1.0;
        }
        Ok(())
    }

    /// Whether no label's KKT violation exceeds `tol`.
    fn within(&self, tol: f64) -> bool {
        let violations = self.paces.iter().map(|pace| pace.violation);
        violations.fold(0.0, f64::max) <= tol
    }

    /// Takes the proximal steps of all active panels from y to the next w. Updates the curvature,
    /// the violation and the turn of each label.
    fn step(
        &mut self,
        path: &mut Path<T, N>,
        objective: &Objective<'_, T, N>,
        y: &Iterate<T, N>,
        bound: f64,
    ) -> Result<(), Error> {
        let (first, cautious) = (path.first, self.cautious);
        let of_pairs = path.seen_of_pairs(objective, y)?;
        self.paces
            .par_chunks_mut(N)
            .zip(of_pairs.par_chunks(N))
            .zip(path.panels(y, objective.height()))
            .filter_map(|(of_panel, panel)| Some((of_panel, panel?)))
            .for_each(|((paces, of_pairs), mut panel)| {
                if !first {
                    let (squares, products) = differences(&panel);
                    for lane in 0..N {
                        let of_lane = &mut paces[lane].curvature;
                        if of_lane.is_finite() {
                            let square = squares[lane] + of_pairs[lane][0];
                            let product = products[lane] + of_pairs[lane][1];
                            let seen = if product > 0.0 { square / product } else { 0.0 };
                            *of_lane = (*of_lane * FORGET).max(seen).clamp(LEAST * bound, bound);
                        }
                    }
                }
                if cautious {
                    for pace in paces.iter_mut().filter(|pace| pace.curvature.is_finite()) {
                        pace.curvature = bound;
                    }
                }
                let curvatures = std::array::from_fn(|lane| paces[lane].curvature);
                let (violations, turns) = proximal(&mut panel, &objective.features, &curvatures);
                for (lane, pace) in paces.iter_mut().enumerate() {
                    let real = pace.curvature.is_finite();
                    pace.violation = if real { violations[lane] } else { 0.0 };
                    pace.turn = if real {
                        turns[lane] * pace.curvature
                    } else {
                        0.0
                    };
                }
            });
        path.first = false;
        self.step_pairs(path, objective, y);
        Ok(())
    }

    /// The proximal steps of couplings. Runs after that of weights, whose curvatures it uses.
    /// Couplings between a resting and an active panel do not move.
    fn step_pairs(
        &mut self,
        path: &mut Path<T, N>,
        objective: &Objective<'_, T, N>,
        y: &Iterate<T, N>,
    ) {
        let (variance, net) = (&objective.variance, objective.pair);
        for (at, &pair) in objective.pairs().iter().enumerate() {
            let w = path.w.couplings[at];
            path.w_before.couplings[at] = w;
            let Some([i, k]) = path.moving(pair) else {
                continue;
            };
            let (y, g) = (y.couplings[at], path.slope.couplings[at]);
            let metric =
                self.paces[i].curvature * variance[k] + self.paces[k].curvature * variance[i];
            let violation = net.violation(y, g).f64();
            let t = T::of(1.0 / metric);
            let shrunk = soft(y - t * g, t * net.l1);
            let next = T::of(shrunk.f64() / (1.0 + 2.0 * (t * net.l2).f64()));
            let turn = metric * (y - next).f64() * (next - w).f64() / 2.0;
            for label in [i, k] {
                let pace = &mut self.paces[label];
                pace.violation = pace.violation.max(violation);
                pace.turn += turn;
            }
            path.w.couplings[at] = next;
        }
    }

    /// Moves y beyond w, by the momentum of each label. A coupling takes the smaller momentum of
    /// its two labels.
    fn extrapolate(
        &mut self,
        path: &mut Path<T, N>,
        objective: &Objective<'_, T, N>,
        y: &mut Iterate<T, N>,
    ) -> Result<(), Error> {
        let height = objective.height();
        let momenta = self.paces.iter_mut().map(Pace::momentum);
        let momenta = collected("number of labels", momenta)?;
        overwrite("couplings", &mut path.y_before.couplings, &y.couplings)?;
        let before = path.y_before.weights.par_chunks_mut(height);
        y.weights
            .par_chunks_mut(height)
            .zip(before)
            .enumerate()
            .filter(|&(panel, _)| path.active[panel])
            .for_each(|(panel, (y, before))| {
                before.copy_from_slice(y);
                let momenta: [T; N] = std::array::from_fn(|lane| T::of(momenta[panel * N + lane]));
                let rows = panel * height..(panel + 1) * height;
                let (w, w_before) = (&path.w.weights[rows.clone()], &path.w_before.weights[rows]);
                for ((y, w), w_before) in y.iter_mut().zip(w).zip(w_before) {
                    for lane in 0..N {
                        y.0[lane] = w.0[lane] + momenta[lane] * (w.0[lane] - w_before.0[lane]);
                    }
                }
            });
        for (at, &pair) in objective.pairs().iter().enumerate() {
            if let Some([i, k]) = path.moving(pair) {
                let momentum = T::of(momenta[i].min(momenta[k]));
                let (w, w_before) = (path.w.couplings[at], path.w_before.couplings[at]);
                y.couplings[at] = w + momentum * (w - w_before);
            }
        }
        Ok(())
    }
}

impl Pace {
    /// The next momentum; zero if the last step turned back.
    fn momentum(&mut self) -> f64 {
        if self.turn > 0.0 {
            self.tau = 1.0;
            return 0.0;
        }
        let next = f64::midpoint(1.0, (1.0 + 4.0 * self.tau * self.tau).sqrt());
        let momentum = (self.tau - 1.0) / next;
        self.tau = next;
        momentum
    }
}

impl<T: Float, const N: usize> Path<T, N> {
    /// Room for a descent.
    fn new(objective: &Objective<'_, T, N>) -> Result<Self, Error> {
        let zeros = || Iterate::zeros(objective.n_rows(), 0);
        Ok(Self {
            w: zeros()?,
            w_before: zeros()?,
            y_before: zeros()?,
            slope: Slope::new(objective)?,
            slope_before: Slope::new(objective)?,
            active: filled("number of labels", true, objective.n_panels())?,
            first: true,
        })
    }

    /// The labels of a pair, if the panels of both are active.
    fn moving(&self, (i, k): (u32, u32)) -> Option<[usize; 2]> {
        let labels = [i as usize, k as usize];
        let moves = labels.iter().all(|label| self.active[label / N]);
        moves.then_some(labels)
    }

    /// Each panel's part of the path; `None` for panels that rest.
    fn panels<'a>(
        &'a mut self,
        y: &'a Iterate<T, N>,
        height: usize,
    ) -> impl IndexedParallelIterator<Item = Option<Panel<'a, T, N>>> {
        let w = self.w.weights.par_chunks_mut(height);
        let w_before = self.w_before.weights.par_chunks_mut(height);
        let y_both = y.weights.par_chunks(height);
        let y_both = y_both.zip(self.y_before.weights.par_chunks(height));
        let g_both = self.slope.weights.par_chunks(height);
        let g_both = g_both.zip(self.slope_before.weights.par_chunks(height));
        let points = w.zip(w_before).zip(y_both).zip(g_both);
        let panels = points.zip(&self.active);
        panels.map(
            |((((w, w_before), (y, y_before)), (g, g_before)), &active)| {
                active.then_some(Panel {
                    w,
                    w_before,
                    y,
                    y_before,
                    g,
                    g_before,
                })
            },
        )
    }

    /// What the couplings of each label add to `‖Δg‖²` and `⟨Δg, Δy⟩` since the last gradient, in
    /// terms of columns of unit variance.
    fn seen_of_pairs(
        &self,
        objective: &Objective<'_, T, N>,
        y: &Iterate<T, N>,
    ) -> Result<Vec<[f64; 2]>, Error> {
        let mut seen = filled("number of labels", [0.0; 2], self.active.len() * N)?;
        if self.first {
            return Ok(seen);
        }
        let changes = self.slope.halves.iter().zip(&self.slope_before.halves);
        let moves = y.couplings.iter().zip(&self.y_before.couplings);
        for ((&(i, k), (now, before)), (y, y_before)) in
            objective.pairs().iter().zip(changes).zip(moves)
        {
            let moved = y.f64() - y_before.f64();
            for (side, label, other) in [(0, i as usize, k as usize), (1, k as usize, i as usize)] {
                if self.active[label / N] {
                    let change = now[side].f64() - before[side].f64();
                    seen[label][0] += change * change / objective.variance[other];
                    seen[label][1] += change * moved;
                }
            }
        }
        Ok(seen)
    }
}

/// `‖Δg‖²` and `⟨Δg, Δy⟩` of each label's weights since the last gradient. Their ratio is a
/// curvature.
#[wide]
fn differences<T: Float, const N: usize>(panel: &Panel<'_, T, N>) -> ([f64; N], [f64; N]) {
    let (mut squares, mut products) = (Wide::<T, N>::zero(), Wide::<T, N>::zero());
    for at in 0..panel.y.len() {
        for lane in 0..N {
            let of_g = panel.g[at].0[lane] - panel.g_before[at].0[lane];
            let of_y = panel.y[at].0[lane] - panel.y_before[at].0[lane];
            squares.0[lane] += of_g * of_g;
            products.0[lane] += of_g * of_y;
        }
    }
    (squares.0.map(Value::f64), products.0.map(Value::f64))
}

/// The proximal step of a panel. `features`: the penalty of each row; `curvatures`: the curvature
/// of each label.
///
/// Returns, for each label, the largest KKT violation at y, and ⟨y − w⁺, w⁺ − w⟩.
#[wide]
fn proximal<T: Float, const N: usize>(
    panel: &mut Panel<'_, T, N>,
    features: &[Net<T>],
    curvatures: &[f64; N],
) -> ([f64; N], [f64; N]) {
    let steps: [T; N] = std::array::from_fn(|lane| T::of(1.0 / curvatures[lane]));
    let (mut violations, mut turns) = (Wide::<T, N>::zero(), Wide::<T, N>::zero());
    for (at, &net) in features.iter().enumerate() {
        let (y, g) = (&panel.y[at], &panel.g[at]);
        let before = panel.w[at];
        let mut next = Wide::<T, N>::zero();
        for lane in 0..N {
            let (y, g, t) = (y.0[lane], g.0[lane], steps[lane]);
            let violation = net.violation(y, g);
            if violation > violations.0[lane] {
                violations.0[lane] = violation;
            }
            let scale = T::of(1.0) + (t * net.l2 + t * net.l2);
            next.0[lane] = soft(y - t * g, t * net.l1).over(scale);
            turns.0[lane] += (y - next.0[lane]) * (next.0[lane] - before.0[lane]);
        }
        panel.w_before[at] = before;
        panel.w[at] = next;
    }
    (violations.0.map(Value::f64), turns.0.map(Value::f64))
}
