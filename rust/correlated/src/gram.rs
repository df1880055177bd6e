//! Second moments of all columns a label may have weights for.

use crate::gradient::Gradient;
use crate::wide::{Float, Wide};
use manylabel_base::{Error, Watch, collected, extend, filled};
use rayon::prelude::*;

/// Columns at most: their moments take 16 MiB in single precision.
const MAX_COLUMNS: usize = 2048;

/// Rows for each column at least: the moments of few say little of curvature, which then is in rows
/// that happen to be in doubt.
const ROWS: usize = 2;

/// What a multiplication of matrices as small as those of one label costs, in multiplications by values
/// of the training data: where those are too few, gradients cost less than is done to save them.
const DEAR: usize = 8;

/// `ZᵀΩZ` for centred columns Z: features, labels and a constant one.
pub(crate) struct Gram<T> {
    values: Vec<T>,
    side: usize,
}

impl<T: Float> Gram<T> {
    /// The moments, if they are of use and not too many; takes about one gradient of as
    /// many labels as there are columns.
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
        let means = collected("second moments", shifts.chain(labels.share.iter().copied()))?;
        let all = collected("second moments", 0..m as u32)?;
        let mut values = filled("second moments", T::default(), side * side)?;
        // Columns are taken N at a time as if they were residuals of labels.
        values
            .par_chunks_mut(side * N)
            .enumerate()
            .try_for_each(|(panel, out)| {
                let cols = panel * N..((panel + 1) * N).min(width + m);
                let mut sums = filled("second moments", Wide::<T, N>::zero(), width + m)?;
                let mut rows = Vec::new();
                for (block, cut) in design.cuts().iter().enumerate() {
                    watch.step(0)?;
                    rows.clear();
                    let zeros = std::iter::repeat_n(Wide::zero(), cut.len());
                    extend("rows of a block", &mut rows, zeros)?;
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

    /// Moments with one column; features come first, then labels, and last the constant.
    pub(crate) fn row(&self, col: usize) -> &[T] {
        &self.values[col * self.side..][..self.side]
    }
}
