//! Allocates lists that grow in turn, and may be kept in a file.
//!
//! If a page of a file is not in memory, the operating system also reads megabytes of the pages around it. That is fast
//! if one list is read or written in order. If many lists grow in turn, these pages fill the memory, and the pages of
//! the other lists are written to the disk and read again.

use crate::{Error, reserved};
use std::sync::OnceLock;

/// A function that gets the address and the number of bytes of a block, and whether it is one of many lists that grow in
/// turn. If the block is in a file, the function tells the operating system.
pub type Adviser = fn(*const u8, usize, bool);

/// The function of the allocator.
static ADVISER: OnceLock<Adviser> = OnceLock::new();

/// Sets the function that is told about lists. Only the first call has an effect.
pub fn set_adviser(adviser: Adviser) {
    let _ = ADVISER.set(adviser);
}

/// Returns an empty list with memory reserved for `n` entries. It grows in turn with other lists until [`complete`] is
/// called.
///
/// # Errors
///
/// Returns the errors of [`reserved`].
pub fn growing<T>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let list = reserved(what, n)?;
    tell(&list, true);
    Ok(list)
}

/// Tells that a list is complete and will be read in order.
pub fn complete<T>(list: &Vec<T>) {
    tell(list, false);
}

/// Calls the function of the allocator.
fn tell<T>(list: &Vec<T>, grows: bool) {
    if let Some(tell) = ADVISER.get() {
        tell(
            list.as_ptr().cast(),
            list.capacity() * size_of::<T>(),
            grows,
        );
    }
}
