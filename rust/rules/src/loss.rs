//! Computes values, gradients and Hessians of the losses. Equation numbers refer to the paper on
//! gradient-based label binning (GBLB; see the [crate]).
//!
//! Let p be the scores and y = ±1 the labels of a row, and let `z_k = −y_k p_k`:
//!
//! | | label-wise logistic | example-wise logistic (GBLB, equation 9) |
//! |---|---|---|
//! | loss | `Σ_k log(1 + e^{z_k})` | `log(1 + Σ_k e^{z_k})` |
//! | `q_k` | `σ(z_k)` | `e^{z_k} / (1 + Σ_j e^{z_j})` |
//! | gradient | `g_k = −y_k q_k` | `g_k = −y_k q_k` |
//! | Hessian | `diag(q (1 − q))` | `diag(q) − g gᵀ` |
//!
//! The diagonal of the Hessian is `q_k (1 − q_k)` for both losses. Because y = ±1, `q_k = |g_k|`. The
//! gradient of a row therefore determines its Hessian, so the Hessian is not stored.
//!
//! Labels are not stored as separate numbers. The sign bit of a gradient is the sign bit of `−y`, even if the
//! gradient is 0. If the row has label k, its gradient `g_k` is −0.0 or less. Otherwise `g_k` is +0.0 or
//! more. Every function here keeps these signs.
//!
//! Under the example-wise loss, `1 − Σ_k q_k = 1 / (1 + Σ_k e^{z_k})` is stored per row as `rest`. The value
//! of `rest` equals e^{−loss}. With this value, gradients can be updated by multiplication when a head is
//! added to the scores ([`Factors`]). The update needs no exponential per row and label.
//!
//! All rows are padded (see `lanes.rs`). Padding labels have scores of [`PADDING`] and gradients of
//! 0.

use crate::Loss;
use crate::lanes::{Aligned, WIDTH, chunks, chunks_mut, total};
use manylabel_base::Error;
use manylabel_simd::{exp, wide};

/// The score of padding labels. These labels count as absent. The score is so low that `e^{z}` is 0.
pub(crate) const PADDING: f64 = -1e6;

/// Computes the gradients of one row from `scores`, in O(labels). The sign bits of `gradients` give the
/// labels of the row, and they do not change. Only the absolute values `q_k = |g_k|` are replaced (see the
/// module documentation).
///
/// Returns `1 − Σ_k q_k` for the example-wise loss and 0 for the label-wise loss. Scores may be any
/// finite numbers. Exponents are shifted by the largest exponent, so that nothing overflows.
#[wide]
pub(crate) fn refresh(loss: Loss, scores: &[f64], gradients: &mut [f64]) -> f64 {
    match loss {
        Loss::LabelWise => {
            for (p, g) in chunks(scores).iter().zip(chunks_mut(gradients)) {
                for lane in 0..WIDTH {
                    let z = p[lane] * 1.0f64.copysign(g[lane]);
                    let tail = exp(-z.abs());
                    let q = if z < 0.0 { tail } else { 1.0 } / (1.0 + tail);
                    g[lane] = q.copysign(g[lane]);
                }
            }
            0.0
        }
        Loss::ExampleWise => {
            let mut highest = [0.0f64; WIDTH];
            for (p, g) in chunks(scores).iter().zip(chunks(gradients)) {
                for lane in 0..WIDTH {
                    let z = p[lane] * 1.0f64.copysign(g[lane]);
                    highest[lane] = if z > highest[lane] { z } else { highest[lane] };
                }
            }
            let highest = highest.iter().fold(0.0, |a: f64, &b| a.max(b));
            let mut sums = [0.0; WIDTH];
            for (p, g) in chunks(scores).iter().zip(chunks_mut(gradients)) {
                for lane in 0..WIDTH {
                    let z = p[lane] * 1.0f64.copysign(g[lane]);
                    let weight = exp(z - highest);
                    sums[lane] += weight;
                    g[lane] = weight.copysign(g[lane]);
                }
            }
            let rest = exp(-highest);
            let all = 1.0 / (rest + total(&sums));
            for g in chunks_mut(gradients) {
                for lane in 0..WIDTH {
                    g[lane] *= all;
                }
            }
            rest * all
        }
    }
}

/// Factors that update the weights `e^{z_k}` of the example-wise loss when a head is added to the scores of a
/// row. The factor of label k is `e^{p_k}` if the label is absent and `e^{−p_k}` if the label is present. The
/// factors are the same for all rows, so exponentials are computed once per head.
pub(crate) struct Factors {
    /// Factors of absent labels.
    absent: Aligned,
    /// Factors of present labels.
    present: Aligned,
}

/// Upper limit of the absolute scores of a head for updates by [`Factors`]. If a score is at least this
/// large, gradients are computed from the scores instead.
const LARGEST_STEP: f64 = 200.0;

/// Lower limit of `q_k` and `1 − Σ_k q_k` for updates by [`Factors`]. If a value is not above this limit,
/// gradients are computed from the scores instead. With this limit and [`LARGEST_STEP`], products of factors
/// and `q_k` are at least `e^−200 · 1e-200 ≈ 1e-287`, which is still a normal number.
const LEAST_SHARE: f64 = 1e-200;

impl Factors {
    /// Returns the factors of `scale · head`. Returns `None` if the absolute value of a score is
    /// [`LARGEST_STEP`] or more, because products might overflow.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if two numbers per label do not fit in memory.
    pub(crate) fn new(scale: f64, head: &[f64]) -> Result<Option<Self>, Error> {
        let steps = || head.iter().map(|head| scale * head);
        if !steps().all(|step| step.abs() < LARGEST_STEP) {
            return Ok(None);
        }
        let mut absent = Aligned::zeros("number of labels", head.len())?;
        let mut present = Aligned::zeros("number of labels", head.len())?;
        let factors = absent.iter_mut().zip(present.iter_mut());
        for ((absent, present), step) in factors.zip(steps()) {
            (*absent, *present) = (step.exp(), (-step).exp());
        }
        Ok(Some(Self { absent, present }))
    }

    /// Multiplies each `q_k` by the factor of label k, and sums these products over the labels of a row.
    /// Returns eight partial sums, which [`total`] adds.
    ///
    /// Let s be the value of `1 + Σ_k e^{z_k}` before the step, and t the value after the step. The total
    /// plus `rest` is t / s. The logarithm of this ratio is the change of the loss.
    #[inline(always)]
    pub(crate) fn ratio(&self, gradients: &[f64]) -> [f64; WIDTH] {
        let mut sums = [0.0; WIDTH];
        let factors = chunks(&self.absent).iter().zip(chunks(&self.present));
        for (g, (absent, present)) in chunks(gradients).iter().zip(factors) {
            for lane in 0..WIDTH {
                sums[lane] += product(g[lane], absent[lane], present[lane]).abs();
            }
        }
        sums
    }

    /// Multiplies the gradients of a row by their factors. Returns the same sums as [`ratio`](Self::ratio).
    /// Afterwards the gradients must be divided by a common divisor with [`scale`].
    #[inline(always)]
    pub(crate) fn advance(&self, gradients: &mut [f64]) -> [f64; WIDTH] {
        let mut sums = [0.0; WIDTH];
        let factors = chunks(&self.absent).iter().zip(chunks(&self.present));
        for (g, (absent, present)) in chunks_mut(gradients).iter_mut().zip(factors) {
            for lane in 0..WIDTH {
                g[lane] = product(g[lane], absent[lane], present[lane]);
                sums[lane] += g[lane].abs();
            }
        }
        sums
    }
}

/// Divides the gradients of a row and `rest` by `rest + ratio`. `ratio` is the total of the sums
/// that [`Factors::advance`] returned. Afterwards the gradients belong to the new scores.
///
/// Returns false if a number has become too small. The caller must then compute the gradients from the
/// scores. Each update has a rounding error of a few units in the last place. These errors add up over
/// several updates.
#[inline(always)]
pub(crate) fn scale(n_labels: usize, ratio: f64, gradients: &mut [f64], rest: &mut f64) -> bool {
    let scale = 1.0 / (*rest + ratio);
    *rest *= scale;
    let mut lowest = [1.0f64; WIDTH];
    let (labels, last) = chunks_mut(gradients).split_at_mut(n_labels / WIDTH);
    for g in labels {
        for lane in 0..WIDTH {
            g[lane] *= scale;
            let q = g[lane].abs();
            lowest[lane] = if q < lowest[lane] { q } else { lowest[lane] };
        }
    }
    if let Some(g) = last.first_mut() {
        for lane in 0..WIDTH {
            g[lane] *= scale;
            // Padding labels have gradients of 0.
            let padding = if lane < n_labels % WIDTH { 0.0 } else { 1.0 };
            let q = g[lane].abs() + padding;
            lowest[lane] = if q < lowest[lane] { q } else { lowest[lane] };
        }
    }
    *rest > LEAST_SHARE && lowest.iter().all(|&q| q > LEAST_SHARE)
}

/// Multiplies a gradient by the factor of its label. The label is present if the sign bit is set.
#[inline(always)]
fn product(g: f64, absent: f64, present: f64) -> f64 {
    g * if g.is_sign_negative() {
        present
    } else {
        absent
    }
}

/// Returns the loss of one row at `scores + scale · head`. The signs of `gradients` give the
/// labels. Exponents are shifted by the largest exponent, so that nothing overflows.
#[wide]
pub(crate) fn value(
    loss: Loss,
    scores: &[f64],
    scale: f64,
    head: &[f64],
    gradients: &[f64],
) -> f64 {
    match loss {
        Loss::LabelWise => {
            let mut sum = 0.0;
            for ((p, head), g) in scores.iter().zip(head).zip(gradients) {
                let z = (p + scale * head) * 1.0f64.copysign(*g);
                sum += z.max(0.0) + exp(-z.abs()).ln_1p();
            }
            sum
        }
        Loss::ExampleWise => {
            let margins = || {
                let rows = chunks(scores).iter().zip(chunks(head));
                rows.zip(chunks(gradients)).map(|((p, head), g)| {
                    let mut z = [0.0; WIDTH];
                    for lane in 0..WIDTH {
                        z[lane] = (p[lane] + scale * head[lane]) * 1.0f64.copysign(g[lane]);
                    }
                    z
                })
            };
            let mut highest = [0.0f64; WIDTH];
            for z in margins() {
                for lane in 0..WIDTH {
                    let higher = z[lane] > highest[lane];
                    highest[lane] = if higher { z[lane] } else { highest[lane] };
                }
            }
            let highest = highest.iter().fold(0.0, |a: f64, &b| a.max(b));
            let mut sums = [0.0; WIDTH];
            for z in margins() {
                for lane in 0..WIDTH {
                    sums[lane] += exp(z[lane] - highest);
                }
            }
            if highest > 0.0 {
                highest + (exp(-highest) + total(&sums)).ln()
            } else {
                total(&sums).ln_1p()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::padded;

    /// Returns the padded scores of one row, and gradients of 0 with the signs of −y.
    fn row(scores: &[f64], labels: &[bool]) -> (Vec<f64>, Vec<f64>) {
        let mut p = vec![PADDING; padded(scores.len())];
        let mut g = vec![0.0; p.len()];
        p[..scores.len()].copy_from_slice(scores);
        for (g, &label) in g.iter_mut().zip(labels) {
            *g = if label { -0.0 } else { 0.0 };
        }
        (p, g)
    }

    /// Returns rows of 1 to 11 labels with random scores between −4 and 4.
    fn rows() -> Vec<(Vec<f64>, Vec<f64>)> {
        let mut rng = fastrand::Rng::with_seed(0);
        (0..40)
            .map(|i| {
                let k = 1 + i % 11;
                let scores: Vec<f64> = (0..k).map(|_| 8.0 * (rng.f64() - 0.5)).collect();
                let labels: Vec<bool> = (0..k).map(|_| rng.f64() < 0.3).collect();
                row(&scores, &labels)
            })
            .collect()
    }

    /// Returns the loss of a row at scores p. The signs of g give the labels.
    fn loss_at(loss: Loss, p: &[f64], g: &[f64]) -> f64 {
        value(loss, p, 0.0, &vec![0.0; p.len()], g)
    }

    const LOSSES: [Loss; 2] = [Loss::LabelWise, Loss::ExampleWise];

    #[test]
    fn gradients_and_hessians_are_finite_differences() {
        for loss in LOSSES {
            for (p, signs) in rows() {
                let gradient = |p: &[f64]| {
                    let mut g = signs.clone();
                    let rest = refresh(loss, p, &mut g);
                    (g, rest)
                };
                let (g, rest) = gradient(&p);
                let k_used = p.iter().filter(|&&score| score > PADDING).count();
                if loss == Loss::ExampleWise {
                    let q: f64 = g.iter().map(|g| g.abs()).sum();
                    assert!((rest - (1.0 - q)).abs() < 1e-14);
                }
                for k in 0..k_used {
                    let moved = |by: f64| {
                        let mut p = p.clone();
                        p[k] += by;
                        p
                    };
                    let slope = (loss_at(loss, &moved(1e-5), &signs)
                        - loss_at(loss, &moved(-1e-5), &signs))
                        / 2e-5;
                    assert!((slope - g[k]).abs() < 1e-8, "{loss:?} {slope} {}", g[k]);
                    let (up, down) = (gradient(&moved(1e-5)).0, gradient(&moved(-1e-5)).0);
                    for j in 0..k_used {
                        let h = match (j == k, loss) {
                            (true, _) => g[k].abs() * (1.0 - g[k].abs()),
                            (false, Loss::LabelWise) => 0.0,
                            (false, Loss::ExampleWise) => -g[j] * g[k],
                        };
                        assert!(((up[j] - down[j]) / 2e-5 - h).abs() < 1e-8);
                    }
                }
            }
        }
    }

    /// Updates gradients and `rest = 1 − Σ_k |g_k|` by factors, as
    /// [`Statistics`](crate::statistics::Statistics) does.
    fn advance(factors: &Factors, n_labels: usize, g: &mut [f64], rest: &mut f64) -> bool {
        let ratio = total(&factors.advance(g));
        scale(n_labels, ratio, g, rest)
    }

    #[test]
    fn advanced_gradients_are_those_of_the_scores() {
        for (mut p, mut g) in rows() {
            let mut rest = refresh(Loss::ExampleWise, &p, &mut g);
            let mut rng = fastrand::Rng::with_seed(7);
            let n_labels = p.iter().filter(|&&score| score > PADDING).count();
            for _ in 0..300 {
                let mut head = vec![0.0; p.len()];
                head[..n_labels].fill_with(|| rng.f64() - 0.5);
                let before = loss_at(Loss::ExampleWise, &p, &g);
                for (p, head) in p.iter_mut().zip(&head) {
                    *p += 0.5 * head;
                }
                let factors = Factors::new(0.5, &head)
                    .expect("few labels")
                    .expect("it is small");
                let change = (rest + total(&factors.ratio(&g))).ln();
                assert!((loss_at(Loss::ExampleWise, &p, &g) - before - change).abs() < 1e-12);
                assert!(advance(&factors, n_labels, &mut g, &mut rest));
            }
            let mut anew = g.clone();
            let expected = refresh(Loss::ExampleWise, &p, &mut anew);
            assert!((rest - expected).abs() < 1e-12 * expected);
            for (g, anew) in g.iter().zip(&anew) {
                assert!((g - anew).abs() <= 1e-12 * anew.abs(), "{g} {anew}");
            }
        }
    }

    #[test]
    fn steps_too_long_to_advance_by_are_told() {
        let (p, mut g) = row(&[1.0, -150.0, 0.5], &[false, false, true]);
        let mut rest = refresh(Loss::ExampleWise, &p, &mut g);
        let head = |score: f64| [score, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let factors = |score| Factors::new(1.0, &head(score)).expect("few labels");
        assert!(factors(250.0).is_none());
        assert!(factors(f64::NAN).is_none());
        let far = factors(100.0).expect("it is small enough");
        assert!(advance(&far, 3, &mut g, &mut rest));
        assert!((0..5).any(|_| !advance(&far, 3, &mut g, &mut rest)));
    }

    #[test]
    fn far_off_scores_do_not_overflow() {
        for loss in LOSSES {
            for scale in [700.0, 1e5, 1e300] {
                let (p, mut g) = row(&[scale, -scale, 0.0], &[false, true, true]);
                let at = loss_at(loss, &p, &g);
                assert!((at / scale - 2.0).abs() < 0.01 || (at / scale - 1.0).abs() < 0.01);
                refresh(loss, &p, &mut g);
                assert!(g.iter().all(|g| g.abs() <= 1.0));
                assert!(g[0] > 0.49 && g[1] < -0.49);
            }
        }
    }
}
