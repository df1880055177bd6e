//! Arithmetic on rows of labels, eight at a time.
//!
//! All rows of scores, gradients and sums are padded to a multiple of [`WIDTH`] labels, whose
//! gradients are 0. Functions here are `#[inline(always)]`, so that they become part of the loop
//! that uses them, which `multiversion` compiles for several instruction sets. Each label is added
//! up on its own and in the order of rows: labels with equal gradients have equal sums.

/// Labels to a chunk; eight `f64` fill one cache line.
pub(crate) const WIDTH: usize = 8;

/// `n` rounded up to whole chunks.
pub(crate) fn padded(n: usize) -> usize {
    n.next_multiple_of(WIDTH)
}

/// The chunks of a padded row.
#[inline(always)]
pub(crate) fn chunks(row: &[f64]) -> &[[f64; WIDTH]] {
    row.as_chunks().0
}

/// The chunks of a padded row, to write.
#[inline(always)]
pub(crate) fn chunks_mut(row: &mut [f64]) -> &mut [[f64; WIDTH]] {
    row.as_chunks_mut().0
}

/// `y += a x`.
#[inline(always)]
pub(crate) fn add_scaled(y: &mut [f64], a: f64, x: &[f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += a * x;
    }
}

/// `Σ_k x_k y_k`.
#[inline(always)]
pub(crate) fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; WIDTH];
    for (x, y) in chunks(x).iter().zip(chunks(y)) {
        for lane in 0..WIDTH {
            sums[lane] += x[lane] * y[lane];
        }
    }
    total(&sums)
}

/// The sum of one chunk, in a fixed order.
#[inline(always)]
pub(crate) fn total(x: &[f64; WIDTH]) -> f64 {
    ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]))
}

/// `e^x` for `x ≤ 0`, to a relative 4e-16; 0 below -708, where results would be subnormal.
///
/// The standard library's function is a call for every number. This is the usual reduction
/// `x = n ln 2 + r` and the series of `e^r` up to `r¹³`, in operations that vectorize.
#[inline(always)]
pub(crate) fn exp(x: f64) -> f64 {
    const LOWEST: f64 = -708.0;
    // Adding 1.5 · 2⁵² rounds to an integer, which then stands in the low bits.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let bounded = if x > LOWEST { x } else { LOWEST };
    let shifted = bounded * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (bounded - n * LN2_HIGH) - n * LN2_LOW;
    let mut series = 1.0 / 6_227_020_800.0;
    for inverse in [
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        series = series * r + inverse;
    }
    let power = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1.0f64.to_bits()));
    if x > LOWEST { series * power } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_those_of_the_standard_library() {
        for i in 0..2_000_000 {
            let x = -f64::from(i) * 3.541e-4;
            let (got, expected) = (exp(x), x.exp());
            if x > -708.0 {
                assert!(
                    (got - expected).abs() <= 4e-16 * expected,
                    "{x}: {got} {expected}"
                );
            }
        }
        assert_eq!((exp(0.0), exp(-0.0)), (1.0, 1.0));
        assert_eq!(
            (exp(-709.0), exp(-1e300), exp(f64::NEG_INFINITY)),
            (0.0, 0.0, 0.0)
        );
    }
}
