//! The k best of a stream of scores.
//!
//! Rankings need the best few of many thousand scores per row. [`TopK`] keeps them while the scores go by,
//! so that no row of scores is sorted. Its [`floor`](TopK::floor) lets the caller skip most scores with
//! one comparison of a whole chunk's maximum.

use manylabel_base::{Error, reserved};

/// Collects the `k` best `(label, score)` pairs pushed into it; equal scores go to the lower label.
///
/// Scores of −∞ mean "not scored" and are never kept; neither is NaN. The result depends on the set of
/// pairs alone, not on their order. Memory is O(k) and is reused from row to row. A push costs a
/// comparison; if the score is kept, it also moves O(k) entries, or O(log k) for `k > 32`.
///
/// ```
/// let mut best = manylabel_sparse::TopK::new(2)?;
/// for (label, score) in [(0, 1.0), (1, 3.0), (2, f32::NEG_INFINITY), (3, 3.0)] {
///     best.push(label, score);
/// }
/// assert!(best.drain_by_label().eq([(1, 3.0), (3, 3.0)]));
/// # Ok::<(), manylabel_base::Error>(())
/// ```
#[derive(Debug)]
pub struct TopK {
    /// The most pairs to keep.
    k: usize,
    /// Scores and labels kept so far: sorted, the best first, for `k` up to [`SORTED_UP_TO`]; otherwise a
    /// binary heap with the worst at its root.
    kept: Vec<(f32, u32)>,
    /// The worst score kept, once there are `k`; −∞ before.
    floor: f32,
}

/// Up to this `k` a sorted array is used, which is faster than a heap there.
const SORTED_UP_TO: usize = 32;

/// Whether `a` ranks before `b`: a higher score, or an equal one and a lower label.
#[expect(clippy::float_cmp, reason = "a tie is exact equality")]
#[inline(always)]
fn before(a: (f32, u32), b: (f32, u32)) -> bool {
    a.0 > b.0 || (a.0 == b.0 && a.1 < b.1)
}

impl TopK {
    /// An empty collector; with `k = 0` it keeps nothing. Room for `k` pairs is allocated at once, so `k`
    /// should be at most the number of labels.
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

    /// Pushing a score below this has no effect, so callers may skip such scores. A score equal to it may
    /// still enter, if its label is lower than that of the worst one kept.
    #[inline(always)]
    pub fn floor(&self) -> f32 {
        self.floor
    }

    /// Offers one score. Labels may come in any order, each at most once per row.
    #[inline]
    pub fn push(&mut self, label: u32, score: f32) {
        // NaN has no rank, and −∞ means "not scored".
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

    /// Inserts `new` at its place; with `k` pairs kept, the worst one leaves if `new` ranks before it.
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

    /// Adds `new` to the heap; with `k` pairs kept, it replaces the root if it ranks before that.
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

    /// The pairs kept, in increasing order of label. The collector is then empty and can be used for the
    /// next row.
    pub fn drain_by_label(&mut self) -> impl ExactSizeIterator<Item = (u32, f32)> + '_ {
        self.kept.sort_unstable_by_key(|&(_, label)| label);
        self.floor = f32::NEG_INFINITY;
        self.kept.drain(..).map(|(score, label)| (label, score))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A score for a small code: few different ones, so that there are ties.
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
            codes in prop::collection::vec(-3i8..4, 0..120),
            k in 0usize..60,
            seed in any::<prop::sample::Index>(),
        ) {
            let n = codes.len();
            let mut best = TopK::new(k).expect("small");
            let mut labels: Vec<usize> = (0..n).filter(|&label| codes[label].abs() < 3).collect();
            labels.sort_by_key(|&label| (-codes[label], label));
            labels.truncate(k);
            labels.sort_unstable();
            // First all labels in order; then, with the same collector and lower scores, from a random
            // label on.
            for (start, lower) in [(0, 0.0), (seed.index(n.max(1)), 10.0)] {
                for label in (start..n).chain(0..start) {
                    let score = score(codes[label]) - lower;
                    // Scores below the floor may be skipped.
                    if score.is_nan() || score >= best.floor() {
                        best.push(label as u32, score);
                    }
                }
                let got = best.drain_by_label().map(|(label, score)| (label as usize, score));
                let got: Vec<_> = got.collect();
                let expected: Vec<_> = labels.iter().map(|&label| (label, score(codes[label]) - lower)).collect();
                prop_assert_eq!(got, expected);
            }
        }
    }
}
