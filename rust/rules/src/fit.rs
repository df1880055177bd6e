//! Fits rules one after the other by gradient boosting. Each rule is fitted to the gradients at the
//! scores of all previous rules.
//!
//! 1. The default rule covers all rows. Its head is computed from all rows used for learning, and is not
//!    multiplied by the learning rate. With [`Step::Safeguarded`], Newton steps are repeated until the loss
//!    stops falling.
//! 2. For each further rule, a bootstrap sample of the rows is drawn, and the body of the rule is grown on
//!    the sample (`grow.rs`). If [`Params::bootstrap`] is false, the sample contains all rows used for
//!    learning. The fit ends early if no condition can be found.
//! 3. The head is computed again from all covered rows used for learning, with their original weights. These
//!    rows include covered rows outside the sample. With [`Step::Safeguarded`], the head is halved until the
//!    loss falls enough. The head is then multiplied by the learning rate and rounded to `f32`.
//! 4. The head is added to the scores of all covered rows, including held-out rows. The gradients
//!    of these rows are updated.
//! 5. If there are held-out rows, their mean loss is recorded after each rule. The fit stops after
//!    [`Params::n_iter_no_change`] rules without a new minimum. The rules after the minimum are removed.
//!
//! A fit can continue from a start model. Such a fit first adds the heads of the start model to the
//! scores, and then adds further rules. Each rule has its own random generator, seeded with the
//! seed and the number of the rule. The result is therefore the same as in a single fit of all
//! rules.
//!
//! The time to add a rule is O(covered rows · labels). The search in `grow.rs` takes most of the time of a
//! fit.

use crate::awake::keep_awake;
use crate::columns::{Columns, select};
use crate::grow::{Body, Grower};
use crate::head::Method;
use crate::lanes::add_scaled;
use crate::params::Checked;
use crate::statistics::{Scaled, Statistics};
use crate::{Head, Model, Params, Step};
use fastrand::Rng;
use manylabel_base::range::{same, same_rows};
use manylabel_base::{Error, Watch, collected, copied, filled, push};
use manylabel_sparse::{Labels, Sparse, with_sparse};

/// Largest number of times that a step is halved. After 40 halvings, a step has about 1e-12 of its original
/// length. If the loss still does not fall enough, the step is not taken.
const MOST_HALVINGS: usize = 40;

/// A step is accepted if the loss falls by at least this fraction of the decrease that the slope of the loss
/// predicts (Armijo's rule). The value 1e-4 is suggested by Nocedal and Wright, *Numerical Optimization*,
/// section 3.1.
const ARMIJO: f64 = 1e-4;

/// Largest number of Newton steps for a safeguarded default rule.
const MOST_DEFAULT_STEPS: usize = 50;

/// Largest relative decrease of the loss for which a step counts as the last step. Used for the default rule
/// if steps are safeguarded.
const DEFAULT_TOLERANCE: f64 = 1e-10;

impl Checked {
    /// Fits rules to the rows of `x`. `y` is a matrix of ones, or [`Labels`] with unknown pairs of row and
    /// label. Unknown pairs are left out of the losses of rows, so their gradients are 0.
    ///
    /// - `x` may have missing values (NaN). Features listed in `categorical` are compared by = and
    ///   ≠. All other features are compared by ≤ and >.
    /// - `sample_weight` multiplies the loss of each row. Without `sample_weight`, every weight is 1. Rows
    ///   with weight 0 are not used for learning.
    /// - `held_out` marks rows that are not used for learning. Their mean loss determines when
    ///   fitting stops.
    /// - `start` is a model to continue from. Its rules come first and count towards the number of
    ///   rules.
    /// - `watch` counts rules, including the rules of `start`.
    ///
    /// The same data, parameters and seed give exactly the same model for any number of threads. A fit in two
    /// parts, where the second part continues from the rules of the first part, gives the same model as a
    /// single fit.
    ///
    /// The fit needs 16 bytes of memory per row and label, and about 16 bytes per stored feature value. Each
    /// thread also needs a few matrices of labels × labels in three cases: for heads without bins, for the
    /// exact search, and for bins with sparse features.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the sizes of the arrays do not match. Returns [`Error::Param`] if a value
    /// of `x` is infinite, or if `categorical` contains a number that is not a feature. Returns
    /// [`Error::TooLarge`] if there is not enough memory, or if `x` has more than 2³² − 1 rows or 2³¹ − 1
    /// features. Returns [`Error::Stopped`] if the caller requested a stop.
    #[expect(clippy::too_many_arguments, reason = "a fit has this many inputs")]
    pub fn fit<'a>(
        &self,
        x: Sparse<'_>,
        y: impl Into<Labels<'a>>,
        sample_weight: Option<&[f32]>,
        held_out: Option<&[bool]>,
        categorical: &[usize],
        start: Option<Model>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        let (n_rows, y) = (x.n_rows(), y.into());
        y.check()?;
        same_rows(n_rows, y.ones.n_rows(), sample_weight, held_out)?;
        if u32::try_from(n_rows).is_err() || i32::try_from(x.n_cols()).is_err() {
            let got = format!(
                "{n_rows} rows and {} features; at most {} rows and {} features are supported",
                x.n_cols(),
                u32::MAX,
                i32::MAX
            );
            return Err(Error::TooLarge { what: "X", got });
        }
        let columns = with_sparse!(x, |x| Columns::new(x, categorical, watch))?;
        let mut weights = filled("number of rows", 1.0, n_rows)?;
        if let Some(given) = sample_weight {
            for (weight, &given) in weights.iter_mut().zip(given) {
                *weight = f64::from(given);
            }
        }
        let mut boosting = Boosting::new(&self.0, &columns, y, weights, held_out, watch)?;
        if let Some(start) = start {
            boosting.resume(start)?;
        }
        keep_awake(|| boosting.run())?;
        Ok(boosting.model)
    }
}

/// The state of a fit between two rules.
struct Boosting<'a> {
    /// The parameters, checked to be in range.
    params: &'a Params,
    /// The features of all training rows.
    columns: &'a Columns,
    /// The method for computing heads.
    method: Method,
    /// Scores and gradients of all training rows.
    statistics: Statistics<'a>,
    /// Grows the bodies of rules. Also holds the sample of the rows.
    grower: Grower<'a>,
    /// The watch, which counts rules.
    watch: &'a Watch,
    /// The weight of each row used for learning, and 0 for all other rows.
    weights: Vec<f64>,
    /// Rows with positive weight, in increasing order. Samples are drawn from these rows.
    learned: Vec<u32>,
    /// Held-out rows, in increasing order.
    held_out: Vec<u32>,
    /// Weights of all rows, as the caller gave them. Empty if no rows are held out.
    held_out_weights: Vec<f64>,
    /// Sum of the weights of the held-out rows.
    held_out_weight: f64,
    /// The rules that have been fitted so far.
    model: Model,
}

impl<'a> Boosting<'a> {
    /// Returns the state before the first rule. All scores are 0, and the weights of held-out rows are set to
    /// 0.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    fn new(
        params: &'a Params,
        columns: &'a Columns,
        y: Labels<'a>,
        mut weights: Vec<f64>,
        held_out: Option<&[bool]>,
        watch: &'a Watch,
    ) -> Result<Self, Error> {
        let rows = 0..columns.n_rows as u32;
        let method = Method::new(params, y.ones.n_cols);
        let mut statistics = Statistics::new(params.loss, y.ones, y.unknown, watch)?;
        statistics.refresh()?;
        let mut out = Vec::new();
        let mut held_out_weights = Vec::new();
        if let Some(held_out) = held_out {
            held_out_weights = copied("number of rows", &weights)?;
            let rows = rows.clone().filter(|&row| held_out[row as usize]);
            out = collected("number of rows", rows)?;
            for &row in &out {
                weights[row as usize] = 0.0;
            }
        }
        let learned = rows.filter(|&row| weights[row as usize] > 0.0);
        Ok(Self {
            params,
            columns,
            method,
            statistics,
            grower: Grower::new(params, columns, method, watch)?,
            watch,
            learned: collected("number of rows", learned)?,
            weights,
            held_out_weight: out.iter().map(|&row| held_out_weights[row as usize]).sum(),
            held_out: out,
            held_out_weights,
            model: Model::empty(y.ones.n_cols)?,
        })
    }

    /// Continues from the rules of the model `start`, as if this fit had made them. Computes the validation
    /// losses of these rules again.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the model has another number of labels, or uses a feature that `x` does
    /// not have. Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    fn resume(&mut self, start: Model) -> Result<(), Error> {
        let n_labels = self.statistics.n_labels;
        let what = "number of labels of Y with `warm_start`";
        same(what, start.heads.n_cols, n_labels)?;
        self.model = start;
        self.model.validation_loss.clear();
        for rule in 0..self.model.n_rules() {
            let n_features = self.columns.all.len();
            let features = self.model.body(rule).map(|(feature, ..)| feature);
            if let Some(feature) = features.max().filter(|&feature| feature >= n_features) {
                return Err(Error::Shape {
                    what: "number of features of X with `warm_start`",
                    expected: feature + 1,
                    got: n_features,
                });
            }
            let rows = self.grower.covered(self.model.body(rule))?;
            self.apply(rule, &rows)?;
            self.watch.step(1)?;
        }
        Ok(())
    }

    /// Adds the head of a rule of the model to the scores of `rows`, and updates the gradients of these rows.
    /// `rows` must be the rows that the rule covers. The head is read from the model in single precision, so
    /// the scores equal the scores of a prediction.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    fn apply(&mut self, rule: usize, rows: &[u32]) -> Result<(), Error> {
        let mut head = filled("number of labels", 0.0, self.statistics.stride)?;
        let (labels, values) = self.model.heads.row(rule);
        for (&label, &value) in labels.iter().zip(values) {
            head[label as usize] = f64::from(value);
        }
        if rule == 0 {
            self.statistics.add(rows, &head)?;
        } else {
            self.statistics.advance(rows, &head)?;
        }
        self.note_loss()
    }

    /// If there are held-out rows, appends their weighted mean loss to the model.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    fn note_loss(&mut self) -> Result<(), Error> {
        if !self.held_out.is_empty() {
            let weight = |row: u32| self.held_out_weights[row as usize];
            let loss = self.statistics.loss(&self.held_out, weight)?;
            let losses = &mut self.model.validation_loss;
            push("number of rules", losses, loss / self.held_out_weight)?;
        }
        Ok(())
    }

    /// Fits rules until the required number of rules is reached, no condition can be found, or the held-out
    /// loss has stopped falling. If there are held-out rows, only the rules up to the lowest held-out loss
    /// are kept. The default rule is always kept.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    fn run(&mut self) -> Result<(), Error> {
        if self.model.n_rules() == 0 {
            self.add_default_rule()?;
            self.watch.step(1)?;
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
            let mut rng = self.rng();
            self.sample(&mut rng);
            let Some(body) = self.grower.grow(&self.statistics, &mut rng)? else {
                break;
            };
            self.add_rule(&body)?;
            self.watch.step(1)?;
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
        Ok(())
    }

    /// Returns the random generator of the next rule. Each rule has its own generator, so that a
    /// fit can continue from any number of rules.
    fn rng(&self) -> Rng {
        let rule = self.model.n_rules() as u64;
        let mut seeds = Rng::with_seed(self.params.seed);
        // Generators with consecutive seeds would start with similar numbers.
        Rng::with_seed(seeds.u64(..) ^ rule.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Draws the sample of rows for the next rule and stores it as weights in [`Grower::sampled`]. In a
    /// bootstrap sample, the weight of a row is multiplied by the number of times that the row was drawn.
    /// Without bootstrap sampling, the original weights are used.
    fn sample(&mut self, rng: &mut Rng) {
        let sampled = &mut self.grower.sampled;
        if !self.params.bootstrap {
            sampled.copy_from_slice(&self.weights);
            return;
        }
        sampled.fill(0.0);
        for _ in 0..self.learned.len() {
            let row = self.learned[rng.usize(..self.learned.len())] as usize;
            sampled[row] += self.weights[row];
        }
    }

    /// Returns the rows in `rows` that are used for learning.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the result does not fit in memory.
    fn learned_of(&self, rows: &[u32]) -> Result<Vec<u32>, Error> {
        select(rows.iter().copied(), |row| self.weights[row as usize] > 0.0)
    }

    /// Adds the default rule, which covers every row. Its head is not multiplied by the learning
    /// rate.
    ///
    /// If steps are safeguarded, the regularization applies to the total of all steps and not to each step.
    /// The steps update the scores. Afterwards the scores are reset, and the stored head of the rule is
    /// added.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    fn add_default_rule(&mut self) -> Result<(), Error> {
        let l2 = self.params.l2;
        let stride = self.statistics.stride;
        let mut total = filled("number of labels", 0.0, stride)?;
        let steps = match self.params.step {
            Step::Newton => 1,
            Step::Safeguarded => MOST_DEFAULT_STEPS,
        };
        let all = collected("number of rows", 0..self.columns.n_rows as u32)?;
        // The default rule scores all labels, even if the other rules have single-label heads.
        let complete = Params {
            head: Head::Complete,
            ..self.params.clone()
        };
        let method = Method::new(&complete, self.statistics.n_labels);
        for _ in 0..steps {
            let rows = &self.learned;
            let given = (steps > 1).then_some(&total[..]);
            let (mut head, quality) =
                method.head(&self.statistics, rows, &self.weights, l2, None, given, &[])?;
            let mut decrease = 0.0;
            if steps > 1 {
                decrease = self.safeguard(rows, &mut head, quality, &total)?;
            }
            add_scaled(&mut total, 1.0, &head);
            self.statistics.advance(&all, &head)?;
            let weight = |row: u32| self.weights[row as usize];
            if decrease <= DEFAULT_TOLERANCE * self.statistics.loss(rows, weight)? {
                break;
            }
        }
        // Scores are sums of the heads stored in the model, in single precision.
        self.statistics.reset();
        let body = Body {
            conditions: Vec::new(),
            rows: all,
            label: None,
            start: Vec::new(),
        };
        self.push(&body, &total, 1.0)
    }

    /// Computes the head of a body from all covered rows that are used for learning. Then adds the rule.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    fn add_rule(&mut self, body: &Body) -> Result<(), Error> {
        let rows = self.learned_of(&body.rows)?;
        let (mut head, quality) = self.method.head(
            &self.statistics,
            &rows,
            &self.weights,
            self.params.l2,
            body.label,
            None,
            &body.start,
        )?;
        if self.params.step == Step::Safeguarded {
            let none = filled("number of labels", 0.0, self.statistics.stride)?;
            self.safeguard(&rows, &mut head, quality, &none)?;
        }
        self.push(body, &head, self.params.learning_rate)
    }

    /// Halves `head` until the regularized loss falls enough (see [`ARMIJO`]). The regularized loss is the
    /// loss of `rows` plus the regularization of `given + head`. If the loss never falls enough, sets `head`
    /// to 0. Returns the decrease of the regularized loss.
    ///
    /// `quality` is the change of the objective that the second-order approximation predicts for `head`.
    /// `given` is the sum of all earlier steps of the same rule. The scores already contain these steps.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    fn safeguard(
        &self,
        rows: &[u32],
        head: &mut [f64],
        quality: f64,
        given: &[f64],
    ) -> Result<f64, Error> {
        let weight = |row: u32| self.weights[row as usize];
        let mut scale = 1.0;
        for _ in 0..MOST_HALVINGS {
            let growth = |(given, head): (&f64, &f64)| scale * head * (2.0 * given + scale * head);
            let penalty: f64 = given.iter().zip(&*head).map(growth).sum();
            let change = self
                .statistics
                .loss_change(rows, weight, Scaled { scale, head })?
                + 0.5 * self.params.l2 * penalty;
            // The quality is half of the slope of the objective along the head.
            if change <= ARMIJO * scale * 2.0 * quality {
                for score in head.iter_mut() {
                    *score *= scale;
                }
                return Ok(-change);
            }
            scale *= 0.5;
        }
        head.fill(0.0);
        Ok(0.0)
    }

    /// Appends a rule with the head multiplied by `scale` to the model, and updates scores and
    /// gradients.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    fn push(&mut self, body: &Body, head: &[f64], scale: f64) -> Result<(), Error> {
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
        )?;
        self.apply(self.model.n_rules() - 1, &body.rows)
    }
}
