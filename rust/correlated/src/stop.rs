//! Defines the stopping criteria of a solver, its progress reports and its result.
//!
//! Both solvers take a [`Stop`] and return an [`Outcome`]. `descent.rs` runs solvers several times and
//! counts the gradients of all runs.

use crate::iterate::Iterate;
use crate::stored::stored;
use manylabel_base::{Error, Watch};

/// The stopping criteria of one run of a solver.
#[derive(Clone, Copy)]
pub(crate) struct Stop {
    /// The largest accepted KKT violation.
    pub(crate) tol: f64,
    /// The largest number of gradients; ≥ 1.
    pub(crate) max_iter: usize,
}

stored!([] Stop { tol, max_iter });

/// The result of one run of a solver.
pub(crate) struct Outcome<T, const N: usize> {
    /// The last point: all weights, intercepts and couplings.
    pub(crate) iterate: Iterate<T, N>,
    /// Whether the tolerance was reached before the limit on gradients.
    pub(crate) converged: bool,
    /// Number of gradients computed.
    pub(crate) n_iter: usize,
}

/// Counts the labels that are finished, over all solver runs of a fit.
///
/// A label is finished when its KKT violation is within the tolerance. It may leave the tolerance
/// again when pairs of labels are added or the tolerance becomes smaller. The reported number never
/// decreases.
#[derive(Clone, Copy, Default)]
pub(crate) struct Progress {
    /// The largest number of labels reported so far.
    pub(crate) reported: usize,
}

stored!([] Progress { reported });

impl Progress {
    /// Reports the number of labels whose violation is within the tolerance, if this number is
    /// larger than all numbers reported before. `violations` has one violation per label, and at
    /// least one entry.
    ///
    /// The number of all labels is never reported here. The caller reports it at the end of the
    /// fit.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Stopped`] if the caller requested a stop.
    pub(crate) fn report(
        &mut self,
        violations: impl ExactSizeIterator<Item = f64>,
        tol: f64,
        watch: &Watch,
    ) -> Result<(), Error> {
        let others = violations.len() - 1;
        let within = violations.filter(|&violation| violation <= tol).count();
        let within = within.min(others);
        watch.step(within.saturating_sub(self.reported))?;
        self.reported = self.reported.max(within);
        Ok(())
    }
}
