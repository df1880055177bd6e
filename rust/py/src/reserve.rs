//! Defines the allocator of the extension module: the allocator of the system, with a memory reserve for
//! small requests, and with separate mappings for large blocks (`mapped.rs`).
//!
//! The standard library of Rust aborts the process if an allocation fails. So vectors that grow with the
//! input are allocated by functions that return an error instead (`manylabel_base::filled` and similar). The
//! many small vectors are not allocated in this way. External libraries also allocate vectors in the standard
//! way, for example the buffers of a matrix product. The reserve exists for these allocations:
//!
//! 1. If the system refuses a small request, the reserve is freed and the request is repeated.
//! 2. The current work ends with `MemoryError` at its next check for a stop request.
//! 3. Before the next work starts, the reserve is allocated again. Work on threads also replaces an unused reserve, if no
//!    other work on threads is running ([`renew_reserve`]).
//!
//! The reserve is address space that is never written to. The reserve counts towards the limit of `ulimit
//! -v`, but not towards resident memory.
//!
//! The allocator also counts the memory that it has allocated (`manylabel_base::budget`), without the reserve. If the
//! caller has named a folder for this purpose, large blocks that do not fit in the limit are in a file (`spill.rs`).
//! These blocks are not counted.

use crate::mapped::{Mapped, moved};
use crate::spill;
use manylabel_base::{Error, budget, is_low, ran_low, recovered};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire},
};

/// The allocator of all Rust code in the module.
#[global_allocator]
static ALLOCATOR: WithReserve = WithReserve {
    reserve: AtomicPtr::new(ptr::null_mut()),
};

/// The largest request that the reserve serves, in bytes. Larger requests come from functions that
/// return an error.
const SMALL: usize = 8 << 20;

/// The size of the reserve. The reserve is enough for a few small requests of each thread until the thread
/// stops. The C library glibc maps a block above 32 MiB separately. So when the block is freed, all of its
/// memory returns to the system.
const RESERVE: Layout = match Layout::from_size_align(64 << 20, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two is an alignment"),
};

/// The allocator of the system with a reserve.
struct WithReserve {
    /// The reserve, or null if it has been freed.
    reserve: AtomicPtr<u8>,
}

impl WithReserve {
    /// Frees the reserve and requests that running computations stop.
    #[cold]
    fn open(&self) {
        self.free();
        ran_low();
    }

    /// Frees the reserve, if there is one.
    fn free(&self) {
        let reserve = self.reserve.swap(ptr::null_mut(), AcqRel);
        if !reserve.is_null() {
            // SAFETY: `fill` got this block from `System` with this layout. After the swap, nothing else refers
            // to it.
            unsafe { System.dealloc(reserve, RESERVE) };
        }
    }

    /// Allocates the reserve if there is none. Returns false if the system refuses the request.
    fn fill(&self) -> bool {
        // SAFETY: the size of the layout is not zero.
        let block = unsafe { System.alloc(RESERVE) };
        if block.is_null() {
            return false;
        }
        let empty = ptr::null_mut();
        if self
            .reserve
            .compare_exchange(empty, block, AcqRel, Acquire)
            .is_err()
        {
            // SAFETY: the block was allocated above with this layout, and nothing else refers to it.
            unsafe { System.dealloc(block, RESERVE) };
        }
        true
    }

    /// Returns the block that `request` returns. If a small request is refused, the reserve is freed
    /// and the request is repeated. The result may still be null.
    #[inline]
    fn or_from_reserve(&self, size: usize, request: impl Fn() -> *mut u8) -> *mut u8 {
        let block = request();
        if block.is_null() && size <= SMALL {
            // Another thread may have freed the reserve at the same time, so the request is repeated in
            // any case.
            self.open();
            return request();
        }
        block
    }
}

/// Counts a block that was allocated, unless it is null. Small blocks are not counted.
#[inline]
fn counted(block: *mut u8, size: usize) -> *mut u8 {
    if size >= budget::COUNTED && !block.is_null() {
        budget::took(size);
    }
    block
}

/// Counts a block that was freed. Small blocks are not counted.
#[inline]
fn discounted(size: usize) {
    if size >= budget::COUNTED {
        budget::gave(size);
    }
}

/// Functions of the C library glibc.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use std::ffi::c_int;

    /// The parameter of `mallopt` for the number of free bytes at the end of a heap that are kept.
    pub(super) const M_TRIM_THRESHOLD: c_int = -1;
    /// The parameter of `mallopt` for the size of blocks that are mapped separately.
    pub(super) const M_MMAP_THRESHOLD: c_int = -3;
    /// With a memory limit, blocks of numpy and other libraries are also returned to the system when they are freed,
    /// from the size at which `mapped.rs` maps the blocks of this module.
    pub(super) const LARGE: c_int = crate::mapped::LARGE as c_int;

    unsafe extern "C" {
        pub(super) fn malloc_trim(pad: usize) -> c_int;
        pub(super) fn mallopt(parameter: c_int, value: c_int) -> c_int;
    }
}

/// Returns free memory to the system. Does nothing if the C library is not glibc.
///
/// glibc keeps freed blocks for later requests, in separate heaps for up to eight threads per core. Each long
/// computation has threads of its own, so these heaps would grow with the number of computations: a choice of C,
/// which consists of several fits, kept 4 to 5 times the size of a small dense X.
pub(crate) fn return_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function only releases pages of free blocks. It may be called at any time, by any thread.
    unsafe {
        glibc::malloc_trim(0);
    }
}

/// Makes the C library keep little free memory from now on. Does nothing if the C library is not glibc.
///
/// By default, glibc keeps up to 64 MiB at the end of each heap, and [`return_free_memory`] does not return them. The
/// setting holds for the whole process and cannot be undone, because glibc then no longer adapts these sizes.
pub(crate) fn keep_little_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the function changes two numbers. Other threads may read the old or the new numbers meanwhile.
    unsafe {
        glibc::mallopt(glibc::M_MMAP_THRESHOLD, glibc::LARGE);
        glibc::mallopt(glibc::M_TRIM_THRESHOLD, glibc::LARGE);
    }
}

// SAFETY: every block of a caller is allocated and freed by `Mapped`, with the layout of the caller, or by `spill`,
// whose blocks begin at a multiple of a page. `spill` recognizes its own blocks.
unsafe impl GlobalAlloc for WithReserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some(block) = spilled(layout) {
            return block;
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        let block = self.or_from_reserve(layout.size(), || unsafe { Mapped.alloc(layout) });
        counted(block, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if let Some(block) = spilled(layout) {
            return block;
        }
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        let block = self.or_from_reserve(layout.size(), || unsafe { Mapped.alloc_zeroed(layout) });
        counted(block, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        if spill::holds(block) || spill::wants(new_size) {
            // SAFETY: the caller keeps the contract of `realloc`.
            return unsafe { moved(self, block, layout, new_size) };
        }
        // SAFETY: the caller keeps the contract of `realloc`. If the system refuses the request, the old
        // block is unchanged, and the request may be repeated.
        let grown = self.or_from_reserve(new_size, || unsafe {
            Mapped.realloc(block, layout, new_size)
        });
        if !grown.is_null() {
            discounted(layout.size());
        }
        counted(grown, new_size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if spill::holds(block) {
            spill::give(block, layout.size());
            return;
        }
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { Mapped.dealloc(block, layout) };
        discounted(layout.size());
    }
}

/// Returns a block of zeros in the file of `spill`, if it belongs there and the file has room.
#[inline]
fn spilled(layout: Layout) -> Option<*mut u8> {
    if !spill::wants(layout.size()) {
        return None;
    }
    let block = spill::take(layout.size());
    (!block.is_null()).then_some(block)
}

/// Frees the reserve and allocates it again. No other long computation may be running, because it may need the reserve
/// in between.
///
/// If the limit of `ulimit -v` has been lowered since the reserve was allocated, the process may hold more memory than
/// the limit. Then freeing the reserve would not make room for a request. So the computation must not start.
///
/// # Errors
///
/// Returns the same error as [`ensure_reserve`].
pub(crate) fn renew_reserve() -> Result<(), Error> {
    ALLOCATOR.free();
    ensure_reserve()
}

/// Makes sure that there is a reserve for the next work.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is no memory for a reserve.
pub(crate) fn ensure_reserve() -> Result<(), Error> {
    if !ALLOCATOR.reserve.load(Acquire).is_null() && !is_low() {
        return Ok(());
    }
    if ALLOCATOR.fill() {
        recovered();
        return Ok(());
    }
    Err(Error::TooLarge {
        what: "the computation",
        got: format!(
            "a reserve of {} MiB of memory is needed, and less is available",
            RESERVE.size() >> 20
        ),
    })
}
