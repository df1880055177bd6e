//! What all labels share.
use manylabel_sparse::CsrOwned;

/// X with its bias column, its transpose and its sums.
pub(crate) struct Problem {
    pub(crate) x: CsrOwned,
    pub(crate) xt: CsrOwned,
    pub(crate) rows_of_label: CsrOwned,
    pub(crate) mean: Vec<f32>,
    /// Σ_i x_ij².
    pub(crate) square_sums: Vec<f32>,
    /// mean . x_i
    pub(crate) mean_dot: Vec<f32>,
    /// |mean|^2
    pub(crate) mean_square: f64,
    /// |x_i|^2
    pub(crate) row_square: Vec<f64>,
    /// 2 C sample_weight
    pub(crate) cost: Vec<f32>,
}

impl Problem {
    pub(crate) fn new(x: &CsrOwned, y: &CsrOwned, c: f64) -> Self {
        let n = x.n_rows();
        let d = x.n_cols;
        let mut xb = CsrOwned { indptr: vec![0], indices: Vec::with_capacity(x.indices.len() + n), values: Vec::with_capacity(x.indices.len() + n), n_cols: d + 1 };
        for i in 0..n {
            let (c, v) = x.row(i);
            xb.indices.extend_from_slice(c);
            xb.values.extend_from_slice(v);
            xb.indices.push(d as u32);
            xb.values.push(1.0);
            xb.indptr.push(xb.indices.len());
        }
        let xt = xb.transpose();
        let sum = |f: fn(f64) -> f64| -> Vec<f64> { (0..=d).map(|j| xt.row(j).1.iter().map(|&v| f(f64::from(v))).sum()).collect() };
        let mean: Vec<f32> = sum(|v| v).iter().map(|&s| (s / n as f64) as f32).collect();
        Self {
            mean_dot: (0..n).map(|i| { let (c, v) = xb.row(i); c.iter().zip(v).map(|(&c, &v)| v * mean[c as usize]).sum() }).collect(),
            mean_square: mean.iter().map(|&m| f64::from(m) * f64::from(m)).sum(),
            row_square: (0..n).map(|i| xb.row(i).1.iter().map(|&v| f64::from(v) * f64::from(v)).sum()).collect(),
            mean,
            square_sums: sum(|v| v * v).iter().map(|&s| s as f32).collect(),
            cost: vec![(2.0 * c) as f32; n],
            rows_of_label: y.transpose(),
            x: xb,
            xt,
        }
    }

    pub(crate) fn positives(&self, label: u32) -> &[u32] {
        self.rows_of_label.row(label as usize).0
    }
}
