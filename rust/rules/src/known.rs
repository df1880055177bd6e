//! Finds the most probable known label set of a row, and computes the marginal probabilities of its
//! labels. A known label set is a label set seen in training.
//!
//! Under the example-wise loss, a model predicts one of the known label sets. Let p be the scores
//! of a row. The prediction is the label set y with the smallest loss `log(1 + Σ_k e^{−y_k p_k})`.
//! Here `y_k` is 1 for the labels of the set, and −1 for other labels. The sum can be split as
//!
//! ```text
//! Σ_k e^{−y_k p_k} = Σ_k e^{−|p_k|} + Σ_{k: y_k disagrees with the sign of p_k} 2 sinh |p_k|
//! ```
//!
//! The first sum is the same for all y. The label set with the smallest loss is therefore the label set with
//! the smallest second sum. This sum is called the *cost* of y. The terms of the cost are ≥ 0. There is one
//! term for each label of y with `p_k ≤ 0`, and one term for each label with `p_k > 0` that is not in y.
//! Nothing is subtracted, so rounding errors stay small.
//!
//! [`LabelSets::with_weights`] prefers frequent label sets. With the weight `w_y` of a label set and a power a,
//! the prediction is then the set with the smallest value of `log(1 + Σ_k e^{−y_k p_k}) − a log w_y`. Without
//! the logarithm, this is `(1 + Σ_k e^{−|p_k|} + cost) · w_y^{−a}`.
//!
//! # Search
//!
//! The cost of a set is at least its largest term. Sets are grouped by their rarest label. A group is skipped
//! if the term of this label exceeds the cost of the best set so far. Two searches find the best set:
//!
//! 1. The first search minimizes the largest term instead of the sum. This search only compares values of
//!    `|p_k|`, so it computes no exponential. Let R be the value `|p_k|` of the largest term of the result.
//!    Every other set has a term at least as large.
//! 2. The second search minimizes the sum of the terms scaled by `e^{−R}`. With this factor, the terms that
//!    matter neither overflow nor underflow. If `|p_k|` exceeds a bound derived from R, the term is replaced
//!    by infinity. A set with such a term costs more than the result of the first search.
//!
//! If label sets have weights, the second search minimizes the product of the sum and `w_y^{−a}`, and no term is
//! replaced by infinity. The factors `w_y^{−a}` are scaled so that the smallest factor is 1.
//!
//! In the worst case, a search visits every label of every set, in O(entries + sets · labels with positive
//! scores). Usually a search skips most groups.
//!
//! # Probabilities
//!
//! [`LabelSets::marginals`] takes the probability of a label set to be proportional to e^{−loss}.
//! The probability of a label is the sum over the label sets that contain the label.

use manylabel_base::range::same;
use manylabel_base::{Error, collected, extend, filled, push, reserved};
use manylabel_sparse::{CsrView, Index};

/// The distinct label sets of the training rows, grouped by their rarest label.
///
/// If several sets have the smallest loss, the first of these sets is predicted. Callers order the sets by
/// frequency.
#[derive(Debug, Clone)]
pub struct LabelSets {
    /// The rarest label of each group, and the end of the group in `sets`. The first group contains the empty
    /// set and has no label.
    groups: Vec<(Option<u32>, usize)>,
    /// For each set, its number in the order of the caller, and the end of its labels in `labels`. Sets are
    /// stored group by group. Within a group, their numbers increase.
    sets: Vec<(usize, usize)>,
    /// The labels of all sets, one set after the other. The labels of a set are in increasing order.
    labels: Vec<u32>,
    /// Number of labels of the model.
    n_labels: usize,
    /// Labels that are in no set, in increasing order.
    absent: Vec<u32>,
    /// The factor `w_y^{−a}` of each set, in the order of `sets` (see the module documentation). Factors are at
    /// least 1. The vector is empty if all factors are 1.
    factors: Vec<f64>,
}

/// Largest factor of a set. A set whose weight is 0 has this factor, so that products stay finite.
const MOST_FACTOR: f64 = 1e100;

/// Factor that raises a bound by more than the rounding errors of its computation.
const ROUNDED: f64 = 1.0 + 1e-12;

/// The workspace of a search, which is reused from row to row. It has capacity for all labels.
#[derive(Debug)]
pub(crate) struct Search {
    /// Labels with positive scores, in increasing order.
    likely: Vec<u32>,
    /// The term of each label in the cost of a set. A set has this term if it disagrees with the sign of the
    /// label's score.
    cost: Vec<f64>,
}

/// The best label set found so far.
#[derive(Debug, Clone, Copy)]
struct Best {
    /// The cost of the label set (see the module documentation), or the product that replaces it if label sets
    /// have weights.
    cost: f64,
    /// The number of the set in the order of the caller.
    set: usize,
    /// Start and end of the labels of the set in [`LabelSets::labels`].
    labels: (usize, usize),
    /// Number of labels for which the set disagrees with the sign of the score.
    n_wrong: usize,
}

impl LabelSets {
    /// Reads each row of `sets` as one label set. `sets` has one column per label, and its values are
    /// ignored. The time is O(entries + labels + sets · log sets).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if `sets` does not have one column per label. Returns [`Error::TooLarge`] if
    /// a copy of the sets and one number per label do not fit in memory.
    pub fn new<I: Index>(sets: CsrView<'_, I, f32>, n_labels: usize) -> Result<Self, Error> {
        same("labels of label_sets_", n_labels, sets.n_cols())?;
        let mut count = filled("number of labels", 0usize, n_labels)?;
        for set in 0..sets.n_rows() {
            for label in sets.row(set).0 {
                count[label.get()] += 1;
            }
        }
        let keyed = (0..sets.n_rows()).map(|set| {
            let labels = sets.row(set).0.iter().map(|label| label.get());
            let rarest = labels.min_by_key(|&label| (count[label], label));
            (rarest.map(|label| label as u32), set)
        });
        let mut order: Vec<(Option<u32>, usize)> = collected("number of label sets", keyed)?;
        order.sort_unstable();
        let absent = (0u32..).zip(&count).filter(|&(_, &count)| count == 0);
        let mut new = Self {
            groups: Vec::new(),
            sets: reserved("number of label sets", sets.n_rows())?,
            labels: reserved("number of labels in label sets", sets.nnz())?,
            n_labels,
            absent: collected("number of labels", absent.map(|(label, _)| label))?,
            factors: Vec::new(),
        };
        for group in order.chunk_by(|a, b| a.0 == b.0) {
            for &(_, set) in group {
                let labels = sets.row(set).0.iter().map(|label| label.get() as u32);
                extend("number of labels in label sets", &mut new.labels, labels)?;
                new.sets.push((set, new.labels.len()));
            }
            let end = (group[0].0, new.sets.len());
            push("number of labels", &mut new.groups, end)?;
        }
        Ok(new)
    }

    /// Sets the weights of the label sets, in the order of the caller. Weights are ≥ 0. If `power` is 0, weights
    /// have no effect. With a larger power, label sets with large weights are predicted more often (see the
    /// module documentation).
    ///
    /// # Errors
    ///
    /// Returns [`Error::Shape`] if there is not one weight for each label set. Returns [`Error::TooLarge`] if one
    /// number per label set does not fit in memory.
    pub fn with_weights(mut self, weights: &[f64], power: f64) -> Result<Self, Error> {
        same(
            "label sets of label_set_weights_",
            self.sets.len(),
            weights.len(),
        )?;
        let most = weights.iter().copied().fold(0.0, f64::max);
        if power == 0.0 || most == 0.0 {
            self.factors = Vec::new();
            return Ok(self);
        }
        let factors = (self.sets.iter())
            .map(|&(set, _)| (most / weights[set]).powf(power).clamp(1.0, MOST_FACTOR));
        self.factors = collected("number of label sets", factors)?;
        Ok(self)
    }

    /// Returns the number of labels.
    pub fn n_labels(&self) -> usize {
        self.n_labels
    }

    /// Returns the labels that are in no set, in increasing order. Such labels are never predicted.
    pub fn absent(&self) -> &[u32] {
        &self.absent
    }

    /// Checks that there is at least one label set.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] if there is no label set.
    pub(crate) fn check_any(&self) -> Result<(), Error> {
        if self.sets.is_empty() {
            return Err(Error::Param {
                name: "label_sets_",
                expected: "at least one label set",
                got: "none".into(),
            });
        }
        Ok(())
    }

    /// Finds the stored label set with the smallest example-wise loss at these scores, and returns its labels
    /// in increasing order. If label sets have weights, the loss includes the term of the weight. If several sets
    /// have the smallest loss, the first of these sets is returned. `scores` must be `n_labels` finite numbers.
    /// At least one set must be stored.
    pub(crate) fn nearest(&self, scores: &[f64], search: &mut Search) -> &[u32] {
        let dearest = self.minimax(scores, search);
        if !self.factors.is_empty() {
            return self.nearest_by_weight(scores, search, dearest.cost);
        }
        // A sum of n terms is at most n times the largest term. If the argument of sinh grows by d, then sinh
        // grows by at least the factor e^d. A single label above this bound therefore costs more than the
        // whole set found by `minimax`. The last term of the bound allows for rounding.
        let most = dearest.n_wrong.max(1) as f64;
        let bound = dearest.cost + most.ln() + 1e-9 * (1.0 + dearest.cost);
        for cost in &mut search.cost {
            *cost = if *cost <= bound {
                term(*cost, dearest.cost)
            } else {
                f64::INFINITY
            };
        }
        let (start, end) = self
            .lowest_cost(scores, search, |sum, term| sum + term)
            .labels;
        &self.labels[start..end]
    }

    /// Does the second search of [`Self::nearest`] for label sets with weights. `scale` is the cost of the set
    /// that [`Self::minimax`] found.
    #[inline(never)] // The search without weights takes fewer instructions if this search is not part of it.
    fn nearest_by_weight(&self, scores: &[f64], search: &mut Search, scale: f64) -> &[u32] {
        let common = search.scale(scale);
        let add = |sum, term| sum + term;
        let factors = &self.factors;
        // Bounds allow for rounding, so that sets with equal values are compared with each other.
        let most_of_any = |best: f64| best * ROUNDED - common;
        let most = |place: usize, best: f64| best / factors[place] * ROUNDED - common;
        let value = |place: usize, cost: f64| (common + cost) * factors[place];
        let best = self.least(scores, search, add, value, most, most_of_any);
        let (start, end) = best.labels;
        &self.labels[start..end]
    }

    /// Writes the probability of each label to `out`. The probability of a label set is proportional to
    /// `1 / (1 + Σ_k e^{−y_k p_k})`. Here p are the scores, and `y_k` is 1 for the labels of the set and −1
    /// for other labels. The time is O(entries + sets · labels with positive scores). There must be at least
    /// one set.
    pub(crate) fn marginals(&self, scores: &[f64], search: &mut Search, out: &mut [f64]) {
        let scale = self.minimax(scores, search).cost;
        let common = search.scale(scale);
        out.fill(0.0);
        let (mut total, mut start) = (0.0, 0);
        for &(_, end) in &self.sets {
            let labels = &self.labels[start..end];
            let add = |sum, term| sum + term;
            // A set with infinite cost has probability 0. The scale keeps the cost of the set found
            // by `minimax` finite.
            let cost = search.cost_of(labels, f64::INFINITY, add);
            let share = cost.map_or(0.0, |(cost, _)| (common + cost).recip());
            total += share;
            for &label in labels {
                out[label as usize] += share;
            }
            start = end;
        }
        for probability in out {
            *probability /= total;
        }
    }

    /// Returns the set whose largest term is smallest (see the module documentation). Stores the
    /// absolute score `|p_k|` of each label in `search`, as the cost of the label. Also stores the
    /// labels with positive scores in `search`.
    #[expect(clippy::disallowed_methods, reason = "the capacity is reserved")]
    fn minimax(&self, scores: &[f64], search: &mut Search) -> Best {
        search.cost.clear();
        search.cost.extend(scores.iter().map(|score| score.abs()));
        search.likely.clear();
        let likely = (0..).zip(scores).filter(|&(_, &score)| score > 0.0);
        search.likely.extend(likely.map(|(label, _)| label));
        self.lowest_cost(scores, search, f64::max)
    }

    /// Returns the set with the smallest cost. If several sets have the smallest cost, the first of these
    /// sets is returned. `join` combines two costs ≥ 0 into their maximum or their sum.
    fn lowest_cost(
        &self,
        scores: &[f64],
        search: &Search,
        join: impl Fn(f64, f64) -> f64 + Copy,
    ) -> Best {
        self.least(
            scores,
            search,
            join,
            |_, cost| cost,
            |_, best| best,
            |best| best,
        )
    }

    /// Returns the set with the smallest value. If several sets have the smallest value, the first of these
    /// sets is returned.
    ///
    /// - `join` combines two costs ≥ 0 into their maximum or their sum.
    /// - `value` returns the value of a set from its position in `sets` and its cost.
    /// - `most` returns the largest cost of a set whose value is at most the given value.
    /// - `most_of_any` returns an upper bound of `most` over all sets.
    fn least(
        &self,
        scores: &[f64],
        search: &Search,
        join: impl Fn(f64, f64) -> f64 + Copy,
        value: impl Fn(usize, f64) -> f64,
        most: impl Fn(usize, f64) -> f64,
        most_of_any: impl Fn(f64) -> f64,
    ) -> Best {
        let bound = |label: Option<u32>| match label.map(|label| label as usize) {
            Some(label) if scores[label] <= 0.0 => search.cost[label],
            _ => 0.0,
        };
        let bounds = self.groups.iter().map(|&(label, _)| bound(label));
        let lowest = bounds.fold(f64::INFINITY, f64::min);
        let mut best = Best {
            cost: f64::INFINITY,
            set: usize::MAX,
            labels: (0, 0),
            n_wrong: 0,
        };
        // Groups with the lowest bound are searched first. A good set found early excludes most
        // other groups.
        for promising in [true, false] {
            let mut start = 0;
            for &(label, end) in &self.groups {
                let group = start..end;
                start = end;
                let bound = bound(label);
                if (bound <= lowest) != promising || bound > most_of_any(best.cost) {
                    continue;
                }
                let mut first = match group.start.checked_sub(1) {
                    Some(before) => self.sets[before].1,
                    None => 0,
                };
                for (place, &(set, end)) in group.clone().zip(&self.sets[group]) {
                    let labels = (first, end);
                    first = end;
                    let known = &self.labels[labels.0..labels.1];
                    let most = most(place, best.cost);
                    let Some((cost, n_wrong)) = search.cost_of(known, most, join) else {
                        continue;
                    };
                    let cost = value(place, cost);
                    if cost < best.cost || (set < best.set && cost <= best.cost) {
                        best = Best {
                            cost,
                            set,
                            labels,
                            n_wrong,
                        };
                    }
                }
            }
        }
        best
    }
}

impl Search {
    /// Allocates a workspace for `n_labels` labels.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if two numbers per label do not fit in memory.
    pub(crate) fn new(n_labels: usize) -> Result<Self, Error> {
        Ok(Self {
            likely: reserved("number of labels", n_labels)?,
            cost: reserved("number of labels", n_labels)?,
        })
    }

    /// Replaces each cost `|p_k|` by the term `2 sinh |p_k| e^{−scale}`. Returns the part of the loss that all
    /// label sets have in common, `(1 + Σ_k e^{−|p_k|}) e^{−scale}`.
    fn scale(&mut self, scale: f64) -> f64 {
        let mut common = (-scale).exp();
        for cost in &mut self.cost {
            common += (-*cost - scale).exp();
            *cost = term(*cost, scale);
        }
        common
    }

    /// Returns the cost of a label set, and the number of labels for which the set disagrees with the sign of
    /// the score. Returns `None` if the cost exceeds `most`. The function `join` returns the sum or the
    /// maximum of two numbers. It is applied to the terms in increasing order of labels, so equal sets have
    /// equal costs.
    #[inline(always)]
    fn cost_of(
        &self,
        labels: &[u32],
        most: f64,
        join: impl Fn(f64, f64) -> f64,
    ) -> Option<(f64, usize)> {
        let (mut cost, mut n_wrong) = (0.0, 0);
        let mut missing = self.likely.iter().copied().peekable();
        for &label in labels {
            while let Some(likely) = missing.next_if(|&likely| likely < label) {
                cost = join(cost, self.cost[likely as usize]);
                n_wrong += 1;
            }
            if missing.next_if_eq(&label).is_none() {
                cost = join(cost, self.cost[label as usize]);
                n_wrong += 1;
            }
            if cost > most {
                return None;
            }
        }
        for likely in missing {
            cost = join(cost, self.cost[likely as usize]);
            n_wrong += 1;
            if cost > most {
                return None;
            }
        }
        Some((cost, n_wrong))
    }
}

/// Returns `2 sinh(p) e^{−scale}` for p ≥ 0, without overflow for p near `scale`.
fn term(p: f64, scale: f64) -> f64 {
    -(p - scale).exp() * (-2.0 * p).exp_m1()
}
