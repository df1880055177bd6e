//! Rules as plain arrays: what fitting makes and what prediction borrows.

use manylabel_base::range::same;
use manylabel_base::{Error, copied, extend, push, reserved};
use manylabel_sparse::{CsrOwned, CsrView, Index};

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

impl Operator {
    /// The operator of this number, if it has one.
    pub fn from_number(number: u8) -> Option<Self> {
        [Self::AtMost, Self::Above, Self::Equal, Self::NotEqual]
            .get(usize::from(number))
            .copied()
    }
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

impl Model {
    /// No rules yet.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
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

    /// Number of rules.
    pub(crate) fn n_rules(&self) -> usize {
        self.coverage.len()
    }

    /// Feature, operator and threshold of each condition of a rule.
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

    /// Appends a rule; of a complete head all scores are stored, zeros too.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`]; the model is good for nothing then.
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
        // Of a complete head all scores are stored, zeros too: prediction is faster so.
        for (label, score) in head
            .enumerate()
            .filter(|(_, score)| complete || *score != 0.0)
        {
            push("heads of rules", &mut self.heads.indices, label as u32)?;
            push("heads of rules", &mut self.heads.values, score)?;
        }
        push(rules, &mut self.heads.indptr, self.heads.indices.len())?;
        push(rules, &mut self.coverage, coverage)
    }

    /// The conditions of its rules.
    pub fn bodies(&self) -> Bodies<'_> {
        Bodies {
            indptr: &self.body_indptr,
            feature: &self.body_feature,
            operator: &self.body_operator,
            threshold: &self.body_threshold,
        }
    }

    /// Keeps the first `n_rules` rules.
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

/// The conditions of rules, as a [`Model`] has them.
#[derive(Debug, Clone, Copy)]
pub struct Bodies<'a> {
    /// Ends of the rules' conditions, from 0.
    pub indptr: &'a [i64],
    /// Feature of each condition.
    pub feature: &'a [i32],
    /// [`Operator`] of each condition, as its number.
    pub operator: &'a [u8],
    /// Threshold of each condition.
    pub threshold: &'a [f32],
}

/// Borrows the rules of a [`Model`] that may come from anywhere; see [`new`](Self::new) for what
/// is known of them.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a, I> {
    bodies: Bodies<'a>,
    heads: CsrView<'a, I, f32>,
    n_features: usize,
}

/// Most rules and most labels: both are numbered by `u32`, and by numpy's `i32`.
const MOST_NUMBERED: usize = i32::MAX as usize;

impl<'a, I: Index> Rules<'a, I> {
    /// Borrows the arrays of a model for `n_features` features after checking all of them, in
    /// O(conditions + entries of the heads).
    ///
    /// The ends run from 0 to the number of conditions and never decrease; features exist,
    /// operators have a meaning, thresholds and heads are finite.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if lengths do not agree, [`Error::Param`] with the array and the rule at
    /// fault, [`Error::TooLarge`] beyond 2³¹−1 rules or labels.
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
                let got = format!("{size}, at most {MOST_NUMBERED}");
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
            "never decreasing, from 0 to the number of conditions",
            &|| format!("{reaches:?} at its ends, for {n_conditions} conditions"),
        )?;
        for (at, &feature) in bodies.feature.iter().enumerate() {
            ensure(
                "body_feature_",
                feature.get() < n_features,
                "a feature of X",
                &|| format!("{feature} in condition {at}, with {n_features} features"),
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
            // Without a way out of the loop, it is one pass of vectors.
            let finite = |all, value: &f32| all & value.is_finite();
            let head = heads.row(rule).1;
            ensure("heads_", head.iter().fold(true, finite), "finite", &|| {
                format!("another score in rule {rule}")
            })?;
        }
        Ok(Self {
            bodies,
            heads,
            n_features,
        })
    }

    /// Number of rules, the default rule among them.
    pub fn n_rules(&self) -> usize {
        self.heads.n_rows()
    }

    /// Number of features.
    pub fn n_features(&self) -> usize {
        self.n_features
    }

    /// Number of labels.
    pub fn n_labels(&self) -> usize {
        self.heads.n_cols()
    }

    /// Feature, operator and threshold of each condition of a rule.
    ///
    /// # Panics
    ///
    /// If `rule >= n_rules`, or if another thread has rewritten the borrowed arrays meanwhile.
    pub fn body(&self, rule: usize) -> impl Iterator<Item = (usize, Operator, f32)> {
        let bodies = self.bodies;
        let range = bodies.indptr[rule].get()..bodies.indptr[rule + 1].get();
        range.map(move |at| {
            let operator = Operator::from_number(bodies.operator[at]).expect("checked by `new`");
            (bodies.feature[at].get(), operator, bodies.threshold[at])
        })
    }

    /// Labels and scores of a rule's head, labels in increasing order.
    ///
    /// # Panics
    ///
    /// As [`body`](Self::body).
    #[inline]
    pub fn head(&self, rule: usize) -> (&'a [I], &'a [f32]) {
        self.heads.row(rule)
    }

    /// Copies the rules, with what fitting has noted about them.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if there is not one coverage for each rule, or not one validation loss
    /// for each or none at all; [`Error::TooLarge`].
    pub fn to_model(&self, coverage: &[f64], validation_loss: &[f64]) -> Result<Model, Error> {
        same("length of coverage_", self.n_rules(), coverage.len())?;
        if !validation_loss.is_empty() {
            let got = validation_loss.len();
            same("length of validation_loss_", self.n_rules(), got)?;
        }
        let mut heads = CsrOwned {
            indptr: reserved("number of rules", self.n_rules() + 1)?,
            indices: reserved("heads of rules", self.heads.nnz())?,
            values: reserved("heads of rules", self.heads.nnz())?,
            n_cols: self.n_labels(),
        };
        heads.indptr.push(0);
        for rule in 0..self.n_rules() {
            // Zeros stay: a head that stores every label is added without a look at its labels.
            let (labels, scores) = self.head(rule);
            let labels = labels.iter().map(|label| label.get() as u32);
            extend("heads of rules", &mut heads.indices, labels)?;
            let scores = scores.iter().copied();
            extend("heads of rules", &mut heads.values, scores)?;
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
