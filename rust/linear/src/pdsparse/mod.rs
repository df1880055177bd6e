//! PD-Sparse: a max-margin ranking loss over all labels at once, with sparse weights and sparse duals.
//!
//! With rows `x_i`, weights `w_k` of label k, and `C_i = C m_i`, where `m_i` is the weight of row i, the fit
//! minimizes
//!
//! ```text
//! min  Σ_k ½‖w_k‖² + l1 ‖w_k‖₁ + Σ_i C_i max(0, 1 + max_{k∉y_i} w_k·x_i − min_{k∈y_i} w_k·x_i)
//! ```
//!
//! A row loses nothing if all labels it carries score higher by 1 than all others. The dual variables are
//! `α_ik ≥ 0` for the labels that row i carries and `α_ik ≤ 0` for the others, with
//! `Σ_{k∈y_i} α_ik = −Σ_{k∉y_i} α_ik ≤ C_i`. The dual problem minimizes
//! `½ Σ_k ‖w_k‖² + Σ_{i, k∉y_i} α_ik`, where `w_k = soft(v_k, l1)` is the soft threshold of
//! `v_k = Σ_i α_ik x_i`. The sum of the two objectives is the duality gap, which is 0 at the optimum.
//! (Yen, Huang, Ravikumar, Zhong, Dhillon: PD-Sparse, ICML 2016.)
//!
//! The algorithm is fully-corrective block-coordinate Frank–Wolfe. In each pass, rows are visited in a new
//! random order. A visit finds the labels that violate the row's margin most, adds them to the row's *active
//! set* (the labels whose duals may differ from 0), solves for all duals of the set, and updates the weights.
//! Labels that the row does not carry leave the set when their duals become 0.
//!
//! Active sets and weights both stay sparse, and weights are stored by feature. So a visit reads only the
//! nonzero weights of the row's features. Visits depend on each other and run on one thread; passes that
//! only score rows (validation, duality gap, thresholds) run on all threads.
//!
//! After the passes, the *post-solve* keeps the supports (the nonzero weights) and repeats the fit on them
//! without l1, which removes the shrinkage. Then held-out rows choose intercepts and the threshold.
//!
//! Rows without features, and rows that carry no label or all of them, do not take part.
//!
//! | file | what |
//! |---|---|
//! | `fit.rs` | passes, when they end, post-solve, the model |
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
