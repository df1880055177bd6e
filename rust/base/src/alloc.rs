//! Memory whose size the input chose: granted or refused, never a crash.
//!
//! Vectors that grow with the input come from here, where the system's "no" becomes an [`Error`]; the
//! workspace's clippy configuration bans the ways of the standard library that abort. What stays small
//! whatever the input, a list of panels or of threads, comes from [`few`] and [`parts`]; if even that
//! memory is missing, the allocator of the extension module lends from a reserve and calls [`ran_low`],
//! which ends the work at its next [`Watch::step`](crate::Watch::step).

use crate::Error;
use rayon::iter::ParallelIterator;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether small allocations are served from the reserve.
static LOW: AtomicBool = AtomicBool::new(false);

/// Says that the reserve was opened: work in progress shall end with [`Error::TooLarge`].
pub fn ran_low() {
    LOW.store(true, Relaxed);
}

/// Says that there is a reserve again.
pub fn recovered() {
    LOW.store(false, Relaxed);
}

/// Whether memory ran out and nobody said since that it recovered.
pub fn is_low() -> bool {
    LOW.load(Relaxed)
}

/// Memory ran out during work on `what`.
pub(crate) fn exhausted(what: &'static str) -> Error {
    Error::TooLarge {
        what,
        got: "memory ran out".into(),
    }
}

fn refused<T>(what: &'static str, n: usize) -> Error {
    Error::TooLarge {
        what,
        got: format!(
            "{n} entries of {} bytes do not fit in memory",
            size_of::<T>()
        ),
    }
}

/// An empty vector with room for `n` entries; `what` is named if they do not fit.
///
/// # Errors
///
/// [`Error::TooLarge`] if the system does not grant the memory.
pub fn reserved<T>(what: &'static str, n: usize) -> Result<Vec<T>, Error> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(n)
        .map_err(|_| refused::<T>(what, n))?;
    Ok(vec)
}

/// `n` copies of `value`; `what` is named if they do not fit.
///
/// # Errors
///
/// [`Error::TooLarge`] if the system does not grant the memory.
#[expect(clippy::disallowed_methods, reason = "the room is there")]
pub fn filled<T: Clone>(what: &'static str, value: T, n: usize) -> Result<Vec<T>, Error> {
    let mut vec = reserved(what, n)?;
    vec.resize(n, value);
    Ok(vec)
}

/// A copy of `values`; `what` is named if it does not fit.
///
/// # Errors
///
/// [`Error::TooLarge`] if the system does not grant the memory.
#[expect(clippy::disallowed_methods, reason = "the room is there")]
pub fn copied<T: Clone>(what: &'static str, values: &[T]) -> Result<Vec<T>, Error> {
    let mut vec = reserved(what, values.len())?;
    vec.extend_from_slice(values);
    Ok(vec)
}

/// All that `values` yields; `what` is named if it does not fit.
///
/// # Errors
///
/// [`Error::TooLarge`] if the system does not grant the memory.
pub fn collected<T>(
    what: &'static str,
    values: impl IntoIterator<Item = T>,
) -> Result<Vec<T>, Error> {
    let values = values.into_iter();
    let mut vec = reserved(what, values.size_hint().0)?;
    extend(what, &mut vec, values)?;
    Ok(vec)
}

/// Appends all that `values` yields; `what` is named if it does not fit.
///
/// # Errors
///
/// [`Error::TooLarge`] if the system does not grant the memory; `vec` then holds what fitted.
#[expect(clippy::disallowed_methods, reason = "the room is there")]
pub fn extend<T>(
    what: &'static str,
    vec: &mut Vec<T>,
    values: impl IntoIterator<Item = T>,
) -> Result<(), Error> {
    let mut values = values.into_iter();
    let room = |vec: &mut Vec<T>, more: usize| {
        vec.try_reserve(more)
            .map_err(|_| refused::<T>(what, vec.len().saturating_add(more)))
    };
    let (least, most) = values.size_hint();
    room(vec, least)?;
    if most == Some(least) {
        vec.extend(values); // what the standard library does at once for iterators of known length
        return Ok(());
    }
    while let Some(value) = values.next() {
        if vec.len() == vec.capacity() {
            room(vec, values.size_hint().0.saturating_add(1))?;
        }
        vec.push(value);
    }
    Ok(())
}

/// Appends `value`; `what` is named if there is no room.
///
/// # Errors
///
/// [`Error::TooLarge`] if the system does not grant the memory.
#[inline]
pub fn push<T>(what: &'static str, vec: &mut Vec<T>, value: T) -> Result<(), Error> {
    if vec.len() == vec.capacity() {
        vec.try_reserve(1)
            .map_err(|_| refused::<T>(what, vec.len().saturating_add(1)))?;
    }
    vec.push(value);
    Ok(())
}

/// Collects what stays few whatever the input is: threads, panels, candidates.
#[expect(clippy::disallowed_methods, reason = "few by contract")]
pub fn few<T, C: FromIterator<T>>(values: impl IntoIterator<Item = T>) -> C {
    values.into_iter().collect()
}

/// Collects the results of the parts of parallel work, which are few and in order.
///
/// # Errors
///
/// An error of one of the parts.
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
