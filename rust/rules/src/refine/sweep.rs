//! The search over all conditions on one feature.

use super::groups::Groups;
use crate::Operator;
use crate::pace::Pace;
use manylabel_base::{Error, reserved};
use std::ops::Range;

/// Knows the quality of a growing set of rows and of its complement within the parent set.
///
/// Qualities may be withheld (`None`) where they are certainly not below `bound`.
pub(crate) trait Evaluator {
    /// Empties the growing set.
    fn restart(&mut self);
    /// Adds rows to it, which never has more than there was room made for.
    fn take(&mut self, rows: &[u32]);
    /// The quality of the growing set.
    fn of_taken(&mut self, bound: f64) -> Result<Option<f64>, Error>;
    /// The quality of the parent set without it.
    fn of_others(&mut self, bound: f64) -> Result<Option<f64>, Error>;
    /// About how many numbers a row takes, and a candidate.
    fn cost(&self) -> [usize; 2];
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

/// Some rows to take in, and the two conditions to judge then.
struct Step {
    /// Whether the growing set starts anew.
    restart: bool,
    /// Which rows of [`Groups::rows`].
    rows: [Range<usize>; 2],
    /// Rows in the growing set then.
    taken: usize,
    /// As in [`Split`].
    group: usize,
    /// The condition that keeps the growing set, and the one that keeps the others.
    operators: [Operator; 2],
}

/// The order in which conditions on a feature are judged.
///
/// Rows are taken in from both ends towards the middle, so that the growing set is the smaller
/// part: the sums of the other are differences from those of all rows, which must not be small,
/// and rows of an implicit zero are never touched.
fn steps(groups: &Groups, nominal: bool) -> Result<Vec<Step>, Error> {
    let Groups {
        rows, list: groups, ..
    } = groups;
    let n_rows: usize = groups.iter().map(|group| group.count).sum();
    let mut steps = reserved("number of values", groups.len())?;
    if nominal {
        for (at, group) in groups.iter().enumerate() {
            let inside = group.from..group.to;
            steps.push(if inside.is_empty() || 2 * group.count > n_rows {
                Step {
                    restart: true,
                    rows: [0..group.from, group.to..rows.len()],
                    taken: n_rows - group.count,
                    group: at,
                    operators: [Operator::NotEqual, Operator::Equal],
                }
            } else {
                Step {
                    restart: true,
                    rows: [inside, 0..0],
                    taken: group.count,
                    group: at,
                    operators: [Operator::Equal, Operator::NotEqual],
                }
            });
        }
        return Ok(steps);
    }
    let last = groups.len().saturating_sub(1);
    let mut taken = 0;
    for (at, group) in groups[..last].iter().enumerate() {
        if group.to == group.from || 2 * (taken + group.count) > n_rows {
            break;
        }
        taken += group.count;
        steps.push(Step {
            restart: at == 0,
            rows: [group.from..group.to, 0..0],
            taken,
            group: at,
            operators: [Operator::AtMost, Operator::Above],
        });
    }
    taken = 0;
    for at in (steps.len()..last).rev() {
        let group = groups[at + 1];
        taken += group.count;
        steps.push(Step {
            restart: at + 1 == last,
            rows: [group.from..group.to, 0..0],
            taken,
            group: at,
            operators: [Operator::Above, Operator::AtMost],
        });
    }
    Ok(steps)
}

/// Rows that are taken between two looks at the watch at most.
const ROWS_AT_ONCE: usize = 4096;

/// Finds the best condition that keeps at least `least` rows and whose quality is below `bound`.
///
/// # Errors
///
/// What `pace` and the evaluator return.
#[inline(always)]
pub(crate) fn sweep(
    evaluator: &mut impl Evaluator,
    groups: &Groups,
    nominal: bool,
    least: usize,
    bound: f64,
    pace: &mut Pace<'_>,
) -> Result<Option<Split>, Error> {
    let [of_row, of_candidate] = evaluator.cost();
    let n_rows: usize = groups.list.iter().map(|group| group.count).sum();
    let mut best: Option<Split> = None;
    let mut limit = bound;
    for step in steps(groups, nominal)? {
        if step.restart {
            evaluator.restart();
        }
        pace.spend(of_candidate)?;
        for rows in step.rows {
            for rows in groups.rows[rows].chunks(ROWS_AT_ONCE) {
                pace.spend(of_row * rows.len())?;
                evaluator.take(rows);
            }
        }
        let mut judge = |quality: Option<f64>, operator| {
            let Some(quality) = quality else { return };
            let split = Split {
                quality,
                group: step.group,
                operator,
            };
            if quality < bound && best.is_none_or(|best| split.precedes(&best)) {
                best = Some(split);
            }
        };
        // Not in the closure: what is compiled for wider registers must not leave this function.
        if step.taken >= least {
            let quality = evaluator.of_taken(limit)?;
            judge(quality, step.operators[0]);
        }
        if n_rows - step.taken >= least {
            let quality = evaluator.of_others(limit)?;
            judge(quality, step.operators[1]);
        }
        limit = best.map_or(bound, |best| best.quality);
    }
    Ok(best)
}
