//! Defines the parameters of LEML and their ranges.

use manylabel_base::range::{at_least_one, ensure, positive};
use manylabel_base::{Error, checked};

/// The loss of an entry y of Y with the score z, where `s = 2y − 1` is the sign of the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// `½ (y − z)²`.
    Squared,
    /// `log(1 + exp(−s z))`.
    Logistic,
    /// `½ max(0, 1 − s z)²`.
    SquaredHinge,
}

/// The parameters as the user gave them. [`check`](Self::check) checks their ranges.
#[derive(Debug, Clone)]
pub struct Params {
    /// The number of columns of the weight matrices W and H; ≥ 1. If `rank` is larger than the number
    /// of rows, or larger than the number of labels with a known positive entry, the smaller of these
    /// two numbers is used instead.
    pub rank: usize,
    /// The weight of the squared norms of W and H in the objective; from 1e-30 to 1e12. With None,
    /// the fit chooses this weight on held-out rows.
    pub alpha: Option<f64>,
    /// The loss of an entry.
    pub loss: Loss,
    /// The largest number of turns; ≥ 1. A turn updates the weight matrices W and H once.
    pub max_iter: usize,
    /// The fit ends when the relative decrease of the objective in a turn is below this number;
    /// finite, > 0. A turn updates the weight matrices W and H once.
    pub tol: f64,
    /// The largest number of steps of conjugate gradients per linear system; ≥ 1.
    pub cg_max_iter: usize,
    /// Conjugate gradients stop when the norm of the residual is at most this fraction of the norm of
    /// the first residual; finite, > 0.
    pub cg_tol: f64,
    /// True to fit intercepts. They are computed from the weights of a feature that is 1 in every
    /// row.
    pub fit_intercept: bool,
    /// True to scale rows to unit length before the fit.
    pub normalize: bool,
    /// The seed of the initial weight matrix H, and of the choice of held-out rows.
    pub seed: u64,
    /// True to learn a threshold on held-out rows. At this threshold, the number of predicted
    /// labels equals the number of true labels.
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
    /// Returns [`Error::Param`] for the first parameter that is out of range.
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
