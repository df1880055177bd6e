//! Tall matrices as panels of thirty-two columns, and their orthogonalization.

use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use manylabel_base::{Error, Watch, few, filled, parts};
use manylabel_dense::{from_fn, singular, triangle, zeros};
use manylabel_sparse::{LANES, Lanes, Real};
use rayon::prelude::*;
use std::ops::Range;

/// A matrix of many rows; column `LANES t + l` is lane l of panel t. Lanes beyond `n_cols` are zero.
pub(crate) struct Tall<T> {
    pub(crate) n_rows: usize,
    pub(crate) n_cols: usize,
    pub(crate) panels: Vec<Vec<Lanes<T>>>,
}

/// What memory is asked for.
const WHAT: &str = "rows of the embedding";

/// Singular values, largest first, and right singular vectors.
pub(crate) type Spectrum = manylabel_dense::Pairs;

impl<T: Real> Tall<T> {
    /// Rows of a chunk of the work: enough of them that a chunk is taller than wide.
    fn chunks(&self) -> Vec<Range<usize>> {
        let step = (8 * self.n_cols).max(1024);
        let starts = (0..self.n_rows).step_by(step);
        few(starts.map(|first| first..(first + step).min(self.n_rows)))
    }

    pub(crate) fn get(&self, row: usize, col: usize) -> T {
        self.panels[col / LANES][row].0[col % LANES]
    }

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

    /// The triangular factor of a QR decomposition, by chunks of rows whose factors are stacked and
    /// decomposed again. In O(`n_rows` `n_cols`²), in double precision.
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

    /// Singular values and right singular vectors.
    pub(crate) fn spectrum(&self, watch: &Watch) -> Result<Spectrum, Error> {
        if self.n_rows == 0 || self.n_cols == 0 {
            return Ok(Spectrum {
                values: Vec::new(),
                vectors: Mat::new(),
            });
        }
        let triangle = self.triangle(watch)?;
        // With finite numbers it does.
        let failed = || Error::Param {
            name: "X",
            expected: "of a scale at which products are finite",
            got: "no singular value decomposition".into(),
        };
        singular(WHAT, triangle.as_ref())?.ok_or_else(failed)
    }

    /// The product with a small matrix, on all threads.
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

    /// Orthonormal columns `T V_k diag(s_k)⁻¹` that span what the leading singular vectors do: as
    /// many as `spectrum`, that of this matrix, has values that are not noise, `k` at most.
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
        // Rounding of T is magnified by s_0 / s_j; where that shows, once more.
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

/// Singular values below this, relative to the largest, are rounding. Their squares, as
/// eigenvalues, would be below 10⁻¹² in single precision.
fn noise<T: Real>() -> f64 {
    if T::EPSILON > 1e-10 { 1e-6 } else { 1e-12 }
}

impl<T: Real> Tall<T> {
    /// The matrix of the numbers that `value` has for row and column, computed on all threads.
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

    /// The matrix whose panels are `product` of the panels of this one, which are as tall.
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

    /// Turns each column so that its largest number in absolute value, the first of equals, is
    /// positive.
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
