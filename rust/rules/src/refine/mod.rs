//! The search for the condition that improves a rule most.

mod evaluators;
mod groups;
mod parent_bins;
mod sweep;
mod two_bins;

use crate::columns::{Column, Columns};
use crate::head::Method;
use crate::head::solve::{Outer, Solver};
use crate::lanes::WIDTH;
use crate::statistics::{Gram, PARALLEL, Statistics, Sums};
use crate::{Operator, Params, Search};
use evaluators::{Binned, Full, Independent, IndependentBins};
use groups::Groups;
pub(crate) use groups::{ABSENT, RowSet};
use multiversion::multiversion;
use parent_bins::BinnedStatistics;
use rayon::prelude::*;
use sweep::{Split, sweep};
use two_bins::{MOST_CHUNKS, TwoBins};

/// A condition that a rule might be given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// Of the rows of the sample that satisfy it; of the fast search an estimate.
    pub(crate) quality: f64,
    pub(crate) feature: usize,
    pub(crate) operator: Operator,
    pub(crate) threshold: f32,
}

/// The rows of the sample that the conditions so far cover, with all that depends on them alone.
pub(crate) struct Parent<'a> {
    pub(crate) rows: &'a [u32],
    /// Of all training rows; 0 outside of the sample.
    pub(crate) weights: &'a [f64],
    pub(crate) sums: Sums,
    /// `Σ w g gᵀ`, where candidates need it.
    pub(crate) gram: Option<&'a Gram>,
    pub(crate) bins: Option<ParentBins>,
    /// The head of all labels, where candidates begin with it.
    pub(crate) head: Vec<f64>,
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
        gram: Option<&'a Gram>,
    ) -> Self {
        let statistics = context.statistics;
        let sums = Sums::over(statistics, context.method.kinds(), rows, weights);
        let mut parent = Self {
            rows,
            weights,
            sums,
            gram,
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
                solver.quality(statistics, &parent.sums, &parts, f64::INFINITY, &mut head);
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
    pub(crate) statistics: &'a Statistics,
    pub(crate) columns: &'a Columns,
    pub(crate) params: &'a Params,
    pub(crate) method: Method,
}

impl Context<'_> {
    /// Whether candidates are compared by the bins of their parent.
    fn by_histograms(&self) -> bool {
        self.params.search == Search::Fast && matches!(self.method, Method::Bins { .. })
    }

    /// `Σ w g gᵀ` over a set of rows, if the search needs it as a matrix.
    pub(crate) fn gram(&self, rows: &[u32], weights: &[f64]) -> Option<Gram> {
        let needed = match self.method {
            Method::Bins { .. } => !self.by_histograms(),
            // With few rows, products with them are cheaper.
            Method::Full => 2 * rows.len() > self.statistics.stride,
            _ => false,
        };
        needed.then(|| Gram::over(self.statistics, rows, weights))
    }

    /// The best condition on one of `features` with a quality below `bound`; of equal ones the
    /// first in the order of `features`, then of thresholds. `label` is that of single-label heads,
    /// once settled.
    pub(crate) fn best_condition(
        &self,
        set: RowSet<'_>,
        weights: &[f64],
        gram: Option<&Gram>,
        features: &[usize],
        bound: f64,
        label: Option<usize>,
    ) -> Option<Candidate> {
        let search: Box<dyn Fn(&usize) -> Option<Candidate> + Send + Sync> = if self.by_histograms()
        {
            let statistics = BinnedStatistics::new(self, set.rows, weights);
            Box::new(move |&feature: &usize| {
                let column = &self.columns.columns[feature];
                let (split, threshold) = statistics.search(self, column, set, weights, bound)?;
                Some(candidate(feature, split, threshold))
            })
        } else {
            let parent = Parent::new(self, set.rows, weights, gram);
            Box::new(move |&feature: &usize| {
                let column = &self.columns.columns[feature];
                let coarse = self.params.search == Search::Fast;
                let groups = Groups::new(column, &set, coarse);
                let split = self.sweep(&parent, &groups, column, bound, label)?;
                Some(candidate(feature, split, threshold(column, &groups, split)))
            })
        };
        let work = set.rows.len() * self.statistics.stride * features.len();
        let found: Vec<Option<Candidate>> = if work < PARALLEL {
            features.iter().map(search).collect()
        } else {
            features.par_iter().with_max_len(1).map(search).collect()
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
        if groups.groups.len() < 2 {
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
        let gram = match parent.gram {
            Some(gram) if missing.len() < rows.len() => {
                let mut gram = gram.clone();
                gram.add_rows(-1.0, self.statistics, &missing, parent.weights);
                Some(gram)
            }
            _ => self.gram(&rows, parent.weights),
        };
        let parent = Parent::new(self, &rows, parent.weights, gram.as_ref());
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
                let single = matches!(self.method, Method::Single).then_some(label);
                let mut evaluator = Independent::new(statistics, parent, l2, single);
                sweep_independent(&mut evaluator, groups, nominal, least, bound)
            }
            Method::DiagonalBins(binner) => {
                let mut evaluator = IndependentBins::new(statistics, parent, binner, l2);
                sweep_independent_bins(&mut evaluator, groups, nominal, least, bound)
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
                sweep_binned(&mut evaluator, groups, nominal, least, bound)
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

fn candidate(feature: usize, split: Split, threshold: f32) -> Candidate {
    let Split {
        quality, operator, ..
    } = split;
    Candidate {
        quality,
        feature,
        operator,
        threshold,
    }
}

/// The threshold of a split: between two groups, or the value of one.
fn threshold(column: &Column, groups: &Groups, split: Split) -> f32 {
    let group = groups.groups[split.group];
    if column.nominal {
        column.values[group.first as usize]
    } else {
        column.between(group.last, groups.groups[split.group + 1].first)
    }
}

// One function for each kind, so that the loops of all it calls are compiled for every instruction
// set.

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn sweep_independent(
    evaluator: &mut Independent<'_>,
    groups: &Groups,
    nominal: bool,
    least: usize,
    bound: f64,
) -> Option<Split> {
    sweep(evaluator, groups, nominal, least, bound)
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn sweep_independent_bins(
    evaluator: &mut IndependentBins<'_>,
    groups: &Groups,
    nominal: bool,
    least: usize,
    bound: f64,
) -> Option<Split> {
    sweep(evaluator, groups, nominal, least, bound)
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn sweep_binned(
    evaluator: &mut Binned<'_>,
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
    let (n_rows, n_steps) = (groups.rows.len(), groups.groups.len() - 1);
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
