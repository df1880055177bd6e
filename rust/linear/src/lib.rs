//! Linear classifiers for data with many sparse features and many labels.
//!
//! Label j has the weights `w_j` and the intercept `b_j`. Its score for a row x is `w_j · x + b_j`.
//! There are three methods to fit weights and intercepts:
//!
//! | module | loss | weights |
//! |---|---|---|
//! | [`dismec`] | squared hinge, each label separately | sparse: small weights are dropped |
//! | [`pdsparse`] | max-margin ranking, all labels together | sparse, by an L1 penalty |
//! | [`leml`] | squared, logistic or squared hinge | of low rank, `W Hᵀ` |
//!
//! A step of `DiSMEC` takes O(nnz(X)) time for sixteen labels, and less time for rare labels. A
//! pass of PD-Sparse reads, for each row, the nonzero weights of its features and `n_labels`
//! numbers. LEML alternates between its two weight matrices. With squared loss, one update of the
//! two matrices takes O(rank²) time per row, feature and label. In addition, each step of conjugate
//! gradients takes O(rank) time per stored value of X.
//!
//! [`Scorer`] scores rows with sparse weights, [`DenseScorer`] with dense weights, and [`leml::Scorer`] with
//! low-rank factors. These types implement [`Model`](manylabel_score::Model), which turns scores into
//! rankings and label sets. [`Tally`] learns the threshold above which labels are predicted.
//!
//! `DiSMEC` and LEML fit in parallel, and PD-Sparse fits on one thread. Results do not depend on
//! the number of threads. With the same seed, results are exactly the same.
//!
//! Nothing of size `n_rows × n_labels` or `n_labels × n_features` is allocated. The only exception
//! is the score matrix of [`Model::decision`](manylabel_score::Model::decision).
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_linear::{Scorer, dismec};
//! use manylabel_score::Model;
//! use manylabel_sparse::{CsrOwned, CsrView};
//!
//! // There are three rows, three features and three labels. Label j occurs with feature j.
//! let eye = CsrView::new("X", &[0i32, 1, 2, 3], &[0, 1, 2], &[1.0f32; 3], 3)?;
//! let params = dismec::Params::default().check()?;
//! let model = params.fit(eye.into(), &CsrOwned::from_view(eye, false)?, None, &Watch::new())?;
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
mod moments;
mod panel;
pub mod pdsparse;
mod predict;
mod predict_dense;

pub use cut::Tally;
pub use predict::Scorer;
pub use predict_dense::DenseScorer;
