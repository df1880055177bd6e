//! Defines the parameters of DiSMEC and their ranges.

use manylabel_base::range::{at_least_one, not_negative, positive};
use manylabel_base::{Error, checked};

/// The method that computes the weights of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// Minimizes the objective of every label over all rows.
    Exact,
    /// For rare labels, computes approximate weights from only a few rows. For all other labels,
    /// works like [`Exact`](Self::Exact).
    Fast,
}

/// The loss of a row for a label, as a function of the margin `s (w·x + b)`. Here, s is 1 if the row has the label,
/// and −1 if not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// `max(0, 1 − margin)²`.
    SquaredHinge,
    /// `log(1 + exp(−margin))`, the loss of logistic regression. The probability of a label is the logistic
    /// function of `w·x + b`.
    Logistic,
}

/// The parameters as the user gave them. [`check`](Self::check) checks their ranges.
#[derive(Debug, Clone)]
pub struct Params {
    /// `C`: the weight of the loss relative to the regularization; finite, > 0.
    pub c: f64,
    /// Weights with an absolute value below this number are dropped after the fit; finite, ≥ 0.
    /// Intercepts are kept.
    pub prune: f64,
    /// True to fit an intercept.
    pub fit_intercept: bool,
    /// True to scale rows to unit length before the fit.
    pub normalize: bool,
    /// The loss of a row for a label.
    pub loss: Loss,
    /// The method that computes the weights of a label. With [`Loss::Logistic`], no row has the loss 0. So both
    /// methods then use all rows.
    pub solver: Solver,
    /// The tolerance; finite, > 0. A label has converged if the norm of its gradient is at most a
    /// certain fraction of the norm at zero weights. This fraction is `tol` times the fraction of
    /// positive rows or the fraction of negative rows, whichever is smaller. For rare labels with
    /// [`Solver::Fast`], a run of coordinate descent has converged if the largest and the smallest
    /// projected dual gradient differ by at most `30 tol`.
    pub tol: f64,
    /// The largest number of steps for a label; ≥ 1. For rare labels with [`Solver::Fast`], the
    /// largest number of passes in a run of coordinate descent.
    pub max_iter: usize,
    /// True to learn the threshold above which labels are predicted. Otherwise
    /// [`Model`](super::Model) has no threshold.
    pub learn_cut: bool,
    /// The seed of the random order in which rows are visited. Only the solver for rare labels uses
    /// it.
    pub seed: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            c: 1.0,
            prune: 0.01,
            fit_intercept: true,
            normalize: true,
            loss: Loss::SquaredHinge,
            solver: Solver::Fast,
            tol: 0.01,
            max_iter: 1000,
            learn_cut: false,
            seed: 0,
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
        positive("C", self.c)?;
        positive("tol", self.tol)?;
        not_negative("prune", self.prune)?;
        at_least_one("max_iter", self.max_iter)?;
        Ok(())
    }
}
