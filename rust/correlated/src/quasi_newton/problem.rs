//! Defines the problem of one label in a quasi-Newton step: a quadratic approximation of its loss
//! in the free parameters, plus their penalties.

use super::{LABELS, PAIRS};
use crate::penalty::{Net, soft};
use crate::wide::Float;
use manylabel_base::{Error, filled, push};
use manylabel_simd::wide;

/// Largest number of passes over the coordinates of a label.
const SWEEPS: usize = 10;

/// The free parameters of a label, and their state at the last gradient.
pub(super) struct Local<T> {
    /// Columns of the second moments, in increasing order. The last column is the constant.
    pub(super) columns: Vec<u32>,
    /// The couplings among these columns, with their positions.
    pub(super) ties: Vec<(usize, Tie)>,
    /// The value of each parameter.
    pub(super) values: Vec<T>,
    /// The gradient of the label's own loss.
    pub(super) slopes: Vec<T>,
    /// Equal to `slopes` for weights. For a coupling, the mean of its slopes in the losses of its
    /// two labels.
    pub(super) shares: Vec<T>,
}

/// A pair, described from the side of one of its labels.
#[derive(Clone, Copy)]
pub(super) struct Tie {
    /// The other label.
    pub(super) other: u32,
    /// The number of the pair in the objective.
    pub(super) pair: u32,
    /// 0 for the first label of the pair, 1 for the second.
    pub(super) side: usize,
}

/// The slopes and curvatures of the coupling of a pair at its current value, in the quadratic
/// functions of its two labels.
#[derive(Clone, Copy)]
pub(super) struct Halves<T> {
    /// The slope in the quadratic function of the first and the second label.
    pub(super) slope: [T; 2],
    /// The curvature in the quadratic function of the first and the second label.
    pub(super) curvature: [T; 2],
}

/// Data of one coordinate that are not part of the quadratic function of the label.
#[derive(Clone, Copy)]
pub(super) struct Coordinate<T> {
    /// The penalty.
    pub(super) net: Net<T>,
    /// The slope that the other label of a coupling adds. It is 0 for weights.
    pub(super) slope: T,
    /// The curvature that the other label of a coupling adds. It is 0 for weights.
    pub(super) curvature: T,
    /// Whether the coordinate must not move, because the step of the other label has just been
    /// shortened.
    pub(super) fixed: bool,
}

/// Returns the pairs of each label, sorted by the other label.
pub(super) fn ties(list: &[(u32, u32)], n_labels: usize) -> Result<Vec<Vec<Tie>>, Error> {
    let mut ties = filled(LABELS, Vec::new(), n_labels)?;
    for (pair, &(i, k)) in (0..).zip(list) {
        for (side, label, other) in [(0, i, k), (1, k, i)] {
            push(PAIRS, &mut ties[label as usize], Tie { other, pair, side })?;
        }
    }
    for of_label in &mut ties {
        of_label.sort_unstable_by_key(|tie| tie.other);
    }
    Ok(ties)
}

/// Runs coordinate descent on a quadratic function plus penalties. Stops when no coordinate changes
/// its slope by more than `enough` in a pass, or after [`SWEEPS`] passes.
///
/// `matrix` is the curvature of the quadratic function, row by row. `values` and `slopes` are
/// updated. A step takes O(n) for n coordinates.
#[wide]
pub(super) fn sweep<T: Float>(
    matrix: &[T],
    coordinates: &mut [Coordinate<T>],
    enough: T,
    values: &mut [T],
    slopes: &mut [T],
) {
    let n = values.len();
    for _ in 0..SWEEPS {
        let mut largest = T::default();
        for at in 0..n {
            let row = &matrix[at * n..][..n];
            let Coordinate {
                net,
                slope,
                curvature,
                fixed,
            } = &mut coordinates[at];
            let total = row[at] + *curvature;
            if *fixed || total <= T::default() {
                continue;
            }
            let old = values[at];
            let target = total * old - (slopes[at] + *slope);
            let scale = total + (net.l2 + net.l2);
            let new = soft(target, net.l1).over(scale);
            let step = new - old;
            if step != T::default() {
                values[at] = new;
                *slope += *curvature * step;
                for (slope, &value) in slopes.iter_mut().zip(row) {
                    *slope += step * value;
                }
                let moved = (step * scale).size();
                if moved > largest {
                    largest = moved;
                }
            }
        }
        if largest <= enough {
            break;
        }
    }
}
