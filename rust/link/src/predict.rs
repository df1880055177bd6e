//! Scores and rankings by a fitted link, a block of rows at a time.

use crate::design::{Projection, features};
use crate::lanes::scores;
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::{CsrOwned, CsrView, Index, Picked, TopK, Value};
use rayon::prelude::*;

/// Rows one thread scores between two looks at the watch; so few need no threads at all.
pub const ROWS_AT_ONCE: usize = 64;

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
    sums: Vec<f64>,
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
            if expected != got {
                return Err(Error::Shape {
                    what,
                    expected,
                    got,
                });
            }
        }
        Ok(Self {
            projection,
            frequencies,
            phases,
            weights,
            intercept,
        })
    }

    /// Number of labels.
    pub fn n_labels(&self) -> usize {
        self.intercept.len()
    }

    /// The `k` best labels of each row with their scores, labels in increasing order; ties go to
    /// the lower label, and labels with intercept −∞ are left out.
    ///
    /// Memory: at most 16 MB of scores, or those of one row, for each thread beside the result.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`].
    ///
    /// # Panics
    ///
    /// If `x` has more features than the projection, here as in every method.
    pub fn topk<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        k: usize,
        watch: &Watch,
    ) -> Result<CsrOwned, Error> {
        self.select(x, watch, |scores, out| {
            let mut best = TopK::new(k.min(self.n_labels()));
            for (label, &score) in (0..).zip(scores) {
                best.push(label, score);
            }
            best.drain_by_label(|label, score| out.push((label, score)));
        })
    }

    /// The labels of each row whose scores exceed `threshold`, with these scores, in increasing
    /// order of label.
    ///
    /// # Errors
    ///
    /// As [`topk`](Self::topk).
    pub fn above<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        threshold: f32,
        watch: &Watch,
    ) -> Result<CsrOwned, Error> {
        self.select(x, watch, |scores, out| {
            let scored = (0..).zip(scores.iter().copied());
            out.extend(scored.filter(|&(_, score)| score > threshold));
        })
    }

    /// All scores, row after row: `n_rows × n_labels` of them.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if that many do not fit in memory, otherwise as [`topk`](Self::topk).
    pub fn decision<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        watch: &Watch,
    ) -> Result<Vec<f32>, Error> {
        let size = x.n_rows().checked_mul(self.n_labels());
        let size = size.ok_or_else(|| Error::TooLarge {
            what: "the dense score matrix",
            got: format!("{} x {} scores", x.n_rows(), self.n_labels()),
        })?;
        let mut all = filled("the dense score matrix", 0.0, size)?;
        let fill = |scratch: &mut Scratch, block: usize, out: &mut [f32]| {
            watch.step(0)?;
            self.score(x, block * ROWS_AT_ONCE, scratch, out);
            Ok(())
        };
        if x.n_rows() <= ROWS_AT_ONCE {
            fill(&mut Scratch::default(), 0, &mut all)?;
        } else {
            all.par_chunks_mut(ROWS_AT_ONCE * self.n_labels())
                .enumerate()
                .try_for_each_init(Scratch::default, |scratch, (block, out)| {
                    fill(scratch, block, out)
                })?;
        }
        Ok(all)
    }

    /// Scores every row and keeps what `pick` pushes for it.
    fn select<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        watch: &Watch,
        pick: impl Fn(&[f32], &mut Vec<(u32, f32)>) + Sync,
    ) -> Result<CsrOwned, Error> {
        let n_labels = self.n_labels();
        let rows = (SCORES_AT_ONCE / n_labels.max(1)).clamp(1, ROWS_AT_ONCE);
        Picked::by_blocks(
            x.n_rows(),
            rows,
            n_labels,
            <(Scratch, Vec<f32>)>::default,
            |(scratch, scores), rows, picked| {
                watch.step(0)?;
                scores.resize(rows.len() * n_labels, 0.0);
                self.score(x, rows.start, scratch, scores);
                for scores in scores.chunks(n_labels) {
                    pick(scores, &mut picked.pairs);
                    picked.end_row();
                }
                Ok(())
            },
        )
    }

    /// Scores the rows from `first` on, as many as `out` has room for.
    fn score<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        first: usize,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) {
        let width = self.projection.width();
        let n_rows = out.len() / self.n_labels();
        let size = if self.phases.is_empty() {
            width
        } else {
            self.phases.len() + 1
        };
        let Scratch {
            sums,
            h,
            features: f,
        } = scratch;
        h.resize(n_rows * width, 0.0);
        f.resize(n_rows * size, 0.0);
        for (i, h) in h.chunks_mut(width).enumerate() {
            self.projection.project(x, first + i, sums, h);
        }
        features(h, width, self.frequencies, self.phases, f, size);
        scores(f, size, self.weights, self.intercept, out);
        if self.phases.is_empty() {
            self.keep_finite(out);
        }
    }

    /// Brings scores back that overflow where predictions, unlike cosines, are as large as `f32`
    /// goes: a sum of infinities, as in [`Projection::project`], says as little as 0.
    fn keep_finite(&self, out: &mut [f32]) {
        for scores in out.chunks_mut(self.n_labels()) {
            for (score, intercept) in scores.iter_mut().zip(self.intercept) {
                if !score.is_finite() && intercept.is_finite() {
                    let finite = if score.is_nan() { 0.0 } else { *score };
                    *score = finite.clamp(f32::MIN, f32::MAX);
                }
            }
        }
    }
}
