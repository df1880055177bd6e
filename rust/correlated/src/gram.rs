//! Computes the second moments of all columns for which a label may have weights: features, labels
//! and the constant.
//!
//! If predictions are constant, the curvature of the loss of every label is proportional to the
//! second moments. The quasi-Newton solver therefore starts from them. For c columns, the second
//! moments take O(c²) memory. Computing them takes about as long as one gradient of a problem with
//! c labels.

use crate::gradient::Gradient;
use crate::wide::{Float, Wide};
use manylabel_base::{Error, Watch, collected, extend, filled};
use rayon::prelude::*;

/// Largest number of columns for which the second moments are computed. They then take 16 MiB in
/// single precision.
const MAX_COLUMNS: usize = 2048;

/// Smallest number of rows per column for which the second moments are used. With fewer rows, the
/// curvature depends on a few rows with uncertain labels, and the second moments are a poor
/// estimate.
const ROWS: usize = 2;

/// Cost of one multiplication in a quasi-Newton step, relative to one multiplication with a value
/// of the training data. Quasi-Newton steps save gradients. If the training data have few stored
/// values, gradients take less time than these steps.
const DEAR: usize = 8;

/// The second moments `ZᵀΩZ`. The columns of Z are the centred features, the centred labels and a
/// constant column. Ω is the diagonal matrix of the row weights.
pub(crate) struct Gram<T> {
    /// The entries, stored row by row. The matrix is symmetric up to rounding.
    values: Vec<T>,
    /// Number of columns.
    side: usize,
}

impl<T: Float> Gram<T> {
    /// Computes the second moments. Returns `None` if there are too many columns, or if the second
    /// moments would not save time.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    pub(crate) fn new<const N: usize>(
        gradient: &Gradient<'_, T, N>,
        watch: &Watch,
    ) -> Result<Option<Self>, Error> {
        let (design, labels) = (&gradient.design, gradient.labels);
        let (width, m) = (design.width(), labels.len());
        let side = width + m + 1;
        let n_rows = design.cuts().last().map_or(0, |rows| rows.end);
        let stored = design.stored() + labels.stored();
        if side > MAX_COLUMNS || n_rows < ROWS * side || stored * DEAR < side * side {
            return Ok(None);
        }
        let shifts = (0..width).map(|col| design.shift.get(col).copied().unwrap_or(0.0));
        let means = collected(
            "the matrix of second moments",
            shifts.chain(labels.share.iter().copied()),
        )?;
        let all = collected("the matrix of second moments", 0..m as u32)?;
        let mut values = filled("the matrix of second moments", T::default(), side * side)?;
        // Columns are processed N at a time. `add_transposed` multiplies all columns by these N
        // columns in the same way as by the residuals of N labels.
        values
            .par_chunks_mut(side * N)
            .enumerate()
            .try_for_each(|(panel, out)| {
                let cols = panel * N..((panel + 1) * N).min(width + m);
                let mut sums = filled(
                    "the matrix of second moments",
                    Wide::<T, N>::zero(),
                    width + m,
                )?;
                let mut rows = Vec::new();
                for (block, cut) in design.cuts().iter().enumerate() {
                    watch.step(0)?;
                    rows.clear();
                    let zeros = std::iter::repeat_n(Wide::zero(), cut.len());
                    extend("number of rows of a block", &mut rows, zeros)?;
                    gradient.columns(block, cols.clone(), &mut rows);
                    let (of_features, of_labels) = sums.split_at_mut(width);
                    design.add_transposed(block, &rows, of_features);
                    labels.add_transposed(block, &all, &rows, of_labels);
                }
                for (lane, out) in out.chunks_exact_mut(side).enumerate() {
                    let Some(&mean) = means.get(panel * N + lane) else {
                        out[side - 1] = T::of(1.0);
                        continue;
                    };
                    for ((out, sum), other) in out.iter_mut().zip(&sums).zip(&means) {
                        *out = T::of(sum.0[lane].f64() - mean * other);
                    }
                }
                Ok(())
            })?;
        Ok(Some(Self { values, side }))
    }

    /// Returns the second moments of one column with all columns. Features come first, then labels.
    /// The constant column comes last.
    pub(crate) fn row(&self, col: usize) -> &[T] {
        &self.values[col * self.side..][..self.side]
    }
}
