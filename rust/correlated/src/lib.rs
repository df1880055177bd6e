//! Fits correlated logistic regressions for multi-label classification. The model has one weight
//! per feature and label, and one coupling per pair of labels (Bian, Xie and Tao, *`CorrLog`*,
//! AISTATS 2012; Li et al., *Correlated Logistic Model With Elastic Net Regularization*, IEEE TIP
//! 2016).
//!
//! # Model
//!
//! For labels z of 0 and 1, the model is `p(z|x) ∝ exp(Σ_i z_i b_iᵀx + Σ_{i<k} c_ik z_i z_k)`. Here x are the
//! features of a row, `b_i` are the weights of label i, and `c_ik` is the coupling of labels i and k. The
//! log-odds of label i, given the features and all other labels, are `E_i = b_iᵀx + Σ_k c_ik z_k`. A positive
//! coupling `c_ik` makes labels i and k more likely to occur together. A negative coupling makes this less
//! likely. Without couplings, the model is one independent logistic regression per label.
//!
//! # Objective
//!
//! For m labels, the likelihood contains a sum over all `2^m` label sets, which is too expensive.
//! The fit therefore uses the pseudo-likelihood: the product, over labels, of the probability of a
//! label given all other labels. It minimizes the negative log pseudo-likelihood plus elastic nets:
//!
//! ```text
//! (1/n) Σ_l Σ_i [log(1 + e^{E_li}) − z_li E_li] + λ₁ Σ (b² + ε|b|) + λ₂ Σ_{i<k} (c² + ε|c|)
//! ```
//!
//! Here `E_li` is the log-odds of label i for row l, `z_li` is 1 if row l has label i and 0 otherwise, and n
//! is the number of rows. λ₁ and λ₂ are the strengths of the penalties of the weights b and the couplings c,
//! and ε is the weight of the absolute values relative to the squares. With sample weights, the mean over
//! rows is a weighted mean. Intercepts are not penalized. The objective is convex. The absolute values set
//! many weights and couplings to exactly zero. Weights and couplings are therefore returned as sparse
//! matrices.
//!
//! Li et al. code labels as −1 and 1. The likelihood is the same with the weights `w = b/2`, the couplings
//! `a = c/4` and other intercepts. However, penalties of w and a are not the same as penalties of b and c.
//! [`Coding`] chooses which parameters are penalized. [`Model`] always holds b and c.
//!
//! # Prediction
//!
//! [`Scorer`] computes two kinds of results for a row. The first kind is for predicted label sets.
//! It is computed from the most probable label set, which maximizes p(z|x). The chosen [`Method`]
//! finds this label set. The second kind is for rankings and probabilities. It consists of the
//! marginals p(`z_i` = 1|x), which are sums over all values of the other labels.
//!
//! # How a fit proceeds
//!
//! 1. Features are scaled to unit variance, labels are sorted by frequency, and rows are divided
//!    into blocks.
//! 2. Independent regressions are fitted in single precision, with a loose tolerance.
//! 3. Pairs of labels that should have a nonzero coupling are added to the objective, and the
//!    objective is minimized. This is repeated until all other pairs satisfy their optimality
//!    condition, which is a KKT violation of zero.
//! 4. If the tolerance cannot be reached in single precision, step 3 is repeated in double
//!    precision.
//! 5. Weights are converted so that they apply to the caller's features without scaling.
//!
//! One gradient takes O((stored values of X + stored values of Y) m) time for m labels. It takes
//! less time if few labels have couplings. The memory is a few dense arrays of size features ×
//! labels, plus one scaled copy of X (two copies if X is sparse).
//!
//! | file | what |
//! |---|---|
//! | `design.rs`, `labels.rs` | features of unit variance in blocks of rows; the rows of each label |
//! | `wide.rs` | arithmetic on several labels at a time |
//! | `gradient.rs`, `gram.rs` | one pass over the rows; second moments |
//! | `iterate.rs`, `penalty.rs`, `objective.rs` | a point; elastic nets; value, gradient, KKT violation |
//! | `fista.rs`, `quasi_newton.rs`, `stop.rs` | the two solvers; their stopping criteria |
//! | `reference.rs` | the procedure of the method's authors |
//! | `rounds.rs`, `descent.rs` | division of a fit into rounds; the choice of pairs and solver |
//! | `fit.rs`, `stored.rs` | the training data and the choice of precision; states as bytes |
//! | `units.rs`, `model.rs` | conversion of weights for scaled features to weights for the caller's features; the fitted model |
//! | `decode/` | the most probable label set, and probabilities |
//! | `predict.rs` | scores of rows |
//!
//! Dense arrays of size rows × labels exist only for one block of rows at a time. With more than
//! about 90 labels, a coupling is added to the objective only if its gradient shows that it should
//! not be zero. Couplings that are not added cost almost nothing. Results do not depend on the
//! number of threads.
//!
//! # Example
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_correlated::{Method, Params, Scorer};
//! use manylabel_score::{Bounds, Model};
//! use manylabel_sparse::CsrView;
//!
//! // The only feature indicates label 0. A row has label 1 if it does not have label 0.
//! let x = CsrView::new("X", &[0i32, 1, 2, 2, 2], &[0, 0], &[1.0f32, 1.0], 1)?;
//! let y = CsrView::new("Y", &[0i32, 1, 2, 3, 4], &[0, 0, 1, 1], &[1.0f32; 4], 2)?;
//! let params = Params { l2_features: 0.01, l2_pairs: 0.01, ..Params::default() };
//! let model = params.check()?.fit(x.into(), y.into(), None, None, None, &Watch::new())?;
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
mod descent;
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
mod rounds;
mod stop;
mod stored;
mod units;
mod wide;

pub use decode::Method;
pub use fit::Task;
pub use model::{LabelSets, Matrix, Model, Start};
pub use params::{Checked, Coding, Params, Solver};
pub use predict::Scorer;
