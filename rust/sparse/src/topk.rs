//! The k best of a stream of scores.

use manylabel_base::{Error, reserved};

/// Collects the `k` best `(label, score)` pairs pushed into it; equal scores go to the lower label.
///
/// A score of −∞ means "not scored" and is never kept. Memory O(k), reused between rows; a push
/// costs one comparison unless it enters, then O(k) moves, or O(log k) for `k > 32`.
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
    k: usize,
    /// Best first while `k` is small; a binary heap with the worst on top otherwise.
    kept: Vec<(f32, u32)>,
    /// A score must beat this, once `k` are kept.
    floor: f32,
}

/// Up to this `k`, a sorted array beats a heap.
const SORTED_UP_TO: usize = 32;

/// Whether `a` ranks before `b`.
#[expect(clippy::float_cmp, reason = "a tie is exact equality")]
#[inline(always)]
fn before(a: (f32, u32), b: (f32, u32)) -> bool {
    a.0 > b.0 || (a.0 == b.0 && a.1 < b.1)
}

impl TopK {
    /// An empty collector; `k = 0` keeps nothing. There is no use in more than there are labels, and
    /// room for `k` is taken at once.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if there is no room.
    pub fn new(k: usize) -> Result<Self, Error> {
        Ok(Self {
            k,
            kept: reserved("number of labels to name", k)?,
            floor: f32::NEG_INFINITY,
        })
    }

    /// The score below which a push cannot enter: skip such scores early.
    #[inline(always)]
    pub fn floor(&self) -> f32 {
        self.floor
    }

    /// Offers one score. Labels may come in any order, each at most once.
    #[inline]
    pub fn push(&mut self, label: u32, score: f32) {
        // A NaN is ranked nowhere, and −∞ means "not scored".
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

    /// Hands over what was kept, in order of label, and empties the collector.
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

    /// A score from a small number: few of them, so that there are ties.
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
            // Labels in order, then from somewhere in the middle with lower scores; the collector
            // serves both.
            for (start, lower) in [(0, 0.0), (seed.index(n.max(1)), 10.0)] {
                for label in (start..n).chain(0..start) {
                    let score = score(codes[label]) - lower;
                    // What is below the floor may be skipped.
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
