//! Many cluster centers side by side, sixteen to a cache line.
//!
//! `tiles[t][col]` holds what centers 16t to 16t + 15 have at feature `col`, so the products of
//! one sparse row with sixteen centers are a gather of whole cache lines, and the best of them is
//! found without a score in memory. Lane by lane the arithmetic is that of one center on its own.

use crate::members::Members;
use manylabel_base::{Error, Watch, filled};
use manylabel_sparse::CsrOwned;
use multiversion::multiversion;
use rayon::prelude::*;

const LANES: usize = 16;

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Lanes([f32; LANES]);

impl Lanes {
    const ZERO: Self = Self([0.0; LANES]);

    #[inline(always)]
    fn add_scaled(&mut self, scale: f32, other: &Self) {
        for lane in 0..LANES {
            self.0[lane] += scale * other.0[lane];
        }
    }
}

/// The nearest center of a row: its number, and the score `x·μ − ½‖μ‖²`, which is the larger the
/// smaller `‖x − μ‖²` is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Nearest {
    pub(crate) center: u32,
    pub(crate) score: f32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Centers {
    n: usize,
    tiles: Vec<Vec<Lanes>>,
    /// `−½‖μ‖²`; −∞ where a lane has no center, so that it is nearest to nothing.
    offsets: Vec<Lanes>,
}

/// Rows one thread scores before it takes others.
const ROWS_AT_ONCE: usize = 256;

impl Centers {
    /// The bytes that so many centers take.
    pub(crate) fn n_bytes(n: usize, n_features: usize) -> usize {
        n.div_ceil(LANES)
            .saturating_mul(n_features)
            .saturating_mul(size_of::<Lanes>())
    }

    pub(crate) fn len(&self) -> usize {
        self.n
    }

    /// The weighted means of the members' rows.
    ///
    /// A cluster whose weights sum to zero is the plain mean of its rows, and one without rows is
    /// nearest to nothing.
    pub(crate) fn means(
        x: &CsrOwned,
        weights: Option<&[f32]>,
        members: &Members,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let n = members.n_clusters();
        let tile = |first: usize| {
            let mut lanes = filled("cluster centers", Lanes::ZERO, x.n_cols)?;
            let mut offsets = Lanes([f32::NEG_INFINITY; LANES]);
            let mut sums = filled("cluster centers", 0.0f64, x.n_cols)?;
            for (lane, cluster) in (first..(first + LANES).min(n)).enumerate() {
                watch.step(0)?;
                let rows = members.rows(cluster);
                if !rows.is_empty() {
                    offsets.0[lane] = mean(x, weights, rows, lane, &mut sums, &mut lanes);
                }
            }
            Ok((lanes, offsets))
        };
        let firsts: Vec<usize> = (0..n).step_by(LANES).collect();
        let made = firsts.into_par_iter().with_max_len(1).map(tile);
        let (tiles, offsets) = made.collect::<Result<Vec<_>, Error>>()?.into_iter().unzip();
        Ok(Self { n, tiles, offsets })
    }

    /// The nearest center of every row; ties to the lower number.
    pub(crate) fn nearest(&self, x: &CsrOwned, watch: &Watch) -> Result<Vec<Nearest>, Error> {
        let nobody = Nearest {
            center: 0,
            score: f32::NEG_INFINITY,
        };
        let mut nearest = filled("number of rows", nobody, x.n_rows())?;
        nearest
            .par_chunks_mut(ROWS_AT_ONCE)
            .enumerate()
            .try_for_each(|(chunk, nearest)| {
                for (at, (tile, offsets)) in self.tiles.iter().zip(&self.offsets).enumerate() {
                    watch.step(0)?;
                    best_of_tile(x, chunk * ROWS_AT_ONCE, tile, offsets, at * LANES, nearest);
                }
                Ok(())
            })?;
        Ok(nearest)
    }

    /// The centers as weights of a linear score, row j of (`n_features`, `n`) being what they have
    /// at feature j, and its intercepts.
    pub(crate) fn to_linear(&self, n_features: usize) -> (CsrOwned, Vec<f32>) {
        let mut weights = CsrOwned {
            indptr: vec![0],
            indices: Vec::new(),
            values: Vec::new(),
            n_cols: self.n,
        };
        for feature in 0..n_features {
            for center in 0..self.n {
                let value = self.tiles[center / LANES][feature].0[center % LANES];
                if value != 0.0 {
                    weights.indices.push(center as u32);
                    weights.values.push(value);
                }
            }
            weights.indptr.push(weights.indices.len());
        }
        let offset = |center: usize| self.offsets[center / LANES].0[center % LANES];
        (weights, (0..self.n).map(offset).collect())
    }
}

/// Puts the mean of `rows` into a lane; `sums` is zero before and after. Returns `−½‖μ‖²`.
fn mean(
    x: &CsrOwned,
    weights: Option<&[f32]>,
    rows: &[u32],
    lane: usize,
    sums: &mut [f64],
    lanes: &mut [Lanes],
) -> f32 {
    let given = |row: u32| weights.map_or(1.0, |weights| f64::from(weights[row as usize]));
    let total: f64 = rows.iter().map(|&row| given(row)).sum();
    let share = |row| {
        if total > 0.0 {
            given(row) / total
        } else {
            1.0 / rows.len() as f64
        }
    };
    for &row in rows {
        let share = share(row);
        let (cols, values) = x.row(row as usize);
        for (&col, &value) in cols.iter().zip(values) {
            sums[col as usize] += share * f64::from(value);
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
    (-0.5 * squared) as f32
}

/// Lets sixteen centers compete for the rows from `first` on.
#[multiversion(targets = "simd")]
fn best_of_tile(
    x: &CsrOwned,
    first: usize,
    tile: &[Lanes],
    offsets: &Lanes,
    first_center: usize,
    nearest: &mut [Nearest],
) {
    for (i, nearest) in nearest.iter_mut().enumerate() {
        let (cols, values) = x.row(first + i);
        // Two sums, so that additions do not wait for one another.
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
        if best > nearest.score {
            let scores = (first_center as u32..).zip(even.0);
            let center = scores
                .filter(|&(_, score)| score >= best)
                .map(|(center, _)| center)
                .next();
            *nearest = Nearest {
                center: center.unwrap_or(0),
                score: best,
            };
        }
    }
}
