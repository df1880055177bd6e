//! Chooses `alpha` and the threshold with held-out rows.
//!
//! A row is held out by giving it the weight 0, so X and Y are not copied. To choose `alpha`, W and
//! H are fitted without the held-out rows for several values of `alpha`. The loss on the held-out
//! rows determines the choice. For the threshold, H is taken from the final model, and only W is
//! fitted again without the held-out rows. A [`Tally`] of the scores of the held-out rows gives the
//! threshold.

use super::design::Design;
use super::entries::dot;
use super::params::Loss;
use super::tall::Tall;
use super::turns::{Labels, Turns};
use crate::cut::Tally;
use faer::{Accum, MatRef};
use fastrand::Rng;
use manylabel_base::{Error, Watch, collected, copied, few, filled, parts};
use manylabel_dense::{matmul, zeros};
use rayon::prelude::*;

/// The largest number of rows that are held out at a time. More rows would hardly make the choice
/// better.
const MOST_ROWS: usize = 2000;

/// The largest number of scores of rows that are held out at a time. With this limit, scoring does
/// not take longer than an update of W and H, even if there are many labels.
const MOST_SCORES: usize = 1 << 26;

/// Number of rows that are scored together.
const ROWS_OF_CHUNK: usize = 64;

/// Number of turns with the first value of `alpha`. A turn updates W and then H.
const FIRST_TURNS: usize = 4;

/// Number of turns with each further value of `alpha`. A turn updates W and then H. The fit starts
/// from the factors for the previous value, so a few turns are enough. Components that a larger
/// `alpha` removes vanish quickly: a turn multiplies a component with the singular value σ <
/// `alpha` by (σ / `alpha`)².
const NEXT_TURNS: usize = 2;

/// The first value of `alpha` that is tried. It applies to rows of unit length and weight 1. On 24
/// of 26 data sets, the best value was within a factor of ten of this value.
const FIRST_ALPHA: f64 = 3.0;

/// The ratio of consecutive values of `alpha` that are tried.
const RATIO: f64 = 3.0;

/// The largest number of values of `alpha` that are tried in one direction.
const MOST_STEPS: usize = 12;

/// `alpha` is decreased below the value with the lowest loss, until the loss is higher by this
/// fraction. Strong regularization shrinks scores, which lowers the loss even if rankings do not
/// improve. With this constant, P@1 on 18 data sets increases by up to 1.6 points and decreases by
/// at most 0.6 points.
const SPARED: f64 = 0.005;

/// A group of rows that are held out together.
pub(super) struct Part {
    /// The rows of the group, in increasing order.
    rows: Vec<usize>,
    /// The weight of each row, which is 0 for held-out rows; shape (n).
    weights: Vec<f32>,
}

/// The number and the size of the groups of held-out rows.
pub(super) struct Plan {
    /// The size of a group as a fraction of all rows.
    share: f64,
    /// The smallest size of a group. However, a group never has more than a quarter of all rows.
    least: usize,
    /// Groups are added until they have this many rows in total.
    enough: usize,
    /// The largest number of groups.
    most_parts: usize,
    /// A number that is combined with the user's seed, so that different plans draw different rows.
    salt: u64,
}

/// The plan for choosing `alpha`. The best value of `alpha` hardly depends on the number of
/// training rows, so a quarter of the rows can be held out.
pub(super) const FOR_ALPHA: Plan = Plan {
    share: 0.25,
    least: 1,
    enough: 500,
    most_parts: 4,
    salt: 0x61_6c70_6861,
};

/// The plan for learning the threshold. Scores should be similar to the scores of a model that is
/// fitted to all rows, so only a tenth of the rows is held out. For each group of held-out rows, W
/// is fitted once.
pub(super) const FOR_CUT: Plan = Plan {
    share: 0.1,
    least: 50,
    enough: 200,
    most_parts: 3,
    salt: 0x63_7574,
};

impl Part {
    /// Returns the weight of each row, which is 0 for held-out rows.
    pub(super) fn weights(&self) -> &[f32] {
        &self.weights
    }
}

/// Returns the weights of the rows that are left if the rows of `part` are held out, or `weights` if no rows are held
/// out.
pub(super) fn weights_without<'a>(
    part: Option<&'a Part>,
    weights: Option<&'a [f32]>,
) -> Option<&'a [f32]> {
    part.map_or(weights, |part| Some(&part.weights))
}

impl Plan {
    /// Draws disjoint groups of rows to hold out. Returns no groups if there is only one row.
    /// `weights` holds the weights of the rows. If it is None, all weights are 1.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
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
            let mut rows = copied("number of held-out rows", rows)?;
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
pub(super) struct Data<'a, 'x> {
    pub(super) x: &'a Design<'x>,
    pub(super) labels: &'a Labels,
    pub(super) weights: Option<&'a [f32]>,
    pub(super) loss: Loss,
}

impl Data<'_, '_> {
    /// Returns the weight of a row in the training set.
    fn weight(&self, row: usize) -> f32 {
        self.weights.map_or(1.0, |weights| weights[row])
    }

    /// Scores the given rows with the factors `w` and `h`. For each known entry of these rows,
    /// calls `see` with its row and label, its score and its value.
    ///
    /// Rows are processed in chunks, on all threads. Each chunk has its own sum, which `start`
    /// creates. The sums are returned in the order of the chunks.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory, [`Error::Stopped`] if the caller
    /// requested a stop, or any error of `see`.
    fn visit<S: Send>(
        &self,
        rows: &[usize],
        w: &Tall,
        h: &Tall,
        start: impl Fn() -> S + Sync,
        see: impl Fn(&mut S, (usize, usize), f32, f32) -> Result<(), Error> + Sync,
        watch: &Watch,
    ) -> Result<Vec<S>, Error> {
        let (rank, n_labels) = (w.n_cols, h.n_rows);
        let a = Tall::from_panels(rows.len(), rank, |t| {
            let all = self.x.times(&w.panels[t], watch)?;
            collected("number of held-out rows", rows.iter().map(|&row| all[row]))
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
                        see(&mut sum, (row, label as usize), z, y)?;
                    }
                }
                return Ok(sum);
            }
            // There is one column for each row, so that the scores of a row are contiguous.
            let mut scores =
                zeros::<f32>("number of scores of held-out rows", n_labels, rows.len())?;
            let own = MatRef::from_row_major_slice(a, rows.len(), rank);
            let all = MatRef::from_row_major_slice(&h, n_labels, rank);
            matmul(&mut scores, Accum::Replace, all, own.transpose(), 1.0);
            for (at, &row) in rows.iter().enumerate() {
                let (stored, values) = self.labels.by_row.row(row);
                let mut stored = stored.iter().zip(values).peekable();
                for (label, &z) in scores.col(at).iter().enumerate() {
                    let value = stored.next_if(|&(&next, _)| next as usize == label);
                    let value = value.map_or(0.0, |(_, &value)| value);
                    if !value.is_nan() {
                        see(&mut sum, (row, label), z, value)?;
                    }
                }
            }
            Ok(sum)
        });
        parts(sums)
    }

    /// Returns a value of `alpha` with which fits predict held-out rows well. Returns None if no
    /// rows are held out.
    ///
    /// `sets` are the training sets, each without one group of held-out rows. `unit` is the unit of
    /// `alpha` (see `fit::unit_of_alpha`). For each value of `alpha`, at most `max_iter` turns are
    /// taken. A turn updates W and then H.
    ///
    /// As `alpha` increases, the loss on held-out rows first decreases and then increases. The
    /// search repeatedly multiplies or divides `alpha` by [`RATIO`], as long as the loss decreases.
    /// A parabola is fitted to the lowest loss and its two neighbours, as a function of the
    /// logarithm of `alpha`. Its minimum is an estimate of the best value. The function returns a
    /// smaller `alpha`, at which the parabola is higher than its minimum by the fraction
    /// [`SPARED`]. This `alpha` differs from the best value tried by at most the factor [`RATIO`].
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
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
            let see = |sum: &mut f64, (row, label): (usize, usize), z: f32, y: f32| {
                let weight = self.weight(row) * self.labels.weight(label);
                *sum += f64::from(weight * self.loss.value(z, y));
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
        // `lowest` is the loss at the step `best`. `sides` holds the losses at the step before and
        // at the step after `best`.
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
                break; // the loss in the other direction is known from the search
            }
        }
        let bend = sides[0] - 2.0 * lowest + sides[1];
        let lowest_at = (sides[0] - sides[1]) / (2.0 * bend);
        let shift = lowest_at - (2.0 * SPARED * lowest / bend).sqrt();
        let shift = if shift.is_finite() { shift } else { 0.0 };
        let shift = shift.clamp(-1.0, 0.5);
        Ok(Some(at(best) * RATIO.powf(shift)))
    }

    /// Returns the threshold at which the number of predicted entries of the held-out rows equals
    /// the number of their entries that are 1. Returns None if no rows are held out.
    ///
    /// W is fitted again without each group of held-out rows. H is not fitted again, although the
    /// held-out rows were used to fit it. H has only `rank` numbers per label, so it contains
    /// little information about single rows. It contains no such information if the rank equals the
    /// number of labels.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the
    /// caller requested a stop.
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
            let known = y.row(row).1.iter().filter(|value| !value.is_nan());
            let ones: f64 = known.map(|&value| f64::from(value)).sum();
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
            let see = |tally: &mut Tally, (row, _): (usize, usize), z: f32, _: f32| {
                tally.push(z, self.weight(row))
            };
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
