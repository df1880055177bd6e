//! Defines the parameters of PD-Sparse and their ranges.

use manylabel_base::range::{at_least_one, not_negative, positive};
use manylabel_base::{Error, checked};

/// The method of searching for the labels that violate the margin of a row most. A label that the row does
/// not have violates the margin if its score plus 1 exceeds the smallest score of the row's own labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Computes the scores of all labels exactly.
    Exact,
    /// Estimates the scores of all labels from a sample of the row's features. A feature is drawn
    /// with a probability proportional to its absolute value.
    Sampled,
}

/// The parameters as the user gave them. [`check`](Self::check) checks their ranges.
#[derive(Debug, Clone)]
pub struct Params {
    /// `C`: the weight of the loss; finite, > 0.
    pub c: f64,
    /// The weight of the L1 penalty on the weights; finite, ≥ 0.
    pub l1: f64,
    /// The largest number of passes over the rows; ≥ 1.
    pub max_iter: usize,
    /// The fit ends when the duality gap is at most this fraction of the primal objective; finite, > 0.
    pub tol: f64,
    /// The method of searching for labels that violate the margin of a row.
    pub search: Search,
    /// The largest number of labels that are added to the active set of a row in each pass over the
    /// rows; ≥ 1. The active set contains the labels whose dual variables may differ from 0. With
    /// None, this number starts as the mean number of labels per row. It doubles after each pass in
    /// which the search for labels took more than twice the time of the other work.
    pub n_candidates: Option<usize>,
    /// True to run the post-solve. The post-solve fits the nonzero weights again without `l1`,
    /// while all other weights stay 0. It takes at most as many passes as the fit before the
    /// post-solve.
    pub post_solve: bool,
    /// True to fit intercepts. They are the log frequencies of the labels times a factor that is chosen
    /// on held-out rows.
    pub fit_intercept: bool,
    /// True to learn a threshold on held-out rows. At this threshold, the number of predicted
    /// labels equals the number of true labels.
    pub learn_cut: bool,
    /// If rows are held out, the fit ends when the precision on them has not increased in this many
    /// consecutive passes; ≥ 1.
    pub n_iter_no_change: usize,
    /// The seed of the order of rows, of the choice among labels with equal scores in the search, and of
    /// the samples.
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
    /// Returns [`Error::Param`] for the first parameter that is out of range.
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
