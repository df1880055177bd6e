//! Some rows of a matrix, as a matrix of their own.

use manylabel_base::Error;
use manylabel_score::{Features, with_features};
use manylabel_sparse::{CsrView, Index, Value};

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
    with_features!(x, |x| copied(x, rows, then))
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
