//! A run of the solver between two passes over the rows.

use super::Path;
use crate::gradient::Pass;
use crate::iterate::Iterate;
use crate::stop::{Outcome, Stop};
use crate::stored::{stored, stored_variants};
use crate::wide::Float;

/// A run of the solver, from one pass over the rows to the next.
pub(crate) struct Run<T, const N: usize> {
    /// The point where the next gradient is computed.
    pub(super) y: Iterate<T, N>,
    /// The last point where the objective was computed.
    pub(super) look: Iterate<T, N>,
    pub(super) path: Box<Path<T, N>>,
    /// A panel rests if no violation of its labels exceeds this number.
    pub(super) rest: f64,
    pub(super) stop: Stop,
    /// Number of gradients computed in this run.
    pub(super) n_iter: usize,
    pub(super) looking: Looking,
}

stored!([T: Float, const N: usize] Run<T, N> { y, look, path, rest, stop, n_iter, looking });

/// Which pass over the rows is next.
#[derive(Clone, Copy)]
pub(super) enum Looking {
    /// The gradient at y.
    Away,
    /// The objective at the last point where it was computed, or at the start of the run.
    Back,
    /// The objective at w. The number is the objective at the last point.
    Here(f64),
}

stored_variants!([] Looking {
    0u8 Away,
    1u8 Back,
    2u8 Here(before),
});

/// What follows after a pass over the rows.
pub(crate) enum Next<T, const N: usize> {
    /// The run needs another pass.
    Pass(Run<T, N>),
    /// The run has ended.
    End(Outcome<T, N>),
}

impl<T: Float, const N: usize> Run<T, N> {
    /// Returns the pass over the rows that the run needs next. `all` has one flag per panel (group of N labels),
    /// and all flags are true.
    pub(crate) fn pass<'a>(&'a self, all: &'a [bool]) -> Pass<'a, T, N> {
        let (active, at) = match self.looking {
            Looking::Away => (&self.path.active[..], &self.y),
            Looking::Back => (all, &self.look),
            Looking::Here(_) => (all, &self.path.w),
        };
        Pass {
            active,
            at,
            with_loss: !matches!(self.looking, Looking::Away),
        }
    }

    /// Returns whether the limit on the number of gradients is reached.
    pub(super) fn is_last(&self) -> bool {
        self.n_iter == self.stop.max_iter
    }
}
