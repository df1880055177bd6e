//! Solves the ridge regressions `argmin_Z ‖YQ − XZ‖² + λ‖Z‖²`, with rows weighted by Ω, for 32 right-hand
//! sides at a time. X holds the features, Y the labels, Q has 32 columns, Ω is the diagonal matrix of the row
//! weights, and λ is the ridge.
//!
//! [`Regression`] solves for one ridge by one of three methods:
//!
//! - [`Method::ConjugateGradients`] iterates on `(XᵀΩX + λI) Z = XᵀΩYQ`. It needs no preparation. Each step
//!   makes a pass over X.
//! - [`Method::Features`] factorizes `XᵀΩX + λI` once in O(d³) time for d features. Each solution
//!   takes O(d² · 32).
//! - [`Method::Rows`] uses `K = Ω^{1/2} X Xᵀ Ω^{1/2}`. The solution can also be written as
//!   `Z = XᵀΩ^{1/2} (K + λI)⁻¹ Ω^{1/2} YQ`. The method factorizes `K + λI` once in O(n³) time for n
//!   rows. Each solution takes O((n² + nnz(X)) · 32).
//!
//! Regressions with different ridges use the same [`Gram`] matrix. Factorizations are in double
//! precision. Conjugate gradients and products are in the precision of X.

use crate::cg::{self, Fit};
use crate::design::{Cells, Design, Rows, cross};
use crate::gram::{features_of_strip, gram_of_features, gram_of_rows};
use crate::{Params, Solver};
use faer::MatRef;
use manylabel_base::{Error, Watch, collected, filled};
use manylabel_dense::{Cholesky, from_fn};
use manylabel_sparse::{LANES, Lanes, Real};
use std::ops::Range;

/// Maximum number of features, or of rows, for which [`Solver::Auto`] factorizes a Gram matrix. The
/// matrix then takes 128 MB in double precision.
const MOST_FACTORIZED: usize = 4000;

/// Ridge used in place of λ = 0 with [`Method::Features`], relative to the mean diagonal of `XᵀΩX`.
/// Up to rounding, the solution is the least-squares solution of smallest norm.
const LEAST_RIDGE: f64 = 1e-12;

/// Ridge used in place of λ = 0 with [`Method::Rows`], relative to the mean diagonal of `XᵀΩX`. The
/// part of the targets that the features do not explain is divided by this ridge. A smaller ridge
/// amplifies rounding errors, and a larger ridge changes the solution.
const LEAST_RIDGE_OF_ROWS: f64 = 1e-9;

/// Upper limit of ridges. Scaled entries of X are at most about 1. Larger ridges may overflow in
/// single precision, and their solutions are practically 0.
const LARGEST_RIDGE: f64 = 1e30;

/// The data of a fit: the rows and the two matrices, scaled and divided into blocks in the same
/// way.
pub(crate) struct Problem<'a, T> {
    /// The blocks and the weights of the rows.
    pub(crate) rows: Rows<T>,
    /// The features X.
    pub(crate) x: Design<'a, T>,
    /// Labels.
    pub(crate) y: Design<'a, T>,
}

/// The method of a [`Regression`], with the data prepared for its ridge. See the module
/// documentation.
pub(crate) enum Method<T> {
    /// Iterates without a factorization.
    ConjugateGradients(cg::Settings<T>),
    /// The factor of `XᵀΩX + λI`.
    Features(Cholesky),
    /// The factor of `K + λI`, and the value that was added to the diagonal.
    Rows(Cholesky, f64),
}

/// Ridge regressions with one ridge, prepared for any right-hand sides.
pub(crate) struct Regression<T>(pub(crate) Method<T>);

/// The Gram matrix without a ridge. Regressions with different ridges use the same Gram matrix. Its lower
/// triangle is stored row by row.
pub(crate) enum Gram {
    /// Conjugate gradients need no Gram matrix.
    None,
    /// `XᵀΩX`.
    OfFeatures(Vec<f64>),
    /// `Ω^{1/2} X Xᵀ Ω^{1/2}`.
    OfRows(Vec<f64>),
}

/// How a Gram matrix is divided into rows that are computed together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Strips {
    /// The solver, which is not [`Solver::Auto`].
    solver: Solver,
    /// Number of rows and of columns of the matrix. It is 0 if the solver needs no Gram matrix.
    pub(crate) side: usize,
    /// Number of rows of each strip except the last; ≥ 1.
    height: usize,
}

impl Strips {
    /// Resolves [`Solver::Auto`] and divides the Gram matrix.
    pub(crate) fn new<T: Real>(params: &Params, problem: &Problem<'_, T>) -> Self {
        let (n, d) = (problem.rows.n(), problem.x.n_cols());
        let dense = matches!(problem.x.cells, Cells::Dense { .. });
        let solver = match params.solver {
            Solver::Auto if d <= MOST_FACTORIZED => Solver::Cholesky,
            Solver::Auto if n <= MOST_FACTORIZED && dense => Solver::Dual,
            Solver::Auto => Solver::Cg,
            chosen => chosen,
        };
        let (side, height) = match solver {
            Solver::Cholesky => (d, features_of_strip(&problem.x)),
            Solver::Dual => (n, LANES),
            Solver::Cg | Solver::Auto => (0, 1),
        };
        Self {
            solver,
            side,
            height,
        }
    }

    /// Returns the number of strips.
    pub(crate) fn len(&self) -> usize {
        self.side.div_ceil(self.height)
    }

    /// Returns the rows of the Gram matrix that some strips contain.
    pub(crate) fn rows(&self, strips: &Range<usize>) -> Range<usize> {
        let at = |strip: usize| (strip * self.height).min(self.side);
        at(strips.start)..at(strips.end)
    }

    /// Computes some strips of the Gram matrix, row by row. Entries above the diagonal are arbitrary.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(crate) fn compute<T: Real>(
        &self,
        problem: &Problem<'_, T>,
        strips: &Range<usize>,
        watch: &Watch,
    ) -> Result<Vec<f64>, Error> {
        let (rows, x, wanted) = (&problem.rows, &problem.x, self.rows(strips));
        match self.solver {
            Solver::Cholesky => gram_of_features(rows, x, wanted, watch),
            Solver::Dual => gram_of_rows(rows, x, wanted, watch),
            Solver::Cg | Solver::Auto => Ok(Vec::new()),
        }
    }

    /// Returns the Gram matrix with the given rows.
    pub(crate) fn gram(&self, rows: Vec<f64>) -> Gram {
        match self.solver {
            Solver::Cholesky => Gram::OfFeatures(rows),
            Solver::Dual => Gram::OfRows(rows),
            Solver::Cg | Solver::Auto => Gram::None,
        }
    }
}

impl Gram {
    /// Resolves [`Solver::Auto`] and computes the Gram matrix if the solver needs it.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(crate) fn new<T: Real>(
        params: &Params,
        problem: &Problem<'_, T>,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let strips = Strips::new(params, problem);
        let rows = strips.compute(problem, &(0..strips.len()), watch)?;
        Ok(strips.gram(rows))
    }
}

impl<T: Real> Regression<T> {
    /// Returns the relative error of solutions that conjugate gradients leave, as a rough estimate. Their
    /// tolerance is for residuals, and errors are a few times larger. Returns 0 for factorizations.
    pub(crate) fn noise(&self) -> f64 {
        match &self.0 {
            Method::ConjugateGradients(settings) => 5.0 * settings.tol,
            Method::Features(_) | Method::Rows(..) => 0.0,
        }
    }

    /// Prepares regressions with a ridge of `l2` times the mean diagonal of `XᵀΩX`.
    ///
    /// The mean is over `n_features` entries: all features of the caller, and the column of ones if there is
    /// one. A feature without stored values adds 0 to the mean.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the inverse diagonal overflows or no factorization is found. Returns
    /// [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller requested
    /// a stop.
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
                        expected: "> 0, because the scales of the features of X differ too much for float32 (or pass X as float64)",
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

    /// Solves the regression of the targets `Yq` on X. `q` has a line of 32 numbers for each label.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(crate) fn fit(
        &self,
        problem: &Problem<'_, T>,
        q: &[Lanes<T>],
        watch: &Watch,
    ) -> Result<Fit<T>, Error> {
        let Problem { rows, x, y } = problem;
        match &self.0 {
            Method::ConjugateGradients(_) | Method::Features(_) => {
                self.solve(problem, cross(rows, y, x, q, watch)?, watch)
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

    /// Solves `(XᵀΩX + λI) Z = G` for 32 right-hand sides G, given as `g`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    ///
    /// # Panics
    ///
    /// Panics with [`Method::Rows`], which solves other equations.
    pub(crate) fn solve(
        &self,
        problem: &Problem<'_, T>,
        mut g: Vec<Lanes<T>>,
        watch: &Watch,
    ) -> Result<Fit<T>, Error> {
        match &self.0 {
            Method::ConjugateGradients(settings) => {
                settings.solve(&problem.rows, &problem.x, g, watch)
            }
            Method::Features(factor) => {
                solve_in_place(factor, &mut g, watch)?;
                Ok(direct(g))
            }
            Method::Rows(..) => unreachable!("its equations have a row for each row of X"),
        }
    }
}

/// Returns a [`Fit`] with the solution of a factorization.
fn direct<T>(z: Vec<Lanes<T>>) -> Fit<T> {
    Fit {
        z,
        n_steps: 1,
        n_unfinished: 0,
    }
}

/// Multiplies the 32 numbers of each row by the square root of the weight of the row.
fn scale_by_roots<T: Real>(rows: &Rows<T>, r: &mut [Lanes<T>]) {
    for (row, r) in r.iter_mut().enumerate() {
        let root = T::of(rows.weight(row).sqrt());
        r.0 = r.0.map(|value| value * root);
    }
}

/// Factorizes a Gram matrix plus a ridge. Returns the factor and the ridge that was added.
///
/// `gram` has shape (n, n) and is stored row by row. Only its lower triangle is used. A `ridge` of
/// 0 is replaced by `least`. If the sum is not positive definite because of rounding, the ridge is
/// multiplied by 16 until the sum is positive definite.
///
/// # Errors
///
/// Returns [`Error::Param`] if no ridge up to [`LARGEST_RIDGE`] is sufficient. This happens only if entries
/// are not finite. Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if
/// the caller requested a stop.
fn factor(
    gram: &[f64],
    n: usize,
    ridge: f64,
    least: f64,
    watch: &Watch,
) -> Result<(Cholesky, f64), Error> {
    let mut ridge = if ridge > 0.0 { ridge } else { least };
    loop {
        // `least` is 0 only for a matrix of zeros. For this matrix, the solution is 0 with any
        // ridge.
        let shift = if least > 0.0 { ridge } else { 1.0 };
        let lower = MatRef::from_row_major_slice(gram, n, n);
        if let Some(factor) = Cholesky::new(lower, shift, watch)? {
            return Ok((factor, shift));
        }
        if ridge >= LARGEST_RIDGE {
            return Err(Error::Param {
                name: "X",
                expected: "scaled so that products of its values are finite",
                got: "values with infinite or NaN products".into(),
            });
        }
        ridge *= 16.0;
    }
}

/// Solves for 32 right-hand sides in double precision, and rounds the solution to `T`.
fn solve_in_place<T: Real>(
    factor: &Cholesky,
    lanes: &mut [Lanes<T>],
    watch: &Watch,
) -> Result<(), Error> {
    let value = |i: usize, lane: usize| lanes[i].0[lane].f64();
    let mut right = from_fn("the right-hand side", lanes.len(), LANES, value)?;
    factor.solve_in_place(right.as_mut(), watch)?;
    for (i, lanes) in lanes.iter_mut().enumerate() {
        for lane in 0..LANES {
            lanes.0[lane] = T::of(right[(i, lane)]);
        }
    }
    Ok(())
}
