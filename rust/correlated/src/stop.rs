//! Defines the stopping criteria of a solver, its progress reports and its outcome.
//!
//! Both solvers take a [`Stop`] and return an [`Outcome`]. `fit.rs` runs solvers several times and
//! counts gradients over all runs.

use crate::iterate::Iterate;
use manylabel_base::{Error, Watch};

/// The stopping criteria of a run of a solver.
pub(crate) struct Stop<'a, 'w> {
    /// The largest accepted KKT violation.
    pub(crate) tol: f64,
    /// The largest number of gradients; ≥ 1.
    pub(crate) max_iter: usize,
    /// The counter to which the solver reports finished labels.
    pub(crate) progress: &'a mut Progress<'w>,
}

/// The outcome of a run of a solver.
pub(crate) struct Outcome<T, const N: usize> {
    /// The last point.
    pub(crate) iterate: Iterate<T, N>,
    /// Whether the tolerance was reached before the limit on gradients.
    pub(crate) converged: bool,
    /// Number of gradients computed.
    pub(crate) n_iter: usize,
}

/// The number of labels reported as finished, over all runs of a fit.
///
/// A label may leave the tolerance again if more pairs enter or the tolerance becomes smaller. The
/// reported number never decreases.
pub(crate) struct Progress<'w> {
    /// The watch. It receives the reports and decides when to stop.
    watch: &'w Watch,
    /// The largest number of labels reported so far.
    reported: usize,
}

impl<'w> Progress<'w> {
    /// Starts at zero labels.
    pub(crate) fn new(watch: &'w Watch) -> Self {
        Self { watch, reported: 0 }
    }

    /// Reports the number of labels within the tolerance, if it is larger than every earlier
    /// number. `violations` has one violation per label, and at least one entry.
    ///
    /// The last label is never reported here. The caller reports it at the end of the fit.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] if the watch was stopped.
    pub(crate) fn report(
        &mut self,
        violations: impl ExactSizeIterator<Item = f64>,
        tol: f64,
    ) -> Result<(), Error> {
        let others = violations.len() - 1;
        let within = violations.filter(|&violation| violation <= tol).count();
        let within = within.min(others);
        self.watch.step(within.saturating_sub(self.reported))?;
        self.reported = self.reported.max(within);
        Ok(())
    }

    /// Returns the number of labels reported so far.
    pub(crate) fn reported(&self) -> usize {
        self.reported
    }
}
