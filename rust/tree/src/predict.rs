//! Scores rows: the implementation of `Model` for label trees.
//!
//! Rankings and label sets use the labels that the beam search finds. Score matrices use all labels. They
//! are computed by a beam search that keeps all nodes. With one tree, a ranking and a score matrix have
//! exactly the same score for a label. With several trees, the scores can differ. If the beam search finds a
//! label only in some of the trees, the probabilities in the other trees are estimated (see `merge.rs`).

use crate::arrays::Arrays;
use crate::params::Combine;
use crate::walk::Walk;
use manylabel_base::range::{ensure, same};
use manylabel_base::{Error, collected, filled};
use manylabel_score::{Model, Options, Purpose, Rows, Search, Task};
use manylabel_sparse::{CsrView, Features, Index, Picked, ScaledColumns, TopK, Value, with_sparse};
use std::ops::Range;

/// The largest number of rows that are sent down the trees together. Many of these rows visit the same
/// nodes, so the weights of these nodes stay in cache. On eurlex57k, groups of 1,024 rows take 0.7 of the time
/// of groups of 256 rows, and larger groups save nothing.
const ROWS_AT_ONCE: usize = 1024;

/// The largest number of labels that are scored together. It limits [`ROWS_AT_ONCE`]. A label takes 24 bytes.
const LABELS_AT_ONCE: usize = 1 << 21;

/// The largest number of scores that are computed together if all labels are scored, and the largest number of
/// rows with these scores. Small groups can be divided among threads.
const SCORES_AT_ONCE: usize = 1 << 18;

/// See [`SCORES_AT_ONCE`].
const SCORED_ROWS_AT_ONCE: usize = 256;

/// Scores rows with a fitted model. The scorer borrows the arrays of the model.
#[derive(Debug, Clone)]
pub struct Scorer<'a> {
    /// The arrays of the model, already checked.
    arrays: Arrays<'a>,
    /// The number of nodes that a row can be sent to on each level, without a limit.
    level_sizes: Vec<usize>,
    /// The number of labels of the largest leaf.
    largest_leaf: usize,
    /// The number of nodes of each level that a row is sent to.
    beam: usize,
    /// How the score of a label is computed.
    combine: Combine,
    /// The threshold, which is subtracted from all scores.
    threshold: f32,
    /// How rows are scaled before they are scored.
    scaling: Scaling<'a>,
}

/// How rows are scaled before they are scored.
#[derive(Debug, Clone)]
pub enum Scaling<'a> {
    /// Rows are not scaled.
    None,
    /// Rows are scaled to unit length.
    Rows,
    /// Each column has a shift and a scale.
    Columns(ScaledColumns<'a>),
}

/// The methods of [`Model`] compute predictions.
impl<'a> Scorer<'a> {
    /// Checks the arrays of a model and borrows them. Takes about O(size of the model) time.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Arrays::check`]. Also returns [`Error::Param`] if the exponent of the path
    /// is not finite or negative, and [`Error::Shape`] if `scaling` has another number of columns than the model has
    /// features.
    pub fn new(
        arrays: Arrays<'a>,
        beam: usize,
        combine: Combine,
        threshold: f32,
        scaling: Scaling<'a>,
    ) -> Result<Self, Error> {
        combine.check()?;
        arrays.check()?;
        if let Scaling::Columns(columns) = &scaling {
            same(
                "number of scaled columns",
                arrays.n_features,
                columns.n_cols(),
            )?;
        }
        let leaf_sizes = (0..arrays.n_nodes()).map(|node| arrays.labels(node).len());
        Ok(Self {
            arrays,
            level_sizes: arrays.level_sizes()?,
            largest_leaf: leaf_sizes.max().unwrap_or(0),
            beam,
            combine,
            threshold,
            scaling,
        })
    }

    /// Returns the number of rows that are sent down the trees together, so that at most about
    /// [`LABELS_AT_ONCE`] labels are scored at once. `width` is the largest number of nodes of a level that a row
    /// is sent to. With one tree, only the `best` best labels of a leaf are stored.
    fn rows_at_once(&self, width: usize, best: Option<usize>) -> usize {
        let n_trees = self.arrays.n_trees();
        let per_node = match best {
            Some(best) if n_trees == 1 => self.largest_leaf.min(best),
            _ => self.largest_leaf,
        };
        let per_tree = per_node
            .saturating_mul(width)
            .clamp(1, self.arrays.labels.len().max(1));
        let per_row = per_tree.saturating_mul(n_trees);
        (LABELS_AT_ONCE / per_row).clamp(1, ROWS_AT_ONCE)
    }

    /// Returns the largest number of nodes of each level that a row is sent to, in each tree.
    ///
    /// If `max_nodes` is given, each tree has the same share of this number. A level gets at most an equal share
    /// of what the levels above it leave. So upper levels do not use up the nodes of lower levels.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if `max_nodes` is smaller than the number of levels of all trees. Returns
    /// [`Error::TooLarge`] if memory is short.
    fn widths(&self, search: Search) -> Result<Vec<usize>, Error> {
        let sizes = &self.level_sizes;
        let beam = search.beam.unwrap_or(self.beam);
        let Some(max_nodes) = search.max_nodes else {
            return collected("number of levels", sizes.iter().map(|_| beam));
        };
        let n_trees = self.arrays.n_trees();
        let mut left = max_nodes / n_trees;
        ensure(
            "max_nodes",
            left >= sizes.len(),
            "at least the number of levels of a tree, times the number of trees",
            format_args!("{max_nodes} for {} levels and {n_trees} trees", sizes.len()),
        )?;
        let mut widths = filled("number of levels", 0, sizes.len())?;
        for level in 0..sizes.len() {
            let share = left / (sizes.len() - level);
            widths[level] = beam.min(share).min(sizes[level]);
            left -= widths[level];
        }
        Ok(widths)
    }
}

/// A batch of rows, with the options of the beam search.
struct Batch<'a, 'b, I, T> {
    /// The model and its parameters.
    scorer: &'b Scorer<'a>,
    /// The rows.
    x: CsrView<'b, I, T>,
    /// The number of nodes of each level that a row is sent to, in each tree. None if all labels are scored.
    widths: Option<Vec<usize>>,
    /// The number of rows that are sent down the trees together.
    rows_at_once: usize,
    /// The number of best labels that are needed for each row. None if all labels of the visited leaves are
    /// needed.
    best: Option<usize>,
}

impl<I: Index, T: Value> Batch<'_, '_, I, T> {
    /// Finds labels for the given rows by a beam search and appends these labels. Each label comes with
    /// its score minus the threshold. The search keeps the best nodes of each level, as many as `widths` has
    /// for the level. If `best` is given, some labels are not appended, but the `best` best labels of each row
    /// are.
    ///
    /// For each node that a row visits, each feature of the row is searched in the hash table of the node, unless the
    /// node has all weights. If the node has the feature, each weight of the feature takes one multiplication and one
    /// addition.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn search(
        &self,
        rows: Range<usize>,
        best: Option<usize>,
        out: &mut Picked,
        walk: &mut Walk,
    ) -> Result<(), Error> {
        let Scorer {
            arrays,
            combine,
            threshold,
            scaling,
            ..
        } = self.scorer;
        walk.clear();
        for row in rows {
            let (cols, values) = self.x.row(row);
            if let Scaling::Columns(columns) = scaling {
                walk.add_entries(columns.row(cols, values))?;
                continue;
            }
            let by_row = matches!(scaling, Scaling::Rows);
            let (unit, norm) = self.x.row_divisors(row, by_row);
            walk.add_row(
                cols.iter().map(|col| col.get() as u32),
                values
                    .iter()
                    .map(|value| (value.f64() / unit / norm) as f32),
            )?;
        }
        walk.start(arrays.n_trees())?;
        let mut widths = self.widths.iter().flatten().skip(1); // each tree has one root
        while walk.step(arrays, *widths.next().unwrap_or(&usize::MAX))? {}
        match best {
            Some(best) if arrays.n_trees() == 1 => {
                let mut best = TopK::new(best)?;
                walk.best_labels(arrays, *combine, *threshold, &mut best, out)
            }
            best => walk.labels(arrays, *combine, *threshold, best, out),
        }
    }
}

impl<I: Index, T: Value> Rows for Batch<'_, '_, I, T> {
    fn n_labels(&self) -> usize {
        self.scorer.arrays.n_labels
    }

    fn at_once(&self) -> usize {
        (SCORES_AT_ONCE / self.n_labels().max(1)).clamp(1, SCORED_ROWS_AT_ONCE)
    }

    fn score(&self, rows: Range<usize>, scores: &mut [f32], task: &mut Task) -> Result<(), Error> {
        let room = task
            .work
            .room(|| Ok((Walk::default(), Picked::default())))?;
        let (walk, all) = room;
        all.clear();
        self.search(rows, None, all, walk)?;
        scores.fill(f32::NEG_INFINITY);
        for (scores, of_row) in scores.chunks_mut(self.n_labels().max(1)).zip(all.rows()) {
            for &(label, score) in of_row {
                scores[label as usize] = score;
            }
        }
        Ok(())
    }

    fn candidates_at_once(&self) -> Option<usize> {
        self.widths.as_ref().map(|_| self.rows_at_once)
    }

    fn candidates(
        &self,
        rows: Range<usize>,
        out: &mut Picked,
        task: &mut Task,
    ) -> Result<(), Error> {
        let room = task
            .work
            .room(|| Ok((Walk::default(), Picked::default())))?;
        self.search(rows, self.best, out, &mut room.0)
    }
}

/// Labels without a training row are in no leaf. They have the score −∞.
impl Model for Scorer<'_> {
    fn n_labels(&self) -> usize {
        self.arrays.n_labels
    }

    fn n_features(&self) -> usize {
        self.arrays.n_features
    }

    fn rows<'a>(&'a self, x: Features<'a>, options: Options) -> Result<Box<dyn Rows + 'a>, Error> {
        let widths = match options.purpose {
            Purpose::Scores | Purpose::Probabilities => None,
            Purpose::Ranking | Purpose::Labels => Some(self.widths(options.search)?),
        };
        let best = options.best.map(|best| best.min(self.arrays.n_labels));
        let width = widths.iter().flatten().copied().max().unwrap_or(1);
        let rows_at_once = self.rows_at_once(width, best);
        Ok(with_sparse!(x.sparse()?, |x| Box::new(Batch {
            scorer: self,
            x,
            widths,
            rows_at_once,
            best
        })))
    }
}
