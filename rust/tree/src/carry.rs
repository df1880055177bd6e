//! Carries the state of each label from one tree to the next.
//!
//! The leaves of a label in two trees have similar rows: all positive rows of the label, and mostly the same hard
//! negative rows. So a fit of several trees fits their leaves one tree after the other, and the leaves of a tree begin
//! with the states of the labels in the previous tree. The solvers then need fewer steps.
//!
//! A state has rows of the training set or features of X, so that it does not depend on a leaf. The number of the
//! intercept is the number of features.

use manylabel_base::range::ensure;
use manylabel_base::{Error, collected, extend, filled, push};
use manylabel_linear::dismec::Carry;

/// The name of states in error messages.
const STATES: &str = "number of states of labels";

/// What the states of a piece must be, in error messages.
const WANTED: &str = "a piece with valid states of the labels in its leaves";

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

    /// Replaces the states of some labels.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if there are other labels, rows or features. Returns [`Error::TooLarge`] if memory is
    /// short.
    pub(crate) fn replace(
        &mut self,
        labels: impl Iterator<Item = u32>,
        states: &States,
    ) -> Result<(), Error> {
        let labels = collected(STATES, labels)?;
        let n_states = states.are_weights.len();
        let fits = n_states == labels.len()
            && states.ends.len() == n_states + 1
            && states.ends.first() == Some(&0)
            && states.ends.last() == Some(&(states.values.len() as i64))
            && states.ends.is_sorted()
            && states.numbers.len() == states.values.len()
            && states.values.iter().all(|value| value.is_finite());
        ensure("piece", fits, WANTED, "states that are not valid")?;
        for ((ends, &is_weights), label) in
            states.ends.windows(2).zip(&states.are_weights).zip(labels)
        {
            let range = ends[0] as usize..ends[1] as usize;
            let numbers = &states.numbers[range.clone()];
            let most = if is_weights == 0 {
                self.n_rows
            } else {
                self.n_weights
            };
            let fits = is_weights <= 1
                && numbers.is_sorted_by(|a, b| a < b)
                && numbers.last().is_none_or(|&at| (at as usize) < most);
            ensure("piece", fits, WANTED, "states that are not valid")?;
            let both = numbers
                .iter()
                .copied()
                .zip(states.values[range].iter().copied());
            let entries = collected(STATES, both)?;
            self.states[label as usize] = if is_weights == 0 {
                Carry::Duals(entries)
            } else {
                Carry::Weights(entries)
            };
        }
        Ok(())
    }
}

/// The states of some labels, in arrays that can be stored in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct States {
    /// The position in `numbers` after the last entry of each label, with a leading 0.
    pub ends: Vec<i64>,
    /// For each label, 1 if its state has weights, and 0 if it has dual variables.
    pub are_weights: Vec<u8>,
    /// The rows of dual variables, and the features of weights.
    pub numbers: Vec<u32>,
    /// The dual variables and weights.
    pub values: Vec<f32>,
}

impl States {
    /// Returns the states of no labels.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self {
            ends: filled(STATES, 0, 1)?,
            are_weights: Vec::new(),
            numbers: Vec::new(),
            values: Vec::new(),
        })
    }

    /// Appends the state of a label.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn push(&mut self, state: &Carry) -> Result<(), Error> {
        let entries = state.entries().iter();
        extend(
            STATES,
            &mut self.numbers,
            entries.clone().map(|entry| entry.0),
        )?;
        extend(STATES, &mut self.values, entries.map(|entry| entry.1))?;
        push(STATES, &mut self.ends, self.values.len() as i64)?;
        let is_weights = matches!(state, Carry::Weights(_));
        push(STATES, &mut self.are_weights, u8::from(is_weights))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Two labels with dual variables and weights.
    fn states() -> States {
        let mut states = States::new().expect("small");
        for state in [
            Carry::Duals(vec![(0, 1.0), (8, -0.5)]),
            Carry::Weights(vec![(2, 0.25)]),
        ] {
            states.push(&state).expect("small");
        }
        states
    }

    #[test]
    fn states_return_to_their_labels() {
        let mut carried = Carried::new(4, 9, 3).expect("small");
        carried
            .replace([3, 1].into_iter(), &states())
            .expect("fits");
        let found = carried.of_labels(&[1, 3]).expect("small");
        assert_eq!(found[0], &Carry::Weights(vec![(2, 0.25)]));
        assert_eq!(found[1], &Carry::Duals(vec![(0, 1.0), (8, -0.5)]));
    }

    #[test]
    fn arrays_of_other_fits_are_refused() {
        let changes: [fn(&mut States); 10] = [
            |states| states.ends.truncate(2),
            |states| states.ends[1] = 4,
            |states| states.ends[1] = -1,
            |states| states.ends[0] = 1,
            |states| states.are_weights[0] = 2,
            |states| states.are_weights[0] = 1,
            |states| states.numbers[1] = 9,
            |states| states.numbers[1] = 0,
            |states| states.values[2] = f32::NAN,
            |states| states.values.truncate(2),
        ];
        for (at, change) in changes.iter().enumerate() {
            let mut states = states();
            change(&mut states);
            let mut carried = Carried::new(4, 9, 3).expect("small");
            assert!(
                carried.replace([3, 1].into_iter(), &states).is_err(),
                "{at}"
            );
        }
        let mut carried = Carried::new(4, 9, 3).expect("small");
        for labels in [&[3][..], &[0, 1, 2]] {
            assert!(carried.replace(labels.iter().copied(), &states()).is_err());
        }
    }
}
