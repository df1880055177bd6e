//! The interface of the two solvers, `ridge` and `newton`, to `fit` and `held_out`.
//!
//! `fit` takes turns until the objective hardly falls. `held_out` fits training sets in which some rows have
//! weight 0, and starts each fit from a copy of the factors of another.

use super::dense::Tall;
use manylabel_base::{Error, Watch};
use manylabel_sparse::CsrOwned;

/// Y and its transpose, for the labels that some row is known to carry.
#[derive(Debug)]
pub(super) struct Labels {
    /// Known entries by row: only ones if `all`, otherwise ones and zeros; (n, c).
    pub(super) by_row: CsrOwned,
    /// The transpose of `by_row`; (c, n).
    pub(super) by_label: CsrOwned,
    /// Whether entries that are not stored are known to be 0. Otherwise they are unknown.
    pub(super) all: bool,
}

impl Labels {
    /// Adds the transpose.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(super) fn new(by_row: CsrOwned, all: bool) -> Result<Self, Error> {
        Ok(Self {
            by_label: by_row.transpose()?,
            by_row,
            all,
        })
    }

    /// Number of labels, c.
    pub(super) fn len(&self) -> usize {
        self.by_row.n_cols
    }
}

/// A training set that can be fitted in turns.
pub(super) trait Turns: Sync {
    /// W, H and what the solver keeps with them.
    type Factors: Send + Sync;

    /// The initial factors: W = 0 and a random H.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`], [`Error::Stopped`]; so for all methods.
    fn start(&self, rank: usize, watch: &Watch) -> Result<Self::Factors, Error>;

    /// Lowers the objective in W, then in H; returns its value afterwards.
    fn turn(&self, factors: &mut Self::Factors, alpha: f64, watch: &Watch) -> Result<f64, Error>;

    /// W after half a turn, and the same H as before. Both may be rotated by the same rotation.
    fn refit_w(
        &self,
        factors: &Self::Factors,
        alpha: f64,
        watch: &Watch,
    ) -> Result<(Tall, Tall), Error>;

    /// A copy of the factors.
    fn copied(factors: &Self::Factors) -> Result<Self::Factors, Error>;

    /// W and H as tall matrices.
    fn factors(&self, factors: &Self::Factors) -> Result<(Tall, Tall), Error>;
}
