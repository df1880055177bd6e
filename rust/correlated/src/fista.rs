//! Minimizes the objective by accelerated proximal gradients (FISTA), with a separate step length
//! and momentum for each label.
//!
//! **Steps.** The loss is a sum of convex functions, one for each label i. The variables of
//! function i are the weights `w_i` and the intercept `β_i` of the label, and its couplings `c_ik`.
//! A coupling is the parameter of a pair of labels. Let `L_i` bound the curvature of the i-th
//! function for columns of unit variance. The step for the weights of label i is `1/L_i`. Let `v_i`
//! be the variance of label i. The step for the coupling of labels i and k is
//! `1/(L_i v_k + L_k v_i)`. The denominator has two terms because the coupling is in the losses of
//! both labels. With these steps, the quadratic function that a step minimizes is an upper bound of
//! the whole loss. A proximal step of length t for the elastic net `l2 θ² + l1 |θ|` of a variable θ
//! has a closed form. It is a soft thresholding by `t l1`, followed by a division by `1 + 2 t l2`.
//!
//! **Curvature.** The curvature of the loss at a row with the predicted probability σ is σ(1−σ).
//! For rare labels, this curvature is a hundred times smaller than its upper bound ¼. `L_i`
//! therefore starts at the curvature of constant predictions. Differences of successive gradients
//! then show a curvature, and `L_i` is increased or decreased towards this observed curvature. An
//! observed curvature is not an upper bound. The objective is therefore computed from time to time.
//! If the objective has increased, the solver returns to the last point where it was computed. From
//! then on, it uses the upper bound.
//!
//! **Momentum.** The momentum of a label restarts when its proximal step points against the last
//! change of its weights (O'Donoghue and Candès, *Adaptive Restart for Accelerated Gradient
//! Schemes*, 2015).
//!
//! **Resting panels.** Labels are processed in panels of N labels. A panel rests, and its gradient
//! is not computed, while the KKT violations of all labels of the panel are well within the
//! tolerance. When all panels rest, the gradient of all panels is computed. It shows whether the
//! solver has converged. If not, the solver continues with a stricter criterion for resting.
//!
//! Let w be the current point, and y the extrapolated point at which gradients are computed. The
//! solver stores about seven numbers per weight: w and y, the previous w and y, two gradients, and
//! the last point where the objective was computed.

mod run;

use self::run::Looking;
pub(crate) use self::run::{Next, Run};
use crate::iterate::{Iterate, overwrite};
use crate::objective::{Objective, Slope, risen};
use crate::penalty::{Net, soft};
use crate::stop::{Outcome, Progress, Stop};
use crate::stored::{Stored, stored};
use crate::wide::{Float, Wide};
use manylabel_base::{Error, Watch, collected, filled};
use manylabel_simd::wide;
use manylabel_sparse::Value;
use rayon::prelude::*;

/// Factor by which the estimated curvature of a label decreases after each step. The curvature seen
/// in a step is then used as a lower limit. Directions of high curvature converge soon and no
/// longer limit the step. If such a direction becomes important again, the next difference of
/// gradients shows its curvature.
const FORGET: f64 = 0.7;

/// Number of gradients between two computations of the objective. One computation of the objective
/// takes several times as long as a gradient.
const LOOK: usize = 250;

/// Smallest estimate of the curvature, as a fraction of the upper bound. It limits the step length
/// where the loss is flat.
const LEAST: f64 = 1e-6;

/// The accelerated proximal gradient solver. It keeps its estimates of the curvature from one call
/// to the next.
pub(crate) struct Fista<T, const N: usize> {
    /// The state of each label. Labels are processed in panels of N labels. If the last panel is
    /// incomplete, its unused lanes also have an entry.
    paces: Vec<Pace>,
    /// The largest eigenvalue of the correlation matrix of all columns, if it has been computed.
    eigenvalue: Option<f64>,
    /// Whether the objective has increased because steps were too long. The upper bound of the
    /// curvature is then used instead of estimates.
    cautious: bool,
    /// Memory of the last run, which the next run reuses.
    path: Option<Box<Path<T, N>>>,
}

impl<T: Float, const N: usize> Stored for Fista<T, N> {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.paces.write(out)?;
        self.eigenvalue.write(out)?;
        self.cautious.write(out)
    }

    fn read(from: &mut &[u8]) -> Result<Self, Error> {
        Ok(Self {
            paces: Stored::read(from)?,
            eigenvalue: Stored::read(from)?,
            cautious: Stored::read(from)?,
            // Its numbers have no effect on the next run.
            path: None,
        })
    }
}

/// The state of one label.
#[derive(Clone, Copy)]
struct Pace {
    /// The estimate `L_i` of the curvature. In unused lanes it is infinite, so that the weights in
    /// these lanes never change.
    curvature: f64,
    /// The number τ from which the momentum is computed.
    tau: f64,
    /// The largest KKT violation at the last gradient.
    violation: f64,
    /// The inner product ⟨y − w⁺, w⁺ − w⟩, with each term divided by its step length. The last step
    /// led from y to w⁺, and the step before it led to w. A positive product means that the last
    /// step goes against the previous direction.
    turn: f64,
}

stored!([] Pace { curvature, tau, violation, turn });

/// The points and gradients of a run. The point y, where gradients are computed, is stored
/// separately.
struct Path<T, const N: usize> {
    /// The result of the last proximal step.
    w: Iterate<T, N>,
    /// The result of the previous proximal step.
    w_before: Iterate<T, N>,
    /// The point of the previous gradient.
    y_before: Iterate<T, N>,
    /// The gradient at y.
    slope: Slope<T, N>,
    /// The gradient at `y_before`.
    slope_before: Slope<T, N>,
    /// For each panel (group of N labels), whether its gradient is computed. A panel whose gradient
    /// is not computed rests.
    active: Vec<bool>,
    /// Whether the next gradient is the first one. There is then no earlier gradient to compare it
    /// with.
    first: bool,
}

stored!([T: Float, const N: usize] Path<T, N> { w, w_before, y_before, slope, slope_before, active, first });

/// The data of one panel of N labels. Each array has one row per feature and a last row for the
/// intercepts.
struct Panel<'a, T, const N: usize> {
    w: &'a mut [Wide<T, N>],
    w_before: &'a mut [Wide<T, N>],
    y: &'a [Wide<T, N>],
    y_before: &'a [Wide<T, N>],
    g: &'a [Wide<T, N>],
    g_before: &'a [Wide<T, N>],
}

impl<T: Float, const N: usize> Fista<T, N> {
    /// Creates a solver that has no estimates of the curvature yet.
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

    /// Creates a solver in another precision with the same estimates of the curvature.
    pub(crate) fn convert<U: Float>(&self) -> Result<Fista<U, N>, Error> {
        let mut other = Fista::new(self.paces.len())?;
        other.eigenvalue = self.eigenvalue;
        for (pace, known) in other.paces.iter_mut().zip(&self.paces) {
            pace.curvature = known.curvature;
        }
        Ok(other)
    }

    /// Returns whether the estimates of the curvature have a start value, which [`bound`](Self::bound) sets.
    pub(crate) fn is_bounded(&self) -> bool {
        self.eigenvalue.is_some()
    }

    /// Sets the largest eigenvalue of the correlation matrix of all columns. Initializes the curvature of each
    /// label with the curvature of constant predictions.
    pub(crate) fn bound(&mut self, eigenvalue: f64, objective: &Objective<T, N>) {
        // The eigenvalue that belongs to the constant column is 1.
        let found = eigenvalue.max(1.0);
        for (pace, variance) in self.paces.iter_mut().zip(&objective.variance) {
            pace.curvature = variance * found;
        }
        self.eigenvalue = Some(found);
    }

    /// Starts to minimize the objective from y. The run ends when no KKT violation exceeds the tolerance, or when
    /// the limit on the number of gradients is reached.
    pub(crate) fn start(
        &mut self,
        objective: &Objective<T, N>,
        y: Iterate<T, N>,
        stop: Stop,
    ) -> Result<Run<T, N>, Error> {
        let mut path = match self.path.take() {
            Some(path) => path,
            None => Box::new(Path::new(objective)?),
        };
        self.settle(&mut path, &y)?;
        Ok(Run {
            look: y.try_clone()?,
            y,
            path,
            rest: stop.tol / 2.0,
            stop,
            n_iter: 0,
            looking: Looking::Away,
        })
    }

    /// Continues a run after the pass over the rows that [`Run::pass`] describes.
    ///
    /// If the solver converges, it returns the point where the violation was computed. Otherwise it
    /// returns the result of the last proximal step. If the objective has increased since it was
    /// last computed, the solver instead returns the point where it was last computed.
    pub(crate) fn proceed(
        &mut self,
        objective: &Objective<T, N>,
        mut run: Run<T, N>,
        progress: &mut Progress,
        watch: &Watch,
    ) -> Result<Next<T, N>, Error> {
        match run.looking {
            Looking::Away => {
                run.n_iter += 1;
                std::mem::swap(&mut run.path.slope, &mut run.path.slope_before);
                objective.write(&run.path.active, &mut run.path.slope)?;
                self.step(&mut run.path, objective, &run.y)?;
                let of_labels = self.paces[..objective.n_labels()].iter();
                let violations = of_labels.map(|pace| pace.violation);
                progress.report(violations, run.stop.tol, watch)?;
                if run.path.active.iter().all(|&active| active) && self.within(run.stop.tol) {
                    return Ok(self.end(run, true));
                }
                if run.n_iter.is_multiple_of(LOOK) || run.is_last() {
                    run.looking = Looking::Back;
                    return Ok(Next::Pass(run));
                }
            }
            Looking::Back => {
                run.looking = Looking::Here(objective.value(&run.look, watch)?);
                return Ok(Next::Pass(run));
            }
            Looking::Here(before) => {
                run.looking = Looking::Away;
                if risen(before, objective.value(&run.path.w, watch)?) {
                    self.cautious = true;
                    run.y.copy(&run.look)?;
                    self.settle(&mut run.path, &run.y)?;
                    return Ok(if run.is_last() {
                        self.end(run, false)
                    } else {
                        Next::Pass(run)
                    });
                }
                run.look.copy(&run.path.w)?;
                if run.is_last() {
                    std::mem::swap(&mut run.y, &mut run.look);
                    return Ok(self.end(run, false));
                }
            }
        }
        for (active, paces) in run.path.active.iter_mut().zip(self.paces.chunks(N)) {
            *active &= paces.iter().any(|pace| pace.violation > run.rest);
        }
        if run.path.active.iter().any(|&active| active) {
            self.extrapolate(&mut run.path, objective, &mut run.y)?;
        } else {
            run.rest /= 2.0;
            self.settle(&mut run.path, &run.y)?;
        }
        Ok(Next::Pass(run))
    }

    /// Ends a run. Its memory is kept for the next run.
    fn end(&mut self, run: Run<T, N>, converged: bool) -> Next<T, N> {
        self.path = Some(run.path);
        Next::End(Outcome {
            iterate: run.y,
            converged,
            n_iter: run.n_iter,
        })
    }

    /// Returns an upper bound of the curvature of every label, for columns of unit variance.
    fn limit(&self) -> f64 {
        // The upper bound of σ(1−σ) is ¼. Twice this bound is used, because the estimate of the
        // eigenvalue may be too small.
        0.5 * self.eigenvalue.expect("set before the first run")
    }

    /// Starts a run at the point `y`, without momentum. Gradients are computed for all labels.
    fn settle(&mut self, path: &mut Path<T, N>, y: &Iterate<T, N>) -> Result<(), Error> {
        path.w.copy(y)?;
        overwrite(
            "number of couplings",
            &mut path.w_before.couplings,
            &y.couplings,
        )?;
        path.active.fill(true);
        path.first = true;
        for pace in &mut self.paces {
            pace.tau = 1.0;
        }
        Ok(())
    }

    /// Returns whether all KKT violations are at most `tol`.
    fn within(&self, tol: f64) -> bool {
        let violations = self.paces.iter().map(|pace| pace.violation);
        violations.fold(0.0, f64::max) <= tol
    }

    /// Takes a proximal step from y to the next w, for all labels whose panel does not rest. A
    /// panel is a group of N labels. For each label, updates the curvature and the KKT violation,
    /// and records whether its step goes against the previous direction.
    fn step(
        &mut self,
        path: &mut Path<T, N>,
        objective: &Objective<T, N>,
        y: &Iterate<T, N>,
    ) -> Result<(), Error> {
        let (first, cautious, bound) = (path.first, self.cautious, self.limit());
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

    /// Takes the proximal steps of the couplings. It must be called after the steps of the weights,
    /// because it uses the updated curvatures. Labels are processed in panels of N labels. A
    /// coupling does not change if the panel of one of its labels rests.
    fn step_pairs(
        &mut self,
        path: &mut Path<T, N>,
        objective: &Objective<T, N>,
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

    /// Computes the next y from w, by the momentum of each label. A coupling uses the smaller of
    /// the momenta of its two labels.
    fn extrapolate(
        &mut self,
        path: &mut Path<T, N>,
        objective: &Objective<T, N>,
        y: &mut Iterate<T, N>,
    ) -> Result<(), Error> {
        let height = objective.height();
        let momenta = self.paces.iter_mut().map(Pace::momentum);
        let momenta = collected("number of labels", momenta)?;
        overwrite(
            "number of couplings",
            &mut path.y_before.couplings,
            &y.couplings,
        )?;
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
    /// Returns the next momentum. It is zero if the last step went against the direction of the
    /// step before it.
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
    /// Allocates memory for a run.
    fn new(objective: &Objective<T, N>) -> Result<Self, Error> {
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

    /// Returns the two labels of a pair. Returns `None` if the panel (group of N labels) of one of
    /// them rests.
    fn moving(&self, (i, k): (u32, u32)) -> Option<[usize; 2]> {
        let labels = [i as usize, k as usize];
        let moves = labels.iter().all(|label| self.active[label / N]);
        moves.then_some(labels)
    }

    /// Divides the arrays by panel (group of N labels). Panels that rest get `None`.
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

    /// For each label, returns `‖Δg‖²` and `⟨Δg, Δy⟩` over its couplings, for columns of unit
    /// variance. Δg and Δy are the changes of the gradient and of the point y since the previous
    /// gradient.
    fn seen_of_pairs(
        &self,
        objective: &Objective<T, N>,
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

/// For each label, returns `‖Δg‖²` and `⟨Δg, Δy⟩` over its weights. Δg and Δy are the changes of
/// the gradient and of the point y since the previous gradient. The ratio of the two numbers is a
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

/// Takes the proximal step of a panel of labels. Each row of the panel belongs to a feature, and
/// `features` holds the penalty of each row. `curvatures` holds the curvature of each label.
///
/// For each label, returns the largest KKT violation at the extrapolated point y, and the value
/// `⟨y − w⁺, w⁺ − w⟩`. Here w is the point before the step, and w⁺ is the point after the step.
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
