//! Defines a borrowed CSR matrix with a checked structure.
//!
//! scipy does not guarantee that the arrays of a `csr_array` are consistent. A caller may have edited the
//! arrays, or loaded them from a damaged file. [`CsrView::new`] checks the arrays once, before Rust code uses
//! them. No other code has to check the arrays again.

use crate::{DenseView, Index, Real, Value};
use manylabel_base::Error;
use manylabel_base::range::same;

/// A borrowed CSR matrix with indices of type `I` and values of type `T`.
///
/// The arrays satisfy the rules listed in the documentation of [`new`](Self::new). Values are not checked:
/// they may be zero, infinite or NaN. A view consists of three slices and a number of columns, so copying it
/// takes almost no time.
///
/// A view can also have dense rows, in which all entries are stored; see [`of_dense`](Self::of_dense). So code for
/// sparse rows reads dense rows without a copy.
#[derive(Debug, Clone, Copy)]
pub struct CsrView<'a, I, T> {
    rows: Rows<'a, I>,
    /// The values, row after row.
    values: &'a [T],
    /// Number of columns.
    n_cols: usize,
}

/// The columns of the values.
#[derive(Debug, Clone, Copy)]
enum Rows<'a, I> {
    /// Each row stores some of the columns.
    Some {
        /// Row ends: `n_rows + 1` numbers that start at 0, never decrease and end at `indices.len()`.
        indptr: &'a [I],
        /// Columns, row after row. Within a row, they are strictly increasing and below `n_cols`.
        indices: &'a [I],
    },
    /// Each row stores all columns.
    All {
        n_rows: usize,
        /// All columns, in increasing order.
        columns: &'a [I],
    },
}

impl<'a, I: Index, T: Real> CsrView<'a, I, T> {
    /// Returns a view of dense rows. All entries count as stored, also zeros. `columns` must have the numbers
    /// 0, 1, … of all columns.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if `columns` does not have one number for each column. Returns [`Error::Csr`] if a
    /// number differs from its position.
    pub fn of_dense(x: DenseView<'a, T>, columns: &'a [I]) -> Result<Self, Error> {
        same("number of columns", x.n_cols(), columns.len())?;
        if columns.iter().enumerate().any(|(at, col)| col.get() != at) {
            return Err(Error::Csr {
                matrix: "X",
                row: 0,
                rule: "the columns of dense rows are not 0, 1, …".into(),
            });
        }
        Ok(Self {
            rows: Rows::All {
                n_rows: x.n_rows(),
                columns,
            },
            values: x.rows(0..x.n_rows()),
            n_cols: x.n_cols(),
        })
    }
}

/// Describes the first column of a row that is out of range, out of order or repeated. Returns None if there is none.
#[expect(
    clippy::needless_bitwise_bool,
    reason = "a loop without branches is vectorized"
)]
#[inline]
fn column_fault<I: Index>(columns: &[I], n_cols: usize) -> Option<String> {
    let (first, last) = (columns.first()?, columns.last()?);
    let increase = columns
        .windows(2)
        .fold(true, |yes, pair| yes & (pair[0] < pair[1]));
    // If columns increase, and the first is not negative, those between `first` and `last` are in range, too. A
    // negative column becomes larger than any other number.
    if increase && first.get() <= last.get() && last.get() < n_cols {
        return None;
    }
    let mut next = 0;
    columns.iter().find_map(|&col| {
        if col.get() >= n_cols {
            return Some(format!("column {col} is out of range for {n_cols} columns"));
        }
        let ordered = col.get() >= next;
        next = col.get() + 1;
        (!ordered).then(|| format!("column {col} is out of order or repeated"))
    })
}

impl<'a, I: Index, T> CsrView<'a, I, T> {
    /// Borrows a CSR matrix after checking its structure, in O(`n_rows` + nnz).
    ///
    /// `indptr` must start at 0, never decrease and end at `indices.len()`. Within a row, columns must
    /// be 0-based, strictly increasing and below `n_cols`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Csr`] if the arrays break a rule. The error contains the argument `matrix` (the
    /// name of the matrix), the number of the first invalid row, and a description of the problem. If
    /// `indptr` is empty or does not start at 0, or if the lengths of `indices` and `values` differ,
    /// the row is 0. If `indptr` does not end at `indices.len()`, the row is the number of rows.
    pub fn new(
        matrix: &'static str,
        indptr: &'a [I],
        indices: &'a [I],
        values: &'a [T],
        n_cols: usize,
    ) -> Result<Self, Error> {
        let fail = |row: usize, rule: String| Err(Error::Csr { matrix, row, rule });
        let (Some(first), Some(last)) = (indptr.first(), indptr.last()) else {
            return fail(0, "indptr is empty".into());
        };
        if first.get() != 0 {
            return fail(0, format!("indptr starts at {first}, not 0"));
        }
        if indices.len() != values.len() {
            return fail(
                0,
                format!("{} indices but {} values", indices.len(), values.len()),
            );
        }
        if last.get() != indices.len() {
            let rule = format!(
                "indptr ends at {last}, but there are {} indices",
                indices.len()
            );
            return fail(indptr.len() - 1, rule);
        }
        for (row, ends) in indptr.windows(2).enumerate() {
            let (start, end) = (ends[0].get(), ends[1].get());
            if start > end || end > indices.len() {
                return fail(row, format!("indptr goes from {} to {}", ends[0], ends[1]));
            }
            if let Some(rule) = column_fault(&indices[start..end], n_cols) {
                return fail(row, rule);
            }
        }
        Ok(Self {
            rows: Rows::Some { indptr, indices },
            values,
            n_cols,
        })
    }

    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        match self.rows {
            Rows::Some { indptr, .. } => indptr.len() - 1,
            Rows::All { n_rows, .. } => n_rows,
        }
    }

    /// Returns the number of columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Returns the number of stored entries, including explicit zeros.
    pub fn nnz(&self) -> usize {
        self.values.len()
    }

    /// Returns a matrix with the same stored positions and other values, in O(1).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if there is not one value per stored entry.
    pub fn with_values<V>(&self, values: &'a [V]) -> Result<CsrView<'a, I, V>, Error> {
        same("number of values", self.values.len(), values.len())?;
        Ok(CsrView {
            rows: self.rows,
            values,
            n_cols: self.n_cols,
        })
    }

    /// Returns the columns (strictly increasing) and values of one row, in O(1).
    ///
    /// # Panics
    ///
    /// Panics if `row >= n_rows`. Also panics if another thread has overwritten the borrowed `indptr`
    /// so that the row is invalid.
    #[inline]
    pub fn row(&self, row: usize) -> (&'a [I], &'a [T]) {
        match self.rows {
            Rows::Some { indptr, indices } => {
                let range = indptr[row].get()..indptr[row + 1].get();
                (&indices[range.clone()], &self.values[range])
            }
            Rows::All { columns, .. } => (
                columns,
                &self.values[row * columns.len()..][..columns.len()],
            ),
        }
    }
}

impl<I: Index, T: Value> CsrView<'_, I, T> {
    /// Returns the number of stored entries, without explicit zeros if the rows are dense.
    pub(crate) fn n_entries(&self) -> usize {
        match self.rows {
            Rows::Some { .. } => self.values.len(),
            Rows::All { .. } => self
                .values
                .iter()
                .filter(|value| value.f64() != 0.0)
                .count(),
        }
    }

    /// Returns two numbers that scale a row to unit length: divide each value by the first number, then
    /// by the second.
    ///
    /// Usually the first number is the Euclidean norm of the row, and the second number is 1. If the norm is
    /// below 1e-140 or at least 1e140, squares may overflow or underflow. In this case, the first number is
    /// the largest absolute value of the row. The second number is the norm of the row divided by the first
    /// number. If `normalize` is false or all values are zero, the two numbers are 1. The time is O(entries
    /// of the row).
    ///
    /// # Panics
    ///
    /// Panics under the same conditions as [`row`](Self::row).
    pub fn row_divisors(&self, row: usize, normalize: bool) -> (f64, f64) {
        if !normalize {
            return (1.0, 1.0);
        }
        divisors(self.row(row).1)
    }
}

/// Returns two numbers that scale a row with these values to unit length; see [`CsrView::row_divisors`].
pub(crate) fn divisors<T: Value>(values: &[T]) -> (f64, f64) {
    let norm_in = |unit: f64| {
        let squares = values.iter().map(|value| (value.f64() / unit).powi(2));
        squares.sum::<f64>().sqrt()
    };
    let norm = norm_in(1.0);
    if (1e-140..1e140).contains(&norm) {
        return (norm, 1.0);
    }
    let largest = values
        .iter()
        .fold(0.0f64, |largest, value| largest.max(value.f64().abs()));
    if largest > 0.0 {
        (largest, norm_in(largest))
    } else {
        (1.0, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The arrays of a CSR matrix, which may be invalid.
    #[derive(Debug)]
    struct Arrays {
        indptr: Vec<i64>,
        indices: Vec<i64>,
        n_values: usize,
    }

    /// Many columns, so that the check of a row is vectorized.
    const N_COLS: usize = 40;

    impl Arrays {
        /// Returns true if the row ends and the array lengths satisfy the definition of a valid matrix. The
        /// code follows this definition literally.
        fn has_rows(&self) -> bool {
            let n = self.indices.len();
            self.indptr.first() == Some(&0)
                && self.indptr.last() == Some(&(n as i64))
                && self.indptr.is_sorted()
                && self.n_values == n
        }

        fn row(&self, row: usize) -> &[i64] {
            &self.indices[self.indptr[row] as usize..self.indptr[row + 1] as usize]
        }

        /// Returns the first row with a column that is out of range, out of order or repeated, and describes the column.
        fn first_bad_row(&self) -> Option<(usize, String)> {
            (0..self.indptr.len() - 1).find_map(|row| {
                let cols = self.row(row);
                let fault = (0..cols.len()).find_map(|at| {
                    let col = cols[at];
                    if !(0..N_COLS as i64).contains(&col) {
                        Some(format!("column {col} is out of range for {N_COLS} columns"))
                    } else if at > 0 && cols[at - 1] >= col {
                        Some(format!("column {col} is out of order or repeated"))
                    } else {
                        None
                    }
                });
                fault.map(|fault| (row, fault))
            })
        }
    }

    /// Returns a valid matrix with up to two random changes, which often make it invalid.
    fn arrays() -> impl Strategy<Value = Arrays> {
        let rows =
            prop::collection::vec(prop::collection::btree_set(0..N_COLS as i64, 0..30), 0..5);
        let change = (0..4, any::<prop::sample::Index>(), -1..=N_COLS as i64);
        (rows, prop::collection::vec(change, 0..3)).prop_map(|(rows, changes)| {
            let mut indptr = vec![0];
            for row in &rows {
                indptr.push(indptr[indptr.len() - 1] + row.len() as i64);
            }
            let mut indices: Vec<i64> = rows.into_iter().flatten().collect();
            let mut n_values = indices.len();
            for (what, at, value) in changes {
                match what {
                    0 if !indptr.is_empty() => *at.get_mut(&mut indptr) = value,
                    1 if !indices.is_empty() => *at.get_mut(&mut indices) = value,
                    2 => n_values = at.index(n_values + 1),
                    _ => indptr.truncate(at.index(indptr.len() + 1)),
                }
            }
            Arrays {
                indptr,
                indices,
                n_values,
            }
        })
    }

    /// Compares the result of `CsrView::new` with the definition of a valid matrix, for indices of type `I`.
    fn compare<I: Index>(arrays: &Arrays, narrow: fn(i64) -> I) -> Result<(), TestCaseError> {
        let indptr: Vec<I> = arrays.indptr.iter().map(|&end| narrow(end)).collect();
        let indices: Vec<I> = arrays.indices.iter().map(|&col| narrow(col)).collect();
        let values = vec![1.0f32; arrays.n_values];
        match CsrView::new("X", &indptr, &indices, &values, N_COLS) {
            Ok(x) => {
                prop_assert!(arrays.has_rows());
                prop_assert_eq!(arrays.first_bad_row(), None);
                prop_assert_eq!(x.n_rows(), arrays.indptr.len() - 1);
                for row in 0..x.n_rows() {
                    let (cols, values) = x.row(row);
                    let cols: Vec<i64> = cols.iter().map(|col| col.get() as i64).collect();
                    prop_assert_eq!(&cols[..], arrays.row(row));
                    prop_assert_eq!(values.len(), cols.len());
                }
            }
            Err(Error::Csr { matrix, row, rule }) => {
                prop_assert_eq!(matrix, "X");
                if arrays.has_rows() {
                    prop_assert_eq!(Some((row, rule)), arrays.first_bad_row());
                }
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
        Ok(())
    }

    proptest! {
        // Many cases are needed, because only a few random changes come close to breaking a rule.
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn accepts_exactly_the_valid_structures(arrays in arrays()) {
            compare(&arrays, |position| position as i32)?;
            compare(&arrays, |position| position)?;
        }
    }
}
