//! DiSMEC: a linear classifier with L2-regularized squared hinge loss for each label, whose small weights
//! are then dropped.
//!
//! For each label separately, with `s_i = ±1` and rows scaled to unit length (optional), the fit
//! minimizes
//!
//! ```text
//! f(w, b) = ½‖w‖² + ½b² + C Σ_i m_i max(0, 1 − s_i (w·x_i + b))²
//! ```
//!
//! where `m_i` is the weight of row i. The intercept b is the weight of a feature that is 1 in every row, so
//! it is regularized too. Afterwards weights below `prune` in absolute value are dropped.
//! (Babbar, Schölkopf: DiSMEC, WSDM 2017, eq. 1 and §2.2, with LIBLINEAR's ½.)
//!
//! Labels are sorted by frequency and cut into panels of sixteen; a panel is the unit of work of a thread.
//! Two solvers are chosen between label by label:
//!
//! * `optimum` solves sixteen labels at once over all rows, by preconditioned nonlinear conjugate gradients.
//!   A step takes two products with X, whose memory traffic all sixteen labels share. It reaches the
//!   minimum, and is the faster solver for labels with many positive rows.
//! * `active` solves a rare label over few rows. Nearly all rows are negatives far on the right side of the
//!   margin. So dual coordinate descent runs over the positives and the negatives that violate the margin,
//!   and all other rows are replaced by one negative row, their mean. [`Solver::Fast`] uses it for labels
//!   with fewer than one positive in 100 rows. It is an approximation, good where the other rows score alike.
//!
//! The loss predicts a label where its score is positive, which for rare labels is hardly ever. With
//! [`Params::learn_cut`], `unseen` learns a threshold (the cut) that predicts as many labels as rows carry.
//!
//! Each label is computed as if it were alone, in a fixed order, so results depend neither on the number of
//! threads nor on the other labels. (The cut depends on a sample of the labels.)
//!
//! | file | what |
//! |---|---|
//! | `fit.rs` | labels to panels, panels to threads, pruned weights to one sparse matrix |
//! | `block.rs`, `effort.rs` | fits of a few labels to some of the rows, for other crates |
//! | `problem.rs` | X, its transpose and sums that all labels share |
//! | `optimum.rs`, `active.rs` | the two solvers |
//! | `unseen.rs` | scores of rows that the weights have not seen, and the cut |

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
