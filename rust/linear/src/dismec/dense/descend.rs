//! Minimizes the objectives of a group of labels over all rows, by preconditioned nonlinear conjugate gradients.
//!
//! The steps are those of `optimum`, which minimizes the objectives over sparse rows. They differ in the
//! preconditioner. For dense rows, it is `(I + φ G)⁻¹`, where G is the Gram matrix weighted by cost, and φ is the
//! mean share of the rows with a loss. If these rows were drawn at random, `I + φ G` would be the Hessian. If
//! there is no Gram matrix, the preconditioner is the diagonal one of `optimum`.

use super::Problem;
use super::group::{Group, LANES, narrow_columns};
use crate::dismec::optimum::{DIAGONAL_SHARE, LINE_STEPS};
use faer::Mat;
use manylabel_base::{Error, Watch, collected, filled, parts};
use manylabel_dense::{Cholesky, from_fn};
use manylabel_simd::wide;
use rayon::prelude::*;

/// The smallest share of rows with a loss that the preconditioner assumes.
const LEAST_SHARE: f64 = 1e-3;

/// The matrix that multiplies gradients.
enum Preconditioner {
    /// The factor of `G + I/φ`, and φ.
    Gram(Cholesky, f64),
    /// The diagonal of `I + φ G`, up to a factor of φ, and φ.
    Diagonal(Vec<f64>),
}

impl Preconditioner {
    fn new(problem: &Problem<'_>, share: f64, watch: &Watch) -> Result<Self, Error> {
        let share = share.clamp(LEAST_SHARE, 1.0);
        if let Some(gram) = problem.moments.gram()
            && let Some(factor) = Cholesky::new(gram, share.recip(), watch)?
        {
            return Ok(Self::Gram(factor, share));
        }
        let of_column = |square: &f64| 1.0 + DIAGONAL_SHARE * share * square;
        let diagonal = problem.moments.squares.iter().map(of_column);
        Ok(Self::Diagonal(collected("number of features", diagonal)?))
    }

    /// Writes the product with a gradient of shape (dim, width) to `out`.
    fn multiply(
        &self,
        gradient: &[f32],
        width: usize,
        out: &mut [f32],
        watch: &Watch,
    ) -> Result<(), Error> {
        match self {
            Self::Gram(factor, share) => {
                let dim = gradient.len() / width;
                let panels = (0..width / LANES).into_par_iter().map(|panel| {
                    let entry = |row, col| f64::from(gradient[row * width + panel * LANES + col]);
                    let mut panel: Mat<f64> = from_fn("a gradient", dim, LANES, entry)?;
                    factor.solve_in_place(panel.as_mut(), watch)?;
                    Ok(panel)
                });
                for (at, panel) in parts(panels)?.into_iter().enumerate() {
                    for (row, out) in out.chunks_mut(width).enumerate() {
                        for (col, out) in out[at * LANES..][..LANES].iter_mut().enumerate() {
                            *out = (panel[(row, col)] / share) as f32;
                        }
                    }
                }
            }
            Self::Diagonal(diagonal) => {
                let rows = gradient.chunks(width).zip(out.chunks_mut(width));
                for ((gradient, out), diagonal) in rows.zip(diagonal) {
                    for (out, &gradient) in out.iter_mut().zip(gradient) {
                        *out = (f64::from(gradient) / diagonal) as f32;
                    }
                }
            }
        }
        Ok(())
    }
}

/// When a label has converged. Each vector has an entry for each label of a group.
pub(super) struct Stop {
    /// The largest norm of the gradient.
    pub(super) gradient: Vec<f64>,
    /// The largest decrease of the objective in the last step. Minus infinity means that only the gradient counts.
    pub(super) decrease: Vec<f64>,
}

/// The result of [`descend`].
pub(super) struct Descent {
    /// The weights; shape (dim, width), where the width is that of the group before the call.
    pub(super) weights: Vec<f32>,
    /// The number of steps for each label.
    pub(super) n_iter: Vec<u32>,
}

/// The labels that take further steps. They are the labels of the group.
struct Live {
    /// The lane of each label in [`Descent`].
    lanes: Vec<usize>,
    /// False for labels that have converged since the group was narrowed.
    unfinished: Vec<bool>,
    stop: Option<Stop>,
    /// The slope of the objective along the last direction.
    last_slope: Vec<f64>,
    /// The gradient before the last step; shape (dim, width).
    last: Vec<f32>,
}

/// Takes steps until all labels have converged, or until `max_iter` steps are taken. Without `stop`, all labels
/// take `max_iter` steps. Labels that have converged leave the group if it then has fewer columns, so that a step
/// takes less time. The scores match the weights before the call and after it.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory, or [`Error::Stopped`] if the caller requested a
/// stop.
pub(super) fn descend(
    problem: &Problem<'_>,
    (cost, total_cost): (&[f32], f64),
    stop: Option<Stop>,
    max_iter: usize,
    group: &mut Group,
    watch: &Watch,
) -> Result<Descent, Error> {
    let n_labels = group.labels.len();
    let by_feature = || filled("number of weights", 0.0f32, group.weights.len());
    let mut done = Descent {
        weights: by_feature()?,
        n_iter: filled("number of labels", 0, n_labels)?,
    };
    let mut scaled = by_feature()?;
    let mut live = Live {
        lanes: collected("number of labels", 0..n_labels)?,
        unfinished: filled("number of labels", true, n_labels)?,
        stop,
        last_slope: filled("number of labels", 0.0, n_labels)?,
        last: by_feature()?,
    };
    let mut preconditioner = None;
    for iter in 0..max_iter {
        live.last.copy_from_slice(&group.gradient);
        let active = group.pull(problem, cost, watch)?;
        let preconditioner = if let Some(known) = &preconditioner {
            known
        } else {
            let share = active[..n_labels].iter().sum::<f64>() / n_labels as f64 / total_cost;
            preconditioner.insert(Preconditioner::new(problem, share, watch)?)
        };
        live.check_gradients(group)?;
        live.narrow(group, &mut done);
        if live.lanes.is_empty() {
            break;
        }
        let width = group.width;
        scaled.truncate(group.weights.len());
        preconditioner.multiply(&group.gradient, width, &mut scaled, watch)?;
        live.choose_directions(iter == 0, &scaled, group)?;
        group.turn(problem, watch)?;
        let step = line_search(cost, group, &live.unfinished)?;
        group.advance(&step);
        live.count(&mut done.n_iter);
        live.check_decreases(&step);
        live.narrow(group, &mut done);
        if live.lanes.is_empty() {
            break;
        }
    }
    live.store(group, &mut done);
    Ok(done)
}

impl Live {
    /// Finds the labels whose gradient is small enough.
    fn check_gradients(&mut self, group: &Group) -> Result<(), Error> {
        if let Some(stop) = &self.stop {
            let square = dot(&group.gradient, &group.gradient, group.width)?;
            let lanes = self.unfinished.iter_mut().zip(&square).zip(&stop.gradient);
            for ((is_live, square), stop) in lanes {
                *is_live &= square.sqrt() > *stop;
            }
        }
        Ok(())
    }

    /// Finds the labels whose last step has hardly lowered the objective. The objective is nearly quadratic along
    /// the step, so the decrease is half of the slope times the length.
    fn check_decreases(&mut self, step: &[f32]) {
        if let Some(stop) = &self.stop {
            for (lane, is_live) in self.unfinished.iter_mut().enumerate() {
                let decrease = -0.5 * f64::from(step[lane]) * self.last_slope[lane];
                *is_live &= decrease > stop.decrease[lane];
            }
        }
    }

    /// Counts a step for the labels that have not converged.
    fn count(&self, n_iter: &mut [u32]) {
        for (&lane, &is_live) in self.lanes.iter().zip(&self.unfinished) {
            n_iter[lane] += u32::from(is_live);
        }
    }

    /// Computes the next search direction of each label.
    fn choose_directions(
        &mut self,
        is_first: bool,
        scaled: &[f32],
        group: &mut Group,
    ) -> Result<(), Error> {
        let width = group.width;
        let of_scaled = dot(scaled, &group.gradient, width)?;
        let of_last = dot(scaled, &self.last, width)?;
        let along = dot(&group.direction, &group.gradient, width)?;
        let mut turn_by = filled("number of labels", 0.0f32, width)?;
        for (lane, last_slope) in self.last_slope.iter_mut().enumerate() {
            let curvature = along[lane] - *last_slope;
            let mut beta = ((of_scaled[lane] - of_last[lane]) / curvature).max(0.0);
            // The method restarts in the first step, if the curvature is lost in rounding errors, or if the
            // objective would increase along the direction.
            if is_first || curvature <= 0.0 || beta * along[lane] >= of_scaled[lane] {
                beta = 0.0;
            }
            turn_by[lane] = beta as f32;
            *last_slope = beta * along[lane] - of_scaled[lane];
        }
        turn(&turn_by, scaled, &mut group.direction);
        Ok(())
    }

    /// Removes the labels that have converged from the group, if the group then has fewer columns, or if all
    /// labels have converged. Their weights are stored in `done`.
    fn narrow(&mut self, group: &mut Group, done: &mut Descent) {
        let n_live = self.unfinished.iter().filter(|&&is_live| is_live).count();
        if n_live.next_multiple_of(LANES) == group.width {
            return;
        }
        self.store(group, done);
        narrow_columns(&mut self.last, group.width, &self.unfinished);
        group.narrow(&self.unfinished);
        let is_live = std::mem::take(&mut self.unfinished);
        retain(&mut self.lanes, &is_live);
        retain(&mut self.last_slope, &is_live);
        if let Some(stop) = &mut self.stop {
            retain(&mut stop.gradient, &is_live);
            retain(&mut stop.decrease, &is_live);
        }
        self.unfinished = is_live;
        self.unfinished.retain(|&is_live| is_live);
    }

    /// Copies the weights of all labels of the group to `done`.
    fn store(&self, group: &Group, done: &mut Descent) {
        let dim = group.weights.len().checked_div(group.width).unwrap_or(0);
        if dim == 0 {
            return;
        }
        let width = done.weights.len() / dim;
        let rows = done
            .weights
            .chunks_mut(width)
            .zip(group.weights.chunks(group.width));
        for (done, weights) in rows {
            for (&lane, &weight) in self.lanes.iter().zip(weights) {
                done[lane] = weight;
            }
        }
    }
}

/// Removes the entries for which `is_kept` is false.
fn retain<T>(entries: &mut Vec<T>, is_kept: &[bool]) {
    let mut kept = is_kept.iter();
    entries.retain(|_| kept.next().copied().unwrap_or(false));
}

/// Returns the length of the step for each lane. It is 0 for lanes that have converged.
fn line_search(cost: &[f32], group: &Group, is_live: &[bool]) -> Result<Vec<f32>, Error> {
    let width = group.width;
    let of_weights = dot(&group.weights, &group.direction, width)?;
    let square = dot(&group.direction, &group.direction, width)?;
    let mut step = filled("number of labels", 0.0f32, width)?;
    for _ in 0..LINE_STEPS {
        let (first, second) = group.slopes(cost, &step)?;
        for (lane, &is_live) in is_live.iter().enumerate() {
            let length = f64::from(step[lane]);
            let slope = of_weights[lane] + length * square[lane] + first[lane];
            let longer = length - slope / (square[lane] + second[lane]);
            if is_live && longer.is_finite() {
                step[lane] = longer as f32;
            }
        }
    }
    Ok(step)
}

/// Returns the dot product of each column of two matrices of `width` columns.
fn dot(a: &[f32], b: &[f32], width: usize) -> Result<Vec<f64>, Error> {
    let mut sums = filled("number of labels", 0.0, width)?;
    add_dots(a, b, &mut sums);
    Ok(sums)
}

#[wide]
fn add_dots(a: &[f32], b: &[f32], sums: &mut [f64]) {
    let width = sums.len();
    for (a, b) in a.chunks_exact(width).zip(b.chunks_exact(width)) {
        for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
            *sum += f64::from(a) * f64::from(b);
        }
    }
}

/// Computes the next direction, `turn_by · direction − scaled`, with one factor for each column.
#[wide]
fn turn(turn_by: &[f32], scaled: &[f32], direction: &mut [f32]) {
    let width = turn_by.len();
    for (scaled, direction) in scaled
        .chunks_exact(width)
        .zip(direction.chunks_exact_mut(width))
    {
        for ((direction, &scaled), &turn_by) in direction.iter_mut().zip(scaled).zip(turn_by) {
            *direction = turn_by * *direction - scaled;
        }
    }
}
