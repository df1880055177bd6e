//! Label trees: linear one-vs-rest classifiers that a tree over the labels routes to.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        reason = "tests choose their sizes"
    )
)]

mod arrays;
mod fit;
mod gather;
mod grow;
mod model;
mod node;
mod params;
mod predict;
mod split;
mod vectors;
mod walk;

pub use arrays::Arrays;
pub use model::Model;
pub use params::{Checked, Combine, MOST_OUTPUTS, Params};
pub use predict::Scorer;
