//! Defines the interface between the two solvers, `ridge` and `newton`, and the modules `fit` and
//! `held_out`.
//!
//! `fit` makes turns until a turn hardly lowers the objective. `held_out` fits training sets in which
//! some rows have the weight 0. It starts each fit from a copy of the factors of another fit.

use super::dense::Tall;
use manylabel_base::{Error, Watch};
use manylabel_sparse::CsrOwned;

/// Y and its transpose, for the labels that have a known positive entry.
#[derive(Debug)]
pub(super) struct Labels {
    /// The known entries by row; (n, c). If `all` is true, these are only the entries that are 1.
    /// Otherwise they are ones and zeros.
    pub(super) by_row: CsrOwned,
    /// The transpose of `by_row`; (c, n).
    pub(super) by_label: CsrOwned,
    /// True if entries that are not stored are known to be 0. Otherwise they are unknown.
    pub(super) all: bool,
}

impl Labels {
    /// Computes the transpose.
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

    /// Returns the number of labels, c.
    pub(super) fn len(&self) -> usize {
        self.by_row.n_cols
    }
}

/// A training set that can be fitted in turns.
pub(super) trait Turns: Sync {
    /// W, H, and other values that the solver stores with them.
    type Factors: Send + Sync;

    /// Returns the initial factors: W = 0 and a random H.
    ///
    /// # Errors
    ///
    /// All methods return [`Error::TooLarge`] if memory is short, and [`Error::Stopped`] if the watch
    /// was stopped.
    fn start(&self, rank: usize, watch: &Watch) -> Result<Self::Factors, Error>;

    /// Lowers the objective over W, then over H. Returns the objective afterwards.
    fn turn(&self, factors: &mut Self::Factors, alpha: f64, watch: &Watch) -> Result<f64, Error>;

    /// Returns W after half a turn, together with the unchanged H. The same rotation may be applied to
    /// the two factors.
    fn refit_w(
        &self,
        factors: &Self::Factors,
        alpha: f64,
        watch: &Watch,
    ) -> Result<(Tall, Tall), Error>;

    /// Returns a copy of the factors.
    fn copied(factors: &Self::Factors) -> Result<Self::Factors, Error>;

    /// Returns W and H as tall matrices.
    fn factors(&self, factors: &Self::Factors) -> Result<(Tall, Tall), Error>;
}
