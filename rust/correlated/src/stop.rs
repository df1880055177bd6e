//! When a descent ends, what it reports on the way, and where it ended.

use crate::iterate::Iterate;
use manylabel_base::{Error, Watch};

/// When a descent ends.
pub(crate) struct Stop<'a, 'w> {
    /// The largest violation of optimality that is accepted.
    pub(crate) tol: f64,
    /// Gradients at most; ≥ 1.
    pub(crate) max_iter: usize,
    pub(crate) progress: &'a mut Progress<'w>,
}

/// Where a descent ended.
pub(crate) struct Outcome<T, const N: usize> {
    pub(crate) iterate: Iterate<T, N>,
    /// Whether the aim was reached before gradients ran out.
    pub(crate) converged: bool,
    /// Gradients taken.
    pub(crate) n_iter: usize,
}

/// The labels that were reported as done, over all descents of a fit.
pub(crate) struct Progress<'w> {
    watch: &'w Watch,
    reported: usize,
}

impl<'w> Progress<'w> {
    pub(crate) fn new(watch: &'w Watch) -> Self {
        Self { watch, reported: 0 }
    }

    /// Reports how many labels are within tolerance, where they are more than ever, given the violation
    /// of each. The caller of the fit reports the last one.
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

    /// Labels reported.
    pub(crate) fn reported(&self) -> usize {
        self.reported
    }
}
