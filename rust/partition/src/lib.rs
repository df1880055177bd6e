//! Divides rows and labels into blocks, for extreme multi-label classification.
//!
//! The training data are divided into q blocks. Each block has a cluster `X_l` of rows and a set
//! `L_l` of labels. The clusters are disjoint, but label sets may overlap. Then one base model is
//! trained for each block, only with the rows and labels of the block. To predict a new row, the
//! row is sent to a block, and only the labels of this block are scored.
//!
//! # Objective
//!
//! With the label matrix Y and a weight `lam` on squared set sizes, [`Params`] minimizes
//!
//! ```text
//! f = −Σ_l Σ_{i∈X_l} Σ_{j∈L_l} y_ij + lam Σ_l |L_l|²
//! ```
//!
//! The first term counts the captured labels. A label of a row is captured if it is in the label
//! set of the row's block. The second term penalizes large label sets, which make prediction
//! expensive. The start is a k-means clustering of the rows of X. Then a label step and a row step
//! alternate. The label step finds the best label sets for the current blocks of rows. The row step
//! finds the best block of each row for the current label sets. The method comes from Liang, Hsieh
//! and Lee, "Block-wise Partitioning for Extreme Multi-label Classification", §3, algorithms 1 and
//! 2.
//!
//! # Parts
//!
//! - [`Params`] and [`Partition`]: the partition, and the search for a number of blocks.
//! - [`label_step`] and [`row_step`]: the two steps that alternate, as separate functions.
//! - [`KMeans`]: clusters of rows without label sets.
//! - [`Router`]: linear classifiers that find the block of a new row from its features.
//! - [`Routing`]: the rule that determines how many blocks a row is sent to.
//! - [`BlockModel`]: a model that scores rows with the models of their blocks.
//! - [`merge()`]: combines the scores of several blocks.
//!
//! # Guarantees
//!
//! A fit returns only indices and linear weights. This crate trains no base models. Results depend
//! only on the data, the parameters and the seed. They are exactly the same for any number of
//! threads.
//!
//! # Example
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_partition::Params;
//! use manylabel_sparse::{CsrOwned, CsrView, Rows};
//!
//! // Four rows of two kinds. Rows of the first kind have feature 0 and the labels 0 and 1.
//! // Rows of the second kind have feature 1 and label 2.
//! let x = CsrView::new("X", &[0i32, 1, 2, 3, 4], &[0, 0, 1, 1], &[1.0f32; 4], 2)?;
//! let y = CsrView::new("Y", &[0i32, 2, 4, 5, 6], &[0, 1, 0, 1, 2, 2], &[1.0f32; 6], 3)?;
//! let params = Params { n_blocks: Some(2), lam: 0.5, ..Params::default() };
//! let x = Rows::copied(x.into(), true)?;
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
