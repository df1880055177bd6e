//! One ranking from the scores of several blocks.

use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::{CsrOwned, CsrView, Index, TopK, Value, exp};
use multiversion::multiversion;
use rayon::prelude::*;

/// Rows of a task.
const ROWS_AT_ONCE: usize = 64;
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
/// rows and labels make, [`Error::Param`] for a label that is none of `n_labels`,
/// [`Error::TooLarge`], [`Error::Stopped`].
pub fn merge<I: Index, T: Value>(
    routes: CsrView<'_, I, T>,
    answers: &[Answer<'_>],
    n_labels: usize,
    k: Option<usize>,
    watch: &Watch,
) -> Result<CsrOwned, Error> {
    let places = places(routes, answers, n_labels)?;
    let tasks: Vec<usize> = (0..routes.n_rows()).step_by(ROWS_AT_ONCE).collect();
    let parts = tasks
        .par_iter()
        .map_init(Scratch::default, |scratch, &first| {
            watch.step(0)?;
            let mut part = Part::default();
            scratch.shares.resize(n_labels, 0.0);
            for row in first..(first + ROWS_AT_ONCE).min(routes.n_rows()) {
                scratch.add_up(routes, row, answers, &places);
                scratch.pick(k, &mut part.pairs);
                part.ends.push(part.pairs.len());
            }
            Ok(part)
        });
    let mut merged = CsrOwned {
        indptr: vec![0],
        indices: Vec::new(),
        values: Vec::new(),
        n_cols: n_labels,
    };
    for part in parts.collect::<Result<Vec<Part>, Error>>()? {
        let before = merged.indices.len();
        merged
            .indptr
            .extend(part.ends.iter().map(|end| before + end));
        merged
            .indices
            .extend(part.pairs.iter().map(|&(label, _)| label));
        merged
            .values
            .extend(part.pairs.iter().map(|&(_, score)| score));
    }
    Ok(merged)
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
    n_labels: usize,
) -> Result<Places, Error> {
    let same = |what, expected, got| {
        if expected == got {
            return Ok(());
        }
        Err(Error::Shape {
            what,
            expected,
            got,
        })
    };
    same("number of blocks", routes.n_cols(), answers.len())?;
    let mut sent = filled("number of blocks", 0, answers.len())?;
    let mut places = Places {
        starts: vec![0],
        at: Vec::with_capacity(routes.nnz()),
    };
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
        let known = |&label: &i32| usize::try_from(label).is_ok_and(|label| label < n_labels);
        if let Some(label) = answer.labels.iter().find(|label| !known(label)) {
            return Err(Error::Param {
                name: "label_blocks_",
                expected: "labels from 0 to the number of labels",
                got: label.to_string(),
            });
        }
    }
    Ok(places)
}

/// Merged scores of some rows.
#[derive(Default)]
struct Part {
    ends: Vec<usize>,
    pairs: Vec<(u32, f32)>,
}

/// Space for one row, reused.
#[derive(Default)]
struct Scratch {
    /// Sums by label; 0 between rows.
    shares: Vec<f64>,
    /// Labels whose sums are not.
    touched: Vec<u32>,
    weights: Vec<f64>,
    /// Of one block.
    terms: Vec<f64>,
}

impl Scratch {
    fn add_up<I: Index, T: Value>(
        &mut self,
        routes: CsrView<'_, I, T>,
        row: usize,
        answers: &[Answer<'_>],
        places: &Places,
    ) {
        let (blocks, scores) = routes.row(row);
        self.weights.clear();
        self.weights
            .extend(scores.iter().map(|score| logistic(score.f64())));
        let total: f64 = self.weights.iter().sum();
        let places = &places.at[places.starts[row]..];
        for ((block, &place), weight) in blocks.iter().zip(places).zip(&self.weights) {
            let Answer { labels, scores } = answers[block.get()];
            // Where the router gives no block a chance, all have the same.
            let weight = if total > 0.0 {
                weight / total
            } else {
                1.0 / blocks.len() as f64
            };
            let scores = &scores[place * labels.len()..][..labels.len()];
            self.terms.resize(scores.len(), 0.0);
            weighted(scores, weight, &mut self.terms);
            for (&label, &term) in labels.iter().zip(&self.terms) {
                if term > 0.0 {
                    let share = &mut self.shares[label as usize];
                    if *share == 0.0 {
                        self.touched.push(label as u32);
                    }
                    *share += term;
                }
            }
        }
    }

    /// Pushes labels and merged scores, and forgets them.
    fn pick(&mut self, k: Option<usize>, pairs: &mut Vec<(u32, f32)>) {
        let Self {
            shares, touched, ..
        } = self;
        let mut best = k.map(|k| TopK::new(k.min(touched.len())));
        let mut floor = 0.0;
        if best.is_none() {
            touched.sort_unstable();
        }
        for label in touched.drain(..) {
            let share = std::mem::take(&mut shares[label as usize]).min(MOST);
            match &mut best {
                // A logarithm for those that might be among the best, and no others.
                Some(best) if share >= floor => {
                    best.push(label, logit(share));
                    // Room for what rounding to single precision has made equal.
                    floor = logistic(f64::from(best.floor())) * (1.0 - 1e-5);
                }
                Some(_) => {}
                None => pairs.push((label, logit(share))),
            }
        }
        if let Some(mut best) = best {
            best.drain_by_label(|label, score| pairs.push((label, score)));
        }
    }
}

/// `weight / (1 + e^{−s})` of each score s, at least [`LEAST`]; 0 where it is −∞.
#[multiversion(targets = "simd")]
fn weighted(scores: &[f32], weight: f64, terms: &mut [f64]) {
    for (term, &score) in terms.iter_mut().zip(scores) {
        let score = f64::from(score);
        let tail = exp(-score.abs());
        let part = weight * (if score < 0.0 { tail } else { 1.0 }) / (1.0 + tail);
        let known = if part > LEAST { part } else { LEAST };
        *term = if score > f64::NEG_INFINITY {
            known
        } else {
            0.0
        };
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
        assert!(merge(routes, &[], 2, None, &Watch::new()).is_err());
    }
}
