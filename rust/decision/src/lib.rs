//! Calibrated probabilities from the scores of labels, and label sets from probabilities.
//!
//! A classifier returns the labels with the highest scores of each row, the candidates. [`fit_sigmoids`] and
//! [`fit_steps`] fit a monotone curve per label to the pairs (score, hit) of held-out rows, where a hit is a
//! candidate that is a true label. [`probabilities`] converts the scores of other rows with these curves.
//!
//! Most labels have few hits, so their curves are pooled. With [`Pooling::Frequency`], the log-odds of label
//! l with score s are
//!
//! ```text
//! f(s) + a_g + a_l + (b_g + b_l) (f(s) - c)
//! ```
//!
//! f is one monotone, piecewise linear curve for all labels ([`pooled`]), and c is its mean over the hits. Labels
//! that occur in about equally many training rows form a group g. The deviations of groups and of labels are
//! penalized logistic regressions. The penalty of the labels is chosen by cross-validation over the held-out
//! rows, so that it fits the number of hits.
//!
//! # What the other modules do
//!
//! [`f1`] chooses the label set with the largest expected F1 of a row. [`hierarchy`] corrects probabilities
//! so that no label is more probable than its parents. Rules that choose labels by a bound on their probability
//! need no module here: they are comparisons.
//!
//! # Cost and determinism
//!
//! Every fit passes over the pairs of a label a few dozen times, and labels are distributed over the threads of
//! the current pool. Memory is linear in the number of pairs and in the number of labels. Nothing has a size of
//! rows times labels. Results do not depend on the number of threads: every label is fitted by one thread, and sums
//! over labels have a fixed order.
//!
//! # Example
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_decision::{Pairs, Pooling, fit_sigmoids};
//! use manylabel_sparse::CsrView;
//!
//! // Two rows with two candidates each. The first row has label 0, and the second row has no label.
//! let scores = CsrView::new("scores", &[0i32, 2, 4], &[0, 1, 0, 1], &[2.0f32, -1.0, -1.0, -2.0], 2)?;
//! let y = CsrView::new("Y", &[0i32, 1, 1], &[0], &[1.0f32], 2)?;
//! let pairs = Pairs::new(scores, y)?;
//! let curves = fit_sigmoids(&pairs, &[1, 1], Pooling::All, &Watch::new())?;
//! assert!(curves.probability(0, 2.0) > curves.probability(0, -1.0));
//! # Ok::<(), manylabel_base::Error>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::unwrap_used,
        reason = "tests choose their sizes and may panic"
    )
)]

mod convert;
pub mod f1;
pub mod hierarchy;
mod isotonic;
mod logistic;
mod pairs;
pub mod pooled;
mod sigmoid;
mod steps;

pub use convert::{Curves, probabilities};
pub use pairs::Pairs;
pub use sigmoid::{Sigmoids, fit_sigmoids};
pub use steps::{Steps, fit_steps};

/// Which labels share the parameters of their curves.
///
/// The choice trades bias against variance. A curve for all labels is biased for labels whose scores have another
/// meaning. A curve of its own has a large variance for a label with few hits. [`Pooling::Frequency`] lies between
/// the two, and the held-out rows decide where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    /// The curve of a label is shrunk to the curve of the labels of similar frequency.
    Frequency,
    /// Every label has a curve of its own.
    None,
    /// All labels have the same curve.
    All,
}
