//! Parameters of the smooth link and their ranges.

use manylabel_base::range::{at_least_one, ensure, not_negative, positive, share};
use manylabel_base::{Error, checked};

/// The kernel that random features stand for; δ is the difference of two rows of predictions, q the
/// median of their squared lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// `exp(−γ² ‖δ‖² / q)`.
    Gaussian,
    /// Matérn of smoothness 3/2: frequencies of a Student t with 3 degrees of freedom.
    Matern3,
    /// Matérn of smoothness 5/2: frequencies of a Student t with 5 degrees of freedom.
    Matern5,
    /// `Π_t exp(−γ √(2/q) |δ_t|)`.
    Cauchy,
    /// No random features: the predictions themselves.
    Linear,
    /// As [`Gaussian`](Self::Gaussian), drawn by Latin hypercube.
    QuasiGaussian,
    /// As [`Matern3`](Self::Matern3), the Gaussian factor drawn by Latin hypercube.
    QuasiMatern3,
    /// As [`Matern5`](Self::Matern5), the Gaussian factor drawn by Latin hypercube.
    QuasiMatern5,
}

/// What the output weights minimize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// `‖ΦV − Y‖²`, in closed form.
    Squared,
    /// `Σ_labels log(1 + e^{∓ŝ})`.
    Logistic,
    /// Cross entropy of `softmax(ŝ)`: one label a row.
    Softmax,
}

/// How a loss without closed form is minimized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// Preconditioned stochastic gradients with momentum, from the least-squares solution.
    Psgd,
    /// Newton's method with conjugate gradients, to the optimum of loss + ridge.
    NewtonCg,
}

/// Parameters as the user gave them; [`check`](Self::check) makes them usable.
#[derive(Debug, Clone)]
pub struct Params {
    /// The kernel of the random features.
    pub kernel: Kernel,
    /// Random features s; ≥ 1.
    pub n_features: usize,
    /// Multiple of the frequencies that the median heuristic gives; finite and > 0. None for the one
    /// of 1/4, 1/2 and 1 that has the least leave-one-out error of least squares.
    pub gamma: Option<f64>,
    /// What the output weights minimize.
    pub loss: Loss,
    /// How.
    pub solver: Solver,
    /// Ridge relative to the mean diagonal of the Gram matrix; finite and ≥ 0.
    pub l2: f64,
    /// Passes over the rows (psgd); ≥ 1.
    pub n_passes: usize,
    /// Step η (psgd); finite and > 0.
    pub step_size: f64,
    /// Momentum α (psgd); in [0, 1).
    pub momentum: f64,
    /// What step and momentum are multiplied by after each pass, δ (psgd); in (0, 1].
    pub decay: f64,
    /// Label smoothing: the target of a label that is present; in (½, 1]. None for 1 − 1/n, at
    /// least ¾.
    pub shrink: Option<f64>,
    /// Whether the start of rare classes is enlarged (linear kernel, softmax).
    pub preflate: bool,
    /// Passes without a better held-out loss after which psgd stops; ≥ 1.
    pub n_iter_no_change: usize,
    /// Newton steps; ≥ 1.
    pub max_iter: usize,
    /// Length of the gradient, relative to that at zero weights, at which Newton's method stops;
    /// finite and > 0.
    pub tol: f64,
    /// Most bytes of the fit, or no limit.
    pub max_memory: Option<u64>,
    /// Seeds frequencies, phases and the order of rows.
    pub seed: u64,
    /// Whether the score above which labels are named is learned; else it is 0.
    pub learn_threshold: bool,
}

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
    /// Whether weights come from passes over batches of rows.
    pub(crate) fn is_stochastic(&self) -> bool {
        self.solver == Solver::Psgd && self.loss != Loss::Squared
    }
}

checked!(Params);

impl Params {
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
            "\"psgd\" for the loss \"softmax\", whose labels depend on one another",
            "\"newton-cg\"",
        )?;
        ensure(
            "preflate",
            !self.preflate || (softmax && self.kernel == Kernel::Linear),
            "False but for the linear kernel with the loss \"softmax\"",
            "True",
        )?;
        Ok(())
    }
}
