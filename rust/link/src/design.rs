//! Computes the features Φ of the training rows. If there is enough memory, the features are
//! computed once and kept. Otherwise they are computed again each time they are needed.
//!
//! A row x has k linear predictions p. With a constant, they form `h = (p, 1)`, of length k + 1.
//! The features of the row are s cosines of h and a constant 1. Their number is s + 1, and the code
//! calls it `size`. With the linear kernel, the features are h itself. Features are in single
//! precision. Linear predictions and angles are computed in double precision. A row takes O(s k)
//! time.

use crate::gram::Factor;
use crate::lanes::{Waves, cosines};
use manylabel_base::{Error, Tasks, Watch, collected, extend, filled};
use manylabel_sparse::{CsrView, Index, Sparse, Value, with_sparse};
use rayon::prelude::*;

/// Number of rows that one thread computes at a time.
const ROWS: usize = 64;

/// Name of the predictions in error messages about memory.
pub(crate) const PREDICTIONS: &str = "number of projected predictions";

/// The projection that computes the linear predictions of a row x, `h = (x W + a, 1)`. Features are
/// computed from these predictions.
///
/// ```
/// use manylabel_link::Projection;
///
/// // Two features, three predictions: W row after row, then a.
/// let weights = [1.0, 0.0, 0.5, 0.0, 1.0, -0.5];
/// assert!(Projection::new(&weights, &[0.0; 3], 2).is_ok());
/// assert!(Projection::new(&weights, &[0.0; 3], 4).is_err());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Projection<'a> {
    /// The weights W of the linear predictions, stored row by row.
    weights: &'a [f64],
    /// The intercepts a of the linear predictions; shape (k,).
    intercept: &'a [f64],
    /// Whether rows are scaled to unit length before the predictions are computed.
    by_row: bool,
}

impl<'a> Projection<'a> {
    /// Borrows W and a. W is stored row by row with shape (`n_features`, k), and a has length k.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if k is 0, or if W does not have `n_features` rows of length k.
    pub fn new(weights: &'a [f64], intercept: &'a [f64], n_features: usize) -> Result<Self, Error> {
        let k = intercept.len();
        if k == 0 || !weights.len().is_multiple_of(k) {
            return Err(Error::Shape {
                what: "components of projection_",
                expected: k,
                got: weights.len(),
            });
        }
        if weights.len() / k != n_features {
            return Err(Error::Shape {
                what: "features of X",
                expected: weights.len() / k,
                got: n_features,
            });
        }
        Ok(Self {
            weights,
            intercept,
            by_row: false,
        })
    }

    /// If `by_row` is true, rows are scaled to unit length before their predictions are computed.
    pub fn of_unit_rows(self, by_row: bool) -> Self {
        Self { by_row, ..self }
    }

    /// Returns the number of features of X.
    pub(crate) fn n_features(&self) -> usize {
        self.weights.len() / self.intercept.len()
    }

    /// Returns k + 1, the number of predictions plus the constant.
    pub(crate) fn width(&self) -> usize {
        self.intercept.len() + 1
    }

    /// Computes the predictions of one row followed by the constant 1, and writes them to `out`.
    /// `out` must have length k + 1.
    ///
    /// Sums are in double precision. Results beyond the range of single precision are replaced by
    /// the largest finite number, and NaN is replaced by 0. Takes O(k · stored values of the row)
    /// time.
    pub(crate) fn project<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        row: usize,
        out: &mut [f32],
    ) {
        if self.by_row {
            let (unit, norm) = x.row_divisors(row, true);
            self.project_scaled(x, row, |value| value / unit / norm, out);
        } else {
            self.project_scaled(x, row, |value| value, out);
        }
    }

    /// Does the work of [`project`](Self::project). `scaled` scales a value of the row.
    fn project_scaled<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        row: usize,
        scaled: impl Fn(f64) -> f64 + Copy,
        out: &mut [f32],
    ) {
        let (sums, constant) = out.split_at_mut(self.intercept.len());
        let (sixteens, sums) = sums.as_chunks_mut::<16>();
        let (fours, ones) = sums.as_chunks_mut::<4>();
        let first = self.sum_up(x, row, scaled, 0, sixteens);
        let first = self.sum_up(x, row, scaled, first, fours);
        self.sum_up(x, row, scaled, first, ones.as_chunks_mut::<1>().0);
        constant.fill(1.0);
    }

    /// Computes N predictions of a row, starting with prediction number `first`. The sums of N
    /// predictions stay in registers. Returns the number of the next prediction.
    #[inline(always)]
    fn sum_up<const N: usize, I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        row: usize,
        scaled: impl Fn(f64) -> f64,
        mut first: usize,
        out: &mut [[f32; N]],
    ) -> usize {
        let k = self.intercept.len();
        let (cols, values) = x.row(row);
        for out in out {
            let mut sums = [0.0; N];
            sums.copy_from_slice(&self.intercept[first..][..N]);
            for (col, value) in cols.iter().zip(values) {
                let value = scaled(value.f64());
                let weights = &self.weights[col.get() * k + first..][..N];
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    *sum += value * weight;
                }
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                // A sum of opposite infinities is NaN. It contains no information about the row and
                // is replaced by 0.
                let sum = if sum.is_nan() { 0.0 } else { sum };
                *out = sum.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
            }
            first += N;
        }
        first
    }

    /// Appends the constant 1 to the predictions of each row. `predictions` has k numbers per row.
    pub(crate) fn given(&self, predictions: &[f32]) -> Result<Vec<f32>, Error> {
        let width = self.width();
        let n_rows = predictions.len() / (width - 1);
        let mut h = filled(PREDICTIONS, 1.0, n_rows * width)?;
        for (h, given) in h.chunks_mut(width).zip(predictions.chunks(width - 1)) {
            h[..width - 1].copy_from_slice(given);
        }
        Ok(h)
    }

    /// Returns the predictions and the constant 1 for all rows, row by row. Rows are processed in
    /// parallel.
    pub(crate) fn all(&self, x: Sparse<'_>, watch: &Watch) -> Result<Vec<f32>, Error> {
        let width = self.width();
        let mut h = filled(PREDICTIONS, 0.0, x.n_rows() * width)?;
        h.par_chunks_mut(ROWS * width)
            .enumerate()
            .try_each(|(block, out)| {
                watch.step(0)?;
                with_sparse!(x, |x| {
                    for (i, out) in out.chunks_mut(width).enumerate() {
                        self.project(x, block * ROWS + i, out);
                    }
                });
                Ok(())
            })?;
        Ok(h)
    }
}

/// The features of all rows of the fit, with `size` features per row. The last feature is a
/// constant 1. The other features are cosines. With the linear kernel, they are the linear
/// predictions.
pub(crate) struct Design {
    /// For each row, its linear predictions and the constant 1, stored row by row.
    h: Vec<f32>,
    /// The number of linear predictions plus one.
    width: usize,
    /// Frequencies of the cosine features, stored as k + 1 rows of length s. Empty for the linear
    /// kernel.
    pub(crate) frequencies: Vec<f32>,
    /// The s phases of the cosine features. Empty for the linear kernel.
    pub(crate) phases: Vec<f32>,
    /// Number of features of a row, including the constant.
    pub(crate) size: usize,
    /// The features of all rows, stored row by row. `None` if they are not kept in memory. After
    /// [`whiten`](Self::whiten) was called, they are whitened.
    kept: Option<Vec<f32>>,
}

impl Design {
    /// Creates a design that computes features whenever they are needed.
    pub(crate) fn new(h: Vec<f32>, width: usize, frequencies: Vec<f32>, phases: Vec<f32>) -> Self {
        let size = if phases.is_empty() {
            width
        } else {
            phases.len() + 1
        };
        Self {
            h,
            width,
            frequencies,
            phases,
            size,
            kept: None,
        }
    }

    /// Computes the features of all rows and keeps them in memory. This takes 4 bytes per row and
    /// feature.
    pub(crate) fn keep(&mut self, watch: &Watch) -> Result<(), Error> {
        let n_rows = self.h.len() / self.width;
        let mut kept = filled("the matrix of features", 0.0, n_rows * self.size)?;
        let rows = collected("number of rows", 0..n_rows as u32)?;
        self.fill(&rows, &mut kept, watch)?;
        self.kept = Some(kept);
        Ok(())
    }

    /// Replaces the features φ of each row by `L⁻¹ φ`, where L is the Cholesky factor `factor`. If
    /// features are not kept in memory, does nothing and returns `false`.
    pub(crate) fn whiten(&mut self, factor: &Factor, watch: &Watch) -> Result<bool, Error> {
        match &mut self.kept {
            Some(kept) => factor.whiten(kept, watch).map(|()| true),
            None => Ok(false),
        }
    }

    /// Computes the features of the given rows and writes them to `out`, row by row. The rows are
    /// divided among threads.
    pub(crate) fn fill(&self, rows: &[u32], out: &mut [f32], watch: &Watch) -> Result<(), Error> {
        let (size, width) = (self.size, self.width);
        let out = &mut out[..rows.len() * size];
        out.par_chunks_mut(ROWS * size)
            .zip(rows.par_chunks(ROWS))
            .try_each_with(
                || Ok(Vec::new()),
                |h, (out, rows)| {
                    watch.step(0)?;
                    if let Some(kept) = &self.kept {
                        for (out, &row) in out.chunks_mut(size).zip(rows) {
                            out.copy_from_slice(&kept[row as usize * size..][..size]);
                        }
                        return Ok(());
                    }
                    h.clear();
                    for &row in rows {
                        let of_row = &self.h[row as usize * width..][..width];
                        extend(PREDICTIONS, h, of_row.iter().copied())?;
                    }
                    features(h, width, &self.frequencies, &self.phases, out, size)
                },
            )
    }
}

/// Computes features from linear predictions. `h` holds the predictions and the constant 1, in rows
/// of length `width`. Writes the features to `out`, in rows of length `size`.
pub(crate) fn features(
    h: &[f32],
    width: usize,
    frequencies: &[f32],
    phases: &[f32],
    out: &mut [f32],
    size: usize,
) -> Result<(), Error> {
    if phases.is_empty() {
        out.copy_from_slice(h);
        return Ok(());
    }
    let waves = Waves {
        r: frequencies,
        b: phases,
    };
    cosines(h, width, waves, out, size)?;
    for row in out.chunks_mut(size) {
        row[size - 1] = 1.0;
    }
    Ok(())
}
