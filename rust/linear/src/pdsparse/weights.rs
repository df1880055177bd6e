//! `V = Σ_i x_i α_iᵀ` and `W = soft(V, l1)`, by feature.
//!
//! Of each feature the labels with a weight come first, so that scoring a row walks these and no
//! others; the labels whose v has not reached l1 wait behind them. A table of each feature knows
//! where a label stands.

use manylabel_sparse::CsrOwned;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash good enough for numbers of labels, which nobody chooses to collide.
#[derive(Debug, Clone, Default)]
struct LabelHasher(u64);

impl Hasher for LabelHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(self.0 as u32 ^ u32::from(byte));
        }
    }

    fn write_u32(&mut self, label: u32) {
        // The product's high bits are good; the table takes low ones for the place.
        self.0 = u64::from(label)
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(32);
    }
}

/// Steps along the weights of a feature, one after the other, in the time of finding one of them by
/// its label. Measured: 3 to 6; nothing but time depends on it, and the last bits of scores.
const STEPS_OF_A_SEARCH: usize = 4;

#[derive(Debug, Clone, Default)]
struct Feature {
    labels: Vec<u32>,
    v: Vec<f32>,
    /// The first so many have |v| > l1.
    n_weights: usize,
    places: HashMap<u32, u32, BuildHasherDefault<LabelHasher>>,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Weights {
    features: Vec<Feature>,
    l1: f32,
    /// Whether only what has a weight may get another.
    supports_fixed: bool,
}

impl Weights {
    pub(super) fn new(n_features: usize, l1: f32) -> Self {
        Self {
            features: vec![Feature::default(); n_features],
            l1,
            supports_fixed: false,
        }
    }

    /// Fixes the supports at what they are and leaves out l1: from now on w is v on the support.
    pub(super) fn fix_supports(&mut self) {
        self.l1 = 0.0;
        self.supports_fixed = true;
        for feature in &mut self.features {
            feature.labels.truncate(feature.n_weights);
            feature.v.truncate(feature.n_weights);
            feature.places.clear();
            feature
                .places
                .extend(feature.labels.iter().copied().zip(0..));
        }
    }

    /// Labels with a weight for `feature`, and these.
    pub(super) fn of_feature(&self, feature: usize) -> impl Iterator<Item = (u32, f32)> + '_ {
        let Feature {
            labels,
            v,
            n_weights,
            ..
        } = &self.features[feature];
        let pairs = labels[..*n_weights].iter().zip(&v[..*n_weights]);
        pairs.map(|(&label, &v)| (label, v - self.l1.copysign(v)))
    }

    /// How many labels have a weight for `feature`.
    pub(super) fn n_weights(&self, feature: usize) -> usize {
        self.features[feature].n_weights
    }

    /// The weight of `label` for `feature`.
    pub(super) fn get(&self, feature: usize, label: u32) -> f32 {
        let feature = &self.features[feature];
        match feature.places.get(&label) {
            Some(&at) if (at as usize) < feature.n_weights => {
                let v = feature.v[at as usize];
                v - self.l1.copysign(v)
            }
            _ => 0.0,
        }
    }

    /// Whether walking all weights of `features` is faster than finding those of `n_wanted` labels one
    /// by one, if `extra` steps come with it.
    pub(super) fn is_faster_to_walk(
        &self,
        features: &[u32],
        extra: usize,
        n_wanted: usize,
    ) -> bool {
        let weights = features
            .iter()
            .map(|&feature| self.n_weights(feature as usize));
        weights.sum::<usize>() + extra < STEPS_OF_A_SEARCH * features.len() * n_wanted
    }

    /// Adds `x αᵀ` to v: a row's features and values, and labels, each once, and what is added for each
    /// of these. `space` has a place for every label.
    ///
    /// Weights get the same bits whether they are found one by one or passed by.
    pub(super) fn add_row(
        &mut self,
        (features, values): (&[u32], &[f32]),
        changes: &[(u32, f32)],
        space: &mut [f32],
    ) {
        // A walk meets only labels that are there, and none may be added to fixed supports.
        let walk =
            self.supports_fixed && self.is_faster_to_walk(features, space.len(), changes.len());
        if !walk {
            for &(label, change) in changes {
                for (&feature, &value) in features.iter().zip(values) {
                    self.add(feature as usize, label, change * value);
                }
            }
            return;
        }
        space.fill(0.0);
        for &(label, change) in changes {
            space[label as usize] = change;
        }
        for (&feature, &value) in features.iter().zip(values) {
            let Feature { labels, v, .. } = &mut self.features[feature as usize];
            for (&label, v) in labels.iter().zip(v) {
                *v += space[label as usize] * value;
            }
        }
    }

    /// Adds to v.
    pub(super) fn add(&mut self, feature: usize, label: u32, change: f32) {
        let feature = &mut self.features[feature];
        let at = match feature.places.get(&label) {
            Some(&at) => at as usize,
            None if self.supports_fixed => return,
            None => {
                let at = feature.labels.len();
                feature.labels.push(label);
                feature.v.push(0.0);
                feature.places.insert(label, at as u32);
                at
            }
        };
        feature.v[at] += change;
        let (had, has) = (at < feature.n_weights, feature.v[at].abs() > self.l1);
        if self.supports_fixed || had == has {
            return;
        }
        if had {
            feature.n_weights -= 1;
            feature.swap(at, feature.n_weights);
        } else {
            feature.swap(at, feature.n_weights);
            feature.n_weights += 1;
        }
    }

    /// `Σ ½ w²` and `Σ |w|`.
    pub(super) fn norms(&self) -> (f64, f64) {
        let weights = (0..self.features.len()).flat_map(|feature| self.of_feature(feature));
        weights.fold((0.0, 0.0), |(squares, sizes), (_, w)| {
            let w = f64::from(w);
            (squares + 0.5 * w * w, sizes + w.abs())
        })
    }

    /// The weights by feature, labels in increasing order.
    pub(super) fn to_csr(&self, n_labels: usize) -> CsrOwned {
        let mut out = CsrOwned {
            indptr: vec![0],
            indices: Vec::new(),
            values: Vec::new(),
            n_cols: n_labels,
        };
        let mut row: Vec<(u32, f32)> = Vec::new();
        for feature in 0..self.features.len() {
            row.clear();
            row.extend(self.of_feature(feature).filter(|&(_, w)| w != 0.0));
            row.sort_unstable_by_key(|&(label, _)| label);
            out.indices.extend(row.iter().map(|&(label, _)| label));
            out.values.extend(row.iter().map(|&(_, w)| w));
            out.indptr.push(out.indices.len());
        }
        out
    }
}

impl Feature {
    fn swap(&mut self, a: usize, b: usize) {
        if a == b {
            return;
        }
        self.labels.swap(a, b);
        self.v.swap(a, b);
        self.places.insert(self.labels[a], a as u32);
        self.places.insert(self.labels[b], b as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const N_FEATURES: usize = 3;
    const N_LABELS: usize = 6;
    const L1: f32 = 0.75;

    proptest! {
        #[test]
        fn are_the_soft_thresholds_of_a_dense_matrix(
            // Quarters, whose sums are exact.
            changes in prop::collection::vec((0..N_FEATURES, 0..N_LABELS as u32, -6i8..7), 0..80),
            later in prop::collection::vec((0..N_FEATURES, 0..N_LABELS as u32, -6i8..7), 0..20),
        ) {
            let mut weights = Weights::new(N_FEATURES, L1);
            let mut v = [[0.0f32; N_LABELS]; N_FEATURES];
            for &(feature, label, change) in &changes {
                let change = f32::from(change) / 4.0;
                weights.add(feature, label, change);
                v[feature][label as usize] += change;
            }
            let soft = |v: f32| v.signum() * (v.abs() - L1).max(0.0);
            let check = |weights: &Weights, w: &dyn Fn(f32) -> f32, v: &[[f32; N_LABELS]; N_FEATURES]| {
                let csr = weights.to_csr(N_LABELS);
                for feature in 0..N_FEATURES {
                    let mut walked: Vec<(u32, f32)> = weights.of_feature(feature).collect();
                    prop_assert_eq!(walked.len(), weights.n_weights(feature));
                    walked.retain(|&(_, w)| w != 0.0);
                    walked.sort_by_key(|&(label, _)| label);
                    let expected: Vec<(u32, f32)> = (0..).zip(v[feature].map(w)).filter(|&(_, w)| w != 0.0).collect();
                    prop_assert_eq!(&walked, &expected);
                    let (labels, values) = csr.row(feature);
                    prop_assert!(labels.iter().copied().zip(values.iter().copied()).eq(expected));
                    for label in 0..N_LABELS {
                        let found = weights.get(feature, label as u32);
                        prop_assert!((found - w(v[feature][label])).abs() <= 0.0);
                    }
                }
                Ok(())
            };
            check(&weights, &soft, &v)?;
            // Fixed supports: what had no weight gets none, and l1 is gone.
            let had = v.map(|row| row.map(|v| v.abs() > L1));
            let mut of_rows = weights.clone();
            weights.fix_supports();
            for &(feature, label, change) in &later {
                let change = f32::from(change) / 4.0;
                weights.add(feature, label, change);
                v[feature][label as usize] += change;
            }
            for (row, had) in v.iter_mut().zip(&had) {
                for (v, &had) in row.iter_mut().zip(had) {
                    *v = if had { *v } else { 0.0 };
                }
            }
            check(&weights, &|v| v, &v)?;
            // The same bits row by row, whether places are found one by one or passed by.
            let (features, values) = ([0, 2], [0.3, -1.7]);
            let mut one_by_one = of_rows.clone();
            let mut space = [7.0; N_LABELS];
            for is_fixed in [false, true] {
                if is_fixed {
                    of_rows.fix_supports();
                    one_by_one.fix_supports();
                }
                for some in later.chunks(N_LABELS) {
                    let mut row: Vec<(u32, f32)> = some.iter().map(|&(_, label, change)| (label, f32::from(change) / 3.0)).collect();
                    row.sort_by_key(|pair| pair.0);
                    row.dedup_by_key(|pair| pair.0);
                    for &(label, change) in &row {
                        for (&feature, &value) in features.iter().zip(&values) {
                            one_by_one.add(feature as usize, label, change * value);
                        }
                    }
                    of_rows.add_row((&features, &values), &row, &mut space);
                }
                let (found, expected) = (of_rows.to_csr(N_LABELS), one_by_one.to_csr(N_LABELS));
                prop_assert_eq!(&found.indptr, &expected.indptr);
                prop_assert_eq!(&found.indices, &expected.indices);
                prop_assert_eq!(&found.values, &expected.values);
            }
        }
    }
}
