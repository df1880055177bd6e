//! Factors symmetric positive definite matrices by Cholesky decomposition, in blocks of columns.
//!
//! The callers fit ridge regressions: they add a ridge to a Gram matrix and solve for many right-hand sides.
//! Factoring a matrix of ten thousand rows takes half a minute on one thread. So a matrix of more than
//! [`ONE_BLOCK`] columns is divided into blocks of [`COLUMNS`] columns (the right-looking algorithm). Each
//! block takes three steps. The first step factors the diagonal block. The second step solves for the rows
//! below the diagonal block. The third step subtracts the product of these rows from the columns to the
//! right. The last two steps are divided into strips, and threads process the strips in parallel. Between
//! strips, the code checks whether the caller has requested a stop.
//!
//! Each strip is computed by one thread in a fixed order, so results do not depend on the number of threads.
//! A matrix of up to [`ONE_BLOCK`] columns is a single block. Its factor is exactly the factor that `faer`
//! computes.
//!
//! The smooth link has its own Cholesky factorization (`link/src/gram.rs`). That factorization works on
//! square tiles of the lower triangle. The tiles take half the memory of the full matrices used here.

use crate::kernels::{factor_in_place, matmul, solve_lower, solve_upper};
use crate::{room, zeros};
use faer::dyn_stack::MemStack;
use faer::linalg::cholesky::llt::inverse;
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, Mat, MatMut, MatRef, Par};
use manylabel_base::{Error, Tasks, Watch, few};
use rayon::prelude::*;
use std::ops::Range;

/// The largest number of columns of a matrix that is factored as a single block. Factoring such a
/// matrix takes a tenth of a second.
const ONE_BLOCK: usize = 1024;

/// Number of columns of a block, for matrices that are divided into blocks. Products of such blocks are
/// as fast as products of whole matrices. With ten thousand rows, a product takes a tenth of a second.
const COLUMNS: usize = 256;

/// The name of the factor in error messages.
const FACTOR: &str = "the Cholesky factor";
/// The name of the inverse in error messages.
const INVERSE: &str = "the inverse of the Gram matrix";

/// The Cholesky factor of a matrix A: the lower triangular matrix L with `L Lᵀ = A`.
#[derive(Debug)]
pub struct Cholesky {
    /// The factor, of shape (n, n). Entries above the diagonal are arbitrary.
    l: Mat<f64>,
}

impl Cholesky {
    /// Factors `A + shift · I`, where A is symmetric. `lower` holds the lower triangle of A. Entries of
    /// `lower` above the diagonal are not read. Returns None if `A + shift · I` is not positive
    /// definite or contains NaN.
    ///
    /// The time is O(n³), on all threads of the pool if n > 1024. The factor takes the memory of one (n, n)
    /// matrix.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the factor does not fit in memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    pub fn new(lower: MatRef<'_, f64>, shift: f64, watch: &Watch) -> Result<Option<Self>, Error> {
        let n = lower.nrows();
        let mut l = zeros(FACTOR, n, n)?;
        let strips = strips(l.as_mut(), width(n)).into_par_iter();
        strips.zip(blocks(n)).try_each(|(mut strip, block)| {
            watch.step(0)?;
            let from = lower.subcols(block.start, block.len());
            let (above, mut below) = strip.rb_mut().split_at_row_mut(block.end);
            let (_, mut diagonal) = above.split_at_row_mut(block.start);
            diagonal.copy_from_triangular_lower(from.subrows(block.start, block.len()));
            below.copy_from(from.subrows(block.end, n - block.end));
            for (at, col) in block.enumerate() {
                strip[(col, at)] += shift;
            }
            Ok(())
        })?;
        let factored = factor(l.as_mut(), watch)?;
        Ok(factored.then_some(Self { l }))
    }

    /// Replaces each column x of `right` by `(L Lᵀ)⁻¹ x`. The time is O(n²) per column, on the calling
    /// thread.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Stopped`] if the caller requested a stop. After this error, `right` is partly
    /// overwritten.
    ///
    /// # Panics
    ///
    /// Panics if `right` does not have n rows.
    pub fn solve_in_place(&self, right: MatMut<'_, f64>, watch: &Watch) -> Result<(), Error> {
        solve(self.l.as_ref(), right, watch)
    }

    /// Returns the full matrix `(L Lᵀ)⁻¹`, which is exactly symmetric. The time is O(n³), on all threads of
    /// the pool if n > 1024.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the inverse does not fit in memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    pub fn inverse(&self, watch: &Watch) -> Result<Mat<f64>, Error> {
        let n = self.l.nrows();
        let mut out = zeros(INVERSE, n, n)?;
        if n <= ONE_BLOCK {
            let wanted = inverse::inverse_scratch::<f64>(n, Par::Seq);
            let mut memory = room(INVERSE, wanted)?;
            let stack = MemStack::new(&mut memory);
            inverse::inverse(out.as_mut(), self.l.as_ref(), Par::Seq, stack);
        } else {
            // Each strip of columns of the inverse solves a system whose right-hand side is a strip of the
            // identity matrix. In the forward substitution, the rows above the diagonal block of the strip
            // stay zero. In the back substitution, these rows would become part of the upper triangle, which
            // is copied from the lower triangle below. So both substitutions start at the diagonal block.
            let strips = strips(out.as_mut(), COLUMNS).into_par_iter();
            strips.zip(blocks(n)).try_each(|(strip, block)| {
                let (_, mut below) = strip.split_at_row_mut(block.start);
                for at in 0..block.len() {
                    below[(at, at)] = 1.0;
                }
                let rest = n - block.start;
                let l = self.l.submatrix(block.start, block.start, rest, rest);
                solve(l, below, watch)
            })?;
        }
        for block in blocks(n) {
            watch.step(0)?;
            for i in 0..block.end {
                for j in block.start.max(i + 1)..block.end {
                    out[(i, j)] = out[(j, i)];
                }
            }
        }
        Ok(out)
    }
}

/// Returns the number of columns of each block of a matrix with `n` columns; at least 1. The last block
/// may have fewer columns.
fn width(n: usize) -> usize {
    if n <= ONE_BLOCK { n.max(1) } else { COLUMNS }
}

/// Returns the column ranges of the blocks of a matrix with `n` columns, in order.
fn blocks(n: usize) -> Vec<Range<usize>> {
    let width = width(n);
    few((0..n)
        .step_by(width)
        .map(|first| first..(first + width).min(n)))
}

/// Divides a matrix into strips of `width` columns. The last strip may be narrower.
fn strips(mut rest: MatMut<'_, f64>, width: usize) -> Vec<MatMut<'_, f64>> {
    let mut strips = Vec::new();
    while rest.ncols() > 0 {
        let n_cols = width.min(rest.ncols());
        let (strip, after) = rest.split_at_col_mut(n_cols);
        strips.push(strip);
        rest = after;
    }
    strips
}

/// Replaces the lower triangle of `l` by its Cholesky factor. Returns false if the matrix is not
/// positive definite. Entries above the diagonal may be overwritten.
fn factor(mut l: MatMut<'_, f64>, watch: &Watch) -> Result<bool, Error> {
    let n = l.nrows();
    for block in blocks(n) {
        watch.step(0)?;
        let (done, mut rest) = l.rb_mut().split_at_col_mut(block.end);
        let (_, own) = done.split_at_col_mut(block.start);
        let (above, mut below) = own.split_at_row_mut(block.end);
        let (_, mut diagonal) = above.split_at_row_mut(block.start);
        if !factor_in_place(FACTOR, diagonal.rb_mut())? {
            return Ok(false);
        }
        // Let L be the factor of the diagonal block. The rows X of the factor below this block satisfy X Lᵀ =
        // below. So the system L Xᵀ = belowᵀ is solved.
        let lower = diagonal.rb();
        let right = strips(below.rb_mut().transpose_mut(), COLUMNS);
        right.into_par_iter().try_each(|right| {
            watch.step(0)?;
            solve_lower(lower, right);
            Ok(())
        })?;
        let below = below.rb();
        let strips = strips(rest.rb_mut(), COLUMNS).into_par_iter().enumerate();
        strips.try_each(|(at, strip)| {
            watch.step(0)?;
            let first = at * COLUMNS;
            let (_, to) = strip.split_at_row_mut(block.end + first);
            let left = below.subrows(first, below.nrows() - first);
            let right = left.subrows(0, to.ncols()).transpose();
            matmul(to, Accum::Add, left, right, -1.0);
            Ok(())
        })?;
    }
    Ok(true)
}

/// Replaces each column x of `right` by `(L Lᵀ)⁻¹ x`. Forward substitution runs from the first block to
/// the last, and back substitution runs from the last block to the first.
fn solve(l: MatRef<'_, f64>, mut right: MatMut<'_, f64>, watch: &Watch) -> Result<(), Error> {
    let n = l.nrows();
    let blocks = blocks(n);
    let diagonal =
        |block: &Range<usize>| l.submatrix(block.start, block.start, block.len(), block.len());
    let below =
        |block: &Range<usize>| l.submatrix(block.end, block.start, n - block.end, block.len());
    for block in &blocks {
        watch.step(0)?;
        let (above, rest) = right.rb_mut().split_at_row_mut(block.end);
        let (_, mut own) = above.split_at_row_mut(block.start);
        solve_lower(diagonal(block), own.rb_mut());
        if block.end < n {
            matmul(rest, Accum::Add, below(block), own.rb(), -1.0);
        }
    }
    for block in blocks.iter().rev() {
        watch.step(0)?;
        let (above, rest) = right.rb_mut().split_at_row_mut(block.end);
        let (_, mut own) = above.split_at_row_mut(block.start);
        if block.end < n {
            let left = below(block).transpose();
            matmul(own.rb_mut(), Accum::Add, left, rest.rb(), -1.0);
        }
        solve_upper(diagonal(block).transpose(), own);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::from_fn;
    use faer::Side;
    use faer::linalg::solvers::{DenseSolveCore, Solve};

    /// Returns a well-conditioned Gram matrix.
    fn gram(n: usize) -> Mat<f64> {
        let mut rng = fastrand::Rng::with_seed(n as u64);
        let rows = from_fn("rows", n, n, |_, _| rng.f64() - 0.5).expect("small");
        let mut gram = rows.transpose() * &rows;
        for i in 0..n {
            gram[(i, i)] += 1.0;
        }
        gram
    }

    /// Returns the largest absolute difference between the two matrices, divided by the largest absolute
    /// entry of `expected`.
    fn off(found: &Mat<f64>, expected: &Mat<f64>) -> f64 {
        (found - expected).norm_max() / expected.norm_max()
    }

    #[test]
    fn blocks_are_the_whole_matrix() {
        let watch = Watch::new();
        let n = ONE_BLOCK + 300;
        let a = gram(n);
        let whole = a.llt(Side::Lower).expect("positive definite");
        // The NaN entries check that entries above the diagonal are not read.
        let mut lower = a.clone();
        for j in 0..n {
            lower.col_mut(j).subrows_mut(0, j).fill(f64::NAN);
        }
        let factor = Cholesky::new(lower.as_ref(), 0.0, &watch).expect("small");
        let factor = factor.expect("positive definite");
        let right = from_fn("right", n, 5, |i, j| ((i * 7 + j) % 11) as f64 - 5.0).expect("small");
        let mut x = right.clone();
        factor
            .solve_in_place(x.as_mut(), &watch)
            .expect("nobody stops it");
        assert!(off(&x, &whole.solve(&right)) < 1e-12);
        let inverse = factor.inverse(&watch).expect("small");
        assert!(off(&inverse, &whole.inverse()) < 1e-12);
        assert_eq!(inverse, inverse.transpose());
    }

    #[test]
    fn one_block_is_faer_bit_for_bit() {
        let watch = Watch::new();
        let a = gram(200);
        let whole = a.llt(Side::Lower).expect("positive definite");
        let factor = Cholesky::new(a.as_ref(), 0.0, &watch).expect("small");
        let factor = factor.expect("positive definite");
        let right = from_fn("right", 200, 32, |i, j| ((i * 7 + j) % 11) as f64).expect("small");
        let mut x = right.clone();
        factor
            .solve_in_place(x.as_mut(), &watch)
            .expect("nobody stops it");
        assert_eq!(x, whole.solve(&right));
        assert_eq!(factor.inverse(&watch).expect("small"), whole.inverse());
    }

    #[test]
    fn results_do_not_depend_on_threads() {
        let n = ONE_BLOCK + 300;
        let a = gram(n);
        let inverse = |n_threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads);
            pool.build().expect("threads").install(|| {
                let watch = Watch::new();
                let factor = Cholesky::new(a.as_ref(), 0.5, &watch).expect("small");
                factor
                    .expect("positive definite")
                    .inverse(&watch)
                    .expect("small")
            })
        };
        assert_eq!(inverse(1), inverse(3));
    }

    #[test]
    fn what_is_not_positive_definite_has_no_factor() {
        let watch = Watch::new();
        for n in [3, ONE_BLOCK + 10] {
            for bad in [-1.0, f64::NAN] {
                let identity = |i: usize, j: usize| f64::from(u8::from(i == j));
                let mut a = from_fn("A", n, n, identity).expect("small");
                a[(n - 1, n - 1)] = bad;
                assert!(
                    Cholesky::new(a.as_ref(), 0.0, &watch)
                        .expect("small")
                        .is_none()
                );
            }
        }
    }

    #[test]
    fn stops_between_blocks() {
        let n = ONE_BLOCK + 10;
        let watch = Watch::new();
        let a = gram(n);
        let factor = Cholesky::new(a.as_ref(), 0.0, &watch).expect("small");
        let factor = factor.expect("positive definite");
        watch.stop();
        let mut right = from_fn("right", n, 1, |_, _| 1.0).expect("small");
        assert!(matches!(
            Cholesky::new(a.as_ref(), 0.0, &watch),
            Err(Error::Stopped)
        ));
        assert!(matches!(factor.inverse(&watch), Err(Error::Stopped)));
        let solved = factor.solve_in_place(right.as_mut(), &watch);
        assert!(matches!(solved, Err(Error::Stopped)));
    }
}
