//! Fits label trees in pieces. A piece is the fit of a range of nodes of one level.
//!
//! The nodes of a level are independent of each other. They depend on the levels above, which decide the rows that
//! are sent to a node. So the pieces of a level can be fitted at different times, in different processes and on
//! different machines, and each process needs all pieces of a level before it can fit a piece of the next level.
//! Given these pieces, it sends all rows to the next level itself. A piece depends only on the data, the parameters
//! and its nodes, and the joined result is the same as that of one fit, bit for bit.

use crate::carry::{Carried, States};
use crate::fit::{Beams, NODES_PER_THREAD, Reach, count_labels, empty, outputs};
use crate::grow::{Forest, Span};
use crate::held::{HeldOut, rows_of_nodes, textbook};
use crate::model::Model;
use crate::node::{Desk, Examples, Fitted, Probe, Relay, Training, effort};
use crate::params::{Checked, Combine, Negatives, Params};
use crate::vectors::{label_vectors, unit_vectors};
use crate::weights::WeightsOwned;
use manylabel_base::range::{ensure, same, same_rows};
use manylabel_base::{Error, Spare, Watch, collected, copied, extend, filled, parts, push};
use manylabel_linear::dismec::{self, Loss, Outputs, Solver, Targets};
use manylabel_sparse::{CsrOwned, Labels, Rows, Stored};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;

/// The name of nodes in error messages.
const NODES: &str = "number of nodes";

/// The name of weights in error messages.
const WEIGHTS: &str = "number of weights";

/// The trees of a fit.
#[derive(Debug)]
pub enum Trees {
    /// The trees are grown from the vectors of the labels that have a row, in increasing order of label. `None`
    /// means that the vector of a label is the sum of its rows.
    Grow(Option<CsrOwned>),
    /// The trees are known.
    Given(TreeArrays),
}

/// The trees of a fit, as arrays that can be stored in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeArrays {
    /// Node v has the children `children[v]..children[v + 1]`. The first entry is the number of trees.
    pub children: Vec<i64>,
    /// Three numbers for each node: its tree, and the positions of its first label and after its last label in the
    /// list of the tree.
    pub spans: Vec<u32>,
    /// The first node of each level, and the number of nodes.
    pub levels: Vec<i64>,
    /// The lists of the labels of all trees, one after the other. All lists have the same length.
    pub orders: Vec<u32>,
}

impl TreeArrays {
    /// Copies the trees of a fit.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn of(forest: &Forest) -> Result<Self, Error> {
        let spans = forest.spans.iter();
        let spans = spans.flat_map(|span| [span.tree, span.begin, span.end]);
        Ok(Self {
            children: copied(NODES, &forest.children)?,
            spans: collected(NODES, spans)?,
            levels: collected(
                "number of levels",
                forest.levels.iter().map(|&at| at as i64),
            )?,
            orders: collected("number of labels", forest.orders.iter().flatten().copied())?,
        })
    }

    /// Converts the arrays to the trees of a fit.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the arrays do not describe trees over at most `n_labels` labels.
    fn forest(self, n_labels: usize) -> Result<Forest, Error> {
        let n_nodes = self.spans.len() / 3;
        let n_trees = self.children.first().map_or(0, |&n| n.max(0) as usize);
        let mut orders = collected("number of trees", (0..n_trees).map(|_| Vec::new()))?;
        let length = self.orders.len().checked_div(n_trees).unwrap_or(0);
        for (order, labels) in orders.iter_mut().zip(self.orders.chunks(length.max(1))) {
            *order = copied("number of labels", labels)?;
        }
        let span = |of: &[u32]| Span {
            tree: of[0],
            begin: of[1],
            end: of[2],
        };
        let spans: Vec<Span> = collected(NODES, self.spans.chunks_exact(3).map(span))?;
        let levels = self.levels.iter().map(|&at| at.max(0) as usize);
        let levels: Vec<usize> = collected("number of levels", levels)?;
        let are_spans = |span: &Span| {
            (span.tree as usize) < n_trees && span.begin <= span.end && span.end as usize <= length
        };
        let are_trees = self.spans.len() == 3 * n_nodes
            && self.children.len() == n_nodes + 1
            && self.children.is_sorted()
            && self.children.last() == Some(&(n_nodes as i64))
            && levels.first() == Some(&0)
            && levels.last() == Some(&n_nodes)
            && levels.is_sorted()
            && self.orders.len() == length * n_trees
            && self.orders.iter().all(|&label| (label as usize) < n_labels)
            && spans.iter().all(are_spans);
        ensure(
            "trees",
            are_trees,
            "the trees of a fit",
            "arrays that are not consistent",
        )?;
        Ok(Forest {
            children: self.children,
            spans,
            levels,
            orders,
        })
    }
}

/// The fitted classifiers of a range of nodes of one level. The weights are stored as in
/// [`Arrays`](crate::Arrays), and positions count from the first node of the piece.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are documented in `Arrays`")]
pub struct Piece {
    pub bucket_ends: Vec<i64>,
    pub buckets: Vec<u32>,
    pub feature_ends: Vec<i64>,
    pub features: Vec<u32>,
    pub row_ends: Vec<u32>,
    pub weight_ends: Vec<i64>,
    pub outputs: Vec<u16>,
    pub weights: Vec<f32>,
    /// The intercepts of the outputs of all nodes, node after node.
    pub intercept: Vec<f32>,
    /// The position in `margins` after the last margin of each node, with a leading 0.
    pub margin_ends: Vec<i64>,
    /// The margins of the held-out rows that are sent to each node, row after row.
    pub margins: Vec<f32>,
    /// The states of the labels of the leaves of the piece, from which the next tree begins. If there is no next tree,
    /// there are none.
    pub states: States,
    /// The number of classifiers that did not converge.
    pub n_unfinished: usize,
    /// The largest number of steps of a classifier.
    pub n_iter: u32,
}

impl Piece {
    /// Returns a piece without nodes.
    fn new() -> Result<Self, Error> {
        let start = || filled(NODES, 0i64, 1);
        Ok(Self {
            bucket_ends: start()?,
            buckets: Vec::new(),
            feature_ends: start()?,
            features: Vec::new(),
            row_ends: Vec::new(),
            weight_ends: start()?,
            outputs: Vec::new(),
            weights: Vec::new(),
            intercept: Vec::new(),
            margin_ends: start()?,
            margins: Vec::new(),
            states: States::new()?,
            n_unfinished: 0,
            n_iter: 0,
        })
    }

    /// Returns the number of nodes.
    pub fn n_nodes(&self) -> usize {
        self.weight_ends.len().saturating_sub(1)
    }

    /// Appends a node.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn push(&mut self, node: Fitted) -> Result<(), Error> {
        let chunk = node.chunk;
        extend(WEIGHTS, &mut self.buckets, chunk.buckets)?;
        extend(WEIGHTS, &mut self.features, chunk.features)?;
        extend(WEIGHTS, &mut self.row_ends, chunk.row_ends)?;
        extend(WEIGHTS, &mut self.outputs, chunk.outputs)?;
        extend(WEIGHTS, &mut self.weights, chunk.weights)?;
        push(NODES, &mut self.bucket_ends, self.buckets.len() as i64)?;
        push(NODES, &mut self.feature_ends, self.features.len() as i64)?;
        push(NODES, &mut self.weight_ends, self.weights.len() as i64)?;
        extend(NODES, &mut self.intercept, node.intercept)?;
        extend(
            "number of held-out rows",
            &mut self.margins,
            node.of_held_out,
        )?;
        push(NODES, &mut self.margin_ends, self.margins.len() as i64)?;
        for state in &node.carried {
            self.states.push(state)?;
        }
        self.n_unfinished += node.n_unfinished;
        self.n_iter = self.n_iter.max(node.n_iter);
        Ok(())
    }

    /// Checks that the arrays belong together, so that they can come from a file.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if they do not.
    fn check(&self) -> Result<(), Error> {
        let ends = |ends: &[i64], length: usize| {
            ends.len() == self.weight_ends.len()
                && ends.first() == Some(&0)
                && ends.last() == Some(&(length as i64))
                && ends.is_sorted()
        };
        let fits = ends(&self.bucket_ends, self.buckets.len())
            && ends(&self.feature_ends, self.features.len())
            && ends(&self.weight_ends, self.weights.len())
            && ends(&self.margin_ends, self.margins.len())
            && self.row_ends.len() == self.features.len()
            && self.outputs.len() == self.weights.len();
        ensure(
            "piece",
            fits,
            "the fit of some nodes",
            "arrays that are not consistent",
        )
    }

    /// Appends the nodes to a model, whose next node is `first`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short, and [`Error::Shape`] if the piece has another number of
    /// intercepts than its nodes have outputs.
    fn append_to(&self, model: &mut Model, forest: &Forest, first: usize) -> Result<(), Error> {
        self.check()?;
        let WeightsOwned::Float32(weights) = &mut model.weights else {
            unreachable!("weights are converted after the last piece");
        };
        let after = |ends: &[i64], before: usize| {
            let ends = ends[1..].iter().map(|&end| end + before as i64);
            collected(NODES, ends)
        };
        let bucket_ends: Vec<i64> = after(&self.bucket_ends, model.buckets.len())?;
        let feature_ends: Vec<i64> = after(&self.feature_ends, model.features.len())?;
        let weight_ends: Vec<i64> = after(&self.weight_ends, weights.len())?;
        extend(NODES, &mut model.bucket_ends, bucket_ends)?;
        extend(NODES, &mut model.feature_ends, feature_ends)?;
        extend(NODES, &mut model.weight_ends, weight_ends)?;
        extend(WEIGHTS, &mut model.buckets, self.buckets.iter().copied())?;
        extend(WEIGHTS, &mut model.features, self.features.iter().copied())?;
        extend(WEIGHTS, &mut model.row_ends, self.row_ends.iter().copied())?;
        extend(WEIGHTS, &mut model.outputs, self.outputs.iter().copied())?;
        extend(WEIGHTS, weights, self.weights.iter().copied())?;
        let mut at = 0;
        for node in first..first + self.n_nodes() {
            let children = forest.children(node);
            let into = if children.is_empty() {
                let of_leaf = model.label_ends[node] as usize..model.label_ends[node + 1] as usize;
                &mut model.label_intercept[of_leaf]
            } else {
                &mut model.node_intercept[children]
            };
            let end = at + into.len();
            let Some(intercept) = self.intercept.get(at..end) else {
                return Err(self.other_outputs(end));
            };
            into.copy_from_slice(intercept);
            at = end;
        }
        if at != self.intercept.len() {
            return Err(self.other_outputs(at));
        }
        model.n_unfinished += self.n_unfinished;
        model.n_iter = model.n_iter.max(self.n_iter);
        Ok(())
    }

    /// Returns the error for a piece that has not the intercepts of its nodes.
    fn other_outputs(&self, expected: usize) -> Error {
        Error::Shape {
            what: "intercepts of a piece",
            expected,
            got: self.intercept.len(),
        }
    }
}

/// A training set, its trees, and the levels that are complete.
#[derive(Debug)]
pub struct Task<'a, 'x> {
    params: Params,
    linear: dismec::Checked,
    x: Rows<'x>,
    y: Labels<'a>,
    weights: Option<&'a [f32]>,
    outputs: Outputs,
    forest: Forest,
    /// The nodes of the complete levels.
    model: Model,
    /// The nodes that each row is sent to.
    beams: Beams,
    held: Option<HeldOut>,
    /// The states of the labels in the last tree that was fitted. `None` if there is one tree.
    carried: Option<Carried>,
    /// The first level that is not complete.
    level: usize,
    /// Counts the labels of the leaves that were fitted, in all trees.
    n_done: AtomicUsize,
}

impl Checked {
    /// Prepares a training set, to fit trees level by level. Sparse rows must be scaled already if `normalize` is true.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`fit`](Self::fit). Also returns [`Error::Param`] if the given trees are not
    /// the trees of a fit.
    pub fn task<'a, 'x>(
        &self,
        x: Rows<'x>,
        y: Targets<'a>,
        weights: Option<&'a [f32]>,
        trees: Trees,
        watch: &Watch,
    ) -> Result<Task<'a, 'x>, Error> {
        let Targets {
            labels: y, factors, ..
        } = crate::fit::checked(y)?;
        same_rows(x.view().n_rows(), y.ones.n_rows(), weights, None)?;
        let params = &self.0;
        let n_labels = y.ones.n_cols;
        watch.step(0)?;
        let outputs = outputs(y, factors)?;
        watch.step(0)?;
        let held = if params.linear.learn_cut || params.combine.is_none() {
            HeldOut::new(y, params)?
        } else {
            None
        };
        let forest = match trees {
            Trees::Given(arrays) => arrays.forest(n_labels)?,
            Trees::Grow(vectors) => {
                let rows = &outputs.rows_of_label;
                let is_seen = |&label: &u32| !rows.row(label as usize).0.is_empty();
                let labels = (0..n_labels as u32).filter(is_seen);
                let labels = collected("number of labels", labels)?;
                let vectors = if let Some(vectors) = vectors {
                    Stored::Owned(unit_vectors(vectors, labels.len())?)
                } else {
                    let held = held.as_ref().map_or(&[][..], |held| &held.rows);
                    label_vectors(x.view(), rows, held, &labels, watch)?
                };
                Forest::grow(vectors.view(), &labels, params, watch)?
            }
        };
        let combine = params.combine.unwrap_or_else(textbook);
        // The logistic loss is minimized over all rows, as by the exact solver.
        let is_fast =
            params.linear.solver == Solver::Fast && params.linear.loss == Loss::SquaredHinge;
        let carried = if params.n_trees > 1 && is_fast {
            let n_weights = x.view().n_features() + usize::from(params.linear.fit_intercept);
            Some(Carried::new(n_labels, x.view().n_rows(), n_weights)?)
        } else {
            None
        };
        Ok(Task {
            linear: params.linear.clone().check()?,
            model: empty(
                &forest,
                x.view().n_features(),
                n_labels,
                (combine, params.linear.loss),
            )?,
            beams: Beams::at_roots(x.view().n_rows(), params.n_trees)?,
            params: params.clone(),
            x,
            y,
            weights,
            outputs,
            forest,
            held,
            carried,
            level: 0,
            n_done: AtomicUsize::new(0),
        })
    }
}

impl Task<'_, '_> {
    /// Returns the first node of each level, and the number of nodes.
    pub fn levels(&self) -> &[usize] {
        &self.forest.levels
    }

    /// Copies the trees.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub fn trees(&self) -> Result<TreeArrays, Error> {
        TreeArrays::of(&self.forest)
    }

    /// Returns the nodes of the first level that is not complete. The range is empty if all levels are complete.
    pub fn nodes(&self) -> Range<usize> {
        let end = self.forest.spans.len();
        let at = |level: usize| self.forest.levels.get(level).copied().unwrap_or(end);
        at(self.level)..at(self.level + 1)
    }

    /// Fits some of the nodes of the first level that is not complete. `watch` counts labels: with T trees, a leaf
    /// counts as its number of labels divided by T.
    ///
    /// Nodes are fitted in parallel, and so are the outputs of a node. So levels with few nodes also use all
    /// threads.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if nodes belong to another level. Otherwise returns the errors of
    /// [`Checked::fit`].
    pub fn fit(&self, nodes: Range<usize>, watch: &Watch) -> Result<Piece, Error> {
        let level = self.nodes();
        ensure(
            "nodes",
            level.start <= nodes.start && nodes.start <= nodes.end && nodes.end <= level.end,
            "nodes of the level after the last complete level",
            format_args!("{nodes:?}, but the level has the nodes {level:?}"),
        )?;
        let training = Training {
            examples: Examples {
                x: self.x.view(),
                weights: self.weights,
                linear: &self.linear,
                effort: effort(self.params.n_trees, self.params.measurements),
            },
            labels: &self.outputs,
            forest: &self.forest,
            max_iter: self.params.linear.max_iter,
        };
        let n_rows = self.x.view().n_rows();
        let n_trees = self.params.n_trees;
        let routed = match self.params.negatives {
            Negatives::Routed => rows_of_nodes(self.beams.pairs(), &nodes, n_rows)?,
            Negatives::Siblings => rows_of_nodes(std::iter::empty(), &nodes, n_rows)?,
        };
        let held = self.held.as_ref();
        let held_rows = held.map(|held| held.rows_of_nodes(&nodes, n_trees));
        let held_rows = held_rows.transpose()?;
        let held_out = held.map(|held| &held.rows[..]);
        let spare = Spare::default();
        let aside = watch.aside();
        let fit_node = |node: usize| {
            let at = node - nodes.start;
            spare.with(
                || Desk::new(training.examples.x),
                |desk| {
                    let probe = held_out
                        .zip(held_rows.as_ref())
                        .map(|(rows, visits)| Probe {
                            held_out: rows,
                            scored: visits.row(at).0,
                        });
                    let relay = self.relay(node)?;
                    let fitted =
                        desk.fit(&training, node, routed.row(at).0, probe, &relay, &aside)?;
                    self.params.weights.check(fitted.chunk.weights())?;
                    if self.forest.children(node).is_empty() {
                        let n = self.forest.labels(node).len();
                        count_labels(&self.n_done, n, n_trees, watch)?;
                    }
                    Ok(fitted)
                },
            )
        };
        // A thread that waits for outputs of its node may begin another node. Batches limit the nodes in progress.
        let at_once = NODES_PER_THREAD * rayon::current_num_threads();
        let mut piece = Piece::new()?;
        for first in nodes.clone().step_by(at_once) {
            let batch = first..nodes.end.min(first + at_once);
            for fitted in parts(batch.into_par_iter().map(fit_node))? {
                piece.push(fitted)?;
            }
        }
        Ok(piece)
    }

    /// Returns the states from which a node begins, and whether it returns its own for the next tree.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn relay(&self, node: usize) -> Result<Relay<'_>, Error> {
        match &self.carried {
            Some(carried) if self.forest.children(node).is_empty() => Ok(Relay {
                from: Some(carried.of_labels(self.forest.labels(node))?),
                carries: (self.forest.spans[node].tree as usize) + 1 < self.params.n_trees,
            }),
            _ => Ok(Relay::default()),
        }
    }

    /// Completes a level. `pieces` has all nodes of the level, in order. Then sends the rows to the next level.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if `pieces` does not have as many nodes as the level. Returns [`Error::Param`] if
    /// the arrays of a piece do not belong together. Returns [`Error::TooLarge`] if memory is short, and
    /// [`Error::Stopped`] if the caller requested a stop.
    pub fn complete(&mut self, pieces: &[Piece], watch: &Watch) -> Result<(), Error> {
        let nodes = self.nodes();
        let n_nodes = pieces.iter().map(Piece::n_nodes).sum();
        same("nodes of a level", nodes.len(), n_nodes)?;
        let mut first = nodes.start;
        let mut margins = Vec::new();
        for piece in pieces {
            piece.append_to(&mut self.model, &self.forest, first)?;
            if let Some(carried) = &mut self.carried {
                let leaves = (first..first + piece.n_nodes()).filter(|&node| {
                    let has_next =
                        (self.forest.spans[node].tree as usize) + 1 < self.params.n_trees;
                    has_next && self.forest.children(node).is_empty()
                });
                let labels = leaves.flat_map(|node| self.forest.labels(node));
                carried.replace(labels.copied(), &piece.states)?;
            }
            first += piece.n_nodes();
            for ends in piece.margin_ends.windows(2) {
                let of_node = &piece.margins[ends[0] as usize..ends[1] as usize];
                push(NODES, &mut margins, of_node)?;
            }
        }
        if let Some(held) = &mut self.held {
            held.step(&nodes, &margins, self.y, &self.model, &self.params)?;
        }
        self.level += 1;
        // The nodes of all trees at the same depth are consecutive, and they are in increasing order of tree.
        let tree = |node: usize| self.forest.spans[node].tree;
        let next = self.nodes();
        let is_deeper = !next.is_empty() && tree(next.start) <= tree(nodes.end - 1);
        if is_deeper && self.params.negatives == Negatives::Routed {
            let (x, arrays) = (self.x.view(), self.model.arrays());
            self.beams = self
                .beams
                .step(x, &arrays, Reach::Negatives(self.params.beam), watch)?;
        }
        Ok(())
    }

    /// Learns the exponent of the path and the threshold from the held-out rows, if they are to be learned. All
    /// levels must be complete. Returns the combination and the threshold.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a level is not complete. Returns [`Error::TooLarge`] if memory is short, and
    /// [`Error::Stopped`] if the caller requested a stop.
    pub fn learn(&mut self, watch: &Watch) -> Result<(Combine, Option<f32>), Error> {
        ensure(
            "trees",
            self.nodes().is_empty(),
            "complete",
            format_args!("{} complete levels", self.level),
        )?;
        if let Some(mut held) = self.held.take() {
            let n_trees = self.params.n_trees;
            held.finish()?;
            if self.params.combine.is_none() {
                self.model.combine = held.best_combination(self.y, self.weights, n_trees, watch)?;
            }
            if self.params.linear.learn_cut {
                self.model.cut = held.cut(self.y, self.weights, n_trees, self.model.combine)?;
            }
        }
        Ok((self.model.combine, self.model.cut))
    }

    /// Moves the model out of the task, with weights of the wanted type. The task cannot be used afterwards.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub fn take_model(&mut self) -> Result<Model, Error> {
        let nothing = TreeArrays {
            children: filled(NODES, 0, 1)?,
            spans: Vec::new(),
            levels: filled(NODES, 0, 1)?,
            orders: Vec::new(),
        };
        let nothing = empty(
            &nothing.forest(0)?,
            0,
            0,
            (textbook(), self.params.linear.loss),
        )?;
        let mut model = std::mem::replace(&mut self.model, nothing);
        model.narrow(self.params.weights)?;
        Ok(model)
    }
}

/// Joins the pieces of all levels, in order, to a model of shape (`n_labels`, `n_features`). `params` are the
/// parameters of the fit. The model has neither
/// a learned exponent nor a learned threshold; [`Task::learn`] returns them.
///
/// # Errors
///
/// Returns [`Error::Shape`] if `pieces` does not have as many nodes as the trees. Returns [`Error::Param`] if
/// arrays do not belong together, and [`Error::TooLarge`] if memory is short.
pub fn joined(
    trees: TreeArrays,
    (n_labels, n_features): (usize, usize),
    pieces: impl IntoIterator<Item = Result<Piece, Error>>,
    params: &Checked,
) -> Result<Model, Error> {
    let forest = trees.forest(n_labels)?;
    let scoring = (textbook(), params.0.linear.loss);
    let mut model = empty(&forest, n_features, n_labels, scoring)?;
    let (n_nodes, mut first) = (forest.spans.len(), 0);
    for piece in pieces {
        let piece = piece?;
        let end = first + piece.n_nodes();
        if end > n_nodes {
            return Err(Error::Shape {
                what: "nodes of all pieces",
                expected: n_nodes,
                got: end,
            });
        }
        piece.append_to(&mut model, &forest, first)?;
        first = end;
    }
    same("nodes of all pieces", n_nodes, first)?;
    model.narrow(params.0.weights)?;
    Ok(model)
}
