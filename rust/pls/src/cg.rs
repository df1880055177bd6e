//! Conjugate gradients on `(XᵀΩX + λI) Z = G`, thirty-two right-hand sides side by side.
//!
//! The sides share products with X and nothing else: each has its own step lengths, is done when its
//! own residual is small, and keeps its own best iterate, since residuals do not fall monotonically.
//! So what comes out does not depend on who shares the panel.
//!
//! The loop of LEML (`linear/src/leml/ridge.rs`) is a near relative and stays apart: there each lane has
//! a factor of `XᵀΩX` of its own, the solution starts from the last turn's, and no older iterate is kept.
//! One loop for both would do work here that nobody needs. What both share are [`Lanes`].

use crate::design::{Design, Rows, cross_into};
use manylabel_base::{Error, Watch, filled};
use manylabel_simd::{STRETCH, wide};
use manylabel_sparse::{LANES, Lanes, Real};

type Sums = [f64; LANES];

/// What a regression yields, by these or by a factorization, for thirty-two right-hand sides.
pub(crate) struct Fit<T> {
    /// Z, a row for each feature.
    pub(crate) z: Vec<Lanes<T>>,
    /// Steps taken; 1 by a factorization.
    pub(crate) n_steps: usize,
    /// Right-hand sides that have not reached the tolerance.
    pub(crate) n_unfinished: usize,
}

/// How the equations are solved.
pub(crate) struct Settings<T> {
    /// Inverse of the diagonal of `XᵀΩX + λI`.
    pub(crate) preconditioner: Vec<T>,
    /// λ.
    pub(crate) ridge: T,
    pub(crate) max_iter: usize,
    /// Norm of a residual relative to the first, at which its side is done.
    pub(crate) tol: f64,
}

impl<T: Real> Settings<T> {
    /// Solves for the sides `r`.
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
        // Whether a side's best iterate is an older one, kept aside.
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
                break; // rounding has consumed what was left
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

/// `p = M⁻¹r`; returns `r·r` and `r·M⁻¹r`.
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

/// `p·(g + ridge p)`.
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

/// `r −= alpha (g + ridge p)`; returns `r·r` and `r·M⁻¹r`.
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

/// Copies some of the lanes.
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
