//! Values that go by a name in Python.

use manylabel_base::Error;

/// The value that goes by a name.
///
/// # Errors
///
/// [`Error::Param`] for a name that is none of `values`.
pub(crate) fn named<T: Copy>(
    name: &'static str,
    expected: &'static str,
    values: &[(&str, T)],
    got: &str,
) -> Result<T, Error> {
    let found = values.iter().find(|(known, _)| *known == got);
    found.map(|&(_, value)| value).ok_or_else(|| Error::Param {
        name,
        expected,
        got: format!("{got:?}"),
    })
}
