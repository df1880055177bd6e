//! Defines X in the form that the solvers need: products with panels of 32 columns, in both directions, and
//! products with `XᵀΩX`.
//!
//! Sparse rows are copied. Dense rows are read block by block and never copied. For dense rows, the matrix `XᵀΩX` is
//! computed once if it is small in comparison with X. A product with it then takes O(features²) time, and X is not
//! read.

use crate::moments::{GramSums, Moments};
use faer::{Accum, MatMut, MatRef};
use manylabel_base::{Error, Watch, collected, filled};
use manylabel_dense::matmul;
use manylabel_sparse::{ColumnOrder, CsrView, LANES, Lanes, RowBlocks, TableRows};
use std::ops::Range;

/// The purpose of memory in error messages.
const BLOCK: &str = "a block of rows of X";

/// The number of values of dense rows that a thread reads at a time. They fit in the second-level cache.
const VALUES_OF_BLOCK: usize = 1 << 17;

/// The largest number of dense rows that a thread reads at a time.
const ROWS_OF_BLOCK: usize = 512;

/// X, and `XᵀΩX` for the weights Ω of the training rows.
pub(super) struct Design<'a> {
    form: Form<'a>,
    /// The features that are not 0 in every row, in increasing order, and the column of each.
    pub(super) columns: Vec<(u32, usize)>,
    /// The column of ones, if intercepts are fitted.
    pub(super) ones: Option<usize>,
    pub(super) n_rows: usize,
    normal: Normal,
}

/// The rows of X.
enum Form<'a> {
    /// X, stored by row and by column. If intercepts are fitted, the first column has ones. The other columns are
    /// sorted by decreasing frequency. Each block has the rows of a range.
    Sparse(RowBlocks<f32>, Vec<Range<usize>>),
    /// The columns in their order. If intercepts are fitted, the last column has ones.
    Dense(TableRows<'a>),
}

/// `XᵀΩX` for some weights Ω of the rows, or only its diagonal.
pub(super) struct Normal {
    /// The diagonal.
    pub(super) squares: Vec<f32>,
    /// All entries, column by column. They are in double precision, because small eigenvalues are squares of singular
    /// values of X. None if X is sparse, or if the matrix is not wanted or not small in comparison with X.
    entries: Option<Vec<f64>>,
}

impl Design<'static> {
    /// Copies sparse rows. If `ones` is true, a column of ones is added. `weights` holds the weights of the rows. If it
    /// is None, all weights are 1. The copy takes 14 bytes per stored value.
    ///
    /// # Errors
    ///
    /// All methods that return a `Result` return [`Error::TooLarge`] if there is not enough memory.
    /// They return [`Error::Stopped`] if the caller requested a stop.
    pub(super) fn sparse(
        x: CsrView<'_, u32, f32>,
        ones: bool,
        weights: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let order = ColumnOrder::new(x)?;
        let cuts = RowBlocks::<f32>::cut(x.n_rows(), |row| x.row(row).0.len() + 1);
        let blocks = RowBlocks::new(x, &order, ones, 1.0, &cuts, watch)?;
        let squares = squares(&blocks, &cuts, weights)?;
        let columns = order.into_columns().into_iter().zip(usize::from(ones)..);
        let mut columns = collected("number of features", columns)?;
        columns.sort_unstable();
        Ok(Self {
            form: Form::Sparse(blocks, cuts),
            columns,
            ones: ones.then_some(0),
            n_rows: x.n_rows(),
            normal: Normal {
                squares,
                entries: None,
            },
        })
    }
}

impl<'a> Design<'a> {
    /// Borrows dense rows, whose last column has ones if `ones` is true. `moments` are those of the rows with the
    /// weights of the training set.
    pub(super) fn dense(
        rows: TableRows<'a>,
        ones: bool,
        moments: Moments,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let n_features = rows.dim() - usize::from(ones);
        let squares = moments.squares[..n_features].iter().enumerate();
        let seen = squares.filter(|(_, square)| **square > 0.0);
        Ok(Self {
            columns: collected("number of features", seen.map(|(at, _)| (at as u32, at)))?,
            ones: ones.then_some(n_features),
            n_rows: rows.n_rows(),
            normal: Normal::of(moments, watch)?,
            form: Form::Dense(rows),
        })
    }

    /// Returns the number of columns, including the column of ones.
    pub(super) fn n_cols(&self) -> usize {
        self.normal.squares.len()
    }

    /// Returns `XᵀΩX` for the weights of the training set.
    pub(super) fn normal(&self) -> &Normal {
        &self.normal
    }

    /// Computes `XᵀΩX` for other weights of the rows.
    pub(super) fn normal_of(&self, weights: &[f32], watch: &Watch) -> Result<Normal, Error> {
        match &self.form {
            Form::Sparse(blocks, cuts) => Ok(Normal {
                squares: squares(blocks, cuts, Some(weights))?,
                entries: None,
            }),
            Form::Dense(rows) => {
                Normal::of(Moments::new(rows, weights, gram_sums(rows), watch)?, watch)
            }
        }
    }

    /// Computes `X p` on the calling thread. p is one panel (a group of columns) with `n_cols`
    /// rows.
    pub(super) fn times(&self, p: &[Lanes<f32>], watch: &Watch) -> Result<Vec<Lanes<f32>>, Error> {
        let mut out = filled("number of rows", Lanes::default(), self.n_rows)?;
        match &self.form {
            Form::Sparse(blocks, cuts) => {
                for (cut, block) in cuts.iter().zip(blocks.blocks()) {
                    watch.step(0)?;
                    block.times(p, &mut out[cut.clone()]);
                }
            }
            Form::Dense(rows) => {
                let keep = |range: Range<usize>, lanes: &mut [Lanes<f32>]| {
                    out[range].copy_from_slice(lanes);
                };
                each_block(rows, Some(p), keep, None, watch)?;
            }
        }
        Ok(out)
    }

    /// Computes `Xᵀ u` on the calling thread, where u is one panel (a group of columns). u is not
    /// stored: the function `u` is called with a range of rows and writes these rows.
    pub(super) fn transposed_times(
        &self,
        mut u: impl FnMut(Range<usize>, &mut [Lanes<f32>]),
        watch: &Watch,
    ) -> Result<Vec<Lanes<f32>>, Error> {
        let mut g = filled("number of features", Lanes::default(), self.n_cols())?;
        match &self.form {
            Form::Sparse(blocks, cuts) => {
                let most = cuts.iter().map(ExactSizeIterator::len).max();
                let mut lanes = filled(BLOCK, Lanes::default(), most.unwrap_or(0))?;
                for (cut, block) in cuts.iter().zip(blocks.blocks()) {
                    watch.step(0)?;
                    let lanes = &mut lanes[..cut.len()];
                    u(cut.clone(), lanes);
                    block.add_transposed(lanes, &mut g);
                }
            }
            Form::Dense(rows) => each_block(rows, None, u, Some(&mut g), watch)?,
        }
        Ok(g)
    }

    /// Computes `XᵀΩX p`, where p is one panel (a group of columns), and `normal` and `weights` belong to the same Ω.
    /// If `normal` has only the diagonal, X is divided into blocks of rows. The two products with a block are computed
    /// while the block is in the cache.
    pub(super) fn normal_times(
        &self,
        normal: &Normal,
        weights: Option<&[f32]>,
        p: &[Lanes<f32>],
        watch: &Watch,
    ) -> Result<Vec<Lanes<f32>>, Error> {
        let weigh = |range: Range<usize>, lanes: &mut [Lanes<f32>]| {
            if let Some(weights) = weights {
                for (lanes, &weight) in lanes.iter_mut().zip(&weights[range]) {
                    lanes.0 = lanes.0.map(|value| value * weight);
                }
            }
        };
        let mut g = filled("number of features", Lanes::default(), p.len())?;
        match (&self.form, &normal.entries) {
            (_, Some(entries)) => {
                watch.step(0)?;
                let wide = p.iter().flat_map(|lanes| lanes.0).map(f64::from);
                let wide = collected("the factor matrix", wide)?;
                let mut product = filled("the factor matrix", 0.0, p.len() * LANES)?;
                matmul(
                    MatMut::from_row_major_slice_mut(&mut product, p.len(), LANES),
                    Accum::Replace,
                    MatRef::from_column_major_slice(entries, p.len(), p.len()),
                    MatRef::from_row_major_slice(&wide, p.len(), LANES),
                    1.0,
                );
                for (lanes, sums) in g.iter_mut().zip(product.as_chunks().0) {
                    *lanes = Lanes::of(sums);
                }
            }
            (Form::Sparse(blocks, _), None) => {
                let mut blocks = blocks.blocks().iter();
                let product = |range: Range<usize>, lanes: &mut [Lanes<f32>]| {
                    // The ranges and the blocks are in the same order.
                    if let Some(block) = blocks.next() {
                        block.times(p, lanes);
                    }
                    weigh(range, lanes);
                };
                g = self.transposed_times(product, watch)?;
            }
            (Form::Dense(rows), None) => each_block(rows, Some(p), weigh, Some(&mut g), watch)?,
        }
        Ok(g)
    }
}

impl Normal {
    /// Takes the sums of dense rows.
    fn of(moments: Moments, watch: &Watch) -> Result<Self, Error> {
        let squares = moments.squares.iter().map(|&square| square as f32);
        Ok(Self {
            squares: collected("number of features", squares)?,
            entries: moments.into_gram(watch)?,
        })
    }
}

/// Returns how to compute `XᵀX` for dense rows: in double precision if a product with it takes less time than a product
/// with X and one with its transpose.
pub(super) fn gram_sums(rows: &TableRows<'_>) -> GramSums {
    if rows.dim() <= 2 * rows.n_rows() {
        GramSums::Double
    } else {
        GramSums::None
    }
}

/// Computes `Σ_i ω_i x_ij²` for each column j, where `ω_i` is the weight of row i.
fn squares(
    blocks: &RowBlocks<f32>,
    cuts: &[Range<usize>],
    weights: Option<&[f32]>,
) -> Result<Vec<f32>, Error> {
    let mut squares = filled("number of features", 0.0, blocks.n_cols())?;
    for (cut, block) in cuts.iter().zip(blocks.blocks()) {
        for row in cut.clone() {
            let weight = weights.map_or(1.0, |weights| f64::from(weights[row]));
            let (cols, values) = block.row(row - cut.start);
            for (&col, &value) in cols.iter().zip(values) {
                squares[col as usize] += weight * f64::from(value).powi(2);
            }
        }
    }
    collected("number of features", squares.iter().map(|&sum| sum as f32))
}

/// Reads blocks of dense rows B, in order. For each block, computes `u = B p`, if p is given, calls `visit` with the
/// range of rows and u, and adds `Bᵀ u` to `g`, if it is given. p, u and g are panels (groups of 32 columns).
fn each_block(
    rows: &TableRows<'_>,
    p: Option<&[Lanes<f32>]>,
    mut visit: impl FnMut(Range<usize>, &mut [Lanes<f32>]),
    g: Option<&mut [Lanes<f32>]>,
    watch: &Watch,
) -> Result<(), Error> {
    let (n_rows, dim) = (rows.n_rows(), rows.dim());
    let most = (VALUES_OF_BLOCK / dim.max(1)).clamp(1, ROWS_OF_BLOCK);
    let most = most.min(n_rows);
    let mut block = filled(BLOCK, 0.0, most * dim)?;
    let mut lanes = filled(BLOCK, Lanes::default(), most)?;
    let mut product = flat(&lanes)?;
    let p = p.map(flat).transpose()?;
    let mut sums = g.as_deref().map(flat).transpose()?;
    for first in (0..n_rows).step_by(most.max(1)) {
        watch.step(0)?;
        let range = first..(first + most).min(n_rows);
        let lanes = &mut lanes[..range.len()];
        let product = &mut product[..range.len() * LANES];
        rows.read(range.clone(), &mut block);
        let block = MatRef::from_row_major_slice(&block[..range.len() * dim], range.len(), dim);
        if let Some(p) = &p {
            multiply(product, Accum::Replace, block, p);
            read(product, lanes);
        }
        visit(range, lanes);
        if let Some(sums) = &mut sums {
            write(lanes, product);
            multiply(sums, Accum::Add, block.transpose(), product);
        }
    }
    if let (Some(g), Some(sums)) = (g, sums) {
        read(&sums, g);
    }
    Ok(())
}

/// Replaces `to` by the product of a matrix and a panel, or adds the product to `to`. The numbers of both panels are
/// contiguous, row after row.
fn multiply(to: &mut [f32], accum: Accum, matrix: MatRef<'_, f32>, panel: &[f32]) {
    let to = MatMut::from_row_major_slice_mut(to, matrix.nrows(), LANES);
    let panel = MatRef::from_row_major_slice(panel, matrix.ncols(), LANES);
    matmul(to, accum, matrix, panel, 1.0);
}

/// Returns the numbers of a panel, row after row.
fn flat(lanes: &[Lanes<f32>]) -> Result<Vec<f32>, Error> {
    let mut all = filled("the factor matrix", 0.0, lanes.len() * LANES)?;
    write(lanes, &mut all);
    Ok(all)
}

fn write(lanes: &[Lanes<f32>], all: &mut [f32]) {
    for (to, from) in all.as_chunks_mut().0.iter_mut().zip(lanes) {
        *to = from.0;
    }
}

fn read(all: &[f32], lanes: &mut [Lanes<f32>]) {
    for (to, from) in lanes.iter_mut().zip(all.as_chunks().0) {
        to.0 = *from;
    }
}
