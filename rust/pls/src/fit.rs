//! Fits the embedding: a randomized range finder that uses ridge regressions, followed by one more
//! regression.
//!
//! The documentation of the [crate] describes the algorithm and defines the symbols. The algorithm computes
//! the label embedding U, and the weights W that predict `YU` from X. [`Checked::fit`] follows the steps of
//! the algorithm in order. It scales and copies the data, chooses a ridge, and finds U. It then chooses the
//! ridge of the last regression and finds W. U and W are returned in the caller's order of columns. The steps
//! are methods of [`Fitting`]. The matrices of these steps are of type [`Tall`], with a row for each label or
//! feature in the order of [`Design`]. [`by_row`] restores the caller's order of rows.
//!
//! The values of X and the row weights are multiplied by powers of two before the fit. This scaling is exact,
//! and it is undone in the result.

use crate::choice::choose;
use crate::design::{Design, Matrix, Rows, cross, power_of_two_near_inverse};
use crate::impute::{Imputed, inverse, with_zeros};
use crate::leverage::predictions;
use crate::normal::normal;
use crate::params::Checked;
use crate::solve::{Gram, Problem, Regression};
use crate::tall::{Spectrum, Tall};
use crate::{Components, Embedding, Ridge, Variant};
use manylabel_base::range::same;
use manylabel_base::{Error, Watch, collected, few, filled, parts};
use manylabel_sparse::{ColumnOrder, CsrView, Index, LANES, Lanes, Real, RowBlocks};
use rayon::prelude::*;

/// U is computed again if the values of unknown entries have changed Y by more than this multiple of the
/// tolerance for these values. U depends less on them than W does, because a change of Y that has no direction
/// in common with Y hardly changes its leading directions.
const EMBEDDED_WITHIN: f64 = 5.0;

/// A fitted embedding: the label embedding U, and the weights W that predict `YU` from the
/// features. These matrices are stored row by row, with k columns. In the documentation of the
/// fields, Ω is the diagonal matrix of row weights.
///
/// `T` is the precision of X. In each column of U, the entry with the largest absolute value is positive. If
/// several entries have the largest absolute value, the first of these entries is positive. If the sign of a
/// column of U is changed for this purpose, the sign of the same column of W is changed too.
#[derive(Debug, Clone, PartialEq)]
pub struct Model<T> {
    /// The number of components k; at least 1. It is smaller than requested if the data have fewer
    /// independent directions.
    pub n_components: usize,
    /// U, of shape (`n_labels`, k). `None` for [`Embedding::Pca`]. The rows of labels that occur in no
    /// training row are zero, even for [`Embedding::Gaussian`].
    pub label_embedding: Option<Vec<T>>,
    /// W, of shape (`n_features`, k). If X is sparse, rows of features without a stored value are
    /// zero.
    pub coef: Vec<T>,
    /// The intercept that is added to `XW`; shape (k,). Zero if neither `center` nor `fit_intercept` is set.
    pub intercept: Vec<T>,
    /// Estimates of the leading eigenvalues of the matrix B (see the documentation of the crate). For
    /// [`Embedding::Pca`], estimates of the leading eigenvalues of `XᵀΩX`. There is one eigenvalue for each
    /// component, in decreasing order. `None` for [`Embedding::Gaussian`].
    pub eigenvalues: Option<Vec<f64>>,
    /// Largest number of conjugate gradient steps taken by any panel of 32 right-hand sides. It is 1 if the
    /// equations are solved by a factorization.
    pub n_steps: usize,
    /// Number of right-hand sides that have not reached the tolerance `tol`, summed over all
    /// regressions. It is 0 if no `tol` was given.
    pub n_unfinished: usize,
    /// Ridge of the regressions for U, relative to the mean diagonal of `XᵀΩX`. It is 0 for
    /// [`Embedding::Pca`].
    pub l2: f64,
    /// Ridge of the regression for W, relative to the mean diagonal of `XᵀΩX`. It is 0 for
    /// [`Embedding::Pca`].
    pub l2_of_coef: f64,
    /// Leave-one-out predictions of `YU`; shape (`n_rows`, k). Each row is predicted by a W that is
    /// fitted without this row. `None` unless
    /// [`Params::leave_one_out`](crate::Params::leave_one_out) is set. Always `None` for
    /// [`Embedding::Pca`].
    pub leave_one_out: Option<Vec<f32>>,
}

/// Divides `n_rows` rows into blocks and scales their weights.
///
/// `n_values` returns the number of stored values of a row. These numbers determine the boundaries
/// of the blocks. The weights are multiplied by a power of two that brings the largest weight
/// near 1. Returns the rows and this factor.
///
/// # Errors
///
/// Returns [`Error::Shape`] if there is not one weight per row. Returns [`Error::TooLarge`] if there is not
/// enough memory.
pub(crate) fn rows_of<T: Real>(
    n_rows: usize,
    n_values: impl Fn(usize) -> usize,
    sample_weight: Option<&[f32]>,
) -> Result<(Rows<T>, f64), Error> {
    let n_weights = sample_weight.map_or(n_rows, <[f32]>::len);
    same("length of sample_weight", n_rows, n_weights)?;
    let largest = sample_weight.map_or(1.0, |weights| {
        let weights = weights.iter().copied().map(f64::from);
        weights.fold(0.0f64, f64::max)
    });
    let scale = power_of_two_near_inverse(largest);
    let scaled = |&weight: &f32| T::of(f64::from(weight) * scale);
    let weights: Option<Vec<T>> = sample_weight
        .map(|weights| collected("number of rows", weights.iter().map(scaled)))
        .transpose()?;
    let total = match &weights {
        Some(weights) => weights.iter().map(|weight| weight.f64()).sum(),
        None => n_rows as f64,
    };
    let rows = Rows {
        cuts: RowBlocks::<T>::cut(n_rows, n_values),
        weights,
        total,
    };
    Ok((rows, scale))
}

impl Checked {
    /// Fits the embedding of `y` and the projection of `x`.
    ///
    /// `x` has shape (`n_rows`, `n_features`), and `y` has shape (`n_rows`, `n_labels`).
    /// `sample_weight` has one weight ≥ 0 per row. `None` means that all weights are 1.
    ///
    /// An entry of `y` that is NaN is unknown. It has no residual: the fit replaces it by its prediction. The
    /// other entries are used as they are. With unknown entries, the fit needs 6 more bytes and two more
    /// values per stored value of Y, and it keeps the factorizations of both ridges.
    ///
    /// The same data, parameters and seed give exactly the same result for any number of threads.
    /// `watch` counts the finished panels of 32 right-hand sides.
    ///
    /// The fit copies `y` and sparse `x`, and stores each copy by row and by column. The fit also
    /// needs `2 (k + n_oversamples)` numbers per label, `2 k` numbers per feature, and `6 · 32`
    /// numbers per feature and thread. The solver `Cholesky` also needs two matrices of features ×
    /// features. The solver `Dual` also needs two matrices of rows × rows, or four such matrices if
    /// the fit chooses a ridge ([`Ridge::Auto`]).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the sizes of the arrays do not match. Returns [`Error::Param`] if
    /// `n_components` is a fraction (see [`n_components`](Self::n_components)), or if products overflow.
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub fn fit<I: Index, J: Index, T: Real>(
        &self,
        x: Matrix<'_, I, T>,
        y: CsrView<'_, J, f32>,
        sample_weight: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Model<T>, Error> {
        let params = &self.0;
        let Components::Count(k) = params.n_components else {
            return Err(Error::Param {
                name: "n_components",
                expected: "an integer (`Checked::n_components` converts fractions)",
                got: format!("{:?}", params.n_components),
            });
        };
        let ones = params.has_ones();
        same("rows of Y", x.n_rows(), y.n_rows())?;
        // 1 is added for the column of ones.
        let n_values = |row: usize| x.n_values(row) + y.row(row).0.len() + 1;
        let (rows, weight_scale) = rows_of(x.n_rows(), n_values, sample_weight)?;
        let sizes = (x.n_cols(), y.n_cols());
        let is_known = |row: usize| y.row(row).1.iter().all(|value| !value.is_nan());
        let (unknown, labels) = if (0..y.n_rows()).all(is_known) {
            let order = ColumnOrder::new(y)?;
            watch.step(0)?;
            let labels = Design::labels(y, &order, &rows, params.center, watch)?;
            (None, labels)
        } else {
            let unknown = Imputed::new(y, params.center)?;
            let labels = unknown.design(&rows, watch)?;
            (Some(unknown), labels)
        };
        let problem = Problem {
            x: Design::features(x, &rows, ones, params.center, watch)?,
            y: labels,
            rows,
        };
        self.fit_problem(k, problem, unknown, sizes, weight_scale, watch)
    }

    /// Does the work of [`fit`](Self::fit) for prepared data, which do not depend on the caller's index
    /// types. `unknown` holds the unknown entries of Y, if there are any. `sizes` are the numbers of features
    /// and labels. `weight_scale` is the scale of the row weights.
    fn fit_problem<'a, T: Real>(
        &self,
        k: usize,
        problem: Problem<'a, T>,
        mut unknown: Option<Imputed<'a, T>>,
        (n_features, n_labels): (usize, usize),
        weight_scale: f64,
        watch: &Watch,
    ) -> Result<Model<T>, Error> {
        let params = &self.0;
        let mut fit = Fitting {
            params,
            problem,
            watch,
            n_steps: 1,
            n_unfinished: 0,
            counted: 1,
        };
        if params.embedding == Embedding::Pca {
            return fit.principal_model(k, n_features, weight_scale);
        }
        let gram = Gram::new(params, &fit.problem, watch)?;
        let n_equations = n_features + usize::from(fit.problem.x.ones);
        let with = |problem: &Problem<'_, T>, l2| {
            Regression::new(params, problem, &gram, l2, n_equations, watch)
        };
        let choose = |problem: &Problem<'_, T>, q: &Tall<T>, l2| {
            let q = &q.panels[0];
            choose(params, problem, &gram, n_equations, q, l2, watch)
        };
        // The leverages of the regression for W, if they are known.
        let mut leverages = None;
        let (l2, mut of_u) = match params.l2 {
            Ridge::Of(l2) => (l2, None),
            Ridge::Auto => {
                let chosen = choose(&fit.problem, &fit.problem.probe(params.seed, LANES)?, 1.0)?;
                leverages = Some(chosen.leverages);
                (chosen.l2, Some(chosen.regression))
            }
        };
        let mut range = None;
        if params.embedding != Embedding::Gaussian {
            let regression = of_u.map_or_else(|| with(&fit.problem, l2), Ok)?;
            let imputed = unknown
                .as_mut()
                .map(|unknown| (unknown, leverages.as_deref()));
            range = Some(fit.range(&regression, k, imputed)?);
            of_u = Some(regression);
        }
        let (u, eigenvalues) = match &range {
            Some(range) => {
                let (u, eigenvalues) = range.basis(params.variant, k, watch)?;
                (u, Some(eigenvalues))
            }
            None => (fit.problem.gaussian(params.seed, k, n_labels)?, None),
        };
        if unknown.is_none() {
            range = None; // frees its memory
        }
        // If there is no ridge for U, the caller wants ordinary least squares. W then also has no ridge.
        let same_ridge = match params.l2_final {
            Ridge::Of(1.0) => true,
            Ridge::Of(_) => false,
            Ridge::Auto => l2 <= 0.0,
        };
        let mut of_w = None;
        let mut l2_of_coef = l2;
        if !(same_ridge && of_u.is_some()) {
            if unknown.is_none() {
                of_u = None; // frees the memory of its factorization
            }
            match params.l2_final {
                Ridge::Auto if l2 > 0.0 => {
                    // Predictions of unknown entries would be targets without error, so the leave-one-out
                    // errors of weak ridges would be too small.
                    let work = |problem: &Problem<'a, T>| choose(problem, &u, l2);
                    let chosen = with_zeros(unknown.as_ref(), &mut fit.problem, work, watch)?;
                    l2_of_coef = chosen.l2;
                    leverages = Some(chosen.leverages);
                    of_w = Some(chosen.regression);
                }
                Ridge::Auto => of_w = Some(with(&fit.problem, 0.0)?),
                Ridge::Of(ratio) => {
                    l2_of_coef = l2 * ratio;
                    leverages = None;
                    of_w = Some(with(&fit.problem, l2_of_coef)?);
                }
            }
        }
        drop(gram);
        let regression = of_w.as_ref().or(of_u.as_ref());
        let regression = regression.expect("the regression for U is kept if there is no other");
        let w = fit.solutions(regression, &u)?;
        let mut found = Found { u, w, eigenvalues };
        if let Some(unknown) = &mut unknown {
            let of_u = range.zip(of_u.as_ref());
            found = fit.impute(unknown, found, k, (regression, leverages), of_u)?;
        }
        let leave_one_out = if params.leave_one_out {
            Some(fit.leave_one_out(regression, &found.u, &found.w)?)
        } else {
            None
        };
        drop((of_u, of_w));
        let model = fit.model(found, (n_features, n_labels), weight_scale)?;
        Ok(Model {
            l2,
            l2_of_coef,
            leave_one_out,
            ..model
        })
    }
}

/// Divides eigenvalues by `scale`, to undo the scaling of weights and values.
fn scaled(mut eigenvalues: Vec<f64>, scale: f64) -> Vec<f64> {
    for value in &mut eigenvalues {
        *value /= scale;
    }
    eigenvalues
}

/// The result of the range finder: the basis Q, the product `T = BQ`, and the singular values and right
/// singular vectors of T.
pub(crate) struct Range<T> {
    pub(crate) q: Tall<T>,
    pub(crate) t: Tall<T>,
    pub(crate) spectrum: Spectrum,
}

/// The matrices U and W, and the eigenvalues of the scaled data. With [`Embedding::Gaussian`], there are no
/// eigenvalues.
pub(crate) struct Found<T> {
    pub(crate) u: Tall<T>,
    pub(crate) w: Tall<T>,
    pub(crate) eigenvalues: Option<Vec<f64>>,
}

/// The state of a fit.
struct Fitting<'f, 'a, T> {
    params: &'f crate::Params,
    problem: Problem<'a, T>,
    watch: &'f Watch,
    /// Largest number of conjugate gradient steps taken by any panel of right-hand sides so far.
    n_steps: usize,
    /// Number of right-hand sides that have not reached the tolerance, in all regressions so far.
    n_unfinished: usize,
    /// The number by which a finished panel increases the progress. It is 0 in the rounds that only unknown
    /// entries need.
    counted: usize,
}

/// The unknown entries of Y, and the leverages of the regression if they are known.
type Unknown<'u, 'a, T> = (&'u mut Imputed<'a, T>, Option<&'u [f64]>);

impl<'a, T: Real> Fitting<'_, 'a, T> {
    /// Runs the range finder (steps 1 to 3 in the documentation of the crate) for `k` components.
    ///
    /// The range finder computes `n_iter + 1` products with B and `n_iter + 1` orthogonalizations. If there are
    /// `unknown` entries, the last iteration makes a step towards their predictions.
    fn range(
        &mut self,
        regression: &Regression<T>,
        k: usize,
        mut unknown: Option<Unknown<'_, 'a, T>>,
    ) -> Result<Range<T>, Error> {
        let q = self.problem.first_basis(self.params, k, self.watch)?;
        // Predictions from a random basis would be poor.
        let (t, spectrum) = self.apply(regression, &q, None)?;
        let mut range = Range { q, t, spectrum };
        for at in 1..=self.params.n_iter {
            let unknown = unknown.take_if(|_| at == self.params.n_iter);
            self.improve(regression, &mut range, unknown)?;
        }
        Ok(range)
    }

    /// Runs one more iteration of the range finder. If there are `unknown` entries, makes a step towards their
    /// predictions.
    fn improve(
        &mut self,
        regression: &Regression<T>,
        range: &mut Range<T>,
        unknown: Option<Unknown<'_, 'a, T>>,
    ) -> Result<(), Error> {
        let Range { q, t, spectrum } = range;
        *q = t.orthonormal(spectrum, q.n_cols, self.watch)?;
        (*t, *spectrum) = self.apply(regression, q, unknown)?;
        Ok(())
    }

    /// Computes the product `T = BQ = YᵀΩXZ`, where Z is the regression of `YQ` on X. Also returns
    /// the singular values and right singular vectors of T.
    ///
    /// If there are `unknown` entries, their values change between the regression and the product with `Yᵀ`.
    /// They make a step towards their predictions `XZQᵀ`. Q must then be orthonormal.
    ///
    /// Panels of Q are independent and run in parallel. `watch` counts the finished panels.
    fn apply(
        &mut self,
        regression: &Regression<T>,
        q: &Tall<T>,
        unknown: Option<Unknown<'_, 'a, T>>,
    ) -> Result<(Tall<T>, Spectrum), Error> {
        let panels = match unknown {
            None => {
                let Problem { rows, x, y } = &self.problem;
                let panels = q.panels.par_iter().map(|q| {
                    let fit = regression.fit(&self.problem, q, self.watch)?;
                    let t = cross(rows, x, y, &fit.z, self.watch)?;
                    self.watch.step(self.counted)?;
                    Ok((t, fit.n_steps, fit.n_unfinished))
                });
                let panels = parts(panels)?;
                self.note(panels)
            }
            Some((unknown, leverages)) => {
                let z = self.solutions(regression, q)?;
                unknown.step(&self.problem, &z, q, q, leverages, self.watch)?;
                unknown.note_embedding();
                self.problem.y = unknown.design(&self.problem.rows, self.watch)?;
                let Problem { rows, x, y } = &self.problem;
                let panels = z.panels.par_iter();
                parts(panels.map(|z| cross(rows, x, y, z, self.watch)))?
            }
        };
        let t = Tall {
            n_rows: q.n_rows,
            n_cols: q.n_cols,
            panels,
        };
        let spectrum = t.spectrum(self.watch)?;
        Ok((t, spectrum))
    }

    /// Records the number of steps and the number of unfinished right-hand sides of each panel. Returns the
    /// panels without these numbers.
    fn note(&mut self, panels: Vec<(Vec<Lanes<T>>, usize, usize)>) -> Vec<Vec<Lanes<T>>> {
        few(panels.into_iter().map(|(panel, n_steps, n_unfinished)| {
            self.n_steps = self.n_steps.max(n_steps);
            self.n_unfinished += n_unfinished;
            panel
        }))
    }

    /// Repeats the computation of W, and of U if necessary, until the values of `unknown` entries are near their
    /// predictions. Returns the matrices for these values.
    ///
    /// `found` are the matrices for the present values. The second argument is the regression for W, with its
    /// leverages if they are known. `of_u` are the result of the range finder and the regression for U.
    fn impute(
        &mut self,
        unknown: &mut Imputed<'a, T>,
        mut found: Found<T>,
        k: usize,
        (regression, leverages): (&Regression<T>, Option<Vec<f64>>),
        mut of_u: Option<(Range<T>, &Regression<T>)>,
    ) -> Result<Found<T>, Error> {
        let (params, watch) = (self.params, self.watch);
        let leverages = leverages.map_or_else(
            || regression.estimated_leverages(&self.problem, params.seed, watch),
            Ok,
        )?;
        let (tol, tol_of_embedding) = (
            params.tol_of_unknown.max(regression.noise()),
            EMBEDDED_WITHIN * params.tol_of_unknown,
        );
        let (mut before, mut finished) = (f64::INFINITY, true);
        self.counted = 0;
        for _ in 1..params.most_rounds {
            let Found { u, w, .. } = &found;
            let inverse = match of_u {
                Some(_) => None, // the columns of U are orthonormal
                None => Some(inverse(u, watch)?),
            };
            let back = inverse.as_ref().unwrap_or(u);
            let change = unknown.step(&self.problem, w, u, back, Some(&leverages), watch)?;
            // If conjugate gradients do not reach their tolerance, small changes are errors of the solutions.
            if change <= tol || !finished && change > before / 2.0 {
                break;
            }
            before = change;
            self.problem.y = unknown.design(&self.problem.rows, watch)?;
            if let Some((range, of_u)) = &mut of_u
                && unknown.change_since_embedding() > tol_of_embedding
            {
                self.improve(of_u, range, None)?;
                unknown.note_embedding();
                let (u, eigenvalues) = range.basis(params.variant, k, watch)?;
                (found.u, found.eigenvalues) = (u, Some(eigenvalues));
            }
            let n_unfinished = self.n_unfinished;
            found.w = self.solutions(regression, &found.u)?;
            finished = self.n_unfinished == n_unfinished;
        }
        Ok(found)
    }

    /// Returns the model with the given matrices and the numbers of steps. Ridges and leave-one-out predictions
    /// are left out.
    fn model(
        &self,
        found: Found<T>,
        sizes: (usize, usize),
        weight_scale: f64,
    ) -> Result<Model<T>, Error> {
        Ok(Model {
            n_steps: self.n_steps,
            n_unfinished: self.params.reported_unfinished(self.n_unfinished),
            ..self.problem.model(found, sizes, weight_scale)?
        })
    }

    /// Returns the model with principal components.
    fn principal_model(
        &mut self,
        k: usize,
        n_features: usize,
        weight_scale: f64,
    ) -> Result<Model<T>, Error> {
        let (w, eigenvalues) = self.principal_components(k)?;
        // Components are unit vectors in the space of features, so they are not rescaled.
        let (coef, intercept) = self.problem.original(&w, n_features, None, 1.0)?;
        let scale = weight_scale * self.problem.x.scale.powi(2);
        Ok(Model {
            n_components: w.n_cols,
            label_embedding: None,
            coef,
            intercept,
            eigenvalues: Some(scaled(eigenvalues, scale)),
            n_steps: 1,
            n_unfinished: 0,
            l2: 0.0,
            l2_of_coef: 0.0,
            leave_one_out: None,
        })
    }

    /// Computes W, the regression of `YU` on X, for the scaled data.
    fn solutions(&mut self, regression: &Regression<T>, u: &Tall<T>) -> Result<Tall<T>, Error> {
        let panels = u.panels.par_iter().map(|u| {
            let fit = regression.fit(&self.problem, u, self.watch)?;
            self.watch.step(self.counted)?;
            Ok((fit.z, fit.n_steps, fit.n_unfinished))
        });
        let panels = parts(panels)?;
        Ok(Tall {
            n_rows: self.problem.x.n_cols(),
            n_cols: u.n_cols,
            panels: self.note(panels),
        })
    }

    /// Returns leave-one-out predictions of `YU`; shape (`n_rows`, k). Each row is predicted by a fit without
    /// this row. The prediction is `ȳᵀU + t − (t − p)/(1 − h)`. Here t is the centred row of `YU`, p is the
    /// prediction of t by the fit to all rows, and h is the leverage of the row. The vector ȳ holds the means
    /// that centring subtracts from Y. It is 0 without centring.
    fn leave_one_out(
        &self,
        regression: &Regression<T>,
        u: &Tall<T>,
        w: &Tall<T>,
    ) -> Result<Vec<f32>, Error> {
        let Problem { rows, x, y } = &self.problem;
        // Centring uses the means over all rows, including the predicted row. If the means were taken over
        // the other rows only, the prediction would depend on the row's own target. With weak features, a
        // downstream model would learn only this dependence.
        let leverages = regression.leverages(&self.problem, false, self.params.seed, self.watch)?;
        let k = u.n_cols;
        let mut out = filled("number of predictions", 0.0f32, rows.n() * k)?;
        let panels = u.panels.par_iter().zip(&w.panels).map(|(u, w)| {
            let mut values = predictions(rows, y, u, self.watch)?;
            let predicted = predictions(rows, x, w, self.watch)?;
            let mean = y.mean_times(u).unwrap_or_default();
            for ((values, predicted), leverage) in values.iter_mut().zip(predicted).zip(&leverages)
            {
                for lane in 0..LANES {
                    let target = values.0[lane].f64();
                    let residual = target - predicted.0[lane].f64();
                    let without = target - residual / (1.0 - leverage);
                    values.0[lane] = T::of(mean.0[lane].f64() + without);
                }
            }
            Ok(values)
        });
        let panels = parts(panels)?;
        for (row, out) in out.chunks_mut(k).enumerate() {
            for (panel, out) in panels.iter().zip(out.chunks_mut(LANES)) {
                for (out, value) in out.iter_mut().zip(&panel[row].0) {
                    *out = value.f64() as f32;
                }
            }
        }
        Ok(out)
    }

    /// Returns W for [`Embedding::Pca`], computed by the range finder with `XᵀΩX` in place of B.
    /// The columns of W are the leading right singular vectors of `Ω^{1/2} X`. Also returns the
    /// eigenvalues of `XᵀΩX`. The results belong to the scaled data.
    fn principal_components(&mut self, k: usize) -> Result<(Tall<T>, Vec<f64>), Error> {
        let Problem { rows, x, .. } = &self.problem;
        let width = k
            .saturating_add(self.params.n_oversamples)
            .min(x.n_cols())
            .min(rows.n());
        let seed = self.params.seed;
        let feature = |row| x.original(row).unwrap_or(0);
        let product = |q: &Tall<T>| {
            q.map_panels(|q| {
                let product = cross(rows, x, x, q, self.watch);
                self.watch.step(1)?;
                product
            })
        };
        let mut q = Tall::from_fn(x.n_cols(), width, |row, col| {
            normal(seed, feature(row), col)
        })?;
        if self.params.n_iter == 0 {
            q = orthonormal(&q, self.watch)?;
        }
        let mut t = product(&q)?;
        let mut spectrum = t.spectrum(self.watch)?;
        for _ in 0..self.params.n_iter {
            q = t.orthonormal(&spectrum, width, self.watch)?;
            t = product(&q)?;
            spectrum = t.spectrum(self.watch)?;
        }
        let range = Range { q, t, spectrum };
        range.basis(self.params.variant, k, self.watch)
    }
}

impl<T: Real> Range<T> {
    /// Computes U and its eigenvalues from the result of the range finder. The signs of the columns are chosen
    /// as described in [`Model`].
    ///
    /// U has at most `k` columns. It has fewer columns if `t` has a lower numerical rank. If `t` is zero, U
    /// has one column of zeros.
    pub(crate) fn basis(
        &self,
        variant: Variant,
        k: usize,
        watch: &Watch,
    ) -> Result<(Tall<T>, Vec<f64>), Error> {
        let Self { q, t, spectrum } = self;
        let mut u = t.orthonormal(spectrum, k, watch)?;
        if variant == Variant::Ritz {
            u = q.times(spectrum.vectors.as_ref().subcols(0, u.n_cols), watch)?;
        }
        let mut eigenvalues = few(spectrum.values.iter().copied().take(u.n_cols));
        if u.n_cols == 0 {
            u = Tall::from_fn(t.n_rows, 1, |_, _| 0.0)?;
            eigenvalues = few([0.0]);
        }
        u.settle_signs();
        Ok((u, eigenvalues))
    }
}

/// Returns an orthonormal basis of a random matrix, for `n_iter` = 0. The singular values of
/// `T = BQ` estimate the eigenvalues of B only if Q is orthonormal. With `n_iter` ≥ 1, Q is already
/// orthonormal.
fn orthonormal<T: Real>(probe: &Tall<T>, watch: &Watch) -> Result<Tall<T>, Error> {
    let spectrum = probe.spectrum(watch)?;
    probe.orthonormal(&spectrum, probe.n_cols, watch)
}

impl<T: Real> Problem<'_, T> {
    /// Returns a random matrix with `width` standard normal numbers for every label. The numbers
    /// depend on the original number of the label. Labels that occur in no row therefore do not
    /// change the numbers of other labels.
    pub(crate) fn probe(&self, seed: u64, width: usize) -> Result<Tall<T>, Error> {
        let number = |row, col| normal(seed, self.y.original(row).unwrap_or(0), col);
        Tall::from_fn(self.y.n_cols(), width, number)
    }

    /// Returns the number of columns of the random matrix, for `k` components.
    pub(crate) fn width(&self, params: &crate::Params, k: usize) -> usize {
        let wanted = k.saturating_add(params.n_oversamples);
        wanted.min(self.x.n_cols()).min(self.y.n_cols())
    }

    /// Returns the first matrix Q of the range finder, for `k` components. It is random, and orthonormal if
    /// there are no iterations.
    pub(crate) fn first_basis(
        &self,
        params: &crate::Params,
        k: usize,
        watch: &Watch,
    ) -> Result<Tall<T>, Error> {
        let probe = self.probe(params.seed, self.width(params, k))?;
        if params.n_iter == 0 {
            return orthonormal(&probe, watch);
        }
        Ok(probe)
    }

    /// Returns U for [`Embedding::Gaussian`]: standard normal numbers divided by √k. This matrix preserves
    /// distances between label vectors on average. k is at most `n_labels`.
    pub(crate) fn gaussian(&self, seed: u64, k: usize, n_labels: usize) -> Result<Tall<T>, Error> {
        let k = k.min(n_labels);
        Tall::from_fn(self.y.n_cols(), k, |row, col| {
            normal(seed, self.y.original(row).unwrap_or(0), col) / (k as f64).sqrt()
        })
    }

    /// Returns the model with the given matrices, in the caller's order of columns and in the scale of the
    /// caller's data. Ridges, leave-one-out predictions and the numbers of steps are left out.
    pub(crate) fn model(
        &self,
        found: Found<T>,
        (n_features, n_labels): (usize, usize),
        weight_scale: f64,
    ) -> Result<Model<T>, Error> {
        let Found { u, w, eigenvalues } = found;
        let (coef, intercept) = self.original(&w, n_features, Some(&u), self.x.scale)?;
        if coef.iter().chain(&intercept).any(|w| !w.f64().is_finite()) {
            return Err(Error::Param {
                name: "X",
                expected: "scaled to larger values, so that coef_ is finite",
                got: format!("values up to about {:e}", self.x.scale.recip()),
            });
        }
        Ok(Model {
            n_components: u.n_cols,
            label_embedding: Some(by_row(&u, n_labels, |row| self.y.original(row), 1.0)?),
            coef,
            intercept,
            eigenvalues: eigenvalues.map(|values| scaled(values, weight_scale)),
            n_steps: 1,
            n_unfinished: 0,
            l2: 0.0,
            l2_of_coef: 0.0,
            leave_one_out: None,
        })
    }

    /// Returns W in the caller's order of features, multiplied by `scale`, and the intercept.
    ///
    /// With centring, the intercept is `ȳᵀU − x̄ᵀW`, where ȳ and x̄ hold the column means of Y and X. Without
    /// centring, the intercept is the weight of the column of ones. `scale` is the scale of X if W was fitted
    /// to the scaled values, and 1 for principal components. `u` is `None` if there is no label embedding.
    fn original(
        &self,
        w: &Tall<T>,
        n_features: usize,
        u: Option<&Tall<T>>,
        scale: f64,
    ) -> Result<(Vec<T>, Vec<T>), Error> {
        let Self { x, y, .. } = self;
        let dot = |mean: &Option<Vec<T>>, of: &Tall<T>, col: usize| -> f64 {
            let mean = mean.iter().flatten().enumerate();
            mean.map(|(row, mean)| mean.f64() * of.get(row, col).f64())
                .sum()
        };
        let intercept = (0..w.n_cols).map(|col| {
            let ones = x.column_of_ones().map_or(0.0, |row| w.get(row, col).f64());
            let labels = u.map_or(0.0, |u| dot(&y.mean, u, col));
            // The means belong to the scaled values.
            T::of(ones * scale + labels - dot(&x.mean, w, col) * (scale / x.scale))
        });
        let intercept = collected("number of components", intercept)?;
        let coef = by_row(w, n_features, |row| x.original(row), scale)?;
        Ok((coef, intercept))
    }
}

/// Copies a matrix into an array of shape (`n_rows`, `n_cols`), row by row, multiplied by `scale`.
///
/// Row r of the matrix becomes row `original(r)` of the result. If `original(r)` is `None`, row r is left out.
/// Rows of the result without a source row are zero.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the result does not fit in memory.
fn by_row<T: Real>(
    tall: &Tall<T>,
    n_rows: usize,
    original: impl Fn(usize) -> Option<usize> + Sync,
    scale: f64,
) -> Result<Vec<T>, Error> {
    let size = n_rows
        .checked_mul(tall.n_cols)
        .ok_or_else(|| Error::TooLarge {
            what: "the fitted matrix",
            got: format!("{n_rows} x {} numbers", tall.n_cols),
        })?;
    let mut own = filled("number of rows", u32::MAX, n_rows)?;
    for row in 0..tall.n_rows {
        if let Some(to) = original(row) {
            own[to] = row as u32;
        }
    }
    let mut by_row = filled("the fitted matrix", T::default(), size)?;
    by_row
        .par_chunks_mut(tall.n_cols)
        .zip(own)
        .for_each(|(out, row)| {
            if row != u32::MAX {
                for (panel, out) in tall.panels.iter().zip(out.chunks_mut(LANES)) {
                    for (out, &value) in out.iter_mut().zip(&panel[row as usize].0) {
                        *out = T::of(value.f64() * scale);
                    }
                }
            }
        });
    Ok(by_row)
}
