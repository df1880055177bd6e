//! Elastic nets in the precision of the fit: what they cost, how they shrink, and how far a coordinate
//! is from optimal under them.

use crate::params::Penalty;
use crate::wide::{Float, Wide};
use manylabel_simd::wide;
use manylabel_sparse::Value;

/// The penalty `l2 θ² + l1 |θ|` of a coordinate θ.
#[derive(Clone, Copy)]
pub(crate) struct Net<T> {
    pub(crate) l1: T,
    pub(crate) l2: T,
}

impl<T: Float> Net<T> {
    pub(crate) fn new(penalty: Penalty) -> Self {
        Self {
            l1: T::of(penalty.l1),
            l2: T::of(penalty.l2),
        }
    }

    /// The penalty itself.
    pub(crate) fn cost(self, value: T) -> f64 {
        let value = value.f64();
        self.l2.f64() * value * value + self.l1.f64() * value.abs()
    }

    /// How far a coordinate is from optimal: its least subgradient, where the loss has slope `slope`.
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

/// `sign(u) max(|u| − bound, 0)`; 0 for NaN.
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

/// The largest violation among the weights of each label of a panel; `nets`: one a row.
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
