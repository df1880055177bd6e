//! Defines [`Watch`], a progress counter with a stop flag. It is the only link between a running computation
//! and its caller.

use crate::{Error, alloc, budget};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Counts the progress of a computation and stores whether the caller has requested a stop.
///
/// A computation calls [`step`](Self::step) at least every few milliseconds, and some computations call it in
/// inner loops. The thread that waits for the result reads [`done`](Self::done) and may call
/// [`stop`](Self::stop). All accesses are relaxed atomic operations, so they do not order other memory accesses.
#[derive(Debug, Default)]
pub struct Watch {
    done: AtomicUsize,
    stop: Arc<AtomicBool>,
}

impl Watch {
    /// Returns a watch that has counted no work and has not been stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a new watch with the same stop flag and a counter of its own. Pass the new watch to work that
    /// should not count as progress.
    pub fn aside(&self) -> Self {
        Self {
            done: AtomicUsize::new(0),
            stop: Arc::clone(&self.stop),
        }
    }

    /// Adds `n` finished units of work. Returns an error if the computation should stop. A call of `step(0)`
    /// only checks whether the computation should stop.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Stopped`] if [`stop`](Self::stop) has been called. Returns [`Error::TooLarge`]
    /// if memory [ran low](crate::ran_low), or if more memory is in use than the [limit](crate::budget) allows.
    #[inline]
    pub fn step(&self, n: usize) -> Result<(), Error> {
        self.done.fetch_add(n, Relaxed);
        if self.stop.load(Relaxed) {
            Err(Error::Stopped)
        } else if alloc::is_low() {
            Err(alloc::exhausted("the computation"))
        } else {
            budget::granted("the computation", 0)
        }
    }

    /// Returns the number of finished units of work.
    pub fn done(&self) -> usize {
        self.done.load(Relaxed)
    }

    /// Makes every later call of [`step`](Self::step) return an error.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn adds_up_over_threads_and_stops_all_of_them() {
        let watch = Watch::new();
        let each = |step: fn(&Watch)| {
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| step(&watch));
                }
            });
        };
        each(|watch| (0..1000).for_each(|n| assert!(watch.step(n % 3).is_ok())));
        assert_eq!(watch.done(), 4 * 999);
        watch.stop();
        each(|watch| assert!(matches!(watch.step(0), Err(Error::Stopped))));
        each(|watch| assert!(matches!(watch.step(1), Err(Error::Stopped))));
        assert_eq!(
            watch.done(),
            4 * 999 + 4,
            "work done after the stop is still done"
        );
        let aside = watch.aside();
        assert!(matches!(aside.step(5), Err(Error::Stopped)));
        assert_eq!((aside.done(), watch.done()), (5, 4 * 999 + 4));
    }
}
