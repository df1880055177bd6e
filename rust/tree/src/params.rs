//! Parameters of label trees and their ranges.

use manylabel_base::range::{at_least_one, ensure};
use manylabel_base::{Error, checked};
use manylabel_linear::dismec;

/// The largest number of outputs of a node: children, or labels of a leaf.
pub const MOST_OUTPUTS: usize = u16::MAX as usize;

/// How the margins along the path to a label become its score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// The logarithm of the product of the probabilities of all nodes on the path and of the label.
    Product,
    /// The margin of the label alone. The path only decides which labels are scored.
    Leaf,
}

/// Parameters as the user gave them; [`check`](Self::check) makes them usable.
#[derive(Debug, Clone)]
pub struct Params {
    /// The parameters of the linear classifiers at the nodes; `learn_cut` and `seed` apply to the whole
    /// model.
    pub linear: dismec::Params,
    /// `n_trees`: number of trees, whose probabilities are averaged; ≥ 1.
    pub n_trees: usize,
    /// `branching`: the maximum number of children of a node; from 2 to [`MOST_OUTPUTS`].
    pub branching: usize,
    /// `max_leaf`: the maximum number of labels in a leaf; from 1 to [`MOST_OUTPUTS`].
    pub max_leaf: usize,
    /// `beam`: the number of nodes in each level that a row is sent to; ≥ 1.
    pub beam: usize,
    /// Whether all leaves have the same number of labels, up to 1.
    pub balanced: bool,
    /// How the margins along the path to a label become its score.
    pub combine: Combine,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            linear: dismec::Params::default(),
            n_trees: 1,
            branching: 16,
            max_leaf: 100,
            beam: 10,
            balanced: true,
            combine: Combine::Product,
        }
    }
}

checked!(Params);

impl Params {
    /// Checks the range of each parameter.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] for the first one out of range.
    fn ranges(&self) -> Result<(), Error> {
        self.linear.clone().check()?;
        at_least_one("n_trees", self.n_trees)?;
        let holds = (2..=MOST_OUTPUTS).contains(&self.branching);
        ensure(
            "branching",
            holds,
            "an integer from 2 to 65535",
            self.branching,
        )?;
        let holds = (1..=MOST_OUTPUTS).contains(&self.max_leaf);
        ensure(
            "max_leaf",
            holds,
            "an integer from 1 to 65535",
            self.max_leaf,
        )?;
        at_least_one("beam", self.beam)
    }
}
