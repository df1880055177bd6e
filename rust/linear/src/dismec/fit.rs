//! Labels to panels, panels to threads, weights to one sparse matrix.

use super::params::{Checked, Solver};
use super::problem::Problem;
use super::unseen::{Sample, Unseen};
use super::{active, optimum};
use crate::panel::LANES;
use manylabel_base::range::same_rows;
use manylabel_base::{Error, Watch, collected, extend, few, filled, parts, push, reserved};
use manylabel_sparse::{CsrOwned, CsrView, Index, Value};
use rayon::prelude::*;
use std::cmp::Reverse;
use std::sync::{Mutex, PoisonError};

/// A label is rare if it has fewer than one positive in this many rows. For these, rows in play
/// (positives and some two hundred to sixteen negatives for each) cost less than all rows do.
const RARE: usize = 100;

/// A fitted model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Weights of every feature: row j of (`n_features`, `n_labels`), the index that scoring
    /// walks. No stored weight is below `prune` in absolute value.
    pub weights: CsrOwned,
    /// Intercepts, 0 if none are fitted, −∞ for a label without a positive row; (`n_labels`).
    pub intercept: Vec<f32>,
    /// Steps (or passes, for rare labels) of each label; `max_iter` where it did not converge.
    pub n_iter: Vec<u32>,
    /// The score above which as many labels are named as rows carry that the weights have not seen;
    /// None if it was not to be learned, or there was nothing to learn from.
    pub cut: Option<f32>,
}

/// One label, solved.
struct Solved {
    label: u32,
    features: Vec<u32>,
    weights: Vec<f32>,
    intercept: f32,
    n_iter: u32,
}

impl Checked {
    /// Fits one weight vector for every column of `y`, whose stored entries are the labels a row
    /// carries.
    ///
    /// `weights`, if given, multiplies the loss of each row; all are > 0. `watch`
    /// counts labels. Time O(nnz(X)) a step for sixteen labels; memory 16 bytes a stored feature,
    /// and for each thread 64 bytes for every row and feature, some four times.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the rows of `x`, `y` and `weights` differ, [`Error::TooLarge`] if sizes
    /// exceed 32 bits, [`Error::Stopped`].
    pub fn fit<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        y: &CsrOwned,
        weights: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        let n = x.n_rows();
        same_rows(n, y.n_rows(), weights, None)?;
        let problem = Problem::new(x, y, weights, &self.0, watch)?;

        // Labels of like frequency take a like number of steps, so that lanes finish together.
        let mut labels = collected("number of labels", 0..problem.n_labels() as u32)?;
        labels.sort_unstable_by_key(|&label| (Reverse(problem.positives(label).len()), label));
        labels.truncate(labels.partition_point(|&label| !problem.positives(label).is_empty()));
        let rare = labels.partition_point(|&label| {
            self.0.solver == Solver::Exact
                || problem.positives(label).len() * RARE >= problem.n_rows()
        });
        let (frequent, rare) = labels.split_at(rare);

        let (of_frequent, of_rare) = (Sample::of(frequent.len()), Sample::of(rare.len()));
        let drawn = of_frequent.labels(frequent).chain(of_rare.labels(rare));
        let unseen = if self.0.learn_cut {
            Unseen::new(&problem, drawn)?
        } else {
            None
        };
        let unseen = unseen.as_ref();

        let spaces = Spaces::default();
        let frequent = frequent.par_chunks(LANES).with_max_len(1).enumerate();
        let frequent = frequent.map(|(panel, labels)| {
            let (tol, max_iter) = (self.0.tol, self.0.max_iter);
            spaces.optimum.with(
                || optimum::Workspace::new(&problem),
                |space| {
                    let n_iter = optimum::solve(&problem, labels, tol, max_iter, space, watch)?;
                    let solved =
                        self.prune_panel(&problem, labels, n_iter, |lane| space.weights(lane))?;
                    if let (Some(unseen), Some(weight)) = (unseen, of_frequent.weight(panel)) {
                        let sizes = (labels.len(), n_iter.into_iter().max().unwrap_or(0));
                        unseen.count(&problem, labels.len(), weight, |tell| {
                            optimum::unlearn(&problem, unseen, sizes, space, watch, tell)
                        })?;
                    }
                    watch.step(labels.len())?;
                    Ok(solved)
                },
            )
        });
        let rare = rare.par_chunks(LANES).with_max_len(1).enumerate();
        let rare = rare.map(|(panel, labels)| {
            spaces.active.with(
                || active::Workspace::new(&problem),
                |space| {
                    let n_iter = active::solve(&problem, labels, &self.0, space, watch)?;
                    let solved =
                        self.prune_panel(&problem, labels, n_iter, |lane| space.weights(lane))?;
                    if let (Some(unseen), Some(weight)) = (unseen, of_rare.weight(panel)) {
                        unseen.count(&problem, labels.len(), weight, |tell| {
                            active::unlearn(&problem, unseen, labels, &self.0, space, watch, tell)
                        })?;
                    }
                    watch.step(labels.len())?;
                    Ok(solved)
                },
            )
        });
        let mut model = assemble(&problem, parts(frequent.chain(rare))?)?;
        model.cut = unseen.and_then(Unseen::cut);
        Ok(model)
    }

    fn prune_panel<W: Iterator<Item = f32>>(
        &self,
        problem: &Problem,
        labels: &[u32],
        n_iter: [usize; LANES],
        weights: impl Fn(usize) -> W,
    ) -> Result<Vec<Solved>, Error> {
        let lanes = labels.iter().zip(n_iter).enumerate();
        few(lanes.map(|(lane, (&label, n_iter))| self.prune(problem, label, weights(lane), n_iter)))
    }

    fn prune(
        &self,
        problem: &Problem,
        label: u32,
        weights: impl Iterator<Item = f32>,
        n_iter: usize,
    ) -> Result<Solved, Error> {
        let prune = self.0.prune as f32;
        let mut solved = Solved {
            label,
            features: Vec::new(),
            weights: Vec::new(),
            intercept: 0.0,
            n_iter: n_iter as u32,
        };
        for (at, weight) in weights.enumerate() {
            match problem.features.get(at) {
                Some(&feature) if weight != 0.0 && weight.abs() >= prune => {
                    push("the weights", &mut solved.features, feature)?;
                    push("the weights", &mut solved.weights, weight)?;
                }
                Some(_) => {}
                None => solved.intercept = weight,
            }
        }
        Ok(solved)
    }
}

/// Turns the labels' weights into the index by feature, labels of each feature in order.
fn assemble(problem: &Problem, panels: Vec<Vec<Solved>>) -> Result<Model, Error> {
    let n_labels = problem.n_labels();
    let mut intercept = filled("number of labels", f32::NEG_INFINITY, n_labels)?;
    let mut n_iter = filled("number of labels", 0, n_labels)?;
    let mut solved = collected("number of labels", panels.into_iter().flatten())?;
    solved.sort_unstable_by_key(|solved| solved.label);
    let size = solved.iter().map(|solved| solved.weights.len()).sum();
    let mut by_label = CsrOwned {
        indptr: filled("number of labels", 0, n_labels + 1)?,
        indices: reserved("the weights", size)?,
        values: reserved("the weights", size)?,
        n_cols: problem.n_features,
    };
    for solved in solved {
        let label = solved.label as usize;
        (intercept[label], n_iter[label]) = (solved.intercept, solved.n_iter);
        extend("the weights", &mut by_label.indices, solved.features)?;
        extend("the weights", &mut by_label.values, solved.weights)?;
        by_label.indptr[label + 1] = by_label.indices.len();
    }
    // Labels nobody solved have no weights.
    for label in 0..n_labels {
        by_label.indptr[label + 1] = by_label.indptr[label + 1].max(by_label.indptr[label]);
    }
    Ok(Model {
        weights: by_label.transpose()?,
        intercept,
        n_iter,
        cut: None,
    })
}

/// Workspaces not in use; a panel takes one and gives it back, so there is one for each thread.
#[derive(Default)]
struct Spaces {
    optimum: Spare<optimum::Workspace>,
    active: Spare<active::Workspace>,
}

struct Spare<T>(Mutex<Vec<T>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<T> Spare<T> {
    fn with<R>(
        &self,
        new: impl FnOnce() -> Result<T, Error>,
        work: impl FnOnce(&mut T) -> Result<R, Error>,
    ) -> Result<R, Error> {
        // A panic elsewhere cannot have left the list half changed.
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let spare = lock().pop();
        let mut space = spare.map_or_else(new, Ok)?;
        let result = work(&mut space);
        lock().push(space);
        result
    }
}
