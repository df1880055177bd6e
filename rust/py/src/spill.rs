//! Keeps large blocks of memory in a temporary file, so that a fit can use more memory than its limit.
//!
//! The file is mapped once, with room for [`SIZE`] bytes, which take no space on the disk. A block takes the next
//! free range of the file. Its space on the disk is reserved when the block is allocated, so that writing to the
//! block cannot fail, and returned when the block is freed. Ranges are not used twice: new blocks are zero without
//! being written.
//!
//! The pages of the file are not private memory. If memory is short, the operating system writes them to the disk
//! and reads them again. The algorithms read their large arrays in order, which is fast on a disk.
//!
//! All functions are called from the allocator. So they allocate nothing themselves.

use manylabel_base::streams::set_adviser;
use manylabel_base::{budget, ran_low};
use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::ffi::c_void;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};

/// The number of bytes of the file, most of which is never written. Files of ext4 can have 16 TiB.
const SIZE: usize = 1 << 40;

/// Blocks begin at multiples of this number of bytes, which is a multiple of the size of a page.
const GRAIN: usize = 1 << 16;

/// The address at which the file is mapped, or null.
static BASE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// The file. It is valid while `BASE` is not null.
static FILE: AtomicI32 = AtomicI32::new(-1);
/// The process that has opened the file. A forked process shares the pages, but must not free them.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// The position of the next block in the file.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// The number of blocks in the file.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// The number of callers that have opened the file and not closed it. New blocks are put into the file if it is not 0.
static OPEN: AtomicUsize = AtomicUsize::new(0);
/// Locked while the file is opened or closed.
static CHANGING: Mutex<()> = Mutex::new(());

/// Begins to put blocks into a file. If an earlier file is open, or if it still has blocks, that file is used.
///
/// # Errors
///
/// Returns the error of the operating system if the file cannot have [`SIZE`] bytes or cannot be mapped.
pub(crate) fn open(file: BorrowedFd<'_>) -> Result<(), Errno> {
    let _changing = CHANGING.lock();
    if BASE.load(SeqCst).is_null() {
        let file: OwnedFd = rustix::io::dup(file)?;
        ftruncate(&file, SIZE as u64)?;
        // SAFETY: the address is chosen by the system, so no other memory is changed.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                SIZE,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &file,
                0,
            )
        }?;
        FILE.store(file.into_raw_fd(), SeqCst);
        OWNER.store(std::process::id(), SeqCst);
        NEXT.store(0, SeqCst);
        BASE.store(base.cast(), SeqCst);
        set_adviser(advise);
    }
    OPEN.fetch_add(1, SeqCst);
    budget::set_spills(true);
    Ok(())
}

/// Ends what [`open`] has begun. The file is closed after the last call, unless it still has blocks.
pub(crate) fn close() {
    let _changing = CHANGING.lock();
    match OPEN.fetch_update(SeqCst, SeqCst, |open| open.checked_sub(1)) {
        Ok(1) => {}
        _ => return, // another caller has the file open, or nobody has
    }
    budget::set_spills(false);
    if LIVE.load(SeqCst) > 0 {
        return;
    }
    let base = BASE.swap(ptr::null_mut(), SeqCst);
    let file: RawFd = FILE.swap(-1, SeqCst);
    // SAFETY: the file is mapped there, and no block is left. `take` adds its block to `LIVE` before it looks at
    // `OPEN`, so no new block can begin.
    unsafe {
        let _ = munmap(base.cast::<c_void>(), SIZE);
        drop(OwnedFd::from_raw_fd(file));
    }
}

/// Returns true if a block is in the file.
#[inline]
pub(crate) fn holds(block: *const u8) -> bool {
    let base = BASE.load(Relaxed);
    !base.is_null() && block.addr().wrapping_sub(base.addr()) < SIZE
}

/// Tells the operating system whether a block of `size` bytes is one of many lists that grow in turn, if it is in the file.
fn advise(block: *const u8, size: usize, grows: bool) {
    if size == 0 || !holds(block) {
        return;
    }
    let advice = if grows {
        Advice::Random
    } else {
        Advice::Normal
    };
    // SAFETY: blocks begin at a multiple of a page, and the advice changes neither the content nor the mapping. An error
    // means that it is not followed.
    let _ = unsafe { madvise(block.cast_mut().cast::<c_void>(), size, advice) };
}

/// Returns true if a new block of `size` bytes belongs into the file.
#[inline]
pub(crate) fn wants(size: usize) -> bool {
    size >= budget::SPILLED
        && OPEN.load(Relaxed) > 0
        && budget::is_tight(size)
        && !budget::stays_out()
}

/// Allocates a block of zeros in the file. Returns null if this is not possible.
///
/// If the disk is full, running computations are also requested to stop.
pub(crate) fn take(size: usize) -> *mut u8 {
    LIVE.fetch_add(1, SeqCst);
    let block = try_take(size);
    if block.is_null() {
        LIVE.fetch_sub(1, SeqCst);
    }
    block
}

/// Does the work of [`take`], except for counting the block.
fn try_take(size: usize) -> *mut u8 {
    if OPEN.load(SeqCst) == 0 || OWNER.load(SeqCst) != std::process::id() {
        return ptr::null_mut();
    }
    let Some(length) = size
        .checked_next_multiple_of(GRAIN)
        .filter(|&length| length <= SIZE)
    else {
        return ptr::null_mut();
    };
    let advance = |next: usize| Some(next + length).filter(|&end| end <= SIZE);
    let Ok(first) = NEXT.fetch_update(SeqCst, SeqCst, advance) else {
        return ptr::null_mut();
    };
    if !allocate(FallocateFlags::empty(), first, length) {
        ran_low();
        return ptr::null_mut();
    }
    // The address is inside of the mapping, because `first + length` is at most `SIZE`.
    BASE.load(SeqCst).wrapping_add(first)
}

/// Frees a block of `size` bytes in the file.
pub(crate) fn give(block: *mut u8, size: usize) {
    if OWNER.load(SeqCst) == std::process::id() {
        // The system merges neighbouring ranges with the same advice, so that it need not keep many of them.
        advise(block, size, false);
        let first = block.addr() - BASE.load(SeqCst).addr();
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // If this fails, the space on the disk returns when the file is closed.
        allocate(flags, first, size.next_multiple_of(GRAIN));
    }
    LIVE.fetch_sub(1, SeqCst);
}

/// Reserves or returns a range of the file on the disk. Returns false if this is not possible.
fn allocate(flags: FallocateFlags, first: usize, length: usize) -> bool {
    // SAFETY: the file is open, because it has a block: the caller's.
    let file = unsafe { BorrowedFd::borrow_raw(FILE.load(SeqCst)) };
    loop {
        match fallocate(file, flags, first as u64, length as u64) {
            Err(Errno::INTR) => {}
            result => return result.is_ok(),
        }
    }
}
