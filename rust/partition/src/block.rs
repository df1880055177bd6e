//! Scores rows with one model per block. A block has a set of labels, and each row is sent to one
//! or more blocks.
//!
//! A [`BlockModel`] consists of one model for each block and of a router, which is a model that scores
//! blocks. A batch of rows is scored in three steps. First the router finds the blocks of each row
//! ([`Routing`]). Then rows are grouped by block. Finally the model of each block scores all rows of
//! its group at once. For each row, the router scores all blocks, and the models score only the labels
//! of the blocks that the row is sent to. The labels of other blocks take no time.
//!
//! If a row is sent to one block, its scores are computed by the model of this block. All other
//! labels have the score −∞. If a row is sent to several blocks, the probabilities that the blocks
//! give are averaged, weighted by the router's probabilities of the blocks. The means are converted
//! to log-odds; see [`merge()`](crate::merge()).
//!
//! ```
//! use manylabel_base::{Error, Watch};
//! use manylabel_partition::{Block, BlockModel, Inner, Link, Named, Routing};
//! use manylabel_score::{Model, Options, Rows, Task};
//! use manylabel_sparse::{CsrView, Features, Sparse};
//! use std::ops::Range;
//!
//! /// Scores a label by the sum of the row times the label's weight.
//! struct Sums(Vec<f32>);
//!
//! impl Model for Sums {
//!     fn n_labels(&self) -> usize {
//!         self.0.len()
//!     }
//!     fn n_features(&self) -> usize {
//!         1
//!     }
//!     fn rows<'a>(&'a self, x: Features<'a>, _: Options) -> Result<Box<dyn Rows + 'a>, Error> {
//!         match x {
//!             Features::Sparse(Sparse::I32F32(x)) => Ok(Box::new(Batch(self, x))),
//!             _ => unimplemented!("other types in the same way"),
//!         }
//!     }
//! }
//!
//! struct Batch<'a>(&'a Sums, CsrView<'a, i32, f32>);
//!
//! impl Rows for Batch<'_> {
//!     fn n_labels(&self) -> usize {
//!         self.0.n_labels()
//!     }
//!     fn score(&self, rows: Range<usize>, scores: &mut [f32], _: &mut Task) -> Result<(), Error> {
//!         for (row, scores) in rows.zip(scores.chunks_mut(self.n_labels())) {
//!             let sum: f32 = self.1.row(row).1.iter().sum();
//!             scores.iter_mut().zip(&self.0.0).for_each(|(score, weight)| *score = sum * weight);
//!         }
//!         Ok(())
//!     }
//! }
//!
//! // Rows with a positive value go to the first block, which has the labels 0 and 2.
//! // Other rows go to the second block, which has label 1.
//! let (router, first, second) = (Sums(vec![1.0, -1.0]), Sums(vec![3.0, 2.0]), Sums(vec![-5.0]));
//! let block = |labels, model| Block {
//!     labels,
//!     model: Some(Inner::Own(model)),
//!     link: Link::IDENTITY,
//!     named: Named::Above(0.0),
//! };
//! let blocks = vec![block(&[0, 2], &first), block(&[1], &second)];
//! let model = BlockModel::new(&router, blocks, 3, Routing::Best(1))?;
//! let x = CsrView::new("X", &[0i32, 1, 2], &[0, 0], &[0.5f32, -1.0], 1)?;
//! let top = model.topk(x.into(), 1, &Watch::new())?;
//! assert_eq!((&top.indices[..], &top.values[..]), (&[0, 1][..], &[1.5, 5.0][..]));
//! # Ok::<(), Error>(())
//! ```

use crate::each::each;
use crate::merge::{Answer, check_labels, merge_known};
use crate::part::{ByLabel, Part, Parts};
use crate::routing::Routing;
use crate::rows::with_rows;
use manylabel_base::range::same;
use manylabel_base::{Error, Watch, collected, copied, extend, filled, push, reserved};
use manylabel_score::{Bounds, Model, Options, Rows, Task, room_for_all};
use manylabel_sparse::{CsrOwned, CsrView, Features};
use std::ops::Range;

/// The maximum number of rows for which the model is not stored by label (see [`Parts`]). For so
/// few rows, storing the model by label takes longer than scoring all of its labels. If the models
/// of all blocks allow it, these rows are also scored without threads.
const FEW_ROWS: usize = 32;

/// The number of rows for which [`Rows::score`] computes all scores at a time.
const ROWS_AT_ONCE: usize = 64;

/// The maximum number of scores that are in memory while the scores of several blocks are merged.
/// They take 64 MiB.
const SCORES_AT_ONCE: usize = 1 << 24;

/// A block: its labels and the model that scores them.
pub struct Block<'a> {
    /// The labels, in increasing order.
    pub labels: &'a [i32],
    /// The model of the block, which has as many labels as the block. None for a block without
    /// labels.
    pub model: Option<Inner<'a>>,
    /// The function that converts scores of the model to log-odds.
    pub link: Link,
    /// The rule that selects the predicted labels of a row from its scores.
    pub named: Named,
}

/// The model of a block.
pub enum Inner<'a> {
    /// A model that has only the labels of the block.
    Own(&'a dyn Model),
    /// Some labels of a model that has more labels than the block.
    Part(Part<'a>),
}

impl Inner<'_> {
    /// Returns the model, restricted to the labels of the block.
    fn model(&self) -> &dyn Model {
        match self {
            Self::Own(model) => *model,
            Self::Part(part) => part,
        }
    }
}

/// A linear function that converts the score of a label to log-odds: `factor · (score − zero)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// The slope; > 0.
    pub factor: f32,
    /// The score of a label with probability ½.
    pub zero: f32,
}

impl Link {
    /// The function for scores that are already log-odds.
    pub const IDENTITY: Self = Self {
        factor: 1.0,
        zero: 0.0,
    };

    /// Returns the log-odds of a score.
    fn log_odds(self, score: f32) -> f32 {
        self.factor * (score - self.zero)
    }
}

/// The rule that selects the predicted labels of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Named {
    /// The labels with scores above this threshold.
    Above(f32),
    /// The label with the highest score.
    Best,
}

/// A router and the models of all blocks, which together form one model. The router is a model that
/// scores blocks.
///
/// If a label is in none of the blocks that a row is sent to, its score is −∞. With `Routing::Best(1)`,
/// each row is sent to one block, and the scores are computed by the model of this block. With any
/// other routing, all scores are log-odds, even for rows that are sent to one block.
///
/// If a row is sent to one block, its predicted labels are selected by the rule [`Block::named`].
/// If the scores of several blocks are merged, labels with a probability above ½ are predicted.
pub struct BlockModel<'a> {
    /// The model that scores the blocks.
    router: &'a dyn Model,
    /// The blocks. Label l of the router is block l.
    blocks: Vec<Block<'a>>,
    /// The models of the blocks. If consecutive blocks use the same model, the model is listed
    /// once.
    models: Vec<&'a dyn Model>,
    /// The whole model of which the models of the blocks are parts, if it implements [`Parts`].
    parts: Option<&'a dyn Parts>,
    /// The total number of labels. Some labels may be in no block.
    n_labels: usize,
    routing: Routing,
}

impl<'a> BlockModel<'a> {
    /// Combines a router and blocks into one model, in O(number of labels in all blocks) time. The
    /// router is a model that scores blocks.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the router does not have one label per block. Returns
    /// [`Error::Shape`] if the model of a block does not have the number of labels of the block or the
    /// number of features of the router. A block without a model must have no labels. Returns
    /// [`Error::Param`] if the labels of a block are not increasing or not below `n_labels`. Returns
    /// [`Error::TooLarge`] if there is not enough memory.
    pub fn new(
        router: &'a dyn Model,
        blocks: Vec<Block<'a>>,
        n_labels: usize,
        routing: Routing,
    ) -> Result<Self, Error> {
        same("blocks of label_blocks_", router.n_labels(), blocks.len())?;
        let mut models: Vec<&dyn Model> = Vec::new();
        for Block { labels, model, .. } in &blocks {
            check_labels(labels, n_labels)?;
            let Some(inner) = model else {
                same(
                    "number of labels of a block without a model",
                    0,
                    labels.len(),
                )?;
                continue;
            };
            let (model, whole) = match inner {
                Inner::Own(model) => (*model, *model),
                Inner::Part(part) => (part as &dyn Model, part.whole()),
            };
            same(
                "number of labels of the model of a block",
                labels.len(),
                model.n_labels(),
            )?;
            same(
                "number of features of the model of a block",
                router.n_features(),
                model.n_features(),
            )?;
            if !models
                .last()
                .is_some_and(|&last| std::ptr::addr_eq(last, whole))
            {
                push("number of blocks", &mut models, whole)?;
            }
        }
        Ok(Self {
            router,
            blocks,
            models,
            parts: None,
            n_labels,
            routing,
        })
    }

    /// Sets the model `parts`, from which all models of the kind [`Inner::Part`] are taken. For batches
    /// of more than 32 rows, `parts` then scores the blocks that have such a model.
    #[must_use]
    pub fn with_parts(self, parts: &'a dyn Parts) -> Self {
        Self {
            parts: Some(parts),
            ..self
        }
    }

    /// Returns true if all scores are log-odds. This is the case unless each row is sent to exactly
    /// one block.
    fn gives_log_odds(&self) -> bool {
        self.routing != Routing::Best(1)
    }

    /// Finds labels with scores for all rows. For rows that are sent to one block, the function
    /// `alone` finds the labels. For other rows, the scores of their blocks are merged, and the
    /// function `merged` selects labels.
    ///
    /// `alone` gets a block, its model and the rows that are sent to the block. It returns labels
    /// as positions in the label list of the block. `k` limits the number of labels for rows with
    /// merged scores.
    fn found(
        &self,
        x: Features<'_>,
        watch: &Watch,
        k: Option<usize>,
        alone: impl Fn(&Block<'_>, &dyn Model, Features<'_>) -> Result<CsrOwned, Error> + Sync,
        merged: impl Fn(CsrOwned) -> Result<CsrOwned, Error>,
    ) -> Result<CsrOwned, Error> {
        let sent = Sent::new(self, x, watch)?;
        let mut pieces = Vec::new();
        let groups = sent.groups(&sent.alone()?)?;
        let found = sent.ask(&groups, alone)?;
        for (group, mut found) in groups.into_iter().zip(found) {
            let block = &self.blocks[group.block];
            for label in &mut found.indices {
                *label = block.labels[*label as usize] as u32;
            }
            if self.gives_log_odds() {
                for score in &mut found.values {
                    *score = block.link.log_odds(*score);
                }
            }
            found.n_cols = self.n_labels;
            push("number of blocks", &mut pieces, (group.rows, found))?;
        }
        sent.merge(k, |rows, found| {
            let piece = (copied("number of rows", rows)?, merged(found)?);
            push("number of blocks", &mut pieces, piece)
        })?;
        joined(pieces, x.n_rows(), self.n_labels)
    }

    /// Writes the scores of all labels for all rows of `x` to `out`, of shape (`n_rows`,
    /// `n_labels`). The caller must first fill `out` with −∞.
    fn decide(&self, x: Features<'_>, out: &mut [f32], watch: &Watch) -> Result<(), Error> {
        let sent = Sent::new(self, x, watch)?;
        let groups = sent.groups(&sent.alone()?)?;
        let found = sent.ask(&groups, |_, model, x| model.decision(x, watch))?;
        for (group, scores) in groups.iter().zip(found) {
            let Block { labels, link, .. } = self.blocks[group.block];
            for (&row, scores) in group.rows.iter().zip(scores.chunks(labels.len())) {
                let out = &mut out[row as usize * self.n_labels..][..self.n_labels];
                for (&label, &score) in labels.iter().zip(scores) {
                    out[label as usize] = if self.gives_log_odds() {
                        link.log_odds(score)
                    } else {
                        score
                    };
                }
            }
        }
        sent.merge(None, |rows, found| {
            for (at, &row) in rows.iter().enumerate() {
                let out = &mut out[row as usize * self.n_labels..][..self.n_labels];
                let (labels, scores) = found.row(at);
                for (&label, &score) in labels.iter().zip(scores) {
                    out[label as usize] = score;
                }
            }
            Ok(())
        })
    }
}

/// Rankings and label sets are combined from the rankings and label sets of the models of the
/// blocks. So the models can have their own methods of ranking labels and selecting label sets.
impl Model for BlockModel<'_> {
    fn n_labels(&self) -> usize {
        self.n_labels
    }

    fn n_features(&self) -> usize {
        self.router.n_features()
    }

    /// Prepares rows for scoring. The purpose in the options is ignored, because it does not change the
    /// scores.
    fn rows<'a>(&'a self, x: Features<'a>, _: Options) -> Result<Box<dyn Rows + 'a>, Error> {
        Ok(Box::new(Batch { model: self, x }))
    }

    fn is_quick(&self, n_rows: usize) -> bool {
        n_rows <= FEW_ROWS
            && self.router.is_quick(n_rows)
            && self.models.iter().all(|model| model.is_quick(n_rows))
    }

    fn topk(&self, x: Features<'_>, k: usize, watch: &Watch) -> Result<CsrOwned, Error> {
        let best = |_: &Block<'_>, model: &dyn Model, x: Features<'_>| model.topk(x, k, watch);
        self.found(x, watch, Some(k), best, Ok)
    }

    /// For rows that are sent to one block, the model of the block selects the labels. A bound of 0 gives the
    /// usual label set of the model. With [`Named::Above`], any other bound is added to the threshold of the
    /// block. With [`Named::Best`], other bounds are ignored. For rows with merged scores, labels with
    /// log-odds above the bound are selected.
    fn above(&self, x: Features<'_>, bounds: Bounds<'_>, watch: &Watch) -> Result<CsrOwned, Error> {
        if let Bounds::Each(bounds) = bounds {
            same("number of bounds", self.n_labels, bounds.len())?;
        }
        let bound = |label: usize| match bounds {
            Bounds::One(bound) => bound,
            Bounds::Each(bounds) => bounds[label],
        };
        let named = |block: &Block<'_>, model: &dyn Model, x: Features<'_>| {
            let Named::Above(least) = block.named else {
                return match &block.model {
                    Some(Inner::Part(part)) => part.best(x, watch),
                    _ => model.topk(x, 1, watch),
                };
            };
            let scale = if self.gives_log_odds() {
                block.link.factor
            } else {
                1.0
            };
            match bounds {
                Bounds::One(bound) => model.above(x, Bounds::One(bound / scale + least), watch),
                Bounds::Each(_) => {
                    let labels = block.labels.iter();
                    let bounds = labels.map(|&label| bound(label as usize) / scale + least);
                    let bounds: Vec<f32> = collected("number of bounds", bounds)?;
                    model.above(x, Bounds::Each(&bounds), watch)
                }
            }
        };
        self.found(x, watch, None, named, |merged| {
            only(&merged, |label, score| score > bound(label as usize))
        })
    }

    fn decision(&self, x: Features<'_>, watch: &Watch) -> Result<Vec<f32>, Error> {
        let mut scores = room_for_all(
            "the dense score matrix",
            f32::NEG_INFINITY,
            x.n_rows(),
            self.n_labels,
        )?;
        self.decide(x, &mut scores, watch)?;
        Ok(scores)
    }
}

/// A batch of rows to score.
struct Batch<'a> {
    model: &'a BlockModel<'a>,
    x: Features<'a>,
}

impl Rows for Batch<'_> {
    fn n_labels(&self) -> usize {
        self.model.n_labels
    }

    fn at_once(&self) -> usize {
        ROWS_AT_ONCE
    }

    fn score(&self, rows: Range<usize>, scores: &mut [f32], task: &mut Task) -> Result<(), Error> {
        scores.fill(f32::NEG_INFINITY);
        let rows = collected("number of rows", rows.map(|row| row as u32))?;
        with_rows(self.x, &rows, |x| self.model.decide(x, scores, task.watch))
    }
}

/// The rows of a batch that are sent to the same block.
struct Group {
    /// The number of the block. The block has at least one label.
    block: usize,
    /// The rows of the group, in increasing order.
    rows: Vec<u32>,
}

/// A batch of rows and the blocks that they are sent to.
struct Sent<'a> {
    model: &'a BlockModel<'a>,
    x: Features<'a>,
    /// The router's scores of the blocks to which each row is sent; shape (`n_rows`, `n_blocks`).
    routes: CsrOwned,
    /// The whole model of which the models of the blocks are parts, stored by label. None if there is
    /// no such model, or if the batch has at most [`FEW_ROWS`] rows.
    by_label: Option<Box<dyn ByLabel + 'a>>,
    /// True if blocks are processed one after the other, without threads.
    quick: bool,
    watch: &'a Watch,
}

impl<'a> Sent<'a> {
    fn new(model: &'a BlockModel<'a>, x: Features<'a>, watch: &'a Watch) -> Result<Self, Error> {
        let parts = model.parts.filter(|_| x.n_rows() > FEW_ROWS);
        Ok(Self {
            routes: model.routing.routes(model.router, x, watch)?,
            by_label: parts.map(Parts::by_label).transpose()?,
            quick: model.is_quick(x.n_rows()),
            model,
            x,
            watch,
        })
    }

    /// Returns true if the scores of several blocks are merged for a row. With `Routing::Best(n)`
    /// and n > 1, the result is true for all rows, even if a row has fewer blocks.
    fn is_merged(&self, row: u32) -> bool {
        match self.model.routing {
            Routing::Best(n_routes) => n_routes > 1,
            Routing::Doubt { .. } => self.blocks(row).len() > 1,
        }
    }

    /// Returns the blocks that a row is sent to, in increasing order.
    fn blocks(&self, row: u32) -> &[u32] {
        self.routes.row(row as usize).0
    }

    /// Returns the rows whose scores come from one block and are not merged.
    fn alone(&self) -> Result<Vec<u32>, Error> {
        let rows = 0..self.x.n_rows() as u32;
        collected("number of rows", rows.filter(|&row| !self.is_merged(row)))
    }

    /// Groups the given rows by block. A row is in the group of each block that it is sent to.
    /// Blocks without labels have no group. Groups are sorted by block, and the rows of a group are
    /// in increasing order.
    fn groups(&self, rows: &[u32]) -> Result<Vec<Group>, Error> {
        let mut pairs: Vec<(u32, u32)> = reserved("number of rows", rows.len())?;
        for &row in rows {
            let knows = |&&block: &&u32| !self.model.blocks[block as usize].labels.is_empty();
            let blocks = self.blocks(row).iter().filter(knows);
            extend(
                "number of rows",
                &mut pairs,
                blocks.map(|&block| (block, row)),
            )?;
        }
        pairs.sort_unstable();
        let mut groups = Vec::new();
        for pairs in pairs.chunk_by(|one, other| one.0 == other.0) {
            let group = Group {
                block: pairs[0].0 as usize,
                rows: collected("number of rows", pairs.iter().map(|&(_, row)| row))?,
            };
            push("number of blocks", &mut groups, group)?;
        }
        Ok(groups)
    }

    /// Calls `what` for each group of rows, with the block, its model and the rows. Returns the
    /// results in the order of the groups. If the batch has few rows, groups are processed one
    /// after the other. Otherwise they are processed in parallel.
    fn ask<R: Send>(
        &self,
        groups: &[Group],
        what: impl Fn(&Block<'_>, &dyn Model, Features<'_>) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let of_group = |group: &Group| {
            with_rows(self.x, &group.rows, |x| {
                let block = &self.model.blocks[group.block];
                match (&block.model, &self.by_label) {
                    (Some(Inner::Part(part)), Some(by_label)) => {
                        let mut answer = Err(Error::Stopped);
                        by_label.with_part(part.labels(), &mut |model| {
                            answer = what(block, model, x);
                            Ok(())
                        })?;
                        answer
                    }
                    (Some(inner), _) => what(block, inner.model(), x),
                    (None, _) => unreachable!("blocks with labels have models"),
                }
            })
        };
        if !self.quick {
            return each("number of blocks", groups, of_group);
        }
        let mut answers = reserved("number of blocks", groups.len())?;
        for group in groups {
            answers.push(of_group(group)?);
        }
        Ok(answers)
    }

    /// Merges the scores of rows that were sent to several blocks.
    ///
    /// A limited number of rows is processed at a time, so that at most [`SCORES_AT_ONCE`] scores
    /// are in memory. A single row may have more scores. `take` is called with these rows and the
    /// `k` best labels of each row. If `k` is None, it gets all labels.
    fn merge(
        &self,
        k: Option<usize>,
        mut take: impl FnMut(&[u32], CsrOwned) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let merged = (0..self.x.n_rows() as u32).filter(|&row| self.is_merged(row));
        let merged = collected("number of rows", merged)?;
        let mut rest = &merged[..];
        while !rest.is_empty() {
            let mut room = SCORES_AT_ONCE;
            let fits = |&&row: &&u32| {
                let labels = |&block: &u32| self.model.blocks[block as usize].labels.len();
                let needed: usize = self.blocks(row).iter().map(labels).sum();
                let fits = needed <= room;
                room -= needed.min(room);
                fits
            };
            let n_rows = rest.iter().take_while(fits).count().max(1);
            let (rows, later) = rest.split_at(n_rows);
            take(rows, self.merge_rows(rows, k)?)?;
            rest = later;
        }
        Ok(())
    }

    /// Returns the merged scores of the given rows. Row i of the result belongs to `rows[i]`.
    fn merge_rows(&self, rows: &[u32], k: Option<usize>) -> Result<CsrOwned, Error> {
        let groups = self.groups(rows)?;
        let scores = self.ask(&groups, |block, model, x| {
            let mut scores = model.decision(x, self.watch)?;
            for score in &mut scores {
                *score = block.link.log_odds(*score);
            }
            Ok(scores)
        })?;
        let BlockModel {
            blocks, n_labels, ..
        } = self.model;
        let of_block = |block: &Block<'a>| Answer {
            labels: block.labels,
            scores: &[],
        };
        let mut answers: Vec<Answer<'_>> =
            collected("number of blocks", blocks.iter().map(of_block))?;
        for (group, scores) in groups.iter().zip(&scores) {
            answers[group.block].scores = scores;
        }
        let mut ends = reserved("number of rows", rows.len() + 1)?;
        let (mut sent_to, mut of_router) = (Vec::new(), Vec::new());
        ends.push(0u32);
        for &row in rows {
            let (blocks, scores) = self.routes.row(row as usize);
            extend("number of routes", &mut sent_to, blocks.iter().copied())?;
            extend("number of routes", &mut of_router, scores.iter().copied())?;
            ends.push(sent_to.len() as u32);
        }
        let routes = CsrView::new("routes", &ends, &sent_to, &of_router, blocks.len())?;
        merge_known(routes, &answers, *n_labels, k, self.watch)
    }
}

/// Returns a copy of a matrix with only those entries for which `keep(label, value)` is true.
fn only(matrix: &CsrOwned, keep: impl Fn(u32, f32) -> bool) -> Result<CsrOwned, Error> {
    let mut kept = CsrOwned {
        indptr: reserved("number of rows", matrix.n_rows() + 1)?,
        indices: Vec::new(),
        values: Vec::new(),
        n_cols: matrix.n_cols,
    };
    kept.indptr.push(0);
    for row in 0..matrix.n_rows() {
        let (labels, values) = matrix.row(row);
        for (&label, &value) in labels.iter().zip(values) {
            if keep(label, value) {
                push("number of predicted labels", &mut kept.indices, label)?;
                push("number of predicted labels", &mut kept.values, value)?;
            }
        }
        kept.indptr.push(kept.indices.len());
    }
    Ok(kept)
}

/// Combines pieces into one matrix (`n_rows`, `n_cols`). Each piece is a matrix together with the
/// numbers of its rows. Rows that are in no piece are empty. No row may be in two pieces.
fn joined(
    mut pieces: Vec<(Vec<u32>, CsrOwned)>,
    n_rows: usize,
    n_cols: usize,
) -> Result<CsrOwned, Error> {
    if let [(rows, _)] = &pieces[..]
        && rows.len() == n_rows
    {
        return Ok(pieces.swap_remove(0).1);
    }
    let mut indptr = filled("number of rows", 0, n_rows + 1)?;
    for (rows, piece) in &pieces {
        for (at, &row) in rows.iter().enumerate() {
            indptr[row as usize + 1] = piece.row(at).0.len();
        }
    }
    for row in 0..n_rows {
        indptr[row + 1] += indptr[row];
    }
    let mut indices = filled("number of predicted labels", 0, indptr[n_rows])?;
    let mut values = filled("number of predicted labels", 0.0, indptr[n_rows])?;
    for (rows, piece) in &pieces {
        for (at, &row) in rows.iter().enumerate() {
            let range = indptr[row as usize]..indptr[row as usize + 1];
            let (labels, scores) = piece.row(at);
            indices[range.clone()].copy_from_slice(labels);
            values[range].copy_from_slice(scores);
        }
    }
    Ok(CsrOwned {
        indptr,
        indices,
        values,
        n_cols,
    })
}
