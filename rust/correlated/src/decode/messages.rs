//! Computes marginals (a probability for each label), by messages along the couplings or by the
//! mean-field method.
//!
//! A message from label i to label k is the amount by which label i changes the log-odds of label
//! k. Let c be the coupling of i and k. Let r be the log-odds of i with the messages from all
//! neighbours of i except k. Max-product sends the message `max(0, r + c) − max(0, r)`. Sum-product
//! sends the message `log(1 + e^{r + c}) − log(1 + e^r)`. No message exceeds `|c|`, so messages
//! need no normalization. In each round, all messages are computed from the messages of the
//! previous round. A round takes O(number of couplings) time. In the formulas, `u_i` is the
//! log-odds of label i without couplings, `c_ik` is the coupling of labels i and k, and σ is the
//! logistic function.

use super::{COUPLINGS, Decoder, Work, sigmoid};
use manylabel_base::{Error, Watch, copied, extend, filled};
use manylabel_simd::{exp, ln_ratio, wide};
use std::iter::repeat_n;

/// Largest number of directed couplings for which marginals are computed by messages. Each coupling
/// counts twice, once for each direction. With more couplings, messages would take tens of
/// milliseconds per row.
const FEW_EDGES: usize = 5000;

/// Computes one damped round of sum-product messages. Returns the largest change of a message.
///
/// On input, `next` has one number per directed coupling: the log-odds of the label that sends the
/// message, without the message that it receives along the same coupling. On return, `next` has the
/// damped messages, which are the means of the last message and the new message.
#[wide]
fn send(couplings: &[f64], last: &[f64], next: &mut [f64]) -> f64 {
    for ((next, &last), &coupling) in next.iter_mut().zip(last).zip(couplings) {
        // The new message is log(1 + e^(r + c)) − log(1 + e^r), with the log-odds r from `next` and
        // the coupling c. Each logarithm log(1 + e^x) is split into max(0, x) + log(1 + e^−|x|).
        // The difference of the second terms takes only one logarithm.
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
    /// For every stored coupling (i, k), returns the position of the stored coupling (k, i).
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

    /// Writes the max-marginal of each label, as log-odds. The max-marginal compares the best label
    /// set that contains the label with the best label set that does not. Stops after at most 50
    /// rounds, as in Li et al. (2016), or when every message changes by less than 1e-6.
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

    /// Writes the log-odds of each label i to `beliefs`: `u_i` plus all messages to i. For each
    /// coupling of i with a label k, also writes to `rest` the log-odds of i without the message
    /// from k.
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

    /// Writes the probability of each label, computed by sum-product messages. Returns whether the
    /// messages converged within 100 rounds. If there are too many couplings, returns `false` at
    /// once and writes nothing.
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

    /// Computes the probabilities `q` of the labels that have couplings, by the mean-field method.
    /// It repeats `q_i = σ(u_i + Σ_k c_ik q_k)`, one label after the other, and starts from the
    /// given `q`. It stops when every probability changes by less than 1e-5, or after 100 passes
    /// over the labels.
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
