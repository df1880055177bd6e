//! From scores to rankings: the best labels of each row, those above a bound, or all scores,
//! whatever computes them.

use crate::panel::LANES;
use manylabel_base::{Error, Watch};
use manylabel_sparse::{CsrOwned, Picked, TopK};
use rayon::prelude::*;
use std::ops::Range;

/// Rows one thread scores between two looks at the watch; so few need no threads at all.
pub const ROWS_AT_ONCE: usize = 32;

/// A batch of rows that can be scored.
pub(crate) trait Scores: Sync {
    /// Number of rows.
    fn n_rows(&self) -> usize;

    /// Number of labels.
    fn n_labels(&self) -> usize;

    /// Most rows to ask for at once, from 1 to [`ROWS_AT_ONCE`].
    fn rows_at_once(&self) -> usize;

    /// Writes the scores of some rows, row after row. They do not depend on which rows are asked
    /// for together.
    fn score(&self, rows: Range<usize>, scores: &mut [f32]);
}

/// The `k` best labels of each row in increasing order; ties go to the lower label, and scores of
/// −∞ are left out.
pub(crate) fn topk(rows: &impl Scores, k: usize, watch: &Watch) -> Result<CsrOwned, Error> {
    select(
        rows,
        watch,
        || TopK::new(k.min(rows.n_labels())),
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

/// The labels of each row whose scores exceed `threshold`, in increasing order.
pub(crate) fn above(rows: &impl Scores, threshold: f32, watch: &Watch) -> Result<CsrOwned, Error> {
    select(
        rows,
        watch,
        || (),
        |(), scores, out| {
            let scored = (0..).zip(scores.iter().copied());
            out.extend(scored.filter(|&(_, score)| score > threshold));
        },
    )
}

/// All scores, row after row.
pub(crate) fn decision(rows: &impl Scores, watch: &Watch) -> Result<Vec<f32>, Error> {
    let too_large = || Error::TooLarge {
        what: "the dense score matrix",
        got: format!("{} x {} scores", rows.n_rows(), rows.n_labels()),
    };
    let size = rows
        .n_rows()
        .checked_mul(rows.n_labels())
        .ok_or_else(too_large)?;
    let mut scores = Vec::new();
    scores.try_reserve_exact(size).map_err(|_| too_large())?;
    scores.resize(size, 0.0);
    let at_once = rows.rows_at_once();
    let n_labels = rows.n_labels().max(1);
    let fill = |(at, scores): (usize, &mut [f32])| {
        watch.step(0)?;
        let first = at * at_once;
        rows.score(first..first + scores.len() / n_labels, scores);
        Ok(())
    };
    let block = at_once * n_labels;
    if rows.n_rows() <= ROWS_AT_ONCE {
        scores.chunks_mut(block).enumerate().try_for_each(fill)?;
    } else {
        scores
            .par_chunks_mut(block)
            .enumerate()
            .try_for_each(fill)?;
    }
    Ok(scores)
}

/// Scores every row and keeps what `pick` pushes for it.
fn select<R: Scores, S>(
    rows: &R,
    watch: &Watch,
    state: impl Fn() -> S + Sync,
    pick: impl Fn(&mut S, &[f32], &mut Vec<(u32, f32)>) + Sync,
) -> Result<CsrOwned, Error> {
    let (n_rows, n_labels, at_once) = (rows.n_rows(), rows.n_labels(), rows.rows_at_once());
    let scratch = || (vec![0.0; at_once.min(n_rows) * n_labels], state());
    Picked::by_blocks(
        n_rows,
        ROWS_AT_ONCE,
        n_labels,
        scratch,
        |(scores, state), of_block, picked| {
            for first in of_block.clone().step_by(at_once) {
                watch.step(0)?;
                let some = first..(first + at_once).min(of_block.end);
                let scores = &mut scores[..some.len() * n_labels];
                rows.score(some.clone(), scores);
                for row in 0..some.len() {
                    let scores = &scores[row * n_labels..][..n_labels];
                    pick(state, scores, &mut picked.pairs);
                    picked.end_row();
                }
            }
            Ok(())
        },
    )
}
