//! Divides a fit into rounds. A round is a computation on the training rows, such as a pass over them, and the step
//! that follows from its result.
//!
//! The computation consists of units of work, which several processes can share. [`Rounds::compute`] returns the
//! results of some units as bytes. When a process has the results of all units, [`Rounds::complete`] takes the step.
//! Every process takes the same step, so all processes have the same state. [`Rounds::advance`] computes all units
//! in this process. Both ways give the same bits.

use crate::fit::Training;
use crate::gradient::{Gradient, Pass, sorted};
use crate::gram::Gram;
use crate::iterate::Iterate;
use crate::model::Model;
use crate::objective::Objective;
use crate::stored::{Stored, damaged, stored_variants, write_all};
use crate::wide::Float;
use manylabel_base::{Error, Watch, push};
use manylabel_sparse::Sparse;
use std::ops::Range;

/// Name of the results of a round in error messages about memory.
const RESULTS: &str = "size of the results of a round";

/// A fit between two rounds.
pub(crate) trait Rounds: Send + Sync {
    /// Returns the number of units of work of the next round, or 0 if there is no further round.
    fn n_units(&self) -> usize;

    /// Returns the approximate number of multiplications of the next round.
    fn work(&self) -> f64;

    /// Makes the next round in this process.
    fn advance(&mut self, watch: &Watch) -> Result<(), Error>;

    /// Computes some units of the next round, and returns the result of each unit.
    fn compute(&mut self, units: &Range<usize>, watch: &Watch) -> Result<Vec<Vec<u8>>, Error>;

    /// Ends the next round with the results of all its units, in order. Each entry has one or several results.
    fn complete(&mut self, results: &[&[u8]], watch: &Watch) -> Result<(), Error>;

    /// Returns the fit in double precision that follows this fit, or this fit if none follows.
    fn continued(
        self: Box<Self>,
        training: &Training,
        x: Sparse<'_>,
        watch: &Watch,
    ) -> Result<Box<dyn Rounds>, Error>;

    /// Writes the solution to `model`. Returns the number of labels that were reported as finished.
    fn finish(&self, training: &Training, model: &mut Model, watch: &Watch)
    -> Result<usize, Error>;

    /// Returns the form of the state.
    fn form(&self) -> Form;

    /// Appends the state to `out`.
    fn store(&self, out: &mut Vec<u8>) -> Result<(), Error>;
}

/// The form of the state of a fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Form {
    /// A fit in single precision.
    Single,
    /// A fit in double precision.
    Double,
    /// The procedure of the method's authors.
    Reference,
}

stored_variants!([] Form {
    0u8 Single,
    1u8 Double,
    2u8 Reference,
});

/// The computation of a round.
pub(crate) enum Need<'a, T, const N: usize> {
    /// No computation, because the fit has ended.
    Nothing,
    /// The second moments of all columns.
    Moments,
    /// The largest eigenvalue of the correlation matrix.
    Eigenvalue,
    /// A pass over the rows.
    Pass(Pass<'a, T, N>),
    /// The pairs of labels that may need a coupling at a point. Their slopes have at least the given absolute value.
    Pairs(&'a Iterate<T, N>, f64),
}

/// The result of a round.
pub(crate) enum Found<T> {
    Moments(Gram<T>),
    Eigenvalue(f64),
    /// The sums are stored in the objective.
    Sums,
    Pairs(Vec<(u32, u32)>),
}

impl<T: Float, const N: usize> Need<'_, T, N> {
    /// Returns the number of units of work. The largest eigenvalue is a single unit, since its steps follow one
    /// another.
    pub(crate) fn n_units(&self, gradient: &Gradient<T, N>) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Moments => Gram::n_units(gradient),
            Self::Eigenvalue => 1,
            Self::Pass(pass) => gradient.n_units(pass.active),
            Self::Pairs(..) => gradient.n_panels(),
        }
    }

    /// Returns the approximate number of multiplications.
    pub(crate) fn work(&self, gradient: &Gradient<T, N>) -> f64 {
        match self {
            Self::Nothing | Self::Eigenvalue => 0.0,
            Self::Moments => gradient.work_of_lanes(Gram::n_units(gradient) * N),
            Self::Pass(pass) => gradient.work(pass.active),
            Self::Pairs(..) => gradient.work_of_lanes(gradient.n_panels() * N),
        }
    }

    /// Does all the work.
    pub(crate) fn found(
        self,
        objective: &mut Objective<T, N>,
        watch: &Watch,
    ) -> Result<Found<T>, Error> {
        Ok(match self {
            Self::Nothing => return Err(damaged()),
            Self::Moments => {
                let gradient = objective.gradient();
                let rows = Gram::rows(gradient, &(0..Gram::n_units(gradient)), watch)?;
                Found::Moments(Gram::new(gradient, rows)?)
            }
            Self::Eigenvalue => Found::Eigenvalue(objective.largest_eigenvalue(watch)?),
            Self::Pass(pass) => {
                let (gradient, pairs) = objective.gradient_mut();
                gradient.evaluate(pass, pairs, watch)?;
                Found::Sums
            }
            Self::Pairs(at, bound) => {
                let (gradient, pairs) = objective.gradient_mut();
                let panels = 0..gradient.n_panels();
                Found::Pairs(sorted(&gradient.beyond(at, pairs, bound, &panels, watch)?)?)
            }
        })
    }

    /// Does the work of some units. Returns the bytes of the result of each unit.
    pub(crate) fn computed(
        self,
        objective: &mut Objective<T, N>,
        units: &Range<usize>,
        watch: &Watch,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut results = Vec::new();
        let mut add = |write: &dyn Fn(&mut Vec<u8>) -> Result<(), Error>| {
            let mut bytes = Vec::new();
            write(&mut bytes)?;
            push(RESULTS, &mut results, bytes)
        };
        match self {
            Self::Nothing => return Err(damaged()),
            _ if units.is_empty() => {}
            Self::Moments => {
                let gradient = objective.gradient();
                let rows = Gram::rows(gradient, units, watch)?;
                for rows in rows.chunks(Gram::unit(gradient)) {
                    add(&|bytes| write_all(rows, bytes))?;
                }
            }
            Self::Eigenvalue => {
                let found = objective.largest_eigenvalue(watch)?;
                add(&|bytes| found.write(bytes))?;
            }
            Self::Pass(pass) => {
                let (gradient, pairs) = objective.gradient_mut();
                return gradient.evaluate_units(pass, units, pairs, watch);
            }
            Self::Pairs(at, bound) => {
                let (gradient, pairs) = objective.gradient_mut();
                for list in gradient.beyond(at, pairs, bound, units, watch)? {
                    add(&|bytes| list.write(bytes))?;
                }
            }
        }
        Ok(results)
    }

    /// Joins the results of all units, in order.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Param`] or [`Error::Shape`] if the bytes are not the results of this computation.
    pub(crate) fn joined(
        self,
        objective: &mut Objective<T, N>,
        results: &[&[u8]],
    ) -> Result<Found<T>, Error> {
        if let Self::Pass(pass) = self {
            let (gradient, pairs) = objective.gradient_mut();
            gradient.complete(pass, results, pairs)?;
            return Ok(Found::Sums);
        }
        let gradient = objective.gradient();
        let mut values = Vec::new();
        let mut eigenvalue = None;
        let mut lists: Vec<Vec<(u32, u32)>> = Vec::new();
        for &(mut from) in results {
            while !from.is_empty() {
                match self {
                    Self::Moments => push(RESULTS, &mut values, T::read(&mut from)?)?,
                    Self::Eigenvalue => eigenvalue = Some(f64::read(&mut from)?),
                    Self::Pairs(..) => push(RESULTS, &mut lists, Vec::read(&mut from)?)?,
                    Self::Pass(_) | Self::Nothing => return Err(damaged()),
                }
            }
        }
        match self {
            Self::Moments => Ok(Found::Moments(Gram::new(gradient, values)?)),
            Self::Eigenvalue => Ok(Found::Eigenvalue(eigenvalue.ok_or_else(damaged)?)),
            Self::Pairs(..) if lists.len() == gradient.n_panels() => {
                Ok(Found::Pairs(sorted(&lists)?))
            }
            _ => Err(damaged()),
        }
    }
}
