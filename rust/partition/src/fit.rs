//! The partition of a data set: several starts, and the search for a number of blocks.
//!
//! For a given number of blocks, each start is a k-means clustering with its own seed that
//! [`alternate`](crate::alternate) improves, and the result with the lowest objective is kept. Without a
//! given number, `search` fits one number after the other.

use crate::alternate::{Alternated, LabelSets, Rule, alternate};
use crate::kmeans::Points;
use crate::params::Checked;
use manylabel_base::range::same;
use manylabel_base::{Error, Watch};
use manylabel_sparse::{CsrOwned, Sparse};

/// The search tries every number up to this one, then grows the number by a quarter each time.
const EVERY_UP_TO: usize = 16;
/// The search ends after this many numbers of blocks in a row without a [`NOTABLE`] gain.
const PATIENCE: usize = 5;
/// The gain in captured ones, as a share of all ones, that justifies more blocks.
const NOTABLE: f64 = 1e-3;
/// Maximum number of blocks the search tries. The numbers in the paper reach 2000.
const MOST_BLOCKS: usize = 2048;

/// A partition into blocks of rows, each with a set of labels.
///
/// Block l has the rows i with `row_blocks[i] == l` and the labels `labels[ends[l]..ends[l + 1]]`. The
/// number of blocks is `ends.len() - 1`.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// The block of each row, (`n_rows`,). Every block has rows.
    pub row_blocks: Vec<u32>,
    /// Ends of the label sets, (`n_blocks` + 1,), starting with 0.
    pub ends: Vec<usize>,
    /// The label sets of all blocks, one after the other; increasing within a block. A set may be empty.
    pub labels: Vec<u32>,
    /// Number of captured ones: entries of the label matrix whose label is in the set of the row's block.
    pub captured: u64,
    /// The objective f after each half step, which alternates between label steps and row steps and begins
    /// and ends with a label step. It never rises.
    pub history: Vec<f64>,
}

impl Checked {
    /// Partitions the rows of `x` and the columns of `y`, whose stored entries are the ones.
    ///
    /// A given `n_blocks` is the number of clusters that k-means starts with. The result has fewer blocks
    /// if some lose all of their rows.
    ///
    /// Without a given number, the search tries 1 to 16 and then a quarter more each time, up to 2048 or
    /// the number of rows. It keeps a larger number only if that captures more ones than the best so far, by
    /// a thousandth of all ones. It ends after five numbers without such a gain, or at the first number
    /// that leaves a block without rows or labels.
    ///
    /// Time: O(nnz(X) `n_blocks`) per sweep of k-means (see [`KMeans`](crate::KMeans), which samples rows),
    /// and per round the time of [`label_step`](crate::label_step) and [`row_step`](crate::row_step).
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

    /// The alternation with the lowest objective over `n_init` starts of `n_blocks` clusters each; the
    /// first of equal ones.
    fn best_of_starts(
        &self,
        x: Sparse<'_>,
        y: &CsrOwned,
        n_blocks: usize,
        watch: &Watch,
    ) -> Result<Alternated, Error> {
        // `Points` limits features by the number of centers. It is made anew for each number of blocks, so
        // that the search returns the same blocks as a fit with the number it found.
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

/// Searches for the number of blocks, up to `most`, that captures the most ones; returns its partition.
///
/// `fit` computes the partition for a number of blocks. A larger number replaces the best one only if it
/// captures more than `notable` ones more.
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

/// The numbers of blocks that the search tries after 1, without end: 2, 3, …, 16, 20, 25, 31, ….
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
    /// The objective at the end.
    fn objective(&self) -> f64 {
        self.history[self.history.len() - 1]
    }

    /// Number of blocks that have rows.
    fn n_blocks(&self) -> usize {
        self.sets.ends.len() - 1
    }

    /// Whether the label set of some block is empty.
    fn has_block_without_labels(&self) -> bool {
        self.sets.ends.windows(2).any(|ends| ends[0] == ends[1])
    }
}
