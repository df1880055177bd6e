//! Rare labels: dual coordinate descent over the rows that matter, the rest standing as one row.
use super::problem::Problem;
use crate::panel::{LANES, Lanes, times_panel};
use manylabel_base::{Error, Watch};

/// One label's state.
#[derive(Debug, Default, Clone)]
struct Label {
    /// rows in play; positives first
    rows: Vec<u32>,
    n_pos: usize,
    alpha: Vec<f32>,
    /// background's dual variable
    kappa: f64,
    done: bool,
}

pub(crate) struct Workspace {
    /// sparse part of w per lane, contiguous
    u: Vec<Vec<f32>>,
    panel: Vec<Lanes>,
    scores: Vec<Lanes>,
    in_play: Vec<u16>,
    order: Vec<u32>,
    pub(crate) stats: [f64; 8],
}

impl Workspace {
    pub(crate) fn new(problem: &Problem) -> Self {
        let (n, d) = (problem.x.n_rows(), problem.x.n_cols);
        Self { u: vec![vec![0.0; d]; LANES], panel: vec![Lanes::ZERO; d], scores: vec![Lanes::ZERO; n.min(1 << 12)], in_play: vec![0; n], order: vec![], stats: [0.0; 8] }
    }

    /// Final weight.
    pub(crate) fn weights(&self, lane: usize) -> &[f32] {
        &self.u[lane]
    }
}

#[inline(always)]
fn sparse_dot(cols: &[u32], vals: &[f32], w: &[f32]) -> f32 {
    let (mut a, mut b, mut c, mut d) = (0.0f32, 0.0f32, 0.0f32, 0.0f32);
    let (cols4, vals4) = (cols.chunks_exact(4), vals.chunks_exact(4));
    for (&col, &val) in cols4.remainder().iter().zip(vals4.remainder()) {
        a += val * w[col as usize];
    }
    for (col, val) in cols4.zip(vals4) {
        a += val[0] * w[col[0] as usize];
        b += val[1] * w[col[1] as usize];
        c += val[2] * w[col[2] as usize];
        d += val[3] * w[col[3] as usize];
    }
    (a + b) + (c + d)
}

fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Problem {
    pub(crate) fn solve_active(&self, labels: &[u32], knob: &[f64], ws: &mut Workspace, watch: &Watch) -> Result<[usize; LANES], Error> {
        let (tol, margin, rounds, cap_factor, cap_min) = (knob[0], knob[1], knob[2] as usize, knob[3], knob[4] as usize);
        let n = self.x.n_rows();
        let mut state = vec![Label::default(); labels.len()];
        ws.in_play.fill(0);
        for (lane, &label) in labels.iter().enumerate() {
            ws.u[lane].fill(0.0);
            let rows = self.positives(label).to_vec();
            for &r in &rows {
                ws.in_play[r as usize] |= 1 << lane;
            }
            state[lane] = Label { n_pos: rows.len(), alpha: vec![0.0; rows.len()], rows, kappa: 0.0, done: false };
        }
        let mut n_iter = [0; LANES];
        for round in 0..=rounds {
            let t = std::time::Instant::now();
            for (lane, label) in state.iter_mut().enumerate() {
                if round > 0 || label.done { continue; }
                watch.step(0)?;
                n_iter[lane] += self.descend(label, tol, &mut ws.u[lane], &mut ws.order, u64::from(labels[lane]) << 20 | round as u64, &mut ws.stats);
            }
            ws.stats[0] += t.elapsed().as_secs_f64();
            if round == rounds { break; }
            // score all rows
            let t = std::time::Instant::now();
            let d = self.x.n_cols;
            for j in 0..d {
                for lane in 0..labels.len() {
                    ws.panel[j].0[lane] = ws.u[lane][j];
                }
            }
            ws.stats[1] += t.elapsed().as_secs_f64();
            let t = std::time::Instant::now();
            let mut found: Vec<Vec<(f32, u32)>> = vec![vec![]; labels.len()];
            let size = ws.scores.len();
            let kappas: [f32; LANES] = std::array::from_fn(|l| state.get(l).map_or(0.0, |s| s.kappa as f32));
            let mut first = 0;
            while first < n {
                watch.step(0)?;
                let m = size.min(n - first);
                times_panel(&self.x, first, &ws.panel, &mut ws.scores[..m]);
                for (i, s) in ws.scores[..m].iter().enumerate() {
                    let row = first + i;
                    let mx = self.mean_dot[row];
                    let mut hit = 0u32;
                    for l in 0..LANES {
                        let v = s.0[l] - kappas[l] * mx;
                        hit |= u32::from(v > (margin - 1.0) as f32) << l;
                    }
                    hit &= !u32::from(ws.in_play[row]);
                    while hit != 0 {
                        let l = hit.trailing_zeros() as usize;
                        hit &= hit - 1;
                        if l < found.len() {
                            found[l].push((s.0[l] - kappas[l] * mx, row as u32));
                        }
                    }
                }
                first += m;
            }
            ws.stats[2] += t.elapsed().as_secs_f64();
            let t = std::time::Instant::now();
            for (lane, label) in state.iter_mut().enumerate() {
                if label.done { continue; }
                watch.step(0)?;
                let f = &mut found[lane];
                let cap = ((label.n_pos as f64 * cap_factor) as usize).max(cap_min);
                let pool = cap * knob[6] as usize;
                ws.stats[5] += f.len() as f64;
                let best = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
                if f.is_empty() { label.done = true; continue; }
                if f.len() > pool {
                    f.select_nth_unstable_by(pool, best);
                    f.truncate(pool);
                }
                let inner = knob[7] as usize;
                for k in 0..inner {
                    if k > 0 {
                        let u = &ws.u[lane];
                        for c in f.iter_mut() {
                            let (cols, vals) = self.x.row(c.1 as usize);
                            c.0 = sparse_dot(cols, vals, u) - label.kappa as f32 * self.mean_dot[c.1 as usize];
                        }
                    }
                    // violators to the front
                    let mut n_viol = 0;
                    for i in 0..f.len() {
                        if f[i].0 > (margin - 1.0) as f32 {
                            f.swap(i, n_viol);
                            n_viol += 1;
                        }
                    }
                    if n_viol == 0 { break; }
                    if n_viol > cap {
                        f[..n_viol].select_nth_unstable_by(cap, best);
                    }
                    let take = n_viol.min(cap);
                    f[..take].sort_unstable_by_key(|c| c.1);
                    for (_, row) in f.drain(..take) {
                        ws.in_play[row as usize] |= 1 << lane;
                        label.rows.push(row);
                        label.alpha.push(0.0);
                    }
                    let last = k + 1 == inner || f.is_empty();
                    let _ = last;
                    n_iter[lane] += self.descend(label, if last { tol } else { tol.max(knob[8]) }, &mut ws.u[lane], &mut ws.order, u64::from(labels[lane]) << 20 | (round * 16 + k) as u64, &mut ws.stats);
                    if f.is_empty() { break; }
                }
            }
            ws.stats[0] += t.elapsed().as_secs_f64();
            if state.iter().all(|s| s.done) { break; }
        }
        // fold background into u
        for (lane, label) in state.iter().enumerate() {
            ws.stats[6] += label.rows.len() as f64;
            for (u, &m) in ws.u[lane].iter_mut().zip(&self.mean) {
                *u -= label.kappa as f32 * m;
            }
        }
        Ok(n_iter)
    }

    /// DCD over label.rows and the background.
    fn descend(&self, label: &mut Label, tol: f64, u: &mut [f32], order: &mut Vec<u32>, mut seed: u64, stats: &mut [f64; 8]) -> usize {
        let n_b = self.x.n_rows() - label.rows.len();
        let q = self.mean_square;
        let c2 = f64::from(self.cost[0]); // 2C
        let diag = 1.0 / c2;
        // u . mean
        let mut um: f64 = label.rows.iter().zip(&label.alpha).enumerate().map(|(i, (&r, &a))| {
            let s = if i < label.n_pos { 1.0 } else { -1.0 };
            s * f64::from(a) * f64::from(self.mean_dot[r as usize])
        }).sum();
        order.clear();
        order.extend(0..label.rows.len() as u32);
        let mut active = order.len();
        let (mut top, mut low) = (f64::INFINITY, f64::NEG_INFINITY);
        let mut epochs = 0;
        while epochs < 100 {
            epochs += 1;
            let (mut new_top, mut new_low) = (f64::NEG_INFINITY, f64::INFINITY);
            for i in (1..active).rev() {
                let j = ((u128::from(next(&mut seed)) * (i as u128 + 1)) >> 64) as usize;
                order.swap(i, j);
            }
            let mut at = 0;
            while at < active {
                // background now and then
                if at % 16 == 0 && n_b > 0 {
                    let db = diag / n_b as f64;
                    let score = um - label.kappa * q;
                    let gg = -score - 1.0 + db * label.kappa;
                    label.kappa = (label.kappa - gg / (q + db)).max(0.0);
                }
                let i = order[at] as usize;
                let row = label.rows[i] as usize;
                let s = if i < label.n_pos { 1.0f64 } else { -1.0 };
                let (cols, vals) = self.x.row(row);
                let md = f64::from(self.mean_dot[row]);
                let score = f64::from(sparse_dot(cols, vals, u)) - label.kappa * md;
                let a = f64::from(label.alpha[i]);
                let g = s * score - 1.0 + diag * a;
                stats[3] += 1.0;
                let mut pg = g;
                if a == 0.0 {
                    if g > top {
                        active -= 1;
                        order.swap(at, active);
                        continue;
                    }
                    pg = g.min(0.0);
                }
                new_top = new_top.max(pg);
                new_low = new_low.min(pg);
                if pg.abs() > 1e-6 {
                    let new = (a - g / (self.row_square[row] + diag)).max(0.0) as f32;
                    let change = (f64::from(new) - a) * s;
                    label.alpha[i] = new;
                    um += change * md;
                    let change = change as f32;
                    for (&col, &val) in cols.iter().zip(vals) {
                        u[col as usize] += change * val;
                    }
                    stats[4] += 1.0;
                }
                at += 1;
            }
            if new_top - new_low <= tol {
                if active == order.len() { break; }
                active = order.len();
                top = f64::INFINITY;
                low = f64::NEG_INFINITY;
                continue;
            }
            top = if new_top <= 0.0 { f64::INFINITY } else { new_top };
            low = new_low;
        }
        let _ = low;
        epochs
    }
}
