//! Finds the k best scores among many.
//!
//! A row may have many thousand scores, but a ranking needs only a few of them. [`TopK`] receives the scores
//! one by one, or all scores of a row at once, and keeps the best scores, so that no row of scores has to be
//! sorted. The method [`floor`](TopK::floor) returns the lowest score that may still be kept. Callers can skip
//! a group of scores at once if its maximum is below the floor.

use manylabel_base::{Error, reserved};
use std::cmp::Ordering;

/// Collects pairs `(label, score)` and keeps the `k` pairs with the best scores. If scores are equal, the
/// lower label is preferred.
///
/// A score of −∞ means "not scored". Scores of −∞ and NaN are never kept. The result depends only on
/// the set of pairs, not on their order. The memory is O(k) and is reused from row to row. A push costs
/// one comparison. If the score is kept, the push also moves O(k) entries, or O(log k) entries for `k >
/// 32`.
///
/// ```
/// let mut best = manylabel_sparse::TopK::new(2)?;
/// for (label, score) in [(0, 1.0), (1, 3.0), (2, f32::NEG_INFINITY), (3, 3.0)] {
///     best.push(label, score);
/// }
/// assert!(best.drain_by_label().eq([(1, 3.0), (3, 3.0)]));
/// for (label, score) in [(0, 1.0), (1, 2.0), (2, 3.0)] {
///     best.push(label, score);
/// }
/// assert!(best.drain_ranked().eq([(2, 3.0), (1, 2.0)]));
/// # Ok::<(), manylabel_base::Error>(())
/// ```
#[derive(Debug)]
pub struct TopK {
    /// The largest number of pairs to keep.
    k: usize,
    /// The scores and labels kept so far. For `k` up to [`SORTED_UP_TO`], the pairs are sorted, and the best
    /// pair is first. For larger `k`, the pairs form a binary heap with the worst pair at its root.
    kept: Vec<(f32, u32)>,
    /// The lowest kept score if `k` pairs are kept, and −∞ if fewer pairs are kept.
    floor: f32,
}

/// Number of scores whose maximum [`TopK::push_row`] compares with the floor.
const GROUP: usize = 16;

/// The largest `k` for which a sorted array is used. Up to this size, a sorted array is faster than a
/// heap.
const SORTED_UP_TO: usize = 32;

/// Returns true if `a` ranks before `b`: its score is higher, or the scores are equal and its label is
/// lower.
#[expect(clippy::float_cmp, reason = "a tie is exact equality")]
#[inline(always)]
fn before(a: (f32, u32), b: (f32, u32)) -> bool {
    a.0 > b.0 || (a.0 == b.0 && a.1 < b.1)
}

/// Returns the largest score of a group, or −∞ if all scores are NaN. The compiler vectorizes the loops.
#[inline(always)]
fn largest(group: &[f32; GROUP]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; GROUP / 4];
    for scores in group.as_chunks::<{ GROUP / 4 }>().0 {
        for (lane, &score) in lanes.iter_mut().zip(scores) {
            *lane = if score > *lane { score } else { *lane };
        }
    }
    lanes.iter().copied().fold(f32::NEG_INFINITY, f32::max)
}

impl TopK {
    /// Returns an empty collector. With `k = 0`, the collector keeps nothing. Memory for `k` pairs is
    /// allocated at once, so `k` should be at most the number of labels.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if `k` pairs do not fit in memory.
    pub fn new(k: usize) -> Result<Self, Error> {
        Ok(Self {
            k,
            kept: reserved("number of labels to predict", k)?,
            floor: f32::NEG_INFINITY,
        })
    }

    /// Returns the lowest score that may still be kept, so callers may skip lower scores. A score equal to
    /// this floor is kept only if its label is lower than the label of the worst kept pair.
    #[inline(always)]
    pub fn floor(&self) -> f32 {
        self.floor
    }

    /// Returns the largest number of pairs to keep.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Removes all pairs.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.floor = f32::NEG_INFINITY;
    }

    /// Offers one score. The labels of a row may be offered in any order, but each label only once.
    #[inline]
    pub fn push(&mut self, label: u32, score: f32) {
        // NaN cannot be ranked, and −∞ means that the label has no score.
        if score < self.floor || score.is_nan() || score == f32::NEG_INFINITY || self.k == 0 {
            return;
        }
        let new = (score, label);
        if self.k <= SORTED_UP_TO {
            self.push_sorted(new);
        } else {
            self.push_heap(new);
        }
    }

    /// Offers the scores of the labels 0, 1, … of a row. The collector must be empty. Otherwise, a label may be
    /// missing that has the same score as a kept label.
    #[inline]
    pub fn push_row(&mut self, scores: &[f32]) {
        debug_assert!(self.kept.is_empty());
        let (groups, rest) = scores.as_chunks::<GROUP>();
        let mut first = 0;
        for group in groups {
            // Only a few scores are among the best, so most groups are skipped. An equal score of an earlier
            // label ranks first, so a group is also skipped if its maximum equals the floor.
            if largest(group) > self.floor {
                for (label, &score) in (first..).zip(group) {
                    self.push(label, score);
                }
            }
            first += GROUP as u32;
        }
        for (label, &score) in (first..).zip(rest) {
            self.push(label, score);
        }
    }

    /// Inserts `new` in sorted order. If `k` pairs are kept already, `new` replaces the worst pair if it
    /// ranks before this pair, and is dropped otherwise.
    ///
    /// This function is not inlined, because it is not called for most scores: they are below the floor.
    /// Inlining increased the number of instructions of the loops over scores by up to 40 %.
    #[inline(never)]
    fn push_sorted(&mut self, new: (f32, u32)) {
        if self.kept.len() == self.k {
            match self.kept.last() {
                Some(&worst) if before(new, worst) => self.kept.pop(),
                _ => return,
            };
        }
        let at = self
            .kept
            .iter()
            .rposition(|&old| before(old, new))
            .map_or(0, |p| p + 1);
        self.kept.insert(at, new);
        if self.kept.len() == self.k {
            self.floor = self.kept[self.k - 1].0;
        }
    }

    /// Adds `new` to the heap. If `k` pairs are kept already, `new` replaces the root if it ranks before the
    /// root, and is dropped otherwise.
    fn push_heap(&mut self, new: (f32, u32)) {
        if self.kept.len() < self.k {
            self.kept.push(new);
            self.sift_up();
        } else if before(new, self.kept[0]) {
            self.kept[0] = new;
            self.sift_down();
        }
        if self.kept.len() == self.k {
            self.floor = self.kept[0].0;
        }
    }

    /// Moves the last entry up to its place in the heap.
    fn sift_up(&mut self) {
        let mut at = self.kept.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if !before(self.kept[parent], self.kept[at]) {
                break;
            }
            self.kept.swap(parent, at);
            at = parent;
        }
    }

    /// Moves the root down to its place in the heap.
    fn sift_down(&mut self) {
        let mut at = 0;
        loop {
            let Some(worse) = (2 * at + 1..self.kept.len().min(2 * at + 3)).reduce(|a, b| {
                if before(self.kept[a], self.kept[b]) {
                    b
                } else {
                    a
                }
            }) else {
                return;
            };
            if !before(self.kept[at], self.kept[worse]) {
                return;
            }
            self.kept.swap(at, worse);
            at = worse;
        }
    }

    /// Returns the kept pairs in increasing order of label. Afterwards the collector is empty and can be used
    /// for the next row.
    pub fn drain_by_label(&mut self) -> impl ExactSizeIterator<Item = (u32, f32)> + '_ {
        self.kept.sort_unstable_by_key(|&(_, label)| label);
        self.drain()
    }

    /// Returns the kept pairs in the order of their ranks, with the best pair first. Afterwards the collector
    /// is empty and can be used for the next row.
    #[inline]
    pub fn drain_ranked(&mut self) -> impl ExactSizeIterator<Item = (u32, f32)> + '_ {
        if self.k > SORTED_UP_TO {
            self.sort_ranked();
        }
        self.drain()
    }

    /// Sorts the kept pairs by their ranks. This function is not inlined, because few callers keep so many pairs.
    #[inline(never)]
    fn sort_ranked(&mut self) {
        self.kept.sort_unstable_by(|&a, &b| {
            if before(a, b) {
                Ordering::Less
            } else {
                Ordering::Greater // each label occurs only once, so no two pairs are equal
            }
        });
    }

    /// Returns the kept pairs in their current order and leaves the collector empty.
    #[inline]
    fn drain(&mut self) -> impl ExactSizeIterator<Item = (u32, f32)> + '_ {
        self.floor = f32::NEG_INFINITY;
        self.kept.drain(..).map(|(score, label)| (label, score))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Converts a small integer to a score. There are few different scores, so that ties occur.
    fn score(code: i8) -> f32 {
        match code {
            -3 => f32::NEG_INFINITY,
            3 => f32::NAN,
            _ => f32::from(code),
        }
    }

    proptest! {
        #[test]
        fn equals_a_full_sort(
            codes in prop::collection::vec((-3i8..4, 1usize..40), 0..20),
            k in 0usize..60,
            seed in any::<prop::sample::Index>(),
        ) {
            // Runs of equal scores, so that some groups consist of NaN or −∞ only.
            let codes: Vec<i8> = codes.into_iter().flat_map(|(code, n)| vec![code; n]).collect();
            let n = codes.len();
            let mut best = TopK::new(k).expect("small");
            let mut labels: Vec<usize> = (0..n).filter(|&label| codes[label].abs() < 3).collect();
            labels.sort_by_key(|&label| (-codes[label], label));
            labels.truncate(k);
            labels.sort_unstable();
            let with_scores = |labels: &[usize], lower: f32| -> Vec<_> {
                labels.iter().map(|&label| (label as u32, score(codes[label]) - lower)).collect()
            };
            let row: Vec<_> = codes.iter().map(|&code| score(code)).collect();
            best.push_row(&row);
            prop_assert_eq!(best.drain_by_label().collect::<Vec<_>>(), with_scores(&labels, 0.0));
            // Then push all labels one by one, in order. Then use the same collector again with lower scores,
            // and start at a random label.
            for (start, lower) in [(0, 0.0), (seed.index(n.max(1)), 10.0)] {
                for label in (start..n).chain(0..start) {
                    let score = score(codes[label]) - lower;
                    // Scores below the floor may be skipped.
                    if score.is_nan() || score >= best.floor() {
                        best.push(label as u32, score);
                    }
                }
                prop_assert_eq!(best.drain_by_label().collect::<Vec<_>>(), with_scores(&labels, lower));
            }
        }
    }
}
