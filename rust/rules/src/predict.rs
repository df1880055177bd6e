//! Computes the scores of rows and predictions from these scores. The head of a rule holds one score for each
//! label, or a score for a single label. The scores of a row are the sum of the heads of the rules that cover
//! the row.
//!
//! Rows are scored in blocks of [`ROWS`] rows. For each block, `cover.rs` lists the rules that
//! cover at least one row of the block. Heads with a score for every label are then added
//! [`LABELS_AT_ONCE`] labels at a time, so that the sums stay in the first-level cache. Each head
//! is read once for all rows of the block.
//!
//! Scores are sums in `f64`, added in the order of the rules, starting from 0. Scores depend neither on the
//! number of threads nor on which rows are scored together.
//!
//! - [`Stage`] adds the heads of a range of rules to given scores. It also lists which rules cover which
//!   rows. A caller can apply several stages one after the other, and so obtain the scores after any number
//!   of rules.
//! - [`Ensemble`] implements [`Model`] of the crate `manylabel_score`, for all rules and the label
//!   sets seen in training.
//!
//! The time per row is O(stored values + tested conditions + covering rules · labels).

use crate::cover::{Block, Bodies, Mask, ROWS, bits};
use crate::known::{LabelSets, Search};
use crate::model::Rules;
use manylabel_base::range::same;
use manylabel_base::{Error, Tasks, Watch, filled, push, reserved};
use manylabel_score::{Model, Options, Purpose, Rows, Task, Work};
use manylabel_simd::wide;
use manylabel_sparse::{CsrOwned, CsrView, Features, Index, Picked, Value, with_sparse};
use rayon::prelude::*;
use std::ops::Range;

/// Number of rows that are scored together. A call with at most this number of rows starts no threads.
pub const ROWS_AT_ONCE: usize = ROWS;

/// Number of labels for which sums are updated together. For a block of 64 rows, these sums take 16
/// kB of the first-level cache.
const LABELS_AT_ONCE: usize = 32;

/// Number of sums per cache line.
const SUMS_OF_LINE: usize = 8;

/// Number of heads that are added to the scores of one group of labels. The same heads are then added to the
/// next group of labels. The number is small, so the processor still has the address translations of these
/// heads in its cache.
const HEADS_AT_ONCE: usize = 256;

/// Number of tasks per thread. Several tasks per thread reduce the time that threads wait for the
/// last task.
const TASKS_OF_THREAD: usize = 4;

/// A range of consecutive rules of an ensemble, prepared for scoring.
#[derive(Debug)]
pub struct Stage<'a, I> {
    /// All rules of the ensemble.
    rules: Rules<'a, I>,
    /// The bodies of the rules in the range.
    bodies: Bodies,
}

/// The workspace of one thread.
struct Scratch {
    /// Features of a block of rows, and the rules that cover these rows.
    block: Block,
    /// The sums of heads for a block of rows.
    sums: Sums,
}

/// The sums of heads for a block of rows, row after row.
struct Sums {
    /// The allocation.
    values: Vec<f64>,
    /// Index of the first row. The first row starts at the beginning of a cache line, because access to a
    /// vector in two cache lines takes twice as long.
    start: usize,
    /// Distance between two rows. The distance is an odd number of cache lines, so that different rows are
    /// stored in different sets of the cache. Each row has space for a complete last group of labels.
    stride: usize,
    /// Number of labels.
    n_labels: usize,
}

impl Sums {
    /// Allocates the sums of `n_rows` rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the sums do not fit in memory.
    fn new(n_rows: usize, n_labels: usize) -> Result<Self, Error> {
        let stride = n_labels.next_multiple_of(LABELS_AT_ONCE) + SUMS_OF_LINE;
        let values = filled("a block of scores", 0.0, n_rows * stride + SUMS_OF_LINE)?;
        let start = values
            .as_ptr()
            .align_offset(SUMS_OF_LINE * size_of::<f64>());
        Ok(Self {
            // If memory cannot be aligned, the sums are slower, but the results are the same.
            start: start.min(SUMS_OF_LINE),
            values,
            stride,
            n_labels,
        })
    }

    /// Returns the sums of a row of the block.
    fn row(&self, row: usize) -> &[f64] {
        &self.values[self.start + row * self.stride..][..self.n_labels]
    }

    /// Returns the mutable sums of a row of the block.
    fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[self.start + row * self.stride..][..self.n_labels]
    }
}

impl<'a, I: Index> Stage<'a, I> {
    /// Prepares the rules in `range`. The time is O(conditions of these rules + largest feature number in
    /// these conditions).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if `range` is not a range of existing rules. Returns [`Error::TooLarge`] if
    /// there is not enough memory for one number per feature.
    pub fn new(rules: Rules<'a, I>, range: Range<usize>) -> Result<Self, Error> {
        if range.start > range.end || range.end > rules.n_rules() {
            return Err(Error::Param {
                name: "begin, end",
                expected: "a range within the rules",
                got: format!("{range:?} of {} rules", rules.n_rules()),
            });
        }
        let bodies = Bodies::new(&rules, range)?;
        Ok(Self { rules, bodies })
    }

    /// For each row, adds the heads of the rules that cover the row to the scores of the row. `scores` has
    /// shape `n_rows × n_labels`, row after row. Rows are processed in parallel.
    ///
    /// Applying several stages one after the other gives exactly the same scores as a single stage
    /// with all rules.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if `x` does not have the same number of features as the rules, or if `scores`
    /// does not have `n_rows × n_labels` entries. Returns [`Error::TooLarge`] if there is not enough memory.
    /// Returns [`Error::Stopped`] if the caller requested a stop.
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
                self.add_heads(&scratch.block.fired, &mut scratch.sums, watch)?;
                for (row, out) in out.chunks_mut(n_labels).enumerate() {
                    out.copy_from_slice(scratch.sums.row(row));
                }
                Ok(())
            },
        )
    }

    /// Returns which rules cover which rows, as a sparse matrix with shape (`n_rows`, number of all rules of
    /// the ensemble). The matrix has a 1 in row i and column r if rule r covers row i. Columns of rules
    /// outside the range of this stage are empty.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if `x` does not have the same number of features as the rules. Returns
    /// [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller requested
    /// a stop.
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
                    push("number of rows", &mut picked.ends, size)?;
                }
                picked.pairs = filled("number of pairs of row and rule", (0, 1.0), size)?;
                for &(rule, mask) in fired {
                    for row in bits(mask) {
                        picked.pairs[next[row]].0 = rule;
                        next[row] += 1;
                    }
                }
                Ok(())
            },
        )
    }

    /// Calls `work` for each block of rows with the `per_block` entries of `out` for this block. If there are
    /// several blocks, they are processed in parallel. `state` creates a workspace that `work` reuses from
    /// block to block.
    ///
    /// # Errors
    ///
    /// Returns any error of `work`. Also returns the errors of [`Watch::step`]. Returns [`Error::TooLarge`]
    /// if there is not enough memory.
    fn blocks<J: Index, T: Value, O: Send, S>(
        &self,
        x: CsrView<'_, J, T>,
        out: &mut [O],
        per_block: usize,
        watch: &Watch,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, &mut Scratch, Range<usize>, &mut [O]) -> Result<(), Error> + Sync,
    ) -> Result<(), Error> {
        if out.is_empty() {
            return Ok(());
        }
        let n_blocks = x.n_rows().div_ceil(ROWS);
        let task = |(first, out): (usize, &mut [O])| {
            let mut scratch = self.scratch(x.n_rows().min(ROWS))?;
            let mut state = state();
            let starts = (first * ROWS..).step_by(ROWS);
            for (start, out) in starts.zip(out.chunks_mut(per_block)) {
                watch.step(0)?;
                let rows = start..(start + ROWS).min(x.n_rows());
                work(&mut state, &mut scratch, rows, out)?;
            }
            Ok(())
        };
        if n_blocks == 1 {
            return task((0, out));
        }
        let per_task = n_blocks.div_ceil(TASKS_OF_THREAD * rayon::current_num_threads());
        out.par_chunks_mut(per_task * per_block)
            .enumerate()
            .try_each(|(at, out)| task((at * per_task, out)))
    }

    /// Calls `work` for each block of rows, and concatenates the results to one sparse matrix. `work` appends
    /// columns with values for its rows.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`blocks`](Self::blocks).
    fn select<J: Index, T: Value, S>(
        &self,
        x: CsrView<'_, J, T>,
        n_cols: usize,
        watch: &Watch,
        state: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, &mut Scratch, Range<usize>, &mut Picked) -> Result<(), Error> + Sync,
    ) -> Result<CsrOwned, Error> {
        let n_blocks = x.n_rows().div_ceil(ROWS);
        let mut picked = reserved("number of rows", n_blocks)?;
        picked.resize_with(n_blocks, Picked::default);
        self.blocks(
            x,
            &mut picked,
            1,
            watch,
            state,
            |state, scratch, rows, out| work(state, scratch, rows, &mut out[0]),
        )?;
        Picked::joined(picked, n_cols)
    }

    /// Allocates a workspace for up to `n_rows` rows at a time.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the workspace does not fit in memory.
    fn scratch(&self, n_rows: usize) -> Result<Scratch, Error> {
        Ok(Scratch {
            block: self.bodies.block()?,
            sums: Sums::new(n_rows, self.rules.n_labels())?,
        })
    }

    /// Checks the number of features of X.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if X does not have the number of features of the rules.
    fn check_features<J: Index, T: Value>(&self, x: CsrView<'_, J, T>) -> Result<(), Error> {
        same("features of X", self.rules.n_features(), x.n_cols())
    }

    /// Computes the sums of a block of rows in `scratch`, starting from 0.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Also returns the errors of [`Watch::step`].
    fn score<J: Index, T: Value>(
        &self,
        x: CsrView<'_, J, T>,
        rows: Range<usize>,
        scratch: &mut Scratch,
        watch: &Watch,
    ) -> Result<(), Error> {
        scratch.sums.values.fill(0.0);
        self.bodies.cover(x, rows, &mut scratch.block);
        self.add_heads(&scratch.block.fired, &mut scratch.sums, watch)
    }

    /// Adds the heads of rules to the sums of the covered rows, in the order of the rules.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Also returns the errors of [`Watch::step`].
    fn add_heads(
        &self,
        fired: &[(u32, Mask)],
        sums: &mut Sums,
        watch: &Watch,
    ) -> Result<(), Error> {
        let mut complete = reserved("number of rules", HEADS_AT_ONCE)?;
        for &(rule, mask) in fired {
            let (labels, head) = self.rules.head(rule as usize);
            // The head has one score for every label of the model, in the order of the labels.
            if head.len() == sums.n_labels {
                complete.push((head, mask));
                if complete.len() == HEADS_AT_ONCE {
                    watch.step(0)?;
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
        Ok(())
    }
}

/// Scores rows with all rules of an ensemble, and predicts label sets seen in training.
///
/// The score of a label is the sum of the scores that the covering rules give to the label, rounded to `f32`.
/// Labels that are in none of the label sets have a score of −∞, so they are never ranked or predicted. If
/// label sets are predicted, a [`Predictor`] chooses the label set of a row, and the labels of this set have
/// positive scores. With [`Predictor::KnownSets`], these scores are 1, and the scores of all other labels are −1.
/// With [`Predictor::Above`], the bound is subtracted from the scores.
///
/// The probability of a label set y is proportional to `1 / (1 + Σ_k e^{−y_k p_k})`. Here p are the
/// scores of the row, and `y_k` is 1 for the labels in the set and −1 for all other labels.
#[derive(Debug)]
pub struct Ensemble<'a, I> {
    /// All rules.
    rules: Stage<'a, I>,
    /// The label sets of the training rows.
    sets: LabelSets,
    /// How label sets are predicted.
    predictor: Predictor,
}

/// Chooses the label set of a row from the scores of the row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Predictor {
    /// The known label set with the smallest example-wise loss, which includes the weights of the label sets
    /// (see [`LabelSets::with_weights`]). If several sets have the smallest loss, the first of these sets is
    /// predicted.
    KnownSets,
    /// The labels with scores above `bound`. If `best` is true, the label with the highest score is always
    /// predicted. If several labels have the highest score, this is the first of these labels.
    Above {
        /// The bound.
        bound: f32,
        /// True if the label with the highest score is always predicted.
        best: bool,
    },
}

impl<'a, I: Index> Ensemble<'a, I> {
    /// Prepares rules and label sets.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the label sets and the rules do not have the same number of labels.
    /// Returns [`Error::TooLarge`] if there is not enough memory for one number per feature.
    pub fn new(rules: Rules<'a, I>, sets: LabelSets, predictor: Predictor) -> Result<Self, Error> {
        same("labels of label_sets_", rules.n_labels(), sets.n_labels())?;
        Ok(Self {
            rules: Stage::new(rules, 0..rules.n_rules())?,
            sets,
            predictor,
        })
    }
}

impl<I: Index> Model for Ensemble<'_, I> {
    fn n_labels(&self) -> usize {
        self.sets.n_labels()
    }

    fn n_features(&self) -> usize {
        self.rules.rules.n_features()
    }

    /// Prepares rows for scoring.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if label sets or probabilities are requested and there is no label set.
    fn rows<'a>(&'a self, x: Features<'a>, options: Options) -> Result<Box<dyn Rows + 'a>, Error> {
        let predictor = (options.purpose == Purpose::Labels).then_some(self.predictor);
        if predictor == Some(Predictor::KnownSets) || options.purpose == Purpose::Probabilities {
            self.sets.check_any()?;
        }
        Ok(with_sparse!(x.sparse()?, |x| Box::new(Batch {
            ensemble: self,
            predictor,
            x,
        })))
    }

    fn is_quick(&self, n_rows: usize) -> bool {
        n_rows <= ROWS
    }
}

/// Rows of X to be scored by an ensemble.
struct Batch<'a, I, J, T> {
    /// The model.
    ensemble: &'a Ensemble<'a, I>,
    /// How label sets are predicted. `None` if scores are wanted.
    predictor: Option<Predictor>,
    /// The rows.
    x: CsrView<'a, J, T>,
}

impl<I: Index, J: Index, T: Value> Batch<'_, I, J, T> {
    /// Computes the sums of some rows in the workspace of a thread. The workspace is allocated at the first
    /// use. Also returns the workspace for the search for label sets.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Also returns the errors of [`Watch::step`].
    fn sums<'w>(
        &self,
        rows: Range<usize>,
        work: &'w mut Work,
        watch: &Watch,
    ) -> Result<(&'w Sums, &'w mut Search), Error> {
        let rules = &self.ensemble.rules;
        let n_rows = self.x.n_rows().min(ROWS);
        let room = || {
            let search = Search::new(self.ensemble.sets.n_labels())?;
            Ok((rules.scratch(n_rows)?, search))
        };
        let (scratch, search) = work.room(room)?;
        rules.score(self.x, rows, scratch, watch)?;
        Ok((&scratch.sums, search))
    }
}

impl<I: Index, J: Index, T: Value> Rows for Batch<'_, I, J, T> {
    fn n_labels(&self) -> usize {
        self.ensemble.sets.n_labels()
    }

    fn at_once(&self) -> usize {
        ROWS
    }

    fn score(&self, rows: Range<usize>, scores: &mut [f32], task: &mut Task) -> Result<(), Error> {
        let sets = &self.ensemble.sets;
        let (sums, search) = self.sums(rows, task.work, task.watch)?;
        for (row, out) in scores.chunks_mut(sums.n_labels.max(1)).enumerate() {
            match self.predictor {
                Some(Predictor::KnownSets) => {
                    task.watch.step(0)?;
                    out.fill(-1.0);
                    for &label in sets.nearest(sums.row(row), search) {
                        out[label as usize] = 1.0;
                    }
                }
                Some(Predictor::Above { bound, best }) => {
                    round(sums.row(row), sets, out);
                    subtract(bound, best, out);
                }
                None => round(sums.row(row), sets, out),
            }
        }
        Ok(())
    }

    fn marginals(&self, rows: Range<usize>, out: &mut [f64], task: &mut Task) -> Result<(), Error> {
        let sets = &self.ensemble.sets;
        let (sums, search) = self.sums(rows, task.work, task.watch)?;
        for (row, out) in out.chunks_mut(sums.n_labels.max(1)).enumerate() {
            task.watch.step(0)?;
            sets.marginals(sums.row(row), search, out);
        }
        Ok(())
    }
}

/// Writes the final scores of one row. A score is the sum rounded to `f32`, or −∞ for a label that is in none
/// of the label sets.
fn round(sums: &[f64], sets: &LabelSets, scores: &mut [f32]) {
    for (score, &sum) in scores.iter_mut().zip(sums) {
        *score = sum as f32;
    }
    for &label in sets.absent() {
        scores[label as usize] = f32::NEG_INFINITY;
    }
}

/// Subtracts `bound` from the scores of a row, so that [`Predictor::Above`] predicts the labels with positive
/// numbers. If `best` is true, the first label with the highest score also gets a positive number, unless all
/// scores are −∞.
fn subtract(bound: f32, best: bool, scores: &mut [f32]) {
    // Different scores can be equal after the subtraction, so the best label is found first.
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let first = scores.iter().position(|&score| score == most);
    for score in &mut *scores {
        *score -= bound;
    }
    if let Some(first) = first.filter(|_| best && most > f32::NEG_INFINITY) {
        scores[first] = scores[first].max(f32::MIN_POSITIVE);
    }
}

/// Adds heads with a score for every label to the sums of the covered rows, in the order of the
/// rules. The labels are processed in groups, one group after the other.
#[wide]
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

/// Adds the scores of up to `N` labels, starting at label `first`.
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
