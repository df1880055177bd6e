//! Computes products, Cholesky factors and triangular solves in the matrices of the caller, with `faer`.
//!
//! The functions of `faer` are generic. This crate compiles them once for each precision, on behalf of all crates
//! that use them. The functions run on the calling thread. Their results are exactly those of `faer`.
//!
//! The products of `faer`, which its solves and factorizations also use, allocate a buffer for each thread: 4 MiB on
//! x86-64 with AVX2. If this allocation fails, the process aborts. The allocator of the Python module has a reserve for
//! such allocations (`py/src/reserve.rs`).

use crate::room;
use faer::dyn_stack::MemStack;
use faer::linalg::cholesky::llt::factor::{
    LltRegularization, cholesky_in_place, cholesky_in_place_scratch,
};
use faer::linalg::matmul::{matmul as faer_matmul, triangular};
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
                faer_matmul(to, accum, left, right, factor, Par::Seq);
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
///
/// # Panics
///
/// Panics if the matrix is not square.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::from_fn;
    use faer::Mat;

    /// Returns the sum over k of `a[i, k] b[k, j]` by definition.
    fn times(a: &Mat<f64>, b: &Mat<f64>) -> Mat<f64> {
        let entry = |i, j| (0..a.ncols()).map(|k| a[(i, k)] * b[(k, j)]).sum();
        from_fn("a product", a.nrows(), b.ncols(), entry).expect("small")
    }

    fn random(n_rows: usize, n_cols: usize) -> Mat<f64> {
        let mut rng = fastrand::Rng::with_seed(n_rows as u64);
        from_fn("A", n_rows, n_cols, |_, _| rng.f64() - 0.5).expect("small")
    }

    #[test]
    fn products_and_solves_are_those_of_the_definition() {
        let (a, b) = (random(40, 30), random(30, 40));
        let expected = times(&a, &b);
        let mut product = expected.clone();
        matmul(&mut product, Accum::Add, &a, &b, -1.0);
        assert!(product.norm_max() < 1e-12);
        // Entries above the diagonal are kept.
        let mut lower = from_fn("a product", 40, 40, |_, _| 7.0).expect("small");
        lower_matmul(lower.as_mut(), a.as_ref(), b.as_ref());
        for (i, j) in (0..40).flat_map(|i| (0..40).map(move |j| (i, j))) {
            let wanted = if j <= i { expected[(i, j)] } else { 7.0 };
            assert!((lower[(i, j)] - wanted).abs() < 1e-12);
        }
        let shifted = |i: usize, j: usize| expected[(i, j)] + f64::from(u8::from(i == j)) * 9.0;
        let well = from_fn("A", 40, 40, shifted).expect("small");
        let cut = |keep: fn(usize, usize) -> bool| {
            from_fn(
                "A",
                40,
                40,
                |i, j| if keep(i, j) { well[(i, j)] } else { 0.0 },
            )
            .expect("small")
        };
        let right = random(40, 3);
        let (mut x, mut y) = (right.clone(), right.clone());
        solve_lower(well.as_ref(), x.as_mut());
        solve_upper(well.as_ref(), y.as_mut());
        assert!((times(&cut(|i, j| j <= i), &x) - &right).norm_max() < 1e-12);
        assert!((times(&cut(|i, j| i <= j), &y) - &right).norm_max() < 1e-12);
    }

    #[test]
    fn only_definite_matrices_have_a_factor() {
        let a = random(20, 30);
        let mut gram = times(&a, &a.transpose().to_owned());
        let expected = gram.clone();
        assert!(factor_in_place("A", gram.as_mut()).expect("small"));
        let lower = |i: usize, j: usize| if j <= i { gram[(i, j)] } else { 0.0 };
        let l = from_fn("A", 20, 20, lower).expect("small");
        assert!((times(&l, &l.transpose().to_owned()) - expected).norm_max() < 1e-12);
        let mut negative = from_fn("A", 2, 2, |_, _| -1.0).expect("small");
        assert!(!factor_in_place("A", negative.as_mut()).expect("small"));
    }
}
