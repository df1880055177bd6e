//! All a kernel knows of the outside: a counter to add to and a flag to obey.

use crate::{Error, alloc};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// Progress of a running kernel, and the wish of its caller that it stop.
///
/// Kernels call [`step`](Self::step) every few milliseconds of work; the thread that waits for
/// them reads [`done`](Self::done) and may call [`stop`](Self::stop). Neither orders other memory.
#[derive(Debug, Default)]
pub struct Watch {
    done: AtomicUsize,
    stop: Arc<AtomicBool>,
}

impl Watch {
    /// A watch at zero that nobody has stopped.
    pub fn new() -> Self {
        Self::default()
    }

    /// A watch that stops with this one and counts on its own: for work that the caller does not know of.
    pub fn aside(&self) -> Self {
        Self {
            done: AtomicUsize::new(0),
            stop: Arc::clone(&self.stop),
        }
    }

    /// Reports `n` finished units and asks whether to go on. `n = 0` only asks.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] once [`stop`](Self::stop) was called, [`Error::TooLarge`] once memory
    /// [ran low](crate::ran_low).
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
