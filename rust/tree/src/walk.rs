//! Sends rows down the trees by a beam search, level by level.
//!
//! A row has a beam in each tree. The beam has the nodes that the row is sent to, and the logarithms of
//! their probabilities. A step replaces the inner nodes of all beams by their children. Then it keeps the
//! best nodes of each beam.
//!
//! Rows are processed in groups. The visits of a group are sorted by node. So the weights of a node are read
//! once for all rows of the group that are sent to the node. If only the best labels of each row are needed, the
//! leaves of a row are visited in a few batches. No array in this file has an entry for each feature or each label.

use crate::arrays::Arrays;
use crate::merge::{Merge, Wanted};
use crate::params::Combine;
use crate::probability::Link;
use manylabel_base::{Error, collected, extend, filled, push};
use manylabel_sparse::{Picked, TopK};
use std::cmp::Ordering;
use std::ops::Range;

/// The name of the beams in error messages.
pub(crate) const NODES: &str = "number of nodes that rows are sent to";

/// The name of the scored labels in error messages.
pub(crate) const CANDIDATES: &str = "number of labels that are scored for rows";

/// The number of leaves in the first batch of leaves of a row, and the factor by which each further batch is larger,
/// if several rows are scored. More rows of a batch than of a single leaf use the same weights while they are in the
/// cache, but fewer leaves are skipped. With a beam of 10 and five labels for each row of eurlex57k, single leaves skip
/// 29 % of the leaves. Batches of 3 and 7 leaves skip 24 %, and the prediction takes 15 to 45 % less time.
const LEAVES_GROWTH: usize = 3;

/// The number of rows that are multiplied by the weights of a node in one call. It limits the memory for margins.
const ROWS_OF_NODE: usize = 32;

/// The lowest finite score. It replaces scores that overflow.
pub(crate) const LOWEST: f32 = f32::MIN;

/// A visit: a node that a row is sent to, with the logarithm of its probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Visit {
    /// The beam of the visit, `row * n_trees + tree`. Here, `row` is the position of the row in its group.
    pub(crate) slot: u32,
    /// The node.
    pub(crate) node: u32,
    /// The logarithm of the probability of the node.
    pub(crate) score: f32,
}

impl Visit {
    /// Returns the visit of a child of the node. `margin` is the margin of the row for the child. `link` is
    /// that of the model.
    #[inline]
    pub(crate) fn child(&self, node: u32, margin: f32, link: Link) -> Self {
        Self {
            slot: self.slot,
            node,
            score: (self.score + link.log_probability(finite(margin))).max(LOWEST),
        }
    }

    /// Compares two visits of a slot. The visit with the higher score comes first. If the scores are equal, the
    /// visit of the node with the lower number comes first.
    fn compare(&self, other: &Self) -> Ordering {
        let by_score = other.score.total_cmp(&self.score);
        by_score.then(self.node.cmp(&other.node))
    }

    /// Returns the score of a label of a leaf in its tree. `log_probability` is the logarithm of the probability of the
    /// label in the leaf.
    #[inline]
    pub(crate) fn product(&self, path_weight: f64, log_probability: f32) -> f32 {
        (path_weight as f32 * self.score + log_probability).max(LOWEST)
    }
}

/// A label that is scored for a row, in one tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// The beam of the leaf, `row * n_trees + tree`.
    pub(crate) slot: u32,
    /// The label.
    pub(crate) label: u32,
    /// The score of the label in this tree. The threshold is not subtracted yet.
    pub(crate) score: f32,
}

impl Found {
    /// Returns a label of a visited leaf with its score. `margin` is the margin of the row for the label. `link` is
    /// that of the model.
    #[inline]
    pub(crate) fn new(leaf: &Visit, label: u32, margin: f32, combine: Combine, link: Link) -> Self {
        let margin = finite(margin);
        let score = match combine {
            Combine::Leaf => margin,
            Combine::Product { path_weight } => {
                leaf.product(path_weight, link.log_probability(margin))
            }
        };
        Self {
            slot: leaf.slot,
            label,
            score,
        }
    }
}

/// The rows of a group and their beams. A thread uses the same value for all of its groups.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// The features of the rows, row after row.
    cols: Vec<u32>,
    /// The values of these features.
    values: Vec<f32>,
    /// The position in `cols` after the last feature of each row.
    ends: Vec<usize>,
    /// The visits of the current level, which form the beams.
    pub(crate) visits: Vec<Visit>,
    /// The visits of the next level, before the best ones are selected.
    pub(crate) next: Vec<Visit>,
    /// For each slot, the logarithm of the probability of the best node that was dropped from the beam.
    dropped: Vec<f32>,
    /// The margins of the outputs of a node, for some rows, row after row.
    margins: Vec<f32>,
    /// The values of all features for those rows of a node that have some zeros, row after row.
    expanded: Vec<f32>,
    /// The position of the next entry of each slot or row, while a list is sorted by slot or row.
    places: Vec<u32>,
    /// The labels of all visited leaves, with their scores.
    found: Vec<Found>,
    /// The entries of `found`, sorted by row.
    by_row: Vec<Found>,
    /// Merges the labels of several trees.
    merge: Merge,
}

/// Returns a finite number for a margin. NaN becomes 0, and infinite margins become the largest finite
/// numbers.
#[inline]
pub(crate) fn finite(margin: f32) -> f32 {
    if margin.is_nan() {
        0.0
    } else {
        margin.clamp(LOWEST, f32::MAX)
    }
}

impl Walk {
    /// Begins a new group, which has no rows yet.
    pub(crate) fn clear(&mut self) {
        self.cols.clear();
        self.values.clear();
        self.ends.clear();
        self.visits.clear();
        self.dropped.clear();
    }

    /// Adds a row to the group. `cols` has the features of the row, in increasing order.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn add_row(
        &mut self,
        cols: impl IntoIterator<Item = u32>,
        values: impl IntoIterator<Item = f32>,
    ) -> Result<(), Error> {
        extend("number of features of some rows", &mut self.cols, cols)?;
        extend("number of features of some rows", &mut self.values, values)?;
        push("number of rows", &mut self.ends, self.cols.len())
    }

    /// Adds a row to the group. `entries` has the features of the row, in increasing order, and their values.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn add_entries(
        &mut self,
        entries: impl IntoIterator<Item = (u32, f32)>,
    ) -> Result<(), Error> {
        for (col, value) in entries {
            push("number of features of some rows", &mut self.cols, col)?;
            push("number of features of some rows", &mut self.values, value)?;
        }
        push("number of rows", &mut self.ends, self.cols.len())
    }

    /// Returns the number of rows of the group.
    fn n_rows(&self) -> usize {
        self.ends.len()
    }

    /// Returns the positions in `cols` and `values` of the entries of a row.
    fn row(ends: &[usize], row: usize) -> Range<usize> {
        let begin = row.checked_sub(1).map_or(0, |row| ends[row]);
        begin..ends[row]
    }

    /// Sends all rows to the roots of all trees.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn start(&mut self, n_trees: usize) -> Result<(), Error> {
        let slots = 0..(self.n_rows() * n_trees) as u32;
        let visit = |slot| Visit {
            slot,
            node: slot % n_trees as u32,
            score: 0.0,
        };
        extend(NODES, &mut self.visits, slots.map(visit))?;
        self.dropped = filled(NODES, f32::NEG_INFINITY, self.n_rows() * n_trees)?;
        Ok(())
    }

    /// Adds the beams of the row that was added last. `first_slot` is added to the slot of each visit. The
    /// probabilities of nodes that were dropped in earlier levels are not known.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn resume(&mut self, visits: &[Visit], first_slot: u32) -> Result<(), Error> {
        let visits = visits.iter().map(|visit| Visit {
            slot: first_slot + visit.slot,
            ..*visit
        });
        extend(NODES, &mut self.visits, visits)
    }

    /// Computes the margins of all outputs of a node for the rows that visit it, and stores them in `margins`. All
    /// visits must be visits of the same node.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    #[inline]
    fn score(&mut self, model: &Arrays<'_>, visits: &[Visit]) -> Result<(), Error> {
        let node = visits[0].node as usize;
        let (intercept, scale) = model.intercept_and_scale(node);
        let n_outputs = intercept.len();
        self.margins.clear();
        for _ in visits {
            // The products of 8-bit weights are scaled before intercepts are added.
            if scale.is_none() {
                extend(NODES, &mut self.margins, intercept.iter().copied())?;
            } else {
                let zeros = std::iter::repeat_n(0.0, n_outputs);
                extend(NODES, &mut self.margins, zeros)?;
            }
        }
        let chunk = model.chunk(node);
        let row = |visit: &Visit| Self::row(&self.ends, visit.slot as usize / model.n_trees());
        let n_features = model.n_features;
        if chunk.is_complete
            && visits
                .iter()
                .all(|visit| row(visit).len() * 2 >= n_features)
        {
            // Products of zeros and weights do not change a sum.
            self.expanded.clear();
            let rows = visits.iter().map(row);
            for range in rows.filter(|range| range.len() < n_features) {
                let first = self.expanded.len();
                let zeros = std::iter::repeat_n(0.0, n_features);
                extend(NODES, &mut self.expanded, zeros)?;
                for (&col, &value) in self.cols[range.clone()].iter().zip(&self.values[range]) {
                    self.expanded[first + col as usize] = value;
                }
            }
            let mut expanded = self.expanded.chunks_exact(n_features.max(1));
            let mut rows = [&[][..]; ROWS_OF_NODE];
            for (values, visit) in rows.iter_mut().zip(visits) {
                let all = &self.values[row(visit)];
                *values = if all.len() < n_features {
                    expanded.next().unwrap_or(all)
                } else {
                    all
                };
            }
            chunk.add_dense_rows(&rows[..visits.len()], &mut self.margins);
        } else {
            let margins = self.margins.chunks_exact_mut(n_outputs.max(1));
            for (visit, margins) in visits.iter().zip(margins) {
                let range = row(visit);
                chunk.add_row(&self.cols[range.clone()], &self.values[range], margins);
            }
        }
        if let Some(scale) = scale {
            for margins in self.margins.chunks_exact_mut(n_outputs.max(1)) {
                for ((margin, scale), intercept) in margins.iter_mut().zip(scale).zip(intercept) {
                    *margin = *margin * scale + intercept;
                }
            }
        }
        Ok(())
    }

    /// Replaces the inner nodes of all beams by their children and keeps the `beam` best nodes of each slot.
    /// Returns true if the beams had an inner node. Leaves stay in the beams.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn step(&mut self, model: &Arrays<'_>, beam: usize) -> Result<bool, Error> {
        let is_inner = |visit: &Visit| !model.children(visit.node as usize).is_empty();
        if !self.visits.iter().any(is_inner) {
            return Ok(false);
        }
        let n_trees = model.n_trees();
        let visits = self.in_order_of_nodes();
        self.next.clear();
        for visits in by_node(&visits) {
            let children = model.children(visits[0].node as usize);
            if children.is_empty() {
                extend(NODES, &mut self.next, visits.iter().copied())?;
                continue;
            }
            self.score(model, visits)?;
            for (visit, margins) in visits.iter().zip(self.margins.chunks_exact(children.len())) {
                let below = (children.start as u32..).zip(margins);
                let below = below.map(|(node, &margin)| visit.child(node, margin, model.link));
                extend(NODES, &mut self.next, below)?;
            }
        }
        self.visits = visits;
        self.keep_best(beam, self.n_rows() * n_trees)?;
        Ok(true)
    }

    /// Returns the visits, sorted by node. Leaves `visits` empty.
    fn in_order_of_nodes(&mut self) -> Vec<Visit> {
        let mut visits = std::mem::take(&mut self.visits);
        if self.n_rows() > 1 {
            visits.sort_unstable_by_key(|visit| (visit.node, visit.slot));
        }
        visits
    }

    /// Moves the `beam` best visits of each slot from `next` to `visits`. If two visits have the same
    /// score, the visit of the node with the lower number is better. The best score of the dropped visits
    /// is stored in `dropped`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn keep_best(&mut self, beam: usize, n_slots: usize) -> Result<(), Error> {
        let slots = self.next.iter().map(|visit| visit.slot);
        places_of(&mut self.places, slots, n_slots)?;
        self.visits.clear();
        let empty = Visit {
            slot: 0,
            node: 0,
            score: 0.0,
        };
        extend(
            NODES,
            &mut self.visits,
            std::iter::repeat_n(empty, self.next.len()),
        )?;
        for visit in &self.next {
            let place = &mut self.places[visit.slot as usize];
            self.visits[*place as usize] = *visit;
            *place += 1;
        }
        // After this loop, `places` has the position after the last visit of each slot.
        let (mut begin, mut kept) = (0, 0);
        for slot in 0..n_slots {
            let end = self.places[slot] as usize;
            let of_slot = &mut self.visits[begin..end];
            let mut n_kept = of_slot.len();
            if n_kept > beam {
                of_slot.select_nth_unstable_by(beam, Visit::compare);
                n_kept = beam;
                // The best dropped visit is at the position `beam`.
                if let Some(dropped) = self.dropped.get_mut(slot) {
                    *dropped = dropped.max(of_slot[beam].score);
                }
            }
            self.visits.copy_within(begin..begin + n_kept, kept);
            kept += n_kept;
            begin = end;
        }
        self.visits.truncate(kept);
        Ok(())
    }

    /// Keeps the visits of each slot with a probability of at least `exp(-below)` times the probability of the best
    /// visit of the slot. The visits of a slot must be consecutive, as after [`step`](Self::step).
    pub(crate) fn keep_likely(&mut self, below: f32) {
        let mut kept = 0;
        let mut begin = 0;
        while let Some(first) = self.visits.get(begin) {
            let slot = first.slot;
            let of_slot = self.visits[begin..]
                .iter()
                .take_while(|visit| visit.slot == slot);
            let (n, best) = of_slot.fold((0, f32::NEG_INFINITY), |(n, best), visit| {
                (n + 1, best.max(visit.score))
            });
            for at in begin..begin + n {
                if self.visits[at].score >= best - below {
                    self.visits.swap(kept, at);
                    kept += 1;
                }
            }
            begin += n;
        }
        self.visits.truncate(kept);
    }

    /// Scores the labels of all leaves in the beams. Appends them to `out`, row by row, with their scores
    /// minus `threshold`. If `n_best` is given, some labels are not appended, but the `n_best` best labels of
    /// each row are.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn labels(
        &mut self,
        model: &Arrays<'_>,
        combine: Combine,
        threshold: f32,
        n_best: Option<usize>,
        out: &mut Picked,
    ) -> Result<(), Error> {
        let visits = self.in_order_of_nodes();
        self.found.clear();
        for visits in by_node(&visits) {
            let labels = &model.labels[model.labels(visits[0].node as usize)];
            self.score(model, visits)?;
            let margins = self.margins.chunks_exact(labels.len().max(1));
            for (visit, margins) in visits.iter().zip(margins) {
                let scored = labels.iter().zip(margins).map(|(&label, &margin)| {
                    Found::new(visit, label as u32, margin, combine, model.link)
                });
                extend(CANDIDATES, &mut self.found, scored)?;
            }
        }
        self.visits = visits;
        self.by_row(model.n_trees(), combine, threshold, n_best, out)
    }

    /// Does the same as [`labels`](Self::labels) for a model with one tree, but appends only some labels of
    /// each row. They include the best labels of the row, as many as `best` keeps.
    ///
    /// The score of a label is at most the score of a label with probability 1 in the same leaf. So the leaves
    /// of a row are scored in decreasing order of their probabilities, until no other leaf can have one of the
    /// best labels. If there are several rows, leaves are scored in batches (see [`LEAVES_GROWTH`]).
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn best_labels(
        &mut self,
        model: &Arrays<'_>,
        combine: Combine,
        threshold: f32,
        best: &mut TopK,
        out: &mut Picked,
    ) -> Result<(), Error> {
        let n_rows = self.n_rows();
        let mut visits = std::mem::take(&mut self.visits);
        visits.sort_unstable_by(|a, b| {
            let by_score = || b.score.total_cmp(&a.score).then(a.node.cmp(&b.node));
            a.slot.cmp(&b.slot).then_with(by_score)
        });
        places_of(
            &mut self.places,
            visits.iter().map(|visit| visit.slot),
            n_rows,
        )?;
        // Of each row, the position of its next leaf, and a score that enough of its labels reach.
        let next = &self.places[..n_rows];
        let mut next = collected(NODES, next.iter().map(|&place| place as usize))?;
        let mut floors = filled(NODES, f32::NEG_INFINITY, n_rows)?;
        let mut turn = Vec::new();
        let growth = if n_rows > 1 { LEAVES_GROWTH } else { 1 };
        let mut n_leaves = growth;
        self.found.clear();
        loop {
            turn.clear();
            for row in 0..n_rows {
                let end = self.places[row + 1] as usize;
                let leaves = &visits[next[row]..end];
                for visit in &leaves[..n_leaves.min(leaves.len())] {
                    let highest = Found::new(visit, 0, f32::MAX, combine, model.link).score;
                    if finite(highest - threshold) < floors[row] {
                        next[row] = end;
                        break;
                    }
                    next[row] += 1;
                    push(NODES, &mut turn, *visit)?;
                }
            }
            n_leaves = n_leaves.saturating_mul(growth);
            if turn.is_empty() {
                break;
            }
            turn.sort_unstable_by_key(|visit| (visit.node, visit.slot));
            for visits in by_node(&turn) {
                let labels = &model.labels[model.labels(visits[0].node as usize)];
                self.score(model, visits)?;
                let margins = self.margins.chunks_exact(labels.len().max(1));
                for (visit, margins) in visits.iter().zip(margins) {
                    let floor = &mut floors[visit.slot as usize];
                    for (&label, &margin) in labels.iter().zip(margins) {
                        let Found { label, score, .. } =
                            Found::new(visit, label as u32, margin, combine, model.link);
                        // Rounding can make scores equal. So the threshold is subtracted before scores are
                        // compared.
                        let score = finite(score - threshold);
                        if score >= best.floor().max(*floor) {
                            best.push(label, score);
                        }
                    }
                    *floor = floor.max(best.floor());
                    let slot = visit.slot;
                    let kept = best.drain_ranked();
                    let kept = kept.map(|(label, score)| Found { slot, label, score });
                    extend(CANDIDATES, &mut self.found, kept)?;
                }
            }
        }
        self.visits = visits;
        self.by_row(1, combine, 0.0, None, out)
    }

    /// Returns, for each tree, the logarithm of the probability of the best node that was dropped from the beam of
    /// a row.
    pub(crate) fn dropped(&self, row: usize, n_trees: usize) -> &[f32] {
        &self.dropped[row * n_trees..][..n_trees]
    }

    /// Appends the labels in `found` to `out`, row by row, with their scores minus `threshold`. With several
    /// trees, each label of a row is appended once, with the mean over the trees. If `n_best` is given, some of
    /// them are not appended, but the `n_best` best labels of each row are.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn by_row(
        &mut self,
        n_trees: usize,
        combine: Combine,
        threshold: f32,
        n_best: Option<usize>,
        out: &mut Picked,
    ) -> Result<(), Error> {
        let n_rows = self.n_rows();
        let rows = self.found.iter().map(|found| found.slot / n_trees as u32);
        places_of(&mut self.places, rows, n_rows)?;
        self.by_row.clear();
        extend(CANDIDATES, &mut self.by_row, self.found.iter().copied())?;
        for found in &self.found {
            let place = &mut self.places[found.slot as usize / n_trees];
            self.by_row[*place as usize] = *found;
            *place += 1;
        }
        let mut begin = 0;
        for row in 0..n_rows {
            let end = self.places[row] as usize;
            let found = &self.by_row[begin..end];
            if n_trees == 1 {
                let scored = found
                    .iter()
                    .map(|found| (found.label, finite(found.score - threshold)));
                extend(CANDIDATES, &mut out.pairs, scored)?;
            } else {
                let dropped = &self.dropped[row * n_trees..][..n_trees];
                let wanted = n_best.map_or(Wanted::All, Wanted::Best);
                self.merge
                    .row(found, dropped, combine, threshold, wanted, &mut out.pairs)?;
            }
            out.ends.push(out.pairs.len());
            begin = end;
        }
        Ok(())
    }
}

/// Returns the visits in groups of up to [`ROWS_OF_NODE`] consecutive visits of the same node.
fn by_node(visits: &[Visit]) -> impl Iterator<Item = &[Visit]> {
    let of_nodes = visits.chunk_by(|a, b| a.node == b.node);
    of_nodes.flat_map(|of_node| of_node.chunks(ROWS_OF_NODE))
}

/// Sets `places` to the position at which each slot begins, in a list that is sorted by slot. `slots` has the
/// slots of the entries of this list, in any order. The last entry of `places` is the length of the list.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short, or if the list has 2³² entries or more.
fn places_of(
    places: &mut Vec<u32>,
    slots: impl Iterator<Item = u32>,
    n_slots: usize,
) -> Result<(), Error> {
    places.clear();
    extend(NODES, places, std::iter::repeat_n(0, n_slots + 1))?;
    let mut n_entries = 0usize;
    for slot in slots {
        places[slot as usize + 1] += 1;
        n_entries += 1;
    }
    if u32::try_from(n_entries).is_err() {
        return Err(Error::TooLarge {
            what: "number of nodes or labels that are scored together",
            got: n_entries.to_string(),
        });
    }
    for slot in 0..n_slots {
        places[slot + 1] += places[slot];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_likely_nodes_remain() {
        let visits = |slot, scores: &[f32]| {
            let visit = |(node, &score)| Visit { slot, node, score };
            (0..).zip(scores).map(visit).collect::<Vec<_>>()
        };
        let mut walk = Walk {
            visits: [
                visits(0, &[-8.5, -1.0, -7.9, -8.1, -8.0]),
                visits(1, &[-30.0, -9.0]),
                visits(3, &[-2.0, -2.0, -50.0]),
            ]
            .concat(),
            ..Walk::default()
        };
        walk.keep_likely(7.0);
        let kept = walk.visits.iter().map(|visit| (visit.slot, visit.node));
        assert_eq!(
            kept.collect::<Vec<_>>(),
            [(0, 1), (0, 2), (0, 4), (1, 1), (3, 0), (3, 1)]
        );
    }
}
