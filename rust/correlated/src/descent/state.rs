//! The state of a fit between two rounds.

use crate::gradient::Pass;
use crate::iterate::Iterate;
use crate::params::Penalty;
use crate::rounds::Need;
use crate::stored::{stored, stored_variants};
use crate::wide::Float;
use crate::{fista, quasi_newton};

/// What the present run of the solvers is for.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    /// The whole fit, which has no couplings or all couplings.
    Whole,
    /// Independent regressions, before couplings are added.
    Independent,
    /// The objective with the couplings that have been found.
    Search(Search),
}

/// The search for pairs of labels that need a coupling.
#[derive(Clone, Copy)]
pub(super) struct Search {
    /// The tolerance of the next run.
    pub(super) target: f64,
    /// Whether the last run had the tolerance of the fit.
    pub(super) done: bool,
    /// Whether the objective has all pairs.
    pub(super) all: bool,
    /// Number of gradients that were left before the present run.
    pub(super) before: usize,
}

stored!([] Search { target, done, all, before });

stored_variants!([] Phase {
    0u8 Whole,
    1u8 Independent,
    2u8 Search(search),
});

/// The state between two rounds. Its variants are named after the next round.
pub(super) enum State<T, const N: usize> {
    /// The second moments, for quasi-Newton steps from this point.
    Moments(Iterate<T, N>),
    /// A gradient of the quasi-Newton solver, which started at the first point.
    Newton(Iterate<T, N>, quasi_newton::Run<T, N>),
    /// The objective at the start of the quasi-Newton steps. The second point is their result.
    Before(Iterate<T, N>, Iterate<T, N>),
    /// The objective at the result of the quasi-Newton steps, which is the second point. The number is the objective
    /// at their start.
    After(Iterate<T, N>, Iterate<T, N>, f64),
    /// The largest eigenvalue, for proximal gradient steps from this point.
    Eigenvalue(Iterate<T, N>),
    /// A pass of the proximal gradient solver.
    Fista(fista::Run<T, N>),
    /// The pairs that need a coupling at this point.
    Pairs(Iterate<T, N>),
    /// The same pairs, if the fit has not converged. The KKT violation includes them.
    LastPairs(Iterate<T, N>),
    /// The objective and the gradient at the solution, and whether the fit has converged.
    Last(Iterate<T, N>, bool),
    /// The fit has ended in single precision, and a fit in double precision starts from this point.
    Rough(Iterate<T, N>),
    /// The fit has ended.
    End(End<T, N>),
    /// A round has failed. The fit cannot continue.
    Failed,
}

/// The solution.
pub(super) struct End<T, const N: usize> {
    pub(super) point: Iterate<T, N>,
    pub(super) converged: bool,
    pub(super) objective: f64,
    pub(super) violation: f64,
}

stored!([T: Float, const N: usize] End<T, N> { point, converged, objective, violation });

stored_variants!([T: Float, const N: usize] State<T, N> {
    0u8 Moments(point),
    1u8 Newton(start, run),
    2u8 Before(start, point),
    3u8 After(start, point, before),
    4u8 Eigenvalue(point),
    5u8 Fista(run),
    6u8 Pairs(point),
    7u8 LastPairs(point),
    8u8 Last(point, converged),
    9u8 Rough(point),
    10u8 End(end),
    11u8 Failed,
});

impl<T: Float, const N: usize> State<T, N> {
    /// Returns the computation of the next round. `all` has one flag per panel (group of N labels), and all flags are
    /// true. `pair` is the penalty of the couplings.
    pub(super) fn need<'a>(&'a self, all: &'a [bool], pair: Option<Penalty>) -> Need<'a, T, N> {
        let value_at = |at| {
            Need::Pass(Pass {
                active: all,
                at,
                with_loss: true,
            })
        };
        match self {
            Self::Moments(_) => Need::Moments,
            Self::Newton(_, run) => Need::Pass(run.pass()),
            Self::Before(at, _) | Self::After(_, at, _) | Self::Last(at, _) => value_at(at),
            Self::Eigenvalue(_) => Need::Eigenvalue,
            Self::Fista(run) => Need::Pass(run.pass(all)),
            // Each coupling is in the losses of its two labels, so it has two slopes. If both are below `l1 / 2`,
            // they sum to less than `l1`, so a coupling of zero is optimal.
            Self::Pairs(at) | Self::LastPairs(at) => {
                Need::Pairs(at, pair.map_or(f64::INFINITY, |pair| pair.l1 / 2.0))
            }
            Self::Rough(_) | Self::End(_) | Self::Failed => Need::Nothing,
        }
    }
}
