//! Implements elastic nets in the precision of the fit: the penalty, its proximal step and the KKT
//! violation.
//!
//! Let θ be a parameter of the model, and let g be the slope of the loss with respect to θ. With
//! the penalty `l2 θ² + l1 |θ|`, the optimality (KKT) condition is `g + 2 l2 θ + l1 sign(θ) = 0` if
//! θ ≠ 0, and `|g| ≤ l1` if θ = 0. The KKT violation is the distance from this condition. It is the
//! absolute value of the smallest subgradient.

use crate::params::Penalty;
use crate::wide::{Float, Wide};
use manylabel_simd::wide;
use manylabel_sparse::Value;

/// The penalty `l2 θ² + l1 |θ|` of a parameter θ.
#[derive(Clone, Copy)]
pub(crate) struct Net<T> {
    /// Factor of the absolute value.
    pub(crate) l1: T,
    /// Factor of the square.
    pub(crate) l2: T,
}

impl<T: Float> Net<T> {
    /// Rounds a penalty to the precision of the fit.
    pub(crate) fn new(penalty: Penalty) -> Self {
        Self {
            l1: T::of(penalty.l1),
            l2: T::of(penalty.l2),
        }
    }

    /// Returns the penalty of `value`, in double precision.
    pub(crate) fn cost(self, value: T) -> f64 {
        let value = value.f64();
        self.l2.f64() * value * value + self.l1.f64() * value.abs()
    }

    /// Returns the KKT violation of a parameter. `value` is the value of the parameter, and `slope`
    /// is the slope of the loss.
    #[inline(always)]
    pub(crate) fn violation(self, value: T, slope: T) -> T {
        let zero = T::default();
        let smooth = slope + (self.l2 + self.l2) * value;
        let excess = smooth.size() - self.l1;
        let at_zero = if excess > zero { excess } else { zero };
        let signed = if value > zero {
            self.l1
        } else {
            zero - self.l1
        };
        if value == zero {
            at_zero
        } else {
            (smooth + signed).size()
        }
    }
}

/// Returns the soft threshold of `u`: `sign(u) max(|u| − bound, 0)`. Returns 0 for NaN.
#[inline(always)]
pub(crate) fn soft<T: Float>(u: T, bound: T) -> T {
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

/// Returns, for each label, the largest KKT violation among its weights.
///
/// The weights of N labels (a panel) are given. `weights`, `slopes` and `nets` have one entry per
/// row of the panel, which is a feature or the intercept. Violations that are NaN are ignored.
#[wide]
pub(crate) fn violations<T: Float, const N: usize>(
    weights: &[Wide<T, N>],
    slopes: &[Wide<T, N>],
    nets: &[Net<T>],
) -> [f64; N] {
    let mut largest = Wide::<T, N>::zero();
    for ((weights, slopes), &net) in weights.iter().zip(slopes).zip(nets) {
        for lane in 0..N {
            let found = net.violation(weights.0[lane], slopes.0[lane]);
            if found > largest.0[lane] {
                largest.0[lane] = found;
            }
        }
    }
    largest.0.map(Value::f64)
}
