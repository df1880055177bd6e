//! Makes dense copies of the weights of frequent features, for a batch of rows.
//!
//! In text data, a few hundred frequent features have weights for most labels, and every row has
//! some of these features. Such features take most of the time of scoring. The dense copy of a
//! feature has a weight for every label. A vectorized loop can add these weights to the scores. The
//! loop over sparse weights is slower.
//!
//! The dense copy contains a zero for each label without a weight. The order of the sums does not
//! change, so scores are exactly the same as without dense copies.

use manylabel_base::{Error, collected, filled};
use manylabel_simd::wide;
use manylabel_sparse::Index;
use std::cmp::Reverse;

/// The largest number of bytes of all dense copies. Features that do not fit are not copied.
const MOST_BYTES: usize = 64 << 20;

/// A feature is copied if at least one in this many labels has a weight for it. For features with
/// fewer weights, the loop over sparse weights is as fast.
const ONE_LABEL_IN: usize = 2;

/// Marks a feature that is not copied.
const NONE: u32 = u32::MAX;

/// The dense weights of features that have weights for most labels.
#[derive(Debug)]
pub(crate) struct FullFeatures {
    /// The position of each feature in `weights`, or [`NONE`] if the feature is not copied.
    place: Vec<u32>,
    /// The weights. The feature at position p has the weights
    /// `weights[p * n_labels..][..n_labels]`.
    weights: Vec<f32>,
    n_labels: usize,
}

impl FullFeatures {
    /// Copies the features with the most weights from a (`n_features`, `n_labels`) matrix in compressed
    /// rows. The time is O(`n_features` + size of the copy).
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the copy does not fit in memory.
    ///
    /// # Panics
    ///
    /// Panics if a label or position of the matrix is out of range.
    pub(crate) fn new<P: Index, L: Index>(
        indptr: &[P],
        labels: &[L],
        weights: &[f32],
        n_labels: usize,
    ) -> Result<Self, Error> {
        let range = |feature: usize| indptr[feature].get()..indptr[feature + 1].get();
        let n_features = indptr.len() - 1;
        let is_full = |&feature: &usize| range(feature).len() * ONE_LABEL_IN >= n_labels.max(1);
        let mut full = collected("number of features", (0..n_features).filter(is_full))?;
        full.sort_unstable_by_key(|&feature| (Reverse(range(feature).len()), feature));
        full.truncate(MOST_BYTES / (n_labels.max(1) * size_of::<f32>()));
        let mut place = filled("number of features", NONE, n_features)?;
        let mut laid_out = filled(
            "number of weights of frequent features",
            0.0,
            full.len() * n_labels,
        )?;
        for ((at, &feature), out) in (0..)
            .zip(&full)
            .zip(laid_out.chunks_exact_mut(n_labels.max(1)))
        {
            place[feature] = at;
            for (label, &weight) in labels[range(feature)].iter().zip(&weights[range(feature)]) {
                out[label.get()] = weight;
            }
        }
        Ok(Self {
            place,
            weights: laid_out,
            n_labels,
        })
    }

    /// If the feature was copied, adds `value` times its weights to the scores of all labels and
    /// returns true. Otherwise returns false.
    pub(crate) fn add(&self, feature: usize, value: f32, scores: &mut [f32]) -> bool {
        let place = self.place[feature];
        if place == NONE {
            return false;
        }
        let first = place as usize * self.n_labels;
        add_scaled(value, &self.weights[first..first + self.n_labels], scores);
        true
    }
}

/// Computes `scores += value * weights`.
#[wide]
fn add_scaled(value: f32, weights: &[f32], scores: &mut [f32]) {
    for (score, &weight) in scores.iter_mut().zip(weights) {
        *score += value * weight;
    }
}
