//! Vectors whose length the input chose: refused where memory does not hold them.

use crate::Error;

/// `n` copies of `value`; `what` is named if they do not fit.
///
/// # Errors
///
/// [`Error::TooLarge`] if the system does not grant the memory.
pub fn filled<T: Clone>(what: &'static str, value: T, n: usize) -> Result<Vec<T>, Error> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(n).map_err(|_| Error::TooLarge {
        what,
        got: format!(
            "{n} entries of {} bytes do not fit in memory",
            size_of::<T>()
        ),
    })?;
    vec.resize(n, value);
    Ok(vec)
}
