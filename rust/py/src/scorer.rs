//! `manylabel._core.Scorer`: a fitted model prepared for predictions, of whatever kind.

use crate::csr::{CsrArrays, PyCsr, PyCsr32, csr_arrays};
use crate::error::to_py;
use crate::run::score;
use manylabel_base::{Error, Watch};
use manylabel_score::{Bounds, Features, Model};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use self_cell::self_cell;

/// The arrays of a fitted estimator, kept alive.
pub(crate) trait Source: Send + Sync {
    /// Checks the arrays and prepares them for scoring.
    fn model(&self) -> Result<Box<dyn Model + '_>, Error>;
}

type Prepared<'a> = Box<dyn Model + 'a>;

self_cell!(
    struct Fitted {
        owner: Box<dyn Source>,

        #[covariant]
        dependent: Prepared,
    }
);

/// A fitted model prepared for predictions: made once from the arrays of an estimator, which it
/// borrows and keeps alive, and shared by threads. Arrays must not be changed while it lives.
#[pyclass(frozen, module = "manylabel._core")]
pub(crate) struct Scorer(Fitted);

impl Scorer {
    pub(crate) fn new(source: impl Source + 'static) -> PyResult<Self> {
        Fitted::try_new(Box::new(source), |source| source.model())
            .map(Self)
            .map_err(to_py)
    }

    /// The prepared model.
    pub(crate) fn model(&self) -> &dyn Model {
        self.0.borrow_dependent().as_ref()
    }

    /// Asks the model about rows: few of them here and now, more through the door.
    pub(crate) fn ask<T: Send>(
        &self,
        py: Python<'_>,
        x: Features<'_>,
        n_threads: usize,
        what: impl FnOnce(&dyn Model, &Watch) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let model = self.model();
        let quick = model.is_quick(x.n_rows());
        score(py, quick, n_threads, |watch| what(model, watch))
    }
}

/// One bound for all labels, or one for each.
#[derive(FromPyObject)]
pub(crate) enum PyBounds<'py> {
    One(f32),
    Each(PyReadonlyArray1<'py, f32>),
}

#[pymethods]
impl Scorer {
    /// The `k` best labels of each row, as the arrays of a CSR matrix.
    fn topk<'py>(
        &self,
        py: Python<'py>,
        x: PyCsr<'py>,
        k: usize,
        n_threads: usize,
    ) -> PyResult<CsrArrays<'py>> {
        let x = x.features()?;
        let top = self.ask(py, x, n_threads, |model, watch| model.topk(x, k, watch))?;
        Ok(csr_arrays(py, top))
    }

    /// The labels of each row with scores above their bound, as the arrays of a CSR matrix.
    fn above<'py>(
        &self,
        py: Python<'py>,
        x: PyCsr<'py>,
        bounds: PyBounds<'py>,
        n_threads: usize,
    ) -> PyResult<CsrArrays<'py>> {
        let x = x.features()?;
        let bounds = match &bounds {
            PyBounds::One(bound) => Bounds::One(*bound),
            PyBounds::Each(bounds) => Bounds::Each(bounds.as_slice()?),
        };
        let above = self.ask(py, x, n_threads, |model, watch| {
            model.above(x, bounds, watch)
        })?;
        Ok(csr_arrays(py, above))
    }

    /// All scores, (`n_rows`, `n_labels`).
    fn decision<'py>(
        &self,
        py: Python<'py>,
        x: PyCsr<'py>,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let x = x.features()?;
        let scores = self.ask(py, x, n_threads, |model, watch| model.decision(x, watch))?;
        scores
            .into_pyarray(py)
            .reshape([x.n_rows(), self.n_labels()])
    }

    /// The scores of given labels of each row: of the entries of `pairs`, in their order.
    fn at<'py>(
        &self,
        py: Python<'py>,
        x: PyCsr<'py>,
        pairs: PyCsr32<'py>,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let x = x.features()?;
        let scores = match &pairs {
            PyCsr32::I32(pairs) => {
                let pairs = pairs.view("labels").map_err(to_py)?;
                self.ask(py, x, n_threads, |model, watch| {
                    manylabel_score::at(model, x, pairs, watch)
                })?
            }
            PyCsr32::I64(pairs) => {
                let pairs = pairs.view("labels").map_err(to_py)?;
                self.ask(py, x, n_threads, |model, watch| {
                    manylabel_score::at(model, x, pairs, watch)
                })?
            }
        };
        Ok(scores.into_pyarray(py))
    }

    /// The probability of every label, (`n_rows`, `n_labels`), of models that know it without a link.
    fn probabilities<'py>(
        &self,
        py: Python<'py>,
        x: PyCsr<'py>,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let x = x.features()?;
        let found = self.ask(py, x, n_threads, |model, watch| {
            model.probabilities(x, watch)
        })?;
        found
            .into_pyarray(py)
            .reshape([x.n_rows(), self.n_labels()])
    }

    /// Number of labels.
    #[getter]
    fn n_labels(&self) -> usize {
        self.model().n_labels()
    }
}
