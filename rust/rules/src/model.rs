//! Rules as plain arrays: what fitting makes and what prediction borrows.

use manylabel_sparse::CsrOwned;

/// How a condition compares the value of a feature with its threshold. A missing value (NaN)
/// satisfies none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Operator {
    /// `value ≤ threshold`.
    AtMost = 0,
    /// `value > threshold`.
    Above = 1,
    /// `value = threshold`, of a nominal feature.
    Equal = 2,
    /// `value ≠ threshold`, of a nominal feature.
    NotEqual = 3,
}

/// A rule ensemble. Rule r has the conditions `body_indptr[r]..body_indptr[r + 1]`, all of which a
/// row must satisfy, and the row `r` of `heads`; the first rule is the default rule, without
/// conditions. The score of a row is the sum of the heads of the rules that cover it.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Ends of the rules' conditions, `n_rules + 1` of them, from 0.
    pub body_indptr: Vec<i64>,
    /// Feature of each condition.
    pub body_feature: Vec<i32>,
    /// [`Operator`] of each condition, as its number.
    pub body_operator: Vec<u8>,
    /// Threshold of each condition.
    pub body_threshold: Vec<f32>,
    /// (`n_rules`, `n_labels`): what a rule adds to the scores, shrinkage included.
    pub heads: CsrOwned,
    /// Training rows that each rule covers, by weight.
    pub coverage: Vec<f64>,
    /// Mean loss of the held-out rows after each rule; empty if none were held out.
    pub validation_loss: Vec<f64>,
}
