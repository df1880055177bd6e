//! The extension module `manylabel._core`: the only crate that uses pyo3 and numpy.
//!
//! Each algorithm crate has a file here. It turns arrays into views, calls the kernel through
//! [`run`](mod@run), and hands the result to numpy without a copy. No algorithm lives here.
//!
//! # The way of a call
//!
//! A fit takes its data, its parameters by name ([`params`]) and how it runs ([`run::Job`]). Sparse matrices
//! are borrowed by scipy's attribute names ([`csr`]), dense ones as numpy arrays ([`features`]). The
//! structure of a matrix is checked once the interpreter is released, since that takes time. A fit returns a
//! tuple in the order that its documentation lists; the Python estimator turns it into attributes.
//!
//! Prediction goes through a [`scorer::Scorer`], which is made once from the attributes of a fitted estimator
//! and borrows their arrays ([`held`]).
//!
//! # Errors
//!
//! [`error`] maps the library's one error type to Python exceptions. A kernel that panics raises
//! `RuntimeError`; memory that runs out raises `MemoryError` ([`reserve`]).
//!
//! # Where types are checked
//!
//! Python checks types, finite values and shapes (`estimator/validation.py`), algorithm crates check the
//! ranges of parameters, and `CsrView` checks the structure of sparse matrices. An array of another type or
//! layout than this crate expects is an error; it is not converted.
#![allow(
    clippy::needless_pass_by_value,
    reason = "pyo3 hands arguments over by value"
)]

mod arrays;
mod correlated;
mod csr;
mod datasets;
mod error;
mod features;
mod held;
mod leml;
mod linear;
mod link;
mod params;
mod partition;
mod pdsparse;
mod persistence;
mod pls;
mod reserve;
mod rules;
mod run;
mod scorer;

use pyo3::prelude::*;

/// What Python imports. `_core.pyi` declares it for type checkers, and must list the same names.
#[pymodule(gil_used = false)]
pub mod _core {
    #[pymodule_export]
    use crate::correlated::{check_correlated, correlated_scorer, fit_correlated};
    #[pymodule_export]
    use crate::csr::is_canonical;
    #[pymodule_export]
    use crate::datasets::{read_arff, read_xc, write_xc};
    #[pymodule_export]
    use crate::leml::{fit_leml, low_rank_scorer};
    #[pymodule_export]
    use crate::linear::{fit_dismec, linear_scorer, standardize_columns};
    #[pymodule_export]
    use crate::link::{check_link, fit_link, link_scorer};
    #[pymodule_export]
    use crate::partition::{
        block_scorer, fit_kmeans, fit_partition, fit_router, merge_blocks, partition_labels, route,
        topk_of_rows,
    };
    #[pymodule_export]
    use crate::pdsparse::fit_pdsparse;
    #[pymodule_export]
    use crate::persistence::crc32;
    #[pymodule_export]
    use crate::pls::{fit_pls, pls_n_components, pls_project};
    #[pymodule_export]
    use crate::rules::{fit_rules, rules_add, rules_fired, rules_scorer};
    #[pymodule_export]
    use crate::scorer::Scorer;
}
