//! Fits PD-Sparse: a linear classifier with sparse weights, which minimizes a max-margin ranking
//! loss over all labels at once. The dual variables are also sparse.
//!
//! Let `x_i` be the rows and `w_k` the weights of label k. Let `C_i = C m_i`, where `m_i` is the
//! weight of row i. The fit minimizes
//!
//! ```text
//! min  Σ_k ½‖w_k‖² + l1 ‖w_k‖₁ + Σ_i C_i max(0, 1 + max_{k∉y_i} w_k·x_i − min_{k∈y_i} w_k·x_i)
//! ```
//!
//! The loss of a row is 0 if the scores of all its labels exceed the scores of all other labels by
//! at least 1. The dual variables are `α_ik ≥ 0` for the labels that row i has and `α_ik ≤ 0` for
//! the other labels, with `Σ_{k∈y_i} α_ik = −Σ_{k∉y_i} α_ik ≤ C_i`. The dual problem minimizes
//! `½ Σ_k ‖w_k‖² + Σ_{i, k∉y_i} α_ik`, where `w_k = soft(v_k, l1)` is the soft threshold of
//! `v_k = Σ_i α_ik x_i`. The dual problem is a minimization, so the duality gap is the sum of the
//! two objectives. It is 0 at the optimum. (Yen, Huang, Ravikumar, Zhong, Dhillon: PD-Sparse,
//! ICML 2016.)
//!
//! The algorithm is fully-corrective block-coordinate Frank–Wolfe. Each pass visits the rows in a
//! new random order. A visit finds the labels that violate the margin of the row most, and adds
//! them to the *active set* of the row. Only the dual variables (duals) of the active set may
//! differ from 0. The visit then solves for these duals and updates the weights. A label that the
//! row does not have is removed from the active set when its dual becomes 0.
//!
//! Active sets and weights stay sparse, and weights are stored by feature. So a visit reads only
//! the nonzero weights of the row's features. Each visit depends on the visits before it, so all
//! visits run on one thread. Passes that only score rows (for validation, the duality gap and
//! thresholds) run on all threads.
//!
//! After the last pass, the *post-solve* fits the nonzero weights again without l1, while all other weights
//! stay 0. This removes the shrinkage caused by l1. Then intercepts and the threshold are chosen on held-out
//! rows.
//!
//! The fit ignores rows without features, rows without labels, and rows that have all of their known labels.
//! If a pair of row and label is unknown ([`Labels::unknown`](manylabel_sparse::Labels)), the label is left
//! out of the maximum over k in the loss of the row.
//!
//! | file | content |
//! |---|---|
//! | `fit.rs` | the loop over passes, the stopping rules, the post-solve, the model |
//! | `visits.rs` | a visit: search, solve, update |
//! | `block.rs` | the duals of one row |
//! | `weights.rs` | v and w by feature |
//! | `problem.rs` | rows, costs, duals; scores, duality gap |
//! | `held_out.rs` | intercepts and the threshold |

mod block;
mod fit;
mod held_out;
mod params;
mod problem;
mod visits;
mod weights;

pub use block::solve as solve_block;
pub use fit::Model;
pub use params::{Checked, Params, Search};
