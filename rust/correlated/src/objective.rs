//! Defines the function that a fit minimizes: the loss plus elastic nets. Its variables are the
//! weights, the intercepts, and the couplings of a list of pairs of labels.
//!
//! A point consists of values of all these variables; see [`iterate`](crate::iterate).
//! [`Objective`] owns the data and the penalties, and the solvers own the points. At a given point,
//! [`Objective`] computes the value of the function, the gradient of the loss ([`Slope`]) and the
//! KKT violation. The coupling of a pair that is not in the list is zero. [`Gradient::beyond`]
//! finds the pairs that should have a nonzero coupling.
//!
//! Values and gradients are computed from the sums of a pass over the rows; see `gradient.rs` for its cost.

use crate::gradient::{Gradient, Pairs};
use crate::iterate::Iterate;
use crate::params::Penalty;
use crate::penalty::{Net, violations};
use crate::stored::stored;
use crate::wide::{Float, Wide};
use manylabel_base::{Error, Watch, collected, filled, push};
use rayon::prelude::*;

/// Relative increase of the objective that may be caused by rounding errors in single precision.
const RISE: f64 = 1e-5;

/// The objective of all labels, in single or double precision.
pub(crate) struct Objective<T, const N: usize> {
    /// The training data, and the function that computes the sums of a pass over the rows.
    gradient: Gradient<T, N>,
    /// The pairs of labels that may have a coupling.
    pairs: Pairs,
    /// The penalty of each row of the weights. The last row holds intercepts, so its penalty is
    /// zero.
    pub(crate) features: Vec<Net<T>>,
    /// The penalty of a coupling.
    pub(crate) pair: Net<T>,
    /// Whether the model may have couplings.
    couples: bool,
    /// For each label, `p (1 − p)`, where p is the fraction of rows with the label. It is the
    /// curvature of the loss of the label if predictions are constant.
    pub(crate) variance: Vec<f64>,
}

/// Returns whether an objective has increased from `before` to `now` by more than rounding errors. If a value is
/// NaN, the result is true.
pub(crate) fn risen(before: f64, now: f64) -> bool {
    let falls = now <= (1.0 + RISE) * before;
    !falls
}

/// The gradient of the loss at a point. It does not include the penalties.
pub(crate) struct Slope<T, const N: usize> {
    /// One number per weight and intercept, in the same layout as the weights of a point.
    pub(crate) weights: Vec<Wide<T, N>>,
    /// One number per pair of labels.
    pub(crate) couplings: Vec<T>,
    /// For each pair of labels, two derivatives with respect to the coupling of the pair. The first
    /// derivative is of the loss of the first label, the second derivative of the loss of the
    /// second label.
    pub(crate) halves: Vec<[T; 2]>,
}

stored!([T: Float, const N: usize] Slope<T, N> { weights, couplings, halves });

impl<T: Float, const N: usize> Slope<T, N> {
    /// Allocates memory for a gradient of `objective`.
    pub(crate) fn new(objective: &Objective<T, N>) -> Result<Self, Error> {
        Ok(Self {
            weights: filled("number of weights", Wide::zero(), objective.n_rows())?,
            couplings: Vec::new(),
            halves: Vec::new(),
        })
    }
}

impl<T: Float, const N: usize> Objective<T, N> {
    /// Creates an objective without pairs of labels.
    ///
    /// `features` holds the penalty of the weights of each feature. `pair` is the penalty of the
    /// couplings, or `None` if the model has no couplings.
    pub(crate) fn new(
        gradient: Gradient<T, N>,
        features: &[Penalty],
        pair: Option<Penalty>,
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
        })
    }

    /// Replaces the list of pairs that may have a coupling. `list` must be in increasing order.
    pub(crate) fn set_pairs(&mut self, list: Vec<(u32, u32)>) -> Result<(), Error> {
        self.pairs = Pairs::new::<N>(list, self.n_labels())?;
        Ok(())
    }

    /// Returns the pairs that may have a coupling, in increasing order.
    pub(crate) fn pairs(&self) -> &[(u32, u32)] {
        &self.pairs.list
    }

    /// Returns the training data and the sums of the last pass.
    pub(crate) fn gradient(&self) -> &Gradient<T, N> {
        &self.gradient
    }

    /// Returns the number of labels that take part in the fit.
    pub(crate) fn n_labels(&self) -> usize {
        self.variance.len()
    }

    /// Returns the number of rows in the weights of a panel (group of N labels). It is the number
    /// of features plus one for the intercept.
    pub(crate) fn height(&self) -> usize {
        self.features.len()
    }

    /// Returns the number of panels, which are groups of N labels. The last panel may be
    /// incomplete.
    pub(crate) fn n_panels(&self) -> usize {
        self.gradient.n_panels()
    }

    /// Returns the number of rows of the weights of all panels together. A panel is a group of N
    /// labels.
    pub(crate) fn n_rows(&self) -> usize {
        self.n_panels() * self.height()
    }

    /// Returns the training data, for passes over the rows and for their sums.
    pub(crate) fn gradient_mut(&mut self) -> (&mut Gradient<T, N>, &Pairs) {
        (&mut self.gradient, &self.pairs)
    }

    /// Returns the loss plus the penalties at a point. The last pass must have been at this point, for all panels
    /// (groups of N labels) and with the loss. Numbers are added in double precision and in a fixed order.
    pub(crate) fn value(&self, at: &Iterate<T, N>, watch: &Watch) -> Result<f64, Error> {
        let height = self.height();
        let mut value = 0.0;
        for label in 0..self.n_labels() {
            watch.step(0)?;
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

    /// Writes the gradient of the loss, computed from the sums of the last pass, to `out`. `active` has one flag
    /// per panel (group of N labels), and the last pass must have been for these panels.
    ///
    /// In `out`, the weights of all other panels do not change. A coupling has one derivative for
    /// each of its two labels. The derivative for a label is from the last pass in which the panel
    /// of the label was active.
    pub(crate) fn write(&self, active: &[bool], out: &mut Slope<T, N>) -> Result<(), Error> {
        out.weights
            .par_chunks_mut(self.height())
            .enumerate()
            .filter(|&(panel, _)| active[panel])
            .for_each(|(panel, slopes)| self.gradient.write(panel, slopes));
        out.couplings.clear();
        out.halves.clear();
        for [first, second] in self.gradient.halves(&self.pairs) {
            push(
                "number of couplings",
                &mut out.couplings,
                T::of(first + second),
            )?;
            push(
                "number of couplings",
                &mut out.halves,
                [T::of(first), T::of(second)],
            )?;
        }
        Ok(())
    }

    /// Returns, for each label, the largest KKT violation among its weights.
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

    /// Returns an estimate of the largest eigenvalue of the correlation matrix of all columns. The
    /// estimate is never too large.
    pub(crate) fn largest_eigenvalue(&self, watch: &Watch) -> Result<f64, Error> {
        self.gradient.largest_eigenvalue(self.couples, watch)
    }
}
