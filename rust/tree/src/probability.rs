//! The probabilities of nodes and labels.

use manylabel_linear::dismec::Loss;

/// Returns the logarithm of the probability of a node or label with the given finite margin.
///
/// With the logistic loss, the probability is the logistic function of the margin, as the loss implies. The
/// squared hinge loss implies no probability. Its probability `exp(−max(0, 1 − s)³)` is the one of PECOS.
#[inline]
pub(crate) fn log_probability(margin: f32, loss: Loss) -> f32 {
    match loss {
        Loss::SquaredHinge => {
            let short = (1.0 - margin).max(0.0);
            -(short * short * short)
        }
        Loss::Logistic => {
            let margin = f64::from(margin);
            // log(1 + e^−s) = max(0, −s) + log(1 + e^−|s|)
            let rest = manylabel_simd::ln_ratio(manylabel_simd::exp(-margin.abs()), 0.0);
            -((-margin).max(0.0) + rest) as f32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logistic_probabilities_are_precise_at_all_margins() {
        for margin in [-1e30, -90.0, -3.0, -1e-3, 0.0, 0.5, 17.0, 80.0] {
            let expected = -f64::from(-margin).exp().ln_1p();
            let expected = if margin < -80.0 {
                f64::from(margin)
            } else {
                expected
            };
            let got = f64::from(log_probability(margin, Loss::Logistic));
            assert!(
                (got - expected).abs() <= 1e-7 * expected.abs(),
                "{margin}: {got}"
            );
        }
        assert!(log_probability(f32::MAX, Loss::Logistic).abs() < 1e-30);
    }

    #[test]
    fn margins_of_at_least_one_are_certain_with_the_hinge_loss() {
        let of = |margin| log_probability(margin, Loss::SquaredHinge);
        assert_eq!(
            (of(0.0), of(-1.0), of(1.0), of(5.0)),
            (-1.0, -8.0, 0.0, 0.0)
        );
    }
}
