//! Fits a few labels to a selection of rows. The selected rows and these labels form a block.
//!
//! Some models divide rows and labels into many small blocks. This file fits one block, with the
//! same solvers as [`Checked::fit`]. A block has its own rows, columns and labels, so its vectors
//! are short and stay in the cache. Callers can fit several blocks in parallel.

use super::fit::{Solved, Spaces, by_label};
use super::packed::GROUP;
use super::params::Checked;
use super::problem::{Columns, Problem};
use super::start::{Carry, Start};
use super::unseen::Unseen;
use super::{Effort, Outputs, active, optimum};
use crate::panel::{LANES, Lanes, times_panel};
use manylabel_base::{Error, Watch, collected, few, filled, parts};
use manylabel_sparse::{CsrOwned, CsrRef, Stored};
use rayon::prelude::*;

/// The rows and labels of one block.
#[derive(Debug)]
pub struct Block<'a> {
    /// The rows of the block, already scaled; shape (`n_rows`, `n_columns`). Every column must have at
    /// least one stored value. The column of ones for the intercept is not included. The rows must not be
    /// [borrowed](Stored::Borrowed).
    pub x: Stored<'a>,
    /// The rows that have each label, the rows for which it is unknown, and its factors.
    pub outputs: Outputs,
    /// The weights of the rows; all > 0. `None` gives every row the weight 1.
    pub weights: Option<&'a [f32]>,
    /// Rows to leave out after the fit, and rows to score without them; see [`Forgotten`]. `None` if no
    /// rows are to be scored.
    pub forgotten: Option<Forgotten<'a>>,
    /// The states of the labels after a fit to similar rows. The solvers begin with them, which takes fewer steps.
    /// Rows and columns must be those of the block, and the signs of dual variables must match the labels. `None` if
    /// there is no earlier fit.
    pub start: Option<Vec<Carry>>,
    /// Whether to return the states of the labels.
    pub carries: bool,
}

/// Rows that are left out after a fit, and rows to score. A few solver steps adapt a copy of the fitted
/// weights to the rows that are not left out. This copy scores the rows in `scored`.
///
/// The scores approximate the scores of a model that was fitted without the rows that are left out.
/// The returned weights do not change.
#[derive(Debug, Clone, Copy)]
pub struct Forgotten<'a> {
    /// The rows of the block that are left out, in increasing order.
    pub rows: &'a [u32],
    /// The rows to score. They have the same columns as [`Block::x`].
    pub scored: CsrRef<'a>,
}

/// The fitted weights of a block.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    /// The weights, without weights that were dropped because they are small; shape (`n_labels`,
    /// `n_columns`).
    pub weights: CsrOwned,
    /// The intercepts; shape (`n_labels`). They are 0 if no intercepts are fitted. Labels without a
    /// positive row have −∞.
    pub intercept: Vec<f32>,
    /// The number of steps for each label, as in [`Model`](super::Model); shape (`n_labels`).
    pub n_iter: Vec<u32>,
    /// The scores of the rows in [`Forgotten::scored`], row by row; shape (rows, `n_labels`). The array
    /// is empty if [`Block::forgotten`] is None.
    pub forgotten: Vec<f32>,
    /// The state of each label, from which another fit can begin. Labels without a positive row have an empty state.
    /// The list is empty if [`Block::carries`] is false.
    pub carried: Vec<Carry>,
}

impl Checked {
    /// Fits the labels of a block, on all threads of the pool. If the caller fits several blocks in
    /// parallel, threads without a block help with the labels of other blocks. `watch` counts finished
    /// labels. The parameters `normalize` and `learn_cut` are ignored, because they apply to whole data
    /// sets.
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
        let problem = Problem::of_rows(block.x, block.outputs, block.weights, &self.0, watch)?;
        let start = block.start.map(Start::of_carried);
        if let Some(start) = &start {
            start.check(problem.n_labels(), problem.n_features)?;
        }
        let (labels, rare) = self.by_frequency(&problem, effort, start.as_ref())?;
        let (frequent, rare) = labels.split_at(rare);
        let scored = forgotten.filter(|forgotten| forgotten.scored.n_rows() > 0);
        let unseen = scored.map(|forgotten| Unseen::of_rows(&problem, forgotten.rows));
        let others_dot = scored.map(|forgotten| {
            let rows = forgotten.scored;
            problem.common.others_dots(rows, &problem.mean)
        });
        let fit = Fit {
            start,
            carries: block.carries,
            params: self,
            effort,
            columns: problem.columns(frequent, watch)?,
            problem: &problem,
            scored: scored
                .map(|forgotten| forgotten.scored)
                .zip(unseen.transpose()?),
            others_dot: others_dot.transpose()?.unwrap_or_default(),
            spaces: Spaces::default(),
            watch,
        };
        let frequent = frequent.chunks(LANES).map(|labels| (labels, false));
        let rare = rare.chunks(GROUP).map(|labels| (labels, true));
        let panels: Vec<(&[u32], bool)> = few(frequent.chain(rare));
        let fitted = panels
            .par_iter()
            .map(|&(labels, is_rare)| fit.panel(labels, is_rare));
        let fitted = parts(fitted)?;
        let n_scores = scored.map_or(0, |forgotten| {
            forgotten.scored.n_rows() * problem.n_labels()
        });
        let mut scores = filled("number of scores of held-out rows", 0.0, n_scores)?;
        let mut all = few::<_, Vec<_>>([]);
        let n_carried = if block.carries { problem.n_labels() } else { 0 };
        let empty = (0..n_carried).map(|_| Carry::Duals(Vec::new()));
        let mut carried: Vec<Carry> = collected("number of labels", empty)?;
        for ((labels, _), (solved, of_panel, of_labels)) in panels.into_iter().zip(fitted) {
            for (&label, carry) in labels.iter().zip(of_labels) {
                carried[label as usize] = carry;
            }
            for (labels, of_panel) in labels.chunks(LANES).zip(of_panel) {
                for (scores, of_panel) in scores.chunks_mut(problem.n_labels()).zip(&of_panel) {
                    for (&label, &score) in labels.iter().zip(&of_panel.0) {
                        scores[label as usize] = score;
                    }
                }
            }
            all.push(solved);
        }
        Ok(Solution {
            forgotten: scores,
            carried,
            ..by_label(0..problem.n_labels() as u32, problem.n_features, all)?
        })
    }
}

/// The results of a panel: the weights that remain after pruning, the scores of the rows to score, and the state of
/// each label.
type OfPanel = (Vec<Solved>, Vec<Vec<Lanes>>, Vec<Carry>);

/// The fit of a block.
struct Fit<'a> {
    /// The results of earlier fits of the labels.
    start: Option<Start>,
    /// Whether the states of the labels are returned.
    carries: bool,
    /// The parameters.
    params: &'a Checked,
    /// The settings of the solver for rare labels.
    effort: &'a Effort,
    /// The training set.
    problem: &'a Problem<'a>,
    /// The training set by column, for frequent labels.
    columns: Columns<'a>,
    /// The rows to score, and the rows to which the copy of the weights is not fitted; `None` if there
    /// are no rows to score.
    scored: Option<(CsrRef<'a>, Unseen)>,
    /// The dot product of each row to score and the mean row without common features; see `Common`.
    others_dot: Vec<f32>,
    /// The workspaces of the solvers.
    spaces: Spaces,
    /// Counts finished labels.
    watch: &'a Watch,
}

impl Fit<'_> {
    /// Fits up to thirty-two rare labels, or up to sixteen frequent labels. Returns the weights that remain after
    /// pruning, and the scores of the rows to score: for every sixteen labels, the scores of all rows, with one
    /// lane for each label.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Checked::fit`].
    fn panel(&self, labels: &[u32], is_rare: bool) -> Result<OfPanel, Error> {
        let Self {
            params,
            problem,
            columns,
            watch,
            ..
        } = self;
        let unseen = self.scored.as_ref().map(|(_, unseen)| unseen);
        let from = self.start.as_ref();
        let found = if is_rare {
            let new = || active::Workspace::new(problem);
            self.spaces.active.with(new, |space| {
                let n_iter =
                    active::solve(problem, labels, from, &params.0, self.effort, space, watch)?;
                let carried = self.carried(labels, |lane| space.carry(lane))?;
                let kept = |lane, prune| space.kept(problem, lane, prune);
                let solved = params.prune_panel(problem, labels, &n_iter, kept)?;
                let Some(unseen) = unseen else {
                    return Ok((solved, Vec::new(), carried));
                };
                let halves = labels.chunks(LANES).enumerate().map(|(half, labels)| {
                    let labels = (half * LANES, labels);
                    active::unlearn(problem, unseen, labels, &params.0, space, watch)?;
                    let (weights, kappas) = space.unlearned();
                    let mut scores = self.scores(weights)?;
                    for (scores, &dot) in scores.iter_mut().zip(&self.others_dot) {
                        scores.add_scaled(-dot, kappas);
                    }
                    Ok(scores)
                });
                Ok((solved, few::<_, Result<_, _>>(halves)?, carried))
            })
        } else {
            let new = || optimum::Workspace::new(problem);
            self.spaces.optimum.with(new, |space| {
                let rule = (params.0.tol, params.0.max_iter);
                let n_iter = optimum::solve(problem, columns, labels, from, rule, space, watch)?;
                let carried = self.carried(labels, |lane| space.carry(lane))?;
                let kept = |lane, prune| space.kept(problem.features.len(), lane, prune);
                let solved = params.prune_panel(problem, labels, &n_iter, kept)?;
                if let Some(unseen) = unseen {
                    // The nodes of a tree are compared with their leaves, whose labels forget a row nearly completely. With
                    // two steps, the nodes forget so little that the rankings of held-out rows suggest a path
                    // weight that is too large. On yso-finna-en, 5 and 30 steps suggest the same weight.
                    let sizes = (labels.len(), optimum::STEPS_TO_UNLEARN.1);
                    let tell = |_, _: &[f32; LANES]| Ok(());
                    optimum::unlearn(problem, columns, unseen, sizes, space, watch, tell)?;
                }
                let scores = self.scores(space.unlearned())?;
                Ok((solved, few([scores]), carried))
            })
        }?;
        watch.step(labels.len())?;
        Ok(found)
    }

    /// Returns the states of some labels. `carry(lane)` returns the state of one label. The result is empty if the
    /// states are not wanted.
    ///
    /// # Errors
    ///
    /// Returns any error of `carry`.
    fn carried(
        &self,
        labels: &[u32],
        carry: impl Fn(usize) -> Result<Carry, Error>,
    ) -> Result<Vec<Carry>, Error> {
        let n = if self.carries { labels.len() } else { 0 };
        few((0..n).map(carry))
    }

    /// Returns the scores of the rows to score. `weights` has the weights of each feature and then, if
    /// intercepts are fitted, the intercepts.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    fn scores(&self, weights: &[Lanes]) -> Result<Vec<Lanes>, Error> {
        let Some((scored, _)) = &self.scored else {
            return Ok(Vec::new());
        };
        let mut scores = filled("number of rows", Lanes::default(), scored.n_rows())?;
        let (of_features, intercept) = weights.split_at(scored.n_cols());
        times_panel(*scored, 0, of_features, &mut scores);
        if let Some(intercept) = intercept.first() {
            for scores in &mut scores {
                scores.add_scaled(1.0, intercept);
            }
        }
        Ok(scores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dismec::Params;
    use fastrand::Rng;

    /// Rows of thirty features, and four labels. Two labels are frequent, and two are rare.
    fn data(rows: std::ops::Range<u32>) -> (CsrOwned, Outputs) {
        let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
        let mut positives = vec![Vec::new(); 4];
        for (at, row) in (0..).zip(rows) {
            let mut rng = Rng::with_seed(u64::from(row));
            let label = if row % 40 == 0 {
                2 + row / 40 % 2
            } else {
                row % 2
            };
            positives[label as usize].push(at);
            for col in 0..30 {
                if col / 4 == label || rng.f32() < 0.2 {
                    indices.push(col);
                    values.push(rng.f32() + 0.2);
                }
            }
            indptr.push(indices.len());
        }
        let x = CsrOwned {
            indptr,
            indices,
            values,
            n_cols: 30,
        };
        let ends = std::iter::once(0).chain(positives.iter().scan(0, |end, rows| {
            *end += rows.len();
            Some(*end)
        }));
        let rows_of_label = CsrOwned {
            indptr: ends.collect(),
            indices: positives.concat(),
            values: vec![1.0; x.n_rows()],
            n_cols: x.n_rows(),
        };
        (
            x,
            Outputs {
                rows_of_label,
                unknown: None,
                factors: None,
            },
        )
    }

    #[test]
    fn a_fit_to_similar_rows_can_begin_with_carried_states() {
        let params = Params {
            prune: 0.0,
            tol: 1e-3,
            ..Params::default()
        };
        let params = params.check().expect("in range");
        let fit = |rows, start, carries, fills_panels| {
            let (x, outputs) = data(rows);
            let block = Block {
                x: Stored::Owned(x),
                outputs,
                weights: None,
                forgotten: None,
                start,
                carries,
            };
            let effort = Effort {
                fills_panels,
                ..Effort::OF_BLOCK
            };
            params
                .fit_block(block, &effort, &Watch::new())
                .expect("fits")
        };
        let first = fit(0..1600, None, true, false);
        let kinds: Vec<bool> = first
            .carried
            .iter()
            .map(|state| matches!(state, Carry::Weights(_)))
            .collect();
        assert_eq!(kinds, [true, true, false, false]);
        // Rows 0 to 1599 keep their numbers.
        let cold = fit(0..2000, None, false, false);
        let warm = fit(0..2000, Some(first.carried.clone()), false, false);
        assert!(cold.carried.is_empty() && warm.carried.is_empty());
        for label in 0..4 {
            let (near, far) = (
                distance(&warm, &cold, label),
                distance(&first, &cold, label),
            );
            assert!(near < far, "label {label}: {near} {far}");
        }
        assert!(warm.n_iter[0] < cold.n_iter[0] && warm.n_iter[1] < cold.n_iter[1]);
        // Each label stays with the solver that its state comes from, whether panels are filled or not.
        let filled = fit(0..2000, Some(first.carried.clone()), true, true);
        assert_eq!(filled.weights, warm.weights);
        let is_frequent = |state: &Carry| matches!(state, Carry::Weights(_));
        assert_eq!(
            filled.carried.iter().map(is_frequent).collect::<Vec<_>>(),
            kinds
        );
        let together = fit(0..1600, None, true, true);
        assert!(together.carried.iter().all(is_frequent));
        let continued = fit(0..2000, Some(together.carried), false, false);
        assert!(continued.n_iter.iter().all(|&steps| steps <= 1));
    }

    /// Returns the distance between the weights of a label in two solutions.
    fn distance(a: &Solution, b: &Solution, label: usize) -> f32 {
        let dense = |of: &Solution| {
            let mut dense = vec![0.0; 30];
            let (cols, values) = of.weights.row(label);
            for (&col, &value) in cols.iter().zip(values) {
                dense[col as usize] = value;
            }
            dense
        };
        let squares = dense(a)
            .into_iter()
            .zip(dense(b))
            .map(|(a, b)| (a - b) * (a - b));
        squares.sum::<f32>().sqrt()
    }
}
