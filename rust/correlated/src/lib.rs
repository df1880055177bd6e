//! Correlated logistic regressions for multi-label classification: one weight per feature and
//! label, and one coupling per pair of labels (Bian, Xie and Tao, *`CorrLog`*, AISTATS 2012; Li et
//! al., *Correlated Logistic Model With Elastic Net Regularization*, IEEE TIP 2016).
//!
//! # Model
//!
//! With labels z of 0 and 1, `p(z|x) ∝ exp(Σ_i z_i b_iᵀx + Σ_{i<k} c_ik z_i z_k)`. The log-odds of
//! label i, given the features and all other labels, are `E_i = b_iᵀx + Σ_k c_ik z_k`. A positive
//! coupling `c_ik` makes labels i and k more likely to occur together, a negative one less likely.
//! Without couplings this is one independent logistic regression per label.
//!
//! # Objective
//!
//! The likelihood has a normalizing sum over `2^m` label sets. The fit therefore uses the
//! pseudo-likelihood, the product of the probabilities of each label given all others. It minimizes
//! the negative log pseudo-likelihood plus elastic nets:
//!
//! ```text
//! (1/n) Σ_l Σ_i [log(1 + e^{E_li}) − z_li E_li] + λ₁ Σ (b² + ε|b|) + λ₂ Σ_{i<k} (c² + ε|c|)
//! ```
//!
//! With sample weights, the mean over rows becomes a weighted mean. Intercepts are not penalized.
//! The objective is convex. The absolute values set many weights and couplings to exactly zero, so
//! that both are returned as sparse matrices.
//!
//! The paper codes labels as −1 and 1. That is the same likelihood with `w = b/2` and `a = c/4` and
//! other intercepts, but penalties of w and a are not penalties of b and c. [`Coding`] chooses
//! which of the two are penalized; [`Model`] always holds b and c.
//!
//! # Prediction
//!
//! [`Scorer`] answers two questions about a row. Label sets come from the most probable set, the
//! maximum of p(z|x), found by the [`Method`] of choice. Rankings and probabilities come from the
//! marginals p(`z_i` = 1|x), whatever the other labels are.
//!
//! # How a fit proceeds
//!
//! 1. Features are scaled to unit variance, labels sorted by frequency, rows cut into blocks.
//! 2. Independent regressions are fitted roughly, in single precision.
//! 3. Pairs of labels whose coupling should not be zero enter the objective, which is minimized;
//!    this is repeated until the pairs left out satisfy their optimality condition (KKT violation
//!    zero).
//! 4. If the tolerance is below what single precision can reach, step 3 is repeated in double
//!    precision.
//! 5. Weights are written in the units of the caller's features.
//!
//! One gradient takes O((stored values of X + stored values of Y) m) for m labels, less where few
//! labels are coupled. Memory is a small multiple of the dense weight matrix, features × labels,
//! plus one scaled copy of X (two if sparse).
//!
//! | file | what |
//! |---|---|
//! | `design.rs`, `labels.rs` | features of unit variance in blocks of rows; which rows hold which label |
//! | `wide.rs` | arithmetic on several labels side by side |
//! | `gradient.rs`, `gram.rs` | one pass over the rows; second moments |
//! | `iterate.rs`, `penalty.rs`, `objective.rs` | a point; elastic nets; value, gradient, KKT violation |
//! | `fista.rs`, `quasi_newton.rs` | the two solvers, which improve a point; `stop.rs`: when they end |
//! | `reference.rs` | the procedure of the method's authors |
//! | `fit.rs` | which pairs enter, which solver runs, in which precision |
//! | `units.rs`, `model.rs` | conversion between the caller's units and those of the fit; the result |
//! | `decode/` | the most probable label set, and probabilities |
//! | `predict.rs` | scores of rows |
//!
//! Invariants: no dense array of size rows × labels exists, only one for a block of rows at a time.
//! With more than 90 labels, couplings that are zero cost nothing unless their gradient says that
//! they should not be zero. Results do not depend on the number of threads.
//!
//! # Example
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_correlated::{Method, Params, Scorer};
//! use manylabel_score::{Bounds, Model};
//! use manylabel_sparse::CsrView;
//!
//! // The one feature indicates label 0; label 1 is present where label 0 is not.
//! let x = CsrView::new("X", &[0i32, 1, 2, 2, 2], &[0, 0], &[1.0f32, 1.0], 1)?;
//! let y = CsrView::new("Y", &[0i32, 1, 2, 3, 4], &[0, 0, 1, 1], &[1.0f32; 4], 2)?;
//! let params = Params { l2_features: 0.01, l2_pairs: 0.01, ..Params::default() };
//! let model = params.check()?.fit(x.into(), y.into(), None, None, &Watch::new())?;
//! assert!(model.converged && model.couplings.row(0).1[0] < 0.0);
//! let weights = &model.weights;
//! let weights = (&weights.ends[..], &weights.cols[..], &weights.values[..]);
//! let scorer = Scorer::new(weights, &model.intercept, &model.couplings, Method::Auto)?;
//! let sets = scorer.above(x.into(), Bounds::One(0.0), &Watch::new())?;
//! assert_eq!((sets.indptr, sets.indices), (vec![0, 1, 2, 3, 4], vec![0, 0, 1, 1]));
//! # Ok::<(), manylabel_base::Error>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        reason = "tests choose their sizes"
    )
)]

mod decode;
mod design;
mod fista;
mod fit;
mod gradient;
mod gram;
mod iterate;
mod labels;
mod model;
mod objective;
mod params;
mod penalty;
mod predict;
mod quasi_newton;
mod reference;
mod stop;
mod units;
mod wide;

pub use decode::Method;
pub use model::{LabelSets, Matrix, Model, Start};
pub use params::{Checked, Coding, Params, Solver};
pub use predict::Scorer;
