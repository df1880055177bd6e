//! Defines `manylabel._core.Scorer`: a fitted model of any kind, prepared for predictions.
//!
//! Each estimator has a function `*_scorer`, which reads the attributes of the estimator into a [`Source`].
//! The source holds the arrays. A [`Model`] that is made from the source borrows these arrays. The scorer
//! owns the source and the model. The model is prepared only once, even if a thousand single rows are scored
//! afterwards.

use crate::arrays::handed;
use crate::csr::{CsrArrays, PyCsr, csr_arrays};
use crate::error::to_py;
use crate::features::PyFeatures;
use crate::run::score;
use manylabel_base::{Error, Watch};
use manylabel_score::{Bounds, Model, Search};
use manylabel_sparse::Features;
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use self_cell::self_cell;

/// The arrays of a fitted estimator, which a [`Scorer`] keeps alive.
pub(crate) trait Source: Send + Sync {
    /// Checks the arrays and makes a model that borrows them.
    ///
    /// # Errors
    ///
    /// Returns an error if the arrays do not form a valid model. Returns [`Error::TooLarge`] if memory
    /// is short.
    fn model(&self) -> Result<Box<dyn Model + '_>, Error>;
}

/// A model that borrows the arrays of its source.
type Prepared<'a> = Box<dyn Model + 'a>;

self_cell!(
    struct Fitted {
        owner: Box<dyn Source>,

        #[covariant]
        dependent: Prepared,
    }
);

/// A fitted model that is prepared for predictions.
///
/// A scorer is made once from the arrays of an estimator. It borrows the arrays and keeps them alive. The
/// arrays must not be changed while the scorer exists. Threads can share a scorer.
#[pyclass(frozen, module = "manylabel._core")]
pub(crate) struct Scorer(Fitted);

impl Scorer {
    /// Prepares the model of `source`.
    ///
    /// # Errors
    ///
    /// Returns any error of [`Source::model`], as a Python exception.
    pub(crate) fn new(source: impl Source + 'static) -> PyResult<Self> {
        Fitted::try_new(Box::new(source), |source| source.model())
            .map(Self)
            .map_err(to_py)
    }

    /// Returns the prepared model.
    pub(crate) fn model(&self) -> &dyn Model {
        self.0.borrow_dependent().as_ref()
    }

    /// Calls `ask` with the model and the rows. If there are so few rows that threads would not help, the
    /// call runs on the calling thread. Otherwise the call runs with [`run`](crate::run::run).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`run`](crate::run::run).
    pub(crate) fn ask<T: Send>(
        &self,
        py: Python<'_>,
        x: &PyFeatures<'_>,
        n_threads: usize,
        what: impl FnOnce(&dyn Model, Features<'_>, &Watch) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let model = self.model();
        let quick = model.is_quick(x.shape().0);
        let x = x.given()?;
        score(py, quick, n_threads, |watch| {
            what(model, x.features()?, watch)
        })
    }
}

/// The bounds of the labels: one bound for all labels, or one bound for each label.
#[derive(FromPyObject)]
pub(crate) enum PyBounds<'py> {
    One(f32),
    Each(PyReadonlyArray1<'py, f32>),
}

#[pymethods]
impl Scorer {
    /// Returns the `k` best labels of each row, as the arrays of a CSR matrix. `beam` and `max_nodes` are the
    /// fields of [`Search`].
    #[pyo3(signature = (x, k, n_threads, beam=None, max_nodes=None))]
    fn topk<'py>(
        &self,
        py: Python<'py>,
        x: PyFeatures<'py>,
        k: usize,
        n_threads: usize,
        beam: Option<usize>,
        max_nodes: Option<usize>,
    ) -> PyResult<CsrArrays<'py>> {
        let search = Search { beam, max_nodes };
        let top = self.ask(py, &x, n_threads, |model, x, watch| {
            model.topk_within(x, k, search, watch)
        })?;
        csr_arrays(py, top)
    }

    /// Returns, for each row, the labels whose scores are above their bounds, as the arrays of a CSR
    /// matrix.
    fn above<'py>(
        &self,
        py: Python<'py>,
        x: PyFeatures<'py>,
        bounds: PyBounds<'py>,
        n_threads: usize,
    ) -> PyResult<CsrArrays<'py>> {
        let bounds = match &bounds {
            PyBounds::One(bound) => Bounds::One(*bound),
            PyBounds::Each(bounds) => Bounds::Each(bounds.as_slice()?),
        };
        let above = self.ask(py, &x, n_threads, |model, x, watch| {
            model.above(x, bounds, watch)
        })?;
        csr_arrays(py, above)
    }

    /// Returns the scores of all labels, of shape (`n_rows`, `n_labels`).
    fn decision<'py>(
        &self,
        py: Python<'py>,
        x: PyFeatures<'py>,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let scores = self.ask(py, &x, n_threads, |model, x, watch| {
            model.decision(x, watch)
        })?;
        handed(py, scores)?.reshape([x.shape().0, self.n_labels()])
    }

    /// Returns the scores of given labels of each row. The result has one score for each stored entry
    /// of `pairs` (`n_rows`, `n_labels`), in the order of the entries.
    fn at<'py>(
        &self,
        py: Python<'py>,
        x: PyFeatures<'py>,
        pairs: PyCsr<'py>,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let pairs = pairs.unchecked("labels")?;
        let scores = self.ask(py, &x, n_threads, |model, x, watch| {
            manylabel_score::at(model, x, pairs.sparse()?, watch)
        })?;
        handed(py, scores)
    }

    /// Returns the probability of each label, of shape (`n_rows`, `n_labels`). Raises `ValueError` if
    /// the model does not compute probabilities.
    fn probabilities<'py>(
        &self,
        py: Python<'py>,
        x: PyFeatures<'py>,
        n_threads: usize,
    ) -> PyResult<Bound<'py, PyArray2<f64>>> {
        let found = self.ask(py, &x, n_threads, |model, x, watch| {
            model.probabilities(x, watch)
        })?;
        handed(py, found)?.reshape([x.shape().0, self.n_labels()])
    }

    /// The number of labels.
    #[getter]
    fn n_labels(&self) -> usize {
        self.model().n_labels()
    }
}
