//! Defines the number types of matrices: [`Index`] for row ends and columns, [`Value`] for stored values, and
//! [`Real`] for values in computations. [`from_half`] reads 16-bit floats.

use manylabel_simd::Lane;
use std::ops::{Add, Sub, SubAssign};

/// A type for row ends and columns. scipy uses `i32` and `i64`. The matrices of this project also use `u16`,
/// `u32` and `usize`.
///
/// Numbers that [`CsrView::new`](crate::CsrView::new) has accepted are not negative.
pub trait Index: Copy + Ord + Send + Sync + std::fmt::Display + 'static {
    /// Converts the number to `usize`. A negative number becomes larger than the length of any slice, so
    /// bounds checks reject the result.
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
    /// Converts the value to `f64`. The conversion is exact.
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

/// A number type for functions that are generic over the precision: `f32` or `f64`.
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

/// Returns the value of a 16-bit float. The result is exact. The bits of infinity and NaN give finite numbers
/// of at least 2¹⁶.
#[inline(always)]
pub fn from_half(half: u16) -> f32 {
    /// The exponents of the two formats have the biases 127 and 15.
    const REBIAS: f32 = f32::from_bits((127 + 127 - 15) << 23);
    // Moves the exponent and the fraction to their places, and keeps the sign.
    let bits = ((i32::from(half as i16) << 13) & 0x8FFF_E000_u32 as i32) as u32;
    f32::from_bits(bits) * REBIAS
}

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
