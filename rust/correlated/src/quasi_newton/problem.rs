//! Defines the problem that a quasi-Newton step solves for one label. The loss is approximated by a
//! quadratic function of the free parameters, and the penalties are added.

use super::{LABELS, PAIRS};
use crate::penalty::{Net, soft};
use crate::stored::stored;
use crate::wide::Float;
use manylabel_base::{Error, filled, push};
use manylabel_simd::wide;

/// Largest number of passes over the parameters of a label.
const SWEEPS: usize = 10;

/// The free parameters of a label, and their values and slopes at the last gradient.
pub(super) struct Local<T> {
    /// The number of each parameter among the columns of the second moments, in increasing order.
    /// The last column is the constant.
    pub(super) columns: Vec<u32>,
    /// The parameters that are couplings, each with its position in `columns`.
    pub(super) ties: Vec<(usize, Tie)>,
    /// The value of each parameter.
    pub(super) values: Vec<T>,
    /// For each parameter, the derivative of the loss of this label.
    pub(super) slopes: Vec<T>,
    /// Equal to `slopes` for weights. For a coupling, the mean of its derivatives in the losses of
    /// its two labels.
    pub(super) shares: Vec<T>,
}

/// A coupling, described from the side of one of its two labels.
#[derive(Clone, Copy)]
pub(super) struct Tie {
    /// The other label.
    pub(super) other: u32,
    /// The position of the pair of labels in the list of pairs of the objective.
    pub(super) pair: u32,
    /// 0 if this label is the first label of the pair, 1 if it is the second.
    pub(super) side: usize,
}

stored!([T: Float] Local<T> { columns, ties, values, slopes, shares });
stored!([] Tie { other, pair, side });

/// The slopes and curvatures of a coupling at its current value. A coupling belongs to two labels,
/// and each of these labels has its own quadratic function.
#[derive(Clone, Copy)]
pub(super) struct Halves<T> {
    /// The slope in the quadratic functions of the first and the second label.
    pub(super) slope: [T; 2],
    /// The curvature in the quadratic functions of the first and the second label.
    pub(super) curvature: [T; 2],
}

/// Data of one parameter that are not part of the quadratic function of its label.
#[derive(Clone, Copy)]
pub(super) struct Coordinate<T> {
    /// The penalty of the parameter.
    pub(super) net: Net<T>,
    /// For a coupling, the slope in the quadratic function of the other label. For a weight, 0.
    pub(super) slope: T,
    /// For a coupling, the curvature in the quadratic function of the other label. For a weight, 0.
    pub(super) curvature: T,
    /// Whether the parameter must not change. This is the case for a coupling if the step of the
    /// other label has just been shortened.
    pub(super) fixed: bool,
}

/// Returns, for each label, the pairs that contain it. They are sorted by the other label.
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

/// Minimizes a quadratic function plus penalties by coordinate descent. Stops after a pass in which
/// no slope changes by more than `enough`, or after [`SWEEPS`] passes.
///
/// `matrix` is the curvature of the quadratic function, stored row by row. `values` and `slopes`
/// are updated. One coordinate step takes O(n) time for n coordinates.
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
