//! How the body of a rule grows: one condition after the other, each the best on a sample of
//! features.
//!
//! The search starts with all sampled rows and keeps the rows that satisfy the conditions so far.
//! For each condition a new sample of features is drawn, and `refine/` returns the best condition
//! on them. Growth stops if no condition has a better quality than the body so far, if at most
//! [`Params::min_coverage`] rows are left, or at [`Params::max_conditions`].
//!
//! The first condition is always accepted. If no condition exists on the sampled features (all
//! values are equal, say), features are drawn again, up to [`MOST_DRAWS`] times.
//!
//! The quality of a candidate is that of its sampled rows with their sampled weights. The rule
//! finally covers all training rows that satisfy the conditions.

use crate::columns::{Columns, select};
use crate::head::Method;
use crate::refine::{ABSENT, Candidate, Context, Moments, RowSet};
use crate::statistics::Statistics;
use crate::{Head, Operator, Params};
use fastrand::Rng;
use manylabel_base::{Error, Watch, collected, copied, filled, push};

/// Most samples of features for the first condition. The last one has all features, so that
/// boosting ends only if no feature has a condition.
const MOST_DRAWS: usize = 10;

/// The body of a rule, and what it covers.
pub(crate) struct Body {
    /// The conditions, in the order they were found.
    pub(crate) conditions: Vec<Candidate>,
    /// All training rows it covers, ascending.
    pub(crate) rows: Vec<u32>,
    /// The label of a single-label head.
    pub(crate) label: Option<usize>,
    /// A head near the one of these rows, from which solving starts; empty unless heads have all
    /// labels without bins.
    pub(crate) start: Vec<f64>,
}

/// Grows bodies. Working space is kept from rule to rule.
pub(crate) struct Grower<'a> {
    /// The parameters of the fit.
    params: &'a Params,
    /// The features of all training rows.
    columns: &'a Columns,
    /// How heads are computed.
    method: Method,
    /// Called after each search for a condition.
    watch: &'a Watch,
    /// Weight of each training row in the sample of the next rule; 0 outside of it.
    pub(crate) sampled: Vec<f64>,
    /// Index of each training row among the covered rows, or [`ABSENT`]. Indices may be out of date
    /// where only membership is needed.
    positions: Vec<u32>,
    /// Working space of [`covered`](Self::covered): one mark per training row.
    marks: Vec<bool>,
    /// The features, ascending between two rules.
    order: Vec<usize>,
    /// Working space for statistics of rows by bins.
    binned: Vec<f64>,
}

impl<'a> Grower<'a> {
    /// Allocates the working space.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
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
            sampled: filled("weights", 0.0, n_rows)?,
            positions: filled("number of rows", ABSENT, n_rows)?,
            marks: filled("number of rows", false, n_rows)?,
            order: collected("number of features", 0..columns.all.len())?,
            binned: Vec::new(),
        })
    }

    /// The training rows that satisfy all conditions, ascending. Takes O(conditions · rows).
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
    ///
    /// # Panics
    ///
    /// If a condition names a feature that does not exist.
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

    /// Grows a body on the sample; `None` if no feature has a condition.
    ///
    /// Each accepted condition strictly improves the quality of the body on the sample. An
    /// estimated quality (see [`Candidate`]) is replaced by the exact one before the comparison.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`], [`Error::TooLarge`].
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
                    features.all()
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

/// Draws samples without replacement from the numbers in `order`; when it is dropped, the original
/// order is restored, so that the samples of a rule do not depend on earlier rules.
struct Draws<'a> {
    /// The numbers, partly shuffled.
    order: &'a mut [usize],
    /// The exchanges so far, to be undone in reverse.
    swaps: Vec<(usize, usize)>,
}

impl<'a> Draws<'a> {
    /// Starts from the numbers in the order given.
    fn new(order: &'a mut [usize]) -> Self {
        Self {
            order,
            swaps: Vec::new(),
        }
    }

    /// All numbers, in their present order.
    fn all(&self) -> &[usize] {
        self.order
    }

    /// `n` numbers in random order, by a partial Fisher–Yates shuffle; all of them in their present
    /// order if there are no more than `n`.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`].
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
