//! A model of many labels, asked for some of them.

use manylabel_base::range::same;
use manylabel_base::{Error, Watch, filled, push, reserved};
use manylabel_score::{Bounds, Features, Model, Options, Purpose, Rows, Task, Work};
use manylabel_sparse::CsrOwned;
use std::ops::Range;

/// Some labels of a model: the others are scored as well, and not looked at.
///
/// Labels are ranked by their scores, also where the whole model ranks by something else. Those that
/// are named are those of the whole model that are among them.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    model: &'a dyn Model,
    labels: &'a [i32],
}

impl<'a> Part<'a> {
    /// Names the labels, in increasing order.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if they are out of order or none of the model's.
    pub fn new(model: &'a dyn Model, labels: &'a [i32]) -> Result<Self, Error> {
        let in_range = |&label: &i32| (0..model.n_labels()).contains(&(label as usize));
        if !(labels.iter().all(in_range) && labels.is_sorted_by(|a, b| a < b)) {
            return Err(Error::Param {
                name: "label_blocks_",
                expected: "increasing labels that the model knows",
                got: format!("others, of a model of {}", model.n_labels()),
            });
        }
        Ok(Self { model, labels })
    }

    /// Its labels, as the whole model counts them.
    pub fn labels(&self) -> &'a [i32] {
        self.labels
    }

    /// The model of all labels.
    pub(crate) fn whole(&self) -> &'a dyn Model {
        self.model
    }

    /// The best label of the whole model, where it is one of these.
    pub(crate) fn best(&self, x: Features<'_>, watch: &Watch) -> Result<CsrOwned, Error> {
        self.among(&self.model.topk(x, 1, watch)?)
    }

    /// Keeps of a matrix of all labels those of the part.
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
                    push("labels of rows", &mut found.indices, at as u32)?;
                    push("labels of rows", &mut found.values, value)?;
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
        let purpose = Purpose::Scores;
        Ok(Box::new(Batch {
            part: self,
            rows: self.model.rows(x, Options { purpose })?,
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

/// A model whose parts can be made into models of their own, which score their labels only.
pub trait Parts: Send + Sync {
    /// Lays the model out by label.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], or what is wrong with the model's arrays.
    fn by_label(&self) -> Result<Box<dyn ByLabel + '_>, Error>;
}

/// A model laid out by label.
pub trait ByLabel: Sync {
    /// Calls `then` with a model of the given labels, which are some of the whole model's.
    ///
    /// # Errors
    ///
    /// What `then` returns, [`Error::TooLarge`].
    fn with_part(
        &self,
        labels: &[i32],
        then: &mut dyn FnMut(&dyn Model) -> Result<(), Error>,
    ) -> Result<(), Error>;
}
