//! Implements arithmetic on the labels of a panel (a group of N labels) in SIMD lanes, and products
//! with rows of features.
//!
//! A [`Wide`] number has one lane for each label of a panel. Each value of X is loaded once and
//! multiplied by N weights. Functions marked `wide` are compiled for several instruction sets. The
//! instruction set is chosen when the function is called.
//!
//! Each lane is computed by the same operations in the same order. The operations depend neither on
//! the other labels of the panel nor on the vector width of the machine. Results may still differ
//! between machines with and without fused multiply-add instructions. With such instructions, a
//! product is not rounded before it is added.

use crate::rounds::Form;
use crate::stored::Stored;
use manylabel_simd::{exp, exp_f32, ln_ratio, wide};
use manylabel_sparse::{Real, RowBlock};
use multiversion::target::target_cfg_f;

/// One number for each of the N labels of a panel. A panel is a group of labels that are processed
/// together.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C, align(64))]
pub(crate) struct Wide<T, const N: usize>(pub(crate) [T; N]);

impl<T: Real, const N: usize> Wide<T, N> {
    /// Returns zero in all lanes.
    pub(crate) fn zero() -> Self {
        Self([T::default(); N])
    }

    /// Adds another number in each lane.
    #[inline(always)]
    pub(crate) fn add(&mut self, other: &Self) {
        for lane in 0..N {
            self.0[lane] += other.0[lane];
        }
    }
}

impl<T: Float, const N: usize> Wide<T, N> {
    /// Adds `scale · other` lane by lane.
    ///
    /// `FUSED` is true if the machine has an instruction that multiplies and adds. The instruction
    /// takes half the time of two separate operations. On machines without the instruction, a fused
    /// operation would be a function call per lane.
    #[inline(always)]
    fn add_scaled<const FUSED: bool>(&mut self, scale: T, other: &Self) {
        for lane in 0..N {
            self.0[lane] = if FUSED {
                scale.times_plus(other.0[lane], self.0[lane])
            } else {
                self.0[lane] + scale * other.0[lane]
            };
        }
    }
}

/// The floating-point operations that the fit needs in addition to [`Real`].
pub(crate) trait Float: Real + Stored {
    /// The smallest tolerance that can be reached in this precision. Rounding errors cause KKT
    /// violations well below this value.
    const FLOOR: f64;
    /// The form of the state of a fit in this precision.
    const FORM: Form;
    /// Returns `1 / (1 + e^{−x})`. In single precision, the result for x below −80 is the value at
    /// −80.
    fn sigmoid(self) -> Self;
    /// Returns the absolute value `|x|`.
    fn size(self) -> Self;
    /// Returns the quotient `x / y`.
    fn over(self, y: Self) -> Self;
    /// Returns `x y + z`, rounded once.
    fn times_plus(self, y: Self, z: Self) -> Self;
}

/// Implements methods by calls of the standard library, in both precisions.
macro_rules! std_arithmetic {
    () => {
        #[inline(always)]
        fn size(self) -> Self {
            self.abs()
        }

        #[inline(always)]
        fn over(self, y: Self) -> Self {
            self / y
        }

        #[inline(always)]
        fn times_plus(self, y: Self, z: Self) -> Self {
            self.mul_add(y, z)
        }
    };
}

impl Float for f32 {
    const FLOOR: f64 = 1e-5;
    const FORM: Form = Form::Single;

    #[inline(always)]
    fn sigmoid(self) -> Self {
        let below = if self.abs() < 80.0 { self.abs() } else { 80.0 };
        let tail = exp_f32(-below);
        let numerator = if self < 0.0 { tail } else { 1.0 };
        numerator / (1.0 + tail)
    }

    std_arithmetic!();
}

impl Float for f64 {
    const FLOOR: f64 = 0.0;
    const FORM: Form = Form::Double;

    #[inline(always)]
    fn sigmoid(self) -> Self {
        let tail = exp(-self.abs());
        let numerator = if self < 0.0 { tail } else { 1.0 };
        numerator / (1.0 + tail)
    }

    std_arithmetic!();
}

/// Returns `log(1 + e^x)` without overflow, with a relative error of about 1e-15. The result for x ≤ −708 is 0, and
/// for NaN it is NaN.
#[inline(always)]
pub(crate) fn softplus(x: f64) -> f64 {
    let positive = if x < 0.0 { 0.0 } else { x };
    positive + ln_ratio(exp(-x.abs()), 0.0)
}

/// Adds `Σ weight · log(1 + e^x)` over the rows to the sum of each label, in double precision. Here x is the
/// log-odds of the label in a row, and `weights` has one entry per row.
#[wide]
pub(crate) fn add_softplus<T: Float, const N: usize>(
    e: &[Wide<T, N>],
    weights: &[T],
    sums: &mut [f64; N],
) {
    let mut total = *sums;
    for (e, &weight) in e.iter().zip(weights) {
        for lane in 0..N {
            total[lane] += weight.f64() * softplus(e.0[lane].f64());
        }
    }
    *sums = total;
}

/// Replaces each log-odds e by `weight · σ(e)`, where `weights` has one entry per row. Returns the
/// sum of the new values over the rows.
#[wide]
pub(crate) fn sigmoids<T: Float, const N: usize>(
    e: &mut [Wide<T, N>],
    weights: &[T],
) -> Wide<T, N> {
    let mut sum = Wide::zero();
    for (e, &weight) in e.iter_mut().zip(weights) {
        for lane in 0..N {
            e.0[lane] = weight * e.0[lane].sigmoid();
        }
        sum.add(e);
    }
    sum
}

/// Computes `out_i = first + Σ_j x_ij p_j` for the rows i of a block of a sparse matrix.
#[wide]
pub(crate) fn sparse_times<T: Float, const N: usize>(
    x: &RowBlock<T>,
    first: Wide<T, N>,
    p: &[Wide<T, N>],
    out: &mut [Wide<T, N>],
) {
    const FUSED: bool = target_cfg_f!(target_feature = "fma");
    for (row, out) in out.iter_mut().enumerate() {
        let (cols, values) = x.row(row);
        *out = plus_scaled::<_, N, _, FUSED>(first, p, cols, |col| col as usize, values);
    }
}

/// Computes `g_j += Σ_i x_ij u_i` over the rows i of a block of a sparse matrix.
#[wide]
pub(crate) fn sparse_add_transposed<T: Float, const N: usize>(
    x: &RowBlock<T>,
    u: &[Wide<T, N>],
    g: &mut [Wide<T, N>],
) {
    const FUSED: bool = target_cfg_f!(target_feature = "fma");
    for (col, rows, values) in x.columns(0..g.len()) {
        let zero = Wide::zero();
        let sum = plus_scaled::<_, N, _, FUSED>(zero, u, rows, |row| row as usize, values);
        g[col].add(&sum);
    }
}

/// Returns `first` plus the sum, over i, of `values[i]` times the number at `position(places[i])`.
/// The order of the additions is fixed.
#[inline(always)]
fn plus_scaled<T: Float, const N: usize, I: Copy, const FUSED: bool>(
    first: Wide<T, N>,
    numbers: &[Wide<T, N>],
    places: &[I],
    position: impl Fn(I) -> usize,
    values: &[T],
) -> Wide<T, N> {
    // Two independent sums are used, so that no addition waits for the previous addition.
    let (mut a, mut b) = (first, Wide::zero());
    let (places2, values2) = (places.chunks_exact(2), values.chunks_exact(2));
    for (&place, &value) in places2.remainder().iter().zip(values2.remainder()) {
        a.add_scaled::<FUSED>(value, &numbers[position(place)]);
    }
    for (place, value) in places2.zip(values2) {
        a.add_scaled::<FUSED>(value[0], &numbers[position(place[0])]);
        b.add_scaled::<FUSED>(value[1], &numbers[position(place[1])]);
    }
    a.add(&b);
    a
}

/// Number of rows, or columns, of a dense block that are processed together. Their sums stay in
/// registers.
const SIDE: usize = 8;

/// Computes `out_i = first + Σ_j x_ij p_j` for dense rows i with `p.len()` values each.
///
/// Each value of `p` is loaded once for eight rows.
#[wide]
pub(crate) fn dense_times<T: Float, const N: usize>(
    x: &[T],
    first: Wide<T, N>,
    p: &[Wide<T, N>],
    out: &mut [Wide<T, N>],
) {
    const FUSED: bool = target_cfg_f!(target_feature = "fma");
    let d = p.len();
    if d == 0 {
        out.fill(first);
        return;
    }
    for (x, out) in x.chunks(SIDE * d).zip(out.chunks_mut(SIDE)) {
        if out.len() == SIDE {
            let rows: [&[T]; SIDE] = std::array::from_fn(|i| &x[i * d..][..d]);
            let mut sums = [first; SIDE];
            for (j, p) in p.iter().enumerate() {
                for i in 0..SIDE {
                    sums[i].add_scaled::<FUSED>(rows[i][j], p);
                }
            }
            out.copy_from_slice(&sums);
        } else {
            for (x, out) in x.chunks(d).zip(out) {
                let mut sum = first;
                for (&value, p) in x.iter().zip(p) {
                    sum.add_scaled::<FUSED>(value, p);
                }
                *out = sum;
            }
        }
    }
}

/// Computes `g_j += Σ_i x_ij u_i` over dense rows i with `g.len()` values each.
///
/// Each value of `u` is loaded once for eight columns.
#[wide]
pub(crate) fn dense_add_transposed<T: Float, const N: usize>(
    x: &[T],
    u: &[Wide<T, N>],
    g: &mut [Wide<T, N>],
) {
    const FUSED: bool = target_cfg_f!(target_feature = "fma");
    let d = g.len();
    if d < SIDE {
        for (x, u) in x.chunks_exact(d.max(1)).zip(u) {
            for (g, &value) in g.iter_mut().zip(x) {
                g.add_scaled::<FUSED>(value, u);
            }
        }
        return;
    }
    for first in (0..d).step_by(SIDE) {
        // The last group of columns starts earlier, so that it also has eight columns. Columns that
        // were already processed are skipped.
        let start = first.min(d - SIDE);
        let sums = dense_columns::<T, N, FUSED>(&x[start..], d, u);
        for j in 0..SIDE {
            if start + j >= first {
                g[start + j].add(&sums[j]);
            }
        }
    }
}

/// Returns `Σ_i x_ij u_i` for the first eight columns j of `x`. Consecutive rows of `x` are `d`
/// values apart.
#[inline(always)]
fn dense_columns<T: Float, const N: usize, const FUSED: bool>(
    x: &[T],
    d: usize,
    u: &[Wide<T, N>],
) -> [Wide<T, N>; SIDE] {
    // The sums are in separate variables. For an array of sums, the compiler would use slow gather
    // instructions.
    let mut a = Wide::zero();
    let (mut b, mut c, mut e, mut f, mut g, mut h, mut k) = (a, a, a, a, a, a, a);
    for (x, u) in x.chunks(d).zip(u) {
        let x: &[T; SIDE] = x[..SIDE].try_into().expect("eight");
        a.add_scaled::<FUSED>(x[0], u);
        b.add_scaled::<FUSED>(x[1], u);
        c.add_scaled::<FUSED>(x[2], u);
        e.add_scaled::<FUSED>(x[3], u);
        f.add_scaled::<FUSED>(x[4], u);
        g.add_scaled::<FUSED>(x[5], u);
        h.add_scaled::<FUSED>(x[6], u);
        k.add_scaled::<FUSED>(x[7], u);
    }
    [a, b, c, e, f, g, h, k]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigmoid_is_that_of_the_definition() {
        for i in -4000..=4000 {
            let x = f64::from(i) / 40.0;
            let exact = 1.0 / (1.0 + (-x).exp());
            assert!((x.sigmoid() / exact - 1.0).abs() < 1e-14, "{x}");
            // In single precision, smaller values are replaced by e^-80.
            let single = f64::from((x as f32).sigmoid());
            let exact = if x < -80.0 { (-80f64).exp() } else { exact };
            assert!((single / exact - 1.0).abs() < 1e-5, "{x}: {single} {exact}");
        }
        for x in [f64::INFINITY, 1e300] {
            assert_eq!((x.sigmoid(), (x as f32).sigmoid()), (1.0, 1.0));
            assert!((-x).sigmoid() < 1e-300 && (-x as f32).sigmoid() < 1e-30);
        }
    }

    #[test]
    fn softplus_is_that_of_the_definition() {
        for i in -7000..=8000 {
            let x = f64::from(i) / 10.0;
            let exact = if x < 500.0 { x.exp().ln_1p() } else { x };
            let got = softplus(x);
            assert!((got - exact).abs() <= 2e-15 * exact, "{x}: {got} {exact}");
        }
        assert_eq!((softplus(f64::NEG_INFINITY), softplus(-1e3)), (0.0, 0.0));
        assert!(softplus(f64::INFINITY).is_infinite());
        assert!(softplus(f64::NAN).is_nan());
    }

    #[test]
    fn sums_of_softplus_are_those_of_the_definition() {
        let value = |row: usize, lane: usize| ((row * 31 + lane * 17) % 161) as f32 / 16.0 - 9.0;
        let e: Vec<Wide<f32, 16>> = (0..50)
            .map(|row| Wide(std::array::from_fn(|lane| value(row, lane))))
            .collect();
        let weights: Vec<f32> = (0..50).map(|row| (row % 3) as f32 / 8.0).collect();
        let mut sums = [1.0; 16];
        add_softplus(&e, &weights, &mut sums);
        for (lane, sum) in sums.into_iter().enumerate() {
            let of_rows = weights.iter().enumerate();
            let exact =
                of_rows.map(|(row, &w)| f64::from(w) * softplus(f64::from(value(row, lane))));
            let exact = 1.0 + exact.sum::<f64>();
            assert!((sum / exact - 1.0).abs() < 1e-14, "{sum} {exact}");
        }
    }

    #[test]
    fn dense_products_are_those_of_the_definition() {
        // The values are integers, so that their sums are exact. The sizes are near the size of a
        // register block.
        let value = |a: usize, b: usize| ((a * 7 + b * 3) % 11) as f32 - 5.0;
        for n in [1, 7, 8, 9, 17] {
            for d in [1, 7, 8, 19] {
                let x: Vec<f32> = (0..n * d).map(|at| value(at / d, at % d)).collect();
                let panel = |n: usize| -> Vec<Wide<f32, 16>> {
                    (0..n)
                        .map(|i| Wide(std::array::from_fn(|lane| value(i + 2, lane))))
                        .collect()
                };
                let (p, u) = (panel(d), panel(n));
                let (mut out, mut g) = (panel(n), panel(d));
                let first = Wide([2.0; 16]);
                dense_times(&x, first, &p, &mut out);
                dense_add_transposed(&x, &u, &mut g);
                let (mut out2, mut g2) = (vec![first; n], panel(d));
                for i in 0..n {
                    for j in 0..d {
                        out2[i].add_scaled::<false>(x[i * d + j], &p[j]);
                        g2[j].add_scaled::<false>(x[i * d + j], &u[i]);
                    }
                }
                assert_eq!((out, g), (out2, g2), "{n} {d}");
            }
        }
    }
}
