//! The search over all conditions on one feature.

use super::groups::Groups;
use crate::Operator;

/// Knows the quality of a growing set of rows and of its complement within the parent set.
///
/// Qualities may be withheld (`None`) where they are certainly not below `bound`.
pub(crate) trait Evaluator {
    /// Empties the growing set.
    fn restart(&mut self);
    /// Adds a row to it.
    fn take(&mut self, row: u32);
    /// The quality of the growing set.
    fn of_taken(&mut self, bound: f64) -> Option<f64>;
    /// The quality of the parent set without it.
    fn of_others(&mut self, bound: f64) -> Option<f64>;
}

/// A condition on a feature, by the groups it lies at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Split {
    pub(crate) quality: f64,
    /// The group below the threshold; of a nominal feature the group of the value.
    pub(crate) group: usize,
    pub(crate) operator: Operator,
}

impl Split {
    /// Whether this one is to be preferred: the better, then the lower threshold, then ≤ before >.
    fn precedes(&self, other: &Self) -> bool {
        if self.quality != other.quality {
            return self.quality < other.quality;
        }
        (self.group, self.operator as u8) < (other.group, other.operator as u8)
    }
}

/// Finds the best condition that keeps at least `least` rows and whose quality is below `bound`.
///
/// Rows are taken in from both ends towards the middle, so that the growing set is the smaller
/// part: the sums of the other are differences from those of all rows, which must not be small,
/// and rows of an implicit zero are never touched.
#[inline(always)]
pub(crate) fn sweep(
    evaluator: &mut impl Evaluator,
    groups: &Groups,
    nominal: bool,
    least: usize,
    bound: f64,
) -> Option<Split> {
    let mut best: Option<Split> = None;
    let n_rows: usize = groups.groups.iter().map(|group| group.count).sum();
    let mut consider = |evaluator: &mut _, taken: usize, group: usize, operators: [Operator; 2]| {
        for (side, operator) in operators.into_iter().enumerate() {
            let covered = if side == 0 { taken } else { n_rows - taken };
            if covered < least {
                continue;
            }
            let limit = best.map_or(bound, |best| best.quality);
            let quality = if side == 0 {
                Evaluator::of_taken(evaluator, limit)
            } else {
                Evaluator::of_others(evaluator, limit)
            };
            if let Some(quality) = quality {
                let split = Split {
                    quality,
                    group,
                    operator,
                };
                if quality < bound && best.is_none_or(|best| split.precedes(&best)) {
                    best = Some(split);
                }
            }
        }
    };
    if nominal {
        for (at, group) in groups.groups.iter().enumerate() {
            evaluator.restart();
            let (inside, outside) = (
                group.from..group.to,
                [0..group.from, group.to..groups.rows.len()],
            );
            if inside.is_empty() || 2 * group.count > n_rows {
                for range in outside {
                    groups.rows[range]
                        .iter()
                        .for_each(|&row| evaluator.take(row));
                }
                let taken = n_rows - group.count;
                consider(evaluator, taken, at, [Operator::NotEqual, Operator::Equal]);
            } else {
                groups.rows[inside]
                    .iter()
                    .for_each(|&row| evaluator.take(row));
                consider(
                    evaluator,
                    group.count,
                    at,
                    [Operator::Equal, Operator::NotEqual],
                );
            }
        }
        return best;
    }
    let last = groups.groups.len().saturating_sub(1);
    let mut from_below = 0;
    let mut taken = 0;
    evaluator.restart();
    for (at, group) in groups.groups[..last].iter().enumerate() {
        if group.to == group.from || 2 * (taken + group.count) > n_rows {
            break;
        }
        taken += group.count;
        groups.rows[group.from..group.to]
            .iter()
            .for_each(|&row| evaluator.take(row));
        consider(evaluator, taken, at, [Operator::AtMost, Operator::Above]);
        from_below = at + 1;
    }
    taken = 0;
    evaluator.restart();
    for at in (from_below..last).rev() {
        let group = groups.groups[at + 1];
        taken += group.count;
        groups.rows[group.from..group.to]
            .iter()
            .for_each(|&row| evaluator.take(row));
        consider(evaluator, taken, at, [Operator::Above, Operator::AtMost]);
    }
    best
}
