//! Counts the memory of the process and compares it with a limit that the caller sets.
//!
//! The allocator of the extension module reports every block of at least [`COUNTED`] bytes with [`took`] and
//! [`gave`]. The caller sets the limit with [`set_limit`], and reports the memory that other parts of the process
//! use with [`set_outside`]. The limit has two effects:
//!
//! 1. The functions that allocate vectors, such as [`filled`](crate::filled), return an error before an allocation
//!    that would exceed the limit. The function of [`set_measure`] first measures the other memory again.
//! 2. [`Watch::step`](crate::Watch::step) returns an error while more memory is in use than the limit allows. This
//!    covers the allocations that cannot return an error.
//!
//! With [`set_spills`], the allocator keeps blocks of at least [`SPILLED`] bytes in a file if the limit is [tight](is_tight).
//! Such blocks are then never refused.
//!
//! Without a limit, nothing is ever refused. All counters are relaxed atomics.

use crate::Error;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The size of the smallest block that is counted, in bytes. Counting smaller blocks would take longer than
/// allocating them.
pub const COUNTED: usize = 1024;

/// The size of the smallest block that the allocator can keep in a file, in bytes. The C library glibc uses the same
/// size by default: it maps larger blocks separately.
pub const SPILLED: usize = 1 << 17;

/// Errors name arrays that need at least this part of the limit: a sixteenth.
const NAMED: usize = 16;

/// The number of bytes of all counted blocks.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// The largest value of `HELD` since the last call of [`restart_peak`].
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// The number of bytes that the process uses in addition to `HELD`.
static OUTSIDE: AtomicUsize = AtomicUsize::new(0);
/// The limit in bytes. The largest number means that there is no limit.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The function that calls [`set_outside`] with a new measurement.
static MEASURE: OnceLock<fn()> = OnceLock::new();

/// Whether the allocator keeps large blocks in a file.
static SPILLS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True during a call of [`in_any_order`].
    static ANY_ORDER: Cell<bool> = const { Cell::new(false) };
    /// True during a call of [`kept_out`].
    static STAYS_OUT: Cell<bool> = const { Cell::new(false) };
}

/// Reports that a block of `bytes` bytes was allocated.
#[inline]
pub fn took(bytes: usize) {
    let held = HELD.fetch_add(bytes, Relaxed).wrapping_add(bytes);
    if held > PEAK.load(Relaxed) {
        PEAK.fetch_max(held, Relaxed);
    }
}

/// Reports that a block of `bytes` bytes was freed.
#[inline]
pub fn gave(bytes: usize) {
    HELD.fetch_sub(bytes, Relaxed);
}

/// Returns the number of bytes of all counted blocks.
pub fn held() -> usize {
    HELD.load(Relaxed)
}

/// Returns the largest value of [`held`] since the last call of [`restart_peak`].
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}

/// Makes [`peak`] begin again with the present value of [`held`].
pub fn restart_peak() {
    PEAK.store(held(), Relaxed);
}

/// Returns the limit in bytes, or `None` if there is no limit.
#[inline]
pub fn limit() -> Option<usize> {
    let limit = LIMIT.load(Relaxed);
    (limit != usize::MAX).then_some(limit)
}

/// Sets the limit in bytes. `None` removes the limit.
pub fn set_limit(limit: Option<usize>) {
    LIMIT.store(limit.unwrap_or(usize::MAX), Relaxed);
}

/// Sets the number of bytes that the process uses in addition to the counted blocks.
pub fn set_outside(bytes: usize) {
    OUTSIDE.store(bytes, Relaxed);
}

/// Sets a function that calls [`set_outside`] with a new measurement. It is called before a request is refused. Only the
/// first call of this function has an effect.
pub fn set_measure(measure: fn()) {
    let _ = MEASURE.set(measure);
}

/// Returns the number of bytes that the process uses in addition to the counted blocks.
pub fn outside() -> usize {
    OUTSIDE.load(Relaxed)
}

/// Sets whether the allocator keeps large blocks in a file if the limit is tight.
pub fn set_spills(spills: bool) {
    SPILLS.store(spills, Relaxed);
}

/// Returns true if more than half of the limit would be in use with `bytes` more bytes. The other half is for blocks
/// that are too small for a file, and for blocks that are used [in any order](in_any_order).
pub fn is_tight(bytes: usize) -> bool {
    let limit = LIMIT.load(Relaxed);
    let most = if ANY_ORDER.get() { limit } else { limit / 2 };
    limit != usize::MAX && in_use().saturating_add(bytes) > most
}

/// Calls `work`, which allocates blocks that are read or written in any order. If possible, such blocks are kept in
/// memory, because the disk is slow for them.
pub fn in_any_order<R>(work: impl FnOnce() -> R) -> R {
    let before = ANY_ORDER.replace(true);
    let result = work();
    ANY_ORDER.set(before);
    result
}

/// Calls `work`, whose blocks are not put into the file, so that they count towards the limit. Use this function for
/// memory that outlives a fit.
pub fn kept_out<R>(work: impl FnOnce() -> R) -> R {
    let before = STAYS_OUT.replace(true);
    let result = work();
    STAYS_OUT.set(before);
    result
}

/// Returns true during a call of [`kept_out`] on this thread.
pub fn stays_out() -> bool {
    STAYS_OUT.get()
}

/// Returns the number of bytes that one part of a computation on data in files should use at a time: an eighth of the
/// limit. The rest is for other memory, and for the pages of files that are read and written. Returns `None` if there is
/// no limit, or if blocks beyond the limit are not kept in a file. Such a computation need not be divided into parts.
pub fn portion() -> Option<usize> {
    limit()
        .filter(|_| SPILLS.load(Relaxed))
        .map(|limit| limit / 8)
}

/// Returns the number of bytes that count towards the limit.
fn in_use() -> usize {
    held().saturating_add(outside())
}

/// Returns an error if `bytes` more bytes would exceed the limit. `what` is the purpose of the memory.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] with the numbers.
#[inline]
pub fn granted(what: &'static str, bytes: usize) -> Result<(), Error> {
    match limit() {
        None => Ok(()),
        Some(limit) => granted_within(limit, what, bytes),
    }
}

/// Does the work of [`granted`] if there is a limit. Blocks that are kept in a file are always granted.
#[inline(never)]
fn granted_within(limit: usize, what: &'static str, bytes: usize) -> Result<(), Error> {
    if bytes >= SPILLED && SPILLS.load(Relaxed) && !stays_out() {
        return Ok(());
    }
    let fits = || in_use().saturating_add(bytes) <= limit;
    if fits() {
        return Ok(());
    }
    // The last measurement may be old, and may have counted memory that is free now.
    if let Some(measure) = MEASURE.get() {
        measure();
        if fits() {
            return Ok(());
        }
    }
    Err(exceeded(what, bytes, in_use(), limit))
}

/// Returns the error for a request that exceeds the limit.
#[cold]
fn exceeded(what: &'static str, bytes: usize, in_use: usize, limit: usize) -> Error {
    let in_use = format!(
        "{} are in use, and the memory limit is {}",
        shown(in_use),
        shown(limit)
    );
    // A small array is not the reason that the limit is reached, so its name and size would not help.
    if bytes < limit / NAMED {
        return Error::TooLarge {
            what: "the computation",
            got: in_use,
        };
    }
    Error::TooLarge {
        what,
        got: format!("{} more are needed, {in_use}", shown(bytes)),
    }
}

/// Returns a number of bytes as text.
fn shown(bytes: usize) -> String {
    if bytes < 100_000 {
        return format!("{bytes} bytes");
    }
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Watch, filled, is_low};

    // There is only one test, because the whole process shares the counters.
    #[test]
    fn what_exceeds_the_limit_is_refused_before_it_is_allocated() {
        let before = held();
        took(5_000_000);
        assert_eq!(held(), before + 5_000_000);
        restart_peak();
        took(1_000_000);
        gave(1_000_000);
        assert_eq!(peak(), before + 6_000_000);
        set_outside(2_000_000);
        set_limit(Some(before + 17_000_000));
        assert_eq!(limit(), Some(before + 17_000_000));
        assert!(filled("rows", 0u8, 10_000_000).is_ok());
        let refused = filled("rows", 0u8, 10_000_001).expect_err("one byte more than the limit");
        let text = refused.to_string();
        assert_eq!(
            text,
            "rows is too large: 10.0 MB more are needed, 7.0 MB are in use, and the memory limit is 17.0 MB"
        );
        assert!(Watch::new().step(0).is_ok());
        assert_eq!(portion(), None);
        set_spills(true);
        assert_eq!(portion(), limit().map(|limit| limit / 8));
        assert!(filled("rows", 0u8, 10_000_001).is_ok());
        assert!(filled("rows", 0u8, SPILLED - 1).is_ok());
        assert!(is_tight(1_500_001) && !is_tight(1_500_000 - before / 2));
        assert!(in_any_order(|| !is_tight(1_500_001) && is_tight(10_000_001)));
        assert!(is_tight(1_500_001));
        set_spills(false);
        set_outside(12_000_001);
        let stopped = Watch::new()
            .step(0)
            .expect_err("more is in use than the limit");
        let text = stopped.to_string();
        assert!(text.starts_with("the computation is too large: 17.0 MB are in use"));
        let small = filled("rows", 0u8, 20_000).expect_err("more is in use than the limit");
        let text = small.to_string();
        assert!(text.starts_with("the computation is too large: 17.0 MB are in use"));
        // The last measurement was too large.
        set_measure(|| set_outside(0));
        assert!(Watch::new().step(0).is_ok());
        assert_eq!(outside(), 0);
        set_limit(None);
        set_outside(0);
        assert!(filled("rows", 0u8, 10_000_001).is_ok());
        assert!(Watch::new().step(0).is_ok() && !is_low());
        gave(5_000_000);
    }
}
