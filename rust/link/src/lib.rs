//! Fits and applies the smooth low-rank link. It computes joint predictions of many labels as a
//! smooth function of a few linear predictions (Karampatziakis and Mineiro, *Scalable Multilabel
//! Prediction via Randomized Methods*, Algorithm 3).
//!
//! # Model
//!
//! A row x has k linear predictions `p = x W + a`. They come from another model, usually a low-rank
//! embedding of the labels, and contain information that the labels share. The scores of the labels
//! are
//!
//! ```text
//! ŝ = φ(p) V + v,    φ_j(p) = cos(r_jᵀ (p, 1) + b_j),    j = 1..s
//! ```
//!
//! with random frequencies `r_j` and phases `b_j`. Such cosine features approximate a
//! shift-invariant kernel ([`Kernel`]), so ŝ behaves like a kernel machine on the predictions. The
//! link can combine independent linear predictions into joint predictions. It costs as much as a
//! linear model with s features. [`Kernel::Linear`] uses the predictions themselves as features.
//!
//! # Fit
//!
//! Let Φ be the matrix of the features and a constant 1, with one row per training row. Let Ω be
//! the diagonal matrix of the row weights. The fit draws frequencies and phases, and then computes
//! V in one or two stages:
//!
//! 1. V is computed by least squares: `C = ΦᵀΩΦ + ridge`, `V = C⁻¹ ΦᵀΩỸ` with smoothed labels Ỹ.
//!    This V is the final result for [`Loss::Squared`].
//! 2. For the logistic loss and the softmax, V is refined by preconditioned stochastic gradients
//!    ([`Solver::Psgd`]). Early stopping then regularizes the result. For the logistic loss, V can
//!    instead be refined to the optimum by Newton's method ([`Solver::NewtonCg`]).
//!
//! Consider n rows, s features and m labels. Computing the features takes O(n s k) time. The Gram
//! matrix and its factor take O(n s² + s³) time. Least squares takes O(s (stored entries of Y) + s²
//! m) time, and each pass of stochastic gradients takes O(n s m) time. The Gram matrix takes 20 s²
//! bytes, V takes 4 s m bytes, and the predictions take 4 n k bytes. The labels that are fitted
//! together take 24 bytes per weight. If features are kept in memory, they take 4 n s bytes.
//!
//! | file | content |
//! |---|---|
//! | `kernel.rs`, `gamma.rs` | random frequencies; the bandwidth |
//! | `design.rs`, `lanes.rs` | linear predictions and features of rows; elementwise functions |
//! | `gram.rs` | `ΦᵀΩΦ + ridge`, its Cholesky factor, and solves |
//! | `labels.rs`, `moments.rs` | the rows of each label; sums over rows |
//! | `block.rs`, `psgd.rs`, `newton.rs` | output weights of a block of labels |
//! | `fit.rs` | the fit, and decisions that depend on its sizes |
//! | `threshold.rs` | the score above which a label is predicted |
//! | `predict.rs` | scores of rows |
//!
//! Apart from the weights V, arrays of size labels × features exist only for one block (group) of
//! labels at a time. For the softmax and with early stopping, the block contains all labels. Arrays
//! of size rows × labels exist only for one batch of rows. Results do not depend on the number of
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
mod known;
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
