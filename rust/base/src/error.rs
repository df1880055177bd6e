//! Defines the error type of all crates.
//!
//! Each variant has fields that describe the problem. The Python bindings choose the exception class by the
//! variant and do not read the text of the error.

use std::path::PathBuf;

/// An error that any crate can return. Bugs cause panics instead.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is out of range.
    #[error("`{name}` must be {expected}, got {got}")]
    Param {
        /// The name of the parameter in Python.
        name: &'static str,
        /// The required condition. In the error message, this text follows "must be".
        expected: &'static str,
        /// The given value, as text.
        got: String,
    },
    /// A size differs from the required size.
    #[error("{what}: expected {expected}, got {got}")]
    Shape {
        /// The name of the wrong size, for example "rows of Y".
        what: &'static str,
        /// The expected size.
        expected: usize,
        /// The given size.
        got: usize,
    },
    /// A matrix in compressed sparse row (CSR) form has an invalid structure.
    #[error("{matrix} is not a valid CSR matrix: {rule} (row {row})")]
    Csr {
        /// The name of the argument that holds the matrix.
        matrix: &'static str,
        /// The number of the first invalid row, counted from 0.
        row: usize,
        /// A description of the problem, with the invalid value.
        rule: String,
    },
    /// A size exceeds the memory, the range of an index type or a limit of a file format.
    #[error("{what} is too large: {got}")]
    TooLarge {
        /// The name of the size or the array that is too large.
        what: &'static str,
        /// The size, for example "3000000000 x 5000 cells".
        got: String,
    },
    /// A text file is malformed.
    #[error("{}, line {line}: expected {expected}, got {got}", path.display())]
    Parse {
        /// The path of the file.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
        /// The text that the format requires at this place.
        expected: String,
        /// The text that was found at this place, shortened.
        got: String,
    },
    /// The operating system refused to read or write a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The caller requested a stop with [`Watch::stop`](crate::Watch::stop).
    #[error("the caller stopped the computation")]
    Stopped,
}
