//! The fit: label vectors, trees, and then the classifiers of the nodes, level by level.
//!
//! The classifiers of a level decide which rows the nodes of the next level are fitted to, in addition to the
//! rows that have a label below them. So negatives are the rows that prediction will send to a node.
//!
//! Cost of a level: its nodes have about `beam` times the training rows between them, since each row is sent
//! to `beam` nodes. Gathering and transposing these rows is one pass each; a search for violators is one pass
//! for sixteen outputs; a descent visits the positives of an output and some hundred negatives. So time grows
//! with rows × beam × levels, and with the positives of all labels, not with rows × labels.

use crate::grow::Forest;
use crate::held::{HeldOut, rows_of_nodes};
use crate::model::Model;
use crate::node::{Desk, Fitted, Probe, Training};
use crate::params::{Checked, Params};
use crate::vectors::label_vectors;
use crate::walk::{Visit, Walk};
use manylabel_base::range::same_rows;
use manylabel_base::{Error, Watch, collected, copied, extend, filled, parts, push, reserved};
use manylabel_linear::dismec::{Effort, Spare};
use manylabel_sparse::{CsrOwned, Sparse};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Rows that are sent to the next level together.
const ROWS_AT_ONCE: usize = 512;

/// The name of beams in error messages.
const NODES: &str = "number of nodes that rows are sent to";

impl Checked {
    /// Fits trees over the columns of `y`. The stored entries of a row of `y` are the labels it carries;
    /// their values are not used.
    ///
    /// `weights`, if given, multiplies the loss of each row; all must be > 0. `watch` counts labels: a leaf
    /// of one of T trees counts for its labels divided by T. Runs on all threads of the pool.
    ///
    /// Memory: copies of `x` and of `y` by label; the label vectors, which have up to as many stored values
    /// as the rows of all labels together, until the trees are grown; 8 bytes for each row, tree and node in
    /// its beam; the problem of one node for each thread; and the model.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the rows of `x`, `y` and `weights` differ; [`Error::Param`] if a value is not
    /// finite as `f32`, or if `C`, `weights` and `x` lead out of the range of `f32`; [`Error::TooLarge`] if
    /// sizes exceed memory or 32 bits; [`Error::Stopped`].
    pub fn fit(
        &self,
        x: Sparse<'_>,
        y: &CsrOwned,
        weights: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        same_rows(x.n_rows(), y.n_rows(), weights, None)?;
        let params = &self.0;
        let n_labels = y.n_cols;
        let x = x.to_owned(params.linear.normalize)?;
        watch.step(0)?;
        let rows_of_label = y.transpose()?;
        watch.step(0)?;
        let is_seen = |&label: &u32| !rows_of_label.row(label as usize).0.is_empty();
        let labels = collected("number of labels", (0..n_labels as u32).filter(is_seen))?;
        let forest = {
            let vectors = label_vectors(&x, &rows_of_label, &labels, watch)?;
            Forest::grow(&vectors, &labels, params, watch)?
        };
        let linear = params.linear.clone().check()?;
        let training = Training {
            x: &x,
            rows_of_label: &rows_of_label,
            weights,
            forest: &forest,
            linear: &linear,
            effort: &Effort::OF_BLOCK,
            max_iter: params.linear.max_iter,
        };
        let mut model = empty(&forest, x.n_cols, n_labels)?;
        let mut beams = Beams::at_roots(x.n_rows(), params.n_trees)?;
        let mut held = if params.linear.learn_cut {
            HeldOut::new(y, params.n_trees)?
        } else {
            None
        };
        let n_done = AtomicUsize::new(0);
        let n_levels = forest.levels.len() - 1;
        for level in 0..n_levels {
            let nodes = forest.levels[level]..forest.levels[level + 1];
            fit_level(
                &training,
                nodes,
                &beams,
                held.as_mut(),
                params,
                &mut model,
                &n_done,
                watch,
            )?;
            if level + 1 < n_levels {
                beams = beams.step(&x, &model, params.beam, watch)?;
            }
        }
        if let Some(held) = held {
            model.cut = held.cut(y, weights, params)?;
        }
        Ok(model)
    }
}

/// A model with the nodes and labels of a forest. Its nodes have no weights yet.
///
/// # Errors
///
/// [`Error::TooLarge`].
fn empty(forest: &Forest, n_features: usize, n_labels: usize) -> Result<Model, Error> {
    let n_nodes = forest.spans.len();
    let mut label_ends = filled("number of nodes", 0i64, 1)?;
    let mut labels = Vec::new();
    for node in 0..n_nodes {
        if forest.children(node).is_empty() {
            let of_leaf = forest.labels(node).iter().map(|&label| label as i32);
            extend("number of labels", &mut labels, of_leaf)?;
        }
        push("number of nodes", &mut label_ends, labels.len() as i64)?;
    }
    Ok(Model {
        n_features,
        n_labels,
        children: copied("number of nodes", &forest.children)?,
        label_ends,
        node_intercept: filled("number of nodes", 0.0, n_nodes)?,
        label_intercept: filled("number of labels", 0.0, labels.len())?,
        labels,
        bucket_ends: filled("number of nodes", 0, 1)?,
        buckets: Vec::new(),
        feature_ends: filled("number of nodes", 0, 1)?,
        features: Vec::new(),
        row_ends: Vec::new(),
        weight_ends: filled("number of nodes", 0, 1)?,
        outputs: Vec::new(),
        weights: Vec::new(),
        cut: None,
        n_unfinished: 0,
        n_iter: 0,
    })
}

/// Fits the nodes of a level and appends their weights to the model. Then the held-out rows move on.
///
/// Nodes are fitted in parallel, each on one thread; weights are appended in order of the nodes. `n_done`
/// counts the labels of the leaves of all trees. A label is reported as progress when as many are done as
/// there are trees.
///
/// # Errors
///
/// Those of [`Desk::fit`], and [`Error::TooLarge`].
#[allow(
    clippy::too_many_arguments,
    reason = "the state of the fit, which only this function changes"
)]
fn fit_level(
    training: &Training<'_>,
    nodes: Range<usize>,
    beams: &Beams,
    held: Option<&mut HeldOut>,
    params: &Params,
    model: &mut Model,
    n_done: &AtomicUsize,
    watch: &Watch,
) -> Result<(), Error> {
    let n_rows = training.x.n_rows();
    let routed = rows_of_nodes(beams.pairs(), &nodes, n_rows)?;
    let n_trees = beams.n_trees;
    let held_rows = held
        .as_ref()
        .map(|held| held.rows_of_nodes(&nodes, n_trees));
    let held_rows = held_rows.transpose()?;
    let held_out = held.as_deref().map(|held| &held.rows[..]);
    let spare = Spare::default();
    let aside = watch.aside();
    let fitted = parts(nodes.clone().into_par_iter().with_max_len(1).map(|node| {
        let is_leaf = training.forest.children(node).is_empty();
        let rows = routed.row(node - nodes.start).0;
        spare.with(
            || Desk::new(training),
            |desk| {
                let at = node - nodes.start;
                let probe = held_out
                    .zip(held_rows.as_ref())
                    .map(|(rows, visits)| Probe {
                        held_out: rows,
                        scored: visits.row(at).0,
                    });
                let fitted = desk.fit(training, node, rows, probe, &aside)?;
                if is_leaf {
                    let n = training.forest.labels(node).len();
                    let before = n_done.fetch_add(n, Relaxed);
                    watch.step((before + n) / n_trees - before / n_trees)?;
                }
                Ok(fitted)
            },
        )
    }))?;
    let mut margins = Vec::new();
    for (node, fitted) in nodes.clone().zip(fitted) {
        let Fitted {
            chunk,
            intercept,
            n_unfinished,
            n_iter,
            of_held_out,
        } = fitted;
        push("number of nodes", &mut margins, of_held_out)?;
        let children = training.forest.children(node);
        if children.is_empty() {
            let labels = model.label_ends[node] as usize..model.label_ends[node + 1] as usize;
            model.label_intercept[labels].copy_from_slice(&intercept);
        } else {
            model.node_intercept[children].copy_from_slice(&intercept);
        }
        model.append(chunk)?;
        model.n_unfinished += n_unfinished;
        model.n_iter = model.n_iter.max(n_iter);
    }
    match held {
        Some(held) => held.step(&nodes, &margins, model, params),
        None => Ok(()),
    }
}

/// The nodes that training rows are sent to.
struct Beams {
    n_trees: usize,
    /// The end of each row's visits.
    ends: Vec<usize>,
    /// The visits of all rows. The slot of a visit is its tree.
    visits: Vec<Visit>,
}

impl Beams {
    /// All rows at the roots of all trees, with probability 1.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    fn at_roots(n_rows: usize, n_trees: usize) -> Result<Self, Error> {
        let root = |at: usize| Visit {
            slot: (at % n_trees) as u32,
            node: (at % n_trees) as u32,
            score: 0.0,
        };
        Ok(Self {
            n_trees,
            ends: collected("number of rows", (1..=n_rows).map(|row| row * n_trees))?,
            visits: collected(NODES, (0..n_rows * n_trees).map(root))?,
        })
    }

    /// The row and the node of each visit.
    fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + Clone {
        let rows = (0..).zip(0..self.ends.len());
        rows.flat_map(|(number, row)| self.row(row).iter().map(move |visit| (number, visit.node)))
    }

    /// The visits of a row.
    fn row(&self, row: usize) -> &[Visit] {
        let begin = row.checked_sub(1).map_or(0, |row| self.ends[row]);
        &self.visits[begin..self.ends[row]]
    }

    /// The beams one level below, computed as in a prediction: with the weights of the model after pruning.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], [`Error::Stopped`].
    fn step(&self, x: &CsrOwned, model: &Model, beam: usize, watch: &Watch) -> Result<Self, Error> {
        let n_rows = self.ends.len();
        let arrays = model.arrays();
        let spare = Spare::default();
        let groups = (0..n_rows.div_ceil(ROWS_AT_ONCE)).into_par_iter();
        let found = parts(groups.map(|group| {
            watch.step(0)?;
            let rows = group * ROWS_AT_ONCE..((group + 1) * ROWS_AT_ONCE).min(n_rows);
            spare.with(
                || Ok(Walk::default()),
                |walk| {
                    walk.clear();
                    for (at, row) in (0..).zip(rows.clone()) {
                        let (cols, values) = x.row(row);
                        walk.add_row(cols.iter().copied(), values.iter().copied())?;
                        walk.resume(self.row(row), at * self.n_trees as u32)?;
                    }
                    walk.step(&arrays, beam)?;
                    let mut ends = reserved("number of rows", rows.len())?;
                    let of_row = |visit: &Visit| visit.slot as usize / self.n_trees;
                    for row in 0..rows.len() {
                        ends.push(walk.visits.partition_point(|visit| of_row(visit) <= row));
                    }
                    let visits = walk.visits.iter().map(|visit| Visit {
                        slot: visit.slot % self.n_trees as u32,
                        ..*visit
                    });
                    Ok((ends, collected(NODES, visits)?))
                },
            )
        }))?;
        let mut next = Self {
            n_trees: self.n_trees,
            ends: reserved("number of rows", n_rows)?,
            visits: reserved(NODES, found.iter().map(|(_, visits)| visits.len()).sum())?,
        };
        for (ends, visits) in found {
            let before = next.visits.len();
            extend(
                "number of rows",
                &mut next.ends,
                ends.iter().map(|end| before + end),
            )?;
            extend(NODES, &mut next.visits, visits)?;
        }
        Ok(next)
    }
}
