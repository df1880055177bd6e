//! How much work the solver of rare labels spends on the search for negative rows that matter.

/// The search for negative rows of a rare label; see `active.rs`.
///
/// `DiSMEC` uses [`FULL`](Self::FULL). A model that fits each label to a selection of rows can use
/// [`OF_BLOCK`](Self::OF_BLOCK), because most of the selected rows already resemble the rows of the label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// A label is rare if it has fewer than one positive in this many rows. For rare labels, descents over
    /// the rows in play cost less than steps over all rows. In play are the positives and a limited number of
    /// negatives.
    pub(crate) rare: usize,
    /// A label with at most this many positives is also rare if it has fewer than one in `rare_if_few` rows.
    pub(crate) few: usize,
    /// The share for labels with at most `few` positives.
    pub(crate) rare_if_few: usize,
    /// How often all rows are searched for violators.
    pub(crate) searches: usize,
    /// The maximum number of portions in which the violators of one search join, the worst first.
    pub(crate) joins: usize,
    /// How many negatives join at a time for each positive, but at least `min_join` in all.
    pub(crate) join_per_positive: usize,
    /// The minimum number of negatives that join at a time.
    pub(crate) min_join: usize,
    /// How many violators a search keeps for each label, in units of the number that join at a time.
    pub(crate) joins_kept: usize,
    /// The tolerance of a descent on the spread of projected gradients, in units of `tol`.
    pub(crate) dual_tol: f64,
}

impl Effort {
    /// The effort of `DiSMEC`. After two searches, rankings agree with those of the minimum over all rows.
    /// With the default of `tol`, the tolerance of a descent is 0.3, at which rankings of test rows no longer
    /// change. (LIBLINEAR's default is 0.1.)
    pub const FULL: Self = Self {
        rare: 100,
        few: 0,
        rare_if_few: 100,
        searches: 2,
        joins: 4,
        join_per_positive: 2,
        min_join: 100,
        joins_kept: 8,
        dual_tol: 30.0,
    };

    /// Whether a label with `n_positive` of `n_rows` rows is solved as a rare one. If so, labels with fewer
    /// rows are, too.
    pub(crate) fn is_rare(&self, n_positive: usize, n_rows: usize) -> bool {
        let share = if n_positive <= self.few {
            self.rare_if_few
        } else {
            self.rare
        };
        n_positive * share < n_rows
    }

    /// The effort for blocks of rows. Blocks have many features for few rows, so descents are the faster
    /// solver also for labels that a few percent of the rows have.
    pub const OF_BLOCK: Self = Self {
        few: 300,
        rare_if_few: 5,
        ..Self::FULL
    };
}
