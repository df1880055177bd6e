//! Defines types for the labels of training rows. Some pairs of row and label may be unknown.

use crate::{CsrOwned, CsrView, Index, Value};
use manylabel_base::Error;
use manylabel_base::range::same;

/// The labels of training rows. A pair of row and label is 1, 0 or unknown.
///
/// An unknown pair is neither an example nor a counterexample. Most fits leave unknown pairs out of the loss.
/// If a fit treats them in another way, its documentation describes how. A matrix of ones without unknown pairs
/// is converted with `into()`.
#[derive(Debug, Clone, Copy)]
pub struct Labels<'a> {
    /// The pairs that are 1; shape (`n_rows`, `n_labels`). The stored values are not used.
    pub ones: &'a CsrOwned,
    /// The pairs that are unknown; shape (`n_rows`, `n_labels`). The stored values are not used. None of these
    /// pairs is in `ones`. `None` if all pairs are known.
    pub unknown: Option<&'a CsrOwned>,
}

impl<'a> From<&'a CsrOwned> for Labels<'a> {
    fn from(ones: &'a CsrOwned) -> Self {
        Self {
            ones,
            unknown: None,
        }
    }
}

impl Labels<'_> {
    /// Checks that both matrices have the same shape.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if they have different shapes.
    pub fn check(&self) -> Result<(), Error> {
        let Some(unknown) = self.unknown else {
            return Ok(());
        };
        same(
            "rows of the unknown pairs",
            self.ones.n_rows(),
            unknown.n_rows(),
        )?;
        same(
            "columns of the unknown pairs",
            self.ones.n_cols,
            unknown.n_cols,
        )
    }

    /// Returns true if the pair of `row` and `label` is unknown, in O(log(unknown pairs of the row)).
    pub fn is_unknown(&self, row: usize, label: u32) -> bool {
        self.unknown
            .is_some_and(|unknown| unknown.row(row).0.binary_search(&label).is_ok())
    }

    /// Returns the unknown labels of a row, in increasing order.
    pub fn unknown_of(&self, row: usize) -> &[u32] {
        self.unknown.map_or(&[], |unknown| unknown.row(row).0)
    }
}

/// The owned form of [`Labels`].
#[derive(Debug, Clone, PartialEq)]
pub struct LabelsOwned {
    /// The pairs that are 1; shape (`n_rows`, `n_labels`).
    pub ones: CsrOwned,
    /// The pairs that are unknown; shape (`n_rows`, `n_labels`). `None` if all pairs are known.
    pub unknown: Option<CsrOwned>,
}

impl LabelsOwned {
    /// Copies the stored entries of `y`, in O(nnz). An entry that is NaN is unknown, an entry that is 0 is left
    /// out, and any other entry is a one.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if `y` has more than 2³¹−2 rows or columns, or if the copy does not
    /// fit in memory.
    pub fn from_view<I: Index, T: Value>(y: CsrView<'_, I, T>) -> Result<Self, Error> {
        let is_unknown = |value: &T| value.f64().is_nan();
        if !(0..y.n_rows()).any(|row| y.row(row).1.iter().any(is_unknown)) {
            let ones = CsrOwned::from_view(y, false)?;
            return Ok(Self {
                ones,
                unknown: None,
            });
        }
        Ok(Self {
            ones: CsrOwned::ones_where(y, |value| !value.is_nan() && value != 0.0)?,
            unknown: Some(CsrOwned::ones_where(y, f64::is_nan)?),
        })
    }

    /// Borrows the matrices.
    pub fn view(&self) -> Labels<'_> {
        Labels {
            ones: &self.ones,
            unknown: self.unknown.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_unknown_and_zero_is_left_out() {
        let nan = f32::NAN;
        let values = [1.0, nan, 0.0, nan, 1.0];
        let y = CsrView::new("Y", &[0i32, 3, 3, 5], &[0, 1, 2, 0, 2], &values, 3).expect("valid");
        let labels = LabelsOwned::from_view(y).expect("small");
        let unknown = labels.unknown.as_ref().expect("two pairs");
        assert_eq!(labels.ones.indptr, [0, 1, 1, 2]);
        assert_eq!(labels.ones.indices, [0, 2]);
        assert_eq!(unknown.indptr, [0, 1, 1, 2]);
        assert_eq!(unknown.indices, [1, 0]);
        assert!(labels.view().is_unknown(0, 1) && !labels.view().is_unknown(2, 1));
    }
}
