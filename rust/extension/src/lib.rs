//! The shared library `manylabel._core` that Python loads. All its functions are in `manylabel_py`.
//!
//! Cargo links a shared library in the same step that compiles its source, and starts this step only when all
//! dependencies are finished. A library crate is not linked. Cargo compiles it as soon as the interfaces of its
//! dependencies are known, at the same time as the dependencies. The functions are therefore in a crate of their
//! own.

pub use manylabel_py::_core;
