//! Allocates memory so that a lack of memory is an error and never aborts the process.
//!
//! The functions here allocate the vectors whose size depends on the input. If an allocation fails,
//! they return [`Error::TooLarge`], which names what the memory was for. The clippy configuration of
//! the workspace bans the standard methods that abort instead.
//!
//! [`few`] and [`parts`] collect lists that stay small for any input, such as panels or threads. These
//! two functions abort if memory is short. To prevent this, the allocator of the extension module keeps
//! a reserve for small requests. When it has to use the reserve, it calls [`ran_low`], and the work
//! ends with an error at its next [`Watch::step`](crate::Watch::step).

use crate::Error;
use rayon::iter::ParallelIterator;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// True while the allocator has given up its reserve and has not restored it.
static LOW: AtomicBool = AtomicBool::new(false);

/// Reports that the allocator uses its reserve. Work in progress should then end with
/// [`Error::TooLarge`].
pub fn ran_low() {
    LOW.store(true, Relaxed);
}

/// Reports that the allocator has restored its reserve.
pub fn recovered() {
    LOW.store(false, Relaxed);
}

/// Returns true if [`ran_low`] was called more recently than [`recovered`].
pub fn is_low() -> bool {
    LOW.load(Relaxed)
}

/// Makes the error for work on `what` during which memory ran out.
pub(crate) fn exhausted(what: &'static str) -> Error {
    Error::TooLarge {
        what,
        got: "memory ran out".into(),
    }
}

/// Makes the error for a failed allocation of `n` entries of type `T` for `what`.
fn refused<T>(what: &'static str, n: usize) -> Error {
    refused_entries(what, n, size_of::<T>())
}

/// The part of [`refused`] that is the same for all types, so that it is compiled only once.
#[cold]
fn refused_entries(what: &'static str, n: usize, size: usize) -> Error {
    Error::TooLarge {
        what,
        got: format!("{n} entries of {size} bytes do not fit in memory"),
    }
}

/// Reserves memory for at least `more` further entries of `vec`.
fn reserve<T>(what: &'static str, vec: &mut Vec<T>, more: usize) -> Result<(), Error> {
    vec.try_reserve(more)
        .map_err(|_| refused::<T>(what, vec.len().saturating_add(more)))
}

/// Returns an empty vector with memory reserved for `n` entries.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] with the name `what` if `n` entries do not fit in memory.
pub fn reserved<T>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(n)
        .map_err(|_| refused::<T>(what, n))?;
    Ok(vec)
}

/// Returns a vector of `n` copies of `value`.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] with the name `what` if the vector does not fit in memory.
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
/// Returns [`Error::TooLarge`] with the name `what` if the copy does not fit in memory.
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
/// Returns [`Error::TooLarge`] with the name `what` if the items do not fit in memory.
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
/// Returns [`Error::TooLarge`] with the name `what` if the items do not fit in memory. In this case,
/// `vec` keeps the items that were appended before the failure.
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
/// Returns [`Error::TooLarge`] with the name `what` if there is no memory for the value.
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

/// Collects the results of parallel tasks, in the order of the tasks. There must be few tasks.
///
/// # Errors
///
/// Returns the error of one of the failed tasks, if any task failed.
#[expect(clippy::disallowed_methods, reason = "few by contract")]
pub fn parts<T: Send>(
    results: impl ParallelIterator<Item = Result<T, Error>>,
) -> Result<Vec<T>, Error> {
    results.collect()
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
