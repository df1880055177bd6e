//! Maps large blocks of memory separately, with huge pages where the system offers them.
//!
//! The memory of a separate mapping returns to the system when the block is freed. The C library glibc also maps blocks
//! of at least 128 KiB separately, but it raises this size to the size of each such block that is freed, up to 32 MiB.
//! From then on, such blocks are in the heap of a thread, which keeps up to 64 MiB when they are freed. The threads of
//! a computation have several heaps, and computations in a row, such as a choice of C, filled all of them. With
//! separate mappings, a fit of `DiSMEC` to a dense X of 154 MB needs 76 MB beside X instead of 85 to 100 MB.
//!
//! A processor looks up the addresses of huge pages faster, and the system needs less time to provide them. Numpy
//! requests them for large arrays, too.
//!
//! Smaller blocks, such as the buffers of matrix products, are allocated often, and the system clears the pages of
//! each new mapping. So these blocks are not mapped separately. On other systems than Linux, no block is.

use std::alloc::{GlobalAlloc, Layout, System};

/// Blocks of more bytes are mapped separately.
pub(crate) const LARGE: usize = 4 << 20;

/// The largest alignment of a mapped block: the smallest size of a page.
const PAGE: usize = 1 << 12;

/// Returns true if a block with this layout is mapped separately.
#[inline]
fn is_large(layout: Layout) -> bool {
    cfg!(target_os = "linux") && layout.size() > LARGE && layout.align() <= PAGE
}

/// Moves the content of a block to a new block of the same allocator with another size, and frees the old block. Returns
/// null and changes nothing if there is no new block.
///
/// # Safety
///
/// The contract is that of [`GlobalAlloc::realloc`].
pub(crate) unsafe fn moved(
    allocator: &impl GlobalAlloc,
    block: *mut u8,
    layout: Layout,
    new_size: usize,
) -> *mut u8 {
    // SAFETY: the caller keeps the contract of `realloc`, so the size is valid for the alignment. The new block is another
    // block, and both have the bytes that are copied.
    unsafe {
        let new = Layout::from_size_align_unchecked(new_size, layout.align());
        let moved = allocator.alloc(new);
        if !moved.is_null() {
            block.copy_to_nonoverlapping(moved, layout.size().min(new_size));
            allocator.dealloc(block, layout);
        }
        moved
    }
}

/// The allocator of the system, except that large blocks are mapped separately.
pub(crate) struct Mapped;

// SAFETY: the layout of a block decides whether it is mapped or from `System`, so that each block is freed in the way
// in which it was allocated. A mapping has at least the size of the block, and begins at a multiple of a page.
unsafe impl GlobalAlloc for Mapped {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return pages::map(layout.size());
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return pages::map(layout.size()); // new pages are zero
        }
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`, so the size is valid for the alignment.
        let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (is_large(layout), is_large(new)) {
            // SAFETY: the caller keeps the contract of `realloc`, and the block is from `System`.
            (false, false) => unsafe { System.realloc(block, layout, new_size) },
            // SAFETY: the block is a mapping of this size.
            (true, true) => unsafe { pages::remap(block, layout.size(), new_size) },
            // SAFETY: the caller keeps the contract of `realloc`.
            _ => unsafe { moved(self, block, layout, new_size) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_large(layout) {
            // SAFETY: the block is a mapping of this size, and nothing refers to it any more.
            unsafe { pages::unmap(block, layout.size()) };
            return;
        }
        // SAFETY: the caller keeps the contract of `dealloc`, and the block is from `System`.
        unsafe { System.dealloc(block, layout) };
    }
}

/// Mappings of Linux.
#[cfg(target_os = "linux")]
mod pages {
    use rustix::mm::{
        Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap_anonymous, mremap, munmap,
    };
    use std::ptr;

    /// Maps `size` bytes of zeros. Returns null if the system refuses.
    pub(super) fn map(size: usize) -> *mut u8 {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the address is chosen by the system, so no other memory is changed.
        let block = unsafe { mmap_anonymous(ptr::null_mut(), size, access, MapFlags::PRIVATE) };
        let Ok(block) = block else {
            return ptr::null_mut();
        };
        // SAFETY: the advice does not change the content. The system may refuse it, which does no harm.
        let _ = unsafe { madvise(block, size, Advice::LinuxHugepage) };
        block.cast()
    }

    /// Changes the size of a mapping, which may move. Returns null and changes nothing if the system refuses.
    ///
    /// # Safety
    ///
    /// `block` must be a mapping of `size` bytes.
    pub(super) unsafe fn remap(block: *mut u8, size: usize, new_size: usize) -> *mut u8 {
        // SAFETY: the block is a mapping of this size.
        unsafe { mremap(block.cast(), size, new_size, MremapFlags::MAYMOVE) }
            .map_or(ptr::null_mut(), <*mut _>::cast)
    }

    /// Frees a mapping.
    ///
    /// # Safety
    ///
    /// `block` must be a mapping of `size` bytes, to which nothing refers any more.
    pub(super) unsafe fn unmap(block: *mut u8, size: usize) {
        // SAFETY: the block is a mapping of this size.
        if unsafe { munmap(block.cast(), size) }.is_err() {
            // The block is between others, and the system has no room to keep the two parts of the mapping apart.
            // SAFETY: nothing refers to the content any more.
            let _ = unsafe { madvise(block.cast(), size, Advice::LinuxDontNeed) };
        }
    }
}

/// Stands in for mappings on other systems, where no block is large.
#[cfg(not(target_os = "linux"))]
mod pages {
    pub(super) fn map(_: usize) -> *mut u8 {
        std::ptr::null_mut()
    }

    pub(super) unsafe fn remap(_: *mut u8, _: usize, _: usize) -> *mut u8 {
        std::ptr::null_mut()
    }

    pub(super) unsafe fn unmap(_: *mut u8, _: usize) {}
}
