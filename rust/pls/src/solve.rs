//! Ridge regressions `argmin_Z ‖YQ − XZ‖² + λ‖Z‖²`, weighted by Ω, thirty-two right-hand sides at a time.

use crate::cg::{self, Fit};
use crate::design::{Cells, Design, Rows, cross};
use crate::gram::{gram_of_features, gram_of_rows};
use crate::{Params, Solver};
use faer::MatRef;
use manylabel_base::{Error, Watch, collected, filled};
use manylabel_dense::{Cholesky, from_fn};
use manylabel_sparse::{LANES, Lanes, Real};

/// Up to so many features, or rows, `auto` factorizes a Gram matrix: 128 MB in double precision.
const MOST_FACTORIZED: usize = 4000;

/// Where λ is 0, this much of the mean diagonal of the Gram matrix of features: the solution is then
/// that of least norm but for rounding, and its projection that of least squares.
const LEAST_RIDGE: f64 = 1e-12;

/// The same of that of rows, where labels that no features explain are divided by it: in the middle
/// between what it changes and what it makes of rounding.
const LEAST_RIDGE_OF_ROWS: f64 = 1e-9;

/// Ridge beyond which, with entries of at most about 1, single precision is in danger, and every
/// solution is 0 all the same.
const LARGEST_RIDGE: f64 = 1e30;

/// The data of a fit.
pub(crate) struct Problem<'a, T> {
    pub(crate) rows: Rows<T>,
    pub(crate) x: Design<'a, T>,
    pub(crate) y: Design<'a, T>,
}

pub(crate) enum Method<T> {
    ConjugateGradients(cg::Settings<T>),
    Features(Cholesky),
    /// With what was added to the diagonal.
    Rows(Cholesky, f64),
}

/// A way to solve regressions with one ridge.
pub(crate) struct Regression<T>(pub(crate) Method<T>);

/// Gram matrices that regressions of different ridge share.
pub(crate) enum Gram {
    None,
    OfFeatures(Vec<f64>),
    OfRows(Vec<f64>),
}

impl Gram {
    /// What the solver of `params` needs, which may be nothing.
    pub(crate) fn new<T: Real>(
        params: &Params,
        problem: &Problem<'_, T>,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let (n, d) = (problem.rows.n(), problem.x.n_cols());
        let dense = matches!(problem.x.cells, Cells::Dense { .. });
        let solver = match params.solver {
            Solver::Auto if d <= MOST_FACTORIZED => Solver::Cholesky,
            Solver::Auto if n <= MOST_FACTORIZED && dense => Solver::Dual,
            Solver::Auto => Solver::Cg,
            chosen => chosen,
        };
        Ok(match solver {
            Solver::Cholesky => {
                Self::OfFeatures(gram_of_features(&problem.rows, &problem.x, watch)?)
            }
            Solver::Dual => Self::OfRows(gram_of_rows(&problem.rows, &problem.x, watch)?),
            Solver::Cg | Solver::Auto => Self::None,
        })
    }
}

impl<T: Real> Regression<T> {
    /// Prepares regressions with a ridge of `l2` times the mean diagonal of `XᵀΩX`.
    pub(crate) fn new(
        params: &Params,
        problem: &Problem<'_, T>,
        gram: &Gram,
        l2: f64,
        n_features: usize,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let mean = problem.x.diagonal.iter().sum::<f64>() / n_features as f64;
        let ridge = (l2 * mean).min(LARGEST_RIDGE);
        watch.step(0)?;
        Ok(Self(match gram {
            Gram::None => {
                let inverse = |&entry: &f64| match entry + ridge {
                    0.0 => T::of(0.0),
                    entry => T::of(1.0 / entry),
                };
                let diagonal = problem.x.diagonal.iter();
                let preconditioner = collected("number of features", diagonal.map(inverse))?;
                if preconditioner.iter().any(|entry| !entry.f64().is_finite()) {
                    return Err(Error::Param {
                        name: "l2",
                        expected: "> 0, or X in float64, for features of such different scale",
                        got: l2.to_string(),
                    });
                }
                Method::ConjugateGradients(cg::Settings {
                    preconditioner,
                    ridge: T::of(ridge),
                    max_iter: params.max_iter,
                    tol: params
                        .tol
                        .unwrap_or(if T::EPSILON > 1e-10 { 1e-2 } else { 1e-3 }),
                })
            }
            Gram::OfFeatures(gram) => {
                let d = problem.x.n_cols();
                let (factor, _) = factor(gram, d, ridge, LEAST_RIDGE * mean, watch)?;
                Method::Features(factor)
            }
            Gram::OfRows(gram) => {
                let n = problem.rows.n();
                let (factor, shift) = factor(gram, n, ridge, LEAST_RIDGE_OF_ROWS * mean, watch)?;
                Method::Rows(factor, shift)
            }
        }))
    }

    /// Fits the rows of `Y q`.
    pub(crate) fn fit(
        &self,
        problem: &Problem<'_, T>,
        q: &[Lanes<T>],
        watch: &Watch,
    ) -> Result<Fit<T>, Error> {
        let Problem { rows, x, y } = problem;
        match &self.0 {
            Method::ConjugateGradients(settings) => {
                settings.solve(rows, x, cross(rows, y, x, q, watch)?, watch)
            }
            Method::Features(factor) => {
                let mut z = cross(rows, y, x, q, watch)?;
                solve_in_place(factor, &mut z, watch)?;
                Ok(direct(z))
            }
            Method::Rows(factor, _) => {
                let mut r = filled("number of rows", Lanes::default(), rows.n())?;
                let shift = y.mean_times(q);
                for (block, cut) in rows.cuts.iter().enumerate() {
                    watch.step(0)?;
                    y.times(block, cut, q, shift.as_ref(), &mut r[cut.clone()]);
                }
                scale_by_roots(rows, &mut r);
                solve_in_place(factor, &mut r, watch)?;
                scale_by_roots(rows, &mut r);
                let mut z = filled("number of features", Lanes::default(), x.n_cols())?;
                let mut sum = [0.0; LANES];
                for (block, cut) in rows.cuts.iter().enumerate() {
                    watch.step(0)?;
                    let r = &r[cut.clone()];
                    x.add_transposed(block, cut, r, &mut z);
                    for r in r {
                        for lane in 0..LANES {
                            sum[lane] += r.0[lane].f64();
                        }
                    }
                }
                x.center_transposed(&sum, &mut z);
                Ok(direct(z))
            }
        }
    }
}

fn direct<T>(z: Vec<Lanes<T>>) -> Fit<T> {
    Fit {
        z,
        n_steps: 1,
        n_unfinished: 0,
    }
}

fn scale_by_roots<T: Real>(rows: &Rows<T>, r: &mut [Lanes<T>]) {
    for (row, r) in r.iter_mut().enumerate() {
        let root = T::of(rows.weight(row).sqrt());
        r.0 = r.0.map(|value| value * root);
    }
}

/// Factorizes a Gram matrix, of which the lower triangle is given row by row, plus `ridge`; or plus
/// the least that makes it positive definite in spite of rounding; returns what that was.
fn factor(
    gram: &[f64],
    n: usize,
    ridge: f64,
    least: f64,
    watch: &Watch,
) -> Result<(Cholesky, f64), Error> {
    let mut ridge = if ridge > 0.0 { ridge } else { least };
    loop {
        // A matrix of zeros has the solution 0 with any ridge.
        let shift = if least > 0.0 { ridge } else { 1.0 };
        let lower = MatRef::from_row_major_slice(gram, n, n);
        if let Some(factor) = Cholesky::new(lower, shift, watch)? {
            return Ok((factor, shift));
        }
        if ridge >= LARGEST_RIDGE {
            return Err(Error::Param {
                name: "X",
                expected: "of a scale at which products are finite",
                got: "no Cholesky factorization".into(),
            });
        }
        ridge *= 16.0;
    }
}

fn solve_in_place<T: Real>(
    factor: &Cholesky,
    lanes: &mut [Lanes<T>],
    watch: &Watch,
) -> Result<(), Error> {
    let value = |i: usize, lane: usize| lanes[i].0[lane].f64();
    let mut right = from_fn("sides of equations", lanes.len(), LANES, value)?;
    factor.solve_in_place(right.as_mut(), watch)?;
    for (i, lanes) in lanes.iter_mut().enumerate() {
        for lane in 0..LANES {
            lanes.0[lane] = T::of(right[(i, lane)]);
        }
    }
    Ok(())
}
