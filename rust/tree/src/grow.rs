//! Builds the trees: the labels are divided level by level until the leaves are small enough.
//!
//! All trees grow at the same time, and nodes are numbered level by level. The roots come first. Then come
//! the children of the first root, the children of the second root, and so on. So the children of a node
//! have consecutive numbers. They directly follow the children of the previous node. One array with the end
//! of the children of each node therefore describes all trees.

use crate::gather::Columns;
use crate::params::Params;
use crate::split::{mixed, split};
use manylabel_base::{Error, Spare, Watch, collected, copied, few, filled, parts, push};
use manylabel_sparse::CsrRef;
use rayon::prelude::*;
use std::ops::Range;

/// The labels of a node, as a range of positions. The positions refer to the list of all labels of the tree
/// in [`Forest::orders`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// The number of the tree.
    pub(crate) tree: u32,
    /// The position of the first label.
    pub(crate) begin: u32,
    /// One more than the position of the last label.
    pub(crate) end: u32,
}

impl Span {
    /// Returns the range of positions in the list of the tree.
    pub(crate) fn range(self) -> Range<usize> {
        self.begin as usize..self.end as usize
    }
}

/// The trees of a model.
#[derive(Debug)]
pub(crate) struct Forest {
    /// Node v has the children `children[v]..children[v + 1]`. The range of a leaf is empty. The first entry
    /// is the number of trees.
    pub(crate) children: Vec<i64>,
    /// The labels of each node, as a range of the list of its tree.
    pub(crate) spans: Vec<Span>,
    /// The first node of each level. The last entry is the number of nodes.
    pub(crate) levels: Vec<usize>,
    /// The list of all labels, for each tree in an order of its own. The labels below a node are consecutive.
    /// The labels of a leaf are in increasing order.
    pub(crate) orders: Vec<Vec<u32>>,
}

impl Forest {
    /// Returns the labels below a node. For a leaf, these are the labels of the leaf.
    pub(crate) fn labels(&self, node: usize) -> &[u32] {
        let span = self.spans[node];
        &self.orders[span.tree as usize][span.range()]
    }

    /// Returns the numbers of the children of a node. The range is empty for a leaf. Takes O(1) time.
    pub(crate) fn children(&self, node: usize) -> Range<usize> {
        self.children[node] as usize..self.children[node + 1] as usize
    }

    /// Builds the trees over `labels`. Row i of `z` is the vector of `labels[i]`.
    ///
    /// In balanced trees, all inner nodes have the same number of children, so all leaves are at the same
    /// depth. In other trees, the number of children of a node depends on the number of its labels. The nodes
    /// of a level are divided in parallel. The seed of a node depends only on `params.linear.seed`, on its
    /// tree and on the position of its first label. So the trees do not depend on the number of threads. Each
    /// division into two halves takes O(stored values of `z`) time per iteration of 2-means, for all nodes of
    /// a level together.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the caller requested a
    /// stop.
    pub(crate) fn grow(
        z: CsrRef<'_>,
        labels: &[u32],
        params: &Params,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let in_order = canonical_order(z, labels)?;
        let orders = (0..params.n_trees).map(|_| copied("number of labels", &in_order));
        let mut orders: Vec<Vec<u32>> = few::<_, Result<_, Error>>(orders)?;
        let root = |tree| Span {
            tree,
            begin: 0,
            end: labels.len() as u32,
        };
        let mut spans = collected("number of nodes", (0..params.n_trees as u32).map(root))?;
        let mut children = filled("number of nodes", params.n_trees as i64, 1)?;
        let mut levels: Vec<usize> = few([0]);
        let spare = Spare::default();
        let wanted = Wanted::new(labels.len(), params);
        loop {
            let level = levels[levels.len() - 1]..spans.len();
            if level.is_empty() {
                break;
            }
            let pieces = pieces(&mut orders, &spans[level.clone()])?;
            let found = parts(pieces.into_par_iter().map(|(span, items)| {
                let mut sizes = Vec::new();
                let n_children = wanted.children(items.len());
                if n_children > 1 {
                    let seed = mixed(
                        mixed(params.linear.seed, u64::from(span.tree)),
                        u64::from(span.begin),
                    );
                    let all = items.len() == labels.len();
                    divide(
                        z,
                        items,
                        all,
                        n_children,
                        params.balanced,
                        seed,
                        &spare,
                        &mut sizes,
                        watch,
                    )?;
                }
                Ok(sizes)
            }))?;
            push("number of levels", &mut levels, level.end)?;
            for (node, sizes) in level.zip(found) {
                let Span {
                    tree, mut begin, ..
                } = spans[node];
                for size in sizes {
                    let end = begin + size as u32;
                    push("number of nodes", &mut spans, Span { tree, begin, end })?;
                    begin = end;
                }
                push("number of nodes", &mut children, spans.len() as i64)?;
            }
        }
        for order in &mut orders {
            for item in order.iter_mut() {
                *item = labels[*item as usize];
            }
        }
        for node in 0..spans.len() {
            if children[node] == children[node + 1] {
                let span = spans[node];
                orders[span.tree as usize][span.range()].sort_unstable();
            }
        }
        let mut forest = Self {
            children,
            spans,
            levels,
            orders,
        };
        forest.levels = forest.levels_of_trees()?;
        Ok(forest)
    }

    /// Divides the levels that have leaves by tree, so that the leaves of a tree are fitted after those of the trees
    /// before it.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn levels_of_trees(&self) -> Result<Vec<usize>, Error> {
        let mut divided = filled("number of levels", 0, 1)?;
        for level in self.levels.windows(2) {
            let has_leaves = (level[0]..level[1]).any(|node| self.children(node).is_empty());
            for node in level[0] + 1..level[1] {
                if has_leaves && self.spans[node].tree != self.spans[node - 1].tree {
                    push("number of levels", &mut divided, node)?;
                }
            }
            push("number of levels", &mut divided, level[1])?;
        }
        Ok(divided)
    }
}

/// Chooses the number of children of each node.
///
/// The depth of a tree is the smallest depth that is possible with at most `branching` children for each
/// node. A smaller number of children is often sufficient for this depth. With the smallest sufficient
/// number, all nodes have about the same work. For example, 43 leaves and at most 16 children need two
/// levels. Seven children for each node are then sufficient, because 7 × 7 ≥ 43.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    /// The largest number of labels of a leaf.
    max_leaf: usize,
    /// The largest number of children of a node.
    branching: usize,
    /// The number of children of all inner nodes of balanced trees; `None` for other trees.
    fixed: Option<usize>,
}

impl Wanted {
    /// Prepares the choice for trees over `n_labels` labels.
    fn new(n_labels: usize, params: &Params) -> Self {
        let free = Self {
            max_leaf: params.max_leaf,
            branching: params.branching,
            fixed: None,
        };
        Self {
            fixed: params.balanced.then(|| free.children(n_labels)),
            ..free
        }
    }

    /// Returns the number of children of a node with `n_labels` labels. The result is 1 if the node becomes a
    /// leaf. Otherwise it is the smallest number with which the tree below the node is not deeper than with
    /// `branching` children.
    fn children(self, n_labels: usize) -> usize {
        if n_labels <= self.max_leaf {
            return 1;
        }
        if let Some(fixed) = self.fixed {
            return fixed.min(n_labels);
        }
        let n_leaves = n_labels.div_ceil(self.max_leaf);
        let enough =
            |base: usize, depth: u32| base.checked_pow(depth).is_none_or(|n| n >= n_leaves);
        let mut depth = 1;
        while !enough(self.branching, depth) {
            depth += 1;
        }
        // The root of n_leaves is rounded down, so the result can be one too small.
        let mut base = (n_leaves as f64).powf(1.0 / f64::from(depth)) as usize;
        while !enough(base, depth) {
            base += 1;
        }
        base.clamp(2, self.branching)
    }
}

/// Returns the rows of `z` in an order that depends only on their contents, except for equal rows.
///
/// The result of the clustering depends on the order of its input. With this order, the clusters do not
/// depend on how the labels are numbered. Rows are sorted by a 64-bit hash of their columns and values.
/// Rows with equal hashes are sorted by label.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
fn canonical_order(z: CsrRef<'_>, labels: &[u32]) -> Result<Vec<u32>, Error> {
    let key = |item: u32| {
        let (cols, values) = z.row(item as usize);
        // Rows without stored zeros have the same order.
        let both = cols.iter().zip(values).filter(|(_, value)| **value != 0.0);
        let hash = both.fold(0, |hash, (&col, value)| {
            mixed(hash, u64::from(col) << 32 | u64::from(value.to_bits()))
        });
        (hash, labels[item as usize], item)
    };
    let mut keys = collected("number of labels", (0..labels.len() as u32).map(key))?;
    keys.sort_unstable();
    collected(
        "number of labels",
        keys.into_iter().map(|(_, _, item)| item),
    )
}

/// Returns the labels of each node of a level, as disjoint parts of `orders`. Threads can change these
/// parts at the same time. `spans` has the nodes of the level. The nodes of each tree must be in
/// increasing order.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
fn pieces<'a>(
    orders: &'a mut [Vec<u32>],
    spans: &[Span],
) -> Result<Vec<(Span, &'a mut [u32])>, Error> {
    let mut pieces = Vec::new();
    let mut spans = spans.iter().peekable();
    for (tree, order) in (0..).zip(orders) {
        let (mut rest, mut at) = (&mut order[..], 0);
        while let Some(&span) = spans.next_if(|span| span.tree == tree) {
            let (_, from) = rest.split_at_mut(span.begin as usize - at);
            let (piece, after) = from.split_at_mut(span.range().len());
            push("number of nodes", &mut pieces, (span, piece))?;
            (rest, at) = (after, span.end as usize);
        }
    }
    Ok(pieces)
}

/// Divides the labels of one node into clusters by [`split`].
///
/// If the node does not have `all` labels, the vectors of its labels are first copied to a matrix without
/// empty columns. This saves time, because 2-means uses arrays with an entry for each column.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the caller requested a stop.
#[allow(
    clippy::too_many_arguments,
    reason = "they are the arguments of `split` and two more"
)]
fn divide(
    z: CsrRef<'_>,
    items: &mut [u32],
    all: bool,
    n_clusters: usize,
    balanced: bool,
    seed: u64,
    spare: &Spare<Columns>,
    sizes: &mut Vec<usize>,
    watch: &Watch,
) -> Result<(), Error> {
    if all {
        return split(z, items, n_clusters, balanced, seed, sizes, watch);
    }
    let part = spare.with(
        || Columns::new(z.n_cols()),
        |columns| columns.gather(z, items.iter().copied()),
    )?;
    let mut places = collected("number of labels", 0..items.len() as u32)?;
    split(
        part.view(),
        &mut places,
        n_clusters,
        balanced,
        seed,
        sizes,
        watch,
    )?;
    for place in &mut places {
        *place = items[*place as usize];
    }
    items.copy_from_slice(&places);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use manylabel_sparse::CsrOwned;

    /// Returns random vectors of `n` labels. Each vector has two of ten features.
    fn vectors(n: usize, seed: u64) -> CsrOwned {
        let mut rng = Rng::with_seed(seed);
        CsrOwned {
            indptr: (0..=n).map(|label| 2 * label).collect(),
            indices: (0..n)
                .flat_map(|_| [rng.u32(..5), rng.u32(5..10)])
                .collect(),
            values: (0..2 * n).map(|_| rng.f32()).collect(),
            n_cols: 10,
        }
    }

    /// Builds the trees over `labels`.
    fn grown(z: &CsrOwned, labels: &[u32], params: &Params) -> Forest {
        Forest::grow(z.view(), labels, params, &Watch::new()).expect("small")
    }

    #[test]
    fn leaves_are_small_and_have_every_label_once() {
        for (n, branching, max_leaf) in
            [(1, 2, 1), (9, 2, 1), (100, 3, 4), (200, 16, 10), (57, 2, 5)]
        {
            for balanced in [true, false] {
                let params = Params {
                    n_trees: 2,
                    branching,
                    max_leaf,
                    balanced,
                    ..Params::default()
                };
                let labels: Vec<u32> = (0..n as u32).map(|label| 3 * label).collect();
                let forest = grown(&vectors(n, 1), &labels, &params);
                assert_eq!(forest.children[0], 2);
                assert_eq!(forest.children.len(), forest.spans.len() + 1);
                let mut found: [Vec<u32>; 2] = Default::default();
                for node in 0..forest.spans.len() {
                    assert!(forest.children(node).len() <= branching);
                    if forest.children(node).is_empty() {
                        assert!(forest.labels(node).len() <= max_leaf);
                        assert!(forest.labels(node).is_sorted());
                        found[forest.spans[node].tree as usize].extend(forest.labels(node));
                    } else {
                        let below: usize = forest
                            .children(node)
                            .map(|child| forest.labels(child).len())
                            .sum();
                        assert_eq!(below, forest.labels(node).len());
                    }
                }
                for mut found in found {
                    found.sort_unstable();
                    assert_eq!(found, labels);
                }
            }
        }
    }

    #[test]
    fn names_of_labels_do_not_matter() {
        let z = vectors(80, 2);
        let params = Params {
            max_leaf: 7,
            branching: 3,
            ..Params::default()
        };
        let mut renamed: Vec<u32> = (0..80).collect();
        Rng::with_seed(3).shuffle(&mut renamed);
        let rows: Vec<u32> = renamed.clone();
        let permuted = Columns::new(10)
            .expect("small")
            .gather(z.view(), rows.into_iter())
            .expect("small");
        let labels: Vec<u32> = (0..80).collect();
        let leaves = |forest: &Forest, name: &dyn Fn(u32) -> u32| {
            let of_node = |node| {
                let mut labels: Vec<u32> = forest
                    .labels(node)
                    .iter()
                    .map(|&label| name(label))
                    .collect();
                labels.sort_unstable();
                labels
            };
            (0..forest.spans.len()).map(of_node).collect::<Vec<_>>()
        };
        let expected = leaves(&grown(&z, &labels, &params), &|label| label);
        let found = leaves(&grown(&permuted, &labels, &params), &|label| {
            renamed[label as usize]
        });
        assert_eq!(found, expected);
    }
}
