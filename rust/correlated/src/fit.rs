//! Fits a model. Independent regressions are fitted first. Couplings are then added for pairs of
//! labels that occur together more or less often than the features predict.
//!
//! This module decides which pairs enter the objective, and which solver runs. It also decides the
//! starting point, the number of computed gradients and the floating-point precision of each run.
//! The solvers do not depend on each other.
//!
//! **Pairs.** With m labels there are `m (m − 1) / 2` possible couplings. The penalty of a coupling
//! c contains the term `l1 |c|`, which keeps most couplings at zero. The fit starts without
//! couplings. It adds the pairs whose gradient may exceed `l1` to the objective, and then minimizes
//! the objective. These two steps are repeated until no other pair can violate its optimality
//! condition. If there are at most 4096 pairs (about 90 labels), all pairs are added at once.
//!
//! **Solvers.** If the matrix of second moments of all columns is small enough, the fit begins with
//! quasi-Newton steps. FISTA continues from their result. If the quasi-Newton steps increased the
//! objective, they are undone and not used again.
//!
//! **Precision.** The fit first runs in single precision. If the tolerance is below 1e-5, the fit
//! continues in double precision.

use crate::design::{Design, Scales};
use crate::fista::Fista;
use crate::gradient::Gradient;
use crate::gram::Gram;
use crate::iterate::Iterate;
use crate::labels::Labels;
use crate::model::{LabelSets, Model, Start};
use crate::objective::{Objective, Slope};
use crate::params::{Checked, Penalty, Solver};
use crate::quasi_newton::QuasiNewton;
use crate::reference;
use crate::stop::{Progress, Stop};
use crate::units::Units;
use crate::wide::Float;
use manylabel_base::range::same;
use manylabel_base::{Error, Watch, collected, copied, extend, filled, reserved};
use manylabel_sparse::{CsrOwned, CsrView, Index, Sparse, with_sparse};
use std::ops::Range;

/// If there are at most this many possible pairs of labels, all pairs get a coupling at once.
const FEW_PAIRS: usize = 4096;

/// Name of the pairs in error messages about memory.
const PAIRS: &str = "number of pairs of labels";

/// Tolerance of the independent regressions that are fitted before any coupling. A loose tolerance
/// is enough, because their result is only a starting point.
const LOOSE: f64 = 0.1;

impl Checked {
    /// Fits a model to the rows of `x` (features) and `y` (labels). Every stored entry of `y` is a
    /// label of its row, whatever its value.
    ///
    /// `sample_weight` multiplies the loss of each row. All weights must be > 0, and only their
    /// ratios matter. If it is `None`, all weights are equal. `start` is a fitted model of the same
    /// features and labels. The fit starts from this model, except with the reference solver. The
    /// same data and parameters give exactly the same result for any number of threads. A fit that
    /// does not converge is not an error; see [`Model::converged`].
    ///
    /// `unknown`, if given, has the pairs of row and label that are unknown. None of them is stored
    /// in `y`. The pseudo-likelihood of a row is a product of one probability per label. The
    /// probabilities of unknown labels are left out of it. In the log-odds of the other labels, an
    /// unknown label counts as 0.
    ///
    /// `watch` counts the labels that are finished. Labels that occur in no row are not counted.
    /// The fit checks for a stop request every few milliseconds.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if sizes disagree. Returns [`Error::Param`] if squares of the
    /// values of `x` are not finite, or if the reference solver diverges. Returns
    /// [`Error::TooLarge`] if there is not enough memory, or if there are more than `i32::MAX`
    /// features or labels. Returns [`Error::Stopped`] if the caller requested a stop.
    pub fn fit(
        &self,
        x: Sparse<'_>,
        y: Sparse<'_>,
        unknown: Option<&CsrOwned>,
        sample_weight: Option<&[f32]>,
        start: Option<&Start<'_>>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        let n_rows = x.n_rows();
        let lengths = [
            ("rows of Y", n_rows, y.n_rows()),
            (
                "length of sample_weight",
                n_rows,
                sample_weight.map_or(n_rows, <[f32]>::len),
            ),
            (
                "features of the starting model",
                x.n_cols(),
                start.map_or(x.n_cols(), |start| start.weights.ends.len() - 1),
            ),
            (
                "labels of the starting model",
                y.n_cols(),
                start.map_or(y.n_cols(), |start| start.intercept.len()),
            ),
        ];
        for (what, expected, got) in lengths {
            same(what, expected, got)?;
        }
        for (what, got) in [
            ("number of features", x.n_cols()),
            ("number of labels", y.n_cols()),
        ] {
            if i32::try_from(got).is_err() {
                return Err(Error::TooLarge {
                    what,
                    got: format!("{got}; at most {} are supported", i32::MAX),
                });
            }
        }
        let omega = shares(sample_weight, n_rows)?;
        let mut scales = with_sparse!(x, |x| Scales::new(x, &omega, watch))?;
        if self.0.solver == Solver::Reference && !self.0.standardize {
            // The result of the reference solver depends on the scales of the features, because its
            // step is fixed and it stops early. The authors use the features without scaling.
            scales = scales.unscaled();
        }
        let counts = with_sparse!(y, |y| counts(y, watch))?;
        let mut n_known = filled("number of labels", n_rows, y.n_cols())?;
        if let Some(unknown) = unknown {
            same("rows of the unknown pairs", n_rows, unknown.n_rows())?;
            same("columns of the unknown pairs", y.n_cols(), unknown.n_cols)?;
            for &label in &unknown.indices {
                n_known[label as usize] -= 1;
            }
        }
        let known = counts.iter().zip(&n_known);
        let coupled = known.filter(|&(n, &known)| (1..known).contains(n)).count();
        let cuts = scales.cut(x, coupled <= 8 * 32)?;
        let labels = with_sparse!(y, |y| {
            Labels::new(y, unknown, (&counts, &n_known), &omega, &cuts, watch)
        })?;
        let mut model = Model::of_constants(&counts, &n_known, x.n_cols())?;
        let seen = counts.iter().filter(|&&n| n > 0).count();
        if labels.len() > 0 {
            let fit = Fit {
                params: self,
                scales: &scales,
                labels: &labels,
                omega: &omega,
                cuts: &cuts,
                watch,
            };
            let reported = match (self.0.solver, labels.len() <= 16) {
                (Solver::Auto | Solver::Fista, true) => fit.descend::<16>(x, start, &mut model)?,
                (Solver::Auto | Solver::Fista, false) => fit.descend::<32>(x, start, &mut model)?,
                (Solver::Reference, true) => fit.replay::<16>(x, &mut model)?,
                (Solver::Reference, false) => fit.replay::<32>(x, &mut model)?,
            };
            watch.step(seen - reported)?;
        } else {
            watch.step(seen)?;
        }
        model.sets = LabelSets::new(y, &model.couplings, watch)?;
        Ok(model)
    }
}

/// Returns the weight of each row. The weights are divided by their sum, so that they sum to 1.
fn shares(sample_weight: Option<&[f32]>, n_rows: usize) -> Result<Vec<f64>, Error> {
    match sample_weight {
        None => filled("number of rows", 1.0 / n_rows as f64, n_rows),
        Some(weights) => {
            let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
            let shares = weights.iter().map(|&weight| f64::from(weight) / sum);
            collected("number of rows", shares)
        }
    }
}

/// Returns the number of rows that have each label.
fn counts<J: Index, U: Copy>(y: CsrView<'_, J, U>, watch: &Watch) -> Result<Vec<usize>, Error> {
    let mut counts = filled("number of labels", 0usize, y.n_cols())?;
    for row in 0..y.n_rows() {
        watch.step(0)?;
        for label in y.row(row).0 {
            counts[label.get()] += 1;
        }
    }
    Ok(counts)
}

/// The inputs that all steps of a fit use.
struct Fit<'a> {
    /// The parameters.
    params: &'a Checked,
    /// Means and standard deviations of the features.
    scales: &'a Scales,
    /// The labels that occur in some but not all of the rows for which they are known, and the rows
    /// that have each of these labels.
    labels: &'a Labels,
    /// The weight of each row. The weights sum to 1.
    omega: &'a [f64],
    /// The rows of each block.
    cuts: &'a [Range<usize>],
    /// Counts progress and holds the stop request of the caller.
    watch: &'a Watch,
}

/// The state of a fit in one precision: the objective and the two solvers. The current weights and
/// couplings (the point) are stored separately.
struct Descent<'a, T, const N: usize> {
    /// The objective, with the pairs of labels that have been added so far.
    objective: Objective<'a, T, N>,
    /// The quasi-Newton solver. It is `None` if the user did not select it, if its steps would take
    /// too long, or if it has increased the objective.
    newton: Option<QuasiNewton<T>>,
    /// The accelerated proximal gradient solver.
    fista: Fista<T, N>,
    /// Counts finished labels.
    progress: Progress<'a>,
    /// Number of gradients that may still be computed.
    left: usize,
}

impl<'a, T: Float, const N: usize> Descent<'a, T, N> {
    /// Minimizes the objective from a point. Stops when no KKT violation exceeds `tol`, or when the
    /// limit on the number of gradients is reached. Returns the last point and whether the
    /// tolerance was reached.
    ///
    /// Quasi-Newton steps come first, then accelerated gradients. If the quasi-Newton steps have
    /// increased the objective, they are undone, and later calls do not use them.
    fn minimize(
        &mut self,
        mut point: Iterate<T, N>,
        tol: f64,
    ) -> Result<(Iterate<T, N>, bool), Error> {
        if self.left == 0 {
            return Ok((point, false));
        }
        if let Some(newton) = &mut self.newton {
            let start = point.try_clone()?;
            let stop = Stop {
                tol,
                max_iter: self.left,
                progress: &mut self.progress,
            };
            let end = newton.minimize(&mut self.objective, point, stop)?;
            self.left -= end.n_iter;
            if end.converged {
                return Ok((end.iterate, true));
            }
            point = end.iterate;
            if self.objective.risen(&start, &point)? {
                point = start;
                self.newton = None;
            }
            if self.left == 0 {
                return Ok((point, false));
            }
        }
        let stop = Stop {
            tol,
            max_iter: self.left,
            progress: &mut self.progress,
        };
        let end = self.fista.minimize(&mut self.objective, point, stop)?;
        self.left -= end.n_iter;
        Ok((end.iterate, end.converged))
    }

    /// Frees the memory of this precision. Returns the progress and the number of gradients that
    /// may still be computed.
    fn end(self) -> (Progress<'a>, usize) {
        (self.progress, self.left)
    }

    /// Replaces the list of pairs that may have a coupling. The coupling of every removed pair must
    /// be zero.
    fn set_pairs(&mut self, list: Vec<(u32, u32)>, point: &mut Iterate<T, N>) -> Result<(), Error> {
        point.recouple(self.objective.pairs(), &list)?;
        self.objective.set_pairs(list)
    }

    /// Returns the pairs that may need a coupling at a point, in increasing order. Each coupling is
    /// in the losses of its two labels, so it has two slopes. Let `l1` be the factor of the
    /// absolute value in the penalty `pair`. A pair of labels is returned if the absolute value of
    /// at least one slope is `l1 / 2` or more. For every other pair, the two slopes sum to less
    /// than `l1`, so a coupling of zero is optimal.
    fn wanting(&mut self, point: &Iterate<T, N>, pair: Penalty) -> Result<Vec<(u32, u32)>, Error> {
        self.objective.beyond(point, pair.l1 / 2.0)
    }
}

impl<'a> Fit<'a> {
    /// Creates the objective in one precision, without pairs of labels. `pair` is the penalty of
    /// the couplings, or `None` if the model has no couplings. `centred` is true if the columns of
    /// labels are centred.
    fn objective<T: Float, const N: usize>(
        &self,
        x: Sparse<'_>,
        pair: Option<Penalty>,
        centred: bool,
    ) -> Result<Objective<'a, T, N>, Error> {
        let design = with_sparse!(x, |x| Design::new(x, self.scales, self.cuts, self.watch))?;
        let features = self.features(&design.columns)?;
        let gradient = Gradient::new(design, self.labels, self.omega, centred)?;
        Objective::new(gradient, &features, pair, self.watch)
    }

    /// Returns the penalty of the weights of each feature. The penalty applies to the scaled
    /// features that the fit uses.
    fn features(&self, columns: &[u32]) -> Result<Vec<Penalty>, Error> {
        let penalty = self.params.features();
        let of_column = |&col: &u32| {
            if self.params.0.standardize {
                penalty
            } else {
                penalty.scaled(1.0 / self.scales.deviation[col as usize])
            }
        };
        collected("number of features", columns.iter().map(of_column))
    }

    /// Creates the quasi-Newton solver if it was selected and is useful. It is not useful if the
    /// parameter `epsilon` is 0. No weight is then zero, so the matrix of each label contains all
    /// columns. Working on this matrix takes longer than the gradients that it saves.
    fn newton<T: Float, const N: usize>(
        &self,
        objective: &Objective<'_, T, N>,
    ) -> Result<Option<QuasiNewton<T>>, Error> {
        if self.params.0.solver == Solver::Fista || self.params.0.epsilon == 0.0 {
            return Ok(None);
        }
        let gram = Gram::new(objective.gradient(), self.watch)?;
        gram.map(|gram| QuasiNewton::new(gram, &objective.variance))
            .transpose()
    }

    /// Returns the conversion between the caller's features and the scaled, centred features of the
    /// fit.
    fn units<'b, T: Float, const N: usize>(
        &'b self,
        objective: &'b Objective<'_, T, N>,
    ) -> Units<'b> {
        Units {
            scales: self.scales,
            labels: self.labels,
            columns: &objective.gradient().design.columns,
        }
    }

    /// Fits in single precision, and continues in double precision if the tolerance requires it.
    /// Returns the number of labels that were reported as finished.
    fn descend<const N: usize>(
        &self,
        x: Sparse<'_>,
        start: Option<&Start<'_>>,
        model: &mut Model,
    ) -> Result<usize, Error> {
        let tol = self.params.0.tol;
        let mut objective = self.objective::<f32, N>(x, self.params.pairs(), true)?;
        let mut point = self.units(&objective).initial(start)?;
        if let (Some(start), Some(_)) = (start, self.params.pairs()) {
            let (list, values) = self.units(&objective).coupled(start)?;
            objective.set_pairs(list)?;
            point.couplings = collected(
                "number of couplings",
                values.iter().map(|&value| value as f32),
            )?;
        }
        let mut descent = Descent {
            newton: self.newton(&objective)?,
            objective,
            fista: Fista::new(self.labels.len())?,
            progress: Progress::new(self.watch),
            left: self.params.0.max_iter,
        };
        let rough = tol.max(f32::FLOOR);
        let (point, converged) = self.converge(&mut descent, point, rough, start.is_some())?;
        if tol >= f32::FLOOR || !converged {
            return self.finish(descent, point, converged, model);
        }
        let (list, fista, point) = (
            copied(PAIRS, descent.objective.pairs())?,
            descent.fista.convert()?,
            point.convert()?,
        );
        let (progress, left) = descent.end();
        let mut objective = self.objective::<f64, N>(x, self.params.pairs(), true)?;
        objective.set_pairs(list)?;
        let mut descent = Descent {
            newton: self.newton(&objective)?,
            objective,
            fista,
            progress,
            left,
        };
        let (point, converged) = self.converge(&mut descent, point, tol, true)?;
        self.finish(descent, point, converged, model)
    }

    /// Minimizes the objective to the tolerance `tol`. Pairs of labels are added to the objective
    /// until no other pair needs a coupling. `warm` is true if `point` comes from a starting model
    /// or an earlier run. Otherwise independent regressions are fitted first, with a loose
    /// tolerance.
    ///
    /// Returns the last point and whether the fit has converged.
    fn converge<T: Float, const N: usize>(
        &self,
        descent: &mut Descent<'_, T, N>,
        mut point: Iterate<T, N>,
        tol: f64,
        warm: bool,
    ) -> Result<(Iterate<T, N>, bool), Error> {
        let Some(pair) = self.params.pairs() else {
            return descent.minimize(point, tol);
        };
        let mut converged;
        if !warm {
            (point, converged) = descent.minimize(point, tol.max(LOOSE))?;
            if !converged {
                return Ok((point, false));
            }
        }
        let m = self.labels.len();
        if m * m / 2 <= FEW_PAIRS {
            descent.set_pairs(self.all_pairs()?, &mut point)?;
            return descent.minimize(point, tol);
        }
        // The first round uses a loose tolerance, because the pairs that are added later change all
        // weights again.
        let mut target = (10.0 * tol).min(tol.max(LOOSE));
        let mut done = false;
        loop {
            let found = descent.wanting(&point, pair)?;
            let known = descent.objective.pairs();
            let coupled = known.iter().zip(&point.couplings);
            let coupled = coupled.filter(|(_, value)| value.f64() != 0.0);
            let list = merged(coupled.map(|(&pair, _)| pair), &found)?;
            if done && list.iter().all(|pair| known.binary_search(pair).is_ok()) {
                return Ok((point, true));
            }
            let all = list.len() == m * (m - 1) / 2;
            if all {
                target = tol;
            }
            descent.set_pairs(list, &mut point)?;
            let before = descent.left;
            (point, converged) = descent.minimize(point, target)?;
            // If a single gradient shows that all violations are within the tolerance, the new
            // pairs have changed nothing.
            let unmoved = done && before - descent.left == 1;
            if !converged || all || unmoved {
                return Ok((point, converged));
            }
            (target, done) = (tol, target <= tol);
        }
    }

    /// Returns all pairs of labels, in increasing order.
    fn all_pairs(&self) -> Result<Vec<(u32, u32)>, Error> {
        let m = self.labels.len();
        let mut pairs = reserved(PAIRS, m * (m - 1) / 2)?;
        for i in 0..m as u32 {
            extend(PAIRS, &mut pairs, (i + 1..m as u32).map(|k| (i, k)))?;
        }
        Ok(pairs)
    }

    /// Computes the objective and the KKT violation of the solution. Writes the solution to
    /// `model`, for the caller's features and labels. Returns the number of labels that were
    /// reported as finished.
    fn finish<T: Float, const N: usize>(
        &self,
        mut descent: Descent<'_, T, N>,
        mut point: Iterate<T, N>,
        converged: bool,
        model: &mut Model,
    ) -> Result<usize, Error> {
        if let (false, Some(pair)) = (converged, self.params.pairs()) {
            // If the fit has not converged, the reported violation includes the pairs that are not
            // in the objective.
            let found = descent.wanting(&point, pair)?;
            let list = merged(descent.objective.pairs().iter().copied(), &found)?;
            descent.set_pairs(list, &mut point)?;
        }
        let Descent {
            mut objective,
            progress,
            left,
            ..
        } = descent;
        let mut slope = Slope::new(&objective)?;
        model.objective = objective.value_and_slope(&point, &mut slope)?;
        model.violation = objective.violation(&point, &slope)?;
        let units = self.units(&objective);
        units.write(&point, objective.pairs(), true, model, self.watch)?;
        model.n_iter = self.params.0.max_iter - left;
        model.converged = converged && model.objective.is_finite();
        Ok(progress.reported())
    }

    /// Runs the reference solver: the procedure published by the authors of the method, in double
    /// precision.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the procedure diverges.
    fn replay<const N: usize>(&self, x: Sparse<'_>, model: &mut Model) -> Result<usize, Error> {
        let pair = self.params.pairs().map(reference::in_both_orders);
        let mut objective = self.objective::<f64, N>(x, pair, false)?;
        if pair.is_some() {
            objective.set_pairs(self.all_pairs()?)?;
        }
        let step = 30.0 / (self.scales.square + 1.0);
        let run = reference::run(&mut objective, step, self.params.0.max_iter)?;
        let units = self.units(&objective);
        let point = &run.end.iterate;
        if !point.is_finite() {
            return Err(Error::Param {
                name: "solver",
                expected: "\"auto\" or \"fista\", because steps of fixed length diverge for this X and these \
                           penalties",
                got: format!("\"reference\" with steps of length {step:e}"),
            });
        }
        units.write(point, objective.pairs(), false, model, self.watch)?;
        (model.objective, model.violation) = (run.objective, run.violation);
        (model.n_iter, model.converged) = (run.end.n_iter, run.end.converged);
        Ok(0)
    }
}

/// Returns the sorted union of two lists of pairs.
fn merged(a: impl Iterator<Item = (u32, u32)>, b: &[(u32, u32)]) -> Result<Vec<(u32, u32)>, Error> {
    let mut all = collected(PAIRS, a)?;
    extend(PAIRS, &mut all, b.iter().copied())?;
    all.sort_unstable();
    all.dedup();
    Ok(all)
}
