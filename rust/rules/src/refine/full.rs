//! Evaluates candidates under the example-wise loss, for heads with a score for every label.
//!
//! A candidate is a set of rows. Rows are added to a growing set, and each state of the growing set is one
//! candidate. The complement of the growing set within the parent set is another candidate. Consecutive
//! candidates differ in only a few rows, so their heads are similar. [`Full`] keeps an approximate head of
//! the growing set and an approximate head of its complement. It also keeps the products of these heads with
//! the Gram matrix ([`Near`]). Adding a row takes O(labels) time.
//!
//! A candidate is evaluated in two stages. The first stage uses the kept head to compute an upper bound on
//! the improvement that the candidate's own head can reach (see [`Solver`]). The bound takes O(labels) and
//! rejects most candidates. The second stage computes the heads of the remaining candidates by conjugate
//! gradients, starting from the kept head. Products are computed with the rows of the growing set. As soon as
//! the products have taken more time than computing the Gram matrix of these rows would take, the Gram matrix
//! is computed and used for all later products.

use super::Parent;
use super::halves::Halves;
use super::sweep::Evaluator;
use crate::binning::LEAST_DIAGONAL;
use crate::gram::Gram;
use crate::head::solve::{CANDIDATE_TOLERANCE, Goal, Near, Outer, Set, Solver, improve, length};
use crate::lanes::{Aligned, WIDTH, chunks, total};
use crate::statistics::Statistics;
use manylabel_base::{Error, reserved};

/// Evaluates the growing set (the rows added so far) and its complement with heads of all labels. Rows have
/// `C` chunks of eight labels, or any number of chunks if `C` is 0.
pub(crate) struct Full<'a, const C: usize> {
    /// Sums over the growing set (the rows added so far) and its complement.
    halves: Halves<'a>,
    /// The solver that computes heads.
    solver: Solver<C>,
    /// The latest head that was computed for the growing set (the rows added so far), and its product with
    /// the Gram matrix of the current rows.
    of_taken: Near,
    /// The latest head that was computed for the complement of the growing set, and its product with the Gram
    /// matrix of the complement.
    of_others: Near,
    /// An approximate head of the best candidate so far.
    pub(crate) best: Aligned,
    /// The growing set: the rows added so far.
    rows: Vec<u32>,
    /// The Gram matrix `Σ w g gᵀ` over the first `n_gram` rows of the growing set (the rows added so far).
    /// Here, w is the weight of a row, and g is its gradient.
    gram: Gram,
    /// Number of rows in `gram`.
    n_gram: usize,
    /// Number of rows that products have read since `gram` last contained all rows of the growing set (the
    /// rows added so far).
    gone_through: usize,
}

impl<'a, const C: usize> Full<'a, C> {
    /// Allocates a workspace for a growing set of up to `most_rows` rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the workspace does not fit in memory.
    pub(crate) fn new(
        statistics: &'a Statistics<'a>,
        parent: &'a Parent<'a>,
        l2: f64,
        most_rows: usize,
    ) -> Result<Self, Error> {
        let stride = statistics.stride;
        Ok(Self {
            halves: Halves::new(statistics, parent)?,
            solver: Solver::new(stride, l2)?,
            of_taken: Near::zero(stride)?,
            of_others: parent.moments.near.copied()?,
            best: parent.moments.near.x.copied("number of labels")?,
            rows: reserved("number of rows", most_rows)?,
            gram: Gram::new(0)?,
            n_gram: 0,
            gone_through: 0,
        })
    }

    /// Returns true if a set of rows can be rejected. A lower quality is better, so a set is rejected if a
    /// lower limit of its quality exceeds `bound`. The documentation of [`Solver`] has the formula of this
    /// limit. If `OTHERS` is true, the set is the complement of the growing set (the rows added so far).
    /// Otherwise it is the growing set. Sums of the complement are computed as differences.
    #[inline(always)]
    fn excludes<'s, const OTHERS: bool>(&'s self, bound: f64) -> bool {
        let near = if OTHERS {
            &self.of_others
        } else {
            &self.of_taken
        };
        let (all, taken) = (&self.halves.parent.moments.sums, &self.halves.taken);
        let l2 = self.solver.l2;
        let n = length::<C>(all.stride) / WIDTH;
        let cut = |sums: &'s [f64]| &chunks(sums)[..n];
        let (x, product) = (cut(&near.x), cut(&near.product));
        let [all_g, all_d, all_f] = [cut(all.g()), cut(all.d()), cut(all.f())];
        let [taken_g, taken_d, taken_f] = [cut(taken.g()), cut(taken.d()), cut(taken.f())];
        let side = |all: f64, taken: f64| if OTHERS { all - taken } else { taken };
        let mut gains = [0.0; WIDTH];
        let mut missing = [0.0; WIDTH];
        for c in 0..n {
            for lane in 0..WIDTH {
                let g = side(all_g[c][lane], taken_g[c][lane]);
                let d = side(all_d[c][lane], taken_d[c][lane]);
                let f = side(all_f[c][lane], taken_f[c][lane]);
                let residual = product[c][lane] - (d + l2) * x[c][lane] - g;
                gains[lane] += x[c][lane] * (residual - g);
                let least = if f > 0.0 { f } else { 0.0 } + l2 + LEAST_DIAGONAL;
                missing[lane] += residual * residual / least;
            }
        }
        -0.5 * (total(&gains) + total(&missing)) > bound
    }

    /// Adds the missing rows to the Gram matrix if products with these rows have already taken more time than
    /// the addition takes. Otherwise, products with the missing rows are computed without the matrix.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the matrix does not fit in memory.
    #[inline(always)]
    fn choose_form(&mut self) -> Result<(), Error> {
        // With K labels, a product takes 2·K operations per row. Adding a row to the matrix takes K²
        // operations.
        let stride = self.halves.statistics.stride;
        self.gone_through += PRODUCTS * self.rows.len();
        if 2 * self.gone_through > stride * (self.rows.len() - self.n_gram) {
            if self.gram.stride == 0 {
                self.gram = Gram::new(stride)?;
            }
            for &row in &self.rows[self.n_gram..] {
                let gradient = self.halves.statistics.gradient(row);
                (self.gram).add_outer(self.halves.weights[row as usize], gradient);
            }
            self.n_gram = self.rows.len();
            self.gone_through = 0;
        }
        Ok(())
    }
}

/// Approximate number of products needed to solve a head.
const PRODUCTS: usize = 4;

impl<const C: usize> Evaluator for Full<'_, C> {
    #[inline(always)]
    fn restart(&mut self) {
        self.halves.taken.clear();
        self.rows.clear();
        if self.n_gram > 0 {
            self.gram.data.fill(0.0);
            self.n_gram = 0;
        }
        self.gone_through = 0;
        self.of_taken.x.fill(0.0);
        self.of_taken.product.fill(0.0);
        self.of_others.copy_from(&self.halves.parent.moments.near);
    }

    #[inline(always)]
    #[expect(clippy::disallowed_methods, reason = "the capacity is reserved")]
    fn take(&mut self, rows: &[u32]) {
        let (statistics, weights) = (self.halves.statistics, self.halves.weights);
        let is_first = self.rows.is_empty();
        for batch in statistics.batches(rows, weights) {
            self.halves.taken.add(&batch);
            self.of_others.add::<C>(-1.0, &batch);
            // If the set was empty, the head is zero, so its product is zero.
            if !is_first {
                self.of_taken.add::<C>(1.0, &batch);
            }
        }
        self.rows.extend_from_slice(rows);
    }

    #[inline(always)]
    fn of_taken(&mut self, bound: f64) -> Result<Option<f64>, Error> {
        if self.excludes::<false>(bound) {
            return Ok(None);
        }
        self.choose_form()?;
        let (statistics, sums) = (self.halves.statistics, &self.halves.taken);
        let gram = (self.n_gram > 0 && self.n_gram == self.rows.len()).then_some(&self.gram);
        let parts = [(1.0, Outer::of(gram, &self.rows, self.halves.weights))];
        let set = Set::new(statistics, sums, &parts);
        let near = &mut self.of_taken;
        judge(&mut self.solver, set, bound, near, &mut self.best)
    }

    #[inline(always)]
    fn of_others(&mut self, bound: f64) -> Result<Option<f64>, Error> {
        if self.excludes::<true>(bound) {
            return Ok(None);
        }
        self.halves.subtract();
        self.choose_form()?;
        let (statistics, sums) = (self.halves.statistics, &self.halves.others);
        let gram = (self.n_gram > 0 && self.n_gram == self.rows.len()).then_some(&self.gram);
        let taken = Outer::of(gram, &self.rows, self.halves.weights);
        let parts = [(1.0, self.halves.parent.outer()), (-1.0, taken)];
        let set = Set::new(statistics, sums, &parts);
        let near = &mut self.of_others;
        judge(&mut self.solver, set, bound, near, &mut self.best)
    }

    fn cost(&self) -> [usize; 2] {
        let stride = self.halves.statistics.stride;
        [8 * stride, PRODUCTS * stride * stride]
    }
}

/// Returns the quality of a set. If the quality is below `bound`, the head is stored as the best
/// head.
///
/// # Errors
///
/// Returns the same errors as [`improve`].
#[inline(always)]
fn judge<const C: usize>(
    solver: &mut Solver<C>,
    set: Set<'_>,
    bound: f64,
    near: &mut Near,
    best: &mut Aligned,
) -> Result<Option<f64>, Error> {
    let tolerance = CANDIDATE_TOLERANCE;
    let quality = improve(solver, set, Goal { bound, tolerance }, near)?;
    if quality.is_some_and(|quality| quality < bound) {
        best.copy_from_slice(&near.x);
    }
    Ok(quality)
}
