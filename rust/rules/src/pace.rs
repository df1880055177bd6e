//! When long loops over candidates check for a stop.
//!
//! A call of [`Watch::step`] takes about as long as judging a small candidate, so inner loops do
//! not call it for each one. They report the amount of work to a [`Pace`], which calls the watch
//! after every [`NUMBERS`] numbers. A user who interrupts a fit waits for some ten milliseconds per
//! thread.

use manylabel_base::{Error, Watch};

/// Numbers processed between two calls of the watch: some ten milliseconds of work.
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

    /// Reports that `numbers` more numbers are about to be processed; calls the watch if the
    /// interval is over.
    ///
    /// # Errors
    ///
    /// As [`Watch::step`].
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
