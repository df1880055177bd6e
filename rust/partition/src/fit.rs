//! Partitions a data set from several starts, and searches for a number of blocks.
//!
//! Each start clusters the rows by k-means with its own seed. Then [`alternate`](crate::alternate)
//! improves the clusters. The result with the lowest objective is kept. If the number of blocks is
//! not given, `search` tries several numbers in increasing order.

use crate::alternate::{Alternated, LabelSets, Rule, alternate};
use crate::kmeans::Points;
use crate::params::Checked;
use manylabel_base::range::same;
use manylabel_base::{Error, Watch};
use manylabel_sparse::{CsrOwned, Rows};

/// The search for a number of blocks tries every number up to this one. After that, it increases
/// the number by a quarter each time.
const EVERY_UP_TO: usize = 16;
/// The search ends when this many numbers of blocks have been tried since the last gain above
/// [`NOTABLE`].
const PATIENCE: usize = 5;
/// A number of blocks replaces the best number so far only if its gain is above this value. The
/// gain is the number of additional captured labels, as a fraction of all stored entries of Y. A
/// label of a row is captured if it is in the label set of the row's block.
const NOTABLE: f64 = 1e-3;
/// The maximum number of blocks that the search tries. Liang, Hsieh and Lee use up to 2000 blocks.
const MOST_BLOCKS: usize = 2048;

/// A partition of rows and labels into blocks.
///
/// Block l has the rows i with `row_blocks[i] == l` and the labels `labels[ends[l]..ends[l + 1]]`.
/// The number of blocks is `ends.len() - 1`.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// The number of the block of each row; shape (`n_rows`,). Every block has at least one row.
    pub row_blocks: Vec<u32>,
    /// The boundaries of the label sets in `labels`, starting with 0; shape (`n_blocks` + 1,).
    pub ends: Vec<usize>,
    /// The labels of all blocks, one block after the other. The labels of a block are in increasing
    /// order. A block may have no labels.
    pub labels: Vec<u32>,
    /// Number of captured labels. A label of a row is captured if it is in the label set of the
    /// row's block.
    pub captured: u64,
    /// The objective after each step. Label steps and row steps alternate. The first and the last
    /// step are label steps. The objective never increases.
    pub history: Vec<f64>,
}

impl Checked {
    /// Partitions the rows of `x` and the columns of `y` into blocks. The rows of `x` must have unit
    /// length. Dense rows are copied. Each stored entry of `y` is a label of its row.
    ///
    /// If `n_blocks` is given, it is the number of clusters at the start. The result has fewer
    /// blocks if some blocks lose all of their rows.
    ///
    /// If `n_blocks` is not given, the search tries the numbers from 1 to 16. Then it increases the
    /// number by a quarter each time, up to 2048 or the number of rows, whichever is smaller. A
    /// number replaces the best number so far only if it captures more labels, and the difference
    /// is over a thousandth of all stored entries of `y`. (A label of a row is captured if it is in
    /// the label set of the row's block.) The search ends after five consecutive numbers that do
    /// not replace the best number. It also ends at the first number that leaves a block without
    /// rows or labels.
    ///
    /// A pass of k-means over the rows takes O(nnz(X) `n_blocks`) time. It may use a sample of the
    /// rows (see [`KMeans`](crate::KMeans)). A round of the alternation takes the time of one
    /// [`label_step`](crate::label_step) and one [`row_step`](crate::row_step).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the numbers of rows of `x` and `y` differ. Returns
    /// [`Error::Param`] if a value of `x` is infinite. Returns [`Error::TooLarge`] if there is not
    /// enough memory. Returns [`Error::Stopped`] if the caller requested a stop.
    pub fn fit(&self, x: Rows<'_>, y: &CsrOwned, watch: &Watch) -> Result<Partition, Error> {
        same("rows of Y", x.n_rows(), y.n_rows())?;
        let most = self
            .0
            .n_blocks
            .unwrap_or(MOST_BLOCKS)
            .min(x.n_rows().max(1));
        let points = Points::new(x, None, watch)?;
        let of_size = |n_blocks| self.best_of_starts(&points, y, n_blocks, watch);
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

    /// Partitions from `n_init` starts of `n_blocks` clusters each. Returns the result with the
    /// lowest objective. If objectives are equal, returns the first result.
    fn best_of_starts(
        &self,
        points: &Points<'_>,
        y: &CsrOwned,
        n_blocks: usize,
        watch: &Watch,
    ) -> Result<Alternated, Error> {
        let limited = points.limited(n_blocks, watch)?;
        let points = limited.as_ref().unwrap_or(points);
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
        best.ok_or(Error::Stopped) // cannot happen, because `n_init` is at least 1
    }
}

/// Chooses a number of blocks and returns the partition with this number. `fit` computes the
/// partition for a given number of blocks.
///
/// The search tries increasing numbers of blocks, from 1 to at most `most`. A label of a row is
/// captured if it is in the label set of the row's block. A number replaces the best number so far
/// only if its partition captures more labels than the best partition so far, and the difference is
/// larger than `notable`. The search ends after [`PATIENCE`] consecutive numbers that do not
/// replace the best number. It also ends at the first number that leaves a block without rows or
/// labels.
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

/// Returns the numbers of blocks that the search tries after 1: 2, 3, …, 16, 20, 25, 31, …. The
/// sequence does not end.
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
    /// Returns the objective of the final partition.
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
