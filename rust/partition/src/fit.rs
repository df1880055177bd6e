//! Partitions a data set from several starts, and searches for a number of blocks.
//!
//! Each start clusters the rows by k-means with its own seed. Then [`alternate`](crate::alternate)
//! improves the clusters. Of all starts, the result with the lowest objective is kept. If the number of
//! blocks is not given, `search` tries several numbers in increasing order.

use crate::alternate::{Alternated, LabelSets, Rule, alternate};
use crate::kmeans::Points;
use crate::params::Checked;
use manylabel_base::range::same;
use manylabel_base::{Error, Watch};
use manylabel_sparse::{CsrOwned, Sparse};

/// The search tries every number of blocks up to this number. After that, it increases the number by a
/// quarter each time.
const EVERY_UP_TO: usize = 16;
/// The search ends after this many consecutive numbers of blocks without a [`NOTABLE`] gain.
const PATIENCE: usize = 5;
/// The gain in captured labels that justifies more blocks, as a fraction of all stored entries of Y.
const NOTABLE: f64 = 1e-3;
/// The maximum number of blocks that the search tries. Liang, Hsieh and Lee use up to 2000 blocks.
const MOST_BLOCKS: usize = 2048;

/// A partition into blocks of rows. Each block has a set of labels.
///
/// Block l has the rows i with `row_blocks[i] == l` and the labels `labels[ends[l]..ends[l + 1]]`. The
/// number of blocks is `ends.len() - 1`.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// The block of each row, (`n_rows`,). Every block has at least one row.
    pub row_blocks: Vec<u32>,
    /// Ends of the label sets, (`n_blocks` + 1,), starting with 0.
    pub ends: Vec<usize>,
    /// The labels of all sets, one set after the other. Labels are increasing within a block. A set may
    /// be empty.
    pub labels: Vec<u32>,
    /// Number of captured labels: entries of the label matrix whose label is in the set of the row's
    /// block.
    pub captured: u64,
    /// The objective f after each half step. Label steps and row steps alternate, and the first and the
    /// last half step are label steps. The objective never rises.
    pub history: Vec<f64>,
}

impl Checked {
    /// Partitions the rows of `x` and the columns of `y`. Each stored entry of `y` is a label of its
    /// row.
    ///
    /// If `n_blocks` is given, it is the number of clusters at the start. The result has fewer blocks
    /// if some blocks lose all of their rows.
    ///
    /// If `n_blocks` is not given, the search tries the numbers from 1 to 16. Then it increases the
    /// number by a quarter each time, up to 2048 or the number of rows. It keeps a larger number only
    /// if the number of captured labels exceeds the best so far by a thousandth of all stored entries
    /// of `y`. It ends after five numbers without such a gain, or at the first number that leaves a
    /// block without rows or labels.
    ///
    /// A sweep of k-means takes O(nnz(X) `n_blocks`) time (see [`KMeans`](crate::KMeans), which samples
    /// rows). A round takes the time of one [`label_step`](crate::label_step) and one
    /// [`row_step`](crate::row_step).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the numbers of rows of `x` and `y` differ. Returns [`Error::Param`]
    /// if a value of `x` is infinite. Returns [`Error::TooLarge`] if memory is short. Returns
    /// [`Error::Stopped`] if the watch was stopped.
    pub fn fit(&self, x: Sparse<'_>, y: &CsrOwned, watch: &Watch) -> Result<Partition, Error> {
        same("rows of Y", x.n_rows(), y.n_rows())?;
        let most = self
            .0
            .n_blocks
            .unwrap_or(MOST_BLOCKS)
            .min(x.n_rows().max(1));
        let of_size = |n_blocks| self.best_of_starts(x, y, n_blocks, watch);
        let found = match self.0.n_blocks {
            Some(_) => of_size(most)?,
            None => search(most, NOTABLE * y.indices.len() as f64, of_size)?,
        };
        let LabelSets {
            ends,
            labels,
            captured,
        } = found.sets;
        Ok(Partition {
            row_blocks: found.row_blocks,
            ends,
            labels,
            captured,
            history: found.history,
        })
    }

    /// Runs the alternation from `n_init` starts of `n_blocks` clusters each. Returns the result with
    /// the lowest objective. If objectives are equal, returns the first result.
    fn best_of_starts(
        &self,
        x: Sparse<'_>,
        y: &CsrOwned,
        n_blocks: usize,
        watch: &Watch,
    ) -> Result<Alternated, Error> {
        // `Points` limits features by the number of centers. It is made again for each number of
        // blocks. So the search returns the same blocks as a fit with the number that it found.
        let points = Points::new(x, None, n_blocks, watch)?;
        let mut best: Option<Alternated> = None;
        for init in 0..self.0.n_init as u64 {
            let start = points.start(n_blocks, self.0.seed.wrapping_add(init), watch)?;
            let rule = Rule {
                lam: self.0.lam,
                max_labels: self.0.max_labels.unwrap_or(usize::MAX),
                max_iter: self.0.max_iter,
                tol: self.0.tol,
            };
            let end = alternate(y, start.row_clusters, start.n_clusters, rule, watch)?;
            if best
                .as_ref()
                .is_none_or(|best| end.objective() < best.objective())
            {
                best = Some(end);
            }
            if n_blocks == 1 {
                break; // all starts are the same
            }
        }
        best.ok_or(Error::Stopped) // `n_init` is at least 1
    }
}

/// Searches for the number of blocks, up to `most`, that captures the most labels. Returns the
/// partition with this number.
///
/// `fit` computes the partition for a number of blocks. A larger number replaces the best number only
/// if it captures more than `notable` additional labels.
fn search(
    most: usize,
    notable: f64,
    fit: impl Fn(usize) -> Result<Alternated, Error>,
) -> Result<Alternated, Error> {
    let mut best = fit(1)?;
    let mut since = 0;
    for n_blocks in sizes().take_while(|&n_blocks| n_blocks <= most) {
        let end = fit(n_blocks)?;
        if end.n_blocks() < n_blocks || end.has_block_without_labels() {
            break;
        }
        if end.sets.captured as f64 > best.sets.captured as f64 + notable {
            (best, since) = (end, 0);
        } else {
            since += 1;
            if since == PATIENCE {
                break;
            }
        }
    }
    Ok(best)
}

/// Returns the endless sequence of numbers of blocks that the search tries after 1: 2, 3, …, 16, 20,
/// 25, 31, ….
fn sizes() -> impl Iterator<Item = usize> {
    let next = |&n: &usize| {
        Some(if n < EVERY_UP_TO {
            n + 1
        } else {
            n.saturating_mul(5) / 4
        })
    };
    std::iter::successors(Some(2), next)
}

impl Alternated {
    /// Returns the objective at the end.
    fn objective(&self) -> f64 {
        self.history[self.history.len() - 1]
    }

    /// Returns the number of blocks that have rows.
    fn n_blocks(&self) -> usize {
        self.sets.ends.len() - 1
    }

    /// Returns true if a block has an empty label set.
    fn has_block_without_labels(&self) -> bool {
        self.sets.ends.windows(2).any(|ends| ends[0] == ends[1])
    }
}
