//! From scores to rankings: the best labels of each row, those above a bound, or all scores,
//! whatever computes them.

use crate::panel::LANES;
use manylabel_base::{Error, Watch};
use manylabel_sparse::{CsrOwned, TopK};
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

/// What a block of rows picked: the ends of its rows, their labels with scores.
type Picked = (Vec<usize>, Vec<(u32, f32)>);

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
    let block = |(scores, state): &mut (Vec<f32>, S), first: usize| {
        let (mut ends, mut pairs) = (Vec::with_capacity(ROWS_AT_ONCE), Vec::new());
        let end = (first + ROWS_AT_ONCE).min(n_rows);
        for first in (first..end).step_by(at_once) {
            watch.step(0)?;
            let some = first..(first + at_once).min(end);
            let scores = &mut scores[..some.len() * n_labels];
            rows.score(some.clone(), scores);
            for row in 0..some.len() {
                pick(state, &scores[row * n_labels..][..n_labels], &mut pairs);
                ends.push(pairs.len());
            }
        }
        Ok((ends, pairs))
    };
    let firsts: Vec<usize> = (0..n_rows).step_by(ROWS_AT_ONCE).collect();
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
        n_cols: n_labels,
    };
    for (ends, pairs) in picked {
        let before = out.indices.len();
        out.indptr.extend(ends.iter().map(|end| before + end));
        out.indices.extend(pairs.iter().map(|&(label, _)| label));
        out.values.extend(pairs.iter().map(|&(_, score)| score));
    }
    Ok(out)
}
