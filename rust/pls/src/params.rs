//! Parameters of the embedding and their ranges.

use manylabel_base::range::{at_least_one, ensure, not_negative, positive};
use manylabel_base::{Error, checked};

/// How many components the embedding has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Components {
    /// So many, or as many as the data have directions if these are fewer; ≥ 1.
    Count(usize),
    /// The fewest whose largest eigenvalues of `YᵀΩY` (not centred) sum to more than this share of its
    /// trace; in (0, 1).
    Share(f64),
}

/// Which basis of the last range is the embedding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// `U = T V diag(μ)^{−1/2}`: one more subspace iteration, for nothing.
    Power,
    /// `U = Q V`, as printed in the papers.
    Ritz,
}

/// What the components are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Embedding {
    /// Leading right singular vectors of the projection of Y on the columns of X.
    Rembrandt,
    /// A Gaussian matrix for U: compressed sensing, for comparison.
    Gaussian,
    /// Leading right singular vectors of X for W, blind to the labels, for comparison.
    Pca,
}

/// A ridge, or how it comes about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ridge {
    /// The one of least leave-one-out error.
    Auto,
    /// So much; finite, ≥ 0.
    Of(f64),
}

/// How ridge regressions are solved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// `Cholesky` up to 4000 features, `Dual` for up to 4000 rows of more dense features, else `Cg`.
    Auto,
    /// A factorization of the Gram matrix of the features.
    Cholesky,
    /// Conjugate gradients with the diagonal as preconditioner, all right-hand sides side by side.
    Cg,
    /// A factorization of the Gram matrix of the rows.
    Dual,
}

/// Parameters as the user gave them; [`check`](Self::check) makes them usable.
#[derive(Debug, Clone)]
pub struct Params {
    /// Size of the embedding, k.
    pub n_components: Components,
    /// Columns of the probe beyond k, p.
    pub n_oversamples: usize,
    /// Passes of the range finder, q.
    pub n_iter: usize,
    /// Ridge of the range finder's regressions relative to the mean diagonal of `XᵀΩX`; that of random
    /// combinations of the labels if `Auto`.
    pub l2: Ridge,
    /// Ridge of the last regression relative to that of the others.
    pub l2_final: Ridge,
    /// Basis of the last range.
    pub variant: Variant,
    /// What the components are.
    pub embedding: Embedding,
    /// Whether X and Y are centred, without making them dense.
    pub center: bool,
    /// Whether X gets a column of ones; has no effect beside `center`.
    pub fit_intercept: bool,
    /// How regressions are solved.
    pub solver: Solver,
    /// Steps of conjugate gradients at most; ≥ 1.
    pub max_iter: usize,
    /// Norm of the residual relative to the first, at which a right-hand side is done; finite, > 0.
    /// None stands for 10⁻³ in double and 10⁻² in single precision.
    pub tol: Option<f64>,
    /// Seeds the probe.
    pub seed: u64,
    /// Whether the model has, for each row, the prediction of a fit without it.
    pub leave_one_out: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            n_components: Components::Count(100),
            n_oversamples: 20,
            n_iter: 1,
            l2: Ridge::Of(1.0),
            l2_final: Ridge::Auto,
            variant: Variant::Power,
            embedding: Embedding::Rembrandt,
            center: false,
            fit_intercept: true,
            solver: Solver::Auto,
            max_iter: 10,
            tol: None,
            seed: 0,
            leave_one_out: false,
        }
    }
}

checked!(Params);

impl Params {
    fn ranges(&self) -> Result<(), Error> {
        match self.n_components {
            Components::Count(k) => at_least_one("n_components", k)?,
            Components::Share(share) => ensure(
                "n_components",
                share > 0.0 && share < 1.0,
                "an integer >= 1 or a number > 0 and < 1",
                share,
            )?,
        }
        for (name, l2) in [("l2", self.l2), ("l2_final", self.l2_final)] {
            if let Ridge::Of(l2) = l2 {
                not_negative(name, l2)?;
            }
        }
        at_least_one("max_iter", self.max_iter)?;
        if let Some(tol) = self.tol {
            positive("tol", tol)?;
        }
        Ok(())
    }
}
