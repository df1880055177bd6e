//! Basic types and functions that all other crates use.
//!
//! - [`Error`] is the error type of all crates.
//! - [`Watch`] counts the progress of a computation and can stop the computation.
//! - [`filled`] and similar functions allocate memory and return an error if memory is short.
//! - [`parts`] and [`Tasks`] run parallel tasks that can fail.
//! - [`budget`] compares the memory of the process with a limit.
//! - [`range`] checks the ranges of parameters.
//!
//! The crate contains no mathematics, no file access and no Python code.
//!
//! ```
//! use manylabel_base::{Error, Watch};
//!
//! let watch = Watch::new();
//! assert!(watch.step(10).is_ok());
//! watch.stop();
//! assert!(matches!(watch.step(1), Err(Error::Stopped)));
//! assert_eq!(watch.done(), 11);
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        reason = "tests choose their sizes"
    )
)]

mod alloc;
pub mod budget;
mod error;
pub mod range;
pub mod streams;
mod tasks;
mod watch;

pub use alloc::{
    collected, copied, extend, few, filled, is_low, push, ran_low, recovered, reserved,
};
pub use error::Error;
pub use tasks::{Spare, Tasks, parts, parts_with};
pub use watch::Watch;
