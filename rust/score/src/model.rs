//! What a model must know to be scored, and what it can be asked then.

use crate::{Features, rank};
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::CsrOwned;
use std::any::Any;
use std::ops::Range;

/// Rows that are scored without threads if their scores are no more than [`FEW_SCORES`].
const FEW_ROWS: usize = 32;

/// So many scores take a moment, less than to start threads and wake up to look at signals.
const FEW_SCORES: usize = 1 << 20;

/// A fitted model prepared for scoring: immutable, shared by threads.
pub trait Model: Send + Sync {
    /// Number of labels.
    fn n_labels(&self) -> usize;

    /// Number of features.
    fn n_features(&self) -> usize;

    /// Prepares rows for scoring. `x` has [`n_features`](Self::n_features) columns, and is sparse unless the
    /// model [takes dense rows](Self::takes_dense).
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if an option does not go with the model, [`Error::TooLarge`].
    fn rows<'a>(&'a self, x: Features<'a>, options: Options) -> Result<Box<dyn Rows + 'a>, Error>;

    /// Whether [`rows`](Self::rows) takes dense rows as they are. Others get a sparse copy.
    fn takes_dense(&self) -> bool {
        false
    }

    /// Whether so many rows are scored in a moment: then no threads are started.
    fn is_quick(&self, n_rows: usize) -> bool {
        n_rows <= 1 || (n_rows <= FEW_ROWS && n_rows.saturating_mul(self.n_labels()) <= FEW_SCORES)
    }

    /// The `k` best labels of each row with their scores, labels in increasing order; ties go to
    /// the lower label, and scores of −∞ are left out.
    ///
    /// Memory beside the result: the scores of the rows at work.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if `x` has another number of features, [`Error::TooLarge`],
    /// [`Error::Stopped`].
    fn topk(&self, x: Features<'_>, k: usize, watch: &Watch) -> Result<CsrOwned, Error> {
        in_known_form(self, x, |x| rank::topk(self, x, k, watch))
    }

    /// The labels of each row whose scores exceed their bound, with these scores, in increasing
    /// order of label.
    ///
    /// # Errors
    ///
    /// As [`topk`](Self::topk), and [`Error::Shape`] if there is not one bound for each label.
    fn above(&self, x: Features<'_>, bounds: Bounds<'_>, watch: &Watch) -> Result<CsrOwned, Error> {
        in_known_form(self, x, |x| rank::above(self, x, bounds, watch))
    }

    /// All scores, row after row.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if that many do not fit in memory, otherwise as [`topk`](Self::topk).
    fn decision(&self, x: Features<'_>, watch: &Watch) -> Result<Vec<f32>, Error> {
        in_known_form(self, x, |x| rank::decision(self, x, watch))
    }

    /// The probability of each label, row after row, of models that know them without a link.
    ///
    /// # Errors
    ///
    /// As [`decision`](Self::decision), and [`Error::Param`] if the model knows none.
    fn probabilities(&self, x: Features<'_>, watch: &Watch) -> Result<Vec<f64>, Error> {
        in_known_form(self, x, |x| rank::probabilities(self, x, watch))
    }
}

/// Asks about rows in a form that the model knows: the one place where dense rows are made sparse.
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

/// A batch of rows that can be scored.
pub trait Rows: Sync {
    /// Number of labels.
    fn n_labels(&self) -> usize;

    /// Rows that are best scored together; more are never asked for at once.
    fn at_once(&self) -> usize {
        1
    }

    /// Writes the scores of some rows, row after row. They do not depend on which rows are asked
    /// for together, nor on what `scores` and the room of `task` held.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] for room that a row needs, [`Error::Stopped`].
    fn score(&self, rows: Range<usize>, scores: &mut [f32], task: &mut Task) -> Result<(), Error>;

    /// Writes the scores of given labels of one row.
    ///
    /// # Errors
    ///
    /// As [`score`](Self::score).
    ///
    /// # Panics
    ///
    /// If there is no such label.
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

    /// Writes the probability of every label of some rows, row after row, if the model knows them.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if it does not, otherwise as [`score`](Self::score).
    fn marginals(&self, _: Range<usize>, _: &mut [f64], _: &mut Task) -> Result<(), Error> {
        Err(Error::Param {
            name: "model",
            expected: "one that knows probabilities",
            got: "scores only".into(),
        })
    }
}

/// What prediction may choose without another fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// What the scores are for.
    pub purpose: Purpose,
}

/// What scores are for. For most models that makes no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To be handed out.
    Scores,
    /// To rank the labels of a row.
    Ranking,
    /// To name those labels whose scores exceed a bound.
    Labels,
    /// Probabilities are asked for instead.
    Probabilities,
}

/// What scores must exceed.
#[derive(Debug, Clone, Copy)]
pub enum Bounds<'a> {
    /// The same for all labels.
    One(f32),
    /// One for each label.
    Each(&'a [f32]),
}

/// What one thread scores rows with.
pub struct Task<'a> {
    /// Its room.
    pub work: &'a mut Work,
    /// Tells whether to go on.
    pub watch: &'a Watch,
}

/// What one thread works in, kept from some rows to the next.
#[derive(Default)]
pub struct Work {
    of_model: Option<Box<dyn Any + Send>>,
    scores: Vec<f32>,
}

impl Work {
    /// The model's own room, made when it is first asked for.
    ///
    /// # Errors
    ///
    /// What `make` returns.
    ///
    /// # Panics
    ///
    /// If a model asks for room of two types.
    pub fn room<S: Send + 'static>(
        &mut self,
        make: impl FnOnce() -> Result<S, Error>,
    ) -> Result<&mut S, Error> {
        let room = match self.of_model.take() {
            Some(room) => room,
            None => Box::new(make()?),
        };
        let room = self.of_model.insert(room).downcast_mut();
        Ok(room.expect("a model asks for room of one type"))
    }
}
