//! Tall matrices in panels of sixteen columns, and X with its products from both sides.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use manylabel_base::{Error, Watch, copied, few, filled, parts};
use manylabel_dense::zeros;
use manylabel_sparse::{ColumnOrder, CsrView, LANES, Lanes, RowBlocks};
use rayon::prelude::*;
use std::ops::Range;

/// Rows that are made `f64` together: with 500 columns they fit in the second cache.
const ROWS_OF_CHUNK: usize = 256;

/// Panels of a strip of a Gram matrix: enough columns for a product to be worth it.
const PANELS_OF_STRIP: usize = 4;

/// A matrix of many rows; column `16 t + l` is lane l of panel t. Lanes beyond `n_cols` are zero.
#[derive(Debug)]
pub(super) struct Tall {
    pub(super) n_rows: usize,
    pub(super) n_cols: usize,
    pub(super) panels: Vec<Vec<Lanes<f32>>>,
}

impl Tall {
    pub(super) fn zeros(n_rows: usize, n_cols: usize) -> Result<Self, Error> {
        let panels = (0..n_cols.div_ceil(LANES))
            .map(|_| filled("rows of a factor", Lanes::default(), n_rows));
        Ok(Self {
            n_rows,
            n_cols,
            panels: few::<_, Result<_, Error>>(panels)?,
        })
    }

    pub(super) fn copied(&self) -> Result<Self, Error> {
        let panels = self.panels.iter();
        let panels = panels.map(|panel| copied("rows of a factor", panel));
        Ok(Self {
            n_rows: self.n_rows,
            n_cols: self.n_cols,
            panels: few::<_, Result<_, Error>>(panels)?,
        })
    }

    /// The matrix whose panels `panel` makes of their numbers, on all threads.
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

    /// Takes rows that lie one after the other.
    pub(super) fn from_rows(rows: &[f32], n_rows: usize, n_cols: usize) -> Result<Self, Error> {
        Self::from_panels(n_rows, n_cols, |t| {
            let mut panel = filled("rows of a factor", Lanes::default(), n_rows)?;
            let width = LANES.min(n_cols - t * LANES);
            for (lanes, row) in panel.iter_mut().zip(rows.chunks_exact(n_cols)) {
                lanes.0[..width].copy_from_slice(&row[t * LANES..][..width]);
            }
            Ok(panel)
        })
    }

    /// The rows, one after the other.
    pub(super) fn to_rows(&self) -> Result<Vec<f32>, Error> {
        let mut rows = filled("rows of a factor", 0.0, self.n_rows * self.n_cols)?;
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

    /// The first `n_cols` columns of some rows, each row multiplied by its weight.
    fn chunk(
        &self,
        rows: Range<usize>,
        n_cols: usize,
        weights: Option<&[f32]>,
    ) -> Result<Mat<f64>, Error> {
        let mut dense = zeros("rows of a factor", rows.len(), n_cols)?;
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

    fn chunks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let n_rows = self.n_rows;
        (0..n_rows)
            .step_by(ROWS_OF_CHUNK)
            .map(move |first| first..(first + ROWS_OF_CHUNK).min(n_rows))
    }

    /// `TᵀΩT`, Ω the weights of the rows. Strips of columns are the units of work.
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
                matmul(
                    &mut gram,
                    Accum::Add,
                    left.transpose(),
                    right,
                    1.0,
                    Par::Seq,
                );
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

    /// The product with a small square matrix.
    pub(super) fn times(&self, small: MatRef<'_, f64>, watch: &Watch) -> Result<Self, Error> {
        let chunks: Vec<Range<usize>> = few(self.chunks());
        let products = chunks.par_iter().map(|rows| {
            watch.step(0)?;
            let own = self.chunk(rows.clone(), self.n_cols, None)?;
            let mut product = zeros::<f32>("rows of a factor", rows.len(), self.n_cols)?;
            let mut exact = zeros("rows of a factor", rows.len(), self.n_cols)?;
            matmul(&mut exact, Accum::Replace, &own, small, 1.0, Par::Seq);
            for j in 0..self.n_cols {
                for (to, &from) in product.col_mut(j).iter_mut().zip(exact.col(j).iter()) {
                    *to = from as f32;
                }
            }
            Ok(product)
        });
        let products = parts(products)?;
        Self::from_panels(self.n_rows, self.n_cols, |t| {
            let mut panel = filled("rows of a factor", Lanes::default(), self.n_rows)?;
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

    /// `‖T‖²`, panel by panel.
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

/// X in the form that products want, a first column of ones included if there is an intercept.
#[derive(Debug)]
pub(super) struct Design {
    blocks: RowBlocks<f32>,
    cuts: Vec<Range<usize>>,
    /// The features some row has, in the order of the columns; the ones are not among them.
    pub(super) features: Vec<u32>,
    pub(super) n_rows: usize,
}

impl Design {
    pub(super) fn new(x: CsrView<'_, u32, f32>, ones: bool, watch: &Watch) -> Result<Self, Error> {
        let order = ColumnOrder::new(x)?;
        let cuts = RowBlocks::<f32>::cut(x.n_rows(), |row| x.row(row).0.len() + 1);
        Ok(Self {
            blocks: RowBlocks::new(x, &order, ones, 1.0, &cuts, watch)?,
            features: order.into_columns(),
            n_rows: x.n_rows(),
            cuts,
        })
    }

    pub(super) fn n_cols(&self) -> usize {
        self.blocks.n_cols()
    }

    /// `Σ_i ω_i x_ij²` for each column.
    pub(super) fn squares(&self, weights: Option<&[f32]>) -> Result<Vec<f64>, Error> {
        let mut squares = filled("number of features", 0.0, self.n_cols())?;
        for (cut, block) in self.cuts.iter().zip(self.blocks.blocks()) {
            for row in cut.clone() {
                let weight = weights.map_or(1.0, |weights| f64::from(weights[row]));
                let (cols, values) = block.row(row - cut.start);
                for (&col, &value) in cols.iter().zip(values) {
                    squares[col as usize] += weight * f64::from(value).powi(2);
                }
            }
        }
        Ok(squares)
    }

    /// `X p` for one panel.
    pub(super) fn times(&self, p: &[Lanes<f32>], watch: &Watch) -> Result<Vec<Lanes<f32>>, Error> {
        let mut out = filled("number of rows", Lanes::default(), self.n_rows)?;
        for (cut, block) in self.cuts.iter().zip(self.blocks.blocks()) {
            watch.step(0)?;
            block.times(p, &mut out[cut.clone()]);
        }
        Ok(out)
    }

    /// `Xᵀ u` for one panel, where `u` writes the rows it is asked for.
    pub(super) fn transposed_times(
        &self,
        mut u: impl FnMut(Range<usize>, &mut [Lanes<f32>]),
        watch: &Watch,
    ) -> Result<Vec<Lanes<f32>>, Error> {
        let mut g = filled("number of features", Lanes::default(), self.n_cols())?;
        let most = self.cuts.iter().map(ExactSizeIterator::len).max();
        let mut rows = filled("rows of a block", Lanes::default(), most.unwrap_or(0))?;
        for (cut, block) in self.cuts.iter().zip(self.blocks.blocks()) {
            watch.step(0)?;
            let rows = &mut rows[..cut.len()];
            u(cut.clone(), rows);
            block.add_transposed(rows, &mut g);
        }
        Ok(g)
    }

    /// `XᵀΩX p` for one panel: each block of rows serves both products while it is in cache.
    pub(super) fn normal_times(
        &self,
        weights: Option<&[f32]>,
        p: &[Lanes<f32>],
        watch: &Watch,
    ) -> Result<Vec<Lanes<f32>>, Error> {
        let mut blocks = self.blocks.blocks().iter();
        let product = |cut: Range<usize>, rows: &mut [Lanes<f32>]| {
            // As many blocks as cuts, in the same order.
            if let Some(block) = blocks.next() {
                block.times(p, rows);
            }
            if let Some(weights) = weights {
                for (lanes, &weight) in rows.iter_mut().zip(&weights[cut]) {
                    lanes.0 = lanes.0.map(|value| value * weight);
                }
            }
        };
        self.transposed_times(product, watch)
    }
}
