//! Label trees: linear one-vs-rest classifiers for very many labels, which a tree over the labels routes to.
//!
//! One-vs-rest classifiers cost rows × labels in the end: every label looks at every row, in training and in
//! prediction. A tree over the labels says which labels are worth a look. Similar labels are clustered, the
//! clusters are divided again, and so on, until a cluster has few labels: a leaf. Each node v has a linear
//! classifier for each child, or for each label of a leaf. With the margin s of a row, the probability of a
//! child or label is taken as
//!
//! ```text
//! p(s) = exp(−max(0, 1 − s)³)
//! ```
//!
//! and the score of a label is the logarithm of the product of these numbers along the path to it. A beam
//! search keeps a few nodes per level, so the time of a prediction grows with the logarithm of the number of
//! labels. Several trees with different seeds are averaged.
//!
//! Labels are represented by the mean direction of their rows and clustered by balanced spherical 2-means.
//! Levels are trained from the root down. The rows of a node are those that have a label below it, and those
//! that the levels above send to it: the negatives that a prediction will meet. (Prabhu et al.: Parabel, WWW
//! 2018; Yu et al.: PECOS, JMLR 2022, sections 3 and 4, where these negatives are called matcher-aware.) The
//! classifiers are those of `DiSMEC` ([`manylabel_linear::dismec`]), solved over the rows of the node alone.
//!
//! | file | what |
//! |---|---|
//! | `vectors.rs` | label vectors |
//! | `split.rs`, `grow.rs` | clusters of labels, and the trees made of them |
//! | `gather.rs`, `node.rs` | the rows of a node with renumbered columns, and its classifiers |
//! | `fit.rs` | the levels, from the root down |
//! | `held.rs` | held-out rows, from which the threshold is learned |
//! | `arrays.rs`, `model.rs` | weights in chunks, one for each node, with a hash table of features |
//! | `walk.rs`, `predict.rs` | the beam search, and the scores of rows |
//!
//! Every node is computed as if it were alone, in a fixed order, so results do not depend on the number of
//! threads. They do not depend on the numbers of the labels either, except for rounding and ties.
//!
//! *Invariant: nothing of size rows × labels or labels × features is allocated, except the scores that
//! [`Model::decision`](manylabel_score::Model::decision) returns. A prediction clears no array of the length
//! of the features or of the labels.*
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_score::Model;
//! use manylabel_sparse::{CsrOwned, CsrView};
//! use manylabel_tree::{Combine, Params, Scorer};
//!
//! // Four rows, four features, four labels: label j goes with feature j.
//! let eye = CsrView::new("X", &[0i32, 1, 2, 3, 4], &[0, 1, 2, 3], &[1.0f32; 4], 4)?;
//! let params = Params { max_leaf: 2, branching: 2, ..Params::default() };
//! let labels = CsrOwned::from_view(eye, false)?;
//! let model = params.check()?.fit(eye.into(), &labels, None, &Watch::new())?;
//! let scorer = Scorer::new(model.arrays(), 10, Combine::Product, 0.0, true)?;
//! let top = scorer.topk(eye.into(), 1, &Watch::new())?;
//! assert_eq!(top.indices, [0, 1, 2, 3]);
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

mod arrays;
mod fit;
mod gather;
mod grow;
mod held;
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
