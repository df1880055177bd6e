//! Evaluates candidates with their own label bins, under the example-wise loss.
//!
//! A candidate is a set of rows: the growing set, to which rows are added, or its complement within the
//! parent set. The sums of a candidate determine its bins. For the growing set, the gradients of each row are
//! summed by bins ([`BinnedRows`]). From one candidate to the next, a few labels change their bins and a few
//! rows are added.
//!
//! The complement has its own bins. The product of two bins is the sum of `w g_i g_k` over rows, labels i of
//! the first bin and labels k of the second bin. Here, w is the weight of a row, and g is its gradient. The
//! product over the complement is the product over the parent set minus the product over the growing set. All
//! three products use the bins of the complement. The growing set is therefore stored a second time, with the
//! bins of the complement. The Gram matrix of the parent set is also summed by these bins ([`ParentBins`]). A
//! change of the bin of one label takes O(labels) time.

use super::Parent;
use super::halves::Halves;
use super::sweep::Evaluator;
use crate::binning::{Binner, add_up};
use crate::gram::Gram;
use crate::head::bins::{BinnedRows, Move, System, find_moves, square};
use crate::lanes::{add_scaled, dot};
use crate::statistics::{Statistics, Sums};
use manylabel_base::{Error, copied, filled, reserved};
use manylabel_simd::wide;

/// A growing set of rows. Its label bins are computed from given sums. Also computes the head of these bins.
pub(crate) struct OwnBins<'a> {
    /// Gradients of all training rows.
    statistics: &'a Statistics<'a>,
    /// Weights of all training rows.
    weights: &'a [f64],
    /// The binner, which assigns labels to bins.
    binner: Binner,
    /// The linear system for the scores of the bins.
    system: System,
    /// The growing set: the rows added so far.
    rows: Vec<u32>,
    /// Square roots of the weights of the rows in the growing set.
    roots: Vec<f64>,
    /// The workspace: the bins of the next candidate.
    next: Vec<f64>,
    /// The workspace of the binner.
    criteria: Vec<f64>,
    /// Labels that change their bins from one candidate to the next.
    moves: Vec<Move>,
    /// The gradients of the rows added so far, summed by label bins. The rows that were added last may still
    /// be missing.
    binned: BinnedRows,
}

impl<'a> OwnBins<'a> {
    /// Allocates a workspace for up to `most_rows` rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the workspace does not fit in memory.
    pub(crate) fn new(
        statistics: &'a Statistics<'a>,
        weights: &'a [f64],
        binner: Binner,
        l2: f64,
        restricted: bool,
        most_rows: usize,
    ) -> Result<Self, Error> {
        let stride = statistics.stride;
        Ok(Self {
            statistics,
            weights,
            binner,
            system: System::new(binner.n_bins, l2, restricted)?,
            rows: reserved("number of rows", most_rows)?,
            roots: reserved("number of rows", most_rows)?,
            next: filled("number of labels", 0.0, stride)?,
            criteria: filled("number of labels", 0.0, stride)?,
            moves: reserved("number of labels", stride)?,
            binned: BinnedRows::new(binner.n_bins, stride, most_rows)?,
        })
    }

    /// Returns the same numbers as [`Evaluator::cost`].
    pub(crate) fn cost(&self) -> [usize; 2] {
        let stride = self.statistics.stride;
        [4 * stride, 8 * stride + self.system.cost()]
    }

    /// Empties the growing set.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.roots.clear();
        self.binned.clear();
    }

    /// Adds rows to the growing set. The rows are summed by bins when the next quality is computed.
    #[inline(always)]
    #[expect(clippy::disallowed_methods, reason = "the capacity is reserved")]
    pub(crate) fn take(&mut self, rows: &[u32]) {
        self.rows.extend_from_slice(rows);
        let roots = rows.iter().map(|&row| self.weights[row as usize].sqrt());
        self.roots.extend(roots);
    }

    /// Assigns bins from `sums` and updates the rows summed by bins. `sums` are the sums of the growing set
    /// (the rows added so far) or of its complement.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory, and [`Error::Stopped`] if the caller
    /// requested a stop.
    #[inline(always)]
    fn rebin(&mut self, sums: &Sums) -> Result<(), Error> {
        self.binner
            .assign(sums.g(), sums.h(), &mut self.criteria, &mut self.next);
        self.system.set_bins(sums, &self.next);
        find_moves(&self.binned.bins, &self.next, &mut self.moves);
        let (statistics, rows, roots) = (self.statistics, &self.rows, &self.roots);
        let gradient = |i: usize| statistics.gradient(rows[i]);
        let mut pace = statistics.pace();
        (self.binned).update(&self.moves, rows.len(), gradient, |i| roots[i], &mut pace)
    }

    /// Returns the quality of the growing set (the rows added so far). `sums` are the sums over this set.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`rebin`](Self::rebin).
    #[inline(always)]
    pub(crate) fn quality(&mut self, sums: &Sums) -> Result<f64, Error> {
        self.rebin(sums)?;
        Ok(self.system.quality(|a, b| self.binned.product(a, b)))
    }

    /// Returns the quality of the complement of the growing set (the rows added so far). `sums` are
    /// the sums of the complement. `gram` is the Gram matrix of the parent set. `all` is this
    /// matrix summed by the bins of the latest complement.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`rebin`](Self::rebin).
    #[inline(always)]
    fn quality_without(
        &mut self,
        sums: &Sums,
        gram: &Gram,
        all: &mut ParentBins,
    ) -> Result<f64, Error> {
        self.rebin(sums)?;
        all.update(gram, &self.moves);
        let binned = &self.binned;
        Ok((self.system).quality(|a, b| all.product(a, b) - binned.product(a, b)))
    }
}

/// Evaluates the growing set (the rows added so far) and its complement. Each candidate has its own label
/// bins, which are computed from its sums.
///
/// The quality of a set is at least `−½ Σ_k ḡ_k² / ω`, whatever its bins. The quality of given bins is
/// `−½ (Pᵀḡ)ᵀ (H̃ + ω diag(n))⁻¹ Pᵀḡ`, with the symbols of `head/bins.rs`. The matrix H̃ is positive
/// semidefinite, because `Σ_k |g_k| ≤ 1` for each row. So the quality is at least
/// `−½ Σ_b (Σ_{k in b} ḡ_k)² / (ω n_b)`, and the inequality of Cauchy and Schwarz gives the limit. It rejects
/// most sets of few rows without computing their bins.
pub(crate) struct Binned<'a> {
    /// Sums over the growing set (the rows added so far) and over its complement.
    halves: Halves<'a>,
    /// `Σ w g gᵀ` over the parent set.
    gram: &'a Gram,
    /// The matrix `gram` summed by the label bins of the parent set. Each search starts from this matrix,
    /// because a large complement has bins similar to the bins of the parent set.
    parent: &'a ParentBins,
    /// The growing set (the rows added so far) with its own label bins.
    taken: OwnBins<'a>,
    /// The growing set (the rows added so far) with the label bins of its complement.
    others: OwnBins<'a>,
    /// The matrix of the parent set, summed by the bins of the complement of the growing set.
    all: ParentBins,
    /// The L2 weight ω.
    l2: f64,
}

impl<'a> Binned<'a> {
    /// Allocates a workspace for a growing set of up to `most_rows` rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the workspace does not fit in memory.
    #[expect(clippy::too_many_arguments, reason = "it has this many inputs")]
    pub(crate) fn new(
        statistics: &'a Statistics<'a>,
        parent: &'a Parent<'a>,
        gram: &'a Gram,
        bins: &'a ParentBins,
        binner: Binner,
        l2: f64,
        restricted: bool,
        most_rows: usize,
    ) -> Result<Self, Error> {
        let weights = parent.weights;
        let own = || OwnBins::new(statistics, weights, binner, l2, restricted, most_rows);
        Ok(Self {
            halves: Halves::new(statistics, parent)?,
            gram,
            parent: bins,
            taken: own()?,
            others: own()?,
            all: bins.copied()?,
            l2,
        })
    }
}

impl Evaluator for Binned<'_> {
    #[inline(always)]
    fn restart(&mut self) {
        self.halves.taken.clear();
        self.taken.clear();
        self.others.clear();
        self.others.binned.bins.copy_from_slice(&self.parent.bins);
        self.all.copy_from(self.parent);
    }

    #[inline(always)]
    fn take(&mut self, rows: &[u32]) {
        self.halves.take(rows);
        self.taken.take(rows);
        self.others.take(rows);
    }

    #[inline(always)]
    fn of_taken(&mut self, bound: f64) -> Result<Option<f64>, Error> {
        let sums = &self.halves.taken;
        if -0.5 * dot(sums.g(), sums.g()) / self.l2 > bound {
            return Ok(None);
        }
        self.taken.quality(sums).map(Some)
    }

    #[inline(always)]
    fn of_others(&mut self, _: f64) -> Result<Option<f64>, Error> {
        self.halves.subtract();
        let (sums, all) = (&self.halves.others, &mut self.all);
        self.others.quality_without(sums, self.gram, all).map(Some)
    }

    fn cost(&self) -> [usize; 2] {
        self.taken.cost().map(|numbers| 2 * numbers)
    }
}

/// Sums of the matrix `Σ w g gᵀ` over the label bins. The matrix is a sum over the rows of the parent set.
/// Stores the sum of the matrix rows of each bin, and the sum of the entries for each pair of bins.
#[derive(Debug)]
pub(crate) struct ParentBins {
    /// The bin of each label.
    pub(crate) bins: Vec<f64>,
    /// Number of bins. Empty bins are included.
    n_bins: usize,
    /// One row per bin: the sum of the matrix rows that belong to the labels of the bin.
    by_bin: Vec<f64>,
    /// The sum of the matrix entries for each pair of bins.
    products: Vec<f64>,
}

impl ParentBins {
    /// Assigns labels to bins from the sums over the parent set, and sums the matrix by these bins. The time is
    /// O(labels²).
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the sums do not fit in memory.
    pub(crate) fn new(gram: &Gram, sums: &Sums, binner: &Binner) -> Result<Self, Error> {
        let of_labels = || filled("number of labels", 0.0, gram.stride);
        let n_bins = binner.n_bins;
        let mut all = Self {
            bins: of_labels()?,
            n_bins,
            by_bin: filled("number of label bins", 0.0, n_bins * gram.stride)?,
            products: square(n_bins)?,
        };
        sum_by_bins(&mut all, gram, sums, binner, &mut of_labels()?);
        Ok(all)
    }

    /// Returns a copy.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the copy does not fit in memory.
    fn copied(&self) -> Result<Self, Error> {
        Ok(Self {
            bins: copied("number of labels", &self.bins)?,
            n_bins: self.n_bins,
            by_bin: copied("number of label bins", &self.by_bin)?,
            products: copied("number of label bins", &self.products)?,
        })
    }

    /// Copies the values of another matrix of the same size.
    fn copy_from(&mut self, other: &Self) {
        self.bins.copy_from_slice(&other.bins);
        self.by_bin.copy_from_slice(&other.by_bin);
        self.products.copy_from_slice(&other.products);
    }

    /// Computes the products of one bin with all bins. The product of two bins is the sum of the
    /// matrix entries for their labels.
    #[inline(always)]
    fn add_up(&mut self, bin: usize) {
        let stride = self.bins.len();
        let row = &self.by_bin[bin * stride..(bin + 1) * stride];
        let products = &mut self.products[bin * self.n_bins..(bin + 1) * self.n_bins];
        add_up(row, &self.bins, products);
        for other in 0..self.n_bins {
            self.products[other * self.n_bins + bin] = self.products[bin * self.n_bins + other];
        }
    }

    /// Changes the bins of the labels in `moves`. Each of these labels takes O(labels) time.
    /// Computes the products of changed bins again.
    #[inline(always)]
    fn update(&mut self, gram: &Gram, moves: &[Move]) {
        if moves.is_empty() {
            return;
        }
        let stride = self.bins.len();
        // One bit is used for all bins with numbers that are equal modulo 128. If the bit is set,
        // all these bins are summed again.
        let mut changed = 0u128;
        for &(label, from, to) in moves {
            self.bins[label] = to;
            for (bin, sign) in [(from, -1.0), (to, 1.0)] {
                if bin >= 0.0 {
                    let at = bin as usize * stride;
                    add_scaled(&mut self.by_bin[at..at + stride], sign, gram.row(label));
                    changed |= 1 << (bin as usize % 128);
                }
            }
        }
        for bin in 0..self.n_bins {
            if changed >> (bin % 128) & 1 == 1 {
                self.add_up(bin);
            }
        }
    }

    /// Returns the product of two bins: the sum of the matrix entries for their labels. The matrix
    /// is a sum over all rows of the parent set.
    #[inline(always)]
    fn product(&self, a: usize, b: usize) -> f64 {
        self.products[a * self.n_bins + b]
    }
}

/// Does the work of [`ParentBins::new`] in `all`, whose sums are 0. `criteria` is the workspace of the binner.
#[wide]
fn sum_by_bins(
    all: &mut ParentBins,
    gram: &Gram,
    sums: &Sums,
    binner: &Binner,
    criteria: &mut [f64],
) {
    let stride = gram.stride;
    binner.assign(sums.g(), sums.h(), criteria, &mut all.bins);
    for (k, &bin) in all.bins.iter().enumerate() {
        if bin >= 0.0 {
            let at = bin as usize * stride;
            add_scaled(&mut all.by_bin[at..at + stride], 1.0, gram.row(k));
        }
    }
    for bin in 0..all.n_bins {
        all.add_up(bin);
    }
}
