//! Fits DiSMEC: a linear classifier for each label, with L2 regularization and squared hinge loss or logistic loss.
//! Small weights are dropped after the fit.
//!
//! Each label is fitted separately. Let `s_i` be 1 for the rows `x_i` that have the label and −1
//! for other rows. The fit minimizes
//!
//! ```text
//! f(w, b) = ½‖w‖² + ½b² + C Σ_i m_i max(0, 1 − s_i (w·x_i + b))²
//! ```
//!
//! where `m_i` is the weight of row i. With [`Loss::Logistic`], the loss of a row is
//! `log(1 + exp(−s_i (w·x_i + b)))` in place of the squared term. Rows may first be scaled to unit length. The intercept b is
//! the weight of a feature that is 1 in every row, so it is regularized too. After the fit, weights
//! whose absolute value is below `prune` are dropped. (Babbar, Schölkopf: DiSMEC, WSDM 2017, eq. 1
//! and §2.2, with the factor ½ of LIBLINEAR.)
//!
//! A pair of row and label may be unknown ([`Labels::unknown`](manylabel_sparse::Labels)). Its term is left
//! out of the sum. The terms of a label may have factors ([`Factors`]), one for its positive rows and one for
//! its negative rows.
//!
//! Labels are sorted by frequency and divided into panels of sixteen, or of
//! thirty-two if they are rare. A panel is the unit of work
//! of a thread. One of two solvers is chosen for each label:
//!
//! * `optimum` minimizes the objectives of sixteen labels at once over all rows, by preconditioned
//!   nonlinear conjugate gradients. A step computes two products with X, each in one pass over X
//!   for all sixteen labels. This solver converges to the minimum. It is faster for labels with
//!   many positive rows.
//! * `active` fits a rare label to a few rows. For a rare label, nearly all rows are negative and
//!   far on the correct side of the margin. So dual coordinate descent uses only the positive rows
//!   and the negative rows that violate the margin. All other rows are replaced by one negative
//!   row, their mean. [`Solver::Fast`] uses `active` if fewer than one row in 100 is positive. The
//!   result is an approximation. It is accurate if the replaced rows have similar scores. With the logistic
//!   loss, all rows have a loss, so all labels are fitted by `optimum`.
//!
//! The loss predicts a label if its score is positive. For rare labels, scores are seldom positive.
//! With [`Params::learn_cut`], `unseen` learns a threshold (called the cut) at which the number of
//! predicted labels equals the number of true labels.
//!
//! The weights of a label do not depend on the other labels or on the number of threads. The
//! threshold is learned from a sample of the labels. It does not depend on the number of threads.
//!
//! | file | content |
//! |---|---|
//! | `fit.rs` | fits all labels, and collects the pruned weights |
//! | `pieces.rs` | assigns labels to panels, and fits ranges of panels on all threads |
//! | `block.rs`, `effort.rs` | fit a few labels to some of the rows, for other crates |
//! | `problem.rs` | X, its transpose and the sums that all labels share |
//! | `start.rs` | weights of an earlier fit, from which `optimum` begins |
//! | `targets.rs` | the labels of the rows, unknown pairs of row and label, and factors of the costs |
//! | `optimum.rs`, `active/` | the two solvers |
//! | `packed.rs` | approximate scores of all rows for thirty-two labels |
//! | `dense/` | the fit to dense features |
//! | `logistic.rs` | the logistic loss, for the steps of `optimum` |
//! | `unseen.rs` | scores of held-out rows, and the threshold |

mod active;
mod block;
mod dense;
mod effort;
mod fit;
mod logistic;
mod optimum;
mod packed;
mod params;
mod pieces;
mod problem;
mod start;
mod targets;
mod unseen;

pub use block::{Block, Forgotten, Solution};
pub use dense::{DenseModel, DensePiece, DenseStart, DenseTask};
pub use effort::Effort;
pub use fit::Model;
pub use params::{Checked, Loss, Params, Solver};
pub use pieces::{Piece, Prepared, Task};
pub use start::{Carry, Start};
pub use targets::{Factors, Outputs, Targets};
pub use unseen::held_out_rows;
