//! Fits isotonic curves.
//!
//! An isotonic curve makes no assumption about the form of the relation between score and probability, except that
//! it does not decrease. It needs more hits than a sigmoid, so that most labels share the curve of their group.

use crate::isotonic::isotonic;
use crate::pairs::{Pairs, groups};
use crate::{Curves, Pooling};
use manylabel_base::range::same;
use manylabel_base::{Error, Tasks, Watch, collected, extend, filled, parts, push};
use rayon::prelude::*;

/// Isotonic curves, which several labels may share.
#[derive(Debug, Clone, PartialEq)]
pub struct Steps {
    /// The curve of each label.
    pub curve_of: Vec<i32>,
    /// Curve i has the knots `ends[i]..ends[i + 1]`.
    pub ends: Vec<usize>,
    /// Scores of the knots, strictly increasing within a curve.
    pub at: Vec<f64>,
    /// Probabilities at the knots, not decreasing within a curve. Between knots, they are interpolated.
    pub probability: Vec<f64>,
}

/// With [`Pooling::Frequency`], a label has a curve of its own if it has at least this many hits and this many
/// misses. An isotonic curve of n hits has about the cube root of n steps, so that it has at least six.
const ENOUGH: usize = 200;

impl Curves for Steps {
    fn n_labels(&self) -> usize {
        self.curve_of.len()
    }

    fn probability(&self, label: usize, score: f64) -> f64 {
        let curve = self.curve_of[label] as usize;
        let range = self.ends[curve]..self.ends[curve + 1];
        let (at, p) = (&self.at[range.clone()], &self.probability[range]);
        let right = at.partition_point(|&knot| knot <= score);
        if right == 0 || right == at.len() {
            // Scores outside the knots have the probability of the nearest knot.
            return if right == 0 { p.first() } else { p.last() }
                .copied()
                .unwrap_or(0.0);
        }
        let share = (score - at[right - 1]) / (at[right] - at[right - 1]);
        p[right - 1] + share * (p[right] - p[right - 1])
    }
}

/// Fits the isotonic curves. `frequency` is the number of training rows of each label.
///
/// With [`Pooling::None`], a label without candidates has the curve of all labels. The pairs are sorted once, and
/// the time of the rest is linear in the number of pairs.
///
/// ```
/// use manylabel_base::Watch;
/// use manylabel_decision::{Curves, Pairs, Pooling, fit_steps};
/// use manylabel_sparse::CsrView;
///
/// // Three rows with the scores 1, 2 and 3 of the only label, of which the last two have the label.
/// let scores = CsrView::new("scores", &[0i32, 1, 2, 3], &[0, 0, 0], &[1.0f32, 2.0, 3.0], 1)?;
/// let y = CsrView::new("Y", &[0i32, 0, 1, 2], &[0, 0], &[1.0f32, 1.0], 1)?;
/// let curves = fit_steps(&Pairs::new(scores, y)?, &[2], Pooling::All, &Watch::new())?;
/// assert_eq!(curves.probability(0, 1.5), 0.5); // between the points (1, 0) and (2, 1)
/// # Ok::<(), manylabel_base::Error>(())
/// ```
///
/// # Errors
///
/// Returns the same errors as [`fit_sigmoids`](crate::fit_sigmoids).
pub fn fit_steps(
    pairs: &Pairs,
    frequency: &[u32],
    pooling: Pooling,
    watch: &Watch,
) -> Result<Steps, Error> {
    let n_labels = pairs.n_labels();
    same("number of labels", n_labels, frequency.len())?;
    let (group_of, n_shared) = match pooling {
        Pooling::Frequency => groups(pairs, frequency)?,
        Pooling::None | Pooling::All => (filled("number of labels", 0, n_labels)?, 1),
    };
    let mut curve_of = filled("number of labels", 0i32, n_labels)?;
    let mut owners = Vec::new();
    for (label, curve) in curve_of.iter_mut().enumerate() {
        let (n_hits, n) = (pairs.n_hits(label), pairs.of(label).len());
        let own = match pooling {
            Pooling::Frequency => n_hits.min(n - n_hits) >= ENOUGH,
            Pooling::None => n > 0,
            Pooling::All => false,
        };
        *curve = if own {
            push("number of labels", &mut owners, label)?;
            (n_shared + owners.len() - 1) as i32
        } else {
            group_of[label] as i32
        };
    }
    let order = pairs.by_score()?;
    let mut label_of = filled("number of candidates", 0u32, order.len())?;
    for label in 0..n_labels {
        label_of[pairs.of(label)].fill(label as u32);
    }
    let shared = parts((0..n_shared).into_par_iter().map(|group| {
        watch.step(0)?;
        let of_group = order
            .iter()
            .map(|&at| at as usize)
            .filter(|&at| group_of[label_of[at] as usize] as usize == group);
        curve(pairs, of_group)
    }))?;
    let mut own: Vec<Curve> = Vec::new();
    extend(
        "number of labels",
        &mut own,
        owners.iter().map(|_| Curve::default()),
    )?;
    own.par_iter_mut().zip(&owners).try_each(|(own, &label)| {
        watch.step(1)?;
        let mut of_label = collected("number of candidates", pairs.of(label))?;
        of_label.sort_by(|&a, &b| pairs.scores[a].total_cmp(&pairs.scores[b]));
        *own = curve(pairs, of_label.into_iter())?;
        Ok(())
    })?;
    let mut steps = Steps {
        curve_of,
        ends: filled("number of curves", 0, 1)?,
        at: Vec::new(),
        probability: Vec::new(),
    };
    for Curve { at, probability } in shared.into_iter().chain(own) {
        extend("number of knots", &mut steps.at, at)?;
        extend("number of knots", &mut steps.probability, probability)?;
        push("number of curves", &mut steps.ends, steps.at.len())?;
    }
    Ok(steps)
}

/// The knots of a curve.
#[derive(Debug, Default)]
struct Curve {
    at: Vec<f64>,
    probability: Vec<f64>,
}

/// Fits a curve to pairs that are sorted by score.
fn curve(pairs: &Pairs, sorted: impl Iterator<Item = usize>) -> Result<Curve, Error> {
    const KNOTS: &str = "number of knots";
    let (mut at, mut rate, mut weight) = (Vec::<f64>::new(), Vec::<f64>::new(), Vec::<f64>::new());
    for pair in sorted {
        let (score, hit) = (pairs.scores[pair], f64::from(u8::from(pairs.hits[pair])));
        if at.last() == Some(&score) {
            // Pairs with equal scores are one point, with the mean of their hits.
            let last = at.len() - 1;
            weight[last] += 1.0;
            rate[last] += (hit - rate[last]) / weight[last];
        } else {
            push(KNOTS, &mut at, score)?;
            push(KNOTS, &mut rate, hit)?;
            push(KNOTS, &mut weight, 1.0)?;
        }
    }
    isotonic(&mut rate, &weight)?;
    // Only the first and the last point of each step are needed.
    let mut kept = Curve::default();
    for i in 0..at.len() {
        let equal = |a: usize, b: usize| rate[a].total_cmp(&rate[b]).is_eq();
        let inner = i > 0 && i + 1 < at.len() && equal(i, i - 1) && equal(i, i + 1);
        if !inner {
            push(KNOTS, &mut kept.at, at[i])?;
            push(KNOTS, &mut kept.probability, rate[i])?;
        }
    }
    Ok(kept)
}
