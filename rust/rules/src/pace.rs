//! Decides when long loops over candidates check whether to stop.
//!
//! A call of [`Watch::step`] takes about as long as evaluating a small candidate. Inner loops
//! therefore do not call it for each candidate. They report to a [`Pace`] how many numbers they
//! process. The [`Pace`] calls the watch after every [`NUMBERS`] processed numbers. After an
//! interrupt, a fit stops within about ten milliseconds per thread.

use manylabel_base::{Error, Watch};

/// Numbers processed between two calls of the watch. This is about ten milliseconds of work.
const NUMBERS: usize = 1 << 23;

/// Counts work and calls the watch at intervals.
#[derive(Debug)]
pub(crate) struct Pace<'a> {
    /// The watch to call.
    watch: &'a Watch,
    /// Numbers until the next call.
    left: usize,
}

impl<'a> Pace<'a> {
    /// Starts a full interval.
    pub(crate) fn new(watch: &'a Watch) -> Self {
        let left = NUMBERS;
        Self { watch, left }
    }

    /// Reports that `numbers` more numbers are about to be processed. Calls the watch if the
    /// interval is over.
    ///
    /// # Errors
    ///
    /// The same as [`Watch::step`].
    #[inline(always)]
    pub(crate) fn spend(&mut self, numbers: usize) -> Result<(), Error> {
        if let Some(left) = self.left.checked_sub(numbers) {
            self.left = left;
            return Ok(());
        }
        self.left = NUMBERS;
        self.watch.step(0)
    }
}
