//! A point of the objective: values of all weights, intercepts and couplings.
//!
//! Points are plain values. The solvers hold and move them, the [objective](crate::objective) only
//! reads them.

use crate::wide::{Float, Wide};
use manylabel_base::{Error, collected, copied, extend, filled};

/// Weights of all labels, and couplings of the pairs that may have one.
///
/// Numbers are in the units of the fit, not in those of the caller; see `units.rs`.
#[derive(Debug)]
pub(crate) struct Iterate<T, const N: usize> {
    /// Panel after panel of N labels. A panel has one row for each feature that varies, and a last
    /// row for the intercepts. Lanes beyond the last label stay zero.
    pub(crate) weights: Vec<Wide<T, N>>,
    /// One coupling for each pair of the objective, in the order of its pairs.
    pub(crate) couplings: Vec<T>,
}

impl<T: Float, const N: usize> Iterate<T, N> {
    /// The point zero, with `n_rows` rows of weights over all panels.
    pub(crate) fn zeros(n_rows: usize, n_pairs: usize) -> Result<Self, Error> {
        Ok(Self {
            weights: filled("weights", Wide::zero(), n_rows)?,
            couplings: filled("couplings", T::default(), n_pairs)?,
        })
    }

    /// Whether all numbers are finite.
    pub(crate) fn is_finite(&self) -> bool {
        let finite = |value: &T| value.f64().is_finite();
        let weights = &self.weights;
        weights.iter().all(|row| row.0.iter().all(finite)) && self.couplings.iter().all(finite)
    }

    /// A copy; memory that is not granted is an error.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self {
            weights: copied("weights", &self.weights)?,
            couplings: copied("couplings", &self.couplings)?,
        })
    }

    /// Copies another point with as many weights into this one, reusing the memory.
    pub(crate) fn copy(&mut self, other: &Self) -> Result<(), Error> {
        self.weights.copy_from_slice(&other.weights);
        overwrite("couplings", &mut self.couplings, &other.couplings)
    }

    /// The nearest point in another precision.
    pub(crate) fn convert<U: Float>(self) -> Result<Iterate<U, N>, Error> {
        let weights = self.weights.iter();
        let weights = weights.map(|row| Wide(row.0.map(|weight| U::of(weight.f64()))));
        let couplings = self.couplings.iter().map(|value| U::of(value.f64()));
        Ok(Iterate {
            weights: collected("weights", weights)?,
            couplings: collected("couplings", couplings)?,
        })
    }

    /// Makes this a point of an objective with the pairs `to` instead of `from`, both in increasing
    /// order. Pairs in both keep their coupling, new pairs get zero.
    ///
    /// Couplings of pairs that are dropped must be zero, or the model changes. Takes O(from + to).
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

/// Makes `vec` a copy of `values`, reusing its memory where that is enough. `what` names the vector
/// in errors about memory.
pub(crate) fn overwrite<T: Copy>(
    what: &'static str,
    vec: &mut Vec<T>,
    values: &[T],
) -> Result<(), Error> {
    vec.clear();
    extend(what, vec, values.iter().copied())
}
