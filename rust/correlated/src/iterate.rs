//! Defines a point, which is an argument of the objective: values of all weights, intercepts and
//! couplings.
//!
//! The solvers store points and change them. The [objective](crate::objective) only reads them.

use crate::stored::stored;
use crate::wide::{Float, Wide};
use manylabel_base::{Error, collected, copied, extend, filled};

/// A point: the weights of all labels, and the couplings of all pairs that may have a coupling.
///
/// The weights belong to the scaled and centred columns of the fit, not to the caller's columns;
/// see `units.rs`.
#[derive(Debug)]
pub(crate) struct Iterate<T, const N: usize> {
    /// Weights, stored panel by panel. A panel is a group of N labels. It has one row for each
    /// non-constant feature, and a last row for the intercepts. Unused lanes of the last panel stay
    /// zero.
    pub(crate) weights: Vec<Wide<T, N>>,
    /// The couplings of the pairs of the objective, in the order of the pairs.
    pub(crate) couplings: Vec<T>,
}

stored!([T: Float, const N: usize] Iterate<T, N> { weights, couplings });

impl<T: Float, const N: usize> Iterate<T, N> {
    /// Returns a point with only zeros. Weights are stored in panels (groups of N labels). `n_rows`
    /// is the number of rows of weights in all panels together.
    pub(crate) fn zeros(n_rows: usize, n_pairs: usize) -> Result<Self, Error> {
        Ok(Self {
            weights: filled("number of weights", Wide::zero(), n_rows)?,
            couplings: filled("number of couplings", T::default(), n_pairs)?,
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
            weights: copied("number of weights", &self.weights)?,
            couplings: copied("number of couplings", &self.couplings)?,
        })
    }

    /// Copies another point to this point and reuses the memory of this point. The points must have
    /// the same number of weights.
    pub(crate) fn copy(&mut self, other: &Self) -> Result<(), Error> {
        self.weights.copy_from_slice(&other.weights);
        overwrite("number of couplings", &mut self.couplings, &other.couplings)
    }

    /// Converts the point to another precision by rounding each number.
    pub(crate) fn convert<U: Float>(self) -> Result<Iterate<U, N>, Error> {
        let weights = self.weights.iter();
        let weights = weights.map(|row| Wide(row.0.map(|weight| U::of(weight.f64()))));
        let couplings = self.couplings.iter().map(|value| U::of(value.f64()));
        Ok(Iterate {
            weights: collected("number of weights", weights)?,
            couplings: collected("number of couplings", couplings)?,
        })
    }

    /// Changes the list of pairs of this point from `from` to `to`. The two lists must be in
    /// increasing order. Pairs in both lists keep their coupling, and the coupling of new pairs is
    /// zero.
    ///
    /// The coupling of every removed pair must be zero, because otherwise the model would change.
    /// Takes O(number of pairs in both lists) time.
    pub(crate) fn recouple(&mut self, from: &[(u32, u32)], to: &[(u32, u32)]) -> Result<(), Error> {
        let mut values = filled("number of couplings", T::default(), to.len())?;
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

/// Makes `vec` a copy of `values`. The memory of `vec` is reused if it is large enough. `what`
/// names the vector in error messages about memory.
pub(crate) fn overwrite<T: Copy>(
    what: &'static str,
    vec: &mut Vec<T>,
    values: &[T],
) -> Result<(), Error> {
    vec.clear();
    extend(what, vec, values.iter().copied())
}
