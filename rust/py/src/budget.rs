//! Limits the memory of the process; see `manylabel_base::budget`.
//!
//! The limit applies to the private memory of the process. Private memory is all memory except files that are
//! mapped and memory that processes share. The allocator counts the memory of the core. The memory of Python
//! and numpy is the private memory that the system reports, minus the memory of the core. Only Linux can
//! report the private memory within microseconds. On other systems, the limit applies to the memory of the
//! core.

use crate::reserve::{keep_little_free_memory, return_free_memory};
use crate::spill;
use manylabel_base::budget;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The number of long computations that run.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// The memory outside of the core when the first of the running computations began. It is 0 if none runs, or if there was
/// no limit when it began. Measurements are not smaller. They may be too small, because the core counts memory that it has allocated but not yet written, and
/// the system does not report this memory.
static LEAST: AtomicUsize = AtomicUsize::new(0);

/// A long computation that runs.
pub(crate) struct Running {
    /// Whether no other long computation was running when this one began.
    pub(crate) alone: bool,
}

impl Running {
    /// Begins a computation. Measures the memory that the core does not count, if there is a limit.
    pub(crate) fn begin() -> Self {
        let alone = RUNNING.fetch_add(1, SeqCst) == 0;
        if alone {
            look_outside();
            // Without a limit, the last measurement is old or missing.
            LEAST.store(budget::limit().map_or(0, |_| budget::outside()), SeqCst);
        }
        Self { alone }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if RUNNING.fetch_sub(1, SeqCst) == 1 {
            LEAST.store(0, SeqCst);
        }
    }
}

/// Measures the memory that the core does not count, if there is a limit.
pub(crate) fn look_outside() {
    if budget::limit().is_some() {
        // The core may free blocks during the measurement. They must not count as memory outside of the core.
        let before = budget::held();
        let private = private().unwrap_or(0);
        let outside = private.saturating_sub(before.max(budget::held()));
        budget::set_outside(outside.max(LEAST.load(SeqCst)));
    }
}

/// Returns freed memory to the system, and measures the memory that the core does not count. Freed blocks that the C
/// library keeps for later requests are private memory too, but only memory in use should count.
fn look_again() {
    let before = private().unwrap_or(0);
    return_free_memory();
    let returned = before.saturating_sub(private().unwrap_or(0));
    LEAST.store(LEAST.load(SeqCst).saturating_sub(returned), SeqCst);
    look_outside();
}

/// Returns the private memory of the process in bytes, or `None` if the system does not report it.
#[cfg(target_os = "linux")]
fn private() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:"))?;
    let kilobytes: usize = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes << 10)
}

/// Returns the private memory of the process in bytes, or `None` if the system does not report it.
#[cfg(not(target_os = "linux"))]
fn private() -> Option<usize> {
    None
}

/// Sets the limit in bytes. `None` removes the limit. Returns the limit that was set before.
#[pyfunction]
pub(crate) fn set_memory_limit(limit: Option<usize>) -> Option<usize> {
    let before = budget::limit();
    if limit.is_some() {
        keep_little_free_memory();
        return_free_memory();
        budget::set_measure(look_again);
    }
    budget::set_limit(limit);
    before
}

/// Begins to keep large blocks in the open file with the descriptor `file`, if the limit is tight. The caller may close
/// the descriptor.
#[cfg(target_os = "linux")]
#[pyfunction]
pub(crate) fn open_spill(file: i32) -> PyResult<()> {
    if file < 0 {
        return Err(PyOSError::new_err("the file of `spill` is closed"));
    }
    // SAFETY: the Python object that has the descriptor is open during the call.
    let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(file) };
    spill::open(file).map_err(|error| {
        PyOSError::new_err((error.raw_os_error(), "cannot map the file of `spill`"))
    })
}

/// Raises `OSError`, because only Linux can reserve and return parts of a file.
#[cfg(not(target_os = "linux"))]
#[pyfunction]
pub(crate) fn open_spill(_file: i32) -> PyResult<()> {
    Err(PyOSError::new_err("`spill` needs Linux"))
}

/// Ends what [`open_spill`] has begun.
#[pyfunction]
pub(crate) fn close_spill() {
    spill::close();
}

/// Returns the private memory of the process in bytes, without freed memory, or 0 if the system does not report it.
///
/// With `keep_little`, the C library keeps little freed memory from now on, as with a memory limit. A later limit then
/// does not count memory that computations have freed meanwhile.
#[pyfunction]
pub(crate) fn private_memory(keep_little: bool) -> usize {
    if keep_little {
        keep_little_free_memory();
    }
    return_free_memory();
    private().unwrap_or(0)
}

/// Returns the memory that the core holds, and the most that it has held since the last call of
/// [`restart_memory_peak`], in bytes.
#[pyfunction]
pub(crate) fn memory_held() -> (usize, usize) {
    (budget::held(), budget::peak())
}

/// Begins a new measurement of the peak memory, and returns the memory that the core holds.
#[pyfunction]
pub(crate) fn restart_memory_peak() -> usize {
    budget::restart_peak();
    budget::held()
}
