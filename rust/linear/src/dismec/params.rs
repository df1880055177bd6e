//! Parameters of DiSMEC and their ranges.

use manylabel_base::range::{at_least_one, not_negative, positive};
use manylabel_base::{Error, checked};

/// How labels are solved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// Every label to its optimum over all rows.
    Exact,
    /// Rare labels over the rows that matter, the others as [`Exact`](Self::Exact).
    Fast,
}

/// Parameters as the user gave them; [`check`](Self::check) makes them usable.
#[derive(Debug, Clone)]
pub struct Params {
    /// `C`: weight of the loss against the regulariser; finite, > 0.
    pub c: f64,
    /// Weights below this in absolute value are dropped; finite, ≥ 0.
    pub prune: f64,
    /// Whether there is an intercept.
    pub fit_intercept: bool,
    /// Whether rows are scaled to unit length first.
    pub normalize: bool,
    /// How labels are solved.
    pub solver: Solver,
    /// Relative size of the gradient at which a label is done; finite, > 0.
    pub tol: f64,
    /// Steps a label may take; ≥ 1.
    pub max_iter: usize,
    /// Whether to learn the score above which labels are to be named.
    pub learn_cut: bool,
    /// Seeds the order in which rare labels' rows are visited.
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
    fn ranges(&self) -> Result<(), Error> {
        positive("C", self.c)?;
        positive("tol", self.tol)?;
        not_negative("prune", self.prune)?;
        at_least_one("max_iter", self.max_iter)?;
        Ok(())
    }
}
