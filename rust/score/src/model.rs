//! Defines the traits that models implement. The provided methods of these traits compute predictions in the
//! same way for all models.

use crate::rank::Batch;
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::{CsrOwned, Features, Picked};
use std::any::Any;
use std::ops::Range;

/// Largest number of rows that are scored without threads. The rows must also have at most [`FEW_SCORES`]
/// scores in total.
const FEW_ROWS: usize = 32;

/// Largest number of scores that are computed without threads. Computing this number of scores takes less
/// time than starting threads and polling for signals.
const FEW_SCORES: usize = 1 << 20;

/// A fitted model that is prepared for scoring. It is immutable, and threads share it.
pub trait Model: Send + Sync {
    /// Returns the number of labels.
    fn n_labels(&self) -> usize;

    /// Returns the number of features.
    fn n_features(&self) -> usize;

    /// Prepares rows for scoring. `x` must have [`n_features`](Self::n_features) columns. `x` must be
    /// sparse unless the model [accepts dense rows](Self::takes_dense).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the model does not support an option. Returns [`Error::TooLarge`] if
    /// memory is short.
    fn rows<'a>(&'a self, x: Features<'a>, options: Options) -> Result<Box<dyn Rows + 'a>, Error>;

    /// Returns true if [`rows`](Self::rows) accepts dense rows. Otherwise the caller passes dense rows as
    /// sparse rows; see [`Dense::as_sparse`](manylabel_sparse::Dense::as_sparse).
    fn takes_dense(&self) -> bool {
        false
    }

    /// Returns true if `n_rows` rows are scored so fast that threads would not save time.
    fn is_quick(&self, n_rows: usize) -> bool {
        n_rows <= 1 || (n_rows <= FEW_ROWS && n_rows.saturating_mul(self.n_labels()) <= FEW_SCORES)
    }

    /// Returns the `k` best labels of each row with their scores, in increasing order of label. If
    /// scores are equal, the lower label is preferred. Labels with the score −∞ or NaN are left out.
    ///
    /// Besides the result, memory is needed only for the scores of the rows in progress.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if `x` has another number of features than the model. Returns
    /// [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the caller requested a stop.
    fn topk(&self, x: Features<'_>, k: usize, watch: &Watch) -> Result<CsrOwned, Error> {
        in_known_form(self, x, watch, |x| {
            Batch::new(self, x, Options::ranking(k, Search::default()))?.topk(k, watch)
        })
    }

    /// Does the same as [`topk`](Self::topk), but with the given options for the search for candidate labels.
    /// The options have an effect only on models that implement [`Rows::candidates`]. Other models score all
    /// labels.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`topk`](Self::topk). Also returns [`Error::Param`] if the model cannot search
    /// with these options.
    fn topk_within(
        &self,
        x: Features<'_>,
        k: usize,
        search: Search,
        watch: &Watch,
    ) -> Result<CsrOwned, Error> {
        if search == Search::default() {
            return self.topk(x, k, watch); // some models have their own implementation of `topk`
        }
        in_known_form(self, x, watch, |x| {
            Batch::new(self, x, Options::ranking(k, search))?.topk(k, watch)
        })
    }

    /// Returns, for each row, the labels whose scores exceed their bounds, in increasing order of
    /// label. Each label comes with its score.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`topk`](Self::topk). Also returns [`Error::Shape`] if `bounds` does
    /// not have one bound for each label.
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
        in_known_form(self, x, watch, |x| {
            Batch::new(self, x, Purpose::Labels.into())?.above(bounds, watch)
        })
    }

    /// Returns the scores of all labels, of shape (`n_rows`, `n_labels`), row after row.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`topk`](Self::topk). Also returns [`Error::TooLarge`] if the scores
    /// do not fit in memory.
    fn decision(&self, x: Features<'_>, watch: &Watch) -> Result<Vec<f32>, Error> {
        in_known_form(self, x, watch, |x| {
            Batch::new(self, x, Purpose::Scores.into())?.decision(watch)
        })
    }

    /// Returns the probabilities of all labels, of shape (`n_rows`, `n_labels`), row after row. Only models
    /// that compute probabilities directly support this method.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`decision`](Self::decision). Also returns [`Error::Param`] if the
    /// model does not compute probabilities.
    fn probabilities(&self, x: Features<'_>, watch: &Watch) -> Result<Vec<f64>, Error> {
        in_known_form(self, x, watch, |x| {
            Batch::new(self, x, Purpose::Probabilities.into())?.probabilities(watch)
        })
    }
}

/// Calls `ask` with the rows in a form that the model accepts. Only this function makes sparse rows of dense rows. It
/// copies them only if most values are zero.
pub(crate) fn in_known_form<M: Model + ?Sized, T>(
    model: &M,
    x: Features<'_>,
    watch: &Watch,
    ask: impl FnOnce(Features<'_>) -> Result<T, Error>,
) -> Result<T, Error> {
    match x {
        Features::Dense(dense) if !model.takes_dense() => {
            ask(Features::Sparse(dense.as_sparse(watch)?.sparse()?))
        }
        known => ask(known),
    }
}

/// A batch of rows that is ready for scoring.
pub trait Rows: Sync {
    /// Returns the number of labels.
    fn n_labels(&self) -> usize;

    /// Returns the number of rows to pass to one call of [`score`](Self::score). A call may pass fewer rows,
    /// but never more.
    fn at_once(&self) -> usize {
        1
    }

    /// Writes the scores of consecutive rows to `scores`, row after row. The scores of a row must not depend
    /// on which rows are scored together with it. They must also not depend on the previous contents of
    /// `scores` or of the workspace in `task`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if a workspace does not fit in memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    fn score(&self, rows: Range<usize>, scores: &mut [f32], task: &mut Task) -> Result<(), Error>;

    /// Returns the number of rows to pass to one call of [`candidates`](Self::candidates). Some models score
    /// only a few labels of each row, which are called candidates. All other models return `None`, and
    /// [`candidates`](Self::candidates) is not called for these models.
    fn candidates_at_once(&self) -> Option<usize> {
        None
    }

    /// Searches for the candidate labels of consecutive rows. Appends the candidates with their scores. The
    /// labels of a row may be in any order, but each label may occur only once per row. The scores must not
    /// depend on which rows are searched together. The scores should equal the scores from
    /// [`score`](Self::score). A model with several label trees may return estimates for some labels.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`score`](Self::score). Returns [`Error::Param`] for models that score
    /// all labels.
    fn candidates(&self, _: Range<usize>, _: &mut Picked, _: &mut Task) -> Result<(), Error> {
        Err(Error::Param {
            name: "model",
            expected: "a model that searches for candidate labels",
            got: "a model that scores all labels".into(),
        })
    }

    /// Writes the scores of the given labels of one row. The default implementation scores all labels
    /// and copies the scores of the given labels.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`score`](Self::score).
    ///
    /// # Panics
    ///
    /// Panics if a label is not below the number of labels.
    fn score_at(
        &self,
        row: usize,
        labels: &[u32],
        scores: &mut [f32],
        task: &mut Task,
    ) -> Result<(), Error> {
        let mut all = std::mem::take(&mut task.work.scores);
        if all.len() != self.n_labels() {
            all = filled("number of scores of a row", 0.0, self.n_labels())?;
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
    /// Returns [`Error::Param`] if the model does not compute probabilities. The default implementation
    /// always returns this error. Other implementations return the same errors as [`score`](Self::score).
    fn marginals(&self, _: Range<usize>, _: &mut [f64], _: &mut Task) -> Result<(), Error> {
        Err(Error::Param {
            name: "model",
            expected: "a model that computes probabilities",
            got: "a model that computes only scores".into(),
        })
    }
}

/// Options of a prediction. They can be changed without a new fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// The purpose for which scores are computed.
    pub purpose: Purpose,
    /// Options of the search for candidate labels. Models that score all labels ignore them.
    pub search: Search,
    /// The number of labels that a ranking needs for each row. [`Rows::candidates`] may leave out labels that
    /// are not among this number of best labels. `None` means that all candidates are needed.
    pub best: Option<usize>,
}

/// Options of the search for candidate labels in label trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Search {
    /// The number of nodes that the search keeps on each level for a row. `None` means the beam that the
    /// model was created with.
    pub beam: Option<usize>,
    /// The largest number of nodes whose children or labels are scored for a row, on all levels of all trees.
    /// `None` means that only `beam` limits this number.
    pub max_nodes: Option<usize>,
}

impl Options {
    /// Returns options for rankings of `k` labels.
    fn ranking(k: usize, search: Search) -> Self {
        Self {
            purpose: Purpose::Ranking,
            search,
            best: Some(k),
        }
    }
}

impl From<Purpose> for Options {
    /// Returns options for a purpose. The search uses the beam of the model and has no other limit, and all
    /// candidates are needed.
    fn from(purpose: Purpose) -> Self {
        Self {
            purpose,
            search: Search::default(),
            best: None,
        }
    }
}

/// The purpose for which scores are computed. Most models ignore the purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The scores are returned to the user.
    Scores,
    /// The scores are used to rank the labels of a row.
    Ranking,
    /// The scores are compared with bounds to predict label sets.
    Labels,
    /// Scores are not needed; the model computes probabilities instead.
    Probabilities,
}

/// The bounds for predicting labels. A label is predicted if its score exceeds its bound.
#[derive(Debug, Clone, Copy)]
pub enum Bounds<'a> {
    /// The same bound for all labels.
    One(f32),
    /// One bound for each label.
    Each(&'a [f32]),
}

/// The workspace and the watch that a thread needs to score rows.
pub struct Task<'a> {
    /// The workspace of the thread.
    pub work: &'a mut Work,
    /// The watch, which is checked for a stop request of the caller.
    pub watch: &'a Watch,
}

/// The workspace of one thread. The workspace is reused for several groups of rows.
#[derive(Default)]
pub struct Work {
    /// The workspace of the model. The model chooses its type.
    of_model: Option<Box<dyn Any + Send>>,
    /// The scores of all labels of one row, for the default implementation of [`Rows::score_at`].
    scores: Vec<f32>,
}

impl Work {
    /// Returns the workspace of the model. The first call creates the workspace with `make`.
    ///
    /// # Errors
    ///
    /// Returns any error of `make`.
    ///
    /// # Panics
    ///
    /// Panics if a model requests workspaces of two different types.
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
