//! Multiplies rows by a matrix with few columns. For features X, a fitted model with weights W and
//! intercept b computes `XW + b`. For labels Y and their embedding U, the product is `YU`.
//!
//! A fitted model needs only the product `XW + b` to transform new rows. [`project`] reads the
//! arrays of the model directly, in the precision of the arrays. Nothing is prepared in advance.
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_pls::{Matrix, project};
//! use manylabel_sparse::CsrView;
//!
//! // Two rows, two features, three components.
//! let x = CsrView::new("X", &[0i32, 2, 3], &[0, 1, 1], &[1.0f64, 2.0, -1.0], 2)?;
//! let w = [1.0, 0.0, 1.0, 0.0, 1.0, 1.0];
//! let rows = project(Matrix::Sparse(x), &w, &[0.5, 0.0, 0.0], &Watch::new())?;
//! assert_eq!(rows, [1.5, 2.0, 3.0, 0.5, -1.0, -1.0]);
//! # Ok::<(), manylabel_base::Error>(())
//! ```

use crate::design::Matrix;
use manylabel_base::range::same;
use manylabel_base::{Error, Tasks, Watch, filled};
use manylabel_simd::wide;
use manylabel_sparse::{Index, Real};
use rayon::prelude::*;

/// Number of rows that one thread projects between two checks for a stop request of the caller. For at most
/// this number of rows, [`project`] runs on the calling thread.
pub const ROWS_AT_ONCE: usize = 64;

/// Computes `XW + b` and returns it row by row; shape (`n_rows`, k).
///
/// `coef` is W, stored row by row with shape (`n_cols`, k). `intercept` is b, with shape (k,). Values of `x`
/// are converted to the precision of W, and sums are computed in this precision. The time is O(nnz(X) k). The
/// result does not depend on the number of threads.
///
/// # Errors
///
/// Returns [`Error::Shape`] if the size of W does not match `x` and `intercept`. Returns [`Error::TooLarge`]
/// if the result does not fit in memory. Returns [`Error::Stopped`] if the caller requested a stop.
pub fn project<I: Index, V: Real, T: Real>(
    x: Matrix<'_, I, V>,
    coef: &[T],
    intercept: &[T],
    watch: &Watch,
) -> Result<Vec<T>, Error> {
    let k = intercept.len();
    same("size of coef_", x.n_cols().saturating_mul(k), coef.len())?;
    let size = x.n_rows().checked_mul(k).ok_or_else(|| Error::TooLarge {
        what: "the projection",
        got: format!("{} x {k} numbers", x.n_rows()),
    })?;
    let mut out = filled("the projection", T::default(), size)?;
    if k == 0 {
        return Ok(out);
    }
    let project = |(at, out): (usize, &mut [T])| {
        watch.step(0)?;
        for (row, out) in (at * ROWS_AT_ONCE..).zip(out.chunks_mut(k)) {
            out.copy_from_slice(intercept);
            match x {
                Matrix::Sparse(x) => {
                    let (cols, values) = x.row(row);
                    add_sparse(cols, values, coef, out);
                }
                Matrix::Dense(x) => {
                    add_dense(x.row(row), coef, out);
                }
            }
        }
        Ok(())
    };
    if x.n_rows() <= ROWS_AT_ONCE {
        project((0, &mut out))?;
    } else {
        out.par_chunks_mut(ROWS_AT_ONCE * k)
            .enumerate()
            .try_each(project)?;
    }
    Ok(out)
}

/// Multiplies the rows `cols` of `coef` by `values` and adds the products to `out`.
#[wide]
fn add_sparse<I: Index, V: Real, T: Real>(cols: &[I], values: &[V], coef: &[T], out: &mut [T]) {
    let k = out.len();
    for (&col, &value) in cols.iter().zip(values) {
        let first = col.get() * k;
        add_scaled(T::of(value.f64()), &coef[first..first + k], out);
    }
}

/// Multiplies all rows of `coef` by `values` and adds the products to `out`.
#[wide]
fn add_dense<V: Real, T: Real>(values: &[V], coef: &[T], out: &mut [T]) {
    for (&value, coef) in values.iter().zip(coef.chunks(out.len())) {
        add_scaled(T::of(value.f64()), coef, out);
    }
}

/// Computes `out += value · coef`, element by element. The function is inlined into the loops that call it.
/// So the instruction set is chosen once per row and not once per value.
#[inline(always)]
fn add_scaled<T: Real>(value: T, coef: &[T], out: &mut [T]) {
    for (out, &coef) in out.iter_mut().zip(coef) {
        *out += value * coef;
    }
}
