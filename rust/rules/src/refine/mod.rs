//! The search for the condition that improves a rule most.

mod evaluators;
mod groups;
mod parent_bins;
mod sweep;
#[cfg(test)]
mod tests;
mod two_bins;

use crate::columns::{Column, Columns, GROUPS};
use crate::head::Method;
use crate::head::solve::{CANDIDATE, Outer, Solver};
use crate::lanes::WIDTH;
use crate::statistics::{Gram, PARALLEL, Statistics, Sums};
use crate::{Operator, Params, Search};
use evaluators::{Binned, Full, Independent, IndependentBins, Scored};
use groups::Groups;
pub(crate) use groups::{ABSENT, RowSet};
use multiversion::multiversion;
use parent_bins::BinnedStatistics;
use rayon::prelude::*;
use sweep::{Evaluator, Split, sweep};
use two_bins::{MOST_CHUNKS, TwoBins};

/// Most labels (padded) of which the fast search keeps a matrix.
const MOST_LABELS: usize = 256;

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
}

impl Moments {
    pub(crate) fn over(context: &Context<'_>, rows: &[u32], weights: &[f64]) -> Self {
        let statistics = context.statistics;
        Self {
            sums: Sums::over(statistics, context.method.kinds(), rows, weights),
            gram: context
                .needs_gram(rows.len())
                .then(|| Gram::over(statistics, rows, weights)),
        }
    }

    /// Leaves the rows that were kept of a set and not those that are gone, by what is less work.
    pub(crate) fn keep(
        &mut self,
        context: &Context<'_>,
        kept: &[u32],
        gone: &[u32],
        weights: &[f64],
    ) {
        if kept.len() <= gone.len() {
            *self = Self::over(context, kept, weights);
            return;
        }
        self.sums.remove(context.statistics, gone, weights);
        self.gram.take_if(|_| !context.needs_gram(kept.len()));
        if let Some(gram) = &mut self.gram {
            gram.add_rows(-1.0, context.statistics, gone, weights);
        }
    }
}

/// The rows of the sample that the conditions so far cover, with all that depends on them alone.
pub(crate) struct Parent<'a> {
    rows: &'a [u32],
    /// Of all training rows; 0 outside of the sample.
    weights: &'a [f64],
    sums: &'a Sums,
    gram: Option<&'a Gram>,
    bins: Option<ParentBins>,
    /// The head of all labels, where candidates begin with it.
    head: Vec<f64>,
}

/// `Σ w g gᵀ` of a parent set added up by bins: by the rows alone, and on both sides.
#[derive(Debug, Clone)]
pub(crate) struct ParentBins {
    pub(crate) bins: Vec<f64>,
    n_bins: usize,
    by_bin: Vec<f64>,
    products: Vec<f64>,
}

impl<'a> Parent<'a> {
    fn new(
        context: &Context<'_>,
        rows: &'a [u32],
        weights: &'a [f64],
        moments: &'a Moments,
    ) -> Self {
        let statistics = context.statistics;
        let mut parent = Self {
            rows,
            weights,
            sums: &moments.sums,
            gram: moments.gram.as_ref(),
            bins: None,
            head: Vec::new(),
        };
        match (context.method, parent.gram) {
            (Method::Bins { binner, .. }, Some(gram)) => {
                let mut bins = vec![0.0; statistics.stride];
                let (g, h) = (parent.sums.g(), parent.sums.h());
                binner.assign(g, h, &mut vec![0.0; statistics.stride], &mut bins);
                parent.bins = Some(ParentBins::new(gram, bins, binner.n_bins));
            }
            (Method::Full, _) => {
                let mut head = vec![0.0; statistics.stride];
                let parts = [(1.0, parent.outer())];
                let mut solver = Solver::<0>::new(statistics.stride, context.params.l2);
                solver.quality(
                    statistics,
                    parent.sums,
                    &parts,
                    f64::INFINITY,
                    CANDIDATE,
                    &mut head,
                );
                parent.head = head;
            }
            _ => {}
        }
        parent
    }

    /// The cheaper form of `Σ w g gᵀ`.
    fn outer(&self) -> Outer<'_> {
        match self.gram {
            Some(gram) => Outer::Matrix(gram),
            None => Outer::Rows(self.rows, self.weights),
        }
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
            && (column.implicit.is_none() || self.statistics.stride > MOST_LABELS)
            && self.has_few_bins()
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
    /// once settled.
    pub(crate) fn best_condition(
        &self,
        set: RowSet<'_>,
        moments: &Moments,
        features: &[usize],
        bound: f64,
        label: Option<usize>,
    ) -> Option<Candidate> {
        let is_estimated = |&feature: &usize| self.is_estimated(&self.columns.all[feature]);
        let estimates = features
            .iter()
            .any(is_estimated)
            .then(|| BinnedStatistics::new(self, set, &moments.sums));
        let parent = (!features.iter().all(is_estimated))
            .then(|| Parent::new(self, set.rows, set.weights, moments));
        let search = |&feature: &usize| {
            if self.statistics.is_stopped() {
                return None;
            }
            let column = &self.columns.all[feature];
            let (split, threshold) = match (&parent, &estimates) {
                (_, Some(estimates)) if self.is_estimated(column) => {
                    estimates.search(self, column, set, bound)?
                }
                (Some(parent), _) => {
                    let coarse = self.params.search == Search::Fast;
                    let groups = Groups::new(column, &set, coarse);
                    let split = self.sweep(parent, &groups, column, bound, label)?;
                    (split, threshold(column, &groups, split))
                }
                (None, _) => return None,
            };
            Some(Candidate {
                quality: split.quality,
                estimated: self.is_estimated(column),
                feature,
                operator: split.operator,
                threshold,
            })
        };
        let work: usize = features
            .iter()
            .map(|&feature| self.work(feature, set.rows.len()))
            .sum();
        let found: Vec<Option<Candidate>> = if work < 8 * PARALLEL {
            features.iter().map(search).collect()
        } else {
            // Few pieces: threads that wait for work have to be woken.
            let piece = features.len().div_ceil(2 * rayon::current_num_threads());
            features
                .par_iter()
                .with_min_len(piece)
                .map(search)
                .collect()
        };
        let mut best: Option<Candidate> = None;
        for candidate in found.into_iter().flatten() {
            if best.is_none_or(|best| candidate.quality < best.quality) {
                best = Some(candidate);
            }
        }
        best
    }

    fn sweep(
        &self,
        parent: &Parent<'_>,
        groups: &Groups,
        column: &Column,
        bound: f64,
        label: Option<usize>,
    ) -> Option<Split> {
        if groups.list.len() < 2 {
            return None;
        }
        if groups.missing.is_empty() {
            return self.sweep_all(parent, groups, column.nominal, bound, label);
        }
        // No condition keeps the rows without a value, nor does the complement of one.
        let mut missing = groups.missing.clone();
        missing.sort_unstable();
        let absent = |row: &u32| missing.binary_search(row).is_err();
        let rows: Vec<u32> = parent.rows.iter().copied().filter(absent).collect();
        let moments = if missing.len() < rows.len() {
            let (mut sums, mut gram) = (parent.sums.clone(), parent.gram.cloned());
            sums.remove(self.statistics, &missing, parent.weights);
            if let Some(gram) = &mut gram {
                gram.add_rows(-1.0, self.statistics, &missing, parent.weights);
            }
            Moments { sums, gram }
        } else {
            Moments::over(self, &rows, parent.weights)
        };
        let parent = Parent::new(self, &rows, parent.weights, &moments);
        self.sweep_all(&parent, groups, column.nominal, bound, label)
    }

    fn sweep_all(
        &self,
        parent: &Parent<'_>,
        groups: &Groups,
        nominal: bool,
        bound: f64,
        label: Option<usize>,
    ) -> Option<Split> {
        let (statistics, l2) = (self.statistics, self.params.l2);
        let least = self.params.min_coverage;
        match self.method {
            Method::Single | Method::Diagonal => {
                let scored = match (self.method, label) {
                    (Method::Diagonal, _) => Scored::All,
                    (_, None) => Scored::Best,
                    (_, Some(label)) => Scored::One(label),
                };
                let mut evaluator = Independent::new(statistics, parent, l2, scored);
                sweep_with(&mut evaluator, groups, nominal, least, bound)
            }
            Method::DiagonalBins(binner) => {
                let mut evaluator = IndependentBins::new(statistics, parent, binner, l2);
                sweep_with(&mut evaluator, groups, nominal, least, bound)
            }
            Method::Bins { binner, restricted } => {
                let (gram, bins) = parent.gram.zip(parent.bins.as_ref())?;
                let n_chunks = statistics.stride / WIDTH;
                if n_chunks <= MOST_CHUNKS && binner.signs_only && !restricted {
                    let sweep_two_bins = match n_chunks {
                        1 => sweep_two_bins::<1>,
                        2 => sweep_two_bins::<2>,
                        3 => sweep_two_bins::<3>,
                        _ => sweep_two_bins::<MOST_CHUNKS>,
                    };
                    return sweep_two_bins(self, parent, gram, groups, nominal, bound);
                }
                let mut evaluator =
                    Binned::new(statistics, parent, gram, bins, binner, l2, restricted);
                sweep_with(&mut evaluator, groups, nominal, least, bound)
            }
            Method::Full => {
                let sweep_full = match statistics.stride / WIDTH {
                    1 => sweep_full::<1>,
                    2 => sweep_full::<2>,
                    3 => sweep_full::<3>,
                    4 => sweep_full::<4>,
                    _ => sweep_full::<0>,
                };
                sweep_full(self, parent, groups, nominal, bound)
            }
        }
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

/// [`sweep`], compiled for every instruction set with all it calls.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn sweep_with<E: Evaluator>(
    evaluator: &mut E,
    groups: &Groups,
    nominal: bool,
    least: usize,
    bound: f64,
) -> Option<Split> {
    sweep(evaluator, groups, nominal, least, bound)
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn sweep_full<const C: usize>(
    context: &Context<'_>,
    parent: &Parent<'_>,
    groups: &Groups,
    nominal: bool,
    bound: f64,
) -> Option<Split> {
    let params = context.params;
    let (n_rows, n_steps) = (groups.rows.len(), groups.list.len() - 1);
    let mut evaluator = Full::<C>::new(context.statistics, parent, params.l2, n_rows, n_steps);
    sweep(&mut evaluator, groups, nominal, params.min_coverage, bound)
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn sweep_two_bins<const C: usize>(
    context: &Context<'_>,
    parent: &Parent<'_>,
    gram: &Gram,
    groups: &Groups,
    nominal: bool,
    bound: f64,
) -> Option<Split> {
    let params = context.params;
    let mut evaluator = TwoBins::<C>::new(context.statistics, parent, gram, params.l2);
    sweep(&mut evaluator, groups, nominal, params.min_coverage, bound)
}
