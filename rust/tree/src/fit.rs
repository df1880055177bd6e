//! Fits label trees: first the label vectors, then the trees, then the classifiers, level by level.
//!
//! A node is fitted to the rows that have a label below the node and, by default, to the rows that are sent
//! to it. The classifiers of the level above decide which rows are sent to a node. A prediction sends a row to
//! `beam` nodes of a level. A fit sends it to the likely ones among a quarter more nodes ([`Reach::Negatives`]). So
//! the negative rows of a node are likely rows that a prediction would send there, and rows that almost reach it.
//!
//! So the nodes of a level have in total up to `1.25 beam` times the number of training rows. Copying these rows
//! takes one pass. The solver for rare labels searches for rows that violate the margin, with one pass for
//! every thirty-two outputs. It then visits only the positive rows of an output and a few hundred negative rows.
//! So the time of the fit grows with rows × beam × levels and with the number of positive rows of all labels.
//! It does not grow with rows × labels.

use crate::arrays::Arrays;
use crate::grow::Forest;
use crate::model::Model;
use crate::params::{Checked, Combine};
use crate::probability::Link;
use crate::task::Trees;
use crate::walk::{NODES, Visit, Walk};
use crate::weights::WeightsOwned;
use manylabel_base::{
    Error, Spare, Watch, collected, copied, extend, filled, parts, push, reserved,
};
use manylabel_linear::dismec::{Factors, Loss, Outputs, Targets};
use manylabel_sparse::{CsrOwned, Labels, Rows, RowsRef};
use rayon::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The number of rows that are sent to the next level together.
const ROWS_AT_ONCE: usize = 512;

/// The number of nodes of a prediction for each further node of a level that a training row is sent to in a fit.
///
/// A row has higher scores for its own nodes in a fit than in a prediction, because the nodes were fitted to
/// it. So a new row spreads over more nodes than a training row. Without more negative rows, leaves would
/// meet rows that are unlike all rows that they were fitted to. With 14 instead of 7 nodes in a fit and 7 nodes in
/// a prediction, the precision at 1 of one tree rises from 65.7 to 66.7 on citeulike-t (mean of three seeds), and
/// the fit takes 1.4 times as long. On eurlex57k and yso-finna-en, it changes by about 0.1 or less. With 21 nodes,
/// the fit takes 1.6 times as long on citeulike-t, and the precision is the same. Random rows help less than rows
/// that almost reach a node: with 4,000 more rows for each leaf, the precision is 66.2, and the fit takes 1.3 times
/// as long. With 10 nodes in a prediction, 13 and 15 nodes in a fit have the same precision at 1 on citeulike-t within
/// 0.1, and 13 nodes take 0.9 of the time.
const BEAM_PER_FURTHER: usize = 4;

/// A training row is sent only to nodes with a probability of at least `exp(-LEAST_LIKELY)` times the probability
/// of its best node. If the best probability is 1, these are the children with margins above −0.9. At lower
/// margins, rows have nearly no loss, so they would take time and change little. With 4 instead of 7, the
/// precision at 1 of one tree is 0.3 points lower on eurlex57k, and 0.6 points lower on citeulike-t.
const LEAST_LIKELY: f32 = 7.0;

/// The largest number of nodes that are fitted at the same time, divided by the number of threads.
pub(crate) const NODES_PER_THREAD: usize = 4;

impl Checked {
    /// Fits trees over the labels, which are the columns of `y`. A matrix of ones, `Labels` with unknown pairs,
    /// and [`Targets`] with factors can be passed. Unknown pairs are left out of the losses of leaves. In an inner
    /// node, a row is left out of the loss of a child if no label below the child is known to be 1, and a label
    /// below it is unknown.
    ///
    /// Sparse rows must be scaled already if `normalize` is true.
    ///
    /// Labels with similar vectors share a node. `vectors`, if given, has the vector of each label that has a
    /// row, in increasing order of label. By default, the vector of a label is the sum of its rows.
    ///
    /// `weights`, if given, has a factor for the loss of each row. All factors must be > 0. `watch` counts
    /// labels. With T trees, a leaf counts as its number of labels divided by T. The fit runs on all threads
    /// of the pool.
    ///
    /// The fit needs memory for:
    ///
    /// * a transposed copy of `y`;
    /// * the label vectors, until the trees are complete. A label vector has at most one stored value for
    ///   each stored value in the rows of its label, or one value for each feature if `x` is dense;
    /// * up to 72 bytes for each row and tree, times `beam`;
    /// * the rows and weights of up to four nodes for each thread;
    /// * if the exponent of the path or the threshold is learned: 4 bytes for each label of each leaf that a
    ///   held-out row reaches, and up to 50 MB for the labels that are compared, or 250 MB if leaves have one label.
    ///   There are at most 4,096 held-out rows;
    /// * with several trees: up to 16 bytes for each number that a label carries to the next tree. These are the dual variables
    ///   of its positive rows and of four times as many negative rows, or of 200 negative rows if this is more. For
    ///   frequent labels, they are the weights of an absolute value of at least 0.001;
    /// * the model. While its weights are converted to a narrower type, they need memory in both types.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if `x`, `y` and `weights` have different numbers of rows, or if `vectors` does
    /// not have one row for each label that has a row. Returns [`Error::Param`] if a value is not finite as
    /// `f32`, or if `C`, `weights` and `x` are so large or small that results leave the range of `f32`. Also
    /// returns [`Error::Param`] if the weights are to be stored as 16-bit floats, and one of them is too large.
    /// Returns [`Error::TooLarge`] if memory is short, or if a size does not fit in 32 bits. Returns
    /// [`Error::Stopped`] if the caller requested a stop.
    pub fn fit<'a>(
        &self,
        x: Rows<'_>,
        y: impl Into<Targets<'a>>,
        weights: Option<&'a [f32]>,
        vectors: Option<CsrOwned>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        let y = y.into();
        let mut task = self.task(x, y, weights, Trees::Grow(vectors), watch)?;
        while !task.nodes().is_empty() {
            let level = task.fit(task.nodes(), watch)?;
            task.complete(&[level], watch)?;
        }
        task.learn(watch)?;
        task.take_model()
    }
}

/// How many nodes of a level a row is sent to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reach {
    /// The given number of nodes, as in a prediction.
    Beam(usize),
    /// The likely ones among a quarter more nodes, for which the row is a negative row. The number is the one of a
    /// prediction.
    Negatives(usize),
}

/// Checks targets and returns them.
///
/// # Errors
///
/// Returns the errors of [`Targets::check`].
pub(crate) fn checked(targets: Targets<'_>) -> Result<Targets<'_>, Error> {
    targets.check()?;
    Ok(targets)
}

/// Returns the rows of each label of `y`, with a copy of the factors.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
pub(crate) fn outputs(y: Labels<'_>, factors: Option<&[Factors]>) -> Result<Outputs, Error> {
    let factors = factors.map(|factors| copied("number of labels", factors));
    Ok(Outputs {
        rows_of_label: y.ones.transpose()?,
        unknown: y.unknown.map(CsrOwned::transpose).transpose()?,
        factors: factors.transpose()?,
    })
}

/// Returns a model with the nodes and labels of a forest. The nodes do not have weights yet.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
pub(crate) fn empty(
    forest: &Forest,
    n_features: usize,
    n_labels: usize,
    (combine, loss): (Combine, Loss),
) -> Result<Model, Error> {
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
        weights: WeightsOwned::Float32(Vec::new()),
        node_scale: Vec::new(),
        label_scale: Vec::new(),
        link: Link::of_loss(loss),
        combine,
        cut: None,
        n_unfinished: 0,
        n_iter: 0,
    })
}

/// Counts `n` labels of finished leaves in `n_done`, which counts the labels of all trees. The progress in `watch`
/// is `n_done` divided by the number of trees, rounded down.
///
/// # Errors
///
/// Returns [`Error::Stopped`] if the caller requested a stop.
pub(crate) fn count_labels(
    n_done: &AtomicUsize,
    n: usize,
    n_trees: usize,
    watch: &Watch,
) -> Result<(), Error> {
    let before = n_done.fetch_add(n, Relaxed);
    watch.step((before + n) / n_trees - before / n_trees)
}

/// The beams of all training rows. The beam of a row has the nodes that the row is sent to, in all trees.
#[derive(Debug)]
pub(crate) struct Beams {
    /// The number of trees.
    n_trees: usize,
    /// The position in `visits` at which the visits of each row end.
    ends: Vec<usize>,
    /// The visits of all rows, row after row. The slot of a visit is the number of its tree.
    visits: Vec<Visit>,
}

impl Beams {
    /// Sends all rows to the roots of all trees, with probability 1.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn at_roots(n_rows: usize, n_trees: usize) -> Result<Self, Error> {
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

    /// Returns the number of rows.
    pub(crate) fn n_rows(&self) -> usize {
        self.ends.len()
    }

    /// Returns the row and the node of each visit.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + Clone {
        let rows = (0..).zip(0..self.ends.len());
        rows.flat_map(|(number, row)| self.row(row).iter().map(move |visit| (number, visit.node)))
    }

    /// Returns the visits of a row.
    pub(crate) fn row(&self, row: usize) -> &[Visit] {
        let begin = row.checked_sub(1).map_or(0, |row| self.ends[row]);
        &self.visits[begin..self.ends[row]]
    }

    /// Returns true if a beam has a node with children.
    pub(crate) fn has_inner(&self, model: &Arrays<'_>) -> bool {
        let is_inner = |visit: &Visit| !model.children(visit.node as usize).is_empty();
        self.visits.iter().any(is_inner)
    }

    /// Returns the beams one level below. Leaves stay in the beams. Like a prediction, this function uses the
    /// pruned weights of the model.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the caller requested a
    /// stop.
    pub(crate) fn step(
        &self,
        x: RowsRef<'_, '_>,
        model: &Arrays<'_>,
        reach: Reach,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let n_rows = self.ends.len();
        let spare = Spare::default();
        let groups = (0..n_rows.div_ceil(ROWS_AT_ONCE)).into_par_iter();
        let found = parts(groups.map(|group| {
            watch.step(0)?;
            let rows = group * ROWS_AT_ONCE..((group + 1) * ROWS_AT_ONCE).min(n_rows);
            spare.with(
                || Ok((Walk::default(), Vec::new())),
                |(walk, dense)| {
                    walk.clear();
                    if let RowsRef::Dense(x) = x {
                        let size = ROWS_AT_ONCE * x.dim();
                        if dense.len() < size {
                            *dense = filled("number of features of some rows", 0.0, size)?;
                        }
                        x.read(rows.clone(), dense);
                    }
                    for (at, row) in (0..).zip(rows.clone()) {
                        match x {
                            RowsRef::Sparse(x) => {
                                let (cols, values) = x.row(row);
                                walk.add_row(cols.iter().copied(), values.iter().copied())?;
                            }
                            RowsRef::Dense(x) => {
                                let first = (row - rows.start) * x.dim();
                                let values = dense[first..first + x.dim()].iter().copied();
                                walk.add_row(0..x.dim() as u32, values)?;
                            }
                        }
                        walk.resume(self.row(row), at * self.n_trees as u32)?;
                    }
                    match reach {
                        Reach::Beam(beam) => {
                            walk.step(model, beam)?;
                        }
                        Reach::Negatives(beam) => {
                            let further = beam.div_ceil(BEAM_PER_FURTHER);
                            walk.step(model, beam.saturating_add(further))?;
                            walk.keep_likely(LEAST_LIKELY);
                        }
                    }
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
