//! Computes products, Cholesky factors and triangular solves in the matrices of the caller, with `faer`.
//!
//! The functions of `faer` are generic. This crate compiles them once for each precision, on behalf of all crates
//! that use them. The functions run on the calling thread. Their results are exactly those of `faer`.
//!
//! A product of `faer` allocates buffers of 4 MiB for each thread. If this allocation fails, the process aborts. The
//! allocator of the Python module has a reserve for such allocations (`py/src/reserve.rs`).

use crate::room;
use faer::dyn_stack::MemStack;
use faer::linalg::cholesky::llt::factor::{
    LltRegularization, cholesky_in_place, cholesky_in_place_scratch,
};
use faer::linalg::matmul::{self, triangular};
use faer::linalg::triangular_solve;
use faer::mat::{AsMatMut, AsMatRef};
use faer::traits::ComplexField;
use faer::{Accum, MatMut, MatRef, Par, Spec};
use manylabel_base::Error;

/// The numbers of a matrix: `f32` or `f64`.
pub trait Number: ComplexField + sealed::Sealed {
    /// Computes [`matmul`].
    #[doc(hidden)]
    fn matmul(
        to: MatMut<'_, Self>,
        accum: Accum,
        left: MatRef<'_, Self>,
        right: MatRef<'_, Self>,
        factor: Self,
    );

    /// Computes [`solve_lower`].
    #[doc(hidden)]
    fn solve_lower(lower: MatRef<'_, Self>, right: MatMut<'_, Self>);

    /// Computes [`solve_upper`].
    #[doc(hidden)]
    fn solve_upper(upper: MatRef<'_, Self>, right: MatMut<'_, Self>);
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

macro_rules! number {
    ($t:ty) => {
        impl Number for $t {
            fn matmul(
                to: MatMut<'_, Self>,
                accum: Accum,
                left: MatRef<'_, Self>,
                right: MatRef<'_, Self>,
                factor: Self,
            ) {
                matmul::matmul(to, accum, left, right, factor, Par::Seq);
            }

            fn solve_lower(lower: MatRef<'_, Self>, right: MatMut<'_, Self>) {
                triangular_solve::solve_lower_triangular_in_place(lower, right, Par::Seq);
            }

            fn solve_upper(upper: MatRef<'_, Self>, right: MatMut<'_, Self>) {
                triangular_solve::solve_upper_triangular_in_place(upper, right, Par::Seq);
            }
        }
    };
}

number!(f32);
number!(f64);

/// Computes `factor · left · right`. With [`Accum::Add`], the product is added to `to`. With [`Accum::Replace`], it
/// replaces `to`. The time is O(rows · columns · depth).
///
/// # Panics
///
/// Panics if the shapes of the matrices do not fit together.
pub fn matmul<T: Number>(
    mut to: impl AsMatMut<T = T, Rows = usize, Cols = usize>,
    accum: Accum,
    left: impl AsMatRef<T = T, Rows = usize, Cols = usize>,
    right: impl AsMatRef<T = T, Rows = usize, Cols = usize>,
    factor: T,
) {
    let (left, right) = (left.as_mat_ref(), right.as_mat_ref());
    T::matmul(to.as_mat_mut(), accum, left, right, factor);
}

/// Replaces the lower triangle of `to` by the lower triangle of `left · right`. Entries of `to` above the diagonal are
/// not changed. The time is about half of that of [`matmul`].
///
/// # Panics
///
/// Panics if the shapes of the matrices do not fit together, or if `to` is not square.
pub fn lower_matmul(to: MatMut<'_, f64>, left: MatRef<'_, f64>, right: MatRef<'_, f64>) {
    triangular::matmul(
        to,
        triangular::BlockStructure::TriangularLower,
        Accum::Replace,
        left,
        triangular::BlockStructure::Rectangular,
        right,
        triangular::BlockStructure::Rectangular,
        1.0,
        Par::Seq,
    );
}

/// Replaces each column x of `right` by `L⁻¹ x`, where L is the lower triangle of `lower`. The time is O(n²) for each
/// column.
///
/// # Panics
///
/// Panics if the shapes of the matrices do not fit together.
pub fn solve_lower<T: Number>(lower: MatRef<'_, T>, right: MatMut<'_, T>) {
    T::solve_lower(lower, right);
}

/// Replaces each column x of `right` by `U⁻¹ x`, where U is the upper triangle of `upper`. The time is O(n²) for each
/// column.
///
/// # Panics
///
/// Panics if the shapes of the matrices do not fit together.
pub fn solve_upper<T: Number>(upper: MatRef<'_, T>, right: MatMut<'_, T>) {
    T::solve_upper(upper, right);
}

/// Replaces the lower triangle of a symmetric matrix by its Cholesky factor, in O(n³). Entries above the diagonal may
/// be overwritten, and are not read. Returns false if the matrix is not positive definite.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the workspace does not fit in memory. The error message contains `what`.
pub fn factor_in_place(what: &'static str, matrix: MatMut<'_, f64>) -> Result<bool, Error> {
    let wanted = cholesky_in_place_scratch::<f64>(matrix.nrows(), Par::Seq, Spec::default());
    let factored = cholesky_in_place(
        matrix,
        LltRegularization::default(),
        Par::Seq,
        MemStack::new(&mut room(what, wanted)?),
        Spec::default(),
    );
    Ok(factored.is_ok())
}
