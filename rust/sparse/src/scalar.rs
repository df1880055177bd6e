//! The numbers a borrowed matrix may be made of.

use manylabel_simd::Lane;
use std::ops::{Add, Sub, SubAssign};

/// An index type scipy uses, `i32` or `i64`, and our own `u16`, `u32` and `usize`.
///
/// Values are non-negative once [`CsrView::new`](crate::CsrView::new) has accepted them.
pub trait Index: Copy + Send + Sync + std::fmt::Display + 'static {
    /// The position as `usize`; a negative value becomes larger than any length, so that bounds
    /// checks reject it.
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

/// A value type of a feature matrix.
pub trait Value: Copy + Send + Sync + 'static {
    /// The value as `f64`.
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

/// A number that kernels generic in precision compute with.
pub trait Real:
    Value + Lane + PartialOrd + std::fmt::Debug + Add<Output = Self> + Sub<Output = Self> + SubAssign
{
    /// Distance from 1 to the next larger number.
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
