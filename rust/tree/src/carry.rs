//! Carries the state of each label from one tree to the next.
//!
//! The leaves of a label in two trees have similar rows: all positive rows of the label, and mostly the same hard
//! negative rows. So a fit of several trees fits their leaves one tree after the other, and the leaves of a tree begin
//! with the states of the labels in the previous tree. The solvers then need fewer steps.
//!
//! A state has rows of the training set or features of X, so that it does not depend on a leaf. The number of the
//! intercept is the number of features.

use crate::task::Piece;
use manylabel_base::range::ensure;
use manylabel_base::{Error, collected, extend, push};
use manylabel_linear::dismec::Carry;

/// The name of states in error messages.
const STATES: &str = "states of labels";

/// The state of each label in the last tree that was fitted.
#[derive(Debug)]
pub(crate) struct Carried {
    /// The state of each label. It is empty if there is none.
    states: Vec<Carry>,
    /// The number of rows of the training set.
    n_rows: usize,
    /// The number of weights of a label, including the intercept.
    n_weights: usize,
}

impl Carried {
    /// Starts with empty states. If intercepts are fitted, `n_weights` counts them.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn new(n_labels: usize, n_rows: usize, n_weights: usize) -> Result<Self, Error> {
        let empty = (0..n_labels).map(|_| Carry::Duals(Vec::new()));
        Ok(Self {
            states: collected(STATES, empty)?,
            n_rows,
            n_weights,
        })
    }

    /// Returns the states of some labels.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn of_labels(&self, labels: &[u32]) -> Result<Vec<&Carry>, Error> {
        collected(
            STATES,
            labels.iter().map(|&label| &self.states[label as usize]),
        )
    }

    /// Replaces the states of labels by those of a piece. `labels` has the labels of the leaves of the piece, in order.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the piece has other rows or features. Returns [`Error::TooLarge`] if memory is
    /// short.
    pub(crate) fn replace(
        &mut self,
        mut labels: impl Iterator<Item = u32>,
        piece: &Piece,
    ) -> Result<(), Error> {
        let states = piece.state_ends.windows(2).zip(&piece.states_are_weights);
        for (ends, &is_weights) in states {
            let range = ends[0] as usize..ends[1] as usize;
            let numbers = &piece.state_numbers[range.clone()];
            let values = &piece.state_values[range];
            let most = if is_weights == 0 {
                self.n_rows
            } else {
                self.n_weights
            };
            let label = labels.next();
            ensure(
                "piece",
                label.is_some()
                    && is_weights <= 1
                    && numbers.is_sorted_by(|a, b| a < b)
                    && values.iter().all(|value| value.is_finite())
                    && numbers.iter().all(|&at| (at as usize) < most),
                "the states of the labels of its leaves",
                "other arrays",
            )?;
            let both = numbers.iter().copied().zip(values.iter().copied());
            let mut entries = Vec::new();
            extend(STATES, &mut entries, both)?;
            if let Some(label) = label {
                self.states[label as usize] = if is_weights == 0 {
                    Carry::Duals(entries)
                } else {
                    Carry::Weights(entries)
                };
            }
        }
        Ok(())
    }
}

/// Returns a state with other numbers. Entries for which `number` returns `None` are dropped. The numbers must keep
/// their order.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
pub(crate) fn renumbered(
    state: &Carry,
    number: impl Fn(&(u32, f32)) -> Option<u32>,
) -> Result<Carry, Error> {
    let mut entries = Vec::new();
    for entry in state.entries() {
        if let Some(to) = number(entry) {
            push(STATES, &mut entries, (to, entry.1))?;
        }
    }
    Ok(match state {
        Carry::Duals(_) => Carry::Duals(entries),
        Carry::Weights(_) => Carry::Weights(entries),
    })
}
