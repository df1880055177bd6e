//! Defines what a fit learns to predict: the labels of the rows, and a factor for the cost of each pair of row
//! and label.

use manylabel_base::range::same;
use manylabel_base::{Error, copied};
use manylabel_sparse::{CsrOwned, Labels};

/// The score that stands for an unknown pair of row and label. It is so low that the pair is never predicted
/// and never has a loss as a negative pair. Its products with costs and steps are finite as `f32`.
pub(crate) const UNKNOWN_SCORE: f32 = -1e30;

/// The factors of the costs of a label: the cost of each positive row is multiplied by `positive`, and the cost
/// of each negative row by `negative`. Both are finite and > 0.
///
/// With the propensity p of a label, `positive` is `2/p − 1`, and `negative` is 1. The loss is then a convex
/// upper bound of an unbiased estimate of the loss for the complete labels, if each 1 is missing with probability
/// 1 − p. (Qaraei et al.: Convex surrogates for unbiased loss functions in extreme classification with missing
/// labels, WWW 2021.)
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors {
    /// The factor of the rows that have the label.
    pub positive: f32,
    /// The factor of the rows that do not have the label.
    pub negative: f32,
}

impl Default for Factors {
    fn default() -> Self {
        Self {
            positive: 1.0,
            negative: 1.0,
        }
    }
}

/// The labels of the rows and the factors of the labels.
#[derive(Debug, Clone, Copy)]
pub struct Targets<'a> {
    /// The labels of the rows.
    pub labels: Labels<'a>,
    /// The factors of each label; shape (`n_labels`). `None` if all factors are 1.
    pub factors: Option<&'a [Factors]>,
}

impl<'a> From<&'a CsrOwned> for Targets<'a> {
    fn from(ones: &'a CsrOwned) -> Self {
        Labels::from(ones).into()
    }
}

impl<'a> From<Labels<'a>> for Targets<'a> {
    fn from(labels: Labels<'a>) -> Self {
        Self {
            labels,
            factors: None,
        }
    }
}

impl Targets<'_> {
    /// Checks the shapes and the factors.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if shapes differ. Returns [`Error::Param`] if a factor is not finite and > 0.
    pub fn check(&self) -> Result<(), Error> {
        self.labels.check()?;
        let Some(factors) = self.factors else {
            return Ok(());
        };
        same("factors of labels", self.labels.ones.n_cols, factors.len())?;
        let mut all = factors.iter().flat_map(|of| [of.positive, of.negative]);
        match all.find(|factor| !(factor.is_finite() && *factor > 0.0)) {
            Some(factor) => Err(Error::Param {
                name: "label_weight",
                expected: "finite and > 0 as float32, also after the division by `propensities`",
                got: factor.to_string(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the rows of each label, and a copy of the factors.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn to_outputs(self) -> Result<Outputs, Error> {
        let factors = self.factors;
        Ok(Outputs {
            rows_of_label: self.labels.ones.transpose()?,
            unknown: self.labels.unknown.map(CsrOwned::transpose).transpose()?,
            factors: factors
                .map(|factors| copied("number of labels", factors))
                .transpose()?,
        })
    }
}

/// The outputs of a block. An output is a label or a group of labels, and has one linear classifier. The
/// matrices have shape (outputs, rows), and their stored values are ignored.
#[derive(Debug)]
pub struct Outputs {
    /// The positive rows of each output, in increasing order.
    pub rows_of_label: CsrOwned,
    /// The rows for which each output is unknown, in increasing order. `None` if all pairs are known.
    pub unknown: Option<CsrOwned>,
    /// The factors of each output. `None` if all factors are 1.
    pub factors: Option<Vec<Factors>>,
}

impl Outputs {
    /// Returns the rows that have `label`, in increasing order.
    pub(crate) fn positives(&self, label: u32) -> &[u32] {
        self.rows_of_label.row(label as usize).0
    }

    /// Returns the rows for which `label` is unknown, in increasing order.
    pub(crate) fn unknown(&self, label: u32) -> &[u32] {
        let unknown = self.unknown.as_ref();
        unknown.map_or(&[], |unknown| unknown.row(label as usize).0)
    }

    /// Returns the factors of the costs of the rows for `label`.
    pub(crate) fn factors(&self, label: u32) -> Factors {
        let factors = self.factors.as_ref();
        factors.map_or(Factors::default(), |factors| factors[label as usize])
    }

    /// Returns the smallest and the largest of all factors and the number 1.
    pub(crate) fn range_of_factors(&self) -> (f32, f32) {
        let factors = self.factors.iter().flatten();
        let mut range = (1.0f32, 1.0f32);
        for factor in factors.flat_map(|of| [of.positive, of.negative]) {
            range = (range.0.min(factor), range.1.max(factor));
        }
        range
    }
}
