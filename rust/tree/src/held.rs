//! Rows that the weights have not seen, from whose scores the threshold is learned.
//!
//! Training rows score higher for their own labels than new rows do. A second fit without some of the rows
//! would cost as much again. Instead, each node is made to forget the held-out rows once its weights are
//! returned: a few steps of the solver adapt them to the other rows. The adapted weights score the held-out
//! rows, and their scores decide where these rows go, level by level, as in a prediction. The cut is the
//! score above which as many labels are predicted as the held-out rows have.

use crate::model::Model;
use crate::params::{Combine, Params};
use crate::walk::{Found, Walk, log_probability};
use manylabel_base::{Error, copied, filled, push};
use manylabel_linear::Tally;
use manylabel_linear::dismec::held_out_rows;
use manylabel_sparse::{CsrOwned, Picked};
use std::ops::Range;

/// The maximum number of held-out rows. With that many, the number of their labels is known to a percent.
const MOST_ROWS: usize = 4096;

/// The fewest labels that the held-out rows must have in all; with fewer, there is no cut.
const FEWEST_POSITIVES: usize = 10;

/// The held-out rows and where they are in the trees.
#[derive(Debug)]
pub(crate) struct HeldOut {
    /// The rows, in increasing order.
    pub(crate) rows: Vec<u32>,
    /// Their beams. A row has the number of its place in `rows`; its features are not used.
    walk: Walk,
}

impl HeldOut {
    /// Draws the rows and sends them to the roots; None if they have too few labels.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    pub(crate) fn new(y: &CsrOwned, n_trees: usize) -> Result<Option<Self>, Error> {
        let mut rows = held_out_rows(y.n_rows())?;
        let every = rows.len().div_ceil(MOST_ROWS).max(1);
        let mut at = 0;
        rows.retain(|_| {
            at += 1;
            (at - 1) % every == 0
        });
        let n_positive: usize = rows.iter().map(|&row| y.row(row as usize).0.len()).sum();
        if n_positive < FEWEST_POSITIVES || rows.len() == y.n_rows() {
            return Ok(None);
        }
        let mut walk = Walk::default();
        for _ in &rows {
            walk.add_row([], [])?;
        }
        walk.start(n_trees)?;
        Ok(Some(Self { rows, walk }))
    }

    /// The places in `rows` of the rows that are sent to each of some nodes; (nodes, rows).
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    pub(crate) fn rows_of_nodes(
        &self,
        nodes: &Range<usize>,
        n_trees: usize,
    ) -> Result<CsrOwned, Error> {
        let visits = self.walk.visits.iter();
        let visits = visits.map(|visit| (visit.slot / n_trees as u32, visit.node));
        rows_of_nodes(visits, nodes, self.rows.len())
    }

    /// Moves the rows that are sent to the nodes of a level on to their children, or notes the scores of
    /// their labels. `margins` has those of each node: row after row, in the order of
    /// [`rows_of_nodes`](Self::rows_of_nodes).
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    pub(crate) fn step(
        &mut self,
        nodes: &Range<usize>,
        margins: &[Vec<f32>],
        model: &Model,
        params: &Params,
    ) -> Result<(), Error> {
        const NODES: &str = "number of nodes that rows are sent to";
        let arrays = model.arrays();
        let mut used = filled("number of nodes", 0, nodes.len())?;
        self.walk.next.clear();
        for visit in &self.walk.visits {
            let node = visit.node as usize;
            let at = node - nodes.start;
            let (children, labels) = (arrays.children(node), arrays.labels(node));
            let n_outputs = children.len() + labels.len();
            let margins = &margins[at][used[at]..used[at] + n_outputs];
            used[at] += n_outputs;
            for (child, &margin) in children.zip(margins) {
                let child = visit.child(child as u32, margin);
                push(NODES, &mut self.walk.next, child)?;
            }
            for (&label, &margin) in arrays.labels[labels].iter().zip(margins) {
                let found = Found::new(visit, label as u32, margin, params.combine);
                push(NODES, &mut self.walk.found, found)?;
            }
        }
        let n_slots = self.rows.len() * params.n_trees;
        self.walk.keep_best(params.beam, n_slots)
    }

    /// The score above which as many labels are predicted as the rows have, weighted by the weights of the
    /// rows.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    pub(crate) fn cut(
        mut self,
        y: &CsrOwned,
        weights: Option<&[f32]>,
        params: &Params,
    ) -> Result<Option<f32>, Error> {
        let weight = |row: u32| weights.map_or(1.0, |weights| weights[row as usize]);
        let n_labels = |row: u32| y.row(row as usize).0.len() as f64;
        let wanted = self
            .rows
            .iter()
            .map(|&row| f64::from(weight(row)) * n_labels(row))
            .sum();
        let mut found = Picked::default();
        self.walk
            .by_row(params.n_trees, params.combine, 0.0, &mut found)?;
        let mut tally = Tally::new(wanted);
        let mut begin = 0;
        for (&row, &end) in self.rows.iter().zip(&found.ends) {
            for &(_, score) in &found.pairs[begin..end] {
                tally.push(score, weight(row))?;
            }
            begin = end;
        }
        Ok(tally.cut(textbook_cut(params.combine)))
    }
}

/// The score of a label whose margin is 0 in a leaf that the row certainly belongs to.
pub(crate) fn textbook_cut(combine: Combine) -> f32 {
    match combine {
        Combine::Leaf => 0.0,
        Combine::Product => log_probability(0.0),
    }
}

/// The rows that visit each of some nodes, in the order of the visits; (nodes, `n_rows`). Visits are pairs of
/// row and node; those of other nodes are skipped.
///
/// # Errors
///
/// [`Error::TooLarge`].
pub(crate) fn rows_of_nodes(
    visits: impl Iterator<Item = (u32, u32)> + Clone,
    nodes: &Range<usize>,
    n_rows: usize,
) -> Result<CsrOwned, Error> {
    const ROWS: &str = "number of rows that nodes are visited by";
    let mut indptr = filled("number of nodes", 0usize, nodes.len() + 1)?;
    let known = |&(_, node): &(u32, u32)| nodes.contains(&(node as usize));
    for (_, node) in visits.clone().filter(known) {
        indptr[node as usize - nodes.start + 1] += 1;
    }
    for node in 0..nodes.len() {
        indptr[node + 1] += indptr[node];
    }
    let size = indptr[nodes.len()];
    let mut next = copied("number of nodes", &indptr)?;
    let mut indices = filled(ROWS, 0u32, size)?;
    for (row, node) in visits.filter(known) {
        let next = &mut next[node as usize - nodes.start];
        indices[*next] = row;
        *next += 1;
    }
    Ok(CsrOwned {
        indptr,
        indices,
        values: filled(ROWS, 0.0, size)?,
        n_cols: n_rows,
    })
}
