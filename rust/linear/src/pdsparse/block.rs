//! Solves for all dual variables of one row together.
//!
//! Let `x_i` be the features of row i. To solve for row i, the dual variables of all other rows are fixed.
//! The dual objective is replaced by a quadratic upper bound with curvature `‖x_i‖²`. To minimize this bound,
//! a point (b, e) is projected onto a polytope of points (u, t). The active set of row i contains the labels
//! whose dual variables may differ from 0. The numbers u are the negated dual variables of the labels in the
//! active set that row i does not have. The numbers t are the dual variables of the labels that row i has.
//! `visits.rs` computes b and e from the scores of these labels.

use manylabel_base::{Error, collected, copied};

/// The name of the copied numbers in error messages about memory.
const WHAT: &str = "number of labels of a row";

/// Solves `min ‖u − b‖² + ‖t − e‖²` subject to `u, t ≥ 0` and `Σu = Σt ≤ most`. On return, `b`
/// contains u and `e` contains t.
///
/// Let `(x)₊ = max(0, x)`, and let θ be the Lagrange multiplier of `Σu = Σt`. If the sums are below
/// `most`, then `u = (b − θ)₊` and `t = (e + θ)₊`. `Σ(b − θ)₊` decreases with θ and `Σ(e + θ)₊`
/// increases, so their difference has one root. A binary search over the sorted breakpoints finds
/// this root. If the sums exceed `most` at the root, u and t are the projections of b and e onto
/// simplices with the sum `most`. The time is O(m log m) for m numbers.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if a copy of the numbers does not fit in memory.
///
/// # Examples
///
/// ```
/// let (mut b, mut e) = ([0.5, 0.1, -3.0], [1.0]);
/// manylabel_linear::pdsparse::solve_block(&mut b, &mut e, 10.0)?;
/// assert!((e[0] - 2.6 / 3.0).abs() < 1e-12 && (b[0] - 1.9 / 3.0).abs() < 1e-12);
/// assert!((b[0] + b[1] - e[0]).abs() < 1e-12 && b[2] == 0.0);
/// # Ok::<(), manylabel_base::Error>(())
/// ```
pub fn solve(b: &mut [f64], e: &mut [f64], most: f64) -> Result<(), Error> {
    let largest = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // If −max e ≥ max b, there is no θ at which the two sums are positive.
    if largest(b) + largest(e) <= 0.0 {
        b.fill(0.0);
        e.fill(0.0);
        return Ok(());
    }
    let theta = balance(b, e)?;
    let shift = |values: &mut [f64], by: f64| {
        for value in values {
            *value = (*value + by).max(0.0);
        }
    };
    let sum: f64 = b.iter().map(|b| (b - theta).max(0.0)).sum();
    if sum < most {
        shift(b, -theta);
        shift(e, theta);
    } else {
        shift(b, -simplex_threshold(b, most)?);
        shift(e, -simplex_threshold(e, most)?);
    }
    Ok(())
}

/// Returns the θ at which `Σ(b − θ)₊ = Σ(e + θ)₊`. Here `(x)₊` is `max(0, x)`. The two sums must be
/// positive at this θ.
fn balance(b: &[f64], e: &[f64]) -> Result<f64, Error> {
    let mut points = collected(WHAT, b.iter().copied().chain(e.iter().map(|e| -e)))?;
    points.sort_unstable_by(f64::total_cmp);
    let difference = |theta: f64| {
        let falls: f64 = b.iter().map(|b| (b - theta).max(0.0)).sum();
        let rises: f64 = e.iter().map(|e| (e + theta).max(0.0)).sum();
        falls - rises
    };
    // The root lies between the last breakpoint with a positive difference and the next breakpoint.
    // Between these two points, no term changes between zero and positive. So the difference is linear
    // there.
    let next = points.partition_point(|&theta| difference(theta) > 0.0);
    let last = next
        .checked_sub(1)
        .map_or(f64::NEG_INFINITY, |at| points[at]);
    let (falls, rises) = (
        b.iter().filter(|&&b| b > last),
        e.iter().filter(|&&e| -e <= last),
    );
    let n = falls.clone().count() + rises.clone().count();
    Ok((falls.sum::<f64>() - rises.sum::<f64>()) / n as f64)
}

/// Returns the θ for which `Σ(values − θ)₊ = sum`, where `(x)₊` is `max(0, x)` and `sum > 0`.
fn simplex_threshold(values: &[f64], sum: f64) -> Result<f64, Error> {
    let mut sorted = copied(WHAT, values)?;
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let (mut total, mut theta) = (0.0, f64::NEG_INFINITY);
    for (n, value) in (1..).zip(sorted) {
        if value <= theta {
            break;
        }
        total += value;
        theta = (total - sum) / f64::from(n);
    }
    Ok(theta)
}
