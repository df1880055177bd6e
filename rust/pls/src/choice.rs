//! The ridge of least leave-one-out error.

use crate::Params;
use crate::leverage::predictions;
use crate::solve::{Gram, Problem, Regression};
use manylabel_base::{Error, Watch};
use manylabel_sparse::{LANES, Lanes, Real};

/// From one ridge to the next that is tried: errors of neighbours differ by a few per cent.
const FACTOR: f64 = 3.162_277_660_168_379_5;

/// Ridges that are tried on the way up from the first and on the way down, at most: to 10⁴ times and
/// 10⁻⁸ times as much, for features of scales that differ by as many orders.
const MOST_STEPS: [i32; 2] = [8, 16];

/// Errors that are larger than the least by this share do not end the walk: beside one feature of a large
/// scale, ridges of many orders that all suppress the others differ by next to nothing.
const PATIENCE: f64 = 0.003;

/// Walks from the ridge `l2`, up or else down, as long as the error of `Y q` without each row falls, or
/// hardly rises; returns the best ridge and its regression.
pub(crate) fn choose<T: Real>(
    params: &Params,
    problem: &Problem<'_, T>,
    gram: &Gram,
    n_equations: usize,
    q: &[Lanes<T>],
    l2: f64,
    watch: &Watch,
) -> Result<(f64, Regression<T>), Error> {
    let targets = predictions(&problem.rows, &problem.y, q, watch)?;
    let attempt = |l2: f64| -> Result<(f64, f64, Regression<T>), Error> {
        let regression = Regression::new(params, problem, gram, l2, n_equations, watch)?;
        let error = error(params, problem, &regression, q, &targets, watch)?;
        Ok((error, l2, regression))
    };
    let mut best = attempt(l2)?;
    for (factor, n_steps) in [FACTOR, 1.0 / FACTOR].into_iter().zip(MOST_STEPS) {
        for step in 1..=n_steps {
            let next = attempt(l2 * factor.powi(step))?;
            if next.0 < best.0 {
                best = next;
            } else if next.0.is_nan() || next.0 > best.0 * (1.0 + PATIENCE) {
                break;
            }
        }
        if best.1 > l2 {
            break;
        }
    }
    Ok((best.1, best.2))
}

/// Sum of the squared residuals of fits without the row each.
fn error<T: Real>(
    params: &Params,
    problem: &Problem<'_, T>,
    regression: &Regression<T>,
    q: &[Lanes<T>],
    targets: &[Lanes<T>],
    watch: &Watch,
) -> Result<f64, Error> {
    let leverages = regression.leverages(problem, params.seed, watch)?;
    let fit = regression.fit(problem, q, watch)?;
    let predicted = predictions(&problem.rows, &problem.x, &fit.z, watch)?;
    let mut sum = 0.0;
    for (row, leverage) in leverages.iter().enumerate() {
        let residuals = (0..LANES).map(|l| targets[row].0[l].f64() - predicted[row].0[l].f64());
        let squares: f64 = residuals.map(|residual| residual * residual).sum();
        sum += problem.rows.weight(row) * squares / ((1.0 - leverage) * (1.0 - leverage));
    }
    Ok(sum)
}
