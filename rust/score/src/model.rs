//! The traits that models implement, and the predictions that follow from them.

use crate::rank::Batch;
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::{CsrOwned, Features};
use std::any::Any;
use std::ops::Range;

/// Up to this many rows are scored without threads, if they have at most [`FEW_SCORES`] scores.
const FEW_ROWS: usize = 32;

/// Computing this many scores takes less time than starting threads and polling for signals.
const FEW_SCORES: usize = 1 << 20;

/// A fitted model prepared for scoring: immutable, shared by threads.
pub trait Model: Send + Sync {
    /// Number of labels.
    fn n_labels(&self) -> usize;

    /// Number of features.
    fn n_features(&self) -> usize;

    /// Prepares rows for scoring. `x` has [`n_features`](Self::n_features) columns. It is sparse unless the
    /// model [accepts dense rows](Self::takes_dense).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the model does not support an option. Returns [`Error::TooLarge`] if
    /// memory is short.
    fn rows<'a>(&'a self, x: Features<'a>, options: Options) -> Result<Box<dyn Rows + 'a>, Error>;

    /// Whether [`rows`](Self::rows) accepts dense rows. Other models get a sparse copy of them.
    fn takes_dense(&self) -> bool {
        false
    }

    /// Whether `n_rows` rows are scored so fast that threads do not pay.
    fn is_quick(&self, n_rows: usize) -> bool {
        n_rows <= 1 || (n_rows <= FEW_ROWS && n_rows.saturating_mul(self.n_labels()) <= FEW_SCORES)
    }

    /// The `k` best labels of each row with their scores, in increasing order of label. Ties go to the
    /// lower label; scores of −∞ or NaN are left out.
    ///
    /// Besides the result, memory is needed only for the scores of the rows in progress.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if `x` has another number of features than the model. Returns
    /// [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the watch was stopped.
    fn topk(&self, x: Features<'_>, k: usize, watch: &Watch) -> Result<CsrOwned, Error> {
        in_known_form(self, x, |x| {
            Batch::new(self, x, Purpose::Ranking)?.topk(k, watch)
        })
    }

    /// The labels of each row whose scores exceed their bounds, with these scores, in increasing order of
    /// label.
    ///
    /// # Errors
    ///
    /// As [`topk`](Self::topk). Returns [`Error::Shape`] if the number of bounds is not that of labels.
    fn above(&self, x: Features<'_>, bounds: Bounds<'_>, watch: &Watch) -> Result<CsrOwned, Error> {
        if let Bounds::Each(bounds) = bounds
            && bounds.len() != self.n_labels()
        {
            return Err(Error::Shape {
                what: "number of bounds",
                expected: self.n_labels(),
                got: bounds.len(),
            });
        }
        in_known_form(self, x, |x| {
            Batch::new(self, x, Purpose::Labels)?.above(bounds, watch)
        })
    }

    /// All scores, row after row; (`n_rows`, `n_labels`).
    ///
    /// # Errors
    ///
    /// As [`topk`](Self::topk); [`Error::TooLarge`] also if the scores do not fit in memory.
    fn decision(&self, x: Features<'_>, watch: &Watch) -> Result<Vec<f32>, Error> {
        in_known_form(self, x, |x| {
            Batch::new(self, x, Purpose::Scores)?.decision(watch)
        })
    }

    /// The probability of each label, row after row, for models that compute probabilities directly.
    ///
    /// # Errors
    ///
    /// As [`decision`](Self::decision). Returns [`Error::Param`] if the model does not.
    fn probabilities(&self, x: Features<'_>, watch: &Watch) -> Result<Vec<f64>, Error> {
        in_known_form(self, x, |x| {
            Batch::new(self, x, Purpose::Probabilities)?.probabilities(watch)
        })
    }
}

/// Calls `ask` with the rows in a form that the model accepts. This is the only place where dense rows are
/// made sparse.
pub(crate) fn in_known_form<M: Model + ?Sized, T>(
    model: &M,
    x: Features<'_>,
    ask: impl FnOnce(Features<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    match x {
        Features::Dense(dense) if !model.takes_dense() => ask(dense.to_sparse()?.features()?),
        known => ask(known),
    }
}

/// A batch of rows that is ready to be scored.
pub trait Rows: Sync {
    /// Number of labels.
    fn n_labels(&self) -> usize;

    /// How many rows are best scored together. [`score`](Self::score) is never called with more.
    fn at_once(&self) -> usize {
        1
    }

    /// Writes the scores of consecutive rows, row after row. They must depend neither on which rows are
    /// scored together nor on the former contents of `scores` and of the workspace of `task`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if a workspace does not fit in memory. Returns [`Error::Stopped`] if
    /// the watch was stopped.
    fn score(&self, rows: Range<usize>, scores: &mut [f32], task: &mut Task) -> Result<(), Error>;

    /// Writes the scores of the given labels of one row. By default this scores all labels and picks.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`score`](Self::score).
    ///
    /// # Panics
    ///
    /// Panics if a label does not exist.
    fn score_at(
        &self,
        row: usize,
        labels: &[u32],
        scores: &mut [f32],
        task: &mut Task,
    ) -> Result<(), Error> {
        let mut all = std::mem::take(&mut task.work.scores);
        if all.len() != self.n_labels() {
            all = filled("scores of a row", 0.0, self.n_labels())?;
        }
        self.score(row..row + 1, &mut all, task)?;
        for (score, &label) in scores.iter_mut().zip(labels) {
            *score = all[label as usize];
        }
        task.work.scores = all;
        Ok(())
    }

    /// Writes the probabilities of all labels of consecutive rows, row after row.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the model does not compute probabilities (the default), otherwise as
    /// [`score`](Self::score).
    fn marginals(&self, _: Range<usize>, _: &mut [f64], _: &mut Task) -> Result<(), Error> {
        Err(Error::Param {
            name: "model",
            expected: "one that computes probabilities",
            got: "scores only".into(),
        })
    }
}

/// Choices of prediction that need no new fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What the scores are used for.
    pub purpose: Purpose,
}

/// What scores are used for. For most models this makes no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// They are returned to the user.
    Scores,
    /// They rank the labels of a row.
    Ranking,
    /// They are compared with bounds to predict label sets.
    Labels,
    /// They are not used; probabilities are computed instead.
    Probabilities,
}

/// The bounds that the scores of predicted labels must exceed.
#[derive(Debug, Clone, Copy)]
pub enum Bounds<'a> {
    /// One bound for all labels.
    One(f32),
    /// A bound for each label.
    Each(&'a [f32]),
}

/// What a thread needs to score rows.
pub struct Task<'a> {
    /// The thread's workspace.
    pub work: &'a mut Work,
    /// Tells whether to go on.
    pub watch: &'a Watch,
}

/// The workspace of one thread, reused for several groups of rows.
#[derive(Default)]
pub struct Work {
    /// The model's own workspace.
    of_model: Option<Box<dyn Any + Send>>,
    /// Scores of all labels, for the default of [`Rows::score_at`].
    scores: Vec<f32>,
}

impl Work {
    /// The model's own workspace, created by `make` at the first call.
    ///
    /// # Errors
    ///
    /// Returns any error of `make`.
    ///
    /// # Panics
    ///
    /// Panics if a model asks for workspaces of two types.
    pub fn room<S: Send + 'static>(
        &mut self,
        make: impl FnOnce() -> Result<S, Error>,
    ) -> Result<&mut S, Error> {
        let room = match self.of_model.take() {
            Some(room) => room,
            None => Box::new(make()?),
        };
        let room = self.of_model.insert(room).downcast_mut();
        Ok(room.expect("a model asks for workspaces of one type"))
    }
}
