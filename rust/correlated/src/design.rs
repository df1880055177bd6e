//! Prepares the features of the training rows for the fit. Features are scaled to unit variance and
//! centred, and rows are divided into blocks.
//!
//! A [`Design`] is dense if more than half of the values of the non-constant features are not zero.
//! Otherwise it is sparse. A dense design stores all centred values. A sparse design stores only
//! values that are not zero, without centring them. Products are then computed with uncentred
//! values, and the caller corrects them with the means in [`Design::shift`]. Constant features are
//! left out, because the intercept already represents them.
//!
//! The size of blocks is chosen for the cache. The log-odds of a block stay in the cache while they
//! are computed, converted to residuals and multiplied by the transposed block.

use crate::wide::{
    Float, Wide, dense_add_transposed, dense_times, sparse_add_transposed, sparse_times,
};
use manylabel_base::{Error, Watch, collected, copied, filled};
use manylabel_sparse::{ColumnOrder, CsrView, Index, RowBlock, RowBlocks, Sparse, Value};
use std::ops::Range;

/// Number of rows of a dense block. Two products in succession read a block. A block of this size
/// stays in the second-level cache between the two products.
const DENSE_ROWS: usize = 256;

/// Number of rows of a sparse block if there are few labels. Few labels do not occupy all threads,
/// so the rows are divided among the threads instead.
const FEW_ROWS: usize = 512;

/// Number of rows that are processed between two checks for a stop request.
const ROWS_OF_STEP: usize = 4096;

/// Means and standard deviations of the features, weighted by the row weights.
pub(crate) struct Scales {
    /// The mean of each original feature.
    pub(crate) mean: Vec<f64>,
    /// The standard deviation of each original feature. It is 0 for constant features.
    pub(crate) deviation: Vec<f64>,
    /// The number that is subtracted from each value of a feature before scaling, also in a sparse
    /// design. It is the mean for features without zeros, and 0 for all other features.
    ///
    /// A feature with zeros in some rows has a mean and a standard deviation of similar size. A
    /// feature without zeros, such as a date, may vary little around a large mean. Without the
    /// subtraction, the values of such a feature would lose digits.
    offset: Vec<f64>,
    /// Whether most values of the non-constant features are not zero.
    pub(crate) dense: bool,
    /// The weighted mean of `‖x‖²` over the rows. x contains only the non-constant features, scaled
    /// as in the fit.
    pub(crate) square: f64,
}

impl Scales {
    /// Computes means and standard deviations in two passes over `x`. `omega` holds the row
    /// weights, which sum to 1.
    ///
    /// A feature counts as constant if its standard deviation is at most `n_rows · ε · |mean|`,
    /// where ε is the machine epsilon of double precision.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the square of a value is not finite. Returns [`Error::TooLarge`]
    /// if there is not enough memory. Returns [`Error::Stopped`] if the caller requested a stop.
    pub(crate) fn new<I: Index, V: Value>(
        x: CsrView<'_, I, V>,
        omega: &[f64],
        watch: &Watch,
    ) -> Result<Self, Error> {
        let mut mean = filled("number of features", 0.0, x.n_cols())?;
        let mut stored = filled("number of features", 0.0, x.n_cols())?;
        let mut counts = filled("number of features", 0usize, x.n_cols())?;
        for (row, &weight) in omega.iter().enumerate() {
            if row % ROWS_OF_STEP == 0 {
                watch.step(0)?;
            }
            let (cols, values) = x.row(row);
            for (col, value) in cols.iter().zip(values) {
                // Stored zeros are treated like zeros that are not stored, so that results are
                // exactly the same.
                if value.f64() != 0.0 {
                    mean[col.get()] += weight * value.f64();
                    stored[col.get()] += weight;
                    counts[col.get()] += 1;
                }
            }
        }
        let mut deviation = filled("number of features", 0.0, x.n_cols())?;
        for (row, &weight) in omega.iter().enumerate() {
            if row % ROWS_OF_STEP == 0 {
                watch.step(0)?;
            }
            let (cols, values) = x.row(row);
            for (col, value) in cols.iter().zip(values) {
                let col = col.get();
                if value.f64() != 0.0 {
                    deviation[col] += weight * (value.f64() - mean[col]).powi(2);
                }
            }
        }
        let mut offset = filled("number of features", 0.0, x.n_cols())?;
        // `rounding` is the largest standard deviation that rounding errors may cause for a
        // constant feature, relative to the mean of the feature.
        let rounding = x.n_rows() as f64 * f64::EPSILON;
        let (mut kept, mut nonzero) = (0, 0);
        for col in 0..x.n_cols() {
            let rest = (1.0 - stored[col]).max(0.0) * mean[col].powi(2);
            let found = (deviation[col] + rest).sqrt();
            if !found.is_finite() {
                return Err(Error::Param {
                    name: "X",
                    expected: "small enough that the squares of its values are finite",
                    got: format!("a mean of {:e} in feature {col}", mean[col]),
                });
            }
            deviation[col] = 0.0;
            if counts[col] == x.n_rows() {
                offset[col] = mean[col];
            }
            if found > rounding * mean[col].abs() {
                deviation[col] = found;
                kept += 1;
                nonzero += counts[col];
            }
        }
        Ok(Self {
            mean,
            deviation,
            offset,
            dense: nonzero > kept * x.n_rows() / 2,
            square: kept as f64,
        })
    }

    /// Replaces the scales by scales that do not change the features: means and offsets are 0, and
    /// standard deviations are 1. The standard deviation of constant features stays 0, so these
    /// features are still left out.
    pub(crate) fn unscaled(mut self) -> Self {
        self.square = 0.0;
        for (mean, deviation) in self.mean.iter_mut().zip(&mut self.deviation) {
            if *deviation > 0.0 {
                self.square += *mean * *mean + *deviation * *deviation;
                *deviation = 1.0;
            }
            *mean = 0.0;
        }
        self.offset.fill(0.0);
        self
    }

    /// Divides the rows into blocks. The size of a block depends on the number of rows and of
    /// stored values. `few_labels` is true if there are too few labels to occupy all threads. The
    /// blocks are then smaller, so that they can be divided among the threads.
    ///
    /// The blocks depend only on the data, never on the number of threads.
    pub(crate) fn cut(&self, x: Sparse<'_>, few_labels: bool) -> Result<Vec<Range<usize>>, Error> {
        let most = match (self.dense, few_labels) {
            (true, _) => DENSE_ROWS,
            (false, true) => FEW_ROWS,
            (false, false) => RowBlocks::<f32>::MAX_ROWS,
        };
        let cuts = RowBlocks::<f32>::cut(x.n_rows(), |row| x.n_nonzero(row));
        let split = cuts.into_iter().flat_map(|rows| {
            let end = rows.end;
            rows.step_by(most)
                .map(move |first| first..end.min(first + most))
        });
        collected("number of rows", split)
    }
}

/// The values of the rows.
enum Rows<T> {
    /// All values after centring and scaling, stored row by row.
    Dense(Vec<T>),
    /// The values that are not zero. They are scaled but not centred. Each block is stored both by
    /// row and by column.
    Sparse(RowBlocks<T>),
}

/// The non-constant features, each divided by its standard deviation.
pub(crate) struct Design<T> {
    /// The values.
    rows: Rows<T>,
    /// The rows of each block, in order.
    cuts: Vec<Range<usize>>,
    /// For each column of the design, the number of the original feature. Sparse columns are sorted
    /// by decreasing frequency. Dense columns keep the original order.
    pub(crate) columns: Vec<u32>,
    /// The mean of each column. The caller subtracts it, because stored values are not centred.
    /// Empty for a dense design, because its columns are centred.
    pub(crate) shift: Vec<f64>,
    /// The number of values that are read to multiply all rows by a vector.
    stored: usize,
}

impl<T: Float> Design<T> {
    /// Copies the features of `x`, scaled by `scales`, into the blocks of rows given by `cuts`.
    ///
    /// A dense design takes `n_rows × width` numbers, where `width` is the number of non-constant
    /// features. A sparse design stores each value twice, by row and by column.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    pub(crate) fn new<I: Index, V: Value>(
        x: CsrView<'_, I, V>,
        scales: &Scales,
        cuts: &[Range<usize>],
        watch: &Watch,
    ) -> Result<Self, Error> {
        let cuts = copied("number of rows", cuts)?;
        if scales.dense {
            let varies = |col: &u32| scales.deviation[*col as usize] > 0.0;
            let columns = (0..x.n_cols() as u32).filter(varies);
            let columns = collected("number of features", columns)?;
            let d = columns.len();
            let mut values = filled("the matrix of features", T::default(), x.n_rows() * d)?;
            let mut row_of = filled("number of features", 0.0, x.n_cols())?;
            for (row, out) in values.chunks_exact_mut(d).enumerate() {
                if row % DENSE_ROWS == 0 {
                    watch.step(0)?;
                }
                let (cols, vals) = x.row(row);
                for (col, value) in cols.iter().zip(vals) {
                    row_of[col.get()] = value.f64();
                }
                for (out, &col) in out.iter_mut().zip(&columns) {
                    let col = col as usize;
                    *out = T::of((row_of[col] - scales.mean[col]) / scales.deviation[col]);
                }
                for col in cols {
                    row_of[col.get()] = 0.0;
                }
            }
            return Ok(Self {
                stored: values.len(),
                rows: Rows::Dense(values),
                cuts,
                columns,
                shift: Vec::new(),
            });
        }
        let mut scaled = filled("the matrix of features", 0.0, x.nnz())?;
        let mut at = 0;
        for row in 0..x.n_rows() {
            if row % ROWS_OF_STEP == 0 {
                watch.step(0)?;
            }
            let (cols, values) = x.row(row);
            for (col, value) in cols.iter().zip(values) {
                let deviation = scales.deviation[col.get()];
                if deviation > 0.0 {
                    scaled[at] = (value.f64() - scales.offset[col.get()]) / deviation;
                }
                at += 1;
            }
        }
        let x = x.with_values(&scaled)?;
        let order = ColumnOrder::new(x)?;
        let columns = copied("number of features", order.columns())?;
        let shift = columns.iter().map(|&col| {
            let col = col as usize;
            (scales.mean[col] - scales.offset[col]) / scales.deviation[col]
        });
        let shift = collected("number of features", shift)?;
        let rows = RowBlocks::new(x, &order, false, 1.0, &cuts, watch)?;
        let of_block = |block: &RowBlock<T>| {
            let rows = 0..block.n_rows();
            rows.map(|row| block.row(row).0.len()).sum::<usize>()
        };
        Ok(Self {
            stored: rows.blocks().iter().map(of_block).sum(),
            rows: Rows::Sparse(rows),
            cuts,
            columns,
            shift,
        })
    }

    /// Returns the number of non-constant features.
    pub(crate) fn width(&self) -> usize {
        self.columns.len()
    }

    /// Returns the number of values that are read to multiply all rows by a vector.
    pub(crate) fn stored(&self) -> usize {
        self.stored
    }

    /// Returns the rows of each block.
    pub(crate) fn cuts(&self) -> &[Range<usize>] {
        &self.cuts
    }

    /// Computes `out_i = first + Σ_j x_ij p_j` for the rows i of a block. x holds the stored
    /// values. In a sparse design they are not centred; see [`shift`](Self::shift).
    ///
    /// `p` has one entry per column, and `out` has one entry per row of the block.
    pub(crate) fn times<const N: usize>(
        &self,
        block: usize,
        first: Wide<T, N>,
        p: &[Wide<T, N>],
        out: &mut [Wide<T, N>],
    ) {
        match &self.rows {
            Rows::Dense(values) => dense_times(self.dense(values, block), first, p, out),
            Rows::Sparse(blocks) => sparse_times(&blocks.blocks()[block], first, p, out),
        }
    }

    /// Computes `g_j += Σ_i x_ij u_i` over the rows i of a block. x holds the stored values. In a
    /// sparse design they are not centred; see [`shift`](Self::shift).
    pub(crate) fn add_transposed<const N: usize>(
        &self,
        block: usize,
        u: &[Wide<T, N>],
        g: &mut [Wide<T, N>],
    ) {
        match &self.rows {
            Rows::Dense(values) => dense_add_transposed(self.dense(values, block), u, g),
            Rows::Sparse(blocks) => sparse_add_transposed(&blocks.blocks()[block], u, g),
        }
    }

    /// Copies up to N columns of a block to `out`: the k-th column of `cols` goes to lane k. `out`
    /// has one entry of N lanes per row of the block, and must be zero. The values are copied as
    /// they are stored.
    pub(crate) fn columns<const N: usize>(
        &self,
        block: usize,
        cols: Range<usize>,
        out: &mut [Wide<T, N>],
    ) {
        match &self.rows {
            Rows::Dense(values) => {
                let rows = self.dense(values, block).chunks_exact(self.width().max(1));
                for (row, out) in rows.zip(out) {
                    for (value, out) in row[cols.clone()].iter().zip(&mut out.0) {
                        *out = *value;
                    }
                }
            }
            Rows::Sparse(blocks) => {
                for (col, rows, values) in blocks.blocks()[block].columns(cols.clone()) {
                    for (&row, &value) in rows.iter().zip(values) {
                        out[row as usize].0[col - cols.start] = value;
                    }
                }
            }
        }
    }

    /// Returns the values of one block of a dense design.
    fn dense<'a>(&self, values: &'a [T], block: usize) -> &'a [T] {
        let rows = &self.cuts[block];
        &values[rows.start * self.width()..rows.end * self.width()]
    }
}
