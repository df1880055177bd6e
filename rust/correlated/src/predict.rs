//! Computes scores, label sets and probabilities of rows from a fitted model. Sixteen rows are
//! processed at a time.
//!
//! Weights are stored by feature. For each feature of a row, the value of the feature is multiplied
//! by the weights of the feature, and the products are added to the scores of the labels. The sums
//! are the log-odds without couplings, which are the parameters of pairs of labels. The sums are
//! passed to the decoder, which accounts for the couplings. For label sets, the decoder finds the
//! most probable label set. It returns the log-odds of each label, given that all other labels are
//! as in this set. The log-odds are positive exactly for the labels of the set. For rankings and
//! probabilities, the decoder returns the marginal probability of each label.
//!
//! A row takes O(number of weights of its features) time, plus the time of the decoder; see
//! [`Method`]. Rows are independent of each other. The result for a row therefore does not depend
//! on the rows that are scored with it.

use crate::decode::{Decoder, Method, ROWS, SCORES, Scratch, Sets};
use crate::iterate::overwrite;
use crate::model::Matrix;
use manylabel_base::range::same;
use manylabel_base::{Error, extend};
use manylabel_score::{Model, Options, Purpose, Rows, Task};
use manylabel_sparse::{CsrView, Features, Index, Value, with_sparse};
use std::ops::Range;
use std::sync::OnceLock;

/// Largest product of the number of rows and the number of couplings for which no threads are
/// started. Below this limit, the decoder is fast even with a hundred rounds of messages.
const FEW_COUPLINGS: usize = 1 << 17;

/// Computes scores of rows with the arrays of a [`Model`](crate::Model), which it borrows.
///
/// There are three kinds of scores:
///
/// - For label sets and for the method [`decision`](Model::decision), the score of a label is its
///   log-odds, given that all other labels are as in the most probable label set. Exactly the
///   labels of this set have positive scores. With [`Method::Messages`], scores are max-marginals
///   instead.
/// - For rankings, the score of a label is the log-odds of its marginal probability.
/// - For probabilities, the score of a label is its marginal probability.
///
/// For label sets, a threshold is subtracted from every intercept. For rankings and probabilities,
/// no threshold is used. There is one decoder for label sets and one for probabilities. A decoder
/// is prepared when it is first needed, and all threads share it.
pub struct Scorer<'a, P, L> {
    /// The boundaries of the features in `labels`: feature f has weights for
    /// `labels[ends[f]..ends[f + 1]]`.
    ends: &'a [P],
    /// Labels, feature by feature.
    labels: &'a [L],
    /// Weights, in the same order as `labels`.
    weights: &'a [f64],
    /// One intercept per label.
    intercept: &'a [f64],
    /// The couplings, a symmetric matrix. The symmetry has been checked.
    couplings: &'a Matrix,
    /// Label sets of the training rows, from which the search for the most probable label set
    /// starts.
    sets: Sets<'a>,
    /// The method for finding label sets.
    method: Method,
    /// The number that is subtracted from every intercept before label sets are found.
    threshold: f64,
    /// The decoder for label sets. It is empty before the first use.
    decoder: OnceLock<Decoder<'a>>,
    /// The decoder for probabilities. It is empty before the first use.
    marginals: OnceLock<Decoder<'a>>,
}

impl<'a, P: Index, L: Index> Scorer<'a, P, L> {
    /// Borrows weights, intercepts and couplings. The weights are the arrays (ends, labels, values)
    /// of a matrix of shape (`n_features`, `n_labels`) in compressed row format. There is one
    /// intercept per label. It is −∞ for a label that must never be predicted.
    ///
    /// Only the lengths of the weight arrays are checked. The symmetry of the couplings is checked
    /// in O(number of couplings) time.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the lengths do not agree. Returns [`Error::Param`] if
    /// `couplings` is not symmetric or has diagonal entries.
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
                "last entry of the indptr of coef_",
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

    /// Returns a scorer that subtracts `threshold` from every intercept before it finds label sets.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if `threshold` is not finite.
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

    /// Returns a scorer whose search for the most probable label set starts from the given sets.
    /// Set s contains `labels[ends[s]..ends[s + 1]]`. `energies[s]` is the sum of the couplings
    /// within the set.
    ///
    /// The caller must have checked that `ends` starts at 0 and increases to `labels.len()`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the lengths do not agree. Returns [`Error::Csr`] if a set
    /// contains a label that does not exist.
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
                rule: format!(
                    "column {} is out of range for {n_labels} columns",
                    labels[at]
                ),
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

    /// Returns the decoder for label sets, or the decoder for probabilities if `marginals` is true.
    /// The first call prepares the decoder.
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

    /// Computes the log-odds without couplings for `n_rows` rows, starting with row `first`. Writes
    /// them to `scratch.u`.
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
    /// couplings is then finite. The score −∞ of a label with the intercept −∞ does not change.
    /// NaN, which arises from adding opposite infinities, becomes 0.
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

/// Converts a score to single precision. −∞ does not change. Any other score is limited to the
/// range of finite numbers.
#[inline] // called from generic code, which is compiled in other crates
fn single(score: f64) -> f32 {
    if score == f64::NEG_INFINITY {
        return f32::NEG_INFINITY;
    }
    score.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
}

/// A batch of rows to score.
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

/// Labels with the intercept −∞ are never ranked or predicted. All other labels have finite scores.
///
/// # Errors
///
/// [`Model::rows`] returns [`Error::Param`] if too many labels have couplings for the method.
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
