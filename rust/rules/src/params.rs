//! Parameters of boosted rules and their ranges.

use manylabel_base::range::{at_least_one, ensure, not_negative, share};
use manylabel_base::{Error, checked};

/// What boosting minimizes, for scores p and labels y = ±1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// `Σ_k log(1 + e^{−y_k p_k})`, a surrogate of the Hamming loss.
    LabelWise,
    /// `log(1 + Σ_k e^{−y_k p_k})`, a surrogate of the subset 0/1 loss.
    ExampleWise,
}

/// Labels that a rule scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// All of them.
    Complete,
    /// The one that gains most.
    Single,
}

/// Second derivatives between labels of one bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hessian {
    /// Left out, as in the paper's equations (18) to (20); this keeps steps short.
    Paper,
    /// Kept: the objective under one score a bin.
    Restricted,
}

/// How far a head goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The Newton step.
    Newton,
    /// The Newton step, halved until the loss falls enough.
    Safeguarded,
}

/// Which conditions are tried, and how well each is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Every threshold, by the quality of its own head.
    Exact,
    /// At most 64 thresholds a numeric feature (one more at an implicit 0); with label binning,
    /// bins of the parent set for features that most rows have, and for all if there are more than
    /// 256 labels.
    Fast,
}

/// Number of label bins: `clamp(⌈ratio · κ⌉, min, max)` for the κ labels of each sign.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Binning {
    /// Share of the labels; in (0, 1].
    pub ratio: f64,
    /// Least bins of a sign; ≥ 1.
    pub min_bins: usize,
    /// Most bins of a sign; ≥ `min_bins`.
    pub max_bins: usize,
}

/// Parameters as the user gave them; [`check`](Self::check) makes them usable.
#[derive(Debug, Clone)]
pub struct Params {
    /// Rules, the default rule among them; ≥ 1.
    pub n_rules: usize,
    /// What boosting minimizes.
    pub loss: Loss,
    /// Labels that a rule scores.
    pub head: Head,
    /// Label bins of complete heads, or none.
    pub binning: Option<Binning>,
    /// Hessian of the bins.
    pub hessian: Hessian,
    /// How far a head goes.
    pub step: Step,
    /// Which conditions are tried.
    pub search: Search,
    /// Shrinkage of every head but the default rule's; in (0, 1].
    pub learning_rate: f64,
    /// L2 weight on scores; finite, ≥ 0.
    pub l2: f64,
    /// Whether each rule sees a bootstrap sample of the rows.
    pub bootstrap: bool,
    /// Features tried for a condition; ≥ 1.
    pub max_features: usize,
    /// A rule covers at least so many rows of its sample; ≥ 1.
    pub min_coverage: usize,
    /// Most conditions of a rule; ≥ 1.
    pub max_conditions: usize,
    /// Rules without a better held-out loss after which fitting stops; ≥ 1.
    pub n_iter_no_change: usize,
    /// Seeds samples of rows and features.
    pub seed: u64,
}

/// As the paper on label binning has them, but for the number of rules and the search.
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
