//! Fits the classifiers of one node.
//!
//! The outputs of an inner node are its children, and the outputs of a leaf are its labels. Each output has a
//! linear classifier. The rows of the node are copied once for all outputs.
//!
//! The rows of a node have entries in few of the features. The columns of the copy are renumbered without the
//! empty columns. So the vectors of the solver are short and stay in cache.

use crate::gather::Columns;
use crate::grow::Forest;
use crate::model::ChunkOwned;
use manylabel_base::{Error, Watch, collected, extend, filled, reserved};
use manylabel_linear::dismec::{Block, Checked, Effort, Forgotten, Solution};
use manylabel_sparse::CsrOwned;

/// The name of the rows of a node in error messages.
const ROWS: &str = "rows of a node";

/// The training rows and the parameters of the solver. All nodes use the same ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Examples<'a> {
    /// The training rows, already scaled; (`n_rows`, `n_features`).
    pub(crate) x: &'a CsrOwned,
    /// The weights of the rows; `None` if all weights are 1.
    pub(crate) weights: Option<&'a [f32]>,
    /// The parameters of the linear classifiers.
    pub(crate) linear: &'a Checked,
    /// The settings of the solver for rare labels.
    pub(crate) effort: &'a Effort,
}

/// The training set, the trees and the parameters. All nodes use the same ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Training<'a> {
    /// The training rows and the parameters of the solver.
    pub(crate) examples: Examples<'a>,
    /// The rows that have each label; (`n_labels`, `n_rows`).
    pub(crate) rows_of_label: &'a CsrOwned,
    /// The trees.
    pub(crate) forest: &'a Forest,
    /// The largest number of steps of a classifier.
    pub(crate) max_iter: usize,
}

/// The fitted classifiers of a node.
#[derive(Debug)]
pub(crate) struct Fitted {
    /// The pruned weights of all outputs.
    pub(crate) chunk: ChunkOwned,
    /// The intercept of each output.
    pub(crate) intercept: Vec<f32>,
    /// The number of outputs that did not converge.
    pub(crate) n_unfinished: usize,
    /// The largest number of steps of an output.
    pub(crate) n_iter: u32,
    /// The margins of the rows in [`Probe::scored`], row after row. They are computed from weights that were
    /// adapted to the rows that are not held out.
    pub(crate) of_held_out: Vec<f32>,
}

/// The held-out rows, and the selection of held-out rows that a node scores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe<'a> {
    /// All held-out rows, in increasing order.
    pub(crate) held_out: &'a [u32],
    /// The positions in `held_out` of the rows that the node scores.
    pub(crate) scored: &'a [u32],
}

/// The memory that a thread needs to fit nodes. The thread uses it for all of its nodes. Takes 4 bytes
/// for each row and each feature of the training set.
#[derive(Debug)]
pub(crate) struct Desk {
    /// Copies rows with renumbered columns.
    columns: Columns,
    /// The position of each row of the node among the rows of the node. The entries of other rows are not
    /// valid.
    place: Vec<u32>,
}

impl Desk {
    /// Allocates the memory for nodes with rows of `x`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn new(x: &CsrOwned) -> Result<Self, Error> {
        Ok(Self {
            columns: Columns::new(x.n_cols)?,
            place: filled("number of rows", 0, x.n_rows())?,
        })
    }

    /// Returns the original number of each column of the weights that [`solve`](Self::solve) returned last, in
    /// increasing order.
    pub(crate) fn features(&self) -> &[u32] {
        self.columns.kept()
    }

    /// Fits the classifiers of a node, on all threads of the pool.
    ///
    /// The classifiers are fitted to the rows in `routed` and to all rows that have a label below the
    /// node. `routed` has the rows that the levels above send to the node. If `probe` is given, the
    /// held-out rows in it are scored too. `watch` counts outputs.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a value is out of the range of the solver. Returns [`Error::TooLarge`] if
    /// memory is short. Returns [`Error::Stopped`] if the watch was stopped.
    pub(crate) fn fit(
        &mut self,
        training: &Training<'_>,
        node: usize,
        routed: &[u32],
        probe: Option<Probe<'_>>,
        watch: &Watch,
    ) -> Result<Fitted, Error> {
        let positives = positives(training, node)?;
        let solution = self.solve(&training.examples, positives, routed, probe, watch)?;
        let unfinished = |&&n_iter: &&u32| n_iter as usize >= training.max_iter;
        Ok(Fitted {
            chunk: ChunkOwned::new(&solution.weights, self.columns.kept())?,
            intercept: solution.intercept,
            n_unfinished: solution.n_iter.iter().filter(unfinished).count(),
            n_iter: solution.n_iter.iter().copied().max().unwrap_or(0),
            of_held_out: solution.forgotten,
        })
    }

    /// Fits a classifier for each row of `positives`, on all threads of the pool.
    ///
    /// `positives` has the positive rows of each classifier; (outputs, `n_rows`). The classifiers are fitted to
    /// these rows and to the rows in `routed`. If `probe` is given, the held-out rows in it are scored too.
    /// [`features`](Self::features) returns the original numbers of the columns of the weights. `watch` counts
    /// outputs.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`fit`](Self::fit).
    pub(crate) fn solve(
        &mut self,
        examples: &Examples<'_>,
        mut positives: CsrOwned,
        routed: &[u32],
        probe: Option<Probe<'_>>,
        watch: &Watch,
    ) -> Result<Solution, Error> {
        let mut rows = reserved(ROWS, routed.len() + positives.indices.len())?;
        extend(ROWS, &mut rows, routed.iter().copied())?;
        extend(ROWS, &mut rows, positives.indices.iter().copied())?;
        rows.sort_unstable();
        rows.dedup();
        for (place, &row) in (0..).zip(&rows) {
            self.place[row as usize] = place;
        }
        for row in &mut positives.indices {
            *row = self.place[*row as usize];
        }
        positives.n_cols = rows.len();
        let weights = examples.weights.map(|weights| {
            let of_rows = rows.iter().map(|&row| weights[row as usize]);
            collected(ROWS, of_rows)
        });
        let weights = weights.transpose()?;
        let x = self.columns.gather(examples.x, rows.iter().copied())?;
        let probe = match probe {
            Some(probe) => Some(self.probe(examples.x, &rows, probe)?),
            None => None,
        };
        let block = Block {
            x,
            rows_of_label: positives,
            weights: weights.as_deref(),
            forgotten: probe
                .as_ref()
                .map(|(rows, scored)| Forgotten { rows, scored }),
        };
        examples.linear.fit_block(block, examples.effort, watch)
    }

    /// Selects the held-out rows of a node and copies the rows that the node scores.
    ///
    /// The first result has the positions of the held-out rows among `rows`, the rows of the node. This
    /// list is empty if all rows of the node are held out. The second result has the rows that the node
    /// scores, with the columns of the last copy.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn probe(
        &self,
        x: &CsrOwned,
        rows: &[u32],
        probe: Probe<'_>,
    ) -> Result<(Vec<u32>, CsrOwned), Error> {
        let is_here = |&&row: &&u32| rows.binary_search(&row).is_ok();
        let here = probe.held_out.iter().filter(is_here);
        let mut here = collected(ROWS, here.map(|&row| self.place[row as usize]))?;
        if here.len() == rows.len() {
            here.clear(); // the weights need at least one other row
        }
        let scored = probe.scored.iter().map(|&at| probe.held_out[at as usize]);
        Ok((here, self.columns.gather_known(x, scored)?))
    }
}

/// Returns the positive rows of each output of a node. The shape is (outputs, `n_rows`), and rows have
/// their numbers in the training set.
///
/// The positive rows of a label are the rows that have the label. The positive rows of a child are the
/// rows that have any label below the child.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
fn positives(training: &Training<'_>, node: usize) -> Result<CsrOwned, Error> {
    let forest = training.forest;
    let children = forest.children(node);
    let mut found = CsrOwned {
        indptr: filled("number of outputs", 0, 1)?,
        indices: Vec::new(),
        values: Vec::new(),
        n_cols: training.examples.x.n_rows(),
    };
    let rows_of = |label: u32| training.rows_of_label.row(label as usize).0.iter().copied();
    if children.is_empty() {
        for &label in forest.labels(node) {
            extend(ROWS, &mut found.indices, rows_of(label))?;
            extend(
                "number of outputs",
                &mut found.indptr,
                [found.indices.len()],
            )?;
        }
    } else {
        let mut rows = Vec::new();
        for child in children {
            rows.clear();
            for &label in forest.labels(child) {
                extend(ROWS, &mut rows, rows_of(label))?;
            }
            rows.sort_unstable();
            rows.dedup();
            extend(ROWS, &mut found.indices, rows.iter().copied())?;
            extend(
                "number of outputs",
                &mut found.indptr,
                [found.indices.len()],
            )?;
        }
    }
    found.values = filled(ROWS, 1.0, found.indices.len())?;
    Ok(found)
}
