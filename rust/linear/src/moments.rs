//! Computes the sum of dense rows and their Gram matrix, weighted by the costs of the rows. `DiSMEC` and LEML use them.

use faer::{Accum, MatMut, MatRef};
use manylabel_base::{Error, Tasks, Watch, filled, parts};
use manylabel_dense::matmul;
use manylabel_simd::wide;
use manylabel_sparse::TableRows;
use rayon::prelude::*;

/// Number of rows that are read at a time.
const ROWS: usize = 1024;

/// Number of rows that are converted to double precision at a time.
const WIDE_ROWS: usize = 256;

/// Number of rows that a thread reads at a time.
const ROWS_OF_THREAD: usize = 128;

/// Number of columns of the Gram matrix that a thread computes.
const COLUMNS: usize = 128;

/// The Gram matrix is used if the matrices of its size take at most this many bytes, or this share of X in
/// single precision.
const MOST_BYTES: usize = 64 << 20;
const MOST_SHARE: f64 = 0.3;

/// Bytes per entry of the Gram matrix: one copy and one factor in double precision, and a copy and an inverse in
/// single precision.
const BYTES: usize = 24;

/// Whether the Gram matrix is computed, and the precision of its sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GramSums {
    /// There is no Gram matrix.
    None,
    /// Products of up to 1,024 rows are summed in single precision, and their sums in double precision.
    Single,
    /// All products are summed in double precision, in twice the time. Systems with the matrix are then as accurate as
    /// systems with the rows, although its condition number is the square of theirs.
    Double,
}

/// Sums over all rows.
pub(crate) struct Moments {
    /// `Σ_i cost_i x_i`; shape (dim).
    pub(crate) sums: Vec<f64>,
    /// `Σ_i cost_i x_ij²` for each column; shape (dim).
    pub(crate) squares: Vec<f64>,
    /// The largest squared length of a row, at least 1.
    pub(crate) longest: f64,
    /// `Σ_i cost_i x_i x_iᵀ`, column by column; shape (dim, dim). Entries above the diagonal are 0. None if it is not
    /// wanted, or would take too much memory in comparison with X.
    gram: Option<Vec<f64>>,
}

impl Moments {
    /// Computes the sums in one pass over the rows, on all threads. The Gram matrix is computed if it is wanted and
    /// small in comparison with X.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(crate) fn new(
        rows: &TableRows<'_>,
        cost: &[f32],
        gram_sums: GramSums,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let (n_rows, dim) = (rows.n_rows(), rows.dim());
        let size = dim.saturating_mul(dim);
        let of_x = MOST_SHARE * size_of::<f32>() as f64 * n_rows as f64 * dim as f64;
        let has_gram = gram_sums != GramSums::None
            && size.saturating_mul(BYTES) as f64 <= of_x.max(MOST_BYTES as f64);
        let mut gram = filled("the Gram matrix", 0.0, if has_gram { size } else { 0 })?;
        let mut sums = filled("number of features", 0.0, dim)?;
        let mut squares = filled("number of features", 0.0, dim)?;
        let mut longest = 1.0f64;
        let mut block = filled("a block of rows of X", 0.0f32, ROWS.min(n_rows) * dim)?;
        let is_wide = has_gram && gram_sums == GramSums::Double;
        let n_wide = if is_wide { WIDE_ROWS.min(n_rows) } else { 0 };
        let mut wide = filled("a block of rows of X", 0.0, n_wide * dim)?;
        for first in (0..n_rows).step_by(ROWS) {
            watch.step(0)?;
            let costs = &cost[first..(first + ROWS).min(n_rows)];
            let block = &mut block[..costs.len() * dim];
            let lengths = block
                .par_chunks_mut(ROWS_OF_THREAD * dim)
                .zip(costs.par_chunks(ROWS_OF_THREAD))
                .enumerate()
                .map(|(at, (block, costs))| {
                    let first = first + at * ROWS_OF_THREAD;
                    rows.read(first..first + costs.len(), block);
                    Ok(weigh(block, costs))
                });
            longest = parts(lengths)?.into_iter().fold(longest, f64::max);
            let block = &*block;
            let strips = sums
                .par_chunks_mut(COLUMNS)
                .zip(squares.par_chunks_mut(COLUMNS));
            strips.enumerate().for_each(|(at, (sums, squares))| {
                add_sums(block, costs, dim, at * COLUMNS, sums, squares);
            });
            if gram_sums == GramSums::Single {
                let strips = gram.par_chunks_mut(COLUMNS * dim).enumerate();
                strips.try_each(|(at, strip)| {
                    watch.step(0)?;
                    add_products(block, dim, at * COLUMNS, strip)
                })?;
                continue;
            }
            for block in block.chunks(WIDE_ROWS * dim) {
                for (wide, &value) in wide.iter_mut().zip(block) {
                    *wide = f64::from(value);
                }
                let wide = &wide[..wide.len().min(block.len())];
                let strips = gram.par_chunks_mut(COLUMNS * dim).enumerate();
                strips.try_each(|(at, strip)| {
                    watch.step(0)?;
                    add_wide_products(wide, dim, at * COLUMNS, strip);
                    Ok(())
                })?;
            }
        }
        Ok(Self {
            sums,
            squares,
            longest,
            gram: has_gram.then_some(gram),
        })
    }

    /// Returns the Gram matrix with both triangles, column by column, or None if there is none.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Stopped`] if the caller requested a stop.
    pub(crate) fn into_gram(self, watch: &Watch) -> Result<Option<Vec<f64>>, Error> {
        let dim = self.sums.len();
        let Some(mut gram) = self.gram else {
            return Ok(None);
        };
        for col in 0..dim {
            watch.step(0)?;
            for row in col + 1..dim {
                gram[row * dim + col] = gram[col * dim + row];
            }
        }
        Ok(Some(gram))
    }

    /// Returns the Gram matrix, of which only the lower triangle is filled, or None if there is none.
    pub(crate) fn gram(&self) -> Option<MatRef<'_, f64>> {
        let dim = self.sums.len();
        let gram = self.gram.as_deref();
        gram.map(|gram| MatRef::from_column_major_slice(gram, dim, dim))
    }
}

/// Multiplies rows by the square roots of their costs. Returns the largest squared length of the original rows.
fn weigh(block: &mut [f32], costs: &[f32]) -> f64 {
    let dim = block.len() / costs.len();
    let mut longest = 0.0f64;
    for (row, cost) in block.chunks_mut(dim).zip(costs) {
        let length: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
        longest = longest.max(length);
        let root = cost.sqrt();
        for x in row {
            *x *= root;
        }
    }
    longest
}

/// Adds the sums of some columns of a block of weighted rows. The columns begin at `first`.
#[wide]
fn add_sums(
    block: &[f32],
    costs: &[f32],
    dim: usize,
    first: usize,
    sums: &mut [f64],
    squares: &mut [f64],
) {
    for (row, cost) in block.chunks(dim).zip(costs) {
        let root = f64::from(cost.sqrt());
        let columns = row[first..].iter().zip(sums.iter_mut().zip(&mut *squares));
        for (&x, (sum, square)) in columns {
            *sum += root * f64::from(x);
            *square += f64::from(x) * f64::from(x);
        }
    }
}

/// Adds the products of a block of weighted rows to some columns of the Gram matrix, in double precision.
fn add_wide_products(block: &[f64], dim: usize, first: usize, strip: &mut [f64]) {
    let width = strip.len() / dim;
    let block = MatRef::from_row_major_slice(block, block.len() / dim, dim);
    let strip = MatMut::from_column_major_slice_mut(strip, dim, width);
    matmul(
        strip.subrows_mut(first, dim - first),
        Accum::Add,
        block.subcols(first, dim - first).transpose(),
        block.subcols(first, width),
        1.0,
    );
}

/// Adds the products of a block of weighted rows to some columns of the Gram matrix, from the diagonal on.
fn add_products(block: &[f32], dim: usize, first: usize, strip: &mut [f64]) -> Result<(), Error> {
    let (height, width) = (dim - first, strip.len() / dim);
    let mut products = filled("the Gram matrix", 0.0f32, height * width)?;
    let block = MatRef::from_row_major_slice(block, block.len() / dim, dim);
    matmul(
        MatMut::from_column_major_slice_mut(&mut products, height, width),
        Accum::Replace,
        block.subcols(first, height).transpose(),
        block.subcols(first, width),
        1.0,
    );
    let columns = strip.chunks_mut(dim).zip(products.chunks(height));
    for (at, (column, products)) in columns.enumerate() {
        for (entry, &product) in column[first + at..].iter_mut().zip(&products[at..]) {
            *entry += f64::from(product);
        }
    }
    Ok(())
}
