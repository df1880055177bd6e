//! Randomized partial least squares: the label embedding Rembrandt.
//!
//! For features X (n, d), labels Y (n, c) and weights Ω of the rows, the optimal weight matrix of
//! rank k is `W Uᵀ`, where U (c, k) has the leading eigenvectors of
//! `B = YᵀΩX (XᵀΩX + λI)⁻¹ XᵀΩY` and W (d, k) regresses `YU` on X. B is never formed: a product with a
//! probe Q is a ridge regression of `YQ` on X and a product with Yᵀ. Starting from a Gaussian probe, q
//! products and orthogonalizations find the range, one more the eigenvectors.
//!
//! Mineiro and Karampatziakis, "Fast Label Embeddings for Extremely Large Output Spaces" (2014),
//! algorithm 1, with line 8 as `F = (YᵀXZ)ᵀ(YᵀXZ)`; ridge and weights from "Scalable Multilabel
//! Prediction via Randomized Methods" (2015). [`Variant`] has the departure of the authors' code.
//!
//! Ridges that are not given are those of least leave-one-out error, which one fit tells: a residual
//! without a row is the residual divided by one less the row's leverage.
//!
//! Everything but small factorizations is done in panels of thirty-two columns of the probe, one panel a
//! unit of work for one thread: nothing of size rows × columns is kept, threads share no sums, and the
//! bits do not depend on their number. Storage and products are in the precision of X;
//! orthogonalization and Gram matrices in double.
//!
//! Invariant: nothing of size labels × labels, rows × labels or rows × k is formed; of size features ×
//! features or rows × rows only by the solvers that factorize it.
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
mod leverage;
mod normal;
mod params;
mod project;
mod solve;
mod tall;

pub use design::Matrix;
pub use fit::Model;
pub use params::{Checked, Components, Embedding, Params, Ridge, Solver, Variant};
pub use project::{ROWS_AT_ONCE, project};
