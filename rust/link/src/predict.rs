//! Computes scores with a fitted link, for one block of rows at a time. The link computes the
//! scores of labels from a few linear predictions of each row.
//!
//! For each block, the linear predictions are computed first, and then the features, which are
//! cosines of random combinations of the predictions. The features are then multiplied by the
//! output weights in a dense product. For k predictions, s features and m labels, a row takes
//! O(k · stored values + s k + s m) time. The scores of a row do not depend on the rows that are
//! scored with it.

use crate::design::{PREDICTIONS, Projection, features};
use crate::lanes::scores;
use manylabel_base::range::same;
use manylabel_base::{Error, filled};
use manylabel_score::{Model, Options, Rows, Task, keep_finite};
use manylabel_sparse::{CsrView, Features, Index, Value, with_sparse};
use std::ops::Range;

/// Number of rows that are scored together. Weights are then loaded once for all of these rows.
const ROWS_AT_ONCE: usize = 64;

/// Largest number of scores that are computed together, if not all scores are returned.
const SCORES_AT_ONCE: usize = 1 << 22;

/// Scores rows with the arrays of a fitted link, which it borrows.
///
/// Scores are logits. With the squared loss, they are instead predicted targets minus ½. The
/// threshold of a model is not applied here. Callers subtract it from the intercepts. Nothing is
/// prepared or copied, so creating a scorer takes almost no time.
///
/// ```
/// use manylabel_base::Watch;
/// use manylabel_link::{Projection, Scorer};
/// use manylabel_score::Model;
/// use manylabel_sparse::CsrView;
///
/// // Linear kernel, without frequencies: scores are linear in the one prediction x₀ − x₁.
/// let projection = Projection::new(&[1.0, -1.0], &[0.0], 2)?;
/// let scorer = Scorer::new(projection, &[], &[], &[2.0, -2.0], &[0.5, 0.5])?;
/// let x = CsrView::new("X", &[0i32, 2], &[0, 1], &[3.0f32, 1.0], 2)?;
/// let scores = scorer.decision(x.into(), &Watch::new())?;
/// assert_eq!(scores[..], [4.5, -3.5]);
/// # Ok::<(), manylabel_base::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Scorer<'a> {
    /// Computes the linear predictions of a row.
    projection: Projection<'a>,
    /// Frequencies of the cosine features, stored as k + 1 rows of length s.
    frequencies: &'a [f32],
    /// The s phases.
    phases: &'a [f32],
    /// Output weights, one row per label.
    weights: &'a [f32],
    /// Intercepts, one per label.
    intercept: &'a [f32],
}

/// The workspace for scoring a block of rows.
#[derive(Default)]
struct Scratch {
    /// The linear predictions of each row and the constant 1.
    h: Vec<f32>,
    /// The features of each row.
    features: Vec<f32>,
}

impl<'a> Scorer<'a> {
    /// Borrows the arrays of a [`Model`](crate::Model), and the projection with which it was
    /// fitted.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the lengths of the arrays do not agree.
    pub fn new(
        projection: Projection<'a>,
        frequencies: &'a [f32],
        phases: &'a [f32],
        weights: &'a [f32],
        intercept: &'a [f32],
    ) -> Result<Self, Error> {
        let n_inputs = if phases.is_empty() {
            projection.width() - 1
        } else {
            phases.len()
        };
        for (what, expected, got) in [
            (
                "values of frequencies_",
                phases.len() * projection.width(),
                frequencies.len(),
            ),
            ("values of coef_", n_inputs * intercept.len(), weights.len()),
        ] {
            same(what, expected, got)?;
        }
        Ok(Self {
            projection,
            frequencies,
            phases,
            weights,
            intercept,
        })
    }

    /// Computes the scores of consecutive rows, starting with row `first`. The length of `out`
    /// determines the number of rows.
    fn score<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        first: usize,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let width = self.projection.width();
        let n_rows = out.len() / self.intercept.len();
        let size = if self.phases.is_empty() {
            width
        } else {
            self.phases.len() + 1
        };
        let Scratch { h, features: f } = scratch;
        let h = room(PREDICTIONS, h, n_rows * width)?;
        let f = room("the matrix of features of some rows", f, n_rows * size)?;
        for (i, h) in h.chunks_mut(width).enumerate() {
            self.projection.project(x, first + i, h);
        }
        features(h, width, self.frequencies, self.phases, f, size)?;
        scores(f, size, self.weights, self.intercept, out);
        if self.phases.is_empty() {
            // Predictions may be as large as `f32` allows, unlike cosines.
            keep_finite(out, self.intercept);
        }
        Ok(())
    }
}

/// Returns the first `n` numbers of a vector as a workspace. If the vector is shorter, it is
/// extended. The numbers may have any values.
fn room<'a>(what: &'static str, vec: &'a mut Vec<f32>, n: usize) -> Result<&'a mut [f32], Error> {
    if vec.len() < n {
        *vec = filled(what, 0.0, n)?;
    }
    Ok(&mut vec[..n])
}

/// A batch of rows to score.
struct Batch<'a, 'b, I, T> {
    scorer: Scorer<'a>,
    x: CsrView<'b, I, T>,
}

impl<I: Index, T: Value> Rows for Batch<'_, '_, I, T> {
    fn n_labels(&self) -> usize {
        self.scorer.intercept.len()
    }

    fn at_once(&self) -> usize {
        (SCORES_AT_ONCE / self.n_labels().max(1)).clamp(1, ROWS_AT_ONCE)
    }

    fn score(&self, rows: Range<usize>, scores: &mut [f32], task: &mut Task) -> Result<(), Error> {
        let scratch = task.work.room(|| Ok(Scratch::default()))?;
        if !scores.is_empty() {
            self.scorer.score(self.x, rows.start, scratch, scores)?;
        }
        Ok(())
    }
}

/// Each thread stores scores that take at most 16 MiB, or the scores of one row if they take more.
/// Labels with the intercept −∞ are never ranked or predicted.
impl Model for Scorer<'_> {
    fn n_labels(&self) -> usize {
        self.intercept.len()
    }

    fn n_features(&self) -> usize {
        self.projection.n_features()
    }

    fn rows<'a>(&'a self, x: Features<'a>, _: Options) -> Result<Box<dyn Rows + 'a>, Error> {
        let scorer = *self;
        Ok(with_sparse!(x.sparse()?, |x| Box::new(Batch { scorer, x })))
    }

    fn is_quick(&self, n_rows: usize) -> bool {
        n_rows <= ROWS_AT_ONCE
    }
}
