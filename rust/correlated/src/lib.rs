//! Correlated logistic regressions: weights of features for every label, and a coupling for every pair
//! of labels (Bian, Xie and Tao, *`CorrLog`*, AISTATS 2012; Li et al., *Correlated Logistic Model With
//! Elastic Net Regularization*, IEEE TIP 2016).
//!
//! With labels z of 0 and 1, `p(z|x) ∝ exp(Σ_i z_i b_iᵀx + Σ_{i<k} c_ik z_i z_k)`, so that the log-odds
//! of a label given the others are `E_i = b_iᵀx + Σ_k c_ik z_k`. The fit minimizes the negative log
//! pseudo-likelihood and elastic nets,
//!
//! ```text
//! (1/n) Σ_l Σ_i [log(1 + e^{E_li}) − z_li E_li] + λ₁ Σ (b² + ε|b|) + λ₂ Σ_{i<k} (c² + ε|c|),
//! ```
//!
//! intercepts being free. The paper has labels −1 and 1: the same likelihood with `w = b/2` and
//! `a = c/4`, so penalties of those are penalties of b and c ([`Coding`]).
//!
//! | file | what |
//! |---|---|
//! | `design.rs`, `labels.rs` | features of unit variance in blocks of rows; who holds which label |
//! | `wide.rs` | arithmetic on some labels side by side |
//! | `gradient.rs`, `gram.rs` | one pass over the rows; second moments |
//! | `iterate.rs`, `penalty.rs`, `objective.rs` | a point; elastic nets; value, slope and violation at a point |
//! | `fista.rs`, `quasi_newton.rs` | the two solvers, from a point to one that is better; `stop.rs`: until when |
//! | `reference.rs` | the authors' run |
//! | `fit.rs` | which pairs enter, which solver, which precision |
//! | `units.rs`, `model.rs` | from the user's terms and back; what comes out |
//! | `decode/` | the most probable label set, probabilities |
//! | `predict.rs` | scores of rows |
//!
//! Invariant: nothing of rows × labels is kept but of a block; couplings that are zero take no part
//! unless their gradient says so; nothing depends on the number of threads.
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_correlated::{Method, Params, Scorer};
//! use manylabel_score::{Bounds, Model};
//! use manylabel_sparse::CsrView;
//!
//! // One feature speaks for label 0; label 1 holds where label 0 does not.
//! let x = CsrView::new("X", &[0i32, 1, 2, 2, 2], &[0, 0], &[1.0f32, 1.0], 1)?;
//! let y = CsrView::new("Y", &[0i32, 1, 2, 3, 4], &[0, 0, 1, 1], &[1.0f32; 4], 2)?;
//! let params = Params { l2_features: 0.01, l2_pairs: 0.01, ..Params::default() };
//! let model = params.check()?.fit(x, y, None, None, &Watch::new())?;
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
