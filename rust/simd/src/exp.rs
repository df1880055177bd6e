//! Exponential and logarithm functions that the compiler can vectorize as part of a loop.

/// Evaluates a polynomial by Horner's rule. Coefficients are listed from the highest power to the
/// lowest.
macro_rules! horner {
    ($x:expr; $highest:expr $(, $lower:expr)*) => {{
        let sum = $highest;
        $(let sum = sum * $x + $lower;)*
        sum
    }};
}

/// Returns `e^x` for `x ≤ 0`, with a relative error of at most 4e-16. For x ≤ −708 the result is 0. There,
/// `e^x` is less than twice the smallest normal `f64`.
///
/// The function [`f64::exp`] of the standard library does not vectorize. This function writes x as `n ln 2 +
/// r` with an integer n, and evaluates the Taylor series of `e^r` up to `r¹³`.
#[inline(always)]
pub fn exp(x: f64) -> f64 {
    const LOWEST: f64 = -708.0;
    // If 1.5 · 2⁵² is added to a number, the number is rounded to an integer. The low bits of the sum then
    // hold this integer.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const LN2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let bounded = if x > LOWEST { x } else { LOWEST };
    let shifted = bounded * std::f64::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (bounded - n * LN2_HIGH) - n * LN2_LOW;
    let series = horner!(r; 1.0 / 6_227_020_800.0, 1.0 / 479_001_600.0, 1.0 / 39_916_800.0,
        1.0 / 3_628_800.0, 1.0 / 362_880.0, 1.0 / 40_320.0, 1.0 / 5_040.0, 1.0 / 720.0,
        1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0);
    let power = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1.0f64.to_bits()));
    if x > LOWEST { series * power } else { 0.0 }
}

/// Returns `ln((1 + x) / (1 + y))` for x and y from 0 to 1. The relative error is at most 1e-15 if the
/// difference `x − y` is exact.
///
/// The function computes `2 artanh((x − y) / (2 + x + y))`. It uses the series of artanh up to the 29th
/// power of the argument. The absolute value of the argument is at most ⅓.
#[inline(always)]
pub fn ln_ratio(x: f64, y: f64) -> f64 {
    let t = (x - y) / (2.0 + x + y);
    let square = t * t;
    let series = horner!(square; 1.0 / 29.0, 1.0 / 27.0, 1.0 / 25.0, 1.0 / 23.0, 1.0 / 21.0, 1.0 / 19.0,
        1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0,
        1.0 / 5.0, 1.0 / 3.0, 1.0);
    2.0 * t * series
}

/// Returns `e^x` in single precision for −87 ≤ x ≤ 0, with a relative error of at most 2e-7.
///
/// The method is the same as in [`exp`], but the series ends at `r⁷`. Results for arguments outside the range
/// are meaningless.
#[inline(always)]
pub fn exp_f32(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let series =
        horner!(r; 1.0 / 5_040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0);
    series * f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()))
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
        for i in 0..87_000 {
            let x = -i as f32 * 1e-3;
            let (got, expected) = (exp_f32(x), x.exp());
            assert!(
                (got - expected).abs() <= 2e-7 * expected,
                "{x}: {got} {expected}"
            );
        }
        assert_eq!((exp(0.0), exp(-0.0)), (1.0, 1.0));
        assert_eq!(
            (exp(-709.0), exp(-1e300), exp(f64::NEG_INFINITY)),
            (0.0, 0.0, 0.0)
        );
    }

    #[test]
    fn logarithms_are_those_of_the_standard_library() {
        for i in 0..1_000_000 {
            let x = f64::from(i) * 1e-6;
            let (got, expected) = (ln_ratio(x, 0.0), x.ln_1p());
            assert!(
                (got - expected).abs() <= 1e-15 * expected,
                "{x}: {got} {expected}"
            );
        }
        assert_eq!((ln_ratio(0.0, 0.0), ln_ratio(1e-300, 0.0)), (0.0, 1e-300));
        for i in 0..1_000 {
            for j in 0..1_000 {
                let (x, y) = (f64::from(i) * 1e-3, f64::from(j) * 1e-3);
                let (got, expected) = (ln_ratio(x, y), x.ln_1p() - y.ln_1p());
                assert!((got - expected).abs() <= 4e-16, "{x} {y}: {got} {expected}");
            }
        }
    }
}
