//! Fits the classifiers of one node.
//!
//! The outputs of an inner node are its children, and the outputs of a leaf are its labels. Each output has a
//! linear classifier. The rows of the node are copied once for all outputs.
//!
//! Sparse rows of a node have entries in few of the features. The columns of the copy are renumbered without the
//! empty columns. So the vectors of the solver are short and stay in cache.

use crate::carry::renumbered;
use crate::gather::Columns;
use crate::grow::Forest;
use crate::model::ChunkOwned;
use manylabel_base::{Error, Watch, collected, extend, few, filled, push, reserved};
use manylabel_linear::dismec::{
    Block, Carry, Checked, Effort, Factors, Forgotten, Outputs, Solution,
};
use manylabel_sparse::{CsrOwned, RowsRef, Stored};

/// The name of the rows of a node in error messages.
const ROWS: &str = "number of rows of a node";

/// The training rows and the parameters of the solver. All nodes use the same ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Examples<'a, 'x> {
    /// The training rows; (`n_rows`, `n_features`).
    pub(crate) x: RowsRef<'a, 'x>,
    /// The weights of the rows; `None` if all weights are 1.
    pub(crate) weights: Option<&'a [f32]>,
    /// The parameters of the linear classifiers.
    pub(crate) linear: &'a Checked,
    /// The settings of the solver for rare labels.
    pub(crate) effort: &'a Effort,
}

/// Returns the settings of the solver for rare labels in the nodes of `n_trees` trees. The settings for blocks were chosen
/// for texts; see [`Params::measurements`](crate::Params::measurements).
pub(crate) fn effort(n_trees: usize, measurements: bool) -> &'static Effort {
    if measurements {
        &Effort::FULL
    } else if n_trees > 1 {
        &Effort::OF_ONE_OF_SEVERAL_BLOCKS
    } else {
        &Effort::OF_BLOCK
    }
}

/// The training set, the trees and the parameters. All nodes use the same ones.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Training<'a, 'x> {
    /// The training rows and the parameters of the solver.
    pub(crate) examples: Examples<'a, 'x>,
    /// The rows that have each label, the rows for which it is unknown, and the factors of the labels.
    pub(crate) labels: &'a Outputs,
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
    /// The state of each label, with rows of the training set or features of X. Empty if they are not wanted.
    pub(crate) carried: Vec<Carry>,
}

/// What a leaf gets from the previous tree, and whether it passes something on to the next tree.
#[derive(Debug, Default)]
pub(crate) struct Relay<'a> {
    /// The state of each label, with rows of the training set or features of X. `None` if there are none.
    pub(crate) from: Option<Vec<&'a Carry>>,
    /// Whether to return the states after the fit.
    pub(crate) carries: bool,
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
    /// Copies sparse rows with renumbered columns. Dense rows keep all columns.
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
    pub(crate) fn new(x: RowsRef<'_, '_>) -> Result<Self, Error> {
        Ok(Self {
            columns: match x {
                RowsRef::Sparse(x) => Columns::new(x.n_cols())?,
                RowsRef::Dense(x) => Columns::all(x.dim())?,
            },
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
    /// memory is short. Returns [`Error::Stopped`] if the caller requested a stop.
    pub(crate) fn fit(
        &mut self,
        training: &Training<'_, '_>,
        node: usize,
        routed: &[u32],
        probe: Option<Probe<'_>>,
        relay: &Relay<'_>,
        watch: &Watch,
    ) -> Result<Fitted, Error> {
        let outputs = outputs(training, node)?;
        let solution = self.solve(&training.examples, outputs, routed, probe, relay, watch)?;
        let unfinished = |&&n_iter: &&u32| n_iter as usize >= training.max_iter;
        Ok(Fitted {
            chunk: ChunkOwned::new(
                &solution.weights,
                self.columns.kept(),
                training.examples.x.n_features(),
            )?,
            intercept: solution.intercept,
            n_unfinished: solution.n_iter.iter().filter(unfinished).count(),
            n_iter: solution.n_iter.iter().copied().max().unwrap_or(0),
            of_held_out: solution.forgotten,
            carried: solution.carried,
        })
    }

    /// Fits a classifier for each output, on all threads of the pool.
    ///
    /// `outputs` has rows with their numbers in the training set. The classifiers are fitted to the positive rows
    /// of all outputs and to the rows in `routed`. If `probe` is given, the held-out rows in it are scored too.
    /// [`features`](Self::features) returns the original numbers of the columns of the weights. `watch` counts
    /// outputs. The states in `relay` and in the result have rows of the training set or features of X.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`fit`](Self::fit).
    pub(crate) fn solve(
        &mut self,
        examples: &Examples<'_, '_>,
        mut outputs: Outputs,
        routed: &[u32],
        probe: Option<Probe<'_>>,
        relay: &Relay<'_>,
        watch: &Watch,
    ) -> Result<Solution, Error> {
        let positives = &mut outputs.rows_of_label;
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
        if let Some(unknown) = outputs.unknown.take() {
            outputs.unknown = Some(self.placed(&unknown, &rows)?);
        }
        let weights = examples.weights.map(|weights| {
            let of_rows = rows.iter().map(|&row| weights[row as usize]);
            collected(ROWS, of_rows)
        });
        let weights = weights.transpose()?;
        let held_out = probe.map(|probe| self.held_out(&rows, probe));
        let held_out = held_out.transpose()?;
        let scored = probe.map(|probe| {
            let scored = probe.scored.iter().map(|&at| probe.held_out[at as usize]);
            collected(ROWS, scored)
        });
        let scored = scored.transpose()?;
        let n_features = examples.x.n_features();
        let (x, scored) = match examples.x {
            RowsRef::Sparse(x) => {
                let copy = self.columns.gather(x, rows.iter().copied())?;
                let scored = scored.map(|rows| self.columns.gather_known(x, rows.into_iter()));
                (Stored::Owned(copy), scored.transpose()?.map(Stored::Owned))
            }
            RowsRef::Dense(x) => {
                let copy = |rows: &[u32]| x.copy(rows.iter().map(|&row| row as usize), watch);
                let scored = scored.map(|rows| copy(&rows));
                (
                    Stored::Full(copy(&rows)?),
                    scored.transpose()?.map(Stored::Full),
                )
            }
        };
        let start = match &relay.from {
            Some(states) => Some(self.start(states, &rows, &outputs, n_features)?),
            None => None,
        };
        let forgotten = held_out.as_deref().zip(scored.as_ref());
        let forgotten = forgotten.map(|(rows, scored)| Forgotten {
            rows,
            scored: scored.view(),
        });
        let block = Block {
            start,
            carries: relay.carries,
            x,
            outputs,
            weights: weights.as_deref(),
            forgotten,
        };
        let mut solution = examples.linear.fit_block(block, examples.effort, watch)?;
        let kept = self.columns.kept();
        for state in &mut solution.carried {
            *state = match state {
                Carry::Duals(_) => renumbered(state, |&(place, _)| Some(rows[place as usize])),
                Carry::Weights(_) => renumbered(state, |&(column, _)| {
                    let intercept = n_features as u32;
                    Some(kept.get(column as usize).copied().unwrap_or(intercept))
                }),
            }?;
        }
        Ok(solution)
    }

    /// Returns the states of the outputs in the form of [`Block::start`]. `rows` has the rows of the node, and
    /// `outputs` has positions in `rows`. Entries of other rows and of other features are dropped, and so are dual
    /// variables whose sign does not match the output.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn start(
        &self,
        states: &[&Carry],
        rows: &[u32],
        outputs: &Outputs,
        n_features: usize,
    ) -> Result<Vec<Carry>, Error> {
        let n_columns = self.columns.kept().len() as u32;
        few(states
            .iter()
            .enumerate()
            .map(|(output, state)| match state {
                Carry::Duals(_) => {
                    let positives = outputs.rows_of_label.row(output).0;
                    let unknown = outputs.unknown.as_ref();
                    let unknown = unknown.map_or(&[][..], |unknown| unknown.row(output).0);
                    renumbered(state, |&(row, dual)| {
                        let place = self.place[row as usize];
                        let is_here = rows.get(place as usize) == Some(&row);
                        let is_positive = positives.binary_search(&place).is_ok();
                        let is_known = unknown.binary_search(&place).is_err();
                        let fits = if is_positive { dual > 0.0 } else { dual < 0.0 };
                        (is_here && is_known && fits).then_some(place)
                    })
                }
                Carry::Weights(_) => renumbered(state, |&(feature, _)| {
                    if feature as usize == n_features {
                        return Some(n_columns);
                    }
                    self.columns.new_number(feature)
                }),
            }))
    }

    /// Returns `matrix` with only the columns in `rows`, the rows of the node. Column numbers in the result are
    /// positions in `rows`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn placed(&self, matrix: &CsrOwned, rows: &[u32]) -> Result<CsrOwned, Error> {
        let place = |&row: &u32| {
            let place = self.place[row as usize];
            (rows.get(place as usize) == Some(&row)).then_some(place)
        };
        let mut placed = CsrOwned {
            indptr: filled("number of outputs", 0, 1)?,
            indices: Vec::new(),
            values: Vec::new(),
            n_cols: rows.len(),
        };
        for output in 0..matrix.n_rows() {
            let here = matrix.row(output).0.iter().filter_map(place);
            extend(ROWS, &mut placed.indices, here)?;
            push(
                "number of outputs",
                &mut placed.indptr,
                placed.indices.len(),
            )?;
        }
        placed.values = filled(ROWS, 1.0, placed.indices.len())?;
        Ok(placed)
    }

    /// Returns the positions of the held-out rows among `rows`, the rows of the node. The list is empty if all rows of
    /// the node are held out.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn held_out(&self, rows: &[u32], probe: Probe<'_>) -> Result<Vec<u32>, Error> {
        let is_here = |&&row: &&u32| rows.binary_search(&row).is_ok();
        let here = probe.held_out.iter().filter(is_here);
        let mut here = collected(ROWS, here.map(|&row| self.place[row as usize]))?;
        if here.len() == rows.len() {
            here.clear(); // the weights need at least one other row
        }
        Ok(here)
    }
}

/// Returns the outputs of a node. Rows have their numbers in the training set.
///
/// The positive rows of a label are the rows that have the label. The positive rows of a child are the rows that
/// have any label below the child. A row is unknown for a child if it has no label below the child, and a label
/// below the child is unknown. The factor of the positive rows of a child is the mean factor of the ones in these
/// rows.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
fn outputs(training: &Training<'_, '_>, node: usize) -> Result<Outputs, Error> {
    let Training { labels, forest, .. } = training;
    let children = forest.children(node);
    let groups: Vec<&[u32]> = if children.is_empty() {
        collected("number of outputs", forest.labels(node).chunks(1))?
    } else {
        collected(
            "number of outputs",
            children.map(|child| forest.labels(child)),
        )?
    };
    let rows_of_label = rows_of_groups(&labels.rows_of_label, &groups)?;
    let unknown = match &labels.unknown {
        None => None,
        Some(unknown) => {
            let unknown = rows_of_groups(unknown, &groups)?;
            Some(without(&unknown, &rows_of_label)?)
        }
    };
    let factors = labels.factors.as_ref().map(|factors| {
        let of_groups = groups.iter().map(|group| {
            let n_rows = |label: u32| labels.rows_of_label.row(label as usize).0.len() as f32;
            let mean = |factor: &dyn Fn(Factors) -> f32| {
                let sum: f32 = group
                    .iter()
                    .map(|&label| n_rows(label) * factor(factors[label as usize]))
                    .sum();
                sum / group.iter().map(|&label| n_rows(label)).sum::<f32>()
            };
            Factors {
                positive: mean(&|factors| factors.positive),
                negative: mean(&|factors| factors.negative),
            }
        });
        collected("number of outputs", of_groups)
    });
    Ok(Outputs {
        rows_of_label,
        unknown,
        factors: factors.transpose()?,
    })
}

/// Returns the rows that have any label of each group, in increasing order; (groups, `n_rows`).
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
fn rows_of_groups(rows_of_label: &CsrOwned, groups: &[&[u32]]) -> Result<CsrOwned, Error> {
    let mut found = CsrOwned {
        indptr: filled("number of outputs", 0, 1)?,
        indices: Vec::new(),
        values: Vec::new(),
        n_cols: rows_of_label.n_cols,
    };
    let mut rows = Vec::new();
    for group in groups {
        rows.clear();
        for &label in *group {
            extend(
                ROWS,
                &mut rows,
                rows_of_label.row(label as usize).0.iter().copied(),
            )?;
        }
        if group.len() > 1 {
            rows.sort_unstable();
            rows.dedup();
        }
        extend(ROWS, &mut found.indices, rows.iter().copied())?;
        push("number of outputs", &mut found.indptr, found.indices.len())?;
    }
    found.values = filled(ROWS, 1.0, found.indices.len())?;
    Ok(found)
}

/// Returns the entries of `a` that are not in `b`. Both have the same shape.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
fn without(a: &CsrOwned, b: &CsrOwned) -> Result<CsrOwned, Error> {
    let mut kept = CsrOwned {
        indptr: filled("number of outputs", 0, 1)?,
        indices: Vec::new(),
        values: Vec::new(),
        n_cols: a.n_cols,
    };
    for output in 0..a.n_rows() {
        let others = b.row(output).0;
        let of_a = a.row(output).0.iter().copied();
        let alone = of_a.filter(|row| others.binary_search(row).is_err());
        extend(ROWS, &mut kept.indices, alone)?;
        push("number of outputs", &mut kept.indptr, kept.indices.len())?;
    }
    kept.values = filled(ROWS, 1.0, kept.indices.len())?;
    Ok(kept)
}
