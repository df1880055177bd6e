//! What both ways of fitting have in common.

use super::dense::Tall;
use manylabel_base::{Error, Watch};
use manylabel_sparse::CsrOwned;

/// Y and its transpose, of labels that some row is known to carry.
#[derive(Debug)]
pub(super) struct Labels {
    pub(super) by_row: CsrOwned,
    pub(super) by_label: CsrOwned,
    /// Whether entries that are not stored are known to be 0; they are unknown otherwise.
    pub(super) all: bool,
}

impl Labels {
    pub(super) fn new(by_row: CsrOwned, all: bool) -> Result<Self, Error> {
        Ok(Self {
            by_label: by_row.transpose()?,
            by_row,
            all,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.by_row.n_cols
    }
}

/// A training set whose factors take turns.
pub(super) trait Turns: Sync {
    /// Both factors and what goes with them.
    type Factors: Send + Sync;

    /// W = 0 and the first H.
    fn start(&self, rank: usize, watch: &Watch) -> Result<Self::Factors, Error>;

    /// One turn of W and H; returns the objective.
    fn turn(&self, factors: &mut Self::Factors, alpha: f64, watch: &Watch) -> Result<f64, Error>;

    /// W after half a turn, and H as it was (both in the basis of this half turn).
    fn refit_w(
        &self,
        factors: &Self::Factors,
        alpha: f64,
        watch: &Watch,
    ) -> Result<(Tall, Tall), Error>;

    /// A copy of the factors and what goes with them.
    fn copied(factors: &Self::Factors) -> Result<Self::Factors, Error>;

    /// W and H.
    fn factors(&self, factors: &Self::Factors) -> Result<(Tall, Tall), Error>;
}
