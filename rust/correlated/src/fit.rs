//! The fit: features of unit variance, independent regressions first, then the pairs of labels that
//! may couple, until none is left out wrongly.

use crate::descent::Descent;
use crate::design::{Design, Labels, Scales};
use crate::gradient::Gradient;
use crate::gram::Gram;
use crate::model::{LabelSets, Matrix, Model, Start};
use crate::params::{Checked, Penalty, Solver};
use crate::reference;
use crate::wide::{Float, Wide};
use manylabel_base::{Error, Watch};
use manylabel_sparse::{CsrView, Index, Value};
use std::ops::Range;

/// Up to so many pairs, all may couple from the start.
const FEW_PAIRS: usize = 4096;

/// The independent regressions are only a start: so much of a violation may be left.
const LOOSE: f64 = 0.1;

impl Checked {
    /// Fits the labels that the rows of `y` store to the rows of `x`.
    ///
    /// `sample_weight`, if given, multiplies the loss of each row; all must be > 0. The same data and
    /// parameters give the same bits, whatever the number of threads. Not to have converged is no
    /// error: see [`Model::converged`].
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if sizes disagree; [`Error::TooLarge`] if the fit does not fit in memory;
    /// [`Error::Stopped`] through `watch`.
    pub fn fit<I: Index, V: Value, J: Index, U: Copy>(
        &self,
        x: CsrView<'_, I, V>,
        y: CsrView<'_, J, U>,
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
                "features of the start",
                x.n_cols(),
                start.map_or(x.n_cols(), |start| start.weights.ends.len() - 1),
            ),
            (
                "labels of the start",
                y.n_cols(),
                start.map_or(y.n_cols(), |start| start.intercept.len()),
            ),
        ];
        for (what, expected, got) in lengths {
            if got != expected {
                return Err(Error::Shape {
                    what,
                    expected,
                    got,
                });
            }
        }
        for (what, got) in [
            ("number of features", x.n_cols()),
            ("number of labels", y.n_cols()),
        ] {
            if i32::try_from(got).is_err() {
                return Err(Error::TooLarge {
                    what,
                    got: format!("{got}, at most {}", i32::MAX),
                });
            }
        }
        let omega = shares(sample_weight, n_rows);
        let mut scales = Scales::new(x, &omega)?;
        if self.0.solver == Solver::Reference && !self.0.standardize {
            // Fixed steps and an early end depend on scales; the authors' features are as given.
            scales = scales.unscaled();
        }
        let counts = counts(y)?;
        let coupled = counts.iter().filter(|&&n| (1..n_rows).contains(&n)).count();
        let cuts = scales.cut(x, coupled <= 8 * 32);
        let labels = Labels::new(y, &counts, &omega, &cuts)?;
        let mut model = Model::of_constants(&counts, n_rows, x.n_cols())?;
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
                (Solver::Auto | Solver::Fista, true) => {
                    fit.descend::<_, _, 16>(x, start, &mut model)?
                }
                (Solver::Auto | Solver::Fista, false) => {
                    fit.descend::<_, _, 32>(x, start, &mut model)?
                }
                (Solver::Reference, true) => fit.replay::<_, _, 16>(x, &mut model)?,
                (Solver::Reference, false) => fit.replay::<_, _, 32>(x, &mut model)?,
            };
            watch.step(seen - reported)?;
        } else {
            watch.step(seen)?;
        }
        model.sets = LabelSets::new(y, &model.couplings)?;
        Ok(model)
    }
}

/// Weights of rows that sum to 1.
fn shares(sample_weight: Option<&[f32]>, n_rows: usize) -> Vec<f64> {
    match sample_weight {
        None => vec![1.0 / n_rows as f64; n_rows],
        Some(weights) => {
            let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
            let shares = weights.iter().map(|&weight| f64::from(weight) / sum);
            shares.collect()
        }
    }
}

/// Rows that hold each label.
fn counts<J: Index, U: Copy>(y: CsrView<'_, J, U>) -> Result<Vec<usize>, Error> {
    let mut counts = manylabel_base::filled("number of labels", 0usize, y.n_cols())?;
    for row in 0..y.n_rows() {
        for label in y.row(row).0 {
            counts[label.get()] += 1;
        }
    }
    Ok(counts)
}

/// What every step of a fit needs.
struct Fit<'a> {
    params: &'a Checked,
    scales: &'a Scales,
    labels: &'a Labels,
    omega: &'a [f64],
    cuts: &'a [Range<usize>],
    watch: &'a Watch,
}

impl<'a> Fit<'a> {
    fn gradient<I: Index, V: Value, T: Float, const N: usize>(
        &self,
        x: CsrView<'_, I, V>,
        centred: bool,
    ) -> Result<Gradient<'a, T, N>, Error> {
        let design = Design::new(x, self.scales, self.cuts, self.watch)?;
        Gradient::new(design, self.labels, self.omega, centred)
    }

    /// Second moments for quasi-Newton steps, where these are wanted and of use. Without absolute values
    /// all weights move, and a matrix of all for every label takes longer than the gradients it saves.
    fn gram<T: Float, const N: usize>(
        &self,
        gradient: &Gradient<'_, T, N>,
    ) -> Result<Option<Gram<T>>, Error> {
        if self.params.0.solver == Solver::Fista || self.params.0.epsilon == 0.0 {
            return Ok(None);
        }
        Gram::new(gradient, self.watch)
    }

    /// The penalty of each feature's weight, in units of its standard deviation.
    fn features(&self, columns: &[u32]) -> Vec<Penalty> {
        let penalty = self.params.features();
        let of_column = |&col: &u32| {
            if self.params.0.standardize {
                penalty
            } else {
                penalty.scaled(1.0 / self.scales.deviation[col as usize])
            }
        };
        columns.iter().map(of_column).collect()
    }

    /// Descends in single precision as far as that goes, and then in double.
    fn descend<I: Index, V: Value, const N: usize>(
        &self,
        x: CsrView<'_, I, V>,
        start: Option<&Start<'_>>,
        model: &mut Model,
    ) -> Result<usize, Error> {
        let tol = self.params.0.tol;
        let gradient = self.gradient::<_, _, f32, N>(x, true)?;
        let features = self.features(&gradient.design.columns);
        let pair = self.params.pairs();
        let mut descent = Descent::<f32, N>::new(
            self.initial(&gradient, start),
            self.labels.share.iter().map(|p| p * (1.0 - p)).collect(),
            &features,
            pair,
            self.gram(&gradient)?,
        )?;
        if let (Some(start), Some(_)) = (start, pair) {
            let (list, values) = self.start_pairs(start);
            descent.set_pairs(list)?;
            for (d, value) in descent.d.iter_mut().zip(values) {
                *d = value as f32;
            }
        }
        let mut gradient = gradient;
        let converged = self.converge(
            &mut descent,
            &mut gradient,
            tol.max(f32::FLOOR),
            start.is_some(),
        )?;
        if tol >= f32::FLOOR || !converged {
            return self.finish(&mut descent, &mut gradient, converged, model);
        }
        drop(gradient);
        let mut gradient = self.gradient::<_, _, f64, N>(x, true)?;
        let gram = self.gram(&gradient)?;
        let mut descent = descent.convert::<f64>(&features, pair, gram)?;
        let converged = self.converge(&mut descent, &mut gradient, tol, true)?;
        self.finish(&mut descent, &mut gradient, converged, model)
    }

    /// Descends to `tol`, letting in pairs until those left out have no reason to couple.
    fn converge<T: Float, const N: usize>(
        &self,
        descent: &mut Descent<T, N>,
        gradient: &mut Gradient<'_, T, N>,
        tol: f64,
        warm: bool,
    ) -> Result<bool, Error> {
        let (watch, max_iter) = (self.watch, self.params.0.max_iter);
        let Some(pair) = self.params.pairs() else {
            return descent.run(gradient, tol, max_iter, watch);
        };
        if !warm && !descent.run(gradient, tol.max(LOOSE), max_iter, watch)? {
            return Ok(false);
        }
        let m = self.labels.len() as u32;
        if self.labels.len() * self.labels.len() / 2 <= FEW_PAIRS {
            let all = (0..m).flat_map(|i| (i + 1..m).map(move |k| (i, k)));
            descent.set_pairs(all.collect())?;
            return descent.run(gradient, tol, max_iter, watch);
        }
        // Roughly the first time: what else is let in moves all.
        let mut target = (10.0 * tol).min(tol.max(LOOSE));
        let mut done = false;
        loop {
            // Half of a gradient within half of the bound, twice: a pair that stays at zero.
            let (weights, pairs) = (&descent.y, &descent.pairs);
            let found = gradient.beyond(weights, pairs, &descent.d, pair.l1 / 2.0, watch)?;
            let known = descent.pairs.list.iter().zip(&descent.d);
            let coupled = known.filter(|(_, value)| value.f64() != 0.0);
            let list = merged(&coupled.map(|(&pair, _)| pair).collect::<Vec<_>>(), &found);
            let listed = |pair| descent.pairs.list.binary_search(pair).is_ok();
            if done && list.iter().all(listed) {
                return Ok(true);
            }
            let all = list.len() == self.labels.len() * (self.labels.len() - 1) / 2;
            if all {
                target = tol;
            }
            descent.set_pairs(list)?;
            let before = descent.n_iter;
            if !descent.run(gradient, target, max_iter, watch)? {
                return Ok(false);
            }
            // One gradient: what was let in has not moved anything.
            if all || done && descent.n_iter == before + 1 {
                return Ok(true);
            }
            (target, done) = (tol, target <= tol);
        }
    }

    /// Weights to start from: those given, or none but the intercepts of constant predictions.
    fn initial<T: Float, const N: usize>(
        &self,
        gradient: &Gradient<'_, T, N>,
        start: Option<&Start<'_>>,
    ) -> Vec<Wide<T, N>> {
        let (height, width) = (gradient.height(), gradient.design.width());
        let mut weights = vec![Wide::zero(); gradient.n_panels() * height];
        let mut intercepts: Vec<f64> = self
            .labels
            .share
            .iter()
            .map(|p| (p / (1.0 - p)).ln())
            .collect();
        if let Some(start) = start {
            let mut places = vec![usize::MAX; start.intercept.len()];
            for (place, &label) in self.labels.kept.iter().enumerate() {
                places[label as usize] = place;
                intercepts[place] = start.intercept[label as usize];
            }
            for (at, &feature) in gradient.design.columns.iter().enumerate() {
                let (mean, deviation) = (
                    self.scales.mean[feature as usize],
                    self.scales.deviation[feature as usize],
                );
                let (labels, values) = start.weights.row(feature as usize);
                for (label, value) in labels.iter().zip(values) {
                    let place = places[*label as usize];
                    if place != usize::MAX {
                        weights[place / N * height + at].0[place % N] = T::of(value * deviation);
                        intercepts[place] += mean * value;
                    }
                }
            }
            for (place, &label) in self.labels.kept.iter().enumerate() {
                let (others, values) = start.couplings.row(label as usize);
                for (other, value) in others.iter().zip(values) {
                    let other = places[*other as usize];
                    if other != usize::MAX {
                        intercepts[place] += self.labels.share[other] * value;
                    }
                }
            }
        }
        for (place, intercept) in intercepts.into_iter().enumerate() {
            weights[place / N * height + width].0[place % N] = T::of(intercept);
        }
        weights
    }

    /// The pairs that the start couples.
    fn start_pairs(&self, start: &Start<'_>) -> (Vec<(u32, u32)>, Vec<f64>) {
        let mut places = vec![u32::MAX; start.intercept.len()];
        for (place, &label) in (0..).zip(&self.labels.kept) {
            places[label as usize] = place;
        }
        let mut found = Vec::new();
        for label in 0..start.intercept.len() {
            let (others, values) = start.couplings.row(label);
            for (&other, &value) in others.iter().zip(values) {
                let (i, k) = (places[label], places[other as usize]);
                if i < k && k != u32::MAX {
                    found.push(((i, k), value));
                }
            }
        }
        found.sort_unstable_by_key(|&(pair, _)| pair);
        found.into_iter().unzip()
    }

    /// Writes the solution in terms of the user's features; returns the labels reported as done.
    fn finish<T: Float, const N: usize>(
        &self,
        descent: &mut Descent<T, N>,
        gradient: &mut Gradient<'_, T, N>,
        converged: bool,
        model: &mut Model,
    ) -> Result<usize, Error> {
        if let (false, Some(pair)) = (converged, self.params.pairs()) {
            // What has not converged is told of with all pairs.
            let (weights, known) = (&descent.y, &descent.pairs);
            let found = gradient.beyond(weights, known, &descent.d, pair.l1 / 2.0, self.watch)?;
            let list = merged(&known.list, &found);
            descent.set_pairs(list)?;
        }
        let (weights, values) = (&descent.y, &descent.d);
        model.objective = descent.objective(gradient, weights, values, self.watch)?;
        model.violation = descent.measure(gradient);
        let couplings: Vec<f64> = descent.d.iter().map(|value| value.f64()).collect();
        self.write(
            gradient,
            &descent.y,
            &descent.pairs.list,
            &couplings,
            true,
            model,
        );
        (model.n_iter, model.converged) =
            (descent.n_iter, converged && model.objective.is_finite());
        Ok(descent.reported())
    }

    /// Weights, intercepts and couplings as a model has them; `centred`: whether intercepts are those
    /// of centred labels.
    fn write<T: Float, const N: usize>(
        &self,
        gradient: &Gradient<'_, T, N>,
        weights: &[Wide<T, N>],
        pairs: &[(u32, u32)],
        couplings: &[f64],
        centred: bool,
        model: &mut Model,
    ) {
        let (height, width) = (gradient.height(), gradient.design.width());
        let at = |place: usize, row: usize| weights[place / N * height + row].0[place % N].f64();
        let mut by_label: Vec<usize> = (0..self.labels.len()).collect();
        by_label.sort_unstable_by_key(|&place| self.labels.kept[place]);
        let mut intercepts: Vec<f64> = (0..self.labels.len())
            .map(|place| at(place, width))
            .collect();
        let mut places = vec![usize::MAX; self.scales.mean.len()];
        for (row, &col) in gradient.design.columns.iter().enumerate() {
            places[col as usize] = row;
            let shift = self.scales.mean[col as usize] / self.scales.deviation[col as usize];
            for (place, intercept) in intercepts.iter_mut().enumerate() {
                *intercept -= shift * at(place, row);
            }
        }
        let mut matrix = Matrix::empty(model.intercept.len());
        for (col, &row) in places.iter().enumerate() {
            if row != usize::MAX {
                for &place in &by_label {
                    let weight = at(place, row) / self.scales.deviation[col];
                    if weight != 0.0 {
                        matrix.push(self.labels.kept[place], weight);
                    }
                }
            }
            matrix.end_row();
        }
        model.weights = matrix;
        let mut entries = Vec::new();
        for (&(i, k), &value) in pairs.iter().zip(couplings) {
            if value != 0.0 {
                let (a, b) = (self.labels.kept[i as usize], self.labels.kept[k as usize]);
                entries.extend([(a, b, value), (b, a, value)]);
                if centred {
                    intercepts[i as usize] -= self.labels.share[k as usize] * value;
                    intercepts[k as usize] -= self.labels.share[i as usize] * value;
                }
            }
        }
        model.couplings = Matrix::of_entries(entries, model.intercept.len());
        for (&label, intercept) in self.labels.kept.iter().zip(intercepts) {
            model.intercept[label as usize] = intercept;
        }
    }

    /// The run of the method's authors, in double precision.
    fn replay<I: Index, V: Value, const N: usize>(
        &self,
        x: CsrView<'_, I, V>,
        model: &mut Model,
    ) -> Result<usize, Error> {
        let mut gradient = self.gradient::<_, _, f64, N>(x, false)?;
        let features = self.features(&gradient.design.columns);
        let m = self.labels.len() as u32;
        let all = |i: u32| (i + 1..m).map(move |k| (i, k));
        let pairs: Vec<_> = match self.params.pairs() {
            Some(_) => (0..m).flat_map(all).collect(),
            None => Vec::new(),
        };
        let pair = self.params.pairs().unwrap_or(Penalty { l1: 0.0, l2: 0.0 });
        let run = reference::run(
            &mut gradient,
            pairs,
            &features,
            pair,
            30.0 / (self.scales.square + 1.0),
            self.params.0.max_iter,
            self.watch,
        )?;
        self.write(
            &gradient,
            &run.weights,
            &run.pairs,
            &run.couplings,
            false,
            model,
        );
        (model.objective, model.violation) = (run.objective, run.violation);
        (model.n_iter, model.converged) = (run.n_iter, run.stopped);
        Ok(0)
    }
}

/// The union of two lists in increasing order.
fn merged(a: &[(u32, u32)], b: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut all = [a, b].concat();
    all.sort_unstable();
    all.dedup();
    all
}
