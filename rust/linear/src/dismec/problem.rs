//! Prepares the data that all labels share: X with a column of ones for the intercept, sums over X, and
//! the transpose of X.
//!
//! The data are prepared once per fit on one thread, in a few passes over X. Between the passes, the fit
//! checks for a stop request.

use super::params::Loss;
use super::targets::{Factors, Outputs, Targets};
use manylabel_base::{Error, Watch, budget, collected, filled};
use manylabel_sparse::{CsrOwned, CsrRef, Sparse, Stored};

/// The training set in the form that the solvers need. It has n rows and `dim` features, including
/// a feature for the intercept.
///
/// The training set takes 8 bytes per stored value, or 4 bytes if all values are stored ([`Stored::Full`]), unless the
/// caller owns the rows.
#[derive(Debug)]
pub(crate) struct Problem<'a> {
    /// The rows, optionally scaled to unit length; shape (n, dim). The last column belongs to the
    /// intercept. Columns without entries are left out.
    pub(crate) x: Stored<'a>,
    /// The positive rows, the unknown rows and the factors of the labels.
    outputs: Outputs,
    /// The loss of a row for a label.
    pub(crate) loss: Loss,
    /// The original number of each column of `x`, in increasing order, without the column of the
    /// intercept.
    pub(crate) features: Vec<u32>,
    /// The number of features of the original X.
    pub(crate) n_features: usize,
    /// `cost_i = 2 C m_i` for each row, where `m_i` is the weight of the row; shape (n). With the squared hinge
    /// loss, it is the second derivative of the loss of a row with respect to its score, where the loss is
    /// nonzero.
    pub(crate) cost: Vec<f32>,
    /// The sum of the costs of all rows, `Σ_i cost_i`.
    pub(crate) total_cost: f64,
    /// The mean row, weighted by cost; shape (dim).
    pub(crate) mean: Vec<f32>,
    /// The squared length of the mean row, `‖mean‖²`.
    pub(crate) mean_square: f64,
    /// `mean · x_i` for each row; shape (n).
    pub(crate) mean_dot: Vec<f32>,
    /// The features with the largest means.
    pub(crate) common: Common,
    /// The squared length of each row, `‖x_i‖²`, including the column of the intercept; shape (n).
    pub(crate) row_squares: Vec<f32>,
}

/// The largest number of [`Common`] features. Their weights take 64 kB for thirty-two labels in a search.
const MOST_COMMON: usize = 1 << 10;

/// The features whose means have the largest absolute values, at most [`MOST_COMMON`]. The solver for rare labels
/// computes with the mean row. It subtracts the means of common features from the weights. For all other features
/// together, a row has one precomputed dot product.
#[derive(Debug)]
pub(crate) struct Common {
    /// The common features, in increasing order. The intercept is one of them.
    pub(crate) features: Vec<u32>,
    /// The mean row, with 0 for the other features; shape (dim).
    pub(crate) mean: Vec<f32>,
    /// The largest absolute mean of the other features.
    pub(crate) largest_other: f32,
    /// The dot product of each row and the mean row without common features; shape (n).
    pub(crate) others_dot: Vec<f32>,
}

impl Common {
    /// Chooses the common features of `rows`, which have the mean row `mean`. If `has_intercept` is true, the last
    /// feature is the intercept.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    fn new(rows: CsrRef<'_>, mean: &[f32], has_intercept: bool) -> Result<Self, Error> {
        const FEATURES: &str = "number of features";
        let mut features = collected(FEATURES, 0..mean.len() as u32)?;
        let mut largest_other = 0.0;
        if features.len() > MOST_COMMON {
            let is_intercept = |col: u32| has_intercept && col as usize + 1 == mean.len();
            let size = |col: u32| mean[col as usize].abs();
            let (_, _, others) = features.select_nth_unstable_by(MOST_COMMON - 1, |&a, &b| {
                let by_size = size(b).total_cmp(&size(a)).then(a.cmp(&b));
                is_intercept(b).cmp(&is_intercept(a)).then(by_size)
            });
            largest_other = others.iter().map(|&col| size(col)).fold(0.0, f32::max);
            features.truncate(MOST_COMMON);
            features.sort_unstable();
        }
        let mut common = Self {
            mean: filled(FEATURES, 0.0, mean.len())?,
            features,
            largest_other,
            others_dot: Vec::new(),
        };
        for &col in &common.features {
            common.mean[col as usize] = mean[col as usize];
        }
        common.others_dot = common.others_dots(rows, mean)?;
        Ok(common)
    }

    /// Returns the dot product of each row and the mean row without common features. Rows may lack the feature of
    /// the intercept.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn others_dots(&self, rows: CsrRef<'_>, mean: &[f32]) -> Result<Vec<f32>, Error> {
        row_sums(rows, |col, value| (mean[col] - self.mean[col]) * value)
    }
}

/// Returns `Σ_j term(j, x_ij)` for each row i.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory.
fn row_sums(rows: CsrRef<'_>, term: impl Fn(usize, f32) -> f32) -> Result<Vec<f32>, Error> {
    let row = |(cols, values): (&[u32], &[f32])| {
        cols.iter()
            .zip(values)
            .map(|(&col, &value)| term(col as usize, value))
            .sum()
    };
    collected("number of rows", rows.rows(0..rows.n_rows()).map(row))
}

/// The training set by column, for the solver of frequent labels. This solver computes scores as products
/// along the rows of X, and gradients as products along the columns. The copy takes as much memory as the training set,
/// unless the caller owns it.
#[derive(Debug)]
pub(crate) struct Columns<'a> {
    /// The transpose of [`Problem::x`]; shape (dim, n).
    pub(crate) xt: Stored<'a>,
    /// `Σ_i cost_i x_ij²` for each column; shape (dim).
    pub(crate) squares: Vec<f32>,
}

impl<'a> Problem<'a> {
    /// Makes the training set of a fit from the caller's data, in a few passes over X on one thread.
    ///
    /// The rows of `x` are copied, without columns that have no entries. They are scaled to unit length if
    /// `params.normalize` is true. A column of ones is appended if `params.fit_intercept` is true. Then the
    /// sums over the rows are computed, which are the fields from `cost` to `row_squares`. `weights` has one
    /// weight for each row; shape (n). If it is None, all weights are 1.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if values or products are outside the range of `f32`. Returns
    /// [`Error::TooLarge`] if there is not enough memory, or if `x` has more than 2³¹−2 rows or columns.
    /// Returns [`Error::Stopped`] if the caller requested a stop.
    pub(crate) fn new(
        x: Sparse<'_>,
        y: Targets<'_>,
        weights: Option<&[f32]>,
        params: &super::Params,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let n_features = x.n_cols();
        let mut x = x.to_stored(params.normalize)?;
        watch.step(0)?;
        // With hashed features, many columns have no entries. Such columns are dropped, so that
        // they take no time in the solvers.
        let features = x.drop_empty_columns()?;
        let problem = Self::of_rows(x, y.to_outputs()?, weights, params, watch)?;
        Ok(Self {
            features,
            n_features,
            ..problem
        })
    }

    /// Makes the training set of a fit from rows that are already scaled. Appends a column of ones if
    /// `params.fit_intercept` is true, and computes the sums over the rows.
    ///
    /// Every column of `x` must have entries.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`new`](Self::new).
    pub(crate) fn of_rows(
        mut x: Stored<'a>,
        outputs: Outputs,
        weights: Option<&[f32]>,
        params: &super::Params,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let n_features = x.view().n_cols();
        let features = collected("number of features", 0..n_features as u32)?;
        if params.fit_intercept {
            x.append_ones()?;
        }
        Self::of_stored(x, (features, n_features), outputs, weights, params, watch)
    }

    /// Makes the training set of a fit from rows that need no change. The rows are scaled, have no empty
    /// columns, and have a column of ones if intercepts are fitted. This function only computes the sums over
    /// the rows. `features` has two items: the original number of each column, without the column of ones,
    /// and the number of features of the original X.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`new`](Self::new).
    pub(crate) fn of_stored(
        x: Stored<'a>,
        features: (Vec<u32>, usize),
        outputs: Outputs,
        weights: Option<&[f32]>,
        params: &super::Params,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let rows = x.view();
        let cost = costs(rows.n_rows(), weights, params.c)?;
        let total_cost: f64 = cost.iter().map(|&cost| f64::from(cost)).sum();
        watch.step(0)?;
        let square = |row| {
            let (_, values) = rows.row(row);
            values
                .iter()
                .map(|&value| f64::from(value).powi(2))
                .sum::<f64>()
        };
        // Values are finite in `f32`, so their squares are finite in `f64`.
        let longest = (0..rows.n_rows()).map(square).fold(1.0, f64::max);
        check_magnitude(longest, &cost, outputs.range_of_factors())?;
        watch.step(0)?;
        let mean = column_sums(rows, &cost, |value| value, total_cost)?;
        watch.step(0)?;
        let (features, n_features) = features;
        Ok(Self {
            mean_dot: row_sums(rows, |col, value| mean[col] * value)?,
            row_squares: row_sums(rows, |_, value| value * value)?,
            common: Common::new(rows, &mean, params.fit_intercept)?,
            mean_square: mean.iter().map(|&m| f64::from(m) * f64::from(m)).sum(),
            x,
            outputs,
            loss: params.loss,
            features,
            n_features,
            cost,
            total_cost,
            mean,
        })
    }

    /// Returns the training set by column, which the solver for frequent labels needs. `frequent` lists
    /// these labels. If there are none, the result is empty.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the caller owns the rows, because only rows that the training set owns
    /// can be transposed here. Returns [`Error::TooLarge`] if there is not enough memory, or
    /// [`Error::Stopped`] if the caller requested a stop.
    pub(crate) fn columns(&self, frequent: &[u32], watch: &Watch) -> Result<Columns<'a>, Error> {
        if frequent.is_empty() {
            let none = CsrOwned {
                indptr: filled("number of features", 0, 1)?,
                indices: Vec::new(),
                values: Vec::new(),
                n_cols: self.n_rows(),
            };
            return Ok(Columns {
                xt: Stored::Owned(none),
                squares: Vec::new(),
            });
        }
        watch.step(0)?;
        let xt = match (&self.x, budget::portion()) {
            (Stored::Owned(x), Some(_)) => Stored::Owned(x.view().transposed(watch)?),
            // Without a file for memory beyond the limit, one pass in any order is faster.
            (Stored::Owned(x), None) => Stored::Owned(x.transpose()?),
            (Stored::Full(x), _) => Stored::Full(x.transpose(watch)?),
            (Stored::Borrowed(_), _) => {
                return Err(Error::Param {
                    name: "X",
                    expected: "stored with its transpose, because some labels are frequent",
                    got: "rows only".into(),
                });
            }
        };
        watch.step(0)?;
        self.columns_of(xt)
    }

    /// Returns the training set by column, given the transpose of its rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn columns_of(&self, xt: Stored<'a>) -> Result<Columns<'a>, Error> {
        Ok(Columns {
            xt,
            squares: column_sums(self.x.view(), &self.cost, |value| value * value, 1.0)?,
        })
    }

    /// Returns the number of rows.
    pub(crate) fn n_rows(&self) -> usize {
        self.x.view().n_rows()
    }

    /// Returns the length of a weight vector, including the intercept.
    pub(crate) fn dim(&self) -> usize {
        self.x.view().n_cols()
    }

    /// Returns the number of labels, including labels without positive rows.
    pub(crate) fn n_labels(&self) -> usize {
        self.outputs.rows_of_label.n_rows()
    }

    /// Returns the rows that have `label`, in increasing order.
    pub(crate) fn positives(&self, label: u32) -> &[u32] {
        self.outputs.positives(label)
    }

    /// Returns the rows for which `label` is unknown, in increasing order.
    pub(crate) fn unknown(&self, label: u32) -> &[u32] {
        self.outputs.unknown(label)
    }

    /// Returns the number of rows for which `label` is known.
    pub(crate) fn n_known(&self, label: u32) -> usize {
        self.n_rows() - self.unknown(label).len()
    }

    /// Returns the factors of the costs of the rows for `label`.
    pub(crate) fn factors(&self, label: u32) -> Factors {
        self.outputs.factors(label)
    }

    /// Returns true if labels have factors.
    pub(crate) fn has_factors(&self) -> bool {
        self.outputs.factors.is_some()
    }
}

/// Returns `2 C m_i` for each row; see [`Problem::cost`].
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory.
pub(super) fn costs(n_rows: usize, weights: Option<&[f32]>, c: f64) -> Result<Vec<f32>, Error> {
    let weight = |row: usize| weights.map_or(1.0, |weights| weights[row]);
    let cost = (0..n_rows).map(|row| (2.0 * c * f64::from(weight(row))) as f32);
    collected("number of rows", cost)
}

/// Returns the sum of `cost_i term(x_ij)` for each column j, divided by `share`. Sums are computed in `f64`,
/// in the order of the rows.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory.
fn column_sums(
    x: CsrRef<'_>,
    cost: &[f32],
    term: impl Fn(f64) -> f64,
    share: f64,
) -> Result<Vec<f32>, Error> {
    let mut sums = filled("number of features", 0.0, x.n_cols())?;
    for (&cost, (cols, values)) in cost.iter().zip(x.rows(0..cost.len())) {
        for (&col, &value) in cols.iter().zip(values) {
            sums[col as usize] += f64::from(cost) * term(f64::from(value));
        }
    }
    let sums = sums.iter().map(|sum| (sum / share) as f32);
    collected("number of features", sums)
}

/// Checks that intermediate results stay in the range of `f32`. Products of gradients and scores can be as
/// large as the square of the magnitude computed here. Also checks that costs do not become zero. Each cost
/// may be multiplied by a factor from `least` to `most`, the smallest and the largest factor of all labels.
/// `longest` is the largest squared length of a row, at least 1.
///
/// # Errors
///
/// Returns [`Error::Param`] with the name `X` or `C`, depending on which of them makes the
/// magnitude large.
pub(super) fn check_magnitude(
    longest: f64,
    cost: &[f32],
    (least, most): (f32, f32),
) -> Result<(), Error> {
    const LARGEST: f64 = 1e17;
    const SMALLEST: f32 = 1e-30;
    let total = cost.iter().map(|&cost| f64::from(cost)).sum::<f64>();
    let magnitude = longest * total * f64::from(most);
    if magnitude.is_nan() || magnitude > LARGEST {
        let name = if longest > total { "X" } else { "C" };
        let expected = "small enough that 2 * C * sum(sample_weight) * (largest weight of a label) * \
                        (largest squared length of a row) is at most 1e17 (`normalize=True` scales rows \
                        to length 1)";
        return Err(Error::Param {
            name,
            expected,
            got: format!("a product of {magnitude:.1e}"),
        });
    }
    match cost.iter().find(|&&cost| cost * least < SMALLEST) {
        Some(cost) => {
            let expected = "large enough that 2 * C * sample_weight * (smallest weight of a label) is \
                            at least 1e-30 for each row";
            Err(Error::Param {
                name: "C",
                expected,
                got: format!("a product of {:.1e}", cost * least),
            })
        }
        None => Ok(()),
    }
}
