//! The smooth low-rank link: joint predictions of many labels as a smooth function of a few linear
//! predictions.
//!
//! For k linear predictions `p = x W + a` of a row, its scores are `ŝ = φ(p) V + v` with random
//! cosine features `φ_j = cos(r_jᵀ (p, 1) + b_j)`, which stand for a shift-invariant kernel
//! (Karampatziakis and Mineiro, *Scalable Multilabel Prediction via Randomized Methods*, Algorithm
//! 3). W comes from elsewhere; here are the frequencies, and the fit of V by least squares, by
//! preconditioned stochastic gradients or by Newton's method. [`Scorer`] ranks labels.
//!
//! | file | what |
//! |---|---|
//! | `kernel.rs`, `gamma.rs` | frequencies of a kernel, and the bandwidth |
//! | `design.rs`, `lanes.rs` | linear predictions, features of rows; elementwise functions |
//! | `gram.rs` | `ΦᵀΦ + ridge`, its Cholesky factor and solves |
//! | `labels.rs`, `moments.rs` | which rows hold which label; sums over rows |
//! | `block.rs`, `psgd.rs`, `newton.rs` | output weights of some labels |
//! | `fit.rs` | the fit, and what its sizes decide |
//! | `threshold.rs` | the score above which a label is named |
//! | `predict.rs` | scores of rows |
//!
//! Invariant: beside the weights nothing of the size of labels × features is kept but of a block of
//! labels (all of them for the softmax and for early stopping); nothing of rows × labels but of a
//! batch; nothing depends on the number of threads.
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_link::{Loss, Params, Projection, Scorer};
//! use manylabel_score::Model;
//! use manylabel_sparse::{CsrOwned, CsrView};
//!
//! // Label 0 is the exclusive or of two features, which no linear score is.
//! let (indptr, indices) = ([0i32, 0, 1, 2, 4], [0, 1, 0, 1]);
//! let x = CsrView::new("X", &indptr, &indices, &[1.0f32; 4], 2)?;
//! let y = CsrView::new("Y", &[0i32, 0, 1, 2, 2], &[0, 0], &[1.0f32; 2], 1)?;
//! let projection = Projection::new(&[1.0, 0.0, 0.0, 1.0], &[0.0, 0.0], 2)?;
//! let params = Params { loss: Loss::Squared, n_features: 200, ..Params::default() };
//! let y = CsrOwned::from_view(y, false)?;
//! let model = params.check()?.fit(x, projection, None, &y, None, None, &Watch::new())?;
//! let scorer = Scorer::new(
//!     projection,
//!     &model.frequencies,
//!     &model.phases,
//!     &model.weights,
//!     &model.intercept,
//! )?;
//! let scores = scorer.decision(x.into(), &Watch::new())?;
//! assert!(scores[0] < 0.0 && scores[1] > 0.0 && scores[2] > 0.0 && scores[3] < 0.0);
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

mod block;
mod design;
mod fit;
mod gamma;
mod gram;
mod kernel;
mod labels;
mod lanes;
mod moments;
mod newton;
mod params;
mod predict;
mod psgd;
mod threshold;

pub use design::Projection;
pub use fit::Model;
pub use params::{Checked, Kernel, Loss, Params, Solver};
pub use predict::Scorer;
