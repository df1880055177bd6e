//! Copies rows of a matrix and removes the columns that are empty in the copy.
//!
//! The remaining columns are renumbered from 0. A node has few rows, and these rows have few features. So the
//! vectors of the solver are short for most nodes.

use manylabel_base::{Error, collected, filled, push, reserved};
use manylabel_sparse::{CsrOwned, CsrRef};

/// The name of copied entries in error messages.
const ENTRIES: &str = "number of stored values of some rows";

/// Marks a column that the last copy does not have.
const ABSENT: u32 = u32::MAX;

/// Copies rows and renumbers the columns in which these rows have entries. Takes 4 bytes of memory per
/// column. The same value can be used for any number of copies.
#[derive(Debug)]
pub(crate) struct Columns {
    /// The new number of each column, or [`ABSENT`] for columns that the last copy does not have.
    new: Vec<u32>,
    /// The original number of each column of the last copy, in increasing order.
    kept: Vec<u32>,
}

impl Columns {
    /// Prepares copies from matrices with `n_columns` columns.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn new(n_columns: usize) -> Result<Self, Error> {
        Ok(Self {
            new: filled("number of features", ABSENT, n_columns)?,
            kept: Vec::new(),
        })
    }

    /// Returns a value as after a copy that has all columns.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn all(n_columns: usize) -> Result<Self, Error> {
        let all = || collected("number of features", 0..n_columns as u32);
        Ok(Self {
            new: all()?,
            kept: all()?,
        })
    }

    /// Returns the original number of each column of the last copy, in increasing order.
    pub(crate) fn kept(&self) -> &[u32] {
        &self.kept
    }

    /// Returns the new number of a column, or `None` if the last copy does not have it.
    pub(crate) fn new_number(&self, column: u32) -> Option<u32> {
        let new = self.new[column as usize];
        (new != ABSENT).then_some(new)
    }

    /// Copies the given rows, in the given order. Columns without an entry in these rows are removed. The
    /// other columns are renumbered and keep their order.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn gather(
        &mut self,
        x: CsrRef<'_>,
        rows: impl Iterator<Item = u32> + Clone,
    ) -> Result<CsrOwned, Error> {
        for &col in &self.kept {
            self.new[col as usize] = ABSENT;
        }
        self.kept.clear();
        for row in rows.clone() {
            for &col in x.row(row as usize).0 {
                let new = &mut self.new[col as usize];
                if *new == ABSENT {
                    *new = 0;
                    push("number of features", &mut self.kept, col)?;
                }
            }
        }
        self.kept.sort_unstable();
        for (to, &col) in (0..).zip(&self.kept) {
            self.new[col as usize] = to;
        }
        self.gather_known(x, rows)
    }

    /// Copies the given rows with the columns of the last call of [`gather`](Self::gather). Entries in other
    /// columns are dropped.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn gather_known(
        &self,
        x: CsrRef<'_>,
        rows: impl Iterator<Item = u32> + Clone,
    ) -> Result<CsrOwned, Error> {
        let n_rows = rows.clone().count();
        let size: usize = rows.clone().map(|row| x.row(row as usize).0.len()).sum();
        let size = size + n_rows; // the solver may append a column of ones
        let mut out = CsrOwned {
            indptr: reserved("number of rows", n_rows + 1)?,
            indices: reserved(ENTRIES, size)?,
            values: reserved(ENTRIES, size)?,
            n_cols: self.kept.len(),
        };
        out.indptr.push(0);
        for row in rows {
            let (cols, values) = x.row(row as usize);
            for (&col, &value) in cols.iter().zip(values) {
                let new = self.new[col as usize];
                if new != ABSENT {
                    out.indices.push(new);
                    out.values.push(value);
                }
            }
            out.indptr.push(out.indices.len());
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_renumbered_in_order() {
        // [[0, 1, 0, 2], [3, 0, 0, 0], [0, 4, 5, 0]]
        let x = CsrOwned {
            indptr: vec![0, 2, 3, 5],
            indices: vec![1, 3, 0, 1, 2],
            values: vec![1.0, 2.0, 3.0, 4.0, 5.0],
            n_cols: 4,
        };
        let mut columns = Columns::new(4).expect("small");
        for _ in 0..2 {
            let some = columns.gather(x.view(), [2, 0].into_iter()).expect("small");
            assert_eq!(columns.kept(), [1, 2, 3]);
            assert_eq!(some.row(0), (&[0, 1][..], &[4.0, 5.0][..]));
            assert_eq!(some.row(1), (&[0, 2][..], &[1.0, 2.0][..]));
            let other = columns.gather_known(x.view(), 1..3).expect("small");
            assert_eq!(other.indptr, [0, 0, 2]);
        }
    }
}
