//! Stores the matrices `V = Σ_i x_i α_iᵀ` and `W = soft(V, l1)` by feature. Here `x_i` are the features
//! of row i, and `α_i` are the dual variables of the row, one per label.
//!
//! Only V is stored. Let v be an entry of V. The weight w is `v − l1 · sign(v)` if `|v| > l1`, and
//! 0 otherwise. Each feature has a list of the labels whose v has changed at least once. Labels
//! with a nonzero weight come first in this list, so that scoring a row reads only nonzero weights.
//! When the weight of a label becomes zero or nonzero, the label is exchanged with a label at the
//! border between the two parts of the list. Each feature also has a hash table with the position
//! of each label.

use manylabel_base::{Error, copied, extend, filled, push, reserved};
use manylabel_sparse::CsrOwned;
use std::collections::{HashMap, TryReserveError};
use std::hash::{BuildHasherDefault, Hasher};

/// A fast hash function for label numbers. It does not resist deliberate collisions, which are not a
/// concern here.
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
        // The high bits of the product are well mixed, but the hash table uses the low bits. So the
        // bits are rotated.
        self.0 = u64::from(label)
            .wrapping_add(1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(32);
    }
}

/// The number of weights that can be read one after the other in the time of one look-up in a hash
/// table. Measurements gave 3 to 6. The value affects only the running time and the last digits of
/// scores.
const STEPS_OF_A_SEARCH: usize = 4;

/// Name in error messages about memory.
const WHAT: &str = "number of weights";

/// The row of the matrix V that belongs to one feature. The weights are computed from V.
#[derive(Debug, Clone, Default)]
struct Feature {
    /// The labels of the feature. Labels with a nonzero weight come first, and labels with the
    /// weight 0 follow. Otherwise the order is arbitrary.
    labels: Vec<u32>,
    /// The value v of each label in `labels`.
    v: Vec<f32>,
    /// The number of labels with a nonzero weight. The weight of a label is nonzero if `|v| > l1`.
    n_weights: usize,
    /// The position of each label in `labels`.
    places: HashMap<u32, u32, BuildHasherDefault<LabelHasher>>,
}

/// The weights W, and the matrix V from which they are computed. Both are stored by feature.
#[derive(Debug)]
pub(super) struct Weights {
    features: Vec<Feature>,
    /// The threshold l1, below which weights are 0. It becomes 0 when
    /// [`fix_supports`](Self::fix_supports) is called.
    l1: f32,
    /// True after [`fix_supports`](Self::fix_supports) was called. From then on, weights that are 0
    /// stay 0.
    supports_fixed: bool,
}

impl Weights {
    /// Creates the matrix V for `n_features` features. All entries of V and all weights are 0.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(super) fn new(n_features: usize, l1: f32) -> Result<Self, Error> {
        Ok(Self {
            features: filled("number of features", Feature::default(), n_features)?,
            l1,
            supports_fixed: false,
        })
    }

    /// Returns a copy. The labels of each feature keep their order.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(super) fn copied(&self) -> Result<Self, Error> {
        let mut features = reserved("number of features", self.features.len())?;
        for feature in &self.features {
            features.push(feature.copied()?);
        }
        Ok(Self { features, ..*self })
    }

    /// Keeps all weights that are 0 at 0 from now on. Their entries of V are removed, and later
    /// changes to these entries are ignored. The threshold `l1` becomes 0, so that all other
    /// weights equal their entry of V.
    #[expect(clippy::disallowed_methods, reason = "there were more places before")]
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

    /// Returns the nonzero weights of `feature` with their labels, in arbitrary order.
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

    /// Returns the number of labels with a nonzero weight for `feature`.
    pub(super) fn n_weights(&self, feature: usize) -> usize {
        self.features[feature].n_weights
    }

    /// Looks up the weight of `label` for `feature`.
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

    /// Compares two ways to get the weights of `n_wanted` labels for `features`. Returns true if
    /// reading all weights one after the other, plus `extra` steps, is faster than looking up each
    /// weight in a hash table.
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

    /// Adds `x δᵀ` to V, where x is a row (its features and values) and δ is a vector over labels.
    /// `changes` holds the labels and values of δ, with each label at most once. `space` is a
    /// workspace with one number for each label.
    ///
    /// Labels are looked up in a hash table or read one after the other. The result is exactly the
    /// same.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. In this case, V is partly
    /// updated.
    pub(super) fn add_row(
        &mut self,
        (features, values): (&[u32], &[f32]),
        changes: &[(u32, f32)],
        space: &mut [f32],
    ) -> Result<(), Error> {
        // Reading in order changes only labels that are stored. So it is used only if zero weights
        // must stay zero, because no other labels are added then.
        let walk =
            self.supports_fixed && self.is_faster_to_walk(features, space.len(), changes.len());
        if !walk {
            for &(label, change) in changes {
                for (&feature, &value) in features.iter().zip(values) {
                    self.add(feature as usize, label, change * value)?;
                }
            }
            return Ok(());
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
        Ok(())
    }

    /// Adds `change` to the entry of V for one feature and label. If the weight becomes nonzero or
    /// zero, the label is moved to the other part of the feature's list.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    #[inline]
    pub(super) fn add(&mut self, feature: usize, label: u32, change: f32) -> Result<(), Error> {
        let feature = &mut self.features[feature];
        let at = match feature.places.get(&label) {
            Some(&at) => at as usize,
            None if self.supports_fixed => return Ok(()),
            None => feature.append(label)?,
        };
        feature.v[at] += change;
        let (had, has) = (at < feature.n_weights, feature.v[at].abs() > self.l1);
        if self.supports_fixed || had == has {
            return Ok(());
        }
        if had {
            feature.n_weights -= 1;
            feature.swap(at, feature.n_weights);
        } else {
            feature.swap(at, feature.n_weights);
            feature.n_weights += 1;
        }
        Ok(())
    }

    /// Returns two sums over all weights w: `Σ ½ w²` and `Σ |w|`.
    pub(super) fn norms(&self) -> (f64, f64) {
        let weights = (0..self.features.len()).flat_map(|feature| self.of_feature(feature));
        weights.fold((0.0, 0.0), |(squares, sizes), (_, w)| {
            let w = f64::from(w);
            (squares + 0.5 * w * w, sizes + w.abs())
        })
    }

    /// Returns the nonzero weights by feature, as a matrix (`n_features`, `n_labels`). The labels
    /// of each feature are in increasing order.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(super) fn to_csr(&self, n_labels: usize) -> Result<CsrOwned, Error> {
        let most = self.features.iter().map(|feature| feature.n_weights).sum();
        let mut out = CsrOwned {
            indptr: reserved("number of features", self.features.len() + 1)?,
            indices: reserved(WHAT, most)?,
            values: reserved(WHAT, most)?,
            n_cols: n_labels,
        };
        out.indptr.push(0);
        let mut row: Vec<(u32, f32)> = Vec::new();
        for feature in 0..self.features.len() {
            row.clear();
            let weights = self.of_feature(feature).filter(|&(_, w)| w != 0.0);
            extend(WHAT, &mut row, weights)?;
            row.sort_unstable_by_key(|&(label, _)| label);
            extend(WHAT, &mut out.indices, row.iter().map(|&(label, _)| label))?;
            extend(WHAT, &mut out.values, row.iter().map(|&(_, w)| w))?;
            out.indptr.push(out.indices.len());
        }
        Ok(out)
    }
}

impl Feature {
    /// Returns a copy of the row of V. The labels keep their order.
    #[expect(clippy::disallowed_methods, reason = "the memory is reserved")]
    fn copied(&self) -> Result<Self, Error> {
        let mut places = HashMap::default();
        places
            .try_reserve(self.places.len())
            .map_err(|error| refused(&error))?;
        places.extend(self.labels.iter().copied().zip(0..));
        Ok(Self {
            labels: copied(WHAT, &self.labels)?,
            v: copied(WHAT, &self.v)?,
            n_weights: self.n_weights,
            places,
        })
    }

    /// Appends a label with the value v = 0 and returns its position.
    #[cold]
    fn append(&mut self, label: u32) -> Result<usize, Error> {
        let at = self.labels.len();
        push(WHAT, &mut self.labels, label)?;
        push(WHAT, &mut self.v, 0.0)?;
        self.places
            .try_reserve(1)
            .map_err(|error| refused(&error))?;
        self.places.insert(label, at as u32);
        Ok(at)
    }

    /// Exchanges the labels at two positions.
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

/// Returns the error for a hash table that cannot grow because there is not enough memory.
fn refused(error: &TryReserveError) -> Error {
    Error::TooLarge {
        what: WHAT,
        got: error.to_string(),
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
            // The changes are multiples of ¼, whose sums are exact.
            changes in prop::collection::vec((0..N_FEATURES, 0..N_LABELS as u32, -6i8..7), 0..80),
            later in prop::collection::vec((0..N_FEATURES, 0..N_LABELS as u32, -6i8..7), 0..20),
        ) {
            let mut weights = Weights::new(N_FEATURES, L1).expect("small");
            let mut v = [[0.0f32; N_LABELS]; N_FEATURES];
            for &(feature, label, change) in &changes {
                let change = f32::from(change) / 4.0;
                weights.add(feature, label, change).expect("small");
                v[feature][label as usize] += change;
            }
            let soft = |v: f32| v.signum() * (v.abs() - L1).max(0.0);
            let check = |weights: &Weights, w: &dyn Fn(f32) -> f32, v: &[[f32; N_LABELS]; N_FEATURES]| {
                let csr = weights.to_csr(N_LABELS).expect("small");
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
            // After supports are fixed, labels without a weight get none, and the threshold is 0.
            let had = v.map(|row| row.map(|v| v.abs() > L1));
            let mut of_rows = weights.copied().expect("small");
            weights.fix_supports();
            for &(feature, label, change) in &later {
                let change = f32::from(change) / 4.0;
                weights.add(feature, label, change).expect("small");
                v[feature][label as usize] += change;
            }
            for (row, had) in v.iter_mut().zip(&had) {
                for (v, &had) in row.iter_mut().zip(had) {
                    *v = if had { *v } else { 0.0 };
                }
            }
            check(&weights, &|v| v, &v)?;
            // The results must be exactly equal row by row, whether weights are looked up or read in
            // order.
            let (features, values) = ([0, 2], [0.3, -1.7]);
            let mut one_by_one = of_rows.copied().expect("small");
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
                            let added = one_by_one.add(feature as usize, label, change * value);
                            added.expect("small");
                        }
                    }
                    of_rows.add_row((&features, &values), &row, &mut space).expect("small");
                }
                let csr = |weights: &Weights| weights.to_csr(N_LABELS).expect("small");
                let (found, expected) = (csr(&of_rows), csr(&one_by_one));
                prop_assert_eq!(&found.indptr, &expected.indptr);
                prop_assert_eq!(&found.indices, &expected.indices);
                prop_assert_eq!(&found.values, &expected.values);
            }
        }
    }
}
