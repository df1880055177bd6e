//! The one door out of Python: long work runs without the interpreter, on a thread pool of its own,
//! while the calling thread polls signals and reports progress.

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

/// How often the waiting thread looks at signals. Ctrl-C is promised within a second.
const POLL: Duration = Duration::from_millis(50);
/// Of each thread, in bytes: what Rust gives threads when nothing is said.
const STACK: usize = 2 << 20;
/// With less than this left, in bytes, a thread that does not start is for want of memory: what the C
/// library sets aside for a thread's small allocations.
const SPARE: usize = 64 << 20;

/// Runs `work` on `n_threads` threads with the interpreter released.
///
/// The pool lives as long as the call, so there is nothing for a fork to break. `progress`, if
/// given, is called with the units done so far at every poll and once at the end; an exception it
/// raises stops the work and comes back, as Ctrl-C does.
///
/// # Errors
///
/// What `work` returns, as a Python exception; `RuntimeError` if the system refuses a thread or a kernel
/// panicked; `MemoryError` if memory ran out.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    n_threads: usize,
    progress: Option<&Py<PyAny>>,
    work: impl FnOnce(&Watch) -> Result<T, Error> + Send,
) -> PyResult<T> {
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
                        let value = result.map_err(to_py)?;
                        report(progress, watch.done())?;
                        return Ok(value);
                    }
                    Err(RecvTimeoutError::Disconnected) => {
                        // Joining here keeps the scope from panicking a second time.
                        let panic = worker.join().err().unwrap_or_else(|| Box::new(""));
                        return Err(panicked(&*panic));
                    }
                    Err(RecvTimeoutError::Timeout) if raised.is_err() => {} // already asked to stop
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

/// How a fit runs: on how many threads, and what it reports to; a tuple.
#[derive(FromPyObject)]
pub(crate) struct Job(usize, Option<Py<PyAny>>);

impl Job {
    /// Runs `work` as [`run`] does.
    ///
    /// # Errors
    ///
    /// As [`run`].
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Watch) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        run(py, self.0, self.1.as_ref(), work)
    }
}

/// Runs `work` on the calling thread, for what is over before a pool would stand.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn run_here<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&Watch) -> Result<T, Error> + Send,
) -> PyResult<T> {
    ensure_reserve().map_err(to_py)?;
    // What a panic leaves half done is dropped with `work`; the borrowed arrays are only read.
    py.detach(|| catch_unwind(AssertUnwindSafe(|| work(&Watch::new()))))
        .map_err(|panic| panicked(&*panic))?
        .map_err(to_py)
}

/// Scores few rows here and now, more through the door; `few` rows take a moment.
///
/// # Errors
///
/// As [`run`].
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

fn report(progress: Option<&Py<PyAny>>, done: usize) -> PyResult<()> {
    match progress {
        Some(progress) => Python::attach(|py| progress.call1(py, (done,)).map(drop)),
        None => Ok(()),
    }
}

/// The system's refusal of a thread. It says "temporarily unavailable" of memory, too: whether that is what
/// it lacks is found out by asking for as much again, and for some more, since the threads that did start
/// have given back theirs by now.
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

/// A kernel's panic as an exception that `except Exception` catches.
fn panicked(panic: &(dyn Any + Send)) -> PyErr {
    let cause = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => *text,
        (_, Some(text)) => text,
        _ => "a kernel panicked",
    };
    PyRuntimeError::new_err(format!("internal error in manylabel: {cause}"))
}
