//! Results of an earlier fit, from which the solvers begin.

use super::problem::Problem;
use crate::panel::Lanes;
use manylabel_base::range::same;
use manylabel_base::{Error, collected};
use manylabel_sparse::CsrOwned;

/// The state of a label after a fit, from which a fit of the same label to similar rows can begin. The kind depends on
/// the solver.
#[derive(Debug, Clone, PartialEq)]
pub enum Carry {
    /// Rows in increasing order with their dual variables v. The weights are `Σ_i v_i x_i`, and the term of the
    /// background is left out. Numbers are > 0 for positive rows and < 0 for negative rows.
    Duals(Vec<(u32, f32)>),
    /// Columns in increasing order with their weights. The column after the last one has the intercept.
    Weights(Vec<(u32, f32)>),
}

impl Carry {
    /// Returns the rows or columns with their numbers.
    pub fn entries(&self) -> &[(u32, f32)] {
        match self {
            Self::Duals(entries) | Self::Weights(entries) => entries,
        }
    }
}

/// The results of an earlier fit of some labels.
#[derive(Debug)]
pub struct Start(Kind);

#[derive(Debug)]
enum Kind {
    /// Weights and intercepts. Only the solver of frequent labels uses them.
    Weights {
        weights: CsrOwned,
        intercept: Vec<f32>,
    },
    /// One entry for each label. The solver of frequent labels uses weights, and the solver of rare labels uses dual
    /// variables.
    Carried(Vec<Carry>),
}

impl Start {
    /// Takes weights of shape (`n_labels`, `n_features`), and one intercept for each label. A label whose
    /// intercept is not finite has no weights.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the numbers of labels differ. Returns [`Error::TooLarge`] if there is not
    /// enough memory.
    pub fn new(weights: CsrOwned, intercept: &[f32]) -> Result<Self, Error> {
        same("intercepts", weights.n_rows(), intercept.len())?;
        Ok(Self(Kind::Weights {
            weights,
            intercept: collected("number of labels", intercept.iter().copied())?,
        }))
    }

    /// Takes the states of all labels, in order.
    pub(super) fn of_carried(carried: Vec<Carry>) -> Self {
        Self(Kind::Carried(carried))
    }

    /// Returns the dual variables of a label, or `None` if there are none.
    pub(super) fn duals(&self, label: u32) -> Option<&[(u32, f32)]> {
        match &self.0 {
            Kind::Carried(carried) => match &carried[label as usize] {
                Carry::Duals(duals) if !duals.is_empty() => Some(duals),
                _ => None,
            },
            Kind::Weights { .. } => None,
        }
    }

    /// Returns true if the label was fitted to similar rows, and its weights are known.
    pub(super) fn carries_weights(&self, label: u32) -> bool {
        match &self.0 {
            Kind::Carried(carried) => {
                matches!(&carried[label as usize], Carry::Weights(weights) if !weights.is_empty())
            }
            Kind::Weights { .. } => false,
        }
    }

    /// Checks the numbers of labels and features.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if a number differs.
    pub(super) fn check(&self, n_labels: usize, n_features: usize) -> Result<(), Error> {
        match &self.0 {
            Kind::Weights { weights, intercept } => {
                same("labels with weights", n_labels, intercept.len())?;
                same("features with weights", n_features, weights.n_cols)
            }
            Kind::Carried(carried) => same("labels with a state", n_labels, carried.len()),
        }
    }

    /// Writes the weights of a label to one lane of `out`, in the order of the columns of `Problem::x`. Does nothing
    /// if the label has no start. Features that the problem does not have are left out.
    pub(super) fn read(&self, problem: &Problem<'_>, label: u32, lane: usize, out: &mut [Lanes]) {
        let clear = |out: &mut [Lanes]| {
            for weights in out {
                weights.0[lane] = 0.0;
            }
        };
        match &self.0 {
            Kind::Weights { weights, intercept } => {
                let intercept = intercept[label as usize];
                if !intercept.is_finite() {
                    return;
                }
                clear(out);
                let (cols, values) = weights.row(label as usize);
                for (col, &value) in cols.iter().zip(values) {
                    if let Ok(at) = problem.features.binary_search(col) {
                        out[at].0[lane] = value;
                    }
                }
                if let Some(last) = out.get_mut(problem.features.len()) {
                    last.0[lane] = intercept;
                }
            }
            Kind::Carried(carried) => {
                let Carry::Weights(weights) = &carried[label as usize] else {
                    return;
                };
                if !weights.is_empty() {
                    clear(out);
                }
                for &(col, weight) in weights {
                    out[col as usize].0[lane] = weight;
                }
            }
        }
    }
}
