//! Improves a partition of rows and labels into blocks by two half steps, which alternate. The
//! documentation of the [crate] defines the objective.
//!
//! With the rows of each block fixed, [`label_step`] finds the label sets that minimize the
//! objective. With the label sets fixed, [`row_step`] finds the blocks of the rows that minimize
//! the objective. Each half step finds an exact minimum, so the objective never increases. The
//! alternation ends at a partition that neither half step improves. This partition need not be the
//! global minimum.
//!
//! Features are not used here. They determine only the start of the alternation. The blocks of new
//! rows are chosen from their features by a [`Router`](crate::Router).

use crate::members::{Members, drop_empty};
use manylabel_base::range::same;
use manylabel_base::{Error, Tasks, Watch, collected, copied, extend, filled, push, reserved};
use manylabel_sparse::CsrOwned;
use rayon::prelude::*;
use std::cmp::Reverse;

/// The label set of every block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSets {
    /// The boundaries of the label sets in `labels`, starting with 0; shape (`n_blocks` + 1,).
    pub ends: Vec<usize>,
    /// The labels of all sets, one set after the other. The labels of a set are in increasing
    /// order.
    pub labels: Vec<u32>,
    /// Number of captured labels. A label of a row is captured if it is in the label set of the
    /// row's block.
    pub captured: u64,
}

impl LabelSets {
    /// Returns the labels of one block, in increasing order.
    ///
    /// # Panics
    ///
    /// Panics if the block does not exist.
    pub fn labels(&self, block: usize) -> &[u32] {
        &self.labels[self.ends[block]..self.ends[block + 1]]
    }

    /// Returns the sum of the squared sizes of the label sets. The sum is exact up to 2⁵³.
    fn squared_sizes(&self) -> f64 {
        let size = |ends: &[usize]| (ends[1] - ends[0]) as f64;
        self.ends.windows(2).map(|ends| size(ends).powi(2)).sum()
    }

    /// Returns the objective: `lam` times the sum of the squared sizes of the label sets, minus the
    /// number `captured` of captured labels.
    fn objective(&self, captured: u64, lam: f64) -> f64 {
        lam * self.squared_sizes() - captured as f64
    }
}

/// Chooses the label set of every block, given the rows of the blocks.
///
/// Labels are added to the set of a block in order of decreasing frequency among the rows of the
/// block. If frequencies are equal, the lower label comes first. Adding the J-th label lowers the
/// objective by `n_J − lam (2J − 1)`, where `n_J` is the number of rows of the block that have this
/// label. Labels are added as long as this gain is positive. The gain decreases with J, so the
/// result is optimal: no sets of at most `max_labels` labels have a lower objective.
///
/// Each stored entry of `y` is a label of its row. `row_blocks` has one block per row, below
/// `n_blocks`.
///
/// The time is O(nnz(Y)), plus a sort of the labels that occur in each block. The memory is 4 bytes
/// per label for each thread.
///
/// # Errors
///
/// Returns [`Error::Shape`] if `row_blocks` does not have one block per row. Returns
/// [`Error::Param`] if a block is not below `n_blocks`. Returns [`Error::TooLarge`] if there is not
/// enough memory. Returns [`Error::Stopped`] if the caller requested a stop.
pub fn label_step(
    y: &CsrOwned,
    row_blocks: &[u32],
    n_blocks: usize,
    lam: f64,
    max_labels: usize,
    watch: &Watch,
) -> Result<LabelSets, Error> {
    same("length of row_blocks", y.n_rows(), row_blocks.len())?;
    if let Some(block) = row_blocks.iter().find(|&&block| block as usize >= n_blocks) {
        return Err(Error::Param {
            name: "row_blocks",
            expected: "below the number of blocks",
            got: format!("block {block} for {n_blocks} blocks"),
        });
    }
    let members = Members::new(row_blocks, n_blocks)?;
    let mut chosen = reserved("number of blocks", n_blocks)?;
    chosen.resize_with(n_blocks, <(Vec<u32>, u64)>::default);
    let counts = || filled("number of labels", 0, y.n_cols);
    chosen
        .par_iter_mut()
        .enumerate()
        .try_each_with(counts, |counts, (block, chosen)| {
            let rows = members.rows(block);
            *chosen = choose_labels(y, rows, lam, max_labels, counts, watch)?;
            Ok(())
        })?;
    let mut sets = LabelSets {
        ends: reserved("number of blocks", n_blocks + 1)?,
        labels: Vec::new(),
        captured: 0,
    };
    sets.ends.push(0);
    for (labels, captured) in chosen {
        extend("number of labels of all blocks", &mut sets.labels, labels)?;
        sets.ends.push(sets.labels.len());
        sets.captured += captured;
    }
    Ok(sets)
}

/// Number of rows that are processed between two checks for a stop request. A unit of parallel work
/// has the same number of rows.
const ROWS_AT_ONCE: usize = 4096;

/// Chooses the labels of a block with the given rows. Returns the labels, and the number of labels
/// of these rows that are in the set. `counts` has one number for each label. All numbers are zero
/// before and after the call.
fn choose_labels(
    y: &CsrOwned,
    rows: &[u32],
    lam: f64,
    max_labels: usize,
    counts: &mut [u32],
    watch: &Watch,
) -> Result<(Vec<u32>, u64), Error> {
    let mut labels = Vec::new();
    for rows in rows.chunks(ROWS_AT_ONCE) {
        watch.step(0)?;
        for &row in rows {
            for &label in y.row(row as usize).0 {
                let count = &mut counts[label as usize];
                if *count == 0 {
                    push("number of labels", &mut labels, label)?;
                }
                *count += 1;
            }
        }
    }
    labels.sort_unstable_by_key(|&label| (Reverse(counts[label as usize]), label));
    let size = labels
        .iter()
        .zip(1u64..)
        .take(max_labels)
        .take_while(|&(&label, size)| {
            f64::from(counts[label as usize]) > lam * (2 * size - 1) as f64
        })
        .count();
    let captured = labels[..size]
        .iter()
        .map(|&label| u64::from(counts[label as usize]))
        .sum();
    for &label in &labels {
        counts[label as usize] = 0;
    }
    labels.truncate(size);
    labels.sort_unstable();
    Ok((labels, captured))
}

/// Moves every row to the block whose label set contains the largest number of labels of the row.
/// Returns the number of captured labels after the moves. A label of a row is captured if it is in
/// the label set of the row's block.
///
/// A row stays in its block if no other block contains more of its labels. So rows do not move back
/// and forth between equally good blocks. If several other blocks are best, the row moves to the
/// block with the lowest number. Rows are independent of each other and are processed in parallel.
///
/// For each label of a row, the time is proportional to the number of blocks whose label sets
/// contain the label.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory, and [`Error::Stopped`] if the caller
/// requested a stop.
///
/// # Panics
///
/// Panics if `row_blocks` and `y` have different numbers of rows, or if a block does not exist in
/// `sets`.
pub fn row_step(
    y: &CsrOwned,
    sets: &LabelSets,
    row_blocks: &mut [u32],
    watch: &Watch,
) -> Result<u64, Error> {
    let n_blocks = sets.ends.len() - 1;
    let blocks_of = CsrOwned {
        indptr: copied("number of blocks", &sets.ends)?,
        indices: copied("number of labels of all blocks", &sets.labels)?,
        values: filled("number of labels of all blocks", 0.0, sets.labels.len())?,
        n_cols: y.n_cols,
    }
    .transpose()?;
    row_blocks
        .par_chunks_mut(ROWS_AT_ONCE)
        .enumerate()
        .map(|(chunk, row_blocks)| {
            watch.step(0)?;
            let mut counts = filled("number of blocks", 0u32, n_blocks)?;
            let mut touched: Vec<u32> = Vec::new();
            let mut captured = 0;
            for (row, current) in (chunk * ROWS_AT_ONCE..).zip(row_blocks) {
                for &label in y.row(row).0 {
                    for &block in blocks_of.row(label as usize).0 {
                        if counts[block as usize] == 0 {
                            push("number of blocks", &mut touched, block)?;
                        }
                        counts[block as usize] += 1;
                    }
                }
                let mut best = counts[*current as usize];
                for &block in &touched {
                    best = best.max(counts[block as usize]);
                }
                if best > counts[*current as usize] {
                    let of_best = |&&block: &&u32| counts[block as usize] == best;
                    *current = touched
                        .iter()
                        .filter(of_best)
                        .min()
                        .map_or(*current, |&b| b);
                }
                captured += u64::from(best);
                for block in touched.drain(..) {
                    counts[block as usize] = 0;
                }
            }
            Ok(captured)
        })
        .try_reduce(|| 0, |one, other| Ok(one + other))
}

/// The parameters of the alternation between row steps and label steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    /// The weight of the squared sizes of label sets in the objective.
    pub(crate) lam: f64,
    /// The maximum number of labels of a block.
    pub(crate) max_labels: usize,
    /// The maximum number of rounds. A round is a row step and a label step.
    pub(crate) max_iter: usize,
    /// The fit ends after a round that lowers the objective by less than this number. A round is a
    /// row step and a label step.
    pub(crate) tol: f64,
}

/// The result of the alternation between row steps and label steps.
#[derive(Debug)]
pub(crate) struct Alternated {
    /// The block of each row.
    pub(crate) row_blocks: Vec<u32>,
    /// The label sets of the blocks.
    pub(crate) sets: LabelSets,
    /// The objective after each row step and each label step.
    pub(crate) history: Vec<f64>,
}

/// Alternates between label steps and row steps. The first and the last step are label steps.
///
/// A round consists of a row step and a label step. The alternation ends after the first round that
/// lowers the objective by less than `tol`, or after `max_iter` rounds. The objective is a sum of
/// whole numbers and multiples of `lam`. So with a small `tol`, the alternation continues until
/// nothing changes. Blocks without rows are dropped at the end, and the other blocks are renumbered
/// in order.
///
/// # Errors
///
/// Returns the same errors as [`label_step`].
pub(crate) fn alternate(
    y: &CsrOwned,
    mut row_blocks: Vec<u32>,
    n_blocks: usize,
    rule: Rule,
    watch: &Watch,
) -> Result<Alternated, Error> {
    let choose =
        |row_blocks: &[u32]| label_step(y, row_blocks, n_blocks, rule.lam, rule.max_labels, watch);
    let mut sets = choose(&row_blocks)?;
    let mut last = sets.objective(sets.captured, rule.lam);
    let mut history = Vec::new();
    push("number of rounds", &mut history, last)?;
    for _ in 0..rule.max_iter {
        let captured = row_step(y, &sets, &mut row_blocks, watch)?;
        let objective = sets.objective(captured, rule.lam);
        push("number of rounds", &mut history, objective)?;
        sets = choose(&row_blocks)?;
        let objective = sets.objective(sets.captured, rule.lam);
        push("number of rounds", &mut history, objective)?;
        if last - objective < rule.tol {
            break;
        }
        last = objective;
    }
    // A block without rows has no labels, so dropping it does not change the label sets of other
    // blocks.
    let kept = drop_empty(&mut row_blocks, n_blocks)?;
    let ends = kept.iter().map(|&block| sets.ends[block as usize + 1]);
    sets.ends = collected("number of blocks", [0].into_iter().chain(ends))?;
    Ok(Alternated {
        row_blocks,
        sets,
        history,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const N_LABELS: usize = 9;

    fn labels_of_rows() -> impl Strategy<Value = Vec<Vec<u32>>> {
        let row = prop::collection::btree_set(0..N_LABELS as u32, 0..6);
        prop::collection::vec(row.prop_map(|row| row.into_iter().collect()), 1..14)
    }

    fn matrix(rows: &[Vec<u32>]) -> CsrOwned {
        let mut indptr = vec![0];
        for row in rows {
            indptr.push(indptr[indptr.len() - 1] + row.len());
        }
        let indices: Vec<u32> = rows.concat();
        CsrOwned {
            indptr,
            values: vec![1.0; indices.len()],
            indices,
            n_cols: N_LABELS,
        }
    }

    /// Computes the objective directly from its definition.
    fn by_definition(rows: &[Vec<u32>], blocks: &[u32], sets: &[Vec<u32>], lam: f64) -> f64 {
        let inside = |(row, &block): (&Vec<u32>, &u32)| {
            let set = &sets[block as usize];
            row.iter().filter(|label| set.contains(label)).count()
        };
        let captured: usize = rows.iter().zip(blocks).map(inside).sum();
        let sizes: f64 = sets.iter().map(|set| (set.len() * set.len()) as f64).sum();
        lam * sizes - captured as f64
    }

    fn listed(sets: &LabelSets) -> Vec<Vec<u32>> {
        let blocks = 0..sets.ends.len() - 1;
        blocks.map(|block| sets.labels(block).to_vec()).collect()
    }

    proptest! {
        #[test]
        fn no_other_label_set_is_better(rows in labels_of_rows(), lam in 0.0..3.0, most in 1..12usize) {
            let y = matrix(&rows);
            let blocks = vec![0; rows.len()];
            let sets = label_step(&y, &blocks, 1, lam, most, &Watch::new()).expect("small");
            let found = by_definition(&rows, &blocks, &listed(&sets), lam);
            prop_assert!((sets.objective(sets.captured, lam) - found).abs() < 1e-9);
            for code in 0u32..1 << N_LABELS {
                let other: Vec<u32> = (0..N_LABELS as u32).filter(|label| code >> label & 1 == 1).collect();
                if other.len() <= most {
                    prop_assert!(found <= by_definition(&rows, &blocks, &[other], lam) + 1e-9);
                }
            }
        }

        #[test]
        fn rows_move_to_the_best_block_and_only_for_more(
            rows in labels_of_rows(),
            sets in prop::collection::vec(prop::collection::btree_set(0..N_LABELS as u32, 0..6), 1..4),
            start in prop::collection::vec(any::<prop::sample::Index>(), 14),
        ) {
            let y = matrix(&rows);
            let listed: Vec<Vec<u32>> = sets.iter().map(|set| set.iter().copied().collect()).collect();
            let mut ends = vec![0];
            for set in &listed {
                ends.push(ends[ends.len() - 1] + set.len());
            }
            let sets = LabelSets { ends, labels: listed.concat(), captured: 0 };
            let before: Vec<u32> = start[..rows.len()].iter().map(|at| at.index(listed.len()) as u32).collect();
            let mut after = before.clone();
            let captured = row_step(&y, &sets, &mut after, &Watch::new()).expect("small");
            let by_hand = -by_definition(&rows, &after, &listed, 0.0);
            prop_assert!((captured as f64 - by_hand).abs() < 1e-9);
            for (row, (&old, &new)) in rows.iter().zip(before.iter().zip(&after)) {
                let held = |block: usize| row.iter().filter(|label| listed[block].contains(label)).count();
                let best = (0..listed.len()).map(held).max().expect("a block");
                let first = (0..listed.len()).find(|&block| held(block) == best).expect("it is one");
                let expected = if held(old as usize) == best { old as usize } else { first };
                prop_assert_eq!(new as usize, expected);
            }
        }

        #[test]
        fn the_objective_never_rises(
            rows in labels_of_rows(),
            lam in 0.0..2.0,
            start in prop::collection::vec(0..3u32, 14),
        ) {
            let y = matrix(&rows);
            let rule = Rule { lam, max_labels: usize::MAX, max_iter: 100, tol: 1e-5 };
            let end = alternate(&y, start[..rows.len()].to_vec(), 3, rule, &Watch::new()).expect("small");
            prop_assert!(end.history.windows(2).all(|two| two[1] <= two[0] + 1e-9));
            let last = end.history[end.history.len() - 1];
            let found = by_definition(&rows, &end.row_blocks, &listed(&end.sets), lam);
            prop_assert!((last - found).abs() < 1e-9);
            prop_assert!(end.history.len() < 100, "it ends by itself");
        }
    }
}
