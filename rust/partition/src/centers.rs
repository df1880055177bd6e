//! Stores dense cluster centers in tiles of sixteen, and finds the nearest center of each row.
//!
//! `tiles[t][col]` holds the values of the centers 16t to 16t + 15 for feature `col`. These are
//! sixteen numbers in single precision, which fill one cache line. So the products of a sparse row
//! with sixteen centers read whole cache lines. The best of these centers is found without storing
//! their scores. The score of a center does not depend on the other centers of its tile.
//!
//! Finding the nearest of k centers for all rows takes O(nnz(X) k) time, on all threads. The tiles
//! take 4 bytes per center and feature. The number of centers is rounded up to a multiple of
//! sixteen.

use crate::members::Members;
use manylabel_base::{Error, Tasks, Watch, collected, filled, push, reserved};
use manylabel_simd::wide;
use manylabel_sparse::{CsrOwned, CsrRef};
use rayon::prelude::*;

/// Number of centers in a tile. Sixteen numbers in single precision fill a cache line.
const LANES: usize = 16;

/// One number for each of the sixteen centers of a tile.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Lanes([f32; LANES]);

impl Lanes {
    /// Zero for all centers of a tile.
    const ZERO: Self = Self([0.0; LANES]);

    /// Adds `scale` times `other`, number by number.
    #[inline(always)]
    fn add_scaled(&mut self, scale: f32, other: &Self) {
        for lane in 0..LANES {
            self.0[lane] += scale * other.0[lane];
        }
    }
}

/// The nearest center of a row x. This is the center μ with the largest score
/// `x·μ − ½‖μ‖² = ½ (‖x‖² − ‖x − μ‖²)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Nearest {
    /// The number of the center.
    pub(crate) center: u32,
    /// The score of the center.
    pub(crate) score: f32,
    /// The second largest score, or −∞ if there is only one center.
    second: f32,
}

impl Nearest {
    /// Returns the difference between the largest and the second largest score.
    pub(crate) fn ahead(&self) -> f32 {
        self.score - self.second
    }
}

/// Cluster centers, stored in tiles of sixteen centers. The documentation of the module describes
/// the layout.
#[derive(Debug)]
pub(crate) struct Centers {
    /// Number of centers.
    n: usize,
    /// The tiles of sixteen centers. A tile has sixteen numbers for each feature.
    tiles: Vec<Vec<Lanes>>,
    /// The offset of each center μ, which is added to its scores. It is `−½‖μ‖²`, or less if it was
    /// lowered. Centers without rows and unused positions of the last tile have the offset −∞. So
    /// they are not the nearest center of any row.
    offsets: Vec<Lanes>,
}

/// Number of rows in a unit of parallel work when the nearest centers are searched.
const ROWS_AT_ONCE: usize = 256;

/// Number of rows that are summed between two checks for a stop request.
const ROWS_PER_STEP: usize = 4096;

impl Centers {
    /// Returns the number of bytes that the tiles of `n` centers take.
    pub(crate) fn n_bytes(n: usize, n_features: usize) -> usize {
        n.div_ceil(LANES)
            .saturating_mul(n_features)
            .saturating_mul(size_of::<Lanes>())
    }

    /// Returns the number of centers.
    pub(crate) fn len(&self) -> usize {
        self.n
    }

    /// Computes the weighted mean of the rows of each cluster. Sums are in double precision.
    ///
    /// If the weights of a cluster sum to zero, its center is the unweighted mean. If a cluster has
    /// no rows, its center is not the nearest center of any row.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    pub(crate) fn means(
        x: CsrRef<'_>,
        weights: Option<&[f32]>,
        members: &Members,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let n = members.n_clusters();
        let tile = |(at, (lanes, offsets)): (usize, (&mut Vec<Lanes>, &mut Lanes))| {
            let first = at * LANES;
            *lanes = filled("number of cluster centers", Lanes::ZERO, x.n_cols())?;
            let mut sums = filled("number of cluster centers", 0.0f64, x.n_cols())?;
            for (lane, cluster) in (first..(first + LANES).min(n)).enumerate() {
                watch.step(0)?;
                let rows = members.rows(cluster);
                if !rows.is_empty() {
                    offsets.0[lane] = mean(x, weights, rows, lane, &mut sums, lanes, watch)?;
                }
            }
            Ok(())
        };
        let (mut tiles, mut offsets) = Self::nowhere(n)?;
        tiles
            .par_iter_mut()
            .zip(&mut offsets)
            .enumerate()
            .try_each(tile)?;
        Ok(Self { n, tiles, offsets })
    }

    /// Returns `n` centers that are never the nearest center of a row. The tiles have no features,
    /// and all offsets are −∞.
    fn nowhere(n: usize) -> Result<(Vec<Vec<Lanes>>, Vec<Lanes>), Error> {
        let n_tiles = n.div_ceil(LANES);
        let mut tiles = reserved("number of cluster centers", n_tiles)?;
        tiles.resize_with(n_tiles, Vec::new);
        let nothing = Lanes([f32::NEG_INFINITY; LANES]);
        Ok((
            tiles,
            filled("number of cluster centers", nothing, n_tiles)?,
        ))
    }

    /// Finds the nearest center of every row. If two centers are equally near, the lower number is
    /// used. Rows are processed in parallel.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    pub(crate) fn nearest(&self, x: CsrRef<'_>, watch: &Watch) -> Result<Vec<Nearest>, Error> {
        let nobody = Nearest {
            center: 0,
            score: f32::NEG_INFINITY,
            second: f32::NEG_INFINITY,
        };
        let mut nearest = filled("number of rows", nobody, x.n_rows())?;
        nearest
            .par_chunks_mut(ROWS_AT_ONCE)
            .enumerate()
            .try_each(|(chunk, nearest)| {
                for (at, (tile, offsets)) in self.tiles.iter().zip(&self.offsets).enumerate() {
                    watch.step(0)?;
                    best_of_tile(x, chunk * ROWS_AT_ONCE, tile, offsets, at * LANES, nearest);
                }
                Ok(())
            })?;
        Ok(nearest)
    }

    /// Returns the offset of a center μ, which is added to its scores. It is `−½‖μ‖²`, or less if
    /// it was lowered.
    pub(crate) fn offset(&self, center: usize) -> f32 {
        self.offsets[center / LANES].0[center % LANES]
    }

    /// Lowers the offset of a center by `by`. This lowers the score of the center for all rows by
    /// the same amount. Returns true if the offset changed. Because of rounding, it may stay the
    /// same.
    pub(crate) fn lower(&mut self, center: usize, by: f32) -> bool {
        let offset = &mut self.offsets[center / LANES].0[center % LANES];
        let before = *offset;
        *offset -= by;
        *offset < before
    }

    /// Copies the centers with the numbers `kept`, in this order, with their offsets.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn only(&self, kept: &[u32]) -> Result<Self, Error> {
        let n_features = self.tiles.first().map_or(0, Vec::len);
        let (mut tiles, mut offsets) = Self::nowhere(kept.len())?;
        for lanes in &mut tiles {
            *lanes = filled("number of cluster centers", Lanes::ZERO, n_features)?;
        }
        for (to, &from) in kept.iter().enumerate() {
            let from = from as usize;
            offsets[to / LANES].0[to % LANES] = self.offset(from);
            let lanes = tiles[to / LANES].iter_mut();
            for (to_lanes, from_lanes) in lanes.zip(&self.tiles[from / LANES]) {
                to_lanes.0[to % LANES] = from_lanes.0[from % LANES];
            }
        }
        Ok(Self {
            n: kept.len(),
            tiles,
            offsets,
        })
    }

    /// Returns, for every row, the score of the second center minus the score of the first center.
    /// There must be two centers. If there is more than one tile, returns zeros.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn differences(&self, x: CsrRef<'_>) -> Result<Vec<f32>, Error> {
        let [lanes] = self.tiles.as_slice() else {
            return filled("number of rows", 0.0, x.n_rows()); // there are more than two centers
        };
        let apart = self.offset(1) - self.offset(0);
        let differences = x.rows(0..x.n_rows()).map(|(cols, values)| {
            let both = cols.iter().zip(values);
            both.fold(apart, |sum, (&col, &value)| {
                let [first, second, ..] = lanes[col as usize].0;
                sum + value * (second - first)
            })
        });
        collected("number of rows", differences)
    }

    /// Converts the centers to a linear model. The weights (`n_features`, `n`) are the centers
    /// without zeros. The intercepts are the offsets.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    pub(crate) fn to_linear(
        &self,
        n_features: usize,
        watch: &Watch,
    ) -> Result<(CsrOwned, Vec<f32>), Error> {
        let mut weights = CsrOwned {
            indptr: reserved("number of features", n_features + 1)?,
            indices: Vec::new(),
            values: Vec::new(),
            n_cols: self.n,
        };
        weights.indptr.push(0);
        for feature in 0..n_features {
            watch.step(0)?;
            for center in 0..self.n {
                let value = self.tiles[center / LANES][feature].0[center % LANES];
                if value != 0.0 {
                    push(
                        "number of cluster centers",
                        &mut weights.indices,
                        center as u32,
                    )?;
                    push("number of cluster centers", &mut weights.values, value)?;
                }
            }
            weights.indptr.push(weights.indices.len());
        }
        let offsets = (0..self.n).map(|center| self.offset(center));
        Ok((weights, collected("number of cluster centers", offsets)?))
    }
}

/// Computes the weighted mean μ of `rows`, writes it to a tile as one of its centers, and returns
/// `−½‖μ‖²`. `sums` has one number for each feature. All numbers are zero before and after the
/// call.
fn mean(
    x: CsrRef<'_>,
    weights: Option<&[f32]>,
    rows: &[u32],
    lane: usize,
    sums: &mut [f64],
    lanes: &mut [Lanes],
    watch: &Watch,
) -> Result<f32, Error> {
    let given = |row: u32| weights.map_or(1.0, |weights| f64::from(weights[row as usize]));
    let total: f64 = rows.iter().map(|&row| given(row)).sum();
    let share = |row| {
        if total > 0.0 {
            given(row) / total
        } else {
            1.0 / rows.len() as f64
        }
    };
    for rows in rows.chunks(ROWS_PER_STEP) {
        watch.step(0)?;
        for &row in rows {
            let share = share(row);
            let (cols, values) = x.row(row as usize);
            for (&col, &value) in cols.iter().zip(values) {
                sums[col as usize] += share * f64::from(value);
            }
        }
    }
    let mut squared = 0.0;
    for (lanes, sum) in lanes.iter_mut().zip(sums) {
        if *sum != 0.0 {
            squared += *sum * *sum;
            lanes.0[lane] = *sum as f32;
            *sum = 0.0;
        }
    }
    Ok((-0.5 * squared) as f32)
}

/// Computes the scores of the sixteen centers of a tile, and updates the two best centers found so
/// far. `first_center` is the number of the first center of the tile. `nearest` has one entry for
/// each row, starting with the row `first`.
#[wide]
fn best_of_tile(
    x: CsrRef<'_>,
    first: usize,
    tile: &[Lanes],
    offsets: &Lanes,
    first_center: usize,
    nearest: &mut [Nearest],
) {
    let rows = x.rows(first..first + nearest.len());
    for (nearest, (cols, values)) in nearest.iter_mut().zip(rows) {
        // Two independent sums are used, so that no addition waits for the previous addition.
        let (mut even, mut odd) = (*offsets, Lanes::ZERO);
        let (cols2, values2) = (cols.chunks_exact(2), values.chunks_exact(2));
        if let (&[col], &[value]) = (cols2.remainder(), values2.remainder()) {
            even.add_scaled(value, &tile[col as usize]);
        }
        for (col, value) in cols2.zip(values2) {
            even.add_scaled(value[0], &tile[col[0] as usize]);
            odd.add_scaled(value[1], &tile[col[1] as usize]);
        }
        let mut best = f32::NEG_INFINITY;
        for lane in 0..LANES {
            even.0[lane] += odd.0[lane];
            best = best.max(even.0[lane]);
        }
        if best > nearest.second {
            for (center, score) in (first_center as u32..).zip(even.0) {
                if score > nearest.score {
                    nearest.second = nearest.score;
                    (nearest.center, nearest.score) = (center, score);
                } else if score > nearest.second {
                    nearest.second = score;
                }
            }
        }
    }
}
