//! Computes scores, label sets and probabilities of rows from a fitted model, for sixteen rows at a
//! time.
//!
//! Weights are stored by feature. Each feature of a row adds its value times its weights to the
//! scores of the labels that have a weight for it. The sums are log-odds without couplings, and are
//! passed to the decoder. For label sets, the decoder returns the log-odds of each label given that
//! all other labels are as in the most probable label set. These log-odds are positive exactly for
//! the labels of this set. For rankings and probabilities, the decoder returns marginals.
//!
//! A row takes O(weights of its features), plus the time for decoding; see [`Method`]. Rows are
//! independent, so results are the same whichever rows are scored together.

use crate::decode::{Decoder, Method, ROWS, SCORES, Scratch, Sets};
use crate::iterate::overwrite;
use crate::model::Matrix;
use manylabel_base::range::same;
use manylabel_base::{Error, extend};
use manylabel_score::{Model, Options, Purpose, Rows, Task};
use manylabel_sparse::{CsrView, Features, Index, Value, with_sparse};
use std::ops::Range;
use std::sync::OnceLock;

/// Largest product of the numbers of rows and couplings for which decoding is fast, even with a
/// hundred rounds of messages. No threads are started for smaller products.
const FEW_COUPLINGS: usize = 1 << 17;

/// Decodes rows with the arrays of a [`Model`](crate::Model), which it borrows.
///
/// There are three kinds of scores:
///
/// - For label sets and `decision`, the score of a label is its log-odds, given that all other
///   labels are as in the most probable label set. The labels of this set have positive scores.
///   With [`Method::Messages`], scores are max-marginals instead.
/// - For rankings, scores are log-odds of the marginal probability of each label.
/// - Probabilities are the marginals themselves.
///
/// For label sets, a threshold is subtracted from every intercept. For rankings and probabilities,
/// no threshold is used. Decoders are prepared at first use, and all threads use the same decoders.
pub struct Scorer<'a, P, L> {
    /// Feature f has weights for `labels[ends[f]..ends[f + 1]]`.
    ends: &'a [P],
    /// Labels, feature by feature.
    labels: &'a [L],
    /// Weights, in the same order as `labels`.
    weights: &'a [f64],
    /// One intercept per label.
    intercept: &'a [f64],
    /// The couplings. Their symmetry has been checked.
    couplings: &'a Matrix,
    /// Label sets of the training rows. The search starts from them.
    sets: Sets<'a>,
    /// The method for finding label sets.
    method: Method,
    /// The number subtracted from intercepts to find label sets.
    threshold: f64,
    /// The decoder for label sets, after its first use.
    decoder: OnceLock<Decoder<'a>>,
    /// The decoder for probabilities, after its first use.
    marginals: OnceLock<Decoder<'a>>,
}

impl<'a, P: Index, L: Index> Scorer<'a, P, L> {
    /// Borrows weights, intercepts and couplings. The weights are a matrix of shape (`n_features`,
    /// `n_labels`) in compressed row format: (ends, labels, values). There is one intercept per
    /// label. It is −∞ for a label that must never be predicted.
    ///
    /// Only the lengths of the weight arrays are checked. The symmetry of the couplings is checked
    /// in time proportional to their number.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the lengths do not agree. [`Error::Csr`] if `couplings` is not symmetric
    /// or has diagonal entries.
    pub fn new(
        (ends, labels, weights): (&'a [P], &'a [L], &'a [f64]),
        intercept: &'a [f64],
        couplings: &'a Matrix,
        method: Method,
    ) -> Result<Self, Error> {
        let n_labels = intercept.len();
        for (what, expected, got) in [
            ("values of coef_", labels.len(), weights.len()),
            (
                "end of indptr of coef_",
                labels.len(),
                ends.last().map_or(usize::MAX, |end| end.get()),
            ),
            ("rows of correlations_", n_labels, couplings.ends.len() - 1),
            ("columns of correlations_", n_labels, couplings.n_cols),
        ] {
            same(what, expected, got)?;
        }
        couplings.check_symmetric()?;
        Ok(Self {
            ends,
            labels,
            weights,
            intercept,
            couplings,
            sets: Sets {
                ends: &[0],
                labels: &[],
                energies: &[],
            },
            method,
            threshold: 0.0,
            decoder: OnceLock::new(),
            marginals: OnceLock::new(),
        })
    }

    /// Returns a scorer that subtracts `threshold` from the intercepts to find label sets.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if `threshold` is not finite.
    pub fn with_threshold(self, threshold: f64) -> Result<Self, Error> {
        if threshold.is_finite() {
            return Ok(Self { threshold, ..self });
        }
        Err(Error::Param {
            name: "threshold_",
            expected: "finite",
            got: threshold.to_string(),
        })
    }

    /// Returns a scorer with label sets from which the search can start. Set s contains
    /// `labels[ends[s]..ends[s + 1]]`. `energies[s]` is the sum of the couplings within the set.
    ///
    /// The caller must have checked that `ends` starts at 0 and increases to `labels.len()`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if the lengths do not agree. [`Error::Csr`] if a set contains a label that
    /// does not exist.
    pub fn with_sets(
        self,
        ends: &'a [usize],
        labels: &'a [u32],
        energies: &'a [f64],
    ) -> Result<Self, Error> {
        if ends.len() != energies.len() + 1 {
            return Err(Error::Shape {
                what: "length of label_set_energies_",
                expected: ends.len().saturating_sub(1),
                got: energies.len(),
            });
        }
        let n_labels = self.intercept.len();
        // The caller has checked that `ends` is in increasing order.
        if let Some(at) = labels.iter().position(|&label| label as usize >= n_labels) {
            return Err(Error::Csr {
                matrix: "label_sets_",
                row: ends.partition_point(|&end| end <= at) - 1,
                rule: format!("column {} is outside 0..{n_labels}", labels[at]),
            });
        }
        Ok(Self {
            sets: Sets {
                ends,
                labels,
                energies,
            },
            ..self
        })
    }

    /// Returns the decoder for label sets, or for probabilities if `marginals` is true. It is
    /// prepared at the first call.
    fn decoder(&self, marginals: bool) -> Result<&Decoder<'a>, Error> {
        let cell = if marginals {
            &self.marginals
        } else {
            &self.decoder
        };
        if let Some(decoder) = cell.get() {
            return Ok(decoder);
        }
        let decoder = if marginals {
            Decoder::for_marginals(self.couplings, self.sets)?
        } else {
            Decoder::new(self.method, self.couplings, self.sets)?
        };
        Ok(cell.get_or_init(|| decoder))
    }

    /// Writes the log-odds without couplings of `n_rows` rows, starting at row `first`, to
    /// `scratch.u`.
    fn score<I: Index, V: Value>(
        &self,
        x: CsrView<'_, I, V>,
        first: usize,
        n_rows: usize,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        scratch.u.clear();
        for row in first..first + n_rows {
            let at = scratch.u.len();
            extend(SCORES, &mut scratch.u, self.intercept.iter().copied())?;
            let u = &mut scratch.u[at..];
            let (cols, values) = x.row(row);
            for (col, value) in cols.iter().zip(values) {
                let (feature, value) = (col.get(), value.f64());
                let range = self.ends[feature].get()..self.ends[feature + 1].get();
                let (labels, weights) = (&self.labels[range.clone()], &self.weights[range]);
                for (label, &weight) in labels.iter().zip(weights) {
                    u[label.get()] += value * weight;
                }
            }
            self.bring_back(u);
        }
        Ok(())
    }

    /// Limits the scores of a row to the range of single precision. Every sum of scores and
    /// couplings then stays finite. NaN, which is a sum of opposite infinities, becomes 0. A label
    /// with an intercept of −∞ has the score −∞.
    fn bring_back(&self, u: &mut [f64]) {
        let (least, most) = (f64::from(f32::MIN), f64::from(f32::MAX));
        for (u, &intercept) in u.iter_mut().zip(self.intercept) {
            let score = if u.is_nan() { 0.0 } else { *u };
            *u = if intercept.is_finite() {
                score.clamp(least, most)
            } else {
                intercept
            };
        }
    }
}

/// Returns a score in single precision. −∞ does not change. All other scores are limited to the
/// finite numbers of single precision.
fn single(score: f64) -> f32 {
    if score == f64::NEG_INFINITY {
        return f32::NEG_INFINITY;
    }
    score.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
}

/// Rows to decode.
struct Batch<'b, 'a, P, L, I, V> {
    scorer: &'b Scorer<'a, P, L>,
    decoder: &'b Decoder<'a>,
    purpose: Purpose,
    x: CsrView<'b, I, V>,
}

impl<P: Index, L: Index, I: Index, V: Value> Rows for Batch<'_, '_, P, L, I, V> {
    fn n_labels(&self) -> usize {
        self.scorer.intercept.len()
    }

    fn at_once(&self) -> usize {
        ROWS
    }

    fn score(&self, rows: Range<usize>, scores: &mut [f32], task: &mut Task) -> Result<(), Error> {
        let scratch = task.work.room(|| Ok(Scratch::default()))?;
        self.scorer.score(self.x, rows.start, rows.len(), scratch)?;
        if self.purpose == Purpose::Ranking {
            let Scratch { u, odds, work } = scratch;
            overwrite(SCORES, odds, u)?;
            let n_labels = self.n_labels();
            for (u, odds) in u.chunks(n_labels).zip(odds.chunks_mut(n_labels)) {
                self.decoder.marginals(u, work, odds, task.watch)?;
                self.decoder.marginal_odds(u, odds);
            }
        } else {
            for u in &mut scratch.u {
                *u -= self.scorer.threshold;
            }
            self.decoder.decode(scratch, task.watch)?;
        }
        for (score, odds) in scores.iter_mut().zip(&scratch.odds) {
            *score = single(*odds);
        }
        Ok(())
    }

    fn marginals(&self, rows: Range<usize>, out: &mut [f64], task: &mut Task) -> Result<(), Error> {
        let scratch = task.work.room(|| Ok(Scratch::default()))?;
        self.scorer.score(self.x, rows.start, rows.len(), scratch)?;
        let Scratch { u, work, .. } = scratch;
        let n_labels = self.n_labels();
        for (u, out) in u.chunks(n_labels).zip(out.chunks_mut(n_labels)) {
            self.decoder.marginals(u, work, out, task.watch)?;
        }
        Ok(())
    }
}

/// Labels with intercept −∞ are never ranked or predicted. Scores are finite for all other labels.
///
/// # Errors
///
/// [`Error::Param`] from [`Model::rows`] if there are too many coupled labels for the method.
///
/// # Panics
///
/// Scoring panics if the weights refer to a label or a position that does not exist.
impl<P: Index, L: Index> Model for Scorer<'_, P, L> {
    fn n_labels(&self) -> usize {
        self.intercept.len()
    }

    fn n_features(&self) -> usize {
        self.ends.len() - 1
    }

    fn rows<'a>(&'a self, x: Features<'a>, options: Options) -> Result<Box<dyn Rows + 'a>, Error> {
        let purpose = options.purpose;
        let marginals = matches!(purpose, Purpose::Ranking | Purpose::Probabilities);
        let decoder = self.decoder(marginals)?;
        Ok(with_sparse!(x.sparse()?, |x| Box::new(Batch {
            scorer: self,
            decoder,
            purpose,
            x,
        })))
    }

    fn is_quick(&self, n_rows: usize) -> bool {
        n_rows <= ROWS && n_rows * self.couplings.values.len() <= FEW_COUPLINGS
    }
}
