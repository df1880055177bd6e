//! Defines the Python class that fits the correlated logistic model in rounds.

use crate::arrays::{U8s, handed};
use crate::correlated::{Fitted, checked, fitted};
use crate::csr::{Examples, PyCsr, PyRows, Unchecked};
use crate::error::to_py;
use crate::params::Named;
use crate::run::Job;
use manylabel_base::{Error, few};
use manylabel_correlated::Task;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use std::time::{Duration, Instant};

/// A fit in rounds. Methods that need X or Y get them again, since a task does not keep them.
#[pyclass(module = "manylabel._core")]
pub(crate) struct CorrelatedTask(Option<Task>);

impl CorrelatedTask {
    fn task(&self) -> PyResult<&Task> {
        self.0.as_ref().ok_or_else(|| to_py(taken()))
    }

    fn task_mut(&mut self) -> PyResult<&mut Task> {
        self.0.as_mut().ok_or_else(|| to_py(taken()))
    }
}

/// Returns the error for a task whose model has been taken.
fn taken() -> Error {
    Error::Param {
        name: "task",
        expected: "a task whose model has not been taken",
        got: "another task".into(),
    }
}

#[pymethods]
impl CorrelatedTask {
    /// Prepares a fit. `unknown`, if given, has the pairs of row and label that are unknown.
    #[new]
    fn new(
        py: Python<'_>,
        examples: Examples<'_>,
        unknown: Option<PyCsr<'_>>,
        params: Named<'_>,
        job: Job,
    ) -> PyResult<Self> {
        let params = checked(&params)?;
        let (x, y, sample_weight) = examples.unchecked()?;
        let unknown = unknown.as_ref().map(|unknown| unknown.unchecked("Y"));
        let unknown = unknown.transpose()?;
        let task = job.run(py, |watch| {
            let unknown = unknown.map(Unchecked::to_owned).transpose()?;
            let (x, y) = (x.sparse()?, y.sparse()?);
            params.task(x, y, unknown.as_ref(), sample_weight, None, watch)
        })?;
        Ok(Self(Some(task)))
    }

    /// The number of rounds so far.
    #[getter]
    fn n_rounds(&self) -> PyResult<usize> {
        Ok(self.task()?.n_rounds())
    }

    /// The number of units of work of the next round, or 0 if the fit has ended.
    #[getter]
    fn n_units(&self) -> PyResult<usize> {
        Ok(self.task()?.n_units())
    }

    /// The approximate number of multiplications of the next round.
    #[getter]
    fn work(&self) -> PyResult<f64> {
        Ok(self.task()?.work())
    }

    /// Makes rounds until the fit has ended, until the next round has several units and at least `least`
    /// multiplications, or until `seconds` have passed after a round.
    fn advance(
        &mut self,
        py: Python<'_>,
        x: PyRows<'_>,
        least: f64,
        seconds: f64,
        job: Job,
    ) -> PyResult<()> {
        let task = self.task_mut()?;
        let x = x.unchecked()?;
        let (begun, seconds) = (Instant::now(), Duration::from_secs_f64(seconds.max(0.0)));
        job.run(py, |watch| {
            let x = x.sparse()?;
            while task.n_units() == 1 || task.n_units() > 1 && task.work() < least {
                task.advance(x, watch)?;
                if begun.elapsed() >= seconds {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Computes the units `first..end` of the next round, and returns the result of each unit.
    fn compute<'py>(
        &mut self,
        py: Python<'py>,
        first: usize,
        end: usize,
        job: Job,
    ) -> PyResult<Vec<U8s<'py>>> {
        let task = self.task_mut()?;
        let results = job.run(py, |watch| task.compute(&(first..end), watch))?;
        few(results.into_iter().map(|bytes| handed(py, bytes)))
    }

    /// Ends the next round with the results of all its units, in order. Each array has the results of one or
    /// several units.
    fn complete(
        &mut self,
        py: Python<'_>,
        results: Vec<PyReadonlyArray1<'_, u8>>,
        x: PyRows<'_>,
        job: Job,
    ) -> PyResult<()> {
        let task = self.task_mut()?;
        let x = x.unchecked()?;
        let results = results.iter().map(|result| Ok(result.as_slice()?));
        let results: Vec<&[u8]> = few::<_, PyResult<_>>(results)?;
        job.run(py, |watch| task.complete(&results, x.sparse()?, watch))
    }

    /// Returns the state, from which another task with the same data and parameters can continue.
    fn state<'py>(&self, py: Python<'py>, job: Job) -> PyResult<U8s<'py>> {
        let task = self.task()?;
        let bytes = job.run(py, |_| task.state())?;
        handed(py, bytes)
    }

    /// Continues from a state.
    fn restore(
        &mut self,
        py: Python<'_>,
        state: PyReadonlyArray1<'_, u8>,
        x: PyRows<'_>,
        job: Job,
    ) -> PyResult<()> {
        let task = self.task_mut()?;
        let (state, x) = (state.as_slice()?, x.unchecked()?);
        job.run(py, |watch| task.restore(state, x.sparse()?, watch))
    }

    /// Moves the model out of the task, when the fit has ended. Returns the same as `fit_correlated`.
    fn take_model<'py>(
        &mut self,
        py: Python<'py>,
        y: PyCsr<'py>,
        job: Job,
    ) -> PyResult<Fitted<'py>> {
        let task = self.0.take().ok_or_else(|| to_py(taken()))?;
        let y = y.unchecked("Y")?;
        let model = job.run(py, |watch| task.model(y.sparse()?, watch))?;
        fitted(py, model)
    }
}
