//! Reads the parameters of an estimator by name, after `estimator/parameters.py` has checked them.
//!
//! Python passes the parameters in a dict. So a new parameter needs a new field in one struct, but no new
//! function argument.

use manylabel_base::few;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The checked parameters of an estimator, by name.
pub(crate) struct Named<'py>(Bound<'py, PyDict>);

impl<'a, 'py> FromPyObject<'a, 'py> for Named<'py> {
    type Error = PyErr;

    fn extract(params: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        Ok(Self(params.cast::<PyDict>()?.to_owned()))
    }
}

impl<'py> Named<'py> {
    /// Returns the value of a parameter.
    ///
    /// # Errors
    ///
    /// Raises `KeyError` if there is no such parameter. Raises an exception such as `TypeError` if the value
    /// has another type.
    pub(crate) fn get<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<T> {
        self.0
            .as_any()
            .get_item(name)?
            .extract()
            .map_err(Into::into)
    }

    /// Returns the value of a parameter, or None if the value is "auto".
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`get`](Self::get).
    pub(crate) fn unless_auto<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<Option<T>> {
        let value = self.0.as_any().get_item(name)?;
        if value.extract::<&str>().is_ok_and(|word| word == "auto") {
            return Ok(None);
        }
        value.extract().map(Some).map_err(Into::into)
    }

    /// Looks up the string value of a parameter in `values` and returns the item with this name.
    ///
    /// # Errors
    ///
    /// Raises `ValueError` if the string is not in `values`. The message lists the known strings.
    pub(crate) fn choice<T: Copy>(&self, name: &str, values: &[(&str, T)]) -> PyResult<T> {
        let word: String = self.get(name)?;
        let found = values.iter().find(|(known, _)| *known == word);
        found.map(|&(_, value)| value).ok_or_else(|| {
            let known: Vec<_> = few(values.iter().map(|(known, _)| format!("{known:?}")));
            let known = known.join(", ");
            PyValueError::new_err(format!("`{name}` must be one of {known}, got {word:?}"))
        })
    }
}

/// Makes a struct of parameters and checks the ranges of the parameters.
///
/// Each field before the semicolon is read from the parameter with the same name. Each field after the
/// semicolon is given as `field: value`. If the first field is `seed`, it is read from the parameter
/// `random_state`.
macro_rules! from_named {
    ($named:expr, $params:ident { seed, $($field:ident),*; $($others:tt)* }) => {
        $crate::params::from_named!($named, $params {
            $($field),*; seed: $named.get("random_state")?, $($others)*
        })
    };
    ($named:expr, $params:ident { $($field:ident),*; $($others:tt)* }) => {
        $params { $($field: $named.get(stringify!($field))?,)* $($others)* }
            .check()
            .map_err($crate::error::to_py)
    };
}
pub(crate) use from_named;
