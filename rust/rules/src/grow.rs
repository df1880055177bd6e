//! How a rule grows: condition by condition, each the best of a sample of features.

use crate::Head;
use crate::columns::select;
use crate::fit::Boosting;
use crate::refine::{ABSENT, Candidate, Context, Moments, RowSet};
use fastrand::Rng;
use manylabel_base::Error;

/// Samples of features that are tried for a first condition; the last has all features, so that
/// boosting ends only where there is none.
const ATTEMPTS: usize = 10;

/// The body of a rule, and what it covers.
pub(crate) struct Body {
    pub(crate) conditions: Vec<Candidate>,
    /// All training rows it covers, ascending.
    pub(crate) rows: Vec<u32>,
    /// That of a single-label head.
    pub(crate) label: Option<usize>,
    /// A head near that of these rows, or none.
    pub(crate) start: Vec<f64>,
}

impl Boosting<'_> {
    /// Adds conditions as long as the sample is the better for it.
    pub(crate) fn grow(&mut self, rng: &mut Rng) -> Result<Option<Body>, Error> {
        let Self {
            params,
            columns,
            statistics,
            sampled,
            positions,
            marks,
            order,
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
        let mut covered = select(0..columns.n_rows as u32, |row| sampled[row as usize] > 0.0);
        let mut moments = Moments::over(&context, &covered, sampled);
        let mut bound = f64::INFINITY;
        positions.fill(ABSENT);
        while body.conditions.len() < params.max_conditions {
            if body.conditions.is_empty() || context.needs_positions() {
                for (position, &row) in covered.iter().enumerate() {
                    positions[row as usize] = position as u32;
                }
            }
            let attempts = if body.conditions.is_empty() {
                ATTEMPTS
            } else {
                1
            };
            let mut found = None;
            for attempt in 1..=attempts {
                let features = if attempt == ATTEMPTS {
                    features.all()
                } else {
                    features.draw(rng, params.max_features)
                };
                let set = RowSet {
                    rows: &covered,
                    positions,
                    weights: sampled,
                };
                found = context.best_condition(set, &moments, features, bound, body.label);
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
                column.part(condition.operator, condition.threshold, &covered, is_among);
            let head = || {
                let method = context.method;
                method.head(statistics, &kept, sampled, params.l2, None, None, &[])
            };
            if condition.estimated {
                condition.quality = head().1;
                if condition.quality >= bound {
                    break;
                }
            }
            if params.head == Head::Single && body.label.is_none() {
                body.label = head().0.iter().position(|&score| score != 0.0);
            }
            bound = condition.quality;
            body.conditions.push(condition);
            if kept.len() <= params.min_coverage {
                break;
            }
            moments.keep(&context, &kept, &gone, sampled, head_near);
            for &row in &gone {
                positions[row as usize] = ABSENT;
            }
            covered = kept;
        }
        if body.conditions.is_empty() {
            return Ok(None);
        }
        marks.fill(true);
        for condition in &body.conditions {
            columns.all[condition.feature].narrow(condition.operator, condition.threshold, marks);
        }
        body.rows = marked(marks);
        body.start = moments.near.x.to_vec();
        Ok(Some(body))
    }
}

/// The numbers that are marked.
pub(crate) fn marked(marks: &[bool]) -> Vec<u32> {
    select(0..marks.len() as u32, |number| marks[number as usize])
}

/// Samples without replacement from the numbers in `order`, which is in order again afterwards.
struct Draws<'a> {
    order: &'a mut [usize],
    swaps: Vec<(usize, usize)>,
}

impl<'a> Draws<'a> {
    fn new(order: &'a mut [usize]) -> Self {
        Self {
            order,
            swaps: Vec::new(),
        }
    }

    /// All numbers, in any order.
    fn all(&self) -> &[usize] {
        self.order
    }

    /// `n` numbers in random order; all of them as they are if there are no more.
    fn draw(&mut self, rng: &mut Rng, n: usize) -> &[usize] {
        if n >= self.order.len() {
            return self.order;
        }
        for i in 0..n {
            let j = rng.usize(i..self.order.len());
            self.order.swap(i, j);
            self.swaps.push((i, j));
        }
        &self.order[..n]
    }
}

impl Drop for Draws<'_> {
    fn drop(&mut self) {
        for &(i, j) in self.swaps.iter().rev() {
            self.order.swap(i, j);
        }
    }
}
