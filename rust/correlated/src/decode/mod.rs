//! The most probable label set of a row: the maximum of `s(z) = Σ_i z_i u_i + Σ_{i<k} c_ik z_i z_k`.
//!
//! Labels without couplings are decided by the sign of u. For the others there are three ways: all
//! states, a search from label sets of the training rows, and max-product messages. What the first two
//! find is left by no single flip, so that a label is in the set if and only if its log-odds given the
//! rest of the set are positive; these are the scores.

mod messages;
mod search;
mod states;

use crate::iterate::overwrite;
use crate::model::Matrix;
use manylabel_base::{Error, Watch, collected};

/// How the most probable label set is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// All states of up to 20 coupled labels.
    Exact,
    /// From the best label sets of the training rows and the independent solution, flips of labels and
    /// of pairs while they gain.
    Search,
    /// At most 50 rounds of max-product messages: the paper's way, unreliable on graphs with cycles.
    Messages,
    /// Exact for up to 14 coupled labels, else search.
    Auto,
}

/// Coupled labels whose states can all be visited: their energies take 8 MiB.
const MAX_EXACT: usize = 20;

/// Coupled labels whose states are all visited by default: microseconds a row.
const FEW: usize = 14;

/// What is named if there is no memory for it.
pub(crate) const LABELS: &str = "number of labels";
pub(crate) const SCORES: &str = "scores of some rows";
const COUPLINGS: &str = "couplings";

/// Rows whose sets are scored together.
pub(crate) const ROWS: usize = 16;

/// What [`Method`] comes to for the couplings at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    States,
    Search,
    Messages,
}

/// The couplings of a model with what decoding wants to know of them.
pub(crate) struct Decoder<'a> {
    way: Way,
    couplings: &'a Matrix,
    /// Labels with couplings, in increasing order.
    coupled: Vec<u32>,
    /// `Σ_{i<k} c_ik z_i z_k` of every state of the coupled labels; bit b is the b-th.
    energies: Vec<f64>,
    /// The position of edge k → i beside that of i → k.
    reverse: Vec<u32>,
    /// The largest |c| of each label.
    strongest: Vec<f64>,
    sets: Sets<'a>,
}

/// Borrowed label sets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sets<'a> {
    pub(crate) ends: &'a [usize],
    pub(crate) labels: &'a [u32],
    pub(crate) energies: &'a [f64],
}

impl Sets<'_> {
    fn get(&self, set: usize) -> &[u32] {
        &self.labels[self.ends[set]..self.ends[set + 1]]
    }
}

/// What rows are decoded in.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Scores without couplings of up to [`ROWS`] rows, row after row.
    pub(crate) u: Vec<f64>,
    /// Log-odds given the decoded others, or max-marginals, in the same order.
    pub(crate) odds: Vec<f64>,
    pub(crate) work: Work,
}

/// Room for the decoding of a row.
#[derive(Default)]
pub(crate) struct Work {
    /// The label set found.
    z: Vec<bool>,
    /// Log-odds of some rows side by side, label after label.
    lanes: Vec<f64>,
    /// The best training sets of each row, with their scores.
    best: Vec<Vec<(f64, u32)>>,
    state: Vec<bool>,
    sums: Vec<f64>,
    low: Vec<f64>,
    high: Vec<f64>,
    messages: Vec<f64>,
    next: Vec<f64>,
}

impl<'a> Decoder<'a> {
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
                got: format!("\"exact\" for {} of them", coupled.len()),
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

    /// A decoder for marginals.
    pub(crate) fn for_marginals(couplings: &'a Matrix, sets: Sets<'a>) -> Result<Self, Error> {
        let mut decoder = Self::new(Method::Messages, couplings, sets)?;
        if decoder.coupled.len() <= FEW {
            decoder.energies = decoder.energies()?;
        }
        Ok(decoder)
    }

    fn n_labels(&self) -> usize {
        self.strongest.len()
    }

    /// Decodes the rows of `scratch.u` into log-odds.
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

    /// Log-odds of every label given the others in `z`.
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

    /// Computes log-odds at `z`, and flips what rounding or a tie left on the wrong side of zero.
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

    /// Probabilities of all labels of a row: sums over all states, else sum-product messages, damped by
    /// half; mean field where these have not settled, or couplings are too many for them.
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

    /// Turns the [`marginals`](Self::marginals) of all labels of a row into log-odds: finite where u is.
    pub(crate) fn marginal_odds(&self, u: &[f64], odds: &mut [f64]) {
        for (label, (odds, &u)) in odds.iter_mut().zip(u).enumerate() {
            if u.is_infinite() || self.couplings.row(label).0.is_empty() {
                *odds = u; // exact, however certain
            } else {
                let q = odds.clamp(f64::MIN_POSITIVE, 1.0 - f64::EPSILON);
                *odds = q.ln() - (-q).ln_1p();
            }
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
