//! When to ask the watch within long loops over candidates.

use manylabel_base::{Error, Watch};

/// Numbers that are gone through between two looks at the watch: some ten milliseconds of work.
const NUMBERS: usize = 1 << 23;

/// Counts work and asks the watch every so much of it. One look takes as long as a small candidate, so
/// that it cannot be had at each.
#[derive(Debug)]
pub(crate) struct Pace<'a> {
    watch: &'a Watch,
    left: usize,
}

impl<'a> Pace<'a> {
    pub(crate) fn new(watch: &'a Watch) -> Self {
        let left = NUMBERS;
        Self { watch, left }
    }

    /// Says that so many numbers are gone through.
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
