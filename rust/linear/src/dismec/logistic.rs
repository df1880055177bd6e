//! Computes the logistic losses of sixteen labels, which are called a panel, for the steps of `optimum`.
//!
//! The loss of a row is `log(1 + exp(z))`, where z is minus the margin of a positive row, and the score of a
//! negative row. It is smooth, and no row has the loss 0. So all rows take part in each step, also for rare
//! labels: the approximation of `active` would replace rows that have a loss. The objective is the one of
//! LIBLINEAR's logistic regression (solver 0), with the intercept as the weight of a feature that is 1.

use super::optimum::{Factors, LINE_STEPS, factor, sign};
use crate::panel::{LANES, Lanes, Mask, Sums};
use manylabel_simd::{STRETCH, exp_f32, wide};

/// The norm of the gradient at zero weights, divided by that of the squared hinge loss. The derivatives at the
/// score 0 are `C/2` and `2C`.
pub(super) const SLOPE_AT_ZERO: f64 = 0.25;

/// If z is below minus this number, the loss of a row counts as 0. It is less than 1e-17 times the loss of a row
/// with the score 0, which is below the precision of sums in `f32`. Unknown pairs have such scores.
const FAR: f32 = 40.0;

/// Returns σ(z), the derivative of the loss, and its derivative `σ(z) (1 − σ(z))`.
#[inline(always)]
fn derivatives(z: f32) -> (f32, f32) {
    let far = z.abs().min(FAR);
    let power = if far < FAR { exp_f32(-far) } else { 0.0 };
    let near_one = 1.0 / (1.0 + power);
    let near_zero = power * near_one;
    (
        if z > 0.0 { near_one } else { near_zero },
        near_zero * near_one,
    )
}

/// Returns z for a row. `error` is the score of the row minus its target, which is 1 or −1.
#[inline(always)]
fn excess(error: f32, sign: f32) -> f32 {
    error * sign - 1.0
}

/// Does the same as `advance_weighted` of `optimum`. The result has the sum of the second derivatives of the
/// loss with respect to the score, for each label.
#[wide]
pub(super) fn advance(
    cost: &[f32],
    factors: &Factors,
    step: &Lanes,
    along: &[Lanes],
    positive: &[Mask],
    errors: &mut [Lanes],
    pulls: &mut [Lanes],
) -> Sums {
    let mut curvature = [0.0; LANES];
    for first in (0..errors.len()).step_by(STRETCH) {
        let rows = first..(first + STRETCH).min(errors.len());
        let mut part = Lanes::default();
        for row in rows {
            let (error, pull) = (&mut errors[row], &mut pulls[row]);
            for lane in 0..LANES {
                let moved = error.0[lane] + step.0[lane] * along[row].0[lane];
                let sign = sign(positive[row], lane);
                // `cost` is 2 C times the weight of the row.
                let cost = 0.5 * cost[row] * factor(factors, positive[row], lane);
                let (slope, bend) = derivatives(excess(moved, sign));
                error.0[lane] = moved;
                pull.0[lane] = cost * sign * slope;
                part.0[lane] += cost * bend;
            }
        }
        part.add_to(&mut curvature);
    }
    curvature
}

/// Does the same as `slope_weighted` of `optimum`.
#[wide]
fn slope(
    cost: &[f32],
    factors: &Factors,
    step: &Lanes,
    along: &[Lanes],
    positive: &[Mask],
    errors: &[Lanes],
) -> (Sums, Sums) {
    let (mut first, mut second) = ([0.0; LANES], [0.0; LANES]);
    for start in (0..errors.len()).step_by(STRETCH) {
        let rows = start..(start + STRETCH).min(errors.len());
        let (mut first_part, mut second_part) = (Lanes::default(), Lanes::default());
        for row in rows {
            for lane in 0..LANES {
                let along = along[row].0[lane];
                let moved = errors[row].0[lane] + step.0[lane] * along;
                let sign = sign(positive[row], lane);
                let cost = 0.5 * cost[row] * factor(factors, positive[row], lane);
                let (slope, bend) = derivatives(excess(moved, sign));
                first_part.0[lane] += cost * sign * slope * along;
                second_part.0[lane] += cost * bend * along * along;
            }
        }
        first_part.add_to(&mut first);
        second_part.add_to(&mut second);
    }
    (first, second)
}

/// The largest number of steps of a line search. Bisection halves the interval of the root in each step, so that the
/// root is bracketed to single precision after fewer steps.
const MOST_STEPS: usize = 60;

/// Does the same as `line_search` of `optimum`. `regularization` has the products of the direction with the
/// weights and with itself.
///
/// The derivative along the direction is smooth but not piecewise linear. A Newton step from a point with little
/// curvature can be far too long. So a step that leaves the interval of the root is replaced by the middle of
/// the interval.
pub(super) fn line_search(
    cost: &[f32],
    factors: &Factors,
    regularization: (Sums, Sums),
    (along, positive, errors): (&[Lanes], &[Mask], &[Lanes]),
    live: Mask,
) -> Lanes {
    let (with_weights, with_self) = regularization;
    let (mut low, mut high) = ([0.0; LANES], [f64::INFINITY; LANES]);
    let mut step = Lanes::default();
    for count in 1..=MOST_STEPS {
        let mut is_unsure = false;
        let (first, second) = slope(cost, factors, &step, along, positive, errors);
        for lane in 0..LANES {
            let at = f64::from(step.0[lane]);
            let first = with_weights[lane] + at * with_self[lane] + first[lane];
            let second = with_self[lane] + second[lane];
            if live >> lane & 1 == 0 || second.is_nan() || second <= 0.0 {
                continue;
            }
            if first < 0.0 {
                low[lane] = at;
            } else {
                high[lane] = at;
            }
            let next = at - first / second;
            let is_inside = (low[lane]..=high[lane]).contains(&next);
            step.0[lane] = if is_inside || high[lane] == f64::INFINITY {
                next as f32
            } else {
                (0.5 * (low[lane] + high[lane])) as f32
            };
            // A bisection, or a long step beyond all points that were tried, may be far from the root.
            is_unsure |= !is_inside || high[lane] == f64::INFINITY && next > 2.0 * at;
        }
        if count >= LINE_STEPS && !is_unsure {
            break;
        }
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derivatives_are_those_of_the_logistic_loss() {
        for i in -3999..=3999 {
            let z = f64::from(i) / 100.0;
            let expected = 1.0 / (1.0 + (-z).exp());
            let (slope, bend) = derivatives(z as f32);
            assert!(
                (f64::from(slope) - expected).abs() <= 4e-6 * expected,
                "{z}"
            );
            let expected = expected * (1.0 / (1.0 + z.exp()));
            assert!((f64::from(bend) - expected).abs() <= 4e-6 * expected, "{z}");
        }
        assert_eq!(derivatives(-1e30), (0.0, 0.0));
        assert_eq!(derivatives(1e30), (1.0, 0.0));
    }
}
