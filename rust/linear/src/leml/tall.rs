//! Implements dense matrices with many rows and at most a few hundred columns. LEML has three of them:
//! the weight matrices W and H, and `A = X W`.
//!
//! The matrices are stored in panels of [`LANES`] = 32 columns, so that a product with X reads the
//! rows of a panel as whole cache lines. Values are `f32`. Gram matrices and products with small
//! square matrices are computed in `f64`.

use faer::{Accum, Mat, MatRef};
use manylabel_base::{Error, Watch, copied, few, filled, parts};
use manylabel_dense::{matmul, zeros};
use manylabel_sparse::{LANES, Lanes};
use rayon::prelude::*;
use std::ops::Range;

/// Number of rows that are converted to `f64` together. If there are 500 columns, these rows fit in
/// the second-level cache.
const ROWS_OF_CHUNK: usize = 256;

/// Number of panels (groups of 32 columns) in a strip of a Gram matrix. A strip has enough columns
/// for an efficient matrix product.
const PANELS_OF_STRIP: usize = 4;

/// A matrix with many rows, stored in panels of [`LANES`] columns. Column `LANES t + l` is stored
/// in lane l of panel t. Unused lanes of the last panel are zero.
#[derive(Debug)]
pub(super) struct Tall {
    pub(super) n_rows: usize,
    pub(super) n_cols: usize,
    /// The panels (groups of columns). There are `n_cols / LANES` panels, rounded up, and each
    /// panel has `n_rows` rows.
    pub(super) panels: Vec<Vec<Lanes<f32>>>,
}

impl Tall {
    /// Returns a matrix of zeros.
    ///
    /// # Errors
    ///
    /// All methods that allocate return [`Error::TooLarge`] if there is not enough memory.
    pub(super) fn zeros(n_rows: usize, n_cols: usize) -> Result<Self, Error> {
        let panels = (0..n_cols.div_ceil(LANES))
            .map(|_| filled("the factor matrix", Lanes::default(), n_rows));
        Ok(Self {
            n_rows,
            n_cols,
            panels: few::<_, Result<_, Error>>(panels)?,
        })
    }

    /// Returns a copy.
    pub(super) fn copied(&self) -> Result<Self, Error> {
        let panels = self.panels.iter();
        let panels = panels.map(|panel| copied("the factor matrix", panel));
        Ok(Self {
            n_rows: self.n_rows,
            n_cols: self.n_cols,
            panels: few::<_, Result<_, Error>>(panels)?,
        })
    }

    /// Returns a matrix whose panel t is `panel(t)`. A panel is a group of [`LANES`] columns. The
    /// panels are computed on all threads.
    pub(super) fn from_panels(
        n_rows: usize,
        n_cols: usize,
        panel: impl Fn(usize) -> Result<Vec<Lanes<f32>>, Error> + Sync + Send,
    ) -> Result<Self, Error> {
        let panels = (0..n_cols.div_ceil(LANES)).into_par_iter().map(panel);
        Ok(Self {
            n_rows,
            n_cols,
            panels: parts(panels)?,
        })
    }

    /// Copies a matrix that is stored row by row.
    pub(super) fn from_rows(rows: &[f32], n_rows: usize, n_cols: usize) -> Result<Self, Error> {
        Self::from_panels(n_rows, n_cols, |t| {
            let mut panel = filled("the factor matrix", Lanes::default(), n_rows)?;
            let width = LANES.min(n_cols - t * LANES);
            for (lanes, row) in panel.iter_mut().zip(rows.chunks_exact(n_cols)) {
                lanes.0[..width].copy_from_slice(&row[t * LANES..][..width]);
            }
            Ok(panel)
        })
    }

    /// Returns a copy of the matrix, stored row by row.
    pub(super) fn to_rows(&self) -> Result<Vec<f32>, Error> {
        let mut rows = filled("the factor matrix", 0.0, self.n_rows * self.n_cols)?;
        let chunks = rows
            .par_chunks_mut((ROWS_OF_CHUNK * self.n_cols).max(1))
            .enumerate();
        chunks.for_each(|(chunk, rows)| {
            for (i, row) in rows.chunks_exact_mut(self.n_cols).enumerate() {
                for (part, panel) in row.chunks_mut(LANES).zip(&self.panels) {
                    part.copy_from_slice(&panel[chunk * ROWS_OF_CHUNK + i].0[..part.len()]);
                }
            }
        });
        Ok(rows)
    }

    /// Returns the first `n_cols` columns of some rows in `f64`, with each row multiplied by its
    /// weight.
    fn chunk(
        &self,
        rows: Range<usize>,
        n_cols: usize,
        weights: Option<&[f32]>,
    ) -> Result<Mat<f64>, Error> {
        let mut dense = zeros("the factor matrix", rows.len(), n_cols)?;
        for (t, panel) in self.panels[..n_cols.div_ceil(LANES)].iter().enumerate() {
            for lane in 0..LANES.min(n_cols - t * LANES) {
                let mut column = dense.as_mut().col_mut(t * LANES + lane);
                for (i, row) in rows.clone().enumerate() {
                    let weight = weights.map_or(1.0, |weights| f64::from(weights[row]));
                    column[i] = weight * f64::from(panel[row].0[lane]);
                }
            }
        }
        Ok(dense)
    }

    /// Divides the rows into chunks of [`ROWS_OF_CHUNK`] rows and returns the range of each chunk.
    fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let n_rows = self.n_rows;
        (0..n_rows)
            .step_by(ROWS_OF_CHUNK)
            .map(move |first| first..(first + ROWS_OF_CHUNK).min(n_rows))
    }

    /// Computes the Gram matrix `TᵀΩT` in `f64`. T is this matrix, and the diagonal matrix Ω holds
    /// the weights of the rows. Both triangles of the result are filled. The time is O(`n_rows`
    /// `n_cols`²). Each thread computes its own columns of the result, so no two threads add to the
    /// same sum.
    pub(super) fn gram(&self, weights: Option<&[f32]>, watch: &Watch) -> Result<Mat<f64>, Error> {
        let strips = (0..self.panels.len().div_ceil(PANELS_OF_STRIP))
            .into_par_iter()
            .rev();
        let strips = strips.map(|strip| {
            let first = strip * PANELS_OF_STRIP * LANES;
            let end = (first + PANELS_OF_STRIP * LANES).min(self.n_cols);
            let mut gram = zeros("the Gram matrix", end, end - first)?;
            for rows in self.chunks() {
                watch.step(0)?;
                let left = self.chunk(rows.clone(), end, None)?;
                let weighted = weights.map(|_| self.chunk(rows, end, weights));
                let weighted = weighted.transpose()?;
                let right = weighted
                    .as_ref()
                    .unwrap_or(&left)
                    .subcols(first, end - first);
                matmul(&mut gram, Accum::Add, left.transpose(), right, 1.0);
            }
            Ok((first, gram))
        });
        let mut gram = zeros("the Gram matrix", self.n_cols, self.n_cols)?;
        for (first, strip) in parts(strips)? {
            for j in 0..strip.ncols() {
                for i in 0..=first + j {
                    gram[(i, first + j)] = strip[(i, j)];
                    gram[(first + j, i)] = strip[(i, j)];
                }
            }
        }
        Ok(gram)
    }

    /// Multiplies this matrix by a square matrix of `n_cols` columns in `f64`. Rounds the product
    /// to `f32`.
    pub(super) fn times(&self, small: MatRef<'_, f64>, watch: &Watch) -> Result<Self, Error> {
        let chunks: Vec<Range<usize>> = few(self.chunks());
        let products = chunks.par_iter().map(|rows| {
            watch.step(0)?;
            let own = self.chunk(rows.clone(), self.n_cols, None)?;
            let mut product = zeros::<f32>("the factor matrix", rows.len(), self.n_cols)?;
            let mut exact = zeros("the factor matrix", rows.len(), self.n_cols)?;
            matmul(&mut exact, Accum::Replace, &own, small, 1.0);
            for j in 0..self.n_cols {
                for (to, &from) in product.col_mut(j).iter_mut().zip(exact.col(j).iter()) {
                    *to = from as f32;
                }
            }
            Ok(product)
        });
        let products = parts(products)?;
        Self::from_panels(self.n_rows, self.n_cols, |t| {
            let mut panel = filled("the factor matrix", Lanes::default(), self.n_rows)?;
            for (rows, product) in chunks.iter().zip(&products) {
                for lane in 0..LANES.min(self.n_cols - t * LANES) {
                    let column = product.col(t * LANES + lane);
                    for (lanes, &value) in panel[rows.clone()].iter_mut().zip(column.iter()) {
                        lanes.0[lane] = value;
                    }
                }
            }
            Ok(panel)
        })
    }

    /// Computes `‖T‖²`, where T is this matrix. The sum of squares of each panel is computed first,
    /// and these sums are added in order.
    pub(super) fn square(&self) -> f64 {
        let of_panel = |panel: &Vec<Lanes<f32>>| -> f64 {
            let values = panel.iter().flat_map(|lanes| lanes.0);
            values.map(|value| f64::from(value).powi(2)).sum()
        };
        let mut squares: Vec<f64> = few(self.panels.iter().map(|_| 0.0));
        let pairs = squares.par_iter_mut().zip(&self.panels);
        pairs.for_each(|(square, panel)| *square = of_panel(panel));
        squares.iter().sum()
    }
}
