//! Learns the threshold above which a label is predicted.
//!
//! Predicting labels with a probability above one half gives the smallest Hamming loss. If labels
//! are hard to predict, however, a row often has no label with a probability above one half. The
//! threshold is therefore moved away from one half, but only as far as needed to predict a
//! reasonable number of labels:
//!
//! 1. A sample of rare and frequent labels is chosen. Fitting this sample takes about a tenth of
//!    the work of the fit.
//! 2. A fifth of the rows is held out, and the sample is fitted to the other rows. If there are few
//!    rows, further fifths are held out one after the other.
//! 3. The scores of the held-out rows are sorted. A threshold is acceptable if it predicts between
//!    0.7 and 1.4 times the number of true labels. The acceptable threshold nearest to one half is
//!    used.
//!
//! Features and the Gram matrix are taken from the full fit. Only the output weights of the sample
//! are computed again. With the softmax there is no threshold, because every row gets one label.

use crate::Params;
use crate::block::solve_block;
use crate::labels::Labels;
use crate::moments::MOMENT_ROWS;
use crate::psgd::Problem;
use crate::{Loss, Solver};
use fastrand::Rng;
use manylabel_base::{Error, collected, copied, filled, reserved};
use manylabel_sparse::Labels as Known;

/// One row in this many is held out at a time.
const ROWS_OF_ONE: usize = 5;
/// Largest number of rows that are held out at a time. This many rows usually have a few thousand
/// labels in total.
const MOST_ROWS: usize = 4000;

/// If a fifth of the rows is fewer than this number, further fifths are held out one after the
/// other. If the held-out rows had only a few dozen labels in total, the threshold would be mostly
/// random.
const ENOUGH_ROWS: usize = 500;
/// If the rows held out so far have this many labels in total, no further rows are held out. The
/// number of labels is then accurate to about one twentieth, which is accurate enough for the
/// bounds below.
const ENOUGH_LABELS: f64 = 500.0;

/// Smallest number of labels in the sample, if the data have that many. With fewer labels, the
/// threshold would have a large random error.
const LEAST_LABELS: usize = 32;
/// Fitting the sample of labels should take at most this fraction of the work of the fit. It may
/// take longer, because the sample has at least [`LEAST_LABELS`] labels.
const SHARE_OF_FIT: f64 = 0.1;

/// Largest number of scores that are stored over all groups of held-out rows. They take 32 MiB.
const MOST_SCORES: usize = 1 << 21;

/// Smallest number of labels that the held-out rows have in total. With fewer labels, no threshold
/// is learned, and the default threshold of the loss is used.
const FEWEST_LABELS: f64 = 10.0;

/// Estimated number of products with the features that Newton's method computes for one label.
const NEWTON_PRODUCTS: usize = 50;

/// Smallest acceptable number of predicted labels, divided by the number of true labels.
///
/// Bounds closer to 1 would increase the Hamming loss. If labels are hard to predict, the loss
/// would be a quarter larger than with a threshold of one half. With these bounds, the number of
/// labels predicted for new rows is within a fifth of the number for the held-out rows.
const LEAST_NAMED: f64 = 0.7;
/// Largest acceptable number of predicted labels, divided by the number of true labels.
const MOST_NAMED: f64 = 1.4;

/// Largest absolute value of a threshold for logits. It is `ln 99`. Thresholds then correspond to
/// probabilities from 0.01 to 0.99.
const FURTHEST: f64 = 4.6;

/// Name of the row numbers in error messages about memory.
const ROW_NUMBERS: &str = "number of rows";

/// A score of a held-out row for a label.
#[derive(Clone, Copy)]
struct Scored {
    /// The score.
    score: f32,
    /// The position among all scores. If scores are equal, they are sorted by this position.
    place: u32,
    /// The weight of the row.
    weight: f64,
}

/// Learns the threshold and returns its difference from the default threshold of the loss. The
/// default is a logit of 0, or ½ for the squared loss.
///
/// `n_passes` is the number of passes with which the weights were fitted. `labels_at_once` is the
/// largest number of labels that may be fitted together. Returns 0 if there are too few rows or
/// labels to learn from.
pub(crate) fn learn(
    problem: &Problem<'_>,
    labels: &Labels,
    y: Known<'_>,
    ridge: f64,
    n_passes: usize,
    labels_at_once: usize,
) -> Result<f64, Error> {
    let Problem { design, train, .. } = *problem;
    let mut order = copied(ROW_NUMBERS, train)?;
    Rng::with_seed(problem.params.seed ^ 0xc07).shuffle(&mut order);
    let n_held = (train.len() / ROWS_OF_ONE).min(MOST_ROWS);
    if n_held == 0 || labels.seen.is_empty() {
        return Ok(0.0);
    }
    let params = Params {
        n_passes,
        ..problem.params.clone()
    };
    let n_folds = ENOUGH_ROWS.div_ceil(n_held).min(ROWS_OF_ONE);
    let most_labels = labels_at_once.min((MOST_SCORES / (n_folds * n_held)).max(1));
    let block = sample(labels, design.size, &params, most_labels)?;
    let mut scored = reserved(
        "number of scores for the threshold",
        n_folds * n_held * block.len(),
    )?;
    let mut positive = 0.0;
    for _ in 0..n_folds {
        if positive >= ENOUGH_LABELS {
            break;
        }
        order.rotate_left(n_held);
        let (rest, held) = order.split_at(train.len() - n_held);
        let (mut rest, mut held) = (copied(ROW_NUMBERS, rest)?, copied(ROW_NUMBERS, held)?);
        rest.sort_unstable();
        held.sort_unstable();
        positive += score(
            problem,
            &params,
            y,
            &block,
            ridge,
            &rest,
            &held,
            &mut scored,
        )?;
    }
    if positive < FEWEST_LABELS {
        return Ok(0.0);
    }
    let (most, middle) = match params.loss {
        Loss::Squared => (0.49, 0.5),
        _ => (FURTHEST, 0.0),
    };
    scored.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.place.cmp(&b.place)));
    let (few, many) = (positive * LEAST_NAMED, positive * MOST_NAMED);
    let nearest = f64::max(middle, matching(&scored, many)).min(matching(&scored, few));
    Ok((nearest - middle).clamp(-most, most))
}

/// Fits the labels of `block` to the rows `rest`. Appends the scores of the rows `held` to
/// `scored`. Returns the number of true labels of the rows `held` that are in `block`, weighted by
/// the weights of the rows.
#[expect(clippy::too_many_arguments, reason = "a fold has this many inputs")]
fn score(
    problem: &Problem<'_>,
    params: &Params,
    y: Known<'_>,
    block: &[u32],
    ridge: f64,
    rest: &[u32],
    held: &[u32],
    scored: &mut Vec<Scored>,
) -> Result<f64, Error> {
    let Problem { design, train, .. } = *problem;
    let aside = problem.watch.aside();
    let own = Problem {
        params,
        train: rest,
        held_out: &[],
        watch: &aside,
        ..*problem
    };
    let mut weights = solve_block(&own, &Labels::new(y, rest, &aside)?, block, y, ridge)?.weights;
    if params.loss == Loss::Squared {
        // The Gram matrix is computed from all rows. The sums of features by label are computed
        // from `rest` only.
        let total = |rows: &[u32]| -> f64 {
            let weights = rows.iter().map(|&row| problem.weights[row as usize]);
            weights.map(f64::from).sum()
        };
        let missing = (total(train) / total(rest)) as f32;
        for weight in &mut weights {
            *weight *= missing;
        }
    }
    let mut positive = 0.0;
    let mut features = filled("a block of features", 0.0, MOMENT_ROWS * design.size)?;
    for rows in held.chunks(MOMENT_ROWS) {
        problem.watch.step(0)?;
        let features = &mut features[..rows.len() * design.size];
        let mut scores = filled("number of scores", 0.0, rows.len() * block.len())?;
        design.fill(rows, features, problem.watch)?;
        own.products(features, &weights, &mut scores, |_, _| {}, block.len())?;
        for (&row, scores) in rows.iter().zip(scores.chunks(block.len())) {
            let weight = f64::from(problem.weights[row as usize]);
            let present = y.ones.row(row as usize).0.iter();
            let in_block = present.filter(|label| block.binary_search(label).is_ok());
            positive += weight * in_block.count() as f64;
            for (&label, &score) in block.iter().zip(scores) {
                if y.is_unknown(row as usize, label) {
                    continue;
                }
                scored.push(Scored {
                    score,
                    place: scored.len() as u32,
                    weight,
                });
            }
        }
    }
    Ok(positive)
}

/// Returns the number of bytes needed to learn a threshold. The memory for a group of labels is not
/// included.
pub(crate) fn bytes(n_rows: usize, n_labels: usize) -> u64 {
    let n_held = (n_rows / ROWS_OF_ONE).min(MOST_ROWS);
    let n_scores = (n_held * ROWS_OF_ONE)
        .saturating_mul(n_labels)
        .min(MOST_SCORES);
    (n_scores * size_of::<Scored>()) as u64
}

/// Returns the estimated number of products with the features that are needed to fit one label.
fn products(params: &Params) -> f64 {
    let products = match (params.loss, params.solver) {
        (Loss::Squared, _) => 1,
        (_, Solver::Psgd) => params.n_passes.saturating_mul(4),
        (_, Solver::NewtonCg) => NEWTON_PRODUCTS,
    };
    products as f64
}

/// Returns the estimated work of a fit, in units of rows × features. It is `size` for the Gram
/// matrix and whitening, plus the number of products for all labels.
pub(crate) fn work(params: &Params, size: usize, labels: &Labels) -> f64 {
    size as f64 + products(params) * labels.seen.len() as f64
}

/// Returns a sample of at most `most` labels, in increasing order. Labels are sorted by their
/// numbers of rows, and evenly spaced labels are chosen. The sample therefore contains rare and
/// frequent labels.
fn sample(labels: &Labels, size: usize, params: &Params, most: usize) -> Result<Vec<u32>, Error> {
    let n_labels = labels.seen.len();
    let affordable = (SHARE_OF_FIT * work(params, size, labels) / products(params)) as usize;
    let n_sampled = affordable.max(LEAST_LABELS).min(most).min(n_labels);
    let mut by_rows = copied("number of labels", &labels.seen)?;
    by_rows.sort_unstable_by_key(|&label| (labels.rows(label).len(), label));
    let at = |i: usize| by_rows[(2 * i + 1) * n_labels / (2 * n_sampled)];
    let mut sampled = collected("number of labels", (0..n_sampled).map(at))?;
    sampled.sort_unstable();
    Ok(sampled)
}

/// Returns the score above which the weights of the scores sum to about `goal`. The returned score
/// is halfway between two neighbouring scores. `scored` must be sorted with the largest score
/// first.
fn matching(scored: &[Scored], goal: f64) -> f64 {
    let mut sum = 0.0;
    let mut last = f32::MAX;
    for &Scored { score, weight, .. } in scored {
        if sum + weight / 2.0 >= goal {
            // The result is halfway between the smallest score above the threshold and the largest
            // score below it.
            return f64::midpoint(f64::from(last.min(1e6)), f64::from(score));
        }
        sum += weight;
        last = score;
    }
    f64::from(last)
}

#[cfg(test)]
mod tests {
    use super::{Scored, matching};

    fn scored<const N: usize>(pairs: [(f32, f64); N]) -> [Scored; N] {
        pairs.map(|(score, weight)| Scored {
            score,
            place: 0,
            weight,
        })
    }

    #[test]
    fn the_threshold_names_as_many_as_there_are() {
        let all = scored([2.0, 0.5, -1.0, -3.0].map(|score| (score, 1.0)));
        assert!((matching(&all, 2.0) + 0.25).abs() < 1e-9);
        assert!((matching(&all, 3.0) + 2.0).abs() < 1e-9);
        assert!((matching(&all[..3], 3.0) + 1.0).abs() < 1e-9);
        assert!(matching(&all, 0.0) > 1.0);
        let weighted = scored([(1.0, 2.0), (0.0, 1.0), (-1.0, 1.0)]);
        assert!((matching(&weighted, 2.0) - 0.5).abs() < 1e-9);
    }
}
