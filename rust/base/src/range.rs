//! Ranges of parameters, in the words of `estimator/parameters.py`, and sizes that must agree.

use crate::Error;
use std::fmt::Display;

/// Refuses a parameter that is not as `expected`, which follows "must be".
///
/// # Errors
///
/// [`Error::Param`] unless `holds`.
pub fn ensure(
    name: &'static str,
    holds: bool,
    expected: &'static str,
    got: impl Display,
) -> Result<(), Error> {
    if holds {
        return Ok(());
    }
    let got = got.to_string();
    Err(Error::Param {
        name,
        expected,
        got,
    })
}

/// Refuses a number that is not finite and > 0.
///
/// # Errors
///
/// [`Error::Param`] for it.
pub fn positive(name: &'static str, value: f64) -> Result<(), Error> {
    let holds = value.is_finite() && value > 0.0;
    ensure(name, holds, "a finite number > 0", value)
}

/// Refuses a number that is not finite and ≥ 0.
///
/// # Errors
///
/// [`Error::Param`] for it.
pub fn not_negative(name: &'static str, value: f64) -> Result<(), Error> {
    let holds = value.is_finite() && value >= 0.0;
    ensure(name, holds, "a finite number >= 0", value)
}

/// Refuses a number that is not > 0 and ≤ 1.
///
/// # Errors
///
/// [`Error::Param`] for it.
pub fn share(name: &'static str, value: f64) -> Result<(), Error> {
    let holds = value > 0.0 && value <= 1.0;
    ensure(name, holds, "a number > 0 and <= 1", value)
}

/// Refuses a count of 0.
///
/// # Errors
///
/// [`Error::Param`] for it.
pub fn at_least_one(name: &'static str, count: usize) -> Result<(), Error> {
    ensure(name, count >= 1, "an integer >= 1", count)
}

/// Refuses a size that is not as expected.
///
/// # Errors
///
/// [`Error::Shape`] unless `expected` and `got` agree.
pub fn same(what: &'static str, expected: usize, got: usize) -> Result<(), Error> {
    if expected == got {
        return Ok(());
    }
    Err(Error::Shape {
        what,
        expected,
        got,
    })
}

/// Refuses labels, weights or a mask of held-out rows that are not as many as the rows of X.
///
/// # Errors
///
/// [`Error::Shape`] for the first of them.
pub fn same_rows(
    n_rows: usize,
    n_rows_of_y: usize,
    sample_weight: Option<&[f32]>,
    held_out: Option<&[bool]>,
) -> Result<(), Error> {
    let n_weights = sample_weight.map_or(n_rows, <[f32]>::len);
    let n_flags = held_out.map_or(n_rows, <[bool]>::len);
    same("rows of Y", n_rows, n_rows_of_y)?;
    same("length of sample_weight", n_rows, n_weights)?;
    same("length of held_out", n_rows, n_flags)
}

/// Gives a family's parameters their checked form: a struct `Checked`, made by `check`, which looks at the
/// `ranges` that the family has written.
#[macro_export]
macro_rules! checked {
    ($params:ident) => {
        /// Parameters known to be in range.
        #[derive(Debug, Clone)]
        pub struct Checked(pub(crate) $params);

        impl $params {
            /// Checks every range.
            ///
            /// # Errors
            ///
            /// [`Error::Param`]($crate::Error::Param) for the first parameter out of its range, or if two do
            /// not go together.
            pub fn check(self) -> Result<Checked, $crate::Error> {
                self.ranges()?;
                Ok(Checked(self))
            }
        }
    };
}
