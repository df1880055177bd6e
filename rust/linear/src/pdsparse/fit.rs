//! Fits PD-Sparse. The fit makes passes over the rows until the duality gap is small or the
//! precision on held-out rows stops increasing. Then the post-solve fits the nonzero weights again
//! without the L1 penalty. Finally, intercepts and the threshold are learned.

use super::held_out::{self, Looks};
use super::params::Checked;
use super::problem::{MOST_CANDIDATES, Problem, State};
use super::visits::{Fit, Scratch};
use super::weights::Weights;
use fastrand::Rng;
use manylabel_base::range::same_rows;
use manylabel_base::{Error, Watch, collected, copied, extend, filled, reserved};
use manylabel_sparse::{CsrOwned, Labels, Rows};

/// A fitted model.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The weights, stored by feature in the form that [`Scorer`](crate::Scorer) reads; shape
    /// (`n_features`, `n_labels`).
    pub weights: CsrOwned,
    /// The intercepts; shape (`n_labels`). A label that occurs in no training row has −∞.
    pub intercept: Vec<f32>,
    /// The learned threshold. At this threshold, the number of predicted labels on held-out rows
    /// equals the number of true labels. It is None if it was not requested or could not be
    /// learned.
    pub cut: Option<f32>,
    /// The number of passes over the rows. Passes of the post-solve do not count (see
    /// [`Params::post_solve`](super::Params)).
    pub n_iter: usize,
    /// The duality gap before the post-solve (see [`Params::post_solve`](super::Params)). The dual
    /// problem is a minimization here, so the gap is the sum of the primal and the dual objective.
    /// It is 0 at the optimum.
    pub dual_gap: f64,
    /// The precision at 1 on held-out rows after each pass. It is the fraction of rows for which
    /// the label with the highest score is correct. Rows without labels are not counted. Empty if
    /// no rows are held out.
    pub validation: Vec<f64>,
}

impl Checked {
    /// Fits weights to the rows of `x` and `y`. The rows of `x` are already scaled. Dense rows are copied. `y` is a
    /// matrix of ones, or [`Labels`] with unknown pairs. The loss of a row leaves out the unknown labels of the row.
    ///
    /// If `weights` is given, the loss of each row is multiplied by the weight of the row. All weights must
    /// be > 0. Rows marked in `held_out` are not used for training. After each pass, the precision on these
    /// rows is measured, and the model of the best pass is returned. `watch` counts passes.
    ///
    /// A visit solves for the dual variables of one row. With
    /// [`Search::Exact`](super::Search::Exact), a visit to row i takes
    /// O(`Σ_{j∈x_i} n_weights(j) + n_labels`) time, where `n_weights(j)` is the number of nonzero
    /// weights of feature j. Visits run on one thread. Passes that only score rows run on all
    /// threads of the pool. Results do not depend on the number of threads.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if `x`, `y`, `weights` and `held_out` have different numbers of rows. Returns
    /// [`Error::Param`] if a value is not finite as `f32`, or if `C`, `weights` and `x` are so large that
    /// results leave the range of `f32`. Returns [`Error::TooLarge`] if there is not enough memory. Returns
    /// [`Error::Stopped`] if the caller requested a stop.
    #[expect(
        clippy::too_many_lines,
        reason = "the steps of the algorithm, one after the other"
    )]
    pub fn fit<'a>(
        &self,
        x: Rows<'_>,
        y: impl Into<Labels<'a>>,
        weights: Option<&[f32]>,
        held_out: Option<&[bool]>,
        watch: &Watch,
    ) -> Result<Model, Error> {
        let params = &self.0;
        let n = x.n_rows();
        let y: Labels<'_> = y.into();
        y.check()?;
        let (y, unknown) = (y.ones, y.unknown);
        same_rows(n, y.n_rows(), weights, held_out)?;
        let is_held = |row: usize| held_out.is_some_and(|held_out| held_out[row]);

        let (n_features, n_labels) = (x.n_features(), y.n_cols);
        let mut x = x.stored(watch)?;
        let features = x.drop_empty_columns()?;
        let mut train = without(y, is_held)?;
        let labels = train.drop_empty_columns()?;
        watch.step(0)?;
        let unknown = unknown
            .map(|unknown| renumbered(unknown, &labels))
            .transpose()?;
        let problem = Problem::new(x, train, unknown, weights, params)?;
        let mut fit = Fit {
            params,
            problem: &problem,
            rng: Rng::with_seed(params.seed),
            n_candidates: params.n_candidates.unwrap_or_else(|| problem.mean_labels()),
            scratch: Scratch::new(labels.len())?,
        };
        let mut state = State {
            weights: Weights::new(problem.x.n_cols(), params.l1 as f32)?,
            duals: problem.empty_duals()?,
        };

        let held = collected("number of rows", (0..n).filter(|&row| is_held(row)))?;
        let mut validation = Vec::new();
        let mut best: Option<(f64, usize, State)> = None;
        let mut gap = None; // the gap of the current model
        let mut n_iter = 0;
        while n_iter < params.max_iter {
            let pass = fit.pass(&mut state, &problem.order, true, watch)?;
            n_iter += 1;
            watch.step(1)?;
            if held_out.is_some() {
                let precision = problem.precision(&state.weights, &held, &labels, y, watch)?;
                validation.push(precision);
                if best.as_ref().is_none_or(|(best, ..)| precision > *best) {
                    best = Some((precision, n_iter, state.copied()?));
                }
                let since = best.as_ref().map_or(0, |(_, at, _)| n_iter - at);
                if since >= params.n_iter_no_change {
                    break;
                }
            }
            let (squares, sizes) = state.weights.norms();
            let primal = squares + params.l1 * sizes + pass.loss;
            // The gap of the pass is a sum over rows. Each term was computed before the visit to
            // its row, so each term belongs to different weights. Only a gap that is computed for
            // fixed weights is a bound.
            let goal = params.tol * primal;
            if pass.gap <= goal {
                let found = problem.dual_gap(&state, params.l1, watch)?;
                if found <= goal {
                    gap = Some(found);
                    break;
                }
            }
            if params.n_candidates.is_none() && pass.search > 2 * pass.rest {
                fit.n_candidates = (2 * fit.n_candidates).min(MOST_CANDIDATES);
            }
        }
        let mut n_post = n_iter;
        let mut precision_of_best = None;
        if let Some((precision, at, of_best)) = best {
            (precision_of_best, n_post, state) = (Some(precision), at, of_best);
            gap = None;
        }
        let dual_gap = match gap {
            Some(gap) => gap,
            None => problem.dual_gap(&state, params.l1, watch)?,
        };
        // If the weights before the post-solve are better on held-out rows, these weights are used.
        let mut before = None;
        if params.post_solve && params.l1 > 0.0 {
            if precision_of_best.is_some() {
                before = Some(state.weights.copied()?);
            }
            fit.post_solve(&mut state, n_post, watch)?;
            let precision = precision_of_best
                .map(|_| problem.precision(&state.weights, &held, &labels, y, watch))
                .transpose()?;
            if precision >= precision_of_best {
                before = None;
            }
        }
        let best = before.as_ref().unwrap_or(&state.weights);
        let found = best.to_csr(labels.len())?;
        let row_weight = |row: usize| weights.map_or(1.0, |weights| weights[row]);
        let trained_on = (0..n).filter(|&row| !is_held(row));
        let log_frequencies = log_frequencies(&problem, trained_on, row_weight)?;
        let (mut factor, mut cut) = (0.0, None);
        if params.fit_intercept || params.learn_cut {
            let looks = |rows: &mut dyn Iterator<Item = u32>, y: &CsrOwned| {
                let wanted = rows.map(|row| {
                    let n_carried = y.row(row as usize).0.len();
                    f64::from(row_weight(row as usize)) * n_carried as f64
                });
                Looks::new(&log_frequencies, params.fit_intercept, wanted.sum())
            };
            let mut seen;
            if held_out.is_some() {
                let rows = collected(
                    "number of held-out rows",
                    held.iter().map(|&row| row as u32),
                )?;
                let known = |row: usize| {
                    let carried = y.row(row).0.iter();
                    let places = carried.filter_map(|label| labels.binary_search(label).ok());
                    collected("number of labels of a row", places.map(|at| at as u32))
                };
                seen = looks(&mut rows.iter().copied(), y);
                problem.look(best, &rows, &mut seen, (known, row_weight), watch)?;
            } else {
                let parts = held_out::parts(n, params.seed)?;
                let known = |row: usize| copied("number of labels of a row", problem.y.row(row).0);
                seen = looks(&mut parts.iter().flatten().copied(), &problem.y);
                for rows in &parts {
                    fit.forget(&mut state, rows, watch)?;
                    problem.look(&state.weights, rows, &mut seen, (known, row_weight), watch)?;
                }
            }
            (factor, cut) = seen.decide();
        }
        let mut intercept = filled("number of labels", f32::NEG_INFINITY, n_labels)?;
        for (&label, log_frequency) in labels.iter().zip(&log_frequencies) {
            // Adding 0 turns -0 into 0.
            intercept[label as usize] = factor * log_frequency + 0.0;
        }
        Ok(Model {
            weights: spread(&found, &features, n_features, &labels, n_labels)?,
            intercept,
            cut: cut.filter(|_| params.learn_cut),
            n_iter,
            dual_gap,
            validation,
        })
    }
}

/// Copies `y`, but without the entries of rows for which `is_left_out` is true.
fn without(y: &CsrOwned, is_left_out: impl Fn(usize) -> bool) -> Result<CsrOwned, Error> {
    let mut out = CsrOwned {
        indptr: reserved("number of rows", y.n_rows() + 1)?,
        indices: reserved("number of pairs of row and label", y.indices.len())?,
        values: reserved("number of pairs of row and label", y.values.len())?,
        n_cols: y.n_cols,
    };
    out.indptr.push(0);
    for row in 0..y.n_rows() {
        if !is_left_out(row) {
            let (labels, values) = y.row(row);
            extend(
                "number of labels of a row",
                &mut out.indices,
                labels.iter().copied(),
            )?;
            extend(
                "number of labels of a row",
                &mut out.values,
                values.iter().copied(),
            )?;
        }
        out.indptr.push(out.indices.len());
    }
    Ok(out)
}

/// Copies the columns `labels` of `y`. Column numbers of the copy are positions in `labels`.
fn renumbered(y: &CsrOwned, labels: &[u32]) -> Result<CsrOwned, Error> {
    let mut out = CsrOwned {
        indptr: reserved("number of rows", y.n_rows() + 1)?,
        indices: Vec::new(),
        values: Vec::new(),
        n_cols: labels.len(),
    };
    out.indptr.push(0);
    for row in 0..y.n_rows() {
        let places = y.row(row).0.iter();
        let places = places.filter_map(|label| labels.binary_search(label).ok());
        extend(
            "number of unknown labels",
            &mut out.indices,
            places.map(|at| at as u32),
        )?;
        out.indptr.push(out.indices.len());
    }
    out.values = filled("number of unknown labels", 1.0, out.indices.len())?;
    Ok(out)
}

/// Converts the numbers of features and labels to their original numbers. Row r of `found` becomes
/// row `features[r]` of `n_features` rows. Label l becomes label `labels[l]` of `n_labels` labels.
fn spread(
    found: &CsrOwned,
    features: &[u32],
    n_features: usize,
    labels: &[u32],
    n_labels: usize,
) -> Result<CsrOwned, Error> {
    let mut indptr = filled("number of features", 0, n_features + 1)?;
    for (row, &feature) in features.iter().enumerate() {
        indptr[feature as usize + 1] = found.row(row).0.len();
    }
    for feature in 0..n_features {
        indptr[feature + 1] += indptr[feature];
    }
    let indices = found.indices.iter().map(|&label| labels[label as usize]);
    Ok(CsrOwned {
        indptr,
        indices: collected("number of weights", indices)?,
        values: copied("number of weights", &found.values)?,
        n_cols: n_labels,
    })
}

/// Returns, for each label, the logarithm of a weighted fraction of `rows`: the rows that have the label,
/// among the rows for which the label is known. Half a row of mean weight with the label and half a row
/// without it are added. So no fraction is 0 or 1.
fn log_frequencies(
    Problem { y, unknown, .. }: &Problem<'_>,
    rows: impl Iterator<Item = usize>,
    weight: impl Fn(usize) -> f32,
) -> Result<Vec<f32>, Error> {
    let mut counts = filled("number of labels", 0.0, y.n_cols)?;
    let mut unknown_counts = filled("number of labels", 0.0, y.n_cols)?;
    let (mut total, mut n_rows) = (0.0, 0.0);
    for row in rows {
        let weight = f64::from(weight(row));
        (total, n_rows) = (total + weight, n_rows + 1.0);
        for &label in y.row(row).0 {
            counts[label as usize] += weight;
        }
        if let Some(unknown) = unknown {
            for &label in unknown.row(row).0 {
                unknown_counts[label as usize] += weight;
            }
        }
    }
    let mean = if total > 0.0 { total / n_rows } else { 1.0 };
    let shares = counts
        .iter()
        .zip(&unknown_counts)
        .map(|(count, unknown)| (count + 0.5 * mean) / (total - unknown + mean));
    collected(
        "number of labels",
        shares.map(|share: f64| share.ln() as f32),
    )
}
