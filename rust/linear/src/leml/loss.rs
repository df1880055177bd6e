//! The losses of an entry of Y, and their derivatives for many entries at a time. In the formulas, z is the
//! score of an entry, ℓ(z) its loss, and ω its weight.
//!
//! The loops of this module are compiled for several instruction sets. Logistic loss needs an exponential
//! for each entry. The standard library computes one at a time, which took more than half of the time of a
//! fit.

use super::params::Loss;
use manylabel_simd::{exp_f32, wide};

/// Number of partial sums of the loss. They fill one to four vector registers.
const LANES: usize = 16;

/// The result to compute for each entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Only the loss `ω ℓ(z)`.
    Value,
    /// The loss and the slope `ω ℓ'(z)`.
    Slope,
    /// The product `ω ℓ''(z) t` with a given factor t.
    Product,
}

/// Entries that are computed together. The slices have one number for each entry.
pub(super) struct Stretch<'a> {
    /// The scores. They are replaced by slopes or products, if these are computed.
    pub(super) z: &'a mut [f32],
    /// The factors `t` of products. Empty unless products are computed.
    pub(super) t: &'a [f32],
    /// The values of Y.
    pub(super) y: &'a [f32],
    /// The weights ω.
    pub(super) weights: &'a [f32],
}

impl Loss {
    /// Returns the loss `ℓ(z)` of an entry y.
    #[inline(always)]
    pub(super) fn value(self, z: f32, y: f32) -> f32 {
        let margin = (2.0 * y - 1.0) * z;
        match self {
            Self::Squared => (z - y) * (z - y) / 2.0,
            // This form is stable for large |z|, because the exponential is at most 1. If the score is NaN,
            // the loss is NaN too.
            Self::Logistic => ln_1p(tail(margin)) + at_least_zero(-margin),
            Self::SquaredHinge => {
                let gap = at_least_zero(1.0 - margin);
                gap * gap / 2.0
            }
        }
    }

    /// Returns the derivative `ℓ'(z)`.
    #[inline(always)]
    fn slope(self, z: f32, y: f32) -> f32 {
        let sign = 2.0 * y - 1.0;
        match self {
            Self::Squared => z - y,
            Self::Logistic => {
                let tail = tail(z);
                let numerator = if sign * z < 0.0 { 1.0 } else { tail };
                -sign * numerator / (1.0 + tail)
            }
            Self::SquaredHinge => -sign * at_least_zero(1.0 - sign * z),
        }
    }

    /// Returns the second derivative `ℓ''(z)`. For squared hinge loss it is a generalized derivative.
    #[inline(always)]
    fn curvature(self, z: f32, y: f32) -> f32 {
        match self {
            Self::Squared => 1.0,
            Self::Logistic => {
                let tail = tail(z);
                tail / ((1.0 + tail) * (1.0 + tail))
            }
            Self::SquaredHinge => {
                if (2.0 * y - 1.0) * z < 1.0 {
                    1.0
                } else {
                    0.0
                }
            }
        }
    }

    /// Computes the result for all entries of a stretch. Returns the sum of their losses, or 0 for
    /// products.
    pub(super) fn of_stretch(self, wanted: Wanted, stretch: Stretch<'_>) -> f32 {
        // Each call below is compiled for one loss, so that its loop has no branches.
        match self {
            Self::Squared => squared(wanted, stretch),
            Self::Logistic => logistic(wanted, stretch),
            Self::SquaredHinge => squared_hinge(wanted, stretch),
        }
    }
}

/// Implements [`Loss::of_stretch`] for squared loss.
#[wide]
fn squared(wanted: Wanted, stretch: Stretch<'_>) -> f32 {
    of_stretch(Loss::Squared, wanted, stretch)
}

/// Implements [`Loss::of_stretch`] for logistic loss.
#[wide]
fn logistic(wanted: Wanted, stretch: Stretch<'_>) -> f32 {
    of_stretch(Loss::Logistic, wanted, stretch)
}

/// Implements [`Loss::of_stretch`] for squared hinge loss.
#[wide]
fn squared_hinge(wanted: Wanted, stretch: Stretch<'_>) -> f32 {
    of_stretch(Loss::SquaredHinge, wanted, stretch)
}

/// Implements [`Loss::of_stretch`] for a loss that is known when the code is compiled.
#[inline(always)]
fn of_stretch(loss: Loss, wanted: Wanted, stretch: Stretch<'_>) -> f32 {
    let Stretch { z, t, y, weights } = stretch;
    match wanted {
        Wanted::Value => sum(z, y, weights, |z, y, weight| weight * loss.value(*z, y)),
        Wanted::Slope => sum(z, y, weights, |z, y, weight| {
            let value = weight * loss.value(*z, y);
            *z = weight * loss.slope(*z, y);
            value
        }),
        Wanted::Product => {
            let entries = z.iter_mut().zip(t).zip(y).zip(weights);
            for (((z, &t), &y), &weight) in entries {
                *z = weight * loss.curvature(*z, y) * t;
            }
            0.0
        }
    }
}

/// Returns the sum of `work` over all entries.
#[inline(always)]
fn sum(
    z: &mut [f32],
    y: &[f32],
    weights: &[f32],
    mut work: impl FnMut(&mut f32, f32, f32) -> f32,
) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (z, last_z) = z.as_chunks_mut::<LANES>();
    let (y, last_y) = y.as_chunks::<LANES>();
    let (weights, last_weights) = weights.as_chunks::<LANES>();
    for ((z, y), weights) in z.iter_mut().zip(y).zip(weights) {
        for lane in 0..LANES {
            sums[lane] += work(&mut z[lane], y[lane], weights[lane]);
        }
    }
    let last = last_z.iter_mut().zip(last_y).zip(last_weights);
    for (((z, &y), &weight), sum) in last.zip(&mut sums) {
        *sum += work(z, y, weight);
    }
    sums.iter().sum()
}

/// Returns `e^−|z|`, but at least e⁻⁸⁷, which is about 1e-38. The absolute error is negligible in every use.
#[inline(always)]
fn tail(z: f32) -> f32 {
    let x = -z.abs();
    exp_f32(if x > -87.0 { x } else { -87.0 })
}

/// Returns the larger of x and 0. If x is NaN, returns NaN.
#[inline(always)]
fn at_least_zero(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

/// Returns `ln(1 + x)` for x from 0 to 1, with a relative error of at most 3e-7.
///
/// The function computes `2 artanh(x / (2 + x))`. The argument of artanh is at most ⅓, and its series is
/// summed up to the 13th power.
#[inline(always)]
fn ln_1p(x: f32) -> f32 {
    let t = x / (2.0 + x);
    let square = t * t;
    let series = square * (1.0 / 13.0) + 1.0 / 11.0;
    let series = series * square + 1.0 / 9.0;
    let series = series * square + 1.0 / 7.0;
    let series = series * square + 1.0 / 5.0;
    let series = series * square + 1.0 / 3.0;
    let series = series * square + 1.0;
    2.0 * t * series
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOSSES: [Loss; 3] = [Loss::Squared, Loss::Logistic, Loss::SquaredHinge];

    /// The definitions, in double precision: the loss, its slope and its curvature.
    fn expected(loss: Loss, z: f64, y: f64) -> [f64; 3] {
        let sign = 2.0 * y - 1.0;
        let margin = sign * z;
        match loss {
            Loss::Squared => [(z - y).powi(2) / 2.0, z - y, 1.0],
            Loss::Logistic => {
                let chance = |margin: f64| 1.0 / (1.0 + margin.exp());
                let value = (-margin).max(0.0) + (-margin.abs()).exp().ln_1p();
                [
                    value,
                    -sign * chance(margin),
                    chance(margin) * chance(-margin),
                ]
            }
            Loss::SquaredHinge => {
                let gap = (1.0 - margin).max(0.0);
                let bent = f64::from(u8::from(margin < 1.0));
                [gap.powi(2) / 2.0, -sign * gap, bent]
            }
        }
    }

    #[test]
    fn stretches_have_the_values_of_the_definitions() {
        // 37 is not a multiple of the number of lanes, so that the last lanes are tested too.
        for (loss, y) in LOSSES
            .into_iter()
            .flat_map(|loss| [(loss, 0.0), (loss, 1.0)])
        {
            for first in (-60_000..60_000).step_by(37) {
                let z: Vec<f32> = (0..37).map(|at| (first + at) as f32 * 1e-3).collect();
                let (ys, weights, t) = (vec![y; 37], vec![0.5; 37], vec![3.0; 37]);
                let each = |wanted| {
                    let mut out = z.clone();
                    let stretch = Stretch {
                        z: &mut out,
                        t: &t,
                        y: &ys,
                        weights: &weights,
                    };
                    (loss.of_stretch(wanted, stretch), out)
                };
                let (total, slopes) = each(Wanted::Slope);
                let (alone, same) = each(Wanted::Value);
                let (zero, products) = each(Wanted::Product);
                assert_eq!((total, zero), (alone, 0.0));
                assert_eq!(same, z);
                let mut sum = 0.0;
                for at in 0..37 {
                    let [value, slope, curvature] = expected(loss, f64::from(z[at]), f64::from(y));
                    sum += 0.5 * value;
                    let close = |got: f32, wanted: f64| {
                        (f64::from(got) - wanted).abs() <= 1e-6 * wanted.abs() + 1e-36
                    };
                    assert!(close(loss.value(z[at], y), value), "{loss:?} {} {y}", z[at]);
                    assert!(close(slopes[at], 0.5 * slope), "{loss:?} {} {y}", z[at]);
                    // At a score of 1 or −1, the curvature of squared hinge loss may jump. Near these scores,
                    // it is not compared.
                    let bend = loss == Loss::SquaredHinge && (z[at].abs() - 1.0).abs() < 1e-5;
                    assert!(
                        bend || close(products[at], 1.5 * curvature),
                        "{loss:?} {}",
                        z[at]
                    );
                }
                assert!((f64::from(total) - sum).abs() <= 1e-6 * sum + 1e-36);
            }
        }
    }

    #[test]
    fn a_score_that_is_not_a_number_is_not_hidden() {
        for loss in LOSSES {
            assert!(loss.value(f32::NAN, 1.0).is_nan());
            assert!(loss.value(f32::NAN, 0.0).is_nan());
        }
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "the results are exact")]
    fn large_scores_have_their_limits() {
        for z in [100.0, 1e30, f32::MAX, f32::INFINITY] {
            assert!(Loss::Logistic.value(z, 1.0) < 1e-37);
            assert_eq!(Loss::Logistic.value(z, 0.0), z);
            assert!(Loss::Logistic.slope(z, 1.0).abs() < 1e-37);
            assert_eq!(Loss::Logistic.slope(z, 0.0), 1.0);
            assert!(Loss::Logistic.curvature(z, 0.0) < 1e-37);
        }
    }
}
