//! Sorts the rows of a set by one feature and divides them into groups. Thresholds lie between the groups.
//!
//! In the exact search, rows with equal values form a group. In the fast search, each column has groups of
//! values (see `columns.rs`), and rows with values of the same group form a group. Nominal features always
//! have one group per value. Rows with a missing value are listed separately.
//!
//! Rows with the implicit value 0 form a group with a count but without a list of rows. Their sums are
//! computed by subtraction. If there are fewer rows with the value 0 than other rows, subtraction would lose
//! digits. In this case, the rows are listed.

use crate::columns::{Column, MISSING, select};
use manylabel_base::{Error, collected, extend, few, push, reserved};

/// A group of rows with equal or similar values of a feature. No condition that is tried separates these
/// rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    /// Smallest code (index of a value in the column) of the rows.
    pub(crate) first: u32,
    /// Largest code (index of a value in the column) of the rows.
    pub(crate) last: u32,
    /// Start of the rows in [`Groups::rows`]. Rows of a sparse column with the value 0 are not listed.
    pub(crate) from: usize,
    /// End of the rows in [`Groups::rows`].
    pub(crate) to: usize,
    /// Number of rows, including rows that are not listed.
    pub(crate) count: usize,
}

/// The rows of a set in increasing order of a feature.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The rows, group by group. Rows of a sparse column with the value 0 are left out.
    pub(crate) rows: Vec<u32>,
    /// The groups, in increasing order of value.
    pub(crate) list: Vec<Group>,
    /// Rows of the set with a missing value.
    pub(crate) missing: Vec<u32>,
}

/// The position that is stored for rows that are not in the set.
pub(crate) const ABSENT: u32 = u32::MAX;

/// A set of training rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowSet<'a> {
    /// The rows, in increasing order.
    pub(crate) rows: &'a [u32],
    /// For every training row, its index in `rows`, or [`ABSENT`]. Indices may be outdated if
    /// [`Context::needs_positions`](super::Context::needs_positions) is false.
    pub(crate) positions: &'a [u32],
    /// Weights of all training rows. Rows outside the sample have weight 0.
    pub(crate) weights: &'a [f64],
}

impl Groups {
    /// Groups the rows of `set` by the values of a column. If `coarse` is true, groups the rows by the
    /// column's groups of values instead. The time is O(stored values of the column) or O(n log n) for the n
    /// rows of the set, whichever is less.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the groups do not fit in memory.
    #[expect(clippy::disallowed_methods, reason = "the capacity is reserved")]
    pub(crate) fn new(column: &Column, set: &RowSet<'_>, coarse: bool) -> Result<Self, Error> {
        if let Some(groups) = Self::of_one_value(column, set)? {
            return Ok(groups);
        }
        let n_set = set.rows.len();
        let is_in = |row: &u32| set.positions[*row as usize] != ABSENT;
        let missing = column.missing.iter().copied().filter(is_in);
        let missing = collected("number of missing values", missing)?;
        let mut coded: Vec<(u32, u32)> = reserved("number of rows", n_set.min(column.rows.len()))?;
        match column.codes_by_row() {
            Some(codes) if n_set * (n_set.ilog2() as usize + 1) * 2 < column.rows.len() => {
                let pairs = set.rows.iter().map(|&row| (codes[row as usize], row));
                coded.extend(pairs.filter(|&(code, _)| code != MISSING));
                coded.sort_unstable();
            }
            _ => {
                let places = column.rows.iter().enumerate().filter(|(_, row)| is_in(row));
                coded.extend(places.map(|(at, &row)| (column.code(at), row)));
            }
        }
        let mut n_zeros = 0;
        let mut at_zero = u32::MAX;
        if let Some(zero) = column.implicit {
            n_zeros = n_set - coded.len() - missing.len();
            at_zero = zero;
            if n_zeros > 0 && n_zeros < coded.len() {
                // Here, the rows with the value 0 are listed, because computing their sums by subtraction
                // would lose digits.
                let others = coded.iter().map(|pair| pair.1);
                let mut others: Vec<u32> =
                    collected("number of rows", others.chain(missing.iter().copied()))?;
                others.sort_unstable();
                let zeros = set
                    .rows
                    .iter()
                    .filter(|row| others.binary_search(row).is_err());
                let place = coded.partition_point(|pair| pair.0 < zero);
                extend("number of rows", &mut coded, zeros.map(|&row| (zero, row)))?;
                coded[place..].rotate_right(n_zeros);
                n_zeros = 0;
            }
        }
        let key = |code: u32| {
            if coarse && !column.nominal {
                u32::from(column.groups[code as usize])
            } else {
                code
            }
        };
        let mut groups: Vec<Group> = Vec::new();
        let n_groups = "number of values";
        let zeros = |at: usize| Group {
            first: at_zero,
            last: at_zero,
            from: at,
            to: at,
            count: n_zeros,
        };
        let mut placed = n_zeros == 0;
        for (at, &(code, _)) in coded.iter().enumerate() {
            if !placed && code > at_zero {
                push(n_groups, &mut groups, zeros(at))?;
                placed = true;
            }
            match groups.last_mut() {
                Some(group) if group.to > group.from && key(group.last) == key(code) => {
                    group.last = code;
                    group.to += 1;
                    group.count += 1;
                }
                _ => {
                    let group = Group {
                        first: code,
                        last: code,
                        from: at,
                        to: at + 1,
                        count: 1,
                    };
                    push(n_groups, &mut groups, group)?;
                }
            }
        }
        if !placed {
            push(n_groups, &mut groups, zeros(coded.len()))?;
        }
        Ok(Self {
            rows: collected("number of rows", coded.into_iter().map(|pair| pair.1))?,
            list: groups,
            missing,
        })
    }

    /// Does the work of [`new`](Self::new) for a common special case: the column is sparse, has no missing
    /// values, and has a single nonzero value. At most half of the rows of the set have this value. Returns
    /// `None` in all other cases. The function reads neither values nor codes, which saves memory accesses
    /// per row.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the groups do not fit in memory.
    fn of_one_value(column: &Column, set: &RowSet<'_>) -> Result<Option<Self>, Error> {
        let Some(zero) = column.implicit else {
            return Ok(None);
        };
        if column.values.len() != 2 || !column.missing.is_empty() {
            return Ok(None);
        }
        let is_in = |row: u32| set.positions[row as usize] != ABSENT;
        let rows = select(column.rows.iter().copied(), is_in)?;
        let n_in = rows.len();
        let n_zeros = set.rows.len() - n_in;
        if n_zeros < n_in {
            return Ok(None);
        }
        let group = |code: u32, from: usize, to: usize, count: usize| Group {
            first: code,
            last: code,
            from,
            to,
            count,
        };
        let at = if zero == 0 { 0 } else { n_in };
        let mut both = [group(zero, at, at, n_zeros), group(1 - zero, 0, n_in, n_in)];
        if zero == 1 {
            both.swap(0, 1);
        }
        Ok(Some(Self {
            rows,
            list: few(both.into_iter().filter(|group| group.count > 0)),
            missing: Vec::new(),
        }))
    }
}
