//! Gram matrices in double precision, for the solvers that factorize one.
//!
//! [`gram_of_features`] computes `XᵀΩX` (d, d) and [`gram_of_rows`] `Ω^{1/2} X Xᵀ Ω^{1/2}` (n, n), both with
//! X as its [`Design`] has it: scaled, centred if asked for, with its own order of columns. The matrix is
//! cut into strips of rows, one unit of work each, so threads share no sums and the bits do not depend on
//! their number. Only the lower triangle is computed.

use crate::design::{Cells, Design, Rows, SLAB};
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, Par};
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::{LANES, Lanes, Real, RowBlocks};
use rayon::prelude::*;
use std::ops::Range;

/// Features of a strip if X is sparse.
const FEATURES_OF_STRIP: usize = 16;
/// Features of a strip if X is dense: enough for an efficient product of matrices.
const FEATURES_OF_DENSE_STRIP: usize = 256;

/// Zeros for an n × n matrix.
///
/// # Errors
///
/// [`Error::TooLarge`] if n² overflows or the matrix does not fit in memory.
fn square(n: usize) -> Result<Vec<f64>, Error> {
    let size = n.checked_mul(n).ok_or_else(|| Error::TooLarge {
        what: "the Gram matrix",
        got: format!("{n} x {n} cells"),
    })?;
    filled("the Gram matrix", 0.0, size)
}

/// The lower triangle of `XᵀΩX`, row by row; entries above the diagonal are arbitrary.
///
/// Takes O(Σ z²) time over rows of z stored values, or O(n d²) for dense X.
///
/// # Errors
///
/// [`Error::TooLarge`], [`Error::Stopped`].
pub(crate) fn gram_of_features<T: Real>(
    rows: &Rows<T>,
    x: &Design<'_, T>,
    watch: &Watch,
) -> Result<Vec<f64>, Error> {
    let d = x.n_cols();
    let mut gram = square(d)?;
    let strip = match &x.cells {
        Cells::Sparse(_) => FEATURES_OF_STRIP,
        Cells::Dense { .. } => FEATURES_OF_DENSE_STRIP,
    };
    let strips = gram.par_chunks_mut(strip * d.max(1)).enumerate();
    strips.try_for_each(|(at, gram)| {
        let features = at * strip..at * strip + gram.len() / d;
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

/// Computes the strip of `features` for sparse X, before centring: each stored value of a feature adds its
/// whole row, up to the diagonal.
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

/// Computes the strip of `features` for dense X, as products of slabs of rows, centred and multiplied by
/// the square roots of their weights.
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
                Par::Seq,
            );
        }
    }
    Ok(())
}

/// The lower triangle of `Ω^{1/2} X Xᵀ Ω^{1/2}`, row by row; entries above the diagonal are arbitrary.
///
/// Takes O(n nnz(X)) time: 32 rows at a time become a panel that is multiplied by X, in the precision of X.
///
/// # Errors
///
/// [`Error::TooLarge`], [`Error::Stopped`].
pub(crate) fn gram_of_rows<T: Real>(
    rows: &Rows<T>,
    x: &Design<'_, T>,
    watch: &Watch,
) -> Result<Vec<f64>, Error> {
    let n = rows.n();
    let mut gram = square(n)?;
    // Each strip of 32 rows, as a panel, is multiplied by X.
    gram.par_chunks_mut(LANES * n.max(1))
        .enumerate()
        .try_for_each(|(at, gram)| {
            let strip = at * LANES..at * LANES + gram.len() / n;
            let mut panel = filled("number of features", Lanes::default(), x.n_cols())?;
            if let Some(mean) = &x.mean {
                for (lanes, &mean) in panel.iter_mut().zip(mean) {
                    *lanes = Lanes([T::of(-mean.f64()); LANES]);
                }
            }
            for (block, cut) in rows.cuts.iter().enumerate() {
                // A strip may lie across two blocks.
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
