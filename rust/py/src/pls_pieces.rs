//! Defines the Python class that fits label embeddings in pieces.

use crate::arrays::handed;
use crate::csr::{PyCsr, Unchecked, values, with_labels};
use crate::error::to_py;
use crate::held::HeldView;
use crate::params::Named;
use crate::pls::{Fitted, checked, fitted};
use crate::run::Job;
use crate::tree_pieces::item;
use manylabel_base::{Error, Watch, copied, few};
use manylabel_pls::{Checked, Piece, Task};
use manylabel_sparse::{DenseView, Real, with_sparse};
use numpy::{Element, PyReadonlyArray1, PyUntypedArray};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use self_cell::self_cell;

/// What a task borrows: a dense X, or nothing, because it has copied a sparse X.
enum Kept {
    Nothing,
    Dense32(HeldView<f32>),
    Dense64(HeldView<f64>),
}

impl Kept {
    /// Keeps a dense X.
    fn dense(x: &Bound<'_, PyAny>) -> PyResult<Self> {
        match x.extract() {
            Ok(x) => Ok(Self::Dense32(x)),
            Err(_) => Ok(Self::Dense64(x.extract()?)),
        }
    }
}

/// A task in the precision of X.
enum AnyTask<'x> {
    Single(Box<Task<'x, f32>>),
    Double(Box<Task<'x, f64>>),
}

impl<'x> From<Task<'x, f32>> for AnyTask<'x> {
    fn from(task: Task<'x, f32>) -> Self {
        Self::Single(Box::new(task))
    }
}

impl<'x> From<Task<'x, f64>> for AnyTask<'x> {
    fn from(task: Task<'x, f64>) -> Self {
        Self::Double(Box::new(task))
    }
}

self_cell!(
    struct Cell {
        owner: Kept,

        #[not_covariant]
        dependent: AnyTask,
    }
);

/// The training set of an embedding, for fits of ranges of units.
#[pyclass(module = "manylabel._core")]
pub(crate) struct PlsTask {
    task: Cell,
    /// The numbers of features and labels.
    sizes: (usize, usize),
}

/// Prepares a training set with a dense X.
fn dense_task<'x, T: Real>(
    params: &Checked,
    x: &'x HeldView<T>,
    y: Unchecked<'_>,
    weights: Option<&[f32]>,
    watch: &Watch,
) -> Result<AnyTask<'x>, Error>
where
    AnyTask<'x>: From<Task<'x, T>>,
{
    let x = DenseView::new(&x.view())?;
    with_labels!(y, |y| params
        .dense_task(x, y, weights, watch)
        .map(AnyTask::from))
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
        numbers: copied("length of numbers", numbers.as_slice()?).map_err(to_py)?,
        panels: copied("length of panels", panels.as_slice()?).map_err(to_py)?,
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
    task: &mut Task<'_, T>,
    pieces: &[Bound<'_, PyDict>],
    job: &Job,
) -> PyResult<()> {
    let pieces: Vec<Piece<T>> = few::<_, PyResult<_>>(pieces.iter().map(piece_of))?;
    job.run(py, |watch| task.complete(&pieces, watch))
}

#[pymethods]
impl PlsTask {
    /// Prepares a training set. `examples` are X, Y, and the row weights or None. A dense X is read in place, and other
    /// data are copied.
    #[new]
    fn new(
        py: Python<'_>,
        examples: (
            Bound<'_, PyAny>,
            PyCsr<'_>,
            Option<PyReadonlyArray1<'_, f32>>,
        ),
        params: Named<'_>,
        job: Job,
    ) -> PyResult<Self> {
        let params = checked(&params)?;
        let (x, y, weights) = &examples;
        let n_features = x.getattr("shape")?.extract::<(usize, usize)>()?.1;
        let sizes = (n_features, y.shape().1);
        let (y, weights) = (y.unchecked("Y")?, values(weights.as_ref())?);
        if x.cast::<PyUntypedArray>().is_ok() {
            let x = Kept::dense(x)?;
            let task = job.run(py, |watch| {
                Cell::try_new(x, |x| match x {
                    Kept::Nothing => unreachable!("X is dense"),
                    Kept::Dense32(x) => dense_task(&params, x, y, weights, watch),
                    Kept::Dense64(x) => dense_task(&params, x, y, weights, watch),
                })
            })?;
            return Ok(Self { task, sizes });
        }
        let x: PyCsr<'_> = x.extract()?;
        let x = x.unchecked("X")?;
        let task = job.run(py, |watch| {
            Cell::try_new(Kept::Nothing, |_| {
                with_labels!(y, |y| with_sparse!(x.sparse()?, |x| {
                    params.task(x, y, weights, watch).map(AnyTask::from)
                }))
            })
        })?;
        Ok(Self { task, sizes })
    }

    /// The first unit of each stage, and the number of units.
    #[getter]
    fn stages(&self) -> PyResult<Vec<usize>> {
        let stages = self
            .task
            .with_dependent(|_, task| with_task!(task, |task| task.stages()));
        stages.map_err(to_py)
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
        self.task.with_dependent_mut(|_, task| {
            with_task!(task, |task| {
                let piece = job.run(py, |watch| task.fit(&(first..end), watch))?;
                dict_of(py, piece)
            })
        })
    }

    /// Completes a stage with the arrays of its pieces.
    fn complete(
        &mut self,
        py: Python<'_>,
        pieces: Vec<Bound<'_, PyDict>>,
        job: Job,
    ) -> PyResult<()> {
        self.task.with_dependent_mut(|_, task| {
            with_task!(task, |task| complete(py, task, &pieces, &job))
        })
    }

    /// Moves the model out of the task, when all stages except the last are complete. Returns the same as
    /// `fit_pls`.
    fn take_model<'py>(&mut self, py: Python<'py>, job: Job) -> PyResult<Fitted<'py>> {
        let (n_features, n_labels) = self.sizes;
        self.task.with_dependent_mut(|_, task| {
            with_task!(task, |task| {
                let model = job.run(py, |_| task.model())?;
                fitted(py, model, n_features, n_labels)
            })
        })
    }
}
