//! Defines models that have only some of the labels of another model. Such a model is called a part
//! of the other model.
//!
//! Several blocks may share one model of all labels. Each block then uses only some of the labels.
//! There are two ways to score a part:
//!
//! - [`Part`] calls the whole model and keeps only the scores of its own labels. This works for any
//!   model and needs no preparation, but the whole model scores all of its labels.
//! - [`Parts`] and [`ByLabel`] create a model that has only the labels of the part. Models
//!   implement these traits if their weights can be stored by label. With many rows, this saves
//!   more time than the preparation takes.

use manylabel_base::range::same;
use manylabel_base::{Error, Watch, filled, push, reserved};
use manylabel_score::{Bounds, Model, Options, Purpose, Rows, Task, Work};
use manylabel_sparse::{CsrOwned, Features};
use std::ops::Range;

/// A model that consists of some labels of another model, which is called the whole model. The
/// whole model scores all of its labels, and the scores of labels outside the part are dropped.
///
/// Label j of the part is label `labels[j]` of the whole model. Labels are ranked by their scores,
/// even if the whole model ranks labels in a different way. To predict a label set, the whole model
/// predicts its label set, and labels outside the part are removed.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    model: &'a dyn Model,
    labels: &'a [i32],
}

impl<'a> Part<'a> {
    /// Creates a model that has only the given labels of `model`. The labels must be increasing.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if `labels` is not increasing or contains numbers that are not
    /// labels of the model.
    pub fn new(model: &'a dyn Model, labels: &'a [i32]) -> Result<Self, Error> {
        let in_range = |&label: &i32| (0..model.n_labels()).contains(&(label as usize));
        if !(labels.iter().all(in_range) && labels.is_sorted_by(|a, b| a < b)) {
            return Err(Error::Param {
                name: "label_blocks_",
                expected: "increasing labels, all below the number of labels of the model",
                got: format!(
                    "labels that do not increase, or that are not below {}",
                    model.n_labels()
                ),
            });
        }
        Ok(Self { model, labels })
    }

    /// Returns the labels of the part. They are label numbers of the whole model.
    pub fn labels(&self) -> &'a [i32] {
        self.labels
    }

    /// Returns the whole model.
    pub(crate) fn whole(&self) -> &'a dyn Model {
        self.model
    }

    /// Computes, for each row, the label to which the whole model gives the highest score. Returns
    /// only labels that are in the part. Rows whose label is not in the part get no label.
    pub(crate) fn best(&self, x: Features<'_>, watch: &Watch) -> Result<CsrOwned, Error> {
        self.among(&self.model.topk(x, 1, watch)?)
    }

    /// Removes the labels outside the part from a matrix of all labels. The remaining labels are
    /// renumbered as labels of the part.
    fn among(&self, all: &CsrOwned) -> Result<CsrOwned, Error> {
        let mut found = CsrOwned {
            indptr: reserved("number of rows", all.n_rows() + 1)?,
            indices: Vec::new(),
            values: Vec::new(),
            n_cols: self.labels.len(),
        };
        found.indptr.push(0);
        for row in 0..all.n_rows() {
            let (labels, values) = all.row(row);
            for (&label, &value) in labels.iter().zip(values) {
                if let Ok(at) = self.labels.binary_search(&(label as i32)) {
                    push("number of predicted labels", &mut found.indices, at as u32)?;
                    push("number of predicted labels", &mut found.values, value)?;
                }
            }
            found.indptr.push(found.indices.len());
        }
        Ok(found)
    }
}

impl Model for Part<'_> {
    fn n_labels(&self) -> usize {
        self.labels.len()
    }

    fn n_features(&self) -> usize {
        self.model.n_features()
    }

    fn rows<'a>(&'a self, x: Features<'a>, _: Options) -> Result<Box<dyn Rows + 'a>, Error> {
        Ok(Box::new(Batch {
            part: self,
            rows: self.model.rows(x, Purpose::Scores.into())?,
        }))
    }

    fn is_quick(&self, n_rows: usize) -> bool {
        self.model.is_quick(n_rows)
    }

    fn above(&self, x: Features<'_>, bounds: Bounds<'_>, watch: &Watch) -> Result<CsrOwned, Error> {
        let all = match bounds {
            Bounds::One(_) => self.model.above(x, bounds, watch)?,
            Bounds::Each(bounds) => {
                same("number of bounds", self.labels.len(), bounds.len())?;
                let mut of_all = filled("number of bounds", f32::INFINITY, self.model.n_labels())?;
                for (&label, &bound) in self.labels.iter().zip(bounds) {
                    of_all[label as usize] = bound;
                }
                self.model.above(x, Bounds::Each(&of_all), watch)?
            }
        };
        self.among(&all)
    }
}

/// A batch of rows to score with the whole model.
struct Batch<'a> {
    part: &'a Part<'a>,
    rows: Box<dyn Rows + 'a>,
}

impl Rows for Batch<'_> {
    fn n_labels(&self) -> usize {
        self.part.labels.len()
    }

    fn at_once(&self) -> usize {
        self.rows.at_once()
    }

    fn score(&self, rows: Range<usize>, scores: &mut [f32], task: &mut Task) -> Result<(), Error> {
        let Task { work, watch } = task;
        let (of_model, all) = work.room(|| Ok((Work::default(), Vec::new())))?;
        let n_labels = self.rows.n_labels();
        let size = rows.len() * n_labels;
        if all.len() < size {
            *all = filled("a block of scores", 0.0, size)?;
        }
        let all = &mut all[..size];
        let mut task = Task {
            work: of_model,
            watch,
        };
        self.rows.score(rows, all, &mut task)?;
        for (scores, all) in scores
            .chunks_mut(self.part.labels.len().max(1))
            .zip(all.chunks(n_labels.max(1)))
        {
            for (score, &label) in scores.iter_mut().zip(self.part.labels) {
                *score = all[label as usize];
            }
        }
        Ok(())
    }
}

/// A model that can be divided into parts. A part is a model that has and scores only some of the
/// labels.
///
/// [`BlockModel::with_parts`](crate::BlockModel::with_parts) uses this trait for batches of more
/// than 32 rows.
pub trait Parts: Send + Sync {
    /// Stores the model by label and returns the result. This is done once for a batch of rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns another error if the
    /// arrays of the model are not valid.
    fn by_label(&self) -> Result<Box<dyn ByLabel + '_>, Error>;
}

/// A model stored by label, so that some of its labels can be extracted quickly.
pub trait ByLabel: Sync {
    /// Creates a model that has only the given labels, and calls `then` once with this model.
    /// `labels` are label numbers of the whole model. Label j of the new model is `labels[j]`.
    ///
    /// # Errors
    ///
    /// Returns any error of `then`. Returns [`Error::TooLarge`] if there is not enough memory.
    fn with_part(
        &self,
        labels: &[i32],
        then: &mut dyn FnMut(&dyn Model) -> Result<(), Error>,
    ) -> Result<(), Error>;
}
