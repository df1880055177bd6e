//! Applies a function to the items of a list in parallel. If there is not enough memory for the
//! results, an error is returned.

use manylabel_base::{Error, Tasks, reserved};
use rayon::prelude::*;

/// Returns the results of `work` for all `items`, in the order of the items.
///
/// Threads take the first items one by one, because one item may take much longer than another.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] with the name `what` if the results do not fit in memory. Also returns
/// any error of `work`.
pub(crate) fn each<T: Sync, R: Send>(
    what: &'static str,
    items: &[T],
    work: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let mut made = reserved(what, items.len())?;
    made.resize_with(items.len(), || None);
    items.par_iter().zip(&mut made).try_each(|(item, made)| {
        *made = Some(work(item)?);
        Ok(())
    })?;
    let mut results = reserved(what, items.len())?;
    for result in made.into_iter().flatten() {
        results.push(result);
    }
    Ok(results)
}
