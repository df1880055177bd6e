//! What rows that a fit did not see say of it: the best `alpha`, and where to cut scores.
//!
//! Rows are held out by giving them no weight, so that X and Y are shared with the fit itself.

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

/// Rows held out at a time at most: more tell little more.
const MOST_ROWS: usize = 2000;

/// Scores of rows held out at a time at most, so that many labels cost no more than a turn.
const MOST_SCORES: usize = 1 << 26;

/// Rows whose scores are computed together.
const ROWS_OF_CHUNK: usize = 64;

/// Turns before the first `alpha` is judged, and between one and the next. A warm start settles
/// quickly: in a turn, singular values below `alpha` fall by their squared ratio to it.
const FIRST_TURNS: usize = 4;
const NEXT_TURNS: usize = 2;

/// The first `alpha` tried, for rows of unit length and weight: of 26 sets the best one lay within a
/// factor of ten for 24.
const FIRST_ALPHA: f64 = 3.0;

/// Ratio of one `alpha` and the next, and how many are tried at most in a direction.
const RATIO: f64 = 3.0;
const MOST_STEPS: usize = 12;

/// Share of the loss that is spared for a smaller `alpha`: shrunken scores cost less loss than the order of
/// labels, which the rest of the shrinkage blurs. Of 18 sets P@1 gains up to 1.6 points, and loses 0.6 at
/// most.
const SPARED: f64 = 0.005;

/// Some rows, in increasing order, and weights of all rows, which are 0 for these.
pub(super) struct Part {
    rows: Vec<usize>,
    weights: Vec<f32>,
}

/// Which rows are held out: parts of a `share` of all rows, or of `least` rows (at most a quarter of all)
/// if that is more; as many as it takes for `enough` rows, at most `most_parts`.
pub(super) struct Plan {
    share: f64,
    least: usize,
    enough: usize,
    most_parts: usize,
    salt: u64,
}

/// The choice of `alpha`: its best value hardly depends on the number of rows, so that a quarter may
/// be spared.
pub(super) const FOR_ALPHA: Plan = Plan {
    share: 0.25,
    least: 1,
    enough: 500,
    most_parts: 4,
    salt: 0x61_6c70_6861,
};

/// The threshold: scores should be as they are for all rows, and every part costs half a turn.
pub(super) const FOR_CUT: Plan = Plan {
    share: 0.1,
    least: 50,
    enough: 200,
    most_parts: 3,
    salt: 0x63_7574,
};

impl Part {
    pub(super) fn weights(&self) -> &[f32] {
        &self.weights
    }
}

impl Plan {
    /// Draws the parts; none from a single row.
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

/// A training set, and what its known entries cost.
#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    pub(super) x: &'a Design,
    pub(super) labels: &'a Labels,
    pub(super) weights: Option<&'a [f32]>,
    pub(super) loss: Loss,
}

impl Data<'_> {
    fn weight(&self, row: usize) -> f32 {
        self.weights.map_or(1.0, |weights| weights[row])
    }

    /// Shows every known entry of some rows: its row, its score and its value. Each chunk of rows has a
    /// sum of its own.
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
            // Column by column of rows, so that the scores of one lie together.
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

    /// The `alpha`, for rows of the length and weight `unit`, at which the rows of each part are best predicted by the others; `None` if there are
    /// no parts. `sets` are those of the parts; fits take `max_iter` turns at most.
    ///
    /// From one `alpha` to the next the loss falls, then it rises: so they are tried one after the
    /// other, in the direction where it falls. At last a parabola through the lowest and its neighbours
    /// tells where between them the loss is lowest, and how far below that it is hardly higher.
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
        // Losses at consecutive steps, the lowest known one in the middle.
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
                break; // the loss on the other side is known
            }
        }
        let bend = sides[0] - 2.0 * lowest + sides[1];
        let lowest_at = (sides[0] - sides[1]) / (2.0 * bend);
        let shift = lowest_at - (2.0 * SPARED * lowest / bend).sqrt();
        let shift = if shift.is_finite() { shift } else { 0.0 };
        let shift = shift.clamp(-1.0, 0.5);
        Ok(Some(at(best) * RATIO.powf(shift)))
    }

    /// The threshold above which as many entries of all parts are as are 1, by factors whose W did not
    /// see the rows of the part; `None` if there is nothing to learn from.
    ///
    /// H has seen all rows. It has a number for each label where W has one for each feature, and with
    /// as many columns as labels it says nothing of them at all.
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
