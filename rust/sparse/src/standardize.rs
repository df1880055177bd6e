//! Columns of unit variance: what features of different scales, or mostly nonzero ones, want.

use crate::{CsrOwned, CsrView, Index, Value};
use manylabel_base::{Error, Watch, collected, filled, reserved};

/// A column whose standard deviation is less than this share of its root mean square is
/// constant: the rest is rounding of `f32`, in which weights and scores are.
const CONSTANT_BELOW: f64 = 1e-6;

/// Standard deviations below this count as none, and no more than its reciprocal can be handled:
/// weights for the columns as they were would leave the range of `f32`.
const SMALLEST_DEVIATION: f64 = 1e-30;

/// Entries between two looks at the watch.
const ENTRIES_PER_STEP: usize = 1 << 20;

/// What is subtracted from columns, and what they are then multiplied by.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnScaling {
    /// Means of the columns that are centred, 0 of the others.
    pub shift: Vec<f64>,
    /// `1 / (σ_j √k)` with k columns that vary, so that rows have unit length on average; 0 for
    /// columns that do not vary.
    pub scale: Vec<f64>,
}

impl ColumnScaling {
    /// Learns the scaling from rows with weights, in O(nnz + `n_cols`).
    ///
    /// A column is centred if `center`, and if more than half of its cells, by weight, are not
    /// zero: it is then stored almost in full already. The mean of any other column is at most its
    /// standard deviation.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if a column varies too much, [`Error::TooLarge`] if memory does not hold the
    /// columns, [`Error::Stopped`].
    pub fn learn<I: Index, T: Value>(
        x: CsrView<'_, I, T>,
        weights: Option<&[f32]>,
        center: bool,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let weight = |row: usize| weights.map_or(1.0, |weights| f64::from(weights[row]));
        let zeros = || filled("number of columns", 0.0, x.n_cols());
        let total: f64 = (0..x.n_rows()).map(weight).sum();

        let (mut stored, mut mean) = (zeros()?, zeros()?);
        each_entry(x, watch, |row, col, value| {
            if value != 0.0 {
                stored[col] += weight(row);
                mean[col] += weight(row) * value;
            }
        })?;
        for sum in &mut mean {
            *sum /= total;
        }

        let (mut variance, mut square) = (zeros()?, zeros()?);
        each_entry(x, watch, |row, col, value| {
            if value != 0.0 {
                variance[col] += weight(row) * (value - mean[col]).powi(2);
                square[col] += weight(row) * value * value;
            }
        })?;
        let mut varying = 0;
        for col in 0..x.n_cols() {
            // Cells that are not stored are zero.
            let zeros = (total - stored[col]).max(0.0);
            variance[col] = (variance[col] + zeros * mean[col].powi(2)) / total;
            let least =
                (CONSTANT_BELOW.powi(2) * square[col] / total).max(SMALLEST_DEVIATION.powi(2));
            if variance[col] <= least {
                variance[col] = 0.0;
            } else if variance[col] > SMALLEST_DEVIATION.powi(-2) {
                return Err(Error::Param {
                    name: "X",
                    expected: "of columns with standard deviations of at most 1e30",
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

    /// The scaled matrix, columns of each row in increasing order. Centred columns are stored in
    /// full, which at most doubles what is stored.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if memory does not hold it, [`Error::Stopped`].
    pub fn apply<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        watch: &Watch,
    ) -> Result<CsrOwned, Error> {
        let shifted = (0..x.n_cols()).filter(|&col| self.shift[col] != 0.0);
        let centred = collected("number of columns", shifted)?;
        let too_large = || Error::TooLarge {
            what: "X",
            got: "more standardized values than can be counted".into(),
        };
        // No more than all centred cells beside all that is stored.
        let room = centred
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
            let mut absent = centred.iter().copied().peekable();
            let mut push = |col: usize, value: f64| {
                let scaled = ((value - self.shift[col]) * self.scale[col]) as f32;
                if scaled != 0.0 {
                    out.indices.push(col as u32);
                    out.values.push(scaled);
                }
            };
            for (col, value) in cols.iter().zip(values) {
                let col = col.get();
                while let Some(before) = absent.next_if(|&centred| centred < col) {
                    push(before, 0.0);
                }
                absent.next_if_eq(&col);
                push(col, value.f64());
            }
            for col in absent {
                push(col, 0.0);
            }
            out.indptr[row + 1] = out.indices.len();
        }
        Ok(out)
    }
}

/// Rows between two looks at the watch.
const ROWS_PER_STEP: usize = 1 << 10;

fn each_entry<I: Index, T: Value>(
    x: CsrView<'_, I, T>,
    watch: &Watch,
    mut visit: impl FnMut(usize, usize, f64),
) -> Result<(), Error> {
    let mut since = 0;
    for row in 0..x.n_rows() {
        let (cols, values) = x.row(row);
        since += cols.len();
        if since > ENTRIES_PER_STEP {
            watch.step(0)?;
            since = 0;
        }
        for (col, value) in cols.iter().zip(values) {
            visit(row, col.get(), value.f64());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::ColumnScaling;
    use crate::{CsrOwned, CsrView};
    use manylabel_base::Watch;

    #[test]
    fn the_definition_on_a_few_rows() {
        // Columns: mostly nonzero, constant, sparse, empty.
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
