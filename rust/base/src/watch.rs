//! The only contact of a kernel with its caller: a progress counter and a stop flag.

use crate::{Error, alloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The progress of a running kernel, and its caller's request to stop.
///
/// Kernels call [`step`](Self::step) every few milliseconds of work. The thread that waits for them reads
/// [`done`](Self::done) and may call [`stop`](Self::stop). All accesses are relaxed atomics: they do not
/// order other memory operations.
#[derive(Debug, Default)]
pub struct Watch {
    done: AtomicUsize,
    stop: Arc<AtomicBool>,
}

impl Watch {
    /// A watch with the counter at 0 that has not been stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// A watch that shares the stop flag of this one but has its own counter: for work that should not
    /// count as progress.
    pub fn aside(&self) -> Self {
        Self {
            done: AtomicUsize::new(0),
            stop: Arc::clone(&self.stop),
        }
    }

    /// Adds `n` finished units of work and returns an error if the work should end. `step(0)` only asks.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Stopped`] after [`stop`](Self::stop) was called, [`Error::TooLarge`] after
    /// memory [ran low](crate::ran_low).
    pub fn step(&self, n: usize) -> Result<(), Error> {
        self.done.fetch_add(n, Relaxed);
        if self.stop.load(Relaxed) {
            Err(Error::Stopped)
        } else if alloc::is_low() {
            Err(alloc::exhausted("the work"))
        } else {
            Ok(())
        }
    }

    /// Units reported so far.
    pub fn done(&self) -> usize {
        self.done.load(Relaxed)
    }

    /// Makes every later [`step`](Self::step) fail.
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
