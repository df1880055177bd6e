//! Defines the function that a fit minimizes: the loss plus elastic nets. It is a function of the
//! weights, and of the couplings of some pairs of labels.
//!
//! A point consists of the values of all weights, intercepts and couplings; see
//! [`iterate`](crate::iterate). [`Objective`] owns the data and the penalties, and the solvers own
//! the points. At a given point, [`Objective`] computes the value of the function, the gradient of
//! the loss ([`Slope`]) and the KKT violation. Couplings of pairs outside the objective are zero.
//! [`Objective::beyond`] finds pairs that should have a nonzero coupling.
//!
//! Computing a value or a gradient takes one pass over the rows; see `gradient.rs` for its cost.

use crate::gradient::{Gradient, Pairs};
use crate::iterate::Iterate;
use crate::params::Penalty;
use crate::penalty::{Net, violations};
use crate::wide::{Float, Wide};
use manylabel_base::{Error, Watch, collected, filled, push};
use rayon::prelude::*;

/// Relative rise of the objective that rounding errors in single precision may cause.
const RISE: f64 = 1e-5;

/// The objective of all labels in one precision.
pub(crate) struct Objective<'a, T, const N: usize> {
    /// The data. It also computes sums in passes over the rows.
    gradient: Gradient<'a, T, N>,
    /// The pairs that may have a coupling.
    pairs: Pairs,
    /// One penalty per row of a panel: the penalties of the features, and a penalty of zero for the
    /// intercept.
    pub(crate) features: Vec<Net<T>>,
    /// The penalty of a coupling.
    pub(crate) pair: Net<T>,
    /// Whether the model has couplings at all.
    couples: bool,
    /// `p (1 − p)` for every label, where p is the fraction of rows with the label. It is the
    /// curvature of the loss of the label if predictions are constant.
    pub(crate) variance: Vec<f64>,
    /// The watch. It is called in every pass to check for a stop.
    pub(crate) watch: &'a Watch,
}

/// The gradient of the loss at some point, without the penalties.
pub(crate) struct Slope<T, const N: usize> {
    /// One number per weight and intercept, in the layout of the weights of a point.
    pub(crate) weights: Vec<Wide<T, N>>,
    /// One number per pair.
    pub(crate) couplings: Vec<T>,
    /// For each pair, two derivatives with respect to its coupling: that of the loss of its first
    /// label, and that of the loss of its second label.
    pub(crate) halves: Vec<[T; 2]>,
}

impl<T: Float, const N: usize> Slope<T, N> {
    /// Allocates memory for a gradient of `objective`.
    pub(crate) fn new(objective: &Objective<'_, T, N>) -> Result<Self, Error> {
        Ok(Self {
            weights: filled("weights", Wide::zero(), objective.n_rows())?,
            couplings: Vec::new(),
            halves: Vec::new(),
        })
    }
}

impl<'a, T: Float, const N: usize> Objective<'a, T, N> {
    /// Creates an objective without pairs.
    ///
    /// `features` holds the penalty of the weights of each feature. `pair` is the penalty of
    /// couplings, or `None` if the model has no couplings.
    pub(crate) fn new(
        gradient: Gradient<'a, T, N>,
        features: &[Penalty],
        pair: Option<Penalty>,
        watch: &'a Watch,
    ) -> Result<Self, Error> {
        let none = Penalty { l1: 0.0, l2: 0.0 };
        let features = features.iter().chain([&none]);
        let share = &gradient.labels.share;
        Ok(Self {
            pairs: Pairs::new::<N>(Vec::new(), share.len())?,
            features: collected(
                "number of features",
                features.map(|&penalty| Net::new(penalty)),
            )?,
            pair: Net::new(pair.unwrap_or(none)),
            couples: pair.is_some(),
            variance: collected("number of labels", share.iter().map(|p| p * (1.0 - p)))?,
            gradient,
            watch,
        })
    }

    /// Replaces the pairs that may have a coupling. `list` must be in increasing order.
    pub(crate) fn set_pairs(&mut self, list: Vec<(u32, u32)>) -> Result<(), Error> {
        self.pairs = Pairs::new::<N>(list, self.n_labels())?;
        Ok(())
    }

    /// Returns the pairs that may have a coupling, in increasing order.
    pub(crate) fn pairs(&self) -> &[(u32, u32)] {
        &self.pairs.list
    }

    /// Returns the data.
    pub(crate) fn gradient(&self) -> &Gradient<'a, T, N> {
        &self.gradient
    }

    /// Returns the number of labels that occur in some but not all rows.
    pub(crate) fn n_labels(&self) -> usize {
        self.variance.len()
    }

    /// Returns the number of rows of the weights of a panel: the features plus the intercept.
    pub(crate) fn height(&self) -> usize {
        self.features.len()
    }

    /// Returns the number of panels of N labels. The last panel may be incomplete.
    pub(crate) fn n_panels(&self) -> usize {
        self.gradient.n_panels()
    }

    /// Returns the number of rows of the weights of all panels together.
    pub(crate) fn n_rows(&self) -> usize {
        self.n_panels() * self.height()
    }

    /// Returns loss plus penalties at a point, summed in double precision in a fixed order.
    pub(crate) fn value(&mut self, at: &Iterate<T, N>) -> Result<f64, Error> {
        self.pass(&self.all_panels()?, at, true)?;
        let height = self.height();
        let mut value = 0.0;
        for label in 0..self.n_labels() {
            self.watch.step(0)?;
            let (panel, lane) = (label / N, label % N);
            value += self.gradient.losses(panel)[lane];
            for (net, row) in self.features.iter().zip(&at.weights[panel * height..]) {
                value += net.cost(row.0[lane]);
            }
        }
        for &coupling in &at.couplings {
            value += self.pair.cost(coupling);
        }
        Ok(value)
    }

    /// Returns whether the value at `now` exceeds the value at `before` by more than rounding
    /// errors. A value of NaN counts as risen. Takes two passes.
    pub(crate) fn risen(
        &mut self,
        before: &Iterate<T, N>,
        now: &Iterate<T, N>,
    ) -> Result<bool, Error> {
        let before = self.value(before)?;
        let now = self.value(now)?;
        let falls = now <= (1.0 + RISE) * before;
        Ok(!falls)
    }

    /// Writes the gradient of the loss at a point, for the labels of the `active` panels (one flag
    /// per panel).
    ///
    /// In `out`, the weights of other panels do not change. Halves that belong to labels of other
    /// panels keep the values of the last pass that included these panels.
    pub(crate) fn slope(
        &mut self,
        active: &[bool],
        at: &Iterate<T, N>,
        out: &mut Slope<T, N>,
    ) -> Result<(), Error> {
        self.pass(active, at, false)?;
        self.write(active, out)
    }

    /// Computes the value and the gradient at a point, in one pass over the rows.
    pub(crate) fn value_and_slope(
        &mut self,
        at: &Iterate<T, N>,
        out: &mut Slope<T, N>,
    ) -> Result<f64, Error> {
        let value = self.value(at)?;
        self.write(&self.all_panels()?, out)?;
        Ok(value)
    }

    /// Returns flags that make all panels active.
    fn all_panels(&self) -> Result<Vec<bool>, Error> {
        filled("number of labels", true, self.n_panels())
    }

    /// Makes one pass over the rows. Its sums are stored in `gradient`.
    fn pass(&mut self, active: &[bool], at: &Iterate<T, N>, with_loss: bool) -> Result<(), Error> {
        self.gradient
            .evaluate(active, at, &self.pairs, with_loss, self.watch)
    }

    /// Writes the gradient of the last pass.
    fn write(&self, active: &[bool], out: &mut Slope<T, N>) -> Result<(), Error> {
        out.weights
            .par_chunks_mut(self.height())
            .enumerate()
            .filter(|&(panel, _)| active[panel])
            .for_each(|(panel, slopes)| self.gradient.write(panel, slopes));
        out.couplings.clear();
        out.halves.clear();
        for [first, second] in self.gradient.halves(&self.pairs) {
            push("couplings", &mut out.couplings, T::of(first + second))?;
            push("couplings", &mut out.halves, [T::of(first), T::of(second)])?;
        }
        Ok(())
    }

    /// Returns the largest KKT violation among the weights of each label.
    pub(crate) fn violations(
        &self,
        at: &Iterate<T, N>,
        slope: &Slope<T, N>,
    ) -> Result<Vec<f64>, Error> {
        let mut found = filled("number of labels", 0.0, self.n_labels())?;
        found
            .par_chunks_mut(N)
            .zip(at.weights.par_chunks(self.height()))
            .zip(slope.weights.par_chunks(self.height()))
            .for_each(|((found, weights), slopes)| {
                let of_panel = violations(weights, slopes, &self.features);
                found.copy_from_slice(&of_panel[..found.len()]);
            });
        Ok(found)
    }

    /// Returns the largest KKT violation among all weights and all couplings of the objective.
    pub(crate) fn violation(&self, at: &Iterate<T, N>, slope: &Slope<T, N>) -> Result<f64, Error> {
        let of_pairs = at.couplings.iter().zip(&slope.couplings);
        let of_pairs = of_pairs.map(|(&value, &slope)| self.pair.violation(value, slope).f64());
        let found = self.violations(at, slope)?.into_iter().chain(of_pairs);
        Ok(found.fold(0.0, f64::max))
    }

    /// Returns the pairs with a slope of absolute value ≥ `bound` in the loss of one of their
    /// labels, in increasing order. All pairs are examined, also pairs outside the objective. Takes
    /// one pass with dense couplings.
    pub(crate) fn beyond(
        &mut self,
        at: &Iterate<T, N>,
        bound: f64,
    ) -> Result<Vec<(u32, u32)>, Error> {
        self.gradient.beyond(at, &self.pairs, bound, self.watch)
    }

    /// Returns a lower estimate of the largest eigenvalue of the correlation matrix of all columns.
    pub(crate) fn largest_eigenvalue(&self) -> Result<f64, Error> {
        self.gradient.largest_eigenvalue(self.couples, self.watch)
    }
}
