//! Cholesky factors of symmetric positive definite matrices, in blocks of columns.
//!
//! The callers are ridge regressions: a Gram matrix plus a ridge, solved for many right-hand sides. The
//! factor of a matrix of ten thousand rows takes half a minute on one thread. So matrices of more than
//! [`ONE_BLOCK`] columns are cut into blocks of [`COLUMNS`] columns (right-looking algorithm): factor the
//! diagonal block, solve for the rows below it, and subtract their product from the columns to the right.
//! The last two steps are split over threads in strips, and the watch is checked between strips.
//!
//! Each strip is computed by one thread in a fixed order, so results do not depend on the number of
//! threads. Matrices of up to [`ONE_BLOCK`] columns are a single block and give the bits of `faer`.
//!
//! The smooth link has a Cholesky factorization of its own (`link/src/gram.rs`). It accumulates and
//! factors its Gram matrix in square tiles of the lower triangle, which takes half the memory of the full
//! matrices used here.

use crate::{room, zeros};
use faer::dyn_stack::MemStack;
use faer::linalg::cholesky::llt::factor::{
    LltRegularization, cholesky_in_place, cholesky_in_place_scratch,
};
use faer::linalg::cholesky::llt::inverse;
use faer::linalg::matmul::matmul;
use faer::linalg::triangular_solve::{
    solve_lower_triangular_in_place, solve_upper_triangular_in_place,
};
use faer::reborrow::{Reborrow, ReborrowMut};
use faer::{Accum, Mat, MatMut, MatRef, Par, Spec};
use manylabel_base::{Error, Watch, few};
use rayon::prelude::*;
use std::ops::Range;

/// Matrices of up to this many columns are a single block; factoring one takes a tenth of a second.
const ONE_BLOCK: usize = 1024;

/// Columns of a block of a larger matrix. Products of such blocks are as fast as those of whole matrices,
/// and with ten thousand rows they take a tenth of a second.
const COLUMNS: usize = 256;

/// Names of allocations in error messages.
const FACTOR: &str = "the Cholesky factor";
const INVERSE: &str = "the inverse of the Gram matrix";

/// A lower triangular matrix L for which `L Lᵀ` is the factored matrix.
#[derive(Debug)]
pub struct Cholesky {
    /// (n, n); entries above the diagonal are arbitrary.
    l: Mat<f64>,
}

impl Cholesky {
    /// Factors `A + shift · I`, where A is the symmetric matrix whose lower triangle is that of `lower`;
    /// entries above its diagonal are not read. Returns None if the sum is not positive definite or
    /// contains NaN.
    ///
    /// Takes O(n³) time, on all threads of the pool if n > 1024, and memory for one more (n, n) matrix.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the factor does not fit in memory. Returns [`Error::Stopped`] if
    /// the watch was stopped.
    pub fn new(lower: MatRef<'_, f64>, shift: f64, watch: &Watch) -> Result<Option<Self>, Error> {
        let n = lower.nrows();
        let mut l = zeros(FACTOR, n, n)?;
        let strips = strips(l.as_mut(), width(n)).into_par_iter();
        strips.zip(blocks(n)).try_for_each(|(mut strip, block)| {
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

    /// Replaces each column x of `right` by `(L Lᵀ)⁻¹ x`, in O(n²) per column on the calling thread.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Stopped`]; `right` is then partly overwritten.
    ///
    /// # Panics
    ///
    /// Panics if `right` does not have n rows.
    pub fn solve_in_place(&self, right: MatMut<'_, f64>, watch: &Watch) -> Result<(), Error> {
        solve(self.l.as_ref(), right, watch)
    }

    /// `(L Lᵀ)⁻¹` with both triangles, which are equal bit for bit. Takes O(n³) time, on all threads of
    /// the pool if n > 1024.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the inverse does not fit in memory. Returns [`Error::Stopped`] if
    /// the watch was stopped.
    pub fn inverse(&self, watch: &Watch) -> Result<Mat<f64>, Error> {
        let n = self.l.nrows();
        let mut out = zeros(INVERSE, n, n)?;
        if n <= ONE_BLOCK {
            let wanted = inverse::inverse_scratch::<f64>(n, Par::Seq);
            let mut memory = room(INVERSE, wanted)?;
            let stack = MemStack::new(&mut memory);
            inverse::inverse(out.as_mut(), self.l.as_ref(), Par::Seq, stack);
        } else {
            // Solve for blocks of columns of the identity. Rows above a block's ones stay zero in the first
            // triangular solve, and belong to the upper triangle after the second: both are skipped.
            let strips = strips(out.as_mut(), COLUMNS).into_par_iter();
            strips.zip(blocks(n)).try_for_each(|(strip, block)| {
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

/// Columns of each block but the last of a matrix with `n` columns; at least 1.
fn width(n: usize) -> usize {
    if n <= ONE_BLOCK { n.max(1) } else { COLUMNS }
}

/// The columns of each block of a matrix with `n` columns, in order.
fn blocks(n: usize) -> Vec<Range<usize>> {
    let width = width(n);
    few((0..n)
        .step_by(width)
        .map(|first| first..(first + width).min(n)))
}

/// Cuts a matrix into strips of `width` columns; the last may be narrower.
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

/// Replaces the lower triangle of `l` by its Cholesky factor; false if the matrix is not positive
/// definite. Entries above the diagonal may be overwritten.
fn factor(mut l: MatMut<'_, f64>, watch: &Watch) -> Result<bool, Error> {
    let n = l.nrows();
    for block in blocks(n) {
        watch.step(0)?;
        let (done, mut rest) = l.rb_mut().split_at_col_mut(block.end);
        let (_, own) = done.split_at_col_mut(block.start);
        let (above, mut below) = own.split_at_row_mut(block.end);
        let (_, mut diagonal) = above.split_at_row_mut(block.start);
        let wanted = cholesky_in_place_scratch::<f64>(block.len(), Par::Seq, Spec::default());
        let factored = cholesky_in_place(
            diagonal.rb_mut(),
            LltRegularization::default(),
            Par::Seq,
            MemStack::new(&mut room(FACTOR, wanted)?),
            Spec::default(),
        );
        if factored.is_err() {
            return Ok(false);
        }
        // The rows X below the diagonal block L satisfy X Lᵀ = below: solve L Xᵀ = belowᵀ.
        let lower = diagonal.rb();
        let right = strips(below.rb_mut().transpose_mut(), COLUMNS);
        right.into_par_iter().try_for_each(|right| {
            watch.step(0)?;
            solve_lower_triangular_in_place(lower, right, Par::Seq);
            Ok(())
        })?;
        let below = below.rb();
        let strips = strips(rest.rb_mut(), COLUMNS).into_par_iter().enumerate();
        strips.try_for_each(|(at, strip)| {
            watch.step(0)?;
            let first = at * COLUMNS;
            let (_, to) = strip.split_at_row_mut(block.end + first);
            let left = below.subrows(first, below.nrows() - first);
            let right = left.subrows(0, to.ncols()).transpose();
            matmul(to, Accum::Add, left, right, -1.0, Par::Seq);
            Ok(())
        })?;
    }
    Ok(true)
}

/// Replaces each column x of `right` by `(L Lᵀ)⁻¹ x`: forward substitution from the first block to the
/// last, then back substitution from the last to the first.
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
        solve_lower_triangular_in_place(diagonal(block), own.rb_mut(), Par::Seq);
        if block.end < n {
            matmul(rest, Accum::Add, below(block), own.rb(), -1.0, Par::Seq);
        }
    }
    for block in blocks.iter().rev() {
        watch.step(0)?;
        let (above, rest) = right.rb_mut().split_at_row_mut(block.end);
        let (_, mut own) = above.split_at_row_mut(block.start);
        if block.end < n {
            let left = below(block).transpose();
            matmul(own.rb_mut(), Accum::Add, left, rest.rb(), -1.0, Par::Seq);
        }
        solve_upper_triangular_in_place(diagonal(block).transpose(), own, Par::Seq);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::from_fn;
    use faer::Side;
    use faer::linalg::solvers::{DenseSolveCore, Solve};

    /// A well conditioned Gram matrix.
    fn gram(n: usize) -> Mat<f64> {
        let mut rng = fastrand::Rng::with_seed(n as u64);
        let rows = from_fn("rows", n, n, |_, _| rng.f64() - 0.5).expect("small");
        let mut gram = rows.transpose() * &rows;
        for i in 0..n {
            gram[(i, i)] += 1.0;
        }
        gram
    }

    /// The largest difference, relative to the largest number.
    fn off(found: &Mat<f64>, expected: &Mat<f64>) -> f64 {
        (found - expected).norm_max() / expected.norm_max()
    }

    #[test]
    fn blocks_are_the_whole_matrix() {
        let watch = Watch::new();
        let n = ONE_BLOCK + 300;
        let a = gram(n);
        let whole = a.llt(Side::Lower).expect("positive definite");
        // Entries above the diagonal must not be read.
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
