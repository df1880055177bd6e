//! Sizes that must agree.

use manylabel_base::Error;

/// `Ok` where two sizes agree.
pub(crate) fn same(what: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if expected == got {
        Ok(())
    } else {
        Err(Error::Shape {
            what,
            expected,
            got,
        })
    }
}
