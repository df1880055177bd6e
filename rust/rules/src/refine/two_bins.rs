//! Candidates judged by one bin per sign, with few labels.
//!
//! This is the usual case of label binning on small label sets: 4 % of up to 25 labels of a sign
//! are one bin. The Gram matrix of the growing set is kept up to date, at K² operations per row.
//! Bins of a candidate may then differ from those of the one before without another look at its
//! rows: the product between the two bins is `aᵀ A b` for their indicator vectors a and b, and the
//! system of two equations is solved in closed form.
//!
//! For up to [`MOST_CHUNKS`] chunks of labels this is faster than rows summed by bins
//! (`own_bins.rs`).

use super::halves::Judge;
use crate::gram::Gram;
use crate::head::solve::multiply_columns;
use crate::lanes::{WIDTH, chunks_mut, dot};
use crate::statistics::{Statistics, Sums};
use manylabel_base::{Error, filled};

/// Most chunks of labels for which this judge is used.
pub(crate) const MOST_CHUNKS: usize = 4;

/// Judges sets of rows with `C` chunks of labels, under the example-wise loss with the paper's
/// Hessian.
pub(crate) struct TwoBins<'a, const C: usize> {
    /// The L2 weight ω.
    l2: f64,
    /// `Σ w g gᵀ` over the parent set.
    all: &'a Gram,
    /// The same over the growing set.
    taken: Gram,
    /// Ones for labels with positive gradients, whose scores are negative.
    first: Vec<f64>,
    /// Ones for labels with negative gradients.
    second: Vec<f64>,
    /// Working space for a product.
    product: Vec<f64>,
}

impl<'a, const C: usize> TwoBins<'a, C> {
    /// Starts with an empty growing set.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
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
        // One short loop per number: a single loop would need more registers than there are.
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
        // An empty bin leaves a row and a column of zeros.
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
