//! The most probable label set of a row: the maximum of `s(z) = Σ_i z_i u_i + Σ_{i<k} c_ik z_i z_k`.
//!
//! Labels without couplings are decided by the sign of u. For the others there are three ways: all
//! states, a search from label sets of the training rows, and max-product messages. What the first two
//! find is left by no single flip, so that a label is in the set if and only if its log-odds given the
//! rest of the set are positive; these are the scores.

use crate::model::Matrix;
use crate::wide::softplus;
use manylabel_base::Error;
use manylabel_sparse::exp;
use multiversion::multiversion;

/// How the most probable label set is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// All states of up to [`MOST_EXACT`] coupled labels.
    Exact,
    /// From the best label sets of the training rows and the independent solution, flips of labels and
    /// of pairs while they gain.
    Search,
    /// At most 50 rounds of max-product messages: the paper's way, unreliable on graphs with cycles.
    Messages,
    /// Exact for up to [`FEW`] coupled labels, else search.
    Auto,
}

/// Coupled labels whose states can all be visited.
pub const MOST_EXACT: usize = 20;

/// Coupled labels whose states are all visited by default: microseconds a row.
const FEW: usize = 14;

/// Directed couplings over which messages are passed for marginals; more take tens of milliseconds a
/// row.
const FEW_EDGES: usize = 5000;

/// Rounds of max-product messages.
const ROUNDS: usize = 50;

/// Messages that change by less do not matter.
const STILL: f64 = 1e-6;

/// Label sets of training rows that the search starts from. With 5, weakly penalized couplings of yeast
/// (14 labels, penalties of 1e-4 and 1e-5) are decoded wrongly in 0.9 and 1.7 % of the rows; with 20 in
/// 0.2 %.
const SEEDS: usize = 16;

/// Rows whose sets are scored together.
pub(crate) const ROWS: usize = 16;

/// States whose parts of the linear score are tabulated.
const LOW: usize = 1024;

/// The couplings of a model with what decoding wants to know of them.
pub(crate) struct Decoder<'a> {
    method: Method,
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
    lanes: Vec<[f64; ROWS]>,
    best: Vec<Vec<(f64, u32)>>,
    z: Vec<bool>,
    state: Vec<bool>,
    work: Vec<f64>,
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
        let coupled: Vec<u32> = (0..n as u32)
            .filter(|&label| !couplings.row(label as usize).0.is_empty())
            .collect();
        if method == Method::Exact && coupled.len() > MOST_EXACT {
            return Err(Error::Param {
                name: "decoder",
                expected: "\"search\", \"bp\" or \"auto\" for more than 20 coupled labels",
                got: format!("\"exact\" for {} of them", coupled.len()),
            });
        }
        let method = match method {
            Method::Auto if coupled.len() <= FEW => Method::Exact,
            Method::Auto => Method::Search,
            other => other,
        };
        let strongest = |label: usize| {
            let values = couplings.row(label).1.iter();
            values.fold(0.0, |most: f64, value| most.max(value.abs()))
        };
        let mut decoder = Self {
            method,
            couplings,
            energies: Vec::new(),
            reverse: Vec::new(),
            strongest: (0..n).map(strongest).collect(),
            coupled,
            sets,
        };
        match method {
            Method::Exact => decoder.energies = decoder.energies(),
            Method::Messages => decoder.reverse = decoder.reverse(),
            _ => {}
        }
        Ok(decoder)
    }

    /// A decoder for marginals.
    pub(crate) fn for_marginals(couplings: &'a Matrix, sets: Sets<'a>) -> Result<Self, Error> {
        let mut decoder = Self::new(Method::Messages, couplings, sets)?;
        if decoder.coupled.len() <= FEW {
            decoder.energies = decoder.energies();
        }
        Ok(decoder)
    }

    fn n_labels(&self) -> usize {
        self.strongest.len()
    }

    /// Energies of all states: that of a state is that of the state without its highest label, and the
    /// couplings of this with the rest.
    fn energies(&self) -> Vec<f64> {
        let n = self.coupled.len();
        let mut energies = vec![0.0; 1 << n];
        for (bit, &label) in self.coupled.iter().enumerate() {
            let (others, values) = self.couplings.row(label as usize);
            let mut with = vec![0.0; bit];
            for (other, value) in others.iter().zip(values) {
                if let Ok(lower) = self.coupled[..bit].binary_search(other) {
                    with[lower] = *value;
                }
            }
            let (known, new) = energies.split_at_mut(1 << bit);
            // The couplings with each set of lower labels, by doubling.
            new[0] = 0.0;
            for (lower, value) in with.iter().enumerate() {
                for state in 0..1 << lower {
                    new[(1 << lower) + state] = new[state] + value;
                }
            }
            for (new, known) in new.iter_mut().zip(known) {
                *new += *known;
            }
        }
        energies
    }

    fn reverse(&self) -> Vec<u32> {
        let ends = &self.couplings.ends;
        let mut next = ends.clone();
        let mut reverse = vec![0; self.couplings.cols.len()];
        // Rows come in order, and so do they within each column: of a symmetric matrix.
        for row in 0..self.n_labels() {
            for at in ends[row]..ends[row + 1] {
                let col = self.couplings.cols[at] as usize;
                reverse[at] = next[col] as u32;
                next[col] += 1;
            }
        }
        reverse
    }

    /// Decodes the rows of `scratch.u` into log-odds.
    pub(crate) fn decode(&self, scratch: &mut Scratch) {
        let n = self.n_labels();
        scratch.odds.clone_from(&scratch.u);
        if self.coupled.is_empty() {
            return;
        }
        let n_rows = scratch.u.len() / n;
        if self.method == Method::Search {
            self.score_sets(scratch, n_rows);
        }
        for row in 0..n_rows {
            let mut scratch_z = std::mem::take(&mut scratch.z);
            let u = std::mem::take(&mut scratch.u);
            let of_row = &u[row * n..][..n];
            match self.method {
                Method::Exact => self.exact(of_row, scratch, &mut scratch_z),
                Method::Messages => {
                    self.messages(of_row, scratch, row * n);
                    scratch.u = u;
                    scratch.z = scratch_z;
                    continue;
                }
                Method::Search | Method::Auto => {
                    self.search(of_row, scratch, row, &mut scratch_z);
                }
            }
            let odds = &mut scratch.odds[row * n..][..n];
            self.settle(of_row, &mut scratch_z, odds);
            scratch.u = u;
            scratch.z = scratch_z;
        }
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

    /// The best of all states of the coupled labels.
    fn exact(&self, u: &[f64], scratch: &mut Scratch, z: &mut Vec<bool>) {
        self.tabulate(u, scratch);
        let (low, high) = (&scratch.low, &scratch.high);
        let (mut best, mut chunk) = (f64::NEG_INFINITY, 0);
        for (at, (energies, high)) in self.energies.chunks(low.len()).zip(high).enumerate() {
            let most = highest(energies, low) + high;
            if most > best {
                (best, chunk) = (most, at);
            }
        }
        let energies = &self.energies[chunk * low.len()..][..low.len()];
        let most = highest(energies, low);
        let is_most = |(energy, low): (&f64, &f64)| energy + low >= most;
        let at = energies.iter().zip(low).position(is_most).unwrap_or(0);
        let state = chunk * low.len() + at;
        z.clear();
        z.resize(self.n_labels(), false);
        for (bit, &label) in self.coupled.iter().enumerate() {
            z[label as usize] = state >> bit & 1 == 1;
        }
    }

    /// Sums of u over all sets of the lowest ten coupled labels, and of the others.
    fn tabulate(&self, u: &[f64], scratch: &mut Scratch) {
        let n_low = self.coupled.len().min(LOW.ilog2() as usize);
        let (low, high) = self.coupled.split_at(n_low);
        for (labels, sums) in [(low, &mut scratch.low), (high, &mut scratch.high)] {
            sums.clear();
            sums.push(0.0);
            for &label in labels {
                for state in 0..sums.len() {
                    sums.push(sums[state] + u[label as usize]);
                }
            }
        }
    }

    /// Finds the best training sets of up to [`ROWS`] rows.
    fn score_sets(&self, scratch: &mut Scratch, n_rows: usize) {
        let n = self.n_labels();
        let Scratch { u, lanes, best, .. } = scratch;
        lanes.clear();
        lanes.resize(n, [0.0; ROWS]);
        for (row, u) in u.chunks(n).enumerate() {
            for &label in &self.coupled {
                lanes[label as usize][row] = u[label as usize];
            }
        }
        best.resize_with(ROWS, Vec::new);
        best.iter_mut().for_each(Vec::clear);
        let mut floors = [f64::INFINITY; ROWS];
        floors[..n_rows].fill(f64::NEG_INFINITY);
        for (set, &energy) in self.sets.energies.iter().enumerate() {
            let mut scores = [energy; ROWS];
            for &label in self.sets.get(set) {
                let of_label = &lanes[label as usize];
                for lane in 0..ROWS {
                    scores[lane] += of_label[lane];
                }
            }
            let mut any = false;
            for lane in 0..ROWS {
                any |= scores[lane] > floors[lane];
            }
            if !any {
                continue;
            }
            for (row, best) in best[..n_rows].iter_mut().enumerate() {
                if scores[row] > floors[row] {
                    let at = best.partition_point(|&(score, _)| score >= scores[row]);
                    best.insert(at, (scores[row], set as u32));
                    best.truncate(SEEDS);
                    if best.len() == SEEDS {
                        floors[row] = best[SEEDS - 1].0;
                    }
                }
            }
        }
    }

    /// The best of what flips make of the row's seeds.
    fn search(&self, u: &[f64], scratch: &mut Scratch, row: usize, z: &mut Vec<bool>) {
        let n = self.n_labels();
        let seeds = std::mem::take(&mut scratch.best[row]);
        let mut most = f64::NEG_INFINITY;
        z.clear();
        z.resize(n, false);
        let mut state = std::mem::take(&mut scratch.state);
        let mut odds = std::mem::take(&mut scratch.work);
        odds.resize(n, 0.0);
        for seed in 0..=seeds.len() {
            state.clear();
            state.resize(n, false);
            match seeds.get(seed) {
                Some(&(_, set)) => {
                    for &label in self.sets.get(set as usize) {
                        state[label as usize] = true;
                    }
                }
                None => {
                    for &label in &self.coupled {
                        state[label as usize] = u[label as usize] > 0.0;
                    }
                }
            }
            self.climb(u, &mut state, &mut odds);
            let score = self.score(u, &state);
            if score > most {
                most = score;
                z.copy_from_slice(&state);
            }
        }
        (scratch.state, scratch.work) = (state, odds);
        scratch.best[row] = seeds;
    }

    /// `s(z)` of the coupled labels.
    pub(crate) fn score(&self, u: &[f64], z: &[bool]) -> f64 {
        let mut score = 0.0;
        for &label in &self.coupled {
            if z[label as usize] {
                let (others, values) = self.couplings.row(label as usize);
                let mut half = 0.0;
                for (other, value) in others.iter().zip(values) {
                    if z[*other as usize] {
                        half += value;
                    }
                }
                score += u[label as usize] + half / 2.0;
            }
        }
        score
    }

    /// Takes the best flip of a label, or where none gains the best of a coupled pair, until none gains.
    pub(crate) fn climb(&self, u: &[f64], z: &mut [bool], odds: &mut [f64]) {
        self.odds(u, z, odds);
        let gain = |z: &[bool], odds: &[f64], label: usize| {
            if z[label] { -odds[label] } else { odds[label] }
        };
        let flip = |z: &mut [bool], odds: &mut [f64], label: usize| {
            let sign = if z[label] { -1.0 } else { 1.0 };
            z[label] = !z[label];
            let (others, values) = self.couplings.row(label);
            for (other, value) in others.iter().zip(values) {
                odds[*other as usize] += sign * value;
            }
        };
        // Every move gains; rounding alone could make them endless.
        for _ in 0..4 * self.n_labels() + 100 {
            let (mut most, mut best) = (1e-12, None);
            for &label in &self.coupled {
                let gain = gain(z, odds, label as usize);
                if gain > most {
                    (most, best) = (gain, Some((label as usize, None)));
                }
            }
            if best.is_none() {
                for &i in &self.coupled {
                    let i = i as usize;
                    let own = gain(z, odds, i);
                    if own + self.strongest[i] <= most {
                        continue;
                    }
                    let (others, values) = self.couplings.row(i);
                    for (&k, &value) in others.iter().zip(values) {
                        let k = k as usize;
                        let both = if z[i] == z[k] { value } else { -value };
                        let gain = own + gain(z, odds, k) + both;
                        if i < k && gain > most {
                            (most, best) = (gain, Some((i, Some(k))));
                        }
                    }
                }
            }
            let Some((first, second)) = best else {
                return;
            };
            flip(z, odds, first);
            if let Some(second) = second {
                flip(z, odds, second);
            }
        }
    }

    /// Max-marginals after at most [`ROUNDS`] rounds, written to the row's odds.
    fn messages(&self, u: &[f64], scratch: &mut Scratch, first: usize) {
        let Scratch {
            messages,
            next,
            odds,
            ..
        } = scratch;
        let odds = &mut odds[first..][..u.len()];
        self.start(messages, next);
        for _ in 0..ROUNDS {
            self.beliefs(u, messages, odds);
            let mut change = 0.0f64;
            self.each_edge(|i, at, coupling| {
                let rest = odds[i] - messages[self.reverse[at] as usize];
                next[at] = (rest + coupling).max(0.0) - rest.max(0.0);
                change = change.max((next[at] - messages[at]).abs());
            });
            std::mem::swap(messages, next);
            if change < STILL {
                break;
            }
        }
        self.beliefs(u, messages, odds);
    }

    fn start(&self, messages: &mut Vec<f64>, next: &mut Vec<f64>) {
        for messages in [messages, next] {
            messages.clear();
            messages.resize(self.couplings.cols.len(), 0.0);
        }
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

    /// Probabilities of all labels of a row: sums over all states, else sum-product messages, damped by
    /// half; mean field where these have not settled, or couplings are too many for them.
    pub(crate) fn marginals(&self, u: &[f64], scratch: &mut Scratch, out: &mut [f64]) {
        if !self.energies.is_empty() {
            self.sum_states(u, scratch, out);
            return;
        }
        for (q, &u) in out.iter_mut().zip(u) {
            *q = sigmoid(u);
        }
        if self.couplings.values.len() > FEW_EDGES || !self.sum_product(u, scratch, out) {
            self.mean_field(u, out);
        }
    }

    fn sum_states(&self, u: &[f64], scratch: &mut Scratch, out: &mut [f64]) {
        for (out, &u) in out.iter_mut().zip(u) {
            *out = sigmoid(u);
        }
        self.tabulate(u, scratch);
        let Scratch {
            low, high, work, ..
        } = scratch;
        let chunks = || self.energies.chunks(low.len()).zip(high.iter());
        let most = chunks().map(|(energies, high)| highest(energies, low) + high);
        let most = most.fold(f64::NEG_INFINITY, f64::max);
        // By the state of the low labels, and of the others.
        work.clear();
        work.resize(low.len(), 0.0);
        let of_high =
            chunks().map(|(energies, high)| add_weights(energies, low, high - most, work));
        let mut of_high: Vec<f64> = of_high.collect();
        let sum: f64 = of_high.iter().sum();
        let n_low = low.len().ilog2() as usize;
        for (labels, weights) in [
            (&self.coupled[..n_low], work),
            (&self.coupled[n_low..], &mut of_high),
        ] {
            for &label in labels.iter().rev() {
                // The upper half of what is left are the states with the highest label.
                let half = weights.len() / 2;
                let (without, with) = weights.split_at_mut(half);
                out[label as usize] = (with.iter().sum::<f64>() / sum).min(1.0);
                for (without, with) in without.iter_mut().zip(with) {
                    *without += *with;
                }
                weights.truncate(half);
            }
        }
    }

    /// Whether messages settled.
    fn sum_product(&self, u: &[f64], scratch: &mut Scratch, out: &mut [f64]) -> bool {
        const ROUNDS: usize = 100;
        const STILL: f64 = 1e-4;
        let Scratch { messages, next, .. } = scratch;
        self.start(messages, next);
        let mut settled = self.coupled.is_empty();
        for _ in 0..ROUNDS {
            if settled {
                break;
            }
            self.beliefs(u, messages, out);
            let mut change = 0.0f64;
            self.each_edge(|i, at, coupling| {
                let rest = out[i] - messages[self.reverse[at] as usize];
                let message = softplus(rest + coupling) - softplus(rest);
                next[at] = f64::midpoint(message, messages[at]);
                change = change.max((next[at] - messages[at]).abs());
            });
            std::mem::swap(messages, next);
            settled = change < STILL;
        }
        self.beliefs(u, messages, out);
        for out in out {
            *out = sigmoid(*out);
        }
        settled
    }

    /// `q_i = σ(u_i + Σ_k c_ik q_k)`, label by label until nothing changes much.
    fn mean_field(&self, u: &[f64], q: &mut [f64]) {
        const SWEEPS: usize = 100;
        const STILL: f64 = 1e-5;
        for _ in 0..SWEEPS {
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
                return;
            }
        }
    }
}

/// The largest sum of two numbers side by side.
fn highest(a: &[f64], b: &[f64]) -> f64 {
    let mut most = [f64::NEG_INFINITY; 16];
    let (a16, b16) = (a.chunks_exact(16), b.chunks_exact(16));
    for (lane, (a, b)) in a16.remainder().iter().zip(b16.remainder()).enumerate() {
        most[lane] = a + b;
    }
    for (a, b) in a16.zip(b16) {
        for lane in 0..16 {
            let sum = a[lane] + b[lane];
            most[lane] = if sum > most[lane] { sum } else { most[lane] };
        }
    }
    most.into_iter().fold(f64::NEG_INFINITY, f64::max)
}

/// Adds `e^(a + b + shift)` to `sums`; returns their total.
#[multiversion(targets("x86_64+avx512f+avx512bw+avx512dq+avx512vl", "x86_64+avx2"))]
fn add_weights(a: &[f64], b: &[f64], shift: f64, sums: &mut [f64]) -> f64 {
    const LANES: usize = 8;
    let (a8, a) = a.as_chunks::<LANES>();
    let (b8, b) = b.as_chunks::<LANES>();
    let (sums8, sums) = sums.as_chunks_mut::<LANES>();
    let mut total = [0.0; LANES];
    for (lane, ((a, b), sum)) in a.iter().zip(b).zip(sums).enumerate() {
        let weight = exp(a + b + shift);
        *sum += weight;
        total[lane] += weight;
    }
    for ((a, b), sums) in a8.iter().zip(b8).zip(sums8) {
        for lane in 0..LANES {
            let weight = exp(a[lane] + b[lane] + shift);
            sums[lane] += weight;
            total[lane] += weight;
        }
    }
    total.into_iter().sum()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
