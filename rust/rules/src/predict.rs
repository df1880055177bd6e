//! Scores of rows: sums of the heads of the rules that cover them, and what follows from them.
//!
//! A block of sixty-four rows meets each rule once. The heads it gathers are then added a few
//! labels at a time, so that the sums being added to stay in the nearest cache while the heads pass
//! by, each read once for all rows of the block. The sums run over the rules in order, in `f64`,
//! whichever rows share the block: results depend on neither threads nor company.

use crate::cover::{Block, Bodies, Mask, ROWS, bits};
use crate::known::{LabelSets, Search};
use crate::model::{Rules, same};
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::{CsrOwned, CsrView, Index, Picked, TopK, Value};
use multiversion::multiversion;
use rayon::prelude::*;
use std::ops::Range;

/// Rows that meet the rules together; so few need no threads at all.
pub const ROWS_AT_ONCE: usize = ROWS;

/// Labels whose sums are added to together: for a block of rows they fill a third of a usual
/// first-level cache.
const LABELS_AT_ONCE: usize = 32;

/// Sums in a cache line.
const LINE: usize = 8;

/// Heads that are walked along together: few enough that their pages stay known to the processor
/// from one group of labels to the next.
const HEADS_AT_ONCE: usize = 256;

/// Tasks for each thread: enough that none waits long for the last.
const TASKS: usize = 4;

/// Scores rows by rules of an ensemble, all of them or some that follow one another.
#[derive(Debug)]
pub struct Scorer<'a, I> {
    rules: Rules<'a, I>,
    bodies: Bodies,
}

/// What one thread works in.
struct Scratch {
    block: Block,
    sums: Sums,
}

/// The sums of a block of rows, row after row.
struct Sums {
    values: Vec<f64>,
    /// Where the first row starts: at a cache line, since a vector across two costs twice.
    start: usize,
    /// From one row to the next. An odd number of cache lines, so that a few labels of all rows
    /// do not fall upon one another in the cache; with room for a whole last group of labels.
    stride: usize,
    n_labels: usize,
}

impl Sums {
    /// # Errors
    ///
    /// [`Error::TooLarge`] if they do not fit in memory.
    fn new(n_rows: usize, n_labels: usize) -> Result<Self, Error> {
        let stride = n_labels.next_multiple_of(LABELS_AT_ONCE) + LINE;
        let values = filled("a block of scores", 0.0, n_rows * stride + LINE)?;
        let start = values.as_ptr().align_offset(LINE * size_of::<f64>());
        Ok(Self {
            // Where memory cannot be aligned, the sums are only slower.
            start: start.min(LINE),
            values,
            stride,
            n_labels,
        })
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.values[self.start + row * self.stride..][..self.n_labels]
    }

    fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[self.start + row * self.stride..][..self.n_labels]
    }
}

impl<'a, I: Index> Scorer<'a, I> {
    /// Scores by the rules in `range`.
    ///
    /// Takes O(conditions of these rules + the largest feature they name).
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if `range` does not lie within the rules, [`Error::TooLarge`] if a number
    /// for each feature does not fit in memory.
    pub fn new(rules: Rules<'a, I>, range: Range<usize>) -> Result<Self, Error> {
        if range.start > range.end || range.end > rules.n_rules() {
            return Err(Error::Param {
                name: "begin, end",
                expected: "a range of the rules",
                got: format!("{range:?} of {} rules", rules.n_rules()),
            });
        }
        let bodies = Bodies::new(&rules, range)?;
        Ok(Self { rules, bodies })
    }

    /// All scores, row after row: `n_rows × n_labels` of them, each the nearest `f32` of its sum;
    /// −∞ for the labels that are in none of the `sets`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if `x` has another number of features or the sets have another number of
    /// labels, [`Error::TooLarge`] if the scores do not fit in memory, [`Error::Stopped`].
    pub fn decision<J: Index, T: Value>(
        &self,
        x: CsrView<'_, J, T>,
        sets: &LabelSets,
        watch: &Watch,
    ) -> Result<Vec<f32>, Error> {
        self.check(x, sets)?;
        let n_labels = self.rules.n_labels();
        let mut scores = matrix(x.n_rows(), n_labels, 0.0f32)?;
        let state = || ();
        self.blocks(
            x,
            &mut scores,
            ROWS * n_labels,
            watch,
            state,
            |(), scratch, rows, out| {
                self.score(x, rows, scratch);
                for (row, out) in out.chunks_mut(n_labels).enumerate() {
                    round(scratch.sums.row(row), sets, out);
                }
            },
        )?;
        Ok(scores)
    }

    /// The `k` best labels of each row with their scores, labels in increasing order; ties go to
    /// the lower label, and labels that are in none of the `sets` are left out.
    ///
    /// # Errors
    ///
    /// As [`decision`](Self::decision).
    pub fn topk<J: Index, T: Value>(
        &self,
        x: CsrView<'_, J, T>,
        k: usize,
        sets: &LabelSets,
        watch: &Watch,
    ) -> Result<CsrOwned, Error> {
        self.check(x, sets)?;
        let n_labels = self.rules.n_labels();
        let state = || (TopK::new(k.min(n_labels)), vec![0.0; n_labels]);
        self.select(
            x,
            n_labels,
            watch,
            state,
            |(best, scores), scratch, rows, picked| {
                self.score(x, rows.clone(), scratch);
                for row in 0..rows.len() {
                    round(scratch.sums.row(row), sets, scores);
                    for (label, &score) in (0..).zip(&*scores) {
                        best.push(label, score);
                    }
                    best.drain_by_label(|label, score| picked.pairs.push((label, score)));
                    picked.end_row();
                }
            },
        )
    }

    /// The labels of each row whose scores exceed 0, with these scores, in increasing order of
    /// label; labels that are in none of the `sets` are left out.
    ///
    /// # Errors
    ///
    /// As [`decision`](Self::decision).
    pub fn above<J: Index, T: Value>(
        &self,
        x: CsrView<'_, J, T>,
        sets: &LabelSets,
        watch: &Watch,
    ) -> Result<CsrOwned, Error> {
        self.check(x, sets)?;
        let n_labels = self.rules.n_labels();
        let state = || vec![0.0; n_labels];
        self.select(
            x,
            n_labels,
            watch,
            state,
            |scores, scratch, rows, picked| {
                self.score(x, rows.clone(), scratch);
                for row in 0..rows.len() {
                    round(scratch.sums.row(row), sets, scores);
                    let scored = (0..).zip(scores.iter().copied());
                    let positive = scored.filter(|&(_, score)| score > 0.0);
                    picked.pairs.extend(positive);
                    picked.end_row();
                }
            },
        )
    }

    /// The number of the set that has the least example-wise loss at the sums of each row, the
    /// first of several.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if there are no sets, otherwise as [`decision`](Self::decision).
    pub fn known<J: Index, T: Value>(
        &self,
        x: CsrView<'_, J, T>,
        sets: &LabelSets,
        watch: &Watch,
    ) -> Result<Vec<i64>, Error> {
        self.check(x, sets)?;
        sets.check_any()?;
        let mut nearest = matrix(x.n_rows(), 1, 0i64)?;
        self.blocks(
            x,
            &mut nearest,
            ROWS,
            watch,
            Search::default,
            |search, scratch, rows, out| {
                self.score(x, rows, scratch);
                for (row, out) in out.iter_mut().enumerate() {
                    *out = sets.nearest(scratch.sums.row(row), search) as i64;
                }
            },
        )?;
        Ok(nearest)
    }

    /// The probability of each label, row after row, where that of a label set y is proportional
    /// to `1 / (1 + Σ_k e^{−y_k p_k})` at the sums p of the row; 0 for labels in no set.
    ///
    /// # Errors
    ///
    /// As [`known`](Self::known).
    pub fn marginals<J: Index, T: Value>(
        &self,
        x: CsrView<'_, J, T>,
        sets: &LabelSets,
        watch: &Watch,
    ) -> Result<Vec<f64>, Error> {
        self.check(x, sets)?;
        sets.check_any()?;
        let n_labels = self.rules.n_labels();
        let mut marginals = matrix(x.n_rows(), n_labels, 0.0f64)?;
        self.blocks(
            x,
            &mut marginals,
            ROWS * n_labels,
            watch,
            Search::default,
            |search, scratch, rows, out| {
                self.score(x, rows, scratch);
                for (row, out) in out.chunks_mut(n_labels).enumerate() {
                    sets.marginals(scratch.sums.row(row), search, out);
                }
            },
        )?;
        Ok(marginals)
    }

    /// Adds the heads of the rules that cover a row to its scores; `scores` are `n_rows × n_labels`,
    /// row after row. The scores of one stage after the other are, bit for bit, those of all.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if `x` has another number of features or there are not as many scores,
    /// [`Error::Stopped`].
    pub fn add<J: Index, T: Value>(
        &self,
        x: CsrView<'_, J, T>,
        scores: &mut [f64],
        watch: &Watch,
    ) -> Result<(), Error> {
        self.check_features(x)?;
        let n_labels = self.rules.n_labels();
        let wanted = x.n_rows().saturating_mul(n_labels);
        same("size of scores", wanted, scores.len())?;
        let state = || ();
        self.blocks(
            x,
            scores,
            ROWS * n_labels,
            watch,
            state,
            |(), scratch, rows, out| {
                for (row, out) in out.chunks(n_labels).enumerate() {
                    scratch.sums.row_mut(row).copy_from_slice(out);
                }
                self.bodies.cover(x, rows, &mut scratch.block);
                self.add_heads(&scratch.block.fired, &mut scratch.sums);
                for (row, out) in out.chunks_mut(n_labels).enumerate() {
                    out.copy_from_slice(scratch.sums.row(row));
                }
            },
        )
    }

    /// Which rules cover which rows: a matrix (`n_rows`, number of all rules) of ones.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if `x` has another number of features, [`Error::Stopped`].
    pub fn fired<J: Index, T: Value>(
        &self,
        x: CsrView<'_, J, T>,
        watch: &Watch,
    ) -> Result<CsrOwned, Error> {
        self.check_features(x)?;
        let state = || ();
        self.select(
            x,
            self.rules.n_rules(),
            watch,
            state,
            |(), scratch, rows, picked| {
                let n_rows = rows.len();
                self.bodies.cover(x, rows, &mut scratch.block);
                let fired = &scratch.block.fired;
                let mut next = [0; ROWS];
                for row in fired.iter().flat_map(|&(_, mask)| bits(mask)) {
                    next[row] += 1;
                }
                let mut size = 0;
                for next in &mut next[..n_rows] {
                    size += std::mem::replace(next, size);
                    picked.ends.push(size);
                }
                picked.pairs.resize(size, (0, 1.0));
                for &(rule, mask) in fired {
                    for row in bits(mask) {
                        picked.pairs[next[row]].0 = rule;
                        next[row] += 1;
                    }
                }
            },
        )
    }

    /// Lets every block of rows fill its `per_block` places of `out`.
    fn blocks<J: Index, T: Value, O: Send, S>(
        &self,
        x: CsrView<'_, J, T>,
        out: &mut [O],
        per_block: usize,
        watch: &Watch,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, &mut Scratch, Range<usize>, &mut [O]) + Sync,
    ) -> Result<(), Error> {
        if out.is_empty() {
            return Ok(());
        }
        let n_blocks = x.n_rows().div_ceil(ROWS);
        let task = |(first, out): (usize, &mut [O])| {
            let mut scratch = Scratch {
                block: self.bodies.block()?,
                sums: Sums::new(x.n_rows().min(ROWS), self.rules.n_labels())?,
            };
            let mut state = state();
            let starts = (first * ROWS..).step_by(ROWS);
            for (start, out) in starts.zip(out.chunks_mut(per_block)) {
                watch.step(0)?;
                let rows = start..(start + ROWS).min(x.n_rows());
                work(&mut state, &mut scratch, rows, out);
            }
            Ok(())
        };
        if n_blocks == 1 {
            return task((0, out));
        }
        let per_task = n_blocks.div_ceil(TASKS * rayon::current_num_threads());
        out.par_chunks_mut(per_task * per_block)
            .enumerate()
            .try_for_each(|(at, out)| task((at * per_task, out)))
    }

    /// Lets every block of rows pick columns with values, rows in order.
    fn select<J: Index, T: Value, S>(
        &self,
        x: CsrView<'_, J, T>,
        n_cols: usize,
        watch: &Watch,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, &mut Scratch, Range<usize>, &mut Picked) + Sync,
    ) -> Result<CsrOwned, Error> {
        let mut picked = vec![Picked::default(); x.n_rows().div_ceil(ROWS)];
        self.blocks(
            x,
            &mut picked,
            1,
            watch,
            state,
            |state, scratch, rows, out| work(state, scratch, rows, &mut out[0]),
        )?;
        Ok(Picked::joined(picked, n_cols))
    }

    fn check<J: Index, T: Value>(
        &self,
        x: CsrView<'_, J, T>,
        sets: &LabelSets,
    ) -> Result<(), Error> {
        self.check_features(x)?;
        let what = "labels of label_sets_";
        same(what, self.rules.n_labels(), sets.n_labels())
    }

    fn check_features<J: Index, T: Value>(&self, x: CsrView<'_, J, T>) -> Result<(), Error> {
        same("features of X", self.rules.n_features(), x.n_cols())
    }

    /// Sums of a block of rows from zero.
    fn score<J: Index, T: Value>(
        &self,
        x: CsrView<'_, J, T>,
        rows: Range<usize>,
        scratch: &mut Scratch,
    ) {
        scratch.sums.values.fill(0.0);
        self.bodies.cover(x, rows, &mut scratch.block);
        self.add_heads(&scratch.block.fired, &mut scratch.sums);
    }

    /// Adds the heads of rules to the rows they cover, in order.
    fn add_heads(&self, fired: &[(u32, Mask)], sums: &mut Sums) {
        let mut complete = Vec::with_capacity(HEADS_AT_ONCE);
        for &(rule, mask) in fired {
            let (labels, head) = self.rules.head(rule as usize);
            // As many different labels as there are: all of them, in order.
            if head.len() == sums.n_labels {
                complete.push((head, mask));
                if complete.len() == HEADS_AT_ONCE {
                    add_complete(&complete, sums);
                    complete.clear();
                }
                continue;
            }
            add_complete(&complete, sums);
            complete.clear();
            for row in bits(mask) {
                let sums = sums.row_mut(row);
                for (label, &score) in labels.iter().zip(head) {
                    sums[label.get()] += f64::from(score);
                }
            }
        }
        add_complete(&complete, sums);
    }
}

/// `n_rows × n_cols` values.
fn matrix<V: Clone>(n_rows: usize, n_cols: usize, value: V) -> Result<Vec<V>, Error> {
    let what = "the dense result";
    let size = n_rows.checked_mul(n_cols).ok_or_else(|| Error::TooLarge {
        what,
        got: format!("{n_rows} x {n_cols} entries"),
    })?;
    filled(what, value, size)
}

/// The scores of one row as they are handed out.
fn round(sums: &[f64], sets: &LabelSets, scores: &mut [f32]) {
    for (score, &sum) in scores.iter_mut().zip(sums) {
        *score = sum as f32;
    }
    for &label in sets.absent() {
        scores[label as usize] = f32::NEG_INFINITY;
    }
}

/// Adds heads that score every label to the rows they cover, in order.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn add_complete(heads: &[(&[f32], Mask)], sums: &mut Sums) {
    if heads.is_empty() {
        return;
    }
    let mut first = 0;
    while first < sums.n_labels {
        match sums.n_labels - first {
            1..=8 => add_labels::<8>(heads, first, sums),
            9..=16 => add_labels::<16>(heads, first, sums),
            _ => add_labels::<LABELS_AT_ONCE>(heads, first, sums),
        }
        first += LABELS_AT_ONCE;
    }
}

/// Adds the scores of up to `N` labels from `first` on.
#[inline(always)]
fn add_labels<const N: usize>(heads: &[(&[f32], Mask)], first: usize, sums: &mut Sums) {
    for &(head, mask) in heads {
        let mut add = [0.0; N];
        for (add, &score) in add.iter_mut().zip(&head[first..]) {
            *add = f64::from(score);
        }
        for row in bits(mask) {
            let at = sums.start + row * sums.stride + first;
            if let Some(sums) = sums.values[at..].first_chunk_mut::<N>() {
                for label in 0..N {
                    sums[label] += add[label];
                }
            }
        }
    }
}
