//! Turns of W and H until the objective stands still.

use super::dense::{Design, Tall};
use super::entries::Entries;
use super::newton::{self, Half};
use super::params::{Checked, Loss, Params};
use super::ridge::Ridge;
use fastrand::Rng;
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::{CsrOwned, CsrView, Index, LANES, Value};
use std::f64::consts::TAU;

/// A fitted model. Scores are `x W Hᵀ + intercept` over the features that some row has.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The features that some training row has, in increasing order.
    pub features: Vec<i32>,
    /// W, a row for each of `features`.
    pub w: Vec<f32>,
    /// `Hᵀ`, a row of a number for each label for each of `rank`; zeros for labels never seen.
    pub ht: Vec<f32>,
    /// Columns of W.
    pub rank: usize,
    /// −∞ for labels that no training row is known to carry, 0 for the others if none are fitted.
    pub intercept: Vec<f32>,
    /// The objective after each turn.
    pub objective: Vec<f64>,
}

impl Checked {
    /// Fits W and H to the rows of `x` and `y`, whose stored entries are the labels a row carries.
    ///
    /// `observed`, if given, stores the entries of Y that are known; otherwise all are. `weights`,
    /// if given, multiplies the loss of each row; all are > 0. `watch` counts turns.
    ///
    /// Memory: 14 bytes a stored feature, `4 rank` for each row, `12 rank` for each feature and
    /// label. A turn takes, for squared loss with all entries known, `2 cg_max_iter rank` for each
    /// stored feature at most and `rank²` for each row, feature and label; for known entries `rank`
    /// a product for each of them, and otherwise for each entry of Y.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the rows of `x`, `y`, `observed` and `weights` differ, [`Error::Param`] if
    /// `x` and `weights` are too large for single precision, [`Error::TooLarge`], [`Error::Stopped`].
    pub fn fit<I: Index, T: Value>(
        &self,
        x: CsrView<'_, I, T>,
        y: &CsrOwned,
        observed: Option<&CsrOwned>,
        weights: Option<&[f32]>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        let params = &self.0;
        let same = |what, expected, got| {
            if expected == got {
                Ok(())
            } else {
                Err(Error::Shape {
                    what,
                    expected,
                    got,
                })
            }
        };
        let n = x.n_rows();
        same("rows of Y", n, y.n_rows())?;
        same(
            "length of sample_weight",
            n,
            weights.map_or(n, <[f32]>::len),
        )?;
        if let Some(observed) = observed {
            same("rows of observed", n, observed.n_rows())?;
            same("columns of observed", y.n_cols, observed.n_cols)?;
        }
        let x = CsrOwned::from_view(x, params.normalize)?;
        check_magnitude(&x, weights)?;
        watch.step(0)?;
        let ends = u32_ends(&x)?;
        let design = {
            let view = CsrView::new("X", &ends, &x.indices, &x.values, x.n_cols)?;
            Design::new(view, params.fit_intercept, watch)?
        };
        drop(x);

        // Labels never seen have no say: they are left out of the factors.
        let mut known = match observed {
            Some(observed) => known_entries(y, observed),
            None => y.clone(),
        };
        let n_labels = y.n_cols;
        let labels = keep_seen(&mut known)?;
        let rank = params.rank.min(labels.len()).min(n);
        let mut objective = Vec::new();
        let (w, h) = if rank == 0 {
            (Tall::zeros(design.n_cols(), 0)?, Tall::zeros(0, 0)?)
        } else if params.loss == Loss::Squared && observed.is_none() {
            fit_ridge(
                params,
                &design,
                &known,
                weights,
                rank,
                &mut objective,
                watch,
            )?
        } else {
            let entries = Entries::new(known, params.loss, observed.is_none(), weights)?;
            fit_entries(params, &design, &entries, rank, &mut objective, watch)?
        };
        let mut model = unfold(&design, &w, &h, &labels, n_labels, params.fit_intercept)?;
        model.objective = objective;
        Ok(model)
    }
}

/// Whether a turn is the last, after the objective it arrived at is noted.
fn is_last(params: &Params, objective: &mut Vec<f64>, value: f64) -> bool {
    let before = objective.last().copied();
    objective.push(value);
    objective.len() >= params.max_iter
        || before.is_some_and(|before| before - value < params.tol * before)
}

fn fit_ridge(
    params: &Params,
    design: &Design,
    y: &CsrOwned,
    weights: Option<&[f32]>,
    rank: usize,
    objective: &mut Vec<f64>,
    watch: &Watch,
) -> Result<(Tall, Tall), Error> {
    let ridge = Ridge::new(params, design, y, weights)?;
    let mut w = Tall::zeros(design.n_cols(), rank)?;
    let mut h = Tall::from_rows(&start(params.seed, y.n_cols, rank), y.n_cols, rank)?;
    let mut gram = h.gram(None, watch)?;
    loop {
        let turned = Ridge::turn(&w, &h, &gram, watch)?;
        w = ridge.improve_w(&turned, watch)?;
        let value;
        (h, gram, value) = ridge.best_h(&w, watch)?;
        watch.step(1)?;
        if is_last(params, objective, value) {
            return Ok((w, h));
        }
    }
}

fn fit_entries(
    params: &Params,
    design: &Design,
    entries: &Entries,
    rank: usize,
    objective: &mut Vec<f64>,
    watch: &Watch,
) -> Result<(Tall, Tall), Error> {
    let n_labels = entries.n_labels();
    let mut w = filled("the factor of X", 0.0, design.n_cols() * rank)?;
    let mut a = filled("the rows' embedding", 0.0, design.n_rows * rank)?;
    let mut h = start(params.seed, n_labels, rank);
    loop {
        let by_row = Half::of_w(design, entries, &h, rank);
        newton::improve(&by_row, params, &mut w, &mut a, watch)?;
        let by_label = Half::of_h(entries, &a, rank);
        let mut image = h.clone();
        let value = newton::improve(&by_label, params, &mut h, &mut image, watch)?;
        watch.step(1)?;
        if is_last(
            params,
            objective,
            value + params.alpha / 2.0 * newton::square(&w),
        ) {
            return Ok((
                Tall::from_rows(&w, design.n_cols(), rank)?,
                Tall::from_rows(&h, n_labels, rank)?,
            ));
        }
    }
}

/// The first H: independent normal numbers of variance 1 / rank.
fn start(seed: u64, n_labels: usize, rank: usize) -> Vec<f32> {
    let mut rng = Rng::with_seed(seed);
    let mut normal = || {
        // In (0, 1], so that the logarithm is finite.
        let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
        (radius * (TAU * rng.f64()).cos() / (rank as f64).sqrt()) as f32
    };
    (0..n_labels * rank).map(|_| normal()).collect()
}

fn u32_ends(x: &CsrOwned) -> Result<Vec<u32>, Error> {
    let too_large = || Error::TooLarge {
        what: "number of stored features",
        got: format!("{}, at most {}", x.indices.len(), u32::MAX),
    };
    let ends = x
        .indptr
        .iter()
        .map(|&end| u32::try_from(end).map_err(|_| too_large()));
    ends.collect()
}

/// The known entries with their values, 0 or 1.
fn known_entries(y: &CsrOwned, observed: &CsrOwned) -> CsrOwned {
    let mut known = observed.clone();
    for row in 0..y.n_rows() {
        let positives = y.row(row).0;
        let range = known.indptr[row]..known.indptr[row + 1];
        for at in range {
            let is_positive = positives.binary_search(&known.indices[at]).is_ok();
            known.values[at] = f32::from(u8::from(is_positive));
        }
    }
    known
}

/// Leaves out the columns without a positive entry and renumbers the others; returns what they were
/// called.
fn keep_seen(known: &mut CsrOwned) -> Result<Vec<u32>, Error> {
    const UNSEEN: u32 = u32::MAX;
    let mut new = filled("number of labels", UNSEEN, known.n_cols)?;
    for (&label, &value) in known.indices.iter().zip(&known.values) {
        if value > 0.0 {
            new[label as usize] = 0;
        }
    }
    let labels: Vec<u32> = (0..known.n_cols as u32)
        .filter(|&label| new[label as usize] != UNSEEN)
        .collect();
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

/// Puts features in increasing order, labels among all labels, and the ones' row of W into
/// intercepts.
fn unfold(
    design: &Design,
    w: &Tall,
    h: &Tall,
    labels: &[u32],
    n_labels: usize,
    ones: bool,
) -> Result<Model, Error> {
    let rank = w.n_cols;
    let value = |tall: &Tall, row: usize, k: usize| tall.panels[k / LANES][row].0[k % LANES];
    let shift = usize::from(ones);
    let mut places: Vec<(u32, usize)> = design.features.iter().copied().zip(shift..).collect();
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
    Ok(Model {
        features: places.iter().map(|&(feature, _)| feature as i32).collect(),
        w: rows,
        ht,
        rank,
        intercept,
        objective: Vec::new(),
    })
}

/// Refuses what single precision would turn into infinities on the way: products of gradients and
/// scores go up to the square of this.
fn check_magnitude(x: &CsrOwned, weights: Option<&[f32]>) -> Result<(), Error> {
    const LARGEST: f64 = 1e17;
    let square = |row: usize| -> f64 {
        let values = x.row(row).1.iter();
        values.map(|&value| f64::from(value).powi(2)).sum()
    };
    let longest = (0..x.n_rows()).map(square).fold(1.0, f64::max);
    let total = weights.map_or(x.n_rows() as f64, |weights| {
        weights.iter().map(|&weight| f64::from(weight)).sum()
    });
    let magnitude = longest * total;
    if magnitude <= LARGEST {
        return Ok(());
    }
    Err(Error::Param {
        name: "X",
        expected: "such that the sum of sample_weight times the largest squared length of a row is \
                   at most 1e17 (see `normalize`)",
        got: format!("{magnitude:.1e}"),
    })
}
