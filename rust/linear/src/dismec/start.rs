//! Weights of an earlier fit, from which the solver of frequent labels begins.

use crate::panel::Lanes;
use manylabel_base::range::same;
use manylabel_base::{Error, collected};
use manylabel_sparse::CsrOwned;

/// The weights and intercepts of some labels.
#[derive(Debug)]
pub struct Start {
    weights: CsrOwned,
    intercept: Vec<f32>,
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
        Ok(Self {
            weights,
            intercept: collected("number of labels", intercept.iter().copied())?,
        })
    }

    /// Checks the numbers of labels and features.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if a number differs.
    pub(super) fn check(&self, n_labels: usize, n_features: usize) -> Result<(), Error> {
        same("labels with weights", n_labels, self.intercept.len())?;
        same("features with weights", n_features, self.weights.n_cols)
    }

    /// Writes the weights of a label to one lane of `out`, unless the label has no weights. `features` has the
    /// original number of each entry of `out`, in increasing order. If `out` has one more entry, it gets the
    /// intercept. Features that are not in `features` are left out.
    pub(super) fn read(&self, label: u32, features: &[u32], lane: usize, out: &mut [Lanes]) {
        let intercept = self.intercept[label as usize];
        if !intercept.is_finite() {
            return;
        }
        for weights in out.iter_mut() {
            weights.0[lane] = 0.0;
        }
        let (cols, values) = self.weights.row(label as usize);
        for (col, &value) in cols.iter().zip(values) {
            if let Ok(at) = features.binary_search(col) {
                out[at].0[lane] = value;
            }
        }
        if let Some(last) = out.get_mut(features.len()) {
            last.0[lane] = intercept;
        }
    }
}
