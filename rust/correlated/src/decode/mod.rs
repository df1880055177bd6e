//! Finds the most probable label set of a row, and computes the probability of each label. The most
//! probable label set z maximizes the score `s(z) = Σ_i z_i u_i + Σ_{i<k} c_ik z_i z_k`.
//!
//! Here `z_i` is 1 if label i is in the set and 0 otherwise, `u_i` is the log-odds of label i
//! without couplings, and `c_ik` is the coupling of labels i and k. A label without couplings is
//! predicted if its `u_i` is positive. There are three methods for the labels with couplings:
//!
//! - All label sets (states) are compared. This method is exact and takes O(2^m) time per row for m
//!   labels with couplings.
//! - A search starts from label sets of the training rows. It changes single labels or pairs as
//!   long as the score increases.
//! - Max-product messages are sent along the couplings, as in Li et al. (2016; see the [crate]).
//!   This method often fails if the couplings form cycles.
//!
//! The label sets found by the first two methods cannot be improved by adding or removing one
//! label. A label is therefore in the set if and only if its log-odds, given the other labels of
//! the set, are positive. These log-odds are the scores of the labels. With the third method, the
//! scores are the max-marginals computed from the messages.
//!
//! If few labels have couplings, probabilities are sums over all states. Otherwise they are
//! computed by sum-product messages or by the mean-field method; see [`Decoder::marginals`]. All
//! computations are in double precision.

mod messages;
mod search;
mod states;

use crate::iterate::overwrite;
use crate::model::Matrix;
use manylabel_base::{Error, Watch, collected};

/// The method that finds the most probable label set. Probabilities do not depend on this method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Compares all label sets of up to 20 labels with couplings. If more labels have couplings, an
    /// error is returned.
    Exact,
    /// Searches from several starting sets: the best label sets of the training rows, and the label
    /// set that would be predicted without couplings. Adds or removes single labels and coupled
    /// pairs as long as this increases the score s(z). Returns the best label set found.
    Search,
    /// Sends max-product messages for at most 50 rounds, as in Li et al. (2016). The result is
    /// unreliable if the couplings form cycles.
    Messages,
    /// Uses [`Exact`](Self::Exact) if at most 14 labels have couplings, otherwise
    /// [`Search`](Self::Search).
    Auto,
}

/// Largest number of labels with couplings for which all label sets (states) can be compared. The
/// sums of couplings of all states then take 8 MiB.
const MAX_EXACT: usize = 20;

/// Largest number of labels with couplings for which all label sets are compared by default. The
/// comparison then takes microseconds per row.
const FEW: usize = 14;

/// Names of arrays in error messages about memory.
pub(crate) const LABELS: &str = "number of labels";
pub(crate) const SCORES: &str = "number of scores of some rows";
const COUPLINGS: &str = "number of couplings";

/// Number of rows that are compared with the label sets of the training rows at the same time.
pub(crate) const ROWS: usize = 16;

/// The method of a decoder, chosen by the user or from the number of labels with couplings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Compares all label sets.
    States,
    /// Searches for the most probable label set, starting from label sets of the training rows.
    Search,
    /// Sends max-product messages.
    Messages,
}

/// Finds label sets and probabilities of rows for given couplings. A decoder is prepared once and
/// used for many rows.
pub(crate) struct Decoder<'a> {
    /// The method for finding label sets.
    way: Way,
    /// The couplings c as a symmetric matrix, of shape (`n_labels`, `n_labels`).
    couplings: &'a Matrix,
    /// The labels with couplings, in increasing order.
    coupled: Vec<u32>,
    /// The sum of the couplings within each set of coupled labels, `Σ_{i<k} c_ik z_i z_k`. The
    /// index of a set is a binary number, in which bit b belongs to the b-th label of `coupled`.
    /// Empty if the method does not compare all sets.
    energies: Vec<f64>,
    /// For each stored coupling (i, k), the position of the stored coupling (k, i). Filled only for
    /// messages.
    reverse: Vec<u32>,
    /// For each label, the largest absolute value of its couplings.
    strongest: Vec<f64>,
    /// Label sets of the training rows, from which the search starts.
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

/// The workspace for a group of rows.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Log-odds without couplings of up to [`ROWS`] rows, row by row.
    pub(crate) u: Vec<f64>,
    /// The scores of the rows, in the same layout as `u`. A score is the log-odds of a label, given
    /// that all other labels are as in the label set that was found. If messages are used, a score
    /// is a max-marginal.
    pub(crate) odds: Vec<f64>,
    /// The workspace for decoding each row.
    pub(crate) work: Work,
}

/// The workspace for one row.
#[derive(Default)]
pub(crate) struct Work {
    /// For each label, whether the most probable label set contains the label.
    z: Vec<bool>,
    /// Log-odds without couplings, label by label. Each of several rows has one SIMD lane.
    lanes: Vec<f64>,
    /// For each row, the best label sets of the training rows with their scores, best first.
    best: Vec<Vec<(f64, u32)>>,
    /// For each label, whether the label set that the search currently considers contains the
    /// label.
    state: Vec<bool>,
    /// For each set of the first ten coupled labels, the summed probability of all label sets that
    /// agree with this set on these labels.
    sums: Vec<f64>,
    /// For each set of the first ten coupled labels, the sum of the log-odds u over the set; see
    /// `states.rs`.
    low: Vec<f64>,
    /// For each set of the other coupled labels, the sum of u over the set.
    high: Vec<f64>,
    /// The messages, one for each direction of each coupling.
    messages: Vec<f64>,
    /// The messages of the next round.
    next: Vec<f64>,
}

impl<'a> Decoder<'a> {
    /// Prepares a decoder that finds label sets.
    ///
    /// The preparation takes O(number of couplings) time. If all sets of m coupled labels are
    /// compared, it also takes O(2^m) time and memory.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if the method is [`Method::Exact`] and too many labels have
    /// couplings. Returns [`Error::TooLarge`] if there is not enough memory.
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

    /// Prepares a decoder that computes probabilities.
    pub(crate) fn for_marginals(couplings: &'a Matrix, sets: Sets<'a>) -> Result<Self, Error> {
        let mut decoder = Self::new(Method::Messages, couplings, sets)?;
        if decoder.coupled.len() <= FEW {
            decoder.energies = decoder.energies()?;
        }
        Ok(decoder)
    }

    /// Returns the number of labels, including labels without couplings.
    fn n_labels(&self) -> usize {
        self.strongest.len()
    }

    /// Finds the label set of each row. Reads log-odds from `scratch.u` and writes scores to
    /// `scratch.odds`.
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

    /// Writes the log-odds of every label, given that all other labels are as in the set `z`.
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

    /// Writes the log-odds of every label, given that all other labels are as in the set `z`. First
    /// adds or removes labels if the sign of their log-odds does not agree with `z`, which happens
    /// only because of rounding errors or ties. Signs are taken after rounding to single precision,
    /// because scores are returned in single precision.
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

    /// Writes the probability of every label of a row. `u` holds the log-odds of the labels without
    /// couplings.
    ///
    /// If at most 14 labels have couplings, probabilities are exact sums over all label sets.
    /// Otherwise they are computed by sum-product messages, damped by one half. The mean-field
    /// method is used instead in two cases: if the messages do not converge within 100 rounds, or
    /// if there are more than 5000 directed couplings (each coupling counts in both directions).
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

    /// Writes the log-odds of the probabilities that [`marginals`](Self::marginals) computes. The
    /// log-odds are finite if `u` is finite. For labels without couplings, the log-odds are exactly
    /// `u`.
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
