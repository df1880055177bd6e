//! The extension module `manylabel._core`: the only crate that names pyo3 or numpy.
//!
//! One file per algorithm crate turns arrays into views, calls the kernel through [`run`], and
//! hands the result to numpy without a copy. No arithmetic happens here.
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

#[pymodule(gil_used = false)]
mod _core {
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
