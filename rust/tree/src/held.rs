//! Scores held-out rows. Learns the exponent of the path and the threshold (the cut) from these scores.
//!
//! Training rows have higher scores for their own labels than new rows, so a threshold learned from training
//! rows would be too high. A second fit without some rows would cost as much as the first fit. Instead, a few
//! steps of the solver adapt a copy of the weights of a node to the other rows of the node. The weights of
//! the model do not change.
//!
//! The adapted weights score the held-out rows. Level by level, the scores decide which nodes these rows are
//! sent to, as in a prediction. The exponent is the smallest one with nearly the best rankings of the held-out
//! rows in the single trees. At the cut, the number of predicted labels of the held-out rows equals the number of
//! their true labels.

use crate::merge::{Merge, Wanted};
use crate::model::Model;
use crate::params::{Combine, Params};
use crate::probability::Link;
use crate::walk::{CANDIDATES, Found, LOWEST, NODES, Visit, Walk, finite};
use manylabel_base::{Error, Watch, collected, copied, extend, filled, push};
use manylabel_linear::Tally;
use manylabel_linear::dismec::held_out_rows;
use manylabel_sparse::{CsrOwned, Labels, TopK};
use std::ops::Range;

/// The largest number of held-out rows. With this number, the mean number of labels per row is accurate to
/// about one percent.
const MOST_ROWS: usize = 4096;

/// The smallest total number of labels of the held-out rows. With fewer labels, nothing is learned from them.
const FEWEST_POSITIVES: usize = 10;

/// The smallest total number of labels of the held-out rows with which the exponent of the path is learned. With
/// fewer labels, chance decides which exponent ranks best.
const FEWEST_TO_RANK: usize = 200;

/// The exponents of the probability of the leaf that are compared. On five data sets, the best exponents were
/// from 0 to 1. They are in decreasing order. The exponent 1 is the product rule of Parabel and PECOS.
const PATH_WEIGHTS: [f64; 8] = [1.0, 0.7, 0.5, 0.35, 0.2, 0.1, 0.05, 0.0];

/// The smallest exponent is chosen whose rankings reach this share of the best. Held-out rows favour large exponents a
/// little, because a few solver steps do not make inner nodes forget a row as well as leaves. On a planted set with
/// 143,000 labels, 0.2 is the best exponent on held-out rows, and 0.05 on new rows. A larger margin, such as one standard
/// error, chooses too small exponents if few rows are held out: with three trees on citeulike-t, P@3 fell by 0.3 when the
/// mean over the trees was ranked.
const AS_GOOD: f64 = 0.999;

/// With one tree, the labels of a leaf with the largest margins are compared for a held-out row: this number of
/// labels, or [`KEPT_PER_LABEL`] times the number of labels of the row if this is larger. Rankings need the five
/// best labels of a leaf. Sets of labels need about as many labels as the row has. With several trees, the cut needs
/// the scores of all labels, for the mean over the trees.
const KEPT_PER_LEAF: usize = 64;

/// See [`KEPT_PER_LEAF`].
const KEPT_PER_LABEL: usize = 2;

/// With several trees, the largest number of labels that are compared for all held-out rows. A label takes 8 bytes. A
/// leaf takes 32 bytes, and 20 bytes for each of its five best labels.
const MOST_CANDIDATES: usize = 1 << 22;

/// What a true label at each rank adds to the sum of the precisions at 1, 3 and 5. For example, rank 2 adds 1/3
/// to the precision at 3 and 1/5 to the precision at 5.
const GAINS: [f64; 5] = [
    1.0 + 1.0 / 3.0 + 1.0 / 5.0,
    1.0 / 3.0 + 1.0 / 5.0,
    1.0 / 3.0 + 1.0 / 5.0,
    1.0 / 5.0,
    1.0 / 5.0,
];

/// The held-out rows and the nodes that they are sent to.
#[derive(Debug)]
pub(crate) struct HeldOut {
    /// The numbers of the held-out rows in the training set, in increasing order.
    pub(crate) rows: Vec<u32>,
    /// The beams of the held-out rows. In `walk`, the number of a row is its position in `rows`. The rows in
    /// `walk` have no features, because the nodes compute their margins.
    walk: Walk,
    /// The leaves that the rows reached. [`finish`](Self::finish) sorts them by their beams.
    leaves: Vec<Leaf>,
    /// The labels of these leaves, leaf after leaf, with the margins of the rows.
    candidates: Vec<(u32, f32)>,
    /// How margins become probabilities.
    link: Link,
}

/// A leaf that a held-out row reached.
#[derive(Debug)]
struct Leaf {
    /// The visit of the leaf.
    visit: Visit,
    /// The positions of its labels in [`HeldOut::candidates`].
    candidates: Range<usize>,
}

impl HeldOut {
    /// Draws the held-out rows and sends them to the roots. Returns `None` if the rows have too few
    /// labels, or if no other rows would remain.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn new(y: Labels<'_>, params: &Params) -> Result<Option<Self>, Error> {
        let mut rows = held_out_rows(y.ones.n_rows())?;
        let n_trees = params.n_trees;
        let of_row = params
            .beam
            .saturating_mul(params.max_leaf)
            .min(y.ones.n_cols);
        let of_row = of_row.saturating_mul(n_trees).max(1);
        let most_rows = if n_trees == 1 {
            MOST_ROWS
        } else {
            MOST_ROWS.min(MOST_CANDIDATES / of_row).max(1)
        };
        let every = rows.len().div_ceil(most_rows).max(1);
        let mut at = 0;
        rows.retain(|_| {
            at += 1;
            (at - 1) % every == 0
        });
        let n_positive: usize = rows
            .iter()
            .map(|&row| y.ones.row(row as usize).0.len())
            .sum();
        if n_positive < FEWEST_POSITIVES || rows.len() == y.ones.n_rows() {
            return Ok(None);
        }
        let mut walk = Walk::default();
        for _ in &rows {
            walk.add_row([], [])?;
        }
        walk.start(n_trees)?;
        Ok(Some(Self {
            rows,
            walk,
            leaves: Vec::new(),
            candidates: Vec::new(),
            link: Link::of_loss(params.linear.loss),
        }))
    }

    /// Returns, for each of the given nodes, the held-out rows that are sent to the node. Rows are given as
    /// positions in `rows`. The shape is (nodes, rows).
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn rows_of_nodes(
        &self,
        nodes: &Range<usize>,
        n_trees: usize,
    ) -> Result<CsrOwned, Error> {
        let visits = self.walk.visits.iter();
        let visits = visits.map(|visit| (visit.slot / n_trees as u32, visit.node));
        rows_of_nodes(visits, nodes, self.rows.len())
    }

    /// Sends the held-out rows from the nodes of a level to the best children of these nodes. If a node is a
    /// leaf, stores the largest margins of its labels instead, except for unknown pairs of row and label.
    ///
    /// `margins` has the margins of each node, row after row. The rows are in the order of
    /// [`rows_of_nodes`](Self::rows_of_nodes).
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn step(
        &mut self,
        nodes: &Range<usize>,
        margins: &[&[f32]],
        y: Labels<'_>,
        model: &Model,
        params: &Params,
    ) -> Result<(), Error> {
        let arrays = model.arrays();
        let mut used = filled("number of nodes", 0, nodes.len())?;
        let mut sorted = Vec::new();
        self.walk.next.clear();
        for visit in &self.walk.visits {
            let node = visit.node as usize;
            if !nodes.contains(&node) {
                push(NODES, &mut self.walk.next, *visit)?; // a leaf of an earlier level, or a node of another tree
                continue;
            }
            let at = node - nodes.start;
            let (children, labels) = (arrays.children(node), arrays.labels(node));
            let n_outputs = children.len() + labels.len();
            let margins = &margins[at][used[at]..used[at] + n_outputs];
            used[at] += n_outputs;
            for (child, &margin) in children.zip(margins) {
                let child = visit.child(child as u32, margin, self.link);
                push(NODES, &mut self.walk.next, child)?;
            }
            if labels.is_empty() {
                continue;
            }
            push(NODES, &mut self.walk.next, *visit)?; // leaves stay in the beams
            let row = self.rows[visit.slot as usize / params.n_trees] as usize;
            let n_kept = if params.n_trees == 1 {
                let n_kept = KEPT_PER_LEAF.max(KEPT_PER_LABEL * y.ones.row(row).0.len());
                n_kept + y.unknown_of(row).len()
            } else {
                labels.len()
            };
            let begin = self.candidates.len();
            for &(margin, at) in largest(margins, n_kept, &mut sorted)? {
                let label = arrays.labels[labels.start + at as usize] as u32;
                if !y.is_unknown(row, label) {
                    push(CANDIDATES, &mut self.candidates, (label, margin))?;
                }
            }
            let leaf = Leaf {
                visit: *visit,
                candidates: begin..self.candidates.len(),
            };
            push(NODES, &mut self.leaves, leaf)?;
        }
        let n_slots = self.rows.len() * params.n_trees;
        self.walk.keep_best(params.beam, n_slots)
    }

    /// Removes the leaves that were dropped from the beams at a deeper level. In trees with leaves at different depths,
    /// a prediction does not score the labels of these leaves. Sorts the other leaves by their beams.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        let key = |visit: &Visit| (visit.slot, visit.node);
        let mut kept = collected(NODES, self.walk.visits.iter().map(key))?;
        kept.sort_unstable();
        self.leaves
            .retain(|leaf| kept.binary_search(&key(&leaf.visit)).is_ok());
        self.leaves.sort_unstable_by_key(|leaf| key(&leaf.visit));
        Ok(())
    }

    /// Returns the combination with the smallest exponent of the path whose rankings of the held-out rows are
    /// nearly as good as the best ([`AS_GOOD`]). If all exponents are equally good, the one of [`textbook`] is
    /// returned. [`finish`](Self::finish) must have been called.
    ///
    /// Returns [`textbook`] if the rows have fewer than [`FEWEST_TO_RANK`] labels. Each row is ranked by the
    /// scores of its candidates in each single tree. The rankings are compared by the sum of their precisions at 1, 3
    /// and 5. `weights` are the weights of the rows.
    ///
    /// The mean over the trees is not ranked. On held-out rows, it favours large exponents more than single trees do:
    /// the errors of the leaves cancel in the mean, but the inner nodes of all trees remember the same rows
    /// ([`AS_GOOD`]). With three trees on citeulike-t, this choice raised the sum of P@1, P@3 and P@5 by 0.4, 0.1 and
    /// 0.2 (three seeds). On bibtex, reuters-21578 and corel5k, it chose the same exponents. On delicious, the sum fell
    /// by 0.1, 0.1 and 0.0.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the caller requested a
    /// stop.
    pub(crate) fn best_combination(
        &self,
        y: Labels<'_>,
        weights: Option<&[f32]>,
        n_trees: usize,
        watch: &Watch,
    ) -> Result<Combine, Error> {
        let n_labels = |&row: &u32| y.ones.row(row as usize).0.len();
        if self.rows.iter().map(n_labels).sum::<usize>() < FEWEST_TO_RANK {
            return Ok(textbook());
        }
        let mut top = TopK::new(GAINS.len())?;
        // All exponents rank the labels of a leaf by their probabilities in the leaf.
        let mut best_of_leaves = Vec::new();
        for leaf in &self.leaves {
            for &(label, margin) in &self.candidates[leaf.candidates.clone()] {
                top.push(label, self.link.log_probability(margin).max(LOWEST));
            }
            let best = top.drain_ranked();
            let best = best.map(|(label, log_probability)| (leaf.visit, label, log_probability));
            extend(CANDIDATES, &mut best_of_leaves, best)?;
        }
        let mut totals = [0.0; PATH_WEIGHTS.len()];
        for (total, path_weight) in totals.iter_mut().zip(PATH_WEIGHTS) {
            watch.step(0)?;
            for of_tree in best_of_leaves.chunk_by(|a, b| a.0.slot == b.0.slot) {
                let row = self.rows[of_tree[0].0.slot as usize / n_trees];
                for (leaf, label, log_probability) in of_tree {
                    top.push(*label, leaf.product(path_weight, *log_probability));
                }
                *total += f64::from(row_weight(weights, row))
                    * gain(top.drain_ranked(), y.ones.row(row as usize).0);
            }
        }
        let best = totals.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // Without a choice, as in a tree of one leaf, the product rule is the usual one.
        if totals.iter().all(|&total| total >= best) {
            return Ok(textbook());
        }
        let as_good = totals.iter().rposition(|&total| total >= AS_GOOD * best);
        Ok(Combine::Product {
            path_weight: PATH_WEIGHTS[as_good.unwrap_or(0)],
        })
    }

    /// Returns the score at which the number of predicted labels of the held-out rows equals the number
    /// of their true labels. Both numbers are weighted by the weights of the rows. Returns `None` if no
    /// such score can be learned. [`finish`](Self::finish) must have been called.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn cut(
        &self,
        y: Labels<'_>,
        weights: Option<&[f32]>,
        n_trees: usize,
        combine: Combine,
    ) -> Result<Option<f32>, Error> {
        let n_labels = |row: u32| y.ones.row(row as usize).0.len() as f64;
        let wanted = self
            .rows
            .iter()
            .map(|&row| f64::from(row_weight(weights, row)) * n_labels(row));
        let mut tally = Tally::new(wanted.sum());
        let (mut merge, mut found, mut scored) = (Merge::default(), Vec::new(), Vec::new());
        let row_of = |leaf: &Leaf| leaf.visit.slot as usize / n_trees;
        for leaves in self.leaves.chunk_by(|a, b| row_of(a) == row_of(b)) {
            found.clear();
            for Leaf { visit, candidates } in leaves {
                let candidates = self.candidates[candidates.clone()].iter();
                let of_leaf = candidates
                    .map(|&(label, margin)| Found::new(visit, label, margin, combine, self.link));
                extend(CANDIDATES, &mut found, of_leaf)?;
            }
            let row = row_of(&leaves[0]);
            let weight = row_weight(weights, self.rows[row]);
            if n_trees == 1 {
                for label in &found {
                    tally.push(label.score, weight)?;
                }
                continue;
            }
            let dropped = self.walk.dropped(row, n_trees);
            let above = Wanted::Above(tally.floor()); // the tally ignores lower scores
            scored.clear();
            merge.row(&found, dropped, combine, 0.0, above, &mut scored)?;
            for &(_, score) in &scored {
                tally.push(score, weight)?;
            }
        }
        Ok(tally.cut(textbook_cut(combine, self.link)))
    }
}

/// Returns the `n` largest margins with their positions, in any order. Of equal margins, the ones with the lowest
/// positions are returned. `memory` is used for the result.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
fn largest<'a>(
    margins: &[f32],
    n: usize,
    memory: &'a mut Vec<(f32, u32)>,
) -> Result<&'a [(f32, u32)], Error> {
    memory.clear();
    let margins = margins.iter().map(|&margin| finite(margin)).zip(0..);
    extend(CANDIDATES, memory, margins)?;
    if n < memory.len() {
        memory.select_nth_unstable_by(n, |a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        memory.truncate(n);
    }
    Ok(memory)
}

/// Returns the weight of a row.
fn row_weight(weights: Option<&[f32]>, row: u32) -> f32 {
    weights.map_or(1.0, |weights| weights[row as usize])
}

/// Returns the sum of the precisions of a ranking at 1, 3 and 5. `ranked` has the labels, with the best
/// label first. `labels` are the true labels, in increasing order.
fn gain(ranked: impl Iterator<Item = (u32, f32)>, labels: &[u32]) -> f64 {
    let hits = ranked
        .zip(GAINS)
        .filter(|((label, _), _)| labels.binary_search(label).is_ok());
    hits.map(|(_, gain)| gain).sum()
}

/// Returns the combination with the exponent 1: the probability of a label is the product of all
/// probabilities on its path. It is used if nothing can be learned.
pub(crate) fn textbook() -> Combine {
    Combine::Product { path_weight: 1.0 }
}

/// Returns the score of a label with margin 0, in a leaf with probability 1. A margin of 0 is the threshold of every loss.
pub(crate) fn textbook_cut(combine: Combine, link: Link) -> f32 {
    match combine {
        Combine::Leaf => 0.0,
        Combine::Product { .. } => link.log_probability(0.0),
    }
}

/// Returns the rows that are sent to each of the given nodes, in the order of `visits`. The shape is
/// (nodes, `n_rows`). `visits` has pairs of row and node. Pairs with other nodes are ignored.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
pub(crate) fn rows_of_nodes(
    visits: impl Iterator<Item = (u32, u32)> + Clone,
    nodes: &Range<usize>,
    n_rows: usize,
) -> Result<CsrOwned, Error> {
    const ROWS: &str = "number of rows that are sent to nodes";
    let mut indptr = filled("number of nodes", 0usize, nodes.len() + 1)?;
    let known = |&(_, node): &(u32, u32)| nodes.contains(&(node as usize));
    for (_, node) in visits.clone().filter(known) {
        indptr[node as usize - nodes.start + 1] += 1;
    }
    for node in 0..nodes.len() {
        indptr[node + 1] += indptr[node];
    }
    let size = indptr[nodes.len()];
    let mut next = copied("number of nodes", &indptr)?;
    let mut indices = filled(ROWS, 0u32, size)?;
    for (row, node) in visits.filter(known) {
        let next = &mut next[node as usize - nodes.start];
        indices[*next] = row;
        *next += 1;
    }
    Ok(CsrOwned {
        indptr,
        indices,
        values: filled(ROWS, 0.0, size)?,
        n_cols: n_rows,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gains_are_the_sum_of_the_precisions_at_one_three_and_five() {
        let of =
            |ranked: &[u32], labels: &[u32]| gain(ranked.iter().map(|&label| (label, 0.0)), labels);
        let close = |got: f64, expected: f64| assert!((got - expected).abs() < 1e-12, "{got}");
        close(of(&[4, 1, 9, 2, 7], &[1, 2, 4, 7, 9]), 3.0);
        close(of(&[4, 1, 9, 2, 7], &[4]), 1.0 + 1.0 / 3.0 + 1.0 / 5.0);
        close(of(&[4, 1, 9, 2, 7], &[2, 9]), 1.0 / 3.0 + 2.0 / 5.0);
        close(of(&[4, 1], &[3]), 0.0);
        close(of(&[], &[3]), 0.0);
    }

    /// The number of labels of [`random_rows`]. Leaves have eight labels.
    const N_LABELS: u32 = 40;

    /// Returns held-out rows with two trees, the labels of the training rows, and the weights of these rows. Each row
    /// has one label. A third of the rows reaches no leaf of the second tree, and some rows reach no leaf. Some rows
    /// have the weight 0. Many labels of a leaf have the probability 1.
    fn random_rows(seed: u64) -> (HeldOut, CsrOwned, Vec<f32>) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let n = 2 * FEWEST_TO_RANK;
        let y = CsrOwned {
            indptr: (0..=n).collect(),
            indices: (0..n).map(|_| rng.u32(..N_LABELS)).collect(),
            values: vec![1.0; n],
            n_cols: N_LABELS as usize,
        };
        let rows: Vec<u32> = (1..n as u32).step_by(2).collect(); // every second training row
        let mut walk = Walk::default();
        for _ in &rows {
            walk.add_row([], []).expect("small");
        }
        walk.start(2).expect("small");
        walk.visits.clear();
        let mut held = HeldOut {
            rows,
            walk,
            leaves: Vec::new(),
            candidates: Vec::new(),
            link: Link::Cubed,
        };
        let slots = (0..).zip(held.rows.iter().flat_map(|&row| [row, row]));
        for (slot, row) in slots.filter(|(slot, _)| slot % 6 != 1 && slot % 20 > 1) {
            let mut labels: Vec<u32> = (0..N_LABELS).collect();
            rng.shuffle(&mut labels);
            for (leaf, labels) in (0..).zip(labels.chunks(8)) {
                let is_true = |label| y.indices[row as usize] == label;
                let worst = if labels.iter().any(|&label| is_true(label)) {
                    0.5
                } else {
                    1.0
                };
                let visit = Visit {
                    slot,
                    node: 2 + slot % 2 * 5 + leaf,
                    score: -worst * rng.f32(),
                };
                let begin = held.candidates.len();
                for &label in labels {
                    let margin = 1.1 * rng.f32() + if is_true(label) { 0.2 } else { 0.0 };
                    held.candidates.push((label, margin));
                }
                held.walk.visits.push(visit);
                held.leaves.push(Leaf {
                    visit,
                    candidates: begin..held.candidates.len(),
                });
            }
        }
        // A leaf that a deeper level dropped from the beam.
        held.leaves.push(Leaf {
            visit: Visit {
                slot: 3,
                node: 99,
                score: 0.0,
            },
            candidates: 0..8,
        });
        rng.shuffle(&mut held.leaves);
        held.finish().expect("small");
        let weights = (0..n).map(|row| (row % 5) as f32).collect();
        (held, y, weights)
    }

    /// Returns the labels of a row in one tree, with their scores.
    fn labels_of(held: &HeldOut, slot: u32, combine: Combine) -> Vec<(u32, f32)> {
        let leaves = held.leaves.iter().filter(|leaf| leaf.visit.slot == slot);
        let labels = leaves.flat_map(|leaf| {
            let of_leaf = &held.candidates[leaf.candidates.clone()];
            of_leaf.iter().map(|&(label, margin)| match combine {
                Combine::Leaf => (label, margin),
                Combine::Product { path_weight } => {
                    let leaf = path_weight as f32 * leaf.visit.score;
                    (label, leaf - (1.0 - margin).max(0.0).powi(3))
                }
            })
        });
        labels.collect()
    }

    #[test]
    fn the_exponent_ranks_well_in_the_single_trees() {
        let mut chosen = Vec::new();
        for seed in 0..20 {
            let (held, y, weights) = random_rows(seed);
            let sum = |path_weight: f64| {
                let of_slot = |slot: u32| {
                    let row = held.rows[slot as usize / 2] as usize;
                    let mut ranked = labels_of(&held, slot, Combine::Product { path_weight });
                    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
                    let hits = |k| ranked.iter().take(k).any(|at| at.0 == y.indices[row]);
                    let precisions = [1, 3, 5].map(|k| f64::from(u8::from(hits(k))) / k as f64);
                    f64::from(weights[row]) * precisions.iter().sum::<f64>()
                };
                (0..2 * held.rows.len() as u32).map(of_slot).sum::<f64>()
            };
            let sums = PATH_WEIGHTS.map(sum);
            let best = sums.iter().copied().fold(0.0, f64::max);
            let expected = sums.iter().rposition(|&sum| sum >= AS_GOOD * best);
            let path_weight = PATH_WEIGHTS[expected.expect("one is the best")];
            let got = held.best_combination((&y).into(), Some(&weights), 2, &Watch::new());
            let expected = Combine::Product { path_weight };
            assert_eq!(got.expect("small"), expected, "seed {seed}");
            chosen.push(path_weight);
        }
        chosen.sort_by(f64::total_cmp);
        chosen.dedup();
        assert!(chosen.len() > 2, "{chosen:?}");
    }

    #[test]
    fn the_cut_names_as_many_labels_as_the_rows_have() {
        for (seed, combine) in (0..).zip([Combine::Leaf, textbook()].repeat(5)) {
            let (held, y, weights) = random_rows(seed);
            let mut scores = Vec::new();
            let mut wanted = 0.0;
            for (at, &row) in held.rows.iter().enumerate() {
                let weight = f64::from(weights[row as usize]);
                wanted += weight;
                let [first, second] =
                    [0, 1].map(|tree| labels_of(&held, 2 * at as u32 + tree, combine));
                for label in 0..N_LABELS {
                    let of_tree = |tree: &[(u32, f32)]| {
                        let found = tree.iter().find(|found| found.0 == label);
                        found.map(|found| f64::from(found.1))
                    };
                    let known: Vec<f64> = [&first, &second]
                        .into_iter()
                        .filter_map(|t| of_tree(t))
                        .collect();
                    if known.is_empty() || weight == 0.0 {
                        continue;
                    }
                    // No node was dropped, so a tree without the label counts with the probability 0.
                    let mean = match combine {
                        Combine::Leaf => known.iter().sum::<f64>() / known.len() as f64,
                        Combine::Product { .. } => {
                            (known.iter().map(|p| p.exp()).sum::<f64>() / 2.0).ln()
                        }
                    };
                    scores.push((mean, weight));
                }
            }
            assert!(scores.len() > 5000);
            let cut = held
                .cut((&y).into(), Some(&weights), 2, combine)
                .expect("small");
            let cut = f64::from(cut.expect("many labels"));
            let above = |cut: f64| {
                scores
                    .iter()
                    .filter(|at| at.0 > cut)
                    .map(|at| at.1)
                    .sum::<f64>()
            };
            // The weights of rows are at most 4, and scores are rounded.
            assert!(above(cut + 1e-6) <= wanted + 4.0, "seed {seed}");
            assert!(above(cut - 1e-6) >= wanted - 4.0, "seed {seed}");
        }
    }

    #[test]
    fn the_largest_margins_of_a_leaf_are_kept() {
        let mut memory = Vec::new();
        let mut of = |margins: &[f32], n: usize| {
            let mut kept = largest(margins, n, &mut memory).expect("small").to_vec();
            kept.sort_unstable_by_key(|&(_, at)| at);
            kept
        };
        assert_eq!(of(&[], 2), []);
        assert_eq!(of(&[3.0], 2), [(3.0, 0)]);
        assert_eq!(of(&[1.0, 5.0, 2.0, 5.0], 2), [(5.0, 1), (5.0, 3)]);
        // Of equal margins, the first ones are kept. NaN counts as 0.
        assert_eq!(of(&[-1.0, f32::NAN, 0.0, 0.0], 2), [(0.0, 1), (0.0, 2)]);
    }
}
