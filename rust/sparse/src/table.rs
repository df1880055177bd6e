//! Defines [`Table`], a borrowed dense matrix of any strides and any float type, and [`TableRows`], which reads
//! its rows scaled and in single precision.
//!
//! Fits on dense features read X block by block through these types. X itself is never copied.

use crate::standardize::Entries;
use crate::{ColumnScaling, CsrOwned, FullRows, Stored, from_half};
use manylabel_base::range::same;
use manylabel_base::{Error, Watch, collected, extend, filled, reserved};
use manylabel_simd::wide;
use ndarray::{ArrayView2, Axis, Slice};
use std::iter::repeat_n;
use std::ops::Range;

/// Number of rows that are read between two checks for a stop request.
const ROWS_PER_STEP: usize = 256;

/// A borrowed dense matrix in half, single or double precision. The strides are arbitrary: rows may be
/// contiguous (C order), or columns (Fortran order), or neither.
#[derive(Debug, Clone, Copy)]
pub enum Table<'a> {
    /// The bits of values in half precision.
    F16(ArrayView2<'a, u16>),
    /// Values in single precision.
    F32(ArrayView2<'a, f32>),
    /// Values in double precision.
    F64(ArrayView2<'a, f64>),
}

/// A value of a [`Table`].
trait Cell: Copy + Send + Sync {
    /// Converts the value to `f64`. The conversion is exact.
    fn wide(self) -> f64;

    /// Returns the value minus `shift`, rounded once.
    fn minus(self, shift: f32) -> f32;
}

impl Cell for u16 {
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(from_half(self))
    }

    #[inline(always)]
    fn minus(self, shift: f32) -> f32 {
        from_half(self) - shift
    }
}

impl Cell for f32 {
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn minus(self, shift: f32) -> f32 {
        self - shift
    }
}

/// If the value is a number of `f32`, the difference has the same bits as in `f32`: double precision has more
/// than twice the digits, so the second rounding is harmless (Figueroa, "When is double rounding innocuous?",
/// SIGNUM Newsletter 1995).
impl Cell for f64 {
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }

    #[inline(always)]
    fn minus(self, shift: f32) -> f32 {
        (self - f64::from(shift)) as f32
    }
}

/// The scaling of the columns in single precision. A shift is the sum of two numbers, so that columns with large
/// means keep their digits.
#[derive(Debug)]
struct Columns {
    high: Vec<f32>,
    low: Vec<f32>,
    scale: Vec<f32>,
}

/// How columns are scaled.
#[derive(Debug)]
enum Scaling {
    Single(Columns),
    /// The shift and the scale of each column. Scaled values are rounded once, to single precision.
    Double(Vec<(f64, f64)>),
}

impl Columns {
    fn new(shift: &[f64], scale: &[f64]) -> Result<Self, Error> {
        const WHAT: &str = "number of columns";
        let low = |&shift: &f64| (shift - f64::from(shift as f32)) as f32;
        Ok(Self {
            high: collected(WHAT, shift.iter().map(|&shift| shift as f32))?,
            low: collected(WHAT, shift.iter().map(low))?,
            scale: collected(WHAT, scale.iter().map(|&scale| scale as f32))?,
        })
    }

    #[inline(always)]
    fn apply<T: Cell>(&self, value: T, col: usize) -> f32 {
        scaled(value, self.high[col], self.low[col], self.scale[col])
    }
}

#[inline(always)]
fn scaled<T: Cell>(value: T, high: f32, low: f32, scale: f32) -> f32 {
    (value.minus(high) - low) * scale
}

/// Evaluates `$body` with `$x` bound to the array of a table, for any of the three types.
macro_rules! with_table {
    ($table:expr, |$x:ident| $body:expr) => {
        match $table {
            Table::F16($x) => $body,
            Table::F32($x) => $body,
            Table::F64($x) => $body,
        }
    };
}

impl Table<'_> {
    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        with_table!(self, |x| x.nrows())
    }

    /// Returns the number of columns.
    pub fn n_cols(&self) -> usize {
        with_table!(self, |x| x.ncols())
    }

    /// Computes the same scaling as [`ColumnScaling::learn`] for the dense matrix, in two passes over its rows.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`ColumnScaling::learn`].
    ///
    /// # Panics
    ///
    /// Panics if there are fewer weights than rows.
    pub fn column_scaling(
        &self,
        weights: Option<&[f32]>,
        center: bool,
        watch: &Watch,
    ) -> Result<ColumnScaling, Error> {
        ColumnScaling::of_entries(self, weights, center, watch)
    }

    /// Calls `visit` with the number and the values of each row, in order.
    fn each_row(&self, watch: &Watch, mut visit: impl FnMut(usize, &[f64])) -> Result<(), Error> {
        let n_cols = self.n_cols();
        let mut block = filled("a block of rows of X", 0.0, ROWS_PER_STEP * n_cols)?;
        for first in (0..self.n_rows()).step_by(ROWS_PER_STEP) {
            watch.step(0)?;
            let rows = first..(first + ROWS_PER_STEP).min(self.n_rows());
            with_table!(self, |x| read(
                x,
                rows.clone(),
                n_cols,
                &mut block,
                |value, _, _| value.wide()
            ));
            for (row, values) in rows.zip(block.chunks(n_cols.max(1))) {
                visit(row, values);
            }
        }
        Ok(())
    }
}

impl Entries for Table<'_> {
    fn shape(&self) -> (usize, usize) {
        (self.n_rows(), self.n_cols())
    }

    fn add(
        &self,
        weights: Option<&[f32]>,
        about: &[f64],
        terms: impl Fn(f64, f64, f64) -> (f64, f64),
        sums: (&mut [f64], &mut [f64]),
        watch: &Watch,
    ) -> Result<(), Error> {
        self.each_row(watch, |row, values| {
            let weight = weights.map_or(1.0, |weights| f64::from(weights[row]));
            add_terms(weight, values, about, &terms, (&mut *sums.0, &mut *sums.1));
        })
    }
}

/// Adds the terms of a row; see [`Entries::add`]. The terms of zeros are computed too, but 0 is added in their
/// place, so that the loop has no branches.
#[wide]
fn add_terms<F: Fn(f64, f64, f64) -> (f64, f64)>(
    weight: f64,
    values: &[f64],
    about: &[f64],
    terms: &F,
    (first, second): (&mut [f64], &mut [f64]),
) {
    let columns = first.iter_mut().zip(second).zip(values.iter().zip(about));
    for ((first, second), (&value, &about)) in columns {
        let terms = terms(weight, value, about);
        *first += if value == 0.0 { 0.0 } else { terms.0 };
        *second += if value == 0.0 { 0.0 } else { terms.1 };
    }
}

/// Writes a block of rows to `out`, row after row, at a distance of `stride` values. `convert` gets a value, its
/// row and its column. The order of the loops follows the strides of `x`, so that values that are close in
/// memory are read together.
#[inline(always)]
fn read<T: Cell, U>(
    x: &ArrayView2<'_, T>,
    rows: Range<usize>,
    stride: usize,
    out: &mut [U],
    convert: impl Fn(T, usize, usize) -> U,
) {
    let by_row = x.strides()[0].unsigned_abs() >= x.strides()[1].unsigned_abs();
    let block = x.slice_axis(Axis(0), Slice::from(rows.clone()));
    if by_row {
        let lines = block.rows().into_iter().zip(out.chunks_mut(stride.max(1)));
        for (row, (values, out)) in rows.zip(lines) {
            for (col, (out, value)) in out.iter_mut().zip(values).enumerate() {
                *out = convert(*value, row, col);
            }
        }
    } else {
        for (col, values) in block.columns().into_iter().enumerate() {
            for ((at, row), value) in rows.clone().enumerate().zip(values) {
                out[at * stride + col] = convert(*value, row, col);
            }
        }
    }
}

/// The rows of a table as a fit uses them: scaled, in single precision, and with a column of ones if intercepts
/// are fitted. The rows are converted when they are read.
#[derive(Debug)]
pub struct TableRows<'a> {
    table: Table<'a>,
    /// The scaling of each column, if columns are scaled.
    columns: Option<Scaling>,
    /// For each row, two numbers by which its values are divided, if rows are scaled to unit length; see
    /// [`CsrView::row_divisors`](crate::CsrView::row_divisors).
    divisors: Option<Vec<(f64, f64)>>,
    /// True if there is a column of ones after the columns of the table.
    ones: bool,
}

impl<'a> TableRows<'a> {
    /// Prepares rows for reading. `columns` has the shift and the scale of each column, or None. If `unit` is
    /// true, rows are scaled to unit length, which takes one pass over the table. If `ones` is true, a
    /// column of ones is added.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if there is not one shift and one scale for each column. Returns
    /// [`Error::TooLarge`] if there is not enough memory for two numbers for each row. Returns
    /// [`Error::Stopped`] if the caller requested a stop.
    pub fn new(
        table: Table<'a>,
        columns: Option<(&[f64], &[f64])>,
        unit: bool,
        ones: bool,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let columns = columns.map(|(shift, scale)| {
            same_columns(&table, (shift, scale))?;
            Columns::new(shift, scale).map(Scaling::Single)
        });
        let columns = columns.transpose()?;
        let divisors = if unit {
            let mut divisors = filled("number of rows", (1.0, 1.0), table.n_rows())?;
            table.each_row(watch, |row, values| {
                divisors[row] = crate::view::divisors(values);
            })?;
            Some(divisors)
        } else {
            None
        };
        Ok(Self {
            table,
            columns,
            divisors,
            ones,
        })
    }

    /// Prepares rows without a column of ones as [`new`](Self::new) does, except that columns are scaled in double
    /// precision. Scaled values have the same bits as those of a sparse matrix, but reading takes longer. Values outside the
    /// range of `f32` become the largest numbers of `f32`, as in [`ScaledColumns`](crate::ScaledColumns).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`new`](Self::new). Also returns [`Error::TooLarge`] if the numbers of rows and columns
    /// do not fit in 32 bits.
    pub fn exact(
        table: Table<'a>,
        columns: Option<(&[f64], &[f64])>,
        unit: bool,
        watch: &Watch,
    ) -> Result<Self, Error> {
        CsrOwned::check_size(table.n_rows(), table.n_cols())?;
        let double = columns.map(|(shift, scale)| {
            same_columns(&table, (shift, scale))?;
            let pairs = shift.iter().copied().zip(scale.iter().copied());
            collected("number of columns", pairs).map(Scaling::Double)
        });
        Ok(Self {
            columns: double.transpose()?,
            ..Self::new(table, None, unit, false, watch)?
        })
    }

    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        self.table.n_rows()
    }

    /// Returns the number of columns, including the column of ones.
    pub fn dim(&self) -> usize {
        self.table.n_cols() + usize::from(self.ones)
    }

    /// Copies the rows with the given numbers, in the given order.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a value is not finite in single precision, and [`Error::TooLarge`] if there is not enough
    /// memory. Returns [`Error::Stopped`] if the caller requested a stop.
    ///
    /// # Panics
    ///
    /// Panics if a row is out of range.
    pub fn copy(
        &self,
        rows: impl ExactSizeIterator<Item = usize>,
        watch: &Watch,
    ) -> Result<FullRows, Error> {
        const WHAT: &str = "number of values of some rows";
        let dim = self.dim();
        let n_rows = rows.len();
        let size = n_rows.saturating_mul(dim.saturating_add(1));
        let mut values = reserved(WHAT, size)?; // the solver may append a column of ones
        extend(WHAT, &mut values, repeat_n(0.0, n_rows * dim))?;
        for (at, (row, out)) in rows.zip(values.chunks_mut(dim.max(1))).enumerate() {
            if at % ROWS_PER_STEP == 0 {
                watch.step(0)?;
            }
            self.read_finite(row, out)?;
        }
        FullRows::new(values, n_rows, dim)
    }

    /// Copies all rows, without zeros. The copy is [`Stored::Full`] if no value is 0, and has sparse rows otherwise, so that
    /// fits have the same bits as with a sparse matrix. Reads the rows twice.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`copy`](Self::copy).
    pub fn stored(&self, watch: &Watch) -> Result<Stored<'static>, Error> {
        const WHAT: &str = "number of stored values";
        let n_rows = self.n_rows();
        let mut values = filled("number of columns", 0.0, self.dim())?;
        let mut indptr = reserved("number of rows", n_rows + 1)?;
        indptr.push(0);
        let mut size = 0;
        for row in 0..n_rows {
            if row % ROWS_PER_STEP == 0 {
                watch.step(0)?;
            }
            self.read_finite(row, &mut values)?;
            size += values.iter().filter(|&&value| value != 0.0).count();
            indptr.push(size);
        }
        if size == n_rows.saturating_mul(self.dim()) {
            return self.copy(0..n_rows, watch).map(Stored::Full);
        }
        let mut copy = CsrOwned {
            indptr,
            indices: reserved(WHAT, size)?,
            values: reserved(WHAT, size)?,
            n_cols: self.dim(),
        };
        for row in 0..n_rows {
            if row % ROWS_PER_STEP == 0 {
                watch.step(0)?;
            }
            self.read(row..row + 1, &mut values);
            for (col, &value) in (0..).zip(&values) {
                if value != 0.0 {
                    copy.indices.push(col);
                    copy.values.push(value);
                }
            }
        }
        Ok(Stored::Owned(copy))
    }

    /// Reads one row and checks that its values are finite.
    fn read_finite(&self, row: usize, out: &mut [f32]) -> Result<(), Error> {
        self.read(row..row + 1, out);
        match out.iter().find(|value| !value.is_finite()) {
            None => Ok(()),
            Some(value) => Err(Error::Param {
                name: "X",
                expected: "finite in float32 (at most 3.4e38 in absolute value)",
                got: format!("{value} in row {row}"),
            }),
        }
    }

    /// Writes a block of rows to `out`, row after row; shape (rows, [`dim`](Self::dim)).
    ///
    /// # Panics
    ///
    /// Panics if a row is out of range, or if `out` is too short.
    pub fn read(&self, rows: Range<usize>, out: &mut [f32]) {
        let (dim, n_cols) = (self.dim(), self.table.n_cols());
        let out = &mut out[..rows.len() * dim];
        if self.ones {
            for row in out.chunks_mut(dim) {
                row[n_cols] = 1.0;
            }
        }
        with_table!(&self.table, |x| match (&self.columns, &self.divisors) {
            (Some(Scaling::Double(columns)), _) => read(x, rows, dim, out, |value, _, col| {
                let (shift, scale) = columns[col];
                (((value.wide() - shift) * scale) as f32).clamp(f32::MIN, f32::MAX)
            }),
            (Some(Scaling::Single(columns)), _) if x.strides()[1] == 1 => {
                for (row, out) in rows.zip(out.chunks_mut(dim)) {
                    let values = x.row(row);
                    let values = values.to_slice().expect("the stride is 1");
                    scale_row(values, columns, out);
                }
            }
            (Some(Scaling::Single(columns)), _) => read(x, rows, dim, out, |value, _, col| {
                columns.apply(value, col)
            }),
            (None, Some(divisors)) => read(x, rows, dim, out, |value, row, _| {
                (value.wide() / divisors[row].0 / divisors[row].1) as f32
            }),
            (None, None) => read(x, rows, dim, out, |value, _, _| value.wide() as f32),
        });
    }
}

/// Checks that there are a shift and a scale for each column.
///
/// # Errors
///
/// Returns [`Error::Shape`] if there are not.
fn same_columns(table: &Table<'_>, (shift, scale): (&[f64], &[f64])) -> Result<(), Error> {
    same("column shifts", table.n_cols(), shift.len())?;
    same("column scales", table.n_cols(), scale.len())
}

/// Scales the values of a contiguous row.
#[wide]
fn scale_row<T: Cell>(x: &[T], columns: &Columns, out: &mut [f32]) {
    let shifts = columns.high.iter().zip(&columns.low);
    let columns = shifts.zip(&columns.scale);
    for ((out, &x), ((&high, &low), &scale)) in out.iter_mut().zip(x).zip(columns) {
        *out = scaled(x, high, low, scale);
    }
}
