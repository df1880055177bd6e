//! Minimizes the objective to a tolerance in one precision. Independent regressions are fitted first. Couplings are
//! then added for pairs of labels that occur together more or less often than the features predict.
//!
//! This module decides which pairs enter the objective, and which solver runs. It also decides the
//! number of computed gradients of each run. The solvers do not depend on each other.
//!
//! **Pairs.** With m labels there are `m (m − 1) / 2` possible couplings. The penalty of a coupling
//! c contains the term `l1 |c|`, which keeps most couplings at zero. The fit starts without
//! couplings. It adds the pairs whose gradient may exceed `l1` to the objective, and then minimizes
//! the objective. These two steps are repeated until no other pair can violate its optimality
//! condition. If there are at most 4096 pairs (about 90 labels), all pairs are added at once.
//!
//! **Solvers.** If the matrix of second moments of all columns is small enough, the fit begins with
//! quasi-Newton steps. FISTA continues from their result. If the quasi-Newton steps increased the
//! objective, they are undone and not used again.
//!
//! **Rounds.** A [`State`] has everything that is needed between two [rounds](crate::rounds), so that it can be
//! stored.

mod state;

use self::state::{End, Phase, Search, State};
use crate::fista::{self, Fista};
use crate::fit::Training;
use crate::gram::Gram;
use crate::iterate::Iterate;
use crate::model::{Model, Start};
use crate::objective::{Objective, Slope, risen};
use crate::params::{Penalty, Solver};
use crate::quasi_newton::{self, QuasiNewton};
use crate::rounds::{Form, Found, Rounds};
use crate::stop::{Progress, Stop};
use crate::stored::{Stored, damaged};
use crate::wide::Float;
use manylabel_base::{Error, Watch, collected, copied, extend, filled, reserved};
use manylabel_sparse::Sparse;
use std::ops::Range;

/// If there are at most this many possible pairs of labels, all pairs get a coupling at once.
const FEW_PAIRS: usize = 4096;

/// Name of the pairs in error messages about memory.
const PAIRS: &str = "number of pairs of labels";

/// Tolerance of the independent regressions that are fitted before any coupling. A loose tolerance
/// is enough, because their result is only a starting point.
const LOOSE: f64 = 0.1;

/// A fit in one precision.
pub(crate) struct Descent<T, const N: usize> {
    /// The objective, with the pairs of labels that have been added so far.
    objective: Objective<T, N>,
    /// The quasi-Newton solver. It is `None` if the user did not select it, if its steps would take
    /// too long, or if it has increased the objective.
    newton: Option<QuasiNewton<T>>,
    /// The accelerated proximal gradient solver.
    fista: Fista<T, N>,
    /// Counts finished labels.
    progress: Progress,
    /// Number of gradients that may still be computed.
    left: usize,
    /// The penalty of the couplings, or `None` if the model has no couplings.
    pair: Option<Penalty>,
    /// The tolerance of the fit.
    tol: f64,
    /// Whether a fit in double precision follows, because the tolerance cannot be reached in this precision.
    is_rough: bool,
    /// The tolerance of the present run of the solvers.
    target: f64,
    phase: Phase,
    state: State<T, N>,
    /// One flag per panel (group of N labels). All flags are true.
    all: Vec<bool>,
}

impl<const N: usize> Descent<f32, N> {
    /// Starts a fit in single precision.
    pub(crate) fn new(
        training: &Training,
        x: Sparse<'_>,
        start: Option<&Start<'_>>,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let pair = training.params.pairs();
        let mut objective = training.objective::<f32, N>(x, pair, true, watch)?;
        let mut point = training.units(&objective).initial(start)?;
        if let (Some(start), Some(_)) = (start, pair) {
            let (list, values) = training.units(&objective).coupled(start)?;
            objective.set_pairs(list)?;
            point.couplings = collected(
                "number of couplings",
                values.iter().map(|&value| value as f32),
            )?;
        }
        let fista = Fista::new(training.labels.len())?;
        let left = training.params.0.max_iter;
        let progress = Progress::default();
        Self::begin(
            training,
            objective,
            fista,
            progress,
            left,
            point,
            start.is_some(),
        )
    }
}

impl<T: Float, const N: usize> Descent<T, N> {
    /// Starts at a point. `warm` is true if the point comes from a starting model or from a fit in another
    /// precision. Otherwise independent regressions are fitted first, with a loose tolerance.
    fn begin(
        training: &Training,
        objective: Objective<T, N>,
        fista: Fista<T, N>,
        progress: Progress,
        left: usize,
        point: Iterate<T, N>,
        warm: bool,
    ) -> Result<Self, Error> {
        let params = &training.params;
        let tol = params.0.tol.max(T::FLOOR);
        let pair = params.pairs();
        let (phase, target) = match pair {
            Some(_) if !warm => (Phase::Independent, tol.max(LOOSE)),
            Some(_) => (
                Phase::Search(Search {
                    target: tol,
                    done: false,
                    all: false,
                    before: left,
                }),
                tol,
            ),
            None => (Phase::Whole, tol),
        };
        // The quasi-Newton solver is not useful if the parameter `epsilon` is 0. No weight is then zero, so the
        // matrix of each label contains all columns. Working on this matrix takes longer than the gradients that it
        // saves.
        let steps = params.0.solver != Solver::Fista && params.0.epsilon != 0.0;
        let steps = steps && Gram::is_useful(objective.gradient());
        let mut descent = Self {
            all: filled("number of labels", true, objective.n_panels())?,
            objective,
            newton: None,
            fista,
            progress,
            left,
            pair,
            tol,
            is_rough: params.0.tol < T::FLOOR,
            target,
            phase,
            state: State::Failed,
        };
        descent.state = if steps {
            State::Moments(point)
        } else {
            descent.ready(point)?
        };
        Ok(descent)
    }

    /// Starts the first run of the solvers, when the second moments are known or not needed.
    fn ready(&mut self, point: Iterate<T, N>) -> Result<State<T, N>, Error> {
        match self.phase {
            Phase::Whole | Phase::Independent => self.minimize(point),
            Phase::Search(_) => self.couple(point),
        }
    }

    /// Adds couplings to the objective. If there are few pairs of labels, all of them get a coupling.
    fn couple(&mut self, mut point: Iterate<T, N>) -> Result<State<T, N>, Error> {
        let m = self.objective.n_labels();
        if m * m / 2 <= FEW_PAIRS {
            self.set_pairs(all_pairs(m)?, &mut point)?;
            (self.phase, self.target) = (Phase::Whole, self.tol);
            return self.minimize(point);
        }
        self.phase = Phase::Search(Search {
            // The first round uses a loose tolerance, because the pairs that are added later change all
            // weights again.
            target: (10.0 * self.tol).min(self.tol.max(LOOSE)),
            done: false,
            all: false,
            before: self.left,
        });
        Ok(State::Pairs(point))
    }

    /// Minimizes the objective from a point. Stops when no KKT violation exceeds the tolerance of the run, or when
    /// the limit on the number of gradients is reached.
    ///
    /// Quasi-Newton steps come first, then accelerated gradients. If the quasi-Newton steps have
    /// increased the objective, they are undone, and later runs do not use them.
    fn minimize(&mut self, point: Iterate<T, N>) -> Result<State<T, N>, Error> {
        if self.left == 0 {
            return self.minimized(point, false);
        }
        if self.newton.is_none() {
            return self.accelerate(point);
        }
        let run = quasi_newton::Run::new(&self.objective, point.try_clone()?, self.stop())?;
        Ok(State::Newton(point, run))
    }

    /// Starts accelerated gradients.
    fn accelerate(&mut self, point: Iterate<T, N>) -> Result<State<T, N>, Error> {
        if !self.fista.is_bounded() {
            return Ok(State::Eigenvalue(point));
        }
        let stop = self.stop();
        Ok(State::Fista(self.fista.start(
            &self.objective,
            point,
            stop,
        )?))
    }

    /// Returns the stopping criteria of the present run.
    fn stop(&self) -> Stop {
        Stop {
            tol: self.target,
            max_iter: self.left,
        }
    }

    /// Continues after a run of the solvers. `converged` is true if the run has reached its tolerance.
    fn minimized(&mut self, point: Iterate<T, N>, converged: bool) -> Result<State<T, N>, Error> {
        match self.phase {
            Phase::Independent if converged => self.couple(point),
            Phase::Search(search) => {
                // If a single gradient shows that all violations are within the tolerance, the new
                // pairs have changed nothing.
                let unmoved = search.done && search.before - self.left == 1;
                if !converged || search.all || unmoved {
                    return Ok(self.end(point, converged));
                }
                self.phase = Phase::Search(Search {
                    target: self.tol,
                    done: search.target <= self.tol,
                    ..search
                });
                Ok(State::Pairs(point))
            }
            Phase::Whole | Phase::Independent => Ok(self.end(point, converged)),
        }
    }

    /// Adds the pairs of labels that may need a coupling to the objective, and minimizes it. Ends the fit if there
    /// are no new pairs.
    fn add_pairs(
        &mut self,
        mut point: Iterate<T, N>,
        found: &[(u32, u32)],
    ) -> Result<State<T, N>, Error> {
        let Phase::Search(mut search) = self.phase else {
            return Err(damaged());
        };
        let m = self.objective.n_labels();
        let known = self.objective.pairs();
        let coupled = known.iter().zip(&point.couplings);
        let coupled = coupled.filter(|(_, value)| value.f64() != 0.0);
        let list = merged(coupled.map(|(&pair, _)| pair), found)?;
        if search.done && list.iter().all(|pair| known.binary_search(pair).is_ok()) {
            return Ok(self.end(point, true));
        }
        search.all = list.len() == m * (m - 1) / 2;
        if search.all {
            search.target = self.tol;
        }
        self.set_pairs(list, &mut point)?;
        search.before = self.left;
        (self.phase, self.target) = (Phase::Search(search), search.target);
        self.minimize(point)
    }

    /// Ends the fit in this precision.
    fn end(&self, point: Iterate<T, N>, converged: bool) -> State<T, N> {
        if converged && self.is_rough {
            State::Rough(point)
        } else if converged || self.pair.is_none() {
            State::Last(point, converged)
        } else {
            State::LastPairs(point)
        }
    }

    /// Replaces the list of pairs that may have a coupling. The coupling of every removed pair must
    /// be zero.
    fn set_pairs(&mut self, list: Vec<(u32, u32)>, point: &mut Iterate<T, N>) -> Result<(), Error> {
        point.recouple(self.objective.pairs(), &list)?;
        self.objective.set_pairs(list)
    }

    /// Takes the step that follows from the result of a round.
    fn proceed(&mut self, found: Found<T>, watch: &Watch) -> Result<(), Error> {
        let state = std::mem::replace(&mut self.state, State::Failed);
        self.state = match (state, found) {
            (State::Moments(point), Found::Moments(gram)) => {
                self.newton = Some(QuasiNewton::new(gram, &self.objective.variance)?);
                self.ready(point)?
            }
            (State::Newton(start, run), Found::Sums) => self.step(start, run, watch)?,
            (State::Before(start, point), Found::Sums) => {
                let before = self.objective.value(&start, watch)?;
                State::After(start, point, before)
            }
            (State::After(start, mut point, before), Found::Sums) => {
                if risen(before, self.objective.value(&point, watch)?) {
                    point = start;
                    self.newton = None;
                }
                if self.left == 0 {
                    self.minimized(point, false)?
                } else {
                    self.accelerate(point)?
                }
            }
            (State::Eigenvalue(point), Found::Eigenvalue(found)) => {
                self.fista.bound(found, &self.objective);
                self.accelerate(point)?
            }
            (State::Fista(run), Found::Sums) => {
                let (objective, progress) = (&self.objective, &mut self.progress);
                match self.fista.proceed(objective, run, progress, watch)? {
                    fista::Next::Pass(run) => State::Fista(run),
                    fista::Next::End(end) => {
                        self.left -= end.n_iter;
                        self.minimized(end.iterate, end.converged)?
                    }
                }
            }
            (State::Pairs(point), Found::Pairs(found)) => self.add_pairs(point, &found)?,
            (State::LastPairs(mut point), Found::Pairs(found)) => {
                let list = merged(self.objective.pairs().iter().copied(), &found)?;
                self.set_pairs(list, &mut point)?;
                State::Last(point, false)
            }
            (State::Last(point, converged), Found::Sums) => {
                let objective = self.objective.value(&point, watch)?;
                let mut slope = Slope::new(&self.objective)?;
                self.objective.write(&self.all, &mut slope)?;
                State::End(End {
                    violation: self.objective.violation(&point, &slope)?,
                    objective,
                    converged,
                    point,
                })
            }
            _ => return Err(damaged()),
        };
        Ok(())
    }

    /// Takes a quasi-Newton step.
    fn step(
        &mut self,
        start: Iterate<T, N>,
        run: quasi_newton::Run<T, N>,
        watch: &Watch,
    ) -> Result<State<T, N>, Error> {
        let Some(newton) = &mut self.newton else {
            return Err(damaged());
        };
        match newton.proceed(&self.objective, run, &mut self.progress, watch)? {
            quasi_newton::Next::Pass(run) => Ok(State::Newton(start, run)),
            quasi_newton::Next::End(end) => {
                self.left -= end.n_iter;
                if end.converged {
                    return self.minimized(end.iterate, true);
                }
                Ok(State::Before(start, end.iterate))
            }
        }
    }

    /// Reads a state that [`store`](Rounds::store) has written.
    pub(crate) fn read(
        training: &Training,
        x: Sparse<'_>,
        from: &mut &[u8],
        watch: &Watch,
    ) -> Result<Self, Error> {
        let pair = training.params.pairs();
        let mut objective = training.objective::<T, N>(x, pair, true, watch)?;
        objective.set_pairs(Stored::read(from)?)?;
        objective.gradient_mut().0.read_sums(from)?;
        Ok(Self {
            all: filled("number of labels", true, objective.n_panels())?,
            objective,
            newton: Stored::read(from)?,
            fista: Stored::read(from)?,
            progress: Stored::read(from)?,
            left: Stored::read(from)?,
            pair,
            tol: training.params.0.tol.max(T::FLOOR),
            is_rough: training.params.0.tol < T::FLOOR,
            target: Stored::read(from)?,
            phase: Stored::read(from)?,
            state: Stored::read(from)?,
        })
    }
}

impl<T: Float, const N: usize> Rounds for Descent<T, N> {
    fn n_units(&self) -> usize {
        self.state
            .need(&self.all, self.pair)
            .n_units(self.objective.gradient())
    }

    fn work(&self) -> f64 {
        self.state
            .need(&self.all, self.pair)
            .work(self.objective.gradient())
    }

    fn advance(&mut self, watch: &Watch) -> Result<(), Error> {
        let need = self.state.need(&self.all, self.pair);
        let found = need.found(&mut self.objective, watch)?;
        self.proceed(found, watch)
    }

    fn compute(&mut self, units: &Range<usize>, watch: &Watch) -> Result<Vec<Vec<u8>>, Error> {
        let need = self.state.need(&self.all, self.pair);
        need.computed(&mut self.objective, units, watch)
    }

    fn complete(&mut self, results: &[&[u8]], watch: &Watch) -> Result<(), Error> {
        let need = self.state.need(&self.all, self.pair);
        let found = need.joined(&mut self.objective, results)?;
        self.proceed(found, watch)
    }

    fn continued(
        self: Box<Self>,
        training: &Training,
        x: Sparse<'_>,
        watch: &Watch,
    ) -> Result<Box<dyn Rounds>, Error> {
        let State::Rough(point) = self.state else {
            return Ok(self);
        };
        let list = copied(PAIRS, self.objective.pairs())?;
        let (fista, point) = (self.fista.convert()?, point.convert()?);
        let (progress, left) = (self.progress, self.left);
        // Frees the memory of the data in single precision, before they are copied in double precision.
        drop((self.objective, self.newton, self.fista));
        let mut objective = training.objective::<f64, N>(x, self.pair, true, watch)?;
        objective.set_pairs(list)?;
        let next = Descent::begin(training, objective, fista, progress, left, point, true)?;
        Ok(Box::new(next))
    }

    fn finish(
        &self,
        training: &Training,
        model: &mut Model,
        watch: &Watch,
    ) -> Result<usize, Error> {
        let State::End(end) = &self.state else {
            return Err(damaged());
        };
        let (objective, point) = (&self.objective, &end.point);
        let units = training.units(objective);
        units.write(point, objective.pairs(), true, model, watch)?;
        (model.objective, model.violation) = (end.objective, end.violation);
        model.n_iter = training.params.0.max_iter - self.left;
        model.converged = end.converged && end.objective.is_finite();
        Ok(self.progress.reported)
    }

    fn form(&self) -> Form {
        T::FORM
    }

    fn store(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        copied(PAIRS, self.objective.pairs())?.write(out)?;
        self.objective.gradient().write_sums(out)?;
        self.newton.write(out)?;
        self.fista.write(out)?;
        self.progress.write(out)?;
        self.left.write(out)?;
        self.target.write(out)?;
        self.phase.write(out)?;
        self.state.write(out)
    }
}

/// Returns all pairs of m labels, in increasing order.
pub(crate) fn all_pairs(m: usize) -> Result<Vec<(u32, u32)>, Error> {
    let mut pairs = reserved(PAIRS, m * (m - 1) / 2)?;
    for i in 0..m as u32 {
        extend(PAIRS, &mut pairs, (i + 1..m as u32).map(|k| (i, k)))?;
    }
    Ok(pairs)
}

/// Returns the sorted union of two lists of pairs.
fn merged(a: impl Iterator<Item = (u32, u32)>, b: &[(u32, u32)]) -> Result<Vec<(u32, u32)>, Error> {
    let mut all = collected(PAIRS, a)?;
    extend(PAIRS, &mut all, b.iter().copied())?;
    all.sort_unstable();
    all.dedup();
    Ok(all)
}
