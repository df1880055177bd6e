//! How a rule grows: condition by condition, each the best of a sample of features.

use crate::Head;
use crate::columns::Columns;
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
            watch,
            ..
        } = self;
        let context = Context::new(statistics, columns, params, self.method);
        let mut body = Body {
            conditions: Vec::new(),
            rows: Vec::new(),
            label: None,
        };
        let rows = 0..columns.n_rows as u32;
        let mut covered: Vec<u32> = rows
            .clone()
            .filter(|&row| sampled[row as usize] > 0.0)
            .collect();
        let mut moments = Moments::over(&context, &covered, sampled);
        let mut bound = f64::INFINITY;
        let mut order: Vec<usize> = (0..columns.all.len()).collect();
        positions.fill(ABSENT);
        while body.conditions.len() < params.max_conditions {
            for (position, &row) in covered.iter().enumerate() {
                positions[row as usize] = position as u32;
            }
            let attempts = if body.conditions.is_empty() {
                ATTEMPTS
            } else {
                1
            };
            let mut found = None;
            for attempt in 1..=attempts {
                let all = attempt == ATTEMPTS;
                let n = if all {
                    order.len()
                } else {
                    params.max_features
                };
                let features = draw(rng, &mut order, n);
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
            let Some(mut condition) = found else { break };
            let (kept, gone) = condition.part(columns, &covered, marks);
            let head = || {
                let method = context.method;
                method.head(statistics, &kept, sampled, params.l2, None, None)
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
            moments.keep(&context, &kept, &gone, sampled);
            for &row in &gone {
                positions[row as usize] = ABSENT;
            }
            covered = kept;
        }
        if body.conditions.is_empty() {
            return Ok(None);
        }
        body.rows = rows.collect();
        for condition in &body.conditions {
            body.rows = condition.part(columns, &body.rows, marks).0;
        }
        Ok(Some(body))
    }
}

impl Candidate {
    /// Parts rows (ascending) into those that satisfy the condition and those that do not.
    fn part(&self, columns: &Columns, rows: &[u32], marks: &mut [bool]) -> (Vec<u32>, Vec<u32>) {
        columns.all[self.feature].part(self.operator, self.threshold, rows, marks)
    }
}

/// A sample of `n` numbers without replacement, in random order, from the numbers in `order`; all
/// of them as they are.
fn draw<'a>(rng: &mut Rng, order: &'a mut [usize], n: usize) -> &'a [usize] {
    if n >= order.len() {
        return order;
    }
    for i in 0..n {
        order.swap(i, rng.usize(i..order.len()));
    }
    &order[..n]
}
