//! Parameters of PD-Sparse and their ranges.

use manylabel_base::range::{at_least_one, not_negative, positive};
use manylabel_base::{Error, checked};

/// How the labels that violate the margin most are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// By the scores of all labels.
    Exact,
    /// By estimates of the scores from some of the row's features, drawn by absolute value.
    Sampled,
}

/// Parameters as the user gave them; [`check`](Self::check) makes them usable.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the user's"
)]
pub struct Params {
    /// `C`: weight of the loss; finite, > 0.
    pub c: f64,
    /// Weight of the absolute values of the weights; finite, ≥ 0.
    pub l1: f64,
    /// Passes over the rows at most; ≥ 1.
    pub max_iter: usize,
    /// The fit is done when the duality gap, as seen row by row during a pass, is below this share
    /// of the primal objective; finite, > 0.
    pub tol: f64,
    /// How violating labels are found.
    pub search: Search,
    /// Labels added to a row's active set in a visit, ≥ 1; if absent, the mean number of labels of a
    /// row, doubled after a pass whose search was more than twice the rest of the work.
    pub n_candidates: Option<usize>,
    /// Whether, once the supports are found, as many passes follow without `l1`.
    pub post_solve: bool,
    /// Whether rows are scaled to unit length first.
    pub normalize: bool,
    /// Whether labels get intercepts: their log frequencies times a factor that held-out rows choose.
    pub fit_intercept: bool,
    /// Whether to find the score above which as many labels are named on held-out rows as are true.
    pub learn_cut: bool,
    /// Passes without a better held-out precision that end the fit; ≥ 1.
    pub n_iter_no_change: usize,
    /// Seeds the order of rows, the order among labels of equal score, and what is sampled.
    pub seed: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            c: 1.0,
            l1: 0.01,
            max_iter: 50,
            tol: 0.01,
            search: Search::Exact,
            n_candidates: None,
            post_solve: true,
            normalize: true,
            fit_intercept: true,
            learn_cut: true,
            n_iter_no_change: 3,
            seed: 0,
        }
    }
}

checked!(Params);

impl Params {
    fn ranges(&self) -> Result<(), Error> {
        positive("C", self.c)?;
        positive("tol", self.tol)?;
        not_negative("l1", self.l1)?;
        at_least_one("max_iter", self.max_iter)?;
        at_least_one("n_candidates", self.n_candidates.unwrap_or(1))?;
        at_least_one("n_iter_no_change", self.n_iter_no_change)?;
        Ok(())
    }
}
