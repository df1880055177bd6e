//! The fast search under the example-wise loss.
//!
//! The bins that a set of rows wants are much like those that the greater part of it wants. So
//! labels stay in the bins of the parent set, a row is a few numbers, and a candidate the sum of
//! them over its rows: the cost of a row no longer depends on the number of labels. Features that
//! most rows have take a histogram over [`GROUPS`](crate::columns::GROUPS) groups of values. Of a
//! sparse feature, the rows that have it are few and may want quite different bins: those get their
//! own, as in the exact search, and only the others keep the parent's.

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
use manylabel_base::{Error, collected, copied, filled};
use manylabel_simd::wide;
use rayon::prelude::*;

/// The statistics of a set of rows by the bins of the set.
#[derive(Debug)]
pub(crate) struct BinnedStatistics<'a> {
    l2: f64,
    n_bins: usize,
    sizes: Vec<f64>,
    /// Numbers to a row: gradients of bins, diagonals, products of two bins; times the weight.
    width: usize,
    rows: &'a [f64],
    all: Vec<f64>,
}

/// Sums over the rows of one group of values.
struct Histogram {
    width: usize,
    sums: Vec<f64>,
    groups: Vec<Slot>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    count: usize,
    first: u32,
    last: u32,
}

const EMPTY: Slot = Slot {
    count: 0,
    first: u32::MAX,
    last: 0,
};

impl<'a> BinnedStatistics<'a> {
    /// `room` is what the numbers of rows are written to; it grows if need be, and is kept for later.
    ///
    /// # Errors
    ///
    /// As [`Watch::step`](manylabel_base::Watch::step), [`Error::TooLarge`].
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
        // Bins that are not empty, renumbered.
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
            *room = Vec::new(); // not both at once
            *room = filled("rows by bins", 0.0, size)?;
        }
        let by_row = &mut room[..size];
        let block = 256;
        let work = |(out, rows): (&mut [f64], &[u32])| {
            statistics.ask()?;
            reduce(
                statistics, &bins, n_bins, restricted, rows, weights, width, out,
            )
        };
        // All gradients may be 0, so that there is no bin.
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
                .try_for_each(work)?;
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

    /// The best condition on a feature and its threshold.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
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

    #[inline(always)]
    fn row(&self, position: usize) -> &[f64] {
        &self.rows[position * self.width..(position + 1) * self.width]
    }

    #[inline(always)]
    fn quality(&self, system: &mut System, sums: &[f64]) -> f64 {
        let n = self.n_bins;
        if n == 2 && self.l2 > 0.0 {
            // The usual case of few labels: one bin of either sign.
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

/// Writes the numbers of each row.
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
        products[at..].fill(0.0); // what fills the last chunk
        let weight = weights[row as usize];
        for out in out.iter_mut() {
            *out *= weight;
        }
    }
    Ok(())
}

/// The search over a feature that most rows have.
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
    // Of all rows with a value.
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

    #[inline(always)]
    fn group(column: &Column, code: u32) -> usize {
        if column.nominal {
            code as usize
        } else {
            usize::from(column.groups[code as usize])
        }
    }

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

    #[inline(always)]
    fn sums(&self, group: usize) -> &[f64] {
        &self.sums[group * self.width..(group + 1) * self.width]
    }
}

/// The search over a feature that few rows have.
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

/// Few rows by bins of their own, all others by those of the parent.
pub(crate) struct FewRows<'a> {
    statistics: &'a Statistics<'a>,
    weights: &'a [f64],
    estimates: &'a BinnedStatistics<'a>,
    positions: &'a [u32],
    own: OwnBins<'a>,
    taken: Sums,
    /// The growing set by the bins of the parent, room for its complement, and both together.
    reduced: Vec<f64>,
    others: Vec<f64>,
    all: Vec<f64>,
    system: System,
}

impl<'a> FewRows<'a> {
    /// For subsets of `set` that are of some of the `groups` of its rows.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
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
