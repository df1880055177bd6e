//! Merges the scores of several blocks into one ranking.
//!
//! A row may be sent to several blocks, and the model of each block computes log-odds of the
//! block's labels. The log-odds are converted to probabilities. The merged probability of a label
//! is the mean over blocks, weighted by the router's probabilities of the blocks. A block that does
//! not contain the label contributes the probability 0. The mean is then converted back to
//! log-odds; see [`merge`] for the formula.
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_partition::{Answer, merge};
//! use manylabel_sparse::CsrView;
//!
//! // The only row goes to two blocks. The router gives both blocks the same score.
//! let routes = CsrView::new("routes", &[0i32, 2], &[0, 1], &[0.0f32, 0.0], 2)?;
//! let answers = [
//!     Answer { labels: &[0, 2], scores: &[0.0, 2.0] },
//!     Answer { labels: &[0], scores: &[0.0] },
//! ];
//! let merged = merge(routes, &answers, 3, None, &Watch::new())?;
//! assert_eq!(merged.indices, [0, 2]);
//! // Both blocks give label 0 the probability ½. Only one of the two blocks contains label 2.
//! assert!(merged.values[0].abs() < 1e-6);
//! let half = 0.5 / (1.0 + (-2.0f32).exp());
//! assert!((merged.values[1] - (half / (1.0 - half)).ln()).abs() < 1e-6);
//! # Ok::<(), manylabel_base::Error>(())
//! ```

use manylabel_base::range::same;
use manylabel_base::{Error, Watch, extend, filled, push, reserved};
use manylabel_simd::{exp, wide};
use manylabel_sparse::{CsrOwned, CsrView, Index, Picked, TopK, Value};

/// Number of rows in a unit of parallel work. Calls with at most this many rows need no threads.
pub const ROWS_AT_ONCE: usize = 64;
/// The smallest term of a block in the probability of a label. This limit keeps log-odds finite.
const LEAST: f64 = 1e-300;
/// The largest probability. This limit keeps log-odds finite.
const MOST: f64 = 1.0 - 1e-16;

/// The scores of a block's model for the rows that were sent to the block.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answer<'a> {
    /// The labels of the block, in increasing order.
    pub labels: &'a [i32],
    /// The log-odds of these labels, row by row, of shape (rows sent to the block, labels). Rows
    /// are in increasing order. A label that the model does not score has −∞.
    pub scores: &'a [f32],
}

/// Merges the scores of the blocks that each row was sent to.
///
/// `routes` (`n_rows`, `n_blocks`) stores, for each row, the router's scores of its blocks.
/// `answers` has one entry per block. Let `p_l` be the logistic function of the router's score of
/// block l, scaled so that the `p_l` of a row sum to 1. Let `s_lj` be the score of label j in block
/// l. The merged score of label j is the log-odds of `Σ_l p_l / (1 + exp(−s_lj))`.
///
/// Returns a matrix (`n_rows`, `n_labels`) with the `k` best labels of each row. If scores are
/// equal, the lower label is preferred. If `k` is None, the matrix has all labels that at least one
/// block scores. The labels of a row are in increasing order.
///
/// Without `k`, the time is O(number of scores). With `k`, most labels take one comparison per
/// block. The memory is 8 bytes per label for each thread. Sums are in double precision and do not
/// depend on the number of threads.
///
/// # Errors
///
/// Returns [`Error::Shape`] if `answers` does not have one entry per block, or if an entry does not
/// have one score for each of its rows and labels. Returns [`Error::Param`] if the labels of a
/// block are not increasing or not below `n_labels`. Returns [`Error::TooLarge`] if there is not
/// enough memory. Returns [`Error::Stopped`] if the caller requested a stop.
pub fn merge<I: Index, T: Value>(
    routes: CsrView<'_, I, T>,
    answers: &[Answer<'_>],
    n_labels: usize,
    k: Option<usize>,
    watch: &Watch,
) -> Result<CsrOwned, Error> {
    for answer in answers {
        check_labels(answer.labels, n_labels)?;
    }
    merge_known(routes, answers, n_labels, k, watch)
}

/// Checks that labels are in increasing order and below `n_labels`.
///
/// # Errors
///
/// Returns [`Error::Param`] with the name `label_blocks_` if they are not.
pub(crate) fn check_labels(labels: &[i32], n_labels: usize) -> Result<(), Error> {
    let known = |&label: &i32| usize::try_from(label).is_ok_and(|label| label < n_labels);
    if let Some(label) = labels.iter().find(|label| !known(label)) {
        return Err(Error::Param {
            name: "label_blocks_",
            expected: "labels >= 0 and below the number of labels",
            got: label.to_string(),
        });
    }
    if let Some(at) = (1..labels.len()).find(|&at| labels[at - 1] >= labels[at]) {
        return Err(Error::Param {
            name: "label_blocks_",
            expected: "increasing within a block",
            got: format!("label {} before label {}", labels[at - 1], labels[at]),
        });
    }
    Ok(())
}

/// Implements [`merge`] for labels that [`check_labels`] has already checked.
pub(crate) fn merge_known<I: Index, T: Value>(
    routes: CsrView<'_, I, T>,
    answers: &[Answer<'_>],
    n_labels: usize,
    k: Option<usize>,
    watch: &Watch,
) -> Result<CsrOwned, Error> {
    let places = places(routes, answers)?;
    Picked::by_blocks(
        routes.n_rows(),
        ROWS_AT_ONCE,
        n_labels,
        || Scratch::new(n_labels),
        |scratch, rows, picked| {
            watch.step(0)?;
            for row in rows {
                scratch.row(routes, row, answers, &places)?;
                match k {
                    None => {
                        scratch.add_up()?;
                        scratch.all(&mut picked.pairs)?;
                    }
                    Some(k) => scratch.best(k, &mut picked.pairs)?,
                }
                picked.end_row();
            }
            Ok(())
        },
    )
}

/// The matrix of routes has one stored entry for each row and each block that the row is sent to.
/// This struct has, for each entry, the position of the row among the rows that were sent to the
/// block.
struct Places {
    /// The boundaries of the rows in `at`. Row i has the entries `at[starts[i]..starts[i + 1]]`.
    starts: Vec<usize>,
    /// For each stored entry (row and block), the position of the row among the rows sent to the
    /// block.
    at: Vec<usize>,
}

/// Counts the rows sent to each block. Checks that the scores of each block are for the same number
/// of rows.
fn places<I: Index, T: Value>(
    routes: CsrView<'_, I, T>,
    answers: &[Answer<'_>],
) -> Result<Places, Error> {
    same("number of blocks", routes.n_cols(), answers.len())?;
    let mut sent = filled("number of blocks", 0, answers.len())?;
    let mut places = Places {
        starts: reserved("number of rows", routes.n_rows() + 1)?,
        at: reserved("number of routes", routes.nnz())?,
    };
    places.starts.push(0);
    for row in 0..routes.n_rows() {
        for &block in routes.row(row).0 {
            places.at.push(sent[block.get()]);
            sent[block.get()] += 1;
        }
        places.starts.push(places.at.len());
    }
    for (answer, n_sent) in answers.iter().zip(sent) {
        let n_scores = answer.labels.len().saturating_mul(n_sent);
        same("scores of a block", n_scores, answer.scores.len())?;
    }
    Ok(places)
}

/// The workspace of one thread. It is reused from row to row.
struct Scratch<'a> {
    /// For each block of the row, the labels with their scores, and the weight of the block.
    parts: Vec<(Answer<'a>, f64)>,
    /// The sum of the terms of each label over the blocks; shape (`n_labels`,). All sums are 0 between
    /// rows.
    shares: Vec<f64>,
    /// The labels whose sums are not 0.
    touched: Vec<u32>,
    /// The router's probabilities of the row's blocks, before they are scaled to sum to 1.
    weights: Vec<f64>,
    /// The terms of the labels of one block.
    terms: Vec<f64>,
}

impl<'a> Scratch<'a> {
    /// Allocates a workspace for rows with `n_labels` labels.
    fn new(n_labels: usize) -> Result<Self, Error> {
        Ok(Self {
            parts: Vec::new(),
            shares: filled("number of labels", 0.0, n_labels)?,
            touched: Vec::new(),
            weights: Vec::new(),
            terms: Vec::new(),
        })
    }

    /// Sets `parts` to the blocks of a row, with their scores and weights.
    fn row<I: Index, T: Value>(
        &mut self,
        routes: CsrView<'_, I, T>,
        row: usize,
        answers: &[Answer<'a>],
        places: &Places,
    ) -> Result<(), Error> {
        let (blocks, scores) = routes.row(row);
        self.weights.clear();
        let weights = scores.iter().map(|score| logistic(score.f64()));
        extend("number of blocks", &mut self.weights, weights)?;
        let total: f64 = self.weights.iter().sum();
        let places = &places.at[places.starts[row]..];
        self.parts.clear();
        for ((block, &place), weight) in blocks.iter().zip(places).zip(&self.weights) {
            let Answer { labels, scores } = answers[block.get()];
            // If the router's probabilities are all 0, the blocks have equal weights.
            let weight = if total > 0.0 {
                weight / total
            } else {
                1.0 / blocks.len() as f64
            };
            let scores = &scores[place * labels.len()..][..labels.len()];
            let part = (Answer { labels, scores }, weight);
            push("number of blocks", &mut self.parts, part)?;
        }
        Ok(())
    }

    /// Computes the terms of the labels in all blocks of the row, and adds them to `shares`.
    fn add_up(&mut self) -> Result<(), Error> {
        let Self {
            parts,
            shares,
            touched,
            terms,
            ..
        } = self;
        for &(Answer { labels, scores }, weight) in &*parts {
            if terms.len() < scores.len() {
                *terms = filled("number of labels", 0.0, scores.len())?;
            }
            let terms = &mut terms[..scores.len()];
            weighted(scores, weight, terms);
            for (&label, &term) in labels.iter().zip(&*terms) {
                if term > 0.0 {
                    let share = &mut shares[label as usize];
                    if *share == 0.0 {
                        push("number of labels", touched, label as u32)?;
                    }
                    *share += term;
                }
            }
        }
        Ok(())
    }

    /// Appends all labels of the row with their merged scores to `pairs`, in increasing order of
    /// label. Then sets the sums to 0.
    fn all(&mut self, pairs: &mut Vec<(u32, f32)>) -> Result<(), Error> {
        self.touched.sort_unstable();
        for label in self.touched.drain(..) {
            let share = std::mem::take(&mut self.shares[label as usize]);
            push(
                "number of predicted labels",
                pairs,
                (label, logit(share.min(MOST))),
            )?;
        }
        Ok(())
    }

    /// Appends the `k` best labels of the row with their merged scores to `pairs`, in increasing
    /// order of label.
    ///
    /// The sum of a label has one term per block. If a block has k labels with terms of at least t,
    /// the k best sums are at least t. If all terms of a label are below t divided by the number of
    /// blocks, its sum is below t, so the label is not among the best. The function uses the
    /// largest such t of any block. Most labels then take one comparison per block and no
    /// exponential.
    fn best(&mut self, k: usize, pairs: &mut Vec<(u32, f32)>) -> Result<(), Error> {
        let mut enough = 0.0;
        for &(Answer { scores, .. }, weight) in &self.parts {
            if let Some(kth) = kth_largest(scores, k)? {
                enough = f64::max(enough, weight * logistic(f64::from(kth)));
            }
        }
        let each = enough / self.parts.len().max(1) as f64 * (1.0 - 1e-6);
        for &(Answer { labels, scores }, weight) in &self.parts {
            // Scores are compared in single precision, so the bound is lowered by the rounding error.
            let least = if each <= LEAST {
                f32::NEG_INFINITY
            } else if each < weight {
                let least = logit(each / weight);
                least - 1e-5 * (1.0 + least.abs())
            } else {
                continue; // no score of this block reaches the bound
            };
            for (&label, &score) in labels.iter().zip(scores) {
                if score >= least && score > f32::NEG_INFINITY {
                    let share = &mut self.shares[label as usize];
                    if *share == 0.0 {
                        *share = 1.0;
                        push("number of labels", &mut self.touched, label as u32)?;
                    }
                }
            }
        }
        let mut best = TopK::new(k.min(self.touched.len()))?;
        for label in self.touched.drain(..) {
            self.shares[label as usize] = 0.0;
            let mut share = 0.0;
            for &(Answer { labels, scores }, weight) in &self.parts {
                if let Ok(at) = labels.binary_search(&(label as i32)) {
                    share += term(scores[at], weight);
                }
            }
            best.push(label, logit(share.min(MOST)));
        }
        extend("number of predicted labels", pairs, best.drain_by_label())
    }
}

/// Returns the k-th largest score among the scores that are neither −∞ nor NaN. Returns None if there are
/// fewer than k such scores or `k` is 0.
fn kth_largest(scores: &[f32], k: usize) -> Result<Option<f32>, Error> {
    let mut best = TopK::new(k.min(scores.len()))?;
    best.push_row(scores);
    // `best` keeps at most all scores. Its floor is −∞ if it keeps fewer scores than it can.
    let kth = best.floor();
    Ok((k <= scores.len() && kth > f32::NEG_INFINITY).then_some(kth))
}

/// Computes the [`term`] of each score.
#[wide]
fn weighted(scores: &[f32], weight: f64, terms: &mut [f64]) {
    for (to, &score) in terms.iter_mut().zip(scores) {
        *to = term(score, weight);
    }
}

/// Returns the term of a score in the merged probability: `weight / (1 + exp(−score))`, but at
/// least [`LEAST`]. Returns 0 if the score is −∞.
#[inline(always)]
fn term(score: f32, weight: f64) -> f64 {
    let score = f64::from(score);
    let tail = exp(-score.abs());
    let part = weight * (if score < 0.0 { tail } else { 1.0 }) / (1.0 + tail);
    let known = if part > LEAST { part } else { LEAST };
    if score > f64::NEG_INFINITY {
        known
    } else {
        0.0
    }
}

/// Returns `1 / (1 + exp(−score))`, without overflow.
fn logistic(score: f64) -> f64 {
    let tail = exp(-score.abs());
    if score < 0.0 {
        tail / (1.0 + tail)
    } else {
        1.0 / (1.0 + tail)
    }
}

/// Returns the log-odds `ln(share / (1 − share))` of a probability.
fn logit(share: f64) -> f32 {
    (share.ln() - (-share).ln_1p()) as f32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn merged_scores_are_those_of_the_definition(
            sent in prop::collection::vec(prop::collection::vec(any::<bool>(), 3), 1..9),
            known in prop::collection::vec(prop::collection::vec(any::<bool>(), 7), 3),
            k in 0..9usize,
            seed in any::<u64>(),
        ) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut score = || match rng.u8(..8) {
                0 => f32::NEG_INFINITY,
                1 => 60.0,
                2 => 0.5,
                _ => 8.0 * rng.f32() - 4.0,
            };
            let (mut indptr, mut blocks, mut values) = (vec![0i32], Vec::new(), Vec::new());
            for row in &sent {
                blocks.extend((0..3).filter(|&block| row[block as usize]));
                indptr.push(blocks.len() as i32);
            }
            values.resize_with(blocks.len(), || score().max(-30.0));
            let labels: Vec<Vec<i32>> = known
                .iter()
                .map(|known| (0..7).filter(|&label| known[label as usize]).collect())
                .collect();
            let scores: Vec<Vec<f32>> = (0..3)
                .map(|block| {
                    let n_rows = sent.iter().filter(|row| row[block]).count();
                    (0..n_rows * labels[block].len()).map(|_| score()).collect()
                })
                .collect();
            let answers: Vec<Answer<'_>> = labels
                .iter()
                .zip(&scores)
                .map(|(labels, scores)| Answer { labels, scores })
                .collect();
            let routes = CsrView::new("routes", &indptr, &blocks, &values, 3).expect("canonical");
            let all = merge(routes, &answers, 7, None, &Watch::new()).expect("shapes agree");
            let best = merge(routes, &answers, 7, Some(k), &Watch::new()).expect("shapes agree");
            let mut seen = [0; 3];
            for row in 0..sent.len() {
                let (blocks, values) = routes.row(row);
                let total: f64 = values.iter().map(|&v| logistic(f64::from(v))).sum();
                let mut expected = Vec::new();
                for label in 0..7 {
                    let (mut share, mut known) = (0.0, false);
                    for (&block, &value) in blocks.iter().zip(values) {
                        let block = block as usize;
                        if let Some(at) = labels[block].iter().position(|&l| l == label) {
                            let score = scores[block][seen[block] * labels[block].len() + at];
                            known |= score > f32::NEG_INFINITY;
                            share += logistic(f64::from(value)) / total * logistic(f64::from(score));
                        }
                    }
                    if known {
                        expected.push((label as u32, logit(share.clamp(LEAST, MOST))));
                    }
                }
                for &block in blocks {
                    seen[block as usize] += 1;
                }
                let (found, found_scores) = all.row(row);
                prop_assert_eq!(found, expected.iter().map(|pair| pair.0).collect::<Vec<_>>());
                for (found, (_, expected)) in found_scores.iter().zip(&expected) {
                    prop_assert!((found - expected).abs() <= 1e-4 * (1.0 + expected.abs()));
                }
                let mut order: Vec<usize> = (0..found.len()).collect();
                order.sort_by(|&a, &b| found_scores[b].total_cmp(&found_scores[a]));
                order.truncate(k);
                order.sort_unstable();
                let ranked: Vec<_> = order.iter().map(|&at| found[at]).collect();
                prop_assert_eq!(best.row(row).0, ranked);
            }
        }
    }

    #[test]
    fn answers_of_another_shape_are_errors() {
        let routes = CsrView::new("routes", &[0i32, 1], &[0], &[1.0f32], 1).expect("canonical");
        let fails = |labels: &[i32], scores: &[f32], n_labels| {
            let answer = Answer { labels, scores };
            merge(routes, &[answer], n_labels, Some(1), &Watch::new()).is_err()
        };
        assert!(!fails(&[1], &[0.5], 2));
        assert!(fails(&[1], &[], 2));
        assert!(fails(&[1], &[0.5], 1));
        assert!(fails(&[-1], &[0.5], 2));
        assert!(fails(&[1, 0], &[0.5, 0.5], 2));
        assert!(merge(routes, &[], 2, None, &Watch::new()).is_err());
    }
}
