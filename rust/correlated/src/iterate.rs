//! A point of the objective.

use crate::wide::{Float, Wide};
use manylabel_base::{Error, collected, copied, extend, filled};

/// Weights of all labels, and couplings of the pairs that may have one.
#[derive(Debug)]
pub(crate) struct Iterate<T, const N: usize> {
    /// Panel after panel of N labels; in each a row for every feature, and one for the intercepts.
    pub(crate) weights: Vec<Wide<T, N>>,
    /// One for each pair of the objective, in its order.
    pub(crate) couplings: Vec<T>,
}

impl<T: Float, const N: usize> Iterate<T, N> {
    /// Zeros, `n_rows` rows of weights in all.
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

    /// A copy.
    pub(crate) fn try_clone(&self) -> Result<Self, Error> {
        Ok(Self {
            weights: copied("weights", &self.weights)?,
            couplings: copied("couplings", &self.couplings)?,
        })
    }

    /// Moves to another point of the same weights, without allocating them anew.
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

    /// The same point for an objective of the pairs `to` instead of `from`, both in increasing order.
    ///
    /// Couplings of pairs that are no longer there must be zero.
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

/// Makes a vector a copy of some values, in the room it has if that is enough; `what` is named if they
/// do not fit.
pub(crate) fn overwrite<T: Copy>(
    what: &'static str,
    vec: &mut Vec<T>,
    values: &[T],
) -> Result<(), Error> {
    vec.clear();
    extend(what, vec, values.iter().copied())
}
