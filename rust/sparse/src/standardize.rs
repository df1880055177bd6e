//! Standardizes columns: scales columns to unit variance, for features that have different scales.
//!
//! Regularized linear classifiers treat all columns alike, so a column with large values dominates. Let `m_i`
//! be the weights of the rows, and `M = Σ_i m_i`. Column j has the mean `μ_j = Σ_i m_i x_ij / M` and the
//! variance `σ_j² = Σ_i m_i (x_ij − μ_j)² / M`. Entries that are not stored count as zeros. Standardization
//! replaces a value by
//!
//! ```text
//! (x_ij − shift_j) · scale_j,    scale_j = 1 / (σ_j √k)
//! ```
//!
//! where k is the number of columns that vary, and `shift_j` is `μ_j` or 0. Subtracting a mean turns
//! every zero of the column into a stored value. So only columns that are mostly nonzero are centred.
//! The result then has at most about twice as many stored values as X.
//!
//! Statistics are computed in double precision on one thread, in two passes over X. The first pass
//! computes the means, and the second pass computes the squared deviations from the means. The second
//! pass avoids the cancellation in the formula `E[x²] − E[x]²`.

use crate::{CsrOwned, CsrView, Index, Value};
use manylabel_base::{Error, Watch, collected, filled, reserved};

/// A column counts as constant if its standard deviation, divided by its root mean square, is at most this
/// number. Smaller variations are about as large as the rounding errors of `f32`, the type of weights and
/// scores.
const CONSTANT_BELOW: f64 = 1e-6;

/// Standard deviations up to this number count as 0. Standard deviations above 1e30 are an error, because
/// weights for the original columns would leave the range of `f32`.
const SMALLEST_DEVIATION: f64 = 1e-30;

/// Number of entries that are processed between two checks for a stop request of the caller.
const ENTRIES_PER_STEP: usize = 1 << 20;

/// The shift and the scale of each column. A value x becomes `(x − shift) · scale`.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnScaling {
    /// The mean of each centred column, and 0 for every other column; shape (`n_cols`).
    pub shift: Vec<f64>,
    /// The scale `1 / (σ_j √k)` for each of the k columns that vary, and 0 for each constant column; shape
    /// (`n_cols`). If all varying columns are centred, the mean squared length of the scaled rows is 1.
    pub scale: Vec<f64>,
}

impl ColumnScaling {
    /// Computes the shifts and scales from the rows of `x`, in O(nnz + `n_cols`). `weights` holds the weights
    /// of the rows. Without weights, each row has weight 1.
    ///
    /// If `center` is true, columns that are mostly nonzero and not constant are centred. A column is mostly
    /// nonzero if the rows with nonzero entries have more than half of the total weight. Other columns need
    /// centring less: if a column is mostly zero, its absolute mean is at most its standard deviation.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a standard deviation exceeds 1e30. Returns [`Error::TooLarge`] if there is
    /// not enough memory for a few numbers per column. Returns [`Error::Stopped`] if the caller requested a
    /// stop.
    ///
    /// # Panics
    ///
    /// Panics if there are fewer weights than rows.
    pub fn learn<I: Index, T: Value>(
        x: CsrView<'_, I, T>,
        weights: Option<&[f32]>,
        center: bool,
        watch: &Watch,
    ) -> Result<Self, Error> {
        Self::of_entries(&x, weights, center, watch)
    }

    /// Computes the shifts and scales from the entries of any matrix; see [`learn`](Self::learn).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`learn`](Self::learn).
    pub(crate) fn of_entries(
        x: &impl Entries,
        weights: Option<&[f32]>,
        center: bool,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let (n_rows, n_cols) = x.shape();
        let weight = |row: usize| weights.map_or(1.0, |weights| f64::from(weights[row]));
        let zeros = || filled("number of columns", 0.0, n_cols);
        let total: f64 = (0..n_rows).map(weight).sum();

        let (mut stored, mut mean) = (zeros()?, zeros()?);
        let about = zeros()?;
        let terms = |weight: f64, value: f64, _| (weight, weight * value);
        x.add(weights, &about, terms, (&mut stored, &mut mean), watch)?;
        for sum in &mut mean {
            *sum /= total;
        }

        let (mut variance, mut square) = (zeros()?, zeros()?);
        let terms = |weight: f64, value: f64, mean: f64| {
            (weight * (value - mean).powi(2), weight * value * value)
        };
        x.add(weights, &mean, terms, (&mut variance, &mut square), watch)?;
        let mut varying = 0;
        for col in 0..n_cols {
            // `zeros` is the total weight of the entries that are zero. The squared deviation of each such
            // entry is `mean²`.
            let zeros = (total - stored[col]).max(0.0);
            variance[col] = (variance[col] + zeros * mean[col].powi(2)) / total;
            let least =
                (CONSTANT_BELOW.powi(2) * square[col] / total).max(SMALLEST_DEVIATION.powi(2));
            if variance[col] <= least {
                variance[col] = 0.0;
            } else if variance[col] > SMALLEST_DEVIATION.powi(-2) {
                return Err(Error::Param {
                    name: "X",
                    expected: "a matrix whose columns have standard deviations of at most 1e30",
                    got: format!("{:.1e} in column {col}", variance[col].sqrt()),
                });
            } else {
                varying += 1;
            }
            if !(center && variance[col] > 0.0 && stored[col] > total / 2.0) {
                mean[col] = 0.0;
            }
        }
        let scale = variance.into_iter().map(|variance| {
            if variance > 0.0 {
                (variance * f64::from(varying)).sqrt().recip()
            } else {
                0.0
            }
        });
        Ok(Self {
            scale: collected("number of columns", scale)?,
            shift: mean,
        })
    }

    /// Returns the scaled matrix; see [`ScaledColumns::apply`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`ScaledColumns::apply`].
    ///
    /// # Panics
    ///
    /// Panics if `x` has more columns than the scaling.
    pub fn apply<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        watch: &Watch,
    ) -> Result<CsrOwned, Error> {
        ScaledColumns::new(&self.shift, &self.scale)?.apply(x, watch)
    }
}

/// Columns whose shifts and scales are known. It scales rows one at a time.
#[derive(Debug, Clone)]
pub struct ScaledColumns<'a> {
    /// The shift of each column; see [`ColumnScaling::shift`].
    shift: &'a [f64],
    /// The scale of each column; see [`ColumnScaling::scale`].
    scale: &'a [f64],
    /// The columns whose shift is not 0, in increasing order.
    centred: Vec<usize>,
}

impl<'a> ScaledColumns<'a> {
    /// Borrows the shifts and scales of all columns. Both slices have one entry for each column.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory for a number per column.
    pub fn new(shift: &'a [f64], scale: &'a [f64]) -> Result<Self, Error> {
        let shifted = (0..shift.len()).filter(|&col| shift[col] != 0.0);
        Ok(Self {
            shift,
            scale,
            centred: collected("number of columns", shifted)?,
        })
    }

    /// Returns the scaled matrix, with the columns of each row in increasing order.
    ///
    /// All entries of centred columns are stored. If the row weights are equal, centring at most doubles the
    /// number of stored values. Values that are 0 after scaling are left out, for example the values of
    /// constant columns. The time is O(stored values of the result + nnz) on one thread.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the result does not fit in memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    ///
    /// # Panics
    ///
    /// Panics if `x` has more columns than the scaling.
    pub fn apply<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        watch: &Watch,
    ) -> Result<CsrOwned, Error> {
        let too_large = || Error::TooLarge {
            what: "X",
            got: "the number of standardized values exceeds 64 bits".into(),
        };
        // `room` is an upper bound of the number of stored values in the result. It counts all entries of
        // centred columns and all stored values of `x`.
        let room = self
            .centred
            .len()
            .checked_mul(x.n_rows())
            .and_then(|cells| cells.checked_add(x.nnz()))
            .ok_or_else(too_large)?
            .min(x.n_rows().saturating_mul(x.n_cols()));
        let mut out = CsrOwned {
            indptr: filled("number of rows", 0, x.n_rows() + 1)?,
            indices: reserved("number of standardized values", room)?,
            values: reserved("number of standardized values", room)?,
            n_cols: x.n_cols(),
        };
        for row in 0..x.n_rows() {
            if row % ROWS_PER_STEP == 0 {
                watch.step(0)?;
            }
            let (cols, values) = x.row(row);
            for (col, value) in self.row(cols, values) {
                out.indices.push(col);
                out.values.push(value);
            }
            out.indptr[row + 1] = out.indices.len();
        }
        Ok(out)
    }

    /// Returns the number of columns.
    pub fn n_cols(&self) -> usize {
        self.shift.len()
    }

    /// Returns the entries of a scaled row, in increasing order of column. All entries of centred columns are
    /// returned, also those that are not stored in the given row. Entries that are 0 after scaling are left out.
    ///
    /// # Panics
    ///
    /// Panics if the row has an entry in a column that has no scale.
    pub fn row<I: Index, T: Value>(
        &self,
        cols: &[I],
        values: &[T],
    ) -> impl Iterator<Item = (u32, f32)> {
        let mut absent = self.centred.iter().copied().peekable();
        let stored = cols.iter().map(|col| col.get());
        let mut stored = stored
            .zip(values.iter().map(|value| value.f64()))
            .peekable();
        let entries = std::iter::from_fn(move || {
            let next = stored.peek().map_or(usize::MAX, |&(col, _)| col);
            if let Some(col) = absent.next_if(|&col| col < next) {
                return Some((col, 0.0));
            }
            absent.next_if_eq(&next);
            stored.next()
        });
        let scaled = |(col, value): (usize, f64)| {
            let scaled = ((value - self.shift[col]) * self.scale[col]) as f32;
            // An infinite value times a weight of 0 would be NaN.
            (col as u32, scaled.clamp(f32::MIN, f32::MAX))
        };
        entries.map(scaled).filter(|&(_, value)| value != 0.0)
    }
}

/// Number of rows that are scaled between two checks for a stop request of the caller.
const ROWS_PER_STEP: usize = 1 << 10;

/// A matrix whose columns can be summed.
pub(crate) trait Entries {
    /// Returns the numbers of rows and columns.
    fn shape(&self) -> (usize, usize);

    /// Adds two terms of each nonzero entry to the two sums of its column, in the order of the rows. `terms` gets
    /// the weight of the row, the value, and the number of the column in `about`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Stopped`] if the caller requested a stop.
    fn add(
        &self,
        weights: Option<&[f32]>,
        about: &[f64],
        terms: impl Fn(f64, f64, f64) -> (f64, f64),
        sums: (&mut [f64], &mut [f64]),
        watch: &Watch,
    ) -> Result<(), Error>;
}

impl<I: Index, T: Value> Entries for CsrView<'_, I, T> {
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
        let mut since = 0;
        for row in 0..self.n_rows() {
            let (cols, values) = self.row(row);
            since += cols.len();
            if since > ENTRIES_PER_STEP {
                watch.step(0)?;
                since = 0;
            }
            let weight = weights.map_or(1.0, |weights| f64::from(weights[row]));
            for (col, value) in cols.iter().zip(values) {
                let (col, value) = (col.get(), value.f64());
                if value != 0.0 {
                    let terms = terms(weight, value, about[col]);
                    sums.0[col] += terms.0;
                    sums.1[col] += terms.1;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ColumnScaling;
    use crate::{CsrOwned, CsrView};
    use manylabel_base::Watch;

    #[test]
    fn the_definition_on_a_few_rows() {
        // The first column is mostly nonzero, the second is constant, the third is sparse, and the fourth is
        // empty.
        let rows = [
            [1.0, 7.0, 0.0, 0.0],
            [2.0, 7.0, 0.0, 0.0],
            [0.0, 7.0, 5.0, 0.0],
            [4.0, 7.0, 0.0, 0.0f32],
        ];
        let mut x = CsrOwned {
            indptr: vec![0],
            indices: Vec::new(),
            values: Vec::new(),
            n_cols: 4,
        };
        for row in rows {
            for (col, value) in (0..).zip(row).filter(|pair| pair.1 != 0.0) {
                x.indices.push(col);
                x.values.push(value);
            }
            x.indptr.push(x.indices.len());
        }
        let indptr: Vec<i32> = x.indptr.iter().map(|&end| end as i32).collect();
        let indices: Vec<i32> = x.indices.iter().map(|&col| col as i32).collect();
        let view = CsrView::new("X", &indptr, &indices, &x.values, 4).expect("valid");
        for weights in [None, Some([1.0, 2.0, 0.5, 3.0])] {
            let weight = |row: usize| weights.map_or(1.0, |all| f64::from(all[row]));
            let total: f64 = (0..4).map(weight).sum();
            let scaling = ColumnScaling::learn(
                view,
                weights.as_ref().map(<[f32; 4]>::as_slice),
                true,
                &Watch::new(),
            )
            .expect("small");
            let scaled = scaling.apply(view, &Watch::new()).expect("small");
            for col in 0..4 {
                let values = || rows.iter().map(|row| f64::from(row[col]));
                let mean: f64 = values()
                    .enumerate()
                    .map(|(i, v)| weight(i) * v)
                    .sum::<f64>()
                    / total;
                let variance: f64 = values()
                    .enumerate()
                    .map(|(i, v)| weight(i) * (v - mean).powi(2))
                    .sum::<f64>()
                    / total;
                let varies = variance > 1e-12;
                let scale = if varies {
                    (2.0 * variance).sqrt().recip()
                } else {
                    0.0
                };
                let shift = if col == 0 { mean } else { 0.0 };
                assert!((scaling.scale[col] - scale).abs() < 1e-12, "{col}");
                assert!((scaling.shift[col] - shift).abs() < 1e-12, "{col}");
                for (row, value) in values().enumerate() {
                    let (cols, stored) = scaled.row(row);
                    let found = cols.iter().position(|&other| other as usize == col);
                    let got = found.map_or(0.0, |at| f64::from(stored[at]));
                    assert!((got - (value - shift) * scale).abs() < 1e-6);
                }
            }
        }
        let uncentred = ColumnScaling::learn(view, None, false, &Watch::new()).expect("small");
        assert_eq!(uncentred.shift, [0.0; 4]);
    }
}
