//! Tests of the allocator for large blocks. The file of the allocator is compiled again here, since tests cannot link the
//! extension module.

#[path = "../src/mapped.rs"]
mod mapped;

use mapped::{LARGE, Mapped};
use std::alloc::{GlobalAlloc, Layout};

/// Sizes on both sides of the size of large blocks, so that blocks grow, shrink and change sides.
const SIZES: [usize; 9] = [
    100,
    LARGE,
    LARGE + 1,
    5 * LARGE + 12_345,
    2 * LARGE,
    LARGE / 2,
    20 * LARGE,
    LARGE + 4096,
    64,
];

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("a layout")
}

/// The byte that the tests write to position `at`.
fn byte(at: usize) -> u8 {
    (at / 4096 + at) as u8
}

#[test]
fn contents_are_kept_when_blocks_change_their_size() {
    for align in [1, 64, 4096, 1 << 16] {
        let mut size = SIZES[0];
        // SAFETY: each block is used with its current layout, within its size.
        unsafe {
            let mut block = Mapped.alloc(layout(size, align));
            for at in 0..size {
                block.add(at).write(byte(at));
            }
            for new_size in SIZES {
                block = Mapped.realloc(block, layout(size, align), new_size);
                assert!(!block.is_null());
                assert_eq!(block.addr() % align, 0);
                for at in 0..size.min(new_size) {
                    assert_eq!(block.add(at).read(), byte(at));
                }
                for at in size.min(new_size)..new_size {
                    block.add(at).write(byte(at));
                }
                size = new_size;
            }
            Mapped.dealloc(block, layout(size, align));
        }
    }
}

#[test]
fn new_blocks_of_zeros_are_zero() {
    for size in SIZES {
        for _ in 0..3 {
            // SAFETY: the block is used with its layout, within its size.
            unsafe {
                let block = Mapped.alloc_zeroed(layout(size, 16));
                assert!(!block.is_null());
                for at in 0..size {
                    assert_eq!(block.add(at).read(), 0);
                }
                block.write_bytes(255, size);
                Mapped.dealloc(block, layout(size, 16));
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let too_large = layout(isize::MAX as usize / 4, 16);
    let small = layout(2 * LARGE, 16);
    // SAFETY: the blocks are used with their layouts, and a refused request leaves the block as it was.
    unsafe {
        assert!(Mapped.alloc(too_large).is_null());
        assert!(Mapped.alloc_zeroed(too_large).is_null());
        let block = Mapped.alloc_zeroed(small);
        block.write(7);
        assert!(Mapped.realloc(block, small, too_large.size()).is_null());
        assert_eq!(block.read(), 7);
        Mapped.dealloc(block, small);
    }
}
