//! Defines the Python functions that fit label trees in pieces.

use crate::arrays::{I64s, handed};
use crate::csr::{PyCsr, PyFactors, Unchecked, values};
use crate::error::to_py;
use crate::params::Named;
use crate::pieces::PyPrepared;
use crate::run::Job;
use crate::table::{AnyExamples, PyColumns, PyTable, PyTableOrCsr, TableOrCsr, rows, slices};
use crate::tree::{arrays, checked};
use manylabel_base::{Error, collected, copied, few};
use manylabel_linear::dismec::{Factors, Targets};
use manylabel_sparse::{LabelsOwned, Rows, Stored};
use manylabel_tree::{Combine, Piece, States, Task, TreeArrays, Trees, joined};
use numpy::{Element, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use self_cell::self_cell;

/// What a task borrows.
struct Owner {
    /// The rows that are stored on disk.
    prepared: Option<PyPrepared>,
    /// A dense X.
    table: Option<PyTable>,
    y: LabelsOwned,
    factors: Option<Vec<Factors>>,
    weights: Option<Vec<f32>>,
}

/// A task that borrows its data from one owner.
type BorrowedTask<'a> = Task<'a, 'a>;

self_cell!(
    struct Cell {
        owner: Owner,

        #[not_covariant]
        dependent: BorrowedTask,
    }
);

/// The training set of label trees, for fits of ranges of nodes.
#[pyclass(module = "manylabel._core")]
pub(crate) struct TreeTask(Cell);

/// The arrays of [`TreeArrays`] by name.
fn trees_of(dict: &Bound<'_, PyDict>) -> PyResult<TreeArrays> {
    Ok(TreeArrays {
        children: read(dict, "children")?,
        spans: read(dict, "spans")?,
        levels: read(dict, "levels")?,
        orders: read(dict, "orders")?,
    })
}

/// Copies an array of a dict.
fn read<T: Element + Clone>(dict: &Bound<'_, PyDict>, name: &'static str) -> PyResult<Vec<T>> {
    let array: PyReadonlyArray1<'_, T> = item(dict, name)?.extract()?;
    copied(name, array.as_slice()?).map_err(to_py)
}

/// Returns an item of a dict.
pub(crate) fn item<'py>(dict: &Bound<'py, PyDict>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    dict.get_item(name)?
        .ok_or_else(|| PyValueError::new_err(format!("the piece has no `{name}`")))
}

/// Reads the arrays of a piece by name.
fn piece_of(dict: &Bound<'_, PyDict>) -> PyResult<Piece> {
    Ok(Piece {
        bucket_ends: read(dict, "bucket_ends")?,
        buckets: read(dict, "buckets")?,
        feature_ends: read(dict, "feature_ends")?,
        features: read(dict, "features")?,
        row_ends: read(dict, "row_ends")?,
        weight_ends: read(dict, "weight_ends")?,
        outputs: read(dict, "outputs")?,
        weights: read(dict, "weights")?,
        intercept: read(dict, "intercept")?,
        margin_ends: read(dict, "margin_ends")?,
        margins: read(dict, "margins")?,
        states: States {
            ends: read(dict, "state_ends")?,
            are_weights: read(dict, "states_are_weights")?,
            numbers: read(dict, "state_numbers")?,
            values: read(dict, "state_values")?,
        },
        n_unfinished: item(dict, "n_unfinished")?.extract()?,
        n_iter: item(dict, "n_iter")?.extract()?,
    })
}

/// Returns the arrays of a piece by name.
fn dict_of(py: Python<'_>, piece: Piece) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("bucket_ends", handed(py, piece.bucket_ends)?)?;
    dict.set_item("buckets", handed(py, piece.buckets)?)?;
    dict.set_item("feature_ends", handed(py, piece.feature_ends)?)?;
    dict.set_item("features", handed(py, piece.features)?)?;
    dict.set_item("row_ends", handed(py, piece.row_ends)?)?;
    dict.set_item("weight_ends", handed(py, piece.weight_ends)?)?;
    dict.set_item("outputs", handed(py, piece.outputs)?)?;
    dict.set_item("weights", handed(py, piece.weights)?)?;
    dict.set_item("intercept", handed(py, piece.intercept)?)?;
    dict.set_item("margin_ends", handed(py, piece.margin_ends)?)?;
    dict.set_item("margins", handed(py, piece.margins)?)?;
    dict.set_item("state_ends", handed(py, piece.states.ends)?)?;
    dict.set_item("states_are_weights", handed(py, piece.states.are_weights)?)?;
    dict.set_item("state_numbers", handed(py, piece.states.numbers)?)?;
    dict.set_item("state_values", handed(py, piece.states.values)?)?;
    dict.set_item("n_unfinished", piece.n_unfinished)?;
    dict.set_item("n_iter", piece.n_iter)?;
    Ok(dict)
}

#[pymethods]
impl TreeTask {
    /// Prepares a training set. `columns`, if given, has the shift and the scale of each column of a dense X.
    /// `prepared` has the rows of X that `scale_rows` has written, with all columns, or None to use the rows of X.
    /// `trees` has the arrays that [`trees`](Self::trees) returns, or None to grow trees. `vectors`, if given, has the
    /// vectors of the labels from which trees are grown. `factors`, if given, has the factors of the costs of each
    /// label.
    #[new]
    #[allow(clippy::too_many_arguments, reason = "they are the data of a fit")]
    fn new(
        py: Python<'_>,
        examples: AnyExamples<'_>,
        columns: Option<PyColumns<'_>>,
        prepared: Option<PyPrepared>,
        factors: Option<PyFactors<'_>>,
        params: Named<'_>,
        trees: Option<Bound<'_, PyDict>>,
        vectors: Option<PyCsr<'_>>,
        job: Job,
    ) -> PyResult<Self> {
        let params = checked(&params)?;
        let (x, y, weights) = examples;
        let (table, csr) = match x {
            PyTableOrCsr::Table(x) => (Some(x), None),
            PyTableOrCsr::Csr(x) => (None, Some(x)),
        };
        let csr = csr.as_ref().map(|x| x.unchecked("X")).transpose()?;
        let (y, weights) = (y.unchecked("Y")?, values(weights.as_ref())?);
        let columns = slices(columns.as_ref())?;
        let factors = factors.map(|factors| factors.to_owned()).transpose()?;
        let vectors = vectors
            .as_ref()
            .map(|vectors| vectors.unchecked("label_vectors"));
        let vectors = vectors.transpose()?;
        let trees = trees.as_ref().map(trees_of).transpose()?;
        let cell = job.run(py, |watch| {
            let weights = weights.map(|weights| copied("number of rows", weights));
            let owner = Owner {
                prepared,
                table,
                y: y.to_labels()?,
                factors,
                weights: weights.transpose()?,
            };
            let trees = match trees {
                Some(trees) => Trees::Given(trees),
                None => Trees::Grow(vectors.map(Unchecked::to_owned).transpose()?),
            };
            Cell::try_new(owner, |owner| {
                let x = match (&owner.prepared, &owner.table, csr) {
                    (Some(rows), ..) => Rows::Sparse(Stored::Borrowed(rows.view()?.x)),
                    (None, Some(x), _) => rows(
                        TableOrCsr::Table(x.view()),
                        columns,
                        params.normalizes(),
                        watch,
                    )?,
                    (None, None, Some(x)) => Rows::copied(x.sparse()?, params.normalizes())?,
                    (None, None, None) => unreachable!("X is dense or sparse"),
                };
                let targets = Targets {
                    labels: owner.y.view(),
                    factors: owner.factors.as_deref(),
                };
                params.task(x, targets, owner.weights.as_deref(), trees, watch)
            })
        })?;
        Ok(Self(cell))
    }

    /// The first node of each level, and the number of nodes.
    #[getter]
    fn levels<'py>(&self, py: Python<'py>) -> PyResult<I64s<'py>> {
        let levels = self.0.with_dependent(|_, task| {
            collected(
                "number of levels",
                task.levels().iter().map(|&at| at as i64),
            )
        });
        handed(py, levels.map_err(to_py)?)
    }

    /// The arrays of the trees, by name.
    fn trees<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let trees = self
            .0
            .with_dependent(|_, task| task.trees())
            .map_err(to_py)?;
        let dict = PyDict::new(py);
        dict.set_item("children", handed(py, trees.children)?)?;
        dict.set_item("spans", handed(py, trees.spans)?)?;
        dict.set_item("levels", handed(py, trees.levels)?)?;
        dict.set_item("orders", handed(py, trees.orders)?)?;
        Ok(dict)
    }

    /// The first node of the level after the last complete level. If all levels are complete, the number of nodes.
    #[getter]
    fn first_node(&self) -> usize {
        self.0.with_dependent(|_, task| task.nodes().start)
    }

    /// Fits the nodes `first..end`. Returns the arrays of the piece by name.
    fn fit<'py>(
        &self,
        py: Python<'py>,
        first: usize,
        end: usize,
        job: Job,
    ) -> PyResult<Bound<'py, PyDict>> {
        let piece = self
            .0
            .with_dependent(|_, task| job.run(py, |watch| task.fit(first..end, watch)))?;
        dict_of(py, piece)
    }

    /// Completes a level with the arrays of its pieces.
    fn complete(
        &mut self,
        py: Python<'_>,
        pieces: Vec<Bound<'_, PyDict>>,
        job: Job,
    ) -> PyResult<()> {
        let pieces: Vec<Piece> = few::<_, PyResult<_>>(pieces.iter().map(piece_of))?;
        self.0
            .with_dependent_mut(|_, task| job.run(py, |watch| task.complete(&pieces, watch)))
    }

    /// Learns from the held-out rows, when all levels are complete. Returns the exponent of the path, which is 0
    /// if scores do not depend on the path, and the learned threshold or None.
    fn learn(&mut self, py: Python<'_>, job: Job) -> PyResult<(f64, Option<f32>)> {
        let (combine, cut) = self
            .0
            .with_dependent_mut(|_, task| job.run(py, |watch| task.learn(watch)))?;
        let path_weight = match combine {
            Combine::Product { path_weight } => path_weight,
            Combine::Leaf => 0.0,
        };
        Ok((path_weight, cut))
    }

    /// Moves the model out of the task. Returns the same as `join_tree`. The task cannot be used afterwards.
    fn take_model<'py>(
        &mut self,
        py: Python<'py>,
        job: Job,
    ) -> PyResult<(Bound<'py, PyDict>, u32, usize)> {
        let model = self
            .0
            .with_dependent_mut(|_, task| job.run(py, |_| task.take_model()))?;
        let (n_iter, n_unfinished) = (model.n_iter, model.n_unfinished);
        Ok((arrays(py, model)?, n_iter, n_unfinished))
    }
}

/// Joins the pieces of all nodes, in order, to a model of shape (`n_labels`, `n_features`). Returns the same as
/// `fit_tree`, without the exponent of the path and the threshold.
#[pyfunction]
pub(crate) fn join_tree<'py>(
    py: Python<'py>,
    trees: Bound<'py, PyDict>,
    shape: (usize, usize),
    pieces: Vec<Bound<'py, PyDict>>,
    params: Named<'py>,
) -> PyResult<(Bound<'py, PyDict>, u32, usize)> {
    let params = checked(&params)?;
    let trees = trees_of(&trees)?;
    let mut failed = None;
    let read = pieces.iter().map(|dict| {
        piece_of(dict).map_err(|error| {
            failed = Some(error);
            Error::Stopped
        })
    });
    let model = joined(trees, shape, read, &params);
    let model = match (model, failed) {
        (_, Some(error)) => return Err(error),
        (model, None) => model.map_err(to_py)?,
    };
    let (n_iter, n_unfinished) = (model.n_iter, model.n_unfinished);
    Ok((arrays(py, model)?, n_iter, n_unfinished))
}
