//! Known label sets: the most probable one for a row, and the marginal probabilities they imply.
//!
//! Under the example-wise loss a model predicts one of the label sets seen in training: the set y
//! of least loss `log(1 + Σ_k e^{−y_k p_k})` at the scores p of a row. Since
//!
//! ```text
//! Σ_k e^{−y_k p_k} = Σ_k e^{−|p_k|} + Σ_{k: y_k disagrees with the sign of p_k} 2 sinh |p_k|
//! ```
//!
//! and the first sum is common to all y, the least loss has the least second sum, the *cost* of y.
//! Its terms are ≥ 0: one for each label of y with `p_k ≤ 0`, and one for each label with `p_k > 0`
//! that y lacks. Nothing is subtracted, so small differences are not lost next to a large common
//! term.
//!
//! # Search
//!
//! The cost of a set is at least its largest term. Sets are grouped by their rarest label, and a
//! group is skipped if the term of that label alone exceeds the cost of the best set so far. Two
//! searches find the best set:
//!
//! 1. The first minimizes the largest term instead of the sum, by comparing `|p_k|`. It takes no
//!    exponential. Let R be the result.
//! 2. The second minimizes the sum of terms scaled by `e^{−R}`, which neither overflow nor vanish.
//!    Labels whose term alone exceeds a bound derived from R are ruled out before their terms are
//!    computed.
//!
//! In the worst case a search visits every label of every set, O(entries + sets · labels with
//! positive scores); usually it skips most groups.
//!
//! # Probabilities
//!
//! [`LabelSets::marginals`] takes the probability of a set to be proportional to e to the power of
//! minus its loss, and sums it over the sets that have a label.

use manylabel_base::range::same;
use manylabel_base::{Error, collected, extend, filled, push, reserved};
use manylabel_sparse::{CsrView, Index};

/// The distinct label sets of the training rows, grouped by their rarest label.
///
/// Equal losses are decided by the order in which the sets were given: the first wins. Callers
/// order sets by frequency.
#[derive(Debug, Clone)]
pub struct LabelSets {
    /// Rarest label of each group, with the end of the group in `sets`. The empty set forms the
    /// first group, without a label.
    groups: Vec<(Option<u32>, usize)>,
    /// Number of each set as given, with the end of its labels in `labels`; group by group,
    /// ascending within a group.
    sets: Vec<(usize, usize)>,
    /// Labels set by set, ascending within a set.
    labels: Vec<u32>,
    /// Number of labels of the model.
    n_labels: usize,
    /// Labels that are in no set, ascending.
    absent: Vec<u32>,
}

/// Working space of a search, kept from row to row. It has capacity for all labels.
#[derive(Debug)]
pub(crate) struct Search {
    /// Labels with positive scores, ascending.
    likely: Vec<u32>,
    /// Cost of each label if a set disagrees with the sign of its score.
    cost: Vec<f64>,
}

/// The best label set so far.
#[derive(Debug, Clone, Copy)]
struct Best {
    /// Its cost.
    cost: f64,
    /// Its number as given.
    set: usize,
    /// Begin and end of its labels in [`LabelSets::labels`].
    labels: (usize, usize),
    /// Number of labels on which it disagrees with the scores.
    n_wrong: usize,
}

impl LabelSets {
    /// Reads the columns of each row of `sets` as one set of the `n_labels` labels, in O(entries +
    /// labels + sets · log sets). Values are ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if `sets` does not have one column per label, [`Error::TooLarge`] if a copy
    /// of the sets and a number per label do not fit in memory.
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
            labels: reserved("labels of label sets", sets.nnz())?,
            n_labels,
            absent: collected("number of labels", absent.map(|(label, _)| label))?,
        };
        for group in order.chunk_by(|a, b| a.0 == b.0) {
            for &(_, set) in group {
                let labels = sets.row(set).0.iter().map(|label| label.get() as u32);
                extend("labels of label sets", &mut new.labels, labels)?;
                new.sets.push((set, new.labels.len()));
            }
            let end = (group[0].0, new.sets.len());
            push("number of labels", &mut new.groups, end)?;
        }
        Ok(new)
    }

    /// Number of labels.
    pub fn n_labels(&self) -> usize {
        self.n_labels
    }

    /// Labels that are in no set, ascending. No set with such a label can be predicted.
    pub fn absent(&self) -> &[u32] {
        &self.absent
    }

    /// Verifies that there is something to predict.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if there is no set at all.
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

    /// The labels, ascending, of the set of least example-wise loss at these scores; of several,
    /// the first. `scores` are `n_labels` finite numbers. There must be at least one set.
    pub(crate) fn nearest(&self, scores: &[f64], search: &mut Search) -> &[u32] {
        let dearest = self.minimax(scores, search);
        // A sum of n terms is at most n times the largest, and sinh grows by at least the factor e^d
        // if its argument grows by d. So a label beyond this bound costs more than the whole set
        // found. The last term allows for rounding.
        let most = dearest.n_wrong.max(1) as f64;
        let bound = dearest.cost + most.ln() + 1e-9 * (1.0 + dearest.cost);
        for cost in &mut search.cost {
            *cost = if *cost <= bound {
                term(*cost, dearest.cost)
            } else {
                f64::INFINITY
            };
        }
        let (start, end) = self.least(scores, search, |sum, term| sum + term).labels;
        &self.labels[start..end]
    }

    /// Writes the probability of each label, where that of a label set is proportional to
    /// `1 / (1 + Σ_k e^{−y_k p_k})`. Takes O(entries + sets · labels with positive scores). There
    /// must be at least one set.
    pub(crate) fn marginals(&self, scores: &[f64], search: &mut Search, out: &mut [f64]) {
        let scale = self.minimax(scores, search).cost;
        let mut common = (-scale).exp();
        for cost in &mut search.cost {
            common += (-*cost - scale).exp();
            *cost = term(*cost, scale);
        }
        out.fill(0.0);
        let (mut total, mut start) = (0.0, 0);
        for &(_, end) in &self.sets {
            let labels = &self.labels[start..end];
            let add = |sum, term| sum + term;
            // A set of infinite cost has a probability of 0; the scale keeps the cost of the set found
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

    /// The set whose largest term is least. Leaves `|p_k|` as costs in `search`, and the labels
    /// with positive scores.
    #[expect(clippy::disallowed_methods, reason = "the room is there")]
    fn minimax(&self, scores: &[f64], search: &mut Search) -> Best {
        search.cost.clear();
        search.cost.extend(scores.iter().map(|score| score.abs()));
        search.likely.clear();
        let likely = (0..).zip(scores).filter(|&(_, &score)| score > 0.0);
        search.likely.extend(likely.map(|(label, _)| label));
        self.least(scores, search, f64::max)
    }

    /// The set of least cost, the first of several. `join` combines two costs ≥ 0 to one that is no
    /// less than either: their maximum or their sum.
    fn least(
        &self,
        scores: &[f64],
        search: &Search,
        join: impl Fn(f64, f64) -> f64 + Copy,
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
        // The most promising groups come first: a good set found early rules out most others.
        for promising in [true, false] {
            let mut start = 0;
            for &(label, end) in &self.groups {
                let group = start..end;
                start = end;
                let bound = bound(label);
                if (bound <= lowest) != promising || bound > best.cost {
                    continue;
                }
                let mut first = match group.start.checked_sub(1) {
                    Some(before) => self.sets[before].1,
                    None => 0,
                };
                for &(set, end) in &self.sets[group] {
                    let labels = (first, end);
                    first = end;
                    let known = &self.labels[labels.0..labels.1];
                    let Some((cost, n_wrong)) = search.cost_of(known, best.cost, join) else {
                        continue;
                    };
                    if cost < best.cost || set < best.set {
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
    /// Working space for `n_labels` labels.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if two numbers per label do not fit in memory.
    pub(crate) fn new(n_labels: usize) -> Result<Self, Error> {
        Ok(Self {
            likely: reserved("number of labels", n_labels)?,
            cost: reserved("number of labels", n_labels)?,
        })
    }

    /// The cost of a label set, and on how many labels it disagrees with the scores; `None` if it
    /// costs more than `most`. Terms are joined in ascending order of label, so equal sets have
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

/// `2 sinh(p) e^{−scale}` for p ≥ 0, without overflow for p near `scale`.
fn term(p: f64, scale: f64) -> f64 {
    -(p - scale).exp() * (-2.0 * p).exp_m1()
}
