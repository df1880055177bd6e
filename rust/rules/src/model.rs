//! Stores rules in plain arrays. A fit returns these arrays, and predictions borrow them.
//!
//! [`Model`] owns the arrays. [`Rules`] borrows arrays from any owner, for example from numpy. [`Rules::new`]
//! checks the arrays first. The conditions of a rule form its *body*. The bodies are stored like the rows of
//! a CSR matrix. Rule r has the conditions `indptr[r]..indptr[r + 1]`. Condition c compares feature
//! `feature[c]` by `operator[c]` with `threshold[c]`.
//!
//! The scores that a rule adds form its *head*. A complete head stores a score for every label, including
//! zeros. Predictions can then add the scores without reading label numbers. A single-label head stores only
//! the score of one label.

use manylabel_base::range::same;
use manylabel_base::{Error, copied, extend, push, reserved};
use manylabel_sparse::{CsrOwned, CsrView, Index};

/// The comparison of a feature value with a threshold. A missing value (NaN) satisfies no condition. Arrays
/// and model files store the discriminants of this enum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Operator {
    /// `value ≤ threshold`.
    AtMost = 0,
    /// `value > threshold`.
    Above = 1,
    /// `value = threshold`, for nominal features.
    Equal = 2,
    /// `value ≠ threshold`, for nominal features.
    NotEqual = 3,
}

impl Operator {
    /// Returns the operator with this number, or `None` if there is no such operator.
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::AtMost, Self::Above, Self::Equal, Self::NotEqual]
            .get(usize::from(number))
            .copied()
    }
}

/// An ensemble of rules.
///
/// Rule r has the conditions `body_indptr[r]..body_indptr[r + 1]` and the head in row r of `heads`.
/// A rule covers a row of X if the row satisfies all conditions of the rule. The first rule is the
/// default rule, which has no conditions. The scores of a row of X are the sum of the heads of the
/// rules that cover the row.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The number 0, followed by the position after the last condition of each rule. Has `n_rules + 1`
    /// entries in non-decreasing order.
    pub body_indptr: Vec<i64>,
    /// Feature of each condition.
    pub body_feature: Vec<i32>,
    /// [`Operator`] of each condition, as its number.
    pub body_operator: Vec<u8>,
    /// Threshold of each condition. All thresholds are finite.
    pub body_threshold: Vec<f32>,
    /// The scores that each rule adds, as a matrix of shape (`n_rules`, `n_labels`). They are
    /// already multiplied by the learning rate.
    pub heads: CsrOwned,
    /// Total weight of the training rows that each rule covers. Held-out rows do not count.
    pub coverage: Vec<f64>,
    /// Mean loss of the held-out rows after each rule. Empty if no rows were held out.
    pub validation_loss: Vec<f64>,
}

impl Model {
    /// Returns a model without rules.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn empty(n_labels: usize) -> Result<Self, Error> {
        Ok(Self {
            body_indptr: copied("number of rules", &[0])?,
            body_feature: Vec::new(),
            body_operator: Vec::new(),
            body_threshold: Vec::new(),
            heads: CsrOwned {
                indptr: copied("number of rules", &[0])?,
                indices: Vec::new(),
                values: Vec::new(),
                n_cols: n_labels,
            },
            coverage: Vec::new(),
            validation_loss: Vec::new(),
        })
    }

    /// Returns the number of rules.
    pub(crate) fn n_rules(&self) -> usize {
        self.coverage.len()
    }

    /// Returns the feature, operator and threshold of each condition of a rule.
    ///
    /// # Panics
    ///
    /// Panics if there is no such rule.
    pub(crate) fn body(&self, rule: usize) -> impl Iterator<Item = (usize, Operator, f32)> + '_ {
        let range = self.body_indptr[rule] as usize..self.body_indptr[rule + 1] as usize;
        range.map(|at| {
            let operator = Operator::from_number(self.body_operator[at]);
            let feature = self.body_feature[at] as usize;
            (
                feature,
                operator.unwrap_or(Operator::AtMost),
                self.body_threshold[at],
            )
        })
    }

    /// Appends a rule. If `complete` is true, all scores of the head are stored. Otherwise only the nonzero
    /// scores are stored.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. After this error, the arrays may differ in
    /// length, and the model must not be used.
    pub(crate) fn push(
        &mut self,
        conditions: impl Iterator<Item = (usize, Operator, f32)>,
        head: impl Iterator<Item = f32>,
        complete: bool,
        coverage: f64,
    ) -> Result<(), Error> {
        let (conditions_of, rules) = ("number of conditions", "number of rules");
        for (feature, operator, threshold) in conditions {
            push(conditions_of, &mut self.body_feature, feature as i32)?;
            push(conditions_of, &mut self.body_operator, operator as u8)?;
            push(conditions_of, &mut self.body_threshold, threshold)?;
        }
        push(rules, &mut self.body_indptr, self.body_feature.len() as i64)?;
        // Zeros of complete heads are stored, because prediction adds complete heads without reading label
        // numbers.
        for (label, score) in head
            .enumerate()
            .filter(|(_, score)| complete || *score != 0.0)
        {
            push(
                "number of scores in heads",
                &mut self.heads.indices,
                label as u32,
            )?;
            push("number of scores in heads", &mut self.heads.values, score)?;
        }
        push(rules, &mut self.heads.indptr, self.heads.indices.len())?;
        push(rules, &mut self.coverage, coverage)
    }

    /// Returns the conditions of all rules.
    pub fn bodies(&self) -> Bodies<'_> {
        Bodies {
            indptr: &self.body_indptr,
            feature: &self.body_feature,
            operator: &self.body_operator,
            threshold: &self.body_threshold,
        }
    }

    /// Keeps the first `n_rules` rules. The model must have at least `n_rules` rules.
    pub(crate) fn truncate(&mut self, n_rules: usize) {
        let n_conditions = self.body_indptr[n_rules] as usize;
        self.body_indptr.truncate(n_rules + 1);
        self.body_feature.truncate(n_conditions);
        self.body_operator.truncate(n_conditions);
        self.body_threshold.truncate(n_conditions);
        let n_scores = self.heads.indptr[n_rules];
        self.heads.indptr.truncate(n_rules + 1);
        self.heads.indices.truncate(n_scores);
        self.heads.values.truncate(n_scores);
        self.coverage.truncate(n_rules);
        self.validation_loss.truncate(n_rules);
    }
}

/// The conditions of rules, in the arrays of a [`Model`].
#[derive(Debug, Clone, Copy)]
pub struct Bodies<'a> {
    /// The number 0, followed by the position after the last condition of each rule.
    pub indptr: &'a [i64],
    /// Feature of each condition.
    pub feature: &'a [i32],
    /// [`Operator`] of each condition, as its number.
    pub operator: &'a [u8],
    /// Threshold of each condition.
    pub threshold: &'a [f32],
}

/// Borrowed rules, checked by [`new`](Self::new). The arrays may come from any source, for example from a
/// file.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a, I> {
    /// The conditions.
    bodies: Bodies<'a>,
    /// The heads, one row per rule.
    heads: CsrView<'a, I, f32>,
    /// Number of features of X.
    n_features: usize,
}

/// Largest number of rules, and of labels. Their numbers are `u32` here and `i32` in numpy arrays.
const MOST_NUMBERED: usize = i32::MAX as usize;

impl<'a, I: Index> Rules<'a, I> {
    /// Checks and borrows the arrays of a model with `n_features` features. The time is O(conditions +
    /// entries of the heads).
    ///
    /// `indptr` must start at 0, never decrease and end at the number of conditions. Features must be below
    /// `n_features`, and operators must be known. Thresholds and heads must be finite.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the lengths of the arrays do not match. Returns [`Error::Param`] if an
    /// entry of an array is not valid. The error names the array, and the condition or the rule that has the
    /// invalid entry. Returns [`Error::TooLarge`] if there are more than 2³¹ − 1 rules or labels.
    pub fn new(
        bodies: Bodies<'a>,
        heads: CsrView<'a, I, f32>,
        n_features: usize,
    ) -> Result<Self, Error> {
        let (n_rules, n_conditions) = (heads.n_rows(), bodies.feature.len());
        for (what, size) in [
            ("number of rules", n_rules),
            ("number of labels", heads.n_cols()),
        ] {
            if size > MOST_NUMBERED {
                let got = format!("{size}; at most {MOST_NUMBERED} are supported");
                return Err(Error::TooLarge { what, got });
            }
        }
        same("length of body_indptr_", n_rules + 1, bodies.indptr.len())?;
        for (what, got) in [
            ("length of body_operator_", bodies.operator.len()),
            ("length of body_threshold_", bodies.threshold.len()),
        ] {
            same(what, n_conditions, got)?;
        }
        let ensure = |name, holds: bool, expected, got: &dyn Fn() -> String| {
            if holds {
                Ok(())
            } else {
                let got = got();
                Err(Error::Param {
                    name,
                    expected,
                    got,
                })
            }
        };
        let reaches = [bodies.indptr.first(), bodies.indptr.last()];
        ensure(
            "body_indptr_",
            reaches == [Some(&0), Some(&(n_conditions as i64))] && bodies.indptr.is_sorted(),
            "non-decreasing, from 0 to the number of conditions",
            &|| format!("first and last entries {reaches:?} for {n_conditions} conditions"),
        )?;
        for (at, &feature) in bodies.feature.iter().enumerate() {
            ensure(
                "body_feature_",
                feature.get() < n_features,
                "valid feature numbers",
                &|| format!("{feature} in condition {at}, but X has {n_features} features"),
            )?;
        }
        for (at, &operator) in bodies.operator.iter().enumerate() {
            ensure(
                "body_operator_",
                Operator::from_number(operator).is_some(),
                "0, 1, 2 or 3",
                &|| format!("{operator} in condition {at}"),
            )?;
        }
        for (at, &threshold) in bodies.threshold.iter().enumerate() {
            ensure("body_threshold_", threshold.is_finite(), "finite", &|| {
                format!("{threshold} in condition {at}")
            })?;
        }
        for rule in 0..n_rules {
            // The fold has no early exit, so that the compiler can vectorize it.
            let finite = |all, value: &f32| all & value.is_finite();
            let head = heads.row(rule).1;
            ensure("heads_", head.iter().fold(true, finite), "finite", &|| {
                format!("a score that is not finite in rule {rule}")
            })?;
        }
        Ok(Self {
            bodies,
            heads,
            n_features,
        })
    }

    /// Returns the number of rules, including the default rule.
    pub fn n_rules(&self) -> usize {
        self.heads.n_rows()
    }

    /// Returns the number of features.
    pub fn n_features(&self) -> usize {
        self.n_features
    }

    /// Returns the number of labels.
    pub fn n_labels(&self) -> usize {
        self.heads.n_cols()
    }

    /// Returns the feature, operator and threshold of each condition of a rule.
    ///
    /// # Panics
    ///
    /// Panics if `rule >= n_rules`, or if another thread has overwritten the borrowed arrays since they were
    /// checked.
    pub fn body(&self, rule: usize) -> impl Iterator<Item = (usize, Operator, f32)> {
        let bodies = self.bodies;
        let range = bodies.indptr[rule].get()..bodies.indptr[rule + 1].get();
        range.map(move |at| {
            let operator = Operator::from_number(bodies.operator[at]).expect("checked by `new`");
            (bodies.feature[at].get(), operator, bodies.threshold[at])
        })
    }

    /// Returns the labels and scores of the head of a rule. Labels are in strictly increasing
    /// order.
    ///
    /// # Panics
    ///
    /// Panics under the same conditions as [`body`](Self::body).
    #[inline]
    pub fn head(&self, rule: usize) -> (&'a [I], &'a [f32]) {
        self.heads.row(rule)
    }

    /// Copies the rules, together with the coverage and the validation losses that a fit recorded. The copy
    /// is used to continue a fit.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if `coverage` does not have one entry per rule. Returns [`Error::Shape`] if
    /// `validation_loss` is not empty and does not have one entry per rule. Returns [`Error::TooLarge`] if
    /// the copy does not fit in memory.
    pub fn to_model(&self, coverage: &[f64], validation_loss: &[f64]) -> Result<Model, Error> {
        same("length of coverage_", self.n_rules(), coverage.len())?;
        if !validation_loss.is_empty() {
            let got = validation_loss.len();
            same("length of validation_loss_", self.n_rules(), got)?;
        }
        let mut heads = CsrOwned {
            indptr: reserved("number of rules", self.n_rules() + 1)?,
            indices: reserved("number of scores in heads", self.heads.nnz())?,
            values: reserved("number of scores in heads", self.heads.nnz())?,
            n_cols: self.n_labels(),
        };
        heads.indptr.push(0);
        for rule in 0..self.n_rules() {
            // Zeros are copied, because prediction adds complete heads without reading label numbers.
            let (labels, scores) = self.head(rule);
            let labels = labels.iter().map(|label| label.get() as u32);
            extend("number of scores in heads", &mut heads.indices, labels)?;
            let scores = scores.iter().copied();
            extend("number of scores in heads", &mut heads.values, scores)?;
            heads.indptr.push(heads.indices.len());
        }
        Ok(Model {
            body_indptr: copied("number of rules", self.bodies.indptr)?,
            body_feature: copied("number of conditions", self.bodies.feature)?,
            body_operator: copied("number of conditions", self.bodies.operator)?,
            body_threshold: copied("number of conditions", self.bodies.threshold)?,
            heads,
            coverage: copied("number of rules", coverage)?,
            validation_loss: copied("number of rules", validation_loss)?,
        })
    }
}
