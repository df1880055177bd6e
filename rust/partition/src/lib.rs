//! Blocks of rows and labels for extreme multi-label classification.
//!
//! Rows fall into clusters `X_1..X_q`, each with a set `L_l` of labels that may overlap others'.
//! With the label matrix `Y` and a weight `lam` on squared set sizes, [`Params`] minimizes
//!
//! ```text
//! f = −Σ_l Σ_{i∈X_l} Σ_{j∈L_l} y_ij + lam Σ_l |L_l|²
//! ```
//!
//! from a k-means clustering of the rows of X, choosing label sets and clusters in turn
//! (Liang, Hsieh, Lee: Block-wise Partitioning for Extreme Multi-label Classification, §3,
//! algorithms 1 and 2). [`Router`] then learns to find a row's block from its features, and
//! [`KMeans`] clusters rows for methods that stop there. [`BlockModel`] scores rows by the models of
//! the blocks that they are sent to.
//!
//! Invariant: what comes out of a fit are indices and linear weights; nothing here trains what goes
//! inside a block. Clusters and sums do not depend on the number of threads.
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_partition::Params;
//! use manylabel_sparse::{CsrOwned, CsrView};
//!
//! // Four rows of two kinds: features 0 and labels 0, 1; features 1 and label 2.
//! let x = CsrView::new("X", &[0i32, 1, 2, 3, 4], &[0, 0, 1, 1], &[1.0f32; 4], 2)?;
//! let y = CsrView::new("Y", &[0i32, 2, 4, 5, 6], &[0, 1, 0, 1, 2, 2], &[1.0f32; 6], 3)?;
//! let params = Params { n_blocks: Some(2), lam: 0.5, ..Params::default() };
//! let found = params.check()?.fit(x, &CsrOwned::from_view(y, false)?, &Watch::new())?;
//! assert_eq!(found.row_blocks[0], found.row_blocks[1]);
//! assert_ne!(found.row_blocks[0], found.row_blocks[2]);
//! assert_eq!(found.captured, 6);
//! # Ok::<(), manylabel_base::Error>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        reason = "tests choose their sizes"
    )
)]

mod alternate;
mod block;
mod centers;
mod each;
mod fit;
mod kmeans;
mod members;
mod merge;
mod params;
mod part;
mod router;
mod routing;
mod rows;
mod turned;

pub use alternate::{LabelSets, label_step, row_step};
pub use block::{Block, BlockModel, Inner, Link, Named};
pub use fit::Partition;
pub use kmeans::{Clustering, KMeans, Until};
pub use merge::{Answer, ROWS_AT_ONCE, merge};
pub use params::{Checked, Params};
pub use part::{ByLabel, Part, Parts};
pub use router::{Router, Routes};
pub use routing::Routing;
pub use turned::Turned;
