//! Defines borrowed matrices with the types of [`CsrOwned`], and functions that write such matrices into arrays
//! of the caller.
//!
//! The caller can map these arrays from files. Training data that are larger than memory then take no private
//! memory: the operating system writes their pages to the files and reads them again. The values are the same as
//! in an owned copy, bit for bit.

use crate::{CsrOwned, CsrView, FullRows, Index, Value};
use manylabel_base::range::same;
use manylabel_base::{Error, Watch, collected, extend, filled, reserved};
use std::ops::Range;

/// The number of rows between two checks for a stop request of the caller.
const ROWS_PER_STEP: usize = 4096;

/// A borrowed CSR matrix with `usize` row ends, `u32` columns and `f32` values, the types of [`CsrOwned`].
#[derive(Debug, Clone, Copy)]
pub struct CsrRef<'a> {
    indptr: &'a [usize],
    /// The columns of all rows, row after row, or the columns of each row if all values are stored.
    indices: &'a [u32],
    values: &'a [f32],
    n_cols: usize,
    /// The position in `indices` of the first column of a row is its position in `values` & `mask`: all bits are set, or
    /// none if `indices` has the columns of each row. This takes fewer instructions than a branch.
    mask: usize,
}

impl<'a> CsrRef<'a> {
    /// Borrows a matrix. The row ends and the lengths of the arrays are checked, in O(rows). Columns are not
    /// checked: a column that is out of range causes a panic when it is used.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Csr`] for the matrix X if the row ends do not go from 0 to the number of stored values,
    /// or if they decrease. Returns [`Error::Shape`] if `indices` and `values` have different lengths.
    pub fn new(
        indptr: &'a [usize],
        indices: &'a [u32],
        values: &'a [f32],
        n_cols: usize,
    ) -> Result<Self, Error> {
        same("number of stored values", indices.len(), values.len())?;
        let ends = (indptr.first(), indptr.last());
        if ends != (Some(&0), Some(&indices.len())) || !indptr.is_sorted() {
            return Err(Error::Csr {
                matrix: "X",
                row: 0,
                rule: format!("indptr does not go from 0 to {}", indices.len()),
            });
        }
        Ok(Self {
            indptr,
            indices,
            values,
            n_cols,
            mask: usize::MAX,
        })
    }

    /// Borrows a matrix of which all values are stored. `columns` has the numbers of all columns.
    #[inline]
    pub(crate) fn full(indptr: &'a [usize], columns: &'a [u32], values: &'a [f32]) -> Self {
        Self {
            indptr,
            indices: columns,
            values,
            n_cols: columns.len(),
            mask: 0,
        }
    }

    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Returns the number of columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Returns the number of entries of some consecutive rows, in O(1).
    ///
    /// # Panics
    ///
    /// Panics if `first + n_rows > self.n_rows()`.
    #[inline]
    pub fn n_entries(&self, first: usize, n_rows: usize) -> usize {
        self.indptr[first + n_rows] - self.indptr[first]
    }

    /// Returns the columns of all rows, row after row. The matrix must not be that of [`FullRows`].
    pub(crate) fn indices(&self) -> &'a [u32] {
        debug_assert!(self.mask != 0, "all rows have the same columns");
        self.indices
    }

    /// Returns the columns and values of one row, in O(1).
    ///
    /// # Panics
    ///
    /// Panics if `row >= n_rows`.
    #[inline]
    pub fn row(&self, row: usize) -> (&'a [u32], &'a [f32]) {
        self.entries(self.indptr[row], self.indptr[row + 1])
    }

    /// Returns the columns and values of consecutive rows, in order. This is faster than calls of [`row`](Self::row).
    ///
    /// # Panics
    ///
    /// Panics if the range ends after the last row or before it starts.
    #[inline]
    pub fn rows(&self, rows: Range<usize>) -> impl Iterator<Item = (&'a [u32], &'a [f32])> {
        let x = *self;
        let ends = self.indptr[rows.start..=rows.end].windows(2);
        ends.map(move |ends| x.entries(ends[0], ends[1]))
    }

    /// Copies some rows, in the given order. The copy is dense if the matrix is that of [`FullRows`].
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the copy does not fit in memory.
    ///
    /// # Panics
    ///
    /// Panics if a row is out of range.
    pub fn gather(self, rows: &[u32]) -> Result<Stored<'static>, Error> {
        const WHAT: &str = "number of values of some rows";
        let entries = || rows.iter().map(|&row| self.row(row as usize));
        let size = entries().map(|(columns, _)| columns.len()).sum();
        let mut values = reserved(WHAT, size)?;
        for (_, row) in entries() {
            extend(WHAT, &mut values, row.iter().copied())?;
        }
        if self.mask == 0 {
            return FullRows::new(values, rows.len(), self.n_cols).map(Stored::Full);
        }
        let mut copy = CsrOwned {
            indptr: reserved("number of rows", rows.len() + 1)?,
            indices: reserved(WHAT, size)?,
            values,
            n_cols: self.n_cols,
        };
        copy.indptr.push(0);
        for (columns, _) in entries() {
            extend(WHAT, &mut copy.indices, columns.iter().copied())?;
            copy.indptr.push(copy.indices.len());
        }
        Ok(Stored::Owned(copy))
    }

    /// Returns the columns and values of the row that begins and ends at the given positions.
    #[inline]
    fn entries(&self, begin: usize, end: usize) -> (&'a [u32], &'a [f32]) {
        let values = &self.values[begin..end];
        let first = begin & self.mask;
        (&self.indices[first..first + values.len()], values)
    }
}

/// The arrays of a CSR matrix, which functions of this crate fill.
#[derive(Debug)]
pub struct CsrMut<'a> {
    /// The row ends.
    pub indptr: &'a mut [usize],
    /// The columns.
    pub indices: &'a mut [u32],
    /// The values.
    pub values: &'a mut [f32],
}

/// A CSR matrix that is owned or borrowed.
#[derive(Debug)]
pub enum Stored<'a> {
    /// A matrix in memory.
    Owned(CsrOwned),
    /// A dense matrix in memory, which is read like a sparse one.
    Full(FullRows),
    /// A matrix whose arrays belong to the caller.
    Borrowed(CsrRef<'a>),
}

impl Stored<'_> {
    /// Borrows the matrix.
    #[inline]
    pub fn view(&self) -> CsrRef<'_> {
        match self {
            Self::Owned(x) => x.view(),
            Self::Full(x) => x.view(),
            Self::Borrowed(x) => *x,
        }
    }

    /// Returns the columns and values of one row, in O(1).
    ///
    /// # Panics
    ///
    /// Panics if `row >= n_rows`.
    #[inline]
    pub fn row(&self, row: usize) -> (&[u32], &[f32]) {
        self.view().row(row)
    }

    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        self.view().n_rows()
    }

    /// Returns the number of columns.
    pub fn n_cols(&self) -> usize {
        self.view().n_cols()
    }

    /// Appends a column that is 1 in every row.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the result does not fit in memory, and [`Error::Param`] if the matrix is borrowed.
    pub fn append_ones(&mut self) -> Result<(), Error> {
        match self {
            Self::Owned(x) => x.append_ones(),
            Self::Full(x) => x.append_ones(),
            Self::Borrowed(_) => Err(Error::Param {
                name: "X",
                expected: "stored with a column of ones",
                got: "borrowed rows".into(),
            }),
        }
    }

    /// Removes columns without entries, as [`CsrOwned::drop_empty_columns`] does, and returns the old number of each
    /// remaining column. A dense or borrowed matrix keeps all of its columns.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory for one number per column.
    pub fn drop_empty_columns(&mut self) -> Result<Vec<u32>, Error> {
        match self {
            Self::Owned(x) => x.drop_empty_columns(),
            Self::Full(_) | Self::Borrowed(_) => {
                collected("number of columns", 0..self.n_cols() as u32)
            }
        }
    }
}

impl CsrOwned {
    /// Borrows the matrix.
    #[inline]
    pub fn view(&self) -> CsrRef<'_> {
        CsrRef {
            indptr: &self.indptr,
            indices: &self.indices,
            values: &self.values,
            n_cols: self.n_cols,
            mask: usize::MAX,
        }
    }
}

/// Writes the rows of `x` into `out`, with the same result as [`CsrOwned::from_view`],
/// [`CsrOwned::drop_empty_columns`] and, if `ones` is true, [`CsrOwned::append_ones`].
///
/// The arrays of columns and values in `out` must have one entry for each stored value of `x` and, if `ones` is
/// true, one more entry for each row. Explicit zeros are not written, so the last entries may stay unused: the
/// last row end is the number of entries that were written. Returns the old number of each remaining column,
/// without the column of ones. The function makes two passes over `x`.
///
/// # Errors
///
/// Returns the errors of [`CsrOwned::from_view`]. Also returns [`Error::Shape`] if an array of `out` has
/// another length, and [`Error::Stopped`] if the caller requested a stop.
pub fn scale_into<I: Index, T: Value>(
    x: CsrView<'_, I, T>,
    normalize: bool,
    ones: bool,
    out: &mut CsrMut<'_>,
    watch: &Watch,
) -> Result<Vec<u32>, Error> {
    let n_rows = x.n_rows();
    CsrOwned::check_size(x.n_rows(), x.n_cols())?;
    let room = x.nnz() + if ones { n_rows } else { 0 };
    same("number of rows", n_rows + 1, out.indptr.len())?;
    same("number of stored values", room, out.indices.len())?;
    same("number of stored values", room, out.values.len())?;
    let mut new = filled("number of columns", u32::MAX, x.n_cols())?;
    for row in 0..n_rows {
        if row % ROWS_PER_STEP == 0 {
            watch.step(0)?;
        }
        CsrOwned::scaled_row(x, row, normalize, |col, _| {
            new[col as usize] = 0;
        })?;
    }
    let full = (0..).zip(&new).filter(|&(_, &new)| new == 0);
    let kept: Vec<u32> = collected("number of columns", full.map(|(col, _)| col))?;
    for (to, &col) in (0..).zip(&kept) {
        new[col as usize] = to;
    }
    let mut end = 0;
    out.indptr[0] = 0;
    for row in 0..n_rows {
        if row % ROWS_PER_STEP == 0 {
            watch.step(0)?;
        }
        CsrOwned::scaled_row(x, row, normalize, |col, value| {
            (out.indices[end], out.values[end]) = (new[col as usize], value);
            end += 1;
        })?;
        if ones {
            (out.indices[end], out.values[end]) = (kept.len() as u32, 1.0);
            end += 1;
        }
        out.indptr[row + 1] = end;
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the arrays of a CSR matrix with explicit zeros.
    fn rows() -> impl Strategy<Value = (Vec<i64>, Vec<i64>, Vec<f64>)> {
        let value = prop_oneof![Just(0.0), Just(1e-60), -8.0..8.0];
        let row = prop::collection::btree_map(0..7i64, value, 0..5);
        prop::collection::vec(row, 0..9).prop_map(|rows| {
            let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
            for row in rows {
                for (col, value) in row {
                    indices.push(col);
                    values.push(value);
                }
                indptr.push(indices.len() as i64);
            }
            (indptr, indices, values)
        })
    }

    proptest! {
        #[test]
        fn writes_what_the_owned_copy_holds(
            (indptr, indices, values) in rows(),
            normalize in any::<bool>(),
            ones in any::<bool>(),
        ) {
            let watch = Watch::new();
            let x = CsrView::new("X", &indptr, &indices, &values, 7).expect("valid");
            let mut owned = CsrOwned::from_view(x, normalize).expect("small");
            let kept = owned.drop_empty_columns().expect("small");
            if ones {
                owned.append_ones().expect("small");
            }
            let room = x.nnz() + if ones { x.n_rows() } else { 0 };
            let mut arrays = (vec![9; x.n_rows() + 1], vec![9; room], vec![9.0; room]);
            let mut out = CsrMut { indptr: &mut arrays.0, indices: &mut arrays.1, values: &mut arrays.2 };
            prop_assert_eq!(scale_into(x, normalize, ones, &mut out, &watch).expect("room"), kept);
            let end = arrays.0[x.n_rows()];
            arrays.1.truncate(end);
            arrays.2.truncate(end);
            prop_assert_eq!(&arrays.0, &owned.indptr);
            prop_assert_eq!(&arrays.1, &owned.indices);
            prop_assert_eq!(&arrays.2, &owned.values);

            let borrowed = CsrRef::new(&arrays.0, &arrays.1, &arrays.2, owned.n_cols).expect("valid");
            let mut turned = (vec![9; owned.n_cols + 1], vec![9; end], vec![9.0; end]);
            let mut out = CsrMut { indptr: &mut turned.0, indices: &mut turned.1, values: &mut turned.2 };
            borrowed.transpose_into(&mut out, &watch).expect("room");
            let expected = owned.transpose().expect("small");
            prop_assert_eq!(turned.0, expected.indptr);
            prop_assert_eq!(turned.1, expected.indices);
            prop_assert_eq!(turned.2, expected.values);
        }
    }

    #[test]
    fn refuses_row_ends_that_do_not_fit() {
        let error = CsrRef::new(&[0, 3], &[0], &[1.0], 1).expect_err("too long");
        assert_eq!(
            error.to_string(),
            "X is not a valid CSR matrix: indptr does not go from 0 to 1 (row 0)"
        );
    }
}
