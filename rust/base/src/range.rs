//! Ranges of parameters, in the words of `estimator/parameters.py`.

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
