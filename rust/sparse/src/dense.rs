//! A dense matrix borrowed from whoever owns it.

use crate::Real;
use manylabel_base::Error;
use ndarray::ArrayView2;
use std::ops::Range;

/// A dense matrix in C order, row after row.
///
/// It comes from an [`ArrayView2`], whose lifetime cannot be shortened where that of this can: a batch of rows
/// borrows model and features together.
#[derive(Debug, Clone, Copy)]
pub struct DenseView<'a, T> {
    values: &'a [T],
    n_rows: usize,
    n_cols: usize,
}

impl<'a, T: Real> DenseView<'a, T> {
    /// Borrows a matrix.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if it is not in C order.
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

    /// Borrows rows of `n_cols` values each, one after the other.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if there are not so many values.
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

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// One row.
    ///
    /// # Panics
    ///
    /// If `row >= n_rows`.
    pub fn row(&self, row: usize) -> &'a [T] {
        &self.values[row * self.n_cols..][..self.n_cols]
    }

    /// Some rows, one after the other.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub fn rows(&self, rows: Range<usize>) -> &'a [T] {
        &self.values[rows.start * self.n_cols..rows.end * self.n_cols]
    }
}
