//! Computes rankings, label sets and score matrices from the scores of any model.
//!
//! The rows are divided into ranges of consecutive rows, which the code calls shares. Each thread
//! processes one share after the other, a few rows at a time. The results are put together in the order
//! of the rows.

use crate::model::in_known_form;
use crate::{Bounds, Model, Options, Purpose, Rows, Task, Work};
use manylabel_base::{Error, Tasks, Watch, extend, filled, reserved};
use manylabel_sparse::{CsrOwned, Features, Index, Picked, Sparse, TopK, with_sparse};
use rayon::prelude::*;
use std::ops::Range;

/// Number of shares (ranges of consecutive rows) per thread. With this number, threads finish at about the
/// same time, and the time to prepare the shares is negligible.
const SHARES: usize = 8;

/// The same for models that search for candidates. They read the weights of a label once for many rows, so that larger
/// shares take less time.
const SHARES_OF_SEARCH: usize = 4;

/// The smallest number of rows in a share (range of consecutive rows).
const ROWS_OF_SHARE: usize = 32;

/// Rows that are prepared for scoring, divided into shares (ranges of consecutive rows). The methods compute
/// all kinds of predictions from the scores. The methods are compiled once for all models.
pub(crate) struct Batch<'a> {
    rows: Box<dyn Rows + 'a>,
    n_rows: usize,
    n_labels: usize,
    /// Number of rows that are scored together; at least 1.
    at_once: usize,
    /// Number of rows in each share (range of consecutive rows); at least 1. The last share may have fewer
    /// rows.
    rows_of_share: usize,
}

impl<'a> Batch<'a> {
    /// Prepares the rows of `x` for scoring.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the numbers of features of `x` and the model differ. Also returns
    /// the errors of [`Model::rows`].
    pub(crate) fn new<M: Model + ?Sized>(
        model: &'a M,
        x: Features<'a>,
        options: Options,
    ) -> Result<Self, Error> {
        if x.n_cols() != model.n_features() {
            return Err(Error::Shape {
                what: "features of X",
                expected: model.n_features(),
                got: x.n_cols(),
            });
        }
        let rows = model.rows(x, options)?;
        let n_rows = x.n_rows();
        let at_once = rows.at_once().clamp(1, n_rows.max(1));
        let shares = if rows.candidates_at_once().is_some() {
            SHARES_OF_SEARCH
        } else {
            SHARES
        };
        let rows_of_share = if model.is_quick(n_rows) {
            n_rows.max(1) // one share, so that no thread pool is needed
        } else {
            n_rows
                .div_ceil(shares * rayon::current_num_threads())
                .max(ROWS_OF_SHARE)
                .next_multiple_of(at_once)
        };
        Ok(Self {
            rows,
            n_rows,
            n_labels: model.n_labels(),
            at_once,
            rows_of_share,
        })
    }

    /// Divides a range of rows into ranges of at most `at_once` rows.
    fn parts(rows: Range<usize>, at_once: usize) -> impl Iterator<Item = Range<usize>> {
        let firsts = rows.clone().step_by(at_once);
        firsts.map(move |first| first..(first + at_once).min(rows.end))
    }

    /// Calls `work` for `at_once` rows at a time and collects the pairs of label and score that `work`
    /// appends. `state` creates a workspace that `work` reuses from call to call.
    fn collect<S: Send>(
        &self,
        at_once: usize,
        watch: &Watch,
        state: impl Fn() -> Result<S, Error> + Sync,
        work: impl Fn(&mut S, Range<usize>, &mut Task, &mut Picked) -> Result<(), Error> + Sync,
    ) -> Result<CsrOwned, Error> {
        Picked::by_blocks(
            self.n_rows,
            self.rows_of_share,
            self.n_labels,
            || Ok((Work::default(), state()?)),
            |(scratch, state), share, picked| {
                let mut task = Task {
                    work: scratch,
                    watch,
                };
                for rows in Self::parts(share, at_once) {
                    watch.step(0)?;
                    work(state, rows, &mut task, picked)?;
                }
                Ok(())
            },
        )
    }

    /// Searches for the candidate labels of every row. From these candidates, `pick` selects pairs of label
    /// and score, which are collected. Returns `None` if the model scores all labels and does not search for
    /// candidates.
    fn select_candidates<S: Send>(
        &self,
        watch: &Watch,
        state: impl Fn() -> Result<S, Error> + Sync,
        pick: impl Fn(&mut S, &mut [(u32, f32)], &mut Vec<(u32, f32)>) -> Result<(), Error> + Sync,
    ) -> Option<Result<CsrOwned, Error>> {
        let at_once = self.rows.candidates_at_once()?.max(1);
        Some(self.collect(
            at_once,
            watch,
            || Ok((Picked::default(), state()?)),
            |(found, state), rows, task, picked| {
                found.clear();
                self.rows.candidates(rows, found, task)?;
                let mut begin = 0;
                for &end in &found.ends {
                    pick(state, &mut found.pairs[begin..end], &mut picked.pairs)?;
                    picked.end_row();
                    begin = end;
                }
                Ok(())
            },
        ))
    }

    /// Scores every row and collects the pairs of label and score that `pick` appends for the row. `state`
    /// creates a workspace that `pick` reuses from row to row.
    fn select<S: Send>(
        &self,
        watch: &Watch,
        state: impl Fn() -> Result<S, Error> + Sync,
        pick: impl Fn(&mut S, &[f32], &mut Vec<(u32, f32)>) -> Result<(), Error> + Sync,
    ) -> Result<CsrOwned, Error> {
        let size = self.at_once * self.n_labels;
        self.collect(
            self.at_once,
            watch,
            || Ok((filled("number of scores", 0.0, size)?, state()?)),
            |(scores, state), rows, task, picked| {
                let scores = &mut scores[..rows.len() * self.n_labels];
                self.rows.score(rows.clone(), scores, task)?;
                for row in 0..rows.len() {
                    let scores = &scores[row * self.n_labels..][..self.n_labels];
                    pick(state, scores, &mut picked.pairs)?;
                    picked.end_row();
                }
                Ok(())
            },
        )
    }

    /// Returns a matrix with one number for each pair of row and label, row after row. `fill` writes the
    /// numbers of a few rows at a time.
    fn all<T: Clone + Default + Send>(
        &self,
        what: &'static str,
        watch: &Watch,
        fill: impl Fn(Range<usize>, &mut [T], &mut Task) -> Result<(), Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let (n_rows, n_labels) = (self.n_rows, self.n_labels);
        let mut all = room_for_all(what, T::default(), n_rows, n_labels)?;
        let share = |(at, out): (usize, &mut [T])| {
            let mut work = Work::default();
            let mut task = Task {
                work: &mut work,
                watch,
            };
            let first = at * self.rows_of_share;
            let range = first..first + out.len() / n_labels;
            for (rows, out) in
                Self::parts(range, self.at_once).zip(out.chunks_mut(self.at_once * n_labels))
            {
                watch.step(0)?;
                fill(rows, out, &mut task)?;
            }
            Ok(())
        };
        let size_of_share = (self.rows_of_share * n_labels).max(1);
        if n_rows <= self.rows_of_share {
            all.chunks_mut(size_of_share)
                .enumerate()
                .try_for_each(share)?;
        } else {
            all.par_chunks_mut(size_of_share)
                .enumerate()
                .try_each(share)?;
        }
        Ok(all)
    }

    /// Implements [`Model::topk`].
    pub(crate) fn topk(&self, k: usize, watch: &Watch) -> Result<CsrOwned, Error> {
        const WHAT: &str = "number of labels to predict";
        let of_candidates = self.select_candidates(
            watch,
            || TopK::new(k.min(self.n_labels)),
            |best, pairs, out| {
                for &mut (label, score) in pairs {
                    best.push(label, score);
                }
                extend(WHAT, out, best.drain_by_label())
            },
        );
        if let Some(found) = of_candidates {
            return found;
        }
        self.select(
            watch,
            || TopK::new(k.min(self.n_labels)),
            |best, scores, out| {
                best.push_row(scores);
                extend(WHAT, out, best.drain_by_label())
            },
        )
    }

    /// Implements [`Model::above`].
    pub(crate) fn above(&self, bounds: Bounds<'_>, watch: &Watch) -> Result<CsrOwned, Error> {
        const WHAT: &str = "number of labels above their bounds";
        let of_candidates = self.select_candidates(
            watch,
            || Ok(()),
            |(), pairs, out| {
                pairs.sort_unstable_by_key(|&(label, _)| label);
                let above = |&(label, score): &(u32, f32)| match bounds {
                    Bounds::One(bound) => score > bound,
                    Bounds::Each(bounds) => score > bounds[label as usize],
                };
                extend(WHAT, out, pairs.iter().copied().filter(above))
            },
        );
        if let Some(found) = of_candidates {
            return found;
        }
        self.select(
            watch,
            || Ok(()),
            |(), scores, out| {
                let scored = (0..).zip(scores.iter().copied());
                match bounds {
                    Bounds::One(bound) => {
                        extend(WHAT, out, scored.filter(|&(_, score)| score > bound))
                    }
                    Bounds::Each(bounds) => {
                        let scored = scored.zip(bounds);
                        let above = scored.filter(|&((_, score), &bound)| score > bound);
                        extend(WHAT, out, above.map(|(pair, _)| pair))
                    }
                }
            },
        )
    }

    /// Implements [`Model::decision`].
    pub(crate) fn decision(&self, watch: &Watch) -> Result<Vec<f32>, Error> {
        self.all("the dense score matrix", watch, |rows, out, task| {
            self.rows.score(rows, out, task)
        })
    }

    /// Implements [`Model::probabilities`].
    pub(crate) fn probabilities(&self, watch: &Watch) -> Result<Vec<f64>, Error> {
        self.all("the matrix of probabilities", watch, |rows, out, task| {
            self.rows.marginals(rows, out, task)
        })
    }

    /// Implements [`at`].
    fn at(&self, pairs: Sparse<'_>, watch: &Watch) -> Result<Vec<f32>, Error> {
        let found = Picked::by_blocks(
            self.n_rows,
            self.rows_of_share,
            self.n_labels,
            || Ok(()),
            |(), range, picked| {
                const WHAT: &str = "number of pairs";
                let mut work = Work::default();
                let mut task = Task {
                    work: &mut work,
                    watch,
                };
                let sizes = range.clone().map(|row| pairs.n_stored(row));
                let longest = sizes.max().unwrap_or(0);
                let mut labels = reserved(WHAT, longest)?;
                let mut scores = filled(WHAT, 0.0, longest)?;
                for row in range {
                    watch.step(0)?;
                    labels.clear();
                    with_sparse!(pairs, |pairs| {
                        let of_row = pairs.row(row).0.iter();
                        extend(WHAT, &mut labels, of_row.map(|label| label.get() as u32))
                    })?;
                    let scores = &mut scores[..labels.len()];
                    self.rows.score_at(row, &labels, scores, &mut task)?;
                    let pairs = labels.iter().copied().zip(scores.iter().copied());
                    extend(WHAT, &mut picked.pairs, pairs)?;
                    picked.end_row();
                }
                Ok(())
            },
        )?;
        Ok(found.values)
    }
}

/// Returns a vector with a copy of `value` for each pair of row and label.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the vector does not fit in memory. The error message contains `what`.
pub fn room_for_all<T: Clone>(
    what: &'static str,
    value: T,
    n_rows: usize,
    n_labels: usize,
) -> Result<Vec<T>, Error> {
    let size = n_rows.checked_mul(n_labels);
    let size = size.ok_or_else(|| Error::TooLarge {
        what,
        got: format!("{n_rows} x {n_labels} numbers do not fit in memory"),
    })?;
    filled(what, value, size)
}

/// Returns the scores of given labels of each row. The stored entries of row i of `pairs` are the labels to
/// score for row i. The result has one score for each stored entry, in the order of the entries. The values
/// of `pairs` are not used.
///
/// If the model can only score all labels at once, each thread also needs memory for the scores of one row.
///
/// # Errors
///
/// Returns [`Error::Shape`] if the numbers of rows of `x` and `pairs` differ. Returns [`Error::Shape`] if the
/// number of features of `x` or the number of labels of `pairs` differs from the model. Returns
/// [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the caller requested a stop.
pub fn at(
    model: &dyn Model,
    x: Features<'_>,
    pairs: Sparse<'_>,
    watch: &Watch,
) -> Result<Vec<f32>, Error> {
    for (what, expected, got) in [
        ("rows of the pairs", x.n_rows(), pairs.n_rows()),
        ("labels of the pairs", model.n_labels(), pairs.n_cols()),
    ] {
        if expected != got {
            return Err(Error::Shape {
                what,
                expected,
                got,
            });
        }
    }
    in_known_form(model, x, watch, |x| {
        Batch::new(model, x, Purpose::Scores.into())?.at(pairs, watch)
    })
}
