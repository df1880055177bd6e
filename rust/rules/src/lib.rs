//! Gradient-boosted multi-label rules with gradient-based label binning.

mod cover;
mod fit;
mod known;
mod model;
mod params;
mod predict;

pub use known::LabelSets;
pub use model::{Model, Operator, Rules};
pub use params::{Binning, Checked, Head, Hessian, Loss, Params, Search, Step};
pub use predict::{ROWS_AT_ONCE, Scorer};
