//! A fitted model as flat arrays, which scoring borrows.
//!
//! Every node with outputs (children, or labels of a leaf) has one *chunk* of weights: a sparse matrix with a
//! row for each feature that any output uses. All chunks lie one after the other in a few arrays, in the
//! order in which scoring reads them, so a mapped model file needs no preparation.
//!
//! The features of a chunk are stored by buckets of a hash table. A feature is found by reading the ends of
//! its bucket and comparing with the one or two features there, instead of a search in the whole chunk.

use manylabel_base::Error;
use manylabel_base::range::{ensure, same};
use std::ops::Range;

/// The arrays of a fitted model. [`check`](Self::check) says what holds for them.
#[derive(Debug, Clone, Copy)]
pub struct Arrays<'a> {
    /// Number of features.
    pub n_features: usize,
    /// Number of labels, those in no leaf included.
    pub n_labels: usize,
    /// Node v has the children `children[v]..children[v + 1]`; the first entry is the number of trees.
    pub children: &'a [i64],
    /// Node v has the labels `labels[label_ends[v]..label_ends[v + 1]]`; none unless it is a leaf.
    pub label_ends: &'a [i64],
    /// The labels of all leaves.
    pub labels: &'a [i32],
    /// The intercept of each node; 0 for roots.
    pub node_intercept: &'a [f32],
    /// The intercept of each entry of `labels`.
    pub label_intercept: &'a [f32],
    /// Node v has the hash table `buckets[bucket_ends[v]..bucket_ends[v + 1]]`.
    pub bucket_ends: &'a [i64],
    /// The ends of the buckets of each chunk, the first one 0.
    pub buckets: &'a [u32],
    /// Node v has the features `features[feature_ends[v]..feature_ends[v + 1]]`.
    pub feature_ends: &'a [i64],
    /// The features of each chunk, bucket after bucket.
    pub features: &'a [u32],
    /// The end of each feature's weights within its chunk.
    pub row_ends: &'a [u32],
    /// Node v has the weights `weights[weight_ends[v]..weight_ends[v + 1]]`.
    pub weight_ends: &'a [i64],
    /// The output of each weight: the position of the child or label in its node.
    pub outputs: &'a [u16],
    /// The weights.
    pub weights: &'a [f32],
}

/// The weights of one node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk<'a> {
    buckets: &'a [u32],
    features: &'a [u32],
    row_ends: &'a [u32],
    outputs: &'a [u16],
    weights: &'a [f32],
    /// 64 minus the logarithm of the number of buckets.
    shift: u32,
}

/// The bucket of a feature in a chunk with `2^(64 − shift)` buckets: Knuth's multiplicative hash.
#[inline(always)]
pub(crate) fn bucket(feature: u32, shift: u32) -> usize {
    // The shift is at most 64, for one bucket.
    (u64::from(feature.wrapping_mul(0x9E37_79B1)) << 32)
        .checked_shr(shift)
        .unwrap_or(0) as usize
}

/// The shift of [`bucket`] for a power of two.
#[inline(always)]
pub(crate) fn shift_of(n_buckets: usize) -> u32 {
    64 - n_buckets.trailing_zeros()
}

impl Chunk<'_> {
    /// Adds the margins of a row to `out`, which has a number for each output. Features are added in order.
    #[inline]
    pub(crate) fn add_row(&self, cols: &[u32], values: &[f32], out: &mut [f32]) {
        for (&col, &value) in cols.iter().zip(values) {
            let at = bucket(col, self.shift);
            for row in self.buckets[at] as usize..self.buckets[at + 1] as usize {
                if self.features[row] == col {
                    let begin = row.checked_sub(1).map_or(0, |row| self.row_ends[row]);
                    let range = begin as usize..self.row_ends[row] as usize;
                    let weights = &self.weights[range.clone()];
                    for (&output, &weight) in self.outputs[range].iter().zip(weights) {
                        out[usize::from(output)] += value * weight;
                    }
                    break;
                }
            }
        }
    }
}

/// The range of a node in one of the arrays of ends.
#[inline(always)]
fn range(ends: &[i64], node: usize) -> Range<usize> {
    ends[node] as usize..ends[node + 1] as usize
}

impl<'a> Arrays<'a> {
    /// Number of trees, whose roots are the first nodes.
    pub fn n_trees(&self) -> usize {
        self.children.first().map_or(0, |&first| first as usize)
    }

    /// Number of nodes.
    pub fn n_nodes(&self) -> usize {
        self.children.len().saturating_sub(1)
    }

    /// The children of a node.
    #[inline(always)]
    pub(crate) fn children(&self, node: usize) -> Range<usize> {
        range(self.children, node)
    }

    /// The labels of a node, as positions of `labels`.
    #[inline(always)]
    pub(crate) fn labels(&self, node: usize) -> Range<usize> {
        range(self.label_ends, node)
    }

    /// The weights of a node.
    ///
    /// # Panics
    ///
    /// If the arrays have not passed [`check`](Self::check).
    #[inline]
    pub(crate) fn chunk(&self, node: usize) -> Chunk<'a> {
        let buckets = &self.buckets[range(self.bucket_ends, node)];
        let features = range(self.feature_ends, node);
        let weights = range(self.weight_ends, node);
        Chunk {
            buckets,
            features: &self.features[features.clone()],
            row_ends: &self.row_ends[features],
            outputs: &self.outputs[weights.clone()],
            weights: &self.weights[weights],
            shift: shift_of(buckets.len() - 1),
        }
    }

    /// Checks that the arrays make a model: that children come after their parents and only leaves have
    /// labels, that a tree has each label at most once, that ends rise and agree with lengths, that each
    /// chunk has a power of two of buckets, and that all positions exist. O(size of the arrays).
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] or [`Error::Param`] that names the first array at fault.
    pub fn check(&self) -> Result<(), Error> {
        let n_nodes = self.n_nodes();
        let n_trees = self.n_trees();
        for (what, ends, size) in [
            (
                "entries of node_label_ends_",
                self.label_ends,
                self.labels.len(),
            ),
            (
                "entries of chunk_bucket_ends_",
                self.bucket_ends,
                self.buckets.len(),
            ),
            (
                "entries of chunk_feature_ends_",
                self.feature_ends,
                self.features.len(),
            ),
            (
                "entries of chunk_weight_ends_",
                self.weight_ends,
                self.weights.len(),
            ),
        ] {
            same(what, n_nodes + 1, ends.len())?;
            rises(what, ends, 0, size)?;
        }
        rises("node_children_", self.children, n_trees, n_nodes)?;
        same(
            "length of node_intercept_",
            n_nodes,
            self.node_intercept.len(),
        )?;
        same(
            "length of label_intercept_",
            self.labels.len(),
            self.label_intercept.len(),
        )?;
        same(
            "length of chunk_row_ends_",
            self.features.len(),
            self.row_ends.len(),
        )?;
        same(
            "length of chunk_outputs_",
            self.weights.len(),
            self.outputs.len(),
        )?;
        for node in 0..n_nodes {
            self.check_node(node)?;
        }
        self.check_labels()
    }

    /// Checks the children and the chunk of one node. Its ranges of the arrays have been checked.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] that names the first array at fault.
    fn check_node(&self, node: usize) -> Result<(), Error> {
        let (children, labels) = (self.children(node), self.labels(node));
        let below = children.start > node || children.is_empty();
        ensure(
            "node_children_",
            below,
            "numbers above those of parents",
            children.start,
        )?;
        let one_kind = children.is_empty() || labels.is_empty();
        ensure(
            "node_label_ends_",
            one_kind,
            "without labels for nodes with children",
            node,
        )?;
        let n_outputs = children.len() + labels.len();
        let buckets = &self.buckets[range(self.bucket_ends, node)];
        let n_features = range(self.feature_ends, node).len();
        let n_weights = range(self.weight_ends, node).len();
        let is_table = buckets.len() > 1 && (buckets.len() - 1).is_power_of_two();
        ensure(
            "chunk_bucket_ends_",
            is_table,
            "tables of powers of two",
            buckets.len(),
        )?;
        let ends = buckets[0] == 0
            && buckets.is_sorted()
            && buckets[buckets.len() - 1] as usize == n_features;
        ensure(
            "chunk_buckets_",
            ends,
            "rising to the number of features",
            node,
        )?;
        let chunk = self.chunk(node);
        let ends = chunk.row_ends.is_sorted()
            && chunk.row_ends.last().map_or(0, |&end| end as usize) == n_weights;
        ensure(
            "chunk_row_ends_",
            ends,
            "rising to the number of weights",
            node,
        )?;
        let largest = chunk
            .outputs
            .iter()
            .max()
            .map_or(0, |&output| usize::from(output) + 1);
        ensure(
            "chunk_outputs_",
            largest <= n_outputs,
            "below the number of outputs",
            largest,
        )
    }

    /// Checks that labels exist and that no tree has one twice. A ranking would otherwise list it twice.
    ///
    /// # Errors
    ///
    /// [`Error::Param`], or [`Error::TooLarge`] if there is no memory for a mark on each label.
    fn check_labels(&self) -> Result<(), Error> {
        let mut seen = manylabel_base::filled("number of labels", 0u32, self.n_labels)?;
        // The tree of each node, from that of its parent.
        let mut tree = manylabel_base::filled("number of nodes", 0u32, self.n_nodes())?;
        for node in 0..self.n_nodes() {
            if node < self.n_trees() {
                tree[node] = node as u32 + 1;
            }
            for child in self.children(node) {
                tree[child] = tree[node];
            }
        }
        for this in 1..=self.n_trees() as u32 {
            for node in (0..self.n_nodes()).filter(|&node| tree[node] == this) {
                for &label in &self.labels[self.labels(node)] {
                    let known = usize::try_from(label)
                        .ok()
                        .and_then(|label| seen.get_mut(label));
                    let Some(seen) = known else {
                        return ensure("leaf_labels_", false, "existing labels", label);
                    };
                    ensure("leaf_labels_", *seen != this, "once in each tree", label)?;
                    *seen = this;
                }
            }
        }
        Ok(())
    }
}

/// Checks that ends rise from `first` to `last`, so that each two of them in turn are a valid range.
///
/// # Errors
///
/// [`Error::Param`] with the name of the array.
fn rises(name: &'static str, ends: &[i64], first: usize, last: usize) -> Result<(), Error> {
    let holds = ends.is_sorted()
        && ends.first() == Some(&(first as i64))
        && ends.last() == Some(&(last as i64));
    ensure(
        name,
        holds,
        "rising to the size of what they divide",
        format!("{} ends", ends.len()),
    )
}
