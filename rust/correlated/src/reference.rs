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

use crate::iterate::Iterate;
use crate::objective::{Objective, Slope};
use crate::params::Penalty;
use crate::penalty::Net;
use crate::stop::Outcome;
use manylabel_base::Error;

/// The procedure stops if the relative change of the objective is below this number.
const CHANGE: f64 = 1e-3;

/// Number of gradients before the procedure may stop early.
const MIN_GRADIENTS: usize = 20;

/// Maximum number of gradients that the procedure computes. The Python documentation of the solver
/// "reference" states this number.
const MAX_GRADIENTS: usize = 500;

/// The result of the procedure.
pub(crate) struct Run<const N: usize> {
    /// The result of the last proximal step. The procedure counts as converged if the objective
    /// stopped changing.
    pub(crate) end: Outcome<f64, N>,
    /// The objective at the point of the last gradient.
    pub(crate) objective: f64,
    /// The KKT violation at the point of the last gradient. It is computed for the penalty that
    /// corresponds to the soft threshold.
    pub(crate) violation: f64,
}

/// Converts a penalty of a pair of labels to the penalty in the authors' objective. Their objective
/// counts each pair in both orders, so the penalty doubles.
pub(crate) fn in_both_orders(penalty: Penalty) -> Penalty {
    Penalty {
        l1: 2.0 * penalty.l1,
        l2: 2.0 * penalty.l2,
    }
}

/// Runs the procedure from zero with steps of length `step`.
///
/// The objective must already contain all pairs of labels, and [`in_both_orders`] must have
/// converted their penalty. If the procedure diverges, the result contains numbers that are not
/// finite. The caller checks for such numbers.
pub(crate) fn run<const N: usize>(
    objective: &mut Objective<'_, f64, N>,
    step: f64,
    max_iter: usize,
) -> Result<Run<N>, Error> {
    let height = objective.height();
    let mut w = Iterate::zeros(objective.n_rows(), objective.pairs().len())?;
    let (mut y, mut slope) = (w.try_clone()?, Slope::new(objective)?);
    let pair = Net {
        l1: objective.pair.l1 / 2.0,
        ..objective.pair
    };
    let (mut tau, mut before) = (1.0f64, f64::INFINITY);
    let mut n_iter = 0;
    loop {
        n_iter += 1;
        let value = objective.value_and_slope(&y, &mut slope)?;
        let of_weights = objective.violations(&y, &slope)?;
        let mut violation = of_weights.into_iter().fold(0.0, f64::max);
        let tau_next = f64::midpoint(1.0, (1.0 + 4.0 * tau * tau).sqrt());
        let momentum = (tau - 1.0) / tau_next;
        let proximal = |net: Net<f64>, y: &mut f64, w: &mut f64, g: f64| {
            let next = soft(*y - step * (g + 2.0 * net.l2 * *y), step * net.l1);
            *y = next + momentum * (next - *w);
            *w = next;
        };
        for label in 0..objective.n_labels() {
            objective.watch.step(0)?;
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
        tau = tau_next;
        let stopped = n_iter > MIN_GRADIENTS && ((value - before) / before).abs() < CHANGE;
        if stopped || n_iter == max_iter.min(MAX_GRADIENTS) {
            return Ok(Run {
                end: Outcome {
                    iterate: w,
                    converged: stopped,
                    n_iter,
                },
                objective: value,
                violation,
            });
        }
        before = value;
    }
}

/// Returns the soft threshold of `u`: `sign(u) max(|u| − bound, 0)`. NaN stays NaN, so that a
/// divergence is not hidden.
fn soft(u: f64, bound: f64) -> f64 {
    u.signum() * (u.abs() - bound).max(0.0)
}
