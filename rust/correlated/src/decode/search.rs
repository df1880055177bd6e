//! Searches for the most probable label set. The search starts from label sets of the training
//! rows. It adds or removes (flips) single labels and pairs of labels as long as the score
//! increases.
//!
//! The score of a label set is the sum of u over its labels, plus the sum of the couplings within
//! the set (the energy of the set). Here u are the log-odds of a row without couplings. The energy
//! of a set is the same for all rows. All label sets of the training rows can therefore be scored
//! in O(total number of labels in these sets) time, for sixteen rows together. For each row, the
//! search starts from the few best of these sets and from the set of all labels with positive u.
//! The best result is used. The search may miss the maximum.

use super::{Decoder, LABELS, ROWS, SCORES, Work};
use manylabel_base::{Error, Watch, extend};
use std::iter::repeat_n;

/// Number of training label sets from which the search starts for each row.
///
/// More sets take more time, and fewer sets miss the maximum more often. On the data set yeast (14
/// labels), with penalties of the couplings of 1e-4 and 1e-5, the search misses the maximum for 0.9
/// % and 1.7 % of the rows with 5 starting sets. With 20 starting sets, it misses the maximum for
/// 0.2 % of the rows.
const SEEDS: usize = 16;

impl Decoder<'_> {
    /// Finds the best training label sets for up to [`ROWS`] rows. `u` holds the log-odds of these
    /// rows without couplings.
    pub(super) fn score_sets(&self, u: &[f64], work: &mut Work) -> Result<(), Error> {
        if u.len() == self.n_labels() {
            self.score_sets_of::<1>(u, work)
        } else {
            self.score_sets_of::<ROWS>(u, work)
        }
    }

    /// Implements [`score_sets`](Self::score_sets) for up to N rows, with one SIMD lane per row.
    /// The result of a lane does not depend on N.
    fn score_sets_of<const N: usize>(&self, u: &[f64], work: &mut Work) -> Result<(), Error> {
        let n = self.n_labels();
        let n_rows = u.len() / n;
        let Work { lanes, best, .. } = work;
        lanes.clear();
        extend(SCORES, lanes, repeat_n(0.0, n * N))?;
        let lanes = lanes.as_chunks_mut::<N>().0;
        for (row, u) in u.chunks(n).enumerate() {
            for &label in &self.coupled {
                lanes[label as usize][row] = u[label as usize];
            }
        }
        best.resize_with(ROWS, Vec::new);
        best.iter_mut().for_each(Vec::clear);
        let mut floors = [f64::INFINITY; N];
        floors[..n_rows].fill(f64::NEG_INFINITY);
        for (set, &energy) in self.sets.energies.iter().enumerate() {
            let mut scores = [energy; N];
            for &label in self.sets.get(set) {
                let of_label = &lanes[label as usize];
                for lane in 0..N {
                    scores[lane] += of_label[lane];
                }
            }
            let mut any = false;
            for lane in 0..N {
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
        Ok(())
    }

    /// Writes to `work.z` the best label set that the search finds for a row.
    /// [`score_sets`](Self::score_sets) must have been called before. `row` is the position of the
    /// row in the last of these calls. `odds` is overwritten.
    pub(super) fn search(
        &self,
        u: &[f64],
        row: usize,
        work: &mut Work,
        odds: &mut [f64],
        watch: &Watch,
    ) -> Result<(), Error> {
        let n = self.n_labels();
        let Work { z, best, state, .. } = work;
        let mut most = f64::NEG_INFINITY;
        z.clear();
        extend(LABELS, z, repeat_n(false, n))?;
        let seeds = best[row].iter().map(|&(_, set)| Some(set as usize));
        for seed in seeds.chain([None]) {
            state.clear();
            extend(LABELS, state, repeat_n(false, n))?;
            if let Some(set) = seed {
                for &label in self.sets.get(set) {
                    state[label as usize] = true;
                }
            } else {
                for &label in &self.coupled {
                    state[label as usize] = u[label as usize] > 0.0;
                }
            }
            self.climb(u, state, odds, watch)?;
            let score = self.score(u, state);
            if score > most {
                most = score;
                z.copy_from_slice(state);
            }
        }
        Ok(())
    }

    /// Returns the score `s(z)` of a set of coupled labels: the sum of its log-odds plus the sum of
    /// its couplings.
    fn score(&self, u: &[f64], z: &[bool]) -> f64 {
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

    /// Improves a label set by flips until no flip increases the score. A flip adds or removes a
    /// label. If no single flip increases the score, flips of coupled pairs are tried. The flip
    /// with the largest gain in score is always chosen.
    ///
    /// `gains` is a workspace for the gain of flipping each label. This gain is the log-odds of the
    /// label, with a minus sign if the label is in the set. After a flip, only the gains of coupled
    /// labels change. A pair is tried only if the largest coupling of its first label could make up
    /// for the loss of flipping this label alone.
    fn climb(
        &self,
        u: &[f64],
        z: &mut [bool],
        gains: &mut [f64],
        watch: &Watch,
    ) -> Result<(), Error> {
        self.odds(u, z, gains);
        for &label in &self.coupled {
            if z[label as usize] {
                gains[label as usize] = -gains[label as usize];
            }
        }
        let flip = |z: &mut [bool], gains: &mut [f64], label: usize| {
            z[label] = !z[label];
            gains[label] = -gains[label];
            let (others, values) = self.couplings.row(label);
            for (other, value) in others.iter().zip(values) {
                let other = *other as usize;
                gains[other] += if z[other] == z[label] { -value } else { *value };
            }
        };
        // Every flip has a positive gain. The number of flips is limited, because rounding errors
        // could make the loop endless.
        for _ in 0..4 * self.n_labels() + 100 {
            watch.step(0)?;
            let (mut most, mut best) = (1e-12, None);
            for &label in &self.coupled {
                let gain = gains[label as usize];
                if gain > most {
                    (most, best) = (gain, Some((label as usize, None)));
                }
            }
            if best.is_none() {
                for &i in &self.coupled {
                    let i = i as usize;
                    let own = gains[i];
                    if own + self.strongest[i] <= most {
                        continue;
                    }
                    let (others, values) = self.couplings.row(i);
                    for (&k, &value) in others.iter().zip(values) {
                        let k = k as usize;
                        let both = if z[i] == z[k] { value } else { -value };
                        let gain = own + gains[k] + both;
                        if i < k && gain > most {
                            (most, best) = (gain, Some((i, Some(k))));
                        }
                    }
                }
            }
            let Some((first, second)) = best else {
                break;
            };
            flip(z, gains, first);
            if let Some(second) = second {
                flip(z, gains, second);
            }
        }
        Ok(())
    }
}
