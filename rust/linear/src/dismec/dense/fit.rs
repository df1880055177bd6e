//! Fits ranges of labels, one group after the other, and prunes the weights.

use super::Problem;
use super::descend::{Descent, Stop, descend};
use super::group::{Group, LANES, size};
use super::start::{Begun, Start, begin, panels};
use crate::cut::Tally;
use crate::dismec::optimum::steps_to_unlearn;
use crate::dismec::problem::{check_magnitude, costs};
use crate::dismec::unseen::{Sample, Unseen};
use crate::dismec::{Checked, Effort, Loss, Solver, Targets};
use crate::moments::{GramSums, Moments};
use manylabel_base::range::{same, same_rows};
use manylabel_base::{Error, Watch, collected, copied, filled, parts};
use manylabel_sparse::TableRows;
use rayon::prelude::*;
use std::cmp::Reverse;
use std::ops::Range;

/// The tolerance of rare labels with [`Solver::Fast`], divided by `tol`. The weights from which the steps begin
/// have gradients of about this size, so that most rare labels need no step or one step.
pub(super) const LOOSE: f64 = 10.0;

/// A rare label with [`Solver::Fast`] has also converged if a step lowers its objective by at most this number, times
/// `tol`, times the loss of the best constant score. Steps that gain less hardly change rankings: on embeddings of
/// eurlex57k and citeulike-t, the precision at 1 changes by less than 0.3 points, and a fit takes half of the steps.
pub(super) const LEAST_GAIN: f64 = 0.5;

/// Number of labels of a unit. Their starts are computed in parallel, before they are fitted group by group.
const LABELS_AT_ONCE: usize = 256;

/// A model with dense weights.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseModel {
    /// The weights, label after label; shape (`n_labels`, `n_features`). Weights with an absolute value below
    /// `prune` are 0.
    pub weights: Vec<f32>,
    /// The intercepts, as in [`Model`](crate::dismec::Model).
    pub intercept: Vec<f32>,
    /// The number of steps for each label; 0 for labels without a positive row.
    pub n_iter: Vec<u32>,
    /// The learned threshold, as in [`Model`](crate::dismec::Model).
    pub cut: Option<f32>,
}

/// Weights from which the steps begin.
#[derive(Debug, Clone, Copy)]
pub struct DenseStart<'a> {
    /// The weights, label after label; shape (`n_labels`, `n_features`).
    pub weights: &'a [f32],
    /// The intercepts; shape (`n_labels`). A label whose intercept is not finite has no weights.
    pub intercept: &'a [f32],
}

/// A training set with dense features, and its labels in the order in which they are fitted.
///
/// The fit consists of units of up to 256 labels. The weights of a unit depend only on the data, the parameters and
/// the unit. So units can be fitted at different times, in different processes and on different machines, and the
/// result is the same as that of one fit, bit for bit.
pub struct DenseTask<'a> {
    params: Checked,
    problem: Problem<'a>,
    order: Frequencies,
    /// The held-out rows, or None if no threshold is learned.
    unseen: Option<Unseen>,
    /// The matrices from which the starts of labels are computed.
    start: Option<Start>,
}

/// The fitted weights of a range of units.
#[derive(Debug, Clone)]
pub struct DensePiece {
    /// The labels of the piece, in the order in which they are fitted.
    pub labels: Vec<u32>,
    /// The weights, in the order of `labels`; shape (labels of the piece, `n_features`).
    pub weights: Vec<f32>,
    /// The intercepts, in the order of `labels`.
    pub intercept: Vec<f32>,
    /// The number of steps of each label, in the order of `labels`.
    pub n_iter: Vec<u32>,
    /// The scores of held-out rows that may influence the threshold. `None` if no threshold is learned.
    pub tally: Option<Tally>,
}

impl Checked {
    /// Fits weights to dense rows for each label of `y`. The arguments and the objective are those of
    /// [`fit`](Self::fit), except that `rows` are scaled already, and have a column of ones if intercepts are
    /// fitted. `start` may have weights from which the steps begin.
    ///
    /// A step takes O(rows · features) time for a label. Beside X and the model, the fit takes 8 bytes for each row
    /// and label of a group, which has 16 to 64 labels, 24 bytes for each entry of a Gram matrix, and 512 rows in
    /// single precision for each thread. The size of groups is chosen so that their matrices take about a seventh of
    /// the memory of X in single precision, or 16 MiB.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`fit`](Self::fit), or [`Error::Param`] if the loss is not the squared hinge loss.
    pub fn fit_dense<'y>(
        &self,
        rows: TableRows<'_>,
        y: impl Into<Targets<'y>>,
        weights: Option<&[f32]>,
        start: Option<DenseStart<'_>>,
        watch: &Watch,
    ) -> Result<DenseModel, Error> {
        self.dense_task(rows, y, weights, watch)?
            .model(start, watch)
    }

    /// Prepares a training set, to fit ranges of units with these parameters. The arguments are those of
    /// [`fit_dense`](Self::fit_dense).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`fit_dense`](Self::fit_dense).
    pub fn dense_task<'a, 'y>(
        &self,
        rows: TableRows<'a>,
        y: impl Into<Targets<'y>>,
        weights: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<DenseTask<'a>, Error> {
        if self.0.loss != Loss::SquaredHinge {
            return Err(Error::Param {
                name: "loss",
                expected: "the squared hinge loss if X is dense",
                got: format!("{:?}", self.0.loss),
            });
        }
        let y = y.into();
        y.check()?;
        same_rows(rows.n_rows(), y.labels.ones.n_rows(), weights, None)?;
        let outputs = y.to_outputs()?;
        let cost = costs(rows.n_rows(), weights, self.0.c)?;
        let moments = Moments::new(&rows, &cost, GramSums::Single, watch)?;
        check_magnitude(moments.longest, &cost, outputs.range_of_factors())?;
        let problem = Problem {
            total_cost: cost.iter().map(|&cost| f64::from(cost)).sum(),
            rows,
            outputs,
            cost,
            moments,
        };
        let order = self.frequencies(&problem)?;
        let drawn = (0u32..)
            .zip(&order.of_sample)
            .filter(|(_, weight)| **weight > 0.0);
        let unseen = if self.0.learn_cut {
            let drawn = drawn.map(|(label, &weight)| (label, weight));
            Unseen::new(
                &problem.cost,
                |label| problem.outputs.positives(label),
                drawn,
            )?
        } else {
            None
        };
        let start = Start::new(&problem, watch)?;
        Ok(DenseTask {
            params: self.clone(),
            problem,
            order,
            unseen,
            start,
        })
    }

    /// Returns when each label of a group has converged.
    fn stop(
        &self,
        problem: &Problem<'_>,
        labels: &[u32],
        begun: &[Begun],
        is_rare: &[bool],
    ) -> Result<Stop, Error> {
        let gradient = labels.iter().zip(begun).map(|(&label, begun)| {
            let loose = if is_rare[label as usize] { LOOSE } else { 1.0 };
            loose * self.tolerance(problem, label) * begun.gradient_at_zero
        });
        let decrease = labels.iter().zip(begun).map(|(&label, begun)| {
            if is_rare[label as usize] {
                LEAST_GAIN * self.0.tol * begun.constant_loss
            } else {
                f64::NEG_INFINITY
            }
        });
        Ok(Stop {
            gradient: collected("number of labels", gradient)?,
            decrease: collected("number of labels", decrease)?,
        })
    }

    /// Returns `tol · max(1, min(n₊, n₋))/n`, where the numbers are those of the known rows of a label.
    fn tolerance(&self, problem: &Problem<'_>, label: u32) -> f64 {
        let n_positive = problem.outputs.positives(label).len();
        let n_known = problem.rows.n_rows() - problem.outputs.unknown(label).len();
        let fewer = n_positive.min(n_known - n_positive).max(1);
        self.0.tol * fewer as f64 / n_known as f64
    }

    /// Sorts the labels by frequency, and draws the sample of labels for the threshold.
    fn frequencies(&self, problem: &Problem<'_>) -> Result<Frequencies, Error> {
        let n_labels = problem.outputs.rows_of_label.n_rows();
        let n_positive = |label: u32| problem.outputs.positives(label).len();
        let rare = (0..n_labels as u32).map(|label| {
            let n_known = problem.rows.n_rows() - problem.outputs.unknown(label).len();
            self.0.solver == Solver::Fast && Effort::FULL.is_rare(n_positive(label), n_known)
        });
        let is_rare = collected("number of labels", rare)?;
        let mut labels = collected("number of labels", 0..n_labels as u32)?;
        labels.retain(|&label| n_positive(label) > 0);
        labels.sort_unstable_by_key(|&label| {
            (is_rare[label as usize], Reverse(n_positive(label)), label)
        });
        let n_frequent = labels.partition_point(|&label| !is_rare[label as usize]);
        let mut of_sample = filled("number of labels", 0.0, n_labels)?;
        let (frequent, rare) = labels.split_at(n_frequent);
        for labels in [frequent, rare] {
            for (label, weight) in Sample::of(labels.len()).labels(labels) {
                of_sample[label as usize] = weight;
            }
        }
        Ok(Frequencies {
            labels,
            is_rare,
            of_sample,
        })
    }

    /// Copies the weights of a group to `places` of the model, without weights that are pruned.
    fn keep(
        &self,
        places: impl ExactSizeIterator<Item = usize>,
        found: &Descent,
        model: &mut DenseModel,
    ) {
        let prune = self.0.prune as f32;
        let n_features = model.weights.len() / model.intercept.len();
        let width = places.len().next_multiple_of(LANES);
        for (lane, (place, &n_iter)) in places.zip(&found.n_iter).enumerate() {
            let mut of_lane = found.weights[lane..].iter().step_by(width).copied();
            let out = &mut model.weights[place * n_features..][..n_features];
            for (out, weight) in out.iter_mut().zip(of_lane.clone()) {
                *out = if weight.abs() >= prune { weight } else { 0.0 };
            }
            model.intercept[place] = of_lane.nth(n_features).unwrap_or(0.0);
            model.n_iter[place] = n_iter.max(1);
        }
    }
}

impl DenseTask<'_> {
    /// Returns the number of units.
    pub fn n_units(&self) -> usize {
        self.order.labels.len().div_ceil(LABELS_AT_ONCE)
    }

    /// Returns the number of features of X.
    pub fn n_features(&self) -> usize {
        self.problem.rows.dim() - usize::from(self.params.0.fit_intercept)
    }

    /// Fits a range of units, on all threads of the pool. Units after the last one are ignored. `watch` counts finished
    /// labels.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Checked::fit_dense`].
    ///
    /// # Panics
    ///
    /// Panics if the range ends before it starts.
    pub fn fit(&self, units: Range<usize>, watch: &Watch) -> Result<DensePiece, Error> {
        let labels = &self.order.labels;
        let first_of = |unit: usize| labels.len().min(unit.saturating_mul(LABELS_AT_ONCE));
        let labels = &labels[first_of(units.start)..first_of(units.end)];
        let mut model = self.empty(labels.len())?;
        let tally = self.solve(labels, None, |at, _| at, &mut model, watch)?;
        Ok(DensePiece {
            labels: copied("number of labels", labels)?,
            weights: model.weights,
            intercept: model.intercept,
            n_iter: model.n_iter,
            tally,
        })
    }

    /// Fits all units. `given` may have weights from which the steps begin.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Checked::fit_dense`].
    pub fn model(&self, given: Option<DenseStart<'_>>, watch: &Watch) -> Result<DenseModel, Error> {
        let n_labels = self.problem.outputs.rows_of_label.n_rows();
        if let Some(given) = given {
            same("labels with weights", n_labels, given.intercept.len())?;
            same("weights", n_labels * self.n_features(), given.weights.len())?;
        }
        let mut model = self.empty(n_labels)?;
        let of_label = |_, label| label as usize;
        let tally = self.solve(&self.order.labels, given, of_label, &mut model, watch)?;
        model.cut = tally.and_then(|mut tally| tally.cut(0.0));
        Ok(model)
    }

    /// Returns a model of `n_labels` labels without weights.
    fn empty(&self, n_labels: usize) -> Result<DenseModel, Error> {
        let n_features = self.n_features();
        let n_weights = n_labels
            .checked_mul(n_features)
            .ok_or_else(|| Error::TooLarge {
                what: "the matrix of weights",
                got: format!("{n_labels} x {n_features} numbers do not fit in memory"),
            })?;
        Ok(DenseModel {
            weights: filled("the matrix of weights", 0.0, n_weights)?,
            intercept: filled("number of labels", f32::NEG_INFINITY, n_labels)?,
            n_iter: filled("number of labels", 0, n_labels)?,
            cut: None,
        })
    }

    /// Fits labels of whole units. `place` maps the position of a label in `labels`, and the label, to its place in
    /// the model. Returns the scores of the held-out rows, or None if no threshold is learned.
    fn solve(
        &self,
        labels: &[u32],
        given: Option<DenseStart<'_>>,
        place: impl Fn(usize, u32) -> usize,
        model: &mut DenseModel,
        watch: &Watch,
    ) -> Result<Option<Tally>, Error> {
        let (params, problem) = (&self.params, &self.problem);
        let of_group = size(problem.rows.n_rows(), problem.rows.dim());
        let mut tally = self.unseen.as_ref().map(Unseen::tally);
        let mut n_fitted = 0;
        for labels in labels.chunks(LABELS_AT_ONCE) {
            let panels = panels(problem, labels)?;
            let begun = panels
                .par_iter()
                .map(|labels| begin(problem, self.start.as_ref(), labels, watch));
            let begun = parts(begun)?;
            let begun = collected("number of labels", begun.into_iter().flatten())?;
            for (labels, begun) in labels.chunks(of_group).zip(begun.chunks(of_group)) {
                let stop = params.stop(problem, labels, begun, &self.order.is_rare)?;
                let mut group = Group::new(problem, copied("number of labels", labels)?)?;
                fill(&mut group, begun, given, self.n_features());
                group.score(problem, watch)?;
                let costs = (&problem.cost[..], problem.total_cost);
                let found = descend(
                    problem,
                    costs,
                    Some(stop),
                    params.0.max_iter,
                    &mut group,
                    watch,
                )?;
                drop(group);
                let places = labels.iter().enumerate();
                let places = places.map(|(lane, &label)| place(n_fitted + lane, label));
                params.keep(places, &found, model);
                if let (Some(unseen), Some(tally)) = (&self.unseen, &mut tally) {
                    let of_sample = &self.order.of_sample;
                    drop_scores(problem, labels, &found, of_sample, unseen, tally, watch)?;
                }
                n_fitted += labels.len();
                watch.step(labels.len())?;
            }
        }
        Ok(tally)
    }
}

/// The labels in the order of their fit.
struct Frequencies {
    /// The labels with a positive row: first the labels that are not rare, in decreasing order of the number of
    /// positive rows, then the rare labels, in the same order.
    labels: Vec<u32>,
    /// True for labels whose fit has a looser tolerance.
    is_rare: Vec<bool>,
    /// The number of labels that a label in the sample for the threshold represents, or 0 for other labels.
    of_sample: Vec<f32>,
}

/// Writes the weights from which the steps begin.
fn fill(group: &mut Group, begun: &[Begun], given: Option<DenseStart<'_>>, n_features: usize) {
    for (lane, (&label, begun)) in group.labels.iter().zip(begun).enumerate() {
        let of_lane = group.weights[lane..].iter_mut().step_by(group.width);
        let label = label as usize;
        match given.filter(|given| given.intercept[label].is_finite()) {
            None => of_lane
                .zip(&begun.weights)
                .for_each(|(out, &weight)| *out = weight),
            Some(given) => {
                let weights = given.weights[label * n_features..][..n_features].iter();
                let weights = weights.chain([&given.intercept[label]]);
                of_lane
                    .zip(weights)
                    .for_each(|(out, &weight)| *out = weight);
            }
        }
    }
}

/// Adds the scores of held-out rows to `tally`, for the labels of a group that are in the sample. A few steps
/// adapt a copy of their weights to the rows that are not held out; see `unseen.rs`.
fn drop_scores(
    problem: &Problem<'_>,
    of_group: &[u32],
    found: &Descent,
    of_sample: &[f32],
    unseen: &Unseen,
    tally: &mut Tally,
    watch: &Watch,
) -> Result<(), Error> {
    let is_drawn = |(_, label): &(usize, &u32)| of_sample[**label as usize] > 0.0;
    let lanes = of_group.iter().enumerate().filter(is_drawn);
    let lanes = collected("number of labels", lanes.map(|(lane, _)| lane))?;
    if lanes.is_empty() {
        return Ok(());
    }
    let labels = collected("number of labels", lanes.iter().map(|&lane| of_group[lane]))?;
    let mut sample = Group::new(problem, labels)?;
    let width = of_group.len().next_multiple_of(LANES);
    for (from, to) in found
        .weights
        .chunks(width)
        .zip(sample.weights.chunks_mut(sample.width))
    {
        for (to, &lane) in to.iter_mut().zip(&lanes) {
            *to = from[lane];
        }
    }
    let n_steps = lanes
        .iter()
        .map(|&lane| found.n_iter[lane])
        .max()
        .unwrap_or(0) as usize;
    let n_steps = steps_to_unlearn(n_steps);
    sample.score(problem, watch)?;
    let costs = (&unseen.cost[..], unseen.total_cost);
    descend(problem, costs, None, n_steps, &mut sample, watch)?;
    sample.scores(&unseen.rows, |row, lane, score| {
        let weight = of_sample[sample.labels[lane] as usize] * problem.cost[row as usize];
        tally.push(score, weight)
    })
}
