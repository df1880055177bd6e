//! Computes approximate scores of all rows for thirty-two labels at once.
//!
//! The solver for rare labels searches all rows for violators of the margin. A search need not be exact: it
//! selects rows, and the solver computes with exact values afterwards. So the weights are rounded to sixteen
//! bits, and the weights of thirty-two labels fill one cache line. Compared with sixteen weights of 32 bits per
//! cache line, the time of a search halves.
//!
//! The format is bfloat16: the upper half of an `f32`. Its relative error is at most 2⁻⁹, and it is converted to
//! `f32` with one shift or one mask.

use crate::panel::{LANES, Lanes};
use manylabel_simd::wide;
use manylabel_sparse::CsrRef;

/// The number of labels that are searched together.
pub(crate) const GROUP: usize = 2 * LANES;

/// A set of labels of a group, with one bit for each label.
pub(crate) type Group = u32;

/// The weights of one feature for the labels of a group. The lower half of word i is the weight of label i, and
/// the upper half is the weight of label i + 16.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Packed([u32; LANES]);

/// The scores of one row for the labels of a group, in order.
pub(crate) type Scores = [Lanes; 2];

impl Default for Packed {
    fn default() -> Self {
        Self([0; LANES])
    }
}

/// Rounds a number to the nearest bfloat16, and to the even one of two nearest numbers.
#[inline(always)]
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16
}

impl Packed {
    /// Adds the weights times `scale` to the scores.
    #[inline(always)]
    fn add_to(&self, scale: f32, (low, high): (&mut Lanes, &mut Lanes)) {
        for lane in 0..LANES {
            low.0[lane] += scale * f32::from_bits(self.0[lane] << 16);
            high.0[lane] += scale * f32::from_bits(self.0[lane] & 0xffff_0000);
        }
    }
}

/// The weights of one label are `w − κ m`, with the weights w, the factor κ, and the vector m of all labels. w is
/// `None` if [`pack_listed`] will write it.
pub(crate) type Shifted<'a> = (Option<&'a [f32]>, f32);

/// Copies the weights of up to thirty-two labels to a panel. `labels` and `mean` have at least as many numbers as the
/// panel has rows. The weights of missing labels become 0.
///
/// Rounding comes after the subtraction, because `w · x` and `κ m · x` are often large numbers with a small difference.
#[wide]
pub(crate) fn pack(labels: &[Shifted<'_>], mean: &[f32], panel: &mut [Packed]) {
    /// The weights of two labels that are copied before those of the next two labels. The copies stay in the
    /// first-level cache.
    const AT_ONCE: usize = 64;
    const ZEROS: [f32; AT_ONCE] = [0.0; AT_ONCE];
    for (at, panel) in panel.chunks_mut(AT_ONCE).enumerate() {
        let first = at * AT_ONCE;
        let mean = &mean[first..first + panel.len()];
        for lane in 0..LANES {
            let of_label = |lane: usize| {
                let &(weights, factor) = labels.get(lane).unwrap_or(&(None, 0.0));
                (
                    weights.map_or(&ZEROS[..], |weights| &weights[first..]),
                    factor,
                )
            };
            let ((low, low_factor), (high, high_factor)) = (of_label(lane), of_label(lane + LANES));
            // The words are computed in a loop of their own, which the compiler vectorizes.
            let mut words = [0; AT_ONCE];
            let of_labels = low.iter().zip(high).zip(mean);
            for (word, ((&low, &high), &mean)) in words[..panel.len()].iter_mut().zip(of_labels) {
                let low = rounded(low - low_factor * mean);
                let high = rounded(high - high_factor * mean);
                *word = low | high << 16;
            }
            for (row, &word) in panel.iter_mut().zip(&words) {
                row.0[lane] = word;
            }
        }
    }
}

/// Does the same as [`pack`] for labels without w, if m is 0 except for the given features.
#[wide]
pub(crate) fn pack_means(
    factors: &Scores,
    (features, mean): (&[u32], &[f32]),
    panel: &mut [Packed],
) {
    panel.fill(Packed::default());
    for &feature in features {
        let mean = mean[feature as usize];
        let row = &mut panel[feature as usize];
        for lane in 0..LANES {
            let low = rounded(0.0 - factors[0].0[lane] * mean);
            let high = rounded(0.0 - factors[1].0[lane] * mean);
            row.0[lane] = low | high << 16;
        }
    }
}

/// Writes the weights of one label to a panel, for the features that have a weight.
pub(crate) fn pack_listed(
    label: usize,
    weights: impl Iterator<Item = (u32, f32)>,
    factor: f32,
    mean: &[f32],
    panel: &mut [Packed],
) {
    let (lane, shift) = (label % LANES, label / LANES * 16);
    for (feature, weight) in weights {
        let word = &mut panel[feature as usize].0[lane];
        let new = rounded(weight - factor * mean[feature as usize]);
        *word = *word & !(0xffff << shift) | new << shift;
    }
}

/// Returns the labels whose scores exceed `bound`, for each row.
#[wide]
pub(crate) fn above(scores: &[Scores], bound: f32, out: &mut [Group]) {
    for (out, [low, high]) in out.iter_mut().zip(scores) {
        let mut group = 0;
        for lane in 0..LANES {
            group |= Group::from(low.0[lane] > bound) << lane;
            group |= Group::from(high.0[lane] > bound) << (lane + LANES);
        }
        *out = group;
    }
}

/// Computes the scores of the rows `first..first + out.len()` of `x`. `factors` times the number of the row in `offsets`
/// is subtracted from the scores of a row. The time is O(32 · number of entries of these rows).
#[wide]
pub(crate) fn times_packed(
    x: CsrRef<'_>,
    first: usize,
    panel: &[Packed],
    (factors, offsets): (&Scores, &[f32]),
    out: &mut [Scores],
) {
    let rows = x.rows(first..first + out.len());
    let rows = rows.zip(&offsets[first..first + out.len()]);
    for (out, ((cols, values), offset)) in out.iter_mut().zip(rows) {
        // Two sums for each half, so that no addition waits for the previous addition.
        let (mut a, mut b) = (Lanes::default(), Lanes::default());
        let (mut c, mut d) = (Lanes::default(), Lanes::default());
        let (cols2, values2) = (cols.chunks_exact(2), values.chunks_exact(2));
        for (&col, &value) in cols2.remainder().iter().zip(values2.remainder()) {
            panel[col as usize].add_to(value, (&mut a, &mut c));
        }
        for (col, value) in cols2.zip(values2) {
            panel[col[0] as usize].add_to(value[0], (&mut a, &mut c));
            panel[col[1] as usize].add_to(value[1], (&mut b, &mut d));
        }
        a.add(&b);
        c.add(&d);
        a.add_scaled(-offset, &factors[0]);
        c.add_scaled(-offset, &factors[1]);
        *out = [a, c];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use manylabel_sparse::CsrOwned;

    #[test]
    fn scores_are_those_of_rounded_weights() {
        let mut rng = Rng::with_seed(1);
        let (n_rows, n_cols, n_labels) = (9, 70, 21);
        let mut x = CsrOwned {
            indptr: vec![0],
            indices: Vec::new(),
            values: Vec::new(),
            n_cols,
        };
        for row in 0..n_rows {
            x.indices
                .extend((0..n_cols as u32).filter(|_| rng.usize(..9) < row));
            x.values.resize_with(x.indices.len(), || rng.f32() - 0.5);
            x.indptr.push(x.indices.len());
        }
        let weights: Vec<Vec<f32>> = (0..n_labels)
            .map(|_| (0..n_cols).map(|_| 4.0 * rng.f32() - 2.0).collect())
            .collect();
        let mean: Vec<f32> = (0..n_cols).map(|_| 1000.0 * rng.f32()).collect();
        let shifted: Vec<Vec<f32>> = weights
            .iter()
            .map(|weights| {
                weights
                    .iter()
                    .zip(&mean)
                    .map(|(w, m)| w + 0.5 * m)
                    .collect()
            })
            .collect();
        let labels: Vec<Shifted<'_>> = shifted.iter().map(|of| (Some(&of[..]), 0.5)).collect();
        let mut panel = vec![Packed([u32::MAX; LANES]); n_cols];
        pack(&labels, &mean, &mut panel);
        // The same labels with a list of weights each.
        let listed: Vec<Shifted<'_>> = (0..n_labels).map(|_| (None, 0.5)).collect();
        let mut of_lists = vec![Packed([u32::MAX; LANES]); n_cols];
        pack(&listed, &mean, &mut of_lists);
        let mut of_means = vec![Packed([u32::MAX; LANES]); n_cols];
        let factors = std::array::from_fn(|half| {
            manylabel_simd::Lanes(std::array::from_fn(|lane| {
                if half * LANES + lane < n_labels {
                    0.5
                } else {
                    0.0
                }
            }))
        });
        let features: Vec<u32> = (0..n_cols as u32).collect();
        pack_means(&factors, (&features, &mean), &mut of_means);
        for panel_of_lists in [&mut of_lists, &mut of_means] {
            for (label, weights) in shifted.iter().enumerate() {
                let listed = (0..).zip(weights.iter().copied());
                pack_listed(label, listed, 0.5, &mean, panel_of_lists);
            }
            for (got, expected) in panel_of_lists.iter().zip(&panel) {
                assert_eq!(got.0, expected.0);
            }
        }
        let mut scores = vec![Scores::default(); n_rows - 1];
        let offsets: Vec<f32> = (0..n_rows).map(|row| row as f32).collect();
        times_packed(
            x.view(),
            1,
            &panel,
            (&[manylabel_simd::Lanes([2.0; LANES]); 2], &offsets),
            &mut scores,
        );
        for (row, scores) in (1..).zip(&scores) {
            let (cols, values) = x.row(row);
            for label in 0..GROUP {
                let terms = cols.iter().zip(values).map(|(&col, &value)| {
                    let weight = weights.get(label).map_or(0.0, |of| of[col as usize]);
                    (
                        f64::from(value) * f64::from(weight),
                        f64::from(value * weight).abs(),
                    )
                });
                let (exact, size) =
                    terms.fold((0.0, 0.0), |sum, term| (sum.0 + term.0, sum.1 + term.1));
                let got = f64::from(scores[label / LANES].0[label % LANES] + 2.0 * row as f32);
                assert!((got - exact).abs() <= size / 500.0 + 1e-3, "{got} {exact}");
            }
        }
        // The error is that of sixteen bits, and not of fewer.
        let near = 1.0 + 2f32.powi(-7);
        assert_eq!(rounded(near) << 16, near.to_bits());
        assert_eq!(rounded(1.0 + 2f32.powi(-8)), rounded(1.0));
        assert_eq!(
            rounded(1.0 + 3.0 * 2f32.powi(-8)),
            rounded(1.0 + 2f32.powi(-6))
        );
    }
}
