//! Runs parallel tasks that can fail.
//!
//! [`parts`] and [`Tasks::try_each`] do the same as `collect` and `try_for_each` of rayon. The code that
//! distributes the tasks over threads is compiled only once, and not for each type of task. The build takes less
//! time for this reason.

use crate::Error;
use rayon::iter::plumbing::{Producer, ProducerCallback};
use rayon::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Largest number of pieces into which the tasks are cut. Threads take pieces one by one, so that the threads of a
/// large machine finish at about the same time.
const MAX_PIECES: usize = 1 << 12;

/// Number of pieces with a single task, if there are more tasks than [`MAX_PIECES`]. In many lists of tasks, the first
/// tasks take longest.
const SINGLE_TASKS: usize = MAX_PIECES / 2;

/// Runs parallel tasks and returns their results, in the order of the tasks. The number of tasks must be small.
///
/// # Errors
///
/// If tasks fail, returns the error of one of these tasks. Tasks that have not started are then skipped.
pub fn parts<T: Send>(
    tasks: impl IndexedParallelIterator<Item = Result<T, Error>>,
) -> Result<Vec<T>, Error> {
    let n_tasks = tasks.len();
    tasks.with_producer(Pieces { n_tasks })
}

/// Does the same as [`parts`] for tasks that need a workspace. `new` creates a workspace; see [`Spare`].
///
/// # Errors
///
/// Returns the same errors as [`parts`]. Also returns any error of `new`.
pub fn parts_with<S: Send, I: Send, T: Send>(
    items: impl IndexedParallelIterator<Item = I>,
    new: impl Fn() -> Result<S, Error> + Sync + Send,
    task: impl Fn(&mut S, I) -> Result<T, Error> + Sync + Send,
) -> Result<Vec<T>, Error> {
    let spare = Spare::default();
    parts(items.map(|item| spare.with(&new, |space| task(space, item))))
}

/// Adds methods to parallel iterators that run tasks without results. The number of these tasks may be large.
pub trait Tasks: IndexedParallelIterator {
    /// Calls `task` for each item, in parallel.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`parts`].
    fn try_each(
        self,
        task: impl Fn(Self::Item) -> Result<(), Error> + Sync + Send,
    ) -> Result<(), Error> {
        parts(self.map(task)).map(drop) // a vector of `()` takes no memory
    }

    /// Does the same as [`try_each`](Self::try_each) for tasks that need a workspace. `new` creates a workspace; see
    /// [`Spare`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`parts`]. Also returns any error of `new`.
    fn try_each_with<S: Send>(
        self,
        new: impl Fn() -> Result<S, Error> + Sync + Send,
        task: impl Fn(&mut S, Self::Item) -> Result<(), Error> + Sync + Send,
    ) -> Result<(), Error> {
        parts_with(self, new, task).map(drop)
    }
}

impl<I: IndexedParallelIterator> Tasks for I {}

/// A pool of workspaces. Each unit of work takes a workspace from the pool and returns it
/// afterwards. So there are at most as many workspaces as units of work in progress. A unit of work
/// must leave the workspace as the next one needs it, unless it fails.
#[derive(Debug)]
pub struct Spare<T>(Mutex<Vec<T>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<T> Spare<T> {
    /// Calls `work` with a workspace from the pool. If the pool is empty, `new` creates a
    /// workspace. If `work` fails, the workspace is freed.
    ///
    /// # Errors
    ///
    /// Returns any error of `new` or `work`.
    pub fn with<R>(
        &self,
        new: impl FnOnce() -> Result<T, Error>,
        work: impl FnOnce(&mut T) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let spare = locked(&self.0).pop();
        let mut space = spare.map_or_else(new, Ok)?;
        let result = work(&mut space)?;
        locked(&self.0).push(space);
        Ok(result)
    }
}

/// Locks `mutex`. After a panic of another thread, the content is still valid, because it is only read or replaced as a
/// whole while it is locked.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Cuts tasks into pieces and runs the pieces.
struct Pieces {
    n_tasks: usize,
}

impl Pieces {
    /// Returns the numbers of tasks of all pieces.
    fn sizes(&self) -> impl Iterator<Item = usize> {
        let n_singles = if self.n_tasks <= MAX_PIECES {
            self.n_tasks
        } else {
            SINGLE_TASKS
        };
        let n_others = self.n_tasks - n_singles;
        let size = n_others.div_ceil(MAX_PIECES - SINGLE_TASKS).max(1);
        let others = (0..n_others)
            .step_by(size)
            .map(move |first| size.min(n_others - first));
        std::iter::repeat_n(1, n_singles).chain(others)
    }
}

/// Some consecutive tasks until a thread takes them, and then their results.
enum Piece<P, T> {
    Tasks(P),
    Results(Vec<T>),
}

impl<T: Send> ProducerCallback<Result<T, Error>> for Pieces {
    type Output = Result<Vec<T>, Error>;

    #[expect(
        clippy::disallowed_methods,
        reason = "few pieces, and few results by contract"
    )]
    fn callback<P: Producer<Item = Result<T, Error>>>(self, mut tasks: P) -> Self::Output {
        let mut pieces = Vec::with_capacity(self.n_tasks.min(MAX_PIECES));
        for size in self.sizes() {
            let (piece, others) = tasks.split_at(size);
            pieces.push(Mutex::new(Piece::Tasks(piece)));
            tasks = others;
        }
        let failed = AtomicBool::new(false);
        run(pieces.len(), &|at| {
            let mut results = Vec::new();
            let piece = std::mem::replace(&mut *locked(&pieces[at]), Piece::Results(Vec::new()));
            let Piece::Tasks(tasks) = piece else {
                return Ok(());
            };
            let mut tasks = tasks.into_iter();
            // The error of another piece is returned by the thread that runs that piece.
            while !failed.load(Relaxed) {
                match tasks.next() {
                    Some(Ok(result)) => results.push(result),
                    Some(Err(error)) => {
                        failed.store(true, Relaxed);
                        return Err(error);
                    }
                    None => break,
                }
            }
            *locked(&pieces[at]) = Piece::Results(results);
            Ok(())
        })?;
        let mut results = Vec::with_capacity(self.n_tasks);
        for piece in pieces {
            if let Piece::Results(of_piece) =
                piece.into_inner().unwrap_or_else(PoisonError::into_inner)
            {
                results.extend(of_piece);
            }
        }
        Ok(results)
    }
}

/// Calls `task` with the numbers `0..n`, on all threads of the current thread pool.
#[expect(clippy::disallowed_methods, reason = "compiled once")]
fn run(n: usize, task: &(dyn Fn(usize) -> Result<(), Error> + Sync)) -> Result<(), Error> {
    (0..n).into_par_iter().with_max_len(1).try_for_each(task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    const SIZES: [usize; 7] = [
        0,
        1,
        2,
        MAX_PIECES - 1,
        MAX_PIECES,
        MAX_PIECES + 1,
        3 * MAX_PIECES + 7,
    ];

    #[test]
    fn pieces_have_all_tasks() {
        for n_tasks in SIZES {
            let sizes: Vec<usize> = Pieces { n_tasks }.sizes().collect();
            assert_eq!(sizes.iter().sum::<usize>(), n_tasks);
            assert!(sizes.len() <= MAX_PIECES);
            assert!(sizes.iter().all(|&size| size > 0));
            assert!(sizes.iter().take(SINGLE_TASKS).all(|&size| size == 1));
        }
    }

    #[test]
    fn results_are_in_the_order_of_the_tasks() {
        for n in SIZES {
            let squares = parts((0..n).into_par_iter().map(|i| Ok(i * i))).expect("no task fails");
            assert_eq!(squares, (0..n).map(|i| i * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn each_item_is_visited_once() {
        let mut items = vec![0; 5 * MAX_PIECES + 1];
        // The shorter iterator decides the number of tasks.
        let pairs = items.par_chunks_mut(3).enumerate().zip(0..2 * MAX_PIECES);
        let visited = pairs.try_each(|((at, chunk), other)| {
            assert_eq!(at, other);
            for item in chunk {
                *item += at + 1;
            }
            Ok(())
        });
        visited.expect("no task fails");
        assert!(items.iter().enumerate().all(|(i, &item)| item == i / 3 + 1));
    }

    #[test]
    fn an_error_ends_the_tasks() {
        let n = 3 * MAX_PIECES;
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
        let n_run = AtomicUsize::new(0);
        let found = pool.expect("two threads").install(|| {
            parts((0..n).into_par_iter().map(|i| {
                n_run.fetch_add(1, Relaxed);
                if i == 0 {
                    return Err(Error::Stopped);
                }
                std::thread::sleep(std::time::Duration::from_millis(1)); // task 0 fails meanwhile
                Ok(i)
            }))
        });
        assert!(matches!(found, Err(Error::Stopped)));
        assert!(n_run.into_inner() < n / 2);
    }

    #[test]
    fn tasks_may_run_tasks() {
        let sums = parts((0..50_usize).into_par_iter().map(|i| {
            let products = parts_with((0..50_usize).into_par_iter(), || Ok(0), |_, j| Ok(i * j));
            Ok(products?.iter().sum::<usize>())
        }));
        let expected = (0..50).map(|i| i * 49 * 25);
        assert_eq!(sums.expect("no task fails"), expected.collect::<Vec<_>>());
    }

    #[test]
    fn workspaces_are_used_again_unless_a_task_failed() {
        let n_made = AtomicUsize::new(0);
        let new = || Ok(n_made.fetch_add(1, Relaxed));
        let found = parts_with((0..1000).into_par_iter(), new, |_, i| Ok(i));
        assert_eq!(found.expect("no task fails"), (0..1000).collect::<Vec<_>>());
        assert!(n_made.into_inner() <= rayon::current_num_threads());

        let spare = Spare::default();
        let failed: Result<(), Error> = spare.with(|| Ok(1), |_| Err(Error::Stopped));
        assert!(failed.is_err());
        assert_eq!(spare.with(|| Ok(2), |space| Ok(*space)).expect("made"), 2);
        assert_eq!(spare.with(|| Ok(3), |space| Ok(*space)).expect("kept"), 2);
    }

    #[test]
    #[should_panic(expected = "task 7")]
    fn a_panic_of_a_task_is_a_panic_of_the_caller() {
        let _ = parts((0..100).into_par_iter().map(|i| {
            assert!(i != 7, "task 7");
            Ok(i)
        }));
    }
}
