//! Provides dense linear algebra in double precision, based on [`faer`]. Products and triangular solves are also
//! available in single precision.
//!
//! `faer` aborts the process when an allocation fails, and its algorithms cannot be interrupted. This crate
//! wraps the functions of `faer` that other crates use:
//!
//! | function | result | cost |
//! |---|---|---|
//! | [`zeros`], [`from_fn`], [`copied`] | a matrix | one pass |
//! | [`matmul`], [`lower_matmul`] | a matrix product, or its lower triangle | O(m n k) |
//! | [`factor_in_place`] | L with `L Lᵀ = A`, on one thread | O(n³) |
//! | [`solve_lower`], [`solve_upper`] | `L⁻¹ B`, `U⁻¹ B` | O(n²) per column |
//! | [`Cholesky`] | L with `L Lᵀ = A + shift · I`; solves, inverse | O(n³), all threads if n > 1024 |
//! | [`eigen`], [`eigenvalues`] | eigenvalues and eigenvectors of a symmetric matrix | O(n³) |
//! | [`singular`] | singular values and right singular vectors | O(m n min(m, n)) |
//! | [`triangle`] | R of a QR decomposition | O(m n min(m, n)) |
//!
//! If a matrix or a workspace does not fit in memory, functions that return a `Result` return
//! [`Error::TooLarge`]. The field `what` of the error names the purpose of the memory. However, the products inside
//! `faer` allocate a buffer for each thread, and `faer` aborts if there is no memory for it (see `kernels.rs`).
//! [`Cholesky`] checks for a stop request of the caller between blocks of columns. The other functions run on one
//! thread and cannot be stopped.
//!
//! Results do not depend on the number of threads. They are exactly equal to the results of `faer` on
//! one thread, with one exception: Cholesky factors of more than 1024 columns are computed in blocks
//! here.
//!
//! The columns of a [`faer::Mat`] are contiguous in memory.
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
mod kernels;

pub use cholesky::Cholesky;
pub use decomposed::{Pairs, eigen, eigenvalues, singular, triangle};
pub use kernels::{Number, factor_in_place, lower_matmul, matmul, solve_lower, solve_upper};

use faer::dyn_stack::{MemBuffer, StackReq};
use faer::traits::ComplexField;
use faer::{Mat, MatRef};
use manylabel_base::{Error, budget};

/// Returns a matrix of zeros of shape (`n_rows`, `n_cols`).
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the matrix does not fit in memory. The error message contains `what`.
pub fn zeros<T: ComplexField>(
    what: &'static str,
    n_rows: usize,
    n_cols: usize,
) -> Result<Mat<T>, Error> {
    from_fn(what, n_rows, n_cols, |_, _| T::zero_impl())
}

/// Returns the matrix of shape (`n_rows`, `n_cols`) with `value(i, j)` in row i and column j.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the matrix does not fit in memory. The error message contains `what`.
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
    let n_bytes = n_rows.saturating_mul(n_cols).saturating_mul(size_of::<T>());
    budget::granted(what, n_bytes)?;
    matrix.try_reserve(n_rows, n_cols).map_err(refused)?;
    matrix.resize_with(n_rows, n_cols, value);
    Ok(matrix)
}

/// Returns a copy of `matrix`.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the copy does not fit in memory. The error message contains `what`.
pub fn copied<T: ComplexField>(what: &'static str, matrix: MatRef<'_, T>) -> Result<Mat<T>, Error> {
    let mut copy = zeros(what, matrix.nrows(), matrix.ncols())?;
    copy.copy_from(matrix);
    Ok(copy)
}

/// Allocates a workspace of the size that an algorithm of `faer` requires.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the workspace does not fit in memory. The error message contains `what`.
fn room(what: &'static str, wanted: StackReq) -> Result<MemBuffer, Error> {
    MemBuffer::try_new(wanted).map_err(|_| Error::TooLarge {
        what,
        got: format!(
            "a workspace of {} bytes does not fit in memory",
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
        assert!(text.ends_with("bytes does not fit in memory"), "{text}");
    }
}
