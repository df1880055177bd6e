//! Gradient-boosted multi-label rules with gradient-based label binning.
//!
//! A rule is a conjunction of conditions on features (its *body*) and a score for every label or
//! for one (its *head*). The score of a row is the sum of the heads of the rules that cover it.
//! Rules are fitted one after the other: conditions are added as long as the gradients and Hessians
//! of the loss, summed over the rows that are covered, promise a greater decrease; then the head is
//! a regularized Newton step on all rows covered, shortened by the learning rate (Rapp et al.,
//! *Learning Gradient Boosted Multi-label Classification Rules*, 2020).
//!
//! Under the example-wise loss labels depend on one another, and a step for K labels is a system of
//! K equations. Gradient-based label binning (Rapp et al. 2021) gives labels that want alike scores
//! one score. Here the Hessian of a row is never stored: it is `diag(|g|) − g gᵀ` of its gradient
//! (`loss.rs`), so bins need products of rows added up by bins (`head/bins.rs`), and un-binned steps
//! a few products with rows or with their Gram matrix (`head/solve.rs`).
//!
//! | file | what |
//! |---|---|
//! | `columns.rs` | features of the training rows in order of their values |
//! | `loss.rs`, `statistics.rs` | gradients of rows, and their sums over sets of rows |
//! | `binning.rs`, `head/` | which labels share a score; heads and their quality |
//! | `refine/` | the search for the next condition, exact or fast |
//! | `fit.rs`, `grow.rs` | boosting: samples, rules, steps, early stopping; how a rule grows |
//! | `pace.rs` | when long loops ask whether to go on |
//! | `cover.rs`, `predict.rs`, `known.rs` | which rules cover a row; scores; label sets and marginals |
//!
//! Invariant: no matrix of labels × labels belongs to a row, only ever to a set of rows; nothing
//! depends on the number of threads.
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_rules::Params;
//! use manylabel_sparse::{CsrOwned, CsrView};
//!
//! // Four rows, two features, two labels: label j goes with feature j.
//! let x = CsrView::new("X", &[0i32, 1, 2, 4, 4], &[0, 1, 0, 1], &[1.0f32; 4], 2)?;
//! let y = CsrOwned::from_view(x, false)?;
//! let params = Params { n_rules: 20, bootstrap: false, max_features: 2, ..Params::default() };
//! let model = params.check()?.fit(x, &y, None, None, &[], None, &Watch::new())?;
//! assert_eq!(model.coverage[0], 4.0); // the default rule covers every row
//! assert_eq!(model.heads.n_cols, 2);
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
