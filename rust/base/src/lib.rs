//! What every other crate leans on: one [`Error`], and the [`Watch`] through which a kernel
//! reports progress and learns that it should stop.
//!
//! No mathematics, no files, no Python.
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

mod alloc;
mod error;
pub mod range;
mod watch;

pub use alloc::filled;
pub use error::Error;
pub use watch::Watch;
