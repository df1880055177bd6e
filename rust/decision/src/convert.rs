//! Converts the scores of many rows to probabilities.

use manylabel_base::range::same;
use manylabel_base::{Error, Tasks, Watch, filled, push};
use manylabel_sparse::{CsrView, Index, Value};
use rayon::prelude::*;

/// Monotone curves, one per label, that convert scores to probabilities.
///
/// The curves must increase or be constant, so that a label with a higher score does not get a lower probability
/// than before. Curves of different labels may cross, so that the order of labels in a row may change.
pub trait Curves: Sync {
    /// Returns the number of labels.
    fn n_labels(&self) -> usize;

    /// Returns the probability of a label with a score, from 0 to 1.
    ///
    /// # Panics
    ///
    /// May panic if there is no such label.
    fn probability(&self, label: usize, score: f64) -> f64;
}

/// Rows between two checks for a stop request.
const ROWS_AT_ONCE: usize = 256;

/// Returns the probabilities of the stored entries of `scores`, in their order.
///
/// Rows are distributed over the threads of the current pool. Only the result is allocated.
///
/// ```
/// use manylabel_base::Watch;
/// use manylabel_decision::{Sigmoids, pooled::Knots, probabilities};
/// use manylabel_sparse::CsrView;
///
/// // The log-odds are 2 s - 1 for label 0, and s for label 1.
/// let curves = Sigmoids {
///     knots: Knots::default(),
///     intercept: vec![-1.0, 0.0],
///     slope: vec![2.0, 1.0],
///     variance: 0.0,
/// };
/// let scores = CsrView::new("scores", &[0i32, 2], &[0, 1], &[0.5f32, 0.0], 2)?;
/// assert_eq!(probabilities(scores, &curves, &Watch::new())?, [0.5, 0.5]);
/// # Ok::<(), manylabel_base::Error>(())
/// ```
///
/// # Errors
///
/// Returns [`Error::Shape`] if `scores` has another number of labels than the curves, [`Error::TooLarge`] if
/// memory is short, and [`Error::Stopped`] if the caller requested a stop.
pub fn probabilities<I: Index, T: Value>(
    scores: CsrView<'_, I, T>,
    curves: &impl Curves,
    watch: &Watch,
) -> Result<Vec<f32>, Error> {
    same("number of labels", curves.n_labels(), scores.n_cols())?;
    let mut out = filled("number of candidates", 0.0f32, scores.nnz())?;
    let mut rest = &mut out[..];
    let mut blocks = Vec::new();
    let mut first = 0;
    while first < scores.n_rows() {
        let end = scores.n_rows().min(first + ROWS_AT_ONCE);
        let n: usize = (first..end).map(|row| scores.row(row).0.len()).sum();
        let (of_block, others) = rest.split_at_mut(n);
        push("number of rows", &mut blocks, (first..end, of_block))?;
        (rest, first) = (others, end);
    }
    blocks.into_par_iter().try_each(|(rows, out)| {
        watch.step(rows.len())?;
        let mut out = out.iter_mut();
        for row in rows {
            let (labels, values) = scores.row(row);
            for ((&label, &value), out) in labels.iter().zip(values).zip(&mut out) {
                *out = curves.probability(label.get(), value.f64()) as f32;
            }
        }
        Ok(())
    })?;
    Ok(out)
}
