//! Searches all conditions on one feature.
//!
//! Groups of rows with equal or similar values are added to a growing set. Groups are first added from the
//! smallest value upwards, until half of the rows are in the set. Then the set is emptied, and groups are
//! added from the largest value downwards. The growing set is therefore always the smaller half. After each
//! group, the growing set and its complement are evaluated. Only sums of the complement are computed as
//! differences. The complement is the larger half, so little precision is lost. Rows with the implicit value
//! 0 are never visited.
//!
//! Nominal features have two conditions, `= v` and `≠ v`, for each value v. For each value, the growing set
//! is emptied first.

use super::groups::Groups;
use crate::Operator;
use crate::pace::Pace;
use manylabel_base::{Error, reserved};
use std::ops::Range;

/// Computes the quality of a growing set of rows. Also computes the quality of its complement within the
/// parent set.
///
/// An evaluator may return `None` as soon as a lower limit of the quality exceeds `bound`.
pub(crate) trait Evaluator {
    /// Empties the growing set.
    fn restart(&mut self);
    /// Adds rows to the growing set. The set never exceeds the capacity with which the evaluator
    /// was created.
    fn take(&mut self, rows: &[u32]);
    /// Returns the quality of the growing set (the rows added so far).
    ///
    /// # Errors
    ///
    /// Returns any error of the evaluator. The causes are a lack of memory or a stop request of the caller.
    fn of_taken(&mut self, bound: f64) -> Result<Option<f64>, Error>;
    /// Returns the quality of the complement, which consists of the rows of the parent set that have not been
    /// added.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`of_taken`](Self::of_taken).
    fn of_others(&mut self, bound: f64) -> Result<Option<f64>, Error>;
    /// Returns how many values the evaluator processes per row, and how many values it processes per
    /// candidate. Both numbers are approximate.
    fn cost(&self) -> [usize; 2];
}

/// A condition on a feature, which refers to groups of values instead of a threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Split {
    /// The quality of the rows that satisfy the condition.
    pub(crate) quality: f64,
    /// The last group below the threshold. For a nominal feature, the group of the value.
    pub(crate) group: usize,
    /// The comparison operator.
    pub(crate) operator: Operator,
}

impl Split {
    /// Returns true if this split is preferred to another split. A better quality is preferred, then a lower
    /// threshold, and then ≤ is preferred to >.
    fn precedes(&self, other: &Self) -> bool {
        if self.quality != other.quality {
            return self.quality < other.quality;
        }
        (self.group, self.operator as u8) < (other.group, other.operator as u8)
    }
}

/// Rows to add to the growing set, and the two conditions to evaluate afterwards.
struct Step {
    /// True if the growing set is emptied before the rows are added.
    restart: bool,
    /// Ranges of [`Groups::rows`] to add.
    rows: [Range<usize>; 2],
    /// Number of rows in the growing set after the rows are added.
    taken: usize,
    /// The group that the two conditions refer to, as in [`Split::group`].
    group: usize,
    /// The operator that selects the growing set (the rows added so far), and the operator that selects its
    /// complement.
    operators: [Operator; 2],
}

/// Returns the order in which conditions on a feature are evaluated.
///
/// Rows are added from the smallest values upwards and from the largest values downwards, so that the growing
/// set is the smaller half of the rows. The sums of the complement are the sums of all rows minus the sums of
/// the growing set. If the complement were small, these differences would lose digits. Rows of a sparse
/// column with the value 0 are never added, and are always in the complement.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the steps do not fit in memory.
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

/// Largest number of rows that are added between two checks for a stop request of the caller.
const ROWS_AT_ONCE: usize = 4096;

/// Finds the condition with the lowest (best) quality. The quality must be below `bound`, and at
/// least `least` rows must satisfy the condition. Returns `None` if there is no such condition.
///
/// # Errors
///
/// Returns any error of `pace` or of the evaluator.
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
        // These calls are not in the closure, because they must be inlined here to be compiled for
        // wider registers.
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
