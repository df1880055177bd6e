//! Transposes matrices that are larger than memory.
//!
//! A transpose is read row by row and written in any order. If it is in a file and does not fit in memory, nearly each
//! write waits for the disk. So the columns of the matrix are divided into ranges whose part of the transpose fits in
//! memory, and files are read and written in order:
//!
//! - Without a file for memory beyond the limit, one pass over the matrix writes the part of each range.
//! - With such a file ([`budget::portion`]), the first pass distributes the stored values to one list for each range,
//!   which may be in the file. Then each list is sorted by column in memory. Each stored value is read and written twice,
//!   however small the limit is.

use crate::{CsrMut, CsrOwned, CsrRef};
use manylabel_base::range::same;
use manylabel_base::streams::{complete, growing};
use manylabel_base::{Error, Watch, budget, copied, extend, filled, push, reserved};
use std::iter::from_fn;
use std::ops::Range;

/// The name of stored values in error messages.
const VALUES: &str = "number of stored values";

/// The name of columns in error messages.
const COLUMNS: &str = "number of columns";

/// The number of rows between two checks for a stop request of the caller.
const ROWS_PER_STEP: usize = 4096;

/// The number of stored values that [`CsrRef::transpose_into`] writes in one pass over the matrix. They take
/// 128 MiB. So the memory pages of one pass can stay in memory until the pass has filled them.
const VALUES_PER_PASS: usize = 1 << 24;

/// The number of bytes of a stored value in the transpose.
const BYTES_PER_VALUE: usize = size_of::<u32>() + size_of::<f32>();

impl CsrRef<'_> {
    /// Returns the transpose, with the same result as [`CsrOwned::transpose`]. With a file for memory beyond the limit,
    /// this method is much faster if the matrix is larger than the limit. The columns of each row must be in increasing
    /// order.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short, and [`Error::Stopped`] if the caller requested a stop.
    pub fn transposed(self, watch: &Watch) -> Result<CsrOwned, Error> {
        let n_stored = self.indices().len();
        let mut indptr = filled(COLUMNS, 0, self.n_cols() + 1)?;
        self.count_columns(&mut indptr, watch)?;
        let mut indices = reserved(VALUES, n_stored)?;
        let mut values = reserved(VALUES, n_stored)?;
        let per_range = budget::portion().unwrap_or(usize::MAX) / BYTES_PER_VALUE;
        self.by_lists(&indptr, per_range, watch, |rows, of_rows| {
            extend(VALUES, &mut indices, rows.iter().copied())?;
            extend(VALUES, &mut values, of_rows.iter().copied())
        })?;
        Ok(CsrOwned {
            indptr,
            indices,
            values,
            n_cols: self.n_rows(),
        })
    }

    /// Writes the transpose into `out`, with the same result as [`CsrOwned::transpose`]. The arrays of `out` may be
    /// mapped from files. The columns of each row must be in increasing order.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if `out` has another size than the transpose. Returns [`Error::TooLarge`] if
    /// memory is short, and [`Error::Stopped`] if the caller requested a stop.
    pub fn transpose_into(self, out: &mut CsrMut<'_>, watch: &Watch) -> Result<(), Error> {
        let n_stored = self.indices().len();
        same("number of rows", self.n_cols() + 1, out.indptr.len())?;
        same(VALUES, n_stored, out.indices.len())?;
        same(VALUES, n_stored, out.values.len())?;
        out.indptr.fill(0);
        self.count_columns(out.indptr, watch)?;
        let Some(bytes) = budget::portion() else {
            let mut next = copied(COLUMNS, out.indptr)?;
            for cols in ranges(out.indptr, VALUES_PER_PASS) {
                self.write_columns(&cols, &mut next, out.indices, out.values, watch)?;
            }
            return Ok(());
        };
        let mut at = 0;
        self.by_lists(
            out.indptr,
            bytes / BYTES_PER_VALUE,
            watch,
            |rows, values| {
                let end = at + rows.len();
                out.indices[at..end].copy_from_slice(rows);
                out.values[at..end].copy_from_slice(values);
                at = end;
                Ok(())
            },
        )
    }

    /// Computes the row ends of the transpose. `indptr` must be 0.
    fn count_columns(self, indptr: &mut [usize], watch: &Watch) -> Result<(), Error> {
        for (at, &col) in self.indices().iter().enumerate() {
            if at % (ROWS_PER_STEP << 8) == 0 {
                watch.step(0)?;
            }
            indptr[col as usize + 1] += 1;
        }
        for col in 0..self.n_cols() {
            indptr[col + 1] += indptr[col];
        }
        Ok(())
    }

    /// Writes the values of some columns to the rows of the transpose. `next` has the position in `values` at
    /// which the next value of each column is written.
    fn write_columns(
        self,
        cols: &Range<usize>,
        next: &mut [usize],
        indices: &mut [u32],
        values: &mut [f32],
        watch: &Watch,
    ) -> Result<(), Error> {
        for row in 0..self.n_rows() {
            if row % ROWS_PER_STEP == 0 {
                watch.step(0)?;
            }
            let (of_row, vals) = self.row(row);
            let begin = of_row.partition_point(|&col| (col as usize) < cols.start);
            for (&col, &value) in of_row[begin..].iter().zip(&vals[begin..]) {
                if col as usize >= cols.end {
                    break;
                }
                let at = &mut next[col as usize];
                (indices[*at], values[*at]) = (row as u32, value);
                *at += 1;
            }
        }
        Ok(())
    }

    /// Calls `put` with the columns and values of the transpose, in order and in several parts of at most `per_range`
    /// stored values, or of one row of the transpose. `indptr` has the row ends of the transpose.
    fn by_lists(
        self,
        indptr: &[usize],
        per_range: usize,
        watch: &Watch,
        mut put: impl FnMut(&[u32], &[f32]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut lists = Vec::new();
        for cols in ranges(indptr, per_range) {
            push(COLUMNS, &mut lists, List::new(cols, indptr)?)?;
        }
        for row in 0..self.n_rows() {
            if row % ROWS_PER_STEP == 0 {
                watch.step(0)?;
            }
            let (mut cols, mut values) = self.row(row);
            for list in &mut lists {
                let end = cols.partition_point(|&col| (col as usize) < list.cols.end);
                let (of_list, vals);
                (of_list, cols) = cols.split_at(end);
                (vals, values) = values.split_at(end);
                list.push(row as u32, of_list, vals)?;
            }
        }
        for list in &lists {
            complete(&list.places);
            complete(&list.values);
        }
        let most = lists.iter().map(|list| list.values.len()).max();
        let (mut rows, mut values) = budget::in_any_order(|| -> Result<_, Error> {
            let most = most.unwrap_or(0);
            Ok((filled(VALUES, 0, most)?, filled(VALUES, 0.0, most)?))
        })?;
        for list in lists {
            watch.step(0)?;
            list.sort_into(indptr, &mut rows, &mut values)?;
            put(&rows[..list.values.len()], &values[..list.values.len()])?;
        }
        Ok(())
    }
}

/// Divides the columns of a matrix into ranges with at most `per_range` stored values each, or of one column. `indptr`
/// has the row ends of the transpose.
fn ranges(indptr: &[usize], per_range: usize) -> impl Iterator<Item = Range<usize>> {
    let n_cols = indptr.len() - 1;
    let mut first = 0;
    from_fn(move || {
        let limit = indptr[first].saturating_add(per_range);
        let end = indptr.partition_point(|&end| end <= limit);
        let cols = first..(end - 1).clamp((first + 1).min(n_cols), n_cols);
        first = cols.end;
        (!cols.is_empty()).then_some(cols)
    })
}

/// The stored values of some columns, in increasing order of row.
struct List {
    /// The columns.
    cols: Range<usize>,
    /// The row and the column of each stored value.
    places: Vec<(u32, u32)>,
    /// The stored values.
    values: Vec<f32>,
}

impl List {
    /// Allocates an empty list for all stored values of some columns.
    fn new(cols: Range<usize>, indptr: &[usize]) -> Result<Self, Error> {
        let n_stored = indptr[cols.end] - indptr[cols.start];
        Ok(Self {
            cols,
            places: growing(VALUES, n_stored)?,
            values: growing(VALUES, n_stored)?,
        })
    }

    /// Appends entries of a row.
    fn push(&mut self, row: u32, cols: &[u32], values: &[f32]) -> Result<(), Error> {
        extend(VALUES, &mut self.places, cols.iter().map(|&col| (row, col)))?;
        extend(VALUES, &mut self.values, values.iter().copied())
    }

    /// Writes the rows and the values in increasing order of column. Values of the same column stay in order.
    fn sort_into(
        &self,
        indptr: &[usize],
        rows: &mut [u32],
        values: &mut [f32],
    ) -> Result<(), Error> {
        let first = indptr[self.cols.start];
        let mut next = copied(COLUMNS, &indptr[self.cols.clone()])?;
        for (&(row, col), &value) in self.places.iter().zip(&self.values) {
            let next = &mut next[col as usize - self.cols.start];
            (rows[*next - first], values[*next - first]) = (row, value);
            *next += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_give_the_transpose(
            cells in prop::collection::btree_map((0..9usize, 0..7u32), 1..9u8, 0..40),
            per_range in 1..12usize,
        ) {
            let mut x = CsrOwned { indptr: vec![0; 10], indices: Vec::new(), values: Vec::new(), n_cols: 7 };
            for (&(row, col), &value) in &cells {
                x.indices.push(col);
                x.values.push(f32::from(value));
                x.indptr[row + 1] += 1;
            }
            for row in 0..9 {
                x.indptr[row + 1] += x.indptr[row];
            }
            let expected = x.transpose().expect("small");
            let watch = Watch::new();
            let (mut rows, mut values) = (Vec::new(), Vec::new());
            let put = |of_rows: &[u32], of_values: &[f32]| {
                rows.extend_from_slice(of_rows);
                values.extend_from_slice(of_values);
                Ok(())
            };
            x.view().by_lists(&expected.indptr, per_range, &watch, put).expect("small");
            prop_assert_eq!(&rows, &expected.indices);
            prop_assert_eq!(&values, &expected.values);
            let covered: Vec<usize> = ranges(&expected.indptr, per_range).flatten().collect();
            prop_assert_eq!(covered, (0..7).collect::<Vec<_>>());
            prop_assert_eq!(x.view().transposed(&watch).expect("small"), expected);
        }
    }
}
