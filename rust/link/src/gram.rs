//! Computes the Gram matrix `C = ΦᵀΩΦ + ridge` of the features Φ, where Ω holds the weights of the
//! rows. Also computes the Cholesky factor L, with `C = L Lᵀ`, and solves linear systems with C and
//! with L.
//!
//! The lower triangle of C is stored as square tiles. Tiles are summed, factorized and updated in
//! parallel, and each tile is processed by one thread. Results therefore do not depend on the
//! number of threads, and a fit can be stopped between two tiles. The tiles on the diagonal are
//! factorized by the `faer` library. Factorizing the whole matrix in one call would use one thread
//! and could not be stopped.
//!
//! Products over a few hundred rows are in single precision, and their sums are in double
//! precision. The factor is stored in both precisions. The least-squares solution is computed in
//! double precision. Whitening and preconditioning use single precision. For p features and n rows,
//! computing C takes O(n p²) time, the factorization takes O(p³) time, and a solve takes O(p²) time
//! per right-hand side. The tiles take 4 p² bytes, and another 4 p² bytes while they are
//! factorized. The factors take 12 p² bytes.

use faer::reborrow::ReborrowMut;
use faer::{Accum, MatMut, MatRef};
use manylabel_base::{Error, Tasks, Watch, copied, few, filled, reserved};
use manylabel_dense::{Number, factor_in_place, matmul, solve_lower, solve_upper};
use rayon::prelude::*;

/// Number of rows and columns of a tile.
const SIDE: usize = 256;

/// Names of arrays in error messages about memory.
const GRAM: &str = "the Gram matrix";
const FACTOR: &str = "the Cholesky factor";

/// Number of right-hand sides that one thread solves at a time.
const SOLVED_AT_ONCE: usize = 32;

/// The first ridge that is tried if C is singular and no ridge was requested. It is relative to the
/// mean of the diagonal of C.
const LEAST_RIDGE: f64 = 1e-12;

/// One tile of the lower triangle, stored column by column.
struct Tile {
    /// The position of the tile in its column of tiles, counted from the top of the Gram matrix.
    row: usize,
    /// The position of the tile in its row of tiles; at most `row`.
    col: usize,
    /// Number of rows of the tile. It is smaller than [`SIDE`] in the last row of tiles.
    n_rows: usize,
    /// Number of columns of the tile. It is smaller than [`SIDE`] in the last column of tiles.
    n_cols: usize,
    /// Entries of the tile, column by column. A tile on the diagonal stores both triangles.
    values: Vec<f64>,
}

impl Tile {
    /// Returns the tile as a matrix.
    fn view(&self) -> MatRef<'_, f64> {
        MatRef::from_column_major_slice(&self.values, self.n_rows, self.n_cols)
    }

    /// Returns the tile as a mutable matrix.
    fn view_mut(&mut self) -> MatMut<'_, f64> {
        MatMut::from_column_major_slice_mut(&mut self.values, self.n_rows, self.n_cols)
    }
}

/// The lower triangle of the Gram matrix C, without the ridge. There is one list of tiles per
/// column of tiles. The first tile of each list is on the diagonal.
pub(crate) struct Gram {
    /// Number of rows and columns of the Gram matrix.
    size: usize,
    /// For each column of tiles, its tiles, starting at the diagonal.
    columns: Vec<Vec<Tile>>,
}

impl Gram {
    /// Returns a Gram matrix of zeros with the given number of rows.
    pub(crate) fn zeros(size: usize) -> Result<Self, Error> {
        let n_tiles = size.div_ceil(SIDE);
        let extent = |at: usize| SIDE.min(size - at * SIDE);
        let mut columns = reserved(GRAM, n_tiles)?;
        for col in 0..n_tiles {
            let mut column = reserved(GRAM, n_tiles - col)?;
            for row in col..n_tiles {
                let (n_rows, n_cols) = (extent(row), extent(col));
                let values = filled(GRAM, 0.0, n_rows * n_cols)?;
                column.push(Tile {
                    row,
                    col,
                    n_rows,
                    n_cols,
                    values,
                });
            }
            columns.push(column);
        }
        Ok(Self { size, columns })
    }

    /// Adds the product `leftᵀ right` to the Gram matrix. `left` and `right` hold the same rows,
    /// with `size` numbers per row. Usually, the rows of `left` are the rows of `right` multiplied
    /// by their weights.
    ///
    /// Products are in single precision, and their sum over several calls is in double precision. A
    /// call should have few rows, so that little precision is lost.
    pub(crate) fn add(&mut self, left: &[f32], right: &[f32], watch: &Watch) -> Result<(), Error> {
        let n_rows = left.len() / self.size;
        let left = MatRef::from_row_major_slice(left, n_rows, self.size);
        let right = MatRef::from_row_major_slice(right, n_rows, self.size);
        let tiles: Vec<&mut Tile> = few(self.columns.iter_mut().flatten());
        tiles.into_par_iter().try_each_with(
            || Ok(Vec::new()),
            |products: &mut Vec<f32>, tile| {
                watch.step(0)?;
                if products.len() < tile.values.len() {
                    *products = filled(GRAM, 0.0, tile.values.len())?;
                }
                let products = &mut products[..tile.values.len()];
                let left = left.subcols(tile.row * SIDE, tile.n_rows);
                let right = right.subcols(tile.col * SIDE, tile.n_cols);
                matmul(
                    MatMut::from_column_major_slice_mut(products, tile.n_rows, tile.n_cols),
                    Accum::Replace,
                    left.transpose(),
                    right,
                    1.0,
                );
                for (sum, &product) in tile.values.iter_mut().zip(products.iter()) {
                    *sum += f64::from(product);
                }
                Ok(())
            },
        )
    }

    /// Returns the mean of the diagonal of the Gram matrix.
    pub(crate) fn mean_diagonal(&self) -> f64 {
        let diagonal = |tile: &Tile| -> f64 {
            let at = |i| tile.values[i * (tile.n_rows + 1)];
            (0..tile.n_cols).map(at).sum()
        };
        let trace: f64 = self.columns.iter().map(|column| diagonal(&column[0])).sum();
        trace / self.size as f64
    }

    /// Adds `ridge` times the mean of the diagonal to the diagonal, and computes the Cholesky
    /// factor. If the sum is not positive definite because of rounding errors, the ridge is
    /// multiplied by ten until it is. Returns the factor and the absolute ridge.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if the matrix or the ridge is not finite. [`Error::TooLarge`] if there is
    /// not enough memory for the factor. [`Error::Stopped`] if the caller requested a stop.
    pub(crate) fn factor(&self, ridge: f64, watch: &Watch) -> Result<(Factor, f64), Error> {
        let mean = self.mean_diagonal();
        let mut relative = ridge;
        loop {
            let absolute = relative * if mean > 0.0 { mean } else { 1.0 };
            if !absolute.is_finite() {
                // Cosines are never large, but the predictions of the linear kernel may be.
                let (name, expected) = if mean.is_finite() {
                    (
                        "l2_link",
                        "small enough that its product with the mean square of the features of the link is finite",
                    )
                } else {
                    (
                        "X",
                        "small enough that the squares of the linear predictions for its rows are finite in float32",
                    )
                };
                return Err(Error::Param {
                    name,
                    expected,
                    got: format!("a mean square of {mean:e} with l2_link={relative:e}"),
                });
            }
            if let Some(factor) = self.try_factor(absolute, watch)? {
                return Ok((factor, absolute));
            }
            relative = (10.0 * relative).max(LEAST_RIDGE);
        }
    }

    /// Computes the Cholesky factor of the Gram matrix plus an absolute ridge. Returns `None` if
    /// the sum is not positive definite.
    ///
    /// The algorithm is right-looking: after a column of tiles is factorized, its products are
    /// subtracted from the columns to its right.
    fn try_factor(&self, ridge: f64, watch: &Watch) -> Result<Option<Factor>, Error> {
        let mut columns: Vec<Vec<Tile>> = reserved(FACTOR, self.columns.len())?;
        for column in &self.columns {
            watch.step(0)?;
            let mut copies = reserved(FACTOR, column.len())?;
            for tile in column {
                let values = copied(FACTOR, &tile.values)?;
                copies.push(Tile { values, ..*tile });
            }
            let diagonal = &mut copies[0];
            for i in 0..diagonal.n_cols {
                diagonal.values[i * (diagonal.n_rows + 1)] += ridge;
            }
            columns.push(copies);
        }
        for at in 0..columns.len() {
            let (done, rest) = columns.split_at_mut(at + 1);
            let Some((diagonal, below)) = done[at].split_first_mut() else {
                continue;
            };
            if !factor_in_place(FACTOR, diagonal.view_mut())? || !diagonal.values[0].is_finite() {
                return Ok(None);
            }
            let lower = diagonal.view();
            below.par_iter_mut().try_each(|tile| {
                watch.step(0)?;
                // The system X Lᵀ = tile is solved as L Xᵀ = tileᵀ.
                let right = tile.view_mut().transpose_mut();
                solve_lower(lower, right);
                Ok(())
            })?;
            let below = &*below;
            let rest: Vec<&mut Tile> = few(rest.iter_mut().flatten());
            rest.into_par_iter().try_each(|tile| {
                watch.step(0)?;
                let (left, right) = (&below[tile.row - at - 1], &below[tile.col - at - 1]);
                matmul(
                    tile.view_mut(),
                    Accum::Add,
                    left.view(),
                    right.view().transpose(),
                    -1.0,
                );
                Ok(())
            })?;
        }
        Factor::assemble(self.size, &columns, watch).map(Some)
    }
}

/// The Cholesky factor L of the Gram matrix C, stored column by column in both precisions. Entries
/// above the diagonal are not used.
pub(crate) struct Factor {
    /// Number of rows and columns.
    size: usize,
    /// The Cholesky factor in double precision.
    exact: Vec<f64>,
    /// The Cholesky factor, rounded to single precision.
    single: Vec<f32>,
}

impl Factor {
    /// Copies the tiles of the Cholesky factor into one matrix, in both precisions.
    fn assemble(size: usize, columns: &[Vec<Tile>], watch: &Watch) -> Result<Self, Error> {
        let mut exact = filled(FACTOR, 0.0, size * size)?;
        for tile in columns.iter().flatten() {
            watch.step(0)?;
            for j in 0..tile.n_cols {
                let to = (tile.col * SIDE + j) * size + tile.row * SIDE;
                let from = &tile.values[j * tile.n_rows..][..tile.n_rows];
                exact[to..to + tile.n_rows].copy_from_slice(from);
            }
        }
        let mut single = filled(FACTOR, 0.0, size * size)?;
        for (to, from) in single.chunks_mut(size).zip(exact.chunks(size)) {
            watch.step(0)?;
            for (to, &from) in to.iter_mut().zip(from) {
                *to = from as f32;
            }
        }
        Ok(Self {
            size,
            exact,
            single,
        })
    }

    /// Replaces every row x of `rows` by `L⁻¹ x`, in single precision. L is the Cholesky factor.
    pub(crate) fn whiten(&self, rows: &mut [f32], watch: &Watch) -> Result<(), Error> {
        in_parts(&self.single, self.size, rows, watch, solve_lower)
    }

    /// Replaces every row x of `rows` by `L⁻¹ x`, in double precision. L is the Cholesky factor.
    pub(crate) fn whiten_exactly(&self, rows: &mut [f64], watch: &Watch) -> Result<(), Error> {
        in_parts(&self.exact, self.size, rows, watch, solve_lower)
    }

    /// Replaces every row x of `rows` by `L⁻ᵀ x`, in double precision. L is the Cholesky factor.
    pub(crate) fn unwhiten_exactly(&self, rows: &mut [f64], watch: &Watch) -> Result<(), Error> {
        in_parts(&self.exact, self.size, rows, watch, |l, x| {
            solve_upper(l.transpose(), x);
        })
    }

    /// Replaces every row x of `rows` by `C⁻¹ x`, in single precision. C is the Gram matrix.
    pub(crate) fn precondition(&self, rows: &mut [f32], watch: &Watch) -> Result<(), Error> {
        in_parts(&self.single, self.size, rows, watch, |l, mut x| {
            solve_lower(l, x.rb_mut());
            solve_upper(l.transpose(), x);
        })
    }
}

/// Applies `solve` to a few rows at a time, in parallel. `solve` receives a matrix whose columns
/// are these rows.
fn in_parts<T: Number + Send + Sync>(
    lower: &[T],
    size: usize,
    rows: &mut [T],
    watch: &Watch,
    solve: impl Fn(MatRef<'_, T>, MatMut<'_, T>) + Sync,
) -> Result<(), Error> {
    let lower = MatRef::from_column_major_slice(lower, size, size);
    rows.par_chunks_mut(SOLVED_AT_ONCE * size).try_each(|part| {
        watch.step(0)?;
        let n = part.len() / size;
        solve(lower, MatMut::from_column_major_slice_mut(part, size, n));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn solves_are_those_of_the_whole_matrix() {
        let watch = Watch::new();
        let (n, p) = (700, 2 * SIDE + 40);
        let mut rng = fastrand::Rng::with_seed(0);
        let rows: Vec<f32> = (0..n * p).map(|_| rng.f32() - 0.5).collect();
        let mut gram = Gram::zeros(p).expect("small");
        for block in rows.chunks(300 * p) {
            gram.add(block, block, &watch).expect("not stopped");
        }
        let (factor, ridge) = gram.factor(0.01, &watch).expect("definite");
        let x: Vec<f64> = (0..40 * p).map(|_| rng.f64() - 0.5).collect();
        // C x, computed from the definition.
        let product = |x: &[f64]| {
            let mut out: Vec<f64> = x.iter().map(|x| ridge * x).collect();
            for row in rows.chunks(p) {
                let dot: f64 = row.iter().zip(x).map(|(&a, b)| f64::from(a) * b).sum();
                for (out, &a) in out.iter_mut().zip(row) {
                    *out += dot * f64::from(a);
                }
            }
            out
        };
        let mut solved: Vec<f64> = x.chunks(p).flat_map(product).collect();
        let mut single: Vec<f32> = solved.iter().map(|&v| v as f32).collect();
        factor
            .whiten_exactly(&mut solved, &watch)
            .expect("not stopped");
        factor
            .unwhiten_exactly(&mut solved, &watch)
            .expect("not stopped");
        factor
            .precondition(&mut single, &watch)
            .expect("not stopped");
        for ((x, got), single) in x.iter().zip(&solved).zip(&single) {
            assert!((x - got).abs() < 1e-4 && (x - f64::from(*single)).abs() < 1e-3);
        }
    }

    #[test]
    fn a_singular_matrix_gets_a_ridge() {
        let watch = Watch::new();
        let mut gram = Gram::zeros(3).expect("small");
        gram.add(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0], &watch)
            .expect("not stopped");
        let (_, ridge) = gram.factor(0.0, &watch).expect("definite in the end");
        assert!(ridge > 0.0 && ridge < 1e-6, "{ridge}");
        let zeros = Gram::zeros(3).expect("small");
        let (_, ridge) = zeros.factor(0.0, &watch).expect("definite in the end");
        assert!(ridge > 0.0);
    }
}
