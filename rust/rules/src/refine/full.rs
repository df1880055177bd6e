//! Candidates judged by heads of all labels, under the example-wise loss.
//!
//! Consecutive candidates differ by a few rows, so the head of one is close to that of the next.
//! [`Full`] keeps a head near that of the growing set and one near that of its complement, with
//! their products with the Gram matrix ([`Near`]). A new row costs O(labels).
//!
//! A candidate is judged in two stages. From the kept head follows an upper bound of the gain that
//! its own head can bring (see [`Solver`]); most candidates are rejected by it, in O(labels). The
//! others are solved by conjugate gradients, starting from the kept head. Products during solving
//! are taken with the rows of the growing set, or with a Gram matrix of them once that would have
//! paid off.

use super::Parent;
use super::halves::Halves;
use super::sweep::Evaluator;
use crate::binning::LEAST_DIAGONAL;
use crate::gram::Gram;
use crate::head::solve::{CANDIDATE_TOLERANCE, Goal, Near, Outer, Set, Solver, length};
use crate::lanes::{Aligned, WIDTH, chunks, total};
use crate::statistics::Statistics;
use manylabel_base::{Error, reserved};

/// The growing set and its complement, judged by heads of all labels. Rows have `C` chunks, or any
/// number if `C` is 0.
pub(crate) struct Full<'a, const C: usize> {
    /// Sums of both halves.
    halves: Halves<'a>,
    /// Solves heads.
    solver: Solver<C>,
    /// The latest head solved for the growing set, with its product over the present rows.
    of_taken: Near,
    /// The same for the complement.
    of_others: Near,
    /// The head of the best candidate so far, or near it.
    pub(crate) best: Aligned,
    /// The growing set.
    rows: Vec<u32>,
    /// `Σ w g gᵀ` over the first `n_gram` rows of the growing set.
    gram: Gram,
    /// Number of rows in `gram`.
    n_gram: usize,
    /// Rows that products have read since `gram` had all rows.
    gone_through: usize,
}

impl<'a, const C: usize> Full<'a, C> {
    /// Allocates with capacity for `most_rows` rows in the growing set.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
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

    /// Whether the head of a set certainly has no quality below `bound`, by the bounds at
    /// [`Solver`]. The set is the growing set, or its complement with `OTHERS`. Sums of the
    /// complement are taken as differences on the way.
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

    /// Adds the missing rows to the Gram matrix, if products have read rows often enough that this
    /// would have been cheaper.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    #[inline(always)]
    fn choose_form(&mut self) -> Result<(), Error> {
        // A product reads each row at 2·K operations; adding a row to the matrix takes K².
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

/// About how many products a head takes.
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
    #[expect(clippy::disallowed_methods, reason = "the room is there")]
    fn take(&mut self, rows: &[u32]) {
        let (statistics, weights) = (self.halves.statistics, self.halves.weights);
        let is_first = self.rows.is_empty();
        for batch in statistics.batches(rows, weights) {
            self.halves.taken.add(&batch);
            self.of_others.add::<C>(-1.0, &batch);
            // A head of zeros has a product of zeros.
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

/// The quality of a set. Its head becomes the best if the quality is below `bound`.
///
/// # Errors
///
/// As [`Solver::quality`].
#[inline(always)]
fn judge<const C: usize>(
    solver: &mut Solver<C>,
    set: Set<'_>,
    bound: f64,
    near: &mut Near,
    best: &mut Aligned,
) -> Result<Option<f64>, Error> {
    let tolerance = CANDIDATE_TOLERANCE;
    let quality = solver.quality(set, Goal { bound, tolerance }, near)?;
    if quality.is_some_and(|quality| quality < bound) {
        best.copy_from_slice(&near.x);
    }
    Ok(quality)
}
