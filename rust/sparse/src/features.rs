//! Defines types for feature matrices. [`Features`], [`Sparse`], [`Dense`] and [`Copied`] are enums
//! with one variant for each accepted kind of matrix.

use crate::{CsrOwned, CsrView, DenseView, LabelsOwned, Real};
use manylabel_base::{Error, filled};

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
    /// Returns [`Error::Param`] if the rows are dense. Callers convert dense rows with [`Dense::to_sparse`]
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

    /// Returns a copy without explicit zeros; see [`CsrOwned::from_view`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`CsrOwned::from_view`].
    pub fn to_owned(&self, normalize: bool) -> Result<CsrOwned, Error> {
        with_sparse!(*self, |x| CsrOwned::from_view(x, normalize))
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

impl Dense<'_> {
    /// Returns a sparse copy without zeros, for functions that accept only sparse rows. The copy takes 16
    /// bytes per nonzero value in double precision and 12 bytes in single precision.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the copy does not fit in memory.
    pub fn to_sparse(&self) -> Result<Copied, Error> {
        Ok(match self {
            Self::F32(x) => Copied::F32(Arrays::of(x)?),
            Self::F64(x) => Copied::F64(Arrays::of(x)?),
        })
    }
}

/// A sparse copy of dense rows.
#[derive(Debug)]
pub enum Copied {
    /// Values in single precision.
    F32(Arrays<f32>),
    /// Values in double precision.
    F64(Arrays<f64>),
}

impl Copied {
    /// Borrows the copy as features.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Csr`] or [`Error::Shape`] if the structure is invalid. This does not happen in
    /// practice, because the structure is valid by construction.
    pub fn features(&self) -> Result<Features<'_>, Error> {
        Ok(match self {
            Self::F32(x) => x.view()?.into(),
            Self::F64(x) => x.view()?.into(),
        })
    }
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
    fn of(x: &DenseView<'_, T>) -> Result<Self, Error> {
        let is_there = |value: &T| value.f64() != 0.0;
        let n_rows = x.n_rows();
        let of_row = |row| x.row(row).iter().filter(|value| is_there(value)).count();
        let size = (0..n_rows).map(of_row).sum();
        let mut ends = filled("number of rows of X", 0, n_rows + 1)?;
        let mut cols = filled("number of nonzero values of X", 0, size)?;
        let mut values = filled("number of nonzero values of X", T::default(), size)?;
        let mut end = 0;
        for (row, next) in ends[1..].iter_mut().enumerate() {
            for (col, value) in (0..).zip(x.row(row)) {
                if is_there(value) {
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

    fn view(&self) -> Result<CsrView<'_, i64, T>, Error> {
        CsrView::new("X", &self.ends, &self.cols, &self.values, self.n_cols)
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
