//! Defines the rows of a training set: sparse, or dense.

use crate::{CsrRef, Sparse, Stored, TableRows};
use manylabel_base::{Error, Watch};

/// The rows of a training set.
#[derive(Debug)]
pub enum Rows<'a> {
    /// Sparse rows, already scaled.
    Sparse(Stored<'a>),
    /// Dense rows without a column of ones. They are scaled when they are read.
    Dense(TableRows<'a>),
}

impl<'x> Rows<'x> {
    /// Copies sparse rows. If `unit` is true, the copy is scaled to unit length.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a value is not finite as `f32`, and [`Error::TooLarge`] if memory is short.
    pub fn copied(x: Sparse<'_>, unit: bool) -> Result<Self, Error> {
        Ok(Self::Sparse(Stored::Owned(x.to_owned(unit)?)))
    }

    /// Borrows the rows.
    pub fn view(&self) -> RowsRef<'_, 'x> {
        match self {
            Self::Sparse(x) => RowsRef::Sparse(x.view()),
            Self::Dense(x) => RowsRef::Dense(x),
        }
    }

    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        self.view().n_rows()
    }

    /// Returns the number of features.
    pub fn n_features(&self) -> usize {
        self.view().n_features()
    }

    /// Returns the rows as a matrix. Dense rows are copied; see [`TableRows::stored`].
    ///
    /// # Errors
    ///
    /// Returns the errors of [`TableRows::stored`].
    pub fn stored(self, watch: &Watch) -> Result<Stored<'x>, Error> {
        match self {
            Self::Sparse(x) => Ok(x),
            Self::Dense(x) => x.stored(watch),
        }
    }
}

/// Borrowed rows of a training set.
#[derive(Debug, Clone, Copy)]
pub enum RowsRef<'a, 'x> {
    /// Sparse rows, already scaled.
    Sparse(CsrRef<'a>),
    /// Dense rows, which are scaled when they are read.
    Dense(&'a TableRows<'x>),
}

impl RowsRef<'_, '_> {
    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        match self {
            Self::Sparse(x) => x.n_rows(),
            Self::Dense(x) => x.n_rows(),
        }
    }

    /// Returns the number of features.
    pub fn n_features(&self) -> usize {
        match self {
            Self::Sparse(x) => x.n_cols(),
            Self::Dense(x) => x.dim(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CsrOwned, Table};
    use ndarray::Array2;

    /// Returns a sparse copy of the same rows, of unit length if `unit` is true.
    fn sparse(x: &Array2<f64>, unit: bool) -> CsrOwned {
        let columns: Vec<i32> = (0..x.ncols() as i32).collect();
        let indices = columns.repeat(x.nrows());
        let ends: Vec<i32> = (0..=x.nrows())
            .map(|row| (row * x.ncols()) as i32)
            .collect();
        let values: Vec<f64> = x.iter().copied().collect();
        let x = crate::CsrView::new("X", &ends, &indices, &values, x.ncols()).expect("valid");
        CsrOwned::from_view(x, unit).expect("finite")
    }

    #[test]
    fn dense_rows_are_stored_with_the_entries_of_sparse_rows() {
        for zeros in [false, true] {
            for unit in [false, true] {
                let x = Array2::from_shape_fn((7, 5), |(row, col)| match (row * 5 + col) % 4 {
                    0 if zeros => 0.0,
                    rest => rest as f64 - 4.5 + row as f64,
                });
                let x = x
                    .reversed_axes()
                    .as_standard_layout()
                    .reversed_axes()
                    .to_owned();
                let table = Table::F64(x.view());
                let rows = TableRows::exact(table, None, unit, &Watch::new()).expect("small");
                let stored = Rows::Dense(rows).stored(&Watch::new()).expect("finite");
                assert_eq!(matches!(stored, Stored::Full(_)), !zeros);
                let expected = sparse(&x, unit);
                assert!(stored.view().rows(0..7).eq(expected.view().rows(0..7)));

                let picked = [4, 0, 4];
                let gathered = stored.view().gather(&picked).expect("small");
                assert_eq!(matches!(gathered, Stored::Full(_)), !zeros);
                let of_picked = picked.map(|row| expected.view().row(row as usize));
                assert!(gathered.view().rows(0..3).eq(of_picked));
                assert_eq!((gathered.n_rows(), gathered.n_cols()), (3, 5));
            }
        }
    }

    #[test]
    fn only_sparse_rows_lose_empty_columns() {
        let x = CsrOwned {
            indptr: vec![0, 1, 2],
            indices: vec![2, 0],
            values: vec![1.0, 2.0],
            n_cols: 4,
        };
        let mut borrowed = Stored::Borrowed(x.view());
        assert_eq!(borrowed.drop_empty_columns().expect("small"), [0, 1, 2, 3]);
        let mut owned = Stored::Owned(x.clone());
        assert_eq!(owned.drop_empty_columns().expect("small"), [0, 2]);
        assert_eq!(owned.row(0), (&[1u32][..], &[1.0f32][..]));
    }

    #[test]
    fn values_beyond_single_precision_are_refused() {
        let x = Array2::from_elem((2, 2), 1e39);
        let rows = TableRows::exact(Table::F64(x.view()), None, false, &Watch::new());
        let error = Rows::Dense(rows.expect("small"))
            .stored(&Watch::new())
            .expect_err("infinite");
        assert!(error.to_string().contains("inf in row 0"), "{error}");
    }
}
