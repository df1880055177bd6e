//! Defines the trait that the two solvers, `ridge` and `newton`, implement. The modules `fit` and
//! `held_out` use it.
//!
//! `fit` makes turns until a turn hardly lowers the objective. A turn updates W and then H.
//! `held_out` fits training sets in which some rows have the weight 0. It starts each fit from a
//! copy of the W and H of another fit.

use super::tall::Tall;
use manylabel_base::{Error, Watch};
use manylabel_sparse::CsrOwned;

/// Y and its transpose, for the labels that have a known positive entry.
#[derive(Debug)]
pub(super) struct Labels {
    /// The known entries by row; shape (n, c). If `all` is true, the entries that are 1 are stored, and unknown
    /// entries are stored as NaN. Otherwise all known entries are stored, with the values 1 and 0.
    pub(super) by_row: CsrOwned,
    /// The transpose of `by_row`; shape (c, n).
    pub(super) by_label: CsrOwned,
    /// True if entries that are not stored are known to be 0. Otherwise they are unknown.
    pub(super) all: bool,
    /// True if no entry is stored as NaN.
    pub(super) complete: bool,
    /// The weights of the labels; shape (c). If this is None, all weights are 1.
    pub(super) weights: Option<Vec<f32>>,
}

impl Labels {
    /// Stores `by_row` and computes its transpose.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(super) fn new(
        by_row: CsrOwned,
        all: bool,
        weights: Option<Vec<f32>>,
    ) -> Result<Self, Error> {
        Ok(Self {
            by_label: by_row.transpose()?,
            complete: !by_row.values.iter().any(|value| value.is_nan()),
            by_row,
            all,
            weights,
        })
    }

    /// Returns the weight of a label.
    pub(super) fn weight(&self, label: usize) -> f32 {
        self.weights.as_ref().map_or(1.0, |weights| weights[label])
    }

    /// Returns the number of labels, c.
    pub(super) fn len(&self) -> usize {
        self.by_row.n_cols
    }
}

/// A training set for which W and H can be updated in turns.
pub(super) trait Turns: Sync {
    /// The weight matrices W and H, and other matrices that the solver stores with them.
    type Factors: Send + Sync;

    /// Returns the initial factors: W = 0 and a random H.
    ///
    /// # Errors
    ///
    /// All methods return [`Error::TooLarge`] if there is not enough memory. They return [`Error::Stopped`] if
    /// the caller requested a stop.
    fn start(&self, rank: usize, watch: &Watch) -> Result<Self::Factors, Error>;

    /// Updates the weight matrix W and then H, so that the objective decreases. Returns the
    /// objective after both updates.
    fn turn(&self, factors: &mut Self::Factors, alpha: f64, watch: &Watch) -> Result<f64, Error>;

    /// Returns an updated W, together with H. The solver may multiply W and H by the same rotation,
    /// which does not change `W Hᵀ`.
    fn refit_w(
        &self,
        factors: &Self::Factors,
        alpha: f64,
        watch: &Watch,
    ) -> Result<(Tall, Tall), Error>;

    /// Returns a copy of the factors.
    fn copied(factors: &Self::Factors) -> Result<Self::Factors, Error>;

    /// Returns the weight matrices W and H.
    fn factors(&self, factors: &Self::Factors) -> Result<(Tall, Tall), Error>;
}
