//! Finds the threshold at which the number of predicted pairs of row and label equals the number of
//! true pairs. A pair is predicted if the score of the label for the row is above the threshold.
//!
//! Each loss has a natural threshold: a score of ½ for squared loss and of 0 for other losses. The
//! scores of rare labels seldom reach it. All estimators of this crate can therefore learn a
//! threshold. They score rows that were not used to fit the weights. Then they choose the threshold
//! at which the number of predicted pairs equals the number of true pairs. [`Tally`] finds this
//! threshold without storing all scores.

use manylabel_base::{Error, push};

/// When this many scores have been collected, the scores that cannot influence the threshold are
/// removed for the first time.
const FIRST_LOOK: usize = 1024;

/// Collects scores of weighted pairs of row and label, and finds a threshold. At this threshold,
/// the total weight of the pairs with larger scores is as close as possible to `wanted`.
///
/// Only two kinds of scores are needed: the largest scores, down to the total weight `wanted`, and
/// the next lower score. All other scores are removed from time to time. Equal scores share one
/// entry. So the memory does not grow with the number of scores that are added. It is about 48
/// bytes for each pair that will be predicted, plus 16 KiB.
///
/// If sums of weights are exact in `f64`, the result does not depend on the order in which the
/// pairs are added. Sums are exact, for example, if all weights are small integers or small
/// multiples of ¼.
///
/// ```
/// let mut tally = manylabel_linear::Tally::new(2.0);
/// for score in [0.1, 0.9, 0.5, 0.3] {
///     tally.push(score, 1.0)?;
/// }
/// assert_eq!(tally.cut(0.0), Some(0.4)); // 0.9 and 0.5 exceed the threshold
/// # Ok::<(), manylabel_base::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Tally {
    /// The total weight of the pairs to predict.
    wanted: f64,
    /// Scores that may still influence the threshold, with their weights.
    pairs: Vec<(f32, f64)>,
    /// When this number of entries is reached, scores that cannot influence the threshold are
    /// removed.
    limit: usize,
    /// New scores up to this value are ignored. They cannot influence the threshold, because they
    /// are below it, and the largest score below it is already stored.
    floor: f32,
}

impl Tally {
    /// Returns a [`Tally`] without pairs. `wanted` is the total weight of the pairs that should be
    /// above the threshold.
    pub fn new(wanted: f64) -> Self {
        Self {
            wanted,
            pairs: Vec::new(),
            limit: FIRST_LOOK,
            floor: f32::NEG_INFINITY,
        }
    }

    /// Adds the score and the weight of one pair of row and label. The pair is ignored if its score
    /// is not finite or its weight is not positive. In particular, labels that do not occur in
    /// training have the score −∞ and are ignored.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory for the pair.
    #[inline]
    pub fn push(&mut self, score: f32, weight: f32) -> Result<(), Error> {
        if score > self.floor && score < f32::INFINITY && weight > 0.0 {
            self.add(score + 0.0, f64::from(weight))?; // adding 0 turns -0 into 0
        }
        Ok(())
    }

    /// Adds the pairs with the scores `scores[i] + factor * terms[i]`. All pairs have the same
    /// weight.
    ///
    /// Most scores are too low to influence the threshold. The function tests sixteen scores at a
    /// time, and skips them if all of them are too low.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`push`](Self::push).
    pub fn push_sums(
        &mut self,
        scores: &[f32],
        factor: f32,
        terms: &[f32],
        weight: f32,
    ) -> Result<(), Error> {
        const AT_A_TIME: usize = 16;
        let mut sums = [0.0; AT_A_TIME];
        let chunks = scores.chunks(AT_A_TIME).zip(terms.chunks(AT_A_TIME));
        for (scores, terms) in chunks {
            let sums = &mut sums[..scores.len()];
            let mut largest = f32::NEG_INFINITY;
            for (sum, (score, term)) in sums.iter_mut().zip(scores.iter().zip(terms)) {
                *sum = score + factor * term;
                largest = largest.max(*sum);
            }
            if largest > self.floor {
                for &sum in &*sums {
                    self.push(sum, weight)?;
                }
            }
        }
        Ok(())
    }

    /// Adds all pairs of `other`. `wanted` (the total weight of the pairs to predict) must be the
    /// same number in `self` and `other`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`push`](Self::push).
    pub fn merge(&mut self, other: Self) -> Result<(), Error> {
        self.floor = self.floor.max(other.floor);
        for (score, weight) in other.pairs {
            // A score equal to the floor of `other` may be the largest score below the threshold,
            // so it can influence the threshold.
            if score >= self.floor {
                self.add(score, weight)?;
            }
        }
        Ok(())
    }

    /// Returns the scores that may still influence the threshold, with their weights. They can be
    /// added to another [`Tally`] with the same `wanted` by [`push_weighted`].
    ///
    /// [`push_weighted`]: Self::push_weighted
    pub fn pairs(&self) -> &[(f32, f64)] {
        &self.pairs
    }

    /// Returns a score that a new pair must exceed to influence the threshold.
    pub fn floor(&self) -> f32 {
        self.floor
    }

    /// Returns the total weight of the pairs to predict.
    pub fn wanted(&self) -> f64 {
        self.wanted
    }

    /// Adds the score and the weight of one entry that [`pairs`](Self::pairs) returned.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`push`](Self::push).
    pub fn push_weighted(&mut self, score: f32, weight: f64) -> Result<(), Error> {
        if score.is_finite() && weight > 0.0 {
            self.add(score, weight)?;
        }
        Ok(())
    }

    /// Returns the threshold. The total weight of the pairs with larger scores is as close to
    /// `wanted` as possible. If two total weights are equally close, the smaller one is used.
    ///
    /// The threshold lies halfway between the smallest score above it and the largest score below
    /// it. Pairs with equal scores are always on the same side. If all pairs should be above the
    /// threshold, any number below the smallest score is possible. The threshold is then
    /// `textbook`, the natural threshold of the loss. If `textbook` is not below the smallest
    /// score, the threshold is a number just below the smallest score. Returns `None` if no pair
    /// was added or `wanted` is not positive.
    pub fn cut(&mut self, textbook: f32) -> Option<f32> {
        self.sort_out();
        if self.pairs.is_empty() || self.wanted.is_nan() || self.wanted <= 0.0 {
            return None;
        }
        let (mut named, mut total, mut least) = (0, 0.0, self.wanted);
        for (at, &(_, weight)) in self.pairs.iter().enumerate() {
            total += weight;
            let off = (total - self.wanted).abs();
            if off < least {
                (named, least) = (at + 1, off);
            }
        }
        let unnamed = self.pairs.get(named).map(|&(score, _)| score);
        let Some(last) = named.checked_sub(1).map(|at| self.pairs[at].0) else {
            return unnamed; // the threshold is the largest score, so no score exceeds it
        };
        let Some(unnamed) = unnamed else {
            return Some(last.next_down().min(textbook));
        };
        let middle = f32::midpoint(last, unnamed);
        Some(if middle < last { middle } else { unnamed })
    }

    /// Adds an entry. If there are already `limit` entries, first removes the scores that cannot
    /// influence the threshold.
    fn add(&mut self, score: f32, weight: f64) -> Result<(), Error> {
        push(
            "number of scores above the threshold",
            &mut self.pairs,
            (score, weight),
        )?;
        if self.pairs.len() >= self.limit {
            self.sort_out();
            self.limit = FIRST_LOOK.max(3 * self.pairs.len());
        }
        Ok(())
    }

    /// Sorts the scores in decreasing order, merges equal scores, and removes the scores that
    /// cannot influence the threshold. If the total weight of the scores above the smallest
    /// remaining score reaches `wanted`, the smallest remaining score becomes `floor`.
    fn sort_out(&mut self) {
        self.pairs.sort_unstable_by(|a, b| {
            let by_score = b.0.total_cmp(&a.0);
            by_score.then(b.1.total_cmp(&a.1))
        });
        self.pairs.dedup_by(|next, kept| {
            let equal = next.0.total_cmp(&kept.0).is_eq();
            if equal {
                kept.1 += next.1;
            }
            equal
        });
        let mut total = 0.0;
        let enough = self.pairs.iter().position(|&(_, weight)| {
            total += weight;
            total >= self.wanted
        });
        if let Some(last) = enough
            && let Some(&(score, _)) = self.pairs.get(last + 1)
        {
            self.floor = score;
            self.pairs.truncate(last + 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;
    use fastrand::Rng;

    fn cut(wanted: f64, pairs: &[(f32, f32)]) -> Option<f32> {
        let mut tally = Tally::new(wanted);
        for &(score, weight) in pairs {
            tally.push(score, weight).expect("small");
        }
        tally.cut(0.0)
    }

    /// Finds the threshold by trying every place between two scores.
    fn reference(wanted: f64, pairs: &[(f32, f32)]) -> Option<f32> {
        let mut scores: Vec<f32> = pairs.iter().map(|pair| pair.0).collect();
        scores.sort_by(f32::total_cmp);
        scores.dedup();
        scores.reverse();
        let mut places = vec![scores[0]];
        places.extend(scores.windows(2).map(|two| f32::midpoint(two[0], two[1])));
        places.push(scores[scores.len() - 1].next_down().min(0.0));
        let off = |place: f32| {
            let above = pairs.iter().filter(|pair| pair.0 > place);
            (above.map(|pair| f64::from(pair.1)).sum::<f64>() - wanted).abs()
        };
        places
            .into_iter()
            .min_by(|&a, &b| off(a).total_cmp(&off(b)))
    }

    #[test]
    fn half_way_between_the_last_named_and_the_first_unnamed() {
        let pairs = [(0.1, 1.0), (0.9, 1.0), (0.5, 1.0), (0.3, 1.0)];
        assert_eq!(cut(2.0, &pairs), Some(0.4));
        assert_eq!(cut(1.4, &pairs), Some(0.7));
        assert_eq!(cut(1.5, &pairs), Some(0.7)); // 1 and 2 are equally close to 1.5, so the smaller number is used
        assert_eq!(cut(0.3, &pairs), Some(0.9)); // 0 is closer to 0.3 than 1
        assert_eq!(cut(9.0, &pairs), Some(0.0)); // all pairs exceed the threshold
        let below = pairs.map(|(score, weight)| (score - 1.0, weight));
        assert_eq!(cut(9.0, &below), Some((0.1_f32 - 1.0).next_down()));
    }

    #[test]
    fn never_among_equal_scores() {
        let pairs = [(0.5, 1.0), (0.5, 1.0), (0.5, 1.0), (0.9, 1.0), (0.1, 1.0)];
        assert_eq!(cut(2.0, &pairs), Some(0.7));
        assert_eq!(cut(3.0, &pairs), Some(0.3));
        let next = 0.5_f32.next_up(); // there is no number between 0.5 and `next`
        assert_eq!(cut(1.0, &[(0.5, 1.0), (next, 1.0)]), Some(0.5));
        assert_eq!(cut(1.0, &[(-0.0, 1.0), (0.0, 1.0), (1.0, 1.0)]), Some(0.5));
    }

    #[test]
    fn sums_count_as_if_one_by_one() {
        let mut rng = Rng::with_seed(1);
        let terms: Vec<f32> = (0..203).map(|_| -rng.f32() * 9.0).collect();
        let (mut sums, mut singles) = (Tally::new(700.0), Tally::new(700.0));
        for row in 0..300 {
            let mut scores: Vec<f32> = (0..203).map(|_| rng.f32() - 0.5).collect();
            scores[row % 203] = [f32::NEG_INFINITY, f32::NAN, 1.0][row % 3];
            let weight = [1.0, 2.0, 0.0][row % 3];
            let pushed = sums.push_sums(&scores, 0.125, &terms, weight);
            pushed.expect("small");
            for (score, term) in scores.iter().zip(&terms) {
                let pushed = singles.push(score + 0.125 * term, weight);
                pushed.expect("small");
            }
        }
        let cut = singles.cut(0.0);
        assert!(cut.is_some());
        assert_eq!(sums.cut(0.0), cut);
    }

    #[test]
    fn nothing_to_learn_from() {
        assert_eq!(cut(1.0, &[]), None);
        assert_eq!(cut(0.0, &[(0.5, 1.0)]), None);
        let none = [(f32::NEG_INFINITY, 1.0), (f32::NAN, 1.0), (0.5, 0.0)];
        assert_eq!(cut(1.0, &none), None);
    }

    #[test]
    fn in_any_order_in_any_parts_in_bounded_memory() {
        let mut rng = Rng::with_seed(0);
        for round in 0..200 {
            let values = [10, 1000, 1 << 20][round % 3];
            let count = rng.usize(1..20_000);
            let mut pairs: Vec<(f32, f32)> = (0..count)
                .map(|_| {
                    let score = rng.i32(-values..values) as f32 / 64.0;
                    (score, f32::from(rng.u8(0..4)) / 2.0)
                })
                .collect();
            pairs.push((1.0, 1.0));
            let pairs: Vec<_> = pairs.into_iter().filter(|pair| pair.1 > 0.0).collect();
            let wanted = rng.usize(1..=count) as f64 / [1.0, 30.0][round % 2];
            let expected = reference_of(wanted, &pairs);
            let mut parts = vec![Tally::new(wanted); 1 + round % 4];
            let n_parts = parts.len();
            for (at, &(score, weight)) in pairs.iter().enumerate() {
                let part = &mut parts[at % n_parts];
                part.push(score, weight).expect("small");
                // Every pair has a weight of at least ½. So the total weight `wanted` consists of
                // at most 2 · `wanted` pairs.
                let most = 3 * (2.0 * wanted) as usize + 1024 + 6;
                assert!(part.pairs.len() <= most);
            }
            if round % 2 == 0 {
                parts.reverse();
            }
            let mut all = Tally::new(wanted);
            for part in parts {
                all.merge(part).expect("small");
            }
            assert_eq!(all.cut(0.0), expected, "round {round}");
        }
    }

    /// Returns the same result as [`reference`], but is fast enough for many pairs.
    fn reference_of(wanted: f64, pairs: &[(f32, f32)]) -> Option<f32> {
        if pairs.len() < 300 {
            return reference(wanted, pairs);
        }
        let mut sorted = pairs.to_vec();
        sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut best, mut place, mut total) = (wanted, sorted[0].0, 0.0);
        for (at, &(score, weight)) in sorted.iter().enumerate() {
            total += f64::from(weight);
            let next = sorted.get(at + 1).map(|pair| pair.0);
            if next == Some(score) {
                continue;
            }
            if (total - wanted).abs() < best {
                best = (total - wanted).abs();
                let all = score.next_down().min(0.0);
                place = next.map_or(all, |next| f32::midpoint(score, next));
            }
        }
        Some(place)
    }
}
