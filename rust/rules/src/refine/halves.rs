//! Evaluates the two parts into which a condition splits a set of rows, from sums over the parts. The parts
//! are called halves, although they may have different sizes.
//!
//! Rows of the parent set are added to a growing set, which is one half. The complement of the growing set
//! within the parent set is the other half. [`Halves`] keeps the sums of the growing set. The sums of the
//! complement are the sums of the parent set minus the sums of the growing set. [`BySums`] turns a [`Judge`],
//! which maps sums to a quality, into an [`Evaluator`].
//!
//! The judges in this file are for labels, or bins of labels, that are independent of one another. These
//! judges take O(labels) time per row and per candidate.

use super::Parent;
use super::sweep::Evaluator;
use crate::binning::Binner;
use crate::head::bins::System;
use crate::head::{alone, best_label};
use crate::lanes::{WIDTH, chunks, total};
use crate::statistics::{Statistics, Sums};
use manylabel_base::{Error, filled};

/// The sums of the growing set (the rows added so far) and of its complement within the parent set.
pub(crate) struct Halves<'a> {
    /// Gradients of all training rows.
    pub(crate) statistics: &'a Statistics<'a>,
    /// Weights of all training rows. Rows outside the sample have weight 0.
    pub(crate) weights: &'a [f64],
    /// The parent set.
    pub(super) parent: &'a Parent<'a>,
    /// Sums of the growing set (the rows added so far).
    pub(crate) taken: Sums,
    /// Sums of the complement of the growing set. The sums are up to date after a call of
    /// [`subtract`](Self::subtract).
    pub(crate) others: Sums,
}

impl<'a> Halves<'a> {
    /// Returns an evaluation that starts with an empty growing set.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the sums do not fit in memory.
    pub(crate) fn new(
        statistics: &'a Statistics<'a>,
        parent: &'a Parent<'a>,
    ) -> Result<Self, Error> {
        let all = &parent.moments.sums;
        Ok(Self {
            statistics,
            weights: parent.weights,
            parent,
            taken: all.emptied()?,
            others: all.emptied()?,
        })
    }

    /// Adds rows to the growing set.
    #[inline(always)]
    pub(crate) fn take(&mut self, rows: &[u32]) {
        for batch in self.statistics.batches(rows, self.weights) {
            self.taken.add(&batch);
        }
    }

    /// Computes the sums of the complement of the growing set.
    #[inline(always)]
    pub(crate) fn subtract(&mut self) {
        self.others
            .set_difference(&self.parent.moments.sums, &self.taken);
    }
}

/// Computes the quality of a set of rows from its sums. The quality is the change of the objective with the
/// optimal head. A judge that needs more data keeps its own record of the growing set (the rows added so
/// far).
pub(crate) trait Judge {
    /// Called when the growing set is emptied. Does nothing by default.
    #[inline(always)]
    fn restart(&mut self) {}

    /// Called when `rows` are added to the growing set. `weights` has one entry for every training
    /// row. Does nothing by default.
    #[inline(always)]
    fn take(&mut self, _statistics: &Statistics<'_>, _weights: &[f64], _rows: &[u32]) {}

    /// Returns the quality of the growing set (the rows added so far), or of its complement if `others` is
    /// true. `sums` are the sums over the evaluated set.
    fn quality(&mut self, statistics: &Statistics<'_>, sums: &Sums, others: bool) -> f64;

    /// Returns the same numbers as [`Evaluator::cost`], for rows of `stride` labels.
    fn cost(&self, stride: usize) -> [usize; 2] {
        [4 * stride, 8 * stride]
    }
}

/// Evaluates the growing set (the rows added so far) and its complement from their sums.
pub(crate) struct BySums<'a, J> {
    /// Sums over the growing set (the rows added so far) and over its complement.
    halves: Halves<'a>,
    /// The judge, which computes a quality from sums.
    judge: J,
}

impl<'a, J: Judge> BySums<'a, J> {
    /// Returns an evaluation that starts with an empty growing set.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the sums do not fit in memory.
    pub(crate) fn new(
        statistics: &'a Statistics<'a>,
        parent: &'a Parent<'a>,
        judge: J,
    ) -> Result<Self, Error> {
        let halves = Halves::new(statistics, parent)?;
        Ok(Self { halves, judge })
    }
}

impl<J: Judge> Evaluator for BySums<'_, J> {
    #[inline(always)]
    fn restart(&mut self) {
        self.halves.taken.clear();
        self.judge.restart();
    }

    #[inline(always)]
    fn take(&mut self, rows: &[u32]) {
        let Halves {
            statistics,
            weights,
            ..
        } = self.halves;
        self.halves.take(rows);
        self.judge.take(statistics, weights, rows);
    }

    #[inline(always)]
    fn of_taken(&mut self, _: f64) -> Result<Option<f64>, Error> {
        let Halves {
            statistics, taken, ..
        } = &self.halves;
        Ok(Some(self.judge.quality(statistics, taken, false)))
    }

    #[inline(always)]
    fn of_others(&mut self, _: f64) -> Result<Option<f64>, Error> {
        self.halves.subtract();
        let Halves {
            statistics, others, ..
        } = &self.halves;
        Ok(Some(self.judge.quality(statistics, others, true)))
    }

    fn cost(&self) -> [usize; 2] {
        self.judge.cost(self.halves.statistics.stride)
    }
}

/// The labels that a head scores.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scored {
    /// All labels.
    All,
    /// The label whose score alone gives the best quality.
    Best,
    /// The label with this number.
    One(usize),
}

/// Evaluates labels that are independent of one another. The quality of a set is the sum of the qualities of
/// the labels that a head scores.
pub(crate) struct Independent {
    /// The L2 weight ω.
    pub(crate) l2: f64,
    /// The labels that heads score.
    pub(crate) scored: Scored,
}

impl Judge for Independent {
    #[inline(always)]
    fn quality(&mut self, _: &Statistics<'_>, sums: &Sums, _: bool) -> f64 {
        match self.scored {
            Scored::All => {}
            Scored::Best => return best_label(sums, self.l2, None).1,
            Scored::One(label) => return best_label(sums, self.l2, Some(label)).1,
        }
        let mut gains = [0.0; WIDTH];
        for (g, h) in chunks(sums.g()).iter().zip(chunks(sums.h())) {
            for lane in 0..WIDTH {
                gains[lane] += g[lane] * alone(g[lane], h[lane], self.l2);
            }
        }
        0.5 * total(&gains)
    }
}

/// Evaluates label bins under the label-wise loss. Each candidate has its own bins, which are computed from
/// its sums.
pub(crate) struct IndependentBins {
    /// The binner, which assigns labels to bins.
    binner: Binner,
    /// Solves the heads of bins. The matrix of the system is diagonal here.
    system: System,
    /// The workspace: the bin of each label.
    bins: Vec<f64>,
    /// The workspace of the binner.
    criteria: Vec<f64>,
}

impl IndependentBins {
    /// Allocates the workspace for `stride` labels.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the workspace does not fit in memory.
    pub(crate) fn new(stride: usize, binner: Binner, l2: f64) -> Result<Self, Error> {
        Ok(Self {
            binner,
            system: System::new(binner.n_bins, l2, false)?,
            bins: filled("number of labels", 0.0, stride)?,
            criteria: filled("number of labels", 0.0, stride)?,
        })
    }
}

impl Judge for IndependentBins {
    #[inline(always)]
    fn quality(&mut self, _: &Statistics<'_>, sums: &Sums, _: bool) -> f64 {
        self.binner
            .assign(sums.g(), sums.h(), &mut self.criteria, &mut self.bins);
        self.system.set_bins(sums, &self.bins);
        self.system.quality(|_, _| 0.0)
    }

    fn cost(&self, stride: usize) -> [usize; 2] {
        [4 * stride, 8 * stride + self.system.cost()]
    }
}
