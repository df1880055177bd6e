//! Sets judged by the heads of all labels, under the example-wise loss.

use super::Parent;
use super::halves::Halves;
use super::sweep::Evaluator;
use crate::binning::LEAST_DIAGONAL;
use crate::gram::Gram;
use crate::head::solve::{CANDIDATE_TOLERANCE, Goal, Near, Outer, Set, Solver, length};
use crate::lanes::{Aligned, WIDTH, chunks, total};
use crate::statistics::Statistics;
use manylabel_base::{Error, reserved};

/// All labels under the example-wise loss; rows have `C` chunks, or any number if `C` is 0.
pub(crate) struct Full<'a, const C: usize> {
    halves: Halves<'a>,
    solver: Solver<C>,
    /// Heads of candidates shortly before. Most candidates are known by them not to be the best.
    of_taken: Near,
    of_others: Near,
    /// The head of the best candidate so far, or nearly so.
    pub(crate) best: Aligned,
    rows: Vec<u32>,
    /// `Σ w g gᵀ` of the first rows, and of how many.
    gram: Gram,
    n_gram: usize,
    /// Rows that products have gone through since the matrix had all.
    gone_through: usize,
}

impl<'a, const C: usize> Full<'a, C> {
    /// With room for `most_rows` rows.
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

    /// Whether the head of a set cannot have a quality below `bound`, by the argument at
    /// [`Solver`]. The set is what was taken, or what was not.
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

    /// Makes the matrix that of all rows, if it would have been worth it before.
    #[inline(always)]
    fn choose_form(&mut self) -> Result<(), Error> {
        // A product by the rows is 2·K operations for each; adding one to the matrix is K².
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

/// Products that a head takes, about.
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

/// The quality of a set, whose head is kept as the best if it is below `bound`.
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
