//! Finds the rules that cover each row, for 64 rows at a time.
//!
//! Prediction processes rows in blocks of [`ROWS`] rows. Only features that occur in a condition matter. The
//! values of these features are copied from the sparse rows into a dense block. The block has one array of 64
//! values per feature, called a *slot*. A condition then compares 64 adjacent values with one threshold. The
//! result is a 64-bit [`Mask`] with one bit per row.
//!
//! The time per block is O(stored values of the rows + tested conditions · 64). The test of a rule stops as
//! soon as no row of the block satisfies all conditions tested so far. Values that are not stored are 0. NaN
//! satisfies no condition.

use crate::model::{Operator, Rules};
use manylabel_base::{Error, filled, push, reserved};
use manylabel_simd::wide;
use manylabel_sparse::{CsrView, Index, Value};
use std::ops::Range;

/// Number of rows per block. It equals the number of bits of a [`Mask`].
pub(crate) const ROWS: usize = 64;

/// A set of rows in a block of 64 rows. Bit i is set if row i is in the set.
pub(crate) type Mask = u64;

/// The values of one feature in a block of rows. [`place`] returns the position of a row.
type Lanes = [f32; ROWS];

/// Number of bits of a byte, and number of bytes of a [`Mask`].
const BYTE: usize = 8;

/// Returns the position of a row in [`Lanes`]. The values 8b to 8b + 7 are those of the rows b, 8 + b, …, 56 + b. These
/// rows have bit b of each byte of a [`Mask`], so [`mask`] needs one shift for them.
fn place(row: usize) -> usize {
    debug_assert!(row < ROWS);
    row % BYTE * BYTE + row / BYTE
}

/// Returns the rows in a mask, in increasing order.
#[inline(always)]
pub(crate) fn bits(mut mask: Mask) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let row = mask.trailing_zeros() as usize;
        mask &= mask.wrapping_sub(1);
        (row < ROWS).then_some(row)
    })
}

/// A condition on the feature in a slot (the 64 values of one feature in a block of rows).
#[derive(Debug, Clone, Copy)]
struct Condition {
    /// Index into [`Block::values`].
    slot: u32,
    operator: Operator,
    threshold: f32,
}

/// The bodies of one or more rules, prepared for tests on blocks of rows.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// For each feature, the number of its slot in a [`Block`] plus 1, or 0 if no condition uses the feature.
    /// The last entry is for the highest feature number that a condition uses.
    slots: Vec<u32>,
    /// Number of features that conditions use.
    n_slots: usize,
    /// The conditions of all rules, rule by rule.
    conditions: Vec<Condition>,
    /// The number of each rule, with the end of its conditions in `conditions`.
    ends: Vec<(u32, usize)>,
}

/// The workspace for a block of rows, and the rules that cover rows of the block. [`Bodies::block`] allocates
/// the workspace, which can be reused for any number of blocks.
#[derive(Debug)]
pub(crate) struct Block {
    /// The values of each slot (one feature for 64 rows). All values are 0 before and after the processing of
    /// a block.
    values: Vec<Lanes>,
    /// The rules that cover at least one row of the block, in increasing order. Each rule comes with the rows
    /// that it covers.
    pub(crate) fired: Vec<(u32, Mask)>,
}

impl Bodies {
    /// Prepares the bodies of the rules in `range`. The time is O(conditions + largest feature number in the
    /// conditions).
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if one number per feature and the conditions do not fit in memory.
    pub(crate) fn new<I: Index>(rules: &Rules<'_, I>, range: Range<usize>) -> Result<Self, Error> {
        let features = range.clone().flat_map(|rule| rules.body(rule));
        let n_named = features.map(|(feature, ..)| feature + 1).max().unwrap_or(0);
        let mut slots = filled("number of features", 0, n_named)?;
        let (mut n_slots, mut conditions) = (0u32, Vec::new());
        let mut ends = reserved("number of rules", range.len())?;
        for rule in range {
            for (feature, operator, threshold) in rules.body(rule) {
                if slots[feature] == 0 {
                    n_slots += 1;
                    slots[feature] = n_slots;
                }
                let condition = Condition {
                    slot: slots[feature] - 1,
                    operator,
                    threshold,
                };
                push("number of conditions", &mut conditions, condition)?;
            }
            ends.push((rule as u32, conditions.len()));
        }
        Ok(Self {
            slots,
            n_slots: n_slots as usize,
            conditions,
            ends,
        })
    }

    /// Allocates a block.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the values of the slots, or one number per rule, do not fit in memory.
    pub(crate) fn block(&self) -> Result<Block, Error> {
        Ok(Block {
            values: filled("a block of rows", [0.0; ROWS], self.n_slots)?,
            fired: reserved("number of rules", self.ends.len())?,
        })
    }

    /// Finds the rules that cover at least one row in `rows` of `x`, and writes them to
    /// [`Block::fired`]. `rows` must contain between 1 and [`ROWS`] rows.
    pub(crate) fn cover<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        rows: Range<usize>,
        block: &mut Block,
    ) {
        let mut stored = 0;
        for (number, row) in rows.clone().enumerate() {
            let at = place(number);
            stored += self.each_value(x, row, |slot, value| {
                block.values[slot][at] = value.f64() as f32;
            });
        }
        block.fired.clear();
        let all = Mask::MAX >> (ROWS - rows.len());
        fire(
            &self.ends,
            &self.conditions,
            &block.values,
            all,
            &mut block.fired,
        );
        // A second pass over the rows takes about thirty times as long per value as clearing the
        // whole block.
        if stored < 2 * self.n_slots {
            for (number, row) in rows.enumerate() {
                let at = place(number);
                self.each_value(x, row, |slot, _| block.values[slot][at] = 0.0);
            }
        } else {
            block.values.fill([0.0; ROWS]);
        }
    }

    /// Visits the stored values of a row. Calls `visit(slot, value)` for each value of a feature that
    /// conditions use. `slot` is the number of the feature among these features. Returns the total number of
    /// stored values of the row.
    #[inline(always)]
    fn each_value<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        row: usize,
        mut visit: impl FnMut(usize, T),
    ) -> usize {
        let (cols, values) = x.row(row);
        for (col, &value) in cols.iter().zip(values) {
            if let Some(slot @ 1..) = self.slots.get(col.get()) {
                visit(*slot as usize - 1, value);
            }
        }
        cols.len()
    }
}

/// Appends to `fired` each rule that covers at least one row of the set `all`, together with the covered
/// rows. `fired` must have capacity for all rules.
#[wide]
fn fire(
    ends: &[(u32, usize)],
    conditions: &[Condition],
    values: &[Lanes],
    all: Mask,
    fired: &mut Vec<(u32, Mask)>,
) {
    let mut start = 0;
    for &(rule, end) in ends {
        let mut mask = all;
        for condition in &conditions[start..end] {
            mask &= satisfied(&values[condition.slot as usize], *condition);
            if mask == 0 {
                break;
            }
        }
        if mask != 0 {
            fired.push((rule, mask));
        }
        start = end;
    }
}

/// Returns the rows whose values satisfy a condition.
#[inline(always)]
#[expect(clippy::float_cmp, reason = "nominal values are codes")]
fn satisfied(values: &Lanes, condition: Condition) -> Mask {
    let t = condition.threshold;
    match condition.operator {
        Operator::AtMost => mask(values, |value| value <= t),
        Operator::Above => mask(values, |value| value > t),
        Operator::Equal => mask(values, |value| value == t),
        // `!=` is not used, because it is true for NaN.
        Operator::NotEqual => mask(values, |value| value < t) | mask(values, |value| value > t),
    }
}

/// Returns the rows whose values pass a test.
#[inline(always)]
fn mask(values: &Lanes, test: impl Fn(f32) -> bool) -> Mask {
    let passed: [u8; ROWS] = std::array::from_fn(|at| u8::from(test(values[at])));
    let (bytes, _) = passed.as_chunks::<BYTE>();
    let bytes = bytes.iter().enumerate();
    bytes.fold(0, |mask, (bit, &bytes)| {
        mask | Mask::from_le_bytes(bytes) << bit
    })
}
