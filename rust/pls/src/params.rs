//! Defines the parameters of the embedding and their ranges.
//!
//! [`Params`] holds the values chosen by the user. [`Params::check`] checks the ranges and returns a
//! [`Checked`]. The method `fit` belongs to [`Checked`], so a fit never sees a parameter out of range. The
//! defaults equal the defaults of the Python estimator. The documentation of the [crate] defines the
//! matrices X, Y, U, W and Ω.

use manylabel_base::range::{at_least_one, ensure, not_negative, positive};
use manylabel_base::{Error, checked};

/// The number of components k of the embedding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Components {
    /// A fixed number of components; ≥ 1. The fit returns fewer if the data have fewer independent
    /// directions.
    Count(usize),
    /// A fraction in (0, 1). The number of components is the smallest k for which the sum of the k largest
    /// eigenvalues of `YᵀΩY` exceeds this fraction of the sum of all eigenvalues. Y is not centred.
    /// [`Checked::n_components`](crate::Checked::n_components) converts the fraction to a count before the
    /// fit.
    Share(f64),
}

/// The formula for the label embedding U. It uses the last product `T = BQ` (see the [crate]) and the
/// eigenvectors V of `TᵀT`.
///
/// The two variants give orthonormal columns and take the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// `U = T V diag(μ)^{−1/2}`, where μ are the eigenvalues of `TᵀT`. The code of Mineiro and Karampatziakis
    /// uses this formula. It is as accurate as one more iteration of the range finder, at no extra cost.
    Power,
    /// `U = Q V`, as printed in the papers of Mineiro and Karampatziakis (see the [crate]).
    Ritz,
}

/// The kind of embedding. All kinds except [`Rembrandt`](Self::Rembrandt) are baselines for
/// comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Embedding {
    /// U holds the leading right singular vectors of the projection of Y on the columns of X.
    Rembrandt,
    /// U is a Gaussian matrix (compressed sensing). W is a regression as for
    /// [`Rembrandt`](Self::Rembrandt).
    Gaussian,
    /// W holds the leading right singular vectors of X. The labels are not used, and there is no U.
    Pca,
}

/// A ridge that the user fixes or that the fit chooses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ridge {
    /// The ridge with the smallest leave-one-out error among the ridges that are tried.
    Auto,
    /// A fixed ridge; finite and ≥ 0.
    Of(f64),
}

/// The method for solving ridge regressions.
///
/// The factorizations solve exactly, up to rounding. Conjugate gradients stop at `tol` or after
/// `max_iter` steps. Early stopping has a regularizing effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Solver {
    /// Chooses [`Cholesky`](Self::Cholesky) for up to 4000 features. With more features, chooses
    /// [`Dual`](Self::Dual) if X is dense and has up to 4000 rows, and otherwise [`Cg`](Self::Cg).
    Auto,
    /// Factorizes the Gram matrix of the features (d, d).
    Cholesky,
    /// Uses conjugate gradients, preconditioned by the diagonal. Each pass over X multiplies 32 right-hand
    /// sides.
    Cg,
    /// Factorizes the Gram matrix of the rows (n, n).
    Dual,
}

/// Parameters as given by the user. [`check`](Self::check) verifies their ranges and returns a [`Checked`].
#[derive(Debug, Clone)]
pub struct Params {
    /// Number of components k.
    pub n_components: Components,
    /// Number of columns that the random matrix has in addition to k columns. Mineiro and
    /// Karampatziakis call this number p.
    pub n_oversamples: usize,
    /// Number of iterations of the range finder (q in the papers of Mineiro and Karampatziakis).
    /// With 0, the random matrix is only orthogonalized.
    pub n_iter: usize,
    /// Ridge of the regressions for the label embedding U, relative to the mean diagonal of `XᵀΩX`.
    /// With [`Ridge::Auto`], the leave-one-out error of 32 random combinations of the labels
    /// determines this ridge.
    pub l2: Ridge,
    /// Ridge of the regression for the weights W, relative to the ridge of the regressions for U.
    /// With [`Ridge::Auto`], the leave-one-out error of the first 32 columns of `YU` determines
    /// this ridge. If `l2` is 0, the ridge for W is 0.
    pub l2_final: Ridge,
    /// The formula for the label embedding U.
    pub variant: Variant,
    /// The kind of embedding.
    pub embedding: Embedding,
    /// Whether to subtract the weighted column means from X and Y. Sparse matrices stay sparse.
    pub center: bool,
    /// Whether to add a column of ones to X. Ignored with `center` and with [`Embedding::Pca`].
    pub fit_intercept: bool,
    /// The method for solving regressions.
    pub solver: Solver,
    /// Maximum number of steps of conjugate gradients; ≥ 1.
    pub max_iter: usize,
    /// Tolerance of conjugate gradients; finite and > 0. A right-hand side is solved once the norm of its
    /// residual is at most `tol` times the norm of its first residual. `None` means 10⁻³ in double precision
    /// and 10⁻² in single precision.
    pub tol: Option<f64>,
    /// Seed of all random numbers. They are used for the random matrix, the Gaussian embedding, and
    /// the random signs from which leverages are estimated.
    pub seed: u64,
    /// If Y has unknown entries, the fit ends when their values are near their predictions: the root mean square
    /// of the estimated errors is at most this fraction of that of the predictions.
    pub tol_of_unknown: f64,
    /// If Y has unknown entries, the largest number of times that the fit computes U and W; ≥ 1.
    pub most_rounds: usize,
    /// Whether the model stores leave-one-out predictions: for each row, the prediction by a W that
    /// is fitted without this row.
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
            tol_of_unknown: 1e-2,
            most_rounds: 10,
            leave_one_out: false,
        }
    }
}

checked!(Params);

impl Params {
    /// Returns whether X gets a column of ones.
    pub(crate) fn has_ones(&self) -> bool {
        self.fit_intercept && !self.center && self.embedding != Embedding::Pca
    }

    /// Returns the number of unfinished right-hand sides that a model reports. It is 0 without `tol`.
    pub(crate) fn reported_unfinished(&self, n_unfinished: usize) -> usize {
        if self.tol.is_some() { n_unfinished } else { 0 }
    }

    /// Returns [`Error::Param`] for the first parameter that is out of range.
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
        positive("tol_of_unknown", self.tol_of_unknown)?;
        at_least_one("most_rounds", self.most_rounds)?;
        if let Some(tol) = self.tol {
            positive("tol", tol)?;
        }
        Ok(())
    }
}
