//! Visits all states (label sets of the coupled labels), to find the best state and to sum over
//! states.
//!
//! The score of a state is the sum of its couplings (its energy) plus the sum of u over its labels.
//! Here u are the log-odds of a row without couplings. The energy of a state is the same for all
//! rows. The sum of u has two parts: a sum over the first ten coupled labels and a sum over the
//! other coupled labels. For each row, the first sum is computed for all sets of the first ten
//! labels, and the second sum for all sets of the other labels. The states are then visited in runs
//! of 1024. The states of a run differ only in the first ten labels, and their energies are
//! adjacent in memory. For m coupled labels, this takes O(2^m) additions per row.

use super::{Decoder, LABELS, Work};
use manylabel_base::{Error, extend, few, filled};
use manylabel_simd::{exp, wide};
use std::iter::repeat_n;

/// Name of the states in error messages about memory.
const STATES: &str = "number of states";

/// Number of sets of the first ten coupled labels. For each of these sets, the sum of u is stored.
const LOW: usize = 1024;

impl Decoder<'_> {
    /// Returns the energy (the sum of the couplings) of every state. It is computed from the energy
    /// of the state without its last label, plus the couplings of the last label with the other
    /// labels. This takes O(2^m) time for m coupled labels.
    pub(super) fn energies(&self) -> Result<Vec<f64>, Error> {
        let n = self.coupled.len();
        let mut energies = filled(STATES, 0.0, 1 << n)?;
        for (bit, &label) in self.coupled.iter().enumerate() {
            let (others, values) = self.couplings.row(label as usize);
            let mut with = filled(STATES, 0.0, bit)?;
            for (other, value) in others.iter().zip(values) {
                if let Ok(lower) = self.coupled[..bit].binary_search(other) {
                    with[lower] = *value;
                }
            }
            let (known, new) = energies.split_at_mut(1 << bit);
            // First, `new` receives the sum of the couplings of this label with each set of earlier
            // labels. Each further label doubles the number of sets.
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
        Ok(energies)
    }

    /// Writes the state of the coupled labels with the highest score to `work.z`. States are
    /// visited in runs of 1024. If several states have the highest score, the first of these states
    /// in the first such run is used.
    pub(super) fn exact(&self, u: &[f64], work: &mut Work) -> Result<(), Error> {
        self.tabulate(u, work);
        let Work { low, high, z, .. } = work;
        let (mut best, mut chunk) = (f64::NEG_INFINITY, 0);
        for (at, (energies, high)) in self.energies.chunks(low.len()).zip(high.iter()).enumerate() {
            let most = highest(energies, low) + high;
            if most > best {
                (best, chunk) = (most, at);
            }
        }
        let energies = &self.energies[chunk * low.len()..][..low.len()];
        let most = highest(energies, low);
        let is_most = |(energy, low): (&f64, &f64)| energy + low >= most;
        let at = energies.iter().zip(&*low).position(is_most).unwrap_or(0);
        let state = chunk * low.len() + at;
        z.clear();
        extend(LABELS, z, repeat_n(false, self.n_labels()))?;
        for (bit, &label) in self.coupled.iter().enumerate() {
            z[label as usize] = state >> bit & 1 == 1;
        }
        Ok(())
    }

    /// Writes the sum of u for every set of the first ten coupled labels to `work.low`. Writes the
    /// sum of u for every set of the other coupled labels to `work.high`.
    fn tabulate(&self, u: &[f64], work: &mut Work) {
        let n_low = self.coupled.len().min(LOW.ilog2() as usize);
        let (low, high) = self.coupled.split_at(n_low);
        for (labels, sums) in [(low, &mut work.low), (high, &mut work.high)] {
            sums.clear();
            sums.push(0.0);
            for &label in labels {
                let n_without = sums.len(); // at most 512, so that no memory is asked for in advance
                sums.extend_from_within(..);
                for sum in &mut sums[n_without..] {
                    *sum += u[label as usize];
                }
            }
        }
    }

    /// Writes the probability of each coupled label to `out`, in one pass over all states. The
    /// weight of each state is divided by the weight of the best state, so that no number
    /// overflows.
    pub(super) fn sum_states(
        &self,
        u: &[f64],
        work: &mut Work,
        out: &mut [f64],
    ) -> Result<(), Error> {
        self.tabulate(u, work);
        let Work {
            low, high, sums, ..
        } = work;
        let chunks = || self.energies.chunks(low.len()).zip(high.iter());
        let most = chunks().map(|(energies, high)| highest(energies, low) + high);
        let most = most.fold(f64::NEG_INFINITY, f64::max);
        // `sums` has one sum for each state of the lowest labels. `of_high` has one sum for each
        // state of the other labels.
        sums.clear();
        extend(STATES, sums, repeat_n(0.0, low.len()))?;
        let of_high =
            chunks().map(|(energies, high)| add_weights(energies, low, *high, most, sums));
        let mut of_high: Vec<f64> = few(of_high);
        let sum: f64 = of_high.iter().sum();
        let n_low = low.len().ilog2() as usize;
        for (labels, weights) in [
            (&self.coupled[..n_low], sums),
            (&self.coupled[n_low..], &mut of_high),
        ] {
            for &label in labels.iter().rev() {
                // The upper half of the remaining sums belongs to the states that contain the last
                // label.
                let half = weights.len() / 2;
                let (without, with) = weights.split_at_mut(half);
                out[label as usize] = (with.iter().sum::<f64>() / sum).min(1.0);
                for (without, with) in without.iter_mut().zip(with) {
                    *without += *with;
                }
                weights.truncate(half);
            }
        }
        Ok(())
    }
}

/// Returns the maximum of `a[i] + b[i]` over all positions i.
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

/// Adds `e^(a[i] + b[i] + c − most)` to `sums[i]` for all positions i. Returns the total of the
/// added numbers. `most` is the largest sum `a[i] + b[i] + c` of all calls. The caller computes it
/// with [`highest`], by additions in the same order. So no exponent is positive, even with
/// rounding.
#[wide]
fn add_weights(a: &[f64], b: &[f64], c: f64, most: f64, sums: &mut [f64]) -> f64 {
    const LANES: usize = 8;
    let (a8, a) = a.as_chunks::<LANES>();
    let (b8, b) = b.as_chunks::<LANES>();
    let (sums8, sums) = sums.as_chunks_mut::<LANES>();
    let mut total = [0.0; LANES];
    for (lane, ((a, b), sum)) in a.iter().zip(b).zip(sums).enumerate() {
        let weight = exp((a + b + c) - most);
        *sum += weight;
        total[lane] += weight;
    }
    for ((a, b), sums) in a8.iter().zip(b8).zip(sums8) {
        for lane in 0..LANES {
            let weight = exp((a[lane] + b[lane] + c) - most);
            sums[lane] += weight;
            total[lane] += weight;
        }
    }
    total.into_iter().sum()
}
