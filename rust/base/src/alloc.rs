//! Allocates memory. If memory is short, the functions return an error and do not abort the process.
//!
//! These functions allocate vectors that grow with the input. If an allocation fails, they return
//! [`Error::TooLarge`]. The error message names the purpose of the memory. The standard methods abort the
//! process instead, and the clippy configuration of the workspace bans these methods.
//!
//! [`few`] and [`parts`](crate::parts) collect lists that stay small for any input, such as a list with one entry per
//! thread. These two functions abort if memory is short. To prevent this, the allocator of the extension
//! module keeps a reserve of memory for small requests. When the allocator uses the reserve, it calls
//! [`ran_low`]. Every running computation then ends with an error at its next call of
//! [`Watch::step`](crate::Watch::step).
//!
//! If the caller has set a [limit](budget), a vector that would exceed the limit is an error, too.

use crate::{Error, budget};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// True from a call of [`ran_low`] until the next call of [`recovered`].
static LOW: AtomicBool = AtomicBool::new(false);

/// Reports that memory is short and the allocator uses its memory reserve. Running computations should then
/// end with [`Error::TooLarge`].
pub fn ran_low() {
    LOW.store(true, Relaxed);
}

/// Reports that the allocator has restored its memory reserve.
pub fn recovered() {
    LOW.store(false, Relaxed);
}

/// Returns true if [`ran_low`] was called more recently than [`recovered`].
#[inline]
pub fn is_low() -> bool {
    LOW.load(Relaxed)
}

/// Returns the error for memory that ran out during the work on `what`.
#[cold]
pub(crate) fn exhausted(what: &'static str) -> Error {
    Error::TooLarge {
        what,
        got: "memory ran out".into(),
    }
}

/// Returns the error for a failed allocation of `n` entries of type `T`. `what` is the purpose of the memory.
fn refused<T>(what: &'static str, n: usize) -> Error {
    refused_entries(what, n, size_of::<T>())
}

/// Does the work of [`refused`] that does not depend on the type. This function is compiled only once.
#[cold]
fn refused_entries(what: &'static str, n: usize, size: usize) -> Error {
    Error::TooLarge {
        what,
        got: format!("{n} entries of {size} bytes do not fit in memory"),
    }
}

/// Returns an error if `n` entries of type `T` would exceed the limit of the [budget]. Small requests are not
/// checked.
#[inline]
fn ask<T>(what: &'static str, n: usize) -> Result<(), Error> {
    let bytes = n.saturating_mul(size_of::<T>());
    if bytes < budget::COUNTED {
        return Ok(());
    }
    budget::granted(what, bytes)
}

/// Reserves memory for at least `more` further entries of `vec`.
#[inline]
fn reserve<T>(what: &'static str, vec: &mut Vec<T>, more: usize) -> Result<(), Error> {
    if vec.capacity() - vec.len() >= more {
        return Ok(());
    }
    grow(what, vec, more)
}

/// Does the work of [`reserve`] if the capacity is too small. This function is not inlined, so that the loops that
/// append stay small.
#[inline(never)]
fn grow<T>(what: &'static str, vec: &mut Vec<T>, more: usize) -> Result<(), Error> {
    // `try_reserve` at least doubles the capacity. The limit is checked for the new entries.
    let entries = more.max(vec.capacity());
    ask::<T>(what, entries)?;
    vec.try_reserve(more)
        .map_err(|_| refused::<T>(what, vec.len().saturating_add(more)))
}

/// Returns an empty vector with memory reserved for `n` entries.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if `n` entries do not fit in memory. The error message contains `what`.
pub fn reserved<T>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    ask::<T>(what, n)?;
    let mut vec = Vec::new();
    vec.try_reserve_exact(n)
        .map_err(|_| refused::<T>(what, n))?;
    Ok(vec)
}

/// Returns a vector of `n` copies of `value`.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the vector does not fit in memory. The error message contains `what`.
#[expect(clippy::disallowed_methods, reason = "the memory is reserved")]
pub fn filled<T: Clone>(what: &'static str, value: T, n: usize) -> Result<Vec<T>, Error> {
    let mut vec = reserved(what, n)?;
    vec.resize(n, value);
    Ok(vec)
}

/// Returns a copy of `values`.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the copy does not fit in memory. The error message contains `what`.
#[expect(clippy::disallowed_methods, reason = "the memory is reserved")]
pub fn copied<T: Clone>(what: &'static str, values: &[T]) -> Result<Vec<T>, Error> {
    let mut vec = reserved(what, values.len())?;
    vec.extend_from_slice(values);
    Ok(vec)
}

/// Collects all items of an iterator in a vector.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the items do not fit in memory. The error message contains `what`.
pub fn collected<T>(
    what: &'static str,
    values: impl IntoIterator<Item = T>,
) -> Result<Vec<T>, Error> {
    let mut vec = Vec::new();
    extend(what, &mut vec, values)?;
    Ok(vec)
}

/// Appends all items of an iterator to `vec`.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the items do not fit in memory. The error message contains `what`. `vec`
/// keeps the items that were appended before the failure.
#[expect(clippy::disallowed_methods, reason = "the memory is reserved")]
pub fn extend<T>(
    what: &'static str,
    vec: &mut Vec<T>,
    values: impl IntoIterator<Item = T>,
) -> Result<(), Error> {
    let mut values = values.into_iter();
    let (least, most) = values.size_hint();
    reserve(what, vec, least)?;
    if most == Some(least) {
        vec.extend(values); // faster than pushing one by one
        return Ok(());
    }
    while let Some(value) = values.next() {
        if vec.len() == vec.capacity() {
            reserve(what, vec, values.size_hint().0.saturating_add(1))?;
        }
        vec.push(value);
    }
    Ok(())
}

/// Appends `value` to `vec`.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is no memory for the value. The error message contains `what`.
#[inline]
pub fn push<T>(what: &'static str, vec: &mut Vec<T>, value: T) -> Result<(), Error> {
    if vec.len() == vec.capacity() {
        reserve(what, vec, 1)?;
    }
    vec.push(value);
    Ok(())
}

/// Collects items whose number stays small for any input, for example threads, panels or candidates.
#[expect(clippy::disallowed_methods, reason = "few by contract")]
pub fn few<T, C: FromIterator<T>>(values: impl IntoIterator<Item = T>) -> C {
    values.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let too_many = usize::MAX / 16;
        for refused in [
            filled("rows", 0.0_f64, too_many),
            reserved("rows", too_many),
            collected("rows", std::iter::repeat_n(0.0, too_many)),
        ] {
            let text = refused.expect_err("no machine has this").to_string();
            assert!(text.starts_with("rows is too large: "), "{text}");
        }
    }

    #[test]
    fn what_fits_is_as_the_standard_library_has_it() {
        let odd = |n: &usize| n % 2 == 1;
        let kept = collected("rows", (0..1000).filter(odd)).expect("fits");
        assert_eq!(kept, (0..1000).filter(odd).collect::<Vec<_>>());
        assert_eq!(copied("rows", &kept).expect("fits"), kept);
        let mut grown = filled("rows", 7, 3).expect("fits");
        extend("rows", &mut grown, 0..2).expect("fits");
        push("rows", &mut grown, 5).expect("fits");
        assert_eq!(grown, [7, 7, 7, 0, 1, 5]);
    }
}
