//! Parallel work on a list whose length the input decides, with results in memory that can be refused.

use manylabel_base::{Error, reserved};
use rayon::prelude::*;

/// The results of `work` for all of `items`, in the order of the items.
///
/// Items are given to threads one by one, since one may take much longer than another.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] naming `what` if the results do not fit in memory; an error of `work`.
pub(crate) fn each<T: Sync, R: Send>(
    what: &'static str,
    items: &[T],
    work: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let mut made = reserved(what, items.len())?;
    made.resize_with(items.len(), || None);
    items
        .par_iter()
        .zip(&mut made)
        .with_max_len(1)
        .try_for_each(|(item, made)| {
            *made = Some(work(item)?);
            Ok(())
        })?;
    let mut results = reserved(what, items.len())?;
    for result in made.into_iter().flatten() {
        results.push(result);
    }
    Ok(results)
}
