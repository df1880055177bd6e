//! Accelerated proximal gradients, with a step and a momentum of its own for each label.
//!
//! The loss is a sum over labels i of convex functions of (`w_i`, `c_i`·, `β_i`). Let `L_i` bound the
//! curvature of the i-th where columns have unit variance; then steps of `1/L_i` for the weights of label
//! i and of `1/(L_i` `v_k` + `L_k` `v_i`) for the coupling of i and k, whose columns have variance `v_k` and `v_i`,
//! majorize the whole: the one coupling is in the losses of both. The penalty is left to the proximal
//! step, in closed form: shrink by `t l1`, then divide by `1 + 2 t l2`.
//!
//! That is what is done where quasi-Newton steps ([`newton`]) are no use or have left something over.
//!
//! Curvature is σ(1−σ), a hundred times less for rare labels than the bound ¼ says, and every label
//! converges at its own pace. So `L_i` starts as the exact one of constant predictions and follows what
//! differences of gradients show, of weights and of couplings, up or down; and momentum restarts label by
//! label where a step turns back (O'Donoghue and Candès, *Adaptive Restart for Accelerated Gradient
//! Schemes*, 2015). What has been seen is no bound: should the objective have risen when it is looked at,
//! the descent begins again where it was, with the bound.

mod curvature;
mod newton;

use self::curvature::Curvature;
use crate::gradient::{Gradient, Pairs};
use crate::gram::Gram;
use crate::params::Penalty;
use crate::wide::{Float, Wide};
use manylabel_base::{Error, Watch, filled};
use manylabel_simd::wide;
use rayon::prelude::*;

/// What is left of a curvature after a step that has shown none: directions along which it is high are
/// soon done with, and where they come back the next difference of gradients shows them.
const FORGET: f64 = 0.7;

/// Gradients between two looks at the objective, which takes several times as long.
const LOOK: usize = 250;

/// The share by which an objective in single precision may seem to rise.
const RISE: f64 = 1e-5;

/// The least curvature, in units of the bound: steps do not grow without end where loss is flat.
const LEAST: f64 = 1e-6;

/// Penalties in the precision of the fit.
#[derive(Clone, Copy)]
struct Net<T> {
    l1: T,
    l2: T,
}

impl<T: Float> Net<T> {
    fn of(penalty: Penalty) -> Self {
        Self {
            l1: T::of(penalty.l1),
            l2: T::of(penalty.l2),
        }
    }
}

/// `sign(u) max(|u| − bound, 0)`.
#[inline(always)]
fn soft<T: Float>(u: T, bound: T) -> T {
    let zero = T::default();
    let above = u - bound;
    let below = u + bound;
    if above > zero {
        above
    } else if below < zero {
        below
    } else {
        zero
    }
}

/// How far a coordinate is from optimal: the least subgradient at `y`.
#[inline(always)]
fn violation<T: Float>(y: T, g: T, net: Net<T>) -> T {
    let zero = T::default();
    let smooth = g + (net.l2 + net.l2) * y;
    let excess = smooth.size() - net.l1;
    let at_zero = if excess > zero { excess } else { zero };
    let signed = if y > zero { net.l1 } else { zero - net.l1 };
    if y == zero {
        at_zero
    } else {
        (smooth + signed).size()
    }
}

/// What one label has of the descent.
#[derive(Clone, Copy)]
struct Pace {
    /// L; infinite for lanes without a label, which then stand still.
    curvature: f64,
    /// τ of the momentum.
    tau: f64,
    /// The least subgradient's largest entry.
    violation: f64,
    /// ⟨y − w⁺, w⁺ − w⟩ in the metric of the step.
    turn: f64,
}

/// A panel's arrays: one row a feature, and one of intercepts.
struct Panel<'a, T, const N: usize> {
    w: &'a mut [Wide<T, N>],
    w_before: &'a mut [Wide<T, N>],
    y: &'a [Wide<T, N>],
    y_before: &'a [Wide<T, N>],
    g: &'a [Wide<T, N>],
    g_before: &'a [Wide<T, N>],
}

/// The iterates of a fit: weights panel after panel, couplings of the pairs.
pub(crate) struct Descent<T, const N: usize> {
    pub(crate) pairs: Pairs,
    w: Vec<Wide<T, N>>,
    w_before: Vec<Wide<T, N>>,
    /// Where the gradient is taken.
    pub(crate) y: Vec<Wide<T, N>>,
    y_before: Vec<Wide<T, N>>,
    g: Vec<Wide<T, N>>,
    g_before: Vec<Wide<T, N>>,
    c: Vec<T>,
    /// Where the gradient of couplings is taken.
    pub(crate) d: Vec<T>,
    c_next: Vec<T>,
    /// Gradients of couplings, in the losses of both labels and in that of each.
    g_pairs: Vec<T>,
    halves: Vec<[T; 2]>,
    halves_before: Vec<[T; 2]>,
    d_before: Vec<T>,
    /// Whether steps have been too long, and the bound of curvature counts.
    cautious: bool,
    pace: Vec<Pace>,
    features: Vec<Net<T>>,
    pair: Net<T>,
    /// Whether there may be pairs.
    with_pairs: bool,
    /// p (1 − p) of every label.
    variance: Vec<f64>,
    /// For steps of second order.
    known: Option<Curvature<T>>,
    /// Once it is asked for.
    largest_eigenvalue: Option<f64>,
    /// Which panels move.
    active: Vec<bool>,
    /// Whether there is no gradient before to compare the next with.
    first: bool,
    /// Gradients taken.
    pub(crate) n_iter: usize,
    /// The most labels that were within tolerance at a time.
    within: usize,
}

impl<T: Float, const N: usize> Descent<T, N> {
    /// A start at the given weights, and without couplings; `variance`: p (1 − p) of every label.
    pub(crate) fn new(
        weights: Vec<Wide<T, N>>,
        variance: Vec<f64>,
        features: &[Penalty],
        pair: Option<Penalty>,
        gram: Option<Gram<T>>,
    ) -> Result<Self, Error> {
        let n_panels = variance.len().div_ceil(N);
        let zeros = || filled("weights", Wide::zero(), weights.len());
        let pace = (0..n_panels * N).map(|_| Pace {
            curvature: f64::INFINITY,
            tau: 1.0,
            violation: 0.0,
            turn: 0.0,
        });
        let mut descent = Self {
            pairs: Pairs::new::<N>(Vec::new(), variance.len())?,
            w: zeros()?,
            w_before: zeros()?,
            y_before: zeros()?,
            g: zeros()?,
            g_before: zeros()?,
            c: Vec::new(),
            d: Vec::new(),
            c_next: Vec::new(),
            g_pairs: Vec::new(),
            halves: Vec::new(),
            halves_before: Vec::new(),
            d_before: Vec::new(),
            cautious: false,
            pace: pace.collect(),
            features: features.iter().map(|&penalty| Net::of(penalty)).collect(),
            pair: Net::of(pair.unwrap_or(Penalty { l1: 0.0, l2: 0.0 })),
            with_pairs: pair.is_some(),
            known: gram.map(|gram| Curvature::new(gram, &variance)),
            variance,
            largest_eigenvalue: None,
            active: vec![true; n_panels],
            first: true,
            n_iter: 0,
            within: 0,
            y: weights,
        };
        descent.features.push(Net::of(Penalty { l1: 0.0, l2: 0.0 }));
        descent.settle();
        Ok(descent)
    }

    /// The same in another precision.
    pub(crate) fn convert<U: Float>(
        self,
        features: &[Penalty],
        pair: Option<Penalty>,
        gram: Option<Gram<U>>,
    ) -> Result<Descent<U, N>, Error> {
        let weights = self.y.iter().map(|row| Wide(row.0.map(|w| U::of(w.f64()))));
        let weights = weights.collect();
        let mut other = Descent::new(weights, self.variance, features, pair, gram)?;
        other.largest_eigenvalue = self.largest_eigenvalue;
        other.d = self.d.iter().map(|c| U::of(c.f64())).collect();
        other.pairs = self.pairs;
        for (pace, known) in other.pace.iter_mut().zip(&self.pace) {
            pace.curvature = known.curvature;
        }
        (other.n_iter, other.within) = (self.n_iter, self.within);
        other.settle();
        Ok(other)
    }

    /// Makes the point of the last gradient the start of a new descent.
    fn settle(&mut self) {
        self.w.copy_from_slice(&self.y);
        self.c.clone_from(&self.d);
        for pace in &mut self.pace {
            pace.tau = 1.0;
        }
        self.active.fill(true);
        self.first = true;
    }

    /// Replaces the pairs that may couple; couplings of others must be zero.
    pub(crate) fn set_pairs(&mut self, list: Vec<(u32, u32)>) -> Result<(), Error> {
        let mut values = filled("couplings", T::default(), list.len())?;
        let mut known = self.pairs.list.iter().zip(&self.d).peekable();
        for (pair, value) in list.iter().zip(&mut values) {
            while known.next_if(|(old, _)| *old < pair).is_some() {}
            if let Some((_, &old)) = known.next_if(|(old, _)| *old == pair) {
                *value = old;
            }
        }
        self.pairs = Pairs::new::<N>(list, self.variance.len())?;
        self.d = values;
        self.settle();
        Ok(())
    }

    /// The largest violation of optimality at the point of the last gradient.
    pub(crate) fn violation(&self) -> f64 {
        let each = self.pace.iter().map(|pace| pace.violation);
        each.fold(0.0, f64::max)
    }

    /// Descends until no violation exceeds `tol`, or `max_iter` gradients were taken in all; says
    /// whether the former. `y` and `d` are the solution.
    ///
    /// Panels whose labels are well within tolerance rest, and with them the couplings they are part
    /// of, until all do: then a gradient of all panels tells whether that was right.
    pub(crate) fn run(
        &mut self,
        gradient: &mut Gradient<'_, T, N>,
        tol: f64,
        max_iter: usize,
        watch: &Watch,
    ) -> Result<bool, Error> {
        if self.n_iter >= max_iter {
            return Ok(false);
        }
        if let Some(mut known) = self.known.take() {
            let d = self.d.clone();
            if self.newton(&mut known, gradient, tol, max_iter, watch)? {
                self.known = Some(known);
                return Ok(true);
            }
            // `w` is where the steps began.
            if self.risen(gradient, (&self.w, &d), (&self.y, &self.d), watch)? {
                self.y.copy_from_slice(&self.w);
                self.d = d;
            } else {
                self.known = Some(known);
            }
            if self.n_iter >= max_iter {
                return Ok(false);
            }
        }
        let most = self.most(gradient, watch)?;
        let height = gradient.height();
        let mut rest = tol / 2.0;
        self.settle();
        let mut look = (self.y.clone(), self.d.clone());
        for step in 1.. {
            if self.n_iter >= max_iter {
                break;
            }
            self.n_iter += 1;
            let active = &self.active;
            gradient.evaluate(active, &self.y, &self.pairs, &self.d, false, watch)?;
            self.g
                .par_chunks_mut(height)
                .zip(self.g_before.par_chunks_mut(height))
                .zip(active)
                .enumerate()
                .filter(|(_, (_, active))| **active)
                .for_each(|(panel, ((g, g_before), _))| {
                    g_before.copy_from_slice(g);
                    gradient.write(panel, g);
                });
            std::mem::swap(&mut self.halves, &mut self.halves_before);
            self.halves.clear();
            let halves = gradient.halves(&self.pairs);
            self.halves.extend(halves.map(|half| half.map(T::of)));
            gradient.write_pairs(&self.pairs, &mut self.g_pairs);
            self.step(height, most);
            self.report(tol, watch)?;
            if self.active.iter().all(|&active| active) && self.violation() <= tol {
                return Ok(true);
            }
            let last = self.n_iter >= max_iter;
            if step % LOOK == 0 || last {
                let now = (&self.w[..], &self.c[..]);
                if self.risen(gradient, (&look.0, &look.1), now, watch)? {
                    self.cautious = true;
                    (self.y, self.d) = look.clone();
                    self.settle();
                    continue;
                }
                look = (self.w.clone(), self.c.clone());
            }
            if last {
                (self.y, self.d) = look;
                break;
            }
            for (active, pace) in self.active.iter_mut().zip(self.pace.chunks(N)) {
                *active &= pace.iter().any(|pace| pace.violation > rest);
            }
            if self.active.iter().any(|&active| active) {
                self.extrapolate(height);
            } else {
                rest /= 2.0;
                self.settle();
            }
        }
        Ok(false)
    }

    /// Whether the objective is more at a point now than at one before.
    fn risen(
        &self,
        gradient: &mut Gradient<'_, T, N>,
        before: (&[Wide<T, N>], &[T]),
        now: (&[Wide<T, N>], &[T]),
        watch: &Watch,
    ) -> Result<bool, Error> {
        let before = self.objective(gradient, before.0, before.1, watch)?;
        let now = self.objective(gradient, now.0, now.1, watch)?;
        // Beyond what rounding may do; NaN has risen.
        let falls = now <= (1.0 + RISE) * before;
        Ok(!falls)
    }

    /// Loss and penalties at a point.
    pub(crate) fn objective(
        &self,
        gradient: &mut Gradient<'_, T, N>,
        y: &[Wide<T, N>],
        d: &[T],
        watch: &Watch,
    ) -> Result<f64, Error> {
        let active = vec![true; gradient.n_panels()];
        gradient.evaluate(&active, y, &self.pairs, d, true, watch)?;
        let cost = |net: &Net<T>, value: T| {
            let value = value.f64();
            net.l2.f64() * value * value + net.l1.f64() * value.abs()
        };
        let height = gradient.height();
        let mut objective = 0.0;
        for label in 0..self.variance.len() {
            let (panel, lane) = (label / N, label % N);
            objective += gradient.losses(panel)[lane];
            for (net, row) in self.features.iter().zip(&y[panel * height..]) {
                objective += cost(net, row.0[lane]);
            }
        }
        for &value in d {
            objective += cost(&self.pair, value);
        }
        Ok(objective)
    }

    /// Finds violations of optimality after a gradient of all panels at `y` and `d`; returns the largest.
    pub(crate) fn measure(&mut self, gradient: &Gradient<'_, T, N>) -> f64 {
        let height = gradient.height();
        self.g
            .par_chunks_mut(height)
            .enumerate()
            .for_each(|(panel, g)| gradient.write(panel, g));
        gradient.write_pairs(&self.pairs, &mut self.g_pairs);
        self.measure_weights(height);
        let found = self.d.iter().zip(&self.g_pairs);
        let found = found.map(|(&value, &slope)| violation(value, slope, self.pair).f64());
        found.fold(self.violation(), f64::max)
    }

    /// Finds violations of optimality among the weights of each label.
    fn measure_weights(&mut self, height: usize) {
        let features = &self.features;
        self.pace
            .par_chunks_mut(N)
            .zip(self.y.par_chunks(height))
            .zip(self.g.par_chunks(height))
            .for_each(|((pace, y), g)| {
                for (pace, found) in pace.iter_mut().zip(violations(y, g, features)) {
                    pace.violation = found;
                }
            });
        // Lanes without a label.
        for pace in &mut self.pace[self.variance.len()..] {
            pace.violation = 0.0;
        }
    }

    /// Tells how many labels are done, when they are more than ever.
    fn report(&mut self, tol: f64, watch: &Watch) -> Result<(), Error> {
        let of_labels = self.pace[..self.variance.len()].iter();
        let within = of_labels.filter(|pace| pace.violation <= tol).count();
        // The last one is told of by who says that all is done.
        let within = within.min(self.variance.len() - 1);
        watch.step(within.saturating_sub(self.within))?;
        self.within = self.within.max(within);
        Ok(())
    }

    /// Labels that were reported.
    pub(crate) fn reported(&self) -> usize {
        self.within
    }

    /// The largest curvature of any label, which is that of constant predictions to begin with.
    fn most(&mut self, gradient: &Gradient<'_, T, N>, watch: &Watch) -> Result<f64, Error> {
        let eigenvalue = if let Some(known) = self.largest_eigenvalue {
            known
        } else {
            let found = gradient.largest_eigenvalue(self.with_pairs, watch)?;
            // That of the constant column is 1.
            let found = found.max(1.0);
            for (pace, variance) in self.pace.iter_mut().zip(&self.variance) {
                pace.curvature = variance * found;
            }
            *self.largest_eigenvalue.insert(found)
        };
        // Twice the bound, since the eigenvalue is one from below.
        Ok(0.5 * eigenvalue)
    }

    /// Proximal steps from y to the next w, and what they say of curvature and direction.
    fn step(&mut self, height: usize, most: f64) {
        let (features, first, cautious) = (&self.features, self.first, self.cautious);
        let of_pairs = self.seen_of_pairs();
        self.pace
            .par_chunks_mut(N)
            .zip(self.w.par_chunks_mut(height))
            .zip(self.w_before.par_chunks_mut(height))
            .zip(self.y.par_chunks(height))
            .zip(self.y_before.par_chunks(height))
            .zip(self.g.par_chunks(height))
            .zip(self.g_before.par_chunks(height))
            .zip(of_pairs.par_chunks(N))
            .zip(&self.active)
            .filter(|(_, active)| **active)
            .for_each(
                |((((((((pace, w), w_before), y), y_before), g), g_before), of_pairs), _)| {
                    let mut panel = Panel {
                        w,
                        w_before,
                        y,
                        y_before,
                        g,
                        g_before,
                    };
                    if !first {
                        let (squares, products) = differences(&panel);
                        for lane in 0..N {
                            let of_lane = &mut pace[lane].curvature;
                            if of_lane.is_finite() {
                                let square = squares[lane] + of_pairs[lane][0];
                                let product = products[lane] + of_pairs[lane][1];
                                let seen = if product > 0.0 { square / product } else { 0.0 };
                                *of_lane = (*of_lane * FORGET).max(seen).clamp(LEAST * most, most);
                            }
                        }
                    }
                    if cautious {
                        for pace in pace.iter_mut().filter(|pace| pace.curvature.is_finite()) {
                            pace.curvature = most;
                        }
                    }
                    let curvatures = std::array::from_fn(|lane| pace[lane].curvature);
                    let (violations, turns) = proximal(&mut panel, features, &curvatures);
                    for lane in 0..N {
                        let real = curvatures[lane].is_finite();
                        pace[lane].violation = if real { violations[lane] } else { 0.0 };
                        pace[lane].turn = if real {
                            turns[lane] * curvatures[lane]
                        } else {
                            0.0
                        };
                    }
                },
            );
        self.first = false;
        self.c_next.clear();
        for (at, &(i, k)) in self.pairs.list.iter().enumerate() {
            let (i, k) = (i as usize, k as usize);
            if !(self.active[i / N] && self.active[k / N]) {
                self.c_next.push(self.c[at]);
                continue;
            }
            let (c, d, g) = (self.c[at], self.d[at], self.g_pairs[at]);
            let metric = self.pace[i].curvature * self.variance[k]
                + self.pace[k].curvature * self.variance[i];
            let violation = violation(d, g, self.pair).f64();
            let t = T::of(1.0 / metric);
            let shrunk = soft(d - t * g, t * self.pair.l1);
            let next = T::of(shrunk.f64() / (1.0 + 2.0 * (t * self.pair.l2).f64()));
            let turn = metric * (d - next).f64() * (next - c).f64() / 2.0;
            for label in [i, k] {
                let pace = &mut self.pace[label];
                pace.violation = pace.violation.max(violation);
                pace.turn += turn;
            }
            self.c_next.push(next);
        }
        std::mem::swap(&mut self.c, &mut self.c_next); // c_next is c before
    }

    /// What couplings add to `‖Δg‖²` and `⟨Δg, Δy⟩` of each label, in terms of columns of variance 1.
    fn seen_of_pairs(&self) -> Vec<[f64; 2]> {
        let mut seen = vec![[0.0; 2]; self.pace.len()];
        if self.first {
            return seen;
        }
        let changes = self.halves.iter().zip(&self.halves_before);
        let moves = self.d.iter().zip(&self.d_before);
        for ((&(i, k), (now, before)), (d, d_before)) in
            self.pairs.list.iter().zip(changes).zip(moves)
        {
            let moved = d.f64() - d_before.f64();
            for (side, label, other) in [(0, i as usize, k as usize), (1, k as usize, i as usize)] {
                if self.active[label / N] {
                    let change = now[side].f64() - before[side].f64();
                    seen[label][0] += change * change / self.variance[other];
                    seen[label][1] += change * moved;
                }
            }
        }
        seen
    }

    /// Moves y beyond w, by the momentum of each label.
    fn extrapolate(&mut self, height: usize) {
        let momenta: Vec<f64> = self.pace.iter_mut().map(Pace::momentum).collect();
        self.d_before.clone_from(&self.d);
        self.y
            .par_chunks_mut(height)
            .zip(self.y_before.par_chunks_mut(height))
            .zip(self.w.par_chunks(height))
            .zip(self.w_before.par_chunks(height))
            .zip(momenta.par_chunks(N))
            .zip(&self.active)
            .filter(|(_, active)| **active)
            .for_each(|(((((y, y_before), w), w_before), momenta), _)| {
                y_before.copy_from_slice(y);
                let momenta: [T; N] = std::array::from_fn(|lane| T::of(momenta[lane]));
                for ((y, w), w_before) in y.iter_mut().zip(w).zip(w_before) {
                    for lane in 0..N {
                        y.0[lane] = w.0[lane] + momenta[lane] * (w.0[lane] - w_before.0[lane]);
                    }
                }
            });
        for (at, &(i, k)) in self.pairs.list.iter().enumerate() {
            let (i, k) = (i as usize, k as usize);
            if !(self.active[i / N] && self.active[k / N]) {
                continue;
            }
            let momentum = T::of(momenta[i].min(momenta[k]));
            self.d[at] = self.c[at] + momentum * (self.c[at] - self.c_next[at]);
        }
    }
}

impl Pace {
    /// The next momentum; none if the step has turned back.
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

/// `‖Δg‖²` and `⟨Δg, Δy⟩` of each label, whose ratio is a curvature.
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
    (
        squares.0.map(manylabel_sparse::Value::f64),
        products.0.map(manylabel_sparse::Value::f64),
    )
}

/// The proximal step of a panel; returns violations of optimality at y, and ⟨y − w⁺, w⁺ − w⟩.
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
            let violation = violation(y, g, net);
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
    (
        violations.0.map(manylabel_sparse::Value::f64),
        turns.0.map(manylabel_sparse::Value::f64),
    )
}

/// The largest violation of optimality among the weights of each label of a panel.
#[wide]
fn violations<T: Float, const N: usize>(
    y: &[Wide<T, N>],
    g: &[Wide<T, N>],
    features: &[Net<T>],
) -> [f64; N] {
    let mut most = Wide::<T, N>::zero();
    for ((y, g), &net) in y.iter().zip(g).zip(features) {
        for lane in 0..N {
            let found = violation(y.0[lane], g.0[lane], net);
            if found > most.0[lane] {
                most.0[lane] = found;
            }
        }
    }
    most.0.map(manylabel_sparse::Value::f64)
}
