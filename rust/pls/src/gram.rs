//! Computes Gram matrices in double precision, for the solvers that factorize a Gram matrix.
//!
//! Let X have n rows and d columns, and let Ω be the diagonal matrix of the row weights. [`gram_of_features`]
//! computes `XᵀΩX` of shape (d, d). [`gram_of_rows`] computes `Ω^{1/2} X Xᵀ Ω^{1/2}` of shape (n, n). X is
//! used as stored in its [`Design`]: scaled, centred if requested, and with the column order of the
//! [`Design`]. The matrix is divided into strips of rows, and each strip is one unit of work. No sum is
//! computed by several threads, so the result does not depend on the number of threads. Only the lower
//! triangle is computed.

use crate::design::{Cells, Design, Rows, SLAB};
use faer::{Accum, MatMut};
use manylabel_base::{Error, Tasks, Watch, filled};
use manylabel_dense::matmul;
use manylabel_sparse::{LANES, Lanes, Real, RowBlocks};
use rayon::prelude::*;
use std::ops::Range;

/// Number of features per strip if X is sparse.
const FEATURES_OF_STRIP: usize = 16;
/// Number of features per strip if X is dense. It is large enough for efficient matrix products.
const FEATURES_OF_DENSE_STRIP: usize = 256;

/// Allocates zeros for the given rows of an n × n matrix.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if the number of cells overflows or the rows do not fit in memory.
fn zeros(rows: &Range<usize>, n: usize) -> Result<Vec<f64>, Error> {
    let size = rows.len().checked_mul(n).ok_or_else(|| Error::TooLarge {
        what: "the Gram matrix",
        got: format!("{} x {n} cells", rows.len()),
    })?;
    filled("the Gram matrix", 0.0, size)
}

/// Returns the number of features of a strip.
pub(crate) fn features_of_strip<T>(x: &Design<'_, T>) -> usize {
    match &x.cells {
        Cells::Sparse(_) => FEATURES_OF_STRIP,
        Cells::Dense { .. } => FEATURES_OF_DENSE_STRIP,
    }
}

/// Computes the given rows of the lower triangle of `XᵀΩX`, row by row. Entries above the diagonal are
/// arbitrary. `wanted` must begin at a multiple of [`features_of_strip`].
///
/// For sparse X, the time is O(Σ z²). The sum is over rows, and z is the number of stored values of a row.
/// For dense X, the time is O(n d²).
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
/// requested a stop.
pub(crate) fn gram_of_features<T: Real>(
    rows: &Rows<T>,
    x: &Design<'_, T>,
    wanted: Range<usize>,
    watch: &Watch,
) -> Result<Vec<f64>, Error> {
    let d = x.n_cols();
    let mut gram = zeros(&wanted, d)?;
    let strip = features_of_strip(x);
    let strips = gram.par_chunks_mut(strip * d.max(1)).enumerate();
    strips.try_each(|(at, gram)| {
        let first = wanted.start + at * strip;
        let features = first..first + gram.len() / d;
        match &x.cells {
            Cells::Sparse(blocks) => sparse_strip(rows, blocks, features.clone(), gram, watch)?,
            Cells::Dense { .. } => dense_strip(rows, x, &features, gram, watch)?,
        }
        if let (Some(mean), Cells::Sparse(_)) = (&x.mean, &x.cells) {
            for (j, gram) in features.zip(gram.chunks_mut(d)) {
                for (gram, other) in gram.iter_mut().zip(&mean[..=j]) {
                    *gram -= rows.total * mean[j].f64() * other.f64();
                }
            }
        }
        Ok(())
    })?;
    Ok(gram)
}

/// Computes the rows `features` of the Gram matrix for sparse X, before centring. For each stored value of a
/// feature, a multiple of the row of X that contains the value is added. Entries above the diagonal are left
/// out.
fn sparse_strip<T: Real>(
    rows: &Rows<T>,
    blocks: &RowBlocks<T>,
    features: Range<usize>,
    gram: &mut [f64],
    watch: &Watch,
) -> Result<(), Error> {
    let d = blocks.n_cols();
    for (cut, block) in rows.cuts.iter().zip(blocks.blocks()) {
        watch.step(0)?;
        for (j, of_feature, values) in block.columns(features.clone()) {
            let gram = &mut gram[(j - features.start) * d..][..=j];
            for (&row, &value) in of_feature.iter().zip(values) {
                let row = usize::from(row);
                let weighted = rows.weight(cut.start + row) * value.f64();
                let (cols, values) = block.row(row);
                for (&col, &value) in cols.iter().zip(values) {
                    let Some(sum) = gram.get_mut(col as usize) else {
                        break; // columns increase
                    };
                    *sum += weighted * value.f64();
                }
            }
        }
    }
    Ok(())
}

/// Computes the rows `features` of the Gram matrix for dense X. The result is a sum of matrix products over
/// groups of rows of X. These rows are centred and multiplied by the square roots of their weights.
fn dense_strip<T: Real>(
    rows: &Rows<T>,
    x: &Design<'_, T>,
    features: &Range<usize>,
    gram: &mut [f64],
    watch: &Watch,
) -> Result<(), Error> {
    let d = x.n_cols();
    let mut gram = MatMut::from_row_major_slice_mut(gram, features.len(), d);
    let mut gram = gram.as_mut().subcols_mut(0, features.end);
    for (block, cut) in rows.cuts.iter().enumerate() {
        for first in cut.clone().step_by(SLAB) {
            watch.step(0)?;
            let slab = first..(first + SLAB).min(cut.end);
            let cells = x.centred(block, cut, slab, |row| rows.weight(row).sqrt())?;
            matmul(
                gram.as_mut(),
                Accum::Add,
                cells.subrows(features.start, features.len()),
                cells.subrows(0, features.end).transpose(),
                1.0,
            );
        }
    }
    Ok(())
}

/// Computes the given rows of the lower triangle of `Ω^{1/2} X Xᵀ Ω^{1/2}`, row by row. Entries above the
/// diagonal are arbitrary. `wanted` must begin at a multiple of [`LANES`].
///
/// The time is O(n nnz(X)). Each panel of 32 rows is multiplied by X, in the precision of X.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
/// requested a stop.
pub(crate) fn gram_of_rows<T: Real>(
    rows: &Rows<T>,
    x: &Design<'_, T>,
    wanted: Range<usize>,
    watch: &Watch,
) -> Result<Vec<f64>, Error> {
    let n = rows.n();
    let mut gram = zeros(&wanted, n)?;
    // Each strip of 32 rows is copied to a panel and multiplied by X.
    gram.par_chunks_mut(LANES * n.max(1))
        .enumerate()
        .try_each(|(at, gram)| {
            let first = wanted.start + at * LANES;
            let strip = first..first + gram.len() / n;
            let mut panel = filled("number of features", Lanes::default(), x.n_cols())?;
            if let Some(mean) = &x.mean {
                for (lanes, &mean) in panel.iter_mut().zip(mean) {
                    *lanes = Lanes([T::of(-mean.f64()); LANES]);
                }
            }
            for (block, cut) in rows.cuts.iter().enumerate() {
                // A strip may extend over two blocks.
                let part = strip.start.max(cut.start)..strip.end.min(cut.end);
                x.for_each_value(block, cut, part, |row, col, value| {
                    let lane = &mut panel[col].0[row - strip.start];
                    *lane = T::of(lane.f64() + value);
                });
            }
            let shift = x.mean_times(&panel);
            let mut buffer = rows.buffer()?;
            for (block, cut) in rows.cuts.iter().enumerate() {
                if cut.start >= strip.end {
                    break;
                }
                watch.step(0)?;
                let products = &mut buffer[..cut.len()];
                x.times(block, cut, &panel, shift.as_ref(), products);
                for (row, products) in cut.clone().zip(products) {
                    for (other, gram) in strip.clone().zip(gram.chunks_mut(n)) {
                        let weight = (rows.weight(row) * rows.weight(other)).sqrt();
                        gram[row] = weight * products.0[other - strip.start].f64();
                    }
                }
            }
            Ok(())
        })?;
    Ok(gram)
}
