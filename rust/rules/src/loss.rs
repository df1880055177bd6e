//! Gradients and Hessians of the losses, as far as rules need them (specification of both losses:
//! Rapp et al. 2020, equations 3 and 4).
//!
//! With `z_k = −y_k p_k`, the label-wise logistic loss has `q_k = σ(z_k)`, the example-wise
//! logistic loss `q_k = e^{z_k} / (1 + Σ_j e^{z_j})`. Both have gradients `g_k = −y_k q_k` and
//! Hessians with the diagonal `q_k (1 − q_k)`; the first has no other entries, the second has
//! `diag(q) − g gᵀ`. So the gradient of a row says all, and no Hessian of a row is ever stored.
//!
//! The sign of a gradient is that of `−y` even where it is 0, which keeps the labels.

use crate::Loss;
use crate::lanes::{Aligned, WIDTH, chunks, chunks_mut, total};
use manylabel_base::Error;
use manylabel_simd::{exp, wide};

/// The score of padding labels, which are absent everywhere: so low that they weigh nothing.
pub(crate) const PADDING: f64 = -1e6;

/// Replaces the gradients of one row by those at `scores`, keeping signs; returns `1 − Σ_k q_k`
/// for the example-wise loss and 0 for the label-wise.
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

/// What adding a head to scores does to the weights `e^{z_k}` of the example-wise loss.
pub(crate) struct Factors {
    /// Of absent labels, and of present ones.
    absent: Aligned,
    present: Aligned,
}

/// From such a step on, or below such a share of a label, gradients are computed from scores. Factors and
/// shares that are multiplied are then at least `e^−200 · 1e-200 ≈ 1e-287`, which is still a normal number.
const LARGEST_STEP: f64 = 200.0;
const LEAST_SHARE: f64 = 1e-200;

impl Factors {
    /// Of a padded head times `scale`; none if it is so large that products may overflow.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if two numbers for each label do not fit in memory.
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

    /// `Σ_k q_k` after over `1 + Σ_k e^{z_k}` before, in parts that [`total`] adds up. With
    /// `1 − Σ_k q_k` of before, that is what the loss grows by the logarithm of.
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

    /// Multiplies the gradients of a row by the factors, but for the one common to all that
    /// [`scale`] knows; returns [`ratio`](Self::ratio).
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

/// Brings the gradients of a row, and `1 − Σ_k q_k`, up to date without its scores, after
/// [`Factors::advance`] of which `ratio` is the total: a few operations a label. False if numbers
/// have become so small that it has to be done from the scores. Rounding adds up to a few units in
/// the last place each time.
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

/// A gradient, whose sign tells whether its label is present, times the factor.
#[inline(always)]
fn product(g: f64, absent: f64, present: f64) -> f64 {
    g * if g.is_sign_negative() {
        present
    } else {
        absent
    }
}

/// The loss of one row at `scores + scale · head`; `gradients` tell the labels by their signs.
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

    /// Scores and the signs of −y of one row, padded.
    fn row(scores: &[f64], labels: &[bool]) -> (Vec<f64>, Vec<f64>) {
        let mut p = vec![PADDING; padded(scores.len())];
        let mut g = vec![0.0; p.len()];
        p[..scores.len()].copy_from_slice(scores);
        for (g, &label) in g.iter_mut().zip(labels) {
            *g = if label { -0.0 } else { 0.0 };
        }
        (p, g)
    }

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
