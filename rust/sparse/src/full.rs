//! Defines [`FullRows`], a dense matrix that functions for sparse rows can read.

use crate::{CsrOwned, CsrRef, CsrView, Index, Value};
use manylabel_base::{Error, Watch, budget, collected, extend, filled, reserved};

/// The name of values in error messages.
const VALUES: &str = "number of values of some rows";

/// Number of rows and columns of a block that is transposed at once. Two blocks fit in the first-level cache.
const BLOCK: usize = 32;

/// A dense matrix in row-major order. [`view`](Self::view) returns it as a sparse matrix of which all values are stored,
/// including zeros. The numbers of the columns are stored once for all rows, so a value takes 4 bytes.
#[derive(Debug)]
pub struct FullRows {
    /// The position in `values` after the last value of each row, with a leading 0.
    indptr: Vec<usize>,
    /// The numbers of all columns.
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl FullRows {
    /// Takes `n_rows` rows of `n_cols` values.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory for the numbers of rows and columns.
    ///
    /// # Panics
    ///
    /// Panics if `values` has another length.
    pub fn new(values: Vec<f32>, n_rows: usize, n_cols: usize) -> Result<Self, Error> {
        assert_eq!(values.len(), n_rows * n_cols, "number of values");
        let ends = (0..=n_rows).map(|row| row * n_cols);
        Ok(Self {
            indptr: collected("number of rows", ends)?,
            columns: collected("number of columns", 0..n_cols as u32)?,
            values,
        })
    }

    /// Copies a matrix as [`CsrOwned::from_view`] does, or returns `None` if a value is 0.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`CsrOwned::from_view`].
    pub(crate) fn of_nonzero<I: Index, T: Value>(
        x: CsrView<'_, I, T>,
        normalize: bool,
    ) -> Result<Option<Self>, Error> {
        let (n_rows, n_cols) = (x.n_rows(), x.n_cols());
        CsrOwned::check_size(n_rows, n_cols)?;
        if n_rows == 0 || n_cols == 0 || x.n_entries() < n_rows.saturating_mul(n_cols) {
            return Ok(None);
        }
        let mut values = reserved(VALUES, n_rows.saturating_mul(n_cols + 1))?; // a column of ones may follow
        for row in 0..n_rows {
            CsrOwned::scaled_row(x, row, normalize, |_, value| values.push(value))?;
            if values.len() < (row + 1) * n_cols {
                return Ok(None);
            }
        }
        Self::new(values, n_rows, n_cols).map(Some)
    }

    /// Returns the number of rows.
    fn n_rows(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Borrows the matrix.
    #[inline]
    pub fn view(&self) -> CsrRef<'_> {
        CsrRef::full(&self.indptr, &self.columns, &self.values)
    }

    /// Appends a column that is 1 in every row. If the values that were passed to [`new`](Self::new) have capacity for one
    /// more value in each row, they are not copied.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the result does not fit in memory. The matrix is then unchanged.
    pub fn append_ones(&mut self) -> Result<(), Error> {
        let (n_rows, n_cols) = (self.n_rows(), self.columns.len());
        let columns = collected("number of columns", 0..=n_cols as u32)?;
        let ends = (0..=n_rows).map(|row| row * (n_cols + 1));
        let ends = collected("number of rows", ends)?;
        extend(VALUES, &mut self.values, std::iter::repeat_n(1.0, n_rows))?;
        // Row by row from the last, values move to the right.
        for row in (0..n_rows).rev() {
            let from = row * n_cols;
            self.values.copy_within(from..from + n_cols, from + row);
            self.values[from + row + n_cols] = 1.0;
        }
        (self.indptr, self.columns) = (ends, columns);
        Ok(())
    }

    /// Returns the transpose.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if it does not fit in memory, and [`Error::Stopped`] if the caller requested a stop.
    pub fn transpose(&self, watch: &Watch) -> Result<Self, Error> {
        let (n_rows, n_cols) = (self.n_rows(), self.columns.len());
        let mut values = filled(VALUES, 0.0, self.values.len())?;
        // If the transpose may be in a file, one pass over the rows writes only as many columns as fit in memory.
        let at_once = budget::portion().unwrap_or(usize::MAX) / size_of::<f32>() / n_rows.max(1);
        for first_col in (0..n_cols).step_by(at_once.max(BLOCK)) {
            let end_col = first_col.saturating_add(at_once.max(BLOCK)).min(n_cols);
            for first in (0..n_rows).step_by(BLOCK) {
                watch.step(0)?;
                let rows = first..(first + BLOCK).min(n_rows);
                for first in (first_col..end_col).step_by(BLOCK) {
                    for col in first..(first + BLOCK).min(end_col) {
                        for row in rows.clone() {
                            values[col * n_rows + row] = self.values[row * n_cols + col];
                        }
                    }
                }
            }
        }
        Self::new(values, n_cols, n_rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_matrices_without_zeros_are_copied_with_all_values() {
        let columns = [0i32, 1];
        for (values, is_full) in [
            ([1.0f64, 2.0, 3.0, -4.0], true),
            ([1.0, 2.0, 0.0, 3.0], false),
        ] {
            let x = CsrView::new("X", &[0, 2, 4], &[0, 1, 0, 1], &values, 2).expect("valid");
            for normalize in [false, true] {
                let sparse = CsrOwned::from_view(x, normalize).expect("small");
                let full = FullRows::of_nonzero(x, normalize).expect("finite");
                assert_eq!(full.is_some(), is_full);
                if let Some(full) = full {
                    assert!(full.view().rows(0..2).eq(sparse.view().rows(0..2)));
                }
            }
        }
        let short = CsrView::new("X", &[0, 1, 3], &[1, 0, 1], &[1.0f32; 3], 2).expect("valid");
        assert!(
            FullRows::of_nonzero(short, false)
                .expect("finite")
                .is_none()
        );
        let huge = CsrView::new("X", &[0, 2], &columns, &[1e39f64, 1.0], 2).expect("valid");
        FullRows::of_nonzero(huge, false).expect_err("infinite in single precision");
    }

    #[test]
    fn rows_ones_and_the_transpose() {
        for (n_rows, n_cols) in [(0, 3), (1, 1), (5, 2), (70, 33), (3, 0)] {
            let value = |row: usize, col: usize| (100 * row + col) as f32;
            let cells = (0..n_rows * n_cols).map(|at| value(at / n_cols, at % n_cols));
            let mut x = FullRows::new(cells.collect(), n_rows, n_cols).expect("small");
            let columns: Vec<u32> = (0..=n_cols as u32).collect();
            for row in 0..n_rows {
                let expected: Vec<f32> = (0..n_cols).map(|col| value(row, col)).collect();
                assert_eq!(x.view().row(row), (&columns[..n_cols], &expected[..]));
            }
            x.append_ones().expect("small");
            let view = x.view();
            assert_eq!((view.n_rows(), view.n_cols()), (n_rows, n_cols + 1));
            let transpose = x.transpose(&Watch::new()).expect("small");
            let transpose = transpose.view();
            assert_eq!(
                (transpose.n_rows(), transpose.n_cols()),
                (n_cols + 1, n_rows)
            );
            for row in 0..n_rows {
                let mut expected: Vec<f32> = (0..n_cols).map(|col| value(row, col)).collect();
                expected.push(1.0);
                assert_eq!(view.row(row), (&columns[..], &expected[..]));
                let of_transpose: Vec<f32> =
                    (0..=n_cols).map(|col| transpose.row(col).1[row]).collect();
                assert_eq!(of_transpose, expected);
            }
        }
    }
}
