//! Computes the weights of a rare label from only a few rows.
//!
//! The *working set* consists of the positive rows of the label, and of the negative rows that violate
//! the margin. All other rows form the *background*. The solver replaces the background by one negative
//! row. The features of this row are the mean m of all rows, and its cost is the sum of the costs of
//! the background rows. The loss is convex, so the loss of the replacement is a lower bound of the loss
//! of the background. The two losses are equal if all background rows have the same score. Dual
//! coordinate descent (Hsieh et al., ICML 2008, algorithms 1 and 3) finds a dual variable α for each
//! row of the working set, and one dual variable κ for the background:
//!
//! ```text
//! w = Σ_i s_i α_i x_i − κ m,    α_i, κ ≥ 0
//! ```
//!
//! Here, `x_i` is row i of the working set, and `s_i` is 1 if the row is positive and −1 if it is negative.
//! `m · x_i` is computed once for all labels. So a step takes O(entries of the row) time for a row, and O(1)
//! time for the background. The mean m of all rows differs only slightly from the mean of the background,
//! because the working set has few rows.
//!
//! Rows for which the label is unknown are neither in the working set nor in the background. For a label with
//! such rows, m is the mean of the rows for which the label is known:
//!
//! ```text
//! m_known = m + m_rest,    m_rest = (u m − Σ_unknown cost_i x_i) / (total − u)
//! ```
//!
//! Here, u is the cost of the unknown rows, and total is the cost of all rows. `m_rest` is computed once for
//! each label. `m_known · x_i` is computed once for each row of the working set. To score all rows, the
//! solver adds `−κ m_rest` to the weights. So unknown rows need no approximation, and a step takes as long as for a
//! label without unknown rows.
//!
//! The first run of coordinate descent uses only the positive rows. Then [`Effort::searches`]
//! searches follow. A search computes approximate scores of all rows for thirty-two labels in one pass
//! (see `packed.rs`), and keeps the worst
//! violators of each label. These violators are added to the working set in up to [`Effort::joins`]
//! portions, the worst violators first. Coordinate descent runs again after each portion. When the
//! worst violators have been added, most other violators no longer violate the margin.
//!
//! Each run of coordinate descent has its own random number generator. Its seed depends on the label and the
//! size of the working set. So the labels that are solved together do not influence each other, except that
//! one search suffices if each of them continues an earlier fit or has few positive rows
//! ([`Effort::searched_once`]). In the shapes of arrays, n is the number of rows, and dim is the number of
//! features, including the feature for the intercept.

mod copies;
mod lane;
mod weights;

use self::copies::Copies;
use self::lane::{Lane, Rule};
use self::weights::NOWHERE;
use super::effort::Effort;
use super::fit::{Kept, large};
use super::packed::{
    GROUP, Group, Packed, Scores, Shifted, above, pack, pack_listed, pack_means, times_packed,
};
use super::problem::Problem;
use super::start::{Carry, Start};
use super::targets::UNKNOWN_SCORE;
use super::unseen::Unseen;
use crate::panel::{LANES, Lanes, times_panel};
use manylabel_base::{Error, Watch, budget, extend, few, filled, push};
use manylabel_sparse::CsrRef;

/// A negative row counts as a violator of the margin if its score exceeds −1 by more than this
/// number. Rows with scores closer to −1 have little loss, and there are many of them.
const MARGIN: f32 = 0.1;

/// A search also finds rows whose approximate score is lower than that of a violator by at most this number. The exact
/// scores of the rows that join first then decide which of them violate the margin. Rounded weights change the scores of
/// rows of unit length by about 0.002. Longer rows have larger errors, so a search then misses some violators near the
/// margin. A row that a search misses has a loss of about `MARGIN²`.
const SLACK: f32 = 0.01;

/// The number of steps for rows of the working set between two steps for the background. The working set
/// consists of the rows that the solver uses for a label, and all other rows form the background.
const BACKGROUND_EVERY: usize = 16;

/// The largest number of passes that adapt the weights to the rows that are not held out.
const PASSES_TO_UNLEARN: usize = 3;

/// A label carries at most `n₊ + max(4 n₊, 200)` rows to a fit to similar rows, where n₊ is the number of its positive
/// rows. Negative rows with large dual variables are preferred. This is more than a label with few positive rows has
/// in one search of [`Effort::OF_ONE_OF_SEVERAL_BLOCKS`](super::Effort::OF_ONE_OF_SEVERAL_BLOCKS).
const CARRIED_PER_POSITIVE: usize = 4;

/// See [`CARRIED_PER_POSITIVE`].
const LEAST_CARRIED: usize = 200;

/// Number of rows scored between two checks for a stop request.
const ROWS_PER_STEP: usize = 1 << 12;

/// Name of growing vectors in error messages about memory.
const IN_PLAY: &str = "number of rows in the working set";

/// The vectors for one panel, which is a group of thirty-two labels. They are reused for the next
/// panel.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The states of the labels of the panel. There are always [`GROUP`] states.
    lanes: Vec<Lane>,
    /// The rounded weights of all labels, interleaved for searches; shape (dim).
    packed: Vec<Packed>,
    /// The approximate scores of up to [`ROWS_PER_STEP`] rows.
    scores: Vec<Scores>,
    /// For each row in `scores`, the labels for which it violates the margin.
    violators: Vec<Group>,
    /// The weights of sixteen labels, interleaved for scoring held-out rows; shape (dim). It is empty until the
    /// first call of [`unlearn`].
    panel: Vec<Lanes>,
    /// The dual variables of the backgrounds of these labels. The terms of features that are not common are not in
    /// `panel`.
    kappas: Lanes,
    /// For each row, the labels whose working set contains the row; shape (n).
    in_play: Vec<Group>,
    /// The order in which coordinate descent visits the rows of the working set.
    order: Vec<u32>,
    /// The position of each feature in the list of the label in progress; shape (dim). It has [`NOWHERE`] for all
    /// features between two labels.
    place: Vec<u32>,
    /// The weights of all features for the label in progress; shape (dim). It is 0 between two labels.
    full: Vec<f32>,
    /// The rows that some labels read, if X is larger than memory.
    copies: Copies,
}

impl Workspace {
    /// Allocates the vectors that are needed to fit groups of thirty-two labels of `problem`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the vectors do not fit in memory.
    pub(crate) fn new(problem: &Problem<'_>) -> Result<Self, Error> {
        const FEATURES: &str = "number of features";
        let (n, dim) = (problem.n_rows(), problem.dim());
        let by_feature = || -> Result<_, Error> {
            let packed = filled(FEATURES, Packed::default(), dim)?;
            let place = filled(FEATURES, NOWHERE, dim)?;
            Ok((packed, place, filled(FEATURES, 0.0, dim)?))
        };
        let (packed, place, full) = budget::in_any_order(by_feature)?;
        Ok(Self {
            lanes: few((0..GROUP).map(|_| Lane::default())),
            packed,
            scores: filled("number of scores", Scores::default(), ROWS_PER_STEP.min(n))?,
            violators: filled("number of scores", 0, ROWS_PER_STEP.min(n))?,
            panel: Vec::new(),
            kappas: Lanes::default(),
            in_play: filled("number of rows", 0, n)?,
            order: Vec::new(),
            place,
            full,
            copies: Copies::new(problem),
        })
    }

    /// Returns the weights of one of the labels of the group that are not 0 and have an absolute value of at least
    /// `prune`, and the intercept.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn kept(
        &mut self,
        problem: &Problem<'_>,
        lane: usize,
        prune: f32,
    ) -> Result<Kept, Error> {
        let lane = &mut self.lanes[lane];
        let kappa = lane.kappa as f32;
        let n_features = problem.features.len();
        let common = &problem.common;
        if lane.weights.full().is_some() || kappa * common.largest_other >= prune {
            lane.weights.add_to(&mut self.full);
            lane.shift(-kappa);
            let weights = lane.weights.full().unwrap_or(&self.full);
            let shifted = weights.iter().zip(&problem.mean);
            let kept = large(shifted.map(|(w, m)| w - kappa * m), n_features, prune);
            lane.shift(kappa);
            lane.weights.clear_from(&mut self.full);
            return kept;
        }
        // The other features have no weights, except for small terms of the background.
        lane.weights.mount(&mut self.place);
        let mut kept = Kept::default();
        for (col, weight) in lane.weights.listed() {
            let weight = weight - kappa * problem.mean[col as usize];
            kept.push(col, weight, n_features, prune)?;
        }
        for &col in &common.features {
            if self.place[col as usize] == NOWHERE {
                let weight = 0.0 - kappa * problem.mean[col as usize];
                kept.push(col, weight, n_features, prune)?;
            }
        }
        lane.weights.unmount(&mut self.place);
        kept.weights.sort_unstable_by_key(|&(col, _)| col);
        Ok(kept)
    }

    /// Returns the state of one of the labels that [`solve`] has just solved. Of the negative rows, only those with
    /// the largest dual variables are kept.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if it does not fit in memory.
    pub(crate) fn carry(&self, lane: usize) -> Result<Carry, Error> {
        let lane = &self.lanes[lane];
        let mut duals = Vec::new();
        for (at, (&row, &alpha)) in lane.rows.iter().zip(&lane.alpha).enumerate() {
            if alpha > 0.0 {
                push(IN_PLAY, &mut duals, (row, lane.sign(at) as f32 * alpha))?;
            }
        }
        let n_negatives = (CARRIED_PER_POSITIVE * lane.n_positive).max(LEAST_CARRIED);
        let n_kept = lane.n_positive + n_negatives;
        if duals.len() > n_kept {
            // All positive rows come before the negative rows.
            let key = |&(row, dual): &(u32, f32)| (dual < 0.0, dual.min(0.0), row);
            duals.select_nth_unstable_by(n_kept, |a, b| {
                let (a, b) = (key(a), key(b));
                a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
            });
            duals.truncate(n_kept);
        }
        duals.sort_unstable_by_key(|&(row, _)| row);
        Ok(Carry::Duals(duals))
    }

    /// Returns the weights that the last call of [`unlearn`] computed, with one lane for each label; shape
    /// (dim). From the score of a row, the second result times the item of [`Common::others_dots`] must be subtracted.
    ///
    /// [`Common::others_dots`]: super::problem::Common::others_dots
    pub(crate) fn unlearned(&self) -> (&[Lanes], &Lanes) {
        (&self.panel, &self.kappas)
    }
}

/// Computes the weights of up to [`GROUP`] rare labels and leaves them in `space`. Returns, for
/// each label, the number of passes in its longest run of coordinate descent. This number is
/// `max_iter` if a run did not converge.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
/// requested a stop.
pub(crate) fn solve(
    problem: &Problem<'_>,
    labels: &[u32],
    from: Option<&Start>,
    params: &super::Params,
    effort: &Effort,
    space: &mut Workspace,
    watch: &Watch,
) -> Result<[usize; GROUP], Error> {
    let rule = Rule {
        tol: effort.dual_tol * params.tol,
        max_iter: params.max_iter,
        seed: params.seed,
    };
    let Workspace {
        lanes,
        packed,
        scores,
        violators,
        in_play,
        order,
        place,
        full,
        copies,
        ..
    } = space;
    let lanes = &mut lanes[..labels.len()];
    in_play.fill(0);
    // A fit that failed for lack of memory may have left positions.
    place.fill(NOWHERE);
    let duals = |label: u32| from.and_then(|from| from.duals(label));
    let list = |at: usize, _: &Lane, rows: &mut Vec<u32>| {
        let label = labels[at];
        let of_start = duals(label).unwrap_or_default().iter().map(|&(row, _)| row);
        let known = problem.positives(label).iter();
        let all = known.chain(problem.unknown(label)).copied();
        extend(IN_PLAY, rows, all.chain(of_start))
    };
    let begin = |at: usize, lane: &mut Lane, x: CsrRef<'_>| {
        let label = labels[at];
        lane.begin(problem, x, label, place)?;
        if let Some(duals) = duals(label) {
            lane.resume(problem, x, duals, place)?;
        }
        // Unknown rows never join the working set.
        for &row in lane.rows.iter().chain(&lane.unknown) {
            in_play[row as usize] |= 1 << at;
        }
        lane.descend(problem, x, &rule, label, order, watch)
    };
    copies.each(problem, lanes, list, begin, watch)?;
    // The carried rows include most of the rows that violate the margin.
    let needs_one = |&label: &u32| {
        duals(label).is_some() || problem.positives(label).len() <= effort.searched_once
    };
    let searches = if labels.iter().all(needs_one) {
        1
    } else {
        effort.searches
    };
    for _ in 0..searches {
        let kappas = kappas(lanes);
        pack_lanes(problem, lanes, &kappas, packed);
        let memory = (&packed[..], &mut scores[..], &mut violators[..]);
        search(problem, effort, (lanes, &kappas), memory, in_play, watch)?;
        let list = |_, lane: &Lane, rows: &mut Vec<u32>| {
            let found = lane.found.iter().map(|&(_, row)| row);
            extend(IN_PLAY, rows, lane.rows.iter().copied().chain(found))
        };
        let join = |at: usize, lane: &mut Lane, x: CsrRef<'_>| {
            for join in 0..effort.joins {
                let rescored = if join == 0 {
                    lane.n_joining(effort)
                } else {
                    usize::MAX
                };
                lane.rescore_found(problem, x, rescored, full);
                let joined = lane.join_worst(problem, x, effort, place)?;
                if joined == 0 {
                    break;
                }
                for &row in &lane.rows[lane.rows.len() - joined..] {
                    in_play[row as usize] |= 1 << at;
                }
                lane.descend(problem, x, &rule, labels[at], order, watch)?;
            }
            Ok(())
        };
        copies.each(problem, lanes, list, join, watch)?;
    }
    let mut n_iter = [0; GROUP];
    for (lane, n_iter) in lanes.iter_mut().zip(&mut n_iter) {
        *n_iter = lane.passes;
    }
    Ok(n_iter)
}

/// Adapts the weights of up to sixteen of the labels that were solved last to the rows that are not held out.
/// [`Workspace::unlearned`] returns the adapted weights. `first` is the position of the first of these labels.
///
/// The held-out rows are removed from the working sets, and their terms are subtracted from the
/// weights, which are weighted sums of rows. Coordinate descent then adapts the dual variables of
/// the other rows. No search for more rows follows, because removing a tenth of the rows hardly
/// changes which rows violate the margin. The weights in `space` are overwritten.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory, and [`Error::Stopped`] if the caller requested a stop.
pub(crate) fn unlearn(
    problem: &Problem<'_>,
    unseen: &Unseen,
    (first, labels): (usize, &[u32]),
    params: &super::Params,
    space: &mut Workspace,
    watch: &Watch,
) -> Result<(), Error> {
    let rule = Rule {
        tol: Effort::FULL.dual_tol * params.tol,
        max_iter: PASSES_TO_UNLEARN,
        seed: params.seed,
    };
    if space.panel.is_empty() {
        space.panel = filled("number of features", Lanes::default(), problem.dim())?;
    }
    let lanes = &mut space.lanes[first..first + labels.len()];
    let order = &mut space.order;
    let list =
        |_, lane: &Lane, rows: &mut Vec<u32>| extend(IN_PLAY, rows, lane.rows.iter().copied());
    let adapt = |at: usize, lane: &mut Lane, x: CsrRef<'_>| {
        lane.forget(problem, x, unseen);
        lane.descend(problem, x, &rule, labels[at], order, watch)
    };
    space.copies.each(problem, lanes, list, adapt, watch)?;
    let panel = &mut space.panel;
    panel.fill(Lanes::default());
    space.kappas = Lanes::default();
    for (at, lane) in lanes.iter_mut().enumerate() {
        let kappa = lane.kappa as f32;
        space.kappas.0[at] = kappa;
        lane.shift(-kappa);
        for (row, &weight) in panel
            .iter_mut()
            .zip(lane.weights.full().unwrap_or_default())
        {
            row.0[at] = weight;
        }
        lane.shift(kappa);
        for (feature, weight) in lane.weights.listed() {
            panel[feature as usize].0[at] = weight;
        }
    }
    for &feature in &problem.common.features {
        let mean = problem.mean[feature as usize];
        panel[feature as usize].add_scaled(-mean, &space.kappas);
    }
    Ok(())
}

/// Calls `tell` with each held-out row and its scores, for the labels of the last call of [`unlearn`].
///
/// # Errors
///
/// Returns any error of `tell`, and [`Error::Stopped`] if the caller requested a stop.
pub(crate) fn score_unseen(
    problem: &Problem<'_>,
    unseen: &Unseen,
    (first, labels): (usize, &[u32]),
    space: &mut Workspace,
    watch: &Watch,
    mut tell: impl FnMut(u32, &[f32; LANES]) -> Result<(), Error>,
) -> Result<(), Error> {
    space.in_play.fill(0);
    for (at, lane) in space.lanes[first..first + labels.len()].iter().enumerate() {
        for &row in &lane.unknown {
            space.in_play[row as usize] |= 1 << at;
        }
    }
    let mut scores = [Lanes::default()];
    for &row in &unseen.rows {
        times_panel(problem.x.view(), row as usize, &space.panel, &mut scores);
        scores[0].add_scaled(-problem.common.others_dot[row as usize], &space.kappas);
        let mut unknown = space.in_play[row as usize];
        while unknown != 0 {
            scores[0].0[unknown.trailing_zeros() as usize] = UNKNOWN_SCORE;
            unknown &= unknown - 1;
        }
        tell(row, &scores[0].0)?;
    }
    watch.step(0)
}

/// Rounds the weights of up to thirty-two labels and copies them to a panel.
fn pack_lanes(problem: &Problem<'_>, lanes: &mut [Lane], kappas: &Scores, packed: &mut [Packed]) {
    let common = &problem.common;
    for lane in lanes.iter_mut() {
        lane.shift(-lane.kappa as f32);
    }
    if lanes.iter().all(|lane| lane.weights.full().is_none()) {
        let means = (&common.features[..], &common.mean[..]);
        pack_means(kappas, means, packed);
    } else {
        let labels = lanes
            .iter()
            .map(|lane| (lane.weights.full(), lane.kappa as f32));
        let labels: Vec<Shifted<'_>> = few(labels);
        pack(&labels, &common.mean, packed);
    }
    for (label, lane) in lanes.iter_mut().enumerate() {
        let kappa = lane.kappa as f32;
        pack_listed(label, lane.weights.listed(), kappa, &common.mean, packed);
        lane.shift(kappa);
    }
}

/// Returns the dual variable κ of the background of each label.
fn kappas(lanes: &[Lane]) -> Scores {
    let mut kappas = Scores::default();
    for (at, lane) in lanes.iter().enumerate() {
        kappas[at / LANES].0[at % LANES] = lane.kappa as f32;
    }
    kappas
}

/// Scores all rows for up to thirty-two labels. For each label, keeps the rows outside its working set that
/// violate the margin most. The time is O(nnz(X)).
fn search(
    problem: &Problem<'_>,
    effort: &Effort,
    (lanes, kappas): (&mut [Lane], &Scores),
    (packed, scores, violators): (&[Packed], &mut [Scores], &mut [Group]),
    in_play: &[Group],
    watch: &Watch,
) -> Result<(), Error> {
    for lane in lanes.iter_mut() {
        lane.found.clear();
    }
    // Lanes without a label have the score 0.
    let used = Group::MAX >> (GROUP - lanes.len());
    for first in (0..problem.n_rows()).step_by(ROWS_PER_STEP) {
        watch.step(0)?;
        let n_rows = ROWS_PER_STEP.min(problem.n_rows() - first);
        let scores = &mut scores[..n_rows];
        let offsets = (kappas, &problem.common.others_dot[..]);
        times_packed(problem.x.view(), first, packed, offsets, scores);
        let violators = &mut violators[..n_rows];
        above(scores, MARGIN - 1.0 - SLACK, violators);
        for (row, (scores, &violated)) in (first..).zip(scores.iter().zip(&*violators)) {
            let mut violated = violated & !in_play[row] & used;
            while violated != 0 {
                let at = violated.trailing_zeros() as usize;
                push(
                    "number of violators",
                    &mut lanes[at].found,
                    (scores[at / LANES].0[at % LANES], row as u32),
                )?;
                violated &= violated - 1;
            }
        }
    }
    for lane in lanes {
        let kept = lane.n_kept(effort);
        if lane.found.len() > kept {
            lane.found.select_nth_unstable_by(kept, worst_first);
            lane.found.truncate(kept);
        }
        // The first portion is chosen next.
        let n_joining = lane.n_joining(effort);
        if lane.found.len() > n_joining {
            lane.found.select_nth_unstable_by(n_joining, worst_first);
        }
    }
    Ok(())
}

/// Orders rows that violate the margin by decreasing score, so that the worst violator comes first.
/// If scores are equal, the row with the lower number comes first.
#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that sorting needs"
)]
fn worst_first(a: &(f32, u32), b: &(f32, u32)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.1.cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dismec::targets::Outputs;
    use crate::dismec::{Params, problem::Problem};
    use fastrand::Rng;
    use manylabel_sparse::{CsrOwned, Stored};

    /// Rows of `n_features` features, and forty labels. Label i has i + 2 rows, and one of them is unknown for some
    /// labels.
    fn data(n_rows: usize, n_features: usize, with_unknown: bool) -> (CsrOwned, Outputs) {
        let mut rng = Rng::with_seed(7);
        let mut x = CsrOwned {
            indptr: vec![0],
            indices: Vec::new(),
            values: Vec::new(),
            n_cols: n_features,
        };
        for _ in 0..n_rows {
            // Features with small numbers are frequent.
            let mut cols: Vec<u32> = (0..30)
                .map(|_| (n_features as f32 * rng.f32().powi(3)) as u32)
                .collect();
            cols.sort_unstable();
            cols.dedup();
            let scale = (cols.len() as f32).sqrt().recip();
            x.values.extend(cols.iter().map(|_| scale));
            x.indices.extend(cols);
            x.indptr.push(x.indices.len());
        }
        let mut of_labels = |size: &dyn Fn(usize) -> usize| {
            let mut rows = CsrOwned {
                indptr: vec![0],
                indices: Vec::new(),
                values: Vec::new(),
                n_cols: n_rows,
            };
            for label in 0..40 {
                let mut of_label = rng.choose_multiple(0..n_rows as u32, size(label));
                of_label.sort_unstable();
                rows.indices.extend(of_label);
                rows.indptr.push(rows.indices.len());
            }
            rows.values = vec![1.0; rows.indices.len()];
            rows
        };
        let rows_of_label = of_labels(&|label| label + 2);
        let mut unknown = of_labels(&|label| if label % 3 == 0 { 5 } else { 0 });
        // Unknown rows are not positive.
        let mut kept = vec![0];
        let mut indices = Vec::new();
        for label in 0..40 {
            let positive = rows_of_label.row(label).0;
            let rows = unknown.row(label).0.iter().copied();
            indices.extend(rows.filter(|row| !positive.contains(row)));
            kept.push(indices.len());
        }
        unknown.values.truncate(indices.len());
        (unknown.indptr, unknown.indices) = (kept, indices);
        (
            x,
            Outputs {
                rows_of_label,
                unknown: with_unknown.then_some(unknown),
                factors: None,
            },
        )
    }

    /// Returns the weights of a label for all features, computed from its dual variables.
    fn expected(problem: &Problem<'_>, lane: &Lane) -> Vec<f64> {
        let mut weights: Vec<f64> = vec![0.0; problem.dim()];
        for (at, &row) in lane.rows.iter().enumerate() {
            let scale = lane.sign(at) * f64::from(lane.alpha[at]);
            let (cols, values) = problem.x.row(row as usize);
            for (&col, &value) in cols.iter().zip(values) {
                weights[col as usize] += scale * f64::from(value);
            }
        }
        for (col, weight) in weights.iter_mut().enumerate() {
            let rest = if lane.unknown.is_empty() {
                0.0
            } else {
                lane.rest[col]
            };
            *weight -= lane.kappa * f64::from(problem.mean[col] + rest);
        }
        weights
    }

    /// Returns the largest error of a weight or score of a label. Steps are rounded to `f32`.
    fn error(lane: &Lane) -> f64 {
        let duals: f64 = lane.alpha.iter().map(|&alpha| f64::from(alpha)).sum();
        1e-5 * (1.0 + duals + lane.kappa)
    }

    #[test]
    fn weights_and_scores_are_those_of_the_dual_variables() {
        // With few features, labels need full weights, and all features are common.
        for (n_features, with_unknown) in [(50, false), (5000, false), (5000, true)] {
            let (x, outputs) = data(900, n_features, with_unknown);
            let params = Params {
                c: 4.0,
                ..Params::default()
            };
            let watch = Watch::new();
            let mut kept_x = x;
            kept_x.drop_empty_columns().expect("small");
            let kept_x = Stored::Owned(kept_x);
            let problem = Problem::of_rows(kept_x, outputs, None, &params, &watch).expect("small");
            let mut space = Workspace::new(&problem).expect("small");
            let labels: Vec<u32> = (0..GROUP as u32).collect();
            let effort = Effort::OF_BLOCK;
            solve(
                &problem, &labels, None, &params, &effort, &mut space, &watch,
            )
            .expect("fits");
            let mut with_copies = Workspace::new(&problem).expect("small");
            with_copies.copies.room = Some(3000);
            solve(
                &problem,
                &labels,
                None,
                &params,
                &effort,
                &mut with_copies,
                &watch,
            )
            .expect("fits");
            let mut n_compact = 0;
            for at in 0..GROUP {
                n_compact += usize::from(space.lanes[at].weights.full().is_none());
                let expected = expected(&problem, &space.lanes[at]);
                let error = error(&space.lanes[at]);
                for prune in [0.0, 0.05] {
                    let kept = space.kept(&problem, at, prune).expect("small");
                    let of_copies = with_copies.kept(&problem, at, prune).expect("small");
                    assert_eq!(of_copies.weights, kept.weights);
                    assert_eq!(of_copies.intercept.to_bits(), kept.intercept.to_bits());
                    assert!(kept.weights.is_sorted_by(|a, b| a.0 < b.0));
                    let mut weights = vec![0.0; problem.dim()];
                    for &(col, weight) in &kept.weights {
                        assert!(weight.abs() >= prune);
                        weights[col as usize] = f64::from(weight);
                    }
                    weights[problem.features.len()] = f64::from(kept.intercept);
                    for (col, (got, want)) in weights.iter().zip(&expected).enumerate() {
                        let may_drop = want.abs() < f64::from(prune) + error && *got == 0.0;
                        assert!(
                            (got - want).abs() < error || may_drop,
                            "{at} {col} {got} {want}"
                        );
                    }
                }
            }
            assert_eq!(n_compact == 0, n_features == 50);
            let held_out: Vec<u32> = (0..900).step_by(9).collect();
            let unseen = Unseen::of_rows(&problem, &held_out).expect("small");
            let group = (LANES, &labels[LANES..]);
            for space in [&mut space, &mut with_copies] {
                unlearn(&problem, &unseen, group, &params, space, &watch).expect("fits");
            }
            let (weights, kappas) = space.unlearned();
            let (of_copies, of_copied) = with_copies.unlearned();
            let bits = |lanes: &Lanes| lanes.0.map(f32::to_bits);
            assert_eq!(bits(kappas), bits(of_copied));
            assert!(weights.iter().map(bits).eq(of_copies.iter().map(bits)));
            let mut found = Vec::new();
            let tell = |row, scores: &[f32; LANES]| {
                found.push((row, *scores));
                Ok(())
            };
            score_unseen(&problem, &unseen, group, &mut space, &watch, tell).expect("scores");
            assert_eq!(found.len(), held_out.len());
            for at in 0..LANES {
                let lane = &space.lanes[LANES + at];
                let (weights, error) = (expected(&problem, lane), error(lane));
                assert!(lane.rows.iter().all(|row| row % 9 > 0));
                for (row, scores) in &found {
                    let (cols, values) = problem.x.row(*row as usize);
                    let terms = cols.iter().zip(values);
                    let want: f64 = terms
                        .map(|(&col, &value)| weights[col as usize] * f64::from(value))
                        .sum();
                    if lane.unknown.contains(row) {
                        assert!(scores[at] <= UNKNOWN_SCORE);
                    } else {
                        assert!((f64::from(scores[at]) - want).abs() < error);
                    }
                }
            }
        }
    }
}
