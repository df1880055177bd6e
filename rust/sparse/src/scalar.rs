//! The number types of matrices: positions ([`Index`]), values ([`Value`]), and values to compute with
//! ([`Real`]).

use manylabel_simd::Lane;
use std::ops::{Add, Sub, SubAssign};

/// A type of row ends and columns: `i32` and `i64`, which scipy uses, and our own `u16`, `u32` and
/// `usize`.
///
/// Positions that [`CsrView::new`](crate::CsrView::new) has accepted are non-negative.
pub trait Index: Copy + Send + Sync + std::fmt::Display + 'static {
    /// The position as `usize`. A negative position becomes larger than any length of a slice, so
    /// bounds checks reject it.
    fn get(self) -> usize;
}

macro_rules! index {
    ($($t:ty),*) => {$(
        impl Index for $t {
            #[inline(always)]
            fn get(self) -> usize {
                self as usize
            }
        }
    )*};
}
index!(i32, i64, u16, u32, usize);

/// A value type of a feature matrix: `f32` or `f64`.
pub trait Value: Copy + Send + Sync + 'static {
    /// The value as `f64`; exact for both types.
    fn f64(self) -> f64;
}

impl Value for f32 {
    #[inline(always)]
    fn f64(self) -> f64 {
        f64::from(self)
    }
}

impl Value for f64 {
    #[inline(always)]
    fn f64(self) -> f64 {
        self
    }
}

/// A number type for kernels that are generic over precision: `f32` or `f64`.
pub trait Real:
    Value + Lane + PartialOrd + std::fmt::Debug + Add<Output = Self> + Sub<Output = Self> + SubAssign
{
    /// The distance from 1 to the next larger number of this type.
    const EPSILON: f64;
}

macro_rules! real {
    ($($t:ty),*) => {$(
        impl Real for $t {
            const EPSILON: f64 = <$t>::EPSILON as f64;
        }
    )*};
}
real!(f32, f64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_positions_are_beyond_any_length() {
        let longest = isize::MAX as usize;
        for position in [-1, i32::MIN] {
            assert!(position.get() > longest);
            assert!(i64::from(position).get() > longest);
        }
        assert!(i64::MIN.get() > longest);
        assert_eq!(
            (i32::MAX.get(), u32::MAX.get()),
            (2_147_483_647, 4_294_967_295)
        );
    }
}
