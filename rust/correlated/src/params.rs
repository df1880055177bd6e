//! Parameters of the correlated logistic model, their ranges and the penalties they imply.
//!
//! [`Params`] holds what the caller chose; [`Params::check`] turns it into [`Checked`], which alone
//! can fit. The fit itself always works with weights b and couplings c of 0/1 labels. This module
//! converts the penalties of the other coding into those.
//!
//! ```
//! use manylabel_correlated::Params;
//!
//! assert!(Params { epsilon: 0.0, ..Params::default() }.check().is_ok());
//! let error = Params { tol: 0.0, ..Params::default() }.check().unwrap_err();
//! assert!(error.to_string().contains("`tol`"));
//! ```

use manylabel_base::range::{at_least_one, ensure, not_negative, positive};
use manylabel_base::{Error, checked};

/// Which parameters the penalties apply to. The likelihood is the same for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Weights b and couplings c of labels 0 and 1. The better choice for rare labels: only joint
    /// presence counts.
    ZeroOne,
    /// Weights w = b/2 and couplings a = c/4 of labels −1 and 1, as in the paper.
    PlusMinus,
}

/// How the objective is minimized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// To the optimum, with quasi-Newton steps where they are expected to be cheaper. Otherwise,
    /// and from where these end, as [`Fista`](Self::Fista).
    Auto,
    /// To the optimum, with accelerated proximal gradients.
    Fista,
    /// The procedure of the method's authors: a fixed step, and early stopping that acts as
    /// regularization. For reproducing their results only.
    Reference,
}

/// Parameters as the caller gave them; [`check`](Self::check) makes them usable.
///
/// A penalty applies to the loss averaged over rows, so that its meaning does not change with their
/// number.
#[derive(Debug, Clone)]
pub struct Params {
    /// λ₁, the penalty of weights; finite and > 0.
    pub l2_features: f64,
    /// λ₂, the penalty of couplings; > 0. Infinity fits no couplings.
    pub l2_pairs: f64,
    /// ε, the factor of the absolute values in both penalties; finite and ≥ 0. With 0 nothing is
    /// sparse.
    pub epsilon: f64,
    /// What the penalties apply to.
    pub coding: Coding,
    /// How the objective is minimized.
    pub solver: Solver,
    /// Whether penalties apply to the weights of features scaled to unit variance. The returned
    /// weights are in the units of the caller's features either way.
    pub standardize: bool,
    /// Largest accepted KKT violation: the largest entry of the least subgradient, in terms of
    /// features of unit variance. Finite and > 0; the reference solver ignores it.
    pub tol: f64,
    /// Largest number of gradients; ≥ 1. The reference solver takes at most 500 in any case.
    pub max_iter: usize,
}

/// The penalties of the authors' code, 0/1 coding, elastic net, standardized features.
impl Default for Params {
    fn default() -> Self {
        Self {
            l2_features: 1e-3,
            l2_pairs: 1e-3,
            epsilon: 1.0,
            coding: Coding::ZeroOne,
            solver: Solver::Auto,
            standardize: true,
            tol: 1e-4,
            max_iter: 1000,
        }
    }
}

checked!(Params);

/// An elastic net `l2 θ² + l1 |θ|` of one parameter θ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Penalty {
    /// Factor of the absolute value, ≥ 0.
    pub(crate) l1: f64,
    /// Factor of the square, ≥ 0.
    pub(crate) l2: f64,
}

impl Params {
    /// Checks every parameter, and that coding and solver go together.
    fn ranges(&self) -> Result<(), Error> {
        positive("l2_features", self.l2_features)?;
        positive("tol", self.tol)?;
        let l2_pairs = self.l2_pairs;
        ensure("l2_pairs", l2_pairs > 0.0, "a number > 0", l2_pairs)?;
        not_negative("epsilon", self.epsilon)?;
        at_least_one("max_iter", self.max_iter)?;
        let zero_one = self.coding == Coding::ZeroOne;
        ensure(
            "coding",
            zero_one || self.solver != Solver::Reference,
            "\"01\" with the solver \"reference\"",
            "\"pm1\"",
        )?;
        Ok(())
    }
}

/// Penalties beyond this leave nothing but zero; the square of this number still fits `f32`.
const PROHIBITIVE: f64 = 1e15;

impl Checked {
    /// The penalty of a weight b. In −1/1 coding the user's penalty is that of `w = b/2`.
    pub(crate) fn features(&self) -> Penalty {
        self.penalty(self.0.l2_features)
            .scaled(match self.0.coding {
                Coding::ZeroOne => 1.0,
                Coding::PlusMinus => 0.5,
            })
    }

    /// The penalty of a coupling c, or `None` if it is so large that all couplings are zero. In
    /// −1/1 coding the user's penalty is that of `a = c/4`.
    pub(crate) fn pairs(&self) -> Option<Penalty> {
        let penalty = self.penalty(self.0.l2_pairs).scaled(match self.0.coding {
            Coding::ZeroOne => 1.0,
            Coding::PlusMinus => 0.25,
        });
        (penalty.l2 < PROHIBITIVE).then_some(penalty)
    }

    /// The elastic net whose quadratic part is `l2`.
    fn penalty(&self, l2: f64) -> Penalty {
        let l1 = l2 * self.0.epsilon;
        Penalty { l1, l2 }
    }
}

impl Penalty {
    /// The same penalty, of θ = factor · φ, expressed as a penalty of φ. Both parts are capped.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            l1: (self.l1 * factor).min(PROHIBITIVE),
            l2: (self.l2 * factor * factor).min(PROHIBITIVE),
        }
    }
}
