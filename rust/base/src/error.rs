//! The error type of all crates.
//!
//! Each variant carries what was expected and what was given. The Python boundary therefore chooses an
//! exception class by the variant and does not have to read the text.

use std::path::PathBuf;

/// An error that any crate can return. Bugs are not included: they cause panics.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is out of range.
    #[error("`{name}` must be {expected}, got {got}")]
    Param {
        /// The name of the parameter, as the user spells it.
        name: &'static str,
        /// The condition that the value breaks, worded to follow "must be".
        expected: &'static str,
        /// The given value, as text.
        got: String,
    },
    /// Two sizes that must be equal differ.
    #[error("{what}: expected {expected}, got {got}")]
    Shape {
        /// What has the wrong size, for example "rows of Y".
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
        /// The first row that breaks a rule.
        row: usize,
        /// The broken rule, with the value that breaks it.
        rule: String,
    },
    /// A size that follows from the input exceeds the memory, the range of an index type or a limit of
    /// a file format.
    #[error("{what} is too large: {got}")]
    TooLarge {
        /// What is too large.
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
        /// What the format requires at this place.
        expected: String,
        /// The text at this place, shortened.
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
    #[error("stopped")]
    Stopped,
}
