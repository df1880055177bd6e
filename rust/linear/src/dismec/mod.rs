//! DiSMEC: an L2-regularized squared hinge loss for every label, pruned to sparse weights.
//!
//! Label by label, with `s_i = ±1` and rows scaled to unit length,
//!
//! ```text
//! f(w, b) = ½‖w‖² + ½b² + C Σ_i m_i max(0, 1 − s_i (w·x_i + b))²
//! ```
//!
//! where `m_i` is the weight of row i; the intercept is the weight of a feature that is 1 in every
//! row. Afterwards weights below `prune` in absolute value are dropped.
//! (Babbar, Schölkopf: DiSMEC, WSDM 2017, eq. 1 and §2.2, with LIBLINEAR's ½.)
//!
//! Two ways to the minimum, chosen label by label:
//!
//! * `optimum`: sixteen labels at once over all rows. Every product with X serves sixteen labels,
//!   so its memory traffic is shared; preconditioned nonlinear conjugate gradients need two
//!   products a step. Always right, and the faster one where a label has many rows to separate.
//! * `active`: for a label with few positives nearly all rows are far on the right side. Dual
//!   coordinate descent over the positives and the negatives found to violate the margin, while
//!   all other rows stand together as one: their mean. This is what [`Solver::Fast`] does for
//!   rare labels: an approximation, good where the other rows score alike.
//!
//! The textbook names a label where its score is positive; for rare labels that is hardly ever.
//! `unseen` learns a cut that names as many labels as there are.
//!
//! Every label's arithmetic is its own, in a fixed order: results do not depend on threads.

mod active;
mod fit;
mod optimum;
mod params;
mod problem;
mod unseen;

pub use fit::Model;
pub use params::{Checked, Params, Solver};
