//! Defines the parameters of the correlated logistic model, their ranges and the resulting
//! penalties.
//!
//! [`Params`] holds the values chosen by the caller. [`Params::check`] turns them into a
//! [`Checked`]. Only a [`Checked`] can be fitted. The fit always works with weights b and couplings
//! c of labels coded as 0 and 1. If the penalties apply to labels coded as −1 and 1, this module
//! converts them to penalties of b and c.
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

/// The parameters to which the penalties apply. The likelihood is the same for both codings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Weights b and couplings c of labels coded as 0 and 1. This is the better choice for rare
    /// labels, because a coupling has an effect only if both labels are present.
    ZeroOne,
    /// Weights w = b/2 and couplings a = c/4 of labels coded as −1 and 1, as in Li et al. (2016;
    /// see the [crate](crate)).
    PlusMinus,
}

/// The method for minimizing the objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// Minimizes to the optimum. Uses quasi-Newton steps if they are expected to be cheaper, and
    /// then [`Fista`](Self::Fista).
    Auto,
    /// Minimizes to the optimum with accelerated proximal gradients.
    Fista,
    /// Uses the procedure of the method's authors: a fixed step, and early stopping that acts as
    /// regularization. Only for reproducing their results.
    Reference,
}

/// Parameters as given by the caller. [`check`](Self::check) verifies them and returns a
/// [`Checked`].
///
/// Penalties apply to the loss averaged over rows. Their meaning therefore does not change with the
/// number of rows.
#[derive(Debug, Clone)]
pub struct Params {
    /// λ₁, the penalty of the weights; finite and > 0.
    pub l2_features: f64,
    /// λ₂, the penalty of the couplings; > 0. With infinity, no couplings are fitted.
    pub l2_pairs: f64,
    /// ε, the factor of the absolute values in both penalties; finite and ≥ 0. With 0, weights and
    /// couplings are not sparse.
    pub epsilon: f64,
    /// The parameters to which the penalties apply.
    pub coding: Coding,
    /// The method for minimizing the objective.
    pub solver: Solver,
    /// Whether penalties apply to the weights of features scaled to unit variance. The returned
    /// weights always apply to the caller's features, which are not scaled.
    pub standardize: bool,
    /// Largest accepted KKT violation: the largest entry of the smallest subgradient, for features
    /// of unit variance; finite and > 0. The reference solver ignores it.
    pub tol: f64,
    /// Largest number of gradients; ≥ 1. The reference solver computes at most 500 gradients in any
    /// case.
    pub max_iter: usize,
}

/// The defaults: the penalties of the authors' code, labels coded as 0 and 1, an elastic net, and
/// standardized features.
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
    /// Checks every parameter, and the combination of coding and solver.
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
            "\"01\" for the solver \"reference\"",
            "\"pm1\"",
        )?;
        Ok(())
    }
}

/// Larger penalties set all parameters to zero. The square of this number is still finite in `f32`.
const PROHIBITIVE: f64 = 1e15;

impl Checked {
    /// Returns the penalty of a weight b. In the −1/1 coding, the user's penalty applies to
    /// `w = b/2`.
    pub(crate) fn features(&self) -> Penalty {
        self.penalty(self.0.l2_features)
            .scaled(match self.0.coding {
                Coding::ZeroOne => 1.0,
                Coding::PlusMinus => 0.5,
            })
    }

    /// Returns the penalty of a coupling c, or `None` if it is so large that all couplings are
    /// zero. In the −1/1 coding, the user's penalty applies to `a = c/4`.
    pub(crate) fn pairs(&self) -> Option<Penalty> {
        let penalty = self.penalty(self.0.l2_pairs).scaled(match self.0.coding {
            Coding::ZeroOne => 1.0,
            Coding::PlusMinus => 0.25,
        });
        (penalty.l2 < PROHIBITIVE).then_some(penalty)
    }

    /// Returns the elastic net with the quadratic part `l2`.
    fn penalty(&self, l2: f64) -> Penalty {
        let l1 = l2 * self.0.epsilon;
        Penalty { l1, l2 }
    }
}

impl Penalty {
    /// Converts a penalty of θ = factor · φ to the equivalent penalty of φ. The absolute part and
    /// the quadratic part are limited to [`PROHIBITIVE`].
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            l1: (self.l1 * factor).min(PROHIBITIVE),
            l2: (self.l2 * factor * factor).min(PROHIBITIVE),
        }
    }
}
