//! Estimates the curvature of the loss of a label from quasi-Newton steps.
//!
//! The curvature is a matrix with one row and column for each free parameter of the label. The
//! matrix is not stored between steps. It is computed again for each step, in three stages. First,
//! the second moments are multiplied by a factor. Then the diagonal entry of a coupling is
//! increased if the estimated curvature of the coupling is larger than this entry. Finally, the
//! matrix is updated with up to [`MEMORY`] observed steps (secants). An observed step stores only
//! the parameters that were free in this step. For all other parameters, the changes of the
//! gradient are computed from the quadratic function.

use super::COLUMNS;
use super::problem::{Halves, Local, Tie};
use crate::gram::Gram;
use crate::stored::stored;
use crate::wide::Float;
use manylabel_base::{Error, collected, copied, extend, filled, reserved};
use manylabel_simd::wide;
use std::collections::VecDeque;

/// Number of observed steps that are stored for each label.
const MEMORY: usize = 5;

/// The initial factor of the second moments, divided by the curvature for constant predictions. It
/// is above 1 because the curvature of rare labels increases during the fit.
const AHEAD: f64 = 2.0;

/// The estimated curvature of a label is multiplied by this number after a step that has shown a
/// smaller curvature.
const FORGET: f64 = 0.8;

/// Smallest curvature at which a step is used for updates, relative to the curvature of the
/// quadratic function.
const LEAST: f64 = 1e-6;

/// A step of one label, and the change of the gradient that it caused.
pub(super) struct Secant<T> {
    /// The columns (parameters) that could change in this step, in increasing order.
    columns: Vec<u32>,
    /// For each of these columns, the change of its value.
    steps: Vec<T>,
    /// For each of these columns, the change of its slope.
    changes: Vec<T>,
}

/// The estimate of the curvature of the loss of one label.
pub(super) struct Shape<T> {
    /// The factor by which the second moments are multiplied. It estimates the mean of σ(1−σ),
    /// where σ is the predicted probability. After the first step it is at most ¼.
    pub(super) scale: f64,
    /// The last observed steps, from the oldest to the newest.
    secants: VecDeque<Secant<T>>,
}

stored!([T: Float] Secant<T> { columns, steps, changes });
stored!([T: Float] Shape<T> { scale, secants });

impl<T: Float> Secant<T> {
    /// Returns the differences of values and slopes between two points on the same columns.
    pub(super) fn new(before: &Local<T>, after: &Local<T>) -> Result<Self, Error> {
        let minus = |a: &[T], b: &[T]| collected(COLUMNS, a.iter().zip(b).map(|(&a, &b)| a - b));
        Ok(Self {
            steps: minus(&after.values, &before.values)?,
            changes: minus(&after.slopes, &before.slopes)?,
            columns: copied(COLUMNS, &before.columns)?,
        })
    }
}

impl<T: Float> Shape<T> {
    /// Returns the estimate before the first step. `variance` is the curvature for constant
    /// predictions.
    pub(super) fn new(variance: f64) -> Self {
        Self {
            scale: AHEAD * variance,
            secants: VecDeque::new(),
        }
    }

    /// Updates the factor of the second moments with an observed step, and stores the step. A step
    /// with too little curvature is ignored, because it is not reliable.
    ///
    /// `variance` is the curvature for constant predictions, and `share` is the fraction of the
    /// step that is kept. `ties` lists the columns that are couplings, and `halves` holds their
    /// initial curvatures.
    pub(super) fn learn(
        &mut self,
        gram: &Gram<T>,
        secant: Secant<T>,
        variance: f64,
        share: f64,
        ties: &[(usize, Tie)],
        halves: &[Halves<T>],
    ) -> Result<(), Error> {
        let change = dot(&secant.steps, &secant.changes);
        let moved = secant.columns.iter().zip(&secant.steps);
        let moved = moved.map(|(&col, step)| (col as usize, step.f64()));
        let moved = collected(COLUMNS, moved.filter(|&(_, step)| step != 0.0))?;
        let along = |&(row, step): &(usize, f64)| {
            let row = gram.row(row);
            step * moved
                .iter()
                .map(|&(col, step)| step * row[col].f64())
                .sum::<f64>()
        };
        let square: f64 = moved.iter().map(along).sum();
        if !(change > LEAST * variance * square && change.is_finite()) {
            return Ok(());
        }
        // Couplings have additional curvature. It is subtracted from the observed change, because
        // the factor applies to all columns.
        let own = ties.iter().map(|&(at, tie)| {
            let prior = halves[tie.pair as usize].curvature[tie.side].f64();
            let col = secant.columns[at] as usize;
            let excess = prior - self.scale * gram.row(col)[col].f64();
            excess.max(0.0) * secant.steps[at].f64().powi(2)
        });
        let seen = (change - own.sum::<f64>()) / square;
        let left = if share < 1.0 {
            self.scale / share.max(0.5)
        } else if self.secants.is_empty() {
            variance / 2.0
        } else {
            FORGET * self.scale
        };
        self.scale = left.max(seen).min(0.25);
        if self.secants.len() == MEMORY {
            self.secants.pop_front();
        }
        self.secants.push_back(secant);
        Ok(())
    }

    /// Writes the curvature of the quadratic function of a label to `matrix`, row by row. The
    /// matrix has one row and one column for each column (parameter) of the label.
    ///
    /// Takes O(n²) time for n columns and each observed step.
    pub(super) fn fill(
        &self,
        gram: &Gram<T>,
        local: &Local<T>,
        halves: &[Halves<T>],
        matrix: &mut Vec<T>,
    ) -> Result<(), Error> {
        let columns = &local.columns[..];
        let n = columns.len();
        gather(gram, columns, T::of(self.scale), matrix)?;
        for &(at, tie) in &local.ties {
            let prior = halves[tie.pair as usize].curvature[tie.side];
            if prior > matrix[at * n + at] {
                matrix[at * n + at] = prior;
            }
        }
        let mut steps = filled(COLUMNS, T::default(), n)?;
        let mut product = filled(COLUMNS, T::default(), n)?;
        for secant in &self.secants {
            steps.fill(T::default());
            let mut known = reserved(COLUMNS, n)?;
            let mut at = 0;
            for (place, &col) in columns.iter().enumerate() {
                while at < secant.columns.len() && secant.columns[at] < col {
                    at += 1;
                }
                if secant.columns.get(at) == Some(&col) {
                    steps[place] = secant.steps[at];
                    known.push((place, secant.changes[at]));
                }
            }
            times(matrix, &steps, &mut product);
            // For columns that were not part of the step, the quadratic function predicts the
            // change of the slope.
            let mut changes = copied(COLUMNS, &product)?;
            for (place, change) in known {
                changes[place] = change;
            }
            let (seen, modelled) = (dot(&steps, &changes), dot(&steps, &product));
            if seen > LEAST * modelled && modelled > 0.0 {
                let scales = (T::of(1.0 / seen), T::of(1.0 / modelled));
                update(matrix, &changes, scales.0, &product, scales.1);
            }
        }
        Ok(())
    }
}

/// Returns the inner product in double precision.
fn dot<T: Float>(a: &[T], b: &[T]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| a.f64() * b.f64()).sum()
}

/// Writes the second moments of the given columns, multiplied by a factor, to `matrix`.
fn gather<T: Float>(
    gram: &Gram<T>,
    columns: &[u32],
    factor: T,
    matrix: &mut Vec<T>,
) -> Result<(), Error> {
    matrix.clear();
    for &row in columns {
        let row = gram.row(row as usize);
        let of_row = columns.iter().map(|&col| factor * row[col as usize]);
        extend("the matrix of second moments", matrix, of_row)?;
    }
    Ok(())
}

/// Computes the product of a symmetric matrix and a vector. Zeros of the vector are skipped to save
/// time.
#[wide]
fn times<T: Float>(matrix: &[T], vector: &[T], out: &mut [T]) {
    out.fill(T::default());
    for (row, &factor) in matrix.chunks_exact(vector.len()).zip(vector) {
        if factor != T::default() {
            for (out, &value) in out.iter_mut().zip(row) {
                *out += factor * value;
            }
        }
    }
}

/// Adds `of_a · a aᵀ − of_b · b bᵀ` to a matrix.
#[wide]
fn update<T: Float>(matrix: &mut [T], a: &[T], of_a: T, b: &[T], of_b: T) {
    for (row, (&left, &right)) in matrix.chunks_exact_mut(a.len()).zip(a.iter().zip(b)) {
        let (left, right) = (of_a * left, of_b * right);
        for (out, (&a, &b)) in row.iter_mut().zip(a.iter().zip(b)) {
            *out += left * a - right * b;
        }
    }
}
