//! The search for the condition that improves a rule most.

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
use crate::head::solve::{CANDIDATE_TOLERANCE, Goal, Near, Outer, Set, Solver};
use crate::lanes::{Aligned, WIDTH};
use crate::pace::Pace;
use crate::statistics::{PARALLEL_FROM, Statistics, Sums};
use crate::{Operator, Params, Search};
use full::Full;
use groups::Groups;
pub(crate) use groups::{ABSENT, RowSet};
use halves::{BySums, Independent, IndependentBins, Scored};
use manylabel_base::{Error, collected, filled, reserved};
use manylabel_simd::wide;
use own_bins::{Binned, ParentBins};
use parent_bins::BinnedStatistics;
use rayon::prelude::*;
use sweep::{Evaluator, Split, sweep};
use two_bins::{MOST_CHUNKS, TwoBins};

/// Most labels (padded) of which the fast search keeps a matrix.
const MOST_LABELS: usize = 256;

/// Features that one thread searches with one evaluator, of which each profits from those before.
const FEATURES_OF_PIECE: usize = 2;

/// A condition that a rule might be given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// Of the rows of the sample that satisfy it.
    pub(crate) quality: f64,
    /// Whether that is by the bins of the parent set rather than their own.
    pub(crate) estimated: bool,
    pub(crate) feature: usize,
    pub(crate) operator: Operator,
    pub(crate) threshold: f32,
}

/// Sums over a set of rows, which the rows of its subsets may be taken out of.
#[derive(Debug)]
pub(crate) struct Moments {
    sums: Sums,
    /// `Σ w g gᵀ`, where candidates need it as a matrix.
    gram: Option<Gram>,
    /// The head of all labels, where candidates begin with it.
    pub(crate) near: Near,
}

impl Moments {
    /// # Errors
    ///
    /// As [`Watch::step`](manylabel_base::Watch::step), [`Error::TooLarge`].
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

    /// The same at another place.
    fn copied(&self) -> Result<Self, Error> {
        Ok(Self {
            sums: self.sums.copied()?,
            gram: self.gram.as_ref().map(Gram::copied).transpose()?,
            near: self.near.copied()?,
        })
    }

    /// Leaves the rows that were kept of a set and not those that are gone, by what is less work.
    /// `head` is near that of the rows kept; without it, that of the set is taken to be.
    ///
    /// # Errors
    ///
    /// As [`over`](Self::over).
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

    /// Improves the head until it is that of `rows`.
    fn solve(&mut self, context: &Context<'_>, rows: &[u32], weights: &[f64]) -> Result<(), Error> {
        let statistics = context.statistics;
        if let Method::Full = context.method {
            let outer = Outer::of(self.gram.as_ref(), rows, weights);
            let (sums, near) = (&self.sums, &mut self.near);
            near.multiply(statistics, outer)?;
            let mut solver = Solver::<0>::new(statistics.stride, context.params.l2)?;
            let parts = [(1.0, outer)];
            let set = Set::new(statistics, sums, &parts);
            solver.quality(set, Goal::any(CANDIDATE_TOLERANCE), near)?;
        }
        Ok(())
    }
}

/// The rows of the sample that the conditions so far cover, with all that depends on them alone.
pub(crate) struct Parent<'a> {
    rows: &'a [u32],
    /// Of all training rows; 0 outside of the sample.
    weights: &'a [f64],
    moments: &'a Moments,
    bins: Option<ParentBins>,
}

impl<'a> Parent<'a> {
    fn new(
        context: &Context<'_>,
        rows: &'a [u32],
        weights: &'a [f64],
        moments: &'a Moments,
    ) -> Result<Self, Error> {
        let statistics = context.statistics;
        let mut parent = Self {
            rows,
            weights,
            moments,
            bins: None,
        };
        if let (Method::Bins { binner, .. }, Some(gram)) = (context.method, parent.gram()) {
            let of_labels = || filled("number of labels", 0.0, statistics.stride);
            let mut bins = of_labels()?;
            let (g, h) = (moments.sums.g(), moments.sums.h());
            binner.assign(g, h, &mut of_labels()?, &mut bins);
            parent.bins = Some(ParentBins::new(gram, bins, binner.n_bins)?);
        }
        Ok(parent)
    }

    fn gram(&self) -> Option<&'a Gram> {
        self.moments.gram.as_ref()
    }

    fn outer(&self) -> Outer<'_> {
        Outer::of(self.gram(), self.rows, self.weights)
    }
}

/// What does not change while a rule grows.
pub(crate) struct Context<'a> {
    pub(crate) statistics: &'a Statistics<'a>,
    columns: &'a Columns,
    params: &'a Params,
    pub(crate) method: Method,
}

impl<'a> Context<'a> {
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

    /// Whether conditions on a feature are compared by the bins of their parent: those on features
    /// that most rows have, and all where a matrix of all labels would be too much; if bins are so
    /// few that it saves work.
    fn is_estimated(&self, column: &Column) -> bool {
        self.params.search == Search::Fast
            && self.has_few_bins()
            && (column.implicit.is_none() || self.statistics.stride > MOST_LABELS)
    }

    /// Whether the search uses where rows stand in their set, not only which are in it.
    pub(crate) fn needs_positions(&self) -> bool {
        self.params.search == Search::Fast && self.has_few_bins()
    }

    /// Whether a row by bins, with the products of bins, is at most twice as long as one by labels.
    fn has_few_bins(&self) -> bool {
        matches!(self.method, Method::Bins { binner, .. }
            if binner.n_bins * (binner.n_bins + 3) / 2 <= 2 * self.statistics.stride)
    }

    /// Whether the search needs `Σ w g gᵀ` over so many rows as a matrix.
    fn needs_gram(&self, n_rows: usize) -> bool {
        match self.method {
            Method::Bins { .. } => {
                let estimated = self.params.search == Search::Fast && self.has_few_bins();
                !estimated || self.statistics.stride <= MOST_LABELS && self.columns.any_sparse
            }
            // With few rows, products with them are cheaper.
            Method::Full => 2 * n_rows > self.statistics.stride,
            _ => false,
        }
    }

    /// About how many numbers the search over a feature of a set of rows touches.
    fn work(&self, feature: usize, n_rows: usize) -> usize {
        let (column, stride) = (&self.columns.all[feature], self.statistics.stride);
        let n_rows = n_rows.min(column.rows.len());
        let mut n_thresholds = n_rows.min(column.values.len());
        if self.params.search == Search::Fast {
            n_thresholds = n_thresholds.min(GROUPS);
        }
        let for_each = match self.method {
            Method::Full => 2 * stride,
            _ => 32,
        };
        stride * (n_rows + for_each * n_thresholds)
    }

    /// The best condition on one of `features` with a quality below `bound`; of equal ones the
    /// first in the order of `features`, then of thresholds. `label` is that of single-label heads,
    /// once settled. With the condition comes a head near that of the rows it keeps, where one
    /// was solved for. `room` is for statistics of rows by bins.
    ///
    /// # Errors
    ///
    /// As [`Watch::step`](manylabel_base::Watch::step), [`Error::TooLarge`].
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
        let search = |(piece, features): (usize, &[usize])| {
            let mut best = None;
            let mut tasks = reserved("number of features", features.len())?;
            for (at, &feature) in (piece * FEATURES_OF_PIECE..).zip(features) {
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
        let best = if work < 8 * PARALLEL_FROM {
            search((0, features))?
        } else {
            let pieces = features.par_chunks(FEATURES_OF_PIECE).enumerate();
            (pieces.map(search)).try_reduce(|| None, |a, b| Ok(better(a, b)))?
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

    /// The best condition of all `tasks`.
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
            // No condition keeps the rows without a value, nor does the complement of one.
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

    /// The same where no row lacks a value.
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
                if n_chunks <= MOST_CHUNKS && binner.signs_only && !restricted {
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
    /// Where the feature stands in the sample.
    at: usize,
    column: &'a Column,
    groups: Groups,
}

/// The best condition on a feature.
#[derive(Debug)]
struct Found {
    /// Where the feature stands in the sample.
    at: usize,
    split: Split,
    threshold: f32,
    /// A head near that of the rows it keeps, where one was solved for.
    head: Option<Aligned>,
}

impl Found {
    fn new(at: usize, (split, threshold): (Split, f32)) -> Self {
        Self {
            at,
            split,
            threshold,
            head: None,
        }
    }
}

/// The better of two; of equal ones that on the feature that comes first.
fn better(a: Option<Found>, b: Option<Found>) -> Option<Found> {
    let key = |found: &Found| (found.split.quality, found.at);
    match (a, b) {
        (Some(a), Some(b)) => Some(if key(&b) < key(&a) { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// The threshold of a split: between two groups, or the value of one.
fn threshold(column: &Column, groups: &Groups, split: Split) -> f32 {
    let group = groups.list[split.group];
    if column.nominal {
        column.values[group.first as usize]
    } else {
        column.between(group.last, groups.list[split.group + 1].first)
    }
}

/// The best condition of all `tasks` by one evaluator. A condition that is not better than one on a
/// feature before need not be judged to the end.
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

/// [`sweep_each`], compiled for every instruction set with all it calls.
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
