//! Fits one sigmoid per label.
//!
//! The parameters are deviations from a pooled curve. Deviations of groups have a fixed penalty. Deviations of
//! labels have a penalty that is chosen by cross-validation over the held-out rows: if labels differ little, all
//! of them stay close to their group, and if they differ much, labels with many hits get curves of their own. The
//! penalty of intercepts is the inverse of a variance, as in a model with normally distributed deviations.

use crate::logistic::{Penalty, Point, fit_with_slope_at_least, loss, sigmoid};
use crate::pairs::{Pairs, groups};
use crate::pooled::{Knots, fit_knots, platt, platt_of_all, targets};
use crate::{Curves, Pooling};
use manylabel_base::range::same;
use manylabel_base::{Error, Tasks, Watch, extend, filled};
use rayon::prelude::*;

/// The sigmoids of all labels. The log-odds of label l with score s are `intercept[l] + slope[l] f(s)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Sigmoids {
    /// The pooled curve f. Without knots, f(s) = s.
    pub knots: Knots,
    /// Intercept of each label.
    pub intercept: Vec<f64>,
    /// Slope of each label.
    pub slope: Vec<f64>,
    /// Variance of the deviations of labels, as chosen by cross-validation. 0 means that labels do not deviate
    /// from their groups.
    pub variance: f64,
}

/// Candidates for the variance of the intercepts of labels.
const VARIANCES: [f64; 7] = [0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0];
/// The variance of slopes is this factor smaller than the variance of intercepts. Expectation maximization finds
/// factors from 3 to 7 on four public data sets.
const OF_SLOPES: f64 = 5.0;
/// Precision of the intercepts and slopes of groups.
const OF_GROUPS: [f64; 2] = [1.0, 4.0];
/// Number of folds of the cross-validation.
const FOLDS: u32 = 5;
/// Smallest deviation of a slope. The slope of the pooled curve is 1, so that no curve decreases.
const FLAT: f64 = -1.0;

impl Curves for Sigmoids {
    fn n_labels(&self) -> usize {
        self.intercept.len()
    }

    fn probability(&self, label: usize, score: f64) -> f64 {
        sigmoid(self.intercept[label] + self.slope[label] * self.knots.log_odds(score))
    }
}

impl Sigmoids {
    /// Returns the probability of a label with a score.
    ///
    /// # Panics
    ///
    /// Panics if there is no such label.
    pub fn probability(&self, label: usize, score: f64) -> f64 {
        Curves::probability(self, label, score)
    }
}

/// Fits the sigmoids. `frequency` is the number of training rows of each label.
///
/// With [`Pooling::None`], the sigmoid of a label is Platt's, with Platt's targets. A label without candidates
/// has Platt's sigmoid over all labels. With [`Pooling::All`], every label has that sigmoid.
///
/// ```
/// use manylabel_base::Watch;
/// use manylabel_decision::{Pairs, Pooling, fit_sigmoids};
/// use manylabel_sparse::CsrView;
///
/// // Label 1 has a hit at a score at which label 0 has none.
/// let scores = CsrView::new("scores", &[0i32, 2], &[0, 1], &[0.0f32, 0.0], 2)?;
/// let y = CsrView::new("Y", &[0i32, 1], &[1], &[1.0f32], 2)?;
/// let pairs = Pairs::new(scores, y)?;
/// let own = fit_sigmoids(&pairs, &[1, 1], Pooling::None, &Watch::new())?;
/// assert!(own.probability(1, 0.0) > own.probability(0, 0.0));
/// let shared = fit_sigmoids(&pairs, &[1, 1], Pooling::All, &Watch::new())?;
/// assert_eq!(shared.probability(1, 0.0), shared.probability(0, 0.0));
/// # Ok::<(), manylabel_base::Error>(())
/// ```
///
/// # Errors
///
/// Returns [`Error::Shape`] if `frequency` does not have an entry for each label, [`Error::TooLarge`] if memory
/// is short, and [`Error::Stopped`] if the caller requested a stop.
pub fn fit_sigmoids(
    pairs: &Pairs,
    frequency: &[u32],
    pooling: Pooling,
    watch: &Watch,
) -> Result<Sigmoids, Error> {
    let n_labels = pairs.n_labels();
    same("number of labels", n_labels, frequency.len())?;
    let mut curves = Sigmoids {
        knots: Knots::default(),
        intercept: filled("number of labels", 0.0, n_labels)?,
        slope: filled("number of labels", 1.0, n_labels)?,
        variance: 0.0,
    };
    if pairs.scores.is_empty() {
        return Ok(curves);
    }
    if pooling == Pooling::Frequency {
        shrink(pairs, frequency, &mut curves, watch)?;
        return Ok(curves);
    }
    let of_all = platt_of_all(pairs);
    let Sigmoids {
        intercept, slope, ..
    } = &mut curves;
    let each = intercept
        .par_iter_mut()
        .zip(slope.par_iter_mut())
        .enumerate();
    each.try_each(|(label, (intercept, slope))| {
        watch.step(1)?;
        let range = pairs.of(label);
        let own = pooling == Pooling::None && !range.is_empty();
        [*intercept, *slope] = if own {
            let [of_hit, of_miss] = targets(pairs.n_hits(label), range.len());
            platt(range.map(|at| Point {
                x: pairs.scores[at],
                offset: 0.0,
                target: if pairs.hits[at] { of_hit } else { of_miss },
            }))
        } else {
            of_all
        };
        Ok(())
    })?;
    Ok(curves)
}

/// Fits the pooled curve, the deviations of groups, and the deviations of labels.
fn shrink(
    pairs: &Pairs,
    frequency: &[u32],
    curves: &mut Sigmoids,
    watch: &Watch,
) -> Result<(), Error> {
    let knots = fit_knots(pairs)?;
    let mut x = filled("number of candidates", 0.0, pairs.scores.len())?;
    x.par_iter_mut()
        .zip(&pairs.scores)
        .for_each(|(x, &score)| *x = knots.log_odds(score));
    // The center makes intercepts and slopes nearly independent where hits are.
    let (sum, n_hits) = x
        .iter()
        .zip(&pairs.hits)
        .filter(|&(_, &hit)| hit)
        .fold((0.0, 0usize), |(sum, n), (&x, _)| (sum + x, n + 1));
    let center = if n_hits > 0 { sum / n_hits as f64 } else { 0.0 };
    x.par_iter_mut().for_each(|x| *x -= center);
    let (group_of, n_groups) = groups(pairs, frequency)?;
    let design = Design {
        pairs,
        x: &x,
        center,
        group_of: &group_of,
        n_groups,
    };
    curves.variance = design.chosen_variance(watch)?;
    let of_groups = design.fit_groups(None, watch)?;
    let Sigmoids {
        intercept,
        slope,
        variance,
        ..
    } = curves;
    let each = intercept
        .par_iter_mut()
        .zip(slope.par_iter_mut())
        .enumerate();
    each.try_each_with(
        || Ok(Vec::new()),
        |points, (label, (intercept, slope))| {
            watch.step(1)?;
            let mean = of_groups[group_of[label] as usize];
            design.collect(label, None, points)?;
            let [a, b] = fit_label(points, mean, *variance, mean);
            // f + a + b (f - center), as a function of f
            (*intercept, *slope) = (a - b * center, 1.0 + b);
            Ok(())
        },
    )?;
    curves.knots = knots;
    Ok(())
}

/// Fits the deviation of a label, shrunk to the deviation `mean` of its group. Newton's method starts from `start`.
fn fit_label(points: &[Point], mean: [f64; 2], variance: f64, start: [f64; 2]) -> [f64; 2] {
    if variance == 0.0 || points.is_empty() {
        return mean;
    }
    let penalty = Penalty {
        mean,
        precision: [1.0 / variance, OF_SLOPES / variance],
    };
    fit_with_slope_at_least(&points.iter().copied(), &penalty, FLAT, start)
}

/// The data of the shrunken sigmoids.
struct Design<'a> {
    pairs: &'a Pairs,
    /// Log-odds of the pooled curve minus `center`, for each pair.
    x: &'a [f64],
    center: f64,
    group_of: &'a [u32],
    n_groups: usize,
}

impl Design<'_> {
    /// Returns whether a pair is in a fold of the rows.
    fn is_in(&self, at: usize, fold: u32) -> bool {
        self.pairs.rows[at] % FOLDS == fold
    }

    /// Returns the points of a label without the pairs in the fold `left_out`.
    fn points(&self, label: usize, left_out: Option<u32>) -> impl Iterator<Item = Point> + Clone {
        self.pairs
            .of(label)
            .filter(move |&at| left_out.is_none_or(|fold| !self.is_in(at, fold)))
            .map(|at| Point {
                x: self.x[at],
                offset: self.x[at] + self.center,
                target: f64::from(u8::from(self.pairs.hits[at])),
            })
    }

    /// Fits the deviations of all groups.
    fn fit_groups(&self, left_out: Option<u32>, watch: &Watch) -> Result<Vec<[f64; 2]>, Error> {
        let mut found = filled("number of groups", [0.0; 2], self.n_groups)?;
        let penalty = Penalty {
            mean: [0.0; 2],
            precision: OF_GROUPS,
        };
        found
            .par_iter_mut()
            .enumerate()
            .try_each(|(group, found)| {
                watch.step(0)?;
                let labels = (0..self.group_of.len())
                    .filter(|&label| self.group_of[label] as usize == group);
                let points = labels.flat_map(|label| self.points(label, left_out));
                *found = fit_with_slope_at_least(&points, &penalty, FLAT, [0.0; 2]);
                Ok(())
            })?;
        Ok(found)
    }

    /// Replaces the elements of `points` by the points of a label without the pairs in the fold `left_out`.
    fn collect(
        &self,
        label: usize,
        left_out: Option<u32>,
        points: &mut Vec<Point>,
    ) -> Result<(), Error> {
        points.clear();
        extend("number of candidates", points, self.points(label, left_out))
    }

    /// Returns the variance with the smallest loss of the left-out rows. The rows are divided into folds.
    fn chosen_variance(&self, watch: &Watch) -> Result<f64, Error> {
        let n_labels = self.group_of.len();
        let mut losses = [0.0; VARIANCES.len()];
        for fold in 0..FOLDS {
            let of_groups = self.fit_groups(Some(fold), watch)?;
            let mut of_labels = filled("number of labels", [0.0; VARIANCES.len()], n_labels)?;
            of_labels.par_iter_mut().enumerate().try_each_with(
                || Ok(Vec::new()),
                |points, (label, losses)| {
                    watch.step(0)?;
                    if !self.pairs.of(label).any(|at| self.is_in(at, fold)) {
                        return Ok(());
                    }
                    self.collect(label, Some(fold), points)?;
                    let mean = of_groups[self.group_of[label] as usize];
                    let mut found = mean;
                    for (sum, &variance) in losses.iter_mut().zip(&VARIANCES) {
                        // The solution changes little from one variance to the next.
                        found = fit_label(points, mean, variance, found);
                        let [a, b] = found;
                        for at in self.pairs.of(label).filter(|&at| self.is_in(at, fold)) {
                            let z = self.x[at] + self.center + a + b * self.x[at];
                            *sum += loss(z, f64::from(u8::from(self.pairs.hits[at])));
                        }
                    }
                    Ok(())
                },
            )?;
            for of_label in &of_labels {
                for (sum, loss) in losses.iter_mut().zip(of_label) {
                    *sum += loss;
                }
            }
        }
        // If two variances have the same loss, the smaller one is used.
        let best = (0..VARIANCES.len()).fold(
            0,
            |best, at| if losses[at] < losses[best] { at } else { best },
        );
        Ok(VARIANCES[best])
    }
}
