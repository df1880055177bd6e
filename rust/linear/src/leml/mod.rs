//! Fits LEML: linear classifiers with a weight matrix of low rank, `W Hᵀ`.
//!
//! All labels share r linear combinations of the features, `x W`. The score of label j for a row x
//! is `x W h_j`, where `h_j` is row j of H. So a model with d features and c labels has `r (d + c)`
//! numbers instead of `d c`. Labels with few positive rows profit from other labels. Some entries
//! of Y may be unknown.
//!
//! Let W have shape (d, r) and H shape (c, r). Let `ω_i` be the weight of row i and `μ_j` the weight of
//! label j, and let K be the set of known entries of Y (by default all entries). The fit minimizes
//!
//! ```text
//! min  Σ_{(i,j)∈K} ω_i μ_j ℓ(y_ij, x_iᵀ W h_j) + alpha/2 (‖W‖² + ‖H‖²)
//! ```
//!
//! where ℓ(y, z) is `½ (y − z)²`, `log(1 + exp(−s z))` or `½ max(0, 1 − s z)²`, with `s = 2y − 1`.
//! The objective is convex in W if H is fixed, and convex in H if W is fixed. It is not convex in
//! the two together. So it is minimized in turns. A *turn* lowers the objective first over W and
//! then over H. (Yu, Jain, Kar, Dhillon: Large-scale Multi-label Learning with Missing Labels, ICML
//! 2014. The factor ½ of the losses is not from this paper.)
//!
//! There are two solvers for a turn:
//!
//! - `ridge` is for squared loss if few entries are unknown and all labels have the weight 1. If W and H are multiplied by the same
//!   rotation, `W Hᵀ` does not change. So W and H are rotated such that `HᵀH` is diagonal. The
//!   columns of W are then independent ridge regressions, which conjugate gradients solve 32 at a
//!   time. The rows of H are ridge regressions that share one Cholesky factor. Only the entries of
//!   Y that are 1 or unknown are read. Scores of entries that are 0 are not computed.
//! - `newton` is for any loss, any weights and any set of known entries. It applies Newton's method to W, then
//!   to H. Conjugate gradients compute each step, and a line search follows. If all entries are
//!   known, a product with the Hessian takes O(n c r) time for n rows.
//!
//! `held_out.rs` scores rows that were not used to fit W, and uses these scores to choose `alpha`
//! and the threshold. At the threshold, the number of predicted labels equals the number of true
//! labels.
//!
//! | file | content |
//! |---|---|
//! | `fit.rs` | the training set, the loop over turns, the model |
//! | `turns.rs` | the interface that the two solvers share |
//! | `ridge.rs`, `newton.rs` | the solvers |
//! | `entries.rs` | the loss over known entries and its derivatives |
//! | `loss.rs` | the losses of single entries and their derivatives |
//! | `tall.rs` | dense matrices with many rows |
//! | `design.rs` | X, and its products with such matrices |
//! | `held_out.rs` | `alpha` and the threshold |
//! | `predict.rs` | scores of rows |
//!
//! Results do not depend on the number of threads.

mod design;
mod entries;
mod fit;
mod held_out;
mod loss;
mod newton;
mod params;
mod predict;
mod ridge;
mod tall;
mod turns;

pub use fit::{Model, Targets};
pub use params::{Checked, Loss, Params};
pub use predict::Scorer;
