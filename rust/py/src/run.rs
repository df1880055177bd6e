//! How work leaves the interpreter: [`run`], which all long work goes through.
//!
//! The work runs on a thread pool of its own with the interpreter released, while the calling thread polls
//! signals and reports progress. Kernels see a [`Watch`] only: they count finished units, and are told to
//! stop after Ctrl-C or an exception of the progress callback. Work that takes less time than starting
//! threads runs on the calling thread instead ([`run_here`], [`score`]).

use crate::error::to_py;
use crate::reserve::ensure_reserve;
use manylabel_base::{Error, Watch};
use pyo3::exceptions::{PyMemoryError, PyRuntimeError};
use pyo3::prelude::*;
use rayon::ThreadPoolBuilder;
use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Time between two looks of the waiting thread at signals. Ctrl-C is promised within a second.
const POLL: Duration = Duration::from_millis(50);
/// Stack size of each thread, in bytes: Rust's default.
const STACK: usize = 2 << 20;
/// Free memory, in bytes, below which a thread that does not start is taken for a lack of memory: what the C
/// library reserves for a thread's small allocations.
const SPARE: usize = 64 << 20;

/// Runs `work` on `n_threads` threads with the interpreter released.
///
/// The pool lives as long as the call, so it does not have to survive a fork. `progress`, if given, is called
/// with the number of finished units at every poll and once at the end. If it raises an exception, the work
/// is stopped and the exception returned; the same holds for Ctrl-C.
///
/// # Errors
///
/// Returns any error of `work`, as a Python exception; `RuntimeError` if the system refuses a thread or
/// a kernel panicked; `MemoryError` if memory ran out.
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

/// [`run`] for work that keeps its result: compiled once, while each kind of result has a `run` of its own.
fn run_to_end(
    py: Python<'_>,
    n_threads: usize,
    progress: Option<&Py<PyAny>>,
    work: &mut (dyn FnMut(&Watch) -> Result<(), Error> + Send),
) -> PyResult<()> {
    ensure_reserve().map_err(to_py)?;
    let n_threads = n_threads.max(1);
    let no_thread = |error: &dyn Display| no_thread(n_threads, error);
    let pool = ThreadPoolBuilder::new()
        .num_threads(n_threads)
        .stack_size(STACK)
        .build()
        .map_err(|error| no_thread(&error))?;
    let watch = Watch::new();
    py.detach(|| {
        thread::scope(|scope| {
            let (tell, told) = channel();
            let watch = &watch;
            let worker = thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, move || {
                    // The receiver outlives this thread, so sending cannot fail.
                    let _ = tell.send(pool.install(|| work(watch)));
                })
                .map_err(|error| no_thread(&error))?;
            let mut raised = Ok(());
            loop {
                match told.recv_timeout(POLL) {
                    Ok(result) => {
                        raised?;
                        result.map_err(to_py)?;
                        return report(progress, watch.done());
                    }
                    Err(RecvTimeoutError::Disconnected) => {
                        // Joining here keeps the scope from panicking a second time.
                        let panic = worker.join().err().unwrap_or_else(|| Box::new(""));
                        return Err(panicked(&*panic));
                    }
                    Err(RecvTimeoutError::Timeout) if raised.is_err() => {} // was told to stop
                    Err(RecvTimeoutError::Timeout) => {
                        raised = Python::attach(|py| {
                            py.check_signals()?;
                            report(progress, watch.done())
                        })
                        .inspect_err(|_| watch.stop());
                    }
                }
            }
        })
    })
}

/// How a fit runs: a tuple of the number of threads and the progress callback or None.
#[derive(FromPyObject)]
pub(crate) struct Job(usize, Option<Py<PyAny>>);

impl Job {
    /// Runs `work` as [`run`] does.
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

/// Runs `work` on the calling thread, with the interpreter released. For work that takes less time than
/// starting a pool: it cannot be interrupted.
///
/// # Errors
///
/// Returns the same errors as [`run`].
pub(crate) fn run_here<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Watch) -> Result<T, Error> + Send,
) -> PyResult<T> {
    ensure_reserve().map_err(to_py)?;
    // After a panic, half-done results are dropped with `work`, and the borrowed arrays were only read.
    py.detach(|| catch_unwind(AssertUnwindSafe(|| work(&Watch::new()))))
        .map_err(|panic| panicked(&*panic))?
        .map_err(to_py)
}

/// Scores rows: on the calling thread if they are `few`, otherwise by [`run`].
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

/// The exception for a thread that the system refused.
///
/// The system's message is "temporarily unavailable" for a lack of memory as well. To tell the two apart, as
/// much memory as the threads need is requested again, plus [`SPARE`], since the threads that did start have
/// freed theirs by now.
fn no_thread(n_threads: usize, error: &dyn Display) -> PyErr {
    let stacks = n_threads.saturating_add(1).saturating_mul(STACK);
    let asked = stacks.saturating_add(SPARE);
    if Vec::<u8>::new().try_reserve_exact(asked).is_err() {
        return PyMemoryError::new_err(format!(
            "the stacks of {n_threads} threads do not fit in memory: {error}"
        ));
    }
    PyRuntimeError::new_err(format!(
        "cannot start a thread, of {n_threads} wanted: {error}"
    ))
}

/// The exception for a kernel that panicked. Unlike pyo3's own, `except Exception` catches it.
fn panicked(panic: &(dyn Any + Send)) -> PyErr {
    let cause = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => *text,
        (_, Some(text)) => text,
        _ => "a kernel panicked",
    };
    PyRuntimeError::new_err(format!("internal error in manylabel: {cause}"))
}
