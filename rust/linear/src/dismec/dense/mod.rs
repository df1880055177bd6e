//! Fits `DiSMEC` to dense features, with matrix products of blocks of rows and groups of labels.
//!
//! The objective is the same as for sparse features, with the squared hinge loss; see the [parent module](super). The
//! fit does not support the logistic loss, because step 1 is an approximation of the squared hinge loss. X is read through
//! [`TableRows`](manylabel_sparse::TableRows), a block of rows at a time, and is never copied. Labels are sorted
//! by frequency and divided into groups of up to [`MOST_LABELS`](group::MOST_LABELS) labels. All rows and the
//! labels of a group are fitted together:
//!
//! 1. `start` finds weights without reading X, except for rows of rare labels. The scores of the negative
//!    rows of a label are treated as normally distributed. Their mean and variance follow from the mean and
//!    the Gram matrix of all rows, so the loss of all negative rows has a closed form.
//! 2. `descend` minimizes the objective over all rows by nonlinear conjugate gradients, like `optimum` for
//!    sparse rows. A step takes two matrix products: scores along a direction, and the gradient. The
//!    preconditioner is `(I + φ Σ_i cost_i x_i x_iᵀ)⁻¹`, where φ is the share of rows with a loss in the group.
//!
//! On planted clusters, the weights of step 1 rank labels as well as the optimum within 0.3 points of the
//! precision at 1. From there, four to eight steps reach the optimum within `tol`. From zero weights, they
//! take ten. Labels need different numbers of steps, so the group becomes narrower while labels converge.
//!
//! With [`Solver::Fast`](super::Solver::Fast), rare labels have a looser tolerance; see [`fit::LOOSE`] and
//! [`fit::LEAST_GAIN`].
//!
//! Threads share the rows of a group, which are divided into a fixed number of chunks, and the sums of the
//! chunks are added in order. So results depend neither on the number of threads nor on the memory order of X.
//!
//! | file | content |
//! |---|---|
//! | `fit.rs` | fits ranges of labels, and prunes the weights |
//! | `start.rs` | step 1 |
//! | `descend.rs` | step 2 |
//! | `group.rs` | scores, gradients and line searches of a group of labels |

mod descend;
mod fit;
mod group;
mod start;

pub use fit::{DenseModel, DensePiece, DenseStart, DenseTask};

use super::Outputs;
use crate::moments::Moments;
use manylabel_sparse::TableRows;

/// The training set that all labels share.
struct Problem<'a> {
    rows: TableRows<'a>,
    outputs: Outputs,
    /// `2 C m_i` for each row, where `m_i` is the weight of the row.
    cost: Vec<f32>,
    total_cost: f64,
    moments: Moments,
}
