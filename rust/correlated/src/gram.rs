//! Computes the second moments of all columns for which a label may have weights: features, labels
//! and the constant.
//!
//! If predictions are constant, the curvature of the loss of every label is proportional to the
//! second moments. The quasi-Newton solver therefore starts from them. For c columns, the second
//! moments take O(c²) memory. Computing them takes about as long as one gradient of a problem with
//! c labels.

use crate::gradient::Gradient;
use crate::stored::stored;
use crate::wide::{Float, Wide};
use manylabel_base::range::same;
use manylabel_base::{Error, Tasks, Watch, collected, extend, filled};
use rayon::prelude::*;
use std::ops::Range;

/// Name of the matrix in error messages about memory.
const MOMENTS: &str = "the matrix of second moments";

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

stored!([T: Float] Gram<T> { values, side });

impl<T: Float> Gram<T> {
    /// Returns whether the second moments are useful. They are not if there are too many columns, or if they
    /// would not save time.
    pub(crate) fn is_useful<const N: usize>(gradient: &Gradient<T, N>) -> bool {
        let (design, labels) = (&gradient.design, &gradient.labels);
        let side = side(gradient);
        let n_rows = design.cuts().last().map_or(0, |rows| rows.end);
        let stored = design.stored() + labels.stored();
        side <= MAX_COLUMNS && n_rows >= ROWS * side && stored * DEAR >= side * side
    }

    /// Returns the number of units of work. A unit has N rows of the matrix, and the last unit may have fewer.
    pub(crate) fn n_units<const N: usize>(gradient: &Gradient<T, N>) -> usize {
        side(gradient).div_ceil(N)
    }

    /// Returns the number of values of a unit.
    pub(crate) fn unit<const N: usize>(gradient: &Gradient<T, N>) -> usize {
        side(gradient) * N
    }

    /// Joins the rows of all units.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the number of values is not the square of the number of columns.
    pub(crate) fn new<const N: usize>(
        gradient: &Gradient<T, N>,
        values: Vec<T>,
    ) -> Result<Self, Error> {
        let side = side(gradient);
        same(
            "numbers in the matrix of second moments",
            side * side,
            values.len(),
        )?;
        Ok(Self { values, side })
    }

    /// Computes the rows of some units.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    pub(crate) fn rows<const N: usize>(
        gradient: &Gradient<T, N>,
        units: &Range<usize>,
        watch: &Watch,
    ) -> Result<Vec<T>, Error> {
        let (design, labels) = (&gradient.design, &gradient.labels);
        let (width, m) = (design.width(), labels.len());
        let side = side(gradient);
        let shifts = (0..width).map(|col| design.shift.get(col).copied().unwrap_or(0.0));
        let means = collected(MOMENTS, shifts.chain(labels.share.iter().copied()))?;
        let all = collected(MOMENTS, 0..m as u32)?;
        let n_rows = (units.end * N).min(side) - (units.start * N).min(side);
        let mut values = filled(MOMENTS, T::default(), n_rows * side)?;
        // Columns are processed N at a time. `add_transposed` multiplies all columns by these N
        // columns in the same way as by the residuals of N labels.
        values
            .par_chunks_mut(Self::unit(gradient))
            .enumerate()
            .try_each(|(panel, out)| {
                let panel = units.start + panel;
                let cols = panel * N..((panel + 1) * N).min(width + m);
                let mut sums = filled(MOMENTS, Wide::<T, N>::zero(), width + m)?;
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
        Ok(values)
    }

    /// Returns the second moments of one column with all columns. Features come first, then labels.
    /// The constant column comes last.
    pub(crate) fn row(&self, col: usize) -> &[T] {
        &self.values[col * self.side..][..self.side]
    }
}

/// Returns the number of columns: features, labels and the constant.
fn side<T: Float, const N: usize>(gradient: &Gradient<T, N>) -> usize {
    gradient.design.width() + gradient.labels.len() + 1
}
