//! Defines the Python class that fits label embeddings in pieces.

use crate::arrays::handed;
use crate::csr::{Examples, with_labels};
use crate::error::to_py;
use crate::params::Named;
use crate::pls::{Fitted, checked, fitted};
use crate::run::Job;
use crate::tree_pieces::item;
use manylabel_base::{copied, few};
use manylabel_pls::{Piece, Task};
use manylabel_sparse::{Real, with_sparse};
use numpy::{Element, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The training set of an embedding, for fits of ranges of units.
#[pyclass(module = "manylabel._core")]
pub(crate) struct PlsTask {
    task: AnyTask,
    /// The numbers of features and labels.
    sizes: (usize, usize),
}

/// A task in the precision of X.
enum AnyTask {
    Single(Box<Task<f32>>),
    Double(Box<Task<f64>>),
}

impl From<Task<f32>> for AnyTask {
    fn from(task: Task<f32>) -> Self {
        Self::Single(Box::new(task))
    }
}

impl From<Task<f64>> for AnyTask {
    fn from(task: Task<f64>) -> Self {
        Self::Double(Box::new(task))
    }
}

/// Evaluates `$body` with `$task` bound to the task in either precision.
macro_rules! with_task {
    ($any:expr, |$task:ident| $body:expr) => {
        match $any {
            AnyTask::Single($task) => $body,
            AnyTask::Double($task) => $body,
        }
    };
}

/// Reads the arrays of a piece by name.
fn piece_of<T: Element + Copy>(dict: &Bound<'_, PyDict>) -> PyResult<Piece<T>> {
    let numbers: PyReadonlyArray1<'_, f64> = item(dict, "numbers")?.extract()?;
    let panels: PyReadonlyArray1<'_, T> = item(dict, "panels")?.extract()?;
    Ok(Piece {
        numbers: copied("numbers", numbers.as_slice()?).map_err(to_py)?,
        panels: copied("panels", panels.as_slice()?).map_err(to_py)?,
        n_steps: item(dict, "n_steps")?.extract()?,
        n_unfinished: item(dict, "n_unfinished")?.extract()?,
    })
}

/// Returns the arrays of a piece by name.
fn dict_of<T: Element>(py: Python<'_>, piece: Piece<T>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("numbers", handed(py, piece.numbers)?)?;
    dict.set_item("panels", handed(py, piece.panels)?)?;
    dict.set_item("n_steps", piece.n_steps)?;
    dict.set_item("n_unfinished", piece.n_unfinished)?;
    Ok(dict)
}

/// Completes a stage of a task with the arrays of its pieces.
fn complete<T: Real + Element + Copy>(
    py: Python<'_>,
    task: &mut Task<T>,
    pieces: &[Bound<'_, PyDict>],
    job: &Job,
) -> PyResult<()> {
    let pieces: Vec<Piece<T>> = few::<_, PyResult<_>>(pieces.iter().map(piece_of))?;
    job.run(py, |watch| task.complete(&pieces, watch))
}

#[pymethods]
impl PlsTask {
    /// Prepares a training set with a sparse X. The data are copied.
    #[new]
    fn new(py: Python<'_>, examples: Examples<'_>, params: Named<'_>, job: Job) -> PyResult<Self> {
        let params = checked(&params)?;
        let sizes = examples.sizes();
        let (x, y, weights) = examples.unchecked()?;
        let task = job.run(py, |watch| {
            with_labels!(y, |y| with_sparse!(x.sparse()?, |x| {
                params.task(x, y, weights, watch).map(AnyTask::from)
            }))
        })?;
        Ok(Self { task, sizes })
    }

    /// The first unit of each stage, and the number of units.
    #[getter]
    fn stages(&self) -> PyResult<Vec<usize>> {
        with_task!(&self.task, |task| task.stages()).map_err(to_py)
    }

    /// Fits the units `first..end` of the first stage that is not complete. Returns the arrays of the piece by
    /// name.
    fn fit<'py>(
        &mut self,
        py: Python<'py>,
        first: usize,
        end: usize,
        job: Job,
    ) -> PyResult<Bound<'py, PyDict>> {
        with_task!(&mut self.task, |task| {
            let piece = job.run(py, |watch| task.fit(&(first..end), watch))?;
            dict_of(py, piece)
        })
    }

    /// Completes a stage with the arrays of its pieces.
    fn complete(
        &mut self,
        py: Python<'_>,
        pieces: Vec<Bound<'_, PyDict>>,
        job: Job,
    ) -> PyResult<()> {
        with_task!(&mut self.task, |task| complete(py, task, &pieces, &job))
    }

    /// Moves the model out of the task, when all stages except the last are complete. Returns the same as
    /// `fit_pls`.
    fn take_model<'py>(&mut self, py: Python<'py>, job: Job) -> PyResult<Fitted<'py>> {
        let (n_features, n_labels) = self.sizes;
        with_task!(&mut self.task, |task| {
            let model = job.run(py, |_| task.model())?;
            fitted(py, model, n_features, n_labels)
        })
    }
}
