//! Parameters of LEML and their ranges.

use manylabel_base::range::{at_least_one, ensure, positive};
use manylabel_base::{Error, checked};

/// The loss of an entry y of Y with the score z; `s = 2y − 1` is its sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// `½ (y − z)²`.
    Squared,
    /// `log(1 + exp(−s z))`.
    Logistic,
    /// `½ max(0, 1 − s z)²`.
    SquaredHinge,
}

/// Parameters as the user gave them; [`check`](Self::check) makes them usable.
#[derive(Debug, Clone)]
pub struct Params {
    /// The number of columns of W and H; ≥ 1. The number of rows and that of labels are upper limits.
    pub rank: usize,
    /// Weight of the squares of W and H; from 1e-30 to 1e12. None chooses a value close to the one that
    /// predicts held-out rows best.
    pub alpha: Option<f64>,
    /// The loss of an entry.
    pub loss: Loss,
    /// The most turns; ≥ 1.
    pub max_iter: usize,
    /// The fit is done when a turn lowers the objective by less than this share of it; finite, > 0.
    pub tol: f64,
    /// The most steps of conjugate gradients; ≥ 1.
    pub cg_max_iter: usize,
    /// Conjugate gradients stop when the norm of the residual is at most this share of the first one;
    /// finite, > 0.
    pub cg_tol: f64,
    /// Whether there is an intercept: the weights of a feature that is 1 in every row.
    pub fit_intercept: bool,
    /// Whether rows are scaled to unit length first.
    pub normalize: bool,
    /// Seed of the first H and of the choice of held-out rows.
    pub seed: u64,
    /// Whether to learn the score above which as many labels are predicted as are true.
    pub learn_cut: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            rank: 100,
            alpha: None,
            loss: Loss::Squared,
            max_iter: 10,
            tol: 1e-3,
            cg_max_iter: 20,
            cg_tol: 0.1,
            fit_intercept: true,
            normalize: true,
            seed: 0,
            learn_cut: false,
        }
    }
}

checked!(Params);

impl Params {
    /// Checks the range of each parameter.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] for the first one out of range.
    fn ranges(&self) -> Result<(), Error> {
        positive("tol", self.tol)?;
        positive("cg_tol", self.cg_tol)?;
        if let Some(alpha) = self.alpha {
            let holds = (1e-30..=1e12).contains(&alpha);
            ensure("alpha", holds, "a number >= 1e-30 and <= 1e+12", alpha)?;
        }
        at_least_one("rank", self.rank)?;
        at_least_one("max_iter", self.max_iter)?;
        at_least_one("cg_max_iter", self.cg_max_iter)?;
        Ok(())
    }
}
