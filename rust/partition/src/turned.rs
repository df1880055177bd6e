//! Computes the transpose of a sparse matrix.
//!
//! Linear models store their weights by feature. To extract the weights of some labels, the weights
//! are transposed twice. The first transpose stores all weights by label. The second transpose
//! stores the weights of the extracted labels by feature again. A function gives the rows to
//! transpose, so they need not be copied first.

use manylabel_base::{Error, filled};
use manylabel_sparse::Index;

/// A sparse matrix in compressed column format. The columns are the rows of the transpose.
#[derive(Debug, Clone, PartialEq)]
pub struct Turned {
    /// The boundaries of the columns in `rows` and `values`, starting with 0; shape (`n_cols` + 1,).
    pub ends: Vec<u32>,
    /// The row of each entry, column by column. Rows are in increasing order within a column.
    pub rows: Vec<u32>,
    /// The value of each entry.
    pub values: Vec<f32>,
}

impl Turned {
    /// Transposes a matrix (`n_rows`, `n_cols`), in O(nnz + `n_rows` + `n_cols`) time.
    ///
    /// `row(i)` must return the columns and the values of row i. It is called more than once for each
    /// row.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there are more than 2³²−1 entries, or if the entries do not fit
    /// in memory.
    ///
    /// # Panics
    ///
    /// Panics if a column is not below `n_cols`.
    pub fn new<'a, I: Index>(
        n_rows: usize,
        n_cols: usize,
        row: impl Fn(usize) -> (&'a [I], &'a [f32]),
    ) -> Result<Self, Error> {
        let size: usize = (0..n_rows).map(|at| row(at).0.len()).sum();
        if u32::try_from(size).is_err() {
            return Err(Error::TooLarge {
                what: "number of weights",
                got: size.to_string(),
            });
        }
        // This is a counting sort in one array. First, the entries of column j are counted at
        // `ends[j + 2]`. After the counts are summed, `ends[j + 1]` is the place of the next entry
        // of column j. At the end, it is the end of column j.
        let mut ends = filled("number of columns", 0u32, n_cols + 2)?;
        for at in 0..n_rows {
            for col in row(at).0 {
                ends[col.get() + 2] += 1;
            }
        }
        for col in 1..ends.len() {
            ends[col] += ends[col - 1];
        }
        let mut rows = filled("number of weights", 0, size)?;
        let mut values = filled("number of weights", 0.0, size)?;
        for at in 0..n_rows {
            let (cols, of_row) = row(at);
            for (col, &value) in cols.iter().zip(of_row) {
                let next = &mut ends[col.get() + 1];
                rows[*next as usize] = at as u32;
                values[*next as usize] = value;
                *next += 1;
            }
        }
        ends.pop();
        Ok(Self { ends, rows, values })
    }

    /// Returns the rows and values of one column.
    ///
    /// # Panics
    ///
    /// Panics if the column does not exist.
    pub fn column(&self, col: usize) -> (&[u32], &[f32]) {
        let range = self.ends[col] as usize..self.ends[col + 1] as usize;
        (&self.rows[range.clone()], &self.values[range])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turned_twice_is_as_before() {
        // The matrix is [[1, 0, 2], [0, 0, 3], [0, 0, 0], [4, 5, 6]].
        let rows: [(&[i32], &[f32]); 4] = [
            (&[0, 2], &[1.0, 2.0]),
            (&[2], &[3.0]),
            (&[], &[]),
            (&[0, 1, 2], &[4.0, 5.0, 6.0]),
        ];
        let columns = Turned::new(4, 3, |row| rows[row]).expect("small");
        assert_eq!(columns.ends, [0, 2, 3, 6]);
        assert_eq!(columns.column(0), (&[0, 3][..], &[1.0, 4.0][..]));
        assert_eq!(columns.column(2), (&[0, 1, 3][..], &[2.0, 3.0, 6.0][..]));
        let again = Turned::new(3, 4, |col| columns.column(col)).expect("small");
        assert_eq!(again.ends, [0, 2, 3, 3, 6]);
        assert_eq!(again.rows, [0, 2, 2, 0, 1, 2]);
        assert_eq!(again.values, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }
}
