//! One ranking from the scores of several blocks.

use manylabel_base::range::same;
use manylabel_base::{Error, Watch, extend, filled, push, reserved};
use manylabel_simd::{exp, wide};
use manylabel_sparse::{CsrOwned, CsrView, Index, Picked, TopK, Value};

/// Rows of a task; so few need no threads at all.
pub const ROWS_AT_ONCE: usize = 64;
/// Scores of which the largest is found before any is ranked.
const CHUNK: usize = 16;
/// Shares of 0 and 1 would have infinite logits.
const LEAST: f64 = 1e-300;
const MOST: f64 = 1.0 - 1e-16;

/// What the model of a block says of the rows sent there.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answer<'a> {
    /// The labels it knows, increasing.
    pub labels: &'a [i32],
    /// Their scores, row after row in the order of the rows sent there; −∞ where there is none.
    pub scores: &'a [f32],
}

/// Merges what the models of each row's blocks say of its labels.
///
/// `routes` (`n_rows`, `n_blocks`) stores the router's scores of the blocks a row was sent to;
/// `answers` has one for each block. With `p_l` the logistic function of block l's score, scaled to
/// sum to 1 over a row's blocks, and `s_lj` its score of label j, the merged score is the logit of
/// `Σ_l p_l / (1 + exp(−s_lj))`. Of each row the `k` best are returned, ties to the lower label,
/// or all if `k` is absent; labels in increasing order.
///
/// # Errors
///
/// [`Error::Shape`] if there are fewer answers than blocks or an answer is not of the size that its
/// rows and labels make, [`Error::Param`] for labels out of order or none of `n_labels`,
/// [`Error::TooLarge`], [`Error::Stopped`].
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

/// Checks that labels are increasing and some of `n_labels`.
pub(crate) fn check_labels(labels: &[i32], n_labels: usize) -> Result<(), Error> {
    let known = |&label: &i32| usize::try_from(label).is_ok_and(|label| label < n_labels);
    if let Some(label) = labels.iter().find(|label| !known(label)) {
        return Err(Error::Param {
            name: "label_blocks_",
            expected: "labels from 0 to the number of labels",
            got: label.to_string(),
        });
    }
    if let Some(at) = (1..labels.len()).find(|&at| labels[at - 1] >= labels[at]) {
        return Err(Error::Param {
            name: "label_blocks_",
            expected: "increasing within a block",
            got: format!("{} before {}", labels[at - 1], labels[at]),
        });
    }
    Ok(())
}

/// As [`merge`], of labels that [`check_labels`] has let through.
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

/// Where in the answer of its block each stored route is, counted in rows.
struct Places {
    /// Of each row's routes.
    starts: Vec<usize>,
    at: Vec<usize>,
}

fn places<I: Index, T: Value>(
    routes: CsrView<'_, I, T>,
    answers: &[Answer<'_>],
) -> Result<Places, Error> {
    same("number of blocks", routes.n_cols(), answers.len())?;
    let mut sent = filled("number of blocks", 0, answers.len())?;
    let mut places = Places {
        starts: reserved("number of rows", routes.n_rows() + 1)?,
        at: reserved("routes of rows", routes.nnz())?,
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

/// Space for one row, reused.
struct Scratch<'a> {
    /// What its blocks say, and their weights.
    parts: Vec<(Answer<'a>, f64)>,
    /// Sums by label; 0 between rows.
    shares: Vec<f64>,
    /// Labels whose sums are not.
    touched: Vec<u32>,
    weights: Vec<f64>,
    /// Of one block.
    terms: Vec<f64>,
}

impl<'a> Scratch<'a> {
    fn new(n_labels: usize) -> Result<Self, Error> {
        Ok(Self {
            parts: Vec::new(),
            shares: filled("number of labels", 0.0, n_labels)?,
            touched: Vec::new(),
            weights: Vec::new(),
            terms: Vec::new(),
        })
    }

    /// Turns to a row.
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
            // Where the router gives no block a chance, all have the same.
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

    /// Sums over the blocks, of every label.
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

    /// Pushes all labels and merged scores, and forgets them.
    fn all(&mut self, pairs: &mut Vec<(u32, f32)>) -> Result<(), Error> {
        self.touched.sort_unstable();
        for label in self.touched.drain(..) {
            let share = std::mem::take(&mut self.shares[label as usize]);
            push("labels of rows", pairs, (label, logit(share.min(MOST))))?;
        }
        Ok(())
    }

    /// Pushes the `k` best labels and their merged scores.
    ///
    /// The k-th best of one block has at least its term there; a label whose every term is below
    /// that over the number of blocks is not among the best. So most labels take one comparison a
    /// block and no exponential.
    fn best(&mut self, k: usize, pairs: &mut Vec<(u32, f32)>) -> Result<(), Error> {
        let mut enough = 0.0;
        for &(Answer { scores, .. }, weight) in &self.parts {
            if let Some(kth) = kth_largest(scores, k)? {
                enough = f64::max(enough, weight * logistic(f64::from(kth)));
            }
        }
        let each = enough / self.parts.len().max(1) as f64 * (1.0 - 1e-6);
        for &(Answer { labels, scores }, weight) in &self.parts {
            // Scores are compared in single precision: with room for its rounding.
            let least = if each <= LEAST {
                f32::NEG_INFINITY
            } else if each < weight {
                let least = logit(each / weight);
                least - 1e-5 * (1.0 + least.abs())
            } else {
                continue; // no score of this block is enough
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
        extend("number of labels to name", pairs, best.drain_by_label())
    }
}

/// The k-th largest of the scores that are not −∞; None if there are fewer or `k` is 0.
fn kth_largest(scores: &[f32], k: usize) -> Result<Option<f32>, Error> {
    let mut best = TopK::new(k.min(scores.len()))?;
    let mut n_known = 0;
    for (at, chunk) in (0..).step_by(CHUNK).zip(scores.chunks(CHUNK)) {
        let largest = chunk.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if largest > best.floor() || n_known < k {
            for (at, &score) in (at..).zip(chunk) {
                n_known += usize::from(score > f32::NEG_INFINITY);
                best.push(at, score);
            }
        }
    }
    let mut least = None;
    if k > 0 && n_known >= k {
        least = best
            .drain_by_label()
            .map(|(_, score)| score)
            .reduce(f32::min);
    }
    Ok(least)
}

/// `weight / (1 + e^{−s})` of each score s, at least [`LEAST`]; 0 where it is −∞.
#[wide]
fn weighted(scores: &[f32], weight: f64, terms: &mut [f64]) {
    for (to, &score) in terms.iter_mut().zip(scores) {
        *to = term(score, weight);
    }
}

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

fn logistic(score: f64) -> f64 {
    let tail = exp(-score.abs());
    if score < 0.0 {
        tail / (1.0 + tail)
    } else {
        1.0 / (1.0 + tail)
    }
}

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
