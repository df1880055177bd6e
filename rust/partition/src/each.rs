//! One result for each of many pieces of work, in memory that can be refused.

use manylabel_base::{Error, reserved};
use rayon::prelude::*;

/// What `work` makes of each of `items`, in order. Each is dealt out to threads alone, as one may take
/// much longer than others; `what` is named if the results do not fit in memory.
///
/// # Errors
///
/// [`Error::TooLarge`], and what `work` returns.
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
