//! The choice of `alpha` and of the threshold, on rows that a fit did not see.
//!
//! Rows are held out by giving them weight 0, so X and Y are shared with the fit itself. For `alpha`, both
//! factors are fitted without the held-out rows, with one `alpha` after the other, and the loss on the
//! held-out rows decides. For the threshold, only W is fitted again, to the final H, without the held-out
//! rows; a [`Tally`] of their scores gives the threshold.

use super::dense::{Design, Tall};
use super::entries::dot;
use super::params::Loss;
use super::turns::{Labels, Turns};
use crate::cut::Tally;
use faer::linalg::matmul::matmul;
use faer::{Accum, MatRef, Par};
use fastrand::Rng;
use manylabel_base::{Error, Watch, collected, copied, few, filled, parts};
use manylabel_dense::zeros;
use rayon::prelude::*;

/// The most rows held out at a time; more would add little information.
const MOST_ROWS: usize = 2000;

/// The most scores of rows held out at a time, so that scoring many labels does not cost more than a turn.
const MOST_SCORES: usize = 1 << 26;

/// Rows whose scores are computed together.
const ROWS_OF_CHUNK: usize = 64;

/// Turns of the fit with the first `alpha` that is tried.
const FIRST_TURNS: usize = 4;

/// Turns of each further fit, which starts from the one before. Such a warm start settles quickly: in a turn,
/// singular values below `alpha` fall by their squared ratio to it.
const NEXT_TURNS: usize = 2;

/// The first `alpha` tried, for rows of unit length and weight. On 24 of 26 data sets, the best one was
/// within a factor of ten.
const FIRST_ALPHA: f64 = 3.0;

/// The ratio of consecutive values of `alpha`.
const RATIO: f64 = 3.0;

/// The most values tried in one direction.
const MOST_STEPS: usize = 12;

/// The share of the loss by which the chosen `alpha`, below the one of least loss, may be worse. More
/// regularization than rankings need still lowers the loss, because it shrinks scores. With this share, P@1
/// on 18 data sets rises by up to 1.6 points and falls by at most 0.6.
const SPARED: f64 = 0.005;

/// Some held-out rows.
pub(super) struct Part {
    /// In increasing order.
    rows: Vec<usize>,
    /// The weights of all rows, 0 for the held-out ones; (n).
    weights: Vec<f32>,
}

/// How rows are held out: in how many parts, and of which size.
pub(super) struct Plan {
    /// The size of a part as a share of all rows.
    share: f64,
    /// The least size of a part, but at most a quarter of all rows.
    least: usize,
    /// Parts are added until they have this many rows in all.
    enough: usize,
    /// The most parts.
    most_parts: usize,
    /// Makes the seed of the draw differ from other uses of the seed.
    salt: u64,
}

/// For the choice of `alpha`. Its best value hardly depends on the number of rows, so a quarter of them can
/// be held out.
pub(super) const FOR_ALPHA: Plan = Plan {
    share: 0.25,
    least: 1,
    enough: 500,
    most_parts: 4,
    salt: 0x61_6c70_6861,
};

/// For the threshold. Scores should be close to those of a fit to all rows, so only a tenth is held out; each
/// part costs half a turn.
pub(super) const FOR_CUT: Plan = Plan {
    share: 0.1,
    least: 50,
    enough: 200,
    most_parts: 3,
    salt: 0x63_7574,
};

impl Part {
    /// The weights of all rows, 0 for the held-out ones.
    pub(super) fn weights(&self) -> &[f32] {
        &self.weights
    }
}

impl Plan {
    /// Draws disjoint parts; none if there is only one row. `weights` are those of the rows, 1 without them.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(super) fn draw(
        &self,
        n_rows: usize,
        n_labels: usize,
        weights: Option<&[f32]>,
        seed: u64,
    ) -> Result<Vec<Part>, Error> {
        if n_rows < 2 {
            return Ok(Vec::new());
        }
        let most = MOST_ROWS.min(MOST_SCORES / n_labels.max(1)).max(1);
        let size = (n_rows as f64 * self.share) as usize;
        let size = size.max(self.least.min(n_rows / 4)).clamp(1, most);
        let n_parts = self.enough.div_ceil(size).clamp(1, self.most_parts);
        let n_parts = n_parts.min(n_rows / size);
        let mut order = collected("number of rows", 0..n_rows)?;
        Rng::with_seed(seed ^ self.salt).shuffle(&mut order);
        let parts = order.chunks_exact(size).take(n_parts).map(|rows| {
            let mut rows = copied("held-out rows", rows)?;
            rows.sort_unstable();
            let mut weights = match weights {
                Some(weights) => copied("number of rows", weights)?,
                None => filled("number of rows", 1.0, n_rows)?,
            };
            for &row in &rows {
                weights[row] = 0.0;
            }
            Ok(Part { rows, weights })
        });
        few(parts)
    }
}

/// A training set and its loss.
#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    pub(super) x: &'a Design,
    pub(super) labels: &'a Labels,
    pub(super) weights: Option<&'a [f32]>,
    pub(super) loss: Loss,
}

impl Data<'_> {
    /// The weight of a row in the training set.
    fn weight(&self, row: usize) -> f32 {
        self.weights.map_or(1.0, |weights| weights[row])
    }

    /// Scores `rows` with the factors `w` and `h`, and calls `see` with each known entry of these rows: its
    /// row, score and value.
    ///
    /// Rows are processed in chunks, on all threads. Each chunk has a sum of its own, which `start` makes;
    /// the sums are returned in order of chunks.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short, [`Error::Stopped`] if the watch was stopped, or
    /// any error of `see`.
    fn visit<S: Send>(
        &self,
        rows: &[usize],
        w: &Tall,
        h: &Tall,
        start: impl Fn() -> S + Sync,
        see: impl Fn(&mut S, usize, f32, f32) -> Result<(), Error> + Sync,
        watch: &Watch,
    ) -> Result<Vec<S>, Error> {
        let (rank, n_labels) = (w.n_cols, h.n_rows);
        let a = Tall::from_panels(rows.len(), rank, |t| {
            let all = self.x.times(&w.panels[t], watch)?;
            collected("held-out rows", rows.iter().map(|&row| all[row]))
        })?;
        let (a, h) = (a.to_rows()?, h.to_rows()?);
        let chunks = rows
            .par_chunks(ROWS_OF_CHUNK)
            .zip(a.par_chunks(ROWS_OF_CHUNK * rank));
        let sums = chunks.map(|(rows, a)| {
            watch.step(0)?;
            let mut sum = start();
            if !self.labels.all {
                for (&row, a) in rows.iter().zip(a.chunks_exact(rank)) {
                    let (labels, values) = self.labels.by_row.row(row);
                    for (&label, &y) in labels.iter().zip(values) {
                        let z = dot(a, &h[label as usize * rank..][..rank]);
                        see(&mut sum, row, z, y)?;
                    }
                }
                return Ok(sum);
            }
            // A column for each row, so that the scores of a row are contiguous.
            let mut scores = zeros::<f32>("scores of held-out rows", n_labels, rows.len())?;
            let own = MatRef::from_row_major_slice(a, rows.len(), rank);
            let all = MatRef::from_row_major_slice(&h, n_labels, rank);
            matmul(
                &mut scores,
                Accum::Replace,
                all,
                own.transpose(),
                1.0,
                Par::Seq,
            );
            for (at, &row) in rows.iter().enumerate() {
                let mut stored = self.labels.by_row.row(row).0.iter().peekable();
                for (label, &z) in scores.col(at).iter().enumerate() {
                    let is_positive = stored.next_if(|&&next| next as usize == label).is_some();
                    see(&mut sum, row, z, f32::from(u8::from(is_positive)))?;
                }
            }
            Ok(sum)
        });
        parts(sums)
    }

    /// The `alpha` with which the held-out rows of each part are predicted well by fits to the other rows;
    /// None if there are no parts.
    ///
    /// `sets` are the training sets without the rows of each part. `unit` is that of `alpha`
    /// (`fit::unit_of_alpha`). Fits take at most `max_iter` turns.
    ///
    /// As `alpha` grows, the loss on held-out rows first falls and then rises. So values in the ratio
    /// [`RATIO`] are tried in the direction in which it falls, until it rises. A parabola through the lowest
    /// loss and its neighbours (over the logarithm of `alpha`) gives the minimum between them. The result is
    /// a smaller `alpha`, at which the parabola is higher by the share [`SPARED`]; it is at most one
    /// [`RATIO`] away.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the watch was
    /// stopped.
    pub(super) fn best_alpha<T: Turns>(
        &self,
        (unit, max_iter): (f64, usize),
        rank: usize,
        held: &[Part],
        sets: &[T],
        watch: &Watch,
    ) -> Result<Option<f64>, Error> {
        if held.is_empty() {
            return Ok(None);
        }
        let loss = |part: &Part, set: &T, factors: &T::Factors| -> Result<f64, Error> {
            let (w, h) = set.factors(factors)?;
            let see = |sum: &mut f64, row: usize, z: f32, y: f32| {
                *sum += f64::from(self.weight(row) * self.loss.value(z, y));
                Ok(())
            };
            let sums = self.visit(&part.rows, &w, &h, || 0.0, see, watch)?;
            Ok(sums.iter().sum())
        };
        let judge = |from: Option<&Vec<T::Factors>>, alpha: f64| {
            let each = held.par_iter().zip(sets).enumerate();
            let judged = each.map(|(at, (part, set))| {
                let (mut factors, turns) = match from {
                    Some(from) => (T::copied(&from[at])?, NEXT_TURNS),
                    None => (set.start(rank, watch)?, FIRST_TURNS),
                };
                for _ in 0..turns.min(max_iter) {
                    set.turn(&mut factors, alpha, watch)?;
                }
                let loss = loss(part, set, &factors)?;
                Ok((factors, loss))
            });
            let judged = parts(judged)?;
            let loss: f64 = judged.iter().map(|(_, loss)| loss).sum();
            let factors: Vec<T::Factors> = few(judged.into_iter().map(|(factors, _)| factors));
            Ok::<_, Error>((factors, loss))
        };
        let at = |step: i32| FIRST_ALPHA * unit * RATIO.powi(step);
        let (first, of_first) = judge(None, at(0))?;
        // `lowest` is the loss at step `best`, `sides` are those at the steps before and after it.
        let (mut best, mut lowest) = (0, of_first);
        let mut sides = [f64::NAN; 2];
        for (side, direction) in [(1, 1), (0, -1)] {
            let copies = first.iter().map(T::copied);
            let mut from = few::<_, Result<Vec<_>, Error>>(copies)?;
            for _ in 0..MOST_STEPS {
                let (factors, loss) = judge(Some(&from), at(best + direction))?;
                sides[side] = loss;
                if loss >= lowest {
                    break;
                }
                sides[1 - side] = lowest;
                (best, lowest) = (best + direction, loss);
                sides[side] = f64::NAN;
                from = factors;
            }
            if best != 0 {
                break; // the loss at the step before is known: the search came from there
            }
        }
        let bend = sides[0] - 2.0 * lowest + sides[1];
        let lowest_at = (sides[0] - sides[1]) / (2.0 * bend);
        let shift = lowest_at - (2.0 * SPARED * lowest / bend).sqrt();
        let shift = if shift.is_finite() { shift } else { 0.0 };
        let shift = shift.clamp(-1.0, 0.5);
        Ok(Some(at(best) * RATIO.powf(shift)))
    }

    /// The threshold above which as many entries of the held-out rows score as are 1; None if there are none.
    ///
    /// For each part, W is fitted again without its rows. H is not, although it has seen them: it has `rank`
    /// numbers per label, which hold little of single rows (and nothing at all if the rank is the number of
    /// labels).
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the watch was
    /// stopped.
    pub(super) fn cut<T: Turns>(
        &self,
        factors: &T::Factors,
        alpha: f64,
        held: &[Part],
        sets: &[T],
        watch: &Watch,
    ) -> Result<Option<f32>, Error> {
        let y = &self.labels.by_row;
        let positive = |row: usize| {
            let ones: f64 = y.row(row).1.iter().map(|&value| f64::from(value)).sum();
            ones * f64::from(self.weight(row))
        };
        let rows = held.iter().flat_map(|part| &part.rows);
        let wanted: f64 = rows.map(|&row| positive(row)).sum();
        if wanted <= 0.0 {
            return Ok(None);
        }
        let each = held.par_iter().zip(sets);
        let tallies = each.map(|(part, set)| {
            let (w, h) = set.refit_w(factors, alpha, watch)?;
            let see =
                |tally: &mut Tally, row: usize, z: f32, _: f32| tally.push(z, self.weight(row));
            self.visit(&part.rows, &w, &h, || Tally::new(wanted), see, watch)
        });
        let tallies = parts(tallies)?;
        let mut all = Tally::new(wanted);
        for tally in tallies.into_iter().flatten() {
            all.merge(tally)?;
        }
        let textbook = if self.loss == Loss::Squared { 0.5 } else { 0.0 };
        Ok(all.cut(textbook))
    }
}
