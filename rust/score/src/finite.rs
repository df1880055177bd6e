//! Repairs scores that overflowed the range of `f32`.

use manylabel_simd::wide;

/// Replaces scores that overflowed, which happens for rows with very large features. `scores` holds the
/// scores of all labels for consecutive rows, row after row. `intercept` has one intercept for each label.
///
/// The score +∞ becomes the largest finite `f32`, −∞ becomes the most negative finite `f32`, and NaN (a
/// difference of infinities) becomes 0. Labels with intercept −∞ are never predicted and keep the score
/// −∞.
pub fn keep_finite(scores: &mut [f32], intercept: &[f32]) {
    for scores in scores.chunks_mut(intercept.len().max(1)) {
        if have_overflowed(scores, intercept) {
            for (score, &intercept) in scores.iter_mut().zip(intercept) {
                if !intercept.is_finite() {
                    *score = intercept;
                } else if !score.is_finite() {
                    let known = if score.is_nan() { 0.0 } else { *score };
                    *score = known.clamp(f32::MIN, f32::MAX);
                }
            }
        }
    }
}

/// Returns true if a score is NaN, or is infinite while the intercept of its label is finite. Such scores are
/// rare, so most calls of [`keep_finite`] only read the scores.
#[wide]
fn have_overflowed(scores: &[f32], intercept: &[f32]) -> bool {
    let mut found = 0;
    for (score, intercept) in scores.iter().zip(intercept) {
        // The loop uses arithmetic instead of branches, so that it vectorizes.
        let wrong = u32::from(!score.is_finite());
        let meant = u32::from(!intercept.is_finite()) & u32::from(!score.is_nan());
        found |= wrong & !meant;
    }
    found != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_overflowed_is_changed() {
        let (inf, nan) = (f32::INFINITY, f32::NAN);
        let intercept = [0.0, 1.0, -2.0, -inf, 0.0];
        let mut scores = [
            [0.5, f32::MAX, -1.0, -inf, -0.0],
            [inf, -inf, nan, -inf, 3.0],
            [1.0, 2.0, 3.0, nan, 4.0],
        ];
        keep_finite(scores.as_flattened_mut(), &intercept);
        let expected = [
            [0.5, f32::MAX, -1.0, -inf, -0.0],
            [f32::MAX, f32::MIN, 0.0, -inf, 3.0],
            [1.0, 2.0, 3.0, -inf, 4.0],
        ];
        let bits = |scores: [[f32; 5]; 3]| scores.map(|row| row.map(f32::to_bits));
        assert_eq!(bits(scores), bits(expected));
    }
}
