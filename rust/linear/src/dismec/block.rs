//! Fits a few labels to a selection of rows. The selected rows and these labels form a block.
//!
//! Some models divide rows and labels into many small blocks. This file fits one block, with the
//! same solvers as [`Checked::fit`]. A block has its own rows, columns and labels, so its vectors
//! are short and stay in the cache. A block is fitted on the calling thread. Callers can fit
//! several blocks in parallel.

use super::fit::by_label;
use super::params::Checked;
use super::problem::Problem;
use super::unseen::Unseen;
use super::{Effort, active, optimum};
use crate::panel::{LANES, Lanes, times_panel};
use manylabel_base::{Error, Watch, filled, push};
use manylabel_sparse::CsrOwned;

/// The rows and labels of one block.
#[derive(Debug)]
pub struct Block<'a> {
    /// The rows of the block, already scaled; shape (`n_rows`, `n_columns`). Every column must have at
    /// least one entry. The column of ones for the intercept is not included.
    pub x: CsrOwned,
    /// The rows that have each label, in increasing order; shape (`n_labels`, `n_rows`). The stored
    /// values are ignored.
    pub rows_of_label: CsrOwned,
    /// The weights of the rows; all > 0. `None` gives every row the weight 1.
    pub weights: Option<&'a [f32]>,
    /// If given, some rows are left out after the fit: a copy of the fitted weights is adapted to
    /// the other rows, and this copy scores given rows.
    pub forgotten: Option<Forgotten<'a>>,
}

/// Rows that are left out after a fit, and rows to score. A few solver steps adapt a copy of the
/// fitted weights to the rows that are not left out. This copy scores the rows.
///
/// The scores approximate the scores of a model that was fitted without the rows that are left out.
/// The returned weights do not change.
#[derive(Debug, Clone, Copy)]
pub struct Forgotten<'a> {
    /// The rows of the block that are left out, in increasing order.
    pub rows: &'a [u32],
    /// The rows to score. They have the same columns as [`Block::x`].
    pub scored: &'a CsrOwned,
}

/// The fitted weights of a block.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// The weights, without weights that were dropped because they are small; shape (`n_labels`,
    /// `n_columns`).
    pub weights: CsrOwned,
    /// The intercepts; shape (`n_labels`). They are 0 if no intercepts are fitted. Labels without a
    /// row have −∞.
    pub intercept: Vec<f32>,
    /// The number of steps for each label, as in [`Model`](super::Model); shape (`n_labels`).
    pub n_iter: Vec<u32>,
    /// The scores of the rows in [`Forgotten::scored`], row by row; shape (rows, `n_labels`). The array
    /// is empty if [`Block::forgotten`] is None.
    pub forgotten: Vec<f32>,
}

impl Checked {
    /// Fits the labels of a block, on the calling thread. `watch` counts finished labels. The
    /// parameters `normalize` and `learn_cut` are ignored, because they apply to whole data sets.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`fit`](Self::fit).
    pub fn fit_block(
        &self,
        block: Block<'_>,
        effort: &Effort,
        watch: &Watch,
    ) -> Result<Solution, Error> {
        let forgotten = block.forgotten;
        let problem =
            Problem::of_rows(block.x, block.rows_of_label, block.weights, &self.0, watch)?;
        let (labels, rare) = self.by_frequency(&problem, effort)?;
        let (frequent, rare) = labels.split_at(rare);
        let unseen = forgotten.map(|forgotten| Unseen::of_rows(&problem, forgotten.rows));
        let mut after = After::new(&problem, forgotten, unseen.transpose()?)?;
        let mut panels = Vec::new();
        if !frequent.is_empty() {
            let mut space = optimum::Workspace::new(&problem)?;
            for labels in frequent.chunks(LANES) {
                let (tol, max_iter) = (self.0.tol, self.0.max_iter);
                let n_iter = optimum::solve(&problem, labels, tol, max_iter, &mut space, watch)?;
                let solved =
                    self.prune_panel(&problem, labels, n_iter, |lane| space.weights(lane))?;
                push("number of labels", &mut panels, solved)?;
                if let Some(unseen) = &after.unseen {
                    let sizes = (labels.len(), n_iter.into_iter().max().unwrap_or(0));
                    optimum::unlearn(&problem, unseen, sizes, &mut space, watch, |_, _| Ok(()))?;
                    after.score(labels, |lane| space.weights(lane));
                }
                watch.step(labels.len())?;
            }
        }
        if !rare.is_empty() {
            let mut space = active::Workspace::new(&problem)?;
            for labels in rare.chunks(LANES) {
                let n_iter = active::solve(&problem, labels, &self.0, effort, &mut space, watch)?;
                let solved =
                    self.prune_panel(&problem, labels, n_iter, |lane| space.weights(lane))?;
                push("number of labels", &mut panels, solved)?;
                if let Some(unseen) = &after.unseen {
                    active::unlearn(
                        &problem,
                        unseen,
                        labels,
                        &self.0,
                        &mut space,
                        watch,
                        |_, _| Ok(()),
                    )?;
                    after.score(labels, |lane| space.weights(lane));
                }
                watch.step(labels.len())?;
            }
        }
        Ok(Solution {
            forgotten: after.scores,
            ..by_label(&problem, panels)?
        })
    }
}

/// Scores rows with weights that were adapted to the rows that are not left out (see
/// [`Forgotten`]). This is done for one panel (a group of sixteen labels) at a time, right after
/// its fit.
struct After<'a> {
    /// The rows to score; `None` if there are none.
    scored: Option<&'a CsrOwned>,
    /// The rows that are left out; `None` if there are no rows to score.
    unseen: Option<Unseen>,
    /// The number of labels of the block.
    n_labels: usize,
    /// The weights of a panel (a group of sixteen labels).
    panel: Vec<Lanes>,
    /// The scores of up to sixteen labels, without intercepts.
    of_panel: Vec<Lanes>,
    /// The scores of all labels, row by row.
    scores: Vec<f32>,
}

impl<'a> After<'a> {
    /// Allocates memory for the scores of all labels of `problem`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    fn new(
        problem: &Problem,
        forgotten: Option<Forgotten<'a>>,
        unseen: Option<Unseen>,
    ) -> Result<Self, Error> {
        let scored = forgotten.map(|forgotten| forgotten.scored);
        let n_rows = scored.map_or(0, CsrOwned::n_rows);
        let (dim, n_labels) = (
            if n_rows > 0 { problem.dim() } else { 0 },
            problem.n_labels(),
        );
        Ok(Self {
            scored: scored.filter(|scored| scored.n_rows() > 0),
            unseen: unseen.filter(|_| n_rows > 0),
            n_labels,
            panel: filled("number of features", Lanes::default(), dim)?,
            of_panel: filled("number of rows", Lanes::default(), n_rows)?,
            scores: filled("number of scores of held-out rows", 0.0, n_rows * n_labels)?,
        })
    }

    /// Scores the rows with the weights of a panel (a group of sixteen labels). `weights(lane)`
    /// must return the weights of the label in this lane: one weight for each column, and then the
    /// intercept if intercepts are fitted.
    fn score<W: Iterator<Item = f32>>(&mut self, labels: &[u32], weights: impl Fn(usize) -> W) {
        let Some(scored) = self.scored else { return };
        let mut bias = Lanes::default();
        for lane in 0..labels.len() {
            let mut weights = weights(lane);
            for (panel, weight) in self.panel[..scored.n_cols].iter_mut().zip(&mut weights) {
                panel.0[lane] = weight;
            }
            bias.0[lane] = weights.next().unwrap_or(0.0);
        }
        times_panel(scored, 0, &self.panel, &mut self.of_panel);
        let rows = self.scores.chunks_mut(self.n_labels).zip(&self.of_panel);
        for (scores, of_panel) in rows {
            for (lane, &label) in labels.iter().enumerate() {
                scores[label as usize] = of_panel.0[lane] + bias.0[lane];
            }
        }
    }
}
