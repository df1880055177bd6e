//! Defines the extension module `manylabel._core`. This is the only crate that uses pyo3 and numpy.
//!
//! The crate of each algorithm has a file here. The functions in this file borrow numpy arrays as views and
//! call the algorithm through `run.rs`. They return the result as numpy arrays without a copy. The
//! algorithms themselves are in the other crates.
//!
//! # How a call works
//!
//! A function that fits a model takes three kinds of arguments. They are the data, the parameters by name
//! (`params.rs`), and the number of threads with a progress callback (`Job` in `run.rs`). Sparse matrices
//! are borrowed by scipy's attribute names (`csr.rs`), and dense matrices are borrowed as numpy arrays
//! (`features.rs`). The structure of a matrix is checked after the GIL is released, because the check takes
//! time. A fit returns a tuple, and its documentation lists the items in order. The Python estimator stores
//! the items as attributes.
//!
//! Predictions use a `Scorer` (`scorer.rs`). A scorer is made once from the attributes of a fitted estimator
//! and borrows the arrays in these attributes (`held.rs`).
//!
//! # Errors
//!
//! `error.rs` converts the error type of the library to Python exceptions. A panic in Rust code raises
//! `RuntimeError`. A lack of memory raises `MemoryError` (`reserve.rs`).
//!
//! # Where types are checked
//!
//! Python checks types, finite values and shapes (`estimator/validation.py`). The crates of the algorithms
//! check the ranges of parameters. `CsrView` checks the structure of sparse matrices. This crate never
//! converts an array: an array with an unexpected type or layout is an error.
#![allow(
    clippy::needless_pass_by_value,
    reason = "pyo3 hands arguments over by value"
)]

mod arrays;
mod budget;
mod correlated;
mod correlated_rounds;
mod csr;
mod datasets;
mod decision;
mod error;
mod features;
mod held;
mod leml;
mod linear;
mod link;
mod mapped;
mod params;
mod partition;
mod pdsparse;
mod persistence;
mod pieces;
mod pls;
mod pls_pieces;
mod reserve;
mod rules;
mod run;
mod scorer;
#[cfg(target_os = "linux")]
mod spill;
#[cfg(not(target_os = "linux"))]
#[path = "no_spill.rs"]
mod spill;
mod table;
mod tree;
mod tree_pieces;

use pyo3::prelude::*;

/// The contents of the Python module. `_core.pyi` declares them for type checkers and must list the
/// same names.
#[pymodule(gil_used = false)]
pub mod _core {
    #[pymodule_export]
    use crate::budget::{
        close_spill, memory_held, open_spill, private_memory, restart_memory_peak, set_memory_limit,
    };
    #[pymodule_export]
    use crate::correlated::{check_correlated, correlated_scorer, fit_correlated};
    #[pymodule_export]
    use crate::correlated_rounds::CorrelatedTask;
    #[pymodule_export]
    use crate::csr::is_canonical;
    #[pymodule_export]
    use crate::datasets::{parse_xc, read_arff, read_xc, write_xc};
    #[pymodule_export]
    use crate::decision::{calibrated, coherent, expected_f1_sets, fit_calibration};
    #[pymodule_export]
    use crate::leml::{fit_leml, low_rank_scorer};
    #[pymodule_export]
    use crate::linear::{fit_dismec, linear_scorer, scale_columns, standardize_columns};
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
    use crate::pieces::{DismecTask, dismec_cut, scale_rows, transpose_rows};
    #[pymodule_export]
    use crate::pls::{fit_pls, pls_n_components, pls_project};
    #[pymodule_export]
    use crate::pls_pieces::PlsTask;
    #[pymodule_export]
    use crate::rules::{fit_rules, rules_add, rules_fired, rules_scorer};
    #[pymodule_export]
    use crate::scorer::Scorer;
    #[pymodule_export]
    use crate::table::{DismecDenseTask, column_scaling, dense_linear_scorer};
    #[pymodule_export]
    use crate::tree::{fit_tree, tree_add_labels, tree_scorer};
    #[pymodule_export]
    use crate::tree_pieces::{TreeTask, join_tree};
}
