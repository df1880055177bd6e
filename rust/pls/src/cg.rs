//! Conjugate gradients on `(XᵀΩX + λI) Z = G`, 32 right-hand sides at a time.
//!
//! The method is the standard preconditioned one, with `M = diag(XᵀΩX) + λI`, started from `Z = 0`:
//!
//! ```text
//! α = r·M⁻¹r / p·Ap,  z += α p,  r −= α Ap,  β = r·M⁻¹r / (r·M⁻¹r of before),  p = M⁻¹r + β p
//! ```
//!
//! A step costs one product with X and one with Xᵀ for the whole panel, O(nnz(X) · 32) time, and four
//! vectors of 32 numbers per feature (five if an older iterate is kept).
//!
//! Right-hand sides share the products with X and nothing else. Each has its own step lengths, stops when
//! its own residual is small, and keeps its own best iterate, since residuals do not fall monotonically.
//! The solution of one therefore does not depend on which others share its panel. Scalar products add up
//! [`STRETCH`] numbers in the precision of X and then continue in double precision.
//!
//! The loop of LEML (`linear/src/leml/ridge.rs`) is similar but separate. There each lane has its own factor
//! of `XᵀΩX`, the solution starts from the previous iteration's, and no older iterate is kept. A common
//! loop would do unneeded work here. Both share [`Lanes`].

use crate::design::{Design, Rows, cross_into};
use manylabel_base::{Error, Watch, filled};
use manylabel_simd::{STRETCH, wide};
use manylabel_sparse::{LANES, Lanes, Real};

/// One sum per right-hand side.
type Sums = [f64; LANES];

/// The solution of a regression for 32 right-hand sides, by conjugate gradients or by a factorization.
pub(crate) struct Fit<T> {
    /// Z, with a line of 32 numbers for each own column of X.
    pub(crate) z: Vec<Lanes<T>>,
    /// Steps taken, at least 1; 1 by a factorization.
    pub(crate) n_steps: usize,
    /// Number of right-hand sides that have not reached the tolerance; 0 by a factorization.
    pub(crate) n_unfinished: usize,
}

/// How the equations are solved: what depends on the ridge and the parameters, not on the right-hand sides.
pub(crate) struct Settings<T> {
    /// Inverse of the diagonal of `XᵀΩX + λI`; 0 where the diagonal is 0.
    pub(crate) preconditioner: Vec<T>,
    /// λ.
    pub(crate) ridge: T,
    /// Maximum number of steps.
    pub(crate) max_iter: usize,
    /// A right-hand side is solved once its residual norm is at most `tol` times the first.
    pub(crate) tol: f64,
}

impl<T: Real> Settings<T> {
    /// Solves for the right-hand sides `r`, which become the residuals.
    ///
    /// Returns for each right-hand side the iterate with the smallest residual norm. Ends when all are
    /// solved, after `max_iter` steps, or when rounding leaves no step to take.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`], [`Error::Stopped`].
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
        // Whether the best iterate of a lane is an older one, stored in `older`.
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

/// `p = M⁻¹r`; returns `r·r` and `r·M⁻¹r`. `m` holds the diagonal of `M⁻¹`.
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

/// `p·(g + ridge p)`: with `g = XᵀΩX p`, the curvature of the quadratic along p.
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

/// `r −= alpha (g + ridge p)`; returns the new `r·r` and `r·M⁻¹r`.
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

/// `z += alpha p`, then `p = M⁻¹r + beta p`.
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

/// Copies the lanes for which `which` is true from every line of `from` to `to`.
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
