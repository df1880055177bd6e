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
