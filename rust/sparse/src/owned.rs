//! Defines an owned CSR matrix. Solvers use this type for training data and for the weights that they return.
//!
//! The matrix has fixed types: `usize` row ends, `u32` columns and `f32` values. So solvers are compiled only
//! once, and not for each combination of types that scipy has. The matrix takes 8 bytes per stored value and
//! 8 bytes per row.

use crate::{CsrView, Index, Value};
use manylabel_base::{Error, collected, copied, extend, filled, reserved};
use std::iter::repeat_n;

/// An owned CSR matrix with `usize` row ends, `u32` columns and `f32` values.
///
/// Row `r` has the columns `indices[indptr[r]..indptr[r + 1]]`. The type itself does not require the columns of a
/// row to be sorted, but most functions that read rows do. If the rows of the input are sorted by column, all
/// methods here produce rows sorted by column. [`transpose`](Self::transpose) always produces sorted rows.
#[derive(Debug, Clone, PartialEq)]
pub struct CsrOwned {
    /// Row ends: `n_rows + 1` indices into the other two arrays, starting with 0.
    pub indptr: Vec<usize>,
    /// Columns, row after row.
    pub indices: Vec<u32>,
    /// Values, row after row.
    pub values: Vec<f32>,
    /// Number of columns.
    pub n_cols: usize,
}

/// The largest number of rows or columns. Indices up to this limit fit in `u32` and in numpy's `i32`, even
/// after a column of ones is appended.
const MOST_POSITIONS: usize = i32::MAX as usize - 1;

/// The name of the stored values in error messages.
const VALUES: &str = "number of stored values";

/// Moves a vector to memory for `size` entries if its capacity is smaller.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the memory is short. The vector is then unchanged.
fn hold<T: Copy>(vec: &mut Vec<T>, size: usize) -> Result<(), Error> {
    if vec.capacity() < size {
        let mut larger = reserved(VALUES, size)?;
        extend(VALUES, &mut larger, vec.iter().copied())?;
        *vec = larger;
    }
    Ok(())
}

impl CsrOwned {
    /// Copies `x` without explicit zeros, in O(nnz). If `normalize` is true, each row is divided by its
    /// Euclidean norm in double precision. Rows of zeros remain zero. Values that round to 0 as `f32` are
    /// dropped.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if `x` has more than 2³¹−2 rows or columns, or if the copy does not
    /// fit in memory. Returns [`Error::Param`] if a value is not finite as `f32`.
    pub fn from_view<I: Index, T: Value>(
        x: CsrView<'_, I, T>,
        normalize: bool,
    ) -> Result<Self, Error> {
        Self::check_size(x.n_rows(), x.n_cols())?;
        let mut indptr = reserved("number of rows", x.n_rows() + 1)?;
        let n_entries = x.n_entries();
        let mut indices = reserved("number of stored values", n_entries)?;
        let mut values = reserved("number of stored values", n_entries)?;
        indptr.push(0);
        for row in 0..x.n_rows() {
            Self::scaled_row(x, row, normalize, |col, value| {
                indices.push(col);
                values.push(value);
            })?;
            indptr.push(indices.len());
        }
        Ok(Self {
            indptr,
            indices,
            values,
            n_cols: x.n_cols(),
        })
    }

    /// Copies the positions of the entries of `x` for whose values `is_one` returns true, in O(nnz). All
    /// values of the copy are 1.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if `x` has more than 2³¹−2 rows or columns, or if the copy does not
    /// fit in memory.
    pub(crate) fn ones_where<I: Index, T: Value>(
        x: CsrView<'_, I, T>,
        is_one: impl Fn(f64) -> bool,
    ) -> Result<Self, Error> {
        Self::check_size(x.n_rows(), x.n_cols())?;
        let mut indptr = reserved("number of rows", x.n_rows() + 1)?;
        let mut indices = Vec::new();
        indptr.push(0);
        for row in 0..x.n_rows() {
            let (cols, values) = x.row(row);
            let entries = cols.iter().zip(values);
            let ones = entries.filter(|(_, value)| is_one(value.f64()));
            let ones = ones.map(|(col, _)| col.get() as u32);
            extend("number of stored values", &mut indices, ones)?;
            indptr.push(indices.len());
        }
        Ok(Self {
            values: filled("number of stored values", 1.0, indices.len())?,
            indptr,
            indices,
            n_cols: x.n_cols(),
        })
    }

    /// Checks that the numbers of rows and columns are supported.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there are more than 2³¹−2 rows or columns.
    pub(crate) fn check_size(n_rows: usize, n_cols: usize) -> Result<(), Error> {
        for (what, size) in [("number of columns", n_cols), ("number of rows", n_rows)] {
            if size > MOST_POSITIONS {
                return Err(Error::TooLarge {
                    what,
                    got: format!("{size}; at most {MOST_POSITIONS} are supported"),
                });
            }
        }
        Ok(())
    }

    /// Calls `each` with the column and the value of each entry of a row. Entries whose values are 0 as `f32`
    /// are left out. If `normalize` is true, the row is divided by its Euclidean norm in double precision.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a value is not finite as `f32`.
    #[inline(always)]
    pub(crate) fn scaled_row<I: Index, T: Value>(
        x: CsrView<'_, I, T>,
        row: usize,
        normalize: bool,
        mut each: impl FnMut(u32, f32),
    ) -> Result<(), Error> {
        let (unit, norm) = x.row_divisors(row, normalize);
        let (cols, vals) = x.row(row);
        for (&col, &value) in cols.iter().zip(vals) {
            let value = (value.f64() / unit / norm) as f32;
            if !value.is_finite() {
                return Err(Error::Param {
                    name: "X",
                    expected: "finite in float32 (at most 3.4e38 in absolute value)",
                    got: format!("{value} in row {row}"),
                });
            }
            if value != 0.0 {
                each(col.get() as u32, value);
            }
        }
        Ok(())
    }

    /// Returns a copy. Unlike `clone`, this method returns an error if memory is short.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the copy does not fit in memory.
    pub fn copied(&self) -> Result<Self, Error> {
        Ok(Self {
            indptr: copied("number of rows", &self.indptr)?,
            indices: copied("number of stored values", &self.indices)?,
            values: copied("number of stored values", &self.values)?,
            n_cols: self.n_cols,
        })
    }

    /// Appends a column that is 1 in every row, in O(nnz). If `indices` and `values` have capacity for one more entry
    /// in each row, no memory is allocated.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the result does not fit in memory. After this error, the matrix is
    /// unchanged.
    pub fn append_ones(&mut self) -> Result<(), Error> {
        let n_rows = self.n_rows();
        let size = self.indices.len() + n_rows;
        hold(&mut self.indices, size)?;
        hold(&mut self.values, size)?;
        extend(
            VALUES,
            &mut self.indices,
            repeat_n(self.n_cols as u32, n_rows),
        )?;
        extend(VALUES, &mut self.values, repeat_n(1.0, n_rows))?;
        // Row by row from the last, entries move to the right.
        for row in (0..n_rows).rev() {
            let (from, end) = (self.indptr[row], self.indptr[row + 1]);
            self.indices.copy_within(from..end, from + row);
            self.values.copy_within(from..end, from + row);
            (self.indices[end + row], self.values[end + row]) = (self.n_cols as u32, 1.0);
            self.indptr[row + 1] += row + 1;
        }
        self.n_cols += 1;
        Ok(())
    }

    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Returns the columns and values of one row, in O(1).
    ///
    /// # Panics
    ///
    /// Panics if `row >= n_rows`.
    #[inline]
    pub fn row(&self, row: usize) -> (&[u32], &[f32]) {
        let range = self.indptr[row]..self.indptr[row + 1];
        (&self.indices[range.clone()], &self.values[range])
    }

    /// Removes the columns without entries and renumbers the other columns in the same order.
    ///
    /// Returns the old number of each remaining column, in increasing order. The time is O(nnz +
    /// `n_cols`), and the memory is 4 bytes per column.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory for one number per column. After this error,
    /// the matrix is unchanged.
    pub fn drop_empty_columns(&mut self) -> Result<Vec<u32>, Error> {
        let mut new = filled("number of columns", u32::MAX, self.n_cols)?;
        for &col in &self.indices {
            new[col as usize] = 0;
        }
        let full = (0..).zip(&new).filter(|&(_, &new)| new == 0);
        let kept = collected("number of columns", full.map(|(col, _)| col))?;
        for (to, &col) in (0..).zip(&kept) {
            new[col as usize] = to;
        }
        for col in &mut self.indices {
            *col = new[*col as usize];
        }
        self.n_cols = kept.len();
        Ok(kept)
    }

    /// Returns the transpose. The columns of each row of the result are in increasing order, even if
    /// the rows of `self` are not sorted. The time is O(nnz + `n_rows` + `n_cols`) on one thread.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the transpose does not fit in memory.
    pub fn transpose(&self) -> Result<Self, Error> {
        let mut indptr = filled("number of columns", 0usize, self.n_cols + 1)?;
        for &col in &self.indices {
            indptr[col as usize + 1] += 1;
        }
        for col in 0..self.n_cols {
            indptr[col + 1] += indptr[col];
        }
        let mut next = copied("number of columns", &indptr)?;
        let mut indices = filled("number of stored values", 0u32, self.indices.len())?;
        let mut values = filled("number of stored values", 0f32, self.values.len())?;
        for row in 0..self.n_rows() {
            let (cols, vals) = self.row(row);
            for (&col, &value) in cols.iter().zip(vals) {
                let at = &mut next[col as usize];
                indices[*at] = row as u32;
                values[*at] = value;
                *at += 1;
            }
        }
        Ok(Self {
            indptr,
            indices,
            values,
            n_cols: self.n_rows(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A dense matrix of small numbers with many zeros. `stored` marks the zeros that the CSR form of the
    /// matrix stores explicitly.
    #[derive(Debug)]
    struct Dense {
        rows: Vec<Vec<f64>>,
        n_cols: usize,
        stored: Vec<Vec<bool>>,
    }

    fn dense() -> impl Strategy<Value = Dense> {
        (0..6usize, 0..6usize).prop_flat_map(|(n_rows, n_cols)| {
            let value = prop_oneof![Just(0.0), Just(0.0), -8.0..8.0];
            let rows = prop::collection::vec(prop::collection::vec(value, n_cols), n_rows);
            let stored =
                prop::collection::vec(prop::collection::vec(any::<bool>(), n_cols), n_rows);
            (rows, stored).prop_map(move |(rows, stored)| Dense {
                rows,
                n_cols,
                stored,
            })
        })
    }

    impl Dense {
        /// Returns the owned copy of the matrix, made from a view with 64-bit positions and values.
        fn to_csr(&self, normalize: bool) -> CsrOwned {
            let (mut indptr, mut indices, mut values) = (vec![0i64], Vec::new(), Vec::new());
            for (row, stored) in self.rows.iter().zip(&self.stored) {
                for (col, (&value, &stored)) in row.iter().zip(stored).enumerate() {
                    if value != 0.0 || stored {
                        indices.push(col as i64);
                        values.push(value);
                    }
                }
                indptr.push(indices.len() as i64);
            }
            CsrView::new("X", &indptr, &indices, &values, self.n_cols)
                .and_then(|x| CsrOwned::from_view(x, normalize))
                .expect("a valid matrix")
        }

        fn map(&self, f: impl Fn(&[f64]) -> Vec<f32>) -> Vec<Vec<f32>> {
            self.rows.iter().map(|row| f(row)).collect()
        }
    }

    /// Returns the cells of `x`. Rows must be sorted by column and have no explicit zeros.
    fn cells(x: &CsrOwned) -> Vec<Vec<f32>> {
        let row = |row| {
            let (cols, values) = x.row(row);
            assert!(cols.is_sorted_by(|a, b| a < b) && !values.contains(&0.0));
            let mut cells = vec![0.0; x.n_cols];
            for (&col, &value) in cols.iter().zip(values) {
                cells[col as usize] = value;
            }
            cells
        };
        (0..x.n_rows()).map(row).collect()
    }

    fn to_f32(row: &[f64]) -> Vec<f32> {
        row.iter().map(|&value| value as f32).collect()
    }

    proptest! {
        #[test]
        fn copies_what_is_not_zero(dense in dense()) {
            prop_assert_eq!(cells(&dense.to_csr(false)), dense.map(to_f32));
        }

        #[test]
        fn normalizes_to_unit_length(
            mut dense in dense(),
            magnitude in prop::sample::select(vec![1.0, 1e-200, 1e200, 1e-306, 1e306]),
        ) {
            let by_hand = dense.map(|row| {
                let norm = row.iter().map(|value| value * value).sum::<f64>().sqrt();
                to_f32(&row.iter().map(|value| value / norm.max(1e-9)).collect::<Vec<_>>())
            });
            for value in dense.rows.iter_mut().flatten() {
                *value *= magnitude;
            }
            let normalized = cells(&dense.to_csr(true));
            prop_assert_eq!(normalized.len(), by_hand.len());
            for (cells, by_hand) in normalized.iter().zip(&by_hand) {
                for (cell, by_hand) in cells.iter().zip(by_hand) {
                    prop_assert!((cell - by_hand).abs() <= 1e-7, "{cell} is not {by_hand}");
                }
            }
        }

        #[test]
        fn transposes_as_a_dense_matrix_does(dense in dense()) {
            let x = dense.to_csr(false);
            let xt = x.transpose().expect("small");
            let (rows, columns) = (cells(&x), cells(&xt));
            let across = |col: usize| rows.iter().map(|row| row[col]).collect::<Vec<_>>();
            prop_assert_eq!(columns, (0..x.n_cols).map(across).collect::<Vec<_>>());
            prop_assert_eq!(xt.n_cols, rows.len());
            prop_assert_eq!(xt.transpose().expect("small"), x);
        }

        #[test]
        fn drops_empty_columns(dense in dense()) {
            let mut x = dense.to_csr(false);
            let kept = x.drop_empty_columns().expect("small");
            let full = |col: &usize| dense.rows.iter().any(|row| row[*col] != 0.0);
            let expected: Vec<usize> = (0..dense.n_cols).filter(full).collect();
            prop_assert!(kept.iter().map(|&col| col as usize).eq(expected.iter().copied()));
            prop_assert_eq!(x.n_cols, expected.len());
            let of_kept = |row: &[f64]| expected.iter().map(|&col| row[col] as f32).collect();
            prop_assert_eq!(cells(&x), dense.map(of_kept));
        }

        #[test]
        fn appends_a_column_of_ones(dense in dense()) {
            let mut x = dense.to_csr(false);
            x.append_ones().expect("small");
            prop_assert_eq!(x.n_cols, dense.n_cols + 1);
            let with_one = |row: &[f64]| [&to_f32(row)[..], &[1.0]].concat();
            prop_assert_eq!(cells(&x), dense.map(with_one));
        }
    }

    #[test]
    fn refuses_what_is_infinite_in_single_precision() {
        let x = CsrView::new("X", &[0i32, 0, 1], &[0], &[1e39f64], 1).expect("valid");
        let error = CsrOwned::from_view(x, false).expect_err("too large");
        assert_eq!(
            error.to_string(),
            "`X` must be finite in float32 (at most 3.4e38 in absolute value), got inf in row 1"
        );
        let unit = CsrOwned::from_view(x, true).expect("fits once it is of unit length");
        assert_eq!(unit.values, [1.0]);
    }
}
