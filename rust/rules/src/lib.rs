//! Gradient-boosted multi-label rules with gradient-based label binning.
//!
//! A rule has a *body*, a conjunction of conditions on features such as `x₃ ≤ 0.5`, and a *head*,
//! one score for each label or for a single label. The score of a row is the sum of the heads of
//! the rules that cover it. The first rule is the default rule, which has no conditions and covers
//! every row.
//!
//! Rules are fitted one after the other to the gradients g and Hessians H of the loss at the
//! current scores, summed over the covered rows. A head p minimizes the second-order approximation
//! `gᵀp + ½ pᵀ(H + ωI)p`, so it solves `(H + ωI) p = −g` (GBLB, equation 7). The minimum, `½ gᵀp`,
//! is the *quality* of the body; lower is better. A body grows by the condition that lowers the
//! quality most, until no condition improves it. The head is then solved again on all covered
//! training rows, and added to their scores times the learning rate.
//!
//! Under the label-wise logistic loss H is diagonal and labels are independent of one another.
//! Under the example-wise logistic loss they are not, and a head for K labels is the solution of K
//! equations. Gradient-based label binning (GBLB) gives labels with similar optimal scores a common
//! score, so that the system has one equation per bin.
//!
//! # Algorithm
//!
//! The Hessian of a row is never stored. For both losses it follows from the gradient:
//! `diag(|g|) − g gᵀ` under the example-wise loss (see `loss.rs`), and only the diagonal of that
//! under the label-wise loss. Sums of Hessians therefore consist of sums of |g| and a Gram matrix
//! of gradients. Bins need products of gradients summed by bin (`head/bins.rs`); heads without bins
//! need a few products with the Gram matrix, with conjugate gradients in place of a factorization
//! (`head/solve.rs`).
//!
//! Notation: N rows, K labels, ω the L2 weight (`l2`), w the weights of rows, B the number of bins.
//! Rows of scores and gradients are padded to a multiple of eight labels; the padded length is
//! called `stride`.
//!
//! | file | content |
//! |---|---|
//! | `params.rs` | parameters and their ranges |
//! | `columns.rs` | features of the training rows, sorted by value |
//! | `loss.rs`, `statistics.rs` | gradients of rows, and their sums over sets of rows |
//! | `binning.rs`, `head/` | which labels share a score; heads and their quality |
//! | `gram.rs`, `batch.rs`, `lanes.rs` | arithmetic on padded rows of labels |
//! | `refine/` | the search for the next condition, exact or fast |
//! | `fit.rs`, `grow.rs` | boosting: samples, rules, steps, early stopping; how a rule grows |
//! | `pace.rs` | when long loops check for a stop |
//! | `model.rs` | the rules as plain arrays |
//! | `cover.rs`, `predict.rs`, `known.rs` | which rules cover a row; scores; label sets and marginals |
//!
//! # Invariants
//!
//! - A matrix of labels × labels belongs to a set of rows, never to a single row: memory for
//!   statistics is N · K numbers, not N · K².
//! - Results do not depend on the number of threads. Sums over rows are taken in blocks of fixed
//!   size and added in order.
//! - Memory that the system does not grant is an error, not an abort.
//!
//! # References
//!
//! - M. Rapp, E. Loza Mencía, J. Fürnkranz, V.-L. Nguyen, E. Hüllermeier: *Learning Gradient
//!   Boosted Multi-label Classification Rules*, 2020 (BOOMER).
//! - M. Rapp, E. Loza Mencía, J. Fürnkranz, E. Hüllermeier: *Gradient-based Label Binning in
//!   Multi-label Classification*, 2021 (GBLB). Equation numbers in this crate refer to this paper.
//!
//! # Example
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_rules::{Params, Rules, Stage};
//! use manylabel_sparse::{CsrOwned, CsrView};
//!
//! // Four rows, two features, two labels: label j goes with feature j.
//! let x = CsrView::new("X", &[0i32, 1, 2, 4, 4], &[0, 1, 0, 1], &[1.0f32; 4], 2)?;
//! let y = CsrOwned::from_view(x, false)?;
//! let params = Params { n_rules: 20, bootstrap: false, max_features: 2, ..Params::default() };
//! let model = params.check()?.fit(x.into(), &y, None, None, &[], None, &Watch::new())?;
//! assert_eq!(model.coverage[0], 4.0); // the default rule covers every row
//! assert_eq!(model.heads.n_cols, 2);
//!
//! // Prediction borrows the arrays of a model.
//! let ends: Vec<i32> = model.heads.indptr.iter().map(|&end| end as i32).collect();
//! let labels: Vec<i32> = model.heads.indices.iter().map(|&label| label as i32).collect();
//! let heads = CsrView::new("heads", &ends, &labels, &model.heads.values, 2)?;
//! let rules = Rules::new(model.bodies(), heads, 2)?;
//! let mut scores = [0.0; 4 * 2];
//! Stage::new(rules, 0..rules.n_rules())?.add(x, &mut scores, &Watch::new())?;
//! assert!(scores[0] > scores[1], "{scores:?}"); // row 0 has label 0 and not label 1
//! # Ok::<(), manylabel_base::Error>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        reason = "tests choose their sizes"
    )
)]
#![allow(
    clippy::float_cmp,
    reason = "bins are numbered by floats, ties between qualities are exact"
)]

mod batch;
mod binning;
mod columns;
mod cover;
mod fit;
mod gram;
mod grow;
mod head;
mod known;
mod lanes;
mod loss;
mod model;
mod pace;
mod params;
mod predict;
mod refine;
mod statistics;

pub use known::LabelSets;
pub use model::{Bodies, Model, Operator, Rules};
pub use params::{Binning, Checked, Head, Hessian, Loss, Params, Search, Step};
pub use predict::{Ensemble, ROWS_AT_ONCE, Stage};
