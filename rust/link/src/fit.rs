//! Fits the link, which computes the scores of labels from a few linear predictions. The fit draws
//! frequencies, computes the Gram matrix of the features, and computes the output weights for a few
//! thousand labels at a time.
//!
//! The fit first computes the linear predictions of all rows, and the median squared distance
//! between the predictions of two rows. It chooses γ, the factor of the frequencies, if γ is not
//! given. Then it draws frequencies and phases, and computes the Gram matrix of the training rows
//! and its Cholesky factor. Output weights are computed for one group of labels after the other. If
//! requested, the threshold is learned last.
//!
//! The choice of γ, the order of rows and the sample for the threshold use separate random
//! generators. So the same seed gives the same frequencies whatever the other options are, except
//! for the factor γ.
//!
//! [`Plan`] decides how many labels are fitted together, whether features are kept in memory, and
//! whether features are whitened. These decisions depend only on the sizes of the data. [`Plan`]
//! also estimates the memory of the fit. A fit that needs too much memory therefore fails before
//! any work is done.

use crate::block::solve_block;
use crate::design::{Design, Projection};
use crate::gram::Factor;
use crate::labels::Labels;
use crate::moments::{GRAM_ROWS, gram};
use crate::params::Checked;
use crate::psgd::{Problem, batch_rows};
use crate::{Loss, Params, Solver, gamma, kernel, newton, threshold};
use fastrand::Rng;
use manylabel_base::range::{same, same_rows};
use manylabel_base::{Error, Watch, collected, filled};
use manylabel_sparse::{Labels as Known, Sparse};

/// Number of labels that are fitted together. For these labels, the momentum, the gradient and the
/// least-squares solution are in memory.
const LABELS_AT_ONCE: usize = 4096;

/// Largest number of bytes of features that are kept in memory if no memory limit is given. If
/// features need more bytes, they are computed again in every pass.
const BYTES_KEPT: u64 = 2 << 30;

/// A fitted smooth link. [`Scorer`](crate::Scorer) borrows its arrays.
#[derive(Debug)]
pub struct Model {
    /// Frequencies R, stored as k + 1 rows of length s, for k linear predictions and s features of
    /// the link. Row t belongs to prediction t, and the last row belongs to a constant 1. Empty for
    /// the linear kernel.
    pub frequencies: Vec<f32>,
    /// The s phases b, in [0, 2π). Empty for the linear kernel.
    pub phases: Vec<f32>,
    /// Output weights V, one row per label. A row has length s, or length k with the linear kernel.
    /// The row of a label that occurs in no row of Y is zero.
    pub weights: Vec<f32>,
    /// Intercept of each label: the weight of the constant feature. For the squared loss, ½ is
    /// subtracted, so that labels with positive scores are predicted. A label that occurs in no row
    /// of Y has −∞.
    pub intercept: Vec<f32>,
    /// The ridge that was used, divided by the mean diagonal of the Gram matrix. It is larger than
    /// requested if the matrix was singular.
    pub ridge: f64,
    /// Held-out loss after each pass. Empty if no rows were held out.
    pub validation_loss: Vec<f64>,
    /// Number of Newton steps for each label. If Newton's method did not converge for a label, the
    /// number is one more than the limit. With all other solvers, the number is 0.
    pub n_iter: Vec<i32>,
    /// Labels with scores above this threshold are predicted. The threshold is 0 if no threshold
    /// was learned.
    pub threshold: f64,
    /// The factor γ of the frequencies that was used, as given or as chosen by the fit.
    pub gamma: f64,
}

impl Checked {
    /// Fits the link to the linear predictions and the labels of the training rows. `projection`
    /// computes the predictions from the rows of `x`. `y` is a matrix of ones, or `Labels` with
    /// unknown pairs, which [`Loss::Softmax`] does not support.
    ///
    /// - `predictions`, if given, is used in place of the predictions of `projection`, with k
    ///   numbers per row. If `projection` was fitted to the same rows, pass leave-one-out
    ///   predictions. The predictions of `projection` are more accurate for these rows than for new
    ///   rows. Leave-one-out predictions are about as accurate as predictions for new rows.
    /// - `sample_weight` multiplies the loss of each row. If it is `None`, every weight is 1.
    /// - `held_out` marks rows that are not used for learning. The loss of these rows determines
    ///   when the solver [`Solver::Psgd`] stops.
    ///
    /// The same data, parameters and seed give exactly the same result for any number of threads.
    /// See the [crate] for time and memory.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the sizes of the arguments do not match. [`Error::TooLarge`] if the fit
    /// needs more memory than `max_memory` or more than the system grants. [`Error::Param`] if
    /// weights become infinite. [`Error::Stopped`] if the caller requested a stop.
    #[expect(clippy::too_many_arguments, reason = "a fit has this many inputs")]
    pub fn fit<'a>(
        &self,
        x: Sparse<'_>,
        projection: Projection<'_>,
        predictions: Option<&[f32]>,
        y: impl Into<Known<'a>>,
        sample_weight: Option<&[f32]>,
        held_out: Option<&[bool]>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        let (n_rows, y) = (x.n_rows(), y.into());
        y.check()?;
        let n_labels = y.ones.n_cols;
        same_rows(n_rows, y.ones.n_rows(), sample_weight, held_out)?;
        let width = projection.width();
        let n_given = n_rows.saturating_mul(width - 1);
        let given = predictions.map_or(n_given, <[f32]>::len);
        same("length of predictions", n_given, given)?;
        let rows = |held: bool| {
            let of = |row: &u32| held_out.is_some_and(|mask| mask[*row as usize]) == held;
            collected("number of rows", (0..n_rows as u32).filter(of))
        };
        let (train, held_out) = (rows(false)?, rows(true)?);
        let labels = Labels::new(y, &train, watch)?;
        let plan = Plan::new(&self.0, n_rows, width, &labels)?;

        let mut rng = Rng::with_seed(self.0.seed);
        let h = match predictions {
            Some(predictions) => projection.given(predictions)?,
            None => projection.all(x, watch)?,
        };
        let q = kernel::median_squared_distance(&h, width, &train, &mut rng, watch)?;
        let weights = scaled(sample_weight, n_rows)?;
        let gamma = match self.0.gamma {
            Some(gamma) => gamma,
            None => gamma::choose(&self.0, &h, width, q, &train, &weights, &labels, watch)?,
        };
        let (kernel, s) = (self.0.kernel, self.0.n_features);
        let (frequencies, phases) = kernel::draw(kernel, width, s, gamma, q, &mut rng, watch)?;
        let mut design = Design::new(h, width, frequencies, phases);
        if plan.keep {
            design.keep(watch)?;
        }
        let gram = gram(&design, &train, &weights, watch)?;
        let mean = gram.mean_diagonal();
        let (factor, ridge) = gram.factor(self.0.l2, watch)?;
        drop(gram);
        let whitened = plan.whiten && design.whiten(&factor, watch)?;
        let problem = Problem {
            params: &self.0,
            design: &design,
            factor: &factor,
            whitened,
            train: &train,
            held_out: &held_out,
            weights: &weights,
            watch,
        };
        let mut model = Model {
            frequencies: Vec::new(),
            phases: Vec::new(),
            weights: filled("number of weights", 0.0, n_labels * (design.size - 1))?,
            intercept: filled("number of intercepts", f32::NEG_INFINITY, n_labels)?,
            ridge: if mean > 0.0 { ridge / mean } else { ridge },
            validation_loss: Vec::new(),
            n_iter: filled("number of steps", 0, n_labels)?,
            threshold: 0.0,
            gamma,
        };
        for block in labels.seen.chunks(plan.labels_at_once) {
            fit_block(&problem, &labels, block, y, ridge, &mut model)?;
        }
        if self.0.learn_threshold && self.0.loss != Loss::Softmax {
            let n_passes = best_pass(&model.validation_loss).unwrap_or(self.0.n_passes);
            model.threshold =
                threshold::learn(&problem, &labels, y, ridge, n_passes, plan.labels_at_once)?;
        }
        let intercepts = labels.seen.iter().map(|&at| model.intercept[at as usize]);
        let mut weights = model.weights.iter().copied().chain(intercepts);
        if !weights.all(f32::is_finite) {
            return Err(self.overflow());
        }
        model.frequencies = design.frequencies;
        model.phases = design.phases;
        Ok(model)
    }

    /// Returns the error for weights that are not finite. The error names the parameter that the
    /// user should change.
    fn overflow(&self) -> Error {
        let params = &self.0;
        let (name, expected, got) = if params.is_stochastic() {
            (
                "step_size",
                "small enough that the weights stay finite",
                params.step_size,
            )
        } else {
            (
                "l2_link",
                "large enough that the weights are finite",
                params.l2,
            )
        };
        let got = got.to_string();
        Error::Param {
            name,
            expected,
            got,
        }
    }
}

/// Returns the number of passes after which the held-out loss is smallest. The weights after this
/// pass are used.
fn best_pass(losses: &[f64]) -> Option<usize> {
    let best = losses.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
    best.map(|(pass, _)| pass + 1)
}

/// Decisions that depend only on the sizes of a fit.
///
/// The memory of the fit is first estimated without stored features. Features are kept in memory if
/// they also fit within `max_memory`, or if there is no limit and they take at most 2 GiB.
/// Otherwise they are computed again in every pass. This changes results only by rounding.
struct Plan {
    /// Number of labels that are fitted together.
    labels_at_once: usize,
    /// Whether features are kept in memory between passes.
    keep: bool,
    /// Whether the kept features are whitened (multiplied by the inverse Cholesky factor).
    /// Otherwise every gradient is preconditioned instead.
    whiten: bool,
}

impl Plan {
    /// Makes the decisions for a fit and estimates its memory. `width` is the number of linear
    /// predictions plus one.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if the fit needs more than `max_memory`, or more than the system grants
    /// at once.
    fn new(params: &Params, n_rows: usize, width: usize, labels: &Labels) -> Result<Self, Error> {
        let size = match params.kernel {
            crate::Kernel::Linear => width,
            _ => params.n_features.saturating_add(1),
        };
        let (n_all, n_seen) = (labels.positive.n_rows(), labels.seen.len());
        let stochastic = params.is_stochastic();
        // The softmax involves all labels at once. The held-out loss, which decides when to stop,
        // also involves all labels.
        let together = params.loss == Loss::Softmax || labels.positive.n_cols < n_rows;
        let labels_at_once = if stochastic && together {
            n_seen.max(1)
        } else {
            n_seen.clamp(1, LABELS_AT_ONCE)
        };
        let product = |factors: &[usize]| {
            let product = |a: u64, &b: &usize| a.saturating_mul(b as u64);
            factors.iter().fold(1, product)
        };
        let batch = if stochastic {
            batch_rows(n_rows, size.max(labels_at_once))
        } else {
            n_rows.min(GRAM_ROWS)
        };
        let newton = params.solver == Solver::NewtonCg && params.loss != Loss::Squared;
        let solver = if newton {
            newton::bytes_of_a_thread(n_rows, size)
                .saturating_mul(rayon::current_num_threads() as u64)
        } else {
            0
        };
        let needed = [
            solver,
            product(&[4, n_rows, width]),
            // Tiles for half of the Gram matrix, the same number of tiles while they are
            // factorized, and the factor in both precisions.
            product(&[20, size, size]),
            product(&[4, n_all, size]),
            // For each label of a block: sums in double precision, starting weights, weights,
            // momentum and gradient.
            product(&[24, labels_at_once, size]),
            product(&[4, batch, size.saturating_add(labels_at_once)]),
            if params.learn_threshold {
                threshold::bytes(n_rows, labels_at_once)
            } else {
                0
            },
        ]
        .into_iter()
        .fold(0, u64::saturating_add);
        let needed = match params.gamma {
            None if params.kernel != crate::Kernel::Linear => {
                needed.max(gamma::bytes(params, labels, n_rows, width))
            }
            _ => needed,
        };
        // All memory is requested once as a test. Without the test, an allocation could fail in the
        // middle of the fit, or the system could kill the process.
        let probe = usize::try_from(needed).unwrap_or(usize::MAX);
        if Vec::<u8>::new().try_reserve_exact(probe).is_err() {
            return Err(Error::TooLarge {
                what: "the fit",
                got: format!(
                    "the system does not grant {needed} bytes for {n_all} labels and {size} features"
                ),
            });
        }
        let kept = product(&[4, n_rows, size]);
        if let Some(most) = params.max_memory.filter(|&most| needed > most) {
            return Err(Error::TooLarge {
                what: "the fit",
                got: format!(
                    "about {needed} bytes for {n_all} labels, {size} features and {n_rows} \
                     rows, but `max_memory` is {most}"
                ),
            });
        }
        let room = params
            .max_memory
            .map_or(BYTES_KEPT, |most| most.saturating_sub(needed));
        let solves = product(&[20, params.n_passes, n_seen]);
        Ok(Self {
            labels_at_once,
            keep: kept <= room,
            whiten: stochastic && n_rows as u64 <= solves,
        })
    }
}

/// Returns the weights of the rows, divided by a power of two near their mean. Without the
/// division, products of large weights would overflow. The fit depends only on the ratios of the
/// weights. If no weights are given, all weights are 1.
fn scaled(sample_weight: Option<&[f32]>, n_rows: usize) -> Result<Vec<f32>, Error> {
    let Some(given) = sample_weight else {
        return filled("number of rows", 1.0, n_rows);
    };
    let mean = given.iter().map(|&weight| f64::from(weight)).sum::<f64>() / n_rows as f64;
    let unit = mean.log2().floor().exp2();
    // A weight that is much smaller than the other weights must not become zero.
    let scaled = |&weight: &f32| ((f64::from(weight) / unit) as f32).max(f32::MIN_POSITIVE);
    collected("number of rows", given.iter().map(scaled))
}

/// Fits a group of labels, and writes their weights to the model.
fn fit_block(
    problem: &Problem<'_>,
    labels: &Labels,
    block: &[u32],
    y: Known<'_>,
    ridge: f64,
    model: &mut Model,
) -> Result<(), Error> {
    let solved = solve_block(problem, labels, block, y, ridge)?;
    if problem.params.is_stochastic() {
        model.validation_loss = solved.validation_loss;
    }
    for (&label, steps) in block.iter().zip(solved.n_iter) {
        model.n_iter[label as usize] = steps;
    }
    write(problem, block, solved.weights, problem.factor, model)
}

/// Writes the weights of a group of labels to the model. If features were whitened, the weights are
/// first converted to weights of the original features. Intercepts are stored separately.
fn write(
    problem: &Problem<'_>,
    block: &[u32],
    weights: Vec<f32>,
    factor: &Factor,
    model: &mut Model,
) -> Result<(), Error> {
    let size = problem.design.size;
    let weights = if problem.whitened {
        let mut exact = collected(
            "number of weights",
            weights.iter().map(|&weight| f64::from(weight)),
        )?;
        drop(weights);
        factor.unwhiten_exactly(&mut exact, problem.watch)?;
        collected(
            "number of weights",
            exact.iter().map(|&weight| weight as f32),
        )?
    } else {
        weights
    };
    let middle = if problem.params.loss == Loss::Squared {
        0.5
    } else {
        0.0
    };
    for (weights, &label) in weights.chunks(size).zip(block) {
        let label = label as usize;
        model.weights[label * (size - 1)..][..size - 1].copy_from_slice(&weights[..size - 1]);
        model.intercept[label] = weights[size - 1] - middle;
    }
    Ok(())
}
