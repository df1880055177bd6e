//! The probabilities of nodes and labels.

use manylabel_linear::dismec::Loss;

/// How the margin of a node or label becomes its probability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// `exp(−max(0, 1 − s)²)` for a margin s. Only models that other programs have fitted use it.
    Squared,
    /// `exp(−max(0, 1 − s)³)`, as in PECOS. The squared hinge loss implies no probability.
    Cubed,
    /// The logistic function, as the logistic loss implies.
    Logistic,
}

impl Link {
    /// Returns the link of models that are fitted with a loss.
    pub(crate) fn of_loss(loss: Loss) -> Self {
        match loss {
            Loss::SquaredHinge => Self::Cubed,
            Loss::Logistic => Self::Logistic,
        }
    }

    /// Returns the logarithm of the probability of a node or label with the given finite margin.
    #[inline]
    pub(crate) fn log_probability(self, margin: f32) -> f32 {
        let short = (1.0 - margin).max(0.0);
        match self {
            Self::Squared => -(short * short),
            Self::Cubed => -(short * short * short),
            Self::Logistic => {
                let margin = f64::from(margin);
                // log(1 + e^−s) = max(0, −s) + log(1 + e^−|s|)
                let rest = manylabel_simd::ln_ratio(manylabel_simd::exp(-margin.abs()), 0.0);
                -((-margin).max(0.0) + rest) as f32
            }
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
            let got = f64::from(Link::Logistic.log_probability(margin));
            assert!(
                (got - expected).abs() <= 1e-7 * expected.abs(),
                "{margin}: {got}"
            );
        }
        assert!(Link::Logistic.log_probability(f32::MAX).abs() < 1e-30);
    }

    #[test]
    fn margins_of_at_least_one_are_certain_with_the_hinge_loss() {
        let of = |margin| Link::of_loss(Loss::SquaredHinge).log_probability(margin);
        assert_eq!(
            (of(0.0), of(-1.0), of(1.0), of(5.0)),
            (-1.0, -8.0, 0.0, 0.0)
        );
    }

    #[test]
    fn imported_models_may_have_squared_margins() {
        let of = |margin| Link::Squared.log_probability(margin);
        assert_eq!((of(0.0), of(-1.0), of(1.0)), (-1.0, -4.0, 0.0));
    }
}
