//! Cholesky factors of large matrices, block by block.
//!
//! The factor of a matrix of ten thousand rows takes half a minute of a thread. In blocks of columns it
//! is the work of all, and between blocks there is a chance to stop. Every block is computed by one
//! thread in a fixed order, so that results do not depend on how many there are. Small matrices are one
//! block: their results are those of `faer`.
//!
//! The Gram matrix of the smooth link (`link/src/gram.rs`) stays apart: it is summed up, and factored,
//! in square tiles of its own, half the memory of a matrix with both its triangles.

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

/// Up to so many columns are one block: a tenth of a second's work.
const ONE_BLOCK: usize = 1024;

/// Columns of a block of more: products of blocks are as fast as those of whole matrices, and those of a
/// block with ten thousand rows take a tenth of a second, too.
const COLUMNS: usize = 256;

/// What memory is asked for.
const FACTOR: &str = "the Cholesky factor";
const INVERSE: &str = "the inverse of the Gram matrix";

/// L with `L Lᵀ` the matrix that was factored.
#[derive(Debug)]
pub struct Cholesky {
    /// What is above the diagonal is arbitrary.
    l: Mat<f64>,
}

impl Cholesky {
    /// Factors a matrix, of which what is above the diagonal does not count, plus `shift` times the
    /// identity; None if that is not positive definite. In O(n³) on all threads.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if there is no memory for another such matrix, [`Error::Stopped`].
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

    /// `x ← (L Lᵀ)⁻¹ x` for every column x of `right`.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`].
    pub fn solve_in_place(&self, right: MatMut<'_, f64>, watch: &Watch) -> Result<(), Error> {
        solve(self.l.as_ref(), right, watch)
    }

    /// `(L Lᵀ)⁻¹`, both its triangles. In O(n³) on all threads.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if there is no memory for it, [`Error::Stopped`].
    pub fn inverse(&self, watch: &Watch) -> Result<Mat<f64>, Error> {
        let n = self.l.nrows();
        let mut out = zeros(INVERSE, n, n)?;
        if n <= ONE_BLOCK {
            let wanted = inverse::inverse_scratch::<f64>(n, Par::Seq);
            let mut memory = room(INVERSE, wanted)?;
            let stack = MemStack::new(&mut memory);
            inverse::inverse(out.as_mut(), self.l.as_ref(), Par::Seq, stack);
        } else {
            // Of a block of columns of the identity, what is above its ones stays zero for the lower
            // triangle and is not needed for the upper one.
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

/// Columns of a block of a matrix of so many.
fn width(n: usize) -> usize {
    if n <= ONE_BLOCK { n.max(1) } else { COLUMNS }
}

/// The columns of each block.
fn blocks(n: usize) -> Vec<Range<usize>> {
    let width = width(n);
    few((0..n)
        .step_by(width)
        .map(|first| first..(first + width).min(n)))
}

/// Cuts a matrix into strips of `width` columns.
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

/// Factors in place; false if the matrix is not positive definite.
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
        // X Lᵀ = below, as L Xᵀ = belowᵀ.
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

/// `x ← (L Lᵀ)⁻¹ x` for every column x of `right`.
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

    /// A Gram matrix, well conditioned.
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
        // By rows as by columns: what is above the diagonal does not count.
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
