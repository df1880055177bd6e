//! Parameters of DiSMEC and their ranges.

use manylabel_base::range::{at_least_one, not_negative, positive};
use manylabel_base::{Error, checked};

/// How labels are solved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// All labels are solved to the minimum over all rows.
    Exact,
    /// Rare labels are solved over the rows that matter, the others as by [`Exact`](Self::Exact).
    Fast,
}

/// Parameters as the user gave them; [`check`](Self::check) makes them usable.
#[derive(Debug, Clone)]
pub struct Params {
    /// `C`: weight of the loss relative to the regularization; finite, > 0.
    pub c: f64,
    /// Weights below this in absolute value are dropped after the fit; finite, ≥ 0. Intercepts stay.
    pub prune: f64,
    /// Whether there is an intercept.
    pub fit_intercept: bool,
    /// Whether rows are scaled to unit length first.
    pub normalize: bool,
    /// How labels are solved.
    pub solver: Solver,
    /// The gradient norm, relative to that at zero weights and to the share of the rarer class, at which a
    /// label is done; finite, > 0. For rare labels with [`Solver::Fast`]: 1/30 of the spread of projected
    /// dual gradients at which a descent is done.
    pub tol: f64,
    /// The most steps for a label, or passes for each descent of a rare label; ≥ 1.
    pub max_iter: usize,
    /// Whether to learn the score above which labels are predicted.
    pub learn_cut: bool,
    /// Seed of the order in which the rows of rare labels are visited.
    pub seed: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            c: 1.0,
            prune: 0.01,
            fit_intercept: true,
            normalize: true,
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
    /// Returns [`Error::Param`] for the first one out of range.
    fn ranges(&self) -> Result<(), Error> {
        positive("C", self.c)?;
        positive("tol", self.tol)?;
        not_negative("prune", self.prune)?;
        at_least_one("max_iter", self.max_iter)?;
        Ok(())
    }
}
