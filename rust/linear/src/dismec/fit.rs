//! Panels in parallel.
use super::exact::Workspace;
use super::problem::Problem;
use super::params::Checked;
use crate::panel::LANES;
use manylabel_base::{Error, Watch};
use manylabel_sparse::CsrOwned;
use rayon::prelude::*;

/// A fitted model.
#[derive(Debug)]
pub struct Fit {
    /// weights by label
    pub weights: CsrOwned,
    /// bias
    pub intercept: Vec<f32>,
    /// Newton steps.
    pub n_iter: Vec<i32>,
    /// stats
    pub stats: [f64; 8],
}

impl Checked {
    /// Fits.
    ///
    /// # Errors
    ///
    /// Stopped.
    pub fn fit(&self, x: &CsrOwned, y: &CsrOwned, watch: &Watch) -> Result<Fit, Error> {
        let p = &self.0;
        let d = x.n_cols;
        let problem = Problem::new(x, y, p.c);
        let c = y.n_cols;
        let mut order: Vec<u32> = (0..c as u32).collect();
        order.sort_by_key(|&l| (std::cmp::Reverse(problem.positives(l).len()), l));
        let fast = !p.knob.is_empty();
        let pool: std::sync::Mutex<Vec<Workspace>> = Default::default();
        let pool2: std::sync::Mutex<Vec<super::active::Workspace>> = Default::default();
        let panels: Vec<_> = order.chunks(LANES).collect();
        let out: Result<Vec<_>, Error> = panels
            .par_iter()
            .with_max_len(1)
            .map(|labels| {
                let mut out = Vec::new();
                if fast && (problem.positives(labels[0]).len() as f64) * p.knob[5] < problem.x.n_rows() as f64 {
                    let mut ws = pool2.lock().expect("no panic").pop().unwrap_or_else(|| super::active::Workspace::new(&problem));
                    let iters = problem.solve_active(labels, &p.knob, &mut ws, watch)?;
                    for (lane, &label) in labels.iter().enumerate() {
                        let mut idx = vec![];
                        let mut val = vec![];
                        let w = ws.weights(lane);
                        for j in 0..d {
                            if w[j].abs() >= p.prune as f32 {
                                idx.push(j as u32);
                                val.push(w[j]);
                            }
                        }
                        let b = if problem.positives(label).is_empty() { f32::NEG_INFINITY } else { w[d] };
                        out.push((label, idx, val, b, iters[lane] as i32));
                    }
                    pool2.lock().expect("no panic").push(ws);
                } else {
                    let mut ws = pool.lock().expect("no panic").pop().unwrap_or_else(|| Workspace::new(&problem));
                    let iters = problem.solve_exact(labels, p.tol, p.max_iter, &mut ws, watch)?;
                    for (lane, &label) in labels.iter().enumerate() {
                        let mut idx = vec![];
                        let mut val = vec![];
                        for j in 0..d {
                            let w = ws.w[j].0[lane];
                            if w.abs() >= p.prune as f32 {
                                idx.push(j as u32);
                                val.push(w);
                            }
                        }
                        let b = if problem.positives(label).is_empty() { f32::NEG_INFINITY } else { ws.w[d].0[lane] };
                        out.push((label, idx, val, b, iters[lane] as i32));
                    }
                    pool.lock().expect("no panic").push(ws);
                }
                watch.step(labels.len())?;
                Ok(out)
            })
            .collect();
        let mut all: Vec<_> = out?.into_iter().flatten().collect();
        all.sort_by_key(|o| o.0);
        let mut weights = CsrOwned { indptr: vec![0], indices: vec![], values: vec![], n_cols: d };
        let mut intercept = vec![];
        let mut n_iter = vec![];
        for (_, idx, val, b, it) in all {
            weights.indices.extend(idx);
            weights.values.extend(val);
            weights.indptr.push(weights.indices.len());
            intercept.push(b);
            n_iter.push(it);
        }
        let mut stats = [0.0; 8];
        for ws in pool.lock().expect("no panic").iter() {
            for k in 0..8 {
                stats[k] += ws.stats[k];
            }
        }
        for ws in pool2.lock().expect("no panic").iter() {
            for k in 0..8 {
                stats[k] += ws.stats[k];
            }
        }
        Ok(Fit { weights, intercept, n_iter, stats })
    }
}
