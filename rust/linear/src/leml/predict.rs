//! Scores rows with weight matrices of low rank.
//!
//! A row x is first multiplied by W, which gives `a = x W` (its embedding). Then its scores are
//! `a Hᵀ + intercept`. For a group of rows, the second product is a dense matrix product, computed
//! in tiles of rows and labels. Each score is a sum in the order of the columns of W. So it does
//! not depend on the rows and labels that are in the same tile.

use manylabel_base::range::same;
use manylabel_base::{Error, filled};
use manylabel_score::{Model, Options, Rows, Task, keep_finite};
use manylabel_simd::{add_scaled, has_512_bits, wide};
use manylabel_sparse::{CsrView, Dense, DenseView, Features, Index, Real, Value, with_sparse};
use std::ops::Range;

/// The largest number of rows that are scored together. The products `x W` of more rows would not
/// stay in the first-level cache.
const ROWS_AT_ONCE: usize = 32;

/// The largest number of scores that a thread computes at a time. If a single row has more scores,
/// the row is scored alone.
const SCORES_AT_ONCE: usize = 1 << 22;

/// Number of rows in a tile of the score matrix.
const ROWS_OF_TILE: usize = 4;

/// Scores rows as `x W Hᵀ + intercept`.
#[derive(Debug, Clone, Copy)]
pub struct Scorer<'a> {
    /// The features that have a row in the weight matrix W, in increasing order.
    features: &'a [i32],
    /// The weight matrix W, stored row by row; shape (features, `rank`).
    w: &'a [f32],
    /// `Hᵀ`, stored row by row; shape (`rank`, `n_labels`).
    ht: &'a [f32],
    /// The intercepts; shape (`n_labels`). A label that is never predicted has −∞.
    intercept: &'a [f32],
    n_features: usize,
    rank: usize,
    /// True if rows are scaled to unit length before they are scored.
    normalize: bool,
}

impl<'a> Scorer<'a> {
    /// Borrows the arrays of a model. `shape` is (`n_features`, `rank`).
    ///
    /// `w` has one row of `rank` numbers for each feature in `features`. The numbers in `features`
    /// must be increasing and below `n_features`. `ht` has `rank` rows of `n_labels` numbers.
    /// `intercept` has one number for each label, which is −∞ for labels that are never predicted.
    /// If `normalize` is true, rows are scaled to unit length before they are scored. The time is
    /// O(number of features).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if the lengths do not agree. Returns [`Error::Param`] if the
    /// numbers in `features` are not increasing or not below `n_features`.
    pub fn new(
        features: &'a [i32],
        w: &'a [f32],
        ht: &'a [f32],
        intercept: &'a [f32],
        shape: (usize, usize),
        normalize: bool,
    ) -> Result<Self, Error> {
        let (n_features, rank) = shape;
        for (what, rows, got) in [
            ("values of feature_factors_", features.len(), w.len()),
            ("values of label_factors_", intercept.len(), ht.len()),
        ] {
            same(what, rows.saturating_mul(rank), got)?;
        }
        let in_range = features.iter().all(|feature| feature.get() < n_features);
        if !(in_range && features.is_sorted_by(|a, b| a < b)) {
            return Err(Error::Param {
                name: "features_",
                expected: "increasing feature numbers below the number of features",
                got: "numbers that do not increase, or that are too large".into(),
            });
        }
        Ok(Self {
            features,
            w,
            ht,
            intercept,
            n_features,
            rank,
            normalize,
        })
    }
}

/// A batch of rows.
struct Batch<'a, X> {
    scorer: Scorer<'a>,
    x: X,
}

/// Rows that can be multiplied by W.
trait Embed: Sync {
    /// Computes `x W` for consecutive rows x. `out` has `rank` numbers for each row, and zeros for up to three
    /// further rows. Each number is a sum in the order of the features.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if a workspace does not fit in memory.
    fn embed(
        &self,
        scorer: &Scorer<'_>,
        rows: Range<usize>,
        work: &mut Vec<f32>,
        out: &mut [f32],
    ) -> Result<(), Error>;
}

impl<I: Index, T: Value> Embed for CsrView<'_, I, T> {
    fn embed(
        &self,
        scorer: &Scorer<'_>,
        rows: Range<usize>,
        _: &mut Vec<f32>,
        out: &mut [f32],
    ) -> Result<(), Error> {
        for (row, out) in rows.zip(out.chunks_exact_mut(scorer.rank.max(1))) {
            embed_row(*self, scorer, row, out);
        }
        Ok(())
    }
}

impl<T: Real> Embed for DenseView<'_, T> {
    /// Copies the values of the features in use in single precision, and computes a matrix product.
    fn embed(
        &self,
        scorer: &Scorer<'_>,
        rows: Range<usize>,
        work: &mut Vec<f32>,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let Scorer {
            features, w, rank, ..
        } = *scorer;
        let n_features = features.len();
        let (n_rows, n_padded) = (rows.len(), rows.len().next_multiple_of(ROWS_OF_TILE));
        // The workspace has `rank` zeros, to which the products are added, and then the values.
        let size = rank + n_padded * n_features;
        if work.len() == size {
            work.fill(0.0);
        } else {
            *work = filled("a block of rows of X", 0.0, size)?;
        }
        let (zeros, values) = work.split_at_mut(rank);
        for (row, to) in rows.zip(values.chunks_exact_mut(n_features.max(1))) {
            let (unit, norm) = self.row_divisors(row, scorer.normalize);
            let of_row = self.row(row);
            for (to, feature) in to.iter_mut().zip(features) {
                *to = (of_row[feature.get()].f64() / unit / norm) as f32;
            }
        }
        if rank > 0 {
            add_products(values, w, zeros, n_features, &mut out[..n_rows * rank]);
        }
        Ok(())
    }
}

/// Computes `x W` for one sparse row x.
fn embed_row<I: Index, T: Value>(
    x: CsrView<'_, I, T>,
    scorer: &Scorer<'_>,
    row: usize,
    out: &mut [f32],
) {
    let Scorer {
        features, w, rank, ..
    } = *scorer;
    let (unit, norm) = x.row_divisors(row, scorer.normalize);
    let (cols, values) = x.row(row);
    let mut rest = 0;
    for (col, value) in cols.iter().zip(values) {
        // The two lists are in increasing order. So only the part of `features` that remains is
        // searched.
        rest += features[rest..].partition_point(|feature| feature.get() < col.get());
        match features.get(rest) {
            None => break,
            Some(feature) if feature.get() == col.get() => {
                let value = (value.f64() / unit / norm) as f32;
                add_row(value, &w[rest * rank..][..rank], out);
            }
            Some(_) => {}
        }
    }
}

/// The workspace of a thread.
#[derive(Default)]
struct Buffers {
    /// The embedded rows.
    embedded: Vec<f32>,
    /// The workspace of [`Embed::embed`].
    rows: Vec<f32>,
}

impl<X: Embed> Rows for Batch<'_, X> {
    fn n_labels(&self) -> usize {
        self.scorer.intercept.len()
    }

    fn at_once(&self) -> usize {
        (SCORES_AT_ONCE / self.n_labels().max(1)).clamp(1, ROWS_AT_ONCE)
    }

    fn score(&self, rows: Range<usize>, scores: &mut [f32], task: &mut Task) -> Result<(), Error> {
        let Scorer {
            ht,
            intercept,
            rank,
            ..
        } = self.scorer;
        if intercept.is_empty() {
            return Ok(());
        }
        let Buffers {
            embedded,
            rows: work,
        } = task.work.room(|| Ok(Buffers::default()))?;
        // The number of rows of the buffer is a multiple of the tile height. The additional rows
        // are zero.
        let size = rows.len().next_multiple_of(ROWS_OF_TILE) * rank;
        if embedded.len() == size {
            embedded.fill(0.0);
        } else {
            *embedded = filled("the matrix of embedded rows", 0.0, size)?;
        }
        self.x.embed(&self.scorer, rows, work, embedded)?;
        add_products(embedded, ht, intercept, rank, scores);
        keep_finite(scores, intercept);
        Ok(())
    }
}

/// Scoring a row takes O(`rank` · (features of the row + `n_labels`)) time. Each thread stores the
/// scores of up to 32 rows. They take at most 16 MiB, unless a single row needs more. If X is dense, each thread also
/// stores up to 32 rows of X in single precision. Labels with the intercept −∞ are never ranked or predicted.
impl Model for Scorer<'_> {
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
        let scorer = *self;
        Ok(match x {
            Features::Sparse(x) => with_sparse!(x, |x| Box::new(Batch { scorer, x })),
            Features::Dense(Dense::F32(x)) => Box::new(Batch { scorer, x }),
            Features::Dense(Dense::F64(x)) => Box::new(Batch { scorer, x }),
        })
    }
}

/// Computes `out = out + value * row`.
#[wide]
fn add_row(value: f32, row: &[f32], out: &mut [f32]) {
    add_scaled(out, value, row);
}

/// Computes `scores = intercept + a Hᵀ`. Each score is a sum in the order of the columns of `a`. So
/// it does not depend on the other rows and labels in its tile. The number of rows of `a` must be a
/// multiple of the tile height.
fn add_products(a: &[f32], ht: &[f32], intercept: &[f32], rank: usize, scores: &mut [f32]) {
    // The sums of a tile must fit in the registers. They take 8 registers with either width.
    if has_512_bits() {
        add_tiles::<32>(a, ht, intercept, rank, scores);
    } else {
        add_tiles::<16>(a, ht, intercept, rank, scores);
    }
}

/// Does the work of [`add_products`] with tiles of `TILE` labels.
#[wide]
fn add_tiles<const TILE: usize>(
    a: &[f32],
    ht: &[f32],
    intercept: &[f32],
    rank: usize,
    scores: &mut [f32],
) {
    let n_labels = intercept.len();
    for scores in scores.chunks_mut(n_labels) {
        scores.copy_from_slice(intercept);
    }
    let tiled = n_labels - n_labels % TILE;
    for first in (0..tiled).step_by(TILE) {
        for (group, scores) in scores.chunks_mut(ROWS_OF_TILE * n_labels).enumerate() {
            let n_rows = scores.len() / n_labels;
            let mut sums = [[0.0f32; TILE]; ROWS_OF_TILE];
            for (row, sums) in sums[..n_rows].iter_mut().enumerate() {
                sums.copy_from_slice(&scores[row * n_labels + first..][..TILE]);
            }
            let rows: [&[f32]; ROWS_OF_TILE] =
                std::array::from_fn(|row| &a[(group * ROWS_OF_TILE + row) * rank..][..rank]);
            for k in 0..rank {
                let h = &ht[k * n_labels + first..][..TILE];
                for row in 0..ROWS_OF_TILE {
                    let value = rows[row][k];
                    for lane in 0..TILE {
                        sums[row][lane] += value * h[lane];
                    }
                }
            }
            for (row, sums) in sums[..n_rows].iter().enumerate() {
                scores[row * n_labels + first..][..TILE].copy_from_slice(sums);
            }
        }
    }
    for (row, scores) in scores.chunks_mut(n_labels).enumerate() {
        let rest = &mut scores[tiled..];
        for k in 0..rank {
            let h = &ht[k * n_labels + tiled..][..rest.len()];
            add_scaled(rest, a[row * rank + k], h);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    #[test]
    fn scores_do_not_depend_on_the_width_of_tiles() {
        let mut rng = Rng::with_seed(3);
        let (n_rows, rank) = (2 * ROWS_OF_TILE, 7);
        for n_labels in [1, 15, 16, 33, 80] {
            let mut numbers = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.f32() - 0.5).collect() };
            let a = numbers(n_rows * rank);
            let (ht, intercept) = (numbers(rank * n_labels), numbers(n_labels));
            let mut narrow = vec![0.0; n_rows * n_labels];
            let mut wide = narrow.clone();
            add_tiles::<16>(&a, &ht, &intercept, rank, &mut narrow);
            add_tiles::<32>(&a, &ht, &intercept, rank, &mut wide);
            for (at, (narrow, wide)) in narrow.iter().zip(&wide).enumerate() {
                let (row, label) = (at / n_labels, at % n_labels);
                let expected = (0..rank).fold(intercept[label], |sum, k| {
                    sum + a[row * rank + k] * ht[k * n_labels + label]
                });
                assert_eq!(narrow.to_bits(), expected.to_bits());
                assert_eq!(wide.to_bits(), expected.to_bits());
            }
        }
    }
}
