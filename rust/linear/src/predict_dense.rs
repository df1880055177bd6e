//! Scores rows with dense weights, which `DiSMEC` fits to dense features.
//!
//! The weights are stored label after label. The score of a row and a label is a dot product of two contiguous
//! arrays. A dot product has [`LANES`] partial sums, which are added in a fixed order. The order is the same for
//! one row and for a batch, so scores do not depend on which rows are scored together.
//!
//! In a batch, [`ROWS`] rows and a tile of [`LABELS`] labels stay in the second-level cache. The dot products of
//! [`AT_ONCE`] rows and as many labels are computed at once in registers: a number that is loaded is used three
//! times. One row reads the weights once.

use manylabel_base::range::same;
use manylabel_base::{Error, filled};
use manylabel_score::{Model, Options, Rows, Task, keep_finite};
use manylabel_simd::{total, wide};
use manylabel_sparse::{CsrView, Dense, DenseView, Features, Index, Real, Value, with_sparse};
use std::ops::Range;

/// The number of partial sums of a dot product, which fill a register of AVX2.
const LANES: usize = 8;

/// The number of rows and the number of labels whose dot products are computed at once. Their nine sums and six
/// operands fill the sixteen registers of AVX2.
const AT_ONCE: usize = 3;

/// The number of rows that are scored together; a multiple of [`AT_ONCE`].
const ROWS: usize = 48;

/// The number of labels of a tile; a multiple of [`AT_ONCE`].
const LABELS: usize = 48;

/// Scores rows with dense weights.
#[derive(Debug, Clone, Copy)]
pub struct DenseScorer<'a> {
    /// The weights, label after label; shape (`n_labels`, `n_features`).
    weights: &'a [f32],
    /// The intercepts; shape (`n_labels`). A label that is never predicted has −∞.
    intercept: &'a [f32],
    n_features: usize,
    /// True if rows are scaled to unit length before they are scored.
    normalize: bool,
}

impl<'a> DenseScorer<'a> {
    /// Borrows weights of shape (`n_labels`, `n_features`), and an intercept for each label. An intercept of −∞
    /// marks a label that is never predicted. If `normalize` is true, rows are scaled to unit length before
    /// they are scored.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the lengths do not agree.
    pub fn new(
        weights: &'a [f32],
        intercept: &'a [f32],
        n_features: usize,
        normalize: bool,
    ) -> Result<Self, Error> {
        let size = intercept.len().saturating_mul(n_features);
        same("values of coef_", size, weights.len())?;
        Ok(Self {
            weights,
            intercept,
            n_features,
            normalize,
        })
    }

    /// Computes the scores of all labels for rows of `n_features` numbers each.
    fn score(&self, rows: &[f32], scores: &mut [f32]) {
        let n_labels = self.intercept.len();
        for label in (0..n_labels).step_by(LABELS) {
            let labels = label..(label + LABELS).min(n_labels);
            let weights = &self.weights[labels.start * self.n_features..];
            let weights = &weights[..labels.len() * self.n_features];
            let intercept = &self.intercept[labels];
            add_tile(
                self.n_features,
                rows,
                weights,
                intercept,
                (n_labels, label),
                scores,
            );
        }
        keep_finite(scores, self.intercept);
    }
}

/// Writes the scores of a tile of labels. The scores of a row are `at.0` numbers apart, and the first label of the
/// tile is `at.1`.
#[wide]
fn add_tile(
    n_features: usize,
    rows: &[f32],
    weights: &[f32],
    intercept: &[f32],
    at: (usize, usize),
    scores: &mut [f32],
) {
    let n_rows = scores.len() / at.0;
    let mut row = 0;
    while row < n_rows {
        let rows = &rows[row * n_features..];
        let scores = &mut scores[row * at.0 + at.1..];
        if n_rows - row >= AT_ONCE {
            add_rows::<AT_ONCE>(n_features, rows, weights, intercept, at.0, scores);
            row += AT_ONCE;
        } else {
            add_rows::<1>(n_features, rows, weights, intercept, at.0, scores);
            row += 1;
        }
    }
}

/// Writes the scores of the first `R` rows for a tile of labels.
#[inline(always)]
fn add_rows<const R: usize>(
    n_features: usize,
    rows: &[f32],
    weights: &[f32],
    intercept: &[f32],
    n_labels: usize,
    scores: &mut [f32],
) {
    let x: [&[f32]; R] = std::array::from_fn(|row| &rows[row * n_features..][..n_features]);
    let weights_of = |label: usize| &weights[label * n_features..][..n_features];
    let mut label = 0;
    while label < intercept.len() {
        if intercept.len() - label >= AT_ONCE {
            let w: [&[f32]; AT_ONCE] = std::array::from_fn(|at| weights_of(label + at));
            let dots = dots(x, w);
            for (row, dots) in dots.iter().enumerate() {
                for (at, dot) in dots.iter().enumerate() {
                    scores[row * n_labels + label + at] = intercept[label + at] + dot;
                }
            }
            label += AT_ONCE;
        } else {
            for (row, [dot]) in dots(x, [weights_of(label)]).iter().enumerate() {
                scores[row * n_labels + label] = intercept[label] + dot;
            }
            label += 1;
        }
    }
}

/// Returns the dot products of `R` rows and `L` labels. The order of the sums depends neither on `R` nor on `L`.
#[inline(always)]
fn dots<const R: usize, const L: usize>(x: [&[f32]; R], w: [&[f32]; L]) -> [[f32; L]; R] {
    let mut sums = [[[0.0f32; LANES]; L]; R];
    let n_whole = x[0].len() / LANES;
    let wholes = x.map(|x| &x.as_chunks().0[..n_whole]);
    let weights = w.map(|w| &w.as_chunks().0[..n_whole]);
    for at in 0..n_whole {
        for row in 0..R {
            for label in 0..L {
                sums[row][label] =
                    add_product(sums[row][label], &wholes[row][at], &weights[label][at]);
            }
        }
    }
    for row in 0..R {
        for label in 0..L {
            let rest = x[row]
                .as_chunks::<LANES>()
                .1
                .iter()
                .zip(w[label].as_chunks::<LANES>().1);
            for (sum, (x, w)) in sums[row][label].iter_mut().zip(rest) {
                *sum = x.mul_add(*w, *sum);
            }
        }
    }
    sums.map(|sums| sums.map(|sums| total_of(&sums)))
}

#[inline(always)]
fn add_product(sums: [f32; LANES], x: &[f32; LANES], w: &[f32; LANES]) -> [f32; LANES] {
    std::array::from_fn(|lane| x[lane].mul_add(w[lane], sums[lane]))
}

/// Returns the total of partial sums. If this function were inlined, the compiler would order the sums of
/// [`dots`] for these additions, and would need several shuffles for each product.
#[inline(never)]
fn total_of(sums: &[f32; LANES]) -> f32 {
    total(sums)
}

/// A batch of rows.
struct Batch<'a, 'b, X> {
    scorer: &'a DenseScorer<'b>,
    x: X,
}

/// Rows that can be written in full, in single precision.
trait Source: Sync {
    /// Writes a row to `out`. If `normalize` is true, the row is scaled to unit length.
    fn write(&self, row: usize, normalize: bool, out: &mut [f32]);
}

impl<I: Index, T: Value> Source for CsrView<'_, I, T> {
    fn write(&self, row: usize, normalize: bool, out: &mut [f32]) {
        let (unit, norm) = self.row_divisors(row, normalize);
        let (cols, values) = self.row(row);
        out.fill(0.0);
        for (col, value) in cols.iter().zip(values) {
            out[col.get()] = (value.f64() / unit / norm) as f32;
        }
    }
}

impl<T: Real> Source for DenseView<'_, T> {
    fn write(&self, row: usize, normalize: bool, out: &mut [f32]) {
        let (unit, norm) = self.row_divisors(row, normalize);
        for (out, value) in out.iter_mut().zip(self.row(row)) {
            *out = (value.f64() / unit / norm) as f32;
        }
    }
}

impl<X: Source> Rows for Batch<'_, '_, X> {
    fn n_labels(&self) -> usize {
        self.scorer.intercept.len()
    }

    fn at_once(&self) -> usize {
        ROWS
    }

    fn score(&self, rows: Range<usize>, scores: &mut [f32], task: &mut Task) -> Result<(), Error> {
        let n_features = self.scorer.n_features;
        let room = || filled::<f32>("a block of rows of X", 0.0, 0);
        let block = task.work.room(room)?;
        if block.len() < rows.len() * n_features {
            *block = filled("a block of rows of X", 0.0, rows.len() * n_features)?;
        }
        let block = &mut block[..rows.len() * n_features];
        for (row, out) in rows.zip(block.chunks_mut(n_features.max(1))) {
            self.x.write(row, self.scorer.normalize, out);
        }
        self.scorer.score(block, scores);
        Ok(())
    }
}

/// Labels with the intercept −∞ are never ranked or predicted.
impl Model for DenseScorer<'_> {
    fn n_labels(&self) -> usize {
        self.intercept.len()
    }

    fn n_features(&self) -> usize {
        self.n_features
    }

    fn takes_dense(&self) -> bool {
        true
    }

    fn rows<'a>(&'a self, x: Features<'a>, _: Options) -> Result<Box<dyn Rows + 'a>, Error> {
        Ok(match x {
            Features::Sparse(x) => with_sparse!(x, |x| Box::new(Batch { scorer: self, x })),
            Features::Dense(Dense::F32(x)) => Box::new(Batch { scorer: self, x }),
            Features::Dense(Dense::F64(x)) => Box::new(Batch { scorer: self, x }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use manylabel_base::Watch;
    use manylabel_sparse::CsrOwned;

    #[test]
    fn scores_of_a_row_have_the_same_bits_alone_in_a_batch_and_sparse() {
        let (n_rows, n_features, n_labels) = (101, 37, 55);
        let mut rng = Rng::with_seed(1);
        let mut draw = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.f32() - 0.5).collect() };
        let weights = draw(n_labels * n_features);
        let mut intercept = draw(n_labels);
        intercept[7] = f32::NEG_INFINITY;
        let mut x = draw(n_rows * n_features);
        for value in x.iter_mut().step_by(3) {
            *value = 0.0;
        }
        for normalize in [false, true] {
            let scorer =
                DenseScorer::new(&weights, &intercept, n_features, normalize).expect("agree");
            let view = DenseView::of_rows(&x, n_rows, n_features).expect("shape");
            let all = scorer.decision(view.into(), &Watch::new()).expect("fits");
            let sparse = Dense::F32(view).as_sparse(&Watch::new()).expect("small");
            let sparse = Features::Sparse(sparse.sparse().expect("valid"));
            let of_sparse = scorer.decision(sparse, &Watch::new());
            assert_eq!(all, of_sparse.expect("fits"));
            for row in 0..n_rows {
                let one = DenseView::of_rows(view.row(row), 1, n_features).expect("shape");
                let scores = scorer.decision(one.into(), &Watch::new()).expect("fits");
                assert_eq!(scores, all[row * n_labels..][..n_labels]);
                let norm = view.row_divisors(row, normalize).0;
                for (label, &score) in scores.iter().enumerate() {
                    let weights = &weights[label * n_features..][..n_features];
                    let products = weights.iter().zip(view.row(row));
                    let dot: f64 = products.map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
                    let exact = f64::from(intercept[label]) + dot / norm;
                    assert!(
                        score.to_bits() == intercept[label].to_bits()
                            || (f64::from(score) - exact).abs() < 1e-5
                    );
                }
            }
            let best: CsrOwned = scorer.topk(view.into(), 3, &Watch::new()).expect("fits");
            assert_eq!(best.values.len(), 3 * n_rows);
        }
    }
}
