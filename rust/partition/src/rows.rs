//! Copies some rows of a matrix into a new matrix.
//!
//! A batch of rows is grouped by block, and the model of a block gets only the rows of its group.
//! The values of these rows are copied without a change of type. The copy exists only while the
//! model works on it.

use manylabel_base::{Error, reserved};
use manylabel_sparse::{CsrView, Dense, DenseView, Features, Index, Real, Value, with_sparse};

/// Calls `then` with a copy of the given rows of `x`.
///
/// The numbers in `rows` must be distinct and increasing. If all rows of `x` are given, nothing is
/// copied.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory, or any error of `then`.
pub(crate) fn with_rows<R>(
    x: Features<'_>,
    rows: &[u32],
    then: impl FnOnce(Features<'_>) -> Result<R, Error>,
) -> Result<R, Error> {
    if rows.len() == x.n_rows() {
        return then(x);
    }
    match x {
        Features::Sparse(x) => with_sparse!(x, |x| copied(x, rows, then)),
        Features::Dense(Dense::F32(x)) => copied_dense(x, rows, then),
        Features::Dense(Dense::F64(x)) => copied_dense(x, rows, then),
    }
}

/// Implements [`with_rows`] for a dense matrix.
#[expect(clippy::disallowed_methods, reason = "the memory is reserved")]
fn copied_dense<T: Real, R>(
    x: DenseView<'_, T>,
    rows: &[u32],
    then: impl FnOnce(Features<'_>) -> Result<R, Error>,
) -> Result<R, Error>
where
    for<'a> Features<'a>: From<DenseView<'a, T>>,
{
    let size = rows.len().saturating_mul(x.n_cols());
    let mut values = reserved("the copy of the rows of X", size)?;
    for &row in rows {
        values.extend_from_slice(x.row(row as usize));
    }
    then(DenseView::of_rows(&values, rows.len(), x.n_cols())?.into())
}

/// Implements [`with_rows`] for a sparse matrix.
#[expect(clippy::disallowed_methods, reason = "the memory is reserved")]
fn copied<I: Index + TryFrom<usize>, T: Value, R>(
    x: CsrView<'_, I, T>,
    rows: &[u32],
    then: impl FnOnce(Features<'_>) -> Result<R, Error>,
) -> Result<R, Error>
where
    for<'a> Features<'a>: From<CsrView<'a, I, T>>,
{
    let end = |end: usize| {
        // The number of entries fits in `I`, unless `x` has dense rows with many entries.
        I::try_from(end).map_err(|_| Error::TooLarge {
            what: "number of entries",
            got: end.to_string(),
        })
    };
    let size = rows.iter().map(|&row| x.row(row as usize).0.len()).sum();
    let mut ends = reserved("the copy of the rows of X", rows.len() + 1)?;
    let mut indices = reserved("the copy of the rows of X", size)?;
    let mut values = reserved("the copy of the rows of X", size)?;
    ends.push(end(0)?);
    for &row in rows {
        let (cols, row) = x.row(row as usize);
        indices.extend_from_slice(cols);
        values.extend_from_slice(row);
        ends.push(end(indices.len())?);
    }
    let rows = CsrView::new("X", &ends, &indices, &values, x.n_cols())?;
    then(rows.into())
}
