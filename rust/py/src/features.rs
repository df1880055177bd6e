//! X as `estimator/validation.py` lets it through: sparse or dense, of either precision.

use crate::csr::{PyCsr, Unchecked};
use crate::error::to_py;
use manylabel_base::Error;
use manylabel_score::Features;
use manylabel_sparse::DenseView;
use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// A matrix of features; no element is copied.
#[derive(FromPyObject)]
pub(crate) enum PyFeatures<'py> {
    Dense32(PyReadonlyArray2<'py, f32>),
    Dense64(PyReadonlyArray2<'py, f64>),
    Sparse(PyCsr<'py>),
}

/// The features, their structure yet to be checked behind the door.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    Dense32(DenseView<'a, f32>),
    Dense64(DenseView<'a, f64>),
    Sparse(Unchecked<'a>),
}

impl PyFeatures<'_> {
    /// The arrays as they are.
    pub(crate) fn given(&self) -> PyResult<Given<'_>> {
        Ok(match self {
            Self::Dense32(x) => Given::Dense32(DenseView::new(&x.as_array()).map_err(to_py)?),
            Self::Dense64(x) => Given::Dense64(DenseView::new(&x.as_array()).map_err(to_py)?),
            Self::Sparse(x) => Given::Sparse(x.unchecked("X")?),
        })
    }

    /// Number of rows and features.
    pub(crate) fn shape(&self) -> (usize, usize) {
        match self {
            Self::Dense32(x) => (x.shape()[0], x.shape()[1]),
            Self::Dense64(x) => (x.shape()[0], x.shape()[1]),
            Self::Sparse(x) => x.shape(),
        }
    }
}

impl<'a> Given<'a> {
    /// The checked features.
    pub(crate) fn features(self) -> Result<Features<'a>, Error> {
        Ok(match self {
            Self::Dense32(x) => x.into(),
            Self::Dense64(x) => x.into(),
            Self::Sparse(x) => Features::Sparse(x.sparse()?),
        })
    }
}
