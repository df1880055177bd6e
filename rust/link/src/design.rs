//! The features Φ of the training rows, computed from the linear predictions whenever rows are
//! needed, or kept in memory.
//!
//! Each row starts as its predictions and a constant, `h = (p, 1)`, of width k + 1. Its features
//! are s cosines of h and a constant 1, so that `size` is s + 1; with the linear kernel the
//! features are h itself. Features are single precision, linear predictions and angles are computed
//! in double precision. A row costs O(s k).

use crate::gram::Factor;
use crate::lanes::{Waves, cosines};
use manylabel_base::{Error, Watch, collected, extend, filled};
use manylabel_sparse::{CsrView, Index, Sparse, Value, with_sparse};
use rayon::prelude::*;

/// Number of rows that one thread computes at a time.
const ROWS: usize = 64;

/// The name of the predictions in errors about memory.
pub(crate) const PREDICTIONS: &str = "projected predictions";

/// The linear predictions that features are made of, `h = (x W + a, 1)`.
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
    /// W, row after row.
    weights: &'a [f64],
    /// a, of length k.
    intercept: &'a [f64],
}

impl<'a> Projection<'a> {
    /// Borrows W, of shape (`n_features`, k) row after row, and a, of length k.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if k is 0, or if the weights are not `n_features` rows of length k.
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
        Ok(Self { weights, intercept })
    }

    /// Number of features of X.
    pub(crate) fn n_features(&self) -> usize {
        self.weights.len() / self.intercept.len()
    }

    /// k + 1: the predictions and the constant.
    pub(crate) fn width(&self) -> usize {
        self.intercept.len() + 1
    }

    /// Writes h of one row to `out`, which has length k + 1.
    ///
    /// Sums are in double precision. Results beyond the range of single precision become its
    /// largest number, and NaN becomes 0. Takes O(stored values of the row × k).
    pub(crate) fn project<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        row: usize,
        out: &mut [f32],
    ) {
        let (sums, constant) = out.split_at_mut(self.intercept.len());
        let (sixteens, sums) = sums.as_chunks_mut::<16>();
        let (fours, ones) = sums.as_chunks_mut::<4>();
        let first = self.sum_up(x, row, 0, sixteens);
        let first = self.sum_up(x, row, first, fours);
        self.sum_up(x, row, first, ones.as_chunks_mut::<1>().0);
        constant.fill(1.0);
    }

    /// Writes the predictions of a row from number `first` on, N at a time, whose sums stay in
    /// registers. Returns the number of the next prediction.
    #[inline(always)]
    fn sum_up<const N: usize, I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        row: usize,
        mut first: usize,
        out: &mut [[f32; N]],
    ) -> usize {
        let k = self.intercept.len();
        let (cols, values) = x.row(row);
        for out in out {
            let mut sums = [0.0; N];
            sums.copy_from_slice(&self.intercept[first..][..N]);
            for (col, value) in cols.iter().zip(values) {
                let value = value.f64();
                let weights = &self.weights[col.get() * k + first..][..N];
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    *sum += value * weight;
                }
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                // A sum of opposite infinities is NaN, which says nothing about the row.
                let sum = if sum.is_nan() { 0.0 } else { sum };
                *out = sum.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32;
            }
            first += N;
        }
        first
    }

    /// h of rows whose predictions are given, k numbers per row.
    pub(crate) fn given(&self, predictions: &[f32]) -> Result<Vec<f32>, Error> {
        let width = self.width();
        let n_rows = predictions.len() / (width - 1);
        let mut h = filled(PREDICTIONS, 1.0, n_rows * width)?;
        for (h, given) in h.chunks_mut(width).zip(predictions.chunks(width - 1)) {
            h[..width - 1].copy_from_slice(given);
        }
        Ok(h)
    }

    /// h of all rows, row after row, computed in parallel.
    pub(crate) fn all(&self, x: Sparse<'_>, watch: &Watch) -> Result<Vec<f32>, Error> {
        let width = self.width();
        let mut h = filled(PREDICTIONS, 0.0, x.n_rows() * width)?;
        h.par_chunks_mut(ROWS * width)
            .enumerate()
            .try_for_each(|(block, out)| {
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

/// The features of all rows that were handed to the fit, `size` of them per row: cosines (with the
/// linear kernel, predictions) and a constant 1.
pub(crate) struct Design {
    /// Predictions and the constant, row after row.
    h: Vec<f32>,
    /// k + 1.
    width: usize,
    /// Frequencies, k + 1 rows of s; empty for the linear kernel.
    pub(crate) frequencies: Vec<f32>,
    /// Phases, s of them; empty for the linear kernel.
    pub(crate) phases: Vec<f32>,
    /// Number of features of a row, including the constant.
    pub(crate) size: usize,
    /// The features of all rows, row after row, if they are kept; whitened if
    /// [`whiten`](Self::whiten) was called.
    kept: Option<Vec<f32>>,
}

impl Design {
    /// A design that computes features whenever they are asked for.
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

    /// Computes the features of all rows now and keeps them, in 4 bytes per row and feature.
    pub(crate) fn keep(&mut self, watch: &Watch) -> Result<(), Error> {
        let n_rows = self.h.len() / self.width;
        let mut kept = filled("features", 0.0, n_rows * self.size)?;
        let rows = collected("number of rows", 0..n_rows as u32)?;
        self.fill(&rows, &mut kept, watch)?;
        self.kept = Some(kept);
        Ok(())
    }

    /// Replaces the features that are kept by `L⁻¹ φ`. Returns `false` and does nothing if none are
    /// kept.
    pub(crate) fn whiten(&mut self, factor: &Factor, watch: &Watch) -> Result<bool, Error> {
        match &mut self.kept {
            Some(kept) => factor.whiten(kept, watch).map(|()| true),
            None => Ok(false),
        }
    }

    /// Writes the features of the given rows to `out`, row after row. The rows are divided among
    /// threads.
    pub(crate) fn fill(&self, rows: &[u32], out: &mut [f32], watch: &Watch) -> Result<(), Error> {
        let (size, width) = (self.size, self.width);
        let out = &mut out[..rows.len() * size];
        out.par_chunks_mut(ROWS * size)
            .zip(rows.par_chunks(ROWS))
            .try_for_each_init(Vec::new, |h, (out, rows)| {
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
            })
    }
}

/// Writes the features of some rows, whose predictions are `h` in rows of `width`, to `out` in rows
/// of `size`.
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
