//! When a solver ends, what it reports on the way, and where it ended.
//!
//! Both solvers take a [`Stop`] and return an [`Outcome`]; `fit.rs` strings several runs together
//! and counts gradients over all of them.

use crate::iterate::Iterate;
use manylabel_base::{Error, Watch};

/// When a run of a solver ends.
pub(crate) struct Stop<'a, 'w> {
    /// The largest accepted KKT violation.
    pub(crate) tol: f64,
    /// The largest number of gradients; ≥ 1.
    pub(crate) max_iter: usize,
    /// Where the solver reports labels that are done.
    pub(crate) progress: &'a mut Progress<'w>,
}

/// Where a run of a solver ended.
pub(crate) struct Outcome<T, const N: usize> {
    /// The last point.
    pub(crate) iterate: Iterate<T, N>,
    /// Whether the tolerance was reached before gradients ran out.
    pub(crate) converged: bool,
    /// Number of gradients taken.
    pub(crate) n_iter: usize,
}

/// The number of labels reported as done, over all runs of a fit.
///
/// A label may leave the tolerance again, when more pairs enter or the tolerance gets smaller. The
/// number reported never falls.
pub(crate) struct Progress<'w> {
    /// Receives the reports, and says when to stop.
    watch: &'w Watch,
    /// The largest number of labels reported so far.
    reported: usize,
}

impl<'w> Progress<'w> {
    /// Starts at zero labels.
    pub(crate) fn new(watch: &'w Watch) -> Self {
        Self { watch, reported: 0 }
    }

    /// Reports how many labels are within the tolerance, if that is more than ever before, given
    /// the violation of each label (at least one).
    ///
    /// The last label is never reported here. The caller of the fit reports it when all is done.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] if the caller asked to stop.
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

    /// The number of labels reported so far.
    pub(crate) fn reported(&self) -> usize {
        self.reported
    }
}
