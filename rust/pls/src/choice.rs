//! Chooses the ridge with the smallest leave-one-out error.
//!
//! The error of a ridge λ is measured on 32 targets `t = Yq`, where Y is the label matrix and q is a given
//! matrix with 32 columns. The error measures how well a row is predicted by a fit without this row. It is
//! computed as
//!
//! ```text
//! Σ_i ω_i ‖t_i − p_i‖² / (1 − h_i)²
//! ```
//!
//! where `ω_i` is the weight of row i, `t_i` are its targets, `p_i` are its predictions, and `h_i` is its leverage.
//! The predictions and leverages come from a single fit to all rows. The formula needs no separate fit for
//! each row. For each ridge, one regression with 32 right-hand sides is solved, and the leverages are
//! computed (see [`leverage`](crate::leverage)). All ridges use the same Gram matrix.
//!
//! The search tries the ridges of a geometric grid one after the other. It stops at the first ridge that does
//! not reduce the error. The result is the best ridge that was tried. No derivatives are used.

use crate::Params;
use crate::design::Cells;
use crate::leverage::predictions;
use crate::solve::{Gram, Problem, Regression};
use manylabel_base::{Error, Watch};
use manylabel_sparse::{LANES, Lanes, Real};

/// Ratio between one ridge and the next, `√10`. The errors of neighbouring ridges differ by a few
/// per cent.
const RATIO: f64 = 3.162_277_660_168_379_5;

/// Maximum number of ridges that are tried in each direction. In each direction, the ridges cover a
/// factor of 10⁶.
const MOST_STEPS: i32 = 12;

/// Multiples of the given ridge that the search also tries as starting points if X is dense. Dense features
/// may be measurements on any scale. If one feature is much larger than the other features, a wide range of
/// ridges suppresses all other features. Within this range, the error is constant or has a local minimum. A
/// search that starts there may miss the best ridge.
const STARTS: [f64; 4] = [1e-2, 1e-4, 1e-6, 1e2];

/// A ridge that was chosen.
pub(crate) struct Choice<T> {
    /// The ridge, relative to the mean diagonal of `XᵀΩX`.
    pub(crate) l2: f64,
    /// The regression with this ridge.
    pub(crate) regression: Regression<T>,
    /// The leverages of the rows in this regression. They include the contribution of the means.
    pub(crate) leverages: Vec<f64>,
    /// The leave-one-out error.
    error: f64,
}

/// Chooses the ridge for the targets `Yq`.
///
/// The search starts at the ridge `l2`, which is relative to the mean diagonal of `XᵀΩX`. Here, Ω is the
/// diagonal matrix of the row weights. For dense X, the search starts at the best of `l2` and its multiples
/// in [`STARTS`]. The search increases the ridge as long as the error decreases. If the first larger ridge is
/// not better, the search decreases the ridge in the same way. `n_equations` is the number of features, plus
/// 1 if there is a column of ones.
///
/// # Errors
///
/// Returns [`Error::Param`] if a regression has no finite solution. Returns [`Error::TooLarge`] if there is
/// not enough memory. Returns [`Error::Stopped`] if the caller requested a stop.
pub(crate) fn choose<T: Real>(
    params: &Params,
    problem: &Problem<'_, T>,
    gram: &Gram,
    n_equations: usize,
    q: &[Lanes<T>],
    l2: f64,
    watch: &Watch,
) -> Result<Choice<T>, Error> {
    let targets = predictions(&problem.rows, &problem.y, q, watch)?;
    let attempt = |l2: f64| -> Result<Choice<T>, Error> {
        let regression = Regression::new(params, problem, gram, l2, n_equations, watch)?;
        let leverages = regression.leverages(problem, true, params.seed, watch)?;
        let error = error(problem, &regression, &leverages, q, &targets, watch)?;
        Ok(Choice {
            l2,
            regression,
            leverages,
            error,
        })
    };
    let mut best = attempt(l2)?;
    if matches!(problem.x.cells, Cells::Dense { .. }) {
        for start in STARTS {
            let next = attempt(l2 * start)?;
            if next.error < best.error {
                best = next;
            }
        }
    }
    let start = best.l2;
    for factor in [RATIO, 1.0 / RATIO] {
        for step in 1..=MOST_STEPS {
            let next = attempt(start * factor.powi(step))?;
            // An error that is NaN also ends the search.
            if next.error < best.error {
                best = next;
            } else {
                break;
            }
        }
        if best.l2 > start {
            break;
        }
    }
    Ok(best)
}

/// Returns the weighted sum of the squared leave-one-out residuals of `targets` for a regression.
/// `targets` must be `Yq`, and
/// `leverages` those of the regression.
fn error<T: Real>(
    problem: &Problem<'_, T>,
    regression: &Regression<T>,
    leverages: &[f64],
    q: &[Lanes<T>],
    targets: &[Lanes<T>],
    watch: &Watch,
) -> Result<f64, Error> {
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
