//! The weights of the fullest features, laid out for a batch of rows.
//!
//! On text a few hundred frequent features have a weight for most labels, and every row has some of
//! them: they are most of the work of scoring. With a place for every label, adding a multiple of
//! such a feature's weights to a row's scores is a straight loop over sixteen labels at a time
//! instead of a walk from label to label. The sums and their order stay the same: so do the bits.

use manylabel_base::{Error, collected, filled};
use manylabel_simd::wide;
use manylabel_sparse::Index;
use std::cmp::Reverse;

/// Bytes the layout may take; features beyond stay sparse.
const MOST_BYTES: usize = 64 << 20;

/// A feature is full if at least one label in this many has a weight for it. Below, walking
/// along its few labels is as fast.
const ONE_LABEL_IN: usize = 2;

/// A feature that has no place in the layout.
const NONE: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct FullFeatures {
    /// Place of each feature, or [`NONE`].
    place: Vec<u32>,
    /// Weights of the feature in place p at `weights[p * n_labels..][..n_labels]`.
    weights: Vec<f32>,
    n_labels: usize,
}

impl FullFeatures {
    /// Lays out the fullest features of a (`n_features`, `n_labels`) matrix, in O(their weights).
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
        let mut laid_out = filled("weights of full features", 0.0, full.len() * n_labels)?;
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

    /// Adds `value` times the weights of `feature` to the scores, if the feature is laid out;
    /// says whether it is.
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

#[wide]
fn add_scaled(value: f32, weights: &[f32], scores: &mut [f32]) {
    for (score, &weight) in scores.iter_mut().zip(weights) {
        *score += value * weight;
    }
}
