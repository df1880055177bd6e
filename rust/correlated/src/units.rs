//! Converts weights and intercepts between the caller's columns and the scaled, centred columns of
//! the fit, in both directions.
//!
//! The fit uses features of unit variance, centred columns of X and Y, and labels numbered by
//! decreasing frequency. Let b be the weight of a feature with standard deviation s and mean μ. In
//! the fit, the weight is `b s`, and `μ b` is added to the intercept. Couplings c keep their
//! values. If a label has the mean p, centring it adds `p c` to the intercept of every label that
//! is coupled with it. Each conversion takes one pass over the weights.

use crate::design::Scales;
use crate::iterate::Iterate;
use crate::labels::Labels;
use crate::model::{Matrix, Model, Start};
use crate::wide::Float;
use manylabel_base::{Error, Watch, collected, extend, filled, push, reserved};

/// Pairs of labels in increasing order, and the coupling of each pair.
type Coupled = (Vec<(u32, u32)>, Vec<f64>);

/// The features and labels of the fit, and how they follow from the caller's data.
pub(crate) struct Units<'a> {
    /// Mean and standard deviation of every original feature.
    pub(crate) scales: &'a Scales,
    /// The labels of the fit, with their original numbers and the fraction of rows that have each
    /// label.
    pub(crate) labels: &'a Labels,
    /// The original number of each feature of the fit.
    pub(crate) columns: &'a [u32],
}

impl Units<'_> {
    /// Returns the number of rows in the weights of a panel (group of N labels). It is the number
    /// of features plus one for the intercept.
    fn height(&self) -> usize {
        self.columns.len() + 1
    }

    /// Returns the starting point of the fit, without couplings. If `start` is given, it has the
    /// weights and intercepts of `start`. Otherwise weights are zero, and the intercepts are the
    /// log-odds of constant predictions, `ln(p/(1−p))`, where p is the fraction of rows with the
    /// label.
    ///
    /// The intercepts already include the effect of the couplings of `start` on centred columns.
    /// The caller can therefore add the couplings from [`coupled`](Self::coupled) later.
    pub(crate) fn initial<T: Float, const N: usize>(
        &self,
        start: Option<&Start<'_>>,
    ) -> Result<Iterate<T, N>, Error> {
        let (height, width) = (self.height(), self.columns.len());
        let mut initial = Iterate::zeros(self.labels.len().div_ceil(N) * height, 0)?;
        let weights = &mut initial.weights;
        let share = &self.labels.share;
        let log_odds = share.iter().map(|p| (p / (1.0 - p)).ln());
        let mut intercepts = collected("number of intercepts", log_odds)?;
        if let Some(start) = start {
            let places = self.places(start.intercept.len())?;
            for (place, &label) in self.labels.kept.iter().enumerate() {
                intercepts[place] = start.intercept[label as usize];
            }
            for (row, &feature) in self.columns.iter().enumerate() {
                let feature = feature as usize;
                let (mean, deviation) = (self.scales.mean[feature], self.scales.deviation[feature]);
                let (labels, values) = start.weights.row(feature);
                for (label, value) in labels.iter().zip(values) {
                    let place = places[*label as usize];
                    if place != usize::MAX {
                        weights[place / N * height + row].0[place % N] = T::of(value * deviation);
                        intercepts[place] += mean * value;
                    }
                }
            }
            for (place, &label) in self.labels.kept.iter().enumerate() {
                let (others, values) = start.couplings.row(label as usize);
                for (other, value) in others.iter().zip(values) {
                    let other = places[*other as usize];
                    if other != usize::MAX {
                        intercepts[place] += share[other] * value;
                    }
                }
            }
        }
        for (place, intercept) in intercepts.into_iter().enumerate() {
            weights[place / N * height + width].0[place % N] = T::of(intercept);
        }
        Ok(initial)
    }

    /// Returns the pairs of labels that are coupled in `start`, in increasing order, and their
    /// couplings. Labels have the numbers of the fit. Labels that take no part in the fit are left
    /// out. They occur in no training row, or in every training row for which they are known.
    pub(crate) fn coupled(&self, start: &Start<'_>) -> Result<Coupled, Error> {
        let places = self.places(start.intercept.len())?;
        let mut found = Vec::new();
        for label in 0..start.intercept.len() {
            let (others, values) = start.couplings.row(label);
            for (&other, &value) in others.iter().zip(values) {
                let (i, k) = (places[label], places[other as usize]);
                if i < k && k != usize::MAX {
                    push(
                        "number of couplings",
                        &mut found,
                        ((i as u32, k as u32), value),
                    )?;
                }
            }
        }
        found.sort_unstable_by_key(|&(pair, _)| pair);
        let pairs = found.iter().map(|&(pair, _)| pair);
        let values = found.iter().map(|&(_, value)| value);
        Ok((
            collected("number of couplings", pairs)?,
            collected("number of couplings", values)?,
        ))
    }

    /// Returns the number of each original label in the fit. The number is `usize::MAX` for labels
    /// that take no part in the fit.
    fn places(&self, n_labels: usize) -> Result<Vec<usize>, Error> {
        let mut places = filled("number of labels", usize::MAX, n_labels)?;
        for (place, &label) in self.labels.kept.iter().enumerate() {
            places[label as usize] = place;
        }
        Ok(places)
    }

    /// Writes the weights, intercepts and couplings of a point to a model, converted to the
    /// caller's columns.
    ///
    /// `pairs` lists the pair of each coupling of the point. `centred` is true if the intercepts of
    /// the point are for centred labels. The intercepts are always for centred features, unless the
    /// means in the scales are zero. Weights and couplings that are exactly zero are not stored.
    pub(crate) fn write<T: Float, const N: usize>(
        &self,
        point: &Iterate<T, N>,
        pairs: &[(u32, u32)],
        centred: bool,
        model: &mut Model,
        watch: &Watch,
    ) -> Result<(), Error> {
        let (height, width) = (self.height(), self.columns.len());
        let at =
            |place: usize, row: usize| point.weights[place / N * height + row].0[place % N].f64();
        let n_labels = self.labels.len();
        let mut by_label = collected("number of labels", 0..n_labels)?;
        by_label.sort_unstable_by_key(|&place| self.labels.kept[place]);
        let mut intercepts = collected(
            "number of intercepts",
            (0..n_labels).map(|place| at(place, width)),
        )?;
        let n_features = self.scales.mean.len();
        let mut rows = filled("number of features", usize::MAX, n_features)?;
        for (row, &col) in self.columns.iter().enumerate() {
            watch.step(0)?;
            rows[col as usize] = row;
            let shift = self.scales.mean[col as usize] / self.scales.deviation[col as usize];
            for (place, intercept) in intercepts.iter_mut().enumerate() {
                *intercept -= shift * at(place, row);
            }
        }
        let mut matrix = Matrix::empty(n_features, model.intercept.len())?;
        for (col, &row) in rows.iter().enumerate() {
            if row != usize::MAX {
                watch.step(0)?;
                for &place in &by_label {
                    let weight = at(place, row) / self.scales.deviation[col];
                    if weight != 0.0 {
                        matrix.push(self.labels.kept[place], weight)?;
                    }
                }
            }
            matrix.end_row()?;
        }
        model.weights = matrix;
        let n_coupled = point.couplings.iter().filter(|value| value.f64() != 0.0);
        let mut entries = reserved("number of couplings", 2 * n_coupled.count())?;
        for (&(i, k), value) in pairs.iter().zip(&point.couplings) {
            let (i, k, value) = (i as usize, k as usize, value.f64());
            if value != 0.0 {
                let (a, b) = (self.labels.kept[i], self.labels.kept[k]);
                extend(
                    "number of couplings",
                    &mut entries,
                    [(a, b, value), (b, a, value)],
                )?;
                if centred {
                    intercepts[i] -= self.labels.share[k] * value;
                    intercepts[k] -= self.labels.share[i] * value;
                }
            }
        }
        model.couplings = Matrix::of_entries(entries, model.intercept.len())?;
        for (&label, intercept) in self.labels.kept.iter().zip(intercepts) {
            model.intercept[label as usize] = intercept;
        }
        Ok(())
    }
}
