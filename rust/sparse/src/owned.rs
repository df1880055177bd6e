//! A CSR matrix we own, as kernels produce it.

use crate::{CsrView, Index, Value};
use manylabel_base::Error;

/// An owned CSR matrix with `usize` row ends, `u32` columns and `f32` values.
///
/// Row `r` holds `indices[indptr[r]..indptr[r + 1]]`. Columns need not be sorted (a top-k row is
/// in order of column all the same); who builds one says so.
#[derive(Debug, Clone, PartialEq)]
pub struct CsrOwned {
    /// Row ends, `n_rows + 1` of them, from 0.
    pub indptr: Vec<usize>,
    /// Columns, row after row.
    pub indices: Vec<u32>,
    /// Values, row after row.
    pub values: Vec<f32>,
    /// Number of columns.
    pub n_cols: usize,
}

impl CsrOwned {
    /// Copies `x`, dropping stored zeros, each row divided by its Euclidean norm if `normalize` (a
    /// zero row stays zero).
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if `x` has more than 2³²−2 rows or columns, or a value that is
    /// infinite as `f32`.
    pub fn from_view<I: Index, T: Value>(
        x: CsrView<'_, I, T>,
        normalize: bool,
    ) -> Result<Self, Error> {
        for (what, size) in [
            ("number of columns", x.n_cols()),
            ("number of rows", x.n_rows()),
        ] {
            if size >= u32::MAX as usize {
                return Err(Error::TooLarge {
                    what,
                    got: size.to_string(),
                });
            }
        }
        let mut indptr = Vec::with_capacity(x.n_rows() + 1);
        let mut indices = Vec::with_capacity(x.nnz());
        let mut values = Vec::with_capacity(x.nnz());
        indptr.push(0);
        for row in 0..x.n_rows() {
            let scale = if normalize {
                scale_to_unit(x.row_norm(row))
            } else {
                1.0
            };
            let (cols, vals) = x.row(row);
            for (&col, &value) in cols.iter().zip(vals) {
                let value = (value.f64() * scale) as f32;
                if value.is_infinite() {
                    return Err(Error::TooLarge {
                        what: "a feature value",
                        got: format!("{value} as float32 (row {row})"),
                    });
                }
                if value != 0.0 {
                    indices.push(col.get() as u32);
                    values.push(value);
                }
            }
            indptr.push(indices.len());
        }
        Ok(Self {
            indptr,
            indices,
            values,
            n_cols: x.n_cols(),
        })
    }

    /// Appends a column that is 1 in every row, in O(nnz).
    pub fn append_ones(&mut self) {
        let n_rows = self.n_rows();
        let mut indices = Vec::with_capacity(self.indices.len() + n_rows);
        let mut values = Vec::with_capacity(self.values.len() + n_rows);
        for row in 0..n_rows {
            let (cols, vals) = self.row(row);
            indices.extend_from_slice(cols);
            values.extend_from_slice(vals);
            indices.push(self.n_cols as u32);
            values.push(1.0);
        }
        for (row, end) in self.indptr.iter_mut().enumerate() {
            *end += row;
        }
        (self.indices, self.values) = (indices, values);
        self.n_cols += 1;
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Columns and values of one row.
    ///
    /// # Panics
    ///
    /// If `row >= n_rows`.
    #[inline]
    pub fn row(&self, row: usize) -> (&[u32], &[f32]) {
        let range = self.indptr[row]..self.indptr[row + 1];
        (&self.indices[range.clone()], &self.values[range])
    }

    /// The transpose, columns of each row in increasing order, in O(nnz + `n_rows` + `n_cols`).
    pub fn transpose(&self) -> Self {
        let mut indptr = vec![0usize; self.n_cols + 1];
        for &col in &self.indices {
            indptr[col as usize + 1] += 1;
        }
        for col in 0..self.n_cols {
            indptr[col + 1] += indptr[col];
        }
        let mut next = indptr.clone();
        let mut indices = vec![0u32; self.indices.len()];
        let mut values = vec![0f32; self.values.len()];
        for row in 0..self.n_rows() {
            let (cols, vals) = self.row(row);
            for (&col, &value) in cols.iter().zip(vals) {
                let at = &mut next[col as usize];
                indices[*at] = row as u32;
                values[*at] = value;
                *at += 1;
            }
        }
        Self {
            indptr,
            indices,
            values,
            n_cols: self.n_rows(),
        }
    }
}

/// Factor that brings a row of this norm to length 1; a zero row keeps its zeros.
#[inline]
pub fn scale_to_unit(norm: f64) -> f64 {
    if norm > 0.0 { norm.recip() } else { 1.0 }
}
