//! Implements the procedure published by the authors of the method (their MATLAB code `enCorrLog`),
//! to reproduce their results.
//!
//! Labels are coded as 0 and 1. The procedure runs FISTA from zero with the fixed step
//! `30 n / ‖X‖²`, where n is the number of rows, and X are the features with a constant column.
//! This step may be too long, so the procedure can diverge. After 20 gradients it stops as soon as
//! the objective at the extrapolated point changes by less than a thousandth. This early stopping
//! acts as regularization.
//!
//! The authors' penalty of couplings counts each pair of labels in both orders. A pair with the
//! coupling c adds `2 ρ c² + 2 ρ ε |c|` to the objective, where ρ and ε are the parameters of the
//! penalty. The squared term has the gradient `4 ρ c`. With a step of length t, the authors' soft
//! threshold is `t ρ ε`, which is only half of the threshold for this objective. This inconsistency
//! is reproduced.

use crate::descent::all_pairs;
use crate::fit::Training;
use crate::gradient::Pass;
use crate::iterate::Iterate;
use crate::model::Model;
use crate::objective::{Objective, Slope};
use crate::params::Penalty;
use crate::penalty::Net;
use crate::rounds::{Form, Need, Rounds};
use crate::stored::{Stored, stored};
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::Sparse;
use std::ops::Range;

/// The procedure stops if the relative change of the objective is below this number.
const CHANGE: f64 = 1e-3;

/// Number of gradients before the procedure may stop early.
const MIN_GRADIENTS: usize = 20;

/// Maximum number of gradients that the procedure computes. The Python documentation of the solver
/// "reference" states this number.
const MAX_GRADIENTS: usize = 500;

/// The procedure, from one pass over the rows to the next.
struct Run<const N: usize> {
    /// The result of the last proximal step. At the end, it is the solution.
    w: Iterate<f64, N>,
    /// The extrapolated point, where the next gradient is computed.
    y: Iterate<f64, N>,
    slope: Slope<f64, N>,
    /// The number from which the momentum is computed.
    tau: f64,
    /// The objective at the point of the last gradient.
    objective: f64,
    /// The KKT violation at the point of the last gradient. It is computed for the penalty that
    /// corresponds to the soft threshold.
    violation: f64,
    /// Number of gradients computed.
    n_iter: usize,
    /// Whether the objective has stopped changing. The procedure then counts as converged.
    stopped: bool,
}

stored!([const N: usize] Run<N> { w, y, slope, tau, objective, violation, n_iter, stopped });

/// Converts a penalty of a pair of labels to the penalty in the authors' objective. Their objective
/// counts each pair in both orders, so the penalty doubles.
fn in_both_orders(penalty: Penalty) -> Penalty {
    Penalty {
        l1: 2.0 * penalty.l1,
        l2: 2.0 * penalty.l2,
    }
}

impl<const N: usize> Run<N> {
    /// Starts the procedure at zero.
    ///
    /// The objective must already contain all pairs of labels, and [`in_both_orders`] must have
    /// converted their penalty. If the procedure diverges, the result contains numbers that are not
    /// finite. The caller checks for such numbers.
    fn new(objective: &Objective<f64, N>) -> Result<Self, Error> {
        let w = Iterate::zeros(objective.n_rows(), objective.pairs().len())?;
        Ok(Self {
            y: w.try_clone()?,
            w,
            slope: Slope::new(objective)?,
            tau: 1.0,
            objective: f64::INFINITY,
            violation: 0.0,
            n_iter: 0,
            stopped: false,
        })
    }

    /// Takes a step of length `step`. The last pass over the rows must have been at y, for all labels and with
    /// the loss.
    fn proceed(
        &mut self,
        objective: &Objective<f64, N>,
        step: f64,
        watch: &Watch,
    ) -> Result<(), Error> {
        let Self { w, y, slope, .. } = self;
        let height = objective.height();
        let pair = Net {
            l1: objective.pair.l1 / 2.0,
            ..objective.pair
        };
        self.n_iter += 1;
        let value = objective.value(y, watch)?;
        let all = filled("number of labels", true, objective.n_panels())?;
        objective.write(&all, slope)?;
        let of_weights = objective.violations(y, slope)?;
        let mut violation = of_weights.into_iter().fold(0.0, f64::max);
        let tau_next = f64::midpoint(1.0, (1.0 + 4.0 * self.tau * self.tau).sqrt());
        let momentum = (self.tau - 1.0) / tau_next;
        let proximal = |net: Net<f64>, y: &mut f64, w: &mut f64, g: f64| {
            let next = soft(*y - step * (g + 2.0 * net.l2 * *y), step * net.l1);
            *y = next + momentum * (next - *w);
            *w = next;
        };
        for label in 0..objective.n_labels() {
            watch.step(0)?;
            let (panel, lane) = (label / N, label % N);
            let rows = panel * height..;
            for (row, &net) in rows.zip(&objective.features) {
                let (y, w) = (&mut y.weights[row].0[lane], &mut w.weights[row].0[lane]);
                proximal(net, y, w, slope.weights[row].0[lane]);
            }
        }
        let points = y.couplings.iter_mut().zip(&mut w.couplings);
        for ((y, w), &g) in points.zip(&slope.couplings) {
            violation = violation.max(pair.violation(*y, g));
            proximal(pair, y, w, g);
        }
        self.tau = tau_next;
        let before = self.objective;
        self.stopped = self.n_iter > MIN_GRADIENTS && ((value - before) / before).abs() < CHANGE;
        (self.objective, self.violation) = (value, violation);
        Ok(())
    }
}

/// The procedure with its objective, as a fit in rounds.
pub(crate) struct Replay<const N: usize> {
    objective: Objective<f64, N>,
    run: Run<N>,
    /// The length of a step.
    step: f64,
    /// The largest number of gradients.
    max_iter: usize,
    /// One flag per panel (group of N labels). All flags are true.
    all: Vec<bool>,
}

impl<const N: usize> Replay<N> {
    /// Starts the procedure.
    pub(crate) fn new(training: &Training, x: Sparse<'_>, watch: &Watch) -> Result<Self, Error> {
        let pair = training.params.pairs().map(in_both_orders);
        let mut objective = training.objective::<f64, N>(x, pair, false, watch)?;
        if pair.is_some() {
            objective.set_pairs(all_pairs(objective.n_labels())?)?;
        }
        Ok(Self {
            run: Run::new(&objective)?,
            step: 30.0 / (training.scales.square + 1.0),
            max_iter: training.params.0.max_iter.min(MAX_GRADIENTS),
            all: filled("number of labels", true, objective.n_panels())?,
            objective,
        })
    }

    /// Reads a state that [`store`](Rounds::store) has written.
    pub(crate) fn read(
        training: &Training,
        x: Sparse<'_>,
        from: &mut &[u8],
        watch: &Watch,
    ) -> Result<Self, Error> {
        Ok(Self {
            run: Stored::read(from)?,
            ..Self::new(training, x, watch)?
        })
    }

    /// Returns the computation of the next round.
    fn need(&self) -> Need<'_, f64, N> {
        needed(&self.run, &self.all, self.max_iter)
    }
}

/// Returns the computation of the next round of a procedure with at most `max_iter` gradients. `all` has one flag per
/// panel (group of N labels), and all flags are true.
fn needed<'a, const N: usize>(
    run: &'a Run<N>,
    all: &'a [bool],
    max_iter: usize,
) -> Need<'a, f64, N> {
    if run.stopped || run.n_iter == max_iter {
        return Need::Nothing;
    }
    Need::Pass(Pass {
        active: all,
        at: &run.y,
        with_loss: true,
    })
}

impl<const N: usize> Rounds for Replay<N> {
    fn n_units(&self) -> usize {
        self.need().n_units(self.objective.gradient())
    }

    fn work(&self) -> f64 {
        self.need().work(self.objective.gradient())
    }

    fn advance(&mut self, watch: &Watch) -> Result<(), Error> {
        needed(&self.run, &self.all, self.max_iter).found(&mut self.objective, watch)?;
        self.run.proceed(&self.objective, self.step, watch)
    }

    fn compute(&mut self, units: &Range<usize>, watch: &Watch) -> Result<Vec<Vec<u8>>, Error> {
        let need = needed(&self.run, &self.all, self.max_iter);
        need.computed(&mut self.objective, units, watch)
    }

    fn complete(&mut self, results: &[&[u8]], watch: &Watch) -> Result<(), Error> {
        needed(&self.run, &self.all, self.max_iter).joined(&mut self.objective, results)?;
        self.run.proceed(&self.objective, self.step, watch)
    }

    fn continued(
        self: Box<Self>,
        _: &Training,
        _: Sparse<'_>,
        _: &Watch,
    ) -> Result<Box<dyn Rounds>, Error> {
        Ok(self)
    }

    fn finish(
        &self,
        training: &Training,
        model: &mut Model,
        watch: &Watch,
    ) -> Result<usize, Error> {
        let (point, step) = (&self.run.w, self.step);
        if !point.is_finite() {
            return Err(Error::Param {
                name: "solver",
                expected: "\"auto\" or \"fista\", because steps of fixed length diverge for this X and these \
                           penalties",
                got: format!("\"reference\" with steps of length {step:e}"),
            });
        }
        let units = training.units(&self.objective);
        units.write(point, self.objective.pairs(), false, model, watch)?;
        (model.objective, model.violation) = (self.run.objective, self.run.violation);
        (model.n_iter, model.converged) = (self.run.n_iter, self.run.stopped);
        Ok(0)
    }

    fn form(&self) -> Form {
        Form::Reference
    }

    fn store(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.run.write(out)
    }
}

/// Returns the soft threshold of `u`: `sign(u) max(|u| − bound, 0)`. NaN stays NaN, so that a
/// divergence is not hidden.
fn soft(u: f64, bound: f64) -> f64 {
    u.signum() * (u.abs() - bound).max(0.0)
}
