//! Fit.
mod decode;
mod descent;
mod design;
mod fit;
mod gradient;
mod model;
mod params;
mod predict;
mod reference;
mod wide;
pub use model::{LabelSets, Matrix, Model, Start};
pub use params::{Checked, Coding, Params, Solver};
pub use decode::{Method, MOST_EXACT};
pub use predict::{ROWS_AT_ONCE, Scorer};
