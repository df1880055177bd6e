//! Fits all labels of DiSMEC as a single piece, which contains all panels (see `pieces.rs`).
//! The weights that remain after pruning are collected into one sparse matrix, stored by feature.
//!
//! The weights of a panel are pruned as soon as the panel is solved: small weights are dropped. So
//! there are dense weights only for the panels in progress, at most one panel for each thread.

use super::params::{Checked, Loss, Solver};
use super::problem::Problem;
use super::start::{Carry, Start};
use super::{Effort, Solution, Targets, active, optimum};
use crate::panel::LANES;
use manylabel_base::{Error, Spare, Watch, collected, extend, few, filled, push, reserved};
use manylabel_sparse::{CsrOwned, Sparse};
use std::cmp::Reverse;

/// A fitted model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The weights, stored by feature in the form that [`Scorer`](crate::Scorer) reads; shape (`n_features`,
    /// `n_labels`). All stored weights have an absolute value of at least `prune` and are not 0.
    pub weights: CsrOwned,
    /// The intercepts; shape (`n_labels`). They are 0 if no intercepts are fitted, and −∞ for labels without
    /// a positive row.
    pub intercept: Vec<f32>,
    /// The number of steps for each label; shape (`n_labels`). It is `max_iter` for labels that did not
    /// converge, and 0 for labels without a positive row. For rare labels with [`Solver::Fast`], coordinate
    /// descent runs several times, and the number is the largest number of passes in one of these runs.
    pub n_iter: Vec<u32>,
    /// The learned threshold. At this threshold, the number of predicted labels equals the number
    /// of true labels, counted on held-out rows. It is None if it was not requested or could not be
    /// learned.
    pub cut: Option<f32>,
}

/// The weights of one label, without the small weights that were dropped.
pub(super) struct Solved {
    pub(super) label: u32,
    /// The original numbers of the features that have a weight, in increasing order.
    pub(super) features: Vec<u32>,
    /// The weight of each feature in `features`.
    pub(super) weights: Vec<f32>,
    pub(super) intercept: f32,
    pub(super) n_iter: u32,
}

impl Checked {
    /// Fits weights for each label of `y`. `y` is a matrix of ones, [`Labels`](manylabel_sparse::Labels) with
    /// unknown pairs, or [`Targets`] with factors.
    ///
    /// If `weights` is given, the loss of each row is multiplied by the weight of the row. All weights must be
    /// > 0. `watch` counts finished labels. The fit runs on all threads of the pool.
    ///
    /// A step takes O(nnz(X)) time for sixteen labels. The copy of X takes 8 bytes per stored value, or 16
    /// bytes if some labels are not rare. Each thread takes 200 bytes per row and 140 bytes per feature. For labels with
    /// many rows in the working set, it takes up to 650 bytes per feature (780 bytes with unknown pairs), and in a
    /// search up to 256 bytes per row more. The weights that remain after pruning take additional memory.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if `x`, `y` and `weights` have different numbers of rows. Returns
    /// [`Error::Param`] if a value is not finite as `f32`, or if `C`, `weights` and `x` are so large or so
    /// small that results leave the range of `f32`. Returns [`Error::TooLarge`] if there is not enough memory,
    /// or if a size does not fit in 32 bits. Returns [`Error::Stopped`] if the caller requested a stop.
    pub fn fit<'a>(
        &self,
        x: Sparse<'_>,
        y: impl Into<Targets<'a>>,
        weights: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        self.task(x, y, weights, watch)?.model(watch)
    }

    /// Returns the labels that have positive rows, and the number of labels that are not rare. Labels that are
    /// not rare come first. Both kinds of labels are sorted by decreasing number of positive rows.
    ///
    /// A label with a state in `start` counts as rare if and only if its state is that of a rare label. So the same
    /// solver continues.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the labels do not fit in memory.
    pub(super) fn by_frequency(
        &self,
        problem: &Problem<'_>,
        effort: &Effort,
        start: Option<&Start>,
    ) -> Result<(Vec<u32>, usize), Error> {
        let mut labels = collected("number of labels", 0..problem.n_labels() as u32)?;
        labels.retain(|&label| !problem.positives(label).is_empty());
        // Only the rows for which a label is known count. So with unknown pairs, a rare label can have more
        // positive rows than a label that is not rare.
        let params = &self.0;
        let is_fast = params.solver == Solver::Fast && params.loss == Loss::SquaredHinge;
        let is_rare = |label: u32| {
            let n_positive = problem.positives(label).len();
            let is_rare = match start.and_then(|start| start.carry(label)) {
                Some(Carry::Duals(_)) => true,
                Some(Carry::Weights(_)) => false,
                None => effort.is_rare(n_positive, problem.n_known(label)),
            };
            is_fast && is_rare
        };
        labels.sort_unstable_by_key(|&label| {
            let n_positive = problem.positives(label).len();
            (is_rare(label), Reverse(n_positive), label)
        });
        let mut n_frequent = labels.partition_point(|&label| !is_rare(label));
        // A panel of labels that continue takes few steps. Other labels would need more.
        let continues = |&label: &u32| start.is_some_and(|start| start.carries_weights(label));
        if effort.fills_panels && !labels[..n_frequent].iter().any(continues) {
            n_frequent = n_frequent.next_multiple_of(LANES).min(labels.len());
        }
        Ok((labels, n_frequent))
    }

    /// Drops the small weights of the labels of a panel that was just solved. `kept(lane, prune)` returns the weights
    /// of one label that are not dropped.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory, or any error of `kept`.
    pub(super) fn prune_panel(
        &self,
        problem: &Problem<'_>,
        labels: &[u32],
        n_iter: &[usize],
        mut kept: impl FnMut(usize, f32) -> Result<Kept, Error>,
    ) -> Result<Vec<Solved>, Error> {
        let lanes = labels.iter().zip(n_iter).enumerate();
        few(lanes.map(|(lane, (&label, &n_iter))| {
            let Kept { weights, intercept } = kept(lane, self.0.prune as f32)?;
            let features = weights
                .iter()
                .map(|&(col, _)| problem.features[col as usize]);
            let values = weights.iter().map(|&(_, weight)| weight);
            Ok(Solved {
                label,
                features: collected("number of weights", features)?,
                weights: collected("number of weights", values)?,
                intercept,
                n_iter: n_iter as u32,
            })
        }))
    }
}

/// The weights of one label that are not dropped.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Columns of [`Problem::x`] with their weights, without the column of the intercept.
    pub(super) weights: Vec<(u32, f32)>,
    /// The intercept, which is always kept.
    pub(super) intercept: f32,
}

impl Kept {
    /// Takes the weight of a column, if it is not 0 and has an absolute value of at least `prune`. Column `n_features`
    /// is the intercept.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(super) fn push(
        &mut self,
        col: u32,
        weight: f32,
        n_features: usize,
        prune: f32,
    ) -> Result<(), Error> {
        if col as usize == n_features {
            self.intercept = weight;
        } else if is_kept(weight, prune) {
            push("number of weights", &mut self.weights, (col, weight))?;
        }
        Ok(())
    }
}

/// Returns true if a weight is not dropped.
#[inline]
fn is_kept(weight: f32, prune: f32) -> bool {
    weight != 0.0 && weight.abs() >= prune
}

/// Returns those of the weights of all columns that are not 0 and have an absolute value of at least `prune`. The
/// first `n_features` weights belong to features. The intercept, if any, follows them.
///
/// Most weights are dropped. So the weights are read in groups, and most groups take one
/// comparison per weight.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory.
pub(super) fn large(
    mut weights: impl Iterator<Item = f32>,
    n_features: usize,
    prune: f32,
) -> Result<Kept, Error> {
    const GROUP: usize = 16;
    let mut kept = Kept::default();
    let mut group = [0.0; GROUP];
    for first in (0..n_features).step_by(GROUP) {
        let group = &mut group[..GROUP.min(n_features - first)];
        for (into, weight) in group.iter_mut().zip(&mut weights) {
            *into = weight;
        }
        let n_kept: u32 = group.iter().map(|&w| u32::from(is_kept(w, prune))).sum();
        if n_kept > 0 {
            for (col, &weight) in (first as u32..).zip(&*group) {
                kept.push(col, weight, n_features, prune)?;
            }
        }
    }
    kept.intercept = weights.next().unwrap_or(0.0);
    Ok(kept)
}

/// Collects the weights of some labels into one matrix, stored by label; shape (labels, `n_features`). `labels` must
/// be in increasing order and contain all labels of `panels`. Labels that are in no panel have no weights and the
/// intercept −∞.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory.
pub(super) fn by_label(
    labels: impl ExactSizeIterator<Item = u32>,
    n_features: usize,
    panels: Vec<Vec<Solved>>,
) -> Result<Solution, Error> {
    let n_labels = labels.len();
    let mut intercept = filled("number of labels", f32::NEG_INFINITY, n_labels)?;
    let mut n_iter = filled("number of labels", 0, n_labels)?;
    let mut solved = collected("number of labels", panels.into_iter().flatten())?;
    solved.sort_unstable_by_key(|solved| solved.label);
    let size = solved.iter().map(|solved| solved.weights.len()).sum();
    let mut by_label = CsrOwned {
        indptr: filled("number of labels", 0, 1)?,
        indices: reserved("number of weights", size)?,
        values: reserved("number of weights", size)?,
        n_cols: n_features,
    };
    let mut solved = solved.into_iter().peekable();
    for (at, label) in labels.enumerate() {
        if let Some(solved) = solved.next_if(|solved| solved.label == label) {
            (intercept[at], n_iter[at]) = (solved.intercept, solved.n_iter);
            extend("number of weights", &mut by_label.indices, solved.features)?;
            extend("number of weights", &mut by_label.values, solved.weights)?;
        }
        push(
            "number of labels",
            &mut by_label.indptr,
            by_label.indices.len(),
        )?;
    }
    Ok(Solution {
        weights: by_label,
        intercept,
        n_iter,
        forgotten: Vec::new(),
        carried: Vec::new(),
    })
}

/// The workspaces of the two solvers that no thread uses at the moment.
#[derive(Debug, Default)]
pub(super) struct Spaces {
    pub(super) optimum: Spare<optimum::Workspace>,
    pub(super) active: Spare<active::Workspace>,
}
