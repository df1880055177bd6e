//! Some rows of a matrix, as a matrix of their own.

use manylabel_base::{Error, reserved};
use manylabel_score::{Dense, Features, with_sparse};
use manylabel_sparse::{CsrView, DenseView, Index, Real, Value};

/// Calls `then` with the rows of `x` that are named, in their order; with `x` itself if these are
/// all of its rows. Each row is named once.
///
/// # Errors
///
/// [`Error::TooLarge`], and what `then` returns.
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
        // They are some of the entries of `x`, whose number an `I` holds.
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
