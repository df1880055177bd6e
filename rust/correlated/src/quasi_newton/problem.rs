//! The problem of one label in a quasi-Newton step: a quadratic model of its loss in the parameters
//! that can move, plus their penalties.

use super::{LABELS, PAIRS};
use crate::penalty::{Net, soft};
use crate::wide::Float;
use manylabel_base::{Error, filled, push};
use manylabel_simd::wide;

/// Largest number of sweeps over the coordinates of a label.
const SWEEPS: usize = 10;

/// The parameters of a label that can move, and their state when the gradient was taken.
pub(super) struct Local<T> {
    /// Columns of the second moments, in increasing order; the last is the constant.
    pub(super) columns: Vec<u32>,
    /// The couplings among them, with their positions.
    pub(super) ties: Vec<(usize, Tie)>,
    /// The value of each parameter.
    pub(super) values: Vec<T>,
    /// The gradient of the label's own loss.
    pub(super) slopes: Vec<T>,
    /// The same, except for couplings: half of the gradient of both labels' losses.
    pub(super) shares: Vec<T>,
}

/// A pair as one of its labels sees it.
#[derive(Clone, Copy)]
pub(super) struct Tie {
    /// The other label.
    pub(super) other: u32,
    /// The number of the pair in the objective.
    pub(super) pair: u32,
    /// 0 for the first label of the pair, 1 for the second.
    pub(super) side: usize,
}

/// What the models of the two labels of a pair say about its coupling at its current value.
#[derive(Clone, Copy)]
pub(super) struct Halves<T> {
    /// The slope in the model of either label.
    pub(super) slope: [T; 2],
    /// The curvature in the model of either label.
    pub(super) curvature: [T; 2],
}

/// What a label's problem has for one coordinate besides the label's own model.
#[derive(Clone, Copy)]
pub(super) struct Coordinate<T> {
    /// The penalty.
    pub(super) net: Net<T>,
    /// The slope that the other label of a coupling adds; 0 for weights.
    pub(super) slope: T,
    /// The curvature that the other label of a coupling adds; 0 for weights.
    pub(super) curvature: T,
    /// Whether the coordinate must not move, because the other label has just retreated.
    pub(super) fixed: bool,
}

/// The pairs of each label, ordered by the other label.
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

/// Coordinate descent on a model plus penalties, until no coordinate changes its slope by more than
/// `enough` in a sweep, at most [`SWEEPS`] times.
///
/// `matrix`: the curvature of the model, row after row; `values` and `slopes` are updated. A step
/// takes O(n) for n coordinates.
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
