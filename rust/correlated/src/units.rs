//! From the user's terms to those of the fit and back: features of unit variance, centred columns,
//! labels by frequency.

use crate::design::Scales;
use crate::iterate::Iterate;
use crate::labels::Labels;
use crate::model::{Matrix, Model, Start};
use crate::wide::Float;
use manylabel_base::Error;

/// How the fit sees features and labels.
pub(crate) struct Units<'a> {
    pub(crate) scales: &'a Scales,
    pub(crate) labels: &'a Labels,
    /// The original feature at each place.
    pub(crate) columns: &'a [u32],
}

impl Units<'_> {
    /// Rows of a panel's weights: features, and the intercept.
    fn height(&self) -> usize {
        self.columns.len() + 1
    }

    /// Weights to start from: those given, or none but the intercepts of constant predictions.
    pub(crate) fn initial<T: Float, const N: usize>(
        &self,
        start: Option<&Start<'_>>,
    ) -> Result<Iterate<T, N>, Error> {
        let (height, width) = (self.height(), self.columns.len());
        let mut initial = Iterate::zeros(self.labels.len().div_ceil(N) * height, 0)?;
        let weights = &mut initial.weights;
        let share = &self.labels.share;
        let mut intercepts: Vec<f64> = share.iter().map(|p| (p / (1.0 - p)).ln()).collect();
        if let Some(start) = start {
            let places = self.places(start.intercept.len());
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

    /// The pairs that a start couples, in increasing order, and their couplings.
    pub(crate) fn coupled(&self, start: &Start<'_>) -> (Vec<(u32, u32)>, Vec<f64>) {
        let places = self.places(start.intercept.len());
        let mut found = Vec::new();
        for label in 0..start.intercept.len() {
            let (others, values) = start.couplings.row(label);
            for (&other, &value) in others.iter().zip(values) {
                let (i, k) = (places[label], places[other as usize]);
                if i < k && k != usize::MAX {
                    found.push(((i as u32, k as u32), value));
                }
            }
        }
        found.sort_unstable_by_key(|&(pair, _)| pair);
        found.into_iter().unzip()
    }

    /// The place of each original label; `usize::MAX` for those that take no part.
    fn places(&self, n_labels: usize) -> Vec<usize> {
        let mut places = vec![usize::MAX; n_labels];
        for (place, &label) in self.labels.kept.iter().enumerate() {
            places[label as usize] = place;
        }
        places
    }

    /// Writes a point as weights, intercepts and couplings of a model; `centred`: whether its intercepts
    /// are those of centred labels.
    pub(crate) fn write<T: Float, const N: usize>(
        &self,
        point: &Iterate<T, N>,
        pairs: &[(u32, u32)],
        centred: bool,
        model: &mut Model,
    ) {
        let (height, width) = (self.height(), self.columns.len());
        let at =
            |place: usize, row: usize| point.weights[place / N * height + row].0[place % N].f64();
        let n_labels = self.labels.len();
        let mut by_label: Vec<usize> = (0..n_labels).collect();
        by_label.sort_unstable_by_key(|&place| self.labels.kept[place]);
        let mut intercepts: Vec<f64> = (0..n_labels).map(|place| at(place, width)).collect();
        let mut rows = vec![usize::MAX; self.scales.mean.len()];
        for (row, &col) in self.columns.iter().enumerate() {
            rows[col as usize] = row;
            let shift = self.scales.mean[col as usize] / self.scales.deviation[col as usize];
            for (place, intercept) in intercepts.iter_mut().enumerate() {
                *intercept -= shift * at(place, row);
            }
        }
        let mut matrix = Matrix::empty(model.intercept.len());
        for (col, &row) in rows.iter().enumerate() {
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
        for (&(i, k), value) in pairs.iter().zip(&point.couplings) {
            let (i, k, value) = (i as usize, k as usize, value.f64());
            if value != 0.0 {
                let (a, b) = (self.labels.kept[i], self.labels.kept[k]);
                entries.extend([(a, b, value), (b, a, value)]);
                if centred {
                    intercepts[i] -= self.labels.share[k] * value;
                    intercepts[k] -= self.labels.share[i] * value;
                }
            }
        }
        model.couplings = Matrix::of_entries(entries, model.intercept.len());
        for (&label, intercept) in self.labels.kept.iter().zip(intercepts) {
            model.intercept[label as usize] = intercept;
        }
    }
}
