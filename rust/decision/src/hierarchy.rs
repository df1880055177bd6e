//! Corrects probabilities so that no label is more probable than its parents.
//!
//! In a hierarchy, a row that has a label also has the parents of this label. So the probability of a label is
//! at most the probability of each parent. [`coherent`] replaces the probabilities of a row by the closest
//! numbers with this property (isotonic regression: the smallest sum of squared differences).
//!
//! For every bound t, the labels with corrected probabilities above t are the set S that contains the parents of
//! its labels and has the largest sum of `p - t` over its labels, where p are the original probabilities. So the
//! set of least expected cost is found by one bound.
//!
//! A label often has the same corrected probability as its parent. The probability of the label is then lowered
//! to the next `f32`, so that every label is less probable than its parents. So the k most probable labels
//! contain the parents of their labels, for every k and without a rule for ties.
//!
//! The regression is computed by recursive partition (R. Luss, S. Rosset and M. Shahar, "Efficient regularized
//! isotonic regression with application to gene-gene interaction search", Annals of Applied Statistics 2012). A
//! block of labels with mean m is divided by the set S with the largest sum of `p - m`, which is a minimum cut
//! (J.-C. Picard, "Maximal closure of a graph and applications to combinatorial problems", 1976). If no set has a
//! positive sum, all labels of the block get m.

use manylabel_base::range::same;
use manylabel_base::{Error, Tasks, Watch, collected, filled, push, reserved};
use manylabel_sparse::{CsrOwned, CsrView, Index, Value};
use rayon::prelude::*;

/// The parents of all labels.
///
/// A label may have several parents, and a hierarchy may have several roots. Labels without pairs are roots without
/// children.
///
/// ```
/// use manylabel_decision::hierarchy::Hierarchy;
///
/// assert!(Hierarchy::new(&[[0, 1], [0, 2]], 3).is_ok());
/// let error = Hierarchy::new(&[[0, 1], [1, 0]], 2).unwrap_err();
/// assert!(error.to_string().contains("cycle"));
/// ```
#[derive(Debug, Clone)]
pub struct Hierarchy {
    /// Label l has the parents `parents[ends[l]..ends[l + 1]]`.
    ends: Vec<usize>,
    parents: Vec<u32>,
}

/// Purpose of the memory, in error messages.
const NODES: &str = "number of labels of a row with their parents";
/// Probabilities are multiplied by this number and rounded, so that sums are exact and a cut always ends.
const UNIT: f64 = (1u64 << 40) as f64;

impl Hierarchy {
    /// Makes a hierarchy of `n_labels` labels from pairs (parent, child).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a label is out of range or if the pairs have a cycle, and
    /// [`Error::TooLarge`] if memory is short.
    pub fn new(pairs: &[[u32; 2]], n_labels: usize) -> Result<Self, Error> {
        let wrong = |expected, got| Error::Param {
            name: "hierarchy",
            expected,
            got,
        };
        let mut ends = filled("number of labels", 0usize, n_labels + 1)?;
        for &[parent, child] in pairs {
            if parent.max(child) as usize >= n_labels {
                let got = format!("the pair ({parent}, {child}) with {n_labels} labels");
                return Err(wrong("pairs of label numbers", got));
            }
            ends[child as usize + 1] += 1;
        }
        for label in 0..n_labels {
            ends[label + 1] += ends[label];
        }
        let mut next = collected("number of labels", ends.iter().copied())?;
        let mut parents = filled("number of pairs", 0u32, pairs.len())?;
        for &[parent, child] in pairs {
            parents[next[child as usize]] = parent;
            next[child as usize] += 1;
        }
        let hierarchy = Self { ends, parents };
        if let Some(label) = hierarchy.label_of_cycle(n_labels)? {
            let got = format!("a cycle through label {label}");
            return Err(wrong("pairs without a cycle", got));
        }
        Ok(hierarchy)
    }

    fn parents_of(&self, label: u32) -> &[u32] {
        &self.parents[self.ends[label as usize]..self.ends[label as usize + 1]]
    }

    /// Returns a label of a cycle or an ancestor of a cycle, or None if there is no cycle.
    fn label_of_cycle(&self, n_labels: usize) -> Result<Option<usize>, Error> {
        // Labels without children are removed, until none is left.
        let mut n_children = filled("number of labels", 0usize, n_labels)?;
        for &parent in &self.parents {
            n_children[parent as usize] += 1;
        }
        let mut free = reserved("number of labels", n_labels)?;
        for label in (0..n_labels as u32).filter(|&label| n_children[label as usize] == 0) {
            free.push(label);
        }
        let mut n_removed = 0;
        while let Some(label) = free.pop() {
            n_removed += 1;
            for &parent in self.parents_of(label) {
                n_children[parent as usize] -= 1;
                if n_children[parent as usize] == 0 {
                    free.push(parent);
                }
            }
        }
        Ok(if n_removed < n_labels {
            n_children.iter().position(|&n| n > 0)
        } else {
            None
        })
    }
}

/// Corrects the probabilities of all rows. The result has the stored labels and their ancestors, except those
/// with the corrected probability 0. Labels that are not stored have the probability 0.
///
/// ```
/// use manylabel_base::Watch;
/// use manylabel_decision::hierarchy::{Hierarchy, coherent};
/// use manylabel_sparse::CsrView;
///
/// // Label 1 is the parent of label 0, which is more probable. Both get the mean, and the parent comes first.
/// let p = CsrView::new("probabilities", &[0i32, 2], &[0, 1], &[0.5f32, 0.25], 2)?;
/// let found = coherent(p, &Hierarchy::new(&[[1, 0]], 2)?, &Watch::new())?;
/// assert_eq!(found.values, [0.375f32.next_down(), 0.375]);
/// # Ok::<(), manylabel_base::Error>(())
/// ```
///
/// # Errors
///
/// Returns [`Error::Shape`] if the hierarchy has another number of labels, [`Error::TooLarge`] if memory is
/// short, and [`Error::Stopped`] if the caller requested a stop.
pub fn coherent<I: Index, T: Value>(
    probabilities: CsrView<'_, I, T>,
    hierarchy: &Hierarchy,
    watch: &Watch,
) -> Result<CsrOwned, Error> {
    let n_labels = hierarchy.ends.len() - 1;
    same("number of labels", n_labels, probabilities.n_cols())?;
    let n_rows = probabilities.n_rows();
    let mut rows: Vec<Vec<(u32, f32)>> = reserved("number of rows", n_rows)?;
    rows.resize_with(n_rows, Vec::new);
    rows.par_iter_mut().enumerate().try_each(|(row, out)| {
        watch.step(1)?;
        let (labels, values) = probabilities.row(row);
        let entries = labels
            .iter()
            .zip(values)
            .map(|(l, p)| (l.get() as u32, p.f64()));
        *out = corrected(&collected(NODES, entries)?, hierarchy, watch)?;
        Ok(())
    })?;
    let total = rows.iter().map(Vec::len).sum();
    let mut out = CsrOwned {
        indptr: reserved("number of rows", n_rows + 1)?,
        indices: reserved(NODES, total)?,
        values: reserved(NODES, total)?,
        n_cols: n_labels,
    };
    out.indptr.push(0);
    for row in rows {
        for (label, p) in row {
            out.indices.push(label);
            out.values.push(p);
        }
        out.indptr.push(out.indices.len());
    }
    Ok(out)
}

/// Corrects the probabilities of a row. Returns its labels and their ancestors with positive probabilities, by
/// increasing label.
fn corrected(
    entries: &[(u32, f64)],
    hierarchy: &Hierarchy,
    watch: &Watch,
) -> Result<Vec<(u32, f32)>, Error> {
    let mut labels = collected(NODES, entries.iter().map(|&(label, _)| label))?;
    let mut at = 0;
    while at < labels.len() {
        // `labels` grows during the loop, so that it ends with the ancestors of ancestors.
        for &parent in hierarchy.parents_of(labels[at]) {
            if !labels[entries.len()..].contains(&parent)
                && entries
                    .binary_search_by_key(&parent, |&(label, _)| label)
                    .is_err()
            {
                push(NODES, &mut labels, parent)?;
            }
        }
        at += 1;
    }
    labels.sort_unstable();
    let mut weight = filled(NODES, 0i64, labels.len())?;
    for &(label, p) in entries {
        let at = labels.partition_point(|&known| known < label);
        weight[at] = (p * UNIT).round() as i64;
    }
    let mut edges: Vec<[usize; 2]> = Vec::new();
    for (child, &label) in labels.iter().enumerate() {
        for &parent in hierarchy.parents_of(label) {
            let parent = labels.partition_point(|&known| known < parent);
            push(NODES, &mut edges, [child, parent])?;
        }
    }
    let mut found = filled(NODES, 0.0f32, labels.len())?;
    let mut blocks: Vec<Vec<usize>> = Vec::new();
    blocks.push(collected(NODES, 0..labels.len())?);
    while let Some(block) = blocks.pop() {
        watch.step(0)?;
        let sum: i64 = block.iter().map(|&node| weight[node]).sum();
        let upper = upper_set(&block, &weight, sum, &edges)?;
        if upper.is_empty() {
            let mean = (sum as f64 / UNIT / block.len().max(1) as f64) as f32;
            for node in block {
                found[node] = mean;
            }
            continue;
        }
        let is_upper = |node: &usize| upper.binary_search(node).is_ok();
        blocks.push(collected(
            NODES,
            block.iter().copied().filter(|n| !is_upper(n)),
        )?);
        blocks.push(upper);
    }
    put_parents_first(&mut found, &edges)?;
    let positive = labels.into_iter().zip(found).filter(|&(_, p)| p > 0.0);
    collected(NODES, positive)
}

/// Lowers the probabilities of nodes that are not below those of their parents to the next `f32`. `edges` are
/// pairs (child, parent).
fn put_parents_first(found: &mut [f32], edges: &[[usize; 2]]) -> Result<(), Error> {
    let mut n_waiting = filled(NODES, 0usize, found.len())?;
    let mut first = filled(NODES, NONE, found.len())?;
    // The edges of a parent are a linked list: edge e is followed by edge `next[e]`.
    let mut next = filled(NODES, NONE, edges.len())?;
    for (edge, &[child, parent]) in edges.iter().enumerate() {
        n_waiting[child] += 1;
        next[edge] = first[parent];
        first[parent] = edge as u32;
    }
    // A node is ready when its parents are done.
    let mut ready = collected(NODES, (0..found.len()).filter(|&node| n_waiting[node] == 0))?;
    while let Some(parent) = ready.pop() {
        let mut edge = first[parent];
        while edge != NONE {
            let child = edges[edge as usize][0];
            if found[child] >= found[parent] {
                found[child] = found[parent].next_down().max(0.0);
            }
            n_waiting[child] -= 1;
            if n_waiting[child] == 0 {
                push(NODES, &mut ready, child)?;
            }
            edge = next[edge as usize];
        }
    }
    Ok(())
}

/// Returns the nodes of the set with the largest sum of `weight - mean` that contains the parents of its nodes.
/// `block` is sorted, and `mean` is `sum` divided by the number of its nodes. The result is sorted, and empty if
/// no sum is positive.
fn upper_set(
    block: &[usize],
    weight: &[i64],
    sum: i64,
    edges: &[[usize; 2]],
) -> Result<Vec<usize>, Error> {
    let n = block.len();
    let (source, sink) = (n, n + 1);
    let mut graph = Graph::new(n + 2)?;
    let mut positive = 0i128;
    for (at, &node) in block.iter().enumerate() {
        // Times the number of nodes, so that the mean is exact.
        let excess = i128::from(weight[node]) * n as i128 - i128::from(sum);
        if excess > 0 {
            positive += excess;
            graph.add(source, at, excess)?;
        } else if excess < 0 {
            graph.add(at, sink, -excess)?;
        }
    }
    if positive == 0 {
        return Ok(Vec::new());
    }
    for &[child, parent] in edges {
        if let (Ok(child), Ok(parent)) = (block.binary_search(&child), block.binary_search(&parent))
        {
            graph.add(child, parent, i128::MAX / 4)?;
        }
    }
    if graph.max_flow(source, sink)? == positive {
        return Ok(Vec::new());
    }
    let reached = graph.levels(source)?;
    let upper = block
        .iter()
        .zip(&reached)
        .filter(|&(_, &level)| level != u32::MAX);
    collected(NODES, upper.map(|(&node, _)| node))
}

/// A graph with capacities, for maximum flows by Dinic's algorithm.
struct Graph {
    /// The first edge of each node, or `NONE`.
    first: Vec<u32>,
    /// Edges: the target, the remaining capacity and the next edge of the same node. Edge `e ^ 1` is the reverse
    /// of edge e.
    edges: Vec<(u32, i128, u32)>,
}

const NONE: u32 = u32::MAX;

impl Graph {
    fn new(n_nodes: usize) -> Result<Self, Error> {
        Ok(Self {
            first: filled(NODES, NONE, n_nodes)?,
            edges: Vec::new(),
        })
    }

    fn add(&mut self, from: usize, to: usize, capacity: i128) -> Result<(), Error> {
        for (a, b, room) in [(from, to, capacity), (to, from, 0)] {
            let at = self.edges.len() as u32;
            push(NODES, &mut self.edges, (b as u32, room, self.first[a]))?;
            self.first[a] = at;
        }
        Ok(())
    }

    /// Returns the number of edges from `source` to each node with room left, or `u32::MAX`.
    fn levels(&self, source: usize) -> Result<Vec<u32>, Error> {
        let mut level = filled(NODES, u32::MAX, self.first.len())?;
        let mut queue = reserved(NODES, self.first.len())?;
        level[source] = 0;
        queue.push(source);
        let mut at = 0;
        while at < queue.len() {
            let node: usize = queue[at];
            at += 1;
            let mut edge = self.first[node];
            while edge != NONE {
                let (to, room, next) = self.edges[edge as usize];
                if room > 0 && level[to as usize] == u32::MAX {
                    level[to as usize] = level[node] + 1;
                    queue.push(to as usize);
                }
                edge = next;
            }
        }
        Ok(level)
    }

    fn max_flow(&mut self, source: usize, sink: usize) -> Result<i128, Error> {
        let mut flow = 0;
        loop {
            let level = self.levels(source)?;
            if level[sink] == u32::MAX {
                return Ok(flow);
            }
            let mut next = collected(NODES, self.first.iter().copied())?;
            let mut path: Vec<u32> = reserved(NODES, self.first.len())?;
            let mut node = source;
            loop {
                if node == sink {
                    let room = path
                        .iter()
                        .map(|&e| self.edges[e as usize].1)
                        .min()
                        .unwrap_or(0);
                    for &edge in &path {
                        self.edges[edge as usize].1 -= room;
                        self.edges[edge as usize ^ 1].1 += room;
                    }
                    flow += room;
                    // Go back to the first node whose edge is full.
                    let full = path
                        .iter()
                        .position(|&e| self.edges[e as usize].1 == 0)
                        .unwrap_or(0);
                    node = self.edges[path[full] as usize ^ 1].0 as usize;
                    path.truncate(full);
                    continue;
                }
                let edge = next[node];
                if edge == NONE {
                    // No way on from here, so the edge that led here is skipped.
                    let Some(back) = path.pop() else { break };
                    node = self.edges[back as usize ^ 1].0 as usize;
                    next[node] = self.edges[next[node] as usize].2;
                    continue;
                }
                let (to, room, after) = self.edges[edge as usize];
                if room > 0 && level[to as usize] == level[node] + 1 {
                    path.push(edge);
                    node = to as usize;
                } else {
                    next[node] = after;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns pairs (parent, child) with parent < child, and probabilities in eighths.
    fn problems() -> impl Strategy<Value = (Vec<[u32; 2]>, Vec<f64>)> {
        (2usize..8).prop_flat_map(|n| {
            let pairs = prop::collection::vec((0..n as u32, 0..n as u32), 0..2 * n);
            let pairs = pairs.prop_map(|pairs| {
                pairs
                    .into_iter()
                    .filter(|(a, b)| a < b)
                    .map(|(a, b)| [a, b])
                    .collect()
            });
            (
                pairs,
                prop::collection::vec((0u8..=8).prop_map(|p| f64::from(p) / 8.0), n),
            )
        })
    }

    proptest! {
        #[test]
        fn every_bound_gives_the_best_closed_set((pairs, p) in problems()) {
            let n = p.len();
            let hierarchy = Hierarchy::new(&pairs, n).unwrap();
            let entries: Vec<_> = (0..n as u32).zip(p.iter().copied()).collect();
            let mut found = [0.0f32; 8];
            for (label, p) in corrected(&entries, &hierarchy, &Watch::new()).unwrap() {
                prop_assert!(p > 0.0);
                found[label as usize] = p;
            }
            for &[parent, child] in &pairs {
                let (parent, child) = (found[parent as usize], found[child as usize]);
                prop_assert!(parent > child || parent == 0.0 && child == 0.0);
            }
            for bound in [0.1, 0.3, 0.55, 0.8] {
                // Rounding decides about probabilities that equal the bound.
                if found.iter().any(|&p| (f64::from(p) - bound).abs() < 1e-6) {
                    continue;
                }
                let sum = |set: u32| -> f64 {
                    (0..n).filter(|&j| set >> j & 1 == 1).map(|j| p[j] - bound).sum()
                };
                let chosen = (0..n)
                    .filter(|&j| f64::from(found[j]) > bound)
                    .fold(0, |set, j| set | 1 << j);
                for set in 0..1u32 << n {
                    let closed = pairs
                        .iter()
                        .all(|&[parent, child]| set >> child & 1 <= set >> parent & 1);
                    prop_assert!(!closed || sum(chosen) >= sum(set) - 1e-6);
                }
            }
        }
    }

    #[test]
    fn cycles_and_wrong_labels_are_refused() {
        assert!(Hierarchy::new(&[[0, 1], [1, 2], [2, 1]], 3).is_err());
        assert!(Hierarchy::new(&[[0, 3]], 3).is_err());
        assert!(Hierarchy::new(&[[0, 1], [0, 2], [1, 2]], 3).is_ok());
    }
}
