//! Some rows of a matrix, as a matrix of their own.

use manylabel_base::Error;
use manylabel_score::{Dense, Features, with_sparse};
use manylabel_sparse::{CsrView, DenseView, Index, Real, Value};

/// Calls `then` with the rows of `x` that are named, in their order; with `x` itself if these are
/// all of its rows. Each row is named once.
///
/// # Errors
///
/// What `then` returns.
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

fn copied_dense<T: Real, R>(
    x: DenseView<'_, T>,
    rows: &[u32],
    then: impl FnOnce(Features<'_>) -> Result<R, Error>,
) -> Result<R, Error>
where
    for<'a> Features<'a>: From<DenseView<'a, T>>,
{
    let mut values = Vec::with_capacity(rows.len() * x.n_cols());
    for &row in rows {
        values.extend_from_slice(x.row(row as usize));
    }
    then(DenseView::of_rows(&values, rows.len(), x.n_cols())?.into())
}

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
    let (mut ends, mut indices, mut values) = (vec![end(0)?], Vec::new(), Vec::new());
    for &row in rows {
        let (cols, row) = x.row(row as usize);
        indices.extend_from_slice(cols);
        values.extend_from_slice(row);
        ends.push(end(indices.len())?);
    }
    let rows = CsrView::new("X", &ends, &indices, &values, x.n_cols())?;
    then(rows.into())
}
