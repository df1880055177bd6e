//! Scores rows with sparse weights, which `DiSMEC` and PD-Sparse fit.
//!
//! Weights are stored by feature. The scores of a row start with the intercepts. Then, for each
//! feature of the row, the value of the feature times its weights is added to the scores. So a row
//! takes O(`n_labels` + number of weights of its features) time. The stored arrays of a model are
//! borrowed without a copy. So loading a model requires no preparation.
//!
//! For batches of at least [`FULL_FROM`] rows, a dense copy of the weights of frequent features is
//! made ([`FullFeatures`]). It makes scoring faster and does not change the scores.

use crate::full::FullFeatures;
use manylabel_base::Error;
use manylabel_base::range::same;
use manylabel_score::{Model, Options, Rows, Task, keep_finite};
use manylabel_sparse::{CsrView, Features, Index, Value, with_sparse};
use std::ops::Range;

/// The smallest number of rows for which the dense copy of frequent features saves time.
const FULL_FROM: usize = 512;

/// Scores rows with sparse weights that are stored by feature. `P` is the integer type of the array
/// `indptr`, and `L` is the integer type of label numbers.
#[derive(Debug, Clone, Copy)]
pub struct Scorer<'a, P, L> {
    /// The start and end of the weights of each feature; shape (`n_features` + 1).
    indptr: &'a [P],
    /// The label of each weight, feature by feature.
    labels: &'a [L],
    /// The weight at each position of `labels`.
    weights: &'a [f32],
    /// The intercepts; shape (`n_labels`). A label that is never predicted has −∞.
    intercept: &'a [f32],
    /// True if rows are scaled to unit length before they are scored.
    normalize: bool,
}

impl<'a, P: Index, L: Index> Scorer<'a, P, L> {
    /// Borrows (`n_features`, `n_labels`) weights in compressed rows and an intercept for each label.
    /// An intercept of −∞ marks a label that is never predicted. If `normalize` is true, rows are
    /// scaled to unit length before they are scored.
    ///
    /// The time is O(1). The contents of the arrays are checked when they are used, not here.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the lengths do not agree.
    pub fn new(
        indptr: &'a [P],
        labels: &'a [L],
        weights: &'a [f32],
        intercept: &'a [f32],
        normalize: bool,
    ) -> Result<Self, Error> {
        same("values of coef_", labels.len(), weights.len())?;
        same(
            "last entry of the indptr of coef_",
            labels.len(),
            indptr.last().map_or(usize::MAX, |end| end.get()),
        )?;
        Ok(Self {
            indptr,
            labels,
            weights,
            intercept,
            normalize,
        })
    }

    /// Prepares the rows of `x` for scoring. If there are enough rows, a dense copy of the weights
    /// of frequent features is made.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the copy does not fit in memory.
    fn batch<'b, I: Index, T: Value>(
        &'b self,
        x: CsrView<'b, I, T>,
    ) -> Result<Box<dyn Rows + 'b>, Error> {
        let full = (x.n_rows() >= FULL_FROM).then(|| {
            FullFeatures::new(self.indptr, self.labels, self.weights, self.intercept.len())
        });
        Ok(Box::new(Batch {
            scorer: *self,
            x,
            full: full.transpose()?,
        }))
    }

    /// Computes the scores of all labels for row `at` of `x`.
    ///
    /// # Panics
    ///
    /// Panics if the weights refer to a label or position that does not exist.
    fn score<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        at: usize,
        full: Option<&FullFeatures>,
        scores: &mut [f32],
    ) {
        let (unit, norm) = x.row_divisors(at, self.normalize);
        scores.copy_from_slice(self.intercept);
        let (cols, values) = x.row(at);
        for (col, value) in cols.iter().zip(values) {
            let (feature, value) = (col.get(), (value.f64() / unit / norm) as f32);
            if full.is_some_and(|full| full.add(feature, value, scores)) {
                continue;
            }
            let range = self.indptr[feature].get()..self.indptr[feature + 1].get();
            for (label, &weight) in self.labels[range.clone()].iter().zip(&self.weights[range]) {
                scores[label.get()] += value * weight;
            }
        }
        keep_finite(scores, self.intercept);
    }
}

/// A batch of rows. It includes the dense copy of the weights of frequent features, if there is
/// one.
struct Batch<'a, 'b, P, L, I, T> {
    scorer: Scorer<'a, P, L>,
    x: CsrView<'b, I, T>,
    full: Option<FullFeatures>,
}

impl<P: Index, L: Index, I: Index, T: Value> Rows for Batch<'_, '_, P, L, I, T> {
    fn n_labels(&self) -> usize {
        self.scorer.intercept.len()
    }

    fn score(&self, rows: Range<usize>, scores: &mut [f32], _: &mut Task) -> Result<(), Error> {
        for (row, scores) in rows.zip(scores.chunks_mut(self.n_labels().max(1))) {
            self.scorer.score(self.x, row, self.full.as_ref(), scores);
        }
        Ok(())
    }
}

/// Labels with the intercept −∞ are never ranked or predicted.
///
/// Scoring panics if the weights refer to a label or position that does not exist.
impl<P: Index, L: Index> Model for Scorer<'_, P, L> {
    fn n_labels(&self) -> usize {
        self.intercept.len()
    }

    fn n_features(&self) -> usize {
        self.indptr.len() - 1
    }

    fn rows<'a>(&'a self, x: Features<'a>, _: Options) -> Result<Box<dyn Rows + 'a>, Error> {
        with_sparse!(x.sparse()?, |x| self.batch(x))
    }
}
