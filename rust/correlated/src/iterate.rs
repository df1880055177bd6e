//! Defines a point of the objective: values of all weights, intercepts and couplings.
//!
//! Points are plain values. The solvers store and change points. The [objective](crate::objective)
//! only reads them.

use crate::wide::{Float, Wide};
use manylabel_base::{Error, collected, copied, extend, filled};

/// Weights of all labels, and couplings of the pairs that may have a coupling.
///
/// Numbers are in the units of the fit, not in the units of the caller; see `units.rs`.
#[derive(Debug)]
pub(crate) struct Iterate<T, const N: usize> {
    /// Weights, panel by panel of N labels. A panel has one row for each non-constant feature, and
    /// a last row for the intercepts. Lanes beyond the last label stay zero.
    pub(crate) weights: Vec<Wide<T, N>>,
    /// One coupling for each pair of the objective, in the same order.
    pub(crate) couplings: Vec<T>,
}

impl<T: Float, const N: usize> Iterate<T, N> {
    /// Returns the point zero, with `n_rows` rows of weights over all panels.
    pub(crate) fn zeros(n_rows: usize, n_pairs: usize) -> Result<Self, Error> {
        Ok(Self {
            weights: filled("weights", Wide::zero(), n_rows)?,
            couplings: filled("couplings", T::default(), n_pairs)?,
        })
    }

    /// Returns whether all numbers are finite.
    pub(crate) fn is_finite(&self) -> bool {
        let finite = |value: &T| value.f64().is_finite();
        let weights = &self.weights;
        weights.iter().all(|row| row.0.iter().all(finite)) && self.couplings.iter().all(finite)
    }

    /// Returns a copy, or an error if there is not enough memory.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self {
            weights: copied("weights", &self.weights)?,
            couplings: copied("couplings", &self.couplings)?,
        })
    }

    /// Copies another point into this point, reusing the memory. The points must have the same
    /// number of weights.
    pub(crate) fn copy(&mut self, other: &Self) -> Result<(), Error> {
        self.weights.copy_from_slice(&other.weights);
        overwrite("couplings", &mut self.couplings, &other.couplings)
    }

    /// Returns the nearest point in another precision.
    pub(crate) fn convert<U: Float>(self) -> Result<Iterate<U, N>, Error> {
        let weights = self.weights.iter();
        let weights = weights.map(|row| Wide(row.0.map(|weight| U::of(weight.f64()))));
        let couplings = self.couplings.iter().map(|value| U::of(value.f64()));
        Ok(Iterate {
            weights: collected("weights", weights)?,
            couplings: collected("couplings", couplings)?,
        })
    }

    /// Changes the pairs of this point from `from` to `to`. Each list is in increasing order. Pairs
    /// in both lists keep their coupling, and new pairs get zero.
    ///
    /// Couplings of removed pairs must be zero, because otherwise the model would change. Takes
    /// O(from + to).
    pub(crate) fn recouple(&mut self, from: &[(u32, u32)], to: &[(u32, u32)]) -> Result<(), Error> {
        let mut values = filled("couplings", T::default(), to.len())?;
        let mut known = from.iter().zip(&self.couplings).peekable();
        for (pair, value) in to.iter().zip(&mut values) {
            while known.next_if(|(old, _)| *old < pair).is_some() {}
            if let Some((_, &old)) = known.next_if(|(old, _)| *old == pair) {
                *value = old;
            }
        }
        self.couplings = values;
        Ok(())
    }
}

/// Makes `vec` a copy of `values`. Reuses its memory if it is large enough. `what` names the vector
/// in memory errors.
pub(crate) fn overwrite<T: Copy>(
    what: &'static str,
    vec: &mut Vec<T>,
    values: &[T],
) -> Result<(), Error> {
    vec.clear();
    extend(what, vec, values.iter().copied())
}
