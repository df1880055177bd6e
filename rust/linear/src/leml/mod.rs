//! LEML: linear classifiers of all labels through a matrix of low rank, `Z = W Hᵀ`.
//!
//! With W (d × r), H (c × r), `ω_i` the weight of row i and `Ω` the known entries of Y (all of them
//! unless told otherwise),
//!
//! ```text
//! min  Σ_{(i,j)∈Ω} ω_i ℓ(y_ij, x_iᵀ W h_j) + alpha/2 (‖W‖² + ‖H‖²)
//! ```
//!
//! where ℓ is `½ (y − z)²`, `log(1 + exp(−s z))` or `½ max(0, 1 − s z)²`, `s = 2y − 1`. W and H take
//! turns, and the objective never rises. (Yu, Jain, Kar, Dhillon: Large-scale Multi-label Learning
//! with Missing Labels, ICML 2014, with the factor ½ ours.)
//!
//! * `ridge`: squared loss with all entries known. Turning W and H by the same rotation changes
//!   nothing, so H is turned until `HᵀH` is diagonal; then the columns of W are ridge regressions
//!   of their own, solved sixteen at a time by conjugate gradients, and every label shares one
//!   Cholesky factor for its row of H. No score is ever computed for an entry of Y that is 0.
//! * `newton`: any loss on any entries (`entries`). Newton's method on one factor at a time, its
//!   steps by conjugate gradients, with a line search. If all entries are known, all are computed:
//!   O(n c r) a product, in blocks.
//! * `held_out`: what rows that a fit did not see say: which `alpha` predicts them best, and above
//!   which score as many of their labels are named as are true.

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
