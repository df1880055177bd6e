//! Fits DiSMEC: a linear classifier for each label, with L2 regularization and squared hinge loss.
//! Small weights are dropped after the fit.
//!
//! Each label is fitted separately. With `s_i = ±1` and rows optionally scaled to unit length, the fit
//! minimizes
//!
//! ```text
//! f(w, b) = ½‖w‖² + ½b² + C Σ_i m_i max(0, 1 − s_i (w·x_i + b))²
//! ```
//!
//! where `m_i` is the weight of row i. The intercept b is the weight of a feature that is 1 in every
//! row, so it is regularized too. After the fit, weights whose absolute value is below `prune` are
//! dropped. (Babbar, Schölkopf: DiSMEC, WSDM 2017, eq. 1 and §2.2, with the factor ½ of LIBLINEAR.)
//!
//! Labels are sorted by frequency and divided into panels of sixteen. A panel is the unit of work of a
//! thread. One of two solvers is chosen for each label:
//!
//! * `optimum` solves for sixteen labels at once over all rows, by preconditioned nonlinear conjugate
//!   gradients. A step computes two products with X. The sixteen labels share one pass over X in each
//!   product. `optimum` converges to the minimum. It is the faster solver for labels with many positive
//!   rows.
//! * `active` solves for one rare label with few rows. Nearly all rows of such a label are negative and
//!   far on the correct side of the margin. So dual coordinate descent uses only the positive rows and
//!   the negative rows that violate the margin. All other rows are replaced by one negative row, their
//!   mean. [`Solver::Fast`] uses `active` if fewer than one row in 100 is positive. The result is an
//!   approximation. It is accurate if the replaced rows have similar scores.
//!
//! The loss predicts a label if its score is positive. For rare labels, scores are seldom positive.
//! With [`Params::learn_cut`], `unseen` learns a threshold (the cut) at which the number of predicted
//! labels equals the number of true labels.
//!
//! The weights of a label are computed by the same operations in the same order as if it were the only
//! label. So they depend neither on the number of threads nor on the other labels. The cut does not
//! depend on the number of threads either, but it depends on all labels in its sample.
//!
//! | file | content |
//! |---|---|
//! | `fit.rs` | assigns labels to panels and panels to threads, and collects the pruned weights |
//! | `block.rs`, `effort.rs` | fit a few labels to some of the rows, for other crates |
//! | `problem.rs` | X, its transpose and the sums that all labels share |
//! | `optimum.rs`, `active.rs` | the two solvers |
//! | `unseen.rs` | scores of held-out rows, and the cut |

mod active;
mod block;
mod effort;
mod fit;
mod optimum;
mod params;
mod problem;
mod unseen;

pub use block::{Block, Forgotten, Solution};
pub use effort::Effort;
pub use fit::{Model, Spare};
pub use params::{Checked, Params, Solver};
pub use unseen::held_out_rows;
