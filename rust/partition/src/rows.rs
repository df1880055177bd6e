//! Some rows of a matrix, as a matrix of their own.
//!
//! A batch of rows is grouped by block, and the model of a block is asked about its rows only. Their values
//! are copied, in their own types, for as long as the model works on them.

use manylabel_base::{Error, reserved};
use manylabel_sparse::{CsrView, Dense, DenseView, Features, Index, Real, Value, with_sparse};

/// Calls `then` with a copy of the given rows of `x`, in the order given.
///
/// Rows are distinct and increase. If they are as many as `x` has, nothing is copied.
///
/// # Errors
///
/// Returns [`Error::TooLarge`], or an error of `then`.
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

/// [`with_rows`] of a dense matrix.
#[expect(clippy::disallowed_methods, reason = "the room is there")]
fn copied_dense<T: Real, R>(
    x: DenseView<'_, T>,
    rows: &[u32],
    then: impl FnOnce(Features<'_>) -> Result<R, Error>,
) -> Result<R, Error>
where
    for<'a> Features<'a>: From<DenseView<'a, T>>,
{
    let size = rows.len().saturating_mul(x.n_cols());
    let mut values = reserved("rows of X", size)?;
    for &row in rows {
        values.extend_from_slice(x.row(row as usize));
    }
    then(DenseView::of_rows(&values, rows.len(), x.n_cols())?.into())
}

/// [`with_rows`] of a sparse matrix.
#[expect(clippy::disallowed_methods, reason = "the room is there")]
fn copied<I: Index + TryFrom<usize>, T: Value, R>(
    x: CsrView<'_, I, T>,
    rows: &[u32],
    then: impl FnOnce(Features<'_>) -> Result<R, Error>,
) -> Result<R, Error>
where
    for<'a> Features<'a>: From<CsrView<'a, I, T>>,
{
    let end = |end: usize| {
        // There are no more entries than in `x`, whose number fits in `I`.
        I::try_from(end).map_err(|_| Error::TooLarge {
            what: "number of entries",
            got: end.to_string(),
        })
    };
    let size = rows.iter().map(|&row| x.row(row as usize).0.len()).sum();
    let mut ends = reserved("rows of X", rows.len() + 1)?;
    let mut indices = reserved("rows of X", size)?;
    let mut values = reserved("rows of X", size)?;
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
