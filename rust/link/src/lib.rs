//! The smooth low-rank link: joint predictions of many labels as a smooth function of a few linear
//! predictions (Karampatziakis and Mineiro, *Scalable Multilabel Prediction via Randomized
//! Methods*, Algorithm 3).
//!
//! # Model
//!
//! A row x has k linear predictions `p = x W + a`. They come from elsewhere, usually from a
//! low-rank embedding of the labels, and carry what labels have in common. The scores of the labels
//! are
//!
//! ```text
//! ŝ = φ(p) V + v,    φ_j(p) = cos(r_jᵀ (p, 1) + b_j),    j = 1..s
//! ```
//!
//! with random frequencies `r_j` and phases `b_j`. Such cosine features approximate a
//! shift-invariant kernel ([`Kernel`]), so that ŝ behaves like a kernel machine on the predictions.
//! It can bend independent linear predictions into joint ones, at the cost of a linear model with s
//! features. [`Kernel::Linear`] uses the predictions themselves as features.
//!
//! # Fit
//!
//! Let Φ be the matrix of the features and a constant 1, one row per training row, and Ω the
//! diagonal matrix of the rows' weights. The fit draws frequencies and phases, then computes V in
//! up to two stages:
//!
//! 1. Least squares: `C = ΦᵀΩΦ + ridge`, `V = C⁻¹ ΦᵀΩỸ` with smoothed labels Ỹ. This is the result
//!    for [`Loss::Squared`].
//! 2. For the logistic loss and the softmax, V is refined by preconditioned stochastic gradients
//!    ([`Solver::Psgd`]), where stopping early regularizes, or for the logistic loss by Newton's
//!    method to the optimum ([`Solver::NewtonCg`]).
//!
//! For n rows, s features and m labels it takes O(n s k) for the features, O(n s² + s³) for the
//! Gram matrix and its factor, O(s (stored labels) + s² m) for the start and O(n s m) per pass of
//! stochastic gradients. Memory: 20 s² bytes, 4 s m for V, 4 n k for the predictions, 24 bytes for
//! each weight of the labels that are fitted together, and 4 n s where features are kept.
//!
//! | file | what |
//! |---|---|
//! | `kernel.rs`, `gamma.rs` | random frequencies; the bandwidth |
//! | `design.rs`, `lanes.rs` | linear predictions and features of rows; elementwise functions |
//! | `gram.rs` | `ΦᵀΩΦ + ridge`, its Cholesky factor, and solves |
//! | `labels.rs`, `moments.rs` | which rows hold which label; sums over rows |
//! | `block.rs`, `psgd.rs`, `newton.rs` | output weights of a block of labels |
//! | `fit.rs` | the fit, and what its sizes decide |
//! | `threshold.rs` | the score above which a label is predicted |
//! | `predict.rs` | scores of rows |
//!
//! Invariants: beside the weights, nothing of size labels × features is kept, only for one block of
//! labels at a time (for the softmax and with early stopping, the block is all labels). Nothing of
//! size rows × labels is kept, only for one batch of rows. Results do not depend on the number of
//! threads.
//!
//! # Example
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_link::{Loss, Params, Projection, Scorer};
//! use manylabel_score::Model;
//! use manylabel_sparse::{CsrOwned, CsrView};
//!
//! // Label 0 is the exclusive or of two features, which no linear score can represent.
//! let (indptr, indices) = ([0i32, 0, 1, 2, 4], [0, 1, 0, 1]);
//! let x = CsrView::new("X", &indptr, &indices, &[1.0f32; 4], 2)?;
//! let y = CsrView::new("Y", &[0i32, 0, 1, 2, 2], &[0, 0], &[1.0f32; 2], 1)?;
//! let projection = Projection::new(&[1.0, 0.0, 0.0, 1.0], &[0.0, 0.0], 2)?;
//! let params = Params { loss: Loss::Squared, n_features: 200, ..Params::default() };
//! let y = CsrOwned::from_view(y, false)?;
//! let model = params.check()?.fit(x.into(), projection, None, &y, None, None, &Watch::new())?;
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
