//! The ridge of least leave-one-out error.

use crate::Params;
use crate::design::Cells;
use crate::leverage::predictions;
use crate::solve::{Gram, Problem, Regression};
use manylabel_base::{Error, Watch};
use manylabel_sparse::{LANES, Lanes, Real};

/// From one ridge to the next that is tried, `√10`: errors of neighbours differ by a few per cent.
const RATIO: f64 = 3.162_277_660_168_379_5;

/// Ridges that are tried on the way up or down, at most.
const MOST_STEPS: i32 = 12;

/// Multiples of the first ridge to start from where X is dense. Dense features may be measurements of any
/// scale; beside a large one all others are suppressed by ridges of many orders, whose errors are level or
/// have a minimum of their own.
const STARTS: [f64; 4] = [1e-2, 1e-4, 1e-6, 1e2];

/// Walks from the ridge `l2` (or the best of others, see above), up or else down, as long as the error of
/// `Y q` without each row falls; returns the best ridge and its regression.
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
    if matches!(problem.x.cells, Cells::Dense { .. }) {
        for start in STARTS {
            let next = attempt(l2 * start)?;
            if next.0 < best.0 {
                best = next;
            }
        }
    }
    let start = best.1;
    for factor in [RATIO, 1.0 / RATIO] {
        for step in 1..=MOST_STEPS {
            let next = attempt(start * factor.powi(step))?;
            // Nor is what is not a number any better.
            if next.0 < best.0 {
                best = next;
            } else {
                break;
            }
        }
        if best.1 > start {
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
    let leverages = regression.leverages(problem, true, params.seed, watch)?;
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
