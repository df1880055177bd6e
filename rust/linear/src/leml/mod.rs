//! LEML: linear classifiers whose weight matrix has low rank, `Z = W Hᵀ`.
//!
//! All labels share r linear combinations of the features, `x W`; the score of label j is `x W h_j`. So a
//! model takes `r (d + c)` numbers for d features and c labels instead of d c, and labels with few positive
//! rows learn from others. Entries of Y may be unknown.
//!
//! With W (d × r), H (c × r), `ω_i` the weight of row i and Ω the known entries of Y (all entries by
//! default), the fit minimizes
//!
//! ```text
//! min  Σ_{(i,j)∈Ω} ω_i ℓ(y_ij, x_iᵀ W h_j) + alpha/2 (‖W‖² + ‖H‖²)
//! ```
//!
//! where ℓ is `½ (y − z)²`, `log(1 + exp(−s z))` or `½ max(0, 1 − s z)²`, with `s = 2y − 1`. The objective is
//! convex in W and in H, but not in both. It is minimized in turns: a *turn* lowers it in W, then in H. (Yu,
//! Jain, Kar, Dhillon: Large-scale Multi-label Learning with Missing Labels, ICML 2014; the factor ½ of the
//! losses is ours.)
//!
//! Two solvers implement turns:
//!
//! * `ridge` for squared loss with all entries known. A rotation of both W and H leaves `W Hᵀ` unchanged, so
//!   both are rotated until `HᵀH` is diagonal. Then the columns of W are independent ridge regressions,
//!   solved 32 at a time by conjugate gradients. The rows of H are ridge regressions that share one Cholesky
//!   factor. Only the ones of Y are read; no score of an entry that is 0 is ever computed.
//! * `newton` for any loss and any set of known entries (`entries`). Newton's method on one factor at a time,
//!   with steps by conjugate gradients and a line search. If all entries are known, the scores of all entries
//!   are computed in each product: O(n c r), in blocks.
//!
//! `held_out` scores rows that a fit did not see, to choose `alpha` and the threshold above which as many
//! labels are predicted as are true.
//!
//! | file | what |
//! |---|---|
//! | `fit.rs` | the training set, turns until the objective hardly falls, the model |
//! | `turns.rs` | what the two solvers have in common |
//! | `ridge.rs`, `newton.rs` | the solvers |
//! | `entries.rs` | the loss over known entries and its derivatives |
//! | `dense.rs` | tall dense matrices, and X with its products |
//! | `held_out.rs` | `alpha` and the threshold |
//! | `predict.rs` | scores of rows |
//!
//! Results do not depend on the number of threads.

mod dense;
mod entries;
mod fit;
mod held_out;
mod newton;
mod params;
mod predict;
mod ridge;
mod turns;

pub use fit::Model;
pub use params::{Checked, Loss, Params};
pub use predict::Scorer;
