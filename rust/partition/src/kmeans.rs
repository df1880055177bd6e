//! Clusters rows of unit length by k-means.
//!
//! The partition of a data set into blocks starts from such clusters. Other methods use the
//! clusters without such a partition. Rows must have unit length. The nearest center μ of a row
//! x has the largest linear score `x·μ − ½‖μ‖²`. So the centers can be stored as the weights and
//! intercepts of a linear model.
//!
//! There are two ways to cluster:
//!
//! - Lloyd's algorithm divides the rows into a given number of clusters. For up to 256 clusters,
//!   the starting points are chosen by k-means++. For more clusters, they are random rows. Centers
//!   are computed on a sample of 256 rows per center. Then every row is assigned to its nearest
//!   center.
//! - Repeated halving divides the rows into clusters of limited size. Clusters with too many rows
//!   are divided in two by 2-means. Then every row is assigned to its nearest center. If a center
//!   gets too many rows, its intercept is lowered.
//!
//! Random numbers depend only on the seed, and sums are in a fixed order. So results are exactly
//! the same for any number of threads.
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_partition::{KMeans, Until};
//! use manylabel_sparse::{CsrView, Rows};
//!
//! // Rows 0 and 2 have the same direction.
//! let x = CsrView::new("X", &[0i32, 1, 2, 3], &[0, 1, 0], &[1.0f32, 1.0, 5.0], 2)?;
//! let kmeans = KMeans { until: Until::Clusters(2), n_init: 1, seed: 0 };
//! let found = kmeans.fit(Rows::copied(x.into(), true)?, None, &Watch::new())?;
//! assert_eq!(found.row_clusters[0], found.row_clusters[2]);
//! assert_ne!(found.row_clusters[0], found.row_clusters[1]);
//! # Ok::<(), manylabel_base::Error>(())
//! ```

use crate::centers::Centers;
use crate::each::each;
use crate::members::{Members, drop_empty};
use fastrand::Rng;
use manylabel_base::range::{at_least_one, same};
use manylabel_base::{Error, Watch, collected, copied, few, filled, push, reserved};
use manylabel_sparse::{CsrOwned, CsrRef, Rows, Stored};
use rayon::prelude::*;
use std::cmp::Reverse;
use std::mem::swap;

/// The maximum number of passes of Lloyd's algorithm over the rows.
const SWEEPS: usize = 20;
/// Centers are computed on a random sample with this many rows per center. Afterwards every row is
/// assigned to its nearest center.
const ROWS_PER_CENTER: usize = 256;
/// The maximum number of clusters for which k-means++ chooses the starting points. For more
/// clusters, the starting points are random rows.
const SPREAD_UP_TO: usize = 256;
/// The maximum number of bytes of all centers. If the centers of all features would take more, only
/// the most frequent features are used.
const BUDGET: usize = 1 << 30;
/// Squared distances below this value count as 0.
const NOWHERE: f64 = 1e-6;
/// When a cluster of m rows is split in two, each part gets at least m / `LEAST_SHARE` rows. Without
/// this limit, a few rows far from all others would need many splits. With this limit, at most
/// log(n) / log(8/7) successive splits lead to a final cluster, for n rows.
const LEAST_SHARE: usize = 8;
/// Number of rows that are processed between two checks for a stop request.
const ROWS_PER_STEP: usize = 4096;
/// The maximum number of rounds that move rows away from centers with too many rows. Usually a few
/// rounds are enough.
const ROUNDS: usize = 64;

/// Determines how many clusters are formed: a given number of clusters, or clusters of a given size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The number of clusters. In Python, this is the parameter `n_clusters`.
    Clusters(usize),
    /// The approximate number of rows of a cluster. In Python, this is the parameter `leaf_size`.
    /// Larger clusters are halved. There are at most `2 n_rows / leaf_size` clusters. No cluster
    /// has more than `2 leaf_size` rows, unless its rows are too similar to be separated.
    RowsEach(usize),
}

/// Parameters of k-means.
#[derive(Debug, Clone, Copy)]
pub struct KMeans {
    /// The number or the size of the clusters.
    pub until: Until,
    /// The number of starts (runs of k-means with different seeds); ≥ 1. In Python, this is the
    /// parameter `n_init`. With [`Until::Clusters`], the result with the lowest inertia is kept.
    /// With [`Until::RowsEach`], only the first start is used.
    pub n_init: usize,
    /// The seed of the random numbers. Start i uses the seed `seed + i`, with wrap-around.
    pub seed: u64,
}

/// A division of rows into clusters. Every cluster has at least one row. If there are fewer
/// distinct rows than requested clusters, there are fewer clusters.
#[derive(Debug, Clone)]
pub struct Clustering {
    /// The number of the cluster of each row; shape (`n_rows`,).
    pub row_clusters: Vec<u32>,
    /// The centers, one per column; shape (`n_features`, `n_clusters`).
    pub centers: CsrOwned,
    /// The intercept of each center μ, which is `−½‖μ‖²`; shape (`n_clusters`,). With this intercept, the
    /// nearest center of a row has the largest linear score. With [`Until::RowsEach`], centers that would
    /// otherwise get too many rows have a lower intercept. With these lower intercepts, every row is in the
    /// cluster with the highest score.
    pub intercept: Vec<f32>,
    /// The sum of the squared distances between the rows and the means of their clusters, weighted
    /// by the row weights.
    pub inertia: f64,
}

impl KMeans {
    /// Clusters the rows of `x`, which must have unit length.
    ///
    /// `weights` has one weight per row, which multiplies the squared distance of the row to its
    /// center. If `weights` is `None`, all weights are 1.
    ///
    /// Each iteration of k-means computes the products of all centers with all rows. If there are
    /// more than 256 rows per center, the iterations use only a sample of 256 rows per center. Dense
    /// rows are copied. The centers take 4 bytes per center and feature, and at most 1 GiB.
    /// If they would take more, the rarest features are ignored.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a parameter is below 1 or a value of dense rows is infinite. Returns
    /// [`Error::Shape`] if `weights` does not have one weight per row. Returns [`Error::TooLarge`]
    /// if there is not enough memory. Returns [`Error::Stopped`] if the caller requested a stop.
    pub fn fit<'a>(
        &self,
        x: Rows<'a>,
        weights: Option<&'a [f32]>,
        watch: &Watch,
    ) -> Result<Clustering, Error> {
        let (name, count) = match self.until {
            Until::Clusters(count) => ("n_clusters", count),
            Until::RowsEach(count) => ("leaf_size", count),
        };
        at_least_one(name, count)?;
        at_least_one("n_init", self.n_init)?;
        let n_weights = weights.map_or(x.n_rows(), <[f32]>::len);
        same("length of sample_weight", x.n_rows(), n_weights)?;
        let n_clusters = match self.until {
            Until::Clusters(count) => count,
            Until::RowsEach(count) => x.n_rows().saturating_mul(2).div_ceil(count),
        };
        let points = Points::new(x, weights, watch)?;
        let limited = points.limited(n_clusters, watch)?;
        let points = limited.as_ref().unwrap_or(&points);
        let mut best: Option<Start> = None;
        for init in 0..self.n_init as u64 {
            let seed = self.seed.wrapping_add(init);
            let start = match self.until {
                Until::Clusters(count) => points.start(count, seed, watch)?,
                Until::RowsEach(count) => points.halve(count, seed, watch)?,
            };
            if best
                .as_ref()
                .is_none_or(|best| start.inertia < best.inertia)
            {
                best = Some(start);
            }
        }
        // `best` is never `None`, because there is at least one start.
        let Some(Start {
            row_clusters,
            n_clusters,
            routing,
            ..
        }) = best
        else {
            return Err(Error::Stopped);
        };
        let members = Members::new(&row_clusters, n_clusters)?;
        let means = Centers::means(points.x.view(), weights, &members, watch)?;
        let lloyd = Lloyd::new(points.x.view(), weights, watch)?;
        // The inertia is Σ w ‖x − μ‖² = Σ w ‖x‖² − Σ w ‖μ‖². The offset of a center is −½‖μ‖².
        let squared = |(row, &cluster): (usize, &u32)| {
            lloyd.weight(row)
                * (lloyd.squared[row] + 2.0 * f64::from(means.offset(cluster as usize)))
        };
        let inertia: f64 = row_clusters.iter().enumerate().map(squared).sum();
        let routing = routing.unwrap_or(means);
        let (compact, intercept) = routing.to_linear(points.x.n_cols(), watch)?;
        Ok(Clustering {
            row_clusters,
            centers: points.of_all_features(compact)?,
            intercept,
            inertia: inertia.max(0.0),
        })
    }
}

/// The clusters that are found from one start.
#[derive(Debug)]
pub(crate) struct Start {
    /// The number of the cluster of each row.
    pub(crate) row_clusters: Vec<u32>,
    /// The number of clusters. Every cluster has at least one row.
    pub(crate) n_clusters: usize,
    /// The sum of the squared distances between the rows and the centers to which they were
    /// assigned, weighted by the row weights. For clusters that were found by halving, the sum is
    /// 0.
    inertia: f64,
    /// The centers to which rows were assigned. None if these are the means of the clusters.
    routing: Option<Centers>,
}

/// Rows of unit length.
pub(crate) struct Points<'a> {
    /// The rows. Column j of the matrix is the feature `features[j]`.
    x: Stored<'a>,
    /// One weight per row, if given.
    weights: Option<&'a [f32]>,
    /// The original number of the feature in each column of `x`, in increasing order.
    features: Vec<u32>,
    /// The number of features in the original matrix.
    n_features: usize,
}

impl<'a> Points<'a> {
    /// Takes rows of unit length, and copies them if they are dense.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if a value of dense rows is infinite. Returns [`Error::TooLarge`] if
    /// there is not enough memory. Returns [`Error::Stopped`] if the caller requested a stop.
    pub(crate) fn new(
        x: Rows<'a>,
        weights: Option<&'a [f32]>,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let n_features = x.n_features();
        let mut x = x.stored(watch)?;
        watch.step(0)?;
        let features = x.drop_empty_columns()?;
        watch.step(0)?;
        Ok(Self {
            x,
            weights,
            features,
            n_features,
        })
    }

    /// Returns a copy without the rarest features, if `n_clusters` centers of all features would take
    /// too much memory, and `None` otherwise.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    pub(crate) fn limited(&self, n_clusters: usize, watch: &Watch) -> Result<Option<Self>, Error> {
        let clusters = n_clusters.min(self.x.n_rows());
        let room = (BUDGET / Centers::n_bytes(clusters, 1).max(1)).max(1);
        if room >= self.features.len() {
            return Ok(None);
        }
        let (x, kept) = keep_frequent(self.x.view(), room)?;
        watch.step(0)?;
        let kept = kept.iter().map(|&at| self.features[at as usize]);
        Ok(Some(Self {
            x: Stored::Owned(x),
            weights: self.weights,
            features: collected("number of features", kept)?,
            n_features: self.n_features,
        }))
    }

    /// Divides the rows into `k` clusters by k-means, from one start.
    ///
    /// If there are more than 256 rows per cluster, centers are computed on a sample of the rows.
    /// Then all rows are assigned to their nearest centers.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
    pub(crate) fn start(&self, k: usize, seed: u64, watch: &Watch) -> Result<Start, Error> {
        let mut rng = Rng::with_seed(seed);
        let most = k.saturating_mul(ROWS_PER_CENTER);
        let all = Lloyd::new(self.x.view(), self.weights, watch)?;
        if self.x.n_rows() <= most {
            let centers = all.run(k, &mut rng)?;
            return all.assign(&centers);
        }
        let rows = sample(self.x.n_rows(), most, &mut rng)?;
        let weights = self.weights.map(|weights| of_rows(weights, &rows));
        let weights = weights.transpose()?;
        let x = self.x.view().gather(&rows)?;
        let centers = Lloyd::new(x.view(), weights.as_deref(), watch)?.run(k, &mut rng)?;
        all.assign(&centers)
    }

    /// Repeatedly halves clusters by 2-means until none has more than `most` rows. Clusters whose
    /// rows cannot be separated are not halved. Then assigns every row to its nearest center, with
    /// at most `2 most` rows per center.
    ///
    /// All clusters with the same number of halvings are halved in parallel. The seed for each
    /// cluster depends on `seed`, the number of the cluster and its number of rows.
    fn halve(&self, most: usize, seed: u64, watch: &Watch) -> Result<Start, Error> {
        let mut row_clusters = filled("number of rows", 0, self.x.n_rows())?;
        let mut n_clusters = 1;
        let all = collected("number of rows", 0..self.x.n_rows() as u32)?;
        let is_large = |(_, rows): &(u32, Vec<u32>)| rows.len() > most;
        let mut large: Vec<(u32, Vec<u32>)> = few([(0, all)].into_iter().filter(is_large));
        while !large.is_empty() {
            let halves = each("number of clusters", &large, |(cluster, rows)| {
                let seed = seed ^ u64::from(*cluster).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                self.two_halves(rows, most, seed ^ rows.len() as u64, watch)
            })?;
            let mut next = Vec::new();
            for ((cluster, _), halves) in large.into_iter().zip(halves) {
                let Some([stays, goes]) = halves else {
                    continue;
                };
                for &row in &goes {
                    row_clusters[row as usize] = n_clusters;
                }
                for half in [(cluster, stays), (n_clusters, goes)] {
                    if is_large(&half) {
                        push("number of clusters", &mut next, half)?;
                    }
                }
                n_clusters += 1;
            }
            large = next;
        }
        let members = Members::new(&row_clusters, n_clusters as usize)?;
        let mut centers = Centers::means(self.x.view(), self.weights, &members, watch)?;
        let mut row_clusters =
            send_to_nearest(self.x.view(), &mut centers, most.saturating_mul(2), watch)?;
        let kept = drop_empty(&mut row_clusters, centers.len())?;
        Ok(Start {
            row_clusters,
            n_clusters: kept.len(),
            inertia: 0.0,
            routing: Some(centers.only(&kept)?),
        })
    }

    /// Divides a cluster in two by 2-means and returns the rows of each half. Returns None if the
    /// rows are too similar to be separated.
    ///
    /// Each half has at least `most / 2` rows, and at least the number of rows of the cluster
    /// divided by [`LEAST_SHARE`]. If 2-means gives a smaller half, the rows nearest to the border
    /// are moved to it.
    fn two_halves(
        &self,
        rows: &[u32],
        most: usize,
        seed: u64,
        watch: &Watch,
    ) -> Result<Option<[Vec<u32>; 2]>, Error> {
        let mut x = self.x.view().gather(rows)?;
        x.drop_empty_columns()?;
        let weights = self.weights.map(|weights| of_rows(weights, rows));
        let weights = weights.transpose()?;
        let mut points = Points {
            n_features: x.n_cols(),
            features: Vec::new(),
            x,
            weights: weights.as_deref(),
        };
        let least = most.div_ceil(2).max(rows.len() / LEAST_SHARE).max(1);
        loop {
            let start = points.start(2, seed, watch)?;
            if start.n_clusters == 2 {
                let members = Members::new(&start.row_clusters, 2)?;
                let centers = Centers::means(points.x.view(), points.weights, &members, watch)?;
                if let Some(sides) = cut(&centers.differences(points.x.view())?, least)? {
                    let side = |side: bool| {
                        let both = rows.iter().zip(&sides).filter(|&(_, &of)| of == side);
                        collected("number of rows", both.map(|(&row, _)| row))
                    };
                    return Ok(Some([side(false)?, side(true)?]));
                }
            }
            if points.weights.take().is_none() {
                return Ok(None);
            }
            // The loop tries again without weights. This may be necessary to separate rows with weight 0, or
            // rows that share no features with the other rows.
        }
    }

    /// Converts a matrix with one row per feature in use to a matrix with one row per feature of
    /// the original matrix.
    fn of_all_features(&self, compact: CsrOwned) -> Result<CsrOwned, Error> {
        let mut indptr = filled("number of features", 0, self.n_features + 1)?;
        for (ends, &feature) in compact.indptr.windows(2).zip(&self.features) {
            indptr[feature as usize + 1] = ends[1] - ends[0];
        }
        for feature in 0..self.n_features {
            indptr[feature + 1] += indptr[feature];
        }
        Ok(CsrOwned { indptr, ..compact })
    }
}

/// Copies the `room` features that occur in most rows. If features are equally frequent, features
/// with lower numbers are copied. Returns the copy and the original numbers of these features in
/// increasing order.
fn keep_frequent(x: CsrRef<'_>, room: usize) -> Result<(CsrOwned, Vec<u32>), Error> {
    let mut counts = filled("number of features", 0u32, x.n_cols())?;
    for (cols, _) in x.rows(0..x.n_rows()) {
        for &col in cols {
            counts[col as usize] += 1;
        }
    }
    let mut kept = collected("number of features", 0..x.n_cols() as u32)?;
    kept.sort_unstable_by_key(|&col| (Reverse(counts[col as usize]), col));
    kept.truncate(room);
    kept.sort_unstable();
    let mut new = filled("number of features", u32::MAX, x.n_cols())?;
    for (to, &col) in (0..).zip(&kept) {
        new[col as usize] = to;
    }
    let mut short = CsrOwned {
        indptr: reserved("number of rows", x.n_rows() + 1)?,
        indices: Vec::new(),
        values: Vec::new(),
        n_cols: room,
    };
    short.indptr.push(0);
    for (cols, values) in x.rows(0..x.n_rows()) {
        for (&col, &value) in cols.iter().zip(values) {
            if new[col as usize] != u32::MAX {
                push(
                    "number of stored values",
                    &mut short.indices,
                    new[col as usize],
                )?;
                push("number of stored values", &mut short.values, value)?;
            }
        }
        short.indptr.push(short.indices.len());
    }
    Ok((short, kept))
}

/// Draws `n` distinct row numbers below `n_rows` at random. Returns them in increasing order.
fn sample(n_rows: usize, n: usize, rng: &mut Rng) -> Result<Vec<u32>, Error> {
    let mut rows = collected("number of rows", 0..n_rows as u32)?;
    for at in 0..n {
        rows.swap(at, rng.usize(at..n_rows));
    }
    rows.truncate(n);
    rows.sort_unstable();
    Ok(rows)
}

/// Returns the weights of some rows.
fn of_rows(weights: &[f32], rows: &[u32]) -> Result<Vec<f32>, Error> {
    let of = |&row: &u32| weights[row as usize];
    collected("number of rows", rows.iter().map(of))
}

/// Runs Lloyd's algorithm on a set of rows.
struct Lloyd<'a> {
    x: CsrRef<'a>,
    /// One weight per row, if given.
    weights: Option<&'a [f32]>,
    /// The squared length of each row. Rows have length 1 up to rounding, unless some of their
    /// features were left out.
    squared: Vec<f64>,
    watch: &'a Watch,
}

impl<'a> Lloyd<'a> {
    fn new(x: CsrRef<'a>, weights: Option<&'a [f32]>, watch: &'a Watch) -> Result<Self, Error> {
        let mut squared = reserved("number of rows", x.n_rows())?;
        for (row, (_, values)) in x.rows(0..x.n_rows()).enumerate() {
            if row % ROWS_PER_STEP == 0 {
                watch.step(0)?;
            }
            let values = values.iter();
            squared.push(
                values
                    .map(|&value| f64::from(value) * f64::from(value))
                    .sum(),
            );
        }
        Ok(Self {
            x,
            weights,
            squared,
            watch,
        })
    }

    /// Returns the weight of a row.
    fn weight(&self, row: usize) -> f64 {
        self.weights.map_or(1.0, |weights| f64::from(weights[row]))
    }

    /// Computes centers in at most [`SWEEPS`] passes over the rows. Stops earlier if no row changes
    /// its center. There may be fewer than `k` centers.
    fn run(&self, k: usize, rng: &mut Rng) -> Result<Centers, Error> {
        let seeds = self.seeds(k.min(self.x.n_rows()), rng)?;
        let numbers = collected("number of clusters", 0..seeds.len() as u32)?;
        let alone = Members::new(&numbers, seeds.len())?;
        let rows = self.x.gather(&seeds)?;
        let mut centers = Centers::means(rows.view(), None, &alone, self.watch)?;
        let mut before = Vec::new();
        for _ in 0..SWEEPS {
            let Start {
                row_clusters,
                n_clusters,
                ..
            } = self.assign(&centers)?;
            if row_clusters == before {
                break;
            }
            let members = Members::new(&row_clusters, n_clusters)?;
            centers = Centers::means(self.x, self.weights, &members, self.watch)?;
            before = row_clusters;
        }
        Ok(centers)
    }

    /// Assigns every row to its nearest center.
    ///
    /// If a center has no rows, it then gets the row that is farthest from its own center. A row
    /// that is the only row of its center is not moved. Centers that still have no rows are
    /// dropped, and the other centers are renumbered in order.
    fn assign(&self, centers: &Centers) -> Result<Start, Error> {
        let nearest = centers.nearest(self.x, self.watch)?;
        let numbers = nearest.iter().map(|nearest| nearest.center);
        let mut row_clusters = collected("number of rows", numbers)?;
        let distances = nearest
            .iter()
            .zip(&self.squared)
            .map(|(nearest, squared)| (squared - 2.0 * f64::from(nearest.score)).max(0.0));
        let mut distances = collected("number of rows", distances)?;
        let mut sizes = filled("number of clusters", 0u32, centers.len())?;
        for &cluster in &row_clusters {
            sizes[cluster as usize] += 1;
        }
        let empty = (0..).zip(&sizes).filter(|&(_, &size)| size == 0);
        let empty = collected("number of clusters", empty.map(|(cluster, _)| cluster))?;
        if !empty.is_empty() {
            let mut empty = empty.into_iter();
            let mut farthest = collected("number of rows", 0..self.x.n_rows() as u32)?;
            farthest.sort_unstable_by(|&a, &b| {
                let by_distance = distances[b as usize].total_cmp(&distances[a as usize]);
                by_distance.then(a.cmp(&b))
            });
            for row in farthest {
                let from = row_clusters[row as usize];
                if distances[row as usize] <= NOWHERE {
                    break;
                }
                if sizes[from as usize] > 1 {
                    let Some(to) = empty.next() else { break };
                    sizes[from as usize] -= 1;
                    row_clusters[row as usize] = to;
                    distances[row as usize] = 0.0;
                }
            }
        }
        let n_clusters = drop_empty(&mut row_clusters, centers.len())?.len();
        let inertia = (0..)
            .zip(&distances)
            .map(|(row, distance)| self.weight(row) * distance);
        Ok(Start {
            inertia: inertia.sum(),
            row_clusters,
            n_clusters,
            routing: None,
        })
    }

    /// Chooses at most `k` distinct rows as the first centers.
    ///
    /// Up to [`SPREAD_UP_TO`] centers are chosen by k-means++ (Arthur, Vassilvitskii 2007). For
    /// each center, 2 + ⌊ln k⌋ candidate rows are drawn. The probability of a row is proportional
    /// to its weighted squared distance from the nearest center chosen so far. The candidate that
    /// leaves the smallest sum of distances becomes the center. This takes O(nnz(X) k ln k) time.
    /// If `k` is larger, the rows are drawn uniformly.
    fn seeds(&self, k: usize, rng: &mut Rng) -> Result<Vec<u32>, Error> {
        let n = self.x.n_rows();
        if k > SPREAD_UP_TO {
            return sample(n, k, rng);
        }
        let draws = 2 + (k as f64).ln() as usize;
        let weigh = |(row, distance): (usize, &f64)| self.weight(row) * distance;
        let of_rows = || filled("number of rows", f64::INFINITY, n);
        let mut center = filled("number of features", 0f32, self.x.n_cols())?;
        let alike = (0..n).map(|row| weigh((row, &1.0)));
        let mut chances = collected("number of rows", alike)?;
        let mut seeds = reserved("number of clusters", k)?;
        seeds.push(draw(&chances, rng).unwrap_or(0));
        let mut distances = of_rows()?;
        let (mut nearer, mut best_nearer) = (of_rows()?, of_rows()?);
        self.nearer(&best_nearer, seeds[0], &mut center, &mut distances);
        while seeds.len() < k {
            for (chance, at) in chances.iter_mut().zip(distances.iter().enumerate()) {
                *chance = weigh(at);
            }
            let mut best: Option<(f64, u32)> = None;
            for _ in 0..draws {
                self.watch.step(0)?;
                // If all other rows have weight 0 or are equal to a center, no more centers can be
                // chosen.
                let Some(row) = draw(&chances, rng) else {
                    return Ok(seeds);
                };
                self.nearer(&distances, row, &mut center, &mut nearer);
                let left: f64 = nearer.iter().enumerate().map(weigh).sum();
                if best.is_none_or(|(least, _)| left < least) {
                    best = Some((left, row));
                    swap(&mut best_nearer, &mut nearer);
                }
            }
            if let Some((_, row)) = best {
                seeds.push(row);
                swap(&mut distances, &mut best_nearer);
            }
        }
        Ok(seeds)
    }

    /// Computes the squared distance of each row from its nearest center, after the row `seed`
    /// became a center. `distances` holds the squared distances before that, and the results are
    /// written to `out`. `center` has one number for each feature. All numbers are zero before and
    /// after the call.
    fn nearer(&self, distances: &[f64], seed: u32, center: &mut [f32], out: &mut [f64]) {
        let seed = seed as usize;
        let (cols, values) = self.x.row(seed);
        for (&col, &value) in cols.iter().zip(values) {
            center[col as usize] = value;
        }
        let from_seed = |row: usize| {
            let (cols, values) = self.x.row(row);
            let both = cols.iter().zip(values);
            let product: f32 = both
                .map(|(&col, &value)| value * center[col as usize])
                .sum();
            let squared = self.squared[row] + self.squared[seed] - 2.0 * f64::from(product);
            if squared > NOWHERE { squared } else { 0.0 }
        };
        out.par_iter_mut()
            .zip(distances)
            .enumerate()
            .with_min_len(ROWS_PER_STEP)
            .for_each(|(row, (out, &distance))| *out = distance.min(from_seed(row)));
        for &col in cols {
            center[col as usize] = 0.0;
        }
    }
}

/// Divides rows in two by a threshold on their scores. Returns, for each row, whether its score is
/// above the threshold.
///
/// The threshold leaves at least `least` rows on each side and does not separate equal scores.
/// Among all such thresholds, the one with the fewest scores between itself and 0 is used. Returns
/// None if there is no such threshold.
fn cut(scores: &[f32], least: usize) -> Result<Option<Vec<bool>>, Error> {
    let mut sorted = copied("number of rows", scores)?;
    sorted.sort_unstable_by(f32::total_cmp);
    let wanted = sorted.partition_point(|&score| score <= 0.0);
    let Some(last) = sorted.len().checked_sub(least) else {
        return Ok(None);
    };
    let parts = |&at: &usize| sorted[at - 1] < sorted[at];
    let Some(at) = (least.max(1)..=last)
        .filter(parts)
        .min_by_key(|at| at.abs_diff(wanted))
    else {
        return Ok(None);
    };
    let floor = sorted[at];
    collected("number of rows", scores.iter().map(|&score| score >= floor)).map(Some)
}

/// Assigns every row to its nearest center, with at most `most` rows per center.
///
/// If a center has more rows, its offset is lowered. The rows that are almost as near to another
/// center then move to this other center. This is repeated for at most [`ROUNDS`] rounds. A center
/// whose rows are too similar to be separated may keep more rows.
fn send_to_nearest(
    x: CsrRef<'_>,
    centers: &mut Centers,
    most: usize,
    watch: &Watch,
) -> Result<Vec<u32>, Error> {
    let mut rounds = 0;
    loop {
        let nearest = centers.nearest(x, watch)?;
        let numbers = nearest.iter().map(|nearest| nearest.center);
        let row_clusters = collected("number of rows", numbers)?;
        let members = Members::new(&row_clusters, centers.len())?;
        let mut lowered = false;
        if rounds < ROUNDS {
            for cluster in 0..centers.len() {
                let rows = members.rows(cluster);
                if rows.len() <= most {
                    continue;
                }
                let ahead = rows.iter().map(|&row| nearest[row as usize].ahead());
                let mut ahead = collected("number of rows", ahead)?;
                ahead.sort_unstable_by(f32::total_cmp);
                // Rows whose difference between the two best scores is below `least` leave the
                // center. If no two differences are equal, `most` rows stay.
                let too_many = rows.len() - most;
                let least = ahead[too_many];
                if ahead[0] < least && least.is_finite() {
                    let below = ahead.partition_point(|&ahead| ahead < least);
                    let by = 0.5 * (ahead[below - 1] + least);
                    lowered |= centers.lower(cluster, by);
                }
            }
        }
        if !lowered {
            return Ok(row_clusters);
        }
        rounds += 1;
    }
}

/// Draws a position with a probability proportional to its weight. Returns None if no weight is
/// above 0.
fn draw(weights: &[f64], rng: &mut Rng) -> Option<u32> {
    let total: f64 = weights.iter().sum();
    let mut left = rng.f64() * total;
    let mut last = None;
    for (at, &weight) in (0..).zip(weights) {
        if weight > 0.0 {
            last = Some(at);
            if left < weight {
                break;
            }
            left -= weight;
        }
    }
    last
}
