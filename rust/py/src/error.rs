//! Converts the error type of the library to Python exceptions.
//!
//! | [`Error`] | Exception |
//! |---|---|
//! | `Param`, `Shape`, `Csr`, `Parse` | `ValueError` |
//! | `TooLarge` | `MemoryError` |
//! | `Io` | `OSError`, or its subclass for the errno |
//! | `Stopped` | `KeyboardInterrupt` |
//! | any other | `RuntimeError` |

use manylabel_base::Error;
use pyo3::PyErr;
use pyo3::exceptions::{
    PyKeyboardInterrupt, PyMemoryError, PyOSError, PyRuntimeError, PyValueError,
};

/// Returns the Python exception for `error`, with the same text.
pub(crate) fn to_py(error: Error) -> PyErr {
    match error {
        Error::Param { .. } | Error::Shape { .. } | Error::Csr { .. } | Error::Parse { .. } => {
            PyValueError::new_err(error.to_string())
        }
        Error::TooLarge { .. } => PyMemoryError::new_err(error.to_string()),
        // The exception gets errno and path, so that Python chooses a subclass such as
        // FileNotFoundError.
        Error::Io {
            ref path,
            ref source,
        } => match source.raw_os_error() {
            Some(errno) => {
                PyOSError::new_err((errno, source.to_string(), path.display().to_string()))
            }
            None => PyOSError::new_err(error.to_string()),
        },
        Error::Stopped => PyKeyboardInterrupt::new_err(()),
        other => PyRuntimeError::new_err(other.to_string()),
    }
}
