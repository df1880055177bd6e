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
use crate::lanes::{WIDTH, chunks, chunks_mut, exp, total};
use multiversion::multiversion;

/// The score of padding labels, which are absent everywhere: so low that they weigh nothing.
pub(crate) const PADDING: f64 = -1e6;

/// Replaces the gradients of one row by those at `scores`, keeping signs; returns `1 − Σ_k q_k`
/// for the example-wise loss and 0 for the label-wise.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
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

/// The loss of one row at `scores + scale · head`; `gradients` tell the labels by their signs.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
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
            let mut highest = [0.0f64; WIDTH];
            for ((p, head), g) in chunks(scores)
                .iter()
                .zip(chunks(head))
                .zip(chunks(gradients))
            {
                for lane in 0..WIDTH {
                    let z = (p[lane] + scale * head[lane]) * 1.0f64.copysign(g[lane]);
                    highest[lane] = if z > highest[lane] { z } else { highest[lane] };
                }
            }
            let highest = highest.iter().fold(0.0, |a: f64, &b| a.max(b));
            let mut sums = [0.0; WIDTH];
            for ((p, head), g) in chunks(scores)
                .iter()
                .zip(chunks(head))
                .zip(chunks(gradients))
            {
                for lane in 0..WIDTH {
                    let z = (p[lane] + scale * head[lane]) * 1.0f64.copysign(g[lane]);
                    sums[lane] += exp(z - highest);
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
