//! A borrowed CSR matrix whose structure has been checked.

use crate::{Index, Value};
use manylabel_base::Error;

/// Borrows a CSR matrix; see [`new`](Self::new) for what is known of it.
#[derive(Debug, Clone, Copy)]
pub struct CsrView<'a, I, T> {
    indptr: &'a [I],
    indices: &'a [I],
    values: &'a [T],
    n_cols: usize,
}

impl<'a, I: Index, T> CsrView<'a, I, T> {
    /// Borrows a CSR matrix after checking its structure, in O(`n_rows` + nnz).
    ///
    /// `indptr` runs from 0 to `indices.len()` and never decreases; within a row, columns are
    /// 0-based, strictly increasing and below `n_cols`.
    ///
    /// # Errors
    ///
    /// [`Error::Csr`] with `matrix`, the first offending row and the rule it breaks.
    pub fn new(
        matrix: &'static str,
        indptr: &'a [I],
        indices: &'a [I],
        values: &'a [T],
        n_cols: usize,
    ) -> Result<Self, Error> {
        let fail = |row: usize, rule: String| Err(Error::Csr { matrix, row, rule });
        let (Some(first), Some(last)) = (indptr.first(), indptr.last()) else {
            return fail(0, "indptr is empty".into());
        };
        if first.get() != 0 {
            return fail(0, format!("indptr starts at {first}, not 0"));
        }
        if indices.len() != values.len() {
            return fail(
                0,
                format!("{} indices but {} values", indices.len(), values.len()),
            );
        }
        if last.get() != indices.len() {
            let rule = format!(
                "indptr ends at {last}, but there are {} indices",
                indices.len()
            );
            return fail(indptr.len() - 1, rule);
        }
        for (row, ends) in indptr.windows(2).enumerate() {
            let (start, end) = (ends[0].get(), ends[1].get());
            if start > end || end > indices.len() {
                return fail(row, format!("indptr goes from {} to {}", ends[0], ends[1]));
            }
            let mut next = 0;
            for &col in &indices[start..end] {
                if col.get() >= n_cols {
                    return fail(row, format!("column {col} is outside 0..{n_cols}"));
                }
                if col.get() < next {
                    return fail(row, format!("column {col} is out of order or repeated"));
                }
                next = col.get() + 1;
            }
        }
        Ok(Self {
            indptr,
            indices,
            values,
            n_cols,
        })
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Number of stored entries.
    pub fn nnz(&self) -> usize {
        self.indices.len()
    }

    /// Columns and values of one row.
    ///
    /// # Panics
    ///
    /// If `row >= n_rows`, or if another thread has rewritten the borrowed `indptr` meanwhile.
    #[inline]
    pub fn row(&self, row: usize) -> (&'a [I], &'a [T]) {
        let range = self.indptr[row].get()..self.indptr[row + 1].get();
        (&self.indices[range.clone()], &self.values[range])
    }
}

impl<I: Index, T: Value> CsrView<'_, I, T> {
    /// Euclidean norm of a row, summed in `f64`.
    #[inline]
    pub fn row_norm(&self, row: usize) -> f64 {
        self.row(row)
            .1
            .iter()
            .map(|v| v.f64() * v.f64())
            .sum::<f64>()
            .sqrt()
    }
}
