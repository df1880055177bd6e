//! Checks parameters and sizes. The error messages have the same wording as the messages of the Python module
//! `estimator/parameters.py`.

use crate::Error;
use std::fmt::Display;

/// Checks that a condition on a parameter holds. In the error message, the text `expected` follows "must be".
///
/// # Errors
///
/// Returns [`Error::Param`] if `holds` is false.
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

/// Checks that a number is finite and > 0.
///
/// # Errors
///
/// Returns [`Error::Param`] unless `value` is finite and > 0.
pub fn positive(name: &'static str, value: f64) -> Result<(), Error> {
    let holds = value.is_finite() && value > 0.0;
    ensure(name, holds, "a finite number > 0", value)
}

/// Checks that a number is finite and ≥ 0.
///
/// # Errors
///
/// Returns [`Error::Param`] unless `value` is finite and ≥ 0.
pub fn not_negative(name: &'static str, value: f64) -> Result<(), Error> {
    let holds = value.is_finite() && value >= 0.0;
    ensure(name, holds, "a finite number >= 0", value)
}

/// Checks that a number is > 0 and ≤ 1.
///
/// # Errors
///
/// Returns [`Error::Param`] if `value` is not in this range.
pub fn share(name: &'static str, value: f64) -> Result<(), Error> {
    let holds = value > 0.0 && value <= 1.0;
    ensure(name, holds, "a number > 0 and <= 1", value)
}

/// Checks that a count is ≥ 1.
///
/// # Errors
///
/// Returns [`Error::Param`] if `count` is 0.
pub fn at_least_one(name: &'static str, count: usize) -> Result<(), Error> {
    ensure(name, count >= 1, "an integer >= 1", count)
}

/// Checks that a size has the expected value.
///
/// # Errors
///
/// Returns [`Error::Shape`] if `expected` and `got` differ.
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

/// Checks that Y has as many rows as X, and that the sample weights and the mask of held-out rows have one
/// entry for each row of X.
///
/// # Errors
///
/// Returns [`Error::Shape`] for the first array with another number of rows or entries.
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

/// Defines the struct `Checked`, which holds parameters that have passed their range checks.
///
/// The macro also gives the parameter struct a method `check`, which returns a `Checked`. The method `check`
/// calls the method `ranges` of the parameter struct. The calling module must define `ranges`. `fit` is a
/// method of `Checked`, so no fit can run with unchecked parameters.
#[macro_export]
macro_rules! checked {
    ($params:ident) => {
        /// Parameters that have passed their range checks.
        #[derive(Debug, Clone)]
        pub struct Checked(pub(crate) $params);

        impl $params {
            /// Checks the range of every parameter.
            ///
            /// # Errors
            ///
            /// Returns [`Error::Param`]($crate::Error::Param) for the first parameter that is out of range,
            /// or for two parameters that contradict each other.
            pub fn check(self) -> Result<Checked, $crate::Error> {
                self.ranges()?;
                Ok(Checked(self))
            }
        }
    };
}
