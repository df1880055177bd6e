//! Defines the parameters of the smooth link and their ranges. The smooth link computes the scores
//! of labels from a few linear predictions of each row.
//!
//! [`Params`] holds the values chosen by the caller. [`Params::check`] checks them and returns a
//! [`Checked`]. Only a [`Checked`] can be fitted. Where Karampatziakis and Mineiro define a symbol,
//! the same symbol is used here (see the [crate]).
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

/// The kernel that random features approximate. In the formulas, δ is the difference of the linear
/// predictions of two rows, and q is the median of `‖δ‖²`. γ is the factor [`Params::gamma`].
///
/// If there are few linear predictions per row, Karampatziakis and Mineiro (see the [crate])
/// recommend the Gaussian kernel. For many predictions they recommend the Cauchy kernel, and in
/// between a Matérn kernel. The quasi-random kernels draw frequencies by Latin hypercube sampling,
/// which lowers the variance of the approximation.
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
    /// The [`Gaussian`](Self::Gaussian) kernel with frequencies drawn by Latin hypercube sampling.
    QuasiGaussian,
    /// The [`Matern3`](Self::Matern3) kernel. The Gaussian factor of its frequencies is drawn by
    /// Latin hypercube sampling.
    QuasiMatern3,
    /// The [`Matern5`](Self::Matern5) kernel. The Gaussian factor of its frequencies is drawn by
    /// Latin hypercube sampling.
    QuasiMatern5,
}

/// The loss that is minimized to compute the output weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// The squared error `‖ΦV − Y‖²`, minimized in closed form. Scores estimate the 0/1 targets.
    Squared,
    /// The logistic loss `Σ_labels [log(1 + e^ŝ) − y ŝ]`: one logistic regression per label. Scores
    /// ŝ are logits.
    Logistic,
    /// The cross entropy of `softmax(ŝ)`, where ŝ are the scores of a row. Every row must have
    /// exactly one label.
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
    /// Preconditioned stochastic gradients with momentum (psgd), for a few passes over the rows.
    /// The result depends on the number of passes, the step size and the order of the rows.
    Psgd,
    /// Newton's method with conjugate gradients. It minimizes loss plus ridge, and is allowed only
    /// for the logistic loss. The result does not depend on step sizes or the order of the rows,
    /// but each thread needs about 320 bytes per row.
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
    /// Factor γ of the frequencies (see [`Kernel`]); finite and > 0. With `None`, the fit chooses
    /// 1/4, 1/2 or 1 by the leave-one-out error of least squares; see `gamma.rs`. Ignored by the
    /// linear kernel.
    pub gamma: Option<f64>,
    /// The loss that is minimized to compute the output weights.
    pub loss: Loss,
    /// The method for minimizing the loss. Ignored for the squared loss.
    pub solver: Solver,
    /// Ridge, relative to the mean of the diagonal of the Gram matrix; finite and ≥ 0. Error
    /// messages call it `l2_link`, which is its name in Python.
    pub l2: f64,
    /// Number of passes of preconditioned stochastic gradients (psgd) over the rows; ≥ 1.
    pub n_passes: usize,
    /// Step size η of preconditioned stochastic gradients (psgd); finite and > 0. Because of the
    /// preconditioner, 1 is a safe value.
    pub step_size: f64,
    /// Momentum α of preconditioned stochastic gradients (psgd); in [0, 1).
    pub momentum: f64,
    /// Factor δ by which the step size and the accumulated momentum are multiplied after each pass
    /// of preconditioned stochastic gradients (psgd); in (0, 1].
    pub decay: f64,
    /// Label smoothing: the target of a label that a row has; in (½, 1]. With `None`, it is 1 − 1/n
    /// for n training rows, but at least ¾.
    pub shrink: Option<f64>,
    /// Whether to increase the starting weights of rare labels. Allowed only if the kernel is
    /// linear and the loss is the softmax.
    pub preflate: bool,
    /// Preconditioned stochastic gradients (psgd) stop when the held-out loss has not improved in
    /// this many consecutive passes; ≥ 1. Ignored if no rows are held out.
    pub n_iter_no_change: usize,
    /// Largest number of Newton steps per label; ≥ 1.
    pub max_iter: usize,
    /// Tolerance of Newton's method; finite and > 0. The method stops when the norm of a label's
    /// gradient is at most `tol` times the norm at zero weights.
    pub tol: f64,
    /// Largest number of bytes that the fit may use; `None` for no limit. The fit returns an error
    /// if its estimated memory, without stored features, is larger.
    pub max_memory: Option<u64>,
    /// Seed of frequencies, phases, the order of rows and all samples of rows.
    pub seed: u64,
    /// Whether to learn the threshold above which labels are predicted. If not, the threshold is 0.
    pub learn_threshold: bool,
}

/// The default parameters: 2000 features of the Gaussian kernel, the logistic loss, and eight
/// passes of preconditioned stochastic gradients.
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
    /// Returns whether output weights are fitted by stochastic gradients, in passes over batches of
    /// rows.
    pub(crate) fn is_stochastic(&self) -> bool {
        self.solver == Solver::Psgd && self.loss != Loss::Squared
    }
}

checked!(Params);

impl Params {
    /// Checks the range of every parameter and the allowed combinations of parameters.
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
            "\"psgd\" for the loss \"softmax\", which \"newton-cg\" does not support",
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
