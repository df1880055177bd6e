//! Fits one monotone, piecewise linear curve of log-odds to the pairs of all labels.
//!
//! Scores of most classifiers are not log-odds: margins of a squared hinge loss crowd below -1, and scores of label
//! trees are sums of logarithms. A straight line through such scores is wrong for all labels in the same way. The
//! curve removes this common error, so that the deviations of labels can be small.

use crate::isotonic::isotonic;
use crate::logistic::{Penalty, Point, fit};
use crate::pairs::Pairs;
use manylabel_base::{Error, collected, push, reserved};

/// Number of bins of the pooled curve. Scores are usually far from logistic, and thirty straight pieces
/// follow the curves of all families of methods.
const MOST_BINS: usize = 30;
/// Smallest number of hits and of misses, divided by the number of bins. The log-odds of a bin then have a
/// standard error below 0.2.
const HITS_OF_BIN: usize = 60;
/// Precision of the parameters of Platt's sigmoid over all labels. It only matters if the scores are all equal.
const FLAT: f64 = 1e-9;

/// A piecewise linear function through knots. Outside the knots, it continues with the mean slope of the
/// nearest fifth of the knots.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Knots {
    /// Scores, strictly increasing.
    pub at: Vec<f64>,
    /// Log-odds at the scores, not decreasing.
    pub log_odds: Vec<f64>,
}

impl Knots {
    /// Returns the log-odds of a score. Without knots, the score itself is returned.
    ///
    /// ```
    /// use manylabel_decision::pooled::Knots;
    ///
    /// let knots = Knots { at: vec![0.0, 1.0, 3.0], log_odds: vec![-2.0, 0.0, 1.0] };
    /// assert_eq!(knots.log_odds(0.5), -1.0);
    /// assert_eq!(knots.log_odds(2.0), 0.5);
    /// assert_eq!(knots.log_odds(5.0), 2.0); // the last slope continues
    /// ```
    pub fn log_odds(&self, score: f64) -> f64 {
        let (at, odds) = (&self.at, &self.log_odds);
        let Some(last) = at.len().checked_sub(1) else {
            return score;
        };
        let fifth = (at.len() / 5).max(1).min(last);
        let slope = |from: usize, to: usize| {
            if from == to {
                0.0
            } else {
                (odds[to] - odds[from]) / (at[to] - at[from])
            }
        };
        if score <= at[0] {
            return odds[0] + slope(0, fifth) * (score - at[0]);
        }
        if score >= at[last] {
            return odds[last] + slope(last - fifth, last) * (score - at[last]);
        }
        let right = at.partition_point(|&knot| knot <= score);
        odds[right - 1] + slope(right - 1, right) * (score - at[right - 1])
    }
}

/// Returns the parameters (intercept, slope) of Platt's sigmoid, fitted to `points`.
pub(crate) fn platt(points: impl Iterator<Item = Point> + Clone) -> [f64; 2] {
    // Newton's method is started from standardized scores, so that their scale does not matter.
    let (mut n, mut mean) = (0.0, 0.0);
    for point in points.clone() {
        n += 1.0;
        mean += (point.x - mean) / n;
    }
    let squares: f64 = points.clone().map(|point| (point.x - mean).powi(2)).sum();
    let unit = if squares > 0.0 {
        (squares / n).sqrt()
    } else {
        1.0
    };
    let scaled = points.map(|point| Point {
        x: (point.x - mean) / unit,
        ..point
    });
    let flat = Penalty {
        mean: [0.0; 2],
        precision: [FLAT; 2],
    };
    let [intercept, slope] = fit(&scaled, &flat, [0.0; 2]);
    [intercept - slope * mean / unit, slope / unit]
}

/// Platt's targets for a hit and for a miss, which keep the sigmoid finite if hits and misses are separated.
pub(crate) fn targets(n_hits: usize, n_pairs: usize) -> [f64; 2] {
    let (hits, misses) = (n_hits as f64, (n_pairs - n_hits) as f64);
    [(hits + 1.0) / (hits + 2.0), 1.0 / (misses + 2.0)]
}

/// Fits Platt's sigmoid to the pairs of all labels. Returns (intercept, slope).
pub(crate) fn platt_of_all(pairs: &Pairs) -> [f64; 2] {
    let n_hits = pairs.hits.iter().filter(|&&hit| hit).count();
    let [of_hit, of_miss] = targets(n_hits, pairs.hits.len());
    platt(
        pairs
            .scores
            .iter()
            .zip(&pairs.hits)
            .map(|(&x, &hit)| Point {
                x,
                offset: 0.0,
                target: if hit { of_hit } else { of_miss },
            }),
    )
}

/// Fits the pooled curve.
///
/// Pairs are sorted by score and divided into bins. Each bin has the same sum of its share of all hits and its
/// share of all misses, so that bins are narrow where hits are dense. The log-odds of the bins are made
/// monotone by isotonic regression. If there are too few hits for two bins, the curve is Platt's sigmoid over
/// all labels.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
pub(crate) fn fit_knots(pairs: &Pairs) -> Result<Knots, Error> {
    let n = pairs.hits.len();
    let n_hits = pairs.hits.iter().filter(|&&hit| hit).count();
    let n_bins = (n_hits.min(n - n_hits) / HITS_OF_BIN).min(MOST_BINS);
    if n_bins >= 2 {
        let knots = binned(pairs, n_hits, n_bins)?;
        if knots.at.len() >= 2 {
            return Ok(knots);
        }
    }
    let [intercept, slope] = platt_of_all(pairs);
    let mut line = Knots::default();
    for at in [0.0, 1.0] {
        push("number of knots", &mut line.at, at)?;
        // A decreasing curve would reverse the ranking, so it is replaced by a constant.
        push(
            "number of knots",
            &mut line.log_odds,
            intercept + slope.max(0.0) * at,
        )?;
    }
    Ok(line)
}

fn binned(pairs: &Pairs, n_hits: usize, n_bins: usize) -> Result<Knots, Error> {
    let n = pairs.hits.len();
    let share = [1.0 / (n - n_hits) as f64, 1.0 / n_hits as f64];
    let mut at: Vec<f64> = reserved("number of knots", n_bins)?;
    let mut rate = reserved("number of knots", n_bins)?;
    let mut weight = reserved("number of knots", n_bins)?;
    let (mut passed, mut sum, mut hits, mut count) = (0.0, 0.0, 0usize, 0usize);
    let order = pairs.by_score()?;
    for (place, &pair) in order.iter().enumerate() {
        let pair = pair as usize;
        let hit = pairs.hits[pair];
        passed += share[usize::from(hit)];
        sum += pairs.scores[pair];
        hits += usize::from(hit);
        count += 1;
        let next = order
            .get(place + 1)
            .map(|&next| pairs.scores[next as usize]);
        let bound = 2.0 * (at.len() + 1) as f64 / n_bins as f64;
        // Equal scores stay in one bin.
        let ends = next.is_none() || (passed >= bound && next > Some(pairs.scores[pair]));
        if ends {
            let mean = sum / count as f64;
            if at.last().is_none_or(|&last| mean > last) && at.len() < n_bins {
                at.push(mean);
                rate.push((hits as f64 + 0.5) / (count as f64 + 1.0));
                weight.push(count as f64);
            }
            (sum, hits, count) = (0.0, 0, 0);
        }
    }
    isotonic(&mut rate, &weight)?;
    let log_odds = rate.iter().map(|&p: &f64| (p / (1.0 - p)).ln());
    Ok(Knots {
        log_odds: collected("number of knots", log_odds)?,
        at,
    })
}
