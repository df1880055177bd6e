//! PD-Sparse: a max-margin ranking loss over all labels at once, sparse in weights and duals alike.
//!
//! With rows `x_i`, weights `w_k` of label k, and `C_i = C m_i`, `m_i` the weight of row i,
//!
//! ```text
//! min  Σ_k ½‖w_k‖² + l1 ‖w_k‖₁ + Σ_i C_i max(0, 1 + max_{k∉y_i} w_k·x_i − min_{k∈y_i} w_k·x_i)
//! ```
//!
//! The dual has `α_ik ≥ 0` for the labels a row carries and ≤ 0 for the others, with
//! `Σ_{k∈y_i} α_ik = −Σ_{k∉y_i} α_ik ≤ C_i`; it minimizes `½ Σ_k ‖w_k‖² + Σ_{i, k∉y_i} α_ik`, where
//! `w_k = soft(v_k, l1)` and `v_k = Σ_i α_ik x_i`. The sum of both objectives is the duality gap.
//! (Yen, Huang, Ravikumar, Zhong, Dhillon: PD-Sparse, ICML 2016.)
//!
//! Fully-corrective block-coordinate Frank–Wolfe: row after row, in a new random order in every
//! pass, `visits` searches the labels that violate the margin most, adds them to the row's active set,
//! and solves for all duals of the set (`block`). Both sets stay small and `weights` lie by
//! feature, so that the search touches what is not zero and nothing else.
//!
//! A row must carry a label and lack one, and have a feature, to have a say.

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
