//! Isotonic regression by the pool adjacent violators algorithm.

use manylabel_base::{Error, reserved};

/// Replaces `values` by the non-decreasing sequence with the smallest weighted sum of squared differences. The
/// time is linear.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
pub(crate) fn isotonic(values: &mut [f64], weights: &[f64]) -> Result<(), Error> {
    // Blocks of equal values: the mean, the weight and the end.
    let mut blocks: Vec<(f64, f64, usize)> = reserved("number of values", values.len())?;
    for (at, (&value, &weight)) in values.iter().zip(weights).enumerate() {
        let mut block = (value, weight, at + 1);
        while let Some(&(mean, total, _)) = blocks.last()
            && mean >= block.0
        {
            let sum = total + block.1;
            block = ((mean * total + block.0 * block.1) / sum, sum, at + 1);
            blocks.pop();
        }
        blocks.push(block);
    }
    let mut start = 0;
    for (mean, _, end) in blocks {
        values[start..end].fill(mean);
        start = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_the_min_max_formula(
            points in prop::collection::vec((-3i8..3, 1u8..4), 1..12)
        ) {
            let weights: Vec<f64> = points.iter().map(|&(_, weight)| f64::from(weight)).collect();
            let before: Vec<f64> = points.iter().map(|&(value, _)| f64::from(value)).collect();
            let mut found = before.clone();
            isotonic(&mut found, &weights).unwrap();
            let mean = |from: usize, to: usize| {
                let sum: f64 = (from..=to).map(|at| before[at] * weights[at]).sum();
                sum / weights[from..=to].iter().sum::<f64>()
            };
            for at in 0..before.len() {
                let expected = (0..=at)
                    .map(|from| (at..before.len()).map(|to| mean(from, to)).fold(f64::INFINITY, f64::min))
                    .fold(f64::NEG_INFINITY, f64::max);
                prop_assert!((found[at] - expected).abs() < 1e-9);
            }
        }
    }
}
