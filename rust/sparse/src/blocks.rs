//! Stores a copy of a sparse matrix X in blocks of rows. Solvers use the copy to compute the products `X P`
//! and `Xᵀ U` with dense matrices P and U.
//!
//! Iterative solvers with many right-hand sides spend most of their time in these two products. Examples are
//! the solvers of LEML and of the crates `pls` and `correlated`. P and U have [`LANES`](crate::LANES)
//! columns, and each row of P and U is one [`Lanes`].
//!
//! The rows of X are divided into blocks of at most [`RowBlocks::MAX_ROWS`] rows. Each block is stored twice:
//! by row for `U = X P`, and by column for `G += Xᵀ U`. The two products *gather*: each sum is accumulated in
//! registers and stored once. The alternative is to *scatter* along rows. Scattering loads and stores a row
//! of G for every value of X. While a block is processed, its part of U stays in the cache. For each column
//! of X, the corresponding row of G is updated only once per block, even if the column has many values in the
//! block.
//!
//! Columns are renumbered by decreasing frequency ([`ColumnOrder`]). So the rows of P and G that are
//! used most often are close together in memory.
//!
//! The time of a product is O(nnz · `LANES`). Each sum has a fixed order: entries are added alternately to
//! two partial sums, and the two partial sums are added at the end. So results depend neither on threads nor
//! on the vector width of the machine. Results do depend on the division into blocks, but this division
//! depends only on the data.
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_sparse::{ColumnOrder, CsrView, Lanes, RowBlocks};
//!
//! // The matrix is [[0, 2], [3, 1]]. Column 1 has more nonzeros than column 0, so it comes first.
//! let x = CsrView::new("X", &[0i32, 1, 3], &[1, 0, 1], &[2.0f32, 3.0, 1.0], 2)?;
//! let order = ColumnOrder::new(x)?;
//! assert_eq!(order.columns(), [1, 0]);
//! let cuts = RowBlocks::<f32>::cut(x.n_rows(), |row| x.row(row).0.len());
//! let blocks = RowBlocks::<f32>::new(x, &order, false, 1.0, &cuts, &Watch::new())?;
//! let mut out = [Lanes::<f32>::default(); 2];
//! blocks.blocks()[0].times(&[Lanes([1.0; 32]), Lanes([10.0; 32])], &mut out);
//! assert_eq!((out[0].0[0], out[1].0[0]), (2.0, 31.0));
//! # Ok::<(), manylabel_base::Error>(())
//! ```

use crate::{CsrView, Index, Lanes, Real, Value};
use manylabel_base::{Error, Watch, collected, filled, parts, reserved};
use manylabel_simd::wide;
use rayon::prelude::*;
use std::cmp::Reverse;
use std::ops::Range;

/// The columns of a matrix that have nonzero entries, the most frequent column first. If two columns are
/// equally frequent, the column with the lower number comes first.
///
/// The *place* of a column is its position in this order. Columns without entries, or with only
/// explicit zeros, are left out.
#[derive(Debug)]
pub struct ColumnOrder {
    /// The original column at each place.
    columns: Vec<u32>,
    /// The place of each original column in `columns`, or [`Self::NONE`] for a column without nonzero
    /// entries.
    places: Vec<u32>,
}

impl ColumnOrder {
    /// Marks a column without nonzero entries.
    const NONE: u32 = u32::MAX;

    /// Counts the nonzero entries of each column, in O(nnz + `n_cols` log `n_cols`).
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there are more than 2³²−1 columns, or if there is not enough memory for
    /// one number per column.
    pub fn new<I: Index, V: Value>(x: CsrView<'_, I, V>) -> Result<Self, Error> {
        if u32::try_from(x.n_cols()).is_err() {
            return Err(Error::TooLarge {
                what: "number of columns",
                got: format!("{}; at most {} are supported", x.n_cols(), u32::MAX),
            });
        }
        let mut counts = filled("number of columns", 0usize, x.n_cols())?;
        for row in 0..x.n_rows() {
            let (cols, values) = x.row(row);
            for (col, value) in cols.iter().zip(values) {
                counts[col.get()] += usize::from(value.f64() != 0.0);
            }
        }
        let full = (0..x.n_cols() as u32).filter(|&col| counts[col as usize] > 0);
        let mut columns: Vec<u32> = collected("number of columns", full)?;
        columns.sort_unstable_by_key(|&col| (Reverse(counts[col as usize]), col));
        let mut places = filled("number of columns", Self::NONE, x.n_cols())?;
        for (place, &col) in (0..).zip(&columns) {
            places[col as usize] = place;
        }
        Ok(Self { columns, places })
    }

    /// Returns the original columns, the most frequent column first.
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// Returns the original columns, the most frequent column first, and consumes `self`.
    pub fn into_columns(self) -> Vec<u32> {
        self.columns
    }
}

/// A block of consecutive rows of a matrix, stored by row and by column. Columns are numbered by their place
/// in a [`ColumnOrder`]. If a column of ones was inserted, it has the number 0, and the number of every other
/// column is its place plus 1. Row numbers start at 0 in each block.
#[derive(Debug)]
pub struct RowBlock<T> {
    /// The ends of the rows. Row r of the block has the columns `cols[ends[r]..ends[r + 1]]`, in
    /// increasing order.
    ends: Vec<u32>,
    cols: Vec<u32>,
    /// The value of each entry of `cols`.
    values: Vec<T>,
    /// The columns with entries in the block, in increasing order. The column `distinct[f]` has entries
    /// in the rows `rows[col_ends[f]..col_ends[f + 1]]`, in increasing order.
    distinct: Vec<u32>,
    col_ends: Vec<u32>,
    rows: Vec<u16>,
    /// The value of each entry of `rows`.
    values_by_col: Vec<T>,
}

/// A matrix in blocks of rows, stored by row and by column. The description of the module explains the
/// layout.
#[derive(Debug)]
pub struct RowBlocks<T> {
    /// The blocks, in order of rows.
    blocks: Vec<RowBlock<T>>,
    /// Number of columns with entries. A column of ones is included.
    n_cols: usize,
}

impl<T: Real> RowBlocks<T> {
    /// The largest number of rows in a block. With this limit, 32 numbers for each row of a block take at
    /// most 512 KiB in single precision, and row numbers within a block fit in 16 bits.
    pub const MAX_ROWS: usize = 4096;

    /// The largest number of entries in a block. Only a block of a single row may have more entries. A
    /// product with a block takes a few milliseconds. Between blocks, solvers check whether the caller has
    /// requested a stop.
    const MAX_ENTRIES: usize = 1 << 22;

    /// Divides `n_rows` rows into blocks, given the number of entries of each row. Each block takes as many
    /// rows as possible without exceeding [`MAX_ROWS`](Self::MAX_ROWS) rows or 2²² entries. Only a block of a
    /// single row may have more entries. No block is empty. The time is O(`n_rows`).
    pub fn cut(n_rows: usize, entries: impl Fn(usize) -> usize) -> Vec<Range<usize>> {
        let mut cuts = Vec::new();
        let (mut first, mut sum) = (0, 0);
        for row in 0..n_rows {
            let more = entries(row);
            if row > first && (row - first == Self::MAX_ROWS || sum + more > Self::MAX_ENTRIES) {
                cuts.push(first..row);
                (first, sum) = (row, 0);
            }
            sum += more;
        }
        if first < n_rows {
            cuts.push(first..n_rows);
        }
        cuts
    }

    /// Copies `x` into blocks, on all threads of the pool.
    ///
    /// Columns are renumbered by `order`. If `ones` is true, a column of ones is inserted before the other
    /// columns. All values, including the ones, are multiplied by `scale` in double precision. Explicit zeros
    /// are left out. The time is O(nnz log nnz) within each block, because entries are sorted. The memory is
    /// 6 bytes and two values of type `T` for each entry.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the copy does not fit in memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    ///
    /// # Panics
    ///
    /// May panic if `order` was made from another matrix, or if a range of `cuts` has more rows or
    /// entries than [`cut`](Self::cut) allows.
    pub fn new<I: Index, V: Value>(
        x: CsrView<'_, I, V>,
        order: &ColumnOrder,
        ones: bool,
        scale: f64,
        cuts: &[Range<usize>],
        watch: &Watch,
    ) -> Result<Self, Error> {
        let blocks = cuts.par_iter().map(|rows| {
            watch.step(0)?;
            RowBlock::new(x, order, ones, scale, rows.clone())
        });
        Ok(Self {
            blocks: parts(blocks)?,
            n_cols: order.columns.len() + usize::from(ones),
        })
    }

    /// Returns the blocks, in order of rows.
    pub fn blocks(&self) -> &[RowBlock<T>] {
        &self.blocks
    }

    /// Returns the number of columns with entries. A column of ones is included. A dense matrix P must have
    /// this number of rows for the product `X P`.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }
}

impl<T: Real> RowBlock<T> {
    /// Copies the rows of `x` in the range `block`. The other arguments are the same as in
    /// [`RowBlocks::new`].
    #[expect(clippy::disallowed_methods, reason = "the memory is reserved")]
    fn new<I: Index, V: Value>(
        x: CsrView<'_, I, V>,
        order: &ColumnOrder,
        ones: bool,
        scale: f64,
        block: Range<usize>,
    ) -> Result<Self, Error> {
        const WHAT: &str = "a copy of X";
        let shift = u32::from(ones);
        let n_entries = |row: usize| {
            let values = x.row(row).1.iter();
            values.filter(|value| value.f64() != 0.0).count()
        };
        let (size, longest) = block.clone().fold((0, 0), |(size, longest), row| {
            let n = n_entries(row);
            (size + n + usize::from(ones), longest.max(n))
        });
        let mut ends = reserved(WHAT, block.len() + 1)?;
        let (mut cols, mut values) = (reserved(WHAT, size)?, reserved(WHAT, size)?);
        let mut entries = reserved(WHAT, longest)?;
        ends.push(0);
        for row in block.clone() {
            let (of_row, vals) = x.row(row);
            entries.clear();
            for (col, &value) in of_row.iter().zip(vals) {
                if value.f64() != 0.0 {
                    entries.push((order.places[col.get()] + shift, value));
                }
            }
            entries.sort_unstable_by_key(|&(place, _)| place);
            if ones {
                cols.push(0);
                values.push(T::of(scale));
            }
            cols.extend(entries.iter().map(|&(place, _)| place));
            values.extend(entries.iter().map(|&(_, value)| T::of(value.f64() * scale)));
            ends.push(u32::try_from(cols.len()).expect("a block has few entries"));
        }
        let mut by_col: Vec<(u32, u16, u32)> = reserved(WHAT, cols.len())?;
        for row in 0..block.len() {
            let row_number = u16::try_from(row).expect("a block has few rows");
            let range = ends[row]..ends[row + 1];
            by_col.extend(range.map(|at| (cols[at as usize], row_number, at)));
        }
        by_col.sort_unstable_by_key(|&(col, row, _)| (col, row));
        let runs = || by_col.chunk_by(|a, b| a.0 == b.0);
        let n_distinct = runs().count();
        let mut distinct = reserved(WHAT, n_distinct)?;
        let mut col_ends = reserved(WHAT, n_distinct + 1)?;
        col_ends.push(0);
        for run in runs() {
            distinct.push(run[0].0);
            col_ends.push(col_ends[col_ends.len() - 1] + run.len() as u32);
        }
        let values_by_col = by_col.iter().map(|&(_, _, at)| values[at as usize]);
        let values_by_col = collected(WHAT, values_by_col)?;
        Ok(Self {
            rows: collected(WHAT, by_col.iter().map(|&(_, row, _)| row))?,
            ends,
            cols,
            values,
            distinct,
            col_ends,
            values_by_col,
        })
    }

    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        self.ends.len() - 1
    }

    /// Returns the columns (in increasing order) and values of one row of the block.
    ///
    /// # Panics
    ///
    /// Panics if `row >= n_rows`.
    pub fn row(&self, row: usize) -> (&[u32], &[T]) {
        let range = self.ends[row] as usize..self.ends[row + 1] as usize;
        (&self.cols[range.clone()], &self.values[range])
    }

    /// Iterates over the columns in the range `columns` that have entries in the block, in increasing order.
    /// Each item consists of the column number, the row numbers and the values. Row numbers are counted from
    /// the first row of the block and are in increasing order.
    pub fn columns(
        &self,
        columns: Range<usize>,
    ) -> impl Iterator<Item = (usize, &[u16], &[T])> + '_ {
        let first = self
            .distinct
            .partition_point(|&col| (col as usize) < columns.start);
        let last = self
            .distinct
            .partition_point(|&col| (col as usize) < columns.end);
        (first..last).map(|f| {
            let range = self.col_ends[f] as usize..self.col_ends[f + 1] as usize;
            (
                self.distinct[f] as usize,
                &self.rows[range.clone()],
                &self.values_by_col[range],
            )
        })
    }

    /// Computes `out_i = Σ_j x_ij p_j` for each row i of the block and overwrites `out`. `out` should
    /// have as many rows as the block. If the lengths differ, only the rows that exist in `out` and in
    /// the block are computed.
    ///
    /// # Panics
    ///
    /// Panics if a column of the block is outside `p`.
    pub fn times(&self, p: &[Lanes<T>], out: &mut [Lanes<T>]) {
        gather_rows(&self.ends, &self.cols, &self.values, p, out);
    }

    /// Computes `g_j += Σ_i x_ij u_i` over the rows i of the block, for each column j with entries in
    /// the block.
    ///
    /// # Panics
    ///
    /// Panics if a row of the block is outside `u`, or if a column of the block is outside `g`.
    pub fn add_transposed(&self, u: &[Lanes<T>], g: &mut [Lanes<T>]) {
        let ends = &self.col_ends;
        gather_columns(&self.distinct, ends, &self.rows, &self.values_by_col, u, g);
    }
}

/// Returns `Σ_k values[k] · p[at[k]]`, lane by lane.
#[inline(always)]
fn combination<T: Real, I: Index>(at: &[I], values: &[T], p: &[Lanes<T>]) -> Lanes<T> {
    // Two independent sums are used, so that no addition waits for the previous addition.
    let (mut a, mut b) = (Lanes::<T>::default(), Lanes::<T>::default());
    let (at2, values2) = (at.chunks_exact(2), values.chunks_exact(2));
    for (&at, &value) in at2.remainder().iter().zip(values2.remainder()) {
        a.add_scaled(value, &p[at.get()]);
    }
    for (at, value) in at2.zip(values2) {
        a.add_scaled(value[0], &p[at[0].get()]);
        b.add_scaled(value[1], &p[at[1].get()]);
    }
    a.add(&b);
    a
}

/// Does the work of [`RowBlock::times`].
#[wide]
fn gather_rows<T: Real>(
    ends: &[u32],
    cols: &[u32],
    values: &[T],
    p: &[Lanes<T>],
    out: &mut [Lanes<T>],
) {
    for (ends, out) in ends.windows(2).zip(out) {
        let range = ends[0] as usize..ends[1] as usize;
        *out = combination(&cols[range.clone()], &values[range], p);
    }
}

/// Does the work of [`RowBlock::add_transposed`].
#[wide]
fn gather_columns<T: Real>(
    distinct: &[u32],
    ends: &[u32],
    rows: &[u16],
    values: &[T],
    u: &[Lanes<T>],
    g: &mut [Lanes<T>],
) {
    for (ends, &col) in ends.windows(2).zip(distinct) {
        let range = ends[0] as usize..ends[1] as usize;
        g[col as usize].add(&combination(&rows[range.clone()], &values[range], u));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LANES;
    use proptest::prelude::*;

    /// Returns the rows of a sparse matrix of small integers. Products of small integers are exact.
    fn rows() -> impl Strategy<Value = (Vec<Vec<(i32, f32)>>, usize)> {
        (1..9usize).prop_flat_map(|n_cols| {
            let row = prop::collection::btree_map(0..n_cols as i32, -4i8..5, 0..=n_cols);
            let rows = prop::collection::vec(row, 0..12);
            rows.prop_map(move |rows| {
                let to_f32 = |row: std::collections::BTreeMap<i32, i8>| {
                    row.into_iter()
                        .map(|(col, v)| (col, f32::from(v)))
                        .collect()
                };
                (rows.into_iter().map(to_f32).collect(), n_cols)
            })
        })
    }

    /// Returns a panel in which all lanes differ.
    fn panel(n: usize) -> Vec<Lanes<f32>> {
        let row = |i: usize| {
            Lanes(std::array::from_fn(|lane| {
                ((i * 7 + lane * 3) % 11) as f32 - 5.0
            }))
        };
        (0..n).map(row).collect()
    }

    proptest! {
        #[test]
        fn products_are_those_of_the_definition(
            (rows, n_cols) in rows(),
            ones in any::<bool>(),
            scale in prop::sample::select(vec![1.0, 0.5]),
            every in 1..5usize,
        ) {
            let mut indptr = vec![0i32];
            let (mut indices, mut values) = (Vec::new(), Vec::new());
            for row in &rows {
                indices.extend(row.iter().map(|&(col, _)| col));
                values.extend(row.iter().map(|&(_, value)| value));
                indptr.push(indices.len() as i32);
            }
            let x = CsrView::new("X", &indptr, &indices, &values, n_cols).expect("valid");
            let order = ColumnOrder::new(x).expect("small");
            let entries = || indices.iter().zip(&values).filter(|(_, value)| **value != 0.0);
            let counts = |col: u32| entries().filter(|(each, _)| **each == col as i32).count();
            prop_assert!(order.columns().is_sorted_by(|&a, &b| (Reverse(counts(a)), a) < (Reverse(counts(b)), b)));
            let starts = (0..rows.len()).step_by(every);
            let cuts: Vec<_> = starts.map(|first| first..(first + every).min(rows.len())).collect();
            let blocks = RowBlocks::new(x, &order, ones, scale, &cuts, &Watch::new()).expect("not stopped");
            let place = |col: i32| order.places[col as usize] as usize + usize::from(ones);
            let p = panel(blocks.n_cols());
            let u = panel(rows.len());
            let mut g = vec![Lanes([1.0f32; LANES]); blocks.n_cols()];
            let mut expected = g.clone();
            for (cut, block) in cuts.iter().zip(blocks.blocks()) {
                let mut out = vec![Lanes([9.0; LANES]); cut.len()];
                block.times(&p, &mut out);
                block.add_transposed(&u[cut.clone()], &mut g);
                for (row, out) in cut.clone().zip(&out) {
                    let mut sum = Lanes::default();
                    let one = ones.then_some((0, 1.0));
                    let stored = rows[row].iter().filter(|(_, value)| *value != 0.0);
                    let entries = stored.map(|&(col, value)| (place(col), value));
                    for (col, value) in entries.chain(one) {
                        let value = value * scale as f32;
                        sum.add_scaled(value, &p[col]);
                        expected[col].add_scaled(value, &u[row]);
                    }
                    prop_assert_eq!(&sum, out);
                }
            }
            prop_assert_eq!(g, expected);
        }
    }

    #[test]
    fn blocks_are_cut_by_rows_and_entries() {
        let most = RowBlocks::<f32>::MAX_ROWS;
        assert_eq!(RowBlocks::<f32>::cut(0, |_| 1), []);
        assert_eq!(
            RowBlocks::<f32>::cut(2 * most + 1, |_| 1),
            [0..most, most..2 * most, 2 * most..2 * most + 1]
        );
        let half = RowBlocks::<f32>::MAX_ENTRIES / 2;
        assert_eq!(RowBlocks::<f32>::cut(5, |_| half), [0..2, 2..4, 4..5]);
        assert_eq!(RowBlocks::<f32>::cut(3, |_| 3 * half), [0..1, 1..2, 2..3]);
    }
}
