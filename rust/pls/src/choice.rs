//! The ridge with the least leave-one-out error.
//!
//! The error of a ridge λ is that of 32 targets t = `Yq`, each row predicted by a fit without it:
//!
//! ```text
//! Σ_i ω_i ‖t_i − p_i‖² / (1 − h_i)²
//! ```
//!
//! with the predictions p and the leverages h of one fit to all rows. Each ridge tried costs a
//! regression of 32 right-hand sides and the leverages (see [`leverage`](crate::leverage)). The Gram matrix
//! is shared by all of them.
//!
//! The search walks along a geometric grid and stops at the first ridge that is no better. It uses no
//! derivatives, and returns the best of the ridges it tried.

use crate::Params;
use crate::design::Cells;
use crate::leverage::predictions;
use crate::solve::{Gram, Problem, Regression};
use manylabel_base::{Error, Watch};
use manylabel_sparse::{LANES, Lanes, Real};

/// Ratio of one ridge to the next, `√10`. The errors of neighbours differ by a few per cent.
const RATIO: f64 = 3.162_277_660_168_379_5;

/// Maximum number of ridges tried in each direction: a factor of 10⁶.
const MOST_STEPS: i32 = 12;

/// Multiples of the first ridge that are tried as starting points if X is dense. Dense features may be
/// measurements on any scale. If one of them is much larger than the others, ridges over many orders of
/// magnitude suppress all others. Their errors are flat or have a local minimum of their own.
const STARTS: [f64; 4] = [1e-2, 1e-4, 1e-6, 1e2];

/// Chooses the ridge for the targets `Yq`; returns it with its regression.
///
/// The search starts at `l2` (relative to the mean diagonal), or for dense X at the best of `l2` and its
/// multiples in [`STARTS`]. It goes up as long as the error falls. If the first step up is no better, it goes
/// down in the same way. `n_equations` is the number of the caller's features, including a column of
/// ones.
///
/// # Errors
///
/// [`Error::Param`] if a regression has no finite solution, [`Error::TooLarge`], [`Error::Stopped`].
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
            // A NaN is not better either.
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

/// The weighted sum of squared leave-one-out residuals of `targets`, which are `Yq`, by the regression.
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
