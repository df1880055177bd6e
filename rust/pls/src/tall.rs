//! Stores tall matrices as panels of 32 columns, and orthogonalizes them.
//!
//! A [`Tall`] matrix has a row for each label or each feature, and few columns. Products with X and
//! Y process one panel at a time. Operations that combine columns process chunks of rows instead,
//! in double precision. These operations are a QR decomposition by chunks ([`Tall::spectrum`]) and
//! products with small matrices ([`Tall::times`]).
//!
//! For a tall matrix T, Mineiro and Karampatziakis use the eigenvectors of `TᵀT`. Here these
//! eigenvectors are computed as the right singular vectors of the triangular factor R of T. This
//! method is more accurate, because the condition number of `TᵀT` is the square of the condition
//! number of R.
//!
//! Chunks depend only on the shape of the matrix, so the result does not depend on the number of
//! threads.

use faer::{Accum, Mat, MatRef};
use manylabel_base::{Error, Watch, few, filled, parts};
use manylabel_dense::{from_fn, matmul, singular, triangle, zeros};
use manylabel_sparse::{LANES, Lanes, Real};
use rayon::prelude::*;
use std::ops::Range;

/// A matrix of shape (`n_rows`, `n_cols`), stored in panels of 32 columns.
pub(crate) struct Tall<T> {
    /// Number of rows. It is also the length of each panel.
    pub(crate) n_rows: usize,
    /// Number of columns.
    pub(crate) n_cols: usize,
    /// Lane l of panel t holds column `32 t + l`. Lanes beyond `n_cols` are zero.
    pub(crate) panels: Vec<Vec<Lanes<T>>>,
}

/// The name in error messages if a group of rows does not fit in memory.
const WHAT: &str = "the matrix of the embedding";

/// Singular values in decreasing order, and right singular vectors as columns.
pub(crate) type Spectrum = manylabel_dense::Pairs;

impl<T: Real> Tall<T> {
    /// Returns the chunks of rows that are units of work. Each chunk except the last has at least
    /// 8 · `n_cols` rows.
    fn chunks(&self) -> Vec<Range<usize>> {
        let step = (8 * self.n_cols).max(1024);
        let starts = (0..self.n_rows).step_by(step);
        few(starts.map(|first| first..(first + step).min(self.n_rows)))
    }

    /// Returns one entry.
    pub(crate) fn get(&self, row: usize, col: usize) -> T {
        self.panels[col / LANES][row].0[col % LANES]
    }

    /// Returns some rows as a dense matrix in double precision.
    fn dense(&self, rows: Range<usize>) -> Result<Mat<f64>, Error> {
        let mut dense = zeros(WHAT, rows.len(), self.n_cols)?;
        for (t, panel) in self.panels.iter().enumerate() {
            for col in t * LANES..((t + 1) * LANES).min(self.n_cols) {
                for (i, lanes) in panel[rows.clone()].iter().enumerate() {
                    dense[(i, col)] = lanes.0[col % LANES].f64();
                }
            }
        }
        Ok(dense)
    }

    /// Returns the triangular factor R of a QR decomposition. R has at most `n_cols` rows.
    ///
    /// Each chunk of rows is decomposed separately. The factors of four chunks are then stacked and
    /// decomposed again, until a single factor is left. The time is O(`n_rows` `n_cols`²) on all threads, in
    /// double precision.
    fn triangle(&self, watch: &Watch) -> Result<Mat<f64>, Error> {
        let factors = self.chunks().into_par_iter().map(|rows| {
            watch.step(0)?;
            triangle(WHAT, self.dense(rows)?)
        });
        let mut factors = parts(factors)?;
        while factors.len() > 1 {
            let stacked = factors.par_chunks(4).map(|some| {
                watch.step(0)?;
                let n_rows = some.iter().map(Mat::nrows).sum();
                let mut stack = zeros(WHAT, n_rows, self.n_cols)?;
                let mut first = 0;
                for factor in some {
                    let n = factor.nrows();
                    stack.as_mut().subrows_mut(first, n).copy_from(factor);
                    first += n;
                }
                triangle(WHAT, stack)
            });
            factors = parts(stacked)?;
        }
        factors
            .pop()
            .map_or_else(|| zeros(WHAT, 0, self.n_cols), Ok)
    }

    /// Returns the singular values and right singular vectors, computed from
    /// [`triangle`](Self::triangle). The result is empty if the matrix is empty.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the matrix has entries that are not finite. Returns [`Error::TooLarge`] if
    /// there is not enough memory. Returns [`Error::Stopped`] if the caller requested a stop.
    pub(crate) fn spectrum(&self, watch: &Watch) -> Result<Spectrum, Error> {
        if self.n_rows == 0 || self.n_cols == 0 {
            return Ok(Spectrum {
                values: Vec::new(),
                vectors: Mat::new(),
            });
        }
        let triangle = self.triangle(watch)?;
        // A decomposition of finite numbers always succeeds.
        let failed = || Error::Param {
            name: "X",
            expected: "scaled so that products of its values are finite",
            got: "values with infinite or NaN products".into(),
        };
        singular(WHAT, triangle.as_ref())?.ok_or_else(failed)
    }

    /// Returns the product with a small matrix with `n_cols` rows and any number of columns,
    /// computed on all threads. Sums are in double precision.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(crate) fn times(&self, small: MatRef<'_, f64>, watch: &Watch) -> Result<Self, Error> {
        let n_cols = small.ncols();
        let chunks = self.chunks();
        let panels = (0..n_cols.div_ceil(LANES)).into_par_iter().map(|t| {
            let width = LANES.min(n_cols - t * LANES);
            let small = small.subcols(t * LANES, width);
            let mut panel = filled("number of rows", Lanes::default(), self.n_rows)?;
            for rows in &chunks {
                watch.step(0)?;
                let mut product = zeros(WHAT, rows.len(), width)?;
                let own = self.dense(rows.clone())?;
                matmul(&mut product, Accum::Replace, &own, small, 1.0);
                for lane in 0..width {
                    for (lanes, &value) in
                        panel[rows.clone()].iter_mut().zip(product.col(lane).iter())
                    {
                        lanes.0[lane] = T::of(value);
                    }
                }
            }
            Ok(panel)
        });
        Ok(Self {
            n_rows: self.n_rows,
            n_cols,
            panels: parts(panels)?,
        })
    }

    /// Returns the first `k` left singular vectors of this matrix T as orthonormal columns. They are
    /// `T V_k diag(s_k)⁻¹`, where `V_k` holds the first `k` right singular vectors, and `s_k` the first `k`
    /// singular values.
    ///
    /// `spectrum` must be the spectrum of this matrix. The result has `k` columns. It has fewer columns if
    /// fewer than `k` singular values exceed the [`noise`].
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(crate) fn orthonormal(
        &self,
        spectrum: &Spectrum,
        k: usize,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let s = &spectrum.values;
        let floor = s.first().map_or(0.0, |first| first * noise::<T>());
        let rank = s.iter().take(k).take_while(|&&s| s > floor).count();
        let value = |i: usize, j: usize| spectrum.vectors[(i, j)] / s[j];
        let scaled = from_fn(WHAT, s.len(), rank, value)?;
        let basis = self.times(scaled.as_ref(), watch)?;
        // Rounding errors of T are magnified by s_0 / s_j. If this ratio is large, the basis is
        // orthogonalized once more.
        if rank == 0 || s[0] < 1e4 * s[rank - 1] {
            return Ok(basis);
        }
        let triangle = basis.triangle(watch)?;
        let one = |i: usize, j: usize| f64::from(u8::from(i == j));
        let mut inverse = from_fn(WHAT, rank, rank, one)?;
        triangle.solve_upper_triangular_in_place(&mut inverse);
        basis.times(inverse.as_ref(), watch)
    }
}

/// Returns the level, relative to the largest singular value, below which singular values count as
/// rounding errors. In single precision, the level is 10⁻⁶. The eigenvalues of `TᵀT` are the squares
/// of the singular values, so the level for them is 10⁻¹².
fn noise<T: Real>() -> f64 {
    if T::EPSILON > 1e-10 { 1e-6 } else { 1e-12 }
}

impl<T: Real> Tall<T> {
    /// Returns the matrix with the entries `value(row, col)`. Panels are computed in parallel.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the matrix does not fit in memory.
    pub(crate) fn from_fn(
        n_rows: usize,
        n_cols: usize,
        value: impl Fn(usize, usize) -> f64 + Sync,
    ) -> Result<Self, Error> {
        let panels = (0..n_cols.div_ceil(LANES)).into_par_iter().map(|t| {
            let mut panel = filled("number of rows", Lanes::default(), n_rows)?;
            for (row, lanes) in panel.iter_mut().enumerate() {
                for col in t * LANES..((t + 1) * LANES).min(n_cols) {
                    lanes.0[col % LANES] = T::of(value(row, col));
                }
            }
            Ok(panel)
        });
        Ok(Self {
            n_rows,
            n_cols,
            panels: parts(panels)?,
        })
    }

    /// Returns a matrix of the same shape. Each panel of the result is the result of `product` for the same
    /// panel of this matrix. Panels are computed in parallel.
    ///
    /// # Errors
    ///
    /// Returns any error of `product`.
    pub(crate) fn map_panels(
        &self,
        product: impl Fn(&[Lanes<T>]) -> Result<Vec<Lanes<T>>, Error> + Sync,
    ) -> Result<Self, Error> {
        let panels = self.panels.par_iter().map(|panel| product(panel));
        Ok(Self {
            n_rows: self.n_rows,
            n_cols: self.n_cols,
            panels: parts(panels)?,
        })
    }

    /// Flips the sign of each column whose entry with the largest absolute value is negative. If several
    /// entries have this absolute value, the first one decides. The signs of singular vectors are arbitrary.
    /// This choice makes the signs reproducible.
    pub(crate) fn settle_signs(&mut self) {
        for panel in &mut self.panels {
            let mut largest = [0.0f64; LANES];
            for lanes in panel.iter() {
                for lane in 0..LANES {
                    let value = lanes.0[lane].f64();
                    if value.abs() > largest[lane].abs() {
                        largest[lane] = value;
                    }
                }
            }
            for lanes in panel.iter_mut() {
                for lane in 0..LANES {
                    if largest[lane] < 0.0 {
                        lanes.0[lane] = T::of(-lanes.0[lane].f64());
                    }
                }
            }
        }
    }
}
