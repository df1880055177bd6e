//! Grows the body of a rule. Conditions are added one after the other. Each condition is the best condition
//! on a random sample of the features.
//!
//! The search starts with all sampled rows. After each condition, it keeps only the rows that satisfy the
//! condition. For each condition a new sample of features is drawn, and `refine/` returns the best condition
//! on these features. The search stops if no condition has a better quality than the current body. It also
//! stops if at most [`Params::min_coverage`] rows are left, or if there are [`Params::max_conditions`]
//! conditions.
//!
//! The first condition is always accepted. A sample of features may allow no condition, for example if all
//! values are equal. For the first condition, another sample is then drawn, up to [`MOST_DRAWS`] times.
//!
//! The quality of a candidate is computed on its sampled rows, with their sampled weights. The
//! finished rule covers all training rows that satisfy the conditions.

use crate::columns::{Columns, select};
use crate::head::Method;
use crate::refine::{ABSENT, Candidate, Context, Moments, RowSet};
use crate::statistics::Statistics;
use crate::{Head, Operator, Params};
use fastrand::Rng;
use manylabel_base::{Error, Watch, collected, copied, filled, push};

/// Maximum number of samples of features that are drawn to find the first condition of a rule. The last of
/// these samples contains all features with more than one value. If it allows no condition either, the fit ends.
const MOST_DRAWS: usize = 10;

/// The body of a rule, with the rows that it covers and the label of a single-label head.
pub(crate) struct Body {
    /// The conditions, in the order in which they were found.
    pub(crate) conditions: Vec<Candidate>,
    /// All training rows that the body covers, in increasing order.
    pub(crate) rows: Vec<u32>,
    /// The label of a single-label head; `None` for complete heads.
    pub(crate) label: Option<usize>,
    /// An approximate head of the covered rows. The solver starts from this head. Empty unless heads score
    /// all labels without bins.
    pub(crate) start: Vec<f64>,
}

/// Grows the bodies of rules. The workspace is reused from rule to rule.
pub(crate) struct Grower<'a> {
    /// The parameters of the fit.
    params: &'a Params,
    /// The features of all training rows.
    columns: &'a Columns,
    /// The method for computing heads.
    method: Method,
    /// The watch, which is checked for a stop request of the caller after each search for a condition.
    watch: &'a Watch,
    /// Weight of each training row in the sample of the next rule. Rows outside the sample have
    /// weight 0.
    pub(crate) sampled: Vec<f64>,
    /// Index of each training row among the covered rows, or [`ABSENT`]. If the search does not need these
    /// indices, they may be outdated. Which entries are [`ABSENT`] is always up to date.
    positions: Vec<u32>,
    /// The workspace of [`covered`](Self::covered), with one mark per training row.
    marks: Vec<bool>,
    /// The feature numbers. They are in increasing order before and after the growth of a body.
    order: Vec<usize>,
    /// The workspace for statistics of rows summed by bins.
    binned: Vec<f64>,
}

impl<'a> Grower<'a> {
    /// Allocates the workspace.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the workspace does not fit in memory.
    pub(crate) fn new(
        params: &'a Params,
        columns: &'a Columns,
        method: Method,
        watch: &'a Watch,
    ) -> Result<Self, Error> {
        let n_rows = columns.n_rows;
        Ok(Self {
            params,
            columns,
            method,
            watch,
            sampled: filled("number of rows", 0.0, n_rows)?,
            positions: filled("number of rows", ABSENT, n_rows)?,
            marks: filled("number of rows", false, n_rows)?,
            order: collected("number of features", 0..columns.all.len())?,
            binned: Vec::new(),
        })
    }

    /// Returns the training rows that satisfy all conditions, in increasing order. The time is O(conditions
    /// · rows).
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the rows do not fit in memory.
    ///
    /// # Panics
    ///
    /// Panics if a condition uses a feature that does not exist.
    pub(crate) fn covered(
        &mut self,
        conditions: impl IntoIterator<Item = (usize, Operator, f32)>,
    ) -> Result<Vec<u32>, Error> {
        self.marks.fill(true);
        for (feature, operator, threshold) in conditions {
            self.columns.all[feature].narrow(operator, threshold, &mut self.marks)?;
        }
        let marks = &self.marks;
        select(0..marks.len() as u32, |row| marks[row as usize])
    }

    /// Grows a body on the sampled rows. Returns `None` if no feature allows a condition.
    ///
    /// Each accepted condition strictly improves the quality of the body on the sample. Before this
    /// comparison, the exact quality replaces an estimated quality (see [`Candidate`]).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Stopped`] if the caller requested a stop. Returns [`Error::TooLarge`] if there is not
    /// enough memory.
    pub(crate) fn grow(
        &mut self,
        statistics: &Statistics<'_>,
        rng: &mut Rng,
    ) -> Result<Option<Body>, Error> {
        let Self {
            params,
            columns,
            sampled,
            positions,
            order,
            binned,
            watch,
            ..
        } = self;
        let mut features = Draws::new(order);
        let context = Context::new(statistics, columns, params, self.method);
        let mut body = Body {
            conditions: Vec::new(),
            rows: Vec::new(),
            label: None,
            start: Vec::new(),
        };
        let mut covered = select(0..columns.n_rows as u32, |row| sampled[row as usize] > 0.0)?;
        let mut moments = Moments::over(&context, &covered, sampled)?;
        let mut bound = f64::INFINITY;
        positions.fill(ABSENT);
        while body.conditions.len() < params.max_conditions {
            if body.conditions.is_empty() || context.needs_positions() {
                for (position, &row) in covered.iter().enumerate() {
                    positions[row as usize] = position as u32;
                }
            }
            let attempts = if body.conditions.is_empty() {
                MOST_DRAWS
            } else {
                1
            };
            let mut found = None;
            for attempt in 1..=attempts {
                let features = if attempt == MOST_DRAWS {
                    &columns.varying(features.all())?
                } else {
                    features.draw(rng, params.max_features)?
                };
                let set = RowSet {
                    rows: &covered,
                    positions,
                    weights: sampled,
                };
                found =
                    context.best_condition(set, &moments, features, bound, body.label, binned)?;
                watch.step(0)?;
                if found.is_some() {
                    break;
                }
            }
            let Some((mut condition, head_near)) = found else {
                break;
            };
            let column = &columns.all[condition.feature];
            let is_among = |row: u32| positions[row as usize] != ABSENT;
            let (kept, gone) =
                column.part(condition.operator, condition.threshold, &covered, is_among)?;
            let head = || {
                let method = context.method;
                method.head(statistics, &kept, sampled, params.l2, None, None, &[])
            };
            if condition.estimated {
                condition.quality = head()?.1;
                if condition.quality >= bound {
                    break;
                }
            }
            if params.head == Head::Single && body.label.is_none() {
                body.label = head()?.0.iter().position(|&score| score != 0.0);
            }
            bound = condition.quality;
            push("number of conditions", &mut body.conditions, condition)?;
            if kept.len() <= params.min_coverage {
                break;
            }
            moments.keep(&context, &kept, &gone, sampled, head_near)?;
            for &row in &gone {
                positions[row as usize] = ABSENT;
            }
            covered = kept;
        }
        if body.conditions.is_empty() {
            return Ok(None);
        }
        drop(features);
        let conditions = body.conditions.iter();
        body.rows = self.covered(conditions.map(|c| (c.feature, c.operator, c.threshold)))?;
        body.start = copied("number of labels", &moments.near.x)?;
        Ok(Some(body))
    }
}

/// Draws samples without replacement from the numbers in `order`. When this value is dropped, the original
/// order is restored. The samples of a rule therefore do not depend on earlier rules.
struct Draws<'a> {
    /// The numbers, partly shuffled.
    order: &'a mut [usize],
    /// The swaps so far. They are undone in reverse order.
    swaps: Vec<(usize, usize)>,
}

impl<'a> Draws<'a> {
    /// Starts with the numbers in the given order.
    fn new(order: &'a mut [usize]) -> Self {
        Self {
            order,
            swaps: Vec::new(),
        }
    }

    /// Returns all numbers in their current order.
    fn all(&self) -> &[usize] {
        self.order
    }

    /// Returns `n` numbers in random order, by a partial Fisher–Yates shuffle. If there are at most
    /// `n` numbers, all of them are returned in their current order.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the list of swaps does not fit in memory.
    fn draw(&mut self, rng: &mut Rng, n: usize) -> Result<&[usize], Error> {
        if n >= self.order.len() {
            return Ok(self.order);
        }
        for i in 0..n {
            let j = rng.usize(i..self.order.len());
            self.order.swap(i, j);
            push("number of features", &mut self.swaps, (i, j))?;
        }
        Ok(&self.order[..n])
    }
}

impl Drop for Draws<'_> {
    fn drop(&mut self) {
        for &(i, j) in self.swaps.iter().rev() {
            self.order.swap(i, j);
        }
    }
}
