//! Defines the parameters of boosted rules and their ranges.
//!
//! [`Params`] holds the values as given by the caller. `Params::check` verifies every range and returns a
//! [`Checked`]. The method `fit` belongs to [`Checked`]. Options are enums here. The Python code uses
//! strings, which are converted to these enums. GBLB is the paper on gradient-based label binning (see the
//! [crate]).

use manylabel_base::range::{at_least_one, ensure, not_negative, share};
use manylabel_base::{Error, checked};

/// The loss that boosting minimizes. The formulas give the loss of one row with the scores p and the labels
/// y = ±1. Sums are over the labels k.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// `Σ_k log(1 + e^{−y_k p_k})`, a surrogate of the Hamming loss. Labels are independent of one another. A
    /// head takes O(labels) time.
    LabelWise,
    /// `log(1 + Σ_k e^{−y_k p_k})`, a surrogate of the subset 0/1 loss (GBLB, equation 9). To compute a head
    /// of all labels, a linear system is solved. The system has one equation per label bin if there are label
    /// bins, and one equation per label otherwise.
    ExampleWise,
}

/// The labels that a rule scores. The default rule always scores all labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// All labels.
    Complete,
    /// The label whose score alone improves the objective most. It is chosen after the first condition of a
    /// rule and kept for all further conditions.
    Single,
}

/// How second derivatives between different labels of one bin are used. A bin is a group of labels with the
/// same score in a head. The choice matters only under the example-wise loss, for heads of all labels with
/// label bins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hessian {
    /// Second derivatives between different labels of one bin are left out, as in GBLB, equations 18 to 20.
    /// Without these derivatives, steps are shorter.
    Paper,
    /// Second derivatives between different labels of one bin are used. The Hessian is then the exact Hessian
    /// of the objective with one score per bin.
    Restricted,
}

/// How the length of a boosting step is chosen. A step adds the head of a rule, multiplied by the learning
/// rate, to the scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The Newton step.
    Newton,
    /// The Newton step, which is halved until the regularized loss of the covered rows falls enough (Armijo's
    /// rule). For the default rule, steps are repeated until the loss no longer falls.
    Safeguarded,
}

/// The conditions that are tried, and the accuracy of their evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Tries every threshold between two values of the covered rows. The quality of each condition is
    /// computed from its own optimal head.
    Exact,
    /// Tries at most 64 thresholds per numeric feature, plus one threshold next to an implicit 0. Under the
    /// example-wise loss with few label bins, the quality of some conditions is estimated. The estimate uses
    /// the label bins of the rows that the rule covers before the condition is added. With up to 256 labels,
    /// only conditions on features with mostly nonzero values are estimated. With more labels, all conditions
    /// are estimated. The quality of the chosen condition is computed again from its own head.
    Fast,
}

/// The number of label bins for each sign of the optimal scores: `clamp(⌈ratio · κ⌉, min_bins, max_bins)`,
/// where κ is the number of labels with optimal scores of this sign. There are never more than κ bins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Binning {
    /// Number of bins divided by the number of labels, for each sign; in (0, 1].
    pub ratio: f64,
    /// Smallest number of label bins for each sign of the optimal scores; ≥ 1.
    pub min_bins: usize,
    /// Largest number of label bins for each sign of the optimal scores; ≥ `min_bins`.
    pub max_bins: usize,
}

/// Parameters as given by the caller. [`check`](Self::check) verifies their ranges.
#[derive(Debug, Clone)]
pub struct Params {
    /// Number of rules, including the default rule and the rules of a start model; ≥ 1.
    pub n_rules: usize,
    /// The loss that boosting minimizes.
    pub loss: Loss,
    /// The labels that a rule scores.
    pub head: Head,
    /// Label bins for heads of all labels, or `None` for a separate score per label.
    pub binning: Option<Binning>,
    /// How second derivatives within label bins are used.
    pub hessian: Hessian,
    /// How the length of a boosting step is chosen.
    pub step: Step,
    /// The conditions that are tried.
    pub search: Search,
    /// Factor that multiplies every head except the head of the default rule; in (0, 1].
    pub learning_rate: f64,
    /// L2 weight ω on scores; finite and ≥ 0.
    pub l2: f64,
    /// Whether the body of each rule is found on a bootstrap sample of the rows. The sample is drawn with
    /// replacement. The number of draws is the number of rows with positive weight.
    pub bootstrap: bool,
    /// Number of features sampled for each condition; ≥ 1.
    pub max_features: usize,
    /// Smallest number of distinct sampled rows that a rule must cover; ≥ 1.
    pub min_coverage: usize,
    /// Largest number of conditions per rule; ≥ 1.
    pub max_conditions: usize,
    /// The fit stops after this number of consecutive rules without a lower held-out loss; ≥ 1. Ignored if
    /// there are no held-out rows.
    pub n_iter_no_change: usize,
    /// Seed for sampling rows and features.
    pub seed: u64,
}

/// Returns the defaults of the GBLB paper, with three exceptions. The number of rules is 1000 instead of
/// 5000, and the search is fast. `max_features` is 1, because a good value depends on the data.
impl Default for Params {
    fn default() -> Self {
        Self {
            n_rules: 1000,
            loss: Loss::ExampleWise,
            head: Head::Complete,
            binning: Some(Binning {
                ratio: 0.04,
                min_bins: 1,
                max_bins: usize::MAX,
            }),
            hessian: Hessian::Paper,
            step: Step::Newton,
            search: Search::Fast,
            learning_rate: 0.3,
            l2: 1.0,
            bootstrap: true,
            max_features: 1,
            min_coverage: 1,
            max_conditions: usize::MAX,
            n_iter_no_change: 50,
            seed: 0,
        }
    }
}

checked!(Params);

impl Params {
    /// Verifies every range.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] for the first parameter that is out of range.
    fn ranges(&self) -> Result<(), Error> {
        for (name, count) in [
            ("n_rules", self.n_rules),
            ("max_features", self.max_features),
            ("min_coverage", self.min_coverage),
            ("max_conditions", self.max_conditions),
            ("n_iter_no_change", self.n_iter_no_change),
        ] {
            at_least_one(name, count)?;
        }
        share("learning_rate", self.learning_rate)?;
        not_negative("l2", self.l2)?;
        if let Some(Binning {
            ratio,
            min_bins,
            max_bins,
        }) = self.binning
        {
            share("label_binning", ratio)?;
            at_least_one("min_bins", min_bins)?;
            let holds = max_bins >= min_bins;
            ensure("max_bins", holds, "None, or >= min_bins", max_bins)?;
        }
        Ok(())
    }
}
