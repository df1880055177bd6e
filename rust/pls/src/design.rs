//! Stores a matrix in the form that the algorithm uses: scaled, optionally centred, and optionally
//! with a column of ones.
//!
//! A [`Design`] can be multiplied from the left or the right by a panel of 32 columns. Its rows are divided
//! into blocks, and every product processes one block after the other. A product of two designs therefore
//! needs a workspace for one block only ([`cross_into`]). Sparse matrices are copied into [`RowBlocks`].
//! Dense matrices are borrowed.
//!
//! Centring never makes a sparse matrix dense. Let x̄ be the column means, p and u vectors, and 1 the vector
//! of ones. Then
//!
//! ```text
//! (X − 1x̄ᵀ) p  = Xp − (x̄ᵀp) 1        Design::mean_times, Design::times
//! (X − 1x̄ᵀ)ᵀ u = Xᵀu − x̄ Σ_i u_i     Design::add_transposed, Design::center_transposed
//! ```
//!
//! A `Design` has its own columns, the *internal columns*. In a sparse matrix, columns without stored values
//! are left out. The other columns are sorted by decreasing frequency, and the column of ones comes first. In
//! a dense matrix, columns keep their order, and the column of ones comes last.

use crate::dense;
use faer::Mat;
use manylabel_base::{Error, Watch, collected, copied, filled};
use manylabel_dense::zeros;
use manylabel_sparse::{
    ColumnOrder, CsrView, DenseView, Index, LANES, Lanes, Real, RowBlocks, Value,
};
use std::ops::Range;

/// Number of rows of dense X that are converted to double precision at a time. It is large enough
/// for efficient matrix products.
pub(crate) const SLAB: usize = 256;

/// A feature matrix of the caller, sparse or dense. `I` is the index type of sparse matrices, and `T` is the
/// type of values.
#[derive(Debug, Clone, Copy)]
pub enum Matrix<'a, I, T> {
    /// Compressed sparse rows.
    Sparse(CsrView<'a, I, T>),
    /// All values, stored row by row.
    Dense(DenseView<'a, T>),
}

impl<I: Index, T: Real> Matrix<'_, I, T> {
    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        match self {
            Self::Sparse(x) => x.n_rows(),
            Self::Dense(x) => x.n_rows(),
        }
    }

    /// Returns the number of columns.
    pub fn n_cols(&self) -> usize {
        match self {
            Self::Sparse(x) => x.n_cols(),
            Self::Dense(x) => x.n_cols(),
        }
    }

    /// Returns the number of values that a product with one row reads.
    pub(crate) fn n_values(&self, row: usize) -> usize {
        match self {
            Self::Sparse(x) => x.row(row).0.len(),
            Self::Dense(x) => x.n_cols(),
        }
    }

    /// Returns the power of two that brings the largest absolute value near 1. Products of scaled values then
    /// stay in the range of single precision. Multiplying by a power of two is exact. If `ones` is true, the
    /// values of a column of ones are also taken into account.
    fn scale(&self, ones: bool) -> f64 {
        let of_row = |row: usize| match self {
            Self::Sparse(x) => x.row(row).1,
            Self::Dense(x) => x.row(row),
        };
        let values = (0..self.n_rows()).flat_map(of_row);
        let least = f64::from(u8::from(ones));
        let largest = values.fold(least, |largest, value| largest.max(value.f64().abs()));
        power_of_two_near_inverse(largest)
    }
}

/// Returns the power of two nearest to `1 / largest` on a logarithmic scale, limited to normal
/// numbers of single precision. Returns 1 if `largest` is 0.
pub(crate) fn power_of_two_near_inverse(largest: f64) -> f64 {
    if largest > 0.0 {
        2f64.powi(-(largest.log2().round().clamp(-126.0, 127.0) as i32))
    } else {
        1.0
    }
}

/// The division of the rows of X and Y into blocks, and the row weights.
pub(crate) struct Rows<T> {
    /// The rows of each block. The blocks are in order and have no gaps between them.
    pub(crate) cuts: Vec<Range<usize>>,
    /// One weight per row, scaled so that the largest weight is near 1. `None` if all weights are
    /// 1.
    pub(crate) weights: Option<Vec<T>>,
    /// Sum of the scaled weights. If there are no weights, the number of rows.
    pub(crate) total: f64,
}

impl<T: Real> Rows<T> {
    /// Returns the scaled weight of a row.
    pub(crate) fn weight(&self, row: usize) -> f64 {
        self.weights
            .as_ref()
            .map_or(1.0, |weights| weights[row].f64())
    }

    /// Returns the number of rows.
    pub(crate) fn n(&self) -> usize {
        self.cuts.last().map_or(0, |cut| cut.end)
    }

    /// Returns a buffer of zeros for the rows of the longest block. [`cross_into`] uses the buffer as a
    /// workspace.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the buffer does not fit in memory.
    pub(crate) fn buffer(&self) -> Result<Vec<Lanes<T>>, Error> {
        let longest = self.cuts.iter().map(Range::len).max().unwrap_or(0);
        filled("number of rows of a block", Lanes::default(), longest)
    }
}

/// The stored values of a [`Design`].
pub(crate) enum Cells<'a, T> {
    /// A scaled copy of the values. If there is a column of ones, the copy includes it.
    Sparse(RowBlocks<T>),
    /// The caller's values, which are not scaled. `ones` is true if there is also a column of ones.
    Dense { view: DenseView<'a, T>, ones: bool },
}

/// A matrix in the form that the algorithm uses. See the module documentation.
pub(crate) struct Design<'a, T> {
    /// The stored values, before centring.
    pub(crate) cells: Cells<'a, T>,
    /// The caller's column for each internal column of a sparse matrix (see the module documentation). The
    /// column of ones is left out. Empty for a dense matrix.
    order: Vec<u32>,
    /// Whether there is a column of ones. Its entries are multiplied by `scale`, like all values.
    pub(crate) ones: bool,
    /// The factor by which the caller's values are multiplied. It is a power of two.
    pub(crate) scale: f64,
    /// Weighted means of the scaled columns. `None` without centring.
    pub(crate) mean: Option<Vec<T>>,
    /// Diagonal of `XᵀΩX` for the scaled and centred values, where Ω is the diagonal matrix of the row
    /// weights.
    pub(crate) diagonal: Vec<f64>,
}

/// Options of a [`Design`]: whether to add a column of ones, the factor for all values, and whether
/// to subtract column means.
#[derive(Debug, Clone, Copy)]
struct Form {
    ones: bool,
    scale: f64,
    center: bool,
}

impl<'a, T: Real> Design<'a, T> {
    /// Prepares X. If `ones` is true, adds a column of ones. Values are scaled so that the largest absolute
    /// value is near 1.
    ///
    /// The time for sparse X is O(nnz(X) log z), where z is the number of entries of a row.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(crate) fn features<I: Index>(
        x: Matrix<'a, I, T>,
        rows: &Rows<T>,
        ones: bool,
        center: bool,
        watch: &Watch,
    ) -> Result<Self, Error> {
        match x {
            Matrix::Sparse(x) => Self::sparse_features(x, rows, ones, center, watch),
            Matrix::Dense(view) => {
                let form = Form {
                    ones,
                    scale: x.scale(ones),
                    center,
                };
                watch.step(0)?;
                let cells = Cells::Dense { view, ones };
                Self::new(cells, Vec::new(), rows, form, watch)
            }
        }
    }

    /// Prepares sparse X in the same way as [`features`](Self::features). The result borrows nothing.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`features`](Self::features).
    pub(crate) fn sparse_features<I: Index>(
        x: CsrView<'_, I, T>,
        rows: &Rows<T>,
        ones: bool,
        center: bool,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let form = Form {
            ones,
            scale: Matrix::Sparse(x).scale(ones),
            center,
        };
        watch.step(0)?;
        Self::sparse(x, rows, form, watch)
    }

    /// Prepares Y, with the columns of `order` as internal columns. Its values are not scaled. Other columns
    /// of Y must be empty, or have only explicit zeros.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(crate) fn labels<I: Index>(
        y: CsrView<'_, I, f32>,
        order: &ColumnOrder,
        rows: &Rows<T>,
        center: bool,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let form = Form {
            ones: false,
            scale: 1.0,
            center,
        };
        let blocks = RowBlocks::new(y, order, form.ones, form.scale, &rows.cuts, watch)?;
        let columns = copied("number of columns", order.columns())?;
        Self::new(Cells::Sparse(blocks), columns, rows, form, watch)
    }

    /// Copies a sparse matrix into blocks of rows. The columns of the copy are sorted by decreasing
    /// frequency.
    fn sparse<I: Index, V: Value>(
        x: CsrView<'_, I, V>,
        rows: &Rows<T>,
        form: Form,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let order = ColumnOrder::new(x)?;
        watch.step(0)?;
        let blocks = RowBlocks::new(x, &order, form.ones, form.scale, &rows.cuts, watch)?;
        Self::new(
            Cells::Sparse(blocks),
            order.into_columns(),
            rows,
            form,
            watch,
        )
    }

    /// Computes the column means and the diagonal in double precision, in one pass over the values.
    fn new(
        cells: Cells<'a, T>,
        order: Vec<u32>,
        rows: &Rows<T>,
        form: Form,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let mut design = Self {
            cells,
            order,
            ones: form.ones,
            scale: form.scale,
            mean: None,
            diagonal: Vec::new(),
        };
        let d = design.n_cols();
        let (mut sums, mut squares) = (
            filled("number of features", 0.0, d)?,
            filled("number of features", 0.0, d)?,
        );
        for (block, cut) in rows.cuts.iter().enumerate() {
            watch.step(0)?;
            design.for_each_value(block, cut, cut.clone(), |row, col, value| {
                let weighted = rows.weight(row) * value;
                sums[col] += weighted;
                squares[col] += weighted * value;
            });
        }
        if form.center {
            for (square, sum) in squares.iter_mut().zip(&sums) {
                *square = (*square - sum * sum / rows.total).max(0.0);
            }
            let mean = sums.iter().map(|sum| T::of(sum / rows.total));
            design.mean = Some(collected("number of features", mean)?);
        }
        design.diagonal = squares;
        Ok(design)
    }

    /// Returns the number of internal columns, including a column of ones (see the module
    /// documentation).
    pub(crate) fn n_cols(&self) -> usize {
        match &self.cells {
            Cells::Sparse(blocks) => blocks.n_cols(),
            Cells::Dense { view, ones } => view.n_cols() + usize::from(*ones),
        }
    }

    /// Returns the caller's column for an internal column (see the module documentation), or `None` for the
    /// column of ones.
    pub(crate) fn original(&self, col: usize) -> Option<usize> {
        match &self.cells {
            Cells::Sparse(_) => {
                let col = col.checked_sub(usize::from(self.ones))?;
                Some(self.order[col] as usize)
            }
            Cells::Dense { view, .. } => (col < view.n_cols()).then_some(col),
        }
    }

    /// Returns the index of the column of ones among the internal columns (see the module documentation).
    /// Returns `None` if there is no column of ones.
    pub(crate) fn column_of_ones(&self) -> Option<usize> {
        self.ones.then_some(match &self.cells {
            Cells::Sparse(_) => 0,
            Cells::Dense { view, .. } => view.n_cols(),
        })
    }

    /// Returns the centred values of some rows of a dense block in double precision. Each row is
    /// multiplied by `scale(row)`.
    ///
    /// `cut` is the range of rows of the block, and `slab` is the range of rows to return. The result has one
    /// column per row, so that the values of a row are adjacent in memory. In a sparse matrix, only stored
    /// values are centred.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the result does not fit in memory.
    pub(crate) fn centred(
        &self,
        block: usize,
        cut: &Range<usize>,
        slab: Range<usize>,
        scale: impl Fn(usize) -> f64,
    ) -> Result<Mat<f64>, Error> {
        let mut cells = zeros("a copy of X", self.n_cols(), slab.len())?;
        let first = slab.start;
        self.for_each_value(block, cut, slab, |row, col, value| {
            let mean = self.mean.as_ref().map_or(0.0, |mean| mean[col].f64());
            cells[(col, row - first)] = (value - mean) * scale(row);
        });
        Ok(cells)
    }

    /// Calls `take(row, column, value)` for the stored values of some rows of a block, row by row.
    /// Values are scaled but not centred.
    ///
    /// `cut` is the range of rows of the block, and `rows` is the range of rows to visit. `column` is an
    /// internal column (see the module documentation).
    pub(crate) fn for_each_value(
        &self,
        block: usize,
        cut: &Range<usize>,
        rows: Range<usize>,
        mut take: impl FnMut(usize, usize, f64),
    ) {
        match &self.cells {
            Cells::Sparse(blocks) => {
                let block = &blocks.blocks()[block];
                for row in rows {
                    let (cols, values) = block.row(row - cut.start);
                    for (&col, &value) in cols.iter().zip(values) {
                        take(row, col as usize, value.f64());
                    }
                }
            }
            Cells::Dense { view, ones } => {
                for row in rows {
                    for (col, &value) in view.row(row).iter().enumerate() {
                        take(row, col, value.f64() * self.scale);
                    }
                    if *ones {
                        take(row, view.n_cols(), self.scale);
                    }
                }
            }
        }
    }

    /// Returns `x̄ᵀ p`, which centring subtracts from every row of `Xp`. Returns `None` without
    /// centring. Sums are in double precision.
    pub(crate) fn mean_times(&self, p: &[Lanes<T>]) -> Option<Lanes<T>> {
        let mean = self.mean.as_ref()?;
        let mut sums = [0.0; LANES];
        for (mean, p) in mean.iter().zip(p) {
            for lane in 0..LANES {
                sums[lane] += mean.f64() * p.0[lane].f64();
            }
        }
        Some(Lanes::of(&sums))
    }

    /// Computes `out_i = x_i p − shift` for the rows of a block. `shift` is the result of
    /// [`mean_times`](Self::mean_times). `out` has a line for each row of `cut`.
    pub(crate) fn times(
        &self,
        block: usize,
        cut: &Range<usize>,
        p: &[Lanes<T>],
        shift: Option<&Lanes<T>>,
        out: &mut [Lanes<T>],
    ) {
        match &self.cells {
            Cells::Sparse(blocks) => blocks.blocks()[block].times(p, out),
            Cells::Dense { view, ones } => {
                let d = view.n_cols();
                dense::times(view.rows(cut.clone()), T::of(self.scale), &p[..d], out);
                if *ones {
                    for out in out.iter_mut() {
                        out.add_scaled(T::of(self.scale), &p[d]);
                    }
                }
            }
        }
        if let Some(shift) = shift {
            for out in out {
                out.add_scaled(T::of(-1.0), shift);
            }
        }
    }

    /// Computes `g_j += Σ_i x_ij u_i` over the rows of a block, before centring.
    pub(crate) fn add_transposed(
        &self,
        block: usize,
        cut: &Range<usize>,
        u: &[Lanes<T>],
        g: &mut [Lanes<T>],
    ) {
        match &self.cells {
            Cells::Sparse(blocks) => blocks.blocks()[block].add_transposed(u, g),
            Cells::Dense { view, ones } => {
                let d = view.n_cols();
                dense::add_transposed(view.rows(cut.clone()), T::of(self.scale), u, &mut g[..d]);
                if *ones {
                    for u in u {
                        g[d].add_scaled(T::of(self.scale), u);
                    }
                }
            }
        }
    }

    /// Computes `g_j −= x̄_j sum`, where `sum` is the sum of u over all rows. This step completes the product
    /// `g += Xᵀ u` for centred X. Without centring, the function does nothing.
    pub(crate) fn center_transposed(&self, sum: &[f64; LANES], g: &mut [Lanes<T>]) {
        if let Some(mean) = &self.mean {
            let sum = Lanes::of(&sum.map(|sum| -sum));
            for (&mean, g) in mean.iter().zip(g) {
                g.add_scaled(mean, &sum);
            }
        }
    }
}

/// Returns `toᵀ Ω from p` as a new vector with a line for each column of `to`. Ω is the diagonal matrix of
/// the row weights.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
/// requested a stop.
pub(crate) fn cross<T: Real>(
    rows: &Rows<T>,
    from: &Design<'_, T>,
    to: &Design<'_, T>,
    p: &[Lanes<T>],
    watch: &Watch,
) -> Result<Vec<Lanes<T>>, Error> {
    let mut g = filled("number of columns", Lanes::default(), to.n_cols())?;
    cross_into(rows, from, to, p, &mut rows.buffer()?, &mut g, watch)?;
    Ok(g)
}

/// Computes `g = toᵀ Ω from p`, one block of rows after the other. Ω is the diagonal matrix of the row
/// weights.
///
/// `p` has a line for each column of `from`, and `g` a line for each column of `to`. `buffer` comes from
/// [`Rows::buffer`]. It holds `from p` for the rows of one block. The time is O((nnz(from) + nnz(to)) · 32)
/// on the calling thread. Before each block, the function checks whether the caller has requested a stop.
///
/// # Errors
///
/// Returns [`Error::Stopped`] if the caller requested a stop. Returns [`Error::TooLarge`] if another part of
/// the process runs out of memory.
pub(crate) fn cross_into<T: Real>(
    rows: &Rows<T>,
    from: &Design<'_, T>,
    to: &Design<'_, T>,
    p: &[Lanes<T>],
    buffer: &mut [Lanes<T>],
    g: &mut [Lanes<T>],
    watch: &Watch,
) -> Result<(), Error> {
    g.fill(Lanes::default());
    let shift = from.mean_times(p);
    let mut sum = [0.0; LANES];
    for (block, cut) in rows.cuts.iter().enumerate() {
        watch.step(0)?;
        let u = &mut buffer[..cut.len()];
        from.times(block, cut, p, shift.as_ref(), u);
        if let Some(weights) = &rows.weights {
            for (u, &weight) in u.iter_mut().zip(&weights[cut.clone()]) {
                u.0 = u.0.map(|value| value * weight);
            }
        }
        if to.mean.is_some() {
            for u in u.iter() {
                for lane in 0..LANES {
                    sum[lane] += u.0[lane].f64();
                }
            }
        }
        to.add_transposed(block, cut, u, g);
    }
    to.center_transposed(&sum, g);
    Ok(())
}
