//! LEML: linear classifiers with a weight matrix of low rank, `Z = W Hᵀ`.
//!
//! All labels share r linear combinations of the features, `x W`. The score of label j is `x W h_j`. So
//! a model with d features and c labels has `r (d + c)` numbers instead of d c, and labels with few
//! positive rows profit from other labels. Some entries of Y may be unknown.
//!
//! Let W have shape (d, r) and H shape (c, r). Let `ω_i` be the weight of row i, and let Ω be the set
//! of known entries of Y (by default all entries). The fit minimizes
//!
//! ```text
//! min  Σ_{(i,j)∈Ω} ω_i ℓ(y_ij, x_iᵀ W h_j) + alpha/2 (‖W‖² + ‖H‖²)
//! ```
//!
//! where ℓ is `½ (y − z)²`, `log(1 + exp(−s z))` or `½ max(0, 1 − s z)²`, with `s = 2y − 1`. The
//! objective is convex in W and in H, but not in the two together. So it is minimized in turns: a
//! *turn* first lowers the objective over W and then over H. (Yu, Jain, Kar, Dhillon: Large-scale
//! Multi-label Learning with Missing Labels, ICML 2014. The factor ½ of the losses is not from this
//! paper.)
//!
//! There are two solvers for a turn:
//!
//! - `ridge` is for squared loss with all entries known. If W and H are rotated in the same way, `W Hᵀ`
//!   does not change. So the two factors are rotated such that `HᵀH` is diagonal. Then the columns of W
//!   are independent ridge regressions, which conjugate gradients solve 32 at a time. The rows of H are
//!   ridge regressions that share one Cholesky factor. Only the 1-entries of Y are read, and no score of
//!   a 0-entry is computed.
//! - `newton` is for any loss and any set of known entries (`entries`). It applies Newton's method to
//!   one factor at a time. Conjugate gradients compute the steps, and a line search follows. If all
//!   entries are known, each product with the Hessian goes through all entries, in blocks, in O(n c r)
//!   time for n rows.
//!
//! `held_out` scores rows that a fit did not use. With these scores, it chooses `alpha` and the
//! threshold at which the number of predicted labels equals the number of true labels.
//!
//! | file | content |
//! |---|---|
//! | `fit.rs` | the training set, the loop over turns, the model |
//! | `turns.rs` | the interface that the two solvers share |
//! | `ridge.rs`, `newton.rs` | the solvers |
//! | `entries.rs` | the loss over known entries and its derivatives |
//! | `loss.rs` | the losses of single entries and their derivatives |
//! | `dense.rs` | tall dense matrices, and X with its products |
//! | `held_out.rs` | `alpha` and the threshold |
//! | `predict.rs` | scores of rows |
//!
//! Results do not depend on the number of threads.

mod dense;
mod entries;
mod fit;
mod held_out;
mod loss;
mod newton;
mod params;
mod predict;
mod ridge;
mod turns;

pub use fit::Model;
pub use params::{Checked, Loss, Params};
pub use predict::Scorer;
