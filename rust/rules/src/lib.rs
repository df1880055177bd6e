//! Gradient-boosted multi-label rules with gradient-based label binning.

mod model;
mod params;

pub use model::{Model, Operator};
pub use params::{Binning, Checked, Head, Hessian, Loss, Params, Search, Step};
