//! Computes weights from which the steps begin, without reading X except for the rows of the labels.
//!
//! Let q(a, σ) be the mean of `max(0, z)²` for a normal variable z with mean a and standard deviation σ:
//!
//! ```text
//! q(a, σ) = (a² + σ²) Φ(a/σ) + a σ φ(a/σ),    ∂q/∂a = 2 (a Φ + σ φ),    ∂q/∂σ² = Φ
//! ```
//!
//! The scores of the negative rows of a label have a mean μ and a variance σ² that follow from the sum and the
//! Gram matrix of all rows, minus the terms of the positive rows. If the scores were normally distributed, the
//! loss of the negative rows with the total cost N would be `½ N q(1 + μ, σ)`. The objective is
//! then
//!
//! ```text
//! f(w) = ½ ‖w‖² + ½ N q(1 + μ, σ) + ½ Σ_positive cost_i max(0, 1 − w·x_i)²
//! ```
//!
//! Labels with many positive rows ([`MOST_ROWS`]) treat these rows in the same way: their scores have the mean
//! `w · m₊`, and both kinds of rows have the same variance within the kind.
//!
//! A few steps of nonlinear conjugate gradients minimize f. A step takes O(dim²) time for a label. All sums are
//! weighted by the costs of the rows. The objective is only an approximation, so unknown pairs are treated as
//! negative pairs, except that they do not count in N.

use super::Problem;
use super::group::LANES;
use faer::{Accum, Mat, MatMut, MatRef};
use manylabel_base::{Error, Watch, collected, few, filled, push};
use manylabel_dense::{Cholesky, matmul};
use manylabel_simd::{total, wide};

/// The number of steps. More steps hardly change the weights.
const STEPS: usize = 8;

/// The number of Newton steps of a line search.
const LINE_STEPS: usize = 3;

/// The share of rows with a loss that the preconditioner assumes. Rare labels have shares of 0.03 to 0.15.
const SHARE: f64 = 0.1;

/// The largest number of positive rows that are copied for a label.
const MOST_ROWS: usize = 256;

/// The largest number of rows that are copied for the labels of a panel. A thread copies the rows of one panel at a
/// time. Smaller panels need less memory, and the starts take about a hundredth of the time of a fit.
const MOST_ROWS_OF_PANEL: usize = 512;
const _: () = assert!(MOST_ROWS <= MOST_ROWS_OF_PANEL); // a panel has at least one label

/// The smallest variance of scores.
const LEAST_VARIANCE: f64 = 1e-12;

/// The matrices that all labels share, in single precision; shape (dim, dim).
pub(super) struct Start {
    gram: Mat<f32>,
    inverse: Mat<f32>,
}

/// The start of a label.
pub(super) struct Begun {
    /// The weights; shape (dim).
    pub(super) weights: Vec<f32>,
    /// The norm of the gradient of the objective at zero weights.
    pub(super) gradient_at_zero: f64,
    /// The smallest loss of scores that are the same for all rows.
    pub(super) constant_loss: f64,
}

/// What the objective of a label needs.
struct Label {
    /// The positive rows, if there are few of them; shape (rows, dim).
    rows: Vec<f32>,
    /// The cost of each row in `rows`.
    costs: Vec<f64>,
    /// The factor of the costs of the positive rows.
    factor: f64,
    /// The sum of the positive rows; shape (dim).
    sum: Vec<f64>,
    /// The total cost of the positive rows.
    positive: f64,
    /// The total cost of the other rows.
    negative: f64,
    /// The total cost of the known negative rows, times the factor of the label.
    loss: f64,
    /// The mean of the other rows; shape (dim).
    mean: Vec<f64>,
}

/// Dot products of weights and a direction with the sums of a label. The score of row i after a step t is
/// `rows[i].0 + t rows[i].1`, and so on.
struct Line {
    rows: Vec<(f64, f64)>,
    mean: (f64, f64),
    /// The mean score of the positive rows.
    positive_mean: (f64, f64),
    /// `wᵀGw`, `wᵀGp` and `pᵀGp`.
    gram: (f64, f64, f64),
}

/// The distribution of scores at a point of a line.
struct Curve {
    mean: f64,
    /// `Φ` and `a Φ + σ φ` for the negative rows and for the positive rows.
    negative: (f64, f64),
    positive: (f64, f64),
}

impl Start {
    /// Prepares the matrices, or returns None if there is no Gram matrix.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory, or [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(super) fn new(problem: &Problem<'_>, watch: &Watch) -> Result<Option<Self>, Error> {
        const WHAT: &str = "the Gram matrix";
        let Some(lower) = problem.moments.gram() else {
            return Ok(None);
        };
        let dim = lower.nrows();
        let Some(factor) = Cholesky::new(lower, SHARE.recip(), watch)? else {
            return Ok(None);
        };
        let inverse = factor.inverse(watch)?;
        drop(factor);
        let symmetric = |i: usize, j: usize| lower[(i.max(j), i.min(j))] as f32;
        Ok(Some(Self {
            gram: manylabel_dense::from_fn(WHAT, dim, dim, symmetric)?,
            inverse: manylabel_dense::from_fn(WHAT, dim, dim, |i, j| {
                (inverse[(i, j)] / SHARE) as f32
            })?,
        }))
    }
}

/// Divides labels into panels for [`begin`], of up to [`LANES`] labels.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory.
pub(super) fn panels<'a>(
    problem: &Problem<'_>,
    mut labels: &'a [u32],
) -> Result<Vec<&'a [u32]>, Error> {
    let mut panels = Vec::new();
    while !labels.is_empty() {
        let mut n_rows = 0;
        let fits = |label: &&u32| {
            n_rows += n_copied(problem, **label);
            n_rows <= MOST_ROWS_OF_PANEL
        };
        let n_labels = labels.iter().take(LANES).take_while(fits).count();
        let (panel, others) = labels.split_at(n_labels);
        push("number of panels", &mut panels, panel)?;
        labels = others;
    }
    Ok(panels)
}

/// Returns the number of positive rows that are copied for a label.
fn n_copied(problem: &Problem<'_>, label: u32) -> usize {
    let n_positive = problem.outputs.positives(label).len();
    if n_positive <= MOST_ROWS {
        n_positive
    } else {
        0
    }
}

/// Returns the start of the labels of a panel. Without `start`, all weights are 0.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory, or [`Error::Stopped`] if the caller requested a
/// stop.
pub(super) fn begin(
    problem: &Problem<'_>,
    start: Option<&Start>,
    labels: &[u32],
    watch: &Watch,
) -> Result<Vec<Begun>, Error> {
    let dim = problem.rows.dim();
    let read: Result<Vec<(Label, f64)>, Error> = few(labels
        .iter()
        .map(|&label| Label::new(problem, label, watch)));
    let read = read?;
    let by_weight = || filled("number of weights", 0.0f32, labels.len() * dim);
    let mut weights = by_weight()?;
    if let Some(start) = start {
        let (mut of_weights, mut direction, mut of_direction) =
            (by_weight()?, by_weight()?, by_weight()?);
        let (mut gradient, mut last, mut scaled) = (by_weight()?, by_weight()?, by_weight()?);
        let mut last_slope = filled("number of labels", 0.0, labels.len())?;
        for iter in 0..STEPS {
            watch.step(0)?;
            std::mem::swap(&mut gradient, &mut last);
            for (at, (label, _)) in read.iter().enumerate() {
                let of = at * dim..(at + 1) * dim;
                let (w, gw) = (&weights[of.clone()], &of_weights[of.clone()]);
                label.gradient(w, gw, &mut gradient[of])?;
            }
            product(&gradient, &start.inverse, &mut scaled);
            for at in 0..labels.len() {
                let of = at * dim..(at + 1) * dim;
                let (g, z, p) = (
                    &gradient[of.clone()],
                    &scaled[of.clone()],
                    &mut direction[of.clone()],
                );
                let (of_scaled, of_last) = (dot(z, g), dot(z, &last[of]));
                let along = dot(p, g);
                let curvature = along - last_slope[at];
                let mut beta = ((of_scaled - of_last) / curvature).max(0.0);
                if iter == 0 || curvature <= 0.0 || beta * along >= of_scaled {
                    beta = 0.0;
                }
                last_slope[at] = beta * along - of_scaled;
                for (p, z) in p.iter_mut().zip(z) {
                    *p = beta as f32 * *p - z;
                }
            }
            product(&direction, &start.gram, &mut of_direction);
            for (at, (label, _)) in read.iter().enumerate() {
                let of = at * dim..(at + 1) * dim;
                let (p, gp) = (&direction[of.clone()], &of_direction[of.clone()]);
                let (w, gw) = (&mut weights[of.clone()], &mut of_weights[of]);
                let step = label.line_search((w, gw), (p, gp))? as f32;
                for ((w, gw), (p, gp)) in w.iter_mut().zip(gw).zip(p.iter().zip(gp)) {
                    *w += step * p;
                    *gw += step * gp;
                }
            }
        }
    }
    let begun = read.into_iter().zip(weights.chunks_mut(dim));
    let begun = begun.map(|((label, gradient_at_zero), weights)| {
        // Sums of very different costs may leave the range of `f32` here, although the objective does not.
        if weights.iter().any(|weight| !weight.is_finite()) {
            weights.fill(0.0);
        }
        Ok(Begun {
            weights: manylabel_base::copied("number of weights", weights)?,
            gradient_at_zero,
            constant_loss: label.constant_loss(),
        })
    });
    few(begun)
}

impl Label {
    /// Reads the rows of a label. Also returns the norm of the gradient of its objective at zero weights.
    fn new(problem: &Problem<'_>, label: u32, watch: &Watch) -> Result<(Self, f64), Error> {
        let dim = problem.rows.dim();
        let (positives, unknown) = (
            problem.outputs.positives(label),
            problem.outputs.unknown(label),
        );
        let factors = problem.outputs.factors(label);
        let n_copied = n_copied(problem, label);
        let mut rows = filled("number of rows of a label", 0.0, n_copied * dim)?;
        let costs = positives[..n_copied]
            .iter()
            .map(|&row| f64::from(problem.cost[row as usize]));
        let costs = collected("number of rows of a label", costs)?;
        let mut row_of_x = filled("number of features", 0.0f32, dim)?;
        let zeros = || filled("number of features", 0.0f64, dim);
        let (mut sum, mut sum_of_unknown) = (zeros()?, zeros()?);
        let (mut positive, mut cost_of_unknown) = (0.0, 0.0);
        for (at, &row) in positives.iter().enumerate() {
            watch.step(0)?;
            let x = rows
                .get_mut(at * dim..(at + 1) * dim)
                .unwrap_or(&mut row_of_x);
            positive += read(problem, row, x, &mut sum);
        }
        for &row in unknown {
            watch.step(0)?;
            cost_of_unknown += read(problem, row, &mut row_of_x, &mut sum_of_unknown);
        }
        let negative = problem.total_cost - positive;
        let factor = |factor: f32| f64::from(factor);
        let others = problem.moments.sums.iter().zip(&sum);
        // The difference is a rounding error if all rows are positive. There is no loss of negative rows then.
        let has_negatives = positives.len() < problem.rows.n_rows();
        let (negative, share) = if has_negatives {
            (negative, negative.recip())
        } else {
            (problem.total_cost, 0.0)
        };
        let mean = others
            .clone()
            .map(|(all, positive)| (all - positive) * share);
        let mean = collected("number of features", mean)?;
        let at_zero = others
            .zip(&sum_of_unknown)
            .map(|((all, positive), unknown)| {
                let pull = factor(factors.negative) * (all - positive - unknown)
                    - factor(factors.positive) * positive;
                pull * pull
            });
        let gradient_at_zero = at_zero.sum::<f64>().sqrt();
        let label = Self {
            rows,
            costs,
            factor: factor(factors.positive),
            sum,
            positive,
            negative,
            loss: if has_negatives {
                (negative - cost_of_unknown).max(0.0) * factor(factors.negative)
            } else {
                0.0
            },
            mean,
        };
        Ok((label, gradient_at_zero))
    }

    /// Returns the minimum of `½ P (1 − b)² + ½ N (1 + b)²`, where P and N are the total costs of the positive and the
    /// negative rows.
    fn constant_loss(&self) -> f64 {
        let positive = self.factor * self.positive;
        2.0 * positive * self.loss / (positive + self.loss)
    }

    /// Returns true if the positive rows are copied.
    fn has_rows(&self) -> bool {
        !self.costs.is_empty()
    }

    /// Returns the rows with their costs.
    fn each(&self) -> impl Iterator<Item = (&[f32], f64)> {
        self.rows
            .chunks(self.sum.len())
            .zip(self.costs.iter().copied())
    }

    /// Computes the dot products along a line. Each pair holds a vector and its product with the Gram matrix.
    fn line(&self, (w, gw): (&[f32], &[f32]), (p, gp): (&[f32], &[f32])) -> Result<Line, Error> {
        let rows = self.each().map(|(x, _)| (dot(x, w), dot(x, p)));
        let positive = self.positive;
        Ok(Line {
            rows: collected("number of rows of a label", rows)?,
            mean: (mixed(&self.mean, w), mixed(&self.mean, p)),
            positive_mean: (
                mixed(&self.sum, w) / positive,
                mixed(&self.sum, p) / positive,
            ),
            gram: (dot(w, gw), dot(p, gw), dot(p, gp)),
        })
    }

    /// Returns the distribution of the scores after a step t.
    fn curve(&self, line: &Line, t: f64) -> Curve {
        let mean = line.mean.0 + t * line.mean.1;
        let positive_mean = line.positive_mean.0 + t * line.positive_mean.1;
        let square = line.gram.0 + t * (2.0 * line.gram.1 + t * line.gram.2);
        let variance = if self.has_rows() {
            let of_row = |((s, along), cost): (&(f64, f64), &f64)| cost * (s + t * along).powi(2);
            let of_rows: f64 = line.rows.iter().zip(&self.costs).map(of_row).sum();
            (square - of_rows) / self.negative - mean * mean
        } else {
            let of_means = self.negative * mean * mean + self.positive * positive_mean.powi(2);
            (square - of_means) / (self.negative + self.positive)
        };
        let deviation = variance.max(LEAST_VARIANCE).sqrt();
        let side = |a: f64| {
            let (below, density) = normal(a / deviation);
            (below, a * below + deviation * density)
        };
        Curve {
            mean,
            negative: side(1.0 + mean),
            positive: side(1.0 - positive_mean),
        }
    }

    /// Writes the gradient of the approximate objective.
    fn gradient(&self, w: &[f32], gw: &[f32], out: &mut [f32]) -> Result<(), Error> {
        let line = self.line((w, gw), (w, gw))?;
        let curve = self.curve(&line, 0.0);
        let of_mean = self.loss * curve.negative.1;
        if self.has_rows() {
            let of_gram = self.loss * curve.negative.0 / self.negative;
            let of_mean = of_mean - self.loss * curve.negative.0 * curve.mean;
            for (((out, &w), &gw), mean) in out.iter_mut().zip(w).zip(gw).zip(&self.mean) {
                *out = (f64::from(w) + of_mean * mean + of_gram * f64::from(gw)) as f32;
            }
            for ((x, cost), (score, _)) in self.each().zip(&line.rows) {
                let pull = of_gram * cost * score + self.factor * cost * (1.0 - score).max(0.0);
                for (out, &x) in out.iter_mut().zip(x) {
                    *out -= pull as f32 * x;
                }
            }
        } else {
            let loss = self.factor * self.positive;
            let spread = (self.loss * curve.negative.0 + loss * curve.positive.0)
                / (self.negative + self.positive);
            let of_mean = of_mean - spread * self.negative * curve.mean;
            let of_sum = -loss * curve.positive.1 / self.positive - spread * line.positive_mean.0;
            let terms = self.mean.iter().zip(&self.sum);
            for (((out, &w), &gw), (mean, sum)) in out.iter_mut().zip(w).zip(gw).zip(terms) {
                let (w, gw) = (f64::from(w), f64::from(gw));
                *out = (w + of_mean * mean + of_sum * sum + spread * gw) as f32;
            }
        }
        Ok(())
    }

    /// Returns the length of the step along a direction.
    fn line_search(
        &self,
        (w, gw): (&[f32], &[f32]),
        (p, gp): (&[f32], &[f32]),
    ) -> Result<f64, Error> {
        let line = self.line((w, gw), (p, gp))?;
        let (of_weights, square) = (dot(w, p), dot(p, p));
        let mut t = 0.0;
        for _ in 0..LINE_STEPS {
            let curve = self.curve(&line, t);
            let mut slope = of_weights + t * square + self.loss * curve.negative.1 * line.mean.1;
            let mut bend = square;
            let cross = line.gram.1 + t * line.gram.2;
            if self.has_rows() {
                let (mut cross, mut spread) = (cross, line.gram.2);
                for (&(score, along), cost) in line.rows.iter().zip(&self.costs) {
                    let score = score + t * along;
                    cross -= cost * score * along;
                    spread -= cost * along * along;
                    if score < 1.0 {
                        slope -= self.factor * cost * (1.0 - score) * along;
                        bend += self.factor * cost * along * along;
                    }
                }
                let half = cross / self.negative - curve.mean * line.mean.1;
                slope += self.loss * curve.negative.0 * half;
                bend += self.loss * curve.negative.0 * (spread / self.negative).max(0.0);
            } else {
                let loss = self.factor * self.positive;
                let (mean, along) = line.positive_mean;
                let all = self.negative + self.positive;
                let spread = (self.loss * curve.negative.0 + loss * curve.positive.0) / all;
                slope -= loss * curve.positive.1 * along;
                slope += spread
                    * (cross
                        - self.negative * curve.mean * line.mean.1
                        - self.positive * (mean + t * along) * along);
                bend += spread * line.gram.2;
            }
            let longer = t - slope / bend;
            if !longer.is_finite() {
                return Ok(0.0);
            }
            t = longer;
        }
        Ok(t)
    }
}

/// Reads a row, and adds it to `sum` times its cost, which is returned.
fn read(problem: &Problem<'_>, row: u32, x: &mut [f32], sum: &mut [f64]) -> f64 {
    let row = row as usize;
    problem.rows.read(row..row + 1, x);
    let cost = f64::from(problem.cost[row]);
    for (sum, &x) in sum.iter_mut().zip(&*x) {
        *sum += cost * f64::from(x);
    }
    cost
}

/// Computes the products of vectors, one after the other in `left`, and a symmetric matrix.
fn product(left: &[f32], right: &Mat<f32>, out: &mut [f32]) {
    let dim = right.nrows();
    let n_vectors = left.len() / dim;
    matmul(
        MatMut::from_column_major_slice_mut(out, dim, n_vectors),
        Accum::Replace,
        right,
        MatRef::from_column_major_slice(left, dim, n_vectors),
        1.0,
    );
}

/// Returns the dot product, summed in double precision in [`LANES`] partial sums.
#[wide]
fn dot(a: &[f32], b: &[f32]) -> f64 {
    let (a, rest_of_a) = a.as_chunks::<LANES>();
    let (b, rest_of_b) = b.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += f64::from(a[lane]) * f64::from(b[lane]);
        }
    }
    for (sum, (&a, &b)) in sums.iter_mut().zip(rest_of_a.iter().zip(rest_of_b)) {
        *sum += f64::from(a) * f64::from(b);
    }
    total(&sums)
}

/// Returns the dot product of vectors in double and single precision, as [`dot`] does.
#[wide]
fn mixed(a: &[f64], b: &[f32]) -> f64 {
    let (a, rest_of_a) = a.as_chunks::<LANES>();
    let (b, rest_of_b) = b.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * f64::from(b[lane]);
        }
    }
    for (sum, (&a, &b)) in sums.iter_mut().zip(rest_of_a.iter().zip(rest_of_b)) {
        *sum += a * f64::from(b);
    }
    total(&sums)
}

/// Returns the distribution function and the density of the standard normal distribution, with an error of at
/// most 1e-7 (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.2.17).
fn normal(z: f64) -> (f64, f64) {
    const TERMS: [f64; 5] = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let t = (1.0 + 0.231_641_9 * z.abs()).recip();
    let tail = density * t * TERMS.iter().rev().fold(0.0, |sum, term| sum * t + term);
    (if z > 0.0 { 1.0 - tail } else { tail }, density)
}
