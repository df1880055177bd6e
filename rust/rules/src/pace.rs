//! Determines how often long loops check whether the caller has requested a stop.
//!
//! A call of [`Watch::step`] takes about as long as evaluating a small candidate. Inner loops therefore do
//! not call `step` for each candidate. They report to a [`Pace`] how many numbers they process. The [`Pace`]
//! calls `step` after every [`NUMBERS`] processed numbers. After an interrupt, a fit stops within about ten
//! milliseconds per thread.

use manylabel_base::{Error, Watch};

/// Numbers that are processed between two calls of [`Watch::step`]. Their processing takes about ten
/// milliseconds.
const NUMBERS: usize = 1 << 23;

/// Counts processed numbers and calls [`Watch::step`] at intervals.
#[derive(Debug)]
pub(crate) struct Pace<'a> {
    /// The watch whose `step` is called.
    watch: &'a Watch,
    /// Numbers that are left until the next call of `step`.
    left: usize,
}

impl<'a> Pace<'a> {
    /// Starts the first interval.
    pub(crate) fn new(watch: &'a Watch) -> Self {
        let left = NUMBERS;
        Self { watch, left }
    }

    /// Reports that `numbers` more numbers are about to be processed. Calls [`Watch::step`] if the interval
    /// has ended.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`].
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
