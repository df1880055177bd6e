//! The run of the method's authors (`enCorrLog`), to reproduce their numbers.
//!
//! 0/1 coding; FISTA from zero with the fixed step `30 n / ‖X‖²`, X with its constant column, which
//! nothing keeps below 1/L; from
//! the twentieth gradient on it stops when the objective at the extrapolated point changes by less than
//! a thousandth. Their penalty of couplings sums over ordered pairs: `2 ρ c² + 2 ρ ε |c|` for each pair
//! in the objective, gradient `4 ρ c`, but the threshold `t ρ ε` of half of that.

use crate::gradient::{Gradient, Pairs};
use crate::params::Penalty;
use crate::wide::Wide;
use manylabel_base::{Error, Watch};

/// Relative change of the objective at which the run ends.
const CHANGE: f64 = 1e-3;

/// Gradients before it may.
const LEAST: usize = 20;

/// Gradients at most.
const MOST: usize = 500;

/// Where the run ended.
pub(crate) struct Run<const N: usize> {
    pub(crate) weights: Vec<Wide<f64, N>>,
    pub(crate) pairs: Vec<(u32, u32)>,
    pub(crate) couplings: Vec<f64>,
    /// At the last point a gradient was taken at, as are violations.
    pub(crate) objective: f64,
    pub(crate) violation: f64,
    pub(crate) n_iter: usize,
    /// Whether it ended before `max_iter`.
    pub(crate) stopped: bool,
}

pub(crate) fn run<const N: usize>(
    gradient: &mut Gradient<'_, f64, N>,
    list: Vec<(u32, u32)>,
    features: &[Penalty],
    pair: Penalty,
    step: f64,
    max_iter: usize,
    watch: &Watch,
) -> Result<Run<N>, Error> {
    let (height, n_panels) = (gradient.height(), gradient.n_panels());
    let pairs = Pairs::new::<N>(list, gradient.labels.len())?;
    let mut none = features.to_vec();
    none.push(Penalty { l1: 0.0, l2: 0.0 });
    let mut w = vec![Wide([0.0; N]); n_panels * height];
    let (mut y, mut g) = (w.clone(), w.clone());
    let mut c = vec![0.0; pairs.list.len()];
    let (mut d, mut of_pairs) = (c.clone(), Vec::new());
    let (mut tau, mut before) = (1.0f64, f64::INFINITY);
    let active = vec![true; n_panels];
    for n_iter in 1.. {
        gradient.evaluate(&active, &y, &pairs, &d, true, watch)?;
        let (mut objective, mut violation) = (0.0, 0.0f64);
        let tau_next = f64::midpoint(1.0, (1.0 + 4.0 * tau * tau).sqrt());
        let momentum = (tau - 1.0) / tau_next;
        for panel in 0..n_panels {
            let range = panel * height..(panel + 1) * height;
            gradient.write(panel, &mut g[range.clone()]);
            let n = N.min(gradient.labels.len() - panel * N);
            for lane in 0..n {
                objective += gradient.losses(panel)[lane];
                for (at, net) in range.clone().zip(&none) {
                    let (value, slope) = (y[at].0[lane], g[at].0[lane]);
                    objective += net.l2 * value * value + net.l1 * value.abs();
                    violation = violation.max(off(value, slope + 2.0 * net.l2 * value, net.l1));
                    let moved = value - step * (slope + 2.0 * net.l2 * value);
                    let next = soft(moved, step * net.l1);
                    y[at].0[lane] = next + momentum * (next - w[at].0[lane]);
                    w[at].0[lane] = next;
                }
            }
        }
        gradient.write_pairs(&pairs, &mut of_pairs);
        for (at, &slope) in of_pairs.iter().enumerate() {
            let value = d[at];
            objective += 2.0 * (pair.l2 * value * value + pair.l1 * value.abs());
            violation = violation.max(off(value, slope + 4.0 * pair.l2 * value, pair.l1));
            let next = soft(
                value - step * (slope + 4.0 * pair.l2 * value),
                step * pair.l1,
            );
            d[at] = next + momentum * (next - c[at]);
            c[at] = next;
        }
        tau = tau_next;
        let stopped = n_iter > LEAST && ((objective - before) / before).abs() < CHANGE;
        if stopped || n_iter >= max_iter.min(MOST) {
            return Ok(Run {
                weights: w,
                pairs: pairs.list,
                couplings: c,
                objective,
                violation,
                n_iter,
                stopped,
            });
        }
        before = objective;
    }
    unreachable!("the loop ends at `max_iter`")
}

fn soft(u: f64, bound: f64) -> f64 {
    u.signum() * (u.abs() - bound).max(0.0)
}

/// The least subgradient.
fn off(value: f64, slope: f64, l1: f64) -> f64 {
    if value == 0.0 {
        (slope.abs() - l1).max(0.0)
    } else {
        (slope + l1 * value.signum()).abs()
    }
}
