//! Gradient-boosted multi-label rules with gradient-based label binning.

mod binning;
mod columns;
mod cover;
mod fit;
mod head;
mod known;
mod lanes;
mod loss;
mod model;
mod params;
mod predict;
mod refine;
mod statistics;

pub use known::LabelSets;
pub use model::{Model, Operator, Rules};
pub use params::{Binning, Checked, Head, Hessian, Loss, Params, Search, Step};
pub use predict::{ROWS_AT_ONCE, Scorer};
