//! What a fit minimizes: loss and elastic nets, as a function of weights and of the couplings of some
//! pairs of labels.
//!
//! It owns the data and the penalties, and no point: solvers hold those and ask for the value, the
//! slope of the loss and the violation of optimality at them.

use crate::gradient::{Gradient, Pairs};
use crate::iterate::Iterate;
use crate::params::Penalty;
use crate::penalty::{Net, violations};
use crate::wide::{Float, Wide};
use manylabel_base::{Error, Watch, collected, filled, push};
use rayon::prelude::*;

/// The share by which an objective may seem to rise: by rounding, in single precision.
const RISE: f64 = 1e-5;

/// The objective of the labels in one precision.
pub(crate) struct Objective<'a, T, const N: usize> {
    gradient: Gradient<'a, T, N>,
    pairs: Pairs,
    /// One a row of a panel: features, and none of the intercept.
    pub(crate) features: Vec<Net<T>>,
    pub(crate) pair: Net<T>,
    /// Whether there may be pairs.
    couples: bool,
    /// p (1 − p) of every label, which is the curvature of its loss where predictions are constant.
    pub(crate) variance: Vec<f64>,
    pub(crate) watch: &'a Watch,
}

/// The gradient of the loss at some point.
pub(crate) struct Slope<T, const N: usize> {
    /// As weights of the point.
    pub(crate) weights: Vec<Wide<T, N>>,
    /// One a pair.
    pub(crate) couplings: Vec<T>,
    /// The parts of those from the losses of the first and of the second label of the pair.
    pub(crate) halves: Vec<[T; 2]>,
}

impl<T: Float, const N: usize> Slope<T, N> {
    /// Room for the slopes of an objective.
    pub(crate) fn new(objective: &Objective<'_, T, N>) -> Result<Self, Error> {
        Ok(Self {
            weights: filled("weights", Wide::zero(), objective.n_rows())?,
            couplings: Vec::new(),
            halves: Vec::new(),
        })
    }
}

impl<'a, T: Float, const N: usize> Objective<'a, T, N> {
    /// `features`: the penalty of each feature's weights; `pair`: that of couplings, if there may be any.
    /// No pair has one yet.
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

    /// Replaces the pairs whose couplings are not held at zero; `list`: in increasing order.
    pub(crate) fn set_pairs(&mut self, list: Vec<(u32, u32)>) -> Result<(), Error> {
        self.pairs = Pairs::new::<N>(list, self.n_labels())?;
        Ok(())
    }

    /// The pairs whose couplings are not held at zero, in increasing order.
    pub(crate) fn pairs(&self) -> &[(u32, u32)] {
        &self.pairs.list
    }

    /// The data.
    pub(crate) fn gradient(&self) -> &Gradient<'a, T, N> {
        &self.gradient
    }

    pub(crate) fn n_labels(&self) -> usize {
        self.variance.len()
    }

    /// Rows of a panel's weights: features, and the intercept.
    pub(crate) fn height(&self) -> usize {
        self.features.len()
    }

    pub(crate) fn n_panels(&self) -> usize {
        self.gradient.n_panels()
    }

    /// Rows of the weights of all panels.
    pub(crate) fn n_rows(&self) -> usize {
        self.n_panels() * self.height()
    }

    /// Loss and penalties at a point.
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

    /// Whether the value at one point is above that at a point before, by more than rounding; NaN is.
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

    /// Writes the slope of the loss at a point, for the labels of the panels that are `active`.
    ///
    /// The weights of the others stay as they are in `out`; couplings have the part of a label that is
    /// not active as it was when it was last looked at.
    pub(crate) fn slope(
        &mut self,
        active: &[bool],
        at: &Iterate<T, N>,
        out: &mut Slope<T, N>,
    ) -> Result<(), Error> {
        self.pass(active, at, false)?;
        self.write(active, out)
    }

    /// Value and slope at a point, by one pass over the rows.
    pub(crate) fn value_and_slope(
        &mut self,
        at: &Iterate<T, N>,
        out: &mut Slope<T, N>,
    ) -> Result<f64, Error> {
        let value = self.value(at)?;
        self.write(&self.all_panels()?, out)?;
        Ok(value)
    }

    fn all_panels(&self) -> Result<Vec<bool>, Error> {
        filled("number of labels", true, self.n_panels())
    }

    fn pass(&mut self, active: &[bool], at: &Iterate<T, N>, with_loss: bool) -> Result<(), Error> {
        self.gradient
            .evaluate(active, at, &self.pairs, with_loss, self.watch)
    }

    /// Writes the slope of the last pass.
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

    /// The largest violation of optimality among the weights of each label.
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

    /// The largest violation of optimality among all weights and couplings.
    pub(crate) fn violation(&self, at: &Iterate<T, N>, slope: &Slope<T, N>) -> Result<f64, Error> {
        let of_pairs = at.couplings.iter().zip(&slope.couplings);
        let of_pairs = of_pairs.map(|(&value, &slope)| self.pair.violation(value, slope).f64());
        let found = self.violations(at, slope)?.into_iter().chain(of_pairs);
        Ok(found.fold(0.0, f64::max))
    }

    /// The pairs that the loss of one of their labels alone asks for, by a slope of at least `bound`;
    /// in increasing order.
    pub(crate) fn beyond(
        &mut self,
        at: &Iterate<T, N>,
        bound: f64,
    ) -> Result<Vec<(u32, u32)>, Error> {
        self.gradient.beyond(at, &self.pairs, bound, self.watch)
    }

    /// An estimate from below of the largest eigenvalue of the correlations among all columns.
    pub(crate) fn largest_eigenvalue(&self) -> Result<f64, Error> {
        self.gradient.largest_eigenvalue(self.couples, self.watch)
    }
}
