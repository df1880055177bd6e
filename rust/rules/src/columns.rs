//! Stores the features of the training rows column by column, sorted by value.
//!
//! A fit tries thresholds of single features, so X is transposed and sorted once. The distinct values of a
//! feature are numbered in increasing order. The number of a value is its *code*. Conditions compare codes,
//! which are exact integers. A threshold is computed from values only after its condition has been chosen.
//!
//! There are two kinds of columns:
//!
//! - A *full* column has non-zero values in at least half of the rows without a missing value. It
//!   stores zeros like any other value. It also stores the code of every row.
//! - A *sparse* column stores only the rows with a value other than 0, and the codes of these rows. All other
//!   rows without a missing value have the value 0. The code of this value is `implicit`. The search does not
//!   visit the rows of a sparse column with the value 0.
//!
//! For [`Search::Fast`](crate::Search::Fast), the codes are also divided into at most [`GROUPS`]
//! groups with similar numbers of rows. The groups are computed once, from all training rows.
//!
//! X is read as `f32`, the type of thresholds. Infinite values are an error. NaN marks a missing value. A
//! missing value satisfies no condition.

use crate::Operator;
use manylabel_base::{Error, Tasks, Watch, collected, copied, extend, filled, reserved};
use manylabel_sparse::{CsrView, Index, Value};
use rayon::prelude::*;

/// The number that [`Column::by_row`] holds for rows with a missing value.
pub(crate) const MISSING: u32 = u32::MAX;

/// Number of rows of X that are read between two checks for a stop request of the caller.
const ROWS_PER_STEP: usize = 4096;

/// Number of groups of values per feature. The fast search tries only the boundaries between groups
/// as thresholds.
pub(crate) const GROUPS: usize = 64;

/// One feature of the training rows.
#[derive(Debug, Default)]
pub(crate) struct Column {
    /// Distinct values of the feature in increasing order. The index of a value is its code. A sparse column
    /// always contains the value 0.
    pub(crate) values: Vec<f32>,
    /// Row numbers, sorted by value and then by row number. A sparse column lists the rows with a
    /// value other than 0. A full column lists all rows without a missing value.
    pub(crate) rows: Vec<u32>,
    /// For a sparse column, the code (index in `values`) of each entry of `rows`. The vector is empty for a
    /// full column.
    codes: Vec<u32>,
    /// For a full column, the code (index in `values`) of every training row, or [`MISSING`]. The vector is
    /// empty for a sparse column.
    by_row: Vec<u32>,
    /// The group of each value in `values`, in increasing order, for the fast search. Groups have similar
    /// numbers of rows. In a sparse column, the value 0 has a group of its own.
    pub(crate) groups: Vec<u8>,
    /// Rows with a missing value, in increasing order.
    pub(crate) missing: Vec<u32>,
    /// For a sparse column, the code (index in `values`) of the value 0. Rows that are not stored have this
    /// value. `None` for a full column.
    pub(crate) implicit: Option<u32>,
    /// True if the values are categories and not magnitudes. Conditions on categories use = and ≠.
    pub(crate) nominal: bool,
}

/// The columns of all features.
#[derive(Debug)]
pub(crate) struct Columns {
    /// One column per feature, in the order of X.
    pub(crate) all: Vec<Column>,
    /// Number of training rows.
    pub(crate) n_rows: usize,
    /// Whether at least one column is sparse.
    pub(crate) any_sparse: bool,
}

impl Columns {
    /// Transposes and sorts X. Marks the features listed in `nominal` as nominal. Columns are
    /// sorted in parallel.
    ///
    /// The time is O(nnz log n) for n rows. A sparse column needs 8 bytes per stored value. A full column
    /// needs 8 bytes per row. Each column also needs 5 bytes per distinct value. Sorting temporarily needs
    /// about twice this memory.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a value is infinite as `f32`, or if `nominal` contains a number that is
    /// not a feature of X. Returns [`Error::TooLarge`] if the columns do not fit in memory. Returns
    /// [`Error::Stopped`] if the caller requested a stop.
    pub(crate) fn new<I: Index, T: Value>(
        x: CsrView<'_, I, T>,
        nominal: &[usize],
        watch: &Watch,
    ) -> Result<Self, Error> {
        let n_rows = x.n_rows();
        let mut counts = filled("number of features", 0usize, x.n_cols())?;
        for row in 0..n_rows {
            if row % ROWS_PER_STEP == 0 {
                watch.step(0)?;
            }
            let (cols, values) = x.row(row);
            for (col, value) in cols.iter().zip(values) {
                counts[col.get()] += usize::from(single(*value) != 0.0);
            }
        }
        // All entries are in one allocation, column by column. `at` holds the position of the next
        // entry of each column.
        let mut at = copied("number of features", &counts)?;
        let mut n_entries = 0;
        for at in &mut at {
            n_entries += std::mem::replace(at, n_entries);
        }
        let mut entries = filled("number of stored values", (0.0, 0), n_entries)?;
        for row in 0..n_rows {
            if row % ROWS_PER_STEP == 0 {
                watch.step(0)?;
            }
            let (cols, values) = x.row(row);
            for (col, value) in cols.iter().zip(values) {
                let value = single(*value);
                if value.is_infinite() {
                    return Err(Error::Param {
                        name: "X",
                        expected: "finite in float32 (at most 3.4e38 in absolute value), or NaN for missing values",
                        got: format!("{value} in row {row}"),
                    });
                }
                if value != 0.0 {
                    let at = &mut at[col.get()];
                    entries[*at] = (value, row as u32);
                    *at += 1;
                }
            }
        }
        Self::sorted(&counts, &mut entries, n_rows, nominal, watch)
    }

    /// Builds the columns from `left`, which holds the nonzero values with their rows, one column after the
    /// other. `counts` gives the number of entries of each column.
    fn sorted(
        counts: &[usize],
        mut left: &mut [(f32, u32)],
        n_rows: usize,
        nominal: &[usize],
        watch: &Watch,
    ) -> Result<Self, Error> {
        let mut columns = reserved("number of features", counts.len())?;
        columns.resize_with(counts.len(), Column::default);
        let parts = counts
            .iter()
            .map(|&n| left.split_off_mut(..n).unwrap_or_default());
        let parts: Vec<&mut [(f32, u32)]> = collected("number of features", parts)?;
        (columns.par_iter_mut().zip(parts)).try_each(|(column, entries)| {
            watch.step(0)?;
            *column = Column::new(entries, n_rows)?;
            Ok(())
        })?;
        for &col in nominal {
            let Some(column) = columns.get_mut(col) else {
                return Err(Error::Param {
                    name: "categorical_features",
                    expected: "valid feature numbers of X",
                    got: col.to_string(),
                });
            };
            column.nominal = true;
        }
        let any_sparse = columns.iter().any(|column| column.implicit.is_some());
        Ok(Self {
            all: columns,
            n_rows,
            any_sparse,
        })
    }

    /// Returns the features among `features` that have more than one value, where a missing value counts as a
    /// value. No other feature allows a condition.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the list does not fit in memory.
    pub(crate) fn varying(&self, features: &[usize]) -> Result<Vec<usize>, Error> {
        let varies = |feature: &usize| {
            let column = &self.all[*feature];
            column.values.len() + usize::from(!column.missing.is_empty()) > 1
        };
        collected(
            "number of features",
            features.iter().copied().filter(varies),
        )
    }
}

/// Converts a value of X to the precision of thresholds.
fn single<T: Value>(value: T) -> f32 {
    value.f64() as f32
}

impl Column {
    /// Builds a column from `stored`, which holds the nonzero values and their rows. The function reorders
    /// `stored`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the column does not fit in memory.
    fn new(stored: &mut [(f32, u32)], n_rows: usize) -> Result<Self, Error> {
        let missing = stored.iter().filter(|entry| entry.0.is_nan());
        let missing = collected("number of missing values", missing.map(|entry| entry.1))?;
        let n_zeros = n_rows - stored.len();
        let n_present = stored.len() - missing.len();
        // A full column stores its zeros like any other value.
        let full = n_zeros <= n_present;
        let mut n_placed = 0;
        for at in 0..stored.len() {
            stored.swap(n_placed, at);
            n_placed += usize::from(!stored[n_placed].0.is_nan());
        }
        let mut with_zeros;
        let mut entries = &mut stored[..n_present];
        if full && n_zeros > 0 {
            let mut is_zero = filled("number of rows", true, n_rows)?;
            let rows = entries.iter().map(|entry| entry.1);
            for row in rows.chain(missing.iter().copied()) {
                is_zero[row as usize] = false;
            }
            with_zeros = reserved("number of rows", n_rows)?;
            extend("number of rows", &mut with_zeros, entries.iter().copied())?;
            let zeros = (0..n_rows).filter(|&row| is_zero[row]);
            extend(
                "number of rows",
                &mut with_zeros,
                zeros.map(|row| (0.0, row as u32)),
            )?;
            entries = &mut with_zeros;
        }
        entries.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // If the column is not full, the implicit zero has a code of its own. No stored value has this code.
        let n_below = entries.partition_point(|entry| entry.0 < 0.0);
        let n_values = entries.chunk_by(|a, b| a.0 == b.0).count() + usize::from(!full);
        let mut values = reserved("number of values", n_values)?;
        let mut codes = reserved("number of stored values", entries.len())?;
        let mut implicit = None;
        for (at, &(value, _)) in entries.iter().enumerate() {
            if !full && at == n_below {
                implicit = Some(values.len() as u32);
                values.push(0.0);
            }
            if values.last() != Some(&value) {
                values.push(value);
            }
            codes.push(values.len() as u32 - 1);
        }
        if !full && implicit.is_none() {
            implicit = Some(values.len() as u32);
            values.push(0.0);
        }
        let groups = groups(&codes, values.len(), implicit)?;
        let rows = collected(
            "number of stored values",
            entries.iter().map(|entry| entry.1),
        )?;
        let mut by_row = Vec::new();
        if full {
            by_row = filled("number of rows", MISSING, n_rows)?;
            for (&row, &code) in rows.iter().zip(&codes) {
                by_row[row as usize] = code;
            }
            codes = Vec::new();
        }
        Ok(Self {
            values,
            rows,
            codes,
            by_row,
            groups,
            missing,
            implicit,
            nominal: false,
        })
    }

    /// Returns the code (index in `values`) of the row `rows[at]`.
    #[inline(always)]
    pub(crate) fn code(&self, at: usize) -> u32 {
        if self.by_row.is_empty() {
            self.codes[at]
        } else {
            self.by_row[self.rows[at] as usize]
        }
    }

    /// Returns the code (index in `values`) of every training row, or `None` if the column is sparse.
    pub(crate) fn codes_by_row(&self) -> Option<&[u32]> {
        (self.implicit.is_none()).then_some(&self.by_row[..])
    }

    /// Returns a function that is true for the codes (indices in `values`) that satisfy a condition.
    /// [`MISSING`] satisfies no condition.
    fn satisfying(&self, operator: Operator, threshold: f32) -> impl Fn(u32) -> bool + use<> {
        let below = self.values.partition_point(|&value| value <= threshold) as u32;
        let equal = self.values.partition_point(|&value| value < threshold) as u32..below;
        move |code| match operator {
            Operator::AtMost => code < below,
            Operator::Above => code >= below && code != MISSING,
            Operator::Equal => equal.contains(&code),
            Operator::NotEqual => !equal.contains(&code) && code != MISSING,
        }
    }

    /// Splits `rows` into the rows that satisfy a condition and the rows that do not satisfy it. `rows` and
    /// the two results are in increasing order. Rows with a missing value do not satisfy the condition.
    /// `is_among` returns whether a row is one of `rows`.
    ///
    /// In a sparse column, only the stored rows are tested. All other rows have the value 0, so they are
    /// copied without a test.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the result does not fit in memory.
    pub(crate) fn part(
        &self,
        operator: Operator,
        threshold: f32,
        rows: &[u32],
        is_among: impl Fn(u32) -> bool,
    ) -> Result<(Vec<u32>, Vec<u32>), Error> {
        let satisfies = self.satisfying(operator, threshold);
        let Some(zero) = self.implicit else {
            let satisfies = |row: u32| satisfies(self.by_row[row as usize]);
            let all = || rows.iter().copied();
            return Ok((
                select(all(), satisfies)?,
                select(all(), |row| !satisfies(row))?,
            ));
        };
        // Collect the rows for which the condition has a different result than for the implicit zero. These
        // are stored rows and rows with a missing value.
        let of_zeros = satisfies(zero);
        let places = self.rows.iter().zip(&self.codes);
        let places = places.filter(|&(&row, &code)| satisfies(code) != of_zeros && is_among(row));
        let mut apart = collected("number of rows", places.map(|(&row, _)| row))?;
        if of_zeros {
            let missing = self.missing.iter().copied().filter(|&row| is_among(row));
            extend("number of rows", &mut apart, missing)?;
        }
        apart.sort_unstable();
        let others = without(rows, &apart)?;
        Ok(if of_zeros {
            (others, apart)
        } else {
            (apart, others)
        })
    }

    /// Clears the marks of rows that do not satisfy a condition. `marks` has one entry per training row. The
    /// time is O(rows).
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if a list of rows does not fit in memory.
    pub(crate) fn narrow(
        &self,
        operator: Operator,
        threshold: f32,
        marks: &mut [bool],
    ) -> Result<(), Error> {
        let satisfies = self.satisfying(operator, threshold);
        let Some(zero) = self.implicit else {
            for (mark, &code) in marks.iter_mut().zip(&self.by_row) {
                *mark &= satisfies(code);
            }
            return Ok(());
        };
        let places = self.rows.iter().zip(&self.codes);
        if satisfies(zero) {
            for (&row, &code) in places {
                marks[row as usize] &= satisfies(code);
            }
            for &row in &self.missing {
                marks[row as usize] = false;
            }
        } else {
            let places = places.filter(|&(&row, &code)| satisfies(code) && marks[row as usize]);
            let kept = collected("number of rows", places.map(|(&row, _)| row))?;
            marks.fill(false);
            for row in kept {
                marks[row as usize] = true;
            }
        }
        Ok(())
    }

    /// Returns a threshold between the values with the codes `low` and `high`. The threshold is at least the
    /// lower value and less than the higher value. It is the midpoint of the two values, rounded to `f32`. If
    /// rounding gives the higher value, the lower value is returned instead.
    pub(crate) fn between(&self, low: u32, high: u32) -> f32 {
        let (low, high) = (self.values[low as usize], self.values[high as usize]);
        // The midpoint is computed in double precision, where neither the sum nor the difference
        // overflows.
        let middle = f64::midpoint(f64::from(low), f64::from(high)) as f32;
        if middle < high { middle } else { low }
    }
}

/// Returns the rows for which `is_wanted` is true, in the given order.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the result does not fit in memory.
pub(crate) fn select(
    rows: impl ExactSizeIterator<Item = u32>,
    is_wanted: impl Fn(u32) -> bool,
) -> Result<Vec<u32>, Error> {
    // The loop has no branch, because the branch would often be mispredicted. Each row is written.
    // If the row is not wanted, the next row overwrites it.
    let mut selected = filled("number of rows", 0, rows.len())?;
    let mut n_selected = 0;
    for row in rows {
        selected[n_selected] = row;
        n_selected += usize::from(is_wanted(row));
    }
    selected.truncate(n_selected);
    Ok(selected)
}

/// Returns `rows` without the rows in `gone`. `gone` must be a subset of `rows`. Each slice must be in
/// increasing order.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the result does not fit in memory.
#[expect(clippy::disallowed_methods, reason = "the capacity is reserved")]
fn without(rows: &[u32], gone: &[u32]) -> Result<Vec<u32>, Error> {
    let mut kept = reserved("number of rows", rows.len() - gone.len())?;
    let mut left = rows;
    for row in gone {
        // Whole runs are copied. The end of a run is found in steps of doubling length, so short
        // runs need few steps.
        let mut reach = 1;
        while reach < left.len() && left[reach] < *row {
            reach *= 2;
        }
        let within = &left[..left.len().min(reach + 1)];
        let (run, others) = left.split_at(within.partition_point(|other| other < row));
        kept.extend_from_slice(run);
        left = &others[1..];
    }
    kept.extend_from_slice(left);
    Ok(kept)
}

/// Divides the values of a column, which are given as codes, into at most [`GROUPS`] groups. If the column is
/// sparse, there may be up to two more groups. `codes` are the codes of the stored rows, in increasing order.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is too short for one number per value.
fn groups(codes: &[u32], n_codes: usize, implicit: Option<u32>) -> Result<Vec<u8>, Error> {
    // Codes increase, and every code except the implicit zero has stored rows.
    let mut runs = codes.chunk_by(|a, b| a == b).map(<[u32]>::len);
    let most = n_codes - usize::from(implicit.is_some());
    let mut groups = reserved("number of values", n_codes)?;
    let (mut group, mut before, mut last) = (0u8, 0usize, usize::MAX);
    for code in 0..n_codes {
        let is_zero = implicit == Some(code as u32);
        let count = if is_zero { 0 } else { runs.next().unwrap_or(0) };
        // With few values, each value is its own group. Otherwise groups have about equal numbers
        // of stored rows.
        let share = if most <= GROUPS {
            code
        } else {
            before * GROUPS / codes.len()
        };
        let begins = code > 0 && (is_zero || share != last || implicit == Some(code as u32 - 1));
        group += u8::from(begins);
        last = share;
        before += count;
        groups.push(group);
    }
    Ok(groups)
}
