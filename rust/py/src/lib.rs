//! The extension module `manylabel._core`: the only crate that names pyo3 or numpy.
//!
//! One file per algorithm crate turns arrays into views, calls the kernel through [`run`], and
//! hands the result to numpy without a copy. No arithmetic happens here.

mod csr;
mod datasets;
mod error;
mod run;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _core {
    #[pymodule_export]
    use crate::datasets::{read_arff, read_xc, write_xc};
}
