//! Solves the linear systems that determine the scores of rules. The small systems of label bins
//! (groups of labels with the same score) are solved by Cholesky factorization. Systems with one
//! unknown per label are solved by conjugate gradients.
//!
//! A head holds the scores that a rule predicts. Under the example-wise loss, the head x with one
//! score per label is the solution of
//!
//! ```text
//! (diag(d + ω) − A) x = −g,      A = Σ w g gᵀ over the rows
//! ```
//!
//! Inside a sum, g is the gradient of a row and w is the weight of the row. On the right-hand side,
//! g is the sum `Σ w g`. The other sums are d = `Σ w |g|` and h = `Σ w |g| (1 − |g|)`. ω is the L2
//! weight, and K is the number of labels. A factorization would take K³ / 3 operations per
//! candidate. Conjugate gradients need only products with A. A product is computed from the rows
//! themselves (4 · rows · K operations) or from a Gram matrix (2 K² operations). The caller chooses
//! the form of A by passing an [`Outer`]. The preconditioner is `diag(h + ω)`, the diagonal of the
//! system. The preconditioned system has a condition number below about 10, so a few steps suffice.
//!
//! The solver starts from an approximate head ([`Near`]), usually the head of a neighbouring
//! candidate. The quality of a set of rows is the minimum of the objective
//! `gᵀx + ½ xᵀ(diag(d + ω) − A)x`. The solver computes bounds on the quality. It stops when the
//! quality is accurate enough, or when the quality cannot be below the bound of a [`Goal`]. If the
//! solver does not converge within [`MOST_STEPS`] steps, or if the curvature is not positive, the
//! system is factorized.
//!
//! Labels are processed in chunks of eight. Loops are compiled separately for one to four chunks.
//! The parameter `C` is the number of chunks, and `C = 0` means any number.

use crate::batch::Batch;
use crate::binning::LEAST_DIAGONAL;
use crate::gram::{Gram, PRODUCTS};
use crate::lanes::{Aligned, WIDTH, add_scaled, chunks, chunks_mut, dot, total};
use crate::statistics::{PARALLEL_FROM, ROWS, Statistics, Sums};
use faer::MatMut;
use faer::reborrow::{Reborrow, ReborrowMut};
use manylabel_base::{Error, filled, parts};
use manylabel_dense::{factor_in_place, solve_lower, solve_upper};
use manylabel_simd::wide;
use rayon::prelude::*;

/// Overwrites the lower triangle of an n × n matrix with its Cholesky factor. The matrix is stored
/// row by row. Returns false if the matrix is not positive definite.
///
/// Without regularization (`l2` is 0), 1e-10 times the mean diagonal is first added to the
/// diagonal.
///
/// Larger matrices are factorized by the `faer` library. This function is for the small systems of label
/// bins, with one system per candidate. The function must be inlined into the loop over candidates, because
/// this loop is compiled for wide registers.
#[inline(always)]
pub(crate) fn factorize(matrix: &mut [f64], n: usize, l2: f64) -> bool {
    if l2 == 0.0 && n > 0 {
        let trace: f64 = (0..n).map(|i| matrix[i * n + i]).sum();
        (0..n).for_each(|i| matrix[i * n + i] += 1e-10 * trace / n as f64);
    }
    for i in 0..n {
        for j in 0..=i {
            let mut sum = matrix[i * n + j];
            for k in 0..j {
                sum -= matrix[i * n + k] * matrix[j * n + k];
            }
            if i > j {
                matrix[i * n + j] = sum / matrix[j * n + j];
            } else if sum > 0.0 {
                matrix[i * n + i] = sum.sqrt();
            } else {
                return false;
            }
        }
    }
    true
}

/// Returns the padded length of a row with one number per label. If `C` is not 0, the length is `C`
/// chunks of eight numbers, so that the compiler can unroll loops. Otherwise the length is
/// `stride`.
#[inline(always)]
pub(crate) fn length<const C: usize>(stride: usize) -> usize {
    if C > 0 { C * WIDTH } else { stride }
}

/// Cuts `row` to the length that [`length`] returns.
#[inline(always)]
fn cut<const C: usize>(row: &[f64]) -> &[f64] {
    &row[..length::<C>(row.len())]
}

/// The matrix `A = Σ w g gᵀ` over some rows, stored or implicit. Here g is the gradient of a row,
/// and w is the weight of the row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outer<'a> {
    /// The stored matrix.
    Matrix(&'a Gram),
    /// An implicit matrix, given by its rows and by the weights of all training rows.
    Rows(&'a [u32], &'a [f64]),
}

/// Computes `y += sign · A x` for `B` chunks of eight entries of y, starting at chunk `first`. `x` may be
/// shorter than `stride`, and the missing entries count as 0.
#[inline(always)]
pub(crate) fn multiply_columns<const B: usize>(
    gram: &Gram,
    stride: usize,
    sign: f64,
    x: &[f64],
    first: usize,
    y: &mut [[f64; WIDTH]],
) {
    let mut sums = [[0.0; WIDTH]; B];
    for (row, &x) in gram.data.chunks_exact(stride).zip(x) {
        let row = &chunks(row)[first..first + B];
        for c in 0..B {
            for lane in 0..WIDTH {
                sums[c][lane] += x * row[c][lane];
            }
        }
    }
    for c in 0..B {
        for lane in 0..WIDTH {
            y[first + c][lane] += sign * sums[c][lane];
        }
    }
}

/// Computes `y += sign · A x` over some rows as `Σ w g (gᵀx)`, on one thread.
#[inline(always)]
fn add_product_of_rows<const C: usize>(
    statistics: &Statistics<'_>,
    sign: f64,
    rows: &[u32],
    weights: &[f64],
    x: &[f64],
    y: &mut [f64],
) {
    let n = length::<C>(statistics.stride);
    for batch in statistics.batches(rows, weights) {
        let products = batch.products(sign, &x[..n]);
        batch.add_to(&products, &mut y[..n]);
    }
}

/// Returns the product `A x`, where `A = Σ w g gᵀ` is the sum over some rows.
///
/// # Errors
///
/// Returns the same errors as [`Watch::step`](manylabel_base::Watch::step). Returns [`Error::TooLarge`] if
/// the product does not fit in memory.
#[wide]
fn product_of_rows(
    statistics: &Statistics<'_>,
    rows: &[u32],
    weights: &[f64],
    x: &[f64],
) -> Result<Vec<f64>, Error> {
    statistics.ask()?;
    let mut y = filled("number of labels", 0.0, x.len())?;
    add_product_of_rows::<0>(statistics, 1.0, rows, weights, x, &mut y);
    Ok(y)
}

impl<'a> Outer<'a> {
    /// Returns the matrix if there is one. Otherwise returns the rows.
    pub(crate) fn of(gram: Option<&'a Gram>, rows: &'a [u32], weights: &'a [f64]) -> Self {
        gram.map_or(Self::Rows(rows, weights), Self::Matrix)
    }

    /// Computes `y += sign · A x`. With many rows and no stored matrix, blocks of rows are
    /// processed in parallel and added in order.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`](manylabel_base::Watch::step). Returns [`Error::TooLarge`]
    /// if there is not enough memory.
    #[inline(always)]
    fn add_product<const C: usize>(
        &self,
        statistics: &Statistics<'_>,
        sign: f64,
        x: &[f64],
        y: &mut [f64],
    ) -> Result<(), Error> {
        match *self {
            Self::Matrix(gram) => {
                // A few chunks of the product stay in registers while the rows of the matrix are
                // added.
                let x = &x[..statistics.n_labels];
                let y = chunks_mut(y);
                if C > 0 {
                    multiply_columns::<C>(gram, length::<C>(0), sign, x, 0, y);
                } else {
                    // Five to eight chunks are processed at once. Any other number of chunks is processed
                    // four at a time, and the remaining chunks are processed one by one.
                    let n = y.len();
                    match n {
                        5 => multiply_columns::<5>(gram, gram.stride, sign, x, 0, y),
                        6 => multiply_columns::<6>(gram, gram.stride, sign, x, 0, y),
                        7 => multiply_columns::<7>(gram, gram.stride, sign, x, 0, y),
                        8 => multiply_columns::<8>(gram, gram.stride, sign, x, 0, y),
                        _ => {
                            let fours = n - n % 4;
                            for first in (0..fours).step_by(4) {
                                multiply_columns::<4>(gram, gram.stride, sign, x, first, y);
                            }
                            for first in fours..n {
                                multiply_columns::<1>(gram, gram.stride, sign, x, first, y);
                            }
                        }
                    }
                }
            }
            Self::Rows(rows, weights) if rows.len() * y.len() < PARALLEL_FROM => {
                add_product_of_rows::<C>(statistics, sign, rows, weights, x, y);
            }
            Self::Rows(rows, weights) => {
                let part = |rows: &[u32]| product_of_rows(statistics, rows, weights, x);
                for part in &parts(rows.par_chunks(ROWS).map(part))? {
                    add_scaled(y, sign, part);
                }
            }
        }
        Ok(())
    }

    /// Computes `matrix −= sign · A`, where A is the matrix that this value represents.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Gram::add_rows`].
    fn subtract_from(
        &self,
        statistics: &Statistics<'_>,
        sign: f64,
        matrix: &mut Gram,
    ) -> Result<(), Error> {
        match *self {
            Self::Matrix(gram) => {
                add_scaled(&mut matrix.data, -sign, &gram.data);
                Ok(())
            }
            Self::Rows(rows, weights) => matrix.add_rows(-sign, statistics, rows, weights),
        }
    }
}

/// An approximate head `x` (one score per label) of a set of rows, and the product `A x` with the
/// matrix `A = Σ w g gᵀ` over these rows. When a row is added or removed, the product is updated in
/// O(labels) time.
#[derive(Debug)]
pub(crate) struct Near {
    /// The head, padded to a multiple of eight labels.
    pub(crate) x: Aligned,
    /// The product `A x`.
    pub(crate) product: Aligned,
}

impl Near {
    /// Returns a head of zeros with a product of zeros.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn zero(stride: usize) -> Result<Self, Error> {
        Ok(Self {
            x: Aligned::zeros("number of labels", stride)?,
            product: Aligned::zeros("number of labels", stride)?,
        })
    }

    /// Returns a copy of the head and the product.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the copy does not fit in memory.
    pub(crate) fn copied(&self) -> Result<Self, Error> {
        Ok(Self {
            x: self.x.copied("number of labels")?,
            product: self.product.copied("number of labels")?,
        })
    }

    /// Computes the product `A x`, where the matrix A is given by `outer`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`](manylabel_base::Watch::step). Returns [`Error::TooLarge`]
    /// if there is not enough memory.
    pub(crate) fn multiply(
        &mut self,
        statistics: &Statistics<'_>,
        outer: Outer<'_>,
    ) -> Result<(), Error> {
        self.product.fill(0.0);
        if self.x.iter().all(|&x| x == 0.0) {
            return Ok(());
        }
        outer.add_product::<0>(statistics, 1.0, &self.x, &mut self.product)
    }

    /// Copies the head and the product of `other`, which must have the same length.
    pub(crate) fn copy_from(&mut self, other: &Self) {
        self.x.copy_from_slice(&other.x);
        self.product.copy_from_slice(&other.product);
    }

    /// Updates the product for the rows of a batch. A `sign` of 1 adds the rows to the set, and −1
    /// removes them.
    #[inline(always)]
    pub(crate) fn add<const C: usize>(&mut self, sign: f64, batch: &Batch<'_>) {
        let products = batch.products(sign, cut::<C>(&self.x));
        let n = length::<C>(self.x.len());
        batch.add_to(&products, &mut self.product[..n]);
    }
}

/// Computes heads with one score per label under the example-wise loss. A head is the solution x of
/// `(diag(d + ω) − A) x = −g`. The module documentation defines the symbols.
///
/// The quality is the minimum of the objective. The solver computes bounds on the quality. Let M be
/// the matrix of the system, and `r = −g − M x` the residual. The value of the objective at x is
/// `½ gᵀx − ½ xᵀr`. This value exceeds the minimum by `½ rᵀ M⁻¹ r`. With q = `|g|`, every row
/// satisfies `diag(q) − q qᵀ ⪰ (1 − Σq) diag(q)`. So M is at least `diag(f + ω)`, where f is the
/// sum `Σ w (1 − Σq) q` over the rows. The minimum is therefore at most `½ rᵀ diag(f + ω)⁻¹ r`
/// below the value at x. If x is close to the solution, this bound often rejects a candidate before
/// the first step.
///
/// The bounds are computed in each step and determine when the solver stops. A general-purpose solver would
/// not compute these bounds.
#[derive(Debug)]
pub(crate) struct Solver<const C: usize> {
    /// The L2 weight ω.
    pub(crate) l2: f64,
    /// The residual `r = −g − M x`.
    residual: Aligned,
    /// The search direction.
    direction: Aligned,
    /// M times the direction.
    product: Aligned,
}

/// The data from which the head of a set of rows is computed.
#[derive(Clone, Copy)]
pub(crate) struct Set<'a> {
    /// The gradients of all training rows.
    statistics: &'a Statistics<'a>,
    /// Sums over the set of rows. All [`Kinds`](crate::statistics::Kinds) of sums are needed.
    sums: &'a Sums,
    /// The matrix A of the set of rows, as a sum of parts. Each part comes with a factor of 1 or −1. For
    /// example, the matrix of a complement is the matrix of all rows minus the matrix of the set.
    parts: &'a [(f64, Outer<'a>)],
}

impl<'a> Set<'a> {
    pub(crate) fn new(
        statistics: &'a Statistics<'a>,
        sums: &'a Sums,
        parts: &'a [(f64, Outer<'a>)],
    ) -> Self {
        Self {
            statistics,
            sums,
            parts,
        }
    }
}

/// The criteria by which the solver decides to stop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Goal {
    /// The quality to improve on. The solver stops early if a lower limit of the quality exceeds this bound.
    pub(crate) bound: f64,
    /// The largest accepted difference between the quality and the optimum, relative to the optimum.
    pub(crate) tolerance: f64,
}

impl Goal {
    /// Returns a goal without a bound, so the solver always reaches the given tolerance. The bound is
    /// infinity, which no quality exceeds.
    pub(crate) fn any(tolerance: f64) -> Self {
        let bound = f64::INFINITY;
        Self { bound, tolerance }
    }
}

/// Number of steps of conjugate gradients after which the system is factorized instead.
const MOST_STEPS: usize = 30;

/// Relative tolerance of the quality of a candidate condition.
pub(crate) const CANDIDATE_TOLERANCE: f64 = 1e-10;

/// Relative tolerance of the quality of the final head of a rule.
pub(crate) const HEAD_TOLERANCE: f64 = 1e-13;

impl<const C: usize> Solver<C> {
    /// Allocates the workspace.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn new(stride: usize, l2: f64) -> Result<Self, Error> {
        let room = || Aligned::zeros("number of labels", stride);
        Ok(Self {
            l2,
            residual: room()?,
            direction: room()?,
            product: room()?,
        })
    }

    /// Computes `product = (diag(d + ω) − A) direction`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`](manylabel_base::Watch::step). Returns [`Error::TooLarge`]
    /// if there is not enough memory.
    #[inline(always)]
    fn multiply(&mut self, set: Set<'_>) -> Result<(), Error> {
        let sums = set.sums;
        let product = &mut self.product[..length::<C>(sums.stride)];
        let x = cut::<C>(&self.direction);
        let diagonal = chunks(cut::<C>(sums.d())).iter().zip(chunks(x));
        for (out, (d, x)) in chunks_mut(product).iter_mut().zip(diagonal) {
            for lane in 0..WIDTH {
                out[lane] = (d[lane] + self.l2) * x[lane];
            }
        }
        for (sign, part) in set.parts {
            part.add_product::<C>(set.statistics, -sign, x, product)?;
        }
        Ok(())
    }

    /// Does the work of [`improve`] for a head `x`. The field `residual` must hold the residual of `x`. The
    /// function updates `x` and the residual.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`improve`].
    #[inline(always)]
    fn conjugate_gradients(
        &mut self,
        set: Set<'_>,
        goal: Goal,
        x: &mut [f64],
    ) -> Result<Option<f64>, Error> {
        let (sums, Goal { bound, tolerance }) = (set.sums, goal);
        let n = length::<C>(sums.stride);
        let mut last = 0.0;
        for step in 0..MOST_STEPS {
            let (gain, missing, scaled) = self.gain(sums, x);
            if -(gain + missing) > bound {
                return Ok(None);
            }
            if missing <= tolerance * gain || scaled <= 1e-2 * tolerance * gain {
                return Ok(Some(-gain));
            }
            // The new direction is M₀⁻¹ r plus β times the old direction. The preconditioner is M₀ = diag(h +
            // ω).
            let beta = if step == 0 { 0.0 } else { scaled / last };
            last = scaled;
            let parts_of = chunks(&self.residual[..n]).iter().zip(chunks(sums.h()));
            let direction = chunks_mut(&mut self.direction[..n]);
            for (p, (r, h)) in direction.iter_mut().zip(parts_of) {
                for lane in 0..WIDTH {
                    let h = if h[lane] > 0.0 { h[lane] } else { 0.0 };
                    let step = if beta == 0.0 { 0.0 } else { beta * p[lane] };
                    p[lane] = r[lane] / (h + self.l2 + LEAST_DIAGONAL) + step;
                }
            }
            self.multiply(set)?;
            let direction = &self.direction[..n];
            let curvature = dot(direction, &self.product[..n]);
            let usable = curvature > 0.0 && curvature.is_finite();
            if !usable {
                break;
            }
            let alpha = dot(direction, &self.residual[..n]) / curvature;
            add_scaled(&mut x[..n], alpha, direction);
            add_scaled(&mut self.residual[..n], -alpha, &self.product[..n]);
        }
        factorized(set, self.l2, x, &mut self.residual).map(Some)
    }

    /// Returns three numbers. The first number is the decrease of the objective from a head of
    /// zeros to the head `x`. The second number is an upper bound on the further decrease from `x`
    /// to the minimum. The third number is `rᵀ diag(h + ω)⁻¹ r`, where r is the residual.
    #[inline(always)]
    fn gain(&self, sums: &Sums, x: &[f64]) -> (f64, f64, f64) {
        let mut gains = [0.0; WIDTH];
        let mut missing = [0.0; WIDTH];
        let mut scaled = [0.0; WIDTH];
        let diagonals = chunks(cut::<C>(sums.f())).iter().zip(chunks(sums.h()));
        let heads = chunks(sums.g()).iter().zip(chunks(x));
        let residual = &self.residual[..length::<C>(sums.stride)];
        for ((r, (g, x)), (f, h)) in chunks(residual).iter().zip(heads).zip(diagonals) {
            for lane in 0..WIDTH {
                let (f, h) = (
                    if f[lane] > 0.0 { f[lane] } else { 0.0 },
                    if h[lane] > 0.0 { h[lane] } else { 0.0 },
                );
                gains[lane] += x[lane] * (r[lane] - g[lane]);
                let square = r[lane] * r[lane];
                missing[lane] += square / (f + self.l2 + LEAST_DIAGONAL);
                scaled[lane] += square / (h + self.l2 + LEAST_DIAGONAL);
            }
        }
        (0.5 * total(&gains), 0.5 * total(&missing), total(&scaled))
    }
}

/// Improves the head of a set until its quality is within the tolerance of `goal`. Returns the
/// quality, or `None` if a lower limit of the quality exceeds the bound of `goal`.
///
/// `near` must contain the product `A x` for the rows of the set. The function updates the head and the
/// product of `near`.
///
/// The function is not inlined into its callers, although they are compiled for wide registers. It is long and is called
/// from several places, so that the crate would take a quarter longer to compile.
///
/// # Errors
///
/// Returns the same errors as [`Watch::step`](manylabel_base::Watch::step). Returns [`Error::TooLarge`]
/// if there is not enough memory.
#[wide]
pub(crate) fn improve<const C: usize>(
    solver: &mut Solver<C>,
    set: Set<'_>,
    goal: Goal,
    near: &mut Near,
) -> Result<Option<f64>, Error> {
    let (sums, l2) = (set.sums, solver.l2);
    let n = length::<C>(sums.stride);
    let known = near.product.iter().zip(near.x.iter());
    let sums_of = sums.g().iter().zip(sums.d());
    for (r, ((product, x), (g, d))) in solver.residual[..n].iter_mut().zip(known.zip(sums_of)) {
        *r = product - (d + l2) * x - g;
    }
    let quality = solver.conjugate_gradients(set, goal, &mut near.x)?;
    let parts = solver
        .residual
        .iter()
        .zip(sums.g())
        .zip(near.x.iter().zip(sums.d()));
    for (product, ((r, g), (x, d))) in near.product.iter_mut().zip(parts) {
        *product = (d + l2) * x + g + r;
    }
    Ok(quality)
}

/// Solves the system by Cholesky factorization. This function is used if conjugate gradients converge too
/// slowly. Convergence is slow without regularization, or if the matrix contains large rounding errors.
/// Without regularization, 1e-10 times the mean diagonal is added to the diagonal. If the matrix is not
/// positive definite, the head is 0. Sets `residual` to the residual of the head `x`.
///
/// # Errors
///
/// Returns the same errors as [`improve`].
#[cold]
fn factorized(set: Set<'_>, l2: f64, x: &mut [f64], residual: &mut [f64]) -> Result<f64, Error> {
    let Set {
        statistics,
        sums,
        parts,
    } = set;
    let n = statistics.n_labels;
    let mut matrix = Gram::new(statistics.stride)?;
    for (sign, part) in parts {
        part.subtract_from(statistics, *sign, &mut matrix)?;
    }
    let diagonal = || sums.d()[..n].iter().map(|d| d + l2);
    let trace: f64 = diagonal().sum();
    let little = if l2 == 0.0 {
        1e-10 * trace / n as f64
    } else {
        0.0
    };
    // The matrix is stored column by column. The factorization uses only the lower triangle.
    let mut dense = filled(PRODUCTS, 0.0, n.saturating_mul(n))?;
    for (i, diagonal) in diagonal().enumerate() {
        for (j, &product) in matrix.row(i)[..=i].iter().enumerate() {
            let on = if i == j { diagonal + little } else { 0.0 };
            dense[j * n + i] = product + on;
        }
    }
    drop(matrix);
    x.fill(0.0);
    for (r, g) in residual.iter_mut().zip(sums.g()) {
        *r = -g;
    }
    statistics.ask()?;
    let mut dense = MatMut::from_column_major_slice_mut(&mut dense, n, n);
    if !factor_in_place(PRODUCTS, dense.rb_mut())? {
        return Ok(0.0);
    }
    x[..n].copy_from_slice(&residual[..n]);
    let mut right = MatMut::from_column_major_slice_mut(&mut x[..n], n, 1);
    solve_lower(dense.rb(), right.rb_mut());
    solve_upper(dense.rb().transpose(), right);
    if x.iter().all(|x| x.is_finite()) {
        residual.fill(0.0);
        Ok(0.5 * dot(sums.g(), x))
    } else {
        x.fill(0.0);
        Ok(0.0)
    }
}
