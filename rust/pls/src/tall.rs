//! Tall matrices as panels of 32 columns, and their orthogonalization.
//!
//! A [`Tall`] matrix has a row for each label or each feature, and few columns. Products with X and Y take
//! one panel at a time. What mixes columns takes chunks of rows instead, in double precision: a QR
//! decomposition by chunks ([`Tall::spectrum`]) and products with small matrices ([`Tall::times`]).
//!
//! The singular value decomposition of the triangular factor R replaces the eigendecomposition of `TᵀT` in
//! the papers. Both have the same right singular vectors, but the condition number of `TᵀT` is the square of
//! that of R.
//!
//! Chunks depend on the shape of the matrix only, so the bits do not depend on the number of threads.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use manylabel_base::{Error, Watch, few, filled, parts};
use manylabel_dense::{from_fn, singular, triangle, zeros};
use manylabel_sparse::{LANES, Lanes, Real};
use rayon::prelude::*;
use std::ops::Range;

/// A matrix (`n_rows`, `n_cols`) in panels of 32 columns.
pub(crate) struct Tall<T> {
    /// Number of rows, which is the length of each panel.
    pub(crate) n_rows: usize,
    /// Number of columns.
    pub(crate) n_cols: usize,
    /// Column `32 t + l` is lane l of panel t. Lanes beyond `n_cols` are zero.
    pub(crate) panels: Vec<Vec<Lanes<T>>>,
}

/// What error messages name if memory for a chunk is refused.
const WHAT: &str = "rows of the embedding";

/// Singular values, largest first, and right singular vectors as columns.
pub(crate) type Spectrum = manylabel_dense::Pairs;

impl<T: Real> Tall<T> {
    /// The chunks of rows that are units of work. Each but the last has at least eight times as many rows
    /// as the matrix has columns.
    fn chunks(&self) -> Vec<Range<usize>> {
        let step = (8 * self.n_cols).max(1024);
        let starts = (0..self.n_rows).step_by(step);
        few(starts.map(|first| first..(first + step).min(self.n_rows)))
    }

    /// One entry.
    pub(crate) fn get(&self, row: usize, col: usize) -> T {
        self.panels[col / LANES][row].0[col % LANES]
    }

    /// Some rows as a dense matrix in double precision.
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

    /// The triangular factor R of a QR decomposition, with at most `n_cols` rows.
    ///
    /// Each chunk of rows is decomposed on its own. The factors of four chunks are stacked and decomposed
    /// again, until one is left. Takes O(`n_rows` `n_cols`²) time on all threads, in double precision.
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

    /// The singular values and right singular vectors, by way of [`triangle`](Self::triangle). Both are
    /// empty if the matrix is.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if the matrix has entries that are not finite, [`Error::TooLarge`],
    /// [`Error::Stopped`].
    pub(crate) fn spectrum(&self, watch: &Watch) -> Result<Spectrum, Error> {
        if self.n_rows == 0 || self.n_cols == 0 {
            return Ok(Spectrum {
                values: Vec::new(),
                vectors: Mat::new(),
            });
        }
        let triangle = self.triangle(watch)?;
        // A decomposition of finite numbers does not fail.
        let failed = || Error::Param {
            name: "X",
            expected: "scaled so that products are finite",
            got: "products without a singular value decomposition".into(),
        };
        singular(WHAT, triangle.as_ref())?.ok_or_else(failed)
    }

    /// The product with a small matrix (`n_cols`, any), on all threads. Sums are in double precision.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], [`Error::Stopped`].
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
                matmul(&mut product, Accum::Replace, &own, small, 1.0, Par::Seq);
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

    /// The leading left singular vectors `T V_k diag(s_k)⁻¹`, as orthonormal columns.
    ///
    /// `spectrum` is that of this matrix. The result has `k` columns, or fewer if fewer singular values
    /// exceed the [`noise`].
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], [`Error::Stopped`].
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
        // Rounding of T is magnified by s_0 / s_j. If that is much, orthogonalize once more.
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

/// Singular values below this, relative to the largest, are rounding errors. In single precision the
/// squares of dropped values, the eigenvalues of `TᵀT`, are below 10⁻¹² of the largest.
fn noise<T: Real>() -> f64 {
    if T::EPSILON > 1e-10 { 1e-6 } else { 1e-12 }
}

impl<T: Real> Tall<T> {
    /// The matrix with the entry `value(row, col)`, computed on all threads, one panel each.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
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

    /// The matrix of the same shape whose panels are `product` of the panels of this one, on all threads.
    ///
    /// # Errors
    ///
    /// Those of `product`.
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

    /// Flips the sign of each column whose entry of largest absolute value is negative. The first of equal
    /// entries decides. Singular vectors have no sign of their own, so this makes them reproducible.
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
