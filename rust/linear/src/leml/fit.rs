//! Fits LEML. The fit prepares the training set and chooses `alpha`, the strength of the
//! regularization. Then it updates the weight matrices W and H in turns, until an update hardly lowers
//! the objective. Finally, it learns the threshold.

use super::design::{Design, gram_sums};
use super::entries::Entries;
use super::held_out::{Data, FOR_ALPHA, FOR_CUT, Part, Plan, weights_without};
use super::newton::Newton;
use super::params::{Checked, Loss, Params};
use super::ridge::Ridge;
use super::tall::Tall;
use super::turns::{Labels, Turns};
use crate::moments::{GramSums, Moments};
use fastrand::Rng;
use manylabel_base::range::{same, same_rows};
use manylabel_base::{Error, Watch, collected, extend, few, filled, reserved};
use manylabel_sparse::{CsrOwned, CsrView, LANES, Sparse, TableRows};
use std::f64::consts::TAU;

/// The value of `alpha` if no row can be held out to choose it. It applies to rows of unit length
/// and weight 1. It is the default of the authors' program.
const ALPHA_OF_FEW_ROWS: f64 = 0.1;

/// A fitted model. The scores of a row x are `x W Hᵀ + intercept`. Only the features of x that
/// occur in training rows are used.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The features that occur in training rows, in increasing order.
    pub features: Vec<i32>,
    /// The weight matrix W, stored row by row; shape (features, `rank`). There is one row for each
    /// feature in `features`.
    pub w: Vec<f32>,
    /// `Hᵀ`, stored row by row; shape (`rank`, `n_labels`). The columns of labels without a known
    /// positive entry are zero.
    pub ht: Vec<f32>,
    /// The number of columns of the weight matrices W and H.
    pub rank: usize,
    /// The intercepts; shape (`n_labels`). A label without a known positive entry has −∞. If no
    /// intercepts are fitted, all other labels have 0.
    pub intercept: Vec<f32>,
    /// The objective after each turn. A turn updates the weight matrices W and H once.
    pub objective: Vec<f64>,
    /// The weight of the squared norms of the weight matrices W and H in the objective. It was
    /// given by the user or chosen by the fit.
    pub alpha: f64,
    /// The learned threshold. At this threshold, the number of predicted labels equals the number
    /// of true labels, counted on held-out rows. It is None if it was not requested or could not be
    /// learned.
    pub cut: Option<f32>,
}

impl Checked {
    /// Fits W and H to the rows of `x` and their targets. A turn updates W and then H, and `watch` counts turns. The
    /// fit runs on all threads of the pool.
    ///
    /// The memory is about 14 bytes per stored value of X, `4 rank` bytes per row, and `12 rank`
    /// bytes per feature and per label. Newton's method takes several times `4 rank` bytes per row.
    /// The time of a turn depends on the loss:
    ///
    /// - For squared loss, if at most a quarter of the entries of each label are unknown and `observed` and
    ///   `label_weights` are None, a turn takes O(`cg_max_iter` · `rank`) time per stored value of X,
    ///   O(`rank`) time per unknown pair, and O(`rank`²) time per row, feature and label.
    /// - Otherwise each step of conjugate gradients takes O(`rank`) time per stored value of X and per known
    ///   entry. For squared loss with unknown pairs in `y` and no `observed`, a step takes O(`rank`) time per
    ///   stored value of X, per entry of Y that is 1 and per unknown pair, and O(`rank`²) time per row and per
    ///   label.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the shapes of the arguments do not agree. Returns
    /// [`Error::Param`] if a value is not finite as `f32`, or if `x` and `weights` are so large that results
    /// leave the range of `f32`. Returns [`Error::TooLarge`] if there is not enough memory. Returns
    /// [`Error::Stopped`] if the caller requested a stop.
    pub fn fit(&self, x: Sparse<'_>, targets: &Targets<'_>, watch: &Watch) -> Result<Model, Error> {
        let params = &self.0;
        targets.check(x.n_rows())?;
        let x = x.to_owned(params.normalize)?;
        let lengths = Lengths::of(&x, targets.weights);
        check_magnitude(lengths.longest, targets)?;
        watch.step(0)?;
        let ends = u32_ends(&x)?;
        let design = {
            let view = CsrView::new("X", &ends, &x.indices, &x.values, x.n_cols)?;
            Design::sparse(view, params.fit_intercept, targets.weights, watch)?
        };
        drop(x);
        self.fit_design(&design, lengths.total, targets, watch)
    }

    /// Fits W and H to dense rows. The arguments and the result are those of [`fit`](Self::fit), except that `rows` are
    /// scaled already, and have a column of ones if intercepts are fitted.
    ///
    /// The objective is the same as for sparse rows with these values. X is not copied. The memory is that of
    /// [`fit`](Self::fit), without the memory for stored values. For squared loss, if X has no more columns than twice
    /// the number of its rows, a Gram matrix of its columns is kept, unless it would be large in comparison with X. The
    /// Gram matrix takes O(rows · features²) time, once for all rows and once for each group of held-out rows. A step of
    /// conjugate gradients then takes O(`rank` · features²) time and does not read X.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`fit`](Self::fit).
    pub fn fit_dense(
        &self,
        rows: TableRows<'_>,
        targets: &Targets<'_>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        let ones = self.0.fit_intercept;
        targets.check(rows.n_rows())?;
        let equal = if targets.weights.is_none() {
            filled("number of rows", 1.0, rows.n_rows())?
        } else {
            Vec::new()
        };
        let weights = targets.weights.unwrap_or(&equal);
        // Newton's method does not use the Gram matrix.
        let for_ridge = self.0.loss == Loss::Squared
            && targets.observed.is_none()
            && targets.label_weights.is_none();
        let gram_sums = if for_ridge {
            gram_sums(&rows)
        } else {
            GramSums::None
        };
        let moments = Moments::new(&rows, weights, gram_sums, watch)?;
        drop(equal);
        check_magnitude(moments.longest, targets)?;
        let n_features = rows.dim() - usize::from(ones);
        let total = moments.squares[..n_features].iter().sum();
        let design = Design::dense(rows, ones, moments, watch)?;
        self.fit_design(&design, total, targets, watch)
    }

    /// Fits W and H to prepared rows. `total` is [`Lengths::total`].
    fn fit_design(
        &self,
        design: &Design<'_>,
        total: f64,
        targets: &Targets<'_>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        let params = &self.0;
        let Targets {
            labels: given,
            observed,
            weights,
            label_weights,
        } = *targets;
        let (n, y) = (design.n_rows, given.ones);

        // Labels without a known positive entry are left out of the factors.
        let mut known = match (observed, given.unknown) {
            (Some(observed), _) => known_entries(y, observed)?,
            (None, Some(unknown)) => with_unknown(y, unknown)?,
            (None, None) => y.copied()?,
        };
        let n_labels = y.n_cols;
        let labels = keep_seen(&mut known)?;
        let rank = params.rank.min(labels.len()).min(n);
        let label_weights = label_weights.map(|all| {
            let kept = labels.iter().map(|&label| all[label as usize]);
            collected("number of labels", kept)
        });
        let label_weights = label_weights.transpose()?;
        let unit = unit_of_alpha(total, n, weights) * mean(label_weights.as_deref());
        let known = Labels::new(known, observed.is_none(), label_weights)?;
        let data = Data {
            x: design,
            labels: &known,
            weights,
            loss: params.loss,
        };
        let draw = |plan: &Plan, wanted: bool| {
            let parts = wanted.then(|| plan.draw(n, known.len(), weights, params.seed));
            parts.unwrap_or_else(|| Ok(Vec::new()))
        };
        let mut parts = Parts {
            for_alpha: draw(&FOR_ALPHA, params.alpha.is_none())?,
            for_cut: draw(&FOR_CUT, params.learn_cut)?,
        };
        let fitted = if rank == 0 {
            Fitted {
                w: Tall::zeros(design.n_cols(), 0)?,
                h: Tall::zeros(0, 0)?,
                alpha: params.alpha.unwrap_or(unit),
                objective: Vec::new(),
                cut: None,
            }
        } else if params.loss == Loss::Squared && Ridge::suits(&known) {
            let set = |part| Ridge::new(params, design, &known, weights, part, watch);
            fit_factors(params, data, unit, rank, &parts, set, watch)?
        } else {
            // A turn of Newton's method takes much time. So only one group of held-out rows is used
            // to choose `alpha`.
            parts.for_alpha.truncate(1);
            let newton = |weights| Newton {
                params,
                x: design,
                entries: Entries {
                    labels: &known,
                    loss: params.loss,
                    weights,
                },
            };
            let set = |part| Ok(newton(weights_without(part, weights)));
            fit_factors(params, data, unit, rank, &parts, set, watch)?
        };
        unfold(design, fitted, &labels, n_labels)
    }
}

/// Y and the weights of a training set.
#[derive(Clone, Copy)]
pub struct Targets<'a> {
    /// Y, in which some entries may be unknown.
    pub labels: manylabel_sparse::Labels<'a>,
    /// The positions of the known entries of Y. If it is None, all entries except the unknown pairs of `labels` are
    /// known. If it is given, `labels` must not have unknown pairs.
    pub observed: Option<&'a CsrOwned>,
    /// The weights of the rows; > 0. The loss of a row is multiplied by its weight. None means equal weights.
    pub weights: Option<&'a [f32]>,
    /// The weights of the labels; > 0. The loss of a label is multiplied by its weight. None means equal weights.
    pub label_weights: Option<&'a [f32]>,
}

impl<'a> From<manylabel_sparse::Labels<'a>> for Targets<'a> {
    /// Returns targets without weights.
    fn from(labels: manylabel_sparse::Labels<'a>) -> Self {
        Self {
            labels,
            observed: None,
            weights: None,
            label_weights: None,
        }
    }
}

impl Targets<'_> {
    /// Checks the shapes.
    fn check(&self, n_rows: usize) -> Result<(), Error> {
        self.labels.check()?;
        let y = self.labels.ones;
        same_rows(n_rows, y.n_rows(), self.weights, None)?;
        if let Some(observed) = self.observed {
            same("rows of observed", n_rows, observed.n_rows())?;
            same("columns of observed", y.n_cols, observed.n_cols)?;
        }
        let n_label_weights = self.label_weights.map_or(y.n_cols, <[f32]>::len);
        same("length of label_weight", y.n_cols, n_label_weights)
    }
}

/// Appends the objective after a turn, which is an update of W and then of H. Returns true if the
/// fit should end. This is the case after `max_iter` turns, or if the relative decrease of the
/// objective was below `tol`.
fn is_last(params: &Params, objective: &mut Vec<f64>, value: f64) -> bool {
    let before = objective.last().copied();
    objective.push(value);
    objective.len() >= params.max_iter
        || before.is_some_and(|before| before - value < params.tol * before)
}

/// The result of a fit. Features are ordered as the columns of [`Design`], and labels are ordered
/// as in [`Labels`].
struct Fitted {
    w: Tall,
    h: Tall,
    alpha: f64,
    objective: Vec<f64>,
    cut: Option<f32>,
}

/// Groups of held-out rows: one list for choosing `alpha` and one for the threshold. A list is
/// empty if its value is not to be learned.
struct Parts {
    for_alpha: Vec<Part>,
    for_cut: Vec<Part>,
}

/// Chooses `alpha` if `params` does not contain it, updates W and H in turns, and learns the
/// threshold. `set` creates the training set, without the rows that a part holds out. `unit` is the result of
/// [`unit_of_alpha`].
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
/// requested a stop.
fn fit_factors<'w, T: Turns>(
    params: &Params,
    data: Data<'w, '_>,
    unit: f64,
    rank: usize,
    parts: &'w Parts,
    set: impl Fn(Option<&'w Part>) -> Result<T, Error>,
    watch: &Watch,
) -> Result<Fitted, Error> {
    let Parts { for_alpha, for_cut } = parts;
    let sets_of = |parts: &'w [Part]| -> Result<Vec<T>, Error> {
        few(parts.iter().map(|part| set(Some(part))))
    };
    let alpha = match params.alpha {
        Some(alpha) => alpha,
        None => data
            .best_alpha(
                (unit, params.max_iter),
                rank,
                for_alpha,
                &sets_of(for_alpha)?,
                watch,
            )?
            .unwrap_or(ALPHA_OF_FEW_ROWS * unit),
    };
    let all = set(None)?;
    let mut factors = all.start(rank, watch)?;
    let mut objective = Vec::new();
    loop {
        let value = all.turn(&mut factors, alpha, watch)?;
        watch.step(1)?;
        if is_last(params, &mut objective, value) {
            break;
        }
    }
    let cut = data.cut(&factors, alpha, for_cut, &sets_of(for_cut)?, watch)?;
    let (w, h) = all.factors(&factors)?;
    Ok(Fitted {
        w,
        h,
        alpha,
        objective,
        cut,
    })
}

/// Returns the initial H, stored row by row. Its entries are independent normal numbers with
/// variance 1 / rank, drawn by the Box–Muller method.
pub(super) fn start(seed: u64, n_labels: usize, rank: usize) -> Result<Vec<f32>, Error> {
    let mut rng = Rng::with_seed(seed);
    let mut normal = || {
        // The number is in (0, 1], so that the logarithm is finite.
        let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
        (radius * (TAU * rng.f64()).cos() / (rank as f64).sqrt()) as f32
    };
    collected("the factor of Y", (0..n_labels * rank).map(|_| normal()))
}

/// Converts the array `indptr` of `x`, which holds the end of each row, to `u32`.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there are more than 2³²−1 stored values.
fn u32_ends(x: &CsrOwned) -> Result<Vec<u32>, Error> {
    // Row ends do not decrease, so the last row end is the largest.
    if u32::try_from(x.indices.len()).is_err() {
        return Err(Error::TooLarge {
            what: "number of stored values of X",
            got: format!("{}; at most {} are supported", x.indices.len(), u32::MAX),
        });
    }
    collected("number of rows", x.indptr.iter().map(|&end| end as u32))
}

/// Returns the known entries of Y. They have the positions of `observed`, and their values are 0 or
/// 1 as in `y`.
fn known_entries(y: &CsrOwned, observed: &CsrOwned) -> Result<CsrOwned, Error> {
    let mut known = observed.copied()?;
    for row in 0..y.n_rows() {
        let positives = y.row(row).0;
        let range = known.indptr[row]..known.indptr[row + 1];
        for at in range {
            let is_positive = positives.binary_search(&known.indices[at]).is_ok();
            known.values[at] = f32::from(u8::from(is_positive));
        }
    }
    Ok(known)
}

/// Returns the entries of both matrices, with the value 1 for the entries of `y` and NaN for the entries of
/// `unknown`.
fn with_unknown(y: &CsrOwned, unknown: &CsrOwned) -> Result<CsrOwned, Error> {
    const ENTRIES: &str = "number of labels and unknown entries";
    let size = y.indices.len() + unknown.indices.len();
    let mut both = CsrOwned {
        indptr: reserved("number of rows", y.n_rows() + 1)?,
        indices: reserved(ENTRIES, size)?,
        values: reserved(ENTRIES, size)?,
        n_cols: y.n_cols,
    };
    both.indptr.push(0);
    let mut of_row: Vec<(u32, f32)> = Vec::new();
    for row in 0..y.n_rows() {
        of_row.clear();
        let ones = y.row(row).0.iter().map(|&label| (label, 1.0));
        let nans = unknown.row(row).0.iter().map(|&label| (label, f32::NAN));
        extend("number of labels of a row", &mut of_row, ones.chain(nans))?;
        of_row.sort_unstable_by_key(|&(label, _)| label);
        let (labels, values) = (of_row.iter().map(|of| of.0), of_row.iter().map(|of| of.1));
        extend(ENTRIES, &mut both.indices, labels)?;
        extend(ENTRIES, &mut both.values, values)?;
        both.indptr.push(both.indices.len());
    }
    Ok(both)
}

/// Removes the columns (labels) without a positive entry. The other columns are renumbered in the
/// same order. Returns the old number of each remaining column.
fn keep_seen(known: &mut CsrOwned) -> Result<Vec<u32>, Error> {
    const UNSEEN: u32 = u32::MAX;
    let mut new = filled("number of labels", UNSEEN, known.n_cols)?;
    for (&label, &value) in known.indices.iter().zip(&known.values) {
        if value > 0.0 {
            new[label as usize] = 0;
        }
    }
    let seen = (0..known.n_cols as u32).filter(|&label| new[label as usize] != UNSEEN);
    let labels = collected("number of labels", seen)?;
    for (number, &label) in (0..).zip(&labels) {
        new[label as usize] = number;
    }
    let mut kept = 0;
    let mut begin = 0;
    for row in 0..known.n_rows() {
        let end = known.indptr[row + 1];
        for at in begin..end {
            let label = new[known.indices[at] as usize];
            if label != UNSEEN {
                known.indices[kept] = label;
                known.values[kept] = known.values[at];
                kept += 1;
            }
        }
        begin = end;
        known.indptr[row + 1] = kept;
    }
    known.indices.truncate(kept);
    known.values.truncate(kept);
    known.n_cols = labels.len();
    Ok(labels)
}

/// Converts the result of a fit to a model. Features are sorted in increasing order, and all labels
/// get their original numbers. The intercepts are computed from the row of W that belongs to the column of
/// ones, if there is one.
fn unfold(
    design: &Design<'_>,
    fitted: Fitted,
    labels: &[u32],
    n_labels: usize,
) -> Result<Model, Error> {
    let Fitted { w, h, .. } = &fitted;
    let rank = w.n_cols;
    let value = |tall: &Tall, row: usize, k: usize| tall.panels[k / LANES][row].0[k % LANES];
    let mut rows = filled("the factor of X", 0.0, design.columns.len() * rank)?;
    for (row, &(_, column)) in rows.chunks_exact_mut(rank.max(1)).zip(&design.columns) {
        for (k, to) in row.iter_mut().enumerate() {
            *to = value(w, column, k);
        }
    }
    let mut ht = filled("the factor of Y", 0.0, rank * n_labels)?;
    let mut intercept = filled("number of labels", f32::NEG_INFINITY, n_labels)?;
    for (number, &label) in labels.iter().enumerate() {
        let mut sum = 0.0;
        for k in 0..rank {
            let of_label = value(h, number, k);
            ht[k * n_labels + label as usize] = of_label;
            if let Some(ones) = design.ones {
                sum += f64::from(of_label) * f64::from(value(w, ones, k));
            }
        }
        intercept[label as usize] = sum as f32;
    }
    let features = design.columns.iter().map(|&(feature, _)| feature as i32);
    Ok(Model {
        features: collected("number of features", features)?,
        w: rows,
        ht,
        rank,
        intercept,
        objective: fitted.objective,
        alpha: fitted.alpha,
        cut: fitted.cut,
    })
}

/// Returns the unit in which `alpha` is measured. It is the root mean square length of the rows
/// times their mean weight, or 1 if this product is 0. `total` is [`Lengths::total`].
///
/// If all rows become longer by a factor, W Hᵀ must become smaller by this factor to give the same
/// scores. If all weights become larger by a factor, so does the loss. With `alpha` in this unit,
/// suitable values of `alpha` depend neither on the length of the rows nor on their weights.
fn unit_of_alpha(total: f64, n_rows: usize, weights: Option<&[f32]>) -> f64 {
    let weight = weights.map_or(n_rows as f64, sum);
    let unit = (total / weight).sqrt() * weight / n_rows as f64;
    if unit > 0.0 { unit } else { 1.0 }
}

/// The squared lengths of the rows of X.
struct Lengths {
    /// The largest squared length, at least 1.
    longest: f64,
    /// The sum of the squared lengths, weighted by the weights of the rows.
    total: f64,
}

impl Lengths {
    fn of(x: &CsrOwned, weights: Option<&[f32]>) -> Self {
        let (mut longest, mut total) = (1.0f64, 0.0);
        for row in 0..x.n_rows() {
            let values = x.row(row).1.iter();
            let square: f64 = values.map(|&value| f64::from(value).powi(2)).sum();
            longest = longest.max(square);
            total += weights.map_or(1.0, |weights| f64::from(weights[row])) * square;
        }
        Self { longest, total }
    }
}

/// Returns the sum of some weights.
fn sum(weights: &[f32]) -> f64 {
    weights.iter().map(|&weight| f64::from(weight)).sum()
}

/// Returns the mean of the weights of the labels, or 1 if there are none.
fn mean(weights: Option<&[f32]>) -> f64 {
    let weights = weights.unwrap_or_default();
    if weights.is_empty() {
        return 1.0;
    }
    sum(weights) / weights.len() as f64
}

/// Checks that intermediate results stay in the range of `f32`. `longest` is the largest squared length of a row.
/// Products of gradients and scores can be as large as the square of the magnitude computed here.
///
/// # Errors
///
/// Returns [`Error::Param`] if the magnitude exceeds 1e17.
fn check_magnitude(longest: f64, targets: &Targets<'_>) -> Result<(), Error> {
    const LARGEST: f64 = 1e17;
    let n_rows = targets.labels.ones.n_rows();
    let total = targets.weights.map_or(n_rows as f64, sum);
    let largest = targets.label_weights.map_or(1.0, |weights| {
        let weights = weights.iter().copied().map(f64::from);
        weights.fold(0.0, f64::max)
    });
    let magnitude = longest * total * largest;
    if magnitude <= LARGEST {
        return Ok(());
    }
    Err(Error::Param {
        name: "X",
        expected: "small enough that sum(sample_weight) * max(label_weight) * (largest squared length of \
                   a row) is at most 1e17 (`normalize=True` scales rows to length 1)",
        got: format!("a product of {magnitude:.1e}"),
    })
}
