//! Searches for the condition that improves a rule most.
//!
//! The body of a rule is the list of its conditions. The *parent set* is the set of rows that the
//! body covers so far. Every condition on a feature splits the parent set into two halves: the rows
//! that satisfy the condition, and the rows that satisfy the opposite condition. Both halves are
//! candidates. The rows of the parent set are sorted by the feature (`groups.rs`). They are added
//! to a *growing set*, one group of rows with equal or similar values after the other (`sweep.rs`).
//! An [`Evaluator`] computes the quality of the growing set and the quality of its complement
//! within the parent set.
//!
//! | evaluator | head | what is kept up to date |
//! |---|---|---|
//! | `BySums` with `Independent` | one label, or independent labels | sums |
//! | `BySums` with `IndependentBins` | independent bins | sums, and bins of each candidate |
//! | `BySums` with `TwoBins` | one bin per sign, few labels, full columns | sums and a Gram matrix |
//! | `Binned` | bins of each candidate's own sums | sums, rows by bins, products of bins |
//! | `FewRows` | own bins for few rows, parent's bins for others | sums, rows by bins, sums by bins |
//! | `Full` | all labels | sums, and approximate heads of the candidates |
//!
//! With few label bins under the example-wise loss, the fast search uses no evaluator for full
//! columns (features with many nonzero values). Each row is reduced to a few sums over the bins of
//! the parent set. These sums are added to a histogram over groups of values (`parent_bins.rs`).
//!
//! Features are searched in parallel, with a few features per task. Among equally good conditions, the search
//! prefers the feature that comes first in the sample, up to rounding. On the same feature, it prefers the
//! lower threshold, and then ≤ to >. The result does not depend on the number of threads.
//!
//! When a condition is added to the body, the sums of the remaining rows are computed by subtraction if this
//! is less work ([`Moments::keep`]). In the formula `Σ w g gᵀ`, w is the weight of a row, and g is its
//! gradient. The sum is over a set of rows.

mod full;
mod groups;
mod halves;
mod own_bins;
mod parent_bins;
mod sweep;
#[cfg(test)]
mod tests;
mod two_bins;

use crate::columns::{Column, Columns, GROUPS};
use crate::gram::Gram;
use crate::head::Method;
use crate::head::solve::{CANDIDATE_TOLERANCE, Goal, Near, Outer, Set, Solver, improve};
use crate::lanes::{Aligned, WIDTH};
use crate::pace::Pace;
use crate::statistics::{PARALLEL_FROM, Statistics, Sums};
use crate::{Operator, Params, Search};
use full::Full;
use groups::Groups;
pub(crate) use groups::{ABSENT, RowSet};
use halves::{BySums, Independent, IndependentBins, Scored};
use manylabel_base::{Error, collected, reserved};
use manylabel_simd::wide;
use own_bins::{Binned, ParentBins};
use parent_bins::BinnedStatistics;
use rayon::prelude::*;
use sweep::{Evaluator, Split, sweep};
use two_bins::{MOST_CHUNKS, TwoBins};

/// Largest number of labels, rounded up to a multiple of eight, for which the fast search with label binning
/// keeps a Gram matrix.
const MOST_LABELS: usize = 256;

/// From this amount of work on ([`Context::work`]), the search for a condition has two tasks. With less work, it has
/// one task.
const SOME_WORK: usize = 2 * PARALLEL_FROM;

/// From this amount of work on, tasks have [`FEATURES_OF_PIECE`] features.
const MUCH_WORK: usize = 8 * PARALLEL_FROM;

/// Number of features per task if there is much work. The features of a task use the same evaluator. After the
/// first feature, the quality of its best condition excludes many candidates on the next feature.
const FEATURES_OF_PIECE: usize = 2;

/// Evaluating a candidate takes about as long as adding this number of rows to a set.
const ROWS_OF_CANDIDATE: usize = 32;

/// A candidate for the next condition of a rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// The quality of the sampled rows that satisfy the condition.
    pub(crate) quality: f64,
    /// True if the quality may be an estimate. An estimate uses the label bins of the rows before the
    /// condition is added, instead of the candidate's own bins.
    pub(crate) estimated: bool,
    /// The feature that the condition compares.
    pub(crate) feature: usize,
    /// The comparison operator.
    pub(crate) operator: Operator,
    /// The threshold that the feature is compared with.
    pub(crate) threshold: f32,
}

/// Sums over the rows that the body covers so far (the parent set). When the body gets another condition,
/// rows can be subtracted from these sums.
#[derive(Debug)]
pub(crate) struct Moments {
    /// Sums by label.
    sums: Sums,
    /// The matrix `Σ w g gᵀ`, or `None` if the search does not need the matrix.
    gram: Option<Gram>,
    /// The head of all labels for the rows that the body covers so far. The solver starts from this head for
    /// each candidate. The length is 0 unless heads score all labels without bins.
    pub(crate) near: Near,
}

impl Moments {
    /// Computes the sums, the matrix and the head of `rows`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`](manylabel_base::Watch::step). Returns [`Error::TooLarge`]
    /// if there is not enough memory.
    pub(crate) fn over(
        context: &Context<'_>,
        rows: &[u32],
        weights: &[f64],
    ) -> Result<Self, Error> {
        let n = match context.method {
            Method::Full => context.statistics.stride,
            _ => 0,
        };
        let mut moments = Self::sums(context, rows, weights, Near::zero(n)?)?;
        moments.solve(context, rows, weights)?;
        Ok(moments)
    }

    /// Computes the sums and the matrix of `rows`. Returns both together with the given head `near`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`over`](Self::over).
    fn sums(
        context: &Context<'_>,
        rows: &[u32],
        weights: &[f64],
        near: Near,
    ) -> Result<Self, Error> {
        let statistics = context.statistics;
        let sums = Sums::over(statistics, context.method.kinds(), rows, weights)?;
        let gram = context.needs_gram(rows.len());
        let gram = gram.then(|| Gram::over(statistics, rows, weights));
        Ok(Self {
            sums,
            gram: gram.transpose()?,
            near,
        })
    }

    /// Returns a copy.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the copy does not fit in memory.
    fn copied(&self) -> Result<Self, Error> {
        Ok(Self {
            sums: self.sums.copied()?,
            gram: self.gram.as_ref().map(Gram::copied).transpose()?,
            near: self.near.copied()?,
        })
    }

    /// Reduces the set to the rows in `kept`. If `gone` has fewer rows than `kept`, the rows in `gone` are
    /// subtracted. Otherwise the rows in `kept` are summed again. `head` is an approximate head of the kept
    /// rows. Without `head`, the solver starts from the head of the old set.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`over`](Self::over).
    pub(crate) fn keep(
        &mut self,
        context: &Context<'_>,
        kept: &[u32],
        gone: &[u32],
        weights: &[f64],
        head: Option<Aligned>,
    ) -> Result<(), Error> {
        if let Some(head) = head {
            self.near.x = head;
        }
        if kept.len() <= gone.len() {
            let near = std::mem::replace(&mut self.near, Near::zero(0)?);
            *self = Self::sums(context, kept, weights, near)?;
        } else {
            self.sums.remove(context.statistics, gone, weights)?;
            self.gram.take_if(|_| !context.needs_gram(kept.len()));
            if let Some(gram) = &mut self.gram {
                gram.add_rows(-1.0, context.statistics, gone, weights)?;
            }
        }
        self.solve(context, kept, weights)
    }

    /// Improves the stored head until it is the optimal head of `rows`. Does nothing unless heads score all
    /// labels without bins.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`over`](Self::over).
    fn solve(&mut self, context: &Context<'_>, rows: &[u32], weights: &[f64]) -> Result<(), Error> {
        let statistics = context.statistics;
        if let Method::Full = context.method {
            let outer = Outer::of(self.gram.as_ref(), rows, weights);
            let (sums, near) = (&self.sums, &mut self.near);
            near.multiply(statistics, outer)?;
            let mut solver = Solver::<0>::new(statistics.stride, context.params.l2)?;
            let parts = [(1.0, outer)];
            let set = Set::new(statistics, sums, &parts);
            improve(&mut solver, set, Goal::any(CANDIDATE_TOLERANCE), near)?;
        }
        Ok(())
    }
}

/// The parent set: the sampled rows that satisfy the conditions so far, and data that depend only
/// on these rows.
pub(crate) struct Parent<'a> {
    /// The rows, in increasing order.
    rows: &'a [u32],
    /// Weights of all training rows. Rows outside the sample have weight 0.
    weights: &'a [f64],
    /// Sums over the rows.
    moments: &'a Moments,
    /// The Gram matrix summed by the label bins of the parent set. `None` without label binning or without a
    /// Gram matrix.
    bins: Option<ParentBins>,
}

impl<'a> Parent<'a> {
    /// Returns the parent set. Computes its label bins if there is a Gram matrix.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    fn new(
        context: &Context<'_>,
        rows: &'a [u32],
        weights: &'a [f64],
        moments: &'a Moments,
    ) -> Result<Self, Error> {
        let mut parent = Self {
            rows,
            weights,
            moments,
            bins: None,
        };
        if let (Method::Bins { binner, .. }, Some(gram)) = (context.method, parent.gram()) {
            parent.bins = Some(ParentBins::new(gram, &moments.sums, &binner)?);
        }
        Ok(parent)
    }

    /// Returns the Gram matrix, if there is one.
    fn gram(&self) -> Option<&'a Gram> {
        self.moments.gram.as_ref()
    }

    /// Returns the matrix `Σ w g gᵀ` over the set. If there is a Gram matrix, the result refers to it.
    /// Otherwise the result refers to the rows.
    fn outer(&self) -> Outer<'_> {
        Outer::of(self.gram(), self.rows, self.weights)
    }
}

/// Data that do not change while a rule grows.
pub(crate) struct Context<'a> {
    /// Gradients of all training rows.
    pub(crate) statistics: &'a Statistics<'a>,
    /// The features of all training rows.
    columns: &'a Columns,
    /// The parameters of the fit.
    params: &'a Params,
    /// The method for computing heads.
    pub(crate) method: Method,
}

impl<'a> Context<'a> {
    /// Stores the references and computes nothing.
    pub(crate) fn new(
        statistics: &'a Statistics<'a>,
        columns: &'a Columns,
        params: &'a Params,
        method: Method,
    ) -> Self {
        Self {
            statistics,
            columns,
            params,
            method,
        }
    }

    /// Returns true if conditions on a feature are evaluated with the label bins of the parent set. In the
    /// fast search, this is the case for columns that store all rows, if there are few bins. If there are too
    /// many labels for a Gram matrix, this is the case for all columns.
    fn is_estimated(&self, column: &Column) -> bool {
        self.params.search == Search::Fast
            && self.has_few_bins()
            && (column.implicit.is_none() || self.statistics.stride > MOST_LABELS)
    }

    /// Returns true if the search uses the positions of rows within their set. Otherwise it only uses which
    /// rows are in the set.
    pub(crate) fn needs_positions(&self) -> bool {
        self.params.search == Search::Fast && self.has_few_bins()
    }

    /// Returns true if there are few bins. Bins are few if the sums and products of the bins of a row take at
    /// most two numbers per label.
    fn has_few_bins(&self) -> bool {
        matches!(self.method, Method::Bins { binner, .. }
            if binner.n_bins * (binner.n_bins + 3) / 2 <= 2 * self.statistics.stride)
    }

    /// Returns true if the search needs the matrix `Σ w g gᵀ` over a set of `n_rows` rows.
    fn needs_gram(&self, n_rows: usize) -> bool {
        match self.method {
            Method::Bins { .. } => {
                let estimated = self.params.search == Search::Fast && self.has_few_bins();
                !estimated || self.statistics.stride <= MOST_LABELS && self.columns.any_sparse
            }
            // With few rows, products with the rows are faster.
            Method::Full => 2 * n_rows > self.statistics.stride,
            _ => false,
        }
    }

    /// Returns the approximate number of values that the search over a feature reads, for a set of `n_rows`
    /// rows. This number determines whether threads are used.
    fn work(&self, feature: usize, n_rows: usize) -> usize {
        let (column, stride) = (&self.columns.all[feature], self.statistics.stride);
        // The set has about the same share of the stored values of the column as of all rows.
        let share = n_rows as f64 / self.columns.n_rows as f64;
        let n_rows = (share * column.rows.len() as f64) as usize;
        let mut n_thresholds = n_rows.min(column.values.len().saturating_sub(1));
        if self.params.search == Search::Fast {
            n_thresholds = n_thresholds.min(GROUPS);
        }
        let for_each = match self.method {
            // Most candidates are rejected in O(labels) time, and the others take O(labels²).
            Method::Full => ROWS_OF_CANDIDATE.max(stride / 2),
            _ => ROWS_OF_CANDIDATE,
        };
        stride * (n_rows + for_each * n_thresholds)
    }

    /// Returns the best condition on one of `features` with a quality below `bound`, or `None` if
    /// there is no such condition.
    ///
    /// - `label` is the label of single-label heads, if it has already been chosen.
    /// - `room` is a workspace for the statistics of rows, summed by bins.
    ///
    /// If heads score all labels without bins, an approximate head of the rows that satisfy the condition is
    /// also returned. Among equally good conditions, the condition on the first feature in `features` is
    /// returned, up to rounding errors of the qualities. On the same feature, a lower threshold is preferred,
    /// and then ≤ is preferred to >.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`](manylabel_base::Watch::step). Returns [`Error::TooLarge`]
    /// if there is not enough memory.
    pub(crate) fn best_condition(
        &self,
        set: RowSet<'_>,
        moments: &Moments,
        features: &[usize],
        bound: f64,
        label: Option<usize>,
        room: &mut Vec<f64>,
    ) -> Result<Option<(Candidate, Option<Aligned>)>, Error> {
        let is_estimated = |&feature: &usize| self.is_estimated(&self.columns.all[feature]);
        let estimates = if features.iter().any(is_estimated) {
            Some(BinnedStatistics::new(self, set, &moments.sums, room)?)
        } else {
            None
        };
        let parent = (!features.iter().all(is_estimated))
            .then(|| Parent::new(self, set.rows, set.weights, moments));
        let parent = parent.transpose()?;
        let search = |(first, features): (usize, &[usize])| {
            let mut best = None;
            let mut tasks = reserved("number of features", features.len())?;
            for (at, &feature) in (first..).zip(features) {
                self.statistics.ask()?;
                let column = &self.columns.all[feature];
                match &estimates {
                    Some(estimates) if self.is_estimated(column) => {
                        let found = estimates.search(self, column, set, bound)?;
                        best = better(best, found.map(|found| Found::new(at, found)));
                    }
                    _ => {
                        let coarse = self.params.search == Search::Fast;
                        let groups = Groups::new(column, &set, coarse)?;
                        tasks.push(Task { at, column, groups });
                    }
                }
            }
            let Some(parent) = &parent else {
                return Ok(best);
            };
            Ok(better(best, self.sweep(parent, tasks, bound, label)?))
        };
        let work: usize = features
            .iter()
            .map(|&feature| self.work(feature, set.rows.len()))
            .sum();
        let best = if work < SOME_WORK {
            search((0, features))?
        } else {
            let long = if work < MUCH_WORK {
                features.len().div_ceil(2)
            } else {
                FEATURES_OF_PIECE
            };
            let pieces = features.par_chunks(long).enumerate();
            let pieces = pieces.map(|(piece, features)| search((piece * long, features)));
            pieces.try_reduce(|| None, |a, b| Ok(better(a, b)))?
        };
        Ok(best.map(
            |Found {
                 at,
                 split,
                 threshold,
                 head,
             }| {
                let condition = Candidate {
                    quality: split.quality,
                    estimated: is_estimated(&features[at]),
                    feature: features[at],
                    operator: split.operator,
                    threshold,
                };
                (condition, head)
            },
        ))
    }

    /// Returns the best condition of all `tasks` with a quality below `bound`. A task is the search over one
    /// feature. If rows of the parent set have no value for a feature, the search over this feature uses a
    /// parent set without these rows.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`best_condition`](Self::best_condition).
    fn sweep(
        &self,
        parent: &Parent<'_>,
        mut tasks: Vec<Task<'_>>,
        bound: f64,
        label: Option<usize>,
    ) -> Result<Option<Found>, Error> {
        tasks.retain(|task| task.groups.list.len() >= 2);
        let is_lacking = |task: &mut Task<'_>| !task.groups.missing.is_empty();
        let lacking = collected("number of features", tasks.extract_if(.., is_lacking))?;
        let mut best = self.sweep_full(parent, &tasks, bound, label)?;
        for mut task in lacking {
            // Rows with a missing value satisfy neither a condition nor its opposite.
            let missing = &mut task.groups.missing;
            missing.sort_unstable();
            let absent = |row: &u32| missing.binary_search(row).is_err();
            let rows = parent.rows.iter().copied().filter(absent);
            let rows = collected("number of rows", rows)?;
            let mut moments = parent.moments.copied()?;
            moments.keep(self, &rows, missing, parent.weights, None)?;
            let parent = Parent::new(self, &rows, parent.weights, &moments)?;
            let found = self.sweep_full(&parent, &[task], bound, label)?;
            best = better(best, found);
        }
        Ok(best)
    }

    /// Does the work of [`sweep`](Self::sweep) for features without missing values in the parent set. This
    /// function selects the evaluator.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`best_condition`](Self::best_condition).
    fn sweep_full(
        &self,
        parent: &Parent<'_>,
        tasks: &[Task<'_>],
        bound: f64,
        label: Option<usize>,
    ) -> Result<Option<Found>, Error> {
        let Some(most_rows) = tasks.iter().map(|task| task.groups.rows.len()).max() else {
            return Ok(None);
        };
        let (statistics, l2) = (self.statistics, self.params.l2);
        let least = self.params.min_coverage;
        let pace = &mut statistics.pace();
        match self.method {
            Method::Single | Method::Diagonal => {
                let scored = match (self.method, label) {
                    (Method::Diagonal, _) => Scored::All,
                    (_, None) => Scored::Best,
                    (_, Some(label)) => Scored::One(label),
                };
                let judge = Independent { l2, scored };
                let mut evaluator = BySums::new(statistics, parent, judge)?;
                sweep_with(&mut evaluator, tasks, least, bound, pace)
            }
            Method::DiagonalBins(binner) => {
                let judge = IndependentBins::new(statistics.stride, binner, l2)?;
                let mut evaluator = BySums::new(statistics, parent, judge)?;
                sweep_with(&mut evaluator, tasks, least, bound, pace)
            }
            Method::Bins { binner, restricted } => {
                let Some((gram, bins)) = parent.gram().zip(parent.bins.as_ref()) else {
                    return Ok(None);
                };
                let n_chunks = statistics.stride / WIDTH;
                let is_full = tasks.iter().all(|task| task.column.implicit.is_none());
                if n_chunks <= MOST_CHUNKS && binner.signs_only && !restricted && is_full {
                    let sweep_two_bins = match n_chunks {
                        1 => sweep_two_bins::<1>,
                        2 => sweep_two_bins::<2>,
                        3 => sweep_two_bins::<3>,
                        _ => sweep_two_bins::<MOST_CHUNKS>,
                    };
                    return sweep_two_bins(self, parent, gram, tasks, bound);
                }
                let mut evaluator = Binned::new(
                    statistics, parent, gram, bins, binner, l2, restricted, most_rows,
                )?;
                sweep_with(&mut evaluator, tasks, least, bound, pace)
            }
            Method::Full => {
                let sweep_all_labels = match statistics.stride / WIDTH {
                    1 => sweep_all_labels::<1>,
                    2 => sweep_all_labels::<2>,
                    3 => sweep_all_labels::<3>,
                    4 => sweep_all_labels::<4>,
                    _ => sweep_all_labels::<0>,
                };
                sweep_all_labels(self, parent, tasks, bound, most_rows)
            }
        }
    }
}

/// The search over one feature.
struct Task<'a> {
    /// Index of the feature in the sample of features.
    at: usize,
    /// The feature.
    column: &'a Column,
    /// The rows of the parent set, grouped by value.
    groups: Groups,
}

/// The best condition on a feature.
#[derive(Debug)]
struct Found {
    /// Index of the feature in the sample of features.
    at: usize,
    /// The condition, which refers to groups of values.
    split: Split,
    /// The threshold of the condition.
    threshold: f32,
    /// An approximate head of the rows that satisfy the condition, if one was computed.
    head: Option<Aligned>,
}

impl Found {
    /// Returns a condition without a head.
    fn new(at: usize, (split, threshold): (Split, f32)) -> Self {
        Self {
            at,
            split,
            threshold,
            head: None,
        }
    }
}

/// Returns the better of two conditions. If they are equally good, returns the condition on the feature that
/// comes first in the sample.
fn better(a: Option<Found>, b: Option<Found>) -> Option<Found> {
    let key = |found: &Found| (found.split.quality, found.at);
    match (a, b) {
        (Some(a), Some(b)) => Some(if key(&b) < key(&a) { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// Returns the threshold of a split. The threshold lies between two groups, or is the value of a nominal
/// feature.
fn threshold(column: &Column, groups: &Groups, split: Split) -> f32 {
    let group = groups.list[split.group];
    if column.nominal {
        column.values[group.first as usize]
    } else {
        column.between(group.last, groups.list[split.group + 1].first)
    }
}

/// Returns the best condition on the features of `tasks`. All features use the same `evaluator`.
/// The quality of the best condition so far is the bound for the next feature. With this bound,
/// most candidates are rejected before their head is computed completely.
///
/// # Errors
///
/// Returns the same errors as [`Pace::spend`], or any error of the evaluator.
#[inline(always)]
fn sweep_each(
    evaluator: &mut impl Evaluator,
    tasks: &[Task<'_>],
    least: usize,
    bound: f64,
    pace: &mut Pace<'_>,
) -> Result<Option<Found>, Error> {
    let mut best: Option<(&Task<'_>, Split)> = None;
    for task in tasks {
        let bound = best.map_or(bound, |(_, split)| split.quality);
        let (groups, nominal) = (&task.groups, task.column.nominal);
        let split = sweep(evaluator, groups, nominal, least, bound, pace)?;
        best = split.map(|split| (task, split)).or(best);
    }
    Ok(best.map(|(task, split)| {
        let threshold = threshold(task.column, &task.groups, split);
        Found::new(task.at, (split, threshold))
    }))
}

/// Calls [`sweep_each`]. The call and all code inlined into it are compiled for several instruction
/// sets.
///
/// # Errors
///
/// Returns the same errors as [`sweep_each`].
#[wide]
fn sweep_with<E: Evaluator>(
    evaluator: &mut E,
    tasks: &[Task<'_>],
    least: usize,
    bound: f64,
    pace: &mut Pace<'_>,
) -> Result<Option<Found>, Error> {
    sweep_each(evaluator, tasks, least, bound, pace)
}

/// Calls [`sweep_each`] for heads of all labels. Also returns the head of the best condition.
///
/// # Errors
///
/// Returns the same errors as [`sweep_each`]. Returns [`Error::TooLarge`] if there is not enough memory.
#[wide]
fn sweep_all_labels<const C: usize>(
    context: &Context<'_>,
    parent: &Parent<'_>,
    tasks: &[Task<'_>],
    bound: f64,
    most_rows: usize,
) -> Result<Option<Found>, Error> {
    let params = context.params;
    let mut pace = context.statistics.pace();
    let mut evaluator = Full::<C>::new(context.statistics, parent, params.l2, most_rows)?;
    let found = sweep_each(&mut evaluator, tasks, params.min_coverage, bound, &mut pace)?;
    Ok(found.map(|found| Found {
        head: Some(evaluator.best),
        ..found
    }))
}

/// Calls [`sweep_each`] for one bin per sign and few labels.
///
/// # Errors
///
/// Returns the same errors as [`sweep_each`]. Returns [`Error::TooLarge`] if there is not enough memory.
#[wide]
fn sweep_two_bins<const C: usize>(
    context: &Context<'_>,
    parent: &Parent<'_>,
    gram: &Gram,
    tasks: &[Task<'_>],
    bound: f64,
) -> Result<Option<Found>, Error> {
    let params = context.params;
    let statistics = context.statistics;
    let mut pace = statistics.pace();
    let judge = TwoBins::<C>::new(statistics.stride, gram, params.l2)?;
    let mut evaluator = BySums::new(statistics, parent, judge)?;
    sweep_each(&mut evaluator, tasks, params.min_coverage, bound, &mut pace)
}
