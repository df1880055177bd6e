//! The search over all conditions on one feature.
//!
//! The groups of values are taken into a growing set in an order that keeps this set the smaller
//! half: from the lowest value upwards, and from the highest downwards, each until half of the rows
//! are taken. After each group, both halves are judged. Only the complement's sums are differences,
//! and of the larger half, where little precision is lost. Rows of an implicit zero are never
//! touched.
//!
//! Nominal features have one condition `= v` and one `≠ v` per value v; each starts from an empty
//! set.

use super::groups::Groups;
use crate::Operator;
use crate::pace::Pace;
use manylabel_base::{Error, reserved};
use std::ops::Range;

/// Knows the quality of a growing set of rows, and of its complement within the parent set.
///
/// Both qualities may be withheld (`None`) if they are certainly not below `bound`.
pub(crate) trait Evaluator {
    /// Empties the growing set.
    fn restart(&mut self);
    /// Adds rows to the growing set, which never exceeds the capacity that the evaluator was
    /// created with.
    fn take(&mut self, rows: &[u32]);
    /// The quality of the growing set.
    ///
    /// # Errors
    ///
    /// Those of the evaluator: no memory, or a stop.
    fn of_taken(&mut self, bound: f64) -> Result<Option<f64>, Error>;
    /// The quality of the complement: the parent set without the growing set.
    ///
    /// # Errors
    ///
    /// As [`of_taken`](Self::of_taken).
    fn of_others(&mut self, bound: f64) -> Result<Option<f64>, Error>;
    /// About how many numbers it processes per row and per candidate.
    fn cost(&self) -> [usize; 2];
}

/// A condition on a feature, by its groups of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Split {
    /// The quality of the rows it keeps.
    pub(crate) quality: f64,
    /// The last group below the threshold; for a nominal feature, the group of the value.
    pub(crate) group: usize,
    /// How values are compared.
    pub(crate) operator: Operator,
}

impl Split {
    /// Whether this split is preferred to another: by better quality, then lower threshold, then ≤
    /// before >.
    fn precedes(&self, other: &Self) -> bool {
        if self.quality != other.quality {
            return self.quality < other.quality;
        }
        (self.group, self.operator as u8) < (other.group, other.operator as u8)
    }
}

/// Rows to take into the growing set, and the two conditions that are then judged.
struct Step {
    /// Whether the growing set is emptied first.
    restart: bool,
    /// Ranges of [`Groups::rows`] to take.
    rows: [Range<usize>; 2],
    /// Rows in the growing set afterwards.
    taken: usize,
    /// As in [`Split`].
    group: usize,
    /// The condition that keeps the growing set, and the one that keeps the others.
    operators: [Operator; 2],
}

/// The order in which conditions on a feature are judged.
///
/// Rows are taken from both ends towards the middle, so that the growing set is the smaller half.
/// Sums of the other half are differences from those of all rows, and would lose digits if that
/// half were small. Groups of implicit zeros have no rows to take, and are always in the other
/// half.
///
/// # Errors
///
/// [`Error::TooLarge`].
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

/// Most rows taken between two calls of the watch.
const ROWS_AT_ONCE: usize = 4096;

/// Finds the best condition that keeps at least `least` rows and has a quality below `bound`;
/// `None` if there is none.
///
/// # Errors
///
/// Those of `pace` and the evaluator.
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
        // Not in the closure: calls of the evaluator must be inlined here to be compiled for wider
        // registers.
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
