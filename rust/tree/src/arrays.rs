//! Stores a fitted model in flat arrays, which a scorer borrows.
//!
//! The outputs of an inner node are its children. The outputs of a leaf are its labels. The weights of a node
//! form a *chunk*. A chunk is a sparse matrix with a row for each feature that has a weight for any output, or for all
//! features. All chunks are stored one after the other in a few arrays, in the order in which a scorer reads them. So
//! a memory-mapped model file can be used without a conversion.
//!
//! Each chunk has a hash table of its features, and the features are sorted by bucket. To find a feature, a
//! scorer reads where the bucket begins and ends, and compares the feature with the few features in the
//! bucket. If the chunk is not complete, a bucket has one or two features on average. A search through the whole chunk
//! is not needed.
//!
//! A chunk is *complete* if it has all features of the model, in order and in one bucket, and a weight of each feature
//! for each output. This is the form of nodes in which most weights are not zero, as usual for dense features. No
//! feature is searched, and several rows are multiplied at once (see `complete.rs`).

use crate::complete;
use crate::probability::Link;
use crate::weights::Weights;
use manylabel_base::range::{ensure, same};
use manylabel_base::{Error, collected, filled, push};
use manylabel_sparse::from_half;
use std::ops::Range;

/// The arrays of a fitted model. [`check`](Self::check) lists the conditions that they must satisfy.
#[derive(Debug, Clone, Copy)]
pub struct Arrays<'a> {
    /// The number of features.
    pub n_features: usize,
    /// The number of labels. Labels that are in no leaf count too.
    pub n_labels: usize,
    /// Node v has the children `children[v]..children[v + 1]`. The first entry is the number of trees.
    pub children: &'a [i64],
    /// Node v has the labels `labels[label_ends[v]..label_ends[v + 1]]`. Nodes with children have no labels.
    pub label_ends: &'a [i64],
    /// The labels of all leaves.
    pub labels: &'a [i32],
    /// The intercept of the classifier that gives a row its margin for the node; 0 for roots.
    pub node_intercept: &'a [f32],
    /// The intercept of the classifier of each entry of `labels`.
    pub label_intercept: &'a [f32],
    /// Node v has the hash table `buckets[bucket_ends[v]..bucket_ends[v + 1]]`.
    pub bucket_ends: &'a [i64],
    /// The hash tables of all chunks. A table begins with 0 and then has the position after the last feature
    /// of each bucket. Positions count from the first feature of the chunk.
    pub buckets: &'a [u32],
    /// Node v has the features `features[feature_ends[v]..feature_ends[v + 1]]`.
    pub feature_ends: &'a [i64],
    /// The features of all chunks. The features of a chunk are sorted by bucket.
    pub features: &'a [u32],
    /// The position after the last weight of each feature. Positions count from the first weight of the
    /// chunk.
    pub row_ends: &'a [u32],
    /// Node v has the weights `weights[weight_ends[v]..weight_ends[v + 1]]`.
    pub weight_ends: &'a [i64],
    /// The output of each weight. An output is the position of a child or label among the children or labels
    /// of its node.
    pub outputs: &'a [u16],
    /// The weights of all chunks, feature after feature.
    pub weights: Weights<'a>,
    /// The scale of the weights of the classifier that gives a row its margin for the node; 0 for roots.
    /// Empty if weights are floats.
    pub node_scale: &'a [f32],
    /// The scale of the weights of the classifier of each entry of `labels`. Empty if weights are floats.
    pub label_scale: &'a [f32],
    /// How margins become probabilities.
    pub link: Link,
}

/// The weights of one node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunk<'a> {
    /// The hash table: 0, and then the position after the last feature of each bucket.
    buckets: &'a [u32],
    /// The features, sorted by bucket.
    features: &'a [u32],
    /// The position after the last weight of each feature.
    row_ends: &'a [u32],
    /// The output of each weight.
    outputs: &'a [u16],
    /// The weights, feature after feature.
    weights: Weights<'a>,
    /// 64 minus the binary logarithm of the number of buckets.
    shift: u32,
    /// The number of outputs of the node.
    n_outputs: usize,
    /// Whether the chunk is complete; see the documentation of this file.
    pub(crate) is_complete: bool,
}

/// Returns the bucket of a feature in a chunk with `2^(64 − shift)` buckets. The hash function is Knuth's
/// multiplicative hash.
#[inline(always)]
pub(crate) fn bucket(feature: u32, shift: u32) -> usize {
    // With one bucket, the shift is 64, and `checked_shr` returns None.
    (u64::from(feature.wrapping_mul(0x9E37_79B1)) << 32)
        .checked_shr(shift)
        .unwrap_or(0) as usize
}

/// Returns the shift that [`bucket`] needs for a number of buckets. The number must be a power of two.
#[inline(always)]
pub(crate) fn shift_of(n_buckets: usize) -> u32 {
    64 - n_buckets.trailing_zeros()
}

impl Chunk<'_> {
    /// Adds the products of a row and the weights to `out`, which has an entry for each output. Features are
    /// added in the order of `cols`. 8-bit weights are not multiplied by their scales.
    #[inline]
    pub(crate) fn add_row(&self, cols: &[u32], values: &[f32], out: &mut [f32]) {
        match self.weights {
            Weights::Float32(weights) => self.add(weights, |weight| weight, cols, values, out),
            Weights::Float16(weights) => self.add(weights, from_half, cols, values, out),
            Weights::Int8(weights) => self.add(weights, f32::from, cols, values, out),
        }
    }

    /// Does the same as [`add_row`](Self::add_row) for some rows that have all features. The chunk must be complete.
    /// `out` has the entries of all outputs for each row, row after row.
    pub(crate) fn add_dense_rows(&self, rows: &[&[f32]], out: &mut [f32]) {
        let n = self.n_outputs;
        match self.weights {
            Weights::Float32(weights) => {
                complete::add_dense(rows, weights, |weight| weight, n, out);
            }
            Weights::Float16(weights) => complete::add_dense(rows, weights, from_half, n, out),
            Weights::Int8(weights) => complete::add_dense(rows, weights, f32::from, n, out),
        }
    }

    /// Does the same as [`add_row`](Self::add_row) for weights of one type. `widen` converts a weight.
    #[inline]
    fn add<T: Copy>(
        &self,
        weights: &[T],
        widen: impl Fn(T) -> f32 + Copy,
        cols: &[u32],
        values: &[f32],
        out: &mut [f32],
    ) {
        /// The number of features that are looked up together.
        const AT_ONCE: usize = 64;
        /// The number of bytes of a cache line.
        const CACHE_LINE: usize = 64;
        /// If a feature has more weights than this on average, all cache lines of its weights are loaded early. On
        /// planted data with 143,000 labels, a row takes 0.75 of the time in a root with 358 children.
        const LONG_ROW: usize = 48;
        if self.is_complete {
            return complete::add_sparse((cols, values), weights, widen, out);
        }
        let (mut buckets, mut rows) = ([(0u32, 0u32); AT_ONCE], [(0u32, 0.0f32); AT_ONCE]);
        let mut ends = [(0u32, 0u32); AT_ONCE];
        let has_long_rows = self.outputs.len() > LONG_ROW * self.features.len();
        for (cols, values) in cols.chunks(AT_ONCE).zip(values.chunks(AT_ONCE)) {
            // The arrays of a chunk are often not in the cache. A loop that only reads one of them waits for several
            // entries at the same time. One loop over everything would wait for each array of each feature, because
            // the processor cannot guess which features the chunk has.
            for (bucket_of, &col) in buckets.iter_mut().zip(cols) {
                let at = bucket(col, self.shift);
                *bucket_of = (self.buckets[at], self.buckets[at + 1]);
            }
            let mut n_found = 0;
            for ((&(begin, end), &col), &value) in buckets.iter().zip(cols).zip(values) {
                let mut features = self.features[begin as usize..end as usize].iter();
                if let Some(at) = features.position(|&feature| feature == col) {
                    rows[n_found] = (begin + at as u32, value);
                    n_found += 1;
                }
            }
            for (ends, &(row, _)) in ends.iter_mut().zip(&rows[..n_found]) {
                let begin = row
                    .checked_sub(1)
                    .map_or(0, |row| self.row_ends[row as usize]);
                *ends = (begin, self.row_ends[row as usize]);
            }
            // In most nodes, the outputs and the weights of a feature take one or two cache lines each. This loop
            // loads them, and the next loop then finds them in the cache. On eurlex57k, predictions take 0.8 of the
            // time.
            let mut loaded = 0;
            for &(begin, end) in &ends[..n_found] {
                if begin < end {
                    let (first, last) = (begin as usize, end as usize - 1);
                    loaded ^= u32::from(self.outputs[first] ^ self.outputs[last]);
                    loaded ^= (widen(weights[first]) + widen(weights[last])).to_bits();
                    if has_long_rows {
                        let lines = self.outputs[first..last].iter().step_by(CACHE_LINE / 2);
                        loaded ^= lines.fold(0, |sum, &output| sum ^ u32::from(output));
                        let lines = weights[first..last]
                            .iter()
                            .step_by(CACHE_LINE / size_of::<T>());
                        loaded ^= lines.fold(0, |sum, &weight| sum ^ widen(weight).to_bits());
                    }
                }
            }
            std::hint::black_box(loaded); // otherwise the compiler would remove the loop
            for (&(begin, end), &(_, value)) in ends.iter().zip(&rows[..n_found]) {
                let range = begin as usize..end as usize;
                let weights = &weights[range.clone()];
                for (&output, &weight) in self.outputs[range].iter().zip(weights) {
                    out[usize::from(output)] += value * widen(weight);
                }
            }
        }
    }
}

/// Returns `ends[node]..ends[node + 1]`, the range of a node in the array that `ends` divides.
#[inline(always)]
pub(crate) fn range(ends: &[i64], node: usize) -> Range<usize> {
    ends[node] as usize..ends[node + 1] as usize
}

/// The tree and the level of a node. Roots are on level 0.
type Place = (usize, usize);

impl<'a> Arrays<'a> {
    /// Returns the number of trees. The first nodes are the roots of these trees.
    pub fn n_trees(&self) -> usize {
        self.children.first().map_or(0, |&first| first as usize)
    }

    /// Returns the number of nodes of all trees.
    pub fn n_nodes(&self) -> usize {
        self.children.len().saturating_sub(1)
    }

    /// Returns all nodes, sorted by place and number. The place of a node is its tree and its level. Takes
    /// O(n log n) time for n nodes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn by_place(&self) -> Result<Vec<(Place, usize)>, Error> {
        let mut places = filled("number of nodes", (0, 0), self.n_nodes())?;
        for node in 0..self.n_nodes() {
            if node < self.n_trees() {
                places[node] = (node, 0);
            }
            // A child has a larger number than its parent, whose place is known by now.
            let (tree, level) = places[node];
            for child in self.children(node) {
                places[child] = (tree, level + 1);
            }
        }
        let mut nodes = collected("number of nodes", places.into_iter().zip(0..))?;
        nodes.sort_unstable();
        Ok(nodes)
    }

    /// Returns how many nodes a row can be sent to on each level, in the tree with the most such nodes. These are
    /// the nodes of the level and the leaves of the levels above. Takes O(n log n) time for n nodes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn level_sizes(&self) -> Result<Vec<usize>, Error> {
        let nodes = self.by_place()?;
        let mut most: Vec<usize> = Vec::new();
        for of_tree in nodes.chunk_by(|a, b| a.0.0 == b.0.0) {
            let mut leaves_above = 0;
            for (level, of_level) in of_tree.chunk_by(|a, b| a.0 == b.0).enumerate() {
                if level == most.len() {
                    push("number of levels", &mut most, 0)?;
                }
                most[level] = most[level].max(of_level.len() + leaves_above);
                let is_leaf = |&&(_, node): &&(Place, usize)| self.children(node).is_empty();
                leaves_above += of_level.iter().filter(is_leaf).count();
            }
        }
        Ok(most)
    }

    /// Returns the numbers of the children of a node. The range is empty for a leaf.
    #[inline(always)]
    pub(crate) fn children(&self, node: usize) -> Range<usize> {
        range(self.children, node)
    }

    /// Returns the positions in `labels` of the labels of a node. The range is empty for a node with
    /// children.
    #[inline(always)]
    pub(crate) fn labels(&self, node: usize) -> Range<usize> {
        range(self.label_ends, node)
    }

    /// Returns the intercepts of the outputs of a node, and the scales of their weights. There are no scales if
    /// weights are floats.
    #[inline]
    pub(crate) fn intercept_and_scale(&self, node: usize) -> (&'a [f32], Option<&'a [f32]>) {
        let children = self.children(node);
        let (intercept, scale, range) = if children.is_empty() {
            (self.label_intercept, self.label_scale, self.labels(node))
        } else {
            (self.node_intercept, self.node_scale, children)
        };
        let scale = self.has_scales().then(|| &scale[range.clone()]);
        (&intercept[range], scale)
    }

    /// Returns the scales of some entries of `labels`. There are none if weights are floats.
    pub(crate) fn label_scales(&self, labels: Range<usize>) -> Option<&'a [f32]> {
        self.has_scales().then(|| &self.label_scale[labels])
    }

    /// Returns true if the weights have scales.
    fn has_scales(&self) -> bool {
        matches!(self.weights, Weights::Int8(_))
    }

    /// Returns the number of outputs of a node: of its children, or of its labels.
    #[inline]
    fn n_outputs(&self, node: usize) -> usize {
        self.children(node).len() + self.labels(node).len()
    }

    /// Returns whether the chunk of a node is complete.
    #[inline]
    pub(crate) fn is_complete(&self, node: usize) -> bool {
        let n_weights = self.n_features.checked_mul(self.n_outputs(node));
        range(self.bucket_ends, node).len() == 2
            && range(self.feature_ends, node).len() == self.n_features
            && n_weights == Some(range(self.weight_ends, node).len())
    }

    /// Returns the weights of a node.
    ///
    /// # Panics
    ///
    /// Can panic if [`check`](Self::check) returns an error for the arrays.
    #[inline]
    pub(crate) fn chunk(&self, node: usize) -> Chunk<'a> {
        let buckets = &self.buckets[range(self.bucket_ends, node)];
        let features = range(self.feature_ends, node);
        let weights = range(self.weight_ends, node);
        Chunk {
            n_outputs: self.n_outputs(node),
            is_complete: self.is_complete(node),
            buckets,
            features: &self.features[features.clone()],
            row_ends: &self.row_ends[features],
            outputs: &self.outputs[weights.clone()],
            weights: self.weights.slice(weights),
            shift: shift_of(buckets.len() - 1),
        }
    }

    /// Checks that the arrays form a valid model. Takes O(size of the arrays) time, and
    /// O(n log n) time for n nodes. In a valid model:
    ///
    /// * there is at least one tree;
    /// * the number of a child is larger than the number of its parent;
    /// * only leaves have labels, and a tree has each label at most once;
    /// * arrays that divide other arrays are ascending, and their last entry is the length of the divided
    ///   array;
    /// * the number of buckets of each chunk is a power of two;
    /// * a chunk with one bucket that has all features, and as many weights as a complete chunk, is complete;
    /// * 8-bit weights have a scale for each node and each label of each leaf, which is finite and ≥ 0, and
    ///   floats have none;
    /// * all nodes, labels, outputs and positions exist.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] or [`Error::Param`] with the name of the first invalid array. Returns
    /// [`Error::TooLarge`] if memory is short.
    pub fn check(&self) -> Result<(), Error> {
        let n_nodes = self.n_nodes();
        let first = self.children.first().copied().unwrap_or(0);
        ensure(
            "node_children_",
            (1..=n_nodes as i64).contains(&first),
            "an array that starts with the number of trees, from 1 to the number of nodes",
            first,
        )?;
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
            "length of leaf_intercept_",
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
        self.check_scales()?;
        for node in 0..n_nodes {
            self.check_node(node)?;
        }
        self.check_labels()
    }

    /// Checks the scales of 8-bit weights. Weights of other types must have no scales.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] or [`Error::Param`] with the name of the first invalid array.
    fn check_scales(&self) -> Result<(), Error> {
        let (n_nodes, n_labels) = match self.weights {
            Weights::Int8(_) => (self.n_nodes(), self.labels.len()),
            Weights::Float32(_) | Weights::Float16(_) => (0, 0),
        };
        same("length of node_scale_", n_nodes, self.node_scale.len())?;
        same("length of leaf_scale_", n_labels, self.label_scale.len())?;
        for (name, scale) in [
            ("node_scale_", self.node_scale),
            ("leaf_scale_", self.label_scale),
        ] {
            let wrong = scale
                .iter()
                .find(|scale| !(scale.is_finite() && **scale >= 0.0));
            if let Some(wrong) = wrong {
                ensure(name, false, "finite and >= 0", wrong)?;
            }
        }
        Ok(())
    }

    /// Checks the children and the chunk of one node. The ranges of the node in all arrays must have been
    /// checked before.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] with the name of the first invalid array.
    fn check_node(&self, node: usize) -> Result<(), Error> {
        let (children, labels) = (self.children(node), self.labels(node));
        let below = children.start > node || children.is_empty();
        ensure(
            "node_children_",
            below,
            "an array in which the number of a child is larger than the number of its parent",
            format_args!("child {} of node {node}", children.start),
        )?;
        let one_kind = children.is_empty() || labels.is_empty();
        ensure(
            "node_label_ends_",
            one_kind,
            "an array that gives no labels to nodes with children",
            format_args!("labels for node {node}"),
        )?;
        let n_outputs = children.len() + labels.len();
        let buckets = &self.buckets[range(self.bucket_ends, node)];
        let n_features = range(self.feature_ends, node).len();
        let n_weights = range(self.weight_ends, node).len();
        let is_table = buckets.len() > 1 && (buckets.len() - 1).is_power_of_two();
        ensure(
            "chunk_bucket_ends_",
            is_table,
            "an array that gives each node a hash table with 2^n + 1 entries",
            format_args!("{} entries for node {node}", buckets.len()),
        )?;
        let ends = buckets[0] == 0
            && buckets.is_sorted()
            && buckets[buckets.len() - 1] as usize == n_features;
        ensure(
            "chunk_buckets_",
            ends,
            "ascending for each node, from 0 to the number of features of the node",
            format_args!("entries that break this rule for node {node}"),
        )?;
        let chunk = self.chunk(node);
        let ends = chunk.row_ends.is_sorted()
            && chunk.row_ends.last().map_or(0, |&end| end as usize) == n_weights;
        ensure(
            "chunk_row_ends_",
            ends,
            "ascending for each node, up to the number of weights of the node",
            format_args!("entries that break this rule for node {node}"),
        )?;
        let largest = chunk
            .outputs
            .iter()
            .max()
            .map_or(0, |&output| usize::from(output) + 1);
        ensure(
            "chunk_outputs_",
            largest <= n_outputs,
            "less than the number of children and labels of the node",
            format_args!("entries for {largest} children and labels of node {node}"),
        )?;
        if !chunk.is_complete {
            return Ok(());
        }
        let is_sorted = (0..).zip(chunk.features).all(|(at, &col)| at == col);
        ensure(
            "chunk_features_",
            is_sorted,
            "in increasing order for nodes that have all weights",
            format_args!("another order for node {node}"),
        )?;
        let mut ends = (1..).map(|row| row * n_outputs).zip(chunk.row_ends);
        ensure(
            "chunk_row_ends_",
            ends.all(|(end, &of_row)| end == of_row as usize),
            "multiples of the number of outputs for nodes that have all weights",
            format_args!("other numbers for node {node}"),
        )?;
        let mut outputs = chunk.outputs.chunks_exact(n_outputs.max(1));
        let is_sorted =
            outputs.all(|of_row| (0..n_outputs).eq(of_row.iter().map(|&at| usize::from(at))));
        ensure(
            "chunk_outputs_",
            is_sorted,
            "in increasing order within each feature, for nodes that have all weights",
            format_args!("another order for node {node}"),
        )
    }

    /// Checks that all labels exist and that each tree has each label at most once. If a tree had a label
    /// twice, rankings would list the label twice.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a label is invalid. Returns [`Error::TooLarge`] if there is no memory for
    /// an array with an entry for each label.
    fn check_labels(&self) -> Result<(), Error> {
        let mut seen = filled("number of labels", 0u32, self.n_labels)?;
        for ((tree, _), node) in self.by_place()? {
            let this = tree as u32 + 1;
            for &label in &self.labels[self.labels(node)] {
                let known = usize::try_from(label)
                    .ok()
                    .and_then(|label| seen.get_mut(label));
                let Some(seen) = known else {
                    return ensure(
                        "leaf_labels_",
                        false,
                        "non-negative and less than the number of labels",
                        label,
                    );
                };
                ensure(
                    "leaf_labels_",
                    *seen != this,
                    "without repeated labels in a tree",
                    format_args!("label {label} twice"),
                )?;
                *seen = this;
            }
        }
        Ok(())
    }
}

/// Checks that `ends` is ascending from `first` to `last`. Then any two consecutive entries are a valid
/// range.
///
/// # Errors
///
/// Returns [`Error::Param`] with the name of the array.
fn rises(name: &'static str, ends: &[i64], first: usize, last: usize) -> Result<(), Error> {
    let holds = ends.is_sorted()
        && ends.first() == Some(&(first as i64))
        && ends.last() == Some(&(last as i64));
    ensure(
        name,
        holds,
        "ascending end positions, from the right first position to the length of the array that they divide",
        format!("{} entries that break this rule", ends.len()),
    )
}
