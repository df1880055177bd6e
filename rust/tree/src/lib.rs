//! Fits label trees: linear classifiers for very many labels, arranged in trees over the labels.
//!
//! One-vs-rest classifiers take O(rows × labels) time, because every label is compared with every row, in
//! the fit and in predictions. A label tree selects a few labels for each row, and only these labels are
//! scored. The root of a tree has all labels. They are divided into clusters of similar labels, one cluster
//! for each child of the root. The clusters are divided again, until a node has few labels. Such a node is a
//! leaf.
//!
//! Each inner node has a linear classifier for each child, and each leaf has one for each of its labels. If
//! the classifier gives a row the margin s, the probability of the child or label is
//!
//! ```text
//! p(s) = exp(−max(0, 1 − s)³)     squared hinge loss
//! p(s) = 1 / (1 + exp(−s))        logistic loss
//! ```
//!
//! The probability of a leaf is the product of these probabilities along the path from the root to the leaf.
//! The score of a label is the logarithm of its own probability times a power of the probability of its leaf.
//! This exponent, the exponent of the path, is learned. A beam search keeps the best nodes of each level. So the
//! time of a prediction grows with the logarithm of the number of labels. A model can have several trees with
//! different seeds. It averages the probabilities of its trees.
//!
//! The vector of a label is the sum of its rows, scaled to unit length. A caller can pass other vectors. Labels
//! are clustered by spherical 2-means of these vectors. The classifiers are fitted level by level, from the root
//! down. By default, two kinds of rows are used at a node: the rows that have a label below the node, and the
//! rows that the levels above send to the node. So the negative rows of a node are the rows that a prediction
//! would send there, and rows that almost reach it. (Prabhu et al.: Parabel, WWW 2018; Yu et al.: PECOS, JMLR
//! 2022, sections 3 and 4. PECOS calls these negatives matcher-aware.) The classifiers are fitted by the solvers
//! of `DiSMEC` ([`manylabel_linear::dismec`]), over the rows of the node only.
//!
//! | file | content |
//! |---|---|
//! | `vectors.rs` | the vectors of the labels |
//! | `split.rs`, `grow.rs` | clusters of labels, and the trees that consist of these clusters |
//! | `gather.rs`, `node.rs` | copies of the rows of a node with renumbered columns, and the fit of a node |
//! | `fit.rs` | the fit of all levels, from the root down |
//! | `carry.rs` | the states of labels that one tree passes on to the next |
//! | `task.rs` | the fit of a range of nodes, and the steps from one level to the next |
//! | `add.rs` | adds labels to a fitted model |
//! | `held.rs` | held-out rows, from which the exponent of the path and the threshold are learned |
//! | `arrays.rs`, `model.rs` | the fitted weights: a chunk for each node, with a hash table of features |
//! | `complete.rs` | products with the weights of nodes that have all weights |
//! | `weights.rs` | weights as 16-bit floats or 8-bit integers |
//! | `walk.rs`, `predict.rs` | the beam search, and the scores of rows |
//! | `probability.rs` | the probabilities of nodes and labels |
//! | `merge.rs` | merges the labels that a row reached in several trees |
//!
//! The computation for a node depends on no other node of the same level, and its order is fixed. So results
//! do not depend on the number of threads. Except for rounding and ties, they do not depend on the order of
//! the labels either.
//!
//! *Invariant: no array of size rows × labels or labels × features is allocated. There are three exceptions: the scores that
//! [`Model::decision`](manylabel_score::Model::decision) returns, the weights of a model if most of them are not 0, and the
//! vectors of labels if X is dense. A prediction clears no array with an entry for each feature or each label.*
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_score::Model;
//! use manylabel_sparse::{CsrOwned, CsrView, Rows};
//! use manylabel_tree::{Params, Scaling, Scorer};
//!
//! // Four rows, four features and four labels. Row j has feature j and label j.
//! let eye = CsrView::new("X", &[0i32, 1, 2, 3, 4], &[0, 1, 2, 3], &[1.0f32; 4], 4)?;
//! let params = Params { max_leaf: 2, branching: 2, ..Params::default() };
//! let labels = CsrOwned::from_view(eye, false)?;
//! let rows = Rows::copied(eye.into(), true)?;
//! let model = params.check()?.fit(rows, &labels, None, None, &Watch::new())?;
//! let scorer = Scorer::new(model.arrays(), 10, model.combine, 0.0, Scaling::Rows)?;
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

mod add;
mod arrays;
mod carry;
mod complete;
mod fit;
mod gather;
mod grow;
mod held;
mod merge;
mod model;
mod node;
mod params;
mod predict;
mod probability;
mod split;
mod task;
mod vectors;
mod walk;
mod weights;

pub use arrays::Arrays;
pub use carry::States;
pub use model::Model;
pub use params::{Checked, Combine, MOST_OUTPUTS, Negatives, Params, Precision};
pub use predict::{Scaling, Scorer};
pub use probability::Link;
pub use task::{Piece, Task, TreeArrays, Trees, joined};
pub use weights::{Weights, WeightsOwned};
