//! Computes scores, gradients and line searches for a group of labels over all rows.
//!
//! The rows are divided into chunks, which threads process in parallel. For each pair of row and label, a chunk
//! stores the score, and the change of the score along the search direction. All pairs are treated as negative,
//! so that the loops over rows have no branches. Positive pairs are stored in a list of their own. In the array
//! of scores, positive and unknown pairs have [`UNKNOWN_SCORE`], which steps do not change, so they have no loss
//! there.

use super::Problem;
use crate::dismec::targets::{Factors, UNKNOWN_SCORE};
use faer::{Accum, MatMut, MatRef};
use manylabel_base::{Error, Tasks, Watch, filled, parts, push};
use manylabel_dense::matmul;
use manylabel_simd::wide;
use rayon::prelude::*;
use std::ops::Range;

/// The number of labels that one SIMD loop processes together. The number of columns of a group is a multiple.
pub(super) const LANES: usize = 16;

/// The largest number of labels of a group. Matrix products with more columns are hardly faster.
pub(super) const MOST_LABELS: usize = 64;

/// The scores of a group take at most this many bytes, or this share of X in single precision, unless the group
/// has only [`LANES`] labels.
const MOST_BYTES: usize = 16 << 20;
const MOST_SHARE: f64 = 0.15;

/// Number of rows of a matrix product. A block of 256 rows with a thousand features fits in the second-level
/// cache.
const ROWS: usize = 256;

/// Number of chunks of rows. It is also the largest number of threads that a group uses. Each chunk has its own
/// gradient.
const CHUNKS: usize = 16;

/// Number of rows whose terms are summed in single precision before the sum is added in double precision.
const STRETCH: usize = 64;

/// Returns the number of labels of a group.
pub(super) fn size(n_rows: usize, dim: usize) -> usize {
    let bytes_per_label = 2 * size_of::<f32>() * n_rows.max(1);
    let by_share = MOST_SHARE * dim as f64 / 2.0;
    let most = (MOST_BYTES / bytes_per_label).max(by_share as usize);
    (most / LANES * LANES).clamp(LANES, MOST_LABELS)
}

/// A positive pair of row and label.
struct Positive {
    /// The row, counted from the first row of the chunk.
    row: u32,
    lane: u32,
    score: f32,
    along: f32,
}

/// Some of the rows.
struct Chunk {
    rows: Range<usize>,
    /// The score of each pair; shape (rows, width).
    scores: Vec<f32>,
    /// The change of each score along the search direction; shape (rows, width).
    along: Vec<f32>,
    /// Positive pairs, in the order of the rows.
    positives: Vec<Positive>,
    /// Unknown pairs: the row, counted from the first row of the chunk, and the lane.
    unknown: Vec<(u32, u32)>,
    /// The gradient of the loss; shape (dim, width).
    gradient: Vec<f32>,
    /// The cost of the rows with a loss, for each lane.
    active: Vec<f64>,
}

/// The state of a group of labels. Each label has a lane, which is a column of all matrices.
pub(super) struct Group {
    pub(super) labels: Vec<u32>,
    /// The number of columns: the number of labels, rounded up.
    pub(super) width: usize,
    /// The weights; shape (dim, width).
    pub(super) weights: Vec<f32>,
    /// The gradient of the objective; shape (dim, width).
    pub(super) gradient: Vec<f32>,
    /// The search direction; shape (dim, width).
    pub(super) direction: Vec<f32>,
    /// The factors of the costs of negative and positive rows, for each lane. Lanes without a label have 0.
    factors: (Vec<f32>, Vec<f32>),
    chunks: Vec<Chunk>,
}

impl Group {
    /// Allocates the state of a group. All weights are 0.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(super) fn new(problem: &Problem<'_>, labels: Vec<u32>) -> Result<Self, Error> {
        let (n_rows, dim) = (problem.rows.n_rows(), problem.rows.dim());
        let width = labels.len().next_multiple_of(LANES);
        let by_feature = || filled("number of weights", 0.0, dim * width);
        let rows_of_chunk = n_rows.div_ceil(CHUNKS).next_multiple_of(ROWS);
        // Each thread allocates some of the chunks. With glibc, a thread has its own heap, and this heap has the free
        // memory of the starts of labels.
        let chunk = |at: usize| {
            let first = at * rows_of_chunk;
            let rows = first..(first + rows_of_chunk).min(n_rows);
            let by_row = || filled("number of scores", 0.0, rows.len() * width);
            Ok(Chunk {
                scores: by_row()?,
                along: by_row()?,
                positives: Vec::new(),
                unknown: Vec::new(),
                gradient: by_feature()?,
                active: filled("number of labels", 0.0, width)?,
                rows,
            })
        };
        let n_chunks = n_rows.div_ceil(rows_of_chunk.max(1));
        let mut chunks = parts((0..n_chunks).into_par_iter().map(chunk))?;
        let mut factors = (
            filled("number of labels", 0.0, width)?,
            filled("number of labels", 0.0, width)?,
        );
        for (lane, &label) in labels.iter().enumerate() {
            let Factors { positive, negative } = problem.outputs.factors(label);
            (factors.0[lane], factors.1[lane]) = (negative, positive);
            for &row in problem.outputs.positives(label) {
                let chunk = &mut chunks[row as usize / rows_of_chunk];
                let positive = Positive {
                    row: row - chunk.rows.start as u32,
                    lane: lane as u32,
                    score: 0.0,
                    along: 0.0,
                };
                push("number of labels of rows", &mut chunk.positives, positive)?;
            }
            for &row in problem.outputs.unknown(label) {
                let chunk = &mut chunks[row as usize / rows_of_chunk];
                let pair = (row - chunk.rows.start as u32, lane as u32);
                push("number of unknown labels", &mut chunk.unknown, pair)?;
            }
        }
        for chunk in &mut chunks {
            chunk
                .positives
                .sort_unstable_by_key(|pair| (pair.row, pair.lane));
            chunk.unknown.sort_unstable();
        }
        Ok(Self {
            labels,
            width,
            weights: by_feature()?,
            gradient: by_feature()?,
            direction: by_feature()?,
            factors,
            chunks,
        })
    }

    /// Removes the labels for which `is_kept` is false. The other labels keep their order.
    pub(super) fn narrow(&mut self, is_kept: &[bool]) {
        let width = self.width;
        let n_kept = is_kept.iter().filter(|&&is_kept| is_kept).count();
        self.width = n_kept.next_multiple_of(LANES);
        for matrix in [&mut self.weights, &mut self.gradient, &mut self.direction] {
            narrow_columns(matrix, width, is_kept);
        }
        for factors in [&mut self.factors.0, &mut self.factors.1] {
            narrow_columns(factors, width, is_kept);
        }
        let mut kept = is_kept.iter();
        self.labels
            .retain(|_| kept.next().copied().unwrap_or(false));
        // The new lane of a label is the number of labels before it that are kept.
        let lane = |lane: u32| {
            is_kept[..lane as usize]
                .iter()
                .map(|&is_kept| u32::from(is_kept))
                .sum()
        };
        self.chunks.par_iter_mut().for_each(|chunk| {
            for matrix in [&mut chunk.scores, &mut chunk.along, &mut chunk.gradient] {
                narrow_columns(matrix, width, is_kept);
            }
            chunk.active.truncate(self.width);
            chunk.positives.retain(|pair| is_kept[pair.lane as usize]);
            chunk.unknown.retain(|&(_, lane)| is_kept[lane as usize]);
            for pair in &mut chunk.positives {
                pair.lane = lane(pair.lane);
            }
            for (_, of_pair) in &mut chunk.unknown {
                *of_pair = lane(*of_pair);
            }
        });
    }

    /// Computes the scores of all rows from the weights.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory, or [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(super) fn score(&mut self, problem: &Problem<'_>, watch: &Watch) -> Result<(), Error> {
        let (weights, width) = (&self.weights, self.width);
        self.chunks.par_iter_mut().try_each(|chunk| {
            product(
                problem,
                chunk.rows.clone(),
                weights,
                &mut chunk.scores,
                watch,
            )?;
            for pair in &mut chunk.positives {
                let at = pair.row as usize * width + pair.lane as usize;
                pair.score = std::mem::replace(&mut chunk.scores[at], UNKNOWN_SCORE);
            }
            for &(row, lane) in &chunk.unknown {
                chunk.scores[row as usize * width + lane as usize] = UNKNOWN_SCORE;
            }
            Ok(())
        })
    }

    /// Computes the changes of all scores along the search direction.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`score`](Self::score).
    pub(super) fn turn(&mut self, problem: &Problem<'_>, watch: &Watch) -> Result<(), Error> {
        let (direction, width) = (&self.direction, self.width);
        self.chunks.par_iter_mut().try_each(|chunk| {
            product(
                problem,
                chunk.rows.clone(),
                direction,
                &mut chunk.along,
                watch,
            )?;
            for pair in &mut chunk.positives {
                let at = pair.row as usize * width + pair.lane as usize;
                pair.along = std::mem::take(&mut chunk.along[at]);
            }
            for &(row, lane) in &chunk.unknown {
                chunk.along[row as usize * width + lane as usize] = 0.0;
            }
            Ok(())
        })
    }

    /// Adds `step` times the search direction to the weights and the scores.
    pub(super) fn advance(&mut self, step: &[f32]) {
        let width = self.width;
        add_scaled(step, &self.direction, &mut self.weights);
        self.chunks.par_iter_mut().for_each(|chunk| {
            add_scaled(step, &chunk.along, &mut chunk.scores);
            for pair in &mut chunk.positives {
                pair.score += step[pair.lane as usize] * pair.along;
            }
        });
        debug_assert_eq!(step.len(), width);
    }

    /// Computes the gradient of the objective. Returns the cost of the rows with a loss, for each lane.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`score`](Self::score).
    pub(super) fn pull(
        &mut self,
        problem: &Problem<'_>,
        cost: &[f32],
        watch: &Watch,
    ) -> Result<Vec<f64>, Error> {
        let (factors, width, dim) = (&self.factors, self.width, problem.rows.dim());
        self.chunks.par_iter_mut().try_each(|chunk| {
            chunk.gradient.fill(0.0);
            chunk.active.fill(0.0);
            let cost = &cost[chunk.rows.clone()];
            let mut x = filled("a block of rows of X", 0.0, ROWS * dim)?;
            let mut pulls = filled("a block of scores", 0.0, ROWS * width)?;
            let mut positives = chunk.positives.iter().peekable();
            for (at, scores) in chunk.scores.chunks(ROWS * width).enumerate() {
                watch.step(0)?;
                let first = at * ROWS;
                let n_rows = scores.len() / width;
                let cost = &cost[first..first + n_rows];
                let pulls = &mut pulls[..scores.len()];
                pull_negatives(cost, &factors.0, scores, pulls, &mut chunk.active);
                while let Some(pair) =
                    positives.next_if(|pair| (pair.row as usize) < first + n_rows)
                {
                    let (row, lane) = (pair.row as usize - first, pair.lane as usize);
                    let error = 1.0 - pair.score;
                    if error > 0.0 {
                        pulls[row * width + lane] = -(cost[row] * factors.1[lane] * error);
                        chunk.active[lane] += f64::from(cost[row]);
                    }
                }
                let rows = chunk.rows.start + first;
                problem.rows.read(rows..rows + n_rows, &mut x);
                matmul(
                    MatMut::from_row_major_slice_mut(&mut chunk.gradient, dim, width),
                    Accum::Add,
                    MatRef::from_row_major_slice(&x[..n_rows * dim], n_rows, dim).transpose(),
                    MatRef::from_row_major_slice(pulls, n_rows, width),
                    1.0,
                );
            }
            Ok(())
        })?;
        self.gradient.copy_from_slice(&self.weights);
        let mut active = filled("number of labels", 0.0, width)?;
        for chunk in &self.chunks {
            add(&chunk.gradient, &mut self.gradient);
            for (sum, active) in active.iter_mut().zip(&chunk.active) {
                *sum += active;
            }
        }
        Ok(active)
    }

    /// Returns, for each lane, the first and the second derivative of the loss along the search direction, after
    /// a step.
    pub(super) fn slopes(&self, cost: &[f32], step: &[f32]) -> Result<(Vec<f64>, Vec<f64>), Error> {
        let width = self.width;
        let of_chunk = |chunk: &Chunk| {
            let zeros = || filled("number of labels", 0.0, width);
            let (mut first, mut second) = (zeros()?, zeros()?);
            let cost = &cost[chunk.rows.clone()];
            for lane in (0..width).step_by(LANES) {
                slopes_of_negatives(
                    cost,
                    (&chunk.scores, &chunk.along),
                    (&self.factors.0, step),
                    lane,
                    (&mut first, &mut second),
                );
            }
            for pair in &chunk.positives {
                let lane = pair.lane as usize;
                let error = 1.0 - (pair.score + step[lane] * pair.along);
                if error > 0.0 {
                    let pull =
                        f64::from(cost[pair.row as usize] * self.factors.1[lane] * pair.along);
                    first[lane] -= pull * f64::from(error);
                    second[lane] += pull * f64::from(pair.along);
                }
            }
            Ok((first, second))
        };
        let of_chunks = parts(self.chunks.par_iter().map(of_chunk))?;
        let mut sums = of_chunks.into_iter();
        let (mut first, mut second) = sums.next().unwrap_or_default();
        for (of_first, of_second) in sums {
            for lane in 0..width {
                first[lane] += of_first[lane];
                second[lane] += of_second[lane];
            }
        }
        Ok((first, second))
    }

    /// Calls `tell` with the score of each label of the given rows, in the order of the rows and labels.
    ///
    /// # Errors
    ///
    /// Returns any error of `tell`.
    pub(super) fn scores(
        &self,
        rows: &[u32],
        mut tell: impl FnMut(u32, usize, f32) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for chunk in &self.chunks {
            let from = rows.partition_point(|&row| (row as usize) < chunk.rows.start);
            let to = rows.partition_point(|&row| (row as usize) < chunk.rows.end);
            for &row in &rows[from..to] {
                let at = row as usize - chunk.rows.start;
                let first = chunk
                    .positives
                    .partition_point(|pair| (pair.row as usize) < at);
                let mut positives = chunk.positives[first..].iter().peekable();
                let scores = &chunk.scores[at * self.width..][..self.labels.len()];
                for (lane, &score) in scores.iter().enumerate() {
                    let is_here =
                        |pair: &&Positive| (pair.row, pair.lane) == (at as u32, lane as u32);
                    let positive = positives.next_if(is_here);
                    tell(row, lane, positive.map_or(score, |pair| pair.score))?;
                }
            }
        }
        Ok(())
    }
}

/// Computes the products of consecutive rows and a matrix of shape (dim, width).
fn product(
    problem: &Problem<'_>,
    rows: Range<usize>,
    right: &[f32],
    out: &mut [f32],
    watch: &Watch,
) -> Result<(), Error> {
    let dim = problem.rows.dim();
    let width = right.len() / dim;
    let mut x = filled("a block of rows of X", 0.0, ROWS * dim)?;
    for (first, out) in rows.step_by(ROWS).zip(out.chunks_mut(ROWS * width)) {
        watch.step(0)?;
        let n_rows = out.len() / width;
        problem.rows.read(first..first + n_rows, &mut x);
        matmul(
            MatMut::from_row_major_slice_mut(out, n_rows, width),
            Accum::Replace,
            MatRef::from_row_major_slice(&x[..n_rows * dim], n_rows, dim),
            MatRef::from_row_major_slice(right, dim, width),
            1.0,
        );
    }
    Ok(())
}

/// Computes the derivative of the loss of each pair as a negative pair, and adds the costs of the rows with a
/// loss to `active`.
#[wide]
fn pull_negatives(
    cost: &[f32],
    factors: &[f32],
    scores: &[f32],
    pulls: &mut [f32],
    active: &mut [f64],
) {
    let width = factors.len();
    let rows = scores
        .chunks_exact(width)
        .zip(pulls.chunks_exact_mut(width));
    for (&cost, (scores, pulls)) in cost.iter().zip(rows) {
        let lanes = scores.iter().zip(pulls).zip(factors).zip(&mut *active);
        for (((&score, pull), &factor), active) in lanes {
            let error = (score + 1.0).max(0.0);
            *pull = cost * factor * error;
            *active += f64::from(if error > 0.0 { cost } else { 0.0 });
        }
    }
}

/// Adds the first and the second derivative of the loss of all pairs as negative pairs, for sixteen lanes.
#[wide]
fn slopes_of_negatives(
    cost: &[f32],
    (scores, along): (&[f32], &[f32]),
    (factors, step): (&[f32], &[f32]),
    lane: usize,
    (first, second): (&mut [f64], &mut [f64]),
) {
    let width = factors.len();
    let step: &[f32; LANES] = step[lane..].first_chunk().expect("whole lanes");
    let rows = width * STRETCH;
    let stretches = scores
        .chunks(rows)
        .zip(along.chunks(rows))
        .zip(cost.chunks(STRETCH));
    let mut sums = ([0.0f64; LANES], [0.0f64; LANES]);
    for ((scores, along), cost) in stretches {
        let mut of_stretch = ([0.0f32; LANES], [0.0f32; LANES]);
        let rows = scores.chunks_exact(width).zip(along.chunks_exact(width));
        for (&cost, (scores, along)) in cost.iter().zip(rows) {
            let scores: &[f32; LANES] = scores[lane..].first_chunk().expect("whole lanes");
            let along: &[f32; LANES] = along[lane..].first_chunk().expect("whole lanes");
            for at in 0..LANES {
                let error = (scores[at] + step[at] * along[at] + 1.0).max(0.0);
                let pull = if error > 0.0 { cost * along[at] } else { 0.0 };
                of_stretch.0[at] += pull * error;
                of_stretch.1[at] += pull * along[at];
            }
        }
        for at in 0..LANES {
            sums.0[at] += f64::from(of_stretch.0[at]);
            sums.1[at] += f64::from(of_stretch.1[at]);
        }
    }
    for at in 0..LANES {
        let factor = f64::from(factors[lane + at]);
        first[lane + at] += factor * sums.0[at];
        second[lane + at] += factor * sums.1[at];
    }
}

/// Removes the columns for which `is_kept` is false from a matrix with `width` columns. Columns of zeros are added at
/// the end, so that the number of columns is a multiple of [`LANES`].
pub(super) fn narrow_columns(matrix: &mut Vec<f32>, width: usize, is_kept: &[bool]) {
    let n_kept = is_kept.iter().filter(|&&is_kept| is_kept).count();
    let narrow = n_kept.next_multiple_of(LANES);
    let n_rows = matrix.len() / width;
    for row in 0..n_rows {
        let mut to = row * narrow;
        for (lane, _) in is_kept.iter().enumerate().filter(|(_, is_kept)| **is_kept) {
            matrix[to] = matrix[row * width + lane];
            to += 1;
        }
        matrix[to..(row + 1) * narrow].fill(0.0);
    }
    matrix.truncate(n_rows * narrow);
}

/// Computes `y = y + step x`, with one step for each column.
#[wide]
fn add_scaled(step: &[f32], x: &[f32], y: &mut [f32]) {
    let width = step.len();
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        for ((x, y), step) in x.iter().zip(y).zip(step) {
            *y += step * x;
        }
    }
}

/// Computes `y = y + x`.
#[wide]
fn add(x: &[f32], y: &mut [f32]) {
    for (x, y) in x.iter().zip(y) {
        *y += x;
    }
}
