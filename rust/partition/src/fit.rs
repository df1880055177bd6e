//! Starts, and the search for a number of blocks.

use crate::alternate::{Alternated, LabelSets, Rule, alternate};
use crate::kmeans::Points;
use crate::params::Checked;
use manylabel_base::range::same;
use manylabel_base::{Error, Watch};
use manylabel_sparse::{CsrOwned, CsrView, Index, Value};

/// Every number up to this one is tried by the search, then steps of a quarter.
const EVERY_UP_TO: usize = 16;
/// The search ends when so many numbers of blocks in a row captured no more, by [`NOTABLE`].
const PATIENCE: usize = 5;
/// A share of all ones that is worth more blocks.
const NOTABLE: f64 = 1e-3;
/// Most blocks the search tries.
const MOST_BLOCKS: usize = 2048;

/// Blocks of rows, each with its labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Partition {
    /// The block of each row; no block is without rows.
    pub row_blocks: Vec<u32>,
    /// Ends of the label sets, one more than there are blocks, from 0.
    pub ends: Vec<usize>,
    /// Labels of block after block, increasing within a block.
    pub labels: Vec<u32>,
    /// Ones of the label matrix that lie in a block.
    pub captured: u64,
    /// The objective after every half step: of labels, of rows, …, of labels.
    pub history: Vec<f64>,
}

impl Checked {
    /// Partitions the rows of `x` and the columns of `y`, whose stored entries are the ones.
    ///
    /// A given `n_blocks` is what k-means begins with; there are fewer blocks in the end where
    /// some lose their rows. Without one, the numbers 1 to 16 and then each a quarter more are
    /// tried while no block is without rows or labels, and the one that captures the largest share
    /// of the ones is taken, the smallest of those within a thousandth of it; after five that
    /// capture no more than that, larger ones are not tried.
    ///
    /// Time O(nnz(X) `n_blocks`) a sweep of k-means and, commonly, O(nnz(Y) + `n_rows`
    /// `n_blocks`) a round; see [`KMeans`](crate::KMeans) for rows sampled and memory.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the rows of `x` and `y` differ, [`Error::TooLarge`],
    /// [`Error::Stopped`].
    pub fn fit<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        y: &CsrOwned,
        watch: &Watch,
    ) -> Result<Partition, Error> {
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

    fn best_of_starts<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        y: &CsrOwned,
        n_blocks: usize,
        watch: &Watch,
    ) -> Result<Alternated, Error> {
        // As many features as so many centers have room for, whoever asks: the search ends in the
        // blocks that a fit with the number it found has.
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
                break; // there is but one way
            }
        }
        best.ok_or(Error::Stopped) // `n_init` is at least 1
    }
}

/// The number of blocks up to `most` that captures the most, by what `fit` makes of so many; ones that it
/// captures more than a smaller number count if they are `notable`.
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

/// What the search tries after 1.
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
    fn objective(&self) -> f64 {
        self.history[self.history.len() - 1]
    }

    fn n_blocks(&self) -> usize {
        self.sets.ends.len() - 1
    }

    fn has_block_without_labels(&self) -> bool {
        self.sets.ends.windows(2).any(|ends| ends[0] == ends[1])
    }
}
