//! Runs parallel tasks that can fail.
//!
//! [`parts`] and [`Tasks::try_each`] do the same as `collect` and `try_for_each` of rayon. The code that
//! distributes the tasks over threads is compiled only once, and not for each type of task. The build takes less
//! time for this reason.

use crate::Error;
use rayon::iter::plumbing::{Producer, ProducerCallback};
use rayon::prelude::*;
use std::sync::{Mutex, PoisonError};

/// Largest number of pieces into which the tasks are cut. Threads take pieces one by one. With this number,
/// the threads of a large machine finish at about the same time.
const MAX_PIECES: usize = 1 << 10;

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

/// Does the same as [`parts`] for tasks that need a workspace. A task gets the workspace of a finished task, or, if
/// all workspaces are in use, a new one from `init`. So there are at most as many workspaces as threads. The results
/// must not depend on the previous contents of a workspace.
///
/// # Errors
///
/// Returns the same errors as [`parts`].
pub fn parts_with<S: Send, I: Send, T: Send>(
    items: impl IndexedParallelIterator<Item = I>,
    init: impl Fn() -> S + Sync + Send,
    task: impl Fn(&mut S, I) -> Result<T, Error> + Sync + Send,
) -> Result<Vec<T>, Error> {
    let idle = Mutex::new(Vec::new());
    let idle = || idle.lock().unwrap_or_else(PoisonError::into_inner);
    parts(items.map(|item| {
        let mut space = idle().pop().unwrap_or_else(&init);
        let result = task(&mut space, item);
        idle().push(space);
        result
    }))
}

/// Adds methods to parallel iterators that run tasks without results.
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
        parts(self.map(task)).map(drop)
    }

    /// Does the same as [`try_each`](Self::try_each) for tasks that need a workspace; see [`parts_with`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`parts`].
    fn try_each_with<S: Send>(
        self,
        init: impl Fn() -> S + Sync + Send,
        task: impl Fn(&mut S, Self::Item) -> Result<(), Error> + Sync + Send,
    ) -> Result<(), Error> {
        parts_with(self, init, task).map(drop)
    }
}

impl<I: IndexedParallelIterator> Tasks for I {}

/// Cuts tasks into pieces and runs the pieces.
struct Pieces {
    n_tasks: usize,
}

/// Some consecutive tasks: the tasks until a thread takes them, and then their results.
struct Piece<P, T> {
    tasks: Option<P>,
    results: Vec<T>,
}

impl<T: Send> ProducerCallback<Result<T, Error>> for Pieces {
    type Output = Result<Vec<T>, Error>;

    #[expect(clippy::disallowed_methods, reason = "few by contract")]
    fn callback<P: Producer<Item = Result<T, Error>>>(self, mut tasks: P) -> Self::Output {
        let size = self.n_tasks.div_ceil(MAX_PIECES).max(1);
        let mut pieces = Vec::with_capacity(self.n_tasks.div_ceil(size));
        let mut n_left = self.n_tasks;
        while n_left > 0 {
            let n_tasks = size.min(n_left);
            let (piece, others) = tasks.split_at(n_tasks);
            pieces.push(Mutex::new(Piece {
                tasks: Some(piece),
                results: Vec::new(),
            }));
            (tasks, n_left) = (others, n_left - n_tasks);
        }
        run(pieces.len(), &|at| {
            // no other thread uses this piece, so that a poisoned lock can only come from this task
            let mut piece = pieces[at].lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(tasks) = piece.tasks.take() {
                for result in tasks.into_iter() {
                    piece.results.push(result?);
                }
            }
            Ok(())
        })?;
        let mut results = Vec::with_capacity(self.n_tasks);
        for piece in pieces {
            let piece = piece.into_inner().unwrap_or_else(PoisonError::into_inner);
            results.extend(piece.results);
        }
        Ok(results)
    }
}

/// Calls `task` with the numbers `0..n`, on all threads of the current thread pool.
fn run(n: usize, task: &(dyn Fn(usize) -> Result<(), Error> + Sync)) -> Result<(), Error> {
    (0..n).into_par_iter().with_max_len(1).try_for_each(task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    const STOPPED: Result<usize, Error> = Err(Error::Stopped);

    #[test]
    fn results_are_in_the_order_of_the_tasks() {
        for n in [0, 1, 2, MAX_PIECES - 1, MAX_PIECES, 3 * MAX_PIECES + 7] {
            let squares = parts((0..n).into_par_iter().map(|i| Ok(i * i))).expect("no task fails");
            assert_eq!(squares, (0..n).map(|i| i * i).collect::<Vec<_>>());
        }
    }

    #[test]
    fn each_item_is_visited_once() {
        let mut items = vec![0; 5 * MAX_PIECES + 1];
        let pairs = items.par_chunks_mut(3).enumerate();
        let visited = pairs.try_each(|(at, chunk)| {
            chunk.iter_mut().for_each(|item| *item += at + 1);
            Ok(())
        });
        visited.expect("no task fails");
        assert!(items.iter().enumerate().all(|(i, &item)| item == i / 3 + 1));
    }

    #[test]
    fn an_error_ends_the_tasks() {
        for n in [1, 100, 3 * MAX_PIECES] {
            let n_run = AtomicUsize::new(0);
            let tasks = (0..n).into_par_iter().map(|i| {
                n_run.fetch_add(1, Relaxed);
                if i == 0 { STOPPED } else { Ok(i) }
            });
            assert!(matches!(parts(tasks), Err(Error::Stopped)));
            let never_started = n.div_ceil(MAX_PIECES) - 1; // the other tasks of the first piece
            assert!(n_run.into_inner() <= n - never_started);
        }
    }

    #[test]
    fn there_are_no_more_workspaces_than_threads() {
        let n_made = AtomicUsize::new(0);
        let init = || n_made.fetch_add(1, Relaxed);
        let found = parts_with((0..1000).into_par_iter(), init, |_, i| Ok(i));
        assert_eq!(found.expect("no task fails"), (0..1000).collect::<Vec<_>>());
        assert!(n_made.into_inner() <= rayon::current_num_threads());
    }
}
