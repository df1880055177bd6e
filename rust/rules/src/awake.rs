//! Keeps threads awake during a fit.
//!
//! A fit alternates between short tasks on all threads and work on one thread. A thread without tasks goes to
//! sleep after some microseconds, and waking it takes 30 to 50 µs. Most tasks of a fit on a small set take
//! less time than that. So with two threads, fits of 500 rules were up to 25 % slower than with one thread.
//! If the second thread stays awake, it starts a task within about a microsecond.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Largest number of threads that are kept awake, besides the thread that does the work. A fit on a small set
/// keeps few threads busy. More threads would use processor time and search the queues of tasks to no avail.
const MOST_AWAKE: usize = 3;

/// Calls `work` and returns its result. Meanwhile up to [`MOST_AWAKE`] other threads of the current pool look for
/// tasks without going to sleep. Further threads sleep as usual.
pub(crate) fn keep_awake<T>(work: impl FnOnce() -> T) -> T {
    if rayon::current_num_threads() == 1 {
        return work();
    }
    let is_done = Flag(AtomicBool::new(false));
    let n_awake = AtomicUsize::new(0);
    let here = rayon::current_thread_index();
    rayon::in_place_scope(|scope| {
        scope.spawn_broadcast(|_, thread| {
            // This thread may get here while it waits for a task. It must then not wait for itself.
            if Some(thread.index()) == here || n_awake.fetch_add(1, Ordering::Relaxed) >= MOST_AWAKE
            {
                return;
            }
            while !is_done.0.load(Ordering::Relaxed) {
                if rayon::yield_now() != Some(rayon::Yield::Executed) {
                    thread::yield_now(); // other processes may need the core
                }
            }
        });
        let _guard = SetOnDrop(&is_done.0); // also after a panic
        work()
    })
}

/// A flag with cache lines of its own. Otherwise, threads that read the flag would slow down a thread that writes
/// to the same cache line.
#[repr(align(128))]
struct Flag(AtomicBool);

/// Sets a flag when it is dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn work_returns_with_any_number_of_threads() {
        for n_threads in 1..=MOST_AWAKE + 2 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads);
            let pool = pool.build().expect("threads");
            let sum = || keep_awake(|| (0..1000u64).into_par_iter().sum::<u64>());
            assert_eq!(pool.install(sum), 499_500);
            let nested = || keep_awake(|| keep_awake(|| (0..10u64).into_par_iter().sum::<u64>()));
            assert_eq!(pool.install(nested), 45);
        }
    }

    #[test]
    fn threads_end_after_a_panic() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2);
        let pool = pool.build().expect("threads");
        let panics = || pool.install(|| keep_awake(|| panic!("expected")));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(pool.install(|| keep_awake(|| 1)), 1);
    }
}
