//! The problem of one label: a quadratic model of its loss in what moves, and penalties.

use super::{LABELS, PAIRS};
use crate::penalty::{Net, soft};
use crate::wide::Float;
use manylabel_base::{Error, filled, push};
use manylabel_simd::wide;

/// Sweeps over the coordinates of a label at most.
const SWEEPS: usize = 10;

/// What can move in a label, and where that stood when a gradient was taken.
pub(super) struct Local<T> {
    /// Columns of second moments, in increasing order.
    pub(super) columns: Vec<u32>,
    /// The couplings among them, by position.
    pub(super) ties: Vec<(usize, Tie)>,
    pub(super) values: Vec<T>,
    /// The gradient of the label's own loss.
    pub(super) slopes: Vec<T>,
    /// The same, but for couplings half of that of both labels' losses.
    pub(super) shares: Vec<T>,
}

/// A pair as one of its labels has it.
#[derive(Clone, Copy)]
pub(super) struct Tie {
    pub(super) other: u32,
    pub(super) pair: u32,
    /// 0 for the first label of the pair, 1 for the second.
    pub(super) side: usize,
}

/// What the models of both labels say of a coupling where it stands.
#[derive(Clone, Copy)]
pub(super) struct Halves<T> {
    pub(super) slope: [T; 2],
    pub(super) curvature: [T; 2],
}

/// One coordinate of a label's problem besides its own model.
#[derive(Clone, Copy)]
pub(super) struct Coordinate<T> {
    pub(super) net: Net<T>,
    /// What the other label of a coupling adds to its slope and curvature.
    pub(super) slope: T,
    pub(super) curvature: T,
    /// Whether the other label has just retreated.
    pub(super) fixed: bool,
}

/// The pairs of each label, in order of the other.
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

/// Lowers model and penalties by sweeps over the coordinates, until none moves its slope by more than
/// `enough`; `matrix`: the curvature of the model.
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
