//! DiSMEC.
mod fit;
mod active;
mod exact;
mod params;
mod problem;

pub use fit::Fit;
pub use params::{Checked, Params};
