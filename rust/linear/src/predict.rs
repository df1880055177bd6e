//! Scores and rankings by sparse weights.
//!
//! The weights lie by feature: a row touches the labels that its features have weights for, and no
//! others. A row's scores start as the intercepts; each of its features adds to its labels.

use crate::full::FullFeatures;
use manylabel_base::Error;
use manylabel_base::range::same;
use manylabel_score::{Features, Model, Options, Rows, Task, keep_finite, with_sparse};
use manylabel_sparse::{CsrView, Index, Value};
use std::ops::Range;

/// From so many rows on, laying out the full features pays.
const FULL_FROM: usize = 512;

/// Scores rows by linear weights kept by feature.
#[derive(Debug, Clone, Copy)]
pub struct Scorer<'a, P, L> {
    indptr: &'a [P],
    labels: &'a [L],
    weights: &'a [f32],
    intercept: &'a [f32],
    normalize: bool,
}

impl<'a, P: Index, L: Index> Scorer<'a, P, L> {
    /// Borrows weights (`n_features`, `n_labels`) in compressed rows, and one intercept for each
    /// label; −∞ marks a label that is never to be named. Rows are scaled to unit length before
    /// they are scored if `normalize`.
    ///
    /// Takes O(1): positions inside are checked when they are used.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the lengths do not agree.
    pub fn new(
        indptr: &'a [P],
        labels: &'a [L],
        weights: &'a [f32],
        intercept: &'a [f32],
        normalize: bool,
    ) -> Result<Self, Error> {
        same("values of coef_", labels.len(), weights.len())?;
        same(
            "end of indptr of coef_",
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

    /// The rows, and the layout of the full features if it pays for so many.
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

    /// Scores row `at` of `x`.
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

/// Rows to be scored.
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

/// Labels with intercept −∞ are never ranked or named.
///
/// Scoring panics if the weights name a label or position that does not exist.
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
