//! One-vs-rest linear classifiers for many labels.
mod dismec;
mod panel;

pub use dismec::{Checked, Fit, Params};
