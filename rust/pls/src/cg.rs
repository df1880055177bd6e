//! Conjugate gradients on `(XᵀΩX + λI) Z = G`, sixteen right-hand sides side by side.
//!
//! The sides share products with X and nothing else: each has its own step lengths, is done when its
//! own residual is small, and keeps its own best iterate, since residuals do not fall monotonically.
//! So what comes out does not depend on who shares the panel.

use crate::design::{Design, Rows, cross};
use crate::solve::Fit;
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::{LANES, Lanes, Real};
use multiversion::multiversion;

type Sums = [f64; LANES];

/// Rows whose sums are taken in the precision of the data before they are added in double.
const STRETCH: usize = 64;

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
        let d = r.len();
        let mut z = filled("number of features", Lanes::<T>::default(), d)?;
        let mut p = filled("number of features", Lanes::<T>::default(), d)?;
        let zeros = Lanes::<T>::default();
        // r·r and r·M⁻¹r; p = M⁻¹r.
        let (mut squares, mut rho) = direct(&self.preconditioner, &r, &zeros, &mut p);
        let goals = squares.map(|square| self.tol * self.tol * square);
        let mut best = squares;
        // Whether a side's best iterate is an older one, kept aside.
        let mut aside = [false; LANES];
        let mut older: Vec<Lanes<T>> = Vec::new();
        let mut n_steps = 0;
        let unfinished = |squares: &Sums| (0..LANES).filter(|&l| squares[l] > goals[l]).count();
        while n_steps < self.max_iter && unfinished(&squares) > 0 {
            let g = cross(rows, x, x, &p, watch)?;
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
            let new = descend(&mut r, &p, &g, self.ridge, &Lanes::of(&alpha));
            for lane in 0..LANES {
                if new[lane] <= best[lane] {
                    best[lane] = new[lane];
                    aside[lane] = false;
                } else if !aside[lane] {
                    aside[lane] = true;
                    if older.is_empty() {
                        older = filled("number of features", Lanes::<T>::default(), d)?;
                    }
                    for (older, z) in older.iter_mut().zip(&z) {
                        older.0[lane] = z.0[lane];
                    }
                }
            }
            advance(&mut z, &p, &Lanes::of(&alpha));
            squares = new;
            let before = rho;
            rho = preconditioned(&self.preconditioner, &r);
            let mut beta = [0.0; LANES];
            for lane in 0..LANES {
                let ratio = rho[lane] / before[lane];
                if alpha[lane] != 0.0 && ratio.is_finite() {
                    beta[lane] = ratio;
                }
            }
            direct(&self.preconditioner, &r, &Lanes::of(&beta), &mut p);
            n_steps += 1;
        }
        for lane in (0..LANES).filter(|&lane| aside[lane]) {
            for (z, older) in z.iter_mut().zip(&older) {
                z.0[lane] = older.0[lane];
            }
        }
        Ok(Fit {
            z,
            n_steps: n_steps.max(1),
            n_unfinished: unfinished(&best),
        })
    }
}

#[inline(always)]
fn add_to<T: Real>(part: &Lanes<T>, sums: &mut Sums) {
    for lane in 0..LANES {
        sums[lane] += part.0[lane].f64();
    }
}

/// `p = M⁻¹r + beta p`; returns `r·r` and `r·M⁻¹r`.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn direct<T: Real>(m: &[T], r: &[Lanes<T>], beta: &Lanes<T>, p: &mut [Lanes<T>]) -> (Sums, Sums) {
    let (mut squares, mut rho) = ([0.0; LANES], [0.0; LANES]);
    let chunks = m.chunks(STRETCH).zip(r.chunks(STRETCH));
    for ((m, r), p) in chunks.zip(p.chunks_mut(STRETCH)) {
        let (mut square, mut part) = (Lanes::<T>::default(), Lanes::<T>::default());
        for ((&m, r), p) in m.iter().zip(r).zip(p) {
            for lane in 0..LANES {
                let (r, y) = (r.0[lane], m * r.0[lane]);
                square.0[lane] += r * r;
                part.0[lane] += r * y;
                p.0[lane] = y + beta.0[lane] * p.0[lane];
            }
        }
        add_to(&square, &mut squares);
        add_to(&part, &mut rho);
    }
    (squares, rho)
}

/// `r·M⁻¹r`.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn preconditioned<T: Real>(m: &[T], r: &[Lanes<T>]) -> Sums {
    let mut sums = [0.0; LANES];
    for (m, r) in m.chunks(STRETCH).zip(r.chunks(STRETCH)) {
        let mut part = Lanes::<T>::default();
        for (&m, r) in m.iter().zip(r) {
            for lane in 0..LANES {
                part.0[lane] += m * r.0[lane] * r.0[lane];
            }
        }
        add_to(&part, &mut sums);
    }
    sums
}

/// `p·(g + ridge p)`.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn curvature<T: Real>(p: &[Lanes<T>], g: &[Lanes<T>], ridge: T) -> Sums {
    let mut sums = [0.0; LANES];
    for (p, g) in p.chunks(STRETCH).zip(g.chunks(STRETCH)) {
        let mut part = Lanes::<T>::default();
        for (p, g) in p.iter().zip(g) {
            for lane in 0..LANES {
                part.0[lane] += p.0[lane] * (g.0[lane] + ridge * p.0[lane]);
            }
        }
        add_to(&part, &mut sums);
    }
    sums
}

/// `r −= alpha (g + ridge p)`; returns `r·r`.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn descend<T: Real>(
    r: &mut [Lanes<T>],
    p: &[Lanes<T>],
    g: &[Lanes<T>],
    ridge: T,
    alpha: &Lanes<T>,
) -> Sums {
    let mut sums = [0.0; LANES];
    let chunks = p.chunks(STRETCH).zip(g.chunks(STRETCH));
    for (r, (p, g)) in r.chunks_mut(STRETCH).zip(chunks) {
        let mut part = Lanes::<T>::default();
        for ((r, p), g) in r.iter_mut().zip(p).zip(g) {
            for lane in 0..LANES {
                r.0[lane] -= alpha.0[lane] * (g.0[lane] + ridge * p.0[lane]);
                part.0[lane] += r.0[lane] * r.0[lane];
            }
        }
        add_to(&part, &mut sums);
    }
    sums
}

/// `z += alpha p`.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn advance<T: Real>(z: &mut [Lanes<T>], p: &[Lanes<T>], alpha: &Lanes<T>) {
    for (z, p) in z.iter_mut().zip(p) {
        for lane in 0..LANES {
            z.0[lane] += alpha.0[lane] * p.0[lane];
        }
    }
}
