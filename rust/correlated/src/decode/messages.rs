//! Messages along the couplings, and mean field.
//!
//! A message from i to k is the difference that label i makes to the log-odds of label k, given
//! everything on i's side of the edge. With r the log-odds of i without the message from k, it is
//! `max(0, r + c) − max(0, r)` for max-product, and `log(1 + e^{r + c}) − log(1 + e^r)` for
//! sum-product. As differences, messages cannot drift. All messages of a round are computed from
//! those of the round before. A round takes O(couplings).

use super::{COUPLINGS, Decoder, Work, sigmoid};
use manylabel_base::{Error, Watch, copied, extend, filled};
use manylabel_simd::{exp, ln_ratio, wide};
use std::iter::repeat_n;

/// Largest number of directed couplings for which marginals use messages; more would take tens of
/// milliseconds per row.
const FEW_EDGES: usize = 5000;

/// One damped round of sum-product: replaces the log-odds in `next` (one per edge, of its source
/// without the edge's own message) by half of the last message plus half of the new one. Returns
/// the largest change.
#[wide]
fn send(couplings: &[f64], last: &[f64], next: &mut [f64]) -> f64 {
    for ((next, &last), &coupling) in next.iter_mut().zip(last).zip(couplings) {
        // log(1 + e^(r + c)) − log(1 + e^r): the difference of max(0, ·), plus a single logarithm
        // for the difference of the rests.
        let (rest, coupled) = (*next, *next + coupling);
        let above = if coupled > 0.0 { coupled } else { 0.0 } - if rest > 0.0 { rest } else { 0.0 };
        let message = above + ln_ratio(exp(-coupled.abs()), exp(-rest.abs()));
        *next = 0.5 * (message + last);
    }
    // In a loop of its own, because the compiler does not vectorize a loop that contains a maximum.
    let moved = next
        .iter()
        .zip(last)
        .map(|(next, last)| (next - last).abs());
    moved.fold(0.0, f64::max)
}

impl Decoder<'_> {
    /// The position of the mirror image of every coupling.
    pub(super) fn reverse(&self) -> Result<Vec<u32>, Error> {
        let ends = &self.couplings.ends;
        let mut next = copied(COUPLINGS, ends)?;
        let mut reverse = filled(COUPLINGS, 0, self.couplings.cols.len())?;
        // Rows come in order, and so do the entries of each column, as the matrix is symmetric.
        for row in 0..self.n_labels() {
            for at in ends[row]..ends[row + 1] {
                let col = self.couplings.cols[at] as usize;
                reverse[at] = next[col] as u32;
                next[col] += 1;
            }
        }
        Ok(reverse)
    }

    /// Writes the max-marginals of a row: log-odds of each label after at most 50 rounds, as in the
    /// paper, or when no message changes by 1e-6 or more.
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

    /// Writes to `beliefs` the log-odds of each label, `u_i` plus all messages to i; and to `rest`,
    /// for each edge from i, the same without the message from the edge's other end.
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

    /// Writes probabilities by sum-product messages, and returns whether these settled within 100
    /// rounds. With too many couplings it returns `false` at once and writes nothing.
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
    /// by label, until none changes by 1e-5 or more, or 100 times.
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
