//! The error type of all crates. Each variant carries what was expected and what was given, so the Python
//! boundary chooses an exception class by variant, without reading text.

use std::path::PathBuf;

/// Everything that can go wrong outside of a bug.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is out of range.
    #[error("`{name}` must be {expected}, got {got}")]
    Param {
        /// The parameter's name as the user spells it.
        name: &'static str,
        /// The rule it breaks, worded to follow "must be".
        expected: &'static str,
        /// The value given.
        got: String,
    },
    /// Two sizes that must agree do not.
    #[error("{what}: expected {expected}, got {got}")]
    Shape {
        /// What has this size, for example "rows of Y".
        what: &'static str,
        /// The expected size.
        expected: usize,
        /// The size given.
        got: usize,
    },
    /// A compressed sparse row matrix breaks a rule of its structure.
    #[error("{matrix} is not a valid CSR matrix: {rule} (row {row})")]
    Csr {
        /// The name of the argument.
        matrix: &'static str,
        /// The first row at fault.
        row: usize,
        /// What is wrong, with the offending value.
        rule: String,
    },
    /// A size that follows from the input exceeds memory, or a limit of an index type or file format.
    #[error("{what} is too large: {got}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size, for example "3000000000 x 5000 cells".
        got: String,
    },
    /// A text file is malformed.
    #[error("{}, line {line}: expected {expected}, got {got}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// 1-based line.
        line: usize,
        /// What the format requires here.
        expected: String,
        /// The text found, shortened.
        got: String,
    },
    /// The operating system refused to read or write a file.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's own error.
        source: std::io::Error,
    },
    /// The caller asked to stop through [`Watch::stop`](crate::Watch::stop).
    #[error("stopped")]
    Stopped,
}
