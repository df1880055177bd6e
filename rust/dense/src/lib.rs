//! Dense matrices of `faer` whose memory can be refused, and what they are decomposed into.
//!
//! `faer` ends the process where it gets no memory, and what it has begun cannot be stopped. Here both
//! are otherwise: matrices and room to work in are asked for, and [`Cholesky`] looks at the watch from
//! block to block. Arithmetic is that of `faer`, bit for bit, but for factors of more than a thousand
//! columns.
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_dense::{Cholesky, from_fn};
//!
//! // [[4, 2], [2, 5]] x = [8, 12]
//! let a = from_fn("A", 2, 2, |i, j| [[4.0, 2.0], [2.0, 5.0]][i][j])?;
//! let mut x = from_fn("x", 2, 1, |i, _| [8.0, 12.0][i])?;
//! let factor = Cholesky::new(a.as_ref(), 0.0, &Watch::new())?.expect("positive definite");
//! factor.solve_in_place(x.as_mut(), &Watch::new())?;
//! assert!((x[(0, 0)] - 1.0).abs() < 1e-15 && (x[(1, 0)] - 2.0).abs() < 1e-15);
//! # Ok::<(), manylabel_base::Error>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        reason = "tests choose their sizes"
    )
)]

mod cholesky;
mod decomposed;

pub use cholesky::Cholesky;
pub use decomposed::{Pairs, eigen, eigenvalues, singular, triangle};

use faer::dyn_stack::{MemBuffer, StackReq};
use faer::traits::ComplexField;
use faer::{Mat, MatRef};
use manylabel_base::Error;

/// A matrix of zeros; `what` is named if it does not fit.
///
/// # Errors
///
/// [`Error::TooLarge`] if the system does not grant the memory.
pub fn zeros<T: ComplexField>(
    what: &'static str,
    n_rows: usize,
    n_cols: usize,
) -> Result<Mat<T>, Error> {
    from_fn(what, n_rows, n_cols, |_, _| T::zero_impl())
}

/// The matrix that has `value(i, j)` in row i and column j; `what` is named if it does not fit.
///
/// # Errors
///
/// [`Error::TooLarge`] if the system does not grant the memory.
pub fn from_fn<T>(
    what: &'static str,
    n_rows: usize,
    n_cols: usize,
    value: impl FnMut(usize, usize) -> T,
) -> Result<Mat<T>, Error> {
    let mut matrix = Mat::new();
    let refused = |_| Error::TooLarge {
        what,
        got: format!("{n_rows} x {n_cols} numbers do not fit in memory"),
    };
    matrix.try_reserve(n_rows, n_cols).map_err(refused)?;
    matrix.resize_with(n_rows, n_cols, value);
    Ok(matrix)
}

/// A copy of `matrix`; `what` is named if it does not fit.
///
/// # Errors
///
/// [`Error::TooLarge`] if the system does not grant the memory.
pub fn copied<T: ComplexField>(what: &'static str, matrix: MatRef<'_, T>) -> Result<Mat<T>, Error> {
    let mut copy = zeros(what, matrix.nrows(), matrix.ncols())?;
    copy.copy_from(matrix);
    Ok(copy)
}

/// Room for an algorithm of `faer` that works on `what`.
fn room(what: &'static str, wanted: StackReq) -> Result<MemBuffer, Error> {
    MemBuffer::try_new(wanted).map_err(|_| Error::TooLarge {
        what,
        got: format!(
            "{} bytes to work in do not fit in memory",
            wanted.size_bytes()
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let huge = 1 << 24;
        let refused = zeros::<f64>("the Gram matrix", huge, huge).expect_err("too large");
        assert_eq!(
            refused.to_string(),
            "the Gram matrix is too large: 16777216 x 16777216 numbers do not fit in memory"
        );
        let wanted = StackReq::new::<f64>(1 << 48);
        let refused = room("the Gram matrix", wanted).err().expect("too large");
        let text = refused.to_string();
        assert!(
            text.ends_with("bytes to work in do not fit in memory"),
            "{text}"
        );
    }
}
