//! Generates standard normal numbers by position.
//!
//! The number at (row, column) depends only on the seed and the position. It does not depend on the
//! order of the draws or on the thread. A random matrix is therefore the same for any number of
//! threads. No generator state has to be passed around.
//!
//! The seed and the row are hashed to the start of a `SplitMix64` sequence. Column j uses the numbers 2j + 1
//! and 2j + 2 of the sequence. The Box–Muller transform turns these two numbers into one normal number.

use std::f64::consts::TAU;

/// Computes the output function of the generator `SplitMix64` (Steele, Lea, Flood 2014). The function is a
/// bijection. Each output bit depends on all bits of `z`.
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns a uniform number in (0, 1) from the upper 52 bits. 0 and 1 are excluded, so the
/// logarithm of the number is finite.
fn uniform(bits: u64) -> f64 {
    ((bits >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

/// Returns the number at (`row`, `col`) of a matrix of independent standard normal numbers.
pub(crate) fn normal(seed: u64, row: usize, col: usize) -> f64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let of_row =
        mixed(mixed(seed.wrapping_add(GOLDEN)).wrapping_add((row as u64).wrapping_mul(GOLDEN)));
    let first = of_row.wrapping_add((2 * col as u64 + 1).wrapping_mul(GOLDEN));
    let (radius, angle) = (
        uniform(mixed(first)),
        uniform(mixed(first.wrapping_add(GOLDEN))),
    );
    (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_normal_distribution() {
        let n = 200;
        for seed in [0, 1, u64::MAX] {
            let draw = |at: usize| normal(seed, at / n, at % n);
            let mean = |f: &dyn Fn(usize) -> f64| (0..n * n).map(f).sum::<f64>() / (n * n) as f64;
            // Tolerances are five standard errors for n² = 40,000 draws.
            assert!(mean(&draw).abs() < 0.025);
            assert!((mean(&|at| draw(at).powi(2)) - 1.0).abs() < 0.036);
            assert!((mean(&|at| draw(at).powi(4)) - 3.0).abs() < 0.25);
            assert!(mean(&|at| draw(at) * normal(seed, at / n, at % n + 1)).abs() < 0.025);
            assert!(mean(&|at| draw(at) * normal(seed, at / n + 1, at % n)).abs() < 0.025);
            assert!(mean(&|at| draw(at) * normal(seed ^ 1, at / n, at % n)).abs() < 0.025);
        }
    }
}
