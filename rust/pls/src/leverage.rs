//! Computes leverages. The leverage of a row measures how much its prediction depends on its own
//! target.
//!
//! The leverage of row i is `h_i = ω_i x_iᵀ (XᵀΩX + λI)⁻¹ x_i`. Here, `x_i` is row i of X, `ω_i` is the
//! weight of the row, Ω is the diagonal matrix of the weights, and λ is the ridge. With centring, `ω_i / Σω`
//! is added, because the row also contributes to the means. Let r be the residual of a row, and h its
//! leverage. A fit without the row would have the residual `r / (1 − h)` for this row. This is exact if the
//! ridge is the same with and without the row. One fit therefore gives the leave-one-out errors of all rows.
//! [`choice`](crate::choice) compares these errors for several ridges.
//!
//! If the Gram matrix of the features is factorized, exact leverages are quadratic forms of the rows with the
//! inverse of this matrix. If the Gram matrix K of the rows is factorized, exact leverages are `1 − λ (K +
//! λI)⁻¹_ii`. With conjugate gradients, nothing is factorized. Leverages are then estimated from the
//! solutions for random vectors with the entries 1 and −1.

use crate::design::{Cells, Design, Rows, SLAB};
use crate::normal::normal;
use crate::solve::{Method, Problem, Regression};
use faer::{Accum, Mat};
use manylabel_base::{Error, Watch, collected, extend, filled, parts, reserved};
use manylabel_dense::{matmul, zeros};
use manylabel_sparse::{LANES, Lanes, Real, RowBlocks};
use rayon::prelude::*;

/// Number of panels of 32 random sign vectors that are used to estimate leverages with conjugate gradients.
/// With 2 · 32 vectors and equal row weights, the standard deviation of the estimate of a leverage h is at
/// most `√(h (1 − h) / 64)`. This bound is at most 0.0625.
const PANELS: usize = 2;

/// Upper limit of exact leverages. If a feature occurs in a single row, the leverage of this row is
/// nearly 1. `1 − h` would then consist mostly of rounding errors.
const LARGEST_EXACT: f64 = 1.0 - 1e-6;
/// Upper limit of estimated leverages. It is lower than the limit of exact leverages, because estimates have
/// random errors.
const LARGEST_ESTIMATED: f64 = 0.95;

impl<T: Real> Regression<T> {
    /// Returns the leverages of all rows, in [0, 1).
    ///
    /// Leverages are exact if the regression uses a factorization. Their cost is similar to computing the
    /// Gram matrix and about two factorizations. With conjugate gradients, leverages are estimated from the
    /// fits of 64 random vectors, which depend on `seed`. If `with_means` is true and X is centred, the
    /// contribution `ω_i / Σω` of the means is added.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(crate) fn leverages(
        &self,
        problem: &Problem<'_, T>,
        with_means: bool,
        seed: u64,
        watch: &Watch,
    ) -> Result<Vec<f64>, Error> {
        let Problem { rows, x, .. } = problem;
        let (mut leverages, most) = match &self.0 {
            Method::Features(factor) => {
                let inverse = factor.inverse(watch)?;
                (of_features(rows, x, &inverse, watch)?, LARGEST_EXACT)
            }
            Method::Rows(factor, ridge) => {
                let inverse = factor.inverse(watch)?;
                let of_row = |row: usize| 1.0 - ridge * inverse[(row, row)];
                let leverages = collected("number of rows", (0..rows.n()).map(of_row))?;
                (leverages, LARGEST_EXACT)
            }
            Method::ConjugateGradients(_) => {
                (estimates(self, problem, seed, watch)?, LARGEST_ESTIMATED)
            }
        };
        for (row, leverage) in leverages.iter_mut().enumerate() {
            if with_means && x.mean.is_some() {
                *leverage += rows.weight(row) / rows.total;
            }
            *leverage = leverage.clamp(0.0, most);
        }
        Ok(leverages)
    }
}

impl<T: Real> Regression<T> {
    /// Returns estimates of the leverages of all rows, in [0, 1), from the fits of 64 random vectors, which
    /// depend on `seed`. They include the contribution `ω_i / Σω` of the means.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(crate) fn estimated_leverages(
        &self,
        problem: &Problem<'_, T>,
        seed: u64,
        watch: &Watch,
    ) -> Result<Vec<f64>, Error> {
        if let Method::Rows(..) = &self.0 {
            return self.leverages(problem, true, seed, watch);
        }
        let Problem { rows, x, .. } = problem;
        let mut leverages = estimates(self, problem, seed, watch)?;
        for (row, leverage) in leverages.iter_mut().enumerate() {
            if x.mean.is_some() {
                *leverage += rows.weight(row) / rows.total;
            }
            *leverage = leverage.clamp(0.0, LARGEST_ESTIMATED);
        }
        Ok(leverages)
    }
}

/// Returns estimates of the leverages. The estimates do not include the contribution `ω_i / Σω` of the means
/// and are not limited to [0, 1).
///
/// Let H be the matrix that maps targets to predictions, and z a vector of independent random
/// signs. The expectation of `z_i (Hz)_i` is then `H_ii`. The result is the mean over [`PANELS`] ·
/// 32 draws of z.
fn estimates<T: Real>(
    regression: &Regression<T>,
    problem: &Problem<'_, T>,
    seed: u64,
    watch: &Watch,
) -> Result<Vec<f64>, Error> {
    let Problem { rows, x, .. } = problem;
    let panels = (0..PANELS).into_par_iter().map(|panel| {
        let sign = |row: usize, lane: usize| normal(!seed, row, panel * LANES + lane).signum();
        let mut g = filled("number of features", Lanes::default(), x.n_cols())?;
        let mut sum = [0.0; LANES];
        let mut signs = rows.buffer()?;
        for (block, cut) in rows.cuts.iter().enumerate() {
            watch.step(0)?;
            let signs = &mut signs[..cut.len()];
            for (row, signs) in cut.clone().zip(signs.iter_mut()) {
                for lane in 0..LANES {
                    let weighted = rows.weight(row) * sign(row, lane);
                    signs.0[lane] = T::of(weighted);
                    sum[lane] += weighted;
                }
            }
            x.add_transposed(block, cut, signs, &mut g);
        }
        x.center_transposed(&sum, &mut g);
        let z = regression.solve(problem, g, watch)?.z;
        let predicted = predictions(rows, x, &z, watch)?;
        let of_row = |(row, predicted): (usize, &Lanes<T>)| -> f64 {
            let products = (0..LANES).map(|lane| sign(row, lane) * predicted.0[lane].f64());
            products.sum::<f64>() / (PANELS * LANES) as f64
        };
        collected("number of rows", predicted.iter().enumerate().map(of_row))
    });
    let panels = parts(panels)?;
    let of_row = |row: usize| panels.iter().map(|panel| panel[row]).sum();
    collected("number of rows", (0..rows.n()).map(of_row))
}

/// Returns `Xz` for all rows, with one line of 32 numbers per row. The product is centred if `x` is
/// centred.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
/// requested a stop.
pub(crate) fn predictions<T: Real>(
    rows: &Rows<T>,
    x: &Design<'_, T>,
    z: &[Lanes<T>],
    watch: &Watch,
) -> Result<Vec<Lanes<T>>, Error> {
    let mut out = filled("number of rows", Lanes::default(), rows.n())?;
    let shift = x.mean_times(z);
    for (block, cut) in rows.cuts.iter().enumerate() {
        watch.step(0)?;
        x.times(block, cut, z, shift.as_ref(), &mut out[cut.clone()]);
    }
    Ok(out)
}

/// Returns `ω_i x_iᵀ M x_i` for all rows, where M is the inverse of the regularized Gram matrix of the
/// features. Blocks of rows run in parallel.
fn of_features<T: Real>(
    rows: &Rows<T>,
    x: &Design<'_, T>,
    inverse: &Mat<f64>,
    watch: &Watch,
) -> Result<Vec<f64>, Error> {
    let blocks = rows.cuts.par_iter().enumerate().map(|(at, cut)| {
        let squares = match &x.cells {
            Cells::Sparse(blocks) => {
                of_sparse_block(blocks, at, x.mean.as_deref(), inverse, watch)?
            }
            Cells::Dense { .. } => of_dense_block(x, at, cut, inverse, watch)?,
        };
        let weighted = cut.clone().zip(squares);
        let weighted = weighted.map(|(row, square)| rows.weight(row) * square);
        collected("number of rows of a block", weighted)
    });
    let blocks = parts(blocks)?;
    let mut all = reserved("number of rows", rows.n())?;
    for block in blocks {
        extend("number of rows", &mut all, block)?;
    }
    Ok(all)
}

/// Returns `x_iᵀ M x_i` for the rows `x_i` of a sparse block, where M is a symmetric matrix. A row with z
/// stored values takes O(z²) time. With centring, the product `(x_i − x̄)ᵀ M (x_i − x̄)` is expanded, so that
/// rows stay sparse. Here, x̄ holds the column means.
fn of_sparse_block<T: Real>(
    blocks: &RowBlocks<T>,
    at: usize,
    mean: Option<&[T]>,
    inverse: &Mat<f64>,
    watch: &Watch,
) -> Result<Vec<f64>, Error> {
    let d = blocks.n_cols();
    // (x − m)ᵀ M (x − m) = xᵀMx − 2 xᵀMm + mᵀMm
    let mut of_mean = Vec::new();
    if let Some(mean) = mean {
        let product = |j: usize| -> f64 {
            let column = inverse.col(j).iter().zip(mean);
            column.map(|(cell, mean)| cell * mean.f64()).sum()
        };
        of_mean = collected("number of features", (0..d).map(product))?;
    }
    let square_of_mean: f64 = mean.map_or(0.0, |mean| {
        mean.iter().zip(&of_mean).map(|(a, b)| a.f64() * b).sum()
    });
    let block = &blocks.blocks()[at];
    let mut squares = reserved("number of rows of a block", block.n_rows())?;
    for row in 0..block.n_rows() {
        watch.step(0)?;
        let (cols, values) = block.row(row);
        let mut square = square_of_mean;
        for (i, (&col, &value)) in cols.iter().zip(values).enumerate() {
            let column = inverse.col(col as usize);
            let value = value.f64();
            let mut product = 0.5 * value * column[col as usize];
            for (&other, &value) in cols[..i].iter().zip(values) {
                product += value.f64() * column[other as usize];
            }
            square += 2.0 * value * product;
            if mean.is_some() {
                square -= 2.0 * value * of_mean[col as usize];
            }
        }
        squares.push(square);
    }
    Ok(squares)
}

/// Returns `x_iᵀ M x_i` for the rows `x_i` of a dense block, where M is a symmetric matrix. Computes matrix
/// products over groups of rows. The time is O(d²) per row with d values.
fn of_dense_block<T: Real>(
    x: &Design<'_, T>,
    at: usize,
    cut: &std::ops::Range<usize>,
    inverse: &Mat<f64>,
    watch: &Watch,
) -> Result<Vec<f64>, Error> {
    let mut squares = reserved("number of rows of a block", cut.len())?;
    for first in cut.clone().step_by(SLAB) {
        watch.step(0)?;
        let slab = first..(first + SLAB).min(cut.end);
        let n_rows = slab.len();
        let cells = x.centred(at, cut, slab, |_| 1.0)?;
        let mut products = zeros::<f64>("a copy of X", x.n_cols(), n_rows)?;
        matmul(&mut products, Accum::Replace, inverse, &cells, 1.0);
        for row in 0..n_rows {
            let pairs = cells.col(row).iter().zip(products.col(row).iter());
            squares.push(pairs.map(|(a, b)| a * b).sum());
        }
    }
    Ok(squares)
}
