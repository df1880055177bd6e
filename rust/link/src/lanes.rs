//! Implements elementwise functions and products, which process sixteen numbers at a time.
//!
//! Functions marked `wide` are compiled for several instruction sets. The instruction set is chosen
//! when the function is called. Each output is computed by the same operations in the same order.
//! The operations do not depend on which rows and labels are processed together. The scores of a
//! row therefore do not depend on the other rows of a batch.

use manylabel_base::{Error, filled};
use manylabel_simd::{exp_f32, total, wide};

/// Number of SIMD lanes. Sixteen `f32` fill a cache line and one AVX-512 vector.
pub(crate) const LANES: usize = 16;

/// Number of rows that are multiplied with frequencies or weights together. Their sums stay in
/// registers.
const SIDE: usize = 4;

/// Number of labels that are processed together. Their weights stay in the second-level cache while
/// all rows are processed.
const LABELS: usize = 32;

/// Returns `cos(2π t)` for an angle t, measured in turns. The absolute error is at most 3e-7. If
/// the absolute value of t is 2⁵¹ or more, `f64` has almost no digits for the fractional part of t.
/// Such an angle is treated as a whole number of turns.
#[inline(always)]
fn cos_turns(t: f64) -> f32 {
    // Adding 1.5 · 2⁵² rounds to an integer. From 2⁵¹ on, the sum would leave the range where this
    // is true.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const WHOLE_FROM: f64 = 2_251_799_813_685_248.0;
    let whole = (t + ROUND) - ROUND;
    let fraction = if t.abs() < WHOLE_FROM { t - whole } else { 0.0 };
    // cos 2πf = sin 2π(¼ − |f|). The argument of the sine is within ±π/2. The Taylor series is used
    // up to x¹¹.
    let x = (0.25 - fraction.abs() as f32) * std::f32::consts::TAU;
    let y = x * x;
    let mut series = -1.0 / 39_916_800.0;
    for inverse in [
        1.0 / 362_880.0,
        -1.0 / 5_040.0,
        1.0 / 120.0,
        -1.0 / 6.0,
        1.0,
    ] {
        series = series * y + inverse;
    }
    series * x
}

/// Returns `1 / (1 + e^{−x})`, with x limited to ±40.
#[inline(always)]
fn sigmoid(x: f32) -> f32 {
    let below = if x.abs() < 40.0 { x.abs() } else { 40.0 };
    let tail = exp_f32(-below);
    let numerator = if x < 0.0 { tail } else { 1.0 };
    numerator / (1.0 + tail)
}

/// Replaces the logits of one row by their probabilities multiplied by `weight`. The probability is
/// the sigmoid of the logit.
#[wide]
pub(crate) fn sigmoids(row: &mut [f32], weight: f32) {
    for x in row {
        *x = sigmoid(*x) * weight;
    }
}

/// Replaces the logits of one row by their softmax multiplied by `weight`. The largest logit is
/// subtracted first. Differences below −80 are replaced by −80.
#[wide]
pub(crate) fn softmax(row: &mut [f32], weight: f32) {
    let highest = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    for x in row.iter_mut() {
        let below = *x - highest;
        *x = exp_f32(if below > -80.0 { below } else { -80.0 });
    }
    let scale = weight / row.iter().map(|&x| f64::from(x)).sum::<f64>() as f32;
    for x in row {
        *x *= scale;
    }
}

/// Returns `log(1 + e^x)` without overflow. If x is the logit of a label with the target ỹ, the
/// logistic loss is this value minus `ỹ x`.
#[inline]
pub(crate) fn softplus(x: f32) -> f64 {
    f64::from(x.max(0.0)) + f64::from((-x.abs()).exp()).ln_1p()
}

/// The frequencies and phases of cosine features.
#[derive(Clone, Copy)]
pub(crate) struct Waves<'a> {
    /// Frequencies: one row of length s for each prediction, followed by one row for the constant.
    pub(crate) r: &'a [f32],
    /// The s phases.
    pub(crate) b: &'a [f32],
}

/// Computes the cosine features of rows: `out[i, j] = cos(Σ_t h[i, t] r[t, j] + b[j])`. Here r are
/// the frequencies and b are the phases of `waves`.
///
/// `h` holds predictions, in rows of length `width`. `out` has rows of length `stride` ≥ s, where s
/// is the number of cosine features. The first s numbers of each row are written. If the
/// distribution of the frequencies has heavy tails, angles can be large. They are therefore
/// computed in double precision.
///
/// Rows are processed four at a time. At the end, up to three rows are processed one by one.
#[wide]
pub(crate) fn cosines(
    h: &[f32],
    width: usize,
    waves: Waves<'_>,
    out: &mut [f32],
    stride: usize,
) -> Result<(), Error> {
    let fours = h.len() / (SIDE * width) * SIDE;
    let (h, last_h) = h.split_at(fours * width);
    let (out, last_out) = out.split_at_mut(fours * stride);
    for (h, out) in h.chunks(SIDE * width).zip(out.chunks_mut(SIDE * stride)) {
        cosines_of::<SIDE>(h, width, waves, out, stride);
    }
    if last_h.is_empty() {
        return Ok(());
    }
    let mut angles = filled("number of features", 0.0, waves.b.len())?;
    for (h, out) in last_h.chunks(width).zip(last_out.chunks_mut(stride)) {
        cosines_of_one(h, waves, out, &mut angles);
    }
    Ok(())
}

/// Computes the [`cosines`] of one row. Frequencies are read once, in order. `angles` is a
/// workspace with one number per cosine feature.
#[inline(always)]
fn cosines_of_one(h: &[f32], waves: Waves<'_>, out: &mut [f32], angles: &mut [f64]) {
    let Waves { r, b } = waves;
    angles.fill(0.0);
    for (&value, frequencies) in h.iter().zip(r.chunks_exact(b.len())) {
        let value = f64::from(value);
        for (angle, &frequency) in angles.iter_mut().zip(frequencies) {
            *angle += value * f64::from(frequency);
        }
    }
    for ((out, angle), &phase) in out.iter_mut().zip(angles).zip(b) {
        *out = cos_turns((*angle + f64::from(phase)) * (1.0 / std::f64::consts::TAU));
    }
}

/// Computes the [`cosines`] of N rows at a time.
#[inline(always)]
fn cosines_of<const N: usize>(
    h: &[f32],
    width: usize,
    Waves { r, b }: Waves<'_>,
    out: &mut [f32],
    stride: usize,
) {
    let s = b.len();
    for first in (0..s).step_by(LANES) {
        let n = LANES.min(s - first);
        let mut angles = [[0.0f64; LANES]; N];
        for t in 0..width {
            let mut frequency = [0.0f64; LANES];
            if n == LANES {
                let from: &[f32; LANES] = r[t * s + first..][..LANES].try_into().expect("16");
                for lane in 0..LANES {
                    frequency[lane] = f64::from(from[lane]);
                }
            } else {
                for (to, &from) in frequency.iter_mut().zip(&r[t * s + first..][..n]) {
                    *to = f64::from(from);
                }
            }
            for row in 0..N {
                let value = f64::from(h[row * width + t]);
                for lane in 0..LANES {
                    angles[row][lane] += value * frequency[lane];
                }
            }
        }
        let mut phase = [0.0f64; LANES];
        for (to, &from) in phase.iter_mut().zip(&b[first..][..n]) {
            *to = f64::from(from);
        }
        for row in 0..N {
            let mut cosine = [0.0; LANES];
            for lane in 0..LANES {
                let angle = angles[row][lane] + phase[lane];
                cosine[lane] = cos_turns(angle * (1.0 / std::f64::consts::TAU));
            }
            out[row * stride + first..][..n].copy_from_slice(&cosine[..n]);
        }
    }
}

/// Sixteen numbers, one per SIMD lane.
type Lanes = [f32; LANES];

/// A vector that is divided into groups of sixteen numbers.
#[derive(Clone, Copy)]
struct Groups<'a> {
    /// The groups that the vector fills.
    full: &'a [Lanes],
    /// The remaining numbers of the vector, followed by zeros.
    rest: Lanes,
    /// Whether there are remaining numbers.
    has_rest: bool,
}

impl<'a> Groups<'a> {
    #[inline(always)]
    fn new(x: &'a [f32]) -> Self {
        let (full, last) = x.as_chunks();
        let mut rest = [0.0; LANES];
        rest[..last.len()].copy_from_slice(last);
        let has_rest = !last.is_empty();
        Self {
            full,
            rest,
            has_rest,
        }
    }
}

/// Multiplies sixteen numbers of `x` by sixteen numbers of `w`, and adds each product to the partial
/// sum of its lane.
#[inline(always)]
fn add_products(sums: &mut Lanes, x: &Lanes, w: &Lanes) {
    for lane in 0..LANES {
        sums[lane] += x[lane] * w[lane];
    }
}

/// Returns the inner products of one vector with four vectors of the same length. Each product is
/// computed in the same order, so it does not depend on the other three vectors.
#[inline(always)]
fn dots(one: &Groups<'_>, [a, b, c, d]: [&Groups<'_>; SIDE]) -> [f32; SIDE] {
    // The sums are in separate variables, because the compiler would keep an array of them in memory.
    let (mut p, mut q) = ([0.0; LANES], [0.0; LANES]);
    let (mut r, mut t) = ([0.0; LANES], [0.0; LANES]);
    let groups = a.full.iter().zip(b.full).zip(c.full).zip(d.full);
    for (one, (((a, b), c), d)) in one.full.iter().zip(groups) {
        add_products(&mut p, a, one);
        add_products(&mut q, b, one);
        add_products(&mut r, c, one);
        add_products(&mut t, d, one);
    }
    if one.has_rest {
        add_products(&mut p, &a.rest, &one.rest);
        add_products(&mut q, &b.rest, &one.rest);
        add_products(&mut r, &c.rest, &one.rest);
        add_products(&mut t, &d.rest, &one.rest);
    }
    [total(&p), total(&q), total(&r), total(&t)]
}

/// Computes the scores of rows: `out[i, l] = Σ_j f[i, j] v[l, j] + a[l]`.
///
/// `f` holds s features for each row, in rows of length `stride` ≥ s. Only the first s numbers of
/// each row are used. `v` holds weights, one row of length s per label, and `a` holds one intercept
/// per label. `out` has one row per row of `f`, with one score per label.
#[wide]
pub(crate) fn scores(f: &[f32], stride: usize, v: &[f32], a: &[f32], out: &mut [f32]) {
    let (n_labels, n_rows) = (a.len(), f.len() / stride);
    let s = v.len() / n_labels.max(1);
    let fours = n_rows - n_rows % SIDE;
    for first in (0..n_labels).step_by(LABELS) {
        let labels = first..n_labels.min(first + LABELS);
        let mut weights = [Groups::new(&[]); LABELS];
        for (of_label, label) in weights.iter_mut().zip(labels.clone()) {
            *of_label = Groups::new(&v[label * s..][..s]);
        }
        let weights = &weights[..labels.len()];
        for row in (0..fours).step_by(SIDE) {
            let mut x = [Groups::new(&[]); SIDE];
            for (x, f) in x.iter_mut().zip(f[row * stride..].chunks(stride)) {
                *x = Groups::new(&f[..s]);
            }
            let [x0, x1, x2, x3] = &x;
            let mut out = out[row * n_labels..].chunks_mut(n_labels);
            let mut next = || &mut out.next().expect("a row of scores")[labels.clone()];
            let outs = (next().iter_mut().zip(next())).zip(next().iter_mut().zip(next()));
            let per_label = weights.iter().zip(&a[labels.clone()]);
            for ((w, a), ((out0, out1), (out2, out3))) in per_label.zip(outs) {
                let [dot0, dot1, dot2, dot3] = dots(w, [x0, x1, x2, x3]);
                (*out0, *out1) = (dot0 + a, dot1 + a);
                (*out2, *out3) = (dot2 + a, dot3 + a);
            }
        }
        // Four labels are processed together, so that an addition does not wait for the previous
        // addition. If there are fewer labels, the last label is repeated.
        for row in fours..n_rows {
            let x = Groups::new(&f[row * stride..][..s]);
            let out = &mut out[row * n_labels..][labels.clone()];
            let per_four = out.chunks_mut(SIDE).zip(a[labels.clone()].chunks(SIDE));
            for ((out, a), w) in per_four.zip(weights.chunks(SIDE)) {
                let four = [0, 1, 2, 3].map(|i: usize| &w[i.min(w.len() - 1)]);
                for ((out, dot), a) in out.iter_mut().zip(dots(&x, four)).zip(a) {
                    *out = dot + a;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_those_of_the_standard_library() {
        for i in -200_000..200_000 {
            let x = f64::from(i) * 1.237e-3;
            let turns = x / std::f64::consts::TAU;
            assert!((f64::from(cos_turns(turns)) - x.cos()).abs() < 3e-7, "{x}");
            let logit = (x * 0.3) as f32;
            let expected = 1.0 / (1.0 + f64::from(-logit.clamp(-40.0, 40.0)).exp());
            let got = f64::from(sigmoid(logit));
            assert!(
                (got - expected).abs() < 4e-7 * expected,
                "{logit}: {got} {expected}"
            );
        }
        for angle in [1e300, -1e17, f64::MAX] {
            assert!(cos_turns(angle).abs() <= 1.0);
        }
        // Many turns that are represented exactly: 2⁴⁰ + ⅛.
        let cosine = f64::from(cos_turns(1_099_511_627_776.125));
        assert!((cosine - std::f64::consts::FRAC_1_SQRT_2).abs() < 3e-7);
        let mut row = [1000.0, 999.0, -1e30];
        softmax(&mut row, 2.0);
        assert!((row[0] - 2.0 * 0.731_058_6).abs() < 1e-6 && row[2] < 1e-30);
    }

    #[test]
    fn products_do_not_depend_on_company() {
        let (width, s, n_labels, n_rows) = (3, 37, 7, 6);
        let mut rng = fastrand::Rng::with_seed(0);
        let mut draw = |n: usize| (0..n).map(|_| rng.f32() - 0.5).collect::<Vec<_>>();
        let (h, r, b) = (draw(n_rows * width), draw(width * s), draw(s));
        let (v, a) = (draw(n_labels * s), draw(n_labels));
        let mut features = vec![0.0; n_rows * s];
        let waves = Waves { r: &r, b: &b };
        cosines(&h, width, waves, &mut features, s).expect("fits");
        let mut all = vec![0.0; n_rows * n_labels];
        scores(&features, s, &v, &a, &mut all);
        for row in 0..n_rows {
            let mut one = vec![0.0; s];
            cosines(&h[row * width..][..width], width, waves, &mut one, s).expect("fits");
            assert_eq!(one, features[row * s..][..s]);
            let mut scored = vec![0.0; n_labels];
            scores(&one, s, &v, &a, &mut scored);
            assert_eq!(scored, all[row * n_labels..][..n_labels]);
            for j in 0..s {
                let angle: f64 = (0..width)
                    .map(|t| f64::from(h[row * width + t]) * f64::from(r[t * s + j]))
                    .sum::<f64>()
                    + f64::from(b[j]);
                assert!((f64::from(one[j]) - angle.cos()).abs() < 3e-7);
            }
            for label in 0..n_labels {
                let dot: f64 = (0..s)
                    .map(|j| f64::from(one[j]) * f64::from(v[label * s + j]))
                    .sum::<f64>()
                    + f64::from(a[label]);
                assert!((f64::from(scored[label]) - dot).abs() < 1e-5);
            }
        }
    }
}
