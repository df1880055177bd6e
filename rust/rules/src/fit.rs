//! Boosting: one rule after the other, each fitted to the gradients that those before have left.

use crate::columns::Columns;
use crate::head::Method;
use crate::params::Checked;
use crate::refine::{ABSENT, Candidate, Context, Moments, RowSet};
use crate::statistics::Statistics;
use crate::{Head, Model, Operator, Params, Step};
use fastrand::Rng;
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::{CsrOwned, CsrView, Index, Value};

/// Samples of features that are tried before boosting ends for want of a first condition.
const ATTEMPTS: usize = 10;

/// Halvings of a step at most.
const HALVINGS: usize = 40;

/// Share of the expected decrease that a step must bring (Armijo's rule).
const SUFFICIENT: f64 = 1e-4;

/// Steps of a safeguarded default rule at most, and the decrease relative to the loss below which
/// it is done.
const DEFAULT_STEPS: usize = 50;
const DEFAULT_TOLERANCE: f64 = 1e-10;

impl Checked {
    /// Fits rules to the rows of `x` and the labels that the rows of `y` store.
    ///
    /// `x` may have missing values (NaN); the features `categorical` are names rather than
    /// magnitudes. `sample_weight`, if given, multiplies the loss of each row. Rows of `held_out`
    /// are not learned from: their loss tells when to stop. The rules of `start` come first, and
    /// are counted. The same data, parameters and seed give the same bits, whatever the number of
    /// threads, and whether rules are fitted at once or after a start.
    ///
    /// Memory: 16 bytes a row and label, 8 to 12 a stored feature; with un-binned heads, or exact
    /// search, also 8 `n_labels²`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if sizes disagree, [`Error::Param`] if a value of `x` is infinite or
    /// `categorical` names no feature, [`Error::TooLarge`] if memory does not suffice,
    /// [`Error::Stopped`] through `watch`.
    #[expect(clippy::too_many_arguments, reason = "all of what a fit depends on")]
    pub fn fit<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        y: &CsrOwned,
        sample_weight: Option<&[f32]>,
        held_out: Option<&[bool]>,
        categorical: &[usize],
        start: Option<&Model>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        let n_rows = x.n_rows();
        let sizes = [
            ("rows of Y", y.n_rows()),
            (
                "length of sample_weight",
                sample_weight.map_or(n_rows, <[f32]>::len),
            ),
            ("length of held_out", held_out.map_or(n_rows, <[bool]>::len)),
        ];
        for (what, got) in sizes {
            if got != n_rows {
                return Err(Error::Shape {
                    what,
                    expected: n_rows,
                    got,
                });
            }
        }
        if u32::try_from(n_rows).is_err() || i32::try_from(x.n_cols()).is_err() {
            let got = format!("{n_rows} rows, {} features", x.n_cols());
            return Err(Error::TooLarge { what: "X", got });
        }
        let columns = Columns::new(x, categorical, watch)?;
        let mut weights = filled("weights", 1.0, n_rows)?;
        if let Some(given) = sample_weight {
            for (weight, &given) in weights.iter_mut().zip(given) {
                *weight = f64::from(given);
            }
        }
        for (weight, &out) in weights.iter_mut().zip(held_out.unwrap_or(&[])) {
            *weight = if out { 0.0 } else { *weight };
        }
        let mut boosting = Boosting::new(&self.0, &columns, y, weights)?;
        if held_out.is_some() {
            let out = (0..n_rows as u32).filter(|&row| boosting.weights[row as usize] == 0.0);
            boosting.held_out = out.collect();
        }
        if let Some(start) = start {
            boosting.resume(start)?;
        }
        boosting.run(watch)?;
        Ok(boosting.model)
    }
}

/// The state of boosting between rules.
struct Boosting<'a> {
    params: &'a Params,
    columns: &'a Columns,
    method: Method,
    statistics: Statistics,
    /// Of the training rows; 0 for those held out.
    weights: Vec<f64>,
    /// Rows of positive weight, from which samples are drawn.
    learned: Vec<u32>,
    held_out: Vec<u32>,
    model: Model,
    /// Weights within the sample, room for every row.
    sampled: Vec<f64>,
    positions: Vec<u32>,
    marks: Vec<bool>,
}

/// The body of a rule, and what it covers.
struct Body {
    conditions: Vec<Candidate>,
    /// All training rows it covers, ascending.
    rows: Vec<u32>,
    label: Option<usize>,
}

impl<'a> Boosting<'a> {
    fn new(
        params: &'a Params,
        columns: &'a Columns,
        y: &CsrOwned,
        weights: Vec<f64>,
    ) -> Result<Self, Error> {
        let n_rows = columns.n_rows;
        let rows = 0..n_rows as u32;
        let mut statistics = Statistics::new(params.loss, y)?;
        statistics.refresh(&rows.clone().collect::<Vec<_>>());
        Ok(Self {
            params,
            columns,
            method: Method::new(params, y.n_cols),
            statistics,
            learned: rows.filter(|&row| weights[row as usize] > 0.0).collect(),
            weights,
            held_out: Vec::new(),
            model: Model::empty(y.n_cols),
            sampled: filled("weights", 0.0, n_rows)?,
            positions: filled("number of rows", ABSENT, n_rows)?,
            marks: filled("number of rows", false, n_rows)?,
        })
    }

    /// Takes over the rules of another model, as if they had been fitted here.
    fn resume(&mut self, start: &Model) -> Result<(), Error> {
        let n_labels = self.statistics.n_labels;
        if start.heads.n_cols != n_labels {
            return Err(Error::Shape {
                what: "labels of the rules to go on from",
                expected: n_labels,
                got: start.heads.n_cols,
            });
        }
        for rule in 0..start.n_rules() {
            let mut rows: Vec<u32> = (0..self.columns.n_rows as u32).collect();
            for (feature, operator, threshold) in start.body(rule) {
                let Some(column) = self.columns.columns.get(feature) else {
                    return Err(Error::Shape {
                        what: "features of the rules to go on from",
                        expected: self.columns.columns.len(),
                        got: feature + 1,
                    });
                };
                column.retain(operator, threshold, &mut rows, &mut self.marks);
            }
            let (labels, values) = start.heads.row(rule);
            self.statistics.add(&rows, labels, values);
        }
        self.statistics
            .refresh(&(0..self.columns.n_rows as u32).collect::<Vec<_>>());
        self.model = start.clone();
        Ok(())
    }

    fn run(&mut self, watch: &Watch) -> Result<(), Error> {
        if self.model.n_rules() == 0 {
            self.add_default_rule();
        }
        let mut best = (f64::INFINITY, 0);
        for (rule, &loss) in self.model.validation_loss.iter().enumerate() {
            best = if loss < best.0 {
                (loss, rule + 1)
            } else {
                best
            };
        }
        while self.model.n_rules() < self.params.n_rules {
            watch.step(1)?;
            let mut rng = self.rng();
            self.sample(&mut rng);
            let Some(body) = self.grow(&mut rng, watch)? else {
                break;
            };
            self.add_rule(body);
            if self.held_out.is_empty() {
                continue;
            }
            let n_rules = self.model.n_rules();
            let loss = self.model.validation_loss[n_rules - 1];
            if loss < best.0 {
                best = (loss, n_rules);
            } else if n_rules - best.1 >= self.params.n_iter_no_change {
                break;
            }
        }
        if !self.held_out.is_empty() {
            self.model.truncate(best.1.max(1));
        }
        watch.step(1)
    }

    /// A generator of its own for every rule, so that fitting may go on from any.
    fn rng(&self) -> Rng {
        let rule = self.model.n_rules() as u64;
        let mut seeds = Rng::with_seed(self.params.seed);
        // Seeds that follow one another would give generators that begin alike.
        Rng::with_seed(seeds.u64(..) ^ rule.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Draws a bootstrap sample of the rows into `sampled`.
    fn sample(&mut self, rng: &mut Rng) {
        if !self.params.bootstrap {
            self.sampled.copy_from_slice(&self.weights);
            return;
        }
        self.sampled.fill(0.0);
        for _ in 0..self.learned.len() {
            let row = self.learned[rng.usize(..self.learned.len())] as usize;
            self.sampled[row] += self.weights[row];
        }
    }

    /// Adds conditions as long as the sample is the better for it.
    fn grow(&mut self, rng: &mut Rng, watch: &Watch) -> Result<Option<Body>, Error> {
        let Self {
            params,
            columns,
            statistics,
            sampled,
            positions,
            marks,
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
        let mut order: Vec<usize> = (0..columns.columns.len()).collect();
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
            for _ in 0..attempts {
                watch.step(0)?;
                let features = draw(rng, &mut order, params.max_features);
                let set = RowSet {
                    rows: &covered,
                    positions,
                    weights: sampled,
                };
                found = context.best_condition(set, &moments, features, bound, body.label);
                if found.is_some() {
                    break;
                }
            }
            covered
                .iter()
                .for_each(|&row| positions[row as usize] = ABSENT);
            let Some(mut condition) = found else { break };
            let Candidate {
                feature,
                operator,
                threshold,
                ..
            } = condition;
            let mut kept = covered.clone();
            columns.columns[feature].retain(operator, threshold, &mut kept, marks);
            let head = |label| {
                let method = context.method;
                method.head(statistics, &kept, sampled, params.l2, label, None)
            };
            if condition.estimated {
                condition.quality = head(None).1;
                if condition.quality >= bound {
                    break;
                }
            }
            if params.head == Head::Single && body.label.is_none() {
                body.label = head(None).0.iter().position(|&score| score != 0.0);
            }
            bound = condition.quality;
            body.conditions.push(condition);
            if kept.len() <= params.min_coverage {
                break;
            }
            moments.keep(&context, &covered, &kept, sampled);
            covered = kept;
        }
        if body.conditions.is_empty() {
            return Ok(None);
        }
        body.rows = rows.collect();
        for &Candidate {
            feature,
            operator,
            threshold,
            ..
        } in &body.conditions
        {
            columns.columns[feature].retain(operator, threshold, &mut body.rows, marks);
        }
        Ok(Some(body))
    }

    /// The rows among `rows` that are learned from.
    fn learned_of(&self, rows: &[u32]) -> Vec<u32> {
        rows.iter()
            .copied()
            .filter(|&row| self.weights[row as usize] > 0.0)
            .collect()
    }

    /// Adds the rule that covers every row, without shrinkage.
    fn add_default_rule(&mut self) {
        let l2 = self.params.l2;
        let rows = self.learned.clone();
        let stride = self.statistics.stride;
        let mut total = vec![0.0; stride];
        let steps = match self.params.step {
            Step::Newton => 1,
            Step::Safeguarded => DEFAULT_STEPS,
        };
        let all: Vec<u32> = (0..self.columns.n_rows as u32).collect();
        // It scores all labels, whatever heads the other rules have.
        let complete = Params {
            head: Head::Complete,
            ..self.params.clone()
        };
        let method = Method::new(&complete, self.statistics.n_labels);
        for _ in 0..steps {
            let given = (steps > 1).then_some(&total[..]);
            let (mut head, quality) =
                method.head(&self.statistics, &rows, &self.weights, l2, None, given);
            let mut decrease = 0.0;
            if steps > 1 {
                decrease = self.safeguard(&rows, &mut head, quality, &total);
            }
            crate::lanes::add_scaled(&mut total, 1.0, &head);
            self.statistics.add_dense(&all, &head);
            self.statistics.refresh(&all);
            if decrease <= DEFAULT_TOLERANCE {
                break;
            }
        }
        // Scores are sums of what the model stores, which is in single precision.
        self.statistics.reset();
        let body = Body {
            conditions: Vec::new(),
            rows: all,
            label: None,
        };
        self.push(&body, &total, 1.0);
    }

    fn add_rule(&mut self, body: Body) {
        let rows = self.learned_of(&body.rows);
        let l2 = self.params.l2;
        let (mut head, quality) =
            self.method
                .head(&self.statistics, &rows, &self.weights, l2, body.label, None);
        if self.params.step == Step::Safeguarded {
            let none = vec![0.0; self.statistics.stride];
            self.safeguard(&rows, &mut head, quality, &none);
        }
        self.push(&body, &head, self.params.learning_rate);
    }

    /// Halves `head` until the loss of `rows`, with the regularization of `given + head`, falls
    /// enough; to 0 if it never does. Returns the decrease relative to the loss.
    fn safeguard(&self, rows: &[u32], head: &mut [f64], quality: f64, given: &[f64]) -> f64 {
        let weight = |row: u32| self.weights[row as usize];
        let penalty = |scale: f64| {
            let square = |(given, head): (&f64, &f64)| (given + scale * head).powi(2);
            0.5 * self.params.l2 * given.iter().zip(&*head).map(square).sum::<f64>()
        };
        let before = self.statistics.loss(rows, weight) + penalty(0.0);
        let mut scale = 1.0;
        for _ in 0..HALVINGS {
            // The quality is half of the slope along the head.
            let after = self.statistics.loss_after(rows, weight, scale, head) + penalty(scale);
            if after <= before + SUFFICIENT * scale * 2.0 * quality {
                head.iter_mut().for_each(|score| *score *= scale);
                return (before - after) / before.abs().max(f64::MIN_POSITIVE);
            }
            scale *= 0.5;
        }
        head.fill(0.0);
        0.0
    }

    /// Appends a rule to the model and brings scores and gradients up to date.
    fn push(&mut self, body: &Body, head: &[f64], scale: f64) {
        let conditions = body.conditions.iter();
        self.model.push(
            conditions.map(|c| (c.feature, c.operator, c.threshold)),
            head[..self.statistics.n_labels]
                .iter()
                .map(|score| (scale * score) as f32),
            self.params.head == Head::Complete || body.conditions.is_empty(),
            body.rows
                .iter()
                .map(|&row| self.weights[row as usize])
                .sum(),
        );
        let (labels, values) = self.model.heads.row(self.model.n_rules() - 1);
        self.statistics.add(&body.rows, labels, values);
        self.statistics.refresh(&body.rows);
        if !self.held_out.is_empty() {
            let zero = vec![0.0; self.statistics.stride];
            let loss = self
                .statistics
                .loss_after(&self.held_out, |_| 1.0, 0.0, &zero);
            self.model
                .validation_loss
                .push(loss / self.held_out.len() as f64);
        }
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

impl Model {
    fn empty(n_labels: usize) -> Self {
        Self {
            body_indptr: vec![0],
            body_feature: Vec::new(),
            body_operator: Vec::new(),
            body_threshold: Vec::new(),
            heads: CsrOwned {
                indptr: vec![0],
                indices: Vec::new(),
                values: Vec::new(),
                n_cols: n_labels,
            },
            coverage: Vec::new(),
            validation_loss: Vec::new(),
        }
    }

    fn n_rules(&self) -> usize {
        self.coverage.len()
    }

    fn body(&self, rule: usize) -> impl Iterator<Item = (usize, Operator, f32)> + '_ {
        let range = self.body_indptr[rule] as usize..self.body_indptr[rule + 1] as usize;
        range.map(|at| {
            let operator = Operator::from_number(self.body_operator[at]);
            let feature = self.body_feature[at] as usize;
            (
                feature,
                operator.unwrap_or(Operator::AtMost),
                self.body_threshold[at],
            )
        })
    }

    fn push(
        &mut self,
        conditions: impl Iterator<Item = (usize, Operator, f32)>,
        head: impl Iterator<Item = f32>,
        complete: bool,
        coverage: f64,
    ) {
        for (feature, operator, threshold) in conditions {
            self.body_feature.push(feature as i32);
            self.body_operator.push(operator as u8);
            self.body_threshold.push(threshold);
        }
        self.body_indptr.push(self.body_feature.len() as i64);
        // Of a complete head all scores are stored, zeros too: prediction is faster so.
        for (label, score) in head
            .enumerate()
            .filter(|(_, score)| complete || *score != 0.0)
        {
            self.heads.indices.push(label as u32);
            self.heads.values.push(score);
        }
        self.heads.indptr.push(self.heads.indices.len());
        self.coverage.push(coverage);
    }

    /// Keeps the first `n_rules` rules.
    fn truncate(&mut self, n_rules: usize) {
        let n_conditions = self.body_indptr[n_rules] as usize;
        self.body_indptr.truncate(n_rules + 1);
        self.body_feature.truncate(n_conditions);
        self.body_operator.truncate(n_conditions);
        self.body_threshold.truncate(n_conditions);
        let n_scores = self.heads.indptr[n_rules];
        self.heads.indptr.truncate(n_rules + 1);
        self.heads.indices.truncate(n_scores);
        self.heads.values.truncate(n_scores);
        self.coverage.truncate(n_rules);
        self.validation_loss.truncate(n_rules);
    }
}
