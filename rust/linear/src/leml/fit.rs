//! Fits LEML. The fit prepares the training set and chooses `alpha`, the strength of the
//! regularization. Then it updates the weight matrices W and H in turns, until an update hardly lowers
//! the objective. Finally, it learns the threshold.

use super::dense::{Design, Tall};
use super::entries::Entries;
use super::held_out::{Data, FOR_ALPHA, FOR_CUT, Part, Plan};
use super::newton::Newton;
use super::params::{Checked, Loss, Params};
use super::ridge::Ridge;
use super::turns::{Labels, Turns};
use fastrand::Rng;
use manylabel_base::range::{same, same_rows};
use manylabel_base::{Error, Watch, collected, extend, few, filled, reserved};
use manylabel_sparse::{CsrOwned, CsrView, LANES, Sparse};
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
    /// Fits W and H to the rows of `x` and `y`. `y` is a matrix of ones, or `Labels` with unknown pairs.
    ///
    /// `observed` stores the positions of the known entries of Y. If it is None, all entries except the unknown
    /// pairs of `y` are known. If it is given, `y` must not have unknown pairs. If `weights` is given, the loss
    /// of each row is multiplied by the weight of the row. If `label_weights` is given, the loss of each label is
    /// multiplied by the weight of the label. All weights must be > 0. A turn updates W and then H, and `watch`
    /// counts turns. The fit runs on all threads of the pool.
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
    pub fn fit<'a>(
        &self,
        x: Sparse<'_>,
        y: impl Into<manylabel_sparse::Labels<'a>>,
        observed: Option<&CsrOwned>,
        weights: Option<&[f32]>,
        label_weights: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        let params = &self.0;
        let n = x.n_rows();
        let given = y.into();
        given.check()?;
        let y = given.ones;
        same_rows(n, y.n_rows(), weights, None)?;
        if let Some(observed) = observed {
            same("rows of observed", n, observed.n_rows())?;
            same("columns of observed", y.n_cols, observed.n_cols)?;
        }
        let n_label_weights = label_weights.map_or(y.n_cols, <[f32]>::len);
        same("length of label_weight", y.n_cols, n_label_weights)?;
        let x = x.to_owned(params.normalize)?;
        check_magnitude(&x, weights, label_weights)?;
        watch.step(0)?;
        let ends = u32_ends(&x)?;
        let design = {
            let view = CsrView::new("X", &ends, &x.indices, &x.values, x.n_cols)?;
            Design::new(view, params.fit_intercept, watch)?
        };
        let unit = unit_of_alpha(&x, weights);
        drop(x);

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
        let unit = unit * mean(label_weights.as_deref());
        let known = Labels::new(known, observed.is_none(), label_weights)?;
        let data = Data {
            x: &design,
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
            let set = |weights| Ridge::new(params, &design, &known, weights);
            fit_factors(params, data, unit, rank, &parts, set, watch)?
        } else {
            // A turn of Newton's method takes much time. So only one group of held-out rows is used
            // to choose `alpha`.
            parts.for_alpha.truncate(1);
            let set = |weights| {
                Ok(Newton {
                    params,
                    x: &design,
                    entries: Entries {
                        labels: &known,
                        loss: params.loss,
                        weights,
                    },
                })
            };
            fit_factors(params, data, unit, rank, &parts, set, watch)?
        };
        unfold(&design, fitted, &labels, n_labels, params.fit_intercept)
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
/// threshold. `set` creates the training set for given weights of the rows. `unit` is the result of
/// [`unit_of_alpha`].
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
/// requested a stop.
fn fit_factors<'w, T: Turns>(
    params: &Params,
    data: Data<'w>,
    unit: f64,
    rank: usize,
    parts: &'w Parts,
    set: impl Fn(Option<&'w [f32]>) -> Result<T, Error>,
    watch: &Watch,
) -> Result<Fitted, Error> {
    let Parts { for_alpha, for_cut } = parts;
    let sets_of = |parts: &'w [Part]| -> Result<Vec<T>, Error> {
        few(parts.iter().map(|part| set(Some(part.weights()))))
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
    let all = set(data.weights)?;
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
/// get their original numbers. If `ones` is true, one row of W belongs to the column of ones. The
/// intercepts are computed from this row.
fn unfold(
    design: &Design,
    fitted: Fitted,
    labels: &[u32],
    n_labels: usize,
    ones: bool,
) -> Result<Model, Error> {
    let Fitted { w, h, .. } = &fitted;
    let rank = w.n_cols;
    let value = |tall: &Tall, row: usize, k: usize| tall.panels[k / LANES][row].0[k % LANES];
    let shift = usize::from(ones);
    let places = design.features.iter().copied().zip(shift..);
    let mut places: Vec<(u32, usize)> = collected("number of features", places)?;
    places.sort_unstable();
    let mut rows = filled("the factor of X", 0.0, places.len() * rank)?;
    for (row, &(_, place)) in rows.chunks_exact_mut(rank.max(1)).zip(&places) {
        for (k, to) in row.iter_mut().enumerate() {
            *to = value(w, place, k);
        }
    }
    let mut ht = filled("the factor of Y", 0.0, rank * n_labels)?;
    let mut intercept = filled("number of labels", f32::NEG_INFINITY, n_labels)?;
    for (number, &label) in labels.iter().enumerate() {
        let mut sum = 0.0;
        for k in 0..rank {
            let of_label = value(h, number, k);
            ht[k * n_labels + label as usize] = of_label;
            if ones {
                sum += f64::from(of_label) * f64::from(value(w, 0, k));
            }
        }
        intercept[label as usize] = sum as f32;
    }
    let features = places.iter().map(|&(feature, _)| feature as i32);
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
/// times their mean weight, or 1 if this product is 0.
///
/// If all rows become longer by a factor, W Hᵀ must become smaller by this factor to give the same
/// scores. If all weights become larger by a factor, so does the loss. With `alpha` in this unit,
/// suitable values of `alpha` depend neither on the length of the rows nor on their weights.
fn unit_of_alpha(x: &CsrOwned, weights: Option<&[f32]>) -> f64 {
    let (mut squares, mut total) = (0.0, 0.0);
    for row in 0..x.n_rows() {
        let weight = weights.map_or(1.0, |weights| f64::from(weights[row]));
        let values = x.row(row).1.iter();
        squares += weight * values.map(|&value| f64::from(value).powi(2)).sum::<f64>();
        total += weight;
    }
    let unit = (squares / total).sqrt() * total / x.n_rows() as f64;
    if unit > 0.0 { unit } else { 1.0 }
}

/// Returns the mean of the weights of the labels, or 1 if there are none.
fn mean(weights: Option<&[f32]>) -> f64 {
    let weights = weights.unwrap_or_default();
    if weights.is_empty() {
        return 1.0;
    }
    let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
    sum / weights.len() as f64
}

/// Checks that intermediate results stay in the range of `f32`. Products of gradients and scores
/// can be as large as the square of the magnitude computed here.
///
/// # Errors
///
/// Returns [`Error::Param`] if the magnitude exceeds 1e17.
fn check_magnitude(
    x: &CsrOwned,
    weights: Option<&[f32]>,
    label_weights: Option<&[f32]>,
) -> Result<(), Error> {
    const LARGEST: f64 = 1e17;
    let square = |row: usize| -> f64 {
        let values = x.row(row).1.iter();
        values.map(|&value| f64::from(value).powi(2)).sum()
    };
    let longest = (0..x.n_rows()).map(square).fold(1.0, f64::max);
    let total = weights.map_or(x.n_rows() as f64, |weights| {
        weights.iter().map(|&weight| f64::from(weight)).sum()
    });
    let largest = label_weights.map_or(1.0, |weights| {
        let weights = weights.iter().copied().map(f64::from);
        weights.fold(0.0, f64::max)
    });
    let magnitude = longest * total * largest;
    if magnitude <= LARGEST {
        return Ok(());
    }
    Err(Error::Param {
        name: "X",
        expected: "such that the product of the sum of sample_weight, the largest label_weight and the \
                   largest squared row length is at most 1e17 (`normalize=True` scales rows to length 1)",
        got: format!("a product of {magnitude:.1e}"),
    })
}
