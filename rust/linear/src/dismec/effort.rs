//! Defines settings of the solver for rare labels. They limit how many negative rows the solver
//! uses.

/// Settings of the solver for rare labels; see `active/mod.rs`.
///
/// The solver uses only a working set of rows: all positive rows of the label, and a limited number
/// of negative rows. A search scores all rows and finds negative rows that violate the margin.
/// These violators are added to the working set. Coordinate descent then minimizes the objective
/// over the working set.
///
/// `DiSMEC` uses [`FULL`](Self::FULL). Some models fit each label to a selection of rows. Most of
/// the selected rows are similar to the rows that have the label. Such models can use
/// [`OF_BLOCK`](Self::OF_BLOCK), or [`OF_ONE_OF_SEVERAL_BLOCKS`](Self::OF_ONE_OF_SEVERAL_BLOCKS).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    /// A label is rare if fewer than one in `rare` of the rows for which it is known is positive.
    /// For rare labels, the solver uses a small working set of rows, which is faster than using all
    /// rows.
    pub(crate) rare: usize,
    /// For labels with at most this many positive rows, `rare_if_few` is used in place of `rare`.
    pub(crate) few: usize,
    /// A label with at most `few` positive rows is rare if fewer than one in `rare_if_few` rows is positive.
    pub(crate) rare_if_few: usize,
    /// Whether the last panel of frequent labels is filled with the most frequent rare labels. A panel takes the same
    /// time for sixteen labels as for one. So the solver for frequent labels fits these labels at little cost.
    pub(crate) fills_panels: bool,
    /// The number of searches through all rows, unless one search suffices. One search also suffices for labels that
    /// continue an earlier fit.
    pub(crate) searches: usize,
    /// One search suffices if each of the labels that are solved together has at most this many positive rows.
    pub(crate) searched_once: usize,
    /// The largest number of portions in which the violators found by a search are added to the
    /// working set. The rows with the largest violations come first. Coordinate descent runs after
    /// each portion.
    pub(crate) joins: usize,
    /// The number of negative rows in a portion, divided by the number of positive rows of the
    /// label. A portion has at least `min_join` negative rows.
    pub(crate) join_per_positive: usize,
    /// The smallest number of negative rows in a portion, if there are enough violators.
    pub(crate) min_join: usize,
    /// The largest number of violators that a search keeps for each label, divided by `join_per_positive` times the
    /// number of positive rows of the label. It keeps at least `min_kept` of them.
    pub(crate) joins_kept: usize,
    /// The smallest number of violators that a search keeps, if there are enough.
    pub(crate) min_kept: usize,
    /// The tolerance of a run of coordinate descent, divided by `tol`. The run has converged if the
    /// largest and the smallest projected dual gradient differ by at most this tolerance.
    pub(crate) dual_tol: f64,
}

impl Effort {
    /// The settings of `DiSMEC`. On the data sets bibtex, delicious and eurlex57k with `C = 1`, two
    /// searches are enough: the precision at 1, 3 and 5 differs by less than 0.2 percentage points
    /// from the precision at the minimum of the objective over all rows. With the default of `tol`,
    /// the tolerance of coordinate descent is 0.3. (The default tolerance of LIBLINEAR is 0.1.)
    pub const FULL: Self = Self {
        rare: 100,
        few: 0,
        rare_if_few: 100,
        fills_panels: false,
        searches: 2,
        searched_once: 0,
        joins: 4,
        join_per_positive: 2,
        min_join: 100,
        joins_kept: 8,
        min_kept: 800,
        dual_tol: 30.0,
    };

    /// Returns true if a label with `n_positive` positive rows among `n_rows` rows is rare. If a
    /// label is rare, all labels with fewer positive rows are also rare.
    pub(crate) fn is_rare(&self, n_positive: usize, n_rows: usize) -> bool {
        let share = if n_positive <= self.few {
            self.rare_if_few
        } else {
            self.rare
        };
        n_positive * share < n_rows
    }

    /// The settings for blocks (selections of rows). A block has few rows with many features. For a
    /// block, the solver for rare labels is therefore faster than a solver that uses all rows, even
    /// for labels that a few percent of the rows have.
    ///
    /// Most rows of a block are similar to the rows of its labels, so a label needs fewer of them than of all rows. With
    /// portions of 50 instead of 100 rows, one label tree takes 16 percent less time on citeulike-t and on a planted
    /// set with 143,000 labels. The precision at 1 is lower by 0.1 on citeulike-t (mean of three seeds) and the same on
    /// the planted set. With 25, it is lower by another 0.1 on the planted set.
    ///
    /// For labels with at most 20 positive rows, the second search would find few rows that matter. Without it, the
    /// fit takes 10 to 20 percent less time on citeulike-t and 4 percent less on the planted set, and the precision at
    /// 1, 3 and 5 changes by at most 0.1. For labels with many rows, the second search matters: without it, the
    /// precision at 1 on delicious is lower by 4 points.
    pub const OF_BLOCK: Self = Self {
        few: 300,
        rare_if_few: 5,
        fills_panels: true,
        searched_once: 20,
        min_join: 50,
        min_kept: 200,
        ..Self::FULL
    };

    /// The settings for blocks of a model that takes the mean of the scores of several blocks for each label. The mean
    /// is less sensitive to the choice of negative rows, so portions of labels with few positive rows are smaller. With
    /// these settings and three label trees, the fit takes about 15 percent less time on citeulike-t. The precision at
    /// 1 changes by less than 0.15 on delicious, citeulike-t and eurlex57k, and is not lower on yso-finna-en.
    pub const OF_ONE_OF_SEVERAL_BLOCKS: Self = Self {
        join_per_positive: 1,
        min_join: 25,
        min_kept: 100,
        ..Self::OF_BLOCK
    };
}
