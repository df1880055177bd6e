//! Finds the most probable label set of a row, and computes the probability of each label. The most
//! probable label set is the maximum of `s(z) = Σ_i z_i u_i + Σ_{i<k} c_ik z_i z_k`.
//!
//! Here `u_i` is the log-odds of label i without couplings. A label without couplings is predicted
//! if its u is positive. For the coupled labels there are three methods:
//!
//! - All states are compared. This method is exact and takes O(2^c) per row for c coupled labels.
//! - A search starts from label sets of the training rows and flips labels while this increases the
//!   score.
//! - Max-product messages are sent along the couplings, as in Li et al. (2016; see the
//!   [crate](crate)). This method often fails if the couplings form cycles.
//!
//! No single flip improves a label set found by the first two methods. A label is therefore in the
//! set if and only if its log-odds given the other labels of the set are positive. These log-odds
//! are the scores. The scores of the third method are the max-marginals of its messages.
//!
//! For few coupled labels, probabilities are sums over all states. Otherwise they are computed by
//! sum-product messages or by the mean-field method; see [`Decoder::marginals`]. All computations
//! are in double precision.

mod messages;
mod search;
mod states;

use crate::iterate::overwrite;
use crate::model::Matrix;
use manylabel_base::{Error, Watch, collected};

/// The method that finds the most probable label set. Probabilities do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Compares all states of up to 20 coupled labels. More coupled labels are an error.
    Exact,
    /// Starts from the best label sets of the training rows, and from the label set without
    /// couplings. Flips labels and coupled pairs as long as this increases s(z). The best of all
    /// results is used.
    Search,
    /// Sends max-product messages for at most 50 rounds, as in Li et al. (2016). The result is
    /// unreliable if the couplings form cycles.
    Messages,
    /// Uses [`Exact`](Self::Exact) for up to 14 coupled labels, otherwise [`Search`](Self::Search).
    Auto,
}

/// Largest number of coupled labels for which all states can be visited. The energies of the states
/// then take 8 MiB.
const MAX_EXACT: usize = 20;

/// Largest number of coupled labels for which all states are visited by default. This takes
/// microseconds per row.
const FEW: usize = 14;

/// Names of arrays in memory errors.
pub(crate) const LABELS: &str = "number of labels";
pub(crate) const SCORES: &str = "scores of some rows";
const COUPLINGS: &str = "couplings";

/// Number of rows for which the label sets of the training rows are scored together.
pub(crate) const ROWS: usize = 16;

/// The method that is used for the given couplings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Compares all states.
    States,
    /// Searches from label sets of the training rows.
    Search,
    /// Sends max-product messages.
    Messages,
}

/// The couplings of a model, and data for decoding that depend only on them. A decoder is prepared
/// once for many rows.
pub(crate) struct Decoder<'a> {
    /// The method for finding label sets.
    way: Way,
    /// The couplings c, a symmetric matrix.
    couplings: &'a Matrix,
    /// The labels with couplings, in increasing order.
    coupled: Vec<u32>,
    /// `Σ_{i<k} c_ik z_i z_k` for every state of the coupled labels. Bit b of a state belongs to
    /// the b-th coupled label. Empty if not all states are visited.
    energies: Vec<f64>,
    /// The position of edge k → i, for each edge i → k. Used for messages only.
    reverse: Vec<u32>,
    /// The largest |c| of each label.
    strongest: Vec<f64>,
    /// Label sets of the training rows.
    sets: Sets<'a>,
}

/// Borrowed [label sets](crate::LabelSets).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sets<'a> {
    /// Set s contains `labels[ends[s]..ends[s + 1]]`.
    pub(crate) ends: &'a [usize],
    /// The labels of all sets, one set after the other.
    pub(crate) labels: &'a [u32],
    /// The sum of the couplings within each set.
    pub(crate) energies: &'a [f64],
}

impl Sets<'_> {
    /// Returns the labels of one set.
    fn get(&self, set: usize) -> &[u32] {
        &self.labels[self.ends[set]..self.ends[set + 1]]
    }
}

/// Working space for decoding some rows.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Log-odds without couplings of up to [`ROWS`] rows, row by row.
    pub(crate) u: Vec<f64>,
    /// Log-odds given the other labels of the decoded set, or max-marginals. The layout is the same
    /// as that of `u`.
    pub(crate) odds: Vec<f64>,
    /// Working space for decoding each row.
    pub(crate) work: Work,
}

/// Working space for decoding one row.
#[derive(Default)]
pub(crate) struct Work {
    /// The label set that was found.
    z: Vec<bool>,
    /// Log-odds of several rows in SIMD lanes, label by label.
    lanes: Vec<f64>,
    /// For each row, the best label sets of the training rows with their scores, best first.
    best: Vec<Vec<(f64, u32)>>,
    /// The current label set of the search.
    state: Vec<bool>,
    /// Sums of probabilities over states, for each state of the lowest labels.
    sums: Vec<f64>,
    /// Sums of u over all sets of the lowest labels; see `states.rs`.
    low: Vec<f64>,
    /// Sums of u over all sets of the other coupled labels.
    high: Vec<f64>,
    /// One message per directed coupling.
    messages: Vec<f64>,
    /// The messages of the next round.
    next: Vec<f64>,
}

impl<'a> Decoder<'a> {
    /// Prepares a decoder for label sets.
    ///
    /// Takes O(couplings). If all states are visited, it also takes O(2^c) time and memory for c
    /// coupled labels.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] for [`Method::Exact`] with too many coupled labels. [`Error::TooLarge`] if
    /// there is not enough memory.
    pub(crate) fn new(
        method: Method,
        couplings: &'a Matrix,
        sets: Sets<'a>,
    ) -> Result<Self, Error> {
        let n = couplings.ends.len() - 1;
        let is_coupled = |label: &u32| !couplings.row(*label as usize).0.is_empty();
        let coupled = collected(LABELS, (0..n as u32).filter(is_coupled))?;
        if method == Method::Exact && coupled.len() > MAX_EXACT {
            return Err(Error::Param {
                name: "decoder",
                expected: "\"search\", \"bp\" or \"auto\" for more than 20 coupled labels",
                got: format!("\"exact\" for {} coupled labels", coupled.len()),
            });
        }
        let way = match method {
            Method::Exact => Way::States,
            Method::Auto if coupled.len() <= FEW => Way::States,
            Method::Auto | Method::Search => Way::Search,
            Method::Messages => Way::Messages,
        };
        let strongest = |label: usize| {
            let values = couplings.row(label).1.iter();
            values.fold(0.0, |most: f64, value| most.max(value.abs()))
        };
        let mut decoder = Self {
            way,
            couplings,
            energies: Vec::new(),
            reverse: Vec::new(),
            strongest: collected(LABELS, (0..n).map(strongest))?,
            coupled,
            sets,
        };
        match way {
            Way::States => decoder.energies = decoder.energies()?,
            Way::Messages => decoder.reverse = decoder.reverse()?,
            Way::Search => {}
        }
        Ok(decoder)
    }

    /// Prepares a decoder for probabilities.
    pub(crate) fn for_marginals(couplings: &'a Matrix, sets: Sets<'a>) -> Result<Self, Error> {
        let mut decoder = Self::new(Method::Messages, couplings, sets)?;
        if decoder.coupled.len() <= FEW {
            decoder.energies = decoder.energies()?;
        }
        Ok(decoder)
    }

    /// Returns the number of labels, coupled or not.
    fn n_labels(&self) -> usize {
        self.strongest.len()
    }

    /// Decodes the rows of `scratch.u` and writes their scores to `scratch.odds`.
    pub(crate) fn decode(&self, scratch: &mut Scratch, watch: &Watch) -> Result<(), Error> {
        let Scratch { u, odds, work } = scratch;
        overwrite(SCORES, odds, u)?;
        if self.coupled.is_empty() {
            return Ok(());
        }
        let n = self.n_labels();
        if self.way == Way::Search {
            self.score_sets(u, work)?;
        }
        for (row, (u, odds)) in u.chunks(n).zip(odds.chunks_mut(n)).enumerate() {
            match self.way {
                Way::States => self.exact(u, work)?,
                Way::Search => self.search(u, row, work, odds, watch)?,
                Way::Messages => {
                    self.messages(u, work, odds, watch)?;
                    continue;
                }
            }
            self.settle(u, &mut work.z, odds);
        }
        Ok(())
    }

    /// Writes the log-odds of every label given the other labels in `z`.
    fn odds(&self, u: &[f64], z: &[bool], odds: &mut [f64]) {
        odds.copy_from_slice(u);
        for &label in &self.coupled {
            if z[label as usize] {
                let (others, values) = self.couplings.row(label as usize);
                for (other, value) in others.iter().zip(values) {
                    odds[*other as usize] += value;
                }
            }
        }
    }

    /// Writes the log-odds at `z`. Before that, flips labels if their log-odds have the wrong sign
    /// because of rounding or a tie. Scores are later rounded to single precision, so the signs
    /// after rounding are used.
    fn settle(&self, u: &[f64], z: &mut [bool], odds: &mut [f64]) {
        for _ in 0..2 * self.coupled.len() {
            self.odds(u, z, odds);
            let wrong = self.coupled.iter().map(|&label| label as usize);
            let wrong = wrong.filter(|&label| z[label] != (odds[label] as f32 > 0.0));
            let Some(worst) = wrong.max_by(|&a, &b| odds[a].abs().total_cmp(&odds[b].abs())) else {
                return;
            };
            z[worst] = !z[worst];
        }
        self.odds(u, z, odds);
    }

    /// Writes the probability of every label of a row, given its log-odds `u` without couplings.
    ///
    /// With up to 14 coupled labels, probabilities are exact sums over all states. Otherwise they
    /// are computed by sum-product messages, damped by one half. The mean-field method is used if
    /// messages do not converge within 100 rounds, or if there are more than 5000 directed
    /// couplings.
    pub(crate) fn marginals(
        &self,
        u: &[f64],
        work: &mut Work,
        out: &mut [f64],
        watch: &Watch,
    ) -> Result<(), Error> {
        for (q, &u) in out.iter_mut().zip(u) {
            *q = sigmoid(u);
        }
        if !self.energies.is_empty() {
            self.sum_states(u, work, out)?;
        } else if !self.sum_product(u, work, out, watch)? {
            self.mean_field(u, out, watch)?;
        }
        Ok(())
    }

    /// Converts the [`marginals`](Self::marginals) of all labels of a row to log-odds. They are
    /// finite if `u` is finite. Labels without couplings get `u` itself, which is exact.
    pub(crate) fn marginal_odds(&self, u: &[f64], odds: &mut [f64]) {
        for (label, (odds, &u)) in odds.iter_mut().zip(u).enumerate() {
            if u.is_infinite() || self.couplings.row(label).0.is_empty() {
                *odds = u; // exact, even for very large log-odds
            } else {
                let q = odds.clamp(f64::MIN_POSITIVE, 1.0 - f64::EPSILON);
                *odds = q.ln() - (-q).ln_1p();
            }
        }
    }
}

/// Returns `1 / (1 + e^{−x})`.
fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
