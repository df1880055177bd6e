//! A matrix as the algorithm sees it: scaled, optionally centred, optionally with a column of ones.
//!
//! A [`Design`] is multiplied from either side by a panel of 32 columns. Its rows are cut into blocks, and
//! every product goes from block to block, so that the rows of a product are held for one block only
//! ([`cross_into`]). Sparse matrices are copied into [`RowBlocks`], dense ones are borrowed.
//!
//! Centring never makes a sparse matrix dense. With column means x̄, weights ω and their sum,
//!
//! ```text
//! (X − 1x̄ᵀ) p  = Xp − (x̄ᵀp) 1        Design::mean_times, Design::times
//! (X − 1x̄ᵀ)ᵀ u = Xᵀu − x̄ Σ_i u_i     Design::add_transposed, Design::center_transposed
//! ```
//!
//! A `Design` has its own order of columns. In a sparse matrix, columns without stored values are left
//! out, the others are ordered by falling frequency, and the column of ones comes first. In a dense matrix
//! columns stay in place, and the column of ones comes last.

use crate::dense;
use faer::Mat;
use manylabel_base::{Error, Watch, collected, filled};
use manylabel_dense::zeros;
use manylabel_sparse::{
    ColumnOrder, CsrView, DenseView, Index, LANES, Lanes, Real, RowBlocks, Value,
};
use std::ops::Range;

/// Rows of dense X that are converted to double precision at a time. Enough rows for an efficient product
/// of matrices.
pub(crate) const SLAB: usize = 256;

/// A feature matrix of the caller, sparse or dense. `I` is the type of sparse positions and `T` that of
/// values.
#[derive(Debug, Clone, Copy)]
pub enum Matrix<'a, I, T> {
    /// Compressed sparse rows.
    Sparse(CsrView<'a, I, T>),
    /// All values, row by row.
    Dense(DenseView<'a, T>),
}

impl<I: Index, T: Real> Matrix<'_, I, T> {
    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        match self {
            Self::Sparse(x) => x.n_rows(),
            Self::Dense(x) => x.n_rows(),
        }
    }

    /// Number of columns.
    pub fn n_cols(&self) -> usize {
        match self {
            Self::Sparse(x) => x.n_cols(),
            Self::Dense(x) => x.n_cols(),
        }
    }

    /// Number of values that a product with one row reads.
    pub(crate) fn n_values(&self, row: usize) -> usize {
        match self {
            Self::Sparse(x) => x.row(row).0.len(),
            Self::Dense(x) => x.n_cols(),
        }
    }

    /// The power of two that brings the largest absolute value near 1, so that products of scaled values
    /// stay in the range of single precision. Multiplying by it is exact. With `ones`, a column of ones
    /// counts as well.
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

/// The power of two nearest to `1 / largest` (of the logarithms), limited to normal numbers of single
/// precision. Returns 1 if `largest` is 0.
pub(crate) fn power_of_two_near_inverse(largest: f64) -> f64 {
    if largest > 0.0 {
        2f64.powi(-(largest.log2().round().clamp(-126.0, 127.0) as i32))
    } else {
        1.0
    }
}

/// The rows that X and Y share: their blocks and their weights.
pub(crate) struct Rows<T> {
    /// The rows of each block, in order and without gaps.
    pub(crate) cuts: Vec<Range<usize>>,
    /// One weight per row, scaled so that the largest is near 1. None if all weights are 1.
    pub(crate) weights: Option<Vec<T>>,
    /// Sum of the scaled weights, or the number of rows.
    pub(crate) total: f64,
}

impl<T: Real> Rows<T> {
    /// The scaled weight of a row.
    pub(crate) fn weight(&self, row: usize) -> f64 {
        self.weights
            .as_ref()
            .map_or(1.0, |weights| weights[row].f64())
    }

    /// Number of rows.
    pub(crate) fn n(&self) -> usize {
        self.cuts.last().map_or(0, |cut| cut.end)
    }

    /// Zeros for the rows of the longest block: what [`cross_into`] works in.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    pub(crate) fn buffer(&self) -> Result<Vec<Lanes<T>>, Error> {
        let longest = self.cuts.iter().map(Range::len).max().unwrap_or(0);
        filled("rows of a block", Lanes::default(), longest)
    }
}

/// The stored values of a [`Design`].
pub(crate) enum Cells<'a, T> {
    /// A scaled copy, which includes the column of ones if there is one.
    Sparse(RowBlocks<T>),
    /// The caller's values, unscaled, and whether a column of ones follows them.
    Dense { view: DenseView<'a, T>, ones: bool },
}

/// A matrix in the form that the algorithm uses; see the module.
pub(crate) struct Design<'a, T> {
    /// The stored values, before centring.
    pub(crate) cells: Cells<'a, T>,
    /// The caller's column for each own column of a sparse matrix, without the column of ones. Empty for
    /// a dense matrix.
    order: Vec<u32>,
    /// Whether there is a column of ones. Its entries are `scale`.
    pub(crate) ones: bool,
    /// The factor that the caller's values are multiplied by; a power of two.
    pub(crate) scale: f64,
    /// Weighted means of the scaled columns. None if there is no centring.
    pub(crate) mean: Option<Vec<T>>,
    /// Diagonal of `XᵀΩX` for the scaled values, after centring.
    pub(crate) diagonal: Vec<f64>,
}

/// How a matrix is used: whether a column of ones is added, the factor of all values, and whether column
/// means are subtracted.
#[derive(Debug, Clone, Copy)]
struct Form {
    ones: bool,
    scale: f64,
    center: bool,
}

impl<'a, T: Real> Design<'a, T> {
    /// Prepares X, with a column of ones if `ones` is set. Values are scaled so that the largest is near 1.
    ///
    /// Takes O(nnz(X) log(entries of a row)) time for sparse X.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], [`Error::Stopped`].
    pub(crate) fn features<I: Index>(
        x: Matrix<'a, I, T>,
        rows: &Rows<T>,
        ones: bool,
        center: bool,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let form = Form {
            ones,
            scale: x.scale(ones),
            center,
        };
        watch.step(0)?;
        match x {
            Matrix::Sparse(x) => Self::sparse(x, rows, form, watch),
            Matrix::Dense(view) => {
                let cells = Cells::Dense { view, ones };
                Self::new(cells, Vec::new(), rows, form, watch)
            }
        }
    }

    /// Prepares Y. Its values are not scaled.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], [`Error::Stopped`].
    pub(crate) fn labels<I: Index>(
        y: CsrView<'_, I, f32>,
        rows: &Rows<T>,
        center: bool,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let form = Form {
            ones: false,
            scale: 1.0,
            center,
        };
        Self::sparse(y, rows, form, watch)
    }

    /// Copies a sparse matrix into blocks of rows, with its columns by falling frequency.
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

    /// Computes means and the diagonal, in one pass over the values in double precision.
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

    /// Number of own columns, including a column of ones. Columns without stored values are not counted if
    /// the matrix is sparse.
    pub(crate) fn n_cols(&self) -> usize {
        match &self.cells {
            Cells::Sparse(blocks) => blocks.n_cols(),
            Cells::Dense { view, ones } => view.n_cols() + usize::from(*ones),
        }
    }

    /// The caller's column for an own column. None for the column of ones.
    pub(crate) fn original(&self, col: usize) -> Option<usize> {
        match &self.cells {
            Cells::Sparse(_) => {
                let col = col.checked_sub(usize::from(self.ones))?;
                Some(self.order[col] as usize)
            }
            Cells::Dense { view, .. } => (col < view.n_cols()).then_some(col),
        }
    }

    /// The own column that is the column of ones, if there is one.
    pub(crate) fn column_of_ones(&self) -> Option<usize> {
        self.ones.then_some(match &self.cells {
            Cells::Sparse(_) => 0,
            Cells::Dense { view, .. } => view.n_cols(),
        })
    }

    /// The centred values of some rows of a dense block in double precision, each row multiplied by
    /// `scale(row)`.
    ///
    /// `cut` are all rows of the block and `slab` those wanted. The result has a column for each row, so
    /// that the values of a row are written side by side. Stored values are centred, missing ones of a
    /// sparse matrix are not.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    pub(crate) fn centred(
        &self,
        block: usize,
        cut: &Range<usize>,
        slab: Range<usize>,
        scale: impl Fn(usize) -> f64,
    ) -> Result<Mat<f64>, Error> {
        let mut cells = zeros("rows of X", self.n_cols(), slab.len())?;
        let first = slab.start;
        self.for_each_value(block, cut, slab, |row, col, value| {
            let mean = self.mean.as_ref().map_or(0.0, |mean| mean[col].f64());
            cells[(col, row - first)] = (value - mean) * scale(row);
        });
        Ok(cells)
    }

    /// Calls `take(row, column, value)` for the stored values of some rows of a block, scaled but not
    /// centred, row by row.
    ///
    /// `cut` are all rows of the block and `rows` those wanted. Columns are own columns.
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

    /// `x̄ᵀ p`, which centring subtracts from every row of `Xp`. None without centring. Sums are in double
    /// precision.
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

    /// `out_i = x_i p − shift` for the rows of a block. `shift` is that of
    /// [`mean_times`](Self::mean_times), and `out` has a line for each row of `cut`.
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

    /// `g_j += Σ_i x_ij u_i` over the rows of a block, before centring.
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

    /// `g_j −= x̄_j sum`: completes `g += Xᵀ u` where X is centred. `sum` is the sum of u over all rows.
    /// Does nothing without centring.
    pub(crate) fn center_transposed(&self, sum: &[f64; LANES], g: &mut [Lanes<T>]) {
        if let Some(mean) = &self.mean {
            let sum = Lanes::of(&sum.map(|sum| -sum));
            for (&mean, g) in mean.iter().zip(g) {
                g.add_scaled(mean, &sum);
            }
        }
    }
}

/// `toᵀ Ω from p`, in a new vector with a line for each column of `to`.
///
/// # Errors
///
/// [`Error::TooLarge`], [`Error::Stopped`].
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

/// `g = toᵀ Ω from p`, one block of rows after the other.
///
/// `p` has a line for each column of `from` and `g` one for each column of `to`; `buffer` is that of
/// [`Rows::buffer`] and holds `from p` for the rows of one block. Takes O((nnz(from) + nnz(to)) · 32) time on
/// the calling thread and looks at the watch before each block.
///
/// # Errors
///
/// [`Error::Stopped`], [`Error::TooLarge`] if memory ran low elsewhere.
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
