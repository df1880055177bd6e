//! Chooses the label set of a row with the largest expected F1, from independent probabilities.
//!
//! The best set has the m labels with the highest probabilities, for some m. For independent labels, the
//! expected F1 of all m is computed in O(k²) for k probabilities (Ye, Chai, Lee and Chieu, "Optimizing
//! F-measure: a tale of two approaches", ICML 2012, algorithm 1).

use manylabel_base::{Error, Tasks, Watch, collected, filled, push, reserved};
use manylabel_sparse::{CsrOwned, CsrView, Index, Value};
use rayon::prelude::*;

/// Returns the number m of the most probable labels that has the largest expected F1.
///
/// `falling` has the probabilities of a row in decreasing order. `of_empty` is the F1 of an empty set for a row
/// without labels. If two numbers have the same expected F1, the smaller one is returned.
///
/// The time and the memory are quadratic in the number of probabilities.
///
/// ```
/// use manylabel_decision::f1::best_size;
///
/// // The first label alone has an expected F1 of 0.5 * 1/2 + 0.4 * ..., which is less than both labels have.
/// assert_eq!(best_size(&[0.5, 0.4], 0.0)?, 2);
/// assert_eq!(best_size(&[0.9, 0.1], 0.0)?, 1);
/// // If the row probably has no labels, the empty set is best.
/// assert_eq!(best_size(&[0.1], 1.0)?, 0);
/// # Ok::<(), manylabel_base::Error>(())
/// ```
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
pub fn best_size(falling: &[f64], of_empty: f64) -> Result<usize, Error> {
    let n = falling.len();
    // s[i] is the expectation of 1 / (i + T), where T is the number of true labels after the first m.
    let mut s = filled("number of labels of a row", 0.0, 2 * n + 1)?;
    for (i, s) in s.iter_mut().enumerate().skip(1) {
        *s = 1.0 / i as f64;
    }
    // counts[m (m + 1) / 2 + j] is the probability that j of the first m labels are true.
    let size = n
        .checked_add(1)
        .and_then(|m| m.checked_mul(m + 1))
        .ok_or(Error::TooLarge {
            what: "number of labels of a row",
            got: n.to_string(),
        })?;
    let mut counts = reserved("number of labels of a row", size / 2)?;
    counts.push(1.0);
    for (m, &p) in falling.iter().enumerate() {
        let start = m * (m + 1) / 2;
        for j in 0..=m + 1 {
            let stays = if j <= m {
                counts[start + j] * (1.0 - p)
            } else {
                0.0
            };
            let rises = if j > 0 {
                counts[start + j - 1] * p
            } else {
                0.0
            };
            counts.push(stays + rises);
        }
    }
    let (mut best, mut size) = (f64::NEG_INFINITY, 0);
    for m in (1..=n).rev() {
        let of_m = &counts[m * (m + 1) / 2..];
        let expected: f64 = (1..=m).map(|j| 2.0 * j as f64 * of_m[j] * s[m + j]).sum();
        if expected >= best {
            (best, size) = (expected, m);
        }
        // From the labels after the first m to the labels after the first m - 1.
        let p = falling[m - 1];
        for i in 1..2 * m {
            s[i] = p * s[i + 1] + (1.0 - p) * s[i];
        }
    }
    let none: f64 = falling.iter().map(|p| 1.0 - p).product();
    Ok(if of_empty * none >= best { 0 } else { size })
}

/// Chooses the label set of every row. The result has the chosen entries of `probabilities`.
///
/// Labels that are not stored have the probability 0. If labels have equal probabilities, the label with the
/// lower number comes first. Labels with the probability 0 are not chosen.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short, and [`Error::Stopped`] if the caller requested a stop.
pub fn best_sets<I: Index, T: Value>(
    probabilities: CsrView<'_, I, T>,
    of_empty: f64,
    watch: &Watch,
) -> Result<CsrOwned, Error> {
    let mut sizes = filled("number of rows", 0usize, probabilities.n_rows())?;
    let sorted = |row: usize| {
        let (labels, values) = probabilities.row(row);
        let entries = labels
            .iter()
            .zip(values)
            .map(|(l, p)| (p.f64(), l.get() as u32));
        let positive = entries.filter(|&(p, _)| p > 0.0);
        let mut entries = collected("number of labels of a row", positive)?;
        entries.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        Ok::<_, Error>(entries)
    };
    sizes.par_iter_mut().enumerate().try_each(|(row, size)| {
        watch.step(1)?;
        let entries = sorted(row)?;
        let falling = collected("number of labels of a row", entries.iter().map(|&(p, _)| p))?;
        *size = best_size(&falling, of_empty)?;
        Ok(())
    })?;
    let total = sizes.iter().sum();
    let mut out = CsrOwned {
        indptr: reserved("number of rows", probabilities.n_rows() + 1)?,
        indices: reserved("number of predicted labels", total)?,
        values: reserved("number of predicted labels", total)?,
        n_cols: probabilities.n_cols(),
    };
    out.indptr.push(0);
    for (row, &size) in sizes.iter().enumerate() {
        let mut chosen = sorted(row)?;
        chosen.truncate(size);
        chosen.sort_unstable_by_key(|&(_, label)| label);
        for (p, label) in chosen {
            push("number of predicted labels", &mut out.indices, label)?;
            push("number of predicted labels", &mut out.values, p as f32)?;
        }
        out.indptr.push(out.indices.len());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the expected F1 of the set of the labels with bits in `set`, by enumeration.
    fn expected_f1(p: &[f64], set: u32, of_empty: f64) -> f64 {
        (0..1u32 << p.len())
            .map(|truth| {
                let chance: f64 = p
                    .iter()
                    .enumerate()
                    .map(|(j, &p)| if truth >> j & 1 == 1 { p } else { 1.0 - p })
                    .product();
                let size = f64::from(truth.count_ones() + set.count_ones());
                let common = f64::from((truth & set).count_ones());
                chance
                    * if size == 0.0 {
                        of_empty
                    } else {
                        2.0 * common / size
                    }
            })
            .sum()
    }

    proptest! {
        #[test]
        fn no_other_set_has_a_larger_expected_f1(
            mut p in prop::collection::vec(0.0..=1.0f64, 0..7), of_empty in 0.0..=1.0f64
        ) {
            p.sort_by(|a, b| b.total_cmp(a));
            let size = best_size(&p, of_empty).unwrap();
            let found = expected_f1(&p, (1 << size) - 1, of_empty);
            for set in 0..1u32 << p.len() {
                prop_assert!(found >= expected_f1(&p, set, of_empty) - 1e-12);
            }
        }
    }
}
