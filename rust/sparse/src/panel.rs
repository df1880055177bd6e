//! Sixteen columns of a dense matrix side by side.
//!
//! A product of a sparse matrix with many dense columns reads one [`Lanes`] for each stored value.
//! Lane by lane the arithmetic is that of a column on its own, in the same order whichever columns
//! share the panel and whatever the vector width of the machine, so results depend on neither.

use crate::Real;

/// Columns that share one pass over a sparse matrix; sixteen `f32` fill one cache line.
pub const LANES: usize = 16;

/// One row of a panel: a number for each of sixteen columns.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C, align(64))]
pub struct Lanes<T>(pub [T; LANES]);

impl<T: Real> Lanes<T> {
    /// Adds `scale` times `other`.
    #[inline(always)]
    pub fn add_scaled(&mut self, scale: T, other: &Self) {
        for lane in 0..LANES {
            self.0[lane] += scale * other.0[lane];
        }
    }

    /// Adds `other`.
    #[inline(always)]
    pub fn add(&mut self, other: &Self) {
        for lane in 0..LANES {
            self.0[lane] += other.0[lane];
        }
    }

    /// The nearest number of each lane.
    pub fn of(values: &[f64; LANES]) -> Self {
        Self(values.map(T::of))
    }
}
