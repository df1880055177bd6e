//! The problem of one node: its rows, gathered once for all of its outputs, and the classifiers of the
//! outputs.
//!
//! A node sees few of the features. Its rows are copied with renumbered columns, so the vectors of the solver
//! are short and stay in cache, and copied once for all of its outputs.

use crate::gather::Columns;
use crate::grow::Forest;
use crate::model::ChunkOwned;
use manylabel_base::{Error, Watch, collected, extend, filled, reserved};
use manylabel_linear::dismec::{Block, Checked, Effort, Forgotten};
use manylabel_sparse::CsrOwned;

/// The name of rows in error messages.
const ROWS: &str = "rows of a node";

/// What all nodes share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Training<'a> {
    /// The rows, scaled; (`n_rows`, `n_features`).
    pub(crate) x: &'a CsrOwned,
    /// The rows of each label; (`n_labels`, `n_rows`).
    pub(crate) rows_of_label: &'a CsrOwned,
    /// The weights of the rows.
    pub(crate) weights: Option<&'a [f32]>,
    pub(crate) forest: &'a Forest,
    pub(crate) linear: &'a Checked,
    pub(crate) effort: &'a Effort,
    pub(crate) max_iter: usize,
}

/// The fitted classifiers of a node.
#[derive(Debug)]
pub(crate) struct Fitted {
    pub(crate) chunk: ChunkOwned,
    /// The intercept of each output.
    pub(crate) intercept: Vec<f32>,
    /// The number of outputs that did not converge.
    pub(crate) n_unfinished: usize,
    /// The most steps of an output.
    pub(crate) n_iter: u32,
    /// The margins of the rows of the probe by weights that forgot the held-out rows, row after row.
    pub(crate) of_held_out: Vec<f32>,
}

/// Held-out rows, and which of them a node scores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe<'a> {
    /// All held-out rows, in increasing order.
    pub(crate) held_out: &'a [u32],
    /// The places in `held_out` of the rows that the node scores.
    pub(crate) scored: &'a [u32],
}

/// What a thread needs to fit nodes; reused from node to node. Takes 4 bytes per row and per feature.
#[derive(Debug)]
pub(crate) struct Desk {
    columns: Columns,
    /// The place of each row among the rows of the node, valid for these only.
    place: Vec<u32>,
}

impl Desk {
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    pub(crate) fn new(training: &Training<'_>) -> Result<Self, Error> {
        Ok(Self {
            columns: Columns::new(training.x.n_cols)?,
            place: filled("number of rows", 0, training.x.n_rows())?,
        })
    }

    /// Fits the classifiers of a node. Its rows are `routed`, those that earlier levels send to it, and all
    /// rows that have a label below it. `watch` counts outputs.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if values are out of the range of the solver, [`Error::TooLarge`],
    /// [`Error::Stopped`].
    pub(crate) fn fit(
        &mut self,
        training: &Training<'_>,
        node: usize,
        routed: &[u32],
        probe: Option<Probe<'_>>,
        watch: &Watch,
    ) -> Result<Fitted, Error> {
        let mut positives = positives(training, node)?;
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
        let weights = training.weights.map(|weights| {
            let of_rows = rows.iter().map(|&row| weights[row as usize]);
            collected(ROWS, of_rows)
        });
        let weights = weights.transpose()?;
        let x = self.columns.gather(training.x, rows.iter().copied())?;
        let probe = match probe {
            Some(probe) => Some(self.probe(training, &rows, probe)?),
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
        let solution = training.linear.fit_block(block, training.effort, watch)?;
        let unfinished = |&&n_iter: &&u32| n_iter as usize >= training.max_iter;
        Ok(Fitted {
            chunk: ChunkOwned::new(&solution.weights, self.columns.kept())?,
            intercept: solution.intercept,
            n_unfinished: solution.n_iter.iter().filter(unfinished).count(),
            n_iter: solution.n_iter.iter().copied().max().unwrap_or(0),
            of_held_out: solution.forgotten,
        })
    }

    /// The places of the held-out rows among the rows of a node, and the rows that it scores, in the columns
    /// of the node.
    fn probe(
        &self,
        training: &Training<'_>,
        rows: &[u32],
        probe: Probe<'_>,
    ) -> Result<(Vec<u32>, CsrOwned), Error> {
        let is_here = |&&row: &&u32| rows.binary_search(&row).is_ok();
        let here = probe.held_out.iter().filter(is_here);
        let mut here = collected(ROWS, here.map(|&row| self.place[row as usize]))?;
        if here.len() == rows.len() {
            here.clear(); // nothing would be left to learn from
        }
        let scored = probe.scored.iter().map(|&at| probe.held_out[at as usize]);
        Ok((here, self.columns.gather_known(training.x, scored)?))
    }
}

/// The rows of each output of a node, with the numbers of the whole training set; (outputs, `n_rows`). Those
/// of a label are the rows that have it, those of a child the rows with any label below it.
///
/// # Errors
///
/// [`Error::TooLarge`].
fn positives(training: &Training<'_>, node: usize) -> Result<CsrOwned, Error> {
    let forest = training.forest;
    let children = forest.children(node);
    let mut found = CsrOwned {
        indptr: filled("number of outputs", 0, 1)?,
        indices: Vec::new(),
        values: Vec::new(),
        n_cols: training.x.n_rows(),
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
