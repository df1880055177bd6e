//! The optimum of a panel of labels over all rows, by preconditioned nonlinear conjugate gradients.
use super::problem::Problem;
use crate::panel::{LANES, Lanes, Mask, STRETCH, Sums, dot, times_panel};
use manylabel_base::{Error, Watch};
use multiversion::multiversion;

/// Line-search steps.
const LINE_STEPS: usize = 3;

/// Memory of one panel, reused between panels.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// w
    pub(crate) w: Vec<Lanes>,
    g: Vec<Lanes>,
    g_last: Vec<Lanes>,
    p: Vec<Lanes>,
    /// error
    e: Vec<Lanes>,
    z: Vec<Lanes>,
    u: Vec<Lanes>,
    pos: Vec<Mask>,
    pub(crate) stats: [f64; 8],
}

impl Workspace {
    pub(crate) fn new(problem: &Problem) -> Self {
        let (n, d) = (problem.x.n_rows(), problem.x.n_cols);
        let panel = |len| vec![Lanes::ZERO; len];
        Self { w: panel(d), g: panel(d), g_last: panel(d), p: panel(d), e: panel(n), z: panel(n), u: panel(n), pos: vec![0; n], stats: [0.0; 8] }
    }
}

impl Problem {
    pub(crate) fn solve_exact(&self, labels: &[u32], tol: f64, max_iter: usize, ws: &mut Workspace, watch: &Watch) -> Result<[usize; LANES], Error> {
        let n = self.x.n_rows();
        let n_pos: Sums = std::array::from_fn(|l| labels.get(l).map_or(0.0, |&j| self.positives(j).len() as f64));
        ws.pos.fill(0);
        for (lane, &label) in labels.iter().enumerate() {
            for &row in self.positives(label) {
                ws.pos[row as usize] |= 1 << lane;
            }
        }
        let stop = self.start(labels, &n_pos, tol, ws);
        let t = std::time::Instant::now();
        self.pass(false, &ws.w, &mut ws.e, watch)?;
        ws.stats[0] += t.elapsed().as_secs_f64();
        for (e, &pos) in ws.e.iter_mut().zip(&ws.pos) {
            for lane in 0..LANES {
                e.0[lane] -= if pos >> lane & 1 == 1 { 1.0 } else { -1.0 };
            }
        }
        let mut n_iter = [0; LANES];
        let mut live: Mask = (0..labels.len()).filter(|&l| n_pos[l] > 0.0).fold(0, |mask, l| mask | 1 << l);
        let mut eta = [0.0f32; LANES];
        let mut slope_last = [0.0f64; LANES];
        for iter in 0..=max_iter {
            let t = std::time::Instant::now();
            let active = advance(&self.cost, &eta, &ws.z, &ws.pos, &mut ws.e, &mut ws.u);
            ws.stats[1] += t.elapsed().as_secs_f64();
            let t = std::time::Instant::now();
            std::mem::swap(&mut ws.g, &mut ws.g_last);
            self.pass(true, &ws.u, &mut ws.g, watch)?;
            ws.stats[2] += t.elapsed().as_secs_f64();
            let t = std::time::Instant::now();
            add(&ws.w, &mut ws.g);
            let scale: [f32; LANES] = std::array::from_fn(|l| (0.1 * active[l] / n as f64) as f32);
            let Dots { gg, zg, zgl, pg } = dots(&self.square_sums, &scale, &ws.g, &ws.g_last, &ws.p);
            for lane in 0..LANES {
                if live >> lane & 1 == 1 && gg[lane].sqrt() <= stop[lane] {
                    live &= !(1 << lane);
                }
            }
            if live == 0 || iter == max_iter {
                break;
            }
            // Hestenes-Stiefel
            let beta: [f32; LANES] = std::array::from_fn(|l| {
                let curvature = pg[l] - slope_last[l];
                if iter == 0 || curvature <= 0.0 { return 0.0; }
                let beta = ((zg[l] - zgl[l]) / curvature).max(0.0);
                if beta * pg[l] - zg[l] >= 0.0 { 0.0 } else { beta as f32 }
            });
            for l in 0..LANES {
                slope_last[l] = f64::from(beta[l]) * pg[l] - zg[l];
            }
            turn(&self.square_sums, &scale, &beta, &ws.g, &mut ws.p);
            ws.stats[3] += t.elapsed().as_secs_f64();
            let t = std::time::Instant::now();
            self.pass(false, &ws.p, &mut ws.z, watch)?;
            ws.stats[4] += t.elapsed().as_secs_f64();
            let t = std::time::Instant::now();
            let (wp, pp) = (dot(&ws.w, &ws.p), dot(&ws.p, &ws.p));
            eta = [0.0; LANES];
            for _ in 0..LINE_STEPS {
                let (first, second) = slope(&self.cost, &eta, &ws.z, &ws.pos, &ws.e);
                for l in 0..LANES {
                    let (a, b) = (wp[l] + f64::from(eta[l]) * pp[l] + first[l], pp[l] + second[l]);
                    if live >> l & 1 == 1 && b > 0.0 {
                        eta[l] = (f64::from(eta[l]) - a / b).max(0.0) as f32;
                    }
                }
            }
            for l in 0..LANES {
                n_iter[l] += usize::from(live >> l & 1);
            }
            axpy(&eta, &ws.p, &mut ws.w);
            ws.stats[5] += t.elapsed().as_secs_f64();
            ws.stats[6] += 1.0;
            ws.stats[7] += f64::from(live.count_ones());
        }
        Ok(n_iter)
    }

    /// One product with X (or with its transpose), asking in between whether to stop.
    fn pass(&self, transposed: bool, p: &[Lanes], out: &mut [Lanes], watch: &Watch) -> Result<(), Error> {
        let x = if transposed { &self.xt } else { &self.x };
        const ROWS: usize = 1 << 15;
        for (chunk, out) in out.chunks_mut(ROWS).enumerate() {
            watch.step(0)?;
            times_panel(x, chunk * ROWS, p, out);
        }
        Ok(())
    }

    fn start(&self, labels: &[u32], n_pos: &Sums, tol: f64, ws: &mut Workspace) -> Sums {
        ws.w.fill(Lanes::ZERO);
        for (lane, &label) in labels.iter().enumerate() {
            for &row in self.positives(label) {
                let (cols, vals) = self.x.row(row as usize);
                for (&col, &val) in cols.iter().zip(vals) {
                    ws.w[col as usize].0[lane] += val;
                }
            }
        }
        let n = self.x.n_rows() as f64;
        let (mut g0, mut pp, mut pm, mut mm) = ([0.0f64; LANES], [0.0f64; LANES], [0.0f64; LANES], 0.0);
        for (s, &m) in ws.w.iter().zip(&self.mean) {
            let m = f64::from(m);
            mm += m * m;
            for l in 0..LANES {
                let s = f64::from(s.0[l]);
                g0[l] += (2.0 * s - n * m).powi(2);
                pp[l] += s * s;
                pm[l] += s * m;
            }
        }
        let (mut u, mut v) = ([0.0f32; LANES], [0.0f32; LANES]);
        for l in 0..labels.len() {
            if n_pos[l] == 0.0 {
                continue;
            }
            let (a, b, c) = (pp[l] / n_pos[l] / n_pos[l], pm[l] / n_pos[l], mm);
            let det = a * c - b * b;
            if det > 1e-6 * a * c {
                u[l] = ((c + b) / det / n_pos[l]) as f32;
                v[l] = (-(a + b) / det) as f32;
            } else {
                v[l] = (-1.0 / c) as f32;
            }
        }
        for (w, &m) in ws.w.iter_mut().zip(&self.mean) {
            for l in 0..LANES {
                w.0[l] = u[l] * w.0[l] + v[l] * m;
            }
        }
        std::array::from_fn(|l| {
            let rarer = n_pos[l].min(n - n_pos[l]).max(1.0);
            tol * rarer / n * f64::from(self.cost[0]) * g0[l].sqrt()
        })
    }
}

struct Dots {
    gg: Sums,
    zg: Sums,
    zgl: Sums,
    pg: Sums,
}

/// Moves `e` along `z`, and sets `u` to the loss's derivative; returns Σ cost of the active rows.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl+avx2", "x86_64+avx2"))]
fn advance(cost: &[f32], eta: &[f32; LANES], z: &[Lanes], pos: &[Mask], e: &mut [Lanes], u: &mut [Lanes]) -> Sums {
    let mut sums = [0.0; LANES];
    let eta = Lanes(*eta);
    for start in (0..e.len()).step_by(STRETCH) {
        let mut part = Lanes::ZERO;
        let end = (start + STRETCH).min(e.len());
        let rows = e[start..end].iter_mut().zip(&mut u[start..end]).zip(&z[start..end]).zip(&pos[start..end]).zip(&cost[start..end]);
        for ((((e, u), z), &pos), &cost) in rows {
            for l in 0..LANES {
                let moved = e.0[l] + eta.0[l] * z.0[l];
                e.0[l] = moved;
                let sign = if pos & (1 << l) != 0 { -1.0f32 } else { 1.0 };
                let on = if moved * sign > 0.0 { cost } else { 0.0 };
                u.0[l] = on * moved;
                part.0[l] += on;
            }
        }
        part.add_into(&mut sums);
    }
    sums
}

/// First and second derivative of the loss along `z`.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl+avx2", "x86_64+avx2"))]
fn slope(cost: &[f32], eta: &[f32; LANES], z: &[Lanes], pos: &[Mask], e: &[Lanes]) -> (Sums, Sums) {
    let (mut first, mut second) = ([0.0; LANES], [0.0; LANES]);
    let eta = Lanes(*eta);
    for start in (0..e.len()).step_by(STRETCH) {
        let (mut one, mut two) = (Lanes::ZERO, Lanes::ZERO);
        let end = (start + STRETCH).min(e.len());
        let rows = e[start..end].iter().zip(&z[start..end]).zip(&pos[start..end]).zip(&cost[start..end]);
        for (((e, z), &pos), &cost) in rows {
            for l in 0..LANES {
                let moved = e.0[l] + eta.0[l] * z.0[l];
                let sign = if pos & (1 << l) != 0 { -1.0f32 } else { 1.0 };
                let on = if moved * sign > 0.0 { cost } else { 0.0 };
                let pull = on * z.0[l];
                one.0[l] += pull * moved;
                two.0[l] += pull * z.0[l];
            }
        }
        one.add_into(&mut first);
        two.add_into(&mut second);
    }
    (first, second)
}

#[inline(always)]
fn preconditioned(square_sum: f32, scale: &[f32; LANES], g: &Lanes) -> Lanes {
    Lanes(std::array::from_fn(|l| g.0[l] / (1.0 + scale[l] * square_sum)))
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl+avx2", "x86_64+avx2"))]
fn dots(square_sums: &[f32], scale: &[f32; LANES], g: &[Lanes], g_last: &[Lanes], p: &[Lanes]) -> Dots {
    let mut d = Dots { gg: [0.0; LANES], zg: [0.0; LANES], zgl: [0.0; LANES], pg: [0.0; LANES] };
    for start in (0..g.len()).step_by(STRETCH) {
        let end = (start + STRETCH).min(g.len());
        let (mut gg, mut zg, mut zgl, mut pg) = (Lanes::ZERO, Lanes::ZERO, Lanes::ZERO, Lanes::ZERO);
        for (((g, gl), p), &s) in g[start..end].iter().zip(&g_last[start..end]).zip(&p[start..end]).zip(&square_sums[start..end]) {
            let z = preconditioned(s, scale, g);
            gg.add_product(g, g);
            zg.add_product(&z, g);
            zgl.add_product(&z, gl);
            pg.add_product(p, g);
        }
        gg.add_into(&mut d.gg);
        zg.add_into(&mut d.zg);
        zgl.add_into(&mut d.zgl);
        pg.add_into(&mut d.pg);
    }
    d
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl+avx2", "x86_64+avx2"))]
fn turn(square_sums: &[f32], scale: &[f32; LANES], beta: &[f32; LANES], g: &[Lanes], p: &mut [Lanes]) {
    for ((p, g), &s) in p.iter_mut().zip(g).zip(square_sums) {
        let z = preconditioned(s, scale, g);
        for l in 0..LANES {
            // times, not an assignment: a stale infinity must not survive beta = 0
            p.0[l] = beta[l] * p.0[l] - z.0[l];
        }
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl+avx2", "x86_64+avx2"))]
fn add(x: &[Lanes], y: &mut [Lanes]) {
    for (y, x) in y.iter_mut().zip(x) {
        y.add_scaled(1.0, x);
    }
}

#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl+avx2", "x86_64+avx2"))]
fn axpy(a: &[f32; LANES], x: &[Lanes], y: &mut [Lanes]) {
    let a = Lanes(*a);
    for (y, x) in y.iter_mut().zip(x) {
        y.add_product(&a, x);
    }
}
