//! Scores and rankings by a fitted link, a block of rows at a time.

use crate::design::{PREDICTIONS, Projection, features};
use crate::lanes::scores;
use manylabel_base::range::same;
use manylabel_base::{Error, filled};
use manylabel_score::{Features, Model, Options, Rows, Task, keep_finite, with_sparse};
use manylabel_sparse::{CsrView, Index, Value};
use std::ops::Range;

/// Rows that are scored together: their features share what is loaded of the weights.
const ROWS_AT_ONCE: usize = 64;

/// Scores of a block at most, where nobody asked for all of them.
const SCORES_AT_ONCE: usize = 1 << 22;

/// Scores rows by the weights of a fitted link.
#[derive(Debug, Clone, Copy)]
pub struct Scorer<'a> {
    projection: Projection<'a>,
    frequencies: &'a [f32],
    phases: &'a [f32],
    weights: &'a [f32],
    intercept: &'a [f32],
}

/// What a block of rows is scored in.
#[derive(Default)]
struct Scratch {
    h: Vec<f32>,
    features: Vec<f32>,
}

impl<'a> Scorer<'a> {
    /// Borrows the parts of a [`Model`](crate::Model) and what it was fitted to.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if their lengths do not agree.
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

    /// Scores the rows from `first` on, as many as `out` has room for.
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
        let f = room("features of some rows", f, n_rows * size)?;
        for (i, h) in h.chunks_mut(width).enumerate() {
            self.projection.project(x, first + i, h);
        }
        features(h, width, self.frequencies, self.phases, f, size)?;
        scores(f, size, self.weights, self.intercept, out);
        if self.phases.is_empty() {
            // Predictions, unlike cosines, are as large as `f32` goes.
            keep_finite(out, self.intercept);
        }
        Ok(())
    }
}

/// The first `n` numbers of a vector, which grows if it has fewer; what they are is left over.
fn room<'a>(what: &'static str, vec: &'a mut Vec<f32>, n: usize) -> Result<&'a mut [f32], Error> {
    if vec.len() < n {
        *vec = filled(what, 0.0, n)?;
    }
    Ok(&mut vec[..n])
}

/// Rows to be scored.
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

/// Memory for each thread: at most 16 MB of scores, or those of one row. Labels with intercept −∞
/// are never ranked or named.
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
