//! One-vs-rest linear classifiers for data with many features and many labels.
//!
//! Label j has a sparse weight vector `w_j` and an intercept `b_j`; its score for x is
//! `w_j · x + b_j`. [`dismec`] fits them; [`Scorer`] ranks labels by them.
//!
//! Invariant: nothing of size `n_rows × n_labels` or `n_labels × n_features` is ever allocated,
//! except the dense scores a caller of [`Model::decision`](manylabel_score::Model::decision) asks for.
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_linear::{Scorer, dismec};
//! use manylabel_score::Model;
//! use manylabel_sparse::{CsrOwned, CsrView};
//!
//! // Three rows, three features, three labels: label j goes with feature j.
//! let eye = CsrView::new("X", &[0i32, 1, 2, 3], &[0, 1, 2], &[1.0f32; 3], 3)?;
//! let params = dismec::Params::default().check()?;
//! let model = params.fit(eye, &CsrOwned::from_view(eye, false)?, None, &Watch::new())?;
//! let scorer = Scorer::new(
//!     &model.weights.indptr,
//!     &model.weights.indices,
//!     &model.weights.values,
//!     &model.intercept,
//!     true,
//! )?;
//! let top = scorer.topk(eye.into(), 1, &Watch::new())?;
//! assert_eq!(top.indices, [0, 1, 2]);
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

mod cut;
pub mod dismec;
mod full;
pub mod leml;
mod panel;
pub mod pdsparse;
mod predict;

pub use cut::Tally;
pub use predict::Scorer;
