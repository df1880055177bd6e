//! The threshold above which as many pairs of row and label are named as are true.

use manylabel_base::{Error, push};

/// Scores kept before the first look at which of them matter.
const FIRST_LOOK: usize = 1024;

/// Collects the scores of pairs of row and label, and finds the threshold above which pairs of about
/// the weight that is `wanted` lie.
///
/// Only the largest scores are kept, as many as weigh what is wanted and one more. Equal scores are
/// one entry. So memory is that of the pairs to be named, at most 3 entries of 16 bytes each, however
/// many are pushed.
///
/// The result depends on the scores and weights alone and not on their order, as long as sums of
/// weights are exact in `f64` (those of integers and of few different fractions are).
#[derive(Debug, Clone)]
pub struct Tally {
    wanted: f64,
    /// Scores and weights of pairs that may matter.
    pairs: Vec<(f32, f64)>,
    /// Entries at which the largest are sorted out.
    limit: usize,
    /// Scores that are no larger cannot be named nor be the first unnamed one.
    floor: f32,
}

impl Tally {
    /// A tally of pairs of which those of the total weight `wanted` are to be named.
    pub fn new(wanted: f64) -> Self {
        Self {
            wanted,
            pairs: Vec::new(),
            limit: FIRST_LOOK,
            floor: f32::NEG_INFINITY,
        }
    }

    /// Counts a pair. Scores that are not finite, as those of labels never seen, and weights that are
    /// not > 0 do not count.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if there is no room for it.
    #[inline]
    pub fn push(&mut self, score: f32, weight: f32) -> Result<(), Error> {
        if score > self.floor && score < f32::INFINITY && weight > 0.0 {
            self.add(score + 0.0, f64::from(weight))?; // -0.0 is 0.0
        }
        Ok(())
    }

    /// Counts pairs of the same weight whose scores are `scores + factor * terms`.
    ///
    /// Most of them cannot matter, which is told many at a time.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
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

    /// Counts the pairs of `other`, which are to be as many as here.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn merge(&mut self, other: Self) -> Result<(), Error> {
        self.floor = self.floor.max(other.floor);
        for (score, weight) in other.pairs {
            // What lies at the other's floor is its first unnamed score.
            if score >= self.floor {
                self.add(score, weight)?;
            }
        }
        Ok(())
    }

    /// The threshold: pairs with larger scores weigh as near to what is wanted as can be, fewer
    /// rather than more. It lies half way between the last score named and the first one unnamed,
    /// never among equal scores. Where all pairs are to be named nothing tells how far below the
    /// threshold may be: it is `textbook` then, that of the loss, if all are above. `None` if nothing is
    /// wanted or nothing was pushed.
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
            return unnamed; // nothing exceeds the largest score
        };
        let Some(unnamed) = unnamed else {
            return Some(last.next_down().min(textbook));
        };
        let middle = f32::midpoint(last, unnamed);
        Some(if middle < last { middle } else { unnamed })
    }

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

    /// Sorts the scores, the largest first, makes equal ones one, and drops those that cannot matter.
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

    /// By trying every place between two scores.
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
        assert_eq!(cut(1.5, &pairs), Some(0.7)); // rather fewer
        assert_eq!(cut(0.3, &pairs), Some(0.9)); // nothing is nearer than one
        assert_eq!(cut(9.0, &pairs), Some(0.0)); // everything
        let below = pairs.map(|(score, weight)| (score - 1.0, weight));
        assert_eq!(cut(9.0, &below), Some((0.1_f32 - 1.0).next_down()));
    }

    #[test]
    fn never_among_equal_scores() {
        let pairs = [(0.5, 1.0), (0.5, 1.0), (0.5, 1.0), (0.9, 1.0), (0.1, 1.0)];
        assert_eq!(cut(2.0, &pairs), Some(0.7));
        assert_eq!(cut(3.0, &pairs), Some(0.3));
        let next = 0.5_f32.next_up(); // there is no number between
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
                // Every pair weighs a half at least.
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

    /// As [`reference`], in time for many pairs.
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
