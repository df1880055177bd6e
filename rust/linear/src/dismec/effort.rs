//! Settings of the solver for rare labels. They limit how much work the solver spends on negative rows.

/// Settings of the search for negative rows that violate the margin of a rare label; see `active.rs`.
///
/// The solver does not use all rows of a rare label. It uses the rows in play: all positive rows and a
/// limited number of negative rows. A search looks through all rows for negative rows that violate the
/// margin. These violators join the rows in play. A descent then minimizes the objective over the rows in
/// play.
///
/// `DiSMEC` uses [`FULL`](Self::FULL). A model that fits each label to a selection of rows can use
/// [`OF_BLOCK`](Self::OF_BLOCK), because most of the selected rows already resemble the rows of the label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// A label is rare if fewer than one in `rare` rows is positive. For rare labels, descents over the
    /// rows in play take less time than steps over all rows.
    pub(crate) rare: usize,
    /// The largest number of positive rows for which `rare_if_few` replaces `rare`.
    pub(crate) few: usize,
    /// A label with at most `few` positive rows is rare if fewer than one in `rare_if_few` rows is positive.
    pub(crate) rare_if_few: usize,
    /// The number of searches through all rows.
    pub(crate) searches: usize,
    /// The largest number of portions in which the violators of a search join the rows in play. The largest
    /// violations come first. A descent follows each portion.
    pub(crate) joins: usize,
    /// The number of negative rows in a portion, divided by the number of positive rows. A portion has at
    /// least `min_join` negative rows.
    pub(crate) join_per_positive: usize,
    /// The smallest number of negative rows in a portion, if there are enough violators.
    pub(crate) min_join: usize,
    /// The largest number of violators that a search keeps for each label, divided by the number of negative
    /// rows in a portion.
    pub(crate) joins_kept: usize,
    /// The tolerance of a descent, divided by `tol`. A descent has converged if the largest and the smallest
    /// projected dual gradient differ by at most this tolerance.
    pub(crate) dual_tol: f64,
}

impl Effort {
    /// The settings of `DiSMEC`. After two searches, rankings agree with the rankings of the minimum over
    /// all rows. With the default of `tol`, the tolerance of a descent is 0.3. A smaller tolerance does
    /// not change the rankings of test rows. (The default of LIBLINEAR is 0.1.)
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

    /// Returns true if a label with `n_positive` of `n_rows` rows is rare. If it is rare, all labels with
    /// fewer positive rows are rare too.
    pub(crate) fn is_rare(&self, n_positive: usize, n_rows: usize) -> bool {
        let share = if n_positive <= self.few {
            self.rare_if_few
        } else {
            self.rare
        };
        n_positive * share < n_rows
    }

    /// The settings for blocks. The rows of a block are few and have many features. So descents are also the
    /// faster solver for labels that a few percent of the rows have.
    pub const OF_BLOCK: Self = Self {
        few: 300,
        rare_if_few: 5,
        ..Self::FULL
    };
}
