//! What all labels share: the features with their bias column, their transpose, their sums.

use manylabel_base::{Error, Watch, collected};
use manylabel_sparse::{CsrOwned, CsrView, Index, Value};

/// The training set in the form the solvers want. Memory: 16 bytes a stored feature, twice the
/// matrix, since one product goes along rows and the other along columns.
#[derive(Debug)]
pub(crate) struct Problem {
    /// Rows, of unit length if so asked, then the bias feature; (n, dim).
    pub(crate) x: CsrOwned,
    /// The transpose of `x`; (dim, n).
    pub(crate) xt: CsrOwned,
    /// Rows that carry a label; (`n_labels`, n).
    rows_of_label: CsrOwned,
    /// The features some row has, by the numbers the caller knows them by; the bias is not one.
    pub(crate) features: Vec<u32>,
    /// Number of features the caller knows.
    pub(crate) n_features: usize,
    /// 2 C `m_i`, the curvature of a row's loss.
    pub(crate) cost: Vec<f32>,
    /// `Σ_i cost_i`.
    pub(crate) total_cost: f64,
    /// Mean row, weighted by cost; length dim.
    pub(crate) mean: Vec<f32>,
    /// `‖mean‖²`.
    pub(crate) mean_square: f64,
    /// `mean · x_i`.
    pub(crate) mean_dot: Vec<f32>,
    /// `‖x_i‖²`, the bias included.
    pub(crate) row_squares: Vec<f32>,
    /// `Σ_i cost_i x_ij²`; length dim.
    pub(crate) column_squares: Vec<f32>,
}

impl Problem {
    /// Copies the training set.
    pub(crate) fn new<I: Index, T: Value>(
        x: CsrView<'_, I, T>,
        y: &CsrOwned,
        weights: Option<&[f32]>,
        params: &super::Params,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let weight = |row: usize| weights.map_or(1.0, |weights| weights[row]);
        let n_features = x.n_cols();
        let mut x = CsrOwned::from_view(x, params.normalize)?;
        watch.step(0)?;
        // A hashed or declared width costs nothing in the solvers.
        let features = x.drop_empty_columns()?;
        if params.fit_intercept {
            x.append_ones()?;
        }
        let cost = (0..y.n_rows()).map(|row| (2.0 * params.c * f64::from(weight(row))) as f32);
        let cost = collected("number of rows", cost)?;
        let total_cost: f64 = cost.iter().map(|&cost| f64::from(cost)).sum();
        watch.step(0)?;
        check_magnitude(&x, &cost)?;
        watch.step(0)?;
        let xt = x.transpose()?;
        let column_sums = |term: fn(f64) -> f64, share: f64| -> Result<Vec<f32>, Error> {
            let column = |j| {
                let (rows, values) = xt.row(j);
                let terms = rows.iter().zip(values);
                let sum: f64 = terms
                    .map(|(&row, &value)| f64::from(cost[row as usize]) * term(f64::from(value)))
                    .sum();
                (sum / share) as f32
            };
            collected("number of features", (0..x.n_cols).map(column))
        };
        let mean = column_sums(|v| v, total_cost)?;
        watch.step(0)?;
        let row_sums = |term: &dyn Fn(usize, f32) -> f32| -> Result<Vec<f32>, Error> {
            let row = |i| {
                let (cols, values) = x.row(i);
                cols.iter()
                    .zip(values)
                    .map(|(&col, &value)| term(col as usize, value))
                    .sum()
            };
            collected("number of rows", (0..x.n_rows()).map(row))
        };
        Ok(Self {
            mean_dot: row_sums(&|col, value| mean[col] * value)?,
            row_squares: row_sums(&|_, value| value * value)?,
            column_squares: column_sums(|v| v * v, 1.0)?,
            mean_square: mean.iter().map(|&m| f64::from(m) * f64::from(m)).sum(),
            x,
            xt,
            rows_of_label: y.transpose()?,
            features,
            n_features,
            cost,
            total_cost,
            mean,
        })
    }

    pub(crate) fn n_rows(&self) -> usize {
        self.x.n_rows()
    }

    /// Length of a weight vector, the bias included.
    pub(crate) fn dim(&self) -> usize {
        self.x.n_cols
    }

    pub(crate) fn n_labels(&self) -> usize {
        self.rows_of_label.n_rows()
    }

    /// Rows that carry `label`, in increasing order.
    pub(crate) fn positives(&self, label: u32) -> &[u32] {
        self.rows_of_label.row(label as usize).0
    }
}

/// Refuses what single precision would turn into infinities or zeros on the way: products of
/// gradients and scores go up to the square of this.
fn check_magnitude(x: &CsrOwned, cost: &[f32]) -> Result<(), Error> {
    const LARGEST: f64 = 1e17;
    const SMALLEST: f32 = 1e-30;
    let longest = (0..x.n_rows())
        .map(|row| {
            x.row(row)
                .1
                .iter()
                .map(|&value| f64::from(value).powi(2))
                .sum::<f64>()
        })
        // Values are finite as f32, so their squares are as f64, and none is NaN.
        .fold(1.0, f64::max);
    let total = cost.iter().map(|&cost| f64::from(cost)).sum::<f64>();
    let magnitude = longest * total;
    if magnitude.is_nan() || magnitude > LARGEST {
        let (name, expected) = if longest > total {
            (
                "X",
                "such that the largest squared length of a row, times 2 C and the sum of \
                 sample_weight, is at most 1e17 (see `normalize`)",
            )
        } else {
            (
                "C",
                "such that 2 C times the sum of sample_weight times the largest squared \
                 length of a row is at most 1e17 (see `normalize`)",
            )
        };
        return Err(Error::Param {
            name,
            expected,
            got: format!("{magnitude:.1e}"),
        });
    }
    match cost.iter().find(|&&cost| cost < SMALLEST) {
        Some(cost) => {
            let expected = "such that 2 C times each sample_weight is at least 1e-30";
            Err(Error::Param {
                name: "C",
                expected,
                got: format!("{cost:.1e}"),
            })
        }
        None => Ok(()),
    }
}
