//! Scores of rows: the `Model` of label trees.
//!
//! Rankings and label sets consider the labels that the beam search finds. Score matrices consider all
//! labels, by a search without limit. In models of one tree, a label has the same score, bit for bit, in
//! both. With several trees, a label that one of them did not find is estimated (see `walk.rs`).

use crate::arrays::Arrays;
use crate::params::Combine;
use crate::walk::Walk;
use manylabel_base::Error;
use manylabel_score::{Model, Options, Purpose, Rows, Task};
use manylabel_sparse::{CsrView, Features, Index, Picked, Value, with_sparse};
use std::ops::Range;

/// Rows that are sent down the trees together. Many of them visit the same nodes, whose weights then stay in
/// cache.
const ROWS_AT_ONCE: usize = 256;

/// The maximum number of scores of a group when all labels are scored.
const SCORES_AT_ONCE: usize = 1 << 18;

/// Scores rows with a fitted model, whose arrays it borrows.
#[derive(Debug, Clone, Copy)]
pub struct Scorer<'a> {
    arrays: Arrays<'a>,
    /// The number of nodes in each level that a row is sent to.
    beam: usize,
    combine: Combine,
    /// Subtracted from all scores.
    threshold: f32,
    /// Whether rows are scaled to unit length before they are scored.
    normalize: bool,
}

/// Predictions are those of [`Model`].
impl<'a> Scorer<'a> {
    /// Borrows the arrays of a model after checking them; O(size of the model).
    ///
    /// # Errors
    ///
    /// As [`Arrays::check`].
    pub fn new(
        arrays: Arrays<'a>,
        beam: usize,
        combine: Combine,
        threshold: f32,
        normalize: bool,
    ) -> Result<Self, Error> {
        arrays.check()?;
        Ok(Self {
            arrays,
            beam,
            combine,
            threshold,
            normalize,
        })
    }
}

/// A batch of rows, and the width of the search.
struct Batch<'a, 'b, I, T> {
    scorer: &'b Scorer<'a>,
    x: CsrView<'b, I, T>,
    /// None if all labels are scored.
    beam: Option<usize>,
}

impl<I: Index, T: Value> Batch<'_, '_, I, T> {
    /// Appends the labels of some rows that a search of width `beam` finds, with their scores minus the
    /// threshold.
    ///
    /// Time: for each node that a row visits, a look into its hash table for each feature of the row, and an
    /// addition for each weight of the features found.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    fn search(
        &self,
        rows: Range<usize>,
        beam: usize,
        out: &mut Picked,
        walk: &mut Walk,
    ) -> Result<(), Error> {
        let Scorer {
            arrays,
            combine,
            threshold,
            normalize,
            ..
        } = self.scorer;
        walk.clear();
        for row in rows {
            let (unit, norm) = self.x.row_divisors(row, *normalize);
            let (cols, values) = self.x.row(row);
            walk.add_row(
                cols.iter().map(|col| col.get() as u32),
                values
                    .iter()
                    .map(|value| (value.f64() / unit / norm) as f32),
            )?;
        }
        walk.start(arrays.n_trees())?;
        while walk.step(arrays, beam)? {}
        walk.labels(arrays, *combine, *threshold, out)
    }
}

impl<I: Index, T: Value> Rows for Batch<'_, '_, I, T> {
    fn n_labels(&self) -> usize {
        self.scorer.arrays.n_labels
    }

    fn at_once(&self) -> usize {
        (SCORES_AT_ONCE / self.n_labels().max(1)).clamp(1, ROWS_AT_ONCE)
    }

    fn score(&self, rows: Range<usize>, scores: &mut [f32], task: &mut Task) -> Result<(), Error> {
        let room = task
            .work
            .room(|| Ok((Walk::default(), Picked::default())))?;
        let (walk, all) = room;
        all.pairs.clear();
        all.ends.clear();
        self.search(rows, usize::MAX, all, walk)?;
        scores.fill(f32::NEG_INFINITY);
        let mut begin = 0;
        for (scores, &end) in scores.chunks_mut(self.n_labels().max(1)).zip(&all.ends) {
            for &(label, score) in &all.pairs[begin..end] {
                scores[label as usize] = score;
            }
            begin = end;
        }
        Ok(())
    }

    fn candidates_at_once(&self) -> Option<usize> {
        self.beam.map(|_| ROWS_AT_ONCE)
    }

    fn candidates(
        &self,
        rows: Range<usize>,
        out: &mut Picked,
        task: &mut Task,
    ) -> Result<(), Error> {
        let room = task
            .work
            .room(|| Ok((Walk::default(), Picked::default())))?;
        self.search(rows, self.beam.unwrap_or(usize::MAX), out, &mut room.0)
    }
}

/// Labels without a training row are in no leaf: they have the score −∞.
impl Model for Scorer<'_> {
    fn n_labels(&self) -> usize {
        self.arrays.n_labels
    }

    fn n_features(&self) -> usize {
        self.arrays.n_features
    }

    fn rows<'a>(&'a self, x: Features<'a>, options: Options) -> Result<Box<dyn Rows + 'a>, Error> {
        let beam = match options.purpose {
            Purpose::Scores | Purpose::Probabilities => None,
            Purpose::Ranking | Purpose::Labels => Some(options.beam.unwrap_or(self.beam)),
        };
        Ok(with_sparse!(x.sparse()?, |x| Box::new(Batch {
            scorer: self,
            x,
            beam
        })))
    }
}
