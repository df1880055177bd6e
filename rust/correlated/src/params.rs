//! Parameters of the correlated logistic model and their ranges.

use manylabel_base::range::{at_least_one, ensure, not_negative, positive};
use manylabel_base::{Error, checked};

/// What the penalties apply to; the likelihood is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Labels 0 and 1: weights b and couplings c.
    ZeroOne,
    /// Labels −1 and 1: weights w = b/2 and couplings a = c/4.
    PlusMinus,
}

/// How the objective is minimized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// To the optimum, by quasi-Newton steps where they are cheaper, else as `Fista`.
    Auto,
    /// Accelerated proximal gradients to the optimum.
    Fista,
    /// The run of the method's authors: a fixed step, and an early stop that regularizes.
    Reference,
}

/// Parameters as the user gave them; [`check`](Self::check) makes them usable.
#[derive(Debug, Clone)]
pub struct Params {
    /// λ₁, the penalty of weights; finite and > 0.
    pub l2_features: f64,
    /// λ₂, the penalty of couplings; > 0, infinite for none of them.
    pub l2_pairs: f64,
    /// ε, the share of absolute values in both penalties; finite and ≥ 0.
    pub epsilon: f64,
    /// What the penalties apply to.
    pub coding: Coding,
    /// How the objective is minimized.
    pub solver: Solver,
    /// Whether penalties are those of features of unit variance.
    pub standardize: bool,
    /// Largest violation of the optimality conditions; finite and > 0.
    pub tol: f64,
    /// Gradients at most; ≥ 1.
    pub max_iter: usize,
}

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

/// An elastic net `l2 θ² + l1 |θ|`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Penalty {
    pub(crate) l1: f64,
    pub(crate) l2: f64,
}

impl Params {
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
            "\"01\" with the solver \"reference\", as the authors have it",
            "\"pm1\"",
        )?;
        Ok(())
    }
}

/// A penalty beyond which nothing but zero is left; squares of it still fit `f32`.
const PROHIBITIVE: f64 = 1e15;

impl Checked {
    /// The penalty of weights b, in either coding: `w = b/2`.
    pub(crate) fn features(&self) -> Penalty {
        self.penalty(self.0.l2_features)
            .scaled(match self.0.coding {
                Coding::ZeroOne => 1.0,
                Coding::PlusMinus => 0.5,
            })
    }

    /// The penalty of couplings c, in either coding: `a = c/4`; none if they are to be zero.
    pub(crate) fn pairs(&self) -> Option<Penalty> {
        let penalty = self.penalty(self.0.l2_pairs).scaled(match self.0.coding {
            Coding::ZeroOne => 1.0,
            Coding::PlusMinus => 0.25,
        });
        (penalty.l2 < PROHIBITIVE).then_some(penalty)
    }

    fn penalty(&self, l2: f64) -> Penalty {
        let l1 = l2 * self.0.epsilon;
        Penalty { l1, l2 }
    }
}

impl Penalty {
    /// The penalty of θ = factor · φ as one of φ.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            l1: (self.l1 * factor).min(PROHIBITIVE),
            l2: (self.l2 * factor * factor).min(PROHIBITIVE),
        }
    }
}
