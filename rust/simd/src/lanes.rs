//! Defines small arrays of numbers for SIMD loops, and sums over these arrays. One number of such an array is
//! called a lane.

use std::ops::{AddAssign, Mul};

/// The number type of [`Lanes`]: `f32` or `f64`.
pub trait Lane:
    Copy + Default + AddAssign + Mul<Output = Self> + Into<f64> + Send + Sync + 'static
{
    /// Returns the number of this type that is nearest to `value`.
    fn of(value: f64) -> Self;
}

macro_rules! lane {
    ($($t:ty),*) => {$(
        impl Lane for $t {
            #[inline(always)]
            fn of(value: f64) -> Self {
                value as Self
            }
        }
    )*};
}
lane!(f32, f64);

/// Number of values that are summed in the precision of the data before the sum is added to a total in
/// `f64`.
///
/// Rounding errors of such short sums stay close to the rounding error of a single number. Additions in
/// `f64` are so rare that they take no noticeable time.
pub const STRETCH: usize = 64;

/// Number of columns of a dense matrix that are processed in one pass over a sparse matrix.
///
/// In single precision, 32 numbers fill two cache lines, which the processor fetches together. With only 16
/// columns, reading the indices of the sparse matrix took as long as the arithmetic.
pub const LANES: usize = 32;

/// An array of `N` numbers, aligned to a cache line. The array is one row of a panel, which is a dense matrix
/// with `N` columns. One number of the array is called a lane.
///
/// The operations on one lane do not use the other lanes. So the result for a column depends neither on the
/// other columns of the panel nor on the vector width of the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, align(64))]
pub struct Lanes<T, const N: usize = LANES>(pub [T; N]);

impl<T: Lane, const N: usize> Default for Lanes<T, N> {
    #[inline(always)]
    fn default() -> Self {
        Self([T::default(); N])
    }
}

impl<T: Lane, const N: usize> Lanes<T, N> {
    /// Adds `scale` times `other` to the lanes.
    #[inline(always)]
    pub fn add_scaled(&mut self, scale: T, other: &Self) {
        for lane in 0..N {
            self.0[lane] += scale * other.0[lane];
        }
    }

    /// Adds `other` to the lanes.
    #[inline(always)]
    pub fn add(&mut self, other: &Self) {
        for lane in 0..N {
            self.0[lane] += other.0[lane];
        }
    }

    /// Adds the product of `a` and `b` to the lanes, lane by lane.
    #[inline(always)]
    pub fn add_product(&mut self, a: &Self, b: &Self) {
        for lane in 0..N {
            self.0[lane] += a.0[lane] * b.0[lane];
        }
    }

    /// Adds each lane to the entry of `sums` with the same index, in double precision.
    #[inline(always)]
    pub fn add_to(&self, sums: &mut [f64; N]) {
        for lane in 0..N {
            sums[lane] += self.0[lane].into();
        }
    }

    /// Rounds each value to the type of the lanes.
    pub fn of(values: &[f64; N]) -> Self {
        Self(values.map(T::of))
    }
}

/// Computes `y += a x`, element by element, up to the length of the shorter slice.
#[inline(always)]
pub fn add_scaled<T: Lane>(y: &mut [T], a: T, x: &[T]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

/// Returns the sum of `N` numbers. `N` must be a power of two. The upper half of the numbers is added to the
/// lower half until one number is left.
#[inline(always)]
pub fn total<T: Lane, const N: usize>(lanes: &[T; N]) -> T {
    const { assert!(N.is_power_of_two()) }
    let mut lanes = *lanes;
    let mut half = N / 2;
    while half > 0 {
        for lane in 0..half {
            let upper = lanes[lane + half];
            lanes[lane] += upper;
        }
        half /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_taken_in_a_fixed_order() {
        let x = [1e16, 1.0, 3.0, -1e16, 5.0, 7.0, 11.0, 13.0];
        let expected = ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
        assert_eq!(f64::to_bits(total(&x)), f64::to_bits(expected));
        assert_eq!(f32::to_bits(total(&[2.5])), f32::to_bits(2.5));
    }

    #[test]
    fn lanes_are_columns() {
        let mut a = Lanes::<f32, 16>::default();
        a.add_scaled(2.0, &Lanes([1.5; 16]));
        a.add(&Lanes::of(&[1.0; 16]));
        a.add_product(&Lanes([2.0; 16]), &Lanes([0.5; 16]));
        let mut sums = [0.5; 16];
        a.add_to(&mut sums);
        assert_eq!(sums.map(f64::to_bits), [5.5f64; 16].map(f64::to_bits));
        let mut y = [1.0f64, 2.0];
        add_scaled(&mut y, 3.0, &[1.0, -1.0]);
        assert_eq!(y.map(f64::to_bits), [4.0f64, -1.0].map(f64::to_bits));
        assert_eq!(align_of::<Lanes<f32, 16>>(), 64);
    }
}
