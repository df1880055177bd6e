//! Draws random frequencies of a kernel, and computes a bandwidth from the data.
//!
//! A shift-invariant kernel is the Fourier transform of a distribution of frequencies. Let r be a
//! random frequency from this distribution, and b a uniform phase. Then the kernel `k(u − v)` of
//! two points u and v is the mean of `2 cos(rᵀu + b) cos(rᵀv + b)` (Rahimi and Recht, *Random
//! Features for Large-Scale Kernel Machines*, 2007). In the table, q is the median of the squared
//! distances of rows, and γ is a factor chosen by the caller:
//!
//! | kernel | frequency of one feature |
//! |---|---|
//! | Gaussian | `γ √(2/q) N(0, I)` |
//! | Matérn, ν = 3 or 5 | `γ √(1/q) N(0, I) √(ν/χ²_ν)`, one `χ²` per feature |
//! | Cauchy | `γ √(2/q) tan(π (t − ½))`, t uniform per coordinate |
//!
//! The quasi-random kernels draw the normal factor of each coordinate by Latin hypercube sampling.
//! For s frequencies, one value is drawn from each of s equally likely strata, in random order. The
//! numbers depend only on the seed and the sizes.

use crate::Kernel;
use fastrand::Rng;
use manylabel_base::{Error, Watch, collected, copied, filled, reserved};
use std::f64::consts::{PI, TAU};

/// Largest number of rows that are used to compute the median of distances.
const MOST_ROWS: usize = 1000;

/// Returns the median of the squared distances of all ordered pairs of rows. The pairs include each
/// row paired with itself. Returns 1 if the median is 0.
///
/// `h` has rows of `width` numbers. `rows` lists the rows to use. If there are more than a
/// thousand, a random sample of a thousand rows is used. Takes O(`n²` width) time and `8 n²` bytes
/// for n rows.
///
/// # Errors
///
/// [`Error::TooLarge`] if there is not enough memory. [`Error::Stopped`] if the caller requested a
/// stop.
pub(crate) fn median_squared_distance(
    h: &[f32],
    width: usize,
    rows: &[u32],
    rng: &mut Rng,
    watch: &Watch,
) -> Result<f64, Error> {
    let mut drawn = copied("number of rows", rows)?;
    if drawn.len() > MOST_ROWS {
        for at in 0..MOST_ROWS {
            let other = rng.usize(at..drawn.len());
            drawn.swap(at, other);
        }
        drawn.truncate(MOST_ROWS);
    }
    let n = drawn.len();
    let row = |at: usize| &h[drawn[at] as usize * width..][..width];
    let mut distances = reserved("number of distances of rows", n * n)?;
    for i in 0..n {
        watch.step(0)?;
        distances.push(0.0);
        for j in 0..i {
            let squared = row(i)
                .iter()
                .zip(row(j))
                .map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2))
                .sum::<f64>();
            distances.push(squared);
            distances.push(squared);
        }
    }
    let middle = distances.len() / 2;
    let (below, &mut upper, _) = distances.select_nth_unstable_by(middle, f64::total_cmp);
    let median = if n.is_multiple_of(2) {
        let lower = below.iter().copied().fold(0.0, f64::max);
        0.5 * (lower + upper)
    } else {
        upper
    };
    Ok(if median > 0.0 { median } else { 1.0 })
}

/// Draws s frequencies and s phases for a kernel. `q` is the squared bandwidth, and `gamma` is the
/// factor of the frequencies. The frequencies are stored as `width` rows of length s. The phases
/// are in [0, 2π). For the linear kernel, there are no frequencies and phases.
///
/// # Errors
///
/// [`Error::TooLarge`] if there is not enough memory. [`Error::Stopped`] if the caller requested a
/// stop.
pub(crate) fn draw(
    kernel: Kernel,
    width: usize,
    s: usize,
    gamma: f64,
    q: f64,
    rng: &mut Rng,
    watch: &Watch,
) -> Result<(Vec<f32>, Vec<f32>), Error> {
    use Kernel::{
        Cauchy, Gaussian, Linear, Matern3, Matern5, QuasiGaussian, QuasiMatern3, QuasiMatern5,
    };
    let scale = match kernel {
        Matern3 | Matern5 | QuasiMatern3 | QuasiMatern5 => gamma / q.sqrt(),
        Gaussian | QuasiGaussian | Cauchy | Linear => gamma * (2.0 / q).sqrt(),
    };
    if kernel == Linear {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut values = filled("number of frequencies", 0.0f64, width * s)?;
    match kernel {
        Linear => {}
        Cauchy => {
            for j in 0..s {
                watch.step(0)?;
                for t in 0..width {
                    values[t * s + j] = (PI * (open_unit(rng) - 0.5)).tan();
                }
            }
        }
        Gaussian | Matern3 | Matern5 => {
            for j in 0..s {
                watch.step(0)?;
                for t in 0..width {
                    values[t * s + j] = quantile(open_unit(rng));
                }
            }
        }
        QuasiGaussian | QuasiMatern3 | QuasiMatern5 => {
            let mut order = collected("number of features", 0..s)?;
            for row in values.chunks_mut(s) {
                watch.step(0)?;
                rng.shuffle(&mut order);
                for (value, &stratum) in row.iter_mut().zip(&order) {
                    *value = quantile((stratum as f64 + open_unit(rng)) / s as f64);
                }
            }
        }
    }
    let freedom = match kernel {
        Matern3 | QuasiMatern3 => 3,
        Matern5 | QuasiMatern5 => 5,
        _ => 0,
    };
    for j in 0..s {
        watch.step(0)?;
        let mut factor = scale;
        if freedom > 0 {
            let chi2: f64 = (0..freedom).map(|_| quantile(open_unit(rng)).powi(2)).sum();
            factor *= (f64::from(freedom) / chi2).sqrt();
        }
        for t in 0..width {
            values[t * s + j] *= factor;
        }
    }
    // The limit 1e30 keeps frequencies finite for distributions with heavy tails and for extreme
    // factors. A frequency beyond this limit would only add noise.
    let frequencies = values.iter().map(|&value| value.clamp(-1e30, 1e30) as f32);
    let frequencies = collected("number of frequencies", frequencies)?;
    let phases = (0..s).map(|_| (rng.f64() * TAU) as f32);
    Ok((frequencies, collected("number of phases", phases)?))
}

/// Returns a uniform number in (0, 1). It is never 0 or 1.
fn open_unit(rng: &mut Rng) -> f64 {
    rng.f64() + f64::EPSILON / 4.0
}

/// Returns the quantile p of the standard normal distribution, for 0 < p < 1. The relative error is
/// at most 1.2e-9. Uses Acklam's rational approximations, one for the middle and one for the tails.
fn quantile(p: f64) -> f64 {
    const TAIL: f64 = 0.024_25;
    let horner = |coefficients: &[f64], x: f64| coefficients.iter().fold(0.0, |sum, c| sum * x + c);
    if (TAIL..=1.0 - TAIL).contains(&p) {
        let q = p - 0.5;
        let r = q * q;
        let numerator = [
            -39.696_830_286_653_76,
            220.946_098_424_520_5,
            -275.928_510_446_968_7,
            138.357_751_867_269,
            -30.664_798_066_147_16,
            2.506_628_277_459_239,
        ];
        let denominator = [
            -54.476_098_798_224_06,
            161.585_836_858_040_9,
            -155.698_979_859_886_6,
            66.801_311_887_719_72,
            -13.280_681_552_885_72,
            1.0,
        ];
        return horner(&numerator, r) * q / horner(&denominator, r);
    }
    let r = (-2.0 * p.min(1.0 - p).ln()).sqrt();
    let numerator = [
        -7.784_894_002_430_293e-3,
        -0.322_396_458_041_136_5,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    let denominator = [
        7.784_695_709_041_462e-3,
        0.322_467_129_070_039_8,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
        1.0,
    ];
    let tail = horner(&numerator, r) / horner(&denominator, r);
    if p < 0.5 { tail } else { -tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_known_ones() {
        for (p, expected) in [
            (0.5, 0.0),
            (0.975, 1.959_963_984_540_054),
            (0.01, -2.326_347_874_040_841),
            (1e-6, -4.753_424_308_822_899),
            (1.0 - 1e-6, 4.753_424_308_822_899),
        ] {
            assert!((quantile(p) - expected).abs() < 1e-7, "{p}");
        }
    }

    /// Returns the mean and standard error of `2 cos(rᵀu + b) cos(rᵀv + b)` over many features.
    fn estimate(kernel: Kernel, u: &[f32], v: &[f32], q: f64, gamma: f64) -> (f64, f64) {
        let n = 100_000;
        let mut rng = Rng::with_seed(7);
        let (r, b) = draw(kernel, u.len(), n, gamma, q, &mut rng, &Watch::new()).expect("fits");
        let angle = |h: &[f32], j: usize| {
            let dot = h
                .iter()
                .enumerate()
                .map(|(t, &h)| f64::from(h) * f64::from(r[t * n + j]));
            dot.sum::<f64>() + f64::from(b[j])
        };
        let products: Vec<f64> = (0..n)
            .map(|j| 2.0 * angle(u, j).cos() * angle(v, j).cos())
            .collect();
        let mean = products.iter().sum::<f64>() / n as f64;
        let variance = products.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        (mean, (variance / n as f64).sqrt())
    }

    #[test]
    fn features_stand_for_their_kernels() {
        let (u, v) = ([0.3f32, -1.0, 0.8, 1.0], [0.9f32, -0.2, 0.5, 1.0]);
        let delta: Vec<f64> = u.iter().zip(&v).map(|(&a, &b)| f64::from(a - b)).collect();
        let squared: f64 = delta.iter().map(|d| d * d).sum();
        let (q, gamma) = (1.7f64, 1.3f64);
        let gaussian = (-gamma * gamma * squared / q).exp();
        let laplacian =
            (-gamma * (2.0 / q).sqrt() * delta.iter().map(|d| d.abs()).sum::<f64>()).exp();
        // The characteristic function of a multivariate Student t distribution at γ δ / √q.
        let a = gamma * (squared / q).sqrt();
        let (a3, a5) = (3.0f64.sqrt() * a, 5.0f64.sqrt() * a);
        let matern3 = (1.0 + a3) * (-a3).exp();
        let matern5 = (1.0 + a5 + a5 * a5 / 3.0) * (-a5).exp();
        for (kernel, expected) in [
            (Kernel::Gaussian, gaussian),
            (Kernel::QuasiGaussian, gaussian),
            (Kernel::Matern3, matern3),
            (Kernel::QuasiMatern3, matern3),
            (Kernel::Matern5, matern5),
            (Kernel::QuasiMatern5, matern5),
            (Kernel::Cauchy, laplacian),
        ] {
            let (mean, error) = estimate(kernel, &u, &v, q, gamma);
            assert!(
                (mean - expected).abs() < 3.0 * error,
                "{kernel:?}: {mean} {expected} ± {error}"
            );
        }
    }

    #[test]
    fn the_median_is_that_of_all_pairs() {
        // Rows at 0, 1 and 3 have the squared distances 0 0 0 1 1 4 4 9 9, with median 1.
        let h = [0.0, 1.0, 3.0];
        let mut rng = Rng::with_seed(0);
        // Two rows have the squared distances 0 0 1 1.
        for (rows, expected) in [(&[0, 1, 2][..], 1.0), (&[0, 1], 0.5), (&[2], 1.0)] {
            let median = median_squared_distance(&h, 1, rows, &mut rng, &Watch::new());
            assert!((median.expect("fits") - expected).abs() < 1e-12);
        }
    }
}
