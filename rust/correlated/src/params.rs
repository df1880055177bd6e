//! Defines the parameters of the correlated logistic model, their ranges and the resulting
//! penalties.
//!
//! [`Params`] holds the values chosen by the caller. [`Params::check`] checks them and returns a
//! [`Checked`]. Only a [`Checked`] can be fitted. The fit codes labels as 0 and 1. The parameters
//! of this coding are weights b and couplings c, one coupling per pair of labels. If the caller's
//! penalties are meant for labels coded as −1 and 1, this module converts them to penalties of b
//! and c.
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

/// The coding of labels, either 0 and 1 or −1 and 1. The penalties apply to the weights and
/// couplings of this coding. The likelihood is the same for both codings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Weights b and couplings c of labels coded as 0 and 1. This is the better choice for rare
    /// labels, because a coupling has an effect only if both labels are present.
    ZeroOne,
    /// Weights w = b/2 and couplings a = c/4 of labels coded as −1 and 1, as in Li et al. (2016;
    /// see the [crate]).
    PlusMinus,
}

/// The method for minimizing the objective.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// Minimizes the objective to the optimum. Starts with quasi-Newton steps if they are expected
    /// to save time. Continues with [`Fista`](Self::Fista).
    Auto,
    /// Minimizes the objective to the optimum by accelerated proximal gradients.
    Fista,
    /// Runs the procedure published by the authors of the method. It uses a fixed step and stops
    /// early, which acts as regularization. Use it only to reproduce their results.
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
    /// λ₂, the penalty of the couplings, which are the parameters of pairs of labels; > 0. With
    /// infinity, no couplings are fitted.
    pub l2_pairs: f64,
    /// ε, the weight of the absolute values relative to the squares in both penalties; finite and ≥
    /// 0. With 0, weights and couplings are not sparse.
    pub epsilon: f64,
    /// The coding of labels. The penalties apply to the weights and couplings of this coding.
    pub coding: Coding,
    /// The method for minimizing the objective.
    pub solver: Solver,
    /// Whether the penalties apply to the weights of features scaled to unit variance. The returned
    /// weights always apply to the caller's features without scaling.
    pub standardize: bool,
    /// Largest accepted KKT violation; finite and > 0. The violation is the largest entry, in
    /// absolute value, of the smallest subgradient, for features of unit variance. The reference
    /// solver ignores this parameter.
    pub tol: f64,
    /// Largest number of computed gradients; ≥ 1. The reference solver computes at most 500
    /// gradients, even if this number is larger.
    pub max_iter: usize,
}

/// The default parameters: the penalties of the authors' code, labels coded as 0 and 1, an elastic
/// net, and standardized features.
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
    /// Checks the range of every parameter. Also checks that the coding is allowed for the solver.
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

/// The limit of a penalty. A penalty of this size sets all parameters to zero. The square of this number
/// is still finite in `f32`.
const PROHIBITIVE: f64 = 1e15;

impl Checked {
    /// Returns the penalty of a weight b. If labels are coded as −1 and 1, the user's penalty
    /// applies to `w = b/2`.
    pub(crate) fn features(&self) -> Penalty {
        self.penalty(self.0.l2_features)
            .scaled(match self.0.coding {
                Coding::ZeroOne => 1.0,
                Coding::PlusMinus => 0.5,
            })
    }

    /// Returns the penalty of a coupling c, or `None` if the penalty is so large that all couplings
    /// are zero. If labels are coded as −1 and 1, the user's penalty applies to `a = c/4`.
    pub(crate) fn pairs(&self) -> Option<Penalty> {
        let penalty = self.penalty(self.0.l2_pairs).scaled(match self.0.coding {
            Coding::ZeroOne => 1.0,
            Coding::PlusMinus => 0.25,
        });
        (penalty.l2 < PROHIBITIVE).then_some(penalty)
    }

    /// Returns the elastic net with the factor `l2` of the square.
    fn penalty(&self, l2: f64) -> Penalty {
        let l1 = l2 * self.0.epsilon;
        Penalty { l1, l2 }
    }
}

impl Penalty {
    /// Converts a penalty of θ = factor · φ to the equivalent penalty of φ. The factors of the
    /// square and of the absolute value are limited to [`PROHIBITIVE`].
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            l1: (self.l1 * factor).min(PROHIBITIVE),
            l2: (self.l2 * factor * factor).min(PROHIBITIVE),
        }
    }
}
