//! Divides labels into clusters of similar labels.
//!
//! Spherical 2-means divides the labels into two clusters. Each cluster is divided again, until there are
//! enough clusters. The label vectors z have unit length. An iteration of 2-means has two steps:
//!
//! 1. Labels are sorted by `z · (c₁ − c₀)`, where `c₀` and `c₁` are the mean directions of the two clusters.
//!    The labels before a given position become the first cluster, and the other labels become the second.
//!    Without balance, the position is chosen so that the first cluster has the labels with values up to 0.
//! 2. The mean directions are computed from the new clusters.
//!
//! An iteration increases `‖Σ₀ z‖ + ‖Σ₁ z‖`, where the sums are over the labels of the two clusters. This is
//! the sum of the cosines between the labels and the mean directions of their clusters.
//!
//! The result does not depend on how the labels are numbered. The caller passes the labels in an order that
//! depends only on their vectors. Random draws select positions in this order, and ties are resolved by it.

use fastrand::Rng;
use manylabel_base::{Error, Watch, collected, copied, extend, filled};
use manylabel_sparse::CsrRef;
use rayon::prelude::*;

/// The largest number of iterations of 2-means.
const TURNS: usize = 20;

/// 2-means ends when an iteration increases the mean cosine by less than this value.
const LEAST_GAIN: f64 = 1e-4;

/// The number of random labels from which the second starting point is chosen. The label that is least
/// similar to the first starting point is chosen.
const DRAWS: usize = 8;

/// Without balance, each half has at least the fraction 1 / `LEAST_SHARE` of the labels that are divided.
/// So the depth of a tree is limited for all data.
const LEAST_SHARE: usize = 4;

/// The smallest number of stored values for which scores and sums are computed in parallel.
const PARALLEL_FROM: usize = 1 << 16;

/// The number of labels that a thread scores at a time.
const LABELS_AT_ONCE: usize = 256;

/// Divides labels into `n_clusters` clusters and sorts `items` by cluster.
///
/// `items` has the rows of `z` to divide. It must have at least `n_clusters` entries. Within a cluster,
/// labels keep their order. The size of each cluster is appended to `sizes`. Every cluster has at least
/// one label. If `balanced` is true, the sizes differ by at most 1.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the caller requested a stop.
pub(crate) fn split(
    z: CsrRef<'_>,
    items: &mut [u32],
    n_clusters: usize,
    balanced: bool,
    seed: u64,
    sizes: &mut Vec<usize>,
    watch: &Watch,
) -> Result<(), Error> {
    if n_clusters <= 1 {
        return extend("number of clusters", sizes, [items.len()]);
    }
    watch.step(0)?;
    let n = items.len();
    let of_left = n_clusters / 2;
    let even = n / n_clusters * of_left + (n % n_clusters).min(of_left);
    let sides = halves(z, items, balanced.then_some(even), seed, watch)?;
    let right = collected("number of labels", kept(items, &sides, true))?;
    let left = collected("number of labels", kept(items, &sides, false))?;
    let at = left.len();
    items[..at].copy_from_slice(&left);
    items[at..].copy_from_slice(&right);
    let of_left = if balanced {
        of_left
    } else {
        let share = (n_clusters * at + n / 2) / n;
        share
            .clamp(1, n_clusters - 1)
            .min(at)
            .max(n_clusters.saturating_sub(n - at))
    };
    let (left, right) = items.split_at_mut(at);
    let mut more = Vec::new();
    let seeds = (mixed(seed, 1), mixed(seed, 2));
    let (a, b) = rayon::join(
        || split(z, left, of_left, balanced, seeds.0, sizes, watch),
        || {
            split(
                z,
                right,
                n_clusters - of_left,
                balanced,
                seeds.1,
                &mut more,
                watch,
            )
        },
    );
    a?;
    b?;
    extend("number of clusters", sizes, more)
}

/// Returns the items of one side, in their order in `items`. `sides` has an entry for each item.
fn kept(items: &[u32], sides: &[bool], side: bool) -> impl Iterator<Item = u32> {
    let both = items.iter().zip(sides);
    both.filter(move |&(_, &of)| of == side)
        .map(|(&item, _)| item)
}

/// Derives a new seed from a seed and a number. The operations are the last steps of `SplitMix64`.
pub(crate) fn mixed(seed: u64, step: u64) -> u64 {
    let mut z = seed.wrapping_add(step.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Divides items into two sides by spherical 2-means. Returns the side of each item, true for the second
/// side.
///
/// `n_left` is the number of items on the first side. If it is None, the vectors decide about this number.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the caller requested a stop.
fn halves(
    z: CsrRef<'_>,
    items: &[u32],
    n_left: Option<usize>,
    seed: u64,
    watch: &Watch,
) -> Result<Vec<bool>, Error> {
    let n = items.len();
    let stored: usize = items.iter().map(|&item| z.row(item as usize).0.len()).sum();
    let in_parallel = stored >= PARALLEL_FROM;
    let mut rng = Rng::with_seed(seed);
    let mut sides = filled("number of labels", false, n)?;
    let mut towards = filled("number of features", 0.0f32, z.n_cols())?;
    let (first, second) = starts(z, items, &mut rng, &mut towards);
    direction(z, (&[first], 1.0), (&[second], 1.0), &mut towards);
    let mut scores = filled("number of labels", (0.0f32, 0u32), n)?;
    let mut last = f64::NEG_INFINITY;
    let mut before = Vec::new();
    for turn in 0..TURNS {
        watch.step(0)?;
        let score = |(at, scores): (usize, &mut [(f32, u32)])| {
            let first = at * LABELS_AT_ONCE;
            for (at, score) in (first..).zip(scores) {
                *score = (dot(z, items[at], &towards), at as u32);
            }
        };
        if in_parallel {
            scores
                .par_chunks_mut(LABELS_AT_ONCE)
                .enumerate()
                .for_each(score);
        } else {
            scores
                .chunks_mut(LABELS_AT_ONCE)
                .enumerate()
                .for_each(score);
        }
        let at = n_left.unwrap_or_else(|| natural_cut(&scores));
        let by_score = |a: &(f32, u32), b: &(f32, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        scores.select_nth_unstable_by(at, by_score);
        before.clear();
        extend("number of labels", &mut before, sides.iter().copied())?;
        for (place, &(_, item)) in scores.iter().enumerate() {
            sides[item as usize] = place >= at;
        }
        if turn > 0 && sides == before {
            break;
        }
        let left = collected("number of labels", kept(items, &sides, false))?;
        let right = collected("number of labels", kept(items, &sides, true))?;
        let lengths = sums(z, &left, &right, &mut towards, in_parallel)?;
        let gain = lengths - last;
        last = lengths;
        if gain < LEAST_GAIN * n as f64 {
            break;
        }
    }
    Ok(sides)
}

/// Returns the number of labels on the first side if the vectors decide about this number.
///
/// It is the number of scores that are at most 0. Each side gets at least one in
/// [`LEAST_SHARE`] labels. If all scores are equal, the first side gets half of the labels.
fn natural_cut(scores: &[(f32, u32)]) -> usize {
    let n = scores.len();
    let least = n.div_ceil(LEAST_SHARE).max(1);
    if scores
        .iter()
        .all(|(score, _)| score.total_cmp(&scores[0].0).is_eq())
    {
        return n / 2;
    }
    let natural = scores.iter().filter(|&&(score, _)| score <= 0.0).count();
    natural.clamp(least, n - least)
}

/// Returns the two labels from which 2-means starts.
///
/// The first label is random. The second label is the least similar to the first label among [`DRAWS`] random
/// labels. If all draws return the first label, both results are this label. In this case, all scores are 0,
/// and the order of the labels decides.
///
/// `zeros` must have a 0 for each feature. It has these zeros again when the function returns.
fn starts(z: CsrRef<'_>, items: &[u32], rng: &mut Rng, zeros: &mut [f32]) -> (u32, u32) {
    let first = items[rng.usize(..items.len())];
    let (cols, values) = z.row(first as usize);
    for (&col, &value) in cols.iter().zip(values) {
        zeros[col as usize] = value;
    }
    let mut second = (f32::INFINITY, first);
    for _ in 0..DRAWS {
        let item = items[rng.usize(..items.len())];
        let similar = dot(z, item, zeros);
        if item != first && similar < second.0 {
            second = (similar, item);
        }
    }
    for &col in cols {
        zeros[col as usize] = 0.0;
    }
    (first, second.1)
}

/// Returns `z_item · towards`. Products are added in the order of the stored values.
#[inline]
fn dot(z: CsrRef<'_>, item: u32, towards: &[f32]) -> f32 {
    let (cols, values) = z.row(item as usize);
    let both = cols.iter().zip(values);
    both.map(|(&col, &value)| value * towards[col as usize])
        .sum()
}

/// Sets `towards` to `right_by · Σ_right z − left_by · Σ_left z`. Each of `left` and
/// `right` is a list of labels and a factor. The formula calls the factors `left_by` and `right_by`.
fn direction(z: CsrRef<'_>, left: (&[u32], f32), right: (&[u32], f32), towards: &mut [f32]) {
    towards.fill(0.0);
    for ((items, by), sign) in [(left, -1.0), (right, 1.0)] {
        for &item in items {
            let (cols, values) = z.row(item as usize);
            for (&col, &value) in cols.iter().zip(values) {
                towards[col as usize] += sign * by * value;
            }
        }
    }
}

/// Sets `towards` to the mean direction of the labels `right` minus the mean direction of the labels `left`.
/// Returns `‖Σ_left z‖ + ‖Σ_right z‖`.
///
/// The sum of each side is computed by one thread, in the order of the labels. So the result does not
/// depend on `in_parallel`, not even by rounding.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
fn sums(
    z: CsrRef<'_>,
    left: &[u32],
    right: &[u32],
    towards: &mut [f32],
    in_parallel: bool,
) -> Result<f64, Error> {
    let mut of_left = copied("number of features", towards)?;
    let add_left = |of_left: &mut Vec<f32>| direction(z, (&[], 1.0), (left, 1.0), of_left);
    let add_right = |towards: &mut [f32]| direction(z, (&[], 1.0), (right, 1.0), towards);
    if in_parallel {
        rayon::join(|| add_left(&mut of_left), || add_right(towards));
    } else {
        add_left(&mut of_left);
        add_right(towards);
    }
    let length = |sums: &[f32]| {
        sums.iter()
            .map(|&v| f64::from(v).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    let (left, right) = (length(&of_left), length(towards));
    let inverse = |length: f64| {
        if length > 0.0 {
            (1.0 / length) as f32
        } else {
            0.0
        }
    };
    let (by_left, by_right) = (inverse(left), inverse(right));
    for (towards, &of_left) in towards.iter_mut().zip(&of_left) {
        *towards = by_right * *towards - by_left * of_left;
    }
    Ok(left + right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use manylabel_sparse::CsrOwned;

    /// Returns the vectors of `n` labels. Label l has the two features of its group `l % 4`. It also has
    /// a small value for another feature.
    fn groups(n: usize) -> CsrOwned {
        let mut rng = Rng::with_seed(0);
        let values = |_| [0.7, 0.7, 0.1 * rng.f32()];
        CsrOwned {
            indptr: (0..=n).map(|label| 3 * label).collect(),
            values: (0..n).flat_map(values).collect(),
            indices: (0..n as u32)
                .flat_map(|label| [2 * (label % 4), 2 * (label % 4) + 1, 8 + label % 5])
                .collect(),
            n_cols: 13,
        }
    }

    #[test]
    fn groups_are_found_for_most_seeds() {
        let z = groups(40);
        let mut found = 0;
        for seed in 0..20 {
            let mut items: Vec<u32> = (0..40).collect();
            let mut sizes = Vec::new();
            split(
                z.view(),
                &mut items,
                4,
                true,
                seed,
                &mut sizes,
                &Watch::new(),
            )
            .expect("small");
            assert_eq!(sizes, [10; 4]);
            let pure = |part: &[u32]| part.iter().all(|label| label % 4 == part[0] % 4);
            found += usize::from(items.chunks(10).all(pure));
        }
        assert!(found >= 10, "{found}");
    }

    #[test]
    fn sizes_are_as_asked_for_whatever_the_vectors() {
        let mut alike = groups(23);
        alike.indices.fill(0);
        for z in [groups(23), alike] {
            for balanced in [true, false] {
                for n_clusters in 1..=23 {
                    let mut items: Vec<u32> = (0..23).collect();
                    let mut sizes = Vec::new();
                    split(
                        z.view(),
                        &mut items,
                        n_clusters,
                        balanced,
                        1,
                        &mut sizes,
                        &Watch::new(),
                    )
                    .expect("small");
                    assert_eq!(sizes.len(), n_clusters);
                    assert_eq!(sizes.iter().sum::<usize>(), 23);
                    let (least, most) = (sizes.iter().min(), sizes.iter().max());
                    assert!(least >= Some(&1));
                    assert!(!balanced || most <= least.map(|least| least + 1).as_ref());
                    items.sort_unstable();
                    assert!(items.into_iter().eq(0..23));
                }
            }
        }
    }
}
