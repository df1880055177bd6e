//! Fits the label embedding Rembrandt, which is a randomized form of partial least squares.
//!
//! Let X (n, d) be the features, Y (n, c) the labels, Ω a diagonal matrix of row weights, and λ a ridge. The
//! best weight matrix of rank k in the sense of least squares is `W Uᵀ`, where the columns of U and W are
//! computed as follows. The label embedding U (c, k) holds the leading eigenvectors of
//! `B = YᵀΩX (XᵀΩX + λI)⁻¹ XᵀΩY`. The projection W (d, k) is the ridge regression of `YU` on X. A downstream
//! model then learns the labels from the k columns of `XW`.
//!
//! # Algorithm
//!
//! The matrix B (c, c) is never formed. The product of B with a matrix Q (c, ℓ) is computed as a
//! ridge regression followed by a product with Yᵀ:
//!
//! ```text
//! Z  = (XᵀΩX + λI)⁻¹ XᵀΩYQ
//! BQ = YᵀΩXZ
//! ```
//!
//! 1. Draw a Gaussian random matrix Q with ℓ = min(k + `n_oversamples`, d, c) columns.
//! 2. Repeat `n_iter` times: replace Q by an orthonormal basis of `BQ`.
//! 3. Compute `T = BQ`, and the singular values and right singular vectors V of T. The singular
//!    values estimate the leading eigenvalues of B.
//! 4. Compute U from T or from Q and the first k columns of V; see [`Variant`].
//! 5. Compute W by one more regression, of `YU` on X.
//!
//! In total there are `n_iter + 1` regressions with ℓ right-hand sides for U, and one regression
//! with k right-hand sides for W.
//!
//! This is algorithm 1 of Mineiro and Karampatziakis, "Fast Label Embeddings for Extremely Large Output
//! Spaces" (2014). In the printed line 8, the shapes of the matrices do not match. This crate computes
//! `F = (YᵀXZ)ᵀ(YᵀXZ)` instead. The ridge and the row weights are from "Scalable Multilabel Prediction via
//! Randomized Methods" (2015) by the same authors.
//!
//! # Regressions and ridges
//!
//! A regression is solved by a Cholesky factorization of a Gram matrix or by preconditioned conjugate
//! gradients; see [`Solver`]. Ridges are relative to the mean diagonal of `XᵀΩX`, so they do not depend on
//! the scale of X. [`Ridge::Auto`] chooses the ridge with the smallest leave-one-out error. One fit to all
//! rows is enough to compute this error. A fit without row i would have the residual `r_i / (1 − h_i)` for
//! row i. Here `r_i` is the residual of the fit to all rows, and `h_i` is the leverage of row i.
//!
//! # Cost
//!
//! With conjugate gradients, one product with B takes O((nnz(X) s + nnz(Y)) ℓ) time for s steps.
//! For dense X, a factorization takes O(n d² + d³) time once, and each product O(d² ℓ) time. An
//! orthogonalization takes O(c ℓ²) time. See [`Checked::fit`] for memory.
//!
//! # Data structures and determinism
//!
//! Tall matrices are stored as panels of 32 columns. A panel is the unit of work of one thread. To multiply a
//! panel, a thread processes one block of rows after the other. No sum is computed by several threads, so
//! results are exactly the same for any number of threads. Random numbers depend only on the seed and on
//! their position.
//!
//! Matrices are stored and multiplied in the precision of X. Orthogonalizations, Gram matrices and
//! factorizations are computed in double precision.
//!
//! A fit never forms a matrix of labels × labels or of rows × labels. It forms a matrix of features ×
//! features or of rows × rows only if the solver factorizes such a matrix. A fit stores k numbers per row
//! only if [`Params::leave_one_out`] is set.
//!
//! # Example
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_pls::{Components, Matrix, Params, Ridge, project};
//! use manylabel_sparse::CsrView;
//!
//! // Four rows, four features; labels 0 and 1 always come together.
//! let eye = CsrView::new("X", &[0i32, 1, 2, 3, 4], &[0, 1, 2, 3], &[1.0f64; 4], 4)?;
//! let y = CsrView::new("Y", &[0i32, 2, 4, 5, 6], &[0, 1, 0, 1, 2, 2], &[1.0f32; 6], 3)?;
//! let params = Params {
//!     n_components: Components::Count(1),
//!     l2: Ridge::Of(0.0),
//!     l2_final: Ridge::Of(1.0),
//!     ..Params::default()
//! };
//! let model = params.check()?.fit(Matrix::Sparse(eye), y, None, &Watch::new())?;
//! let u = model.label_embedding.expect("an embedding of labels");
//! assert!((u[0] - 0.5f64.sqrt()).abs() < 1e-9 && (u[1] - u[0]).abs() < 1e-9 && u[2].abs() < 1e-9);
//! let xw = project(Matrix::Sparse(eye), &model.coef, &model.intercept, &Watch::new())?;
//! assert!((xw[0] - 2f64.sqrt()).abs() < 1e-6 && xw[3].abs() < 1e-6);
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

mod cg;
mod choice;
mod components;
mod dense;
mod design;
mod fit;
mod gram;
mod impute;
mod leverage;
mod normal;
mod params;
mod pieces;
mod project;
mod solve;
mod tall;

pub use design::Matrix;
pub use fit::Model;
pub use params::{Checked, Components, Embedding, Params, Ridge, Solver, Variant};
pub use pieces::{Piece, Task};
pub use project::{ROWS_AT_ONCE, project};
