//! Owns the arrays of a fitted model and appends the chunks of weights to them.
//!
//! The solver returns the weights of a node output by output. A prediction reads them feature by feature. So
//! the weights are transposed when the fit of a node ends, and their features are sorted by bucket.

use crate::arrays::{Arrays, bucket, range, shift_of};
use crate::params::Combine;
use crate::probability::Link;
use crate::weights::WeightsOwned;
use manylabel_base::{Error, collected, copied, extend, filled, push, reserved};
use manylabel_sparse::CsrOwned;

/// The name of the weights in error messages.
const WEIGHTS: &str = "number of weights";

/// A chunk is complete if more than one in this many of its weights is not zero. It then takes less than twice the
/// memory of its nonzero weights, and a row with all features is scored faster.
const COMPLETE: usize = 2;

/// A fitted model. Most fields are the same as in [`Arrays`] and are documented there.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are documented in `Arrays`")]
pub struct Model {
    pub n_features: usize,
    pub n_labels: usize,
    pub children: Vec<i64>,
    pub label_ends: Vec<i64>,
    pub labels: Vec<i32>,
    pub node_intercept: Vec<f32>,
    pub label_intercept: Vec<f32>,
    pub bucket_ends: Vec<i64>,
    pub buckets: Vec<u32>,
    pub feature_ends: Vec<i64>,
    pub features: Vec<u32>,
    pub row_ends: Vec<u32>,
    pub weight_ends: Vec<i64>,
    pub outputs: Vec<u16>,
    pub weights: WeightsOwned,
    pub node_scale: Vec<f32>,
    pub label_scale: Vec<f32>,
    /// How margins become probabilities.
    pub link: Link,
    /// How the score of a label is computed, with the given or learned exponent of the path.
    pub combine: Combine,
    /// The learned threshold. It is the score at which the number of predicted labels of held-out rows equals
    /// the number of their true labels. None if `learn_cut` is false or the threshold cannot be learned.
    pub cut: Option<f32>,
    /// The number of classifiers that did not converge in `max_iter` steps.
    pub n_unfinished: usize,
    /// The largest number of steps of a classifier.
    pub n_iter: u32,
}

impl Model {
    /// Borrows the arrays that a scorer needs.
    pub fn arrays(&self) -> Arrays<'_> {
        Arrays {
            n_features: self.n_features,
            n_labels: self.n_labels,
            children: &self.children,
            label_ends: &self.label_ends,
            labels: &self.labels,
            node_intercept: &self.node_intercept,
            label_intercept: &self.label_intercept,
            bucket_ends: &self.bucket_ends,
            buckets: &self.buckets,
            feature_ends: &self.feature_ends,
            features: &self.features,
            row_ends: &self.row_ends,
            weight_ends: &self.weight_ends,
            outputs: &self.outputs,
            weights: self.weights.view(),
            node_scale: &self.node_scale,
            label_scale: &self.label_scale,
            link: self.link,
        }
    }

    /// Appends the chunk of the next node. Chunks must be appended in the order of the nodes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    ///
    /// # Panics
    ///
    /// Panics if the weights have been converted to a narrower type.
    pub(crate) fn append(&mut self, chunk: ChunkOwned) -> Result<(), Error> {
        let WeightsOwned::Float32(weights) = &mut self.weights else {
            panic!("chunks must be appended before weights are converted");
        };
        extend(WEIGHTS, weights, chunk.weights)?;
        let n_weights = weights.len();
        extend(WEIGHTS, &mut self.buckets, chunk.buckets)?;
        extend(WEIGHTS, &mut self.features, chunk.features)?;
        extend(WEIGHTS, &mut self.row_ends, chunk.row_ends)?;
        extend(WEIGHTS, &mut self.outputs, chunk.outputs)?;
        push(
            "number of nodes",
            &mut self.bucket_ends,
            self.buckets.len() as i64,
        )?;
        push(
            "number of nodes",
            &mut self.feature_ends,
            self.features.len() as i64,
        )?;
        push("number of nodes", &mut self.weight_ends, n_weights as i64)
    }
}

/// The weights of one node, in the format of [`Arrays`].
#[derive(Debug)]
pub(crate) struct ChunkOwned {
    /// The hash table: 0, and then the position after the last feature of each bucket.
    pub(crate) buckets: Vec<u32>,
    /// The features that have weights, or all features, sorted by bucket.
    pub(crate) features: Vec<u32>,
    /// The position after the last weight of each feature.
    pub(crate) row_ends: Vec<u32>,
    /// The output of each weight.
    pub(crate) outputs: Vec<u16>,
    /// The weights, feature after feature.
    pub(crate) weights: Vec<f32>,
}

impl ChunkOwned {
    /// Returns the weights of the node.
    pub(crate) fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Copies the chunk of a node of a fitted model. 8-bit weights are not multiplied by their scales.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn copied(model: &Arrays<'_>, node: usize) -> Result<Self, Error> {
        let features = range(model.feature_ends, node);
        let weights = range(model.weight_ends, node);
        Ok(Self {
            buckets: copied(WEIGHTS, &model.buckets[range(model.bucket_ends, node)])?,
            features: copied(WEIGHTS, &model.features[features.clone()])?,
            row_ends: copied(WEIGHTS, &model.row_ends[features])?,
            outputs: copied(WEIGHTS, &model.outputs[weights.clone()])?,
            weights: model.weights.slice(weights).unscaled()?,
        })
    }

    /// Makes the chunk of a node from its weights, a matrix of shape (`n_outputs`, `n_columns`).
    /// `features` has the original number of each column. The chunk is complete if more than one in [`COMPLETE`] of the
    /// weights of all `n_features` features are there.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short, or if there are 2³² weights or more.
    pub(crate) fn new(
        by_output: &CsrOwned,
        features: &[u32],
        n_features: usize,
    ) -> Result<Self, Error> {
        let size = n_features.checked_mul(by_output.n_rows());
        let is_complete = |&size: &usize| {
            u32::try_from(size).is_ok() && size / COMPLETE < by_output.indices.len()
        };
        if let Some(size) = size.filter(is_complete) {
            return Self::complete(by_output, features, n_features, size);
        }
        let by_feature = by_output.transpose()?;
        let n_weights = by_feature.indices.len();
        if u32::try_from(n_weights).is_err() {
            return Err(Error::TooLarge {
                what: "number of weights of a node",
                got: n_weights.to_string(),
            });
        }
        let used = |col: &usize| !by_feature.row(*col).0.is_empty();
        let n_used = (0..by_feature.n_rows()).filter(used).count();
        // The mean number of features in a bucket is between one and two, or larger if there are few
        // features.
        let n_buckets = (n_used / 2).next_power_of_two();
        let shift = shift_of(n_buckets);
        let mut buckets = filled(WEIGHTS, 0u32, n_buckets + 1)?;
        for col in (0..by_feature.n_rows()).filter(used) {
            buckets[bucket(features[col], shift) + 1] += 1;
        }
        for at in 0..n_buckets {
            buckets[at + 1] += buckets[at];
        }
        let mut columns = filled(WEIGHTS, 0usize, n_used)?;
        let mut next = copied(WEIGHTS, &buckets)?;
        for col in (0..by_feature.n_rows()).filter(used) {
            let place = &mut next[bucket(features[col], shift)];
            columns[*place as usize] = col;
            *place += 1;
        }
        let mut chunk = Self {
            buckets,
            features: reserved(WEIGHTS, n_used)?,
            row_ends: reserved(WEIGHTS, n_used)?,
            outputs: reserved(WEIGHTS, n_weights)?,
            weights: reserved(WEIGHTS, n_weights)?,
        };
        for col in columns {
            let (outputs, weights) = by_feature.row(col);
            extend(
                WEIGHTS,
                &mut chunk.outputs,
                outputs.iter().map(|&output| output as u16),
            )?;
            extend(WEIGHTS, &mut chunk.weights, weights.iter().copied())?;
            chunk.features.push(features[col]);
            chunk.row_ends.push(chunk.weights.len() as u32);
        }
        Ok(chunk)
    }

    /// Makes a complete chunk, with `size` weights.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn complete(
        by_output: &CsrOwned,
        features: &[u32],
        n_features: usize,
        size: usize,
    ) -> Result<Self, Error> {
        let n_outputs = by_output.n_rows();
        let mut weights = filled(WEIGHTS, 0.0, size)?;
        for output in 0..n_outputs {
            let (cols, values) = by_output.row(output);
            for (&col, &value) in cols.iter().zip(values) {
                weights[features[col as usize] as usize * n_outputs + output] = value;
            }
        }
        let ends = (1..=n_features).map(|row| (row * n_outputs) as u32);
        let outputs = (0..n_features).flat_map(|_| 0..n_outputs as u16);
        let mut chunk = Self {
            buckets: copied(WEIGHTS, &[0, n_features as u32])?,
            features: collected(WEIGHTS, 0..n_features as u32)?,
            row_ends: collected(WEIGHTS, ends)?,
            outputs: reserved(WEIGHTS, size)?,
            weights,
        };
        extend(WEIGHTS, &mut chunk.outputs, outputs)?;
        Ok(chunk)
    }
}
