//! The allocator of the extension module: the system's, with a reserve for small requests.
//!
//! Rust ends the process where the standard library cannot get memory. Vectors that grow with the input
//! are asked for in ways that can be refused (`manylabel_base::filled` and its neighbours). The many
//! small ones are not, nor are those of other crates, the packing buffers of a matrix product for
//! example. If the system refuses a small request, the reserve is given back to the system, the request
//! is repeated, and work in progress learns at its next step that it must end with `MemoryError`. The next
//! piece of work asks for the reserve again before it starts.
//!
//! The reserve is address space that nobody touches: it counts under `ulimit -v`, not as resident memory.

use manylabel_base::{Error, is_low, ran_low, recovered};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{AcqRel, Acquire},
};

/// The module's allocations pass through here.
#[global_allocator]
static ALLOCATOR: WithReserve = WithReserve {
    reserve: AtomicPtr::new(ptr::null_mut()),
};

/// The largest request that the reserve serves. Larger ones come from vectors that can be refused.
const SMALL: usize = 8 << 20;

/// The size of the reserve: a few small requests of every thread until the next step. Above 32 MiB glibc
/// maps a block on its own whatever was freed before, so that freeing it gives all of it back.
const RESERVE: Layout = match Layout::from_size_align(64 << 20, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two is an alignment"),
};

struct WithReserve {
    reserve: AtomicPtr<u8>,
}

impl WithReserve {
    /// Gives the reserve back to the system and tells kernels to stop; false if it is gone already.
    #[cold]
    fn open(&self) -> bool {
        let reserve = self.reserve.swap(ptr::null_mut(), AcqRel);
        ran_low();
        if reserve.is_null() {
            return false;
        }
        // SAFETY: `fill` got this block from `System` with this layout, and the swap made us its only owner.
        unsafe { System.dealloc(reserve, RESERVE) };
        true
    }

    /// Makes sure that there is a reserve; false if the system refuses it.
    fn fill(&self) -> bool {
        // SAFETY: the layout's size is not zero.
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
            // SAFETY: the block was allocated above with this layout and nobody else knows of it.
            unsafe { System.dealloc(block, RESERVE) };
        }
        true
    }

    /// What `request` returns, asked a second time after opening the reserve if it was refused.
    #[inline]
    fn or_from_reserve(&self, size: usize, request: impl Fn() -> *mut u8) -> *mut u8 {
        let block = request();
        if block.is_null() && size <= SMALL {
            // Another thread may have opened the reserve in between: ask again in any case.
            self.open();
            return request();
        }
        block
    }
}

// SAFETY: every block comes from and goes back to `System` with the caller's own layout.
unsafe impl GlobalAlloc for WithReserve {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        self.or_from_reserve(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        self.or_from_reserve(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`; a refused block is untouched and may be asked
        // for again.
        self.or_from_reserve(new_size, || unsafe {
            System.realloc(block, layout, new_size)
        })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Makes sure that small requests of the work that follows can be served.
///
/// # Errors
///
/// [`Error::TooLarge`] if there is no memory for a reserve.
pub(crate) fn ensure_reserve() -> Result<(), Error> {
    if !ALLOCATOR.reserve.load(Acquire).is_null() && !is_low() {
        return Ok(());
    }
    if ALLOCATOR.fill() {
        recovered();
        return Ok(());
    }
    Err(Error::TooLarge {
        what: "the work",
        got: format!(
            "{} MiB of working memory are not free",
            RESERVE.size() >> 20
        ),
    })
}
