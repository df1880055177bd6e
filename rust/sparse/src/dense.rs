//! Defines a borrowed dense matrix, the counterpart of [`CsrView`](crate::CsrView).
//!
//! If a model can use dense rows, its predictions read dense X with products of its own. All other models read it
//! like a sparse X; see [`Dense::as_sparse`](crate::Dense::as_sparse).

use crate::Real;
use crate::view::divisors;
use manylabel_base::Error;
use ndarray::ArrayView2;
use std::ops::Range;

/// A borrowed dense matrix in C order: its rows are stored one after the other, without gaps.
///
/// Functions take this type instead of [`ArrayView2`], because the lifetime of an `ArrayView2` cannot be
/// shortened. Scoring needs a shorter lifetime: a batch of rows borrows the model and the features for the
/// same lifetime.
#[derive(Debug, Clone, Copy)]
pub struct DenseView<'a, T> {
    /// `n_rows * n_cols` values.
    values: &'a [T],
    n_rows: usize,
    n_cols: usize,
}

impl<'a, T: Real> DenseView<'a, T> {
    /// Borrows the values of an `ndarray` view, in O(1).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if `x` is not in C order.
    pub fn new(x: &ArrayView2<'a, T>) -> Result<Self, Error> {
        let (n_rows, n_cols) = x.dim();
        let strided = || Error::Param {
            name: "X",
            expected: "laid out in C order",
            got: format!("strides {:?}", x.strides()),
        };
        Ok(Self {
            values: x.to_slice().ok_or_else(strided)?,
            n_rows,
            n_cols,
        })
    }

    /// Borrows `n_rows` rows of `n_cols` values each from one slice.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the slice does not have `n_rows * n_cols` values.
    pub fn of_rows(values: &'a [T], n_rows: usize, n_cols: usize) -> Result<Self, Error> {
        if n_rows.checked_mul(n_cols) != Some(values.len()) {
            return Err(Error::Shape {
                what: "values of X",
                expected: n_rows.saturating_mul(n_cols),
                got: values.len(),
            });
        }
        Ok(Self {
            values,
            n_rows,
            n_cols,
        })
    }

    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Returns the number of columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Returns the `n_cols` values of one row.
    ///
    /// # Panics
    ///
    /// Panics if `row >= n_rows`.
    pub fn row(&self, row: usize) -> &'a [T] {
        &self.values[row * self.n_cols..][..self.n_cols]
    }

    /// Returns two numbers that scale a row to unit length, as [`CsrView::row_divisors`](crate::CsrView::row_divisors)
    /// does.
    ///
    /// # Panics
    ///
    /// Panics if `row >= n_rows`.
    pub fn row_divisors(&self, row: usize, normalize: bool) -> (f64, f64) {
        if normalize {
            divisors(self.row(row))
        } else {
            (1.0, 1.0)
        }
    }

    /// Returns the `rows.len() * n_cols` values of consecutive rows.
    ///
    /// # Panics
    ///
    /// Panics if `rows.end > n_rows`.
    pub fn rows(&self, rows: Range<usize>) -> &'a [T] {
        &self.values[rows.start * self.n_cols..rows.end * self.n_cols]
    }
}
