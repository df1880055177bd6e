//! Messages along the couplings: max-product, sum-product; and mean field.

use super::{COUPLINGS, Decoder, Work, sigmoid};
use manylabel_base::{Error, Watch, copied, extend, filled};
use manylabel_simd::{exp, ln_1p, wide};
use std::iter::repeat_n;

/// Directed couplings over which messages are passed for marginals; more take tens of milliseconds a
/// row.
const FEW_EDGES: usize = 5000;

/// Turns what the ends of edges believe, but for the edge's own part, into messages along the edges:
/// half of the last one and half of a new one. Returns the largest change.
#[wide]
fn send(couplings: &[f64], last: &[f64], next: &mut [f64]) -> f64 {
    for ((next, &last), &coupling) in next.iter_mut().zip(last).zip(couplings) {
        let message = softplus(*next + coupling) - softplus(*next);
        *next = 0.5 * (message + last);
    }
    // In a loop of its own: the compiler leaves one with a maximum in it narrow.
    let moved = next
        .iter()
        .zip(last)
        .map(|(next, last)| (next - last).abs());
    moved.fold(0.0, f64::max)
}

/// `log(1 + e^x)`, in functions that are compiled for lanes side by side.
#[inline(always)]
fn softplus(x: f64) -> f64 {
    let above = if x > 0.0 { x } else { 0.0 };
    above + ln_1p(exp(-x.abs()))
}

impl Decoder<'_> {
    /// The position of every coupling's mirror image.
    pub(super) fn reverse(&self) -> Result<Vec<u32>, Error> {
        let ends = &self.couplings.ends;
        let mut next = copied(COUPLINGS, ends)?;
        let mut reverse = filled(COUPLINGS, 0, self.couplings.cols.len())?;
        // Rows come in order, and so do they within each column: of a symmetric matrix.
        for row in 0..self.n_labels() {
            for at in ends[row]..ends[row + 1] {
                let col = self.couplings.cols[at] as usize;
                reverse[at] = next[col] as u32;
                next[col] += 1;
            }
        }
        Ok(reverse)
    }

    /// Writes max-marginals after at most 50 rounds, as in the paper, or when messages stand still.
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
            self.beliefs(u, messages, beliefs);
            let mut change = 0.0f64;
            self.each_edge(|i, at, coupling| {
                let rest = beliefs[i] - messages[self.reverse[at] as usize];
                next[at] = (rest + coupling).max(0.0) - rest.max(0.0);
                change = change.max((next[at] - messages[at]).abs());
            });
            std::mem::swap(messages, next);
            if change < STILL {
                break;
            }
        }
        self.beliefs(u, messages, beliefs);
        Ok(())
    }

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

    fn each_edge(&self, mut then: impl FnMut(usize, usize, f64)) {
        for &i in &self.coupled {
            let i = i as usize;
            for at in self.couplings.ends[i]..self.couplings.ends[i + 1] {
                then(i, at, self.couplings.values[at]);
            }
        }
    }

    /// `u_i` and all messages to i.
    fn beliefs(&self, u: &[f64], messages: &[f64], beliefs: &mut [f64]) {
        beliefs.copy_from_slice(u);
        self.each_edge(|i, at, _| beliefs[i] += messages[self.reverse[at] as usize]);
    }

    /// Writes probabilities and says whether messages settled, if there are not too many for them.
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
            self.beliefs(u, messages, out);
            self.each_edge(|i, at, _| next[at] = out[i] - messages[self.reverse[at] as usize]);
            let change = send(&self.couplings.values, messages, next);
            std::mem::swap(messages, next);
            settled = change < STILL;
        }
        self.beliefs(u, messages, out);
        for out in out {
            *out = sigmoid(*out);
        }
        Ok(settled)
    }

    /// `q_i = σ(u_i + Σ_k c_ik q_k)`, label by label until nothing changes much.
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
