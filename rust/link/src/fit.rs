//! The fit: frequencies from the projected predictions, the Gram matrix of the features, and the
//! output weights, some thousands of labels at a time.

use crate::design::{Design, Projection};
use crate::gram::{Factor, Gram};
use crate::params::Checked;
use crate::psgd::{Problem, batch_rows};
use crate::{Loss, Params, Solver, gamma, kernel, newton, psgd, threshold};
use fastrand::Rng;
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::{CsrOwned, CsrView, Index, Value};
use rayon::prelude::*;

/// Labels fitted together: their momentum, gradient and least-squares solution are in memory.
const LABELS_AT_ONCE: usize = 4096;

/// Rows of features that are added to the Gram matrix at a time: short enough for sums in `f32`.
const GRAM_ROWS: usize = 512;

/// Rows of features that sums over positive rows are taken of at a time.
pub(crate) const MOMENT_ROWS: usize = 1024;

/// Bytes of features that are kept, if no limit is given; else they are computed in every pass.
const BYTES_KEPT: u64 = 2 << 30;

/// The target of a label that is present, at least, if none is given.
const LEAST_SHRINK: f64 = 0.75;

/// A fitted smooth link.
#[derive(Debug, Clone)]
pub struct Model {
    /// Frequencies R, k + 1 rows of s; none for the linear kernel.
    pub frequencies: Vec<f32>,
    /// Phases b, s of them.
    pub phases: Vec<f32>,
    /// Output weights, one row of s (linear kernel: k) a label; zeros for labels never seen.
    pub weights: Vec<f32>,
    /// Weight of the constant feature for each label, less ½ for the squared loss; −∞ for labels
    /// never seen.
    pub intercept: Vec<f32>,
    /// The ridge that was used, relative to the mean diagonal: larger than asked for if the Gram
    /// matrix was singular.
    pub ridge: f64,
    /// Held-out loss after each pass, if rows were held out.
    pub validation_loss: Vec<f64>,
    /// Newton steps of each label, one more than allowed where it did not converge.
    pub n_iter: Vec<i32>,
    /// Score above which a label is named.
    pub threshold: f64,
    /// The multiple of the frequencies that was used.
    pub gamma: f64,
}

impl Checked {
    /// Fits the link to the predictions `projection` makes of the rows of `x`, and the labels that
    /// the rows of `y` store; or to `predictions`, if given, k numbers a row, where those of the
    /// projection would be better than those of new rows.
    ///
    /// `sample_weight`, if given, multiplies the loss of each row. Rows of `held_out` are not
    /// learned from: their loss tells when to stop (psgd). The same data, parameters and seed give
    /// the same bits, whatever the number of threads.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if sizes disagree; [`Error::TooLarge`] if the fit needs more than
    /// `max_memory` or than there is; [`Error::Param`] if weights become infinite;
    /// [`Error::Stopped`] through `watch`.
    #[expect(clippy::too_many_arguments, reason = "each is a thing of its own")]
    pub fn fit<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        projection: Projection<'_>,
        predictions: Option<&[f32]>,
        y: &CsrOwned,
        sample_weight: Option<&[f32]>,
        held_out: Option<&[bool]>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        let n_rows = x.n_rows();
        let lengths = [
            ("rows of Y", y.n_rows()),
            (
                "length of sample_weight",
                sample_weight.map_or(n_rows, <[f32]>::len),
            ),
            ("length of held_out", held_out.map_or(n_rows, <[bool]>::len)),
        ];
        let width = projection.width();
        let n_given = n_rows.saturating_mul(width - 1);
        let given = (
            "numbers in predictions",
            n_given,
            predictions.map_or(n_given, <[f32]>::len),
        );
        let lengths = lengths.map(|(what, got)| (what, n_rows, got));
        for (what, expected, got) in lengths.into_iter().chain([given]) {
            if got != expected {
                return Err(Error::Shape {
                    what,
                    expected,
                    got,
                });
            }
        }
        let rows = |held: bool| -> Vec<u32> {
            let of = |row: &u32| held_out.is_some_and(|mask| mask[*row as usize]) == held;
            (0..n_rows as u32).filter(of).collect()
        };
        let (train, held_out) = (rows(false), rows(true));
        let labels = Labels::new(y, &train)?;
        let plan = Plan::new(&self.0, n_rows, width, &labels)?;

        let mut rng = Rng::with_seed(self.0.seed);
        let h = match predictions {
            Some(predictions) => projection.given(predictions)?,
            None => projection.all(x, watch)?,
        };
        let q = kernel::median_squared_distance(&h, width, &train, &mut rng);
        let weights = scaled(sample_weight, n_rows);
        let gamma = match self.0.gamma {
            Some(gamma) => gamma,
            None => gamma::choose(&self.0, &h, width, q, &train, &weights, &labels, watch)?,
        };
        let (frequencies, phases) =
            kernel::draw(self.0.kernel, width, self.0.n_features, gamma, q, &mut rng);
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
            weights: filled("weights", 0.0, y.n_cols * (design.size - 1))?,
            intercept: filled("intercepts", f32::NEG_INFINITY, y.n_cols)?,
            ridge: if mean > 0.0 { ridge / mean } else { ridge },
            validation_loss: Vec::new(),
            n_iter: filled("steps", 0, y.n_cols)?,
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

    /// The error of weights that are not finite, which blames what they depend on.
    fn overflow(&self) -> Error {
        let params = &self.0;
        let (name, expected, got) = if params.is_stochastic() {
            (
                "step_size",
                "so small that weights stay finite",
                params.step_size,
            )
        } else {
            ("l2_link", "so large that weights are finite", params.l2)
        };
        let got = got.to_string();
        Error::Param {
            name,
            expected,
            got,
        }
    }
}

/// How many passes the weights have had that are kept.
fn best_pass(losses: &[f64]) -> Option<usize> {
    let best = losses.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
    best.map(|(pass, _)| pass + 1)
}

/// Which training rows hold which label.
pub(crate) struct Labels {
    /// For each label, the numbers of its rows among the training rows.
    positive: CsrOwned,
    /// Labels that some row holds.
    pub(crate) seen: Vec<u32>,
}

impl Labels {
    pub(crate) fn new(y: &CsrOwned, train: &[u32]) -> Result<Self, Error> {
        let by_label = y.transpose()?;
        let seen = (0..y.n_cols as u32)
            .filter(|&label| !by_label.row(label as usize).0.is_empty())
            .collect();
        if train.len() == y.n_rows() {
            return Ok(Self {
                positive: by_label,
                seen,
            });
        }
        let mut positive = CsrOwned {
            indptr: vec![0],
            indices: Vec::new(),
            values: Vec::new(),
            n_cols: train.len(),
        };
        for label in 0..y.n_cols {
            let rows = by_label.row(label).0.iter();
            let kept = rows.filter_map(|row| train.binary_search(row).ok());
            positive.indices.extend(kept.map(|at| at as u32));
            positive.indptr.push(positive.indices.len());
        }
        positive.values = vec![1.0; positive.indices.len()];
        Ok(Self { positive, seen })
    }

    pub(crate) fn rows(&self, label: u32) -> &[u32] {
        self.positive.row(label as usize).0
    }
}

/// What the sizes of a fit decide.
struct Plan {
    labels_at_once: usize,
    /// Whether features are kept from pass to pass.
    keep: bool,
    /// Whether what is kept is whitened.
    whiten: bool,
}

impl Plan {
    fn new(params: &Params, n_rows: usize, width: usize, labels: &Labels) -> Result<Self, Error> {
        let size = match params.kernel {
            crate::Kernel::Linear => width,
            _ => params.n_features.saturating_add(1),
        };
        let (n_all, n_seen) = (labels.positive.n_rows(), labels.seen.len());
        let stochastic = params.is_stochastic();
        // The softmax, and the loss that tells when to stop, are of all labels.
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
            // Tiles of half the Gram matrix, the same factored, and the factor in two precisions.
            product(&[20, size, size]),
            product(&[4, n_all, size]),
            // Of a block: sums in double precision, start, weights, momentum and gradient.
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
        // What the system does not grant at once would be refused, or worse, in the middle.
        let probe = usize::try_from(needed).unwrap_or(usize::MAX);
        if Vec::<u8>::new().try_reserve_exact(probe).is_err() {
            return Err(Error::TooLarge {
                what: "the fit",
                got: format!("{needed} bytes for {n_all} labels and {size} features"),
            });
        }
        let kept = product(&[4, n_rows, size]);
        if let Some(most) = params.max_memory.filter(|&most| needed > most) {
            return Err(Error::TooLarge {
                what: "the fit",
                got: format!(
                    "{needed} bytes are forecast for {n_all} labels, {size} features and {n_rows} \
                     rows, `max_memory` is {most}"
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

/// Weights of the rows divided by a power of two near their mean: the fit depends on their ratios
/// only, and products of large ones would not be finite.
fn scaled(sample_weight: Option<&[f32]>, n_rows: usize) -> Vec<f32> {
    let Some(given) = sample_weight else {
        return vec![1.0; n_rows];
    };
    let mean = given.iter().map(|&weight| f64::from(weight)).sum::<f64>() / n_rows as f64;
    let unit = mean.log2().floor().exp2();
    // What is small beside others is still more than nothing.
    given
        .iter()
        .map(|&weight| ((f64::from(weight) / unit) as f32).max(f32::MIN_POSITIVE))
        .collect()
}

pub(crate) fn gram(
    design: &Design,
    train: &[u32],
    weights: &[f32],
    watch: &Watch,
) -> Result<Gram, Error> {
    let size = design.size;
    let mut gram = Gram::zeros(size)?;
    let mut right = filled("a block of features", 0.0, GRAM_ROWS * size)?;
    let mut left = filled("a block of features", 0.0, GRAM_ROWS * size)?;
    for rows in train.chunks(GRAM_ROWS) {
        let right = &mut right[..rows.len() * size];
        let left = &mut left[..rows.len() * size];
        design.fill(rows, right, watch)?;
        for ((left, right), &row) in left.chunks_mut(size).zip(right.chunks(size)).zip(rows) {
            let weight = weights[row as usize];
            for (left, right) in left.iter_mut().zip(right) {
                *left = weight * right;
            }
        }
        gram.add(left, right, watch)?;
    }
    Ok(gram)
}

/// Fits the labels of one block and writes their weights.
fn fit_block(
    problem: &Problem<'_>,
    labels: &Labels,
    block: &[u32],
    y: &CsrOwned,
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

/// Weights of a block of labels, in the coordinates of the problem's features.
pub(crate) struct Solved {
    pub(crate) weights: Vec<f32>,
    validation_loss: Vec<f64>,
    n_iter: Vec<i32>,
}

pub(crate) fn solve_block(
    problem: &Problem<'_>,
    labels: &Labels,
    block: &[u32],
    y: &CsrOwned,
    ridge: f64,
) -> Result<Solved, Error> {
    let Problem {
        params,
        design,
        factor,
        watch,
        ..
    } = *problem;
    let size = design.size;
    let n = problem.train.len();
    // A label that is present must stay nearer to 1 than to 0, however few rows there are.
    let shrink = params
        .shrink
        .unwrap_or_else(|| (1.0 - 1.0 / n as f64).max(LEAST_SHRINK));
    let mut sums = moments(problem, labels, block, shrink)?;
    if !problem.whitened {
        factor.whiten_exactly(&mut sums, watch)?;
        factor.unwhiten_exactly(&mut sums, watch)?;
    }
    let solution: Vec<f32> = sums.par_iter().map(|&sum| sum as f32).collect();
    drop(sums);
    let mut weights = solution.clone();
    let (mut validation_loss, mut n_iter) = (Vec::new(), Vec::new());
    match (params.loss, params.solver) {
        (Loss::Squared, _) => watch.step(block.len())?,
        (_, Solver::Psgd) => {
            if params.preflate {
                preflate(labels, block, n, &mut weights, size);
            }
            watch.step(block.len())?;
            let of_block = columns(y, block, problem.held_out);
            validation_loss = psgd::refine(problem, &solution, &mut weights, &of_block)?;
        }
        (_, Solver::NewtonCg) => {
            let positive: Vec<&[u32]> = block.iter().map(|&label| labels.rows(label)).collect();
            n_iter = newton::refine(problem, &mut weights, &positive, shrink, ridge)?;
        }
    }
    Ok(Solved {
        weights,
        validation_loss,
        n_iter,
    })
}

/// `ΦᵀΩỸ`, one row a label, with smoothed targets.
fn moments(
    problem: &Problem<'_>,
    labels: &Labels,
    block: &[u32],
    shrink: f64,
) -> Result<Vec<f64>, Error> {
    let Problem {
        params,
        design,
        train,
        weights,
        watch,
        ..
    } = *problem;
    let size = design.size;
    let (slope, offset) = if params.loss == Loss::Softmax {
        (shrink, (1.0 - shrink) / labels.seen.len() as f64)
    } else {
        (2.0 * shrink - 1.0, 1.0 - shrink)
    };
    let mut sums = filled("sums of features", 0.0f64, block.len() * size)?;
    let mut total = filled("sums of features", 0.0f64, size)?;
    let mut features = filled("a block of features", 0.0, MOMENT_ROWS * size)?;
    for (at, rows) in train.chunks(MOMENT_ROWS).enumerate() {
        let first = (at * MOMENT_ROWS) as u32;
        let features = &mut features[..rows.len() * size];
        design.fill(rows, features, watch)?;
        let add = |sum: &mut [f64], row: usize| {
            let weight = f64::from(weights[rows[row] as usize]);
            for (sum, &feature) in sum.iter_mut().zip(&features[row * size..][..size]) {
                *sum += weight * f64::from(feature);
            }
        };
        for row in 0..rows.len() {
            add(&mut total, row);
        }
        sums.par_chunks_mut(size)
            .zip(block)
            .try_for_each(|(sum, &label)| {
                watch.step(0)?;
                let positive = labels.rows(label);
                let begin = positive.partition_point(|&row| row < first);
                for &row in &positive[begin..] {
                    if row as usize >= first as usize + rows.len() {
                        break;
                    }
                    add(sum, (row - first) as usize);
                }
                Ok(())
            })?;
    }
    sums.par_chunks_mut(size).for_each(|sum| {
        for (sum, total) in sum.iter_mut().zip(&total) {
            *sum = slope * *sum + offset * total;
        }
    });
    Ok(sums)
}

/// Enlarges the start of rare classes: by `100 √π_max / √(π_max + 9999 π)`.
fn preflate(labels: &Labels, block: &[u32], n: usize, weights: &mut [f32], size: usize) {
    let share = |label: u32| labels.rows(label).len() as f64 / n as f64;
    let most = block.iter().map(|&label| share(label)).fold(0.0, f64::max);
    for (weights, &label) in weights.chunks_mut(size).zip(block) {
        let factor = (1e4 * most).sqrt() / (most + 9999.0 * share(label)).sqrt();
        for weight in weights {
            *weight *= factor as f32;
        }
    }
}

/// The labels of some rows, as far as they are in the block, numbered as there; nothing of others.
fn columns(y: &CsrOwned, block: &[u32], rows: &[u32]) -> CsrOwned {
    let mut indptr = Vec::with_capacity(y.n_rows() + 1);
    indptr.push(0);
    let mut indices = Vec::new();
    let mut wanted = rows.iter().peekable();
    for row in 0..y.n_rows() {
        if wanted.next_if(|&&next| next as usize == row).is_some() {
            let of_row = y.row(row).0.iter();
            indices
                .extend(of_row.filter_map(|label| Some(block.binary_search(label).ok()? as u32)));
        }
        indptr.push(indices.len());
    }
    CsrOwned {
        indptr,
        values: vec![1.0; indices.len()],
        indices,
        n_cols: block.len(),
    }
}

/// Writes the weights of a block where the model has them.
fn write(
    problem: &Problem<'_>,
    block: &[u32],
    weights: Vec<f32>,
    factor: &Factor,
    model: &mut Model,
) -> Result<(), Error> {
    let size = problem.design.size;
    let weights: Vec<f32> = if problem.whitened {
        let mut exact: Vec<f64> = weights.iter().map(|&weight| f64::from(weight)).collect();
        drop(weights);
        factor.unwhiten_exactly(&mut exact, problem.watch)?;
        exact.iter().map(|&weight| weight as f32).collect()
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
