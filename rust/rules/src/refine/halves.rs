//! The two halves that a condition makes of a set, and the qualities that follow from the sums of
//! either alone.

use super::Parent;
use super::sweep::Evaluator;
use crate::binning::Binner;
use crate::head::bins::System;
use crate::head::{alone, best_label};
use crate::lanes::{WIDTH, chunks, total};
use crate::statistics::{Statistics, Sums};
use manylabel_base::{Error, filled};

/// The sums of the growing set and of its complement.
pub(crate) struct Halves<'a> {
    pub(crate) statistics: &'a Statistics<'a>,
    pub(crate) weights: &'a [f64],
    pub(super) parent: &'a Parent<'a>,
    pub(crate) taken: Sums,
    pub(crate) others: Sums,
}

impl<'a> Halves<'a> {
    /// # Errors
    ///
    /// [`Error::TooLarge`].
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

    #[inline(always)]
    pub(crate) fn take(&mut self, rows: &[u32]) {
        for batch in self.statistics.batches(rows, self.weights) {
            self.taken.add(&batch);
        }
    }

    #[inline(always)]
    pub(crate) fn subtract(&mut self) {
        self.others
            .set_difference(&self.parent.moments.sums, &self.taken);
    }
}

/// Knows the quality of a set by its sums, and withholds none.
pub(crate) trait Judge {
    /// Follows the growing set, which is empty now.
    #[inline(always)]
    fn restart(&mut self) {}

    /// Follows the growing set, which gets `rows`, of which each weighs `weights[row]`.
    #[inline(always)]
    fn take(&mut self, _statistics: &Statistics<'_>, _weights: &[f64], _rows: &[u32]) {}

    /// The quality of the growing set, or of the others, of which the sums are given.
    fn quality(&mut self, statistics: &Statistics<'_>, sums: &Sums, others: bool) -> f64;

    /// As [`Evaluator::cost`], of rows of so many labels.
    fn cost(&self, stride: usize) -> [usize; 2] {
        [4 * stride, 8 * stride]
    }
}

/// Both halves, judged by their sums.
pub(crate) struct BySums<'a, J> {
    halves: Halves<'a>,
    judge: J,
}

impl<'a, J: Judge> BySums<'a, J> {
    /// # Errors
    ///
    /// [`Error::TooLarge`].
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

/// Which labels a head scores.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scored {
    All,
    /// The one that gains most.
    Best,
    One(usize),
}

/// Labels that do not depend on one another.
pub(crate) struct Independent {
    pub(crate) l2: f64,
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

/// Bins of each candidate's own sums, under the label-wise loss.
pub(crate) struct IndependentBins {
    binner: Binner,
    system: System,
    bins: Vec<f64>,
    criteria: Vec<f64>,
}

impl IndependentBins {
    /// # Errors
    ///
    /// [`Error::TooLarge`].
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
