//! Defines types for feature matrices. [`Features`], [`Sparse`], [`Dense`] and [`AsSparse`] are enums
//! with one variant for each accepted kind of matrix.

use crate::{CsrOwned, CsrView, DenseView, FullRows, LabelsOwned, Real, Stored, Value};
use manylabel_base::{Error, Watch, collected, filled};

/// Number of rows that are read between two checks for a stop request of the caller.
const ROWS_PER_STEP: usize = 1 << 10;

/// Rows of features, sparse or dense, in any accepted type.
#[derive(Debug, Clone, Copy)]
pub enum Features<'a> {
    /// Compressed sparse rows.
    Sparse(Sparse<'a>),
    /// Dense rows.
    Dense(Dense<'a>),
}

/// Compressed sparse rows with 32-bit or 64-bit indices, and values in single or double precision.
///
/// Functions that fit models take this type and not a generic view. So only the code that reads rows is
/// compiled for each of the four types (with [`with_sparse`](crate::with_sparse)). This halves the time to
/// build the extension.
#[derive(Debug, Clone, Copy)]
pub enum Sparse<'a> {
    /// 32-bit indices, values in single precision.
    I32F32(CsrView<'a, i32, f32>),
    /// 64-bit indices, values in single precision.
    I64F32(CsrView<'a, i64, f32>),
    /// 32-bit indices, values in double precision.
    I32F64(CsrView<'a, i32, f64>),
    /// 64-bit indices, values in double precision.
    I64F64(CsrView<'a, i64, f64>),
}

/// A dense matrix in single or double precision.
#[derive(Debug, Clone, Copy)]
pub enum Dense<'a> {
    /// Values in single precision.
    F32(DenseView<'a, f32>),
    /// Values in double precision.
    F64(DenseView<'a, f64>),
}

/// Evaluates `$body` with `$x` bound to the view in `$sparse`, for any of the four types. `$body` is
/// compiled once for each type.
#[macro_export]
macro_rules! with_sparse {
    ($sparse:expr, |$x:ident| $body:expr) => {
        match $sparse {
            $crate::Sparse::I32F32($x) => $body,
            $crate::Sparse::I64F32($x) => $body,
            $crate::Sparse::I32F64($x) => $body,
            $crate::Sparse::I64F64($x) => $body,
        }
    };
}

impl<'a> Features<'a> {
    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        match self {
            Self::Sparse(x) => x.n_rows(),
            Self::Dense(Dense::F32(x)) => x.n_rows(),
            Self::Dense(Dense::F64(x)) => x.n_rows(),
        }
    }

    /// Returns the number of features.
    pub fn n_cols(&self) -> usize {
        match self {
            Self::Sparse(x) => x.n_cols(),
            Self::Dense(Dense::F32(x)) => x.n_cols(),
            Self::Dense(Dense::F64(x)) => x.n_cols(),
        }
    }

    /// Returns the sparse rows, for functions that accept only sparse rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the rows are dense. Callers convert dense rows with [`Dense::as_sparse`]
    /// beforehand.
    pub fn sparse(self) -> Result<Sparse<'a>, Error> {
        match self {
            Self::Sparse(x) => Ok(x),
            Self::Dense(_) => Err(Error::Param {
                name: "X",
                expected: "sparse",
                got: "a dense matrix".into(),
            }),
        }
    }
}

impl Sparse<'_> {
    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        with_sparse!(self, |x| x.n_rows())
    }

    /// Returns the number of columns.
    pub fn n_cols(&self) -> usize {
        with_sparse!(self, |x| x.n_cols())
    }

    /// Returns the number of stored entries of one row.
    ///
    /// # Panics
    ///
    /// Panics if `row >= n_rows`.
    pub fn n_stored(&self, row: usize) -> usize {
        with_sparse!(self, |x| x.row(row).0.len())
    }

    /// Returns the number of values of one row that are not zero.
    ///
    /// # Panics
    ///
    /// Panics if `row >= n_rows`.
    pub fn n_nonzero(&self, row: usize) -> usize {
        with_sparse!(self, |x| n_nonzero(x.row(row).1))
    }

    /// Returns a copy without explicit zeros; see [`CsrOwned::from_view`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`CsrOwned::from_view`].
    pub fn to_owned(&self, normalize: bool) -> Result<CsrOwned, Error> {
        with_sparse!(*self, |x| CsrOwned::from_view(x, normalize))
    }

    /// Returns a copy with the same entries as [`to_owned`](Self::to_owned). If no value is 0, the copy is
    /// [`Stored::Full`], which takes half of the memory.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`CsrOwned::from_view`].
    pub fn to_stored(&self, normalize: bool) -> Result<Stored<'static>, Error> {
        with_sparse!(*self, |x| {
            Ok(match FullRows::of_nonzero(x, normalize)? {
                Some(rows) => Stored::Full(rows),
                None => Stored::Owned(CsrOwned::from_view(x, normalize)?),
            })
        })
    }

    /// Copies a matrix of labels, in which NaN stands for an unknown pair of row and label.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`LabelsOwned::from_view`].
    pub fn to_labels(&self) -> Result<LabelsOwned, Error> {
        with_sparse!(*self, |y| LabelsOwned::from_view(y))
    }
}

impl<'a> Dense<'a> {
    /// Returns the rows in a form for functions that accept only sparse rows. If at least half of the values are not
    /// zero, the rows are not copied, and zeros count as stored entries. Otherwise, a sparse copy without zeros is made.
    /// It takes 16 bytes per nonzero value in double precision and 12 bytes in single precision.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the caller requested a stop.
    pub fn as_sparse(self, watch: &Watch) -> Result<AsSparse<'a>, Error> {
        Ok(match self {
            Self::F32(x) => AsSparse::F32(DenseEntries::of(x, watch)?),
            Self::F64(x) => AsSparse::F64(DenseEntries::of(x, watch)?),
        })
    }
}

/// Dense rows that functions for sparse rows can read.
#[derive(Debug)]
pub enum AsSparse<'a> {
    /// Values in single precision.
    F32(DenseEntries<'a, f32>),
    /// Values in double precision.
    F64(DenseEntries<'a, f64>),
}

impl AsSparse<'_> {
    /// Borrows the rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Csr`] or [`Error::Shape`] if the structure is invalid. This does not happen in
    /// practice, because the structure is valid by construction.
    pub fn sparse(&self) -> Result<Sparse<'_>, Error> {
        Ok(match self {
            Self::F32(x) => x.view()?.into(),
            Self::F64(x) => x.view()?.into(),
        })
    }
}

/// The stored entries of dense rows.
#[derive(Debug)]
pub enum DenseEntries<'a, T> {
    /// All entries, and the numbers of all columns.
    All(DenseView<'a, T>, Vec<i64>),
    /// A copy of the entries that are not zero.
    Nonzero(Arrays<T>),
}

impl<'a, T: Real> DenseEntries<'a, T> {
    fn of(x: DenseView<'a, T>, watch: &Watch) -> Result<Self, Error> {
        let (mut n_zero, mut n_there) = (0, 0);
        for row in 0..x.n_rows() {
            if row % ROWS_PER_STEP == 0 {
                watch.step(0)?;
            }
            let of_row = n_nonzero(x.row(row));
            n_there += of_row;
            n_zero += x.n_cols() - of_row;
        }
        Ok(if n_there >= n_zero {
            let columns = collected("number of columns of X", 0..x.n_cols() as i64)?;
            Self::All(x, columns)
        } else {
            Self::Nonzero(Arrays::of(&x, n_there)?)
        })
    }

    fn view(&self) -> Result<CsrView<'_, i64, T>, Error> {
        match self {
            Self::All(x, columns) => CsrView::of_dense(*x, columns),
            Self::Nonzero(x) => CsrView::new("X", &x.ends, &x.cols, &x.values, x.n_cols),
        }
    }
}

/// Returns the number of values that are not zero.
fn n_nonzero<T: Value>(values: &[T]) -> usize {
    values.iter().filter(|value| value.f64() != 0.0).count()
}

/// The three arrays of a matrix in compressed sparse row form.
#[derive(Debug)]
pub struct Arrays<T> {
    ends: Vec<i64>,
    cols: Vec<i64>,
    values: Vec<T>,
    n_cols: usize,
}

impl<T: Real> Arrays<T> {
    /// Copies the `size` values that are not zero.
    fn of(x: &DenseView<'_, T>, size: usize) -> Result<Self, Error> {
        let mut ends = filled("number of rows of X", 0, x.n_rows() + 1)?;
        let mut cols = filled("number of nonzero values of X", 0, size)?;
        let mut values = filled("number of nonzero values of X", T::default(), size)?;
        let mut end = 0;
        for (row, next) in ends[1..].iter_mut().enumerate() {
            for (col, value) in (0..).zip(x.row(row)) {
                if value.f64() != 0.0 {
                    (cols[end], values[end]) = (col, *value);
                    end += 1;
                }
            }
            *next = end as i64;
        }
        Ok(Self {
            ends,
            cols,
            values,
            n_cols: x.n_cols(),
        })
    }
}

macro_rules! from {
    ($($variant:ident($index:ty, $value:ty)),*) => {$(
        impl<'a> From<CsrView<'a, $index, $value>> for Features<'a> {
            fn from(x: CsrView<'a, $index, $value>) -> Self {
                Self::Sparse(x.into())
            }
        }

        impl<'a> From<CsrView<'a, $index, $value>> for Sparse<'a> {
            fn from(x: CsrView<'a, $index, $value>) -> Self {
                Self::$variant(x)
            }
        }
    )*};
}
from!(
    I32F32(i32, f32),
    I64F32(i64, f32),
    I32F64(i32, f64),
    I64F64(i64, f64)
);

impl<'a> From<DenseView<'a, f32>> for Features<'a> {
    fn from(x: DenseView<'a, f32>) -> Self {
        Self::Dense(Dense::F32(x))
    }
}

impl<'a> From<DenseView<'a, f64>> for Features<'a> {
    fn from(x: DenseView<'a, f64>) -> Self {
        Self::Dense(Dense::F64(x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dense_rows_are_read_like_sparse_rows() {
        let columns = [0i32, 1, 2];
        for values in [
            [1.0, 0.0, 2.0, 3.0, 4.0, 0.0],
            [0.0, 0.0, 2.0, 0.0, 0.0, 0.0],
        ] {
            let x = DenseView::of_rows(&values, 2, 3).expect("six values");
            let all = CsrView::of_dense(x, &columns).expect("three columns");
            assert_eq!((all.n_rows(), all.n_cols(), all.nnz()), (2, 3, 6));
            assert_eq!(all.row(1), (&columns[..], &values[3..]));
            let expected = CsrOwned::from_view(all, false).expect("small");
            let found = Dense::F64(x).as_sparse(&Watch::new()).expect("small");
            // Zeros are copied only if there are few of them.
            let is_copied = matches!(found, AsSparse::F64(DenseEntries::Nonzero(_)));
            assert_eq!(is_copied, values[0] == 0.0);
            let found = found.sparse().expect("valid");
            assert_eq!(found.to_owned(false).expect("small"), expected);
            assert_eq!(found.n_nonzero(0), if is_copied { 1 } else { 2 });
        }
    }

    #[test]
    fn columns_of_dense_rows_are_checked() {
        let x = DenseView::of_rows(&[1.0f32; 6], 2, 3).expect("six values");
        for columns in [&[0i32, 1][..], &[0, 2, 1], &[0, 1, 2, 3]] {
            assert!(CsrView::of_dense(x, columns).is_err());
        }
        let none = DenseView::<f32>::of_rows(&[], 2, 0).expect("no values");
        let none = CsrView::<i32, f32>::of_dense(none, &[]).expect("no columns");
        assert!(none.row(1).0.is_empty());
    }
}
