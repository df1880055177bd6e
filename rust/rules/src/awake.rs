//! Keeps threads awake during a fit.
//!
//! A fit alternates between short tasks on all threads and work on one thread. A thread without tasks goes to
//! sleep after some microseconds, and waking it takes 30 to 50 µs. Most tasks of a fit on a small set take
//! less time than that. So with two threads, fits of 500 rules were up to 25 % slower than with one thread.
//! If the second thread stays awake, it starts a task within about a microsecond.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Largest number of threads that are kept awake, besides the thread that does the work. A fit on a small set
/// keeps few threads busy. More threads would use processor time and search the queues of tasks to no avail.
const MOST_AWAKE: usize = 3;

/// Longest time to wait until the threads are awake. Usually they need about 50 µs. They need longer, for example, if
/// there are more threads than cores.
const LONGEST_START: Duration = Duration::from_millis(1);

/// A number of awake threads that is too large for another thread to stay awake.
const CLOSED: usize = usize::MAX / 2;

/// Calls `work` and returns its result. Meanwhile up to [`MOST_AWAKE`] other threads of the current pool look for
/// tasks without going to sleep. Further threads sleep as usual.
///
/// The pool should have no other tasks. If it has other tasks, this function may return only after some of them.
pub(crate) fn keep_awake<T>(work: impl FnOnce() -> T) -> T {
    let n_others = rayon::current_num_threads() - 1;
    if n_others == 0 {
        return work();
    }
    let is_done = Flag(AtomicBool::new(false));
    let n_awake = AtomicUsize::new(0);
    rayon::in_place_scope(|scope| {
        scope.spawn_broadcast(|_, _| {
            if n_awake.fetch_add(1, Ordering::Relaxed) >= MOST_AWAKE {
                return;
            }
            while !is_done.0.load(Ordering::Relaxed) {
                if rayon::yield_now() != Some(rayon::Yield::Executed) {
                    thread::yield_now(); // other processes may need the core
                }
            }
        });
        // All loops start before the work starts. A thread that is in a task of the work, and waits for other tasks,
        // would otherwise start its loop there. The task would then wait for the end of the work, and the work for
        // the task.
        let start = Instant::now();
        while n_awake.load(Ordering::Relaxed) < n_others.min(MOST_AWAKE)
            && start.elapsed() < LONGEST_START
        {
            thread::yield_now();
        }
        n_awake.store(CLOSED, Ordering::Relaxed);
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

    /// Sums numbers with tasks that start further tasks.
    fn nested_sum() -> u64 {
        let inner = |i: u64| (0..64u64).into_par_iter().map(|j| i * j).sum::<u64>();
        (0..64u64).into_par_iter().map(inner).sum()
    }

    #[test]
    fn callers_of_one_pool_do_not_wait_for_one_another_forever() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3);
        let pool = pool.build().expect("threads");
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        assert_eq!(pool.install(|| keep_awake(nested_sum)), 2016 * 2016);
                    }
                });
            }
        });
    }

    #[test]
    fn a_thread_outside_a_pool_can_call() {
        for _ in 0..50 {
            assert_eq!(keep_awake(nested_sum), 2016 * 2016);
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
