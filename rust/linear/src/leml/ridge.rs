//! Computes turns for squared loss if all entries of Y are known, or few entries are unknown. A turn
//! is an update of W followed by an update of H. Each update consists of ridge regressions.
//!
//! With `A = X W`, the objective is `½ ‖Ω^½ (Y − A Hᵀ)‖² + alpha/2 (‖W‖² + ‖H‖²)`. The diagonal
//! matrix Ω holds the weights of the rows.
//!
//! - Over W: the gradient of the objective is `XᵀΩX W HᵀH − XᵀΩY H + alpha W`. W and H are first
//!   rotated so that `HᵀH = diag(λ)`. Column k of W then solves
//!   `(λ_k XᵀΩX + alpha I) w_k = XᵀΩY h_k`, independently of the other columns. Here, `h_k` is column
//!   k of H. Preconditioned conjugate gradients solve a panel of 32 columns at a time, starting
//!   from the previous W.
//! - Over H: row j, written as a column h, solves `(AᵀΩA + alpha I) h = AᵀΩ y_j`, where `y_j` is
//!   column j of Y. All labels share one Cholesky factor.
//!
//! The right-hand sides are sums over the entries of Y that are 1, and the objective is computed
//! from Gram matrices. So no array of size rows × labels is allocated.
//!
//! Unknown entries do not change the two systems, but the following is added:
//!
//! - Over W: each unknown entry of Y is replaced by its current score. The loss with the replaced
//!   entries is at least the loss of the known entries, and equal to it at the current W. So an
//!   update that lowers the former also lowers the latter. The scores are computed once for each
//!   turn. If a share s of the entries is unknown, the distance to the best W falls by about the
//!   factor s for each turn. [`MOST_UNKNOWN`] limits s.
//! - Over H: the system of label j is `AᵀΩA + alpha I − Σ_unknown ω_i a_i a_iᵀ`. Conjugate gradients
//!   solve it, with the shared factor as the preconditioner. The two systems differ little, so a
//!   few steps reach single precision.

use super::design::{Design, Normal};
use super::held_out::{Part, weights_without};
use super::params::Params;
use super::tall::Tall;
use super::turns::{Labels, Turns};
use faer::reborrow::Reborrow;
use faer::{Accum, ColMut, ColRef, Mat, MatRef};
use manylabel_base::{Error, Watch, copied, extend, filled, parts, reserved};
use manylabel_dense::{Cholesky, eigen, matmul, zeros};
use manylabel_simd::{STRETCH, wide};
use manylabel_sparse::{LANES, Lanes};
use rayon::prelude::*;

/// Number of labels for which rows of H are computed together. H has one row per label.
const LABELS: usize = 64;

/// Number of rows for which the scores of unknown entries are computed together.
const ROWS: usize = 256;

/// The largest share of the entries of a label that may be unknown. With this share, four turns
/// reduce the effect of the replaced entries on W to less than a hundredth. With more unknown
/// entries, more turns would be needed, and [`Newton`](super::newton::Newton) is used.
const MOST_UNKNOWN: f64 = 0.25;

/// The systems of labels with unknown entries are solved until the error is this fraction of the
/// solution, in the norm of the shared system. It is the rounding error of single precision.
const TOL: f64 = 1e-7;

/// The largest number of conjugate gradient steps for the system of a label. With at most
/// [`MOST_UNKNOWN`] unknown entries, about ten steps are needed.
const MOST_STEPS: usize = 100;

/// One `f64` for each column of a panel. A panel is a group of 32 columns of W.
type Sums = [f64; LANES];

/// A training set, and constants that are used in each update of W and H.
pub(super) struct Ridge<'a, 'x> {
    params: &'a Params,
    x: &'a Design<'x>,
    labels: &'a Labels,
    /// The weight of each row, which is the diagonal of Ω. If it is None, Ω is the identity matrix.
    weights: Option<&'a [f32]>,
    /// `XᵀΩX`, if Ω differs from the weights of the training set.
    normal: Option<Normal>,
    /// Half of the sum of the squares of Y, weighted by the row weights. It is the objective if W
    /// and H are 0.
    constant: f64,
}

/// The weight matrices W and H, and `HᵀH`.
#[derive(Debug)]
pub(super) struct Factors {
    pub(super) w: Tall,
    pub(super) h: Tall,
    /// `HᵀH`; shape (rank, rank).
    gram: Mat<f64>,
    /// A number for each stored entry of `Labels::by_row`: 1, or the score of an unknown entry. Empty
    /// if all entries are known.
    filled: Vec<f32>,
}

/// The weight matrices W and H, rotated so that `HᵀH` is diagonal. The rotation does not change
/// scores.
struct Turned<'a> {
    w: Tall,
    h: Tall,
    filled: &'a [f32],
    /// The diagonal λ of `HᵀH`, padded with zeros to a multiple of [`LANES`].
    lambda: Vec<f64>,
}

impl<'a, 'x> Ridge<'a, 'x> {
    /// Prepares a training set. `weights` holds the weights of the rows. If it is None, all weights
    /// are 1. If rows are held out, `part` has them, and its weights are used instead.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(super) fn new(
        params: &'a Params,
        x: &'a Design<'x>,
        labels: &'a Labels,
        weights: Option<&'a [f32]>,
        part: Option<&'a Part>,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let weights = weights_without(part, weights);
        let normal = part.map(|part| x.normal_of(part.weights(), watch));
        let weight = |row: usize| weights.map_or(1.0, |weights| f64::from(weights[row]));
        let y = &labels.by_row;
        let n_ones = |row| y.row(row).1.iter().filter(|value| !value.is_nan()).count();
        let ones = (0..y.n_rows()).map(|row| weight(row) * n_ones(row) as f64);
        Ok(Self {
            params,
            x,
            labels,
            weights,
            normal: normal.transpose()?,
            constant: ones.sum::<f64>() / 2.0,
        })
    }

    /// Returns `XᵀΩX`. The preconditioner uses its diagonal.
    fn normal(&self) -> &Normal {
        self.normal.as_ref().unwrap_or(self.x.normal())
    }

    /// Returns true if few enough entries of each label are unknown for this solver, and all labels have the
    /// weight 1.
    pub(super) fn suits(labels: &Labels) -> bool {
        let y = &labels.by_label;
        let few = |label| {
            let unknown = y.row(label).1.iter().filter(|value| value.is_nan());
            unknown.count() as f64 <= MOST_UNKNOWN * y.n_cols as f64
        };
        labels.all && labels.weights.is_none() && (labels.complete || (0..y.n_rows()).all(few))
    }

    /// Multiplies W and H by the matrix of eigenvectors of `HᵀH`. `W Hᵀ` does not change, and `HᵀH`
    /// becomes diagonal.
    fn turned<'f>(factors: &'f Factors, watch: &Watch) -> Result<Turned<'f>, Error> {
        let Factors {
            w,
            h,
            gram,
            filled: of_entries,
        } = factors;
        // The eigenvalue iteration converges if all numbers are finite.
        let eigen = eigen("the Gram matrix", gram.as_ref())?;
        let eigen = eigen.ok_or_else(|| not_finite("infinite or NaN products (no eigenvalues)"))?;
        let mut lambda = filled("number of columns of a factor", 0.0, h.panels.len() * LANES)?;
        for (lambda, value) in lambda.iter_mut().zip(&eigen.values) {
            *lambda = value.max(0.0);
        }
        let vectors = eigen.vectors.as_ref();
        Ok(Turned {
            w: w.times(vectors, watch)?,
            h: h.times(vectors, watch)?,
            filled: of_entries,
            lambda,
        })
    }

    /// Lowers the objective over W. For each column k, solves `(λ_k XᵀΩX + alpha I) w_k = XᵀΩY h_k`
    /// approximately. Each thread solves for a panel of 32 columns.
    fn improve_w(&self, turned: &Turned<'_>, alpha: f64, watch: &Watch) -> Result<Tall, Error> {
        let Turned {
            w,
            h,
            filled,
            lambda,
        } = turned;
        Tall::from_panels(w.n_rows, w.n_cols, |t| {
            let label_sums = |rows: std::ops::Range<usize>, out: &mut [Lanes<f32>]| {
                for (row, out) in rows.zip(out) {
                    let mut sum = Lanes::default();
                    let weight = self.weights.map_or(1.0, |weights| weights[row]);
                    let labels = self.labels.by_row.row(row).0;
                    if self.labels.complete {
                        for &label in labels {
                            sum.add_scaled(weight, &h.panels[t][label as usize]);
                        }
                    } else {
                        let filled = &filled[self.labels.by_row.indptr[row]..];
                        for (&label, value) in labels.iter().zip(filled) {
                            sum.add_scaled(weight * value, &h.panels[t][label as usize]);
                        }
                    }
                    *out = sum;
                }
            };
            let right = self.x.transposed_times(label_sums, watch)?;
            let lambda = std::array::from_fn(|lane| lambda[t * LANES + lane]);
            self.solve(right, &w.panels[t], &lambda, alpha as f32, watch)
        })
    }

    /// Solves `(λ_k XᵀΩX + alpha I) w_k = r_k` for the columns of one panel, by conjugate gradients
    /// from `start`. A panel is a group of 32 columns. The preconditioner is the diagonal of the
    /// system. A column has converged when the norm of its residual is at most the fraction
    /// `cg_tol` of the first norm. Its further steps have length 0.
    ///
    /// Each column has its own λ. So the diagonal has one number for each feature and column. These
    /// numbers are computed when they are needed. The similar loop of `pls/src/cg.rs` uses one
    /// diagonal for all columns and cannot be used here.
    fn solve(
        &self,
        mut r: Vec<Lanes<f32>>,
        start: &[Lanes<f32>],
        lambda: &Sums,
        alpha: f32,
        watch: &Watch,
    ) -> Result<Vec<Lanes<f32>>, Error> {
        let lambda = Lanes::of(lambda);
        let diagonal = &self.normal().squares;
        let product = |p: &[Lanes<f32>]| self.x.normal_times(self.normal(), self.weights, p, watch);
        let mut w = copied("number of features", start)?;
        if w.iter()
            .any(|lanes| lanes.0.iter().any(|&value| value != 0.0))
        {
            let g = product(&w)?;
            descend(&mut r, &w, &g, &lambda, alpha, &Lanes([1.0; LANES]));
        }
        let mut p = filled("number of features", Lanes::default(), r.len())?;
        let zeros = Lanes::default();
        let (first, mut rho) = direct(diagonal, &lambda, alpha, &r, &zeros, &mut p);
        let goals = first.map(|square| square * self.params.cg_tol.powi(2));
        let mut squares = first;
        for _ in 0..self.params.cg_max_iter {
            let g = product(&p)?;
            let curvature = curvature(&p, &g, &lambda, alpha);
            let mut step = [0.0; LANES];
            for lane in 0..LANES {
                let length = rho[lane] / curvature[lane];
                if squares[lane] > goals[lane] && curvature[lane] > 0.0 && length.is_finite() {
                    step[lane] = length;
                }
            }
            if step.iter().all(|&length| length == 0.0) {
                break;
            }
            let step = Lanes::of(&step);
            descend(&mut r, &p, &g, &lambda, alpha, &step);
            for (w, p) in w.iter_mut().zip(&p) {
                for lane in 0..LANES {
                    w.0[lane] += step.0[lane] * p.0[lane];
                }
            }
            let before = rho;
            rho = preconditioned(diagonal, &lambda, alpha, &r);
            let mut beta = [0.0; LANES];
            for lane in 0..LANES {
                let ratio = rho[lane] / before[lane];
                if step.0[lane] != 0.0 && ratio.is_finite() {
                    beta[lane] = ratio;
                }
            }
            (squares, _) = direct(diagonal, &lambda, alpha, &r, &Lanes::of(&beta), &mut p);
        }
        Ok(w)
    }

    /// Computes the H that minimizes the objective for the given W. Returns W, this H and the
    /// objective.
    fn best_h(&self, w: Tall, alpha: f64, watch: &Watch) -> Result<(Factors, f64), Error> {
        let rank = w.n_cols;
        let a = Tall::from_panels(self.x.n_rows, rank, |t| self.x.times(&w.panels[t], watch))?;
        let gram = a.gram(self.weights, watch)?;
        // A ridge of the size of the rounding errors in A is added. With a smaller ridge, the
        // matrix might not be positive definite.
        let least = 1e-12 * (0..rank).map(|k| gram[(k, k)]).sum::<f64>();
        let factor = Cholesky::new(gram.as_ref(), alpha.max(least), watch)?;
        let factor = factor
            .ok_or_else(|| not_finite("infinite or NaN products (no Cholesky factorization)"))?;
        let n_labels = self.labels.by_label.n_rows();
        let blocks = (0..n_labels.div_ceil(LABELS)).into_par_iter();
        let solved = blocks.map(|block| {
            watch.step(0)?;
            let labels = block * LABELS..((block + 1) * LABELS).min(n_labels);
            let right = self.label_sums(&a, labels.clone())?;
            let mut h = manylabel_dense::copied("the factor matrix", right.as_ref())?;
            factor.solve_in_place(h.as_mut(), watch)?;
            if !self.labels.complete {
                for (j, label) in labels.clone().enumerate() {
                    let unknown = self.unknown_rows(&a, label)?;
                    correct(
                        &factor,
                        &unknown,
                        right.col(j),
                        h.as_mut().col_mut(j),
                        watch,
                    )?;
                }
            }
            let mut rows = zeros::<f32>("the factor matrix", rank, labels.len())?;
            let mut product = 0.0;
            for j in 0..labels.len() {
                for k in 0..rank {
                    rows[(k, j)] = h[(k, j)] as f32;
                    product += right[(k, j)] * f64::from(rows[(k, j)]);
                }
            }
            Ok((rows, product))
        });
        let solved = parts(solved)?;
        let h = Tall::from_panels(n_labels, rank, |t| {
            let mut panel = filled("number of labels", Lanes::default(), n_labels)?;
            for (label, lanes) in panel.iter_mut().enumerate() {
                let rows = &solved[label / LABELS].0;
                for lane in 0..LANES.min(rank - t * LANES) {
                    lanes.0[lane] = rows[(t * LANES + lane, label % LABELS)];
                }
            }
            Ok(panel)
        })?;
        let of_h = h.gram(None, watch)?;
        let product: f64 = solved.iter().map(|(_, product)| product).sum();
        let mut square = 0.0;
        for j in 0..rank {
            for i in 0..rank {
                square += gram[(i, j)] * of_h[(i, j)];
            }
        }
        let trace: f64 = (0..rank).map(|k| of_h[(k, k)]).sum();
        let (filled, of_unknown) = self.filled(&a, &h, watch)?;
        let loss = self.constant - product + (square - of_unknown) / 2.0;
        let objective = loss + alpha / 2.0 * (w.square() + trace);
        let factors = Factors {
            w,
            h,
            gram: of_h,
            filled,
        };
        Ok((factors, objective))
    }

    /// Returns the rows of `Ω^½ A` for which a label is unknown, as columns; shape (rank, rows).
    fn unknown_rows(&self, a: &Tall, label: usize) -> Result<Mat<f64>, Error> {
        let (rows, values) = self.labels.by_label.row(label);
        let unknown = rows.iter().zip(values).filter(|(_, value)| value.is_nan());
        let n_unknown = unknown.clone().count();
        let mut found = zeros("number of unknown entries of a label", a.n_cols, n_unknown)?;
        for (j, (&row, _)) in unknown.enumerate() {
            let weight = self.weights.map_or(1.0, |weights| weights[row as usize]);
            let scale = f64::from(weight).sqrt();
            for (k, to) in found.col_as_slice_mut(j).iter_mut().enumerate() {
                *to = scale * f64::from(a.panels[k / LANES][row as usize].0[k % LANES]);
            }
        }
        Ok(found)
    }

    /// Returns [`Factors::filled`] for the factors A and H, and the sum of the squared scores of the
    /// unknown entries, multiplied by the weights of their rows.
    fn filled(&self, a: &Tall, h: &Tall, watch: &Watch) -> Result<(Vec<f32>, f64), Error> {
        const ENTRIES: &str = "number of labels and unknown entries";
        if self.labels.complete {
            return Ok((Vec::new(), 0.0));
        }
        let y = &self.labels.by_row;
        let blocks = (0..y.n_rows().div_ceil(ROWS)).into_par_iter().map(|block| {
            watch.step(0)?;
            let rows = block * ROWS..((block + 1) * ROWS).min(y.n_rows());
            let range = y.indptr[rows.start]..y.indptr[rows.end];
            let mut values = filled(ENTRIES, 1.0, range.len())?;
            let mut values_left = values.iter_mut();
            let mut squares = 0.0;
            for row in rows {
                let weight = self.weights.map_or(1.0, |weights| weights[row]);
                let (labels, given) = y.row(row);
                for ((&label, given), value) in labels.iter().zip(given).zip(&mut values_left) {
                    if given.is_nan() {
                        let mut products = Lanes::default();
                        for (a, h) in a.panels.iter().zip(&h.panels) {
                            products.add_product(&a[row], &h[label as usize]);
                        }
                        *value = products.0.iter().sum();
                        squares += f64::from(weight) * f64::from(*value).powi(2);
                    }
                }
            }
            Ok((values, squares))
        });
        let blocks = parts(blocks)?;
        let mut all = reserved(ENTRIES, y.indices.len())?;
        let mut squares = 0.0;
        for (values, of_block) in blocks {
            extend(ENTRIES, &mut all, values)?;
            squares += of_block;
        }
        Ok((all, squares))
    }

    /// Computes the columns of `AᵀΩY` that belong to the given labels, in O(rank) time for each
    /// entry of Y that is 1.
    fn label_sums(&self, a: &Tall, labels: std::ops::Range<usize>) -> Result<Mat<f64>, Error> {
        let mut sums = zeros("the factor matrix", a.n_cols, labels.len())?;
        for (j, label) in labels.enumerate() {
            let mut column = sums.as_mut().col_mut(j);
            for (t, panel) in a.panels.iter().enumerate() {
                let mut sum = [0.0; LANES];
                let (rows, values) = self.labels.by_label.row(label);
                for (&row, value) in rows.iter().zip(values) {
                    if value.is_nan() {
                        continue;
                    }
                    let weight = self.weights.map_or(1.0, |weights| weights[row as usize]);
                    for lane in 0..LANES {
                        sum[lane] += f64::from(weight * panel[row as usize].0[lane]);
                    }
                }
                for lane in 0..LANES.min(a.n_cols - t * LANES) {
                    column[t * LANES + lane] = sum[lane];
                }
            }
        }
        Ok(sums)
    }
}

impl Turns for Ridge<'_, '_> {
    type Factors = Factors;

    fn start(&self, rank: usize, watch: &Watch) -> Result<Factors, Error> {
        let n_labels = self.labels.len();
        let first = super::fit::start(self.params.seed, n_labels, rank)?;
        let h = Tall::from_rows(&first, n_labels, rank)?;
        let a = Tall::zeros(self.x.n_rows, rank)?;
        Ok(Factors {
            w: Tall::zeros(self.x.n_cols(), rank)?,
            gram: h.gram(None, watch)?,
            filled: self.filled(&a, &h, watch)?.0,
            h,
        })
    }

    fn turn(&self, factors: &mut Factors, alpha: f64, watch: &Watch) -> Result<f64, Error> {
        let turned = Self::turned(factors, watch)?;
        let w = self.improve_w(&turned, alpha, watch)?;
        let objective;
        (*factors, objective) = self.best_h(w, alpha, watch)?;
        Ok(objective)
    }

    fn refit_w(&self, factors: &Factors, alpha: f64, watch: &Watch) -> Result<(Tall, Tall), Error> {
        let turned = Self::turned(factors, watch)?;
        let w = self.improve_w(&turned, alpha, watch)?;
        Ok((w, turned.h))
    }

    fn factors(&self, factors: &Factors) -> Result<(Tall, Tall), Error> {
        Ok((factors.w.copied()?, factors.h.copied()?))
    }

    fn copied(factors: &Factors) -> Result<Factors, Error> {
        Ok(Factors {
            w: factors.w.copied()?,
            h: factors.h.copied()?,
            gram: manylabel_dense::copied("the Gram matrix", factors.gram.as_ref())?,
            filled: copied("number of labels and unknown entries", &factors.filled)?,
        })
    }
}

/// Solves the system of a label with unknown entries, `(S − U Uᵀ) h = right`, by conjugate gradients.
/// `factor` is the factor of the shared matrix S, `unknown` is U, and `h` must contain
/// `S⁻¹ right` at the start. The products with S need no matrix, because each direction is a
/// combination of solutions with S.
fn correct(
    factor: &Cholesky,
    unknown: &Mat<f64>,
    right: ColRef<'_, f64>,
    mut h: ColMut<'_, f64>,
    watch: &Watch,
) -> Result<(), Error> {
    let (rank, n_unknown) = unknown.shape();
    if n_unknown == 0 {
        return Ok(());
    }
    let column = |n| zeros::<f64>("the factor matrix", n, 1);
    let (mut along, mut product) = (column(n_unknown)?, column(rank)?);
    // Computes U Uᵀ p.
    let mut correction = |p: MatRef<'_, f64>, product: &mut Mat<f64>| {
        matmul(&mut along, Accum::Replace, unknown.transpose(), p, 1.0);
        matmul(product, Accum::Replace, unknown, &along, 1.0);
    };
    let dot = |a: ColRef<'_, f64>, b: ColRef<'_, f64>| -> f64 {
        a.iter().zip(b.iter()).map(|(a, b)| a * b).sum()
    };
    let goal = TOL * TOL * dot(right, h.rb());
    correction(h.rb().as_mat(), &mut product);
    let mut residual = manylabel_dense::copied("the factor matrix", product.as_ref())?;
    let (mut p, mut of_p) = (column(rank)?, column(rank)?);
    let mut before = f64::INFINITY;
    for _ in 0..MOST_STEPS {
        let mut solved = manylabel_dense::copied("the factor matrix", residual.as_ref())?;
        factor.solve_in_place(solved.as_mut(), watch)?;
        let rho = dot(residual.col(0), solved.col(0));
        if rho <= goal {
            break;
        }
        let beta = rho / before;
        before = rho;
        for k in 0..rank {
            p[(k, 0)] = solved[(k, 0)] + beta * p[(k, 0)];
            of_p[(k, 0)] = residual[(k, 0)] + beta * of_p[(k, 0)];
        }
        correction(p.as_ref(), &mut product);
        let length = rho / (dot(p.col(0), of_p.col(0)) - dot(p.col(0), product.col(0)));
        if !(length.is_finite() && length > 0.0) {
            break; // the residual is as small as rounding errors
        }
        for k in 0..rank {
            h[k] += length * p[(k, 0)];
            residual[(k, 0)] -= length * (of_p[(k, 0)] - product[(k, 0)]);
        }
    }
    Ok(())
}

/// Returns the error for a factorization that failed. Factorizations fail only if some numbers are
/// not finite.
fn not_finite(got: &str) -> Error {
    Error::Param {
        name: "X",
        expected: "scaled so that its products with the weights are finite",
        got: got.into(),
    }
}

/// Computes `p = M⁻¹r + beta p`, where M is the diagonal of the system. Returns `r·r` and `r·M⁻¹r`.
#[wide]
fn direct(
    diagonal: &[f32],
    lambda: &Lanes<f32>,
    alpha: f32,
    r: &[Lanes<f32>],
    beta: &Lanes<f32>,
    p: &mut [Lanes<f32>],
) -> (Sums, Sums) {
    let (mut squares, mut rho) = ([0.0; LANES], [0.0; LANES]);
    let chunks = diagonal.chunks(STRETCH).zip(r.chunks(STRETCH));
    for ((diagonal, r), p) in chunks.zip(p.chunks_mut(STRETCH)) {
        let (mut square, mut part) = (Lanes::<f32>::default(), Lanes::<f32>::default());
        for ((&entry, r), p) in diagonal.iter().zip(r).zip(p) {
            for lane in 0..LANES {
                let value = r.0[lane];
                let scaled = value / (lambda.0[lane] * entry + alpha);
                square.0[lane] += value * value;
                part.0[lane] += value * scaled;
                p.0[lane] = scaled + beta.0[lane] * p.0[lane];
            }
        }
        square.add_to(&mut squares);
        part.add_to(&mut rho);
    }
    (squares, rho)
}

/// Returns `r·M⁻¹r`.
#[wide]
fn preconditioned(diagonal: &[f32], lambda: &Lanes<f32>, alpha: f32, r: &[Lanes<f32>]) -> Sums {
    let mut sums = [0.0; LANES];
    for (diagonal, r) in diagonal.chunks(STRETCH).zip(r.chunks(STRETCH)) {
        let mut part = Lanes::<f32>::default();
        for (&entry, r) in diagonal.iter().zip(r) {
            for lane in 0..LANES {
                let value = r.0[lane];
                part.0[lane] += value * value / (lambda.0[lane] * entry + alpha);
            }
        }
        part.add_to(&mut sums);
    }
    sums
}

/// Returns `p·(lambda g + alpha p)`.
#[wide]
fn curvature(p: &[Lanes<f32>], g: &[Lanes<f32>], lambda: &Lanes<f32>, alpha: f32) -> Sums {
    let mut sums = [0.0; LANES];
    for (p, g) in p.chunks(STRETCH).zip(g.chunks(STRETCH)) {
        let mut part = Lanes::<f32>::default();
        for (p, g) in p.iter().zip(g) {
            for lane in 0..LANES {
                part.0[lane] += p.0[lane] * (lambda.0[lane] * g.0[lane] + alpha * p.0[lane]);
            }
        }
        part.add_to(&mut sums);
    }
    sums
}

/// Computes `r −= step (lambda g + alpha p)`.
#[wide]
fn descend(
    r: &mut [Lanes<f32>],
    p: &[Lanes<f32>],
    g: &[Lanes<f32>],
    lambda: &Lanes<f32>,
    alpha: f32,
    step: &Lanes<f32>,
) {
    for (r, (p, g)) in r.iter_mut().zip(p.iter().zip(g)) {
        for lane in 0..LANES {
            let image = lambda.0[lane] * g.0[lane] + alpha * p.0[lane];
            r.0[lane] -= step.0[lane] * image;
        }
    }
}
