//! Defines the parameters of the smooth link and their ranges.
//!
//! [`Params`] holds the values chosen by the caller. [`Params::check`] turns them into a
//! [`Checked`]. Only a [`Checked`] can be fitted. Symbols are those of Karampatziakis and Mineiro
//! (see the [crate](crate)), where they define them.
//!
//! ```
//! use manylabel_link::{Loss, Params, Solver};
//!
//! let params = Params { loss: Loss::Softmax, solver: Solver::NewtonCg, ..Params::default() };
//! let error = params.check().unwrap_err();
//! assert!(error.to_string().contains("`solver`"));
//! ```

use manylabel_base::range::{at_least_one, ensure, not_negative, positive, share};
use manylabel_base::{Error, checked};

/// The kernel that random features approximate. In the formulas, δ is the difference of two rows of
/// predictions, and q is the median of `‖δ‖²`. γ is the factor [`Params::gamma`].
///
/// Karampatziakis and Mineiro (see the [crate](crate)) recommend Gaussian for few predictions,
/// Cauchy for many, and Matérn in between. The quasi-random kernels draw frequencies by Latin
/// hypercube sampling, which lowers the variance of the approximation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// `exp(−γ² ‖δ‖² / q)`.
    Gaussian,
    /// Matérn with smoothness 3/2. Frequencies have a Student t distribution with 3 degrees of
    /// freedom.
    Matern3,
    /// Matérn with smoothness 5/2. Frequencies have a Student t distribution with 5 degrees of
    /// freedom.
    Matern5,
    /// `Π_t exp(−γ √(2/q) |δ_t|)`, a product of Laplacian kernels. Frequencies have a Cauchy
    /// distribution.
    Cauchy,
    /// No random features. The predictions themselves are the features.
    Linear,
    /// [`Gaussian`](Self::Gaussian), drawn by Latin hypercube sampling.
    QuasiGaussian,
    /// [`Matern3`](Self::Matern3), with the Gaussian factor drawn by Latin hypercube sampling.
    QuasiMatern3,
    /// [`Matern5`](Self::Matern5), with the Gaussian factor drawn by Latin hypercube sampling.
    QuasiMatern5,
}

/// The loss that output weights minimize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// `‖ΦV − Y‖²`, solved in closed form. Scores estimate 0/1 targets.
    Squared,
    /// `Σ_labels [log(1 + e^ŝ) − y ŝ]`, one logistic regression per label. Scores are logits.
    Logistic,
    /// Cross entropy of `softmax(ŝ)`, for exactly one label per row.
    Softmax,
}

/// The method for minimizing a loss without a closed-form solution.
///
/// Both methods start from the least-squares solution. Preconditioned stochastic gradients (psgd)
/// stop after a few passes, and their result is regularized by this early stopping and by label
/// smoothing. Newton's method converges to the optimum, and its result is regularized by the ridge
/// and by label smoothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// Preconditioned stochastic gradients with momentum, for a few passes over the rows. The
    /// result depends on the number of passes, the step size and the order of the rows.
    Psgd,
    /// Newton's method with conjugate gradients, to the optimum of loss plus ridge. For the
    /// logistic loss only. The optimum does not depend on step sizes or the order of the rows, but
    /// each thread needs about 320 bytes per row.
    NewtonCg,
}

/// Parameters as given by the caller. [`check`](Self::check) verifies them and returns a
/// [`Checked`].
#[derive(Debug, Clone)]
pub struct Params {
    /// The kernel of the random features.
    pub kernel: Kernel,
    /// Number of random features s; ≥ 1. Ignored by the linear kernel.
    pub n_features: usize,
    /// Factor γ on the frequencies (see [`Kernel`]); finite and > 0. `None` chooses among 1/4, 1/2
    /// and 1 by the leave-one-out error of least squares; see `gamma.rs`.
    pub gamma: Option<f64>,
    /// The loss that output weights minimize.
    pub loss: Loss,
    /// The method for minimizing the loss. Ignored for the squared loss.
    pub solver: Solver,
    /// Ridge relative to the mean diagonal of the Gram matrix; finite and ≥ 0. Errors call it
    /// `l2_link`, the name of the parameter in Python.
    pub l2: f64,
    /// Number of passes of psgd over the rows; ≥ 1.
    pub n_passes: usize,
    /// Step size η of psgd; finite and > 0. Because of the preconditioner, 1 is a safe value.
    pub step_size: f64,
    /// Momentum α of psgd; in [0, 1).
    pub momentum: f64,
    /// Factor δ by which psgd multiplies the step size and the accumulated momentum after each
    /// pass; in (0, 1].
    pub decay: f64,
    /// Label smoothing: the target of a present label; in (½, 1]. `None` means 1 − 1/n for n
    /// training rows, but at least ¾.
    pub shrink: Option<f64>,
    /// Whether to increase the starting weights of rare classes. Allowed only for the linear kernel
    /// with the softmax.
    pub preflate: bool,
    /// Number of consecutive passes without a better held-out loss after which psgd stops; ≥ 1.
    /// Ignored if there are no held-out rows.
    pub n_iter_no_change: usize,
    /// Largest number of Newton steps per label; ≥ 1.
    pub max_iter: usize,
    /// Newton's method stops when the norm of a label's gradient is at most `tol` times its norm at
    /// zero weights; finite and > 0.
    pub tol: f64,
    /// Largest number of bytes that the fit may use; `None` for no limit. If the estimated memory
    /// of a fit is larger, the fit returns an error.
    pub max_memory: Option<u64>,
    /// Seed of frequencies, phases, the order of rows and all samples of rows.
    pub seed: u64,
    /// Whether to learn the threshold above which labels are predicted. Otherwise it is 0.
    pub learn_threshold: bool,
}

/// The defaults: 2000 Gaussian features, the logistic loss, and eight passes of psgd.
impl Default for Params {
    fn default() -> Self {
        Self {
            kernel: Kernel::Gaussian,
            n_features: 2000,
            gamma: Some(1.0),
            loss: Loss::Logistic,
            solver: Solver::Psgd,
            l2: 1e-2,
            n_passes: 8,
            step_size: 1.0,
            momentum: 0.5,
            decay: 0.95,
            shrink: None,
            preflate: false,
            n_iter_no_change: 2,
            max_iter: 100,
            tol: 1e-3,
            max_memory: None,
            seed: 0,
            learn_threshold: false,
        }
    }
}

impl Params {
    /// Returns whether output weights are fitted in passes over batches of rows.
    pub(crate) fn is_stochastic(&self) -> bool {
        self.solver == Solver::Psgd && self.loss != Loss::Squared
    }
}

checked!(Params);

impl Params {
    /// Checks every parameter and the combinations of parameters.
    fn ranges(&self) -> Result<(), Error> {
        for (name, count) in [
            ("n_features", self.n_features),
            ("n_passes", self.n_passes),
            ("n_iter_no_change", self.n_iter_no_change),
            ("max_iter", self.max_iter),
        ] {
            at_least_one(name, count)?;
        }
        positive("gamma", self.gamma.unwrap_or(1.0))?;
        positive("step_size", self.step_size)?;
        positive("tol", self.tol)?;
        not_negative("l2_link", self.l2)?;
        let momentum = self.momentum;
        let holds = (0.0..1.0).contains(&momentum);
        ensure("momentum", holds, "a number >= 0 and < 1", momentum)?;
        share("decay", self.decay)?;
        if let Some(shrink) = self.shrink {
            let holds = shrink > 0.5 && shrink <= 1.0;
            ensure("shrink", holds, "a number > 0.5 and <= 1", shrink)?;
        }
        let softmax = self.loss == Loss::Softmax;
        ensure(
            "solver",
            self.solver == Solver::Psgd || !softmax,
            "\"psgd\" for the loss \"softmax\", because its labels depend on one another",
            "\"newton-cg\"",
        )?;
        ensure(
            "preflate",
            !self.preflate || (softmax && self.kernel == Kernel::Linear),
            "False unless the kernel is \"linear\" and the loss is \"softmax\"",
            "True",
        )?;
        Ok(())
    }
}
