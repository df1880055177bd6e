//! Fits a logistic regression with one input and a quadratic penalty, by Newton's method.

/// A point of a logistic regression. The log-odds are `offset + θ₀ + θ₁ x`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    /// Input.
    pub(crate) x: f64,
    /// Log-odds before the parameters are added.
    pub(crate) offset: f64,
    /// Target: a probability.
    pub(crate) target: f64,
}

/// The penalty of two parameters: half the sum of `precision[i] (θᵢ − mean[i])²`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Penalty {
    pub(crate) mean: [f64; 2],
    pub(crate) precision: [f64; 2],
}

/// Largest number of steps. Newton's method needs about ten.
const MOST_STEPS: usize = 100;
/// The method ends after a step that changes no parameter by more than this number. The error is then about the
/// square of this number.
const TOLERANCE: f64 = 1e-5;
/// Precision that fixes a parameter at its mean.
const FIXED: f64 = 1e12;

/// Returns the logistic function of `z`.
pub(crate) fn sigmoid(z: f64) -> f64 {
    if z >= 0.0 {
        1.0 / (1.0 + (-z).exp())
    } else {
        let e = z.exp();
        e / (1.0 + e)
    }
}

/// Returns the logistic loss of log-odds `z` for a target probability.
pub(crate) fn loss(z: f64, target: f64) -> f64 {
    // log(1 + exp(z)) without overflow
    z.max(0.0) + (-z.abs()).exp().ln_1p() - target * z
}

/// Returns the parameters that minimize the sum of the losses and the penalty. Newton's method starts from
/// `start`.
///
/// If a step increases the objective, it is halved.
pub(crate) fn fit(
    points: &(impl Iterator<Item = Point> + Clone),
    penalty: &Penalty,
    start: [f64; 2],
) -> [f64; 2] {
    let Penalty { mean, precision } = *penalty;
    let (mut here, mut before, mut best) = (start, start, f64::INFINITY);
    for _ in 0..MOST_STEPS {
        let away = [here[0] - mean[0], here[1] - mean[1]];
        let mut value = 0.5 * (precision[0] * away[0] * away[0] + precision[1] * away[1] * away[1]);
        let mut gradient = [precision[0] * away[0], precision[1] * away[1]];
        let (mut h00, mut h01, mut h11) = (precision[0], 0.0, precision[1]);
        for Point { x, offset, target } in points.clone() {
            let z = offset + here[0] + here[1] * x;
            // The probability and the loss share one exponential; see `sigmoid` and `loss`.
            let e = (-z.abs()).exp();
            let less = e / (1.0 + e);
            let p = if z >= 0.0 { 1.0 - less } else { less };
            let (slope, weight) = (p - target, less * (1.0 - less));
            value += z.max(0.0) + e.ln_1p() - target * z;
            gradient[0] += slope;
            gradient[1] += slope * x;
            h00 += weight;
            h01 += weight * x;
            h11 += weight * x * x;
        }
        if value > best + 1e-12 * best.abs() {
            here = [0.5 * (here[0] + before[0]), 0.5 * (here[1] + before[1])];
            let moved = (here[0] - before[0]).abs().max((here[1] - before[1]).abs());
            if moved < TOLERANCE {
                return before;
            }
            continue;
        }
        (before, best) = (here, value);
        // A small ridge keeps the matrix regular if all inputs are equal.
        let ridge = 1e-12 * (h00 + h11) + f64::MIN_POSITIVE;
        (h00, h11) = (h00 + ridge, h11 + ridge);
        let determinant = h00 * h11 - h01 * h01;
        let step = [
            (h11 * gradient[0] - h01 * gradient[1]) / determinant,
            (h00 * gradient[1] - h01 * gradient[0]) / determinant,
        ];
        if !(step[0].is_finite() && step[1].is_finite()) {
            break;
        }
        here = [here[0] - step[0], here[1] - step[1]];
        if step[0].abs().max(step[1].abs()) < TOLERANCE {
            return here;
        }
    }
    before
}

/// Returns the parameters that minimize the sum of the losses and the penalty, with θ₁ ≥ `least`. Newton's method
/// starts from `start`.
pub(crate) fn fit_with_slope_at_least(
    points: &(impl Iterator<Item = Point> + Clone),
    penalty: &Penalty,
    least: f64,
    start: [f64; 2],
) -> [f64; 2] {
    let found = fit(points, penalty, start);
    if found[1] >= least {
        return found;
    }
    // The objective is convex, so the constrained minimum is on the boundary.
    let fixed = Penalty {
        mean: [penalty.mean[0], least],
        precision: [penalty.precision[0], FIXED],
    };
    [fit(points, &fixed, [start[0], least])[0], least]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_neighbour_is_better(
            points in prop::collection::vec((-3.0..3.0f64, -2.0..2.0f64, any::<bool>()), 1..30),
            mean in -1.0..1.0f64, precision in 0.01..10.0f64, start in [-3.0..3.0f64, -3.0..3.0f64],
        ) {
            let points: Vec<_> = points
                .into_iter()
                .map(|(x, offset, hit)| Point { x, offset, target: f64::from(u8::from(hit)) })
                .collect();
            let penalty = Penalty { mean: [mean, 0.5], precision: [precision, 2.0 * precision] };
            let objective = |theta: [f64; 2]| {
                let losses: f64 = points
                    .iter()
                    .map(|p| loss(p.offset + theta[0] + theta[1] * p.x, p.target))
                    .sum();
                losses + 0.5 * precision * (theta[0] - mean).powi(2) + precision * (theta[1] - 0.5).powi(2)
            };
            let found = fit(&points.iter().copied(), &penalty, start);
            for (i, away) in [(0, 1e-3), (0, -1e-3), (1, 1e-3), (1, -1e-3)] {
                let mut other = found;
                other[i] += away;
                prop_assert!(objective(found) <= objective(other) + 1e-9);
            }
            let bounded = fit_with_slope_at_least(&points.iter().copied(), &penalty, 0.8, start);
            prop_assert!(bounded[1] >= 0.8 && (found[1] < 0.8 || bounded.map(f64::to_bits) == found.map(f64::to_bits)));
        }
    }
}
