//! Computes marginals by messages along the couplings, and by the mean-field method.
//!
//! A message from i to k is the amount by which label i changes the log-odds of label k. The
//! log-odds of i itself contain the messages from all neighbours of i except k. Let r be the
//! log-odds of i without the message from k, and c the coupling. The message is
//! `max(0, r + c) − max(0, r)` for max-product, and `log(1 + e^{r + c}) − log(1 + e^r)` for
//! sum-product. No message exceeds `|c|`, so messages need no normalization. All messages of a
//! round are computed from the messages of the previous round. A round takes O(couplings).

use super::{COUPLINGS, Decoder, Work, sigmoid};
use manylabel_base::{Error, Watch, copied, extend, filled};
use manylabel_simd::{exp, ln_ratio, wide};
use std::iter::repeat_n;

/// Largest number of directed couplings for which marginals use messages. With more, messages would
/// take tens of milliseconds per row.
const FEW_EDGES: usize = 5000;

/// Computes one damped round of sum-product messages. On input, `next` holds one number per edge:
/// the log-odds of the source of the edge, without the message in the opposite direction. It is
/// replaced by half of the last message plus half of the new message. Returns the largest change.
#[wide]
fn send(couplings: &[f64], last: &[f64], next: &mut [f64]) -> f64 {
    for ((next, &last), &coupling) in next.iter_mut().zip(last).zip(couplings) {
        // log(1 + e^(r + c)) − log(1 + e^r) is computed in two parts: the difference of the terms
        // max(0, ·), and a single logarithm for the difference of the remainders.
        let (rest, coupled) = (*next, *next + coupling);
        let above = if coupled > 0.0 { coupled } else { 0.0 } - if rest > 0.0 { rest } else { 0.0 };
        let message = above + ln_ratio(exp(-coupled.abs()), exp(-rest.abs()));
        *next = 0.5 * (message + last);
    }
    // This is a separate loop, because the compiler does not vectorize a loop that contains a
    // maximum.
    let moved = next
        .iter()
        .zip(last)
        .map(|(next, last)| (next - last).abs());
    moved.fold(0.0, f64::max)
}

impl Decoder<'_> {
    /// Returns the position of the mirror entry of every coupling.
    pub(super) fn reverse(&self) -> Result<Vec<u32>, Error> {
        let ends = &self.couplings.ends;
        let mut next = copied(COUPLINGS, ends)?;
        let mut reverse = filled(COUPLINGS, 0, self.couplings.cols.len())?;
        // Rows are visited in order. Because the matrix is symmetric, the entries of each column
        // are then also visited in order.
        for row in 0..self.n_labels() {
            for at in ends[row]..ends[row + 1] {
                let col = self.couplings.cols[at] as usize;
                reverse[at] = next[col] as u32;
                next[col] += 1;
            }
        }
        Ok(reverse)
    }

    /// Writes the max-marginals of a row, as log-odds of each label. Stops after at most 50 rounds,
    /// as in Li et al. (2016), or when every message changes by less than 1e-6.
    pub(super) fn messages(
        &self,
        u: &[f64],
        work: &mut Work,
        beliefs: &mut [f64],
        watch: &Watch,
    ) -> Result<(), Error> {
        const ROUNDS: usize = 50;
        const STILL: f64 = 1e-6;
        let Work { messages, next, .. } = work;
        self.start(messages, next)?;
        for _ in 0..ROUNDS {
            watch.step(0)?;
            self.beliefs(u, messages, next, beliefs);
            let mut change = 0.0f64;
            let edges = next.iter_mut().zip(&self.couplings.values);
            for ((next, coupling), last) in edges.zip(&*messages) {
                let rest = *next;
                *next = (rest + coupling).max(0.0) - rest.max(0.0);
                change = change.max((*next - last).abs());
            }
            std::mem::swap(messages, next);
            if change < STILL {
                break;
            }
        }
        self.beliefs(u, messages, next, beliefs);
        Ok(())
    }

    /// Sets all messages to zero.
    fn start(&self, messages: &mut Vec<f64>, next: &mut Vec<f64>) -> Result<(), Error> {
        for messages in [messages, next] {
            messages.clear();
            extend(
                COUPLINGS,
                messages,
                repeat_n(0.0, self.couplings.cols.len()),
            )?;
        }
        Ok(())
    }

    /// Writes the log-odds of each label to `beliefs`: `u_i` plus all messages to i. Also writes to
    /// `rest`, for each edge from i, the log-odds of i without the message from the other end of
    /// the edge.
    fn beliefs(&self, u: &[f64], messages: &[f64], rest: &mut [f64], beliefs: &mut [f64]) {
        beliefs.copy_from_slice(u);
        for &i in &self.coupled {
            let i = i as usize;
            let edges = self.couplings.ends[i]..self.couplings.ends[i + 1];
            let rest = &mut rest[edges.clone()];
            let mut belief = u[i];
            for (rest, &mirror) in rest.iter_mut().zip(&self.reverse[edges]) {
                *rest = messages[mirror as usize];
                belief += *rest;
            }
            for rest in rest {
                *rest = belief - *rest;
            }
            beliefs[i] = belief;
        }
    }

    /// Writes probabilities by sum-product messages. Returns whether the messages converged within
    /// 100 rounds. With too many couplings it immediately returns `false` and writes nothing.
    pub(super) fn sum_product(
        &self,
        u: &[f64],
        work: &mut Work,
        out: &mut [f64],
        watch: &Watch,
    ) -> Result<bool, Error> {
        const ROUNDS: usize = 100;
        const STILL: f64 = 1e-4;
        if self.couplings.values.len() > FEW_EDGES {
            return Ok(false);
        }
        let Work { messages, next, .. } = work;
        self.start(messages, next)?;
        let mut settled = false;
        for _ in 0..ROUNDS {
            if settled {
                break;
            }
            watch.step(0)?;
            self.beliefs(u, messages, next, out);
            let change = send(&self.couplings.values, messages, next);
            std::mem::swap(messages, next);
            settled = change < STILL;
        }
        self.beliefs(u, messages, next, out);
        for out in out {
            *out = sigmoid(*out);
        }
        Ok(settled)
    }

    /// Improves the probabilities `q` of the coupled labels by `q_i = σ(u_i + Σ_k c_ik q_k)`, label
    /// by label. Stops when every probability changes by less than 1e-5, or after 100 passes.
    pub(super) fn mean_field(&self, u: &[f64], q: &mut [f64], watch: &Watch) -> Result<(), Error> {
        const SWEEPS: usize = 100;
        const STILL: f64 = 1e-5;
        for _ in 0..SWEEPS {
            watch.step(0)?;
            let mut change = 0.0f64;
            for &i in &self.coupled {
                let i = i as usize;
                let (others, values) = self.couplings.row(i);
                let expected = others.iter().zip(values);
                let expected: f64 = expected.map(|(k, value)| value * q[*k as usize]).sum();
                let new = sigmoid(u[i] + expected);
                change = change.max((new - q[i]).abs());
                q[i] = new;
            }
            if change < STILL {
                break;
            }
        }
        Ok(())
    }
}
