//! Prepares the training data, and fits a model in [rounds](crate::rounds).
//!
//! The fit first runs in single precision. If the tolerance is below 1e-5, the fit
//! continues in double precision. `descent.rs` fits in one precision, and `reference.rs` has the procedure of the
//! method's authors.

use crate::descent::Descent;
use crate::design::{Design, Scales};
use crate::gradient::Gradient;
use crate::labels::Labels;
use crate::model::{LabelSets, Model, Start};
use crate::objective::Objective;
use crate::params::{Checked, Penalty, Solver};
use crate::reference::Replay;
use crate::rounds::{Form, Rounds};
use crate::stored::{Stored, damaged};
use crate::units::Units;
use crate::wide::Float;
use manylabel_base::range::same;
use manylabel_base::{Error, Watch, collected, filled};
use manylabel_sparse::{CsrOwned, CsrView, Index, Sparse, with_sparse};
use std::ops::Range;
use std::sync::Arc;

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
        let mut task = self.task(x, y, unknown, sample_weight, start, watch)?;
        while task.n_units() > 0 {
            task.advance(x, watch)?;
        }
        task.model(y, watch)
    }

    /// Prepares a fit in rounds. The arguments are the same as those of [`fit`](Self::fit).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`fit`](Self::fit).
    pub fn task(
        &self,
        x: Sparse<'_>,
        y: Sparse<'_>,
        unknown: Option<&CsrOwned>,
        sample_weight: Option<&[f32]>,
        start: Option<&Start<'_>>,
        watch: &Watch,
    ) -> Result<Task, Error> {
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
        let training = Training {
            params: self.clone(),
            scales,
            labels: Arc::new(labels),
            omega,
            cuts,
        };
        let rounds = match training.labels.len() {
            0 => None,
            1..=16 => Some(begun::<16>(&training, x, start, watch)?),
            _ => Some(begun::<32>(&training, x, start, watch)?),
        };
        Ok(Task {
            model: Model::of_constants(&counts, &n_known, x.n_cols())?,
            seen: counts.iter().filter(|&&n| n > 0).count(),
            training,
            rounds,
            n_rounds: 0,
        })
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

/// The training data of a fit, in a form that does not depend on the precision.
pub(crate) struct Training {
    /// The parameters.
    pub(crate) params: Checked,
    /// Means and standard deviations of the features.
    pub(crate) scales: Scales,
    /// The labels that occur in some but not all of the rows for which they are known, and the rows
    /// that have each of these labels.
    pub(crate) labels: Arc<Labels>,
    /// The weight of each row. The weights sum to 1.
    omega: Vec<f64>,
    /// The rows of each block.
    cuts: Vec<Range<usize>>,
}

impl Training {
    /// Creates the objective in one precision, without pairs of labels. `pair` is the penalty of
    /// the couplings, or `None` if the model has no couplings. `centred` is true if the columns of
    /// labels are centred.
    pub(crate) fn objective<T: Float, const N: usize>(
        &self,
        x: Sparse<'_>,
        pair: Option<Penalty>,
        centred: bool,
        watch: &Watch,
    ) -> Result<Objective<T, N>, Error> {
        let design = with_sparse!(x, |x| Design::new(x, &self.scales, &self.cuts, watch))?;
        let features = self.features(&design.columns)?;
        let labels = Arc::clone(&self.labels);
        let gradient = Gradient::new(design, labels, &self.omega, centred)?;
        Objective::new(gradient, &features, pair)
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

    /// Returns the conversion between the caller's features and the scaled, centred features of the
    /// fit.
    pub(crate) fn units<'b, T: Float, const N: usize>(
        &'b self,
        objective: &'b Objective<T, N>,
    ) -> Units<'b> {
        Units {
            scales: &self.scales,
            labels: &self.labels,
            columns: &objective.gradient().design.columns,
        }
    }
}

/// A fit that is divided into rounds. A round is a computation on the training rows, such as a gradient, and the
/// step that follows from its result.
///
/// Several processes can share the units of work of a round; see [`compute`](Self::compute) and
/// [`complete`](Self::complete). [`advance`](Self::advance) makes a round in one process. [`state`](Self::state)
/// returns the state between two rounds, from which another process can continue. In all cases, the model has the
/// same bits as the model of [`Checked::fit`].
///
/// After an error, the task must be dropped.
pub struct Task {
    training: Training,
    /// The model of the labels that take no part in the fit.
    model: Model,
    /// The number of labels that occur in a row.
    seen: usize,
    /// The fit. It is `None` if no label takes part in it.
    rounds: Option<Box<dyn Rounds>>,
    /// The number of rounds so far.
    n_rounds: usize,
}

impl Task {
    /// Returns the number of rounds so far.
    pub fn n_rounds(&self) -> usize {
        self.n_rounds
    }

    /// Returns the number of units of work of the next round, or 0 if the fit has ended.
    pub fn n_units(&self) -> usize {
        self.rounds.as_ref().map_or(0, |rounds| rounds.n_units())
    }

    /// Returns the approximate number of multiplications of the next round. It depends only on the data.
    pub fn work(&self) -> f64 {
        self.rounds.as_ref().map_or(0.0, |rounds| rounds.work())
    }

    /// Makes the next round. `x` must be the features that the task was made with.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop. Returns [`Error::Param`] if the fit has ended.
    pub fn advance(&mut self, x: Sparse<'_>, watch: &Watch) -> Result<(), Error> {
        let rounds = self.rounds.as_mut().ok_or_else(damaged)?;
        rounds.advance(watch)?;
        self.end_round(x, watch)
    }

    /// Computes some units of the next round, and returns the result of each unit as bytes.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`advance`](Self::advance).
    pub fn compute(&mut self, units: &Range<usize>, watch: &Watch) -> Result<Vec<Vec<u8>>, Error> {
        let rounds = self.rounds.as_mut().ok_or_else(damaged)?;
        rounds.compute(units, watch)
    }

    /// Ends the next round. `results` are the results of [`compute`](Self::compute) for all units, in order. Each
    /// entry has the bytes of one or several units. `x` must be the features that the task was made with.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`advance`](Self::advance). Also returns [`Error::Param`] if the results are not
    /// those of this round.
    pub fn complete(
        &mut self,
        results: &[&[u8]],
        x: Sparse<'_>,
        watch: &Watch,
    ) -> Result<(), Error> {
        let rounds = self.rounds.as_mut().ok_or_else(damaged)?;
        rounds.complete(results, watch)?;
        self.end_round(x, watch)
    }

    /// Counts a round. If a fit in double precision follows, prepares it.
    fn end_round(&mut self, x: Sparse<'_>, watch: &Watch) -> Result<(), Error> {
        self.n_rounds += 1;
        let rounds = self.rounds.take().ok_or_else(damaged)?;
        self.rounds = Some(rounds.continued(&self.training, x, watch)?);
        Ok(())
    }

    /// Returns the state as bytes, which only the same version of the library can read.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub fn state(&self) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.n_rounds.write(&mut bytes)?;
        if let Some(rounds) = &self.rounds {
            rounds.form().write(&mut bytes)?;
            rounds.store(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// Continues from a state of a task that was made with the same data and parameters. `x` must be the features
    /// that this task was made with.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`advance`](Self::advance). Also returns [`Error::Param`] if the bytes are not
    /// such a state.
    pub fn restore(&mut self, state: &[u8], x: Sparse<'_>, watch: &Watch) -> Result<(), Error> {
        let mut from = state;
        let n_rounds = Stored::read(&mut from)?;
        if self.rounds.take().is_some() {
            let training = &self.training;
            self.rounds = Some(if training.labels.len() <= 16 {
                restored::<16>(training, x, &mut from, watch)?
            } else {
                restored::<32>(training, x, &mut from, watch)?
            });
        }
        if !from.is_empty() {
            return Err(damaged());
        }
        self.n_rounds = n_rounds;
        Ok(())
    }

    /// Returns the model, when the fit has ended. `y` must be the labels that the task was made with.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`advance`](Self::advance). Also returns [`Error::Param`] if the reference solver
    /// has diverged, or if the fit has not ended.
    pub fn model(mut self, y: Sparse<'_>, watch: &Watch) -> Result<Model, Error> {
        let mut reported = 0;
        if self.training.labels.len() > 0 {
            let rounds = self.rounds.as_ref().ok_or_else(damaged)?;
            reported = rounds.finish(&self.training, &mut self.model, watch)?;
        }
        watch.step(self.seen - reported)?;
        self.rounds = None; // frees its memory
        self.model.sets = LabelSets::new(y, &self.model.couplings, watch)?;
        Ok(self.model)
    }
}

/// Starts a fit in panels of N labels.
fn begun<const N: usize>(
    training: &Training,
    x: Sparse<'_>,
    start: Option<&Start<'_>>,
    watch: &Watch,
) -> Result<Box<dyn Rounds>, Error> {
    Ok(match training.params.0.solver {
        Solver::Auto | Solver::Fista => {
            Box::new(Descent::<f32, N>::new(training, x, start, watch)?)
        }
        Solver::Reference => Box::new(Replay::<N>::new(training, x, watch)?),
    })
}

/// Reads the state of a fit in panels of N labels.
fn restored<const N: usize>(
    training: &Training,
    x: Sparse<'_>,
    from: &mut &[u8],
    watch: &Watch,
) -> Result<Box<dyn Rounds>, Error> {
    Ok(match Form::read(from)? {
        Form::Single => Box::new(Descent::<f32, N>::read(training, x, from, watch)?),
        Form::Double => Box::new(Descent::<f64, N>::read(training, x, from, watch)?),
        Form::Reference => Box::new(Replay::<N>::read(training, x, from, watch)?),
    })
}
