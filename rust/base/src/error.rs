//! The one error of all crates. Each variant carries what was wanted and what came, so that the
//! Python boundary can choose an exception class without reading text.

use std::path::PathBuf;

/// Everything that can go wrong outside of a bug.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is out of its range. `name` is spelled as the user typed it.
    #[error("`{name}` must be {expected}, got {got}")]
    Param {
        /// The parameter as the user typed it.
        name: &'static str,
        /// The rule it breaks, worded to follow "must be".
        expected: &'static str,
        /// The value that came.
        got: String,
    },
    /// Two sizes that must agree do not.
    #[error("{what}: expected {expected}, got {got}")]
    Shape {
        /// Whose size, for example "rows of Y".
        what: &'static str,
        /// The size wanted.
        expected: usize,
        /// The size that came.
        got: usize,
    },
    /// A compressed sparse row matrix breaks a rule of its structure.
    #[error("{matrix} is not a valid CSR matrix: {rule} (row {row})")]
    Csr {
        /// Which argument.
        matrix: &'static str,
        /// The first row at fault.
        row: usize,
        /// The rule, with the offending value.
        rule: String,
    },
    /// A size computed from the input does not fit the machine or the file format.
    #[error("{what} is too large: {got}")]
    TooLarge {
        /// Which size.
        what: &'static str,
        /// How it came about, for example "3000000000 x 5000 cells".
        got: String,
    },
    /// A text file is malformed.
    #[error("{}, line {line}: expected {expected}, got {got}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// 1-based line.
        line: usize,
        /// What the grammar asks for here.
        expected: String,
        /// What stands there, shortened.
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
