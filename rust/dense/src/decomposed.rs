//! Computes eigenvalues, singular values and the triangular factor of a QR decomposition with `faer`.
//!
//! All functions run on one thread, and they return an error if memory is short. Results depend only on the
//! matrix. `faer` determines the signs of eigenvectors and singular vectors. If an eigenvalue or singular
//! value is repeated, `faer` also determines which orthonormal basis of the corresponding subspace is
//! returned.

use crate::{room, zeros};
use faer::dyn_stack::MemStack;
use faer::linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch};
use faer::linalg::qr::no_pivoting::factor::{
    qr_in_place, qr_in_place_scratch, recommended_block_size,
};
use faer::linalg::svd::{ComputeSvdVectors, svd, svd_scratch};
use faer::{Mat, MatRef, Par, Spec};
use manylabel_base::{Error, collected};

/// Eigenvalues or singular values, with one vector for each value.
#[derive(Debug)]
pub struct Pairs {
    /// Eigenvalues in increasing order, or singular values in decreasing order.
    pub values: Vec<f64>,
    /// Eigenvectors or right singular vectors of unit length. Column k belongs to `values[k]`.
    pub vectors: Mat<f64>,
}

/// Computes the eigenvalues, in increasing order, and the eigenvectors of a symmetric matrix in O(n³).
/// `lower` holds the lower triangle of the matrix. Entries of `lower` above the diagonal are not read.
///
/// Returns None if the iteration does not converge, which happens only if an entry is not finite.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short. The error message contains `what`.
pub fn eigen(what: &'static str, lower: MatRef<'_, f64>) -> Result<Option<Pairs>, Error> {
    let n = lower.nrows();
    let mut vectors = zeros(what, n, n)?;
    let values = eigen_into(what, lower, Some(&mut vectors))?;
    Ok(values.map(|values| Pairs { values, vectors }))
}

/// Computes the same eigenvalues as [`eigen`] without the eigenvectors, which is faster.
///
/// # Errors
///
/// Returns the same errors as [`eigen`].
pub fn eigenvalues(what: &'static str, lower: MatRef<'_, f64>) -> Result<Option<Vec<f64>>, Error> {
    eigen_into(what, lower, None)
}

/// Computes eigenvalues. If the caller passes a matrix for eigenvectors, also computes the eigenvectors.
/// Returns None if the iteration does not converge.
fn eigen_into(
    what: &'static str,
    lower: MatRef<'_, f64>,
    vectors: Option<&mut Mat<f64>>,
) -> Result<Option<Vec<f64>>, Error> {
    let n = lower.nrows();
    let compute = match vectors {
        Some(_) => ComputeEigenvectors::Yes,
        None => ComputeEigenvectors::No,
    };
    let mut values = zeros(what, n, 1)?;
    let wanted = self_adjoint_evd_scratch::<f64>(n, compute, Par::Seq, Spec::default());
    let found = self_adjoint_evd(
        lower,
        values.as_mut().col_mut(0).as_diagonal_mut(),
        vectors.map(Mat::as_mut),
        Par::Seq,
        MemStack::new(&mut room(what, wanted)?),
        Spec::default(),
    );
    match found {
        Ok(()) => collected(what, values.col(0).iter().copied()).map(Some),
        Err(_) => Ok(None),
    }
}

/// Computes the min(m, n) singular values of an (m, n) matrix, in decreasing order. Also computes the right
/// singular vectors of the matrix.
///
/// Returns None if the iteration does not converge, which happens only if an entry is not finite.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short. The error message contains `what`.
pub fn singular(what: &'static str, matrix: MatRef<'_, f64>) -> Result<Option<Pairs>, Error> {
    let (m, n) = matrix.shape();
    let size = m.min(n);
    let thin = ComputeSvdVectors::Thin;
    let (mut left, mut vectors) = (zeros(what, m, size)?, zeros(what, n, size)?);
    let mut values = zeros(what, size, 1)?;
    let wanted = svd_scratch::<f64>(m, n, thin, thin, Par::Seq, Spec::default());
    let found = svd(
        matrix,
        values.as_mut().col_mut(0).as_diagonal_mut(),
        Some(left.as_mut()), // not used, but without this matrix `faer` may round the right vectors differently
        Some(vectors.as_mut()),
        Par::Seq,
        MemStack::new(&mut room(what, wanted)?),
        Spec::default(),
    );
    if found.is_err() {
        return Ok(None);
    }
    let values = collected(what, values.col(0).iter().copied())?;
    Ok(Some(Pairs { values, vectors }))
}

/// Returns the upper triangular factor R of the QR decomposition of an (m, n) matrix. R has the shape (min(m,
/// n), n). The signs of its rows are not normalized.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short. The error message contains `what`.
pub fn triangle(what: &'static str, mut matrix: Mat<f64>) -> Result<Mat<f64>, Error> {
    let (m, n) = matrix.shape();
    let size = m.min(n);
    let at_once = recommended_block_size::<f64>(m, n);
    let mut householder = zeros(what, at_once, size)?;
    let wanted = qr_in_place_scratch::<f64>(m, n, at_once, Par::Seq, Spec::default());
    qr_in_place(
        matrix.as_mut(),
        householder.as_mut(),
        Par::Seq,
        MemStack::new(&mut room(what, wanted)?),
        Spec::default(),
    );
    let mut triangle = zeros(what, size, n)?;
    for j in 0..n {
        let upper = size.min(j + 1);
        let column = matrix.col(j).subrows(0, upper);
        triangle.col_mut(j).subrows_mut(0, upper).copy_from(column);
    }
    Ok(triangle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::from_fn;
    use faer::Side;

    fn random(n_rows: usize, n_cols: usize) -> Mat<f64> {
        let mut rng = fastrand::Rng::with_seed(n_rows as u64);
        from_fn("A", n_rows, n_cols, |_, _| rng.f64() - 0.5).expect("small")
    }

    fn bits(matrix: MatRef<'_, f64>) -> Vec<u64> {
        let columns = (0..matrix.ncols()).flat_map(|j| matrix.col(j).iter());
        columns.map(|value| value.to_bits()).collect()
    }

    fn bits_of(values: impl IntoIterator<Item = f64>) -> Vec<u64> {
        values.into_iter().map(f64::to_bits).collect()
    }

    #[test]
    fn every_bit_is_as_faer_has_it() {
        for (m, n) in [(1, 1), (40, 7), (7, 40), (300, 150)] {
            let a = random(m, n);
            let expected = a.qr();
            let found = triangle("A", a.clone()).expect("small");
            assert_eq!(bits(found.as_ref()), bits(expected.thin_R()), "{m} x {n}");

            let expected = a.thin_svd().expect("finite");
            let found = singular("A", a.as_ref()).expect("small").expect("finite");
            assert_eq!(bits(found.vectors.as_ref()), bits(expected.V()));
            let values = expected.S().column_vector().iter().copied();
            assert_eq!(bits_of(found.values), bits_of(values));

            let gram = a.transpose() * &a;
            let expected = gram.self_adjoint_eigen(Side::Lower).expect("finite");
            let found = eigen("A", gram.as_ref()).expect("small").expect("finite");
            assert_eq!(bits(found.vectors.as_ref()), bits(expected.U()));
            let values = expected.S().column_vector().iter().copied();
            assert_eq!(bits_of(found.values), bits_of(values));
            let expected = gram.self_adjoint_eigenvalues(Side::Lower).expect("finite");
            let found = eigenvalues("A", gram.as_ref()).expect("small");
            assert_eq!(bits_of(found.expect("finite")), bits_of(expected));
        }
    }

    #[test]
    fn what_is_not_finite_has_no_values() {
        let a = from_fn("A", 40, 40, |_, _| f64::NAN).expect("small");
        assert!(eigen("A", a.as_ref()).expect("small").is_none());
        assert!(eigenvalues("A", a.as_ref()).expect("small").is_none());
        assert!(singular("A", a.as_ref()).expect("small").is_none());
    }
}
