//! Gradient-boosted multi-label rules with gradient-based label binning.

mod binning;
mod columns;
mod fit;
mod head;
mod lanes;
mod loss;
mod model;
mod params;
mod refine;
mod statistics;

pub use model::{Model, Operator};
pub use params::{Binning, Checked, Head, Hessian, Loss, Params, Search, Step};
