//! The shared library `manylabel._core` that Python loads.
//!
//! All functions are defined in `manylabel_py`. A shared library is linked in the same step that compiles its
//! own source, so Cargo starts it only when every algorithm crate is finished. A crate without linking starts
//! as soon as the interfaces of the algorithm crates are known. The functions are therefore in a crate of
//! their own, which makes the build about 25 seconds shorter on two cores.

pub use manylabel_py::_core;
