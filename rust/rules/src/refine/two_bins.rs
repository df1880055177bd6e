//! Evaluates candidates if there are few labels, with one label bin per sign.
//!
//! With few labels, label binning usually gives one bin for positive scores and one bin for negative scores.
//! With the default ratio of 0.04 bins per label, this is the case for up to 25 labels. When a row is added
//! to the growing set, the Gram matrix `A = Σ w g gᵀ` of this set is updated in K² operations. Here, w is the
//! weight of a row, g is its gradient, and K is the number of labels. If labels change bins from one
//! candidate to the next, the rows are not read again. The product between the two bins is `aᵀ A b`, where a
//! and b are the indicator vectors of the bins. The system of two equations is solved in closed form.
//!
//! For up to [`MOST_CHUNKS`] chunks of labels and full columns, this method is faster than summing rows by bins
//! (`own_bins.rs`). On a full column, each row gives a candidate, and summing rows by bins would have to sum all
//! rows again when labels change their bins. On sparse columns, there are few candidates, and summing rows by bins
//! takes about a quarter less time.

use super::halves::Judge;
use crate::gram::Gram;
use crate::head::solve::multiply_columns;
use crate::lanes::{WIDTH, chunks_mut, dot};
use crate::statistics::{Statistics, Sums};
use manylabel_base::{Error, filled};

/// Largest number of chunks of eight labels for which [`TwoBins`] is used, if all columns of a task are full.
pub(crate) const MOST_CHUNKS: usize = 4;

/// Evaluates sets of rows with `C` chunks of eight labels, under the example-wise loss with the Hessian of
/// GBLB ([`Hessian::Paper`](crate::Hessian::Paper)).
pub(crate) struct TwoBins<'a, const C: usize> {
    /// The L2 weight ω.
    l2: f64,
    /// `Σ w g gᵀ` over the parent set.
    all: &'a Gram,
    /// `Σ w g gᵀ` over the growing set (the rows added so far).
    taken: Gram,
    /// Indicator vector of the labels with positive gradients, which have negative scores.
    first: Vec<f64>,
    /// Indicator vector of the labels with negative gradients.
    second: Vec<f64>,
    /// The workspace for a product.
    product: Vec<f64>,
}

impl<'a, const C: usize> TwoBins<'a, C> {
    /// Returns an evaluation that starts with an empty growing set.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the matrix does not fit in memory.
    pub(crate) fn new(stride: usize, all: &'a Gram, l2: f64) -> Result<Self, Error> {
        let room = || filled("number of labels", 0.0, stride);
        Ok(Self {
            l2,
            all,
            taken: Gram::new(stride)?,
            first: room()?,
            second: room()?,
            product: room()?,
        })
    }
}

impl<const C: usize> Judge for TwoBins<'_, C> {
    #[inline(always)]
    fn restart(&mut self) {
        self.taken.data.fill(0.0);
    }

    #[inline(always)]
    fn take(&mut self, statistics: &Statistics<'_>, weights: &[f64], rows: &[u32]) {
        for &row in rows {
            self.taken
                .add_outer(weights[row as usize], statistics.gradient(row));
        }
    }

    #[inline(always)]
    fn quality(&mut self, statistics: &Statistics<'_>, sums: &Sums, others: bool) -> f64 {
        let stride = statistics.stride;
        let (g, h) = (&sums.g()[..stride], &sums.h()[..stride]);
        let (first, second) = (&mut self.first[..stride], &mut self.second[..stride]);
        // Each number has its own short loop. A single loop would need more registers than
        // available.
        for (first, &g) in first.iter_mut().zip(g) {
            *first = if g > 0.0 { 1.0 } else { 0.0 };
        }
        for (second, &g) in second.iter_mut().zip(g) {
            *second = if g < 0.0 { 1.0 } else { 0.0 };
        }
        let (n, n_other) = (dot(first, first), dot(second, second));
        let (h, h_other) = (dot(first, h).max(0.0), dot(second, h).max(0.0));
        let (h, h_other) = (h + self.l2 * n, h_other + self.l2 * n_other);
        let (g, g_other) = (dot(first, g), dot(second, g));
        // An empty bin has a row and a column of zeros in the system.
        if n == 0.0 || n_other == 0.0 {
            let (g, h) = if n == 0.0 { (g_other, h_other) } else { (g, h) };
            return if h > 0.0 { -0.5 * g * g / h } else { 0.0 };
        }
        let first = &self.first[..statistics.n_labels];
        let product = &mut self.product[..stride];
        product.fill(0.0);
        let columns = chunks_mut(product);
        if others {
            multiply_columns::<C>(self.all, C * WIDTH, 1.0, first, 0, columns);
            multiply_columns::<C>(&self.taken, C * WIDTH, -1.0, first, 0, columns);
        } else {
            multiply_columns::<C>(&self.taken, C * WIDTH, 1.0, first, 0, columns);
        }
        let between = dot(product, &self.second[..stride]);
        let determinant = h * h_other - between * between;
        let gain = g * g * h_other + 2.0 * g * g_other * between + g_other * g_other * h;
        if determinant > 0.0 {
            -0.5 * gain / determinant
        } else {
            0.0
        }
    }

    fn cost(&self, stride: usize) -> [usize; 2] {
        [stride * stride, 2 * stride * stride]
    }
}
