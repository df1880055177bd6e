//! Minimizes the objectives of a group of labels over all rows, by preconditioned nonlinear conjugate gradients.
//!
//! The steps are those of `optimum`, which minimizes the objectives over sparse rows. They differ in the
//! preconditioner. For dense rows, it is `(I + φ G)⁻¹`, where G is the Gram matrix weighted by cost, and φ is the
//! mean share of the rows with a loss. If these rows were drawn at random, `I + φ G` would be the Hessian. If
//! there is no Gram matrix, the preconditioner is the diagonal one of `optimum`.

use super::Problem;
use super::group::{Group, LANES};
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

/// Takes steps until the norm of the gradient of each label is at most its entry of `stop`, or until `max_iter`
/// steps are taken. Returns the number of steps for each label. The scores match the weights before the call and
/// after it.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory, or [`Error::Stopped`] if the caller requested a
/// stop.
pub(super) fn descend(
    problem: &Problem<'_>,
    (cost, total_cost): (&[f32], f64),
    stop: &[f64],
    max_iter: usize,
    group: &mut Group,
    watch: &Watch,
) -> Result<Vec<u32>, Error> {
    let (width, n_labels) = (group.width, group.labels.len());
    let by_lane = || filled("number of labels", 0.0f64, width);
    let by_feature = || filled("number of weights", 0.0f32, group.weights.len());
    let (mut scaled, mut last) = (by_feature()?, by_feature()?);
    let mut n_iter = filled("number of labels", 0, n_labels)?;
    let mut is_live = filled("number of labels", true, n_labels)?;
    let mut last_slope = by_lane()?;
    let mut preconditioner = None;
    for iter in 0..max_iter {
        last.copy_from_slice(&group.gradient);
        let active = group.pull(problem, cost, watch)?;
        let gradient_square = dot(&group.gradient, &group.gradient, width)?;
        for lane in 0..n_labels {
            is_live[lane] &= gradient_square[lane].sqrt() > stop[lane];
        }
        if !is_live.contains(&true) {
            break;
        }
        let preconditioner = if let Some(known) = &preconditioner {
            known
        } else {
            let share = active[..n_labels].iter().sum::<f64>() / n_labels as f64 / total_cost;
            preconditioner.insert(Preconditioner::new(problem, share, watch)?)
        };
        preconditioner.multiply(&group.gradient, width, &mut scaled, watch)?;
        let of_scaled = dot(&scaled, &group.gradient, width)?;
        let of_last = dot(&scaled, &last, width)?;
        let along = dot(&group.direction, &group.gradient, width)?;
        let mut turn_by = filled("number of labels", 0.0f32, width)?;
        for lane in 0..n_labels {
            let curvature = along[lane] - last_slope[lane];
            let mut beta = ((of_scaled[lane] - of_last[lane]) / curvature).max(0.0);
            // The method restarts in the first step, if the curvature is lost in rounding errors, or if the
            // objective would increase along the direction.
            if iter == 0 || curvature <= 0.0 || beta * along[lane] >= of_scaled[lane] {
                beta = 0.0;
            }
            turn_by[lane] = beta as f32;
            last_slope[lane] = beta * along[lane] - of_scaled[lane];
        }
        turn(&turn_by, &scaled, &mut group.direction);
        group.turn(problem, watch)?;
        let step = line_search(cost, group, &is_live)?;
        group.advance(&step);
        for (n_iter, &is_live) in n_iter.iter_mut().zip(&is_live) {
            *n_iter += u32::from(is_live);
        }
    }
    Ok(n_iter)
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
