//! Implements the fast search for the next condition of a rule, for label binning under the
//! example-wise loss. A candidate is the set of rows that satisfy a condition. Its parent set is
//! the set of rows that the rule covers without this condition. Candidates are evaluated with the
//! label bins of their parent set.
//!
//! The bins of a large subset differ little from the bins of its parent set. If every candidate uses the
//! parent's bins, each row can be reduced once to a few numbers ([`BinnedStatistics`]). A candidate then
//! needs only the sums of these numbers. With B bins, these numbers are B gradients, B diagonals and
//! B (B − 1) / 2 products of different bins. The time per row and feature then does not depend on the
//! number of labels.
//!
//! - On a full column (a feature with many non-zero values), rows are added to a histogram over the
//!   groups of values of the column. Numeric features have at most
//!   [`GROUPS`](crate::columns::GROUPS) groups. Prefix sums over the groups give the sums of the
//!   candidates.
//! - On a sparse column, most values are 0, and few rows have a non-zero value. The bins of these
//!   rows may differ a lot from the parent's bins. A set of these rows is therefore evaluated with
//!   its own bins, as in the exact search. Only the complement of the set is evaluated with the
//!   parent's bins ([`FewRows`]).
//!
//! The qualities of candidates are estimates. Before the chosen condition is accepted, its quality
//! is computed from its own head (`grow.rs`).

use super::groups::{Groups, RowSet};
use super::own_bins::OwnBins;
use super::sweep::{Evaluator, Split, sweep};
use super::{Context, Method, threshold};
use crate::Operator;
use crate::binning::add_up;
use crate::columns::{Column, MISSING};
use crate::head::bins::System;
use crate::lanes::{WIDTH, add_scaled, chunks, chunks_mut, padded};
use crate::statistics::{PARALLEL_FROM, Statistics, Sums};
use manylabel_base::{Error, Tasks, collected, copied, filled};
use manylabel_simd::wide;
use rayon::prelude::*;

/// The reduced rows of a set. Each row is reduced to a few numbers: sums over the label bins of the set.
///
/// A reduced row starts with B gradients and B diagonals. The products of the gradients of two bins
/// a > b follow in the order (1, 0), (2, 0), (2, 1), …. The remaining entries are padding. All
/// numbers are multiplied by the weight of the row.
#[derive(Debug)]
pub(crate) struct BinnedStatistics<'a> {
    /// The L2 weight ω.
    l2: f64,
    /// Number of bins B. Empty bins are not included.
    n_bins: usize,
    /// Number of labels of each bin.
    sizes: Vec<f64>,
    /// Padded number of values per reduced row (sums over label bins).
    width: usize,
    /// The reduced rows (sums over label bins), in the order of the set of rows.
    rows: &'a [f64],
    /// The sum of the reduced rows (sums over label bins).
    all: Vec<f64>,
}

/// Sums of reduced rows (sums over label bins) for each group of values of a column.
struct Histogram {
    /// Number of values per reduced row (sums over label bins).
    width: usize,
    /// The sum of the reduced rows of each group.
    sums: Vec<f64>,
    /// The number of rows and the range of values of each group.
    groups: Vec<Slot>,
}

/// The number of rows of a group, and the range of their codes (indices of values in the column).
#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Number of rows.
    count: usize,
    /// Smallest code (index of a value in the column) of the rows.
    first: u32,
    /// Largest code (index of a value in the column) of the rows.
    last: u32,
}

/// An empty group of rows.
const EMPTY: Slot = Slot {
    count: 0,
    first: u32::MAX,
    last: 0,
};

impl<'a> BinnedStatistics<'a> {
    /// Computes label bins from the sums of the set and reduces the rows of the set. Many rows are reduced in
    /// parallel. The time is O(rows · (labels + B²)).
    ///
    /// The reduced rows (sums over label bins) are written to `room`. If `room` is too small, it is replaced
    /// by a larger allocation.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`](manylabel_base::Watch::step). Returns [`Error::TooLarge`]
    /// if there is not enough memory.
    pub(crate) fn new(
        context: &Context<'_>,
        set: RowSet<'_>,
        sums: &Sums,
        room: &'a mut Vec<f64>,
    ) -> Result<Self, Error> {
        let RowSet { rows, weights, .. } = set;
        let (statistics, l2) = (context.statistics, context.params.l2);
        let Method::Bins { binner, restricted } = context.method else {
            unreachable!("histograms are of bins under the example-wise loss");
        };
        let stride = statistics.stride;
        let of_labels = |value| filled("number of labels", value, stride);
        let of_bins = || filled("number of label bins", 0.0, binner.n_bins);
        let mut bins = of_labels(0.0)?;
        binner.assign(sums.g(), sums.h(), &mut of_labels(0.0)?, &mut bins);
        // Bins that are not empty get consecutive numbers.
        let mut sizes = of_bins()?;
        add_up(&of_labels(1.0)?, &bins, &mut sizes);
        let mut names = of_bins()?;
        let mut n_bins = 0;
        for (name, &size) in names.iter_mut().zip(&sizes) {
            *name = n_bins as f64;
            n_bins += usize::from(size > 0.0);
        }
        for bin in &mut bins {
            if *bin >= 0.0 {
                *bin = names[*bin as usize];
            }
        }
        sizes.retain(|&size| size > 0.0);
        let width = padded(2 * n_bins + n_bins * n_bins.saturating_sub(1) / 2);
        let size = width.saturating_mul(rows.len());
        if room.len() < size {
            *room = Vec::new(); // frees the old allocation first
            *room = filled("number of sums over label bins", 0.0, size)?;
        }
        let by_row = &mut room[..size];
        let block = 256;
        let work = |(out, rows): (&mut [f64], &[u32])| {
            statistics.ask()?;
            reduce(
                statistics, &bins, n_bins, restricted, rows, weights, width, out,
            )
        };
        // If all gradients are 0, there is no bin, and the width is 0.
        let block_width = (width * block).max(1);
        if rows.len() * stride < PARALLEL_FROM {
            by_row
                .chunks_mut(block_width)
                .zip(rows.chunks(block))
                .try_for_each(work)?;
        } else {
            by_row
                .par_chunks_mut(block_width)
                .zip(rows.par_chunks(block))
                .try_each(work)?;
        }
        let mut all = filled("number of label bins", 0.0, width)?;
        for row in by_row.chunks(width.max(1)) {
            add_scaled(&mut all, 1.0, row);
        }
        Ok(Self {
            l2,
            n_bins,
            sizes,
            width,
            rows: by_row,
            all,
        })
    }

    /// Returns the best condition on a feature with a quality below `bound`, and the threshold of this
    /// condition. The quality is an estimate.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`new`](Self::new).
    pub(crate) fn search(
        &self,
        context: &Context<'_>,
        column: &Column,
        set: RowSet<'_>,
        bound: f64,
    ) -> Result<Option<(Split, f32)>, Error> {
        let least = context.params.min_coverage;
        if column.implicit.is_none() {
            return search_full(self, column, set, least, bound);
        }
        let groups = Groups::new(column, &set, true)?;
        let split = search_sparse(self, context, &groups, column.nominal, set, bound)?;
        Ok(split.map(|split| (split, threshold(column, &groups, split))))
    }

    /// Returns the reduced row (sums over label bins) at a position in the set of rows.
    #[inline(always)]
    fn row(&self, position: usize) -> &[f64] {
        &self.rows[position * self.width..(position + 1) * self.width]
    }

    /// Returns the quality of the optimal head. `sums` is a sum of reduced rows (sums over label
    /// bins).
    #[inline(always)]
    fn quality(&self, system: &mut System, sums: &[f64]) -> f64 {
        let n = self.n_bins;
        if n == 2 && self.l2 > 0.0 {
            // With few labels, there is usually one bin per sign. This case is solved in closed
            // form.
            let (g, h) = ([sums[0], sums[1]], [sums[2], sums[3]]);
            let h = [
                h[0].max(0.0) + self.l2 * self.sizes[0],
                h[1].max(0.0) + self.l2 * self.sizes[1],
            ];
            let determinant = h[0] * h[1] - sums[4] * sums[4];
            let gain = g[0] * g[0] * h[1] + 2.0 * g[0] * g[1] * sums[4] + g[1] * g[1] * h[0];
            return if determinant > 0.0 {
                -0.5 * gain / determinant
            } else {
                0.0
            };
        }
        system.set_sums(&self.sizes, &sums[..n], &sums[n..2 * n]);
        system.quality(|a, b| sums[2 * n + a * (a - 1) / 2 + b])
    }
}

/// Reduces the gradients of `rows` to sums over label bins. Writes these reduced rows to `out`, with `width`
/// numbers per row.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if one number per label does not fit in memory.
#[expect(
    clippy::too_many_arguments,
    reason = "one loop, compiled for every instruction set"
)]
#[wide]
fn reduce(
    statistics: &Statistics<'_>,
    bins: &[f64],
    n_bins: usize,
    restricted: bool,
    rows: &[u32],
    weights: &[f64],
    width: usize,
    out: &mut [f64],
) -> Result<(), Error> {
    let mut diagonal = filled("number of labels", 0.0, bins.len())?;
    for (out, &row) in out.chunks_mut(width).zip(rows) {
        let gradient = statistics.gradient(row);
        for (h, g) in chunks_mut(&mut diagonal).iter_mut().zip(chunks(gradient)) {
            for lane in 0..WIDTH {
                let magnitude = g[lane].abs();
                h[lane] = magnitude
                    - if restricted {
                        0.0
                    } else {
                        magnitude * magnitude
                    };
            }
        }
        let (g, others) = out.split_at_mut(n_bins);
        let (h, products) = others.split_at_mut(n_bins);
        add_up(gradient, bins, g);
        add_up(&diagonal, bins, h);
        let mut at = 0;
        for a in 0..n_bins {
            if restricted {
                h[a] -= g[a] * g[a];
            }
            for b in 0..a {
                products[at] = g[a] * g[b];
                at += 1;
            }
        }
        products[at..].fill(0.0); // padding
        let weight = weights[row as usize];
        for out in out.iter_mut() {
            *out *= weight;
        }
    }
    Ok(())
}

/// Finds the best condition with a histogram. The column must store the values of all rows. Rows
/// with a missing value are subtracted from the sum of all rows.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the histogram does not fit in memory.
#[wide]
fn search_full(
    statistics: &BinnedStatistics<'_>,
    column: &Column,
    set: RowSet<'_>,
    least: usize,
    bound: f64,
) -> Result<Option<(Split, f32)>, Error> {
    let width = statistics.width;
    let mut histogram = Histogram::new(column, width)?;
    let mut n_rows = set.rows.len();
    // After the next loop, `all` is the sum over all rows without a missing value.
    let mut all = copied("number of label bins", &statistics.all)?;
    let Some(codes) = column.codes_by_row() else {
        return Ok(None);
    };
    for (position, &row) in set.rows.iter().enumerate() {
        let code = codes[row as usize];
        if code == MISSING {
            n_rows -= 1;
            add_scaled(&mut all, -1.0, statistics.row(position));
        } else {
            histogram.add(column, code, statistics.row(position));
        }
    }
    let mut system = System::new(statistics.n_bins, statistics.l2, false)?;
    let mut best: Option<(Split, f32)> = None;
    let mut below = filled("number of label bins", 0.0, width)?;
    let mut above = filled("number of label bins", 0.0, width)?;
    let mut n_below = 0;
    let used = (0..histogram.groups.len()).filter(|&group| histogram.groups[group].count > 0);
    let used = collected("number of values", used)?;
    for (at, &group) in used.iter().enumerate() {
        let slot = histogram.groups[group];
        let next = used.get(at + 1).map(|&next| histogram.groups[next]);
        let operators = if column.nominal {
            below.copy_from_slice(histogram.sums(group));
            n_below = slot.count;
            [Operator::Equal, Operator::NotEqual]
        } else {
            add_scaled(&mut below, 1.0, histogram.sums(group));
            n_below += slot.count;
            [Operator::AtMost, Operator::Above]
        };
        if n_below == n_rows || (next.is_none() && !column.nominal) {
            break;
        }
        for lane in 0..width {
            above[lane] = all[lane] - below[lane];
        }
        for (side, operator) in operators.into_iter().enumerate() {
            let (sums, covered) = if side == 0 {
                (&below, n_below)
            } else {
                (&above, n_rows - n_below)
            };
            if covered < least {
                continue;
            }
            let quality = statistics.quality(&mut system, sums);
            if quality < best.map_or(bound, |(best, _)| best.quality) {
                let threshold = match next {
                    Some(next) if !column.nominal => column.between(slot.last, next.first),
                    _ => column.values[slot.first as usize],
                };
                best = Some((
                    Split {
                        quality,
                        group,
                        operator,
                    },
                    threshold,
                ));
            }
        }
    }
    Ok(best)
}

impl Histogram {
    /// Returns a histogram of zeros for all groups of a column. A nominal column has one group per
    /// value. Other columns use their groups of values.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the histogram does not fit in memory.
    fn new(column: &Column, width: usize) -> Result<Self, Error> {
        let n_groups = if column.nominal {
            column.values.len()
        } else {
            column
                .groups
                .last()
                .map_or(0, |&last| usize::from(last) + 1)
        };
        Ok(Self {
            width,
            sums: filled("number of values", 0.0, n_groups.saturating_mul(width))?,
            groups: filled("number of values", EMPTY, n_groups)?,
        })
    }

    /// Returns the number of the group that contains the value with the given code.
    #[inline(always)]
    fn group(column: &Column, code: u32) -> usize {
        if column.nominal {
            code as usize
        } else {
            usize::from(column.groups[code as usize])
        }
    }

    /// Adds a reduced row (sums over label bins) to the group that contains the value with the given code.
    #[inline(always)]
    fn add(&mut self, column: &Column, code: u32, row: &[f64]) {
        let group = Self::group(column, code);
        let slot = &mut self.groups[group];
        slot.count += 1;
        slot.first = slot.first.min(code);
        slot.last = slot.last.max(code);
        add_scaled(
            &mut self.sums[group * self.width..(group + 1) * self.width],
            1.0,
            row,
        );
    }

    /// Returns the sum of the reduced rows (sums over label bins) of a group.
    #[inline(always)]
    fn sums(&self, group: usize) -> &[f64] {
        &self.sums[group * self.width..(group + 1) * self.width]
    }
}

/// Finds the best condition on a column that stores only nonzero values. Returns `None` if all rows of the
/// set are in one group.
///
/// # Errors
///
/// Returns [`Error::Stopped`] if the caller requested a stop. Returns [`Error::TooLarge`] if there is not
/// enough memory.
#[wide]
fn search_sparse<'a>(
    estimates: &'a BinnedStatistics<'a>,
    context: &'a Context<'a>,
    groups: &Groups,
    nominal: bool,
    set: RowSet<'a>,
    bound: f64,
) -> Result<Option<Split>, Error> {
    if groups.list.len() < 2 {
        return Ok(None);
    }
    let least = context.params.min_coverage;
    let mut evaluator = FewRows::new(estimates, context, set, groups)?;
    let mut pace = context.statistics.pace();
    sweep(&mut evaluator, groups, nominal, least, bound, &mut pace)
}

/// Evaluates a growing set of few rows with its own label bins. Evaluates the complement of the growing set
/// with the label bins of the parent set.
pub(crate) struct FewRows<'a> {
    /// Gradients of all training rows.
    statistics: &'a Statistics<'a>,
    /// Weights of all training rows.
    weights: &'a [f64],
    /// The reduced rows (sums over label bins) of the parent set.
    estimates: &'a BinnedStatistics<'a>,
    /// For every training row, its index in the parent set.
    positions: &'a [u32],
    /// The growing set (the rows added so far) with its own label bins.
    own: OwnBins<'a>,
    /// Sums by label over the growing set (the rows added so far).
    taken: Sums,
    /// Sum of the reduced rows (sums over label bins) of the growing set (the rows added so far).
    reduced: Vec<f64>,
    /// Sum of the reduced rows (sums over label bins) of the complement of the growing set.
    others: Vec<f64>,
    /// Sum of the reduced rows (sums over label bins) of the parent set, without rows that have a missing
    /// value.
    all: Vec<f64>,
    /// The linear system for the scores of the parent's bins.
    system: System,
}

impl<'a> FewRows<'a> {
    /// Prepares the search over subsets of `set` that consist of some of its `groups`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn new(
        estimates: &'a BinnedStatistics<'a>,
        context: &'a Context<'a>,
        set: RowSet<'a>,
        groups: &Groups,
    ) -> Result<Self, Error> {
        let Method::Bins { binner, restricted } = context.method else {
            unreachable!("estimates are of bins under the example-wise loss");
        };
        let mut all = copied("number of label bins", &estimates.all)?;
        for &row in &groups.missing {
            add_scaled(
                &mut all,
                -1.0,
                estimates.row(set.positions[row as usize] as usize),
            );
        }
        let (statistics, l2) = (context.statistics, context.params.l2);
        let (weights, most_rows) = (set.weights, groups.rows.len());
        let of_bins = || filled("number of label bins", 0.0, estimates.width);
        Ok(Self {
            statistics,
            weights,
            estimates,
            positions: set.positions,
            own: OwnBins::new(statistics, weights, binner, l2, restricted, most_rows)?,
            taken: Sums::new(statistics.stride, context.method.kinds())?,
            reduced: of_bins()?,
            others: of_bins()?,
            all,
            system: System::new(estimates.n_bins, l2, false)?,
        })
    }
}

impl Evaluator for FewRows<'_> {
    #[inline(always)]
    fn restart(&mut self) {
        self.own.clear();
        self.taken.clear();
        self.reduced.fill(0.0);
    }

    #[inline(always)]
    fn take(&mut self, rows: &[u32]) {
        self.own.take(rows);
        for batch in self.statistics.batches(rows, self.weights) {
            self.taken.add(&batch);
        }
        for &row in rows {
            let position = self.positions[row as usize] as usize;
            add_scaled(&mut self.reduced, 1.0, self.estimates.row(position));
        }
    }

    #[inline(always)]
    fn of_taken(&mut self, _: f64) -> Result<Option<f64>, Error> {
        self.own.quality(&self.taken).map(Some)
    }

    #[inline(always)]
    fn of_others(&mut self, _: f64) -> Result<Option<f64>, Error> {
        for (out, (all, taken)) in self
            .others
            .iter_mut()
            .zip(self.all.iter().zip(&self.reduced))
        {
            *out = all - taken;
        }
        let quality = self.estimates.quality(&mut self.system, &self.others);
        Ok(Some(quality))
    }

    fn cost(&self) -> [usize; 2] {
        self.own.cost().map(|numbers| numbers + self.others.len())
    }
}
