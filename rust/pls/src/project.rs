//! Rows times a matrix of few columns: `XW + b`, and `YU`.

use crate::design::Matrix;
use manylabel_base::range::same;
use manylabel_base::{Error, Watch, filled};
use manylabel_simd::wide;
use manylabel_sparse::{Index, Real};
use rayon::prelude::*;

/// Rows that one thread projects between two looks at the watch; so few need no threads at all.
pub const ROWS_AT_ONCE: usize = 64;

/// `X W + b`, row after row, for W (`n_cols`, k) row after row and b (k,); in O(nnz(X) k).
///
/// # Errors
///
/// [`Error::Shape`] if W is of another size, [`Error::TooLarge`] if the result does not fit in
/// memory, [`Error::Stopped`].
pub fn project<I: Index, V: Real, T: Real>(
    x: Matrix<'_, I, V>,
    coef: &[T],
    intercept: &[T],
    watch: &Watch,
) -> Result<Vec<T>, Error> {
    let k = intercept.len();
    same("numbers in coef_", x.n_cols().saturating_mul(k), coef.len())?;
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
                    for (&col, &value) in cols.iter().zip(values) {
                        let first = col.get() * k;
                        add_scaled(T::of(value.f64()), &coef[first..first + k], out);
                    }
                }
                Matrix::Dense(x) => {
                    for (&value, coef) in x.row(row).iter().zip(coef.chunks(k)) {
                        add_scaled(T::of(value.f64()), coef, out);
                    }
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
            .try_for_each(project)?;
    }
    Ok(out)
}

#[wide]
fn add_scaled<T: Real>(value: T, coef: &[T], out: &mut [T]) {
    for (out, &coef) in out.iter_mut().zip(coef) {
        *out += value * coef;
    }
}
