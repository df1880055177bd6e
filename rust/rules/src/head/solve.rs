//! Linear systems: small ones by Cholesky factorization, those of all labels by conjugate
//! gradients.

use crate::lanes::{WIDTH, add_scaled, chunks, chunks_mut, dot};
use crate::statistics::{Gram, Statistics, Sums};
use faer::Side;
use faer::prelude::Solve;

/// Overwrites the lower triangle of an n × n matrix (rows one after the other) with its Cholesky
/// factor. A matrix that only regularization would make definite, where there is none, gets a
/// little. False if it is not positive definite even so.
#[inline(always)]
pub(crate) fn factorize(matrix: &mut [f64], n: usize, l2: f64) -> bool {
    if l2 == 0.0 && n > 0 {
        let trace: f64 = (0..n).map(|i| matrix[i * n + i]).sum();
        (0..n).for_each(|i| matrix[i * n + i] += 1e-10 * trace / n as f64);
    }
    for i in 0..n {
        for j in 0..=i {
            let mut sum = matrix[i * n + j];
            for k in 0..j {
                sum -= matrix[i * n + k] * matrix[j * n + k];
            }
            if i > j {
                matrix[i * n + j] = sum / matrix[j * n + j];
            } else if sum > 0.0 {
                matrix[i * n + i] = sum.sqrt();
            } else {
                return false;
            }
        }
    }
    true
}

/// `Σ w g gᵀ` over some rows, as it is or as a matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outer<'a> {
    Matrix(&'a Gram),
    /// The rows, and the weights of all rows of the training set.
    Rows(&'a [u32], &'a [f64]),
}

impl Outer<'_> {
    /// `y += sign · (Σ w g gᵀ) x`.
    #[inline(always)]
    fn add_product(&self, statistics: &Statistics, sign: f64, x: &[f64], y: &mut [f64]) {
        match *self {
            Self::Matrix(gram) => {
                for (k, &x) in x.iter().enumerate() {
                    add_scaled(y, sign * x, gram.row(k));
                }
            }
            Self::Rows(rows, weights) => {
                for &row in rows {
                    let g = statistics.gradient(row);
                    add_scaled(y, sign * weights[row as usize] * dot(g, x), g);
                }
            }
        }
    }

    fn subtract_from(&self, statistics: &Statistics, sign: f64, matrix: &mut Gram) {
        match *self {
            Self::Matrix(gram) => add_scaled(&mut matrix.data, -sign, &gram.data),
            Self::Rows(rows, weights) => matrix.add_rows(-sign, statistics, rows, weights),
        }
    }
}

/// The heads of all labels under the example-wise loss: solutions of
/// `(diag(d + ω) − Σ w g gᵀ) x = −g`.
///
/// Preconditioned with the diagonal `h + ω` of its matrix, the condition number stays below about
/// 10 whatever the scores, so a few steps of conjugate gradients suffice where a factorization
/// would take `n_labels³ / 3` operations.
///
/// The quality of a head that is not yet exact is known within bounds: with the residual r,
/// `½ gᵀx + ½ xᵀr` falls short of the optimum by `½ rᵀ M⁻¹ r`, and M is at least the diagonal
/// `f + ω`, since every row has `diag(q) − q qᵀ ⪰ (1 − Σq) diag(q)`. So a candidate that cannot be
/// the best is known as such after one product, if the solution for its neighbour is near.
#[derive(Debug, Clone)]
pub(crate) struct Solver {
    l2: f64,
    residual: Vec<f64>,
    direction: Vec<f64>,
    product: Vec<f64>,
}

/// Steps after which a system is factorized instead.
const MOST_STEPS: usize = 30;

/// What may be missing from a quality, relative to it.
const TOLERANCE: f64 = 1e-13;

impl Solver {
    pub(crate) fn new(stride: usize, l2: f64) -> Self {
        let room = vec![0.0; stride];
        Self {
            l2,
            residual: room.clone(),
            direction: room.clone(),
            product: room,
        }
    }

    /// The diagonal `d + ω`.
    #[inline(always)]
    fn multiply(
        &mut self,
        statistics: &Statistics,
        sums: &Sums,
        parts: &[(f64, Outer<'_>)],
        x: &[f64],
    ) {
        let diagonal = chunks(sums.d()).iter().zip(chunks(x));
        for (out, (d, x)) in chunks_mut(&mut self.product).iter_mut().zip(diagonal) {
            for lane in 0..WIDTH {
                out[lane] = (d[lane] + self.l2) * x[lane];
            }
        }
        for (sign, part) in parts {
            part.add_product(statistics, -sign, x, &mut self.product);
        }
    }

    /// Improves the head `x` of a set with these sums until its quality is exact; returns the
    /// quality, or nothing if it is certainly not below `bound`. `parts` are added and subtracted
    /// (by their signs) to `Σ w g gᵀ` over the set.
    #[inline(always)]
    pub(crate) fn quality(
        &mut self,
        statistics: &Statistics,
        sums: &Sums,
        parts: &[(f64, Outer<'_>)],
        bound: f64,
        x: &mut [f64],
    ) -> Option<f64> {
        self.multiply(statistics, sums, parts, x);
        for (r, (g, product)) in chunks_mut(&mut self.residual)
            .iter_mut()
            .zip(chunks(sums.g()).iter().zip(chunks(&self.product)))
        {
            for lane in 0..WIDTH {
                r[lane] = -g[lane] - product[lane];
            }
        }
        let mut last = 0.0;
        for step in 0..MOST_STEPS {
            let (gain, missing, scaled) = self.gain(sums, x);
            if -(gain + missing) > bound {
                return None;
            }
            if missing <= TOLERANCE * gain || scaled <= 1e-2 * TOLERANCE * gain {
                return Some(-gain);
            }
            // direction = M₀⁻¹ r + β direction
            let beta = if step == 0 { 0.0 } else { scaled / last };
            last = scaled;
            let parts_of = chunks(&self.residual).iter().zip(chunks(sums.h()));
            for (p, (r, h)) in chunks_mut(&mut self.direction).iter_mut().zip(parts_of) {
                for lane in 0..WIDTH {
                    let h = if h[lane] > 0.0 { h[lane] } else { 0.0 };
                    let step = if beta == 0.0 { 0.0 } else { beta * p[lane] };
                    p[lane] = r[lane] / (h + self.l2 + 1e-150) + step;
                }
            }
            let direction = std::mem::take(&mut self.direction);
            self.multiply(statistics, sums, parts, &direction);
            let curvature = dot(&direction, &self.product);
            let usable = curvature > 0.0 && curvature.is_finite();
            if usable {
                let alpha = dot(&direction, &self.residual) / curvature;
                add_scaled(x, alpha, &direction);
                add_scaled(&mut self.residual, -alpha, &self.product);
            }
            self.direction = direction;
            if !usable {
                break;
            }
        }
        Some(self.factorized(statistics, sums, parts, x))
    }

    /// How much the head gains, at most how much is missing, and `rᵀ M₀⁻¹ r`.
    #[inline(always)]
    fn gain(&self, sums: &Sums, x: &[f64]) -> (f64, f64, f64) {
        let mut gains = [0.0; WIDTH];
        let mut missing = [0.0; WIDTH];
        let mut scaled = [0.0; WIDTH];
        let diagonals = chunks(sums.f()).iter().zip(chunks(sums.h()));
        let heads = chunks(sums.g()).iter().zip(chunks(x));
        for ((r, (g, x)), (f, h)) in chunks(&self.residual).iter().zip(heads).zip(diagonals) {
            for lane in 0..WIDTH {
                let (f, h) = (
                    if f[lane] > 0.0 { f[lane] } else { 0.0 },
                    if h[lane] > 0.0 { h[lane] } else { 0.0 },
                );
                gains[lane] += x[lane] * (r[lane] - g[lane]);
                let square = r[lane] * r[lane];
                missing[lane] += square / (f + self.l2 + 1e-150);
                scaled[lane] += square / (h + self.l2 + 1e-150);
            }
        }
        use crate::lanes::total;
        (0.5 * total(&gains), 0.5 * total(&missing), total(&scaled))
    }

    /// The same by Cholesky factorization, where conjugate gradients were too slow: without
    /// regularization, or where rounding has spoilt the matrix.
    #[cold]
    fn factorized(
        &mut self,
        statistics: &Statistics,
        sums: &Sums,
        parts: &[(f64, Outer<'_>)],
        x: &mut [f64],
    ) -> f64 {
        let n = statistics.n_labels;
        let mut matrix = Gram::new(statistics.stride);
        for (sign, part) in parts {
            part.subtract_from(statistics, *sign, &mut matrix);
        }
        let diagonal: Vec<f64> = sums.d().iter().map(|d| d + self.l2).collect();
        let trace: f64 = diagonal.iter().take(n).sum();
        let little = if self.l2 == 0.0 {
            1e-10 * trace / n as f64
        } else {
            0.0
        };
        let dense = faer::Mat::from_fn(n, n, |i, j| {
            let on = if i == j { diagonal[i] + little } else { 0.0 };
            matrix.row(i)[j] + on
        });
        x.fill(0.0);
        let Ok(factor) = dense.llt(Side::Lower) else {
            return 0.0;
        };
        let right = faer::Col::from_fn(n, |k| -sums.g()[k]);
        let solution = factor.solve(&right);
        for k in 0..n {
            x[k] = solution[k];
        }
        if x.iter().all(|x| x.is_finite()) {
            0.5 * dot(sums.g(), x)
        } else {
            x.fill(0.0);
            0.0
        }
    }
}
