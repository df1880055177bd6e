//! Solves `(XᵀΩX + λI) Z = G` by conjugate gradients, for 32 right-hand sides at a time. X holds the
//! features, Ω is the diagonal matrix of the row weights, and λ is the ridge.
//!
//! This is the standard preconditioned method. For one right-hand side, let z be the iterate, r the residual,
//! p the search direction, and `A = XᵀΩX + λI`. The preconditioner is `M = diag(XᵀΩX) + λI`, and the first
//! iterate is `z = 0`:
//!
//! ```text
//! α = r·M⁻¹r / p·Ap,  z += α p,  r −= α Ap,  β = r·M⁻¹r / (previous r·M⁻¹r),  p = M⁻¹r + β p
//! ```
//!
//! A step computes one product with X and one product with Xᵀ for the whole panel of 32 right-hand
//! sides. It takes O(nnz(X) · 32) time. Memory is four vectors of 32 numbers per feature, or five
//! if an older iterate is kept.
//!
//! The right-hand sides of a panel share only the products with X. Each right-hand side has its own step
//! lengths and stops when its own residual is small. The solution of a right-hand side therefore does not
//! depend on the other right-hand sides of its panel. The solver keeps the best iterate of each right-hand
//! side, because residuals do not decrease monotonically. Scalar products are computed in pieces of
//! [`STRETCH`] numbers. Each piece is summed in the precision of X, and the sums of the pieces are added in
//! double precision.
//!
//! LEML, which fits a linear model of low rank, has a similar loop (`linear/src/leml/ridge.rs`).
//! The two loops are separate. In LEML, each right-hand side multiplies `XᵀΩX` by its own factor.
//! The iteration there starts from an earlier solution and keeps no older iterate. A common loop
//! would be more complicated than two separate loops. The two loops use the same type [`Lanes`].

use crate::design::{Design, Rows, cross_into};
use manylabel_base::{Error, Watch, filled};
use manylabel_simd::{STRETCH, wide};
use manylabel_sparse::{LANES, Lanes, Real};

/// One sum for each of the 32 right-hand sides.
type Sums = [f64; LANES];

/// The solution of a regression for 32 right-hand sides, computed by conjugate gradients or by a
/// factorization.
pub(crate) struct Fit<T> {
    /// The solution Z. It has one line of 32 numbers for each column of the [`Design`] of X.
    pub(crate) z: Vec<Lanes<T>>,
    /// Number of steps taken; at least 1. It is 1 for a factorization.
    pub(crate) n_steps: usize,
    /// Number of right-hand sides that have not reached the tolerance. It is 0 for a factorization.
    pub(crate) n_unfinished: usize,
}

/// Settings for solving the equations. They depend on the ridge and the parameters, but not on the
/// right-hand sides.
pub(crate) struct Settings<T> {
    /// Inverse of the diagonal of `XᵀΩX + λI`. Entries are 0 where the diagonal is 0.
    pub(crate) preconditioner: Vec<T>,
    /// The ridge λ.
    pub(crate) ridge: T,
    /// Maximum number of steps.
    pub(crate) max_iter: usize,
    /// A right-hand side is solved once the norm of its residual is at most `tol` times the norm of
    /// its first residual.
    pub(crate) tol: f64,
}

impl<T: Real> Settings<T> {
    /// Solves `(XᵀΩX + λI) Z = R` for 32 right-hand sides R, given as `r`. The residuals overwrite `r`.
    ///
    /// Returns the iterate with the smallest residual norm for each right-hand side. The iteration stops when
    /// all right-hand sides are solved, after `max_iter` steps, or when rounding errors make further steps
    /// impossible.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
    pub(crate) fn solve(
        &self,
        rows: &Rows<T>,
        x: &Design<'_, T>,
        mut r: Vec<Lanes<T>>,
        watch: &Watch,
    ) -> Result<Fit<T>, Error> {
        let m = &self.preconditioner;
        let room = || filled("number of features", Lanes::<T>::default(), r.len());
        let (mut z, mut p, mut g) = (room()?, room()?, room()?);
        let mut buffer = rows.buffer()?;
        let (mut squares, mut rho) = start(m, &r, &mut p);
        let goals = squares.map(|square| self.tol * self.tol * square);
        let unfinished = |squares: &Sums| (0..LANES).filter(|&l| squares[l] > goals[l]).count();
        let mut best = squares;
        // For each lane, whether its best iterate is an older one that is stored in `older`.
        let mut is_older = [false; LANES];
        let mut older = Vec::new();
        let mut n_steps = 0;
        while n_steps < self.max_iter && unfinished(&squares) > 0 {
            cross_into(rows, x, x, &p, &mut buffer, &mut g, watch)?;
            let curvature = curvature(&p, &g, self.ridge);
            let mut alpha = [0.0; LANES];
            for lane in 0..LANES {
                let step = rho[lane] / curvature[lane];
                if squares[lane] > goals[lane] && curvature[lane] > 0.0 && step.is_finite() {
                    alpha[lane] = step;
                }
            }
            if alpha.iter().all(|&step| step == 0.0) {
                break; // only rounding errors are left
            }
            let before = rho;
            (squares, rho) = descend(m, &mut r, &p, &g, self.ridge, &Lanes::of(&alpha));
            let mut leaves_best = [false; LANES];
            let mut beta = [0.0; LANES];
            for lane in 0..LANES {
                let worse = squares[lane] > best[lane];
                leaves_best[lane] = worse && !is_older[lane];
                is_older[lane] = worse;
                best[lane] = best[lane].min(squares[lane]);
                let ratio = rho[lane] / before[lane];
                if alpha[lane] != 0.0 && ratio.is_finite() {
                    beta[lane] = ratio;
                }
            }
            if leaves_best.contains(&true) {
                if older.is_empty() {
                    older = filled("number of features", Lanes::default(), r.len())?;
                }
                copy_lanes(&leaves_best, &z, &mut older);
            }
            advance(m, &r, &Lanes::of(&alpha), &Lanes::of(&beta), &mut z, &mut p);
            n_steps += 1;
        }
        if is_older.contains(&true) {
            copy_lanes(&is_older, &older, &mut z);
        }
        Ok(Fit {
            z,
            n_steps: n_steps.max(1),
            n_unfinished: unfinished(&best),
        })
    }
}

/// Computes `p = M⁻¹r`. Returns `r·r` and `r·M⁻¹r`. `m` holds the diagonal of `M⁻¹`.
#[wide]
fn start<T: Real>(m: &[T], r: &[Lanes<T>], p: &mut [Lanes<T>]) -> (Sums, Sums) {
    let (mut squares, mut rho) = ([0.0; LANES], [0.0; LANES]);
    let chunks = m.chunks(STRETCH).zip(r.chunks(STRETCH));
    for ((m, r), p) in chunks.zip(p.chunks_mut(STRETCH)) {
        let (mut square, mut part) = (Lanes::<T>::default(), Lanes::<T>::default());
        for ((&m, r), p) in m.iter().zip(r).zip(p) {
            for lane in 0..LANES {
                p.0[lane] = m * r.0[lane];
                square.0[lane] += r.0[lane] * r.0[lane];
                part.0[lane] += r.0[lane] * p.0[lane];
            }
        }
        square.add_to(&mut squares);
        part.add_to(&mut rho);
    }
    (squares, rho)
}

/// Returns `p·(g + ridge p)`. If `g = XᵀΩX p`, this is the curvature of the quadratic objective
/// along p.
#[wide]
fn curvature<T: Real>(p: &[Lanes<T>], g: &[Lanes<T>], ridge: T) -> Sums {
    let mut sums = [0.0; LANES];
    for (p, g) in p.chunks(STRETCH).zip(g.chunks(STRETCH)) {
        let mut part = Lanes::<T>::default();
        for (p, g) in p.iter().zip(g) {
            for lane in 0..LANES {
                part.0[lane] += p.0[lane] * (g.0[lane] + ridge * p.0[lane]);
            }
        }
        part.add_to(&mut sums);
    }
    sums
}

/// Computes `r −= alpha (g + ridge p)`. Returns the new `r·r` and `r·M⁻¹r`.
#[wide]
fn descend<T: Real>(
    m: &[T],
    r: &mut [Lanes<T>],
    p: &[Lanes<T>],
    g: &[Lanes<T>],
    ridge: T,
    alpha: &Lanes<T>,
) -> (Sums, Sums) {
    let (mut squares, mut rho) = ([0.0; LANES], [0.0; LANES]);
    let chunks = p.chunks(STRETCH).zip(g.chunks(STRETCH));
    for ((m, r), (p, g)) in m.chunks(STRETCH).zip(r.chunks_mut(STRETCH)).zip(chunks) {
        let (mut square, mut part) = (Lanes::<T>::default(), Lanes::<T>::default());
        for ((&m, r), (p, g)) in m.iter().zip(r).zip(p.iter().zip(g)) {
            for lane in 0..LANES {
                r.0[lane] -= alpha.0[lane] * (g.0[lane] + ridge * p.0[lane]);
                let r = r.0[lane];
                square.0[lane] += r * r;
                part.0[lane] += r * (m * r);
            }
        }
        square.add_to(&mut squares);
        part.add_to(&mut rho);
    }
    (squares, rho)
}

/// Computes `z += alpha p`, then `p = M⁻¹r + beta p`.
#[wide]
fn advance<T: Real>(
    m: &[T],
    r: &[Lanes<T>],
    alpha: &Lanes<T>,
    beta: &Lanes<T>,
    z: &mut [Lanes<T>],
    p: &mut [Lanes<T>],
) {
    for ((&m, r), (z, p)) in m.iter().zip(r).zip(z.iter_mut().zip(p)) {
        for lane in 0..LANES {
            let before = p.0[lane];
            z.0[lane] += alpha.0[lane] * before;
            p.0[lane] = m * r.0[lane] + beta.0[lane] * before;
        }
    }
}

/// Copies lane l of every line from `from` to `to`, for each l where `which[l]` is true.
fn copy_lanes<T: Real>(which: &[bool; LANES], from: &[Lanes<T>], to: &mut [Lanes<T>]) {
    for (from, to) in from.iter().zip(to) {
        for lane in 0..LANES {
            to.0[lane] = if which[lane] {
                from.0[lane]
            } else {
                to.0[lane]
            };
        }
    }
}
