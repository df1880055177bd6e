//! Scores and rankings by sparse weights.
//!
//! The weights lie by feature: a row touches the labels that its features have weights for, and no
//! others. A row's scores start as the intercepts; each of its features adds to its labels.

use crate::full::FullFeatures;
use crate::panel::LANES;
use manylabel_base::{Error, Watch};
use manylabel_sparse::{CsrOwned, CsrView, Index, TopK, Value};
use rayon::prelude::*;

/// Rows one thread scores between two looks at the watch; so few need no threads at all.
pub const ROWS_AT_ONCE: usize = 32;

/// From so many rows on, laying out the full features pays.
const FULL_FROM: usize = 512;

/// Scores rows by linear weights kept by feature.
#[derive(Debug, Clone, Copy)]
pub struct Scorer<'a, P, L> {
    indptr: &'a [P],
    labels: &'a [L],
    weights: &'a [f32],
    intercept: &'a [f32],
    normalize: bool,
}

/// What a block of rows picked: the ends of its rows, their labels with scores.
type Picked = (Vec<usize>, Vec<(u32, f32)>);

impl<'a, P: Index, L: Index> Scorer<'a, P, L> {
    /// Borrows weights (`n_features`, `n_labels`) in compressed rows, and one intercept for each
    /// label; −∞ marks a label that is never to be named. Rows are scaled to unit length before
    /// they are scored if `normalize`.
    ///
    /// Takes O(1): positions inside are checked when they are used.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the lengths do not agree.
    pub fn new(
        indptr: &'a [P],
        labels: &'a [L],
        weights: &'a [f32],
        intercept: &'a [f32],
        normalize: bool,
    ) -> Result<Self, Error> {
        let same = |what, expected, got| {
            if expected == got {
                Ok(())
            } else {
                Err(Error::Shape {
                    what,
                    expected,
                    got,
                })
            }
        };
        same("values of coef_", labels.len(), weights.len())?;
        same(
            "end of indptr of coef_",
            labels.len(),
            indptr.last().map_or(usize::MAX, |end| end.get()),
        )?;
        Ok(Self {
            indptr,
            labels,
            weights,
            intercept,
            normalize,
        })
    }

    /// Number of features.
    pub fn n_features(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of labels.
    pub fn n_labels(&self) -> usize {
        self.intercept.len()
    }

    /// The `k` best labels of each row with their scores, labels in increasing order; ties go to
    /// the lower label, and labels with intercept −∞ are left out.
    ///
    /// Memory: O(`n_labels`) for each thread beside the result.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if `x` has another number of features, [`Error::Stopped`].
    ///
    /// # Panics
    ///
    /// If the weights name a label or position that does not exist, here as in every method.
    pub fn topk<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        k: usize,
        watch: &Watch,
    ) -> Result<CsrOwned, Error> {
        self.select(
            x,
            watch,
            || TopK::new(k.min(self.n_labels())),
            |best, scores, out| {
                for (first, scores) in (0..).step_by(LANES).zip(scores.chunks(LANES)) {
                    // Sixteen comparisons at once: hardly any label is among the best.
                    let floor = best.floor();
                    if scores
                        .iter()
                        .fold(f32::NEG_INFINITY, |best, &score| best.max(score))
                        > floor
                    {
                        for (label, &score) in (first..).zip(scores) {
                            best.push(label, score);
                        }
                    }
                }
                best.drain_by_label(|label, score| out.push((label, score)));
            },
        )
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
        self.select(
            x,
            watch,
            || (),
            |(), scores, out| {
                let scored = (0..).zip(scores.iter().copied());
                out.extend(scored.filter(|&(_, score)| score > threshold));
            },
        )
    }

    /// All scores, row after row: `n_rows × n_labels` of them.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if that many do not fit in memory's address space, otherwise as
    /// [`topk`](Self::topk).
    pub fn decision<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        watch: &Watch,
    ) -> Result<Vec<f32>, Error> {
        self.check(x)?;
        let too_large = || Error::TooLarge {
            what: "the dense score matrix",
            got: format!("{} x {} scores", x.n_rows(), self.n_labels()),
        };
        let size = x
            .n_rows()
            .checked_mul(self.n_labels())
            .ok_or_else(too_large)?;
        let mut scores = Vec::new();
        scores.try_reserve_exact(size).map_err(|_| too_large())?;
        scores.resize(size, 0.0);
        let n_labels = self.n_labels().max(1);
        let full = self.full_features(x.n_rows());
        let fill = |(at, block): (usize, &mut [f32])| {
            for (i, scores) in block.chunks_mut(n_labels).enumerate() {
                watch.step(0)?;
                self.score(x, at * ROWS_AT_ONCE + i, full.as_ref(), scores);
            }
            Ok(())
        };
        if x.n_rows() <= ROWS_AT_ONCE {
            fill((0, &mut scores))?;
        } else {
            scores
                .par_chunks_mut(ROWS_AT_ONCE * n_labels)
                .enumerate()
                .try_for_each(fill)?;
        }
        Ok(scores)
    }

    /// Scores every row and keeps what `pick` pushes for it.
    fn select<I: Index, T: Value, S>(
        &self,
        x: CsrView<'_, I, T>,
        watch: &Watch,
        state: impl Fn() -> S + Sync,
        pick: impl Fn(&mut S, &[f32], &mut Vec<(u32, f32)>) + Sync,
    ) -> Result<CsrOwned, Error> {
        self.check(x)?;
        let full = self.full_features(x.n_rows());
        let scratch = || (vec![0.0; self.n_labels()], state());
        let block = |(scores, state): &mut (Vec<f32>, S), first: usize| {
            let (mut ends, mut pairs) = (Vec::with_capacity(ROWS_AT_ONCE), Vec::new());
            for i in first..(first + ROWS_AT_ONCE).min(x.n_rows()) {
                watch.step(0)?;
                self.score(x, i, full.as_ref(), scores);
                pick(state, scores, &mut pairs);
                ends.push(pairs.len());
            }
            Ok((ends, pairs))
        };
        let firsts: Vec<usize> = (0..x.n_rows()).step_by(ROWS_AT_ONCE).collect();
        let picked: Vec<Picked> = match firsts[..] {
            [first] => vec![block(&mut scratch(), first)?],
            _ => firsts
                .par_iter()
                .map_init(scratch, |scratch, &first| block(scratch, first))
                .collect::<Result<_, Error>>()?,
        };
        let mut out = CsrOwned {
            indptr: vec![0],
            indices: Vec::new(),
            values: Vec::new(),
            n_cols: self.n_labels(),
        };
        for (ends, pairs) in picked {
            let before = out.indices.len();
            out.indptr.extend(ends.iter().map(|end| before + end));
            out.indices.extend(pairs.iter().map(|&(label, _)| label));
            out.values.extend(pairs.iter().map(|&(_, score)| score));
        }
        Ok(out)
    }

    fn check<I: Index, T: Value>(&self, x: CsrView<'_, I, T>) -> Result<(), Error> {
        if x.n_cols() == self.n_features() {
            return Ok(());
        }
        Err(Error::Shape {
            what: "features of X",
            expected: self.n_features(),
            got: x.n_cols(),
        })
    }

    /// The layout for a batch of so many rows, if it pays.
    fn full_features(&self, n_rows: usize) -> Option<FullFeatures> {
        (n_rows >= FULL_FROM)
            .then(|| FullFeatures::new(self.indptr, self.labels, self.weights, self.n_labels()))
    }

    /// Scores row `at` of `x`.
    fn score<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        at: usize,
        full: Option<&FullFeatures>,
        scores: &mut [f32],
    ) {
        let (unit, norm) = x.row_divisors(at, self.normalize);
        scores.copy_from_slice(self.intercept);
        let (cols, values) = x.row(at);
        for (col, value) in cols.iter().zip(values) {
            let (feature, value) = (col.get(), (value.f64() / unit / norm) as f32);
            if full.is_some_and(|full| full.add(feature, value, scores)) {
                continue;
            }
            let range = self.indptr[feature].get()..self.indptr[feature + 1].get();
            for (label, &weight) in self.labels[range.clone()].iter().zip(&self.weights[range]) {
                scores[label.get()] += value * weight;
            }
        }
    }
}
