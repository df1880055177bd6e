//! Runs long computations while the GIL is released. All long computations are started by [`run`].
//!
//! The work runs on its own thread pool. Meanwhile the calling thread polls signals and reports progress.
//! The computation counts its finished units in a [`Watch`]. After Ctrl-C or an exception of the progress
//! callback, the calling thread sets the stop flag of the [`Watch`], and the computation ends. Work that
//! takes less time than starting threads runs on the calling thread instead ([`run_here`], [`score`]).

use crate::budget::{Running, look_outside};
use crate::error::to_py;
use crate::reserve::{ensure_reserve, renew_reserve, return_free_memory};
use manylabel_base::{Error, Watch};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Time between two checks for signals by the waiting thread. Ctrl-C must take effect within a second.
const POLL: Duration = Duration::from_millis(50);
/// Number of polls of a computation that returns free memory to the system when it ends. Shorter computations, such
/// as the predictions of a service, soon need the same memory again.
const LONG: usize = 4;
/// Stack size of each thread, in bytes. This is the default of Rust.
const STACK: usize = 2 << 20;
/// Free memory, in bytes, that a thread needs to start. If a thread does not start and less memory is free,
/// the error reports a lack of memory. The C library reserves this amount for small allocations of a thread.
const SPARE: usize = 64 << 20;

/// Runs `work` on `n_threads` threads while the GIL is released.
///
/// The thread pool exists only during the call, so it does not have to survive a fork. If `progress` is
/// given, it is called with the number of finished units at every poll, and once at the end. If
/// `progress` raises an exception, the work is stopped and the exception is returned. The same happens
/// after Ctrl-C.
///
/// # Errors
///
/// Returns any error of `work`, as a Python exception. Raises `RuntimeError` if the system cannot start a
/// thread, or if `work` panicked. Raises `MemoryError` if memory ran out.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    n_threads: usize,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&Watch) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let mut work = Some(work);
    let mut found = None;
    run_to_end(py, n_threads, progress, &mut |watch| {
        if let Some(work) = work.take() {
            found = Some(work(watch)?);
        }
        Ok(())
    })?;
    Ok(found.expect("work that ends without an error has a result"))
}

/// Does the work of [`run`] that does not depend on the type of the result. This function is compiled only
/// once.
fn run_to_end(
    py: Python<'_>,
    n_threads: usize,
    progress: Option<&Py<PyAny>>,
    work: &mut (dyn FnMut(&Watch) -> Result<(), Error> + Send),
) -> PyResult<()> {
    let running = py.detach(Running::begin);
    if running.alone {
        renew_reserve().map_err(to_py)?;
    } else {
        ensure_reserve().map_err(to_py)?; // another computation may need the reserve
    }
    let n_threads = n_threads.max(1);
    let mut threads = Vec::new();
    let pool = ThreadPoolBuilder::new()
        .num_threads(n_threads)
        .spawn_handler(|thread| {
            let builder = thread::Builder::new().stack_size(STACK);
            threads.push(builder.spawn(|| thread.run())?);
            Ok(())
        })
        .build();
    let watch = Watch::new();
    py.detach(|| {
        let _running = running;
        let mut n_polls = 0;
        let result = match pool {
            Ok(pool) => wait(&pool, progress, &watch, &mut n_polls, work),
            Err(error) => Err(Failed::Start(error.to_string())),
        };
        // The threads end, because the pool is dropped. The memory of a thread is free when it has ended.
        for thread in threads {
            let _ = thread.join(); // rayon passes a panic of the work to the thread that waits for it
        }
        if n_polls >= LONG {
            return_free_memory();
        }
        result.map_err(|failed| match failed {
            Failed::Start(error) => no_thread(n_threads, &error),
            Failed::Work(error) => error,
        })
    })
}

/// Why [`wait`] failed.
enum Failed {
    /// The system did not start a thread, for the given reason.
    Start(String),
    /// The work or the progress callback failed.
    Work(PyErr),
}

impl From<PyErr> for Failed {
    fn from(error: PyErr) -> Self {
        Self::Work(error)
    }
}

/// Runs `work` in `pool`, and polls signals and reports progress meanwhile. `n_polls` counts the polls.
fn wait(
    pool: &ThreadPool,
    progress: Option<&Py<PyAny>>,
    watch: &Watch,
    n_polls: &mut usize,
    work: &mut (dyn FnMut(&Watch) -> Result<(), Error> + Send),
) -> Result<(), Failed> {
    thread::scope(|scope| {
        let (tell, told) = channel();
        let worker = thread::Builder::new()
            .stack_size(STACK)
            .spawn_scoped(scope, move || {
                // The receiver outlives this thread, so sending cannot fail.
                let _ = tell.send(pool.install(|| work(watch)));
            })
            .map_err(|error| Failed::Start(error.to_string()))?;
        let mut raised = Ok(());
        loop {
            match told.recv_timeout(POLL) {
                Ok(result) => {
                    let _ = worker.join();
                    raised?;
                    result.map_err(to_py)?;
                    return Ok(report(progress, watch.done())?);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    // The scope panics if a thread panicked and was not joined. So the thread is joined
                    // here.
                    let panic = worker.join().err().unwrap_or_else(|| Box::new(""));
                    return Err(panicked(&*panic).into());
                }
                Err(RecvTimeoutError::Timeout) if raised.is_err() => {} // the work was asked to stop
                Err(RecvTimeoutError::Timeout) => {
                    *n_polls += 1;
                    look_outside();
                    raised = Python::attach(|py| {
                        py.check_signals()?;
                        report(progress, watch.done())
                    })
                    .inspect_err(|_| watch.stop());
                }
            }
        }
    })
}

/// The options of a fit: a tuple of the number of threads, and the progress callback or None.
#[derive(FromPyObject)]
pub(crate) struct Job(usize, Option<Py<PyAny>>);

impl Job {
    /// Runs `work` with [`run`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`run`].
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Watch) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        run(py, self.0, self.1.as_ref(), work)
    }
}

/// Runs `work` on the calling thread while the GIL is released. Use this function for work that takes less
/// time than starting a thread pool. The work cannot be interrupted.
///
/// # Errors
///
/// Returns the same errors as [`run`].
pub(crate) fn run_here<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Watch) -> Result<T, Error> + Send,
) -> PyResult<T> {
    ensure_reserve().map_err(to_py)?;
    look_outside();
    // After a panic, unfinished results are dropped with `work`. The borrowed arrays were only read.
    py.detach(|| catch_unwind(AssertUnwindSafe(|| work(&Watch::new()))))
        .map_err(|panic| panicked(&*panic))?
        .map_err(to_py)
}

/// Runs `work`, which scores rows. If `few` is true, the work runs on the calling thread, otherwise with
/// [`run`].
///
/// # Errors
///
/// Returns the same errors as [`run`].
pub(crate) fn score<T: Send>(
    py: Python<'_>,
    few: bool,
    n_threads: usize,
    work: impl FnOnce(&Watch) -> Result<T, Error> + Send,
) -> PyResult<T> {
    if few {
        run_here(py, work)
    } else {
        run(py, n_threads, None, work)
    }
}

/// Calls `progress` with the number of finished units.
fn report(progress: Option<&Py<PyAny>>, done: usize) -> PyResult<()> {
    match progress {
        Some(progress) => Python::attach(|py| progress.call1(py, (done,)).map(drop)),
        None => Ok(()),
    }
}

/// Returns the exception for a thread that the system did not start.
///
/// If memory is short, the message of the system is only "temporarily unavailable". To recognize this case,
/// the function tries to allocate the memory that the threads need, plus [`SPARE`]. The threads that did
/// start have already freed their memory at this point.
fn no_thread(n_threads: usize, error: &dyn Display) -> PyErr {
    let stacks = n_threads.saturating_add(1).saturating_mul(STACK);
    let asked = stacks.saturating_add(SPARE);
    if Vec::<u8>::new().try_reserve_exact(asked).is_err() {
        return PyMemoryError::new_err(format!(
            "the stacks of {n_threads} threads do not fit in memory: {error}"
        ));
    }
    PyRuntimeError::new_err(format!("cannot start all {n_threads} threads: {error}"))
}

/// Returns the exception for a panic in Rust code. Unlike the exception of pyo3, `except Exception` catches
/// this exception.
fn panicked(panic: &(dyn Any + Send)) -> PyErr {
    let cause = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => *text,
        (_, Some(text)) => text,
        _ => "a computation panicked",
    };
    PyRuntimeError::new_err(format!("internal error in manylabel: {cause}"))
}
