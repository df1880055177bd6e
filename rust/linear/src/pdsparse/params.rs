//! Parameters of PD-Sparse and their ranges.

use manylabel_base::range::{at_least_one, not_negative, positive};
use manylabel_base::{Error, checked};

/// How the labels that violate the margin most are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// From the scores of all labels.
    Exact,
    /// From estimates of the scores by a sample of the row's features, drawn with probabilities proportional
    /// to absolute values.
    Sampled,
}

/// Parameters as the user gave them; [`check`](Self::check) makes them usable.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the user"
)]
pub struct Params {
    /// `C`: weight of the loss; finite, > 0.
    pub c: f64,
    /// Weight of the L1 penalty on the weights; finite, ≥ 0.
    pub l1: f64,
    /// The most passes over the rows; ≥ 1.
    pub max_iter: usize,
    /// The fit is done when the duality gap is at most this share of the primal objective; finite, > 0.
    pub tol: f64,
    /// How violating labels are found.
    pub search: Search,
    /// The most labels added to a row's active set in a visit, ≥ 1. If None, it starts as the mean number of
    /// labels per row and doubles after each pass whose search took more than twice the rest of the work.
    pub n_candidates: Option<usize>,
    /// Whether up to as many passes without `l1` follow, restricted to the nonzero weights found.
    pub post_solve: bool,
    /// Whether rows are scaled to unit length first.
    pub normalize: bool,
    /// Whether labels get intercepts: their log frequencies times a factor that is chosen on held-out rows.
    pub fit_intercept: bool,
    /// Whether to learn the score above which as many labels are predicted on held-out rows as are true.
    pub learn_cut: bool,
    /// With held-out rows, the fit ends after this many passes without a better precision on them; ≥ 1.
    pub n_iter_no_change: usize,
    /// Seed of the order of rows, the order of labels of equal score, and the samples.
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
    /// Checks the range of each parameter.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] for the first one out of range.
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
