//! Fits and applies gradient-boosted multi-label rules with gradient-based label binning.
//!
//! A rule has a body and a head. The *body* is a conjunction of conditions on features, such as
//! `x₃ ≤ 0.5`. The *head* holds one score for each label, or a score for a single label. The score
//! of a row is the sum of the heads of all rules that cover the row. The first rule is the default
//! rule. It has no conditions and covers every row.
//!
//! Rules are fitted one after the other. Let g and H be the gradients and Hessians of the loss at the current
//! scores, summed over the covered rows. A head p minimizes the second-order approximation `gᵀp + ½ pᵀ(H +
//! ωI)p`. So p solves `(H + ωI) p = −g` (GBLB, equation 7). The minimum, `½ gᵀp`, is the *quality* of the
//! body. A lower quality is better. The condition that lowers the quality most is added to the body, until no
//! condition lowers the quality. The head is then computed again from all covered training rows. It is
//! multiplied by the learning rate and added to the scores of these rows.
//!
//! Under the label-wise logistic loss, H is diagonal and labels are independent of one another. Under the
//! example-wise logistic loss, labels depend on one another. A head for K labels is then the solution of a
//! system of K equations. Gradient-based label binning (GBLB) gives the same score to labels with similar
//! optimal scores. The system then has one equation per bin of labels.
//!
//! # Algorithm
//!
//! The Hessian of a row is never stored, because it follows from the gradient. Under the
//! example-wise loss it is `diag(|g|) − g gᵀ` (see `loss.rs`). Under the label-wise loss only the
//! diagonal of this matrix remains. Sums of Hessians therefore consist of sums of |g| and a Gram
//! matrix of gradients. For heads with bins, gradients are summed by bin, so only products between
//! bins are needed (`head/bins.rs`). Heads without bins are solved by conjugate gradients, which
//! take only a few products with the Gram matrix and no factorization (`head/solve.rs`).
//!
//! Notation: N is the number of rows, K the number of labels, and B the number of bins. The symbol
//! ω is the L2 weight (`l2`), and w are the weights of the rows. Rows of scores and gradients are
//! padded to a multiple of eight labels. The padded length is called `stride`.
//!
//! | file | content |
//! |---|---|
//! | `params.rs` | parameters and their ranges |
//! | `columns.rs` | features of the training rows, sorted by value |
//! | `loss.rs`, `statistics.rs` | gradients of rows, and their sums over sets of rows |
//! | `binning.rs`, `head/` | bins of labels; heads and their quality |
//! | `gram.rs`, `batch.rs`, `lanes.rs` | arithmetic on padded rows of labels |
//! | `refine/` | the search for the next condition, exact or fast |
//! | `fit.rs`, `grow.rs` | boosting: samples, rules, steps, early stopping; how a rule grows |
//! | `pace.rs` | when long loops check for a stop |
//! | `awake.rs` | threads that do not sleep between short tasks |
//! | `model.rs` | arrays that store the rules |
//! | `cover.rs`, `predict.rs`, `known.rs` | the rules that cover a row; scores; label sets and marginals |
//!
//! # Invariants
//!
//! - A matrix of labels × labels is stored only for a set of rows, never for a single row.
//!   Statistics of single rows need N · K numbers, not N · K².
//! - Results do not depend on the number of threads. Sums over rows are computed in blocks of fixed
//!   size, and the blocks are added in order.
//! - If memory is short, the functions return an error and do not abort the process.
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
//! // There are four rows, two features and two labels. Label j occurs with feature j.
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

mod awake;
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
pub use predict::{Ensemble, Predictor, ROWS_AT_ONCE, Stage};
