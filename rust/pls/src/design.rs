//! A matrix as the algorithm sees it: scaled, perhaps centred, perhaps with a column of ones, and
//! multiplied from either side by thirty-two columns at a time.

use crate::dense;
use faer::Mat;
use manylabel_base::{Error, Watch, collected, filled};
use manylabel_dense::zeros;
use manylabel_sparse::{
    ColumnOrder, CsrView, DenseView, Index, LANES, Lanes, Real, RowBlocks, Value,
};
use std::ops::Range;

/// Rows of dense X that are made a slab of doubles at a time: long enough for products of matrices.
pub(crate) const SLAB: usize = 256;

/// A matrix of the caller's.
#[derive(Debug, Clone, Copy)]
pub enum Matrix<'a, I, T> {
    /// Compressed sparse rows.
    Sparse(CsrView<'a, I, T>),
    /// Rows of all values.
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

    /// Values that products with one row read.
    pub(crate) fn n_values(&self, row: usize) -> usize {
        match self {
            Self::Sparse(x) => x.row(row).0.len(),
            Self::Dense(x) => x.n_cols(),
        }
    }

    /// The power of two that brings the largest value near 1, so that no product of scaled values
    /// leaves the range of single precision. Multiplying by it is exact.
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

/// A power of two close to `1 / largest`, itself within single precision; 1 for 0.
pub(crate) fn power_of_two_near_inverse(largest: f64) -> f64 {
    if largest > 0.0 {
        2f64.powi(-(largest.log2().round().clamp(-126.0, 127.0) as i32))
    } else {
        1.0
    }
}

/// The rows all matrices of a problem share: how they are cut, and their weights.
pub(crate) struct Rows<T> {
    pub(crate) cuts: Vec<Range<usize>>,
    /// The largest is near 1; absent if all are 1.
    pub(crate) weights: Option<Vec<T>>,
    /// Sum of the weights.
    pub(crate) total: f64,
}

impl<T: Real> Rows<T> {
    pub(crate) fn weight(&self, row: usize) -> f64 {
        self.weights
            .as_ref()
            .map_or(1.0, |weights| weights[row].f64())
    }

    pub(crate) fn n(&self) -> usize {
        self.cuts.last().map_or(0, |cut| cut.end)
    }

    /// Room for the rows of the longest block.
    pub(crate) fn buffer(&self) -> Result<Vec<Lanes<T>>, Error> {
        let longest = self.cuts.iter().map(Range::len).max().unwrap_or(0);
        filled("rows of a block", Lanes::default(), longest)
    }
}

pub(crate) enum Cells<'a, T> {
    Sparse(RowBlocks<T>),
    Dense { view: DenseView<'a, T>, ones: bool },
}

/// See the module. Columns are in the order of the algorithm's own choice.
pub(crate) struct Design<'a, T> {
    pub(crate) cells: Cells<'a, T>,
    /// Original columns; empty if columns are as they were.
    order: Vec<u32>,
    ones: bool,
    /// What original values are multiplied by.
    pub(crate) scale: f64,
    /// Weighted means of the columns, if these are to be subtracted.
    pub(crate) mean: Option<Vec<T>>,
    /// Diagonal of `XᵀΩX`, after centring.
    pub(crate) diagonal: Vec<f64>,
}

/// How a matrix is used: whether a column of ones is added, what values are multiplied by, and whether
/// means are subtracted.
#[derive(Debug, Clone, Copy)]
struct Form {
    ones: bool,
    scale: f64,
    center: bool,
}

impl<'a, T: Real> Design<'a, T> {
    /// X, perhaps with a column of ones.
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

    /// Y.
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

    /// Number of columns, but for empty ones of a sparse matrix.
    pub(crate) fn n_cols(&self) -> usize {
        match &self.cells {
            Cells::Sparse(blocks) => blocks.n_cols(),
            Cells::Dense { view, ones } => view.n_cols() + usize::from(*ones),
        }
    }

    /// Where an own column stands in the caller's matrix; none for the column of ones.
    pub(crate) fn original(&self, col: usize) -> Option<usize> {
        match &self.cells {
            Cells::Sparse(_) => {
                let col = col.checked_sub(usize::from(self.ones))?;
                Some(self.order[col] as usize)
            }
            Cells::Dense { view, .. } => (col < view.n_cols()).then_some(col),
        }
    }

    /// The own column of ones, if there is one.
    pub(crate) fn column_of_ones(&self) -> Option<usize> {
        self.ones.then_some(match &self.cells {
            Cells::Sparse(_) => 0,
            Cells::Dense { view, .. } => view.n_cols(),
        })
    }

    /// Centred values of a slab of rows of a block, times a scale of each row; a column for each row,
    /// so that values are written where they come.
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

    /// Calls `take(row, column, value)` for the stored values of some rows of a block, before
    /// centring; `cut` are all rows of the block.
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

    /// What centring subtracts from every row of a product: `x̄ᵀ p`.
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

    /// `out_i = x_i p − shift` for the rows of a block.
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

    /// `g_j −= x̄_j sum`, which centring demands after `g += Xᵀ u`; `sum` is that of all u.
    pub(crate) fn center_transposed(&self, sum: &[f64; LANES], g: &mut [Lanes<T>]) {
        if let Some(mean) = &self.mean {
            let sum = Lanes::of(&sum.map(|sum| -sum));
            for (&mean, g) in mean.iter().zip(g) {
                g.add_scaled(mean, &sum);
            }
        }
    }
}

/// `toᵀ Ω from p`.
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

/// `g = toᵀ Ω from p`, row block by row block: `from p` is never held for all rows, but in `buffer`
/// for those of a block.
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
