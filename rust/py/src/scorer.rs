//! `manylabel._core.Scorer`: a fitted model of any kind, prepared for predictions.
//!
//! Each estimator has a function `*_scorer` that extracts its attributes as a [`Source`]. The source holds
//! the arrays, and the [`Model`] that it makes borrows from them; the scorer owns both. Whatever scoring
//! prepares is prepared once, also for a thousand predictions of single rows.

use crate::arrays::handed;
use crate::csr::{CsrArrays, PyCsr, csr_arrays};
use crate::error::to_py;
use crate::features::PyFeatures;
use crate::run::score;
use manylabel_base::{Error, Watch};
use manylabel_score::{Bounds, Model};
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
    /// An error if the arrays do not make a valid model. Returns [`Error::TooLarge`] if memory is
    /// short.
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

/// A fitted model prepared for predictions. It is made once from the arrays of an estimator, which it borrows
/// and keeps alive, and can be shared by threads. The arrays must not be changed while it lives.
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

    /// The prepared model.
    pub(crate) fn model(&self) -> &dyn Model {
        self.0.borrow_dependent().as_ref()
    }

    /// Asks the model about rows, on the calling thread if the model finds them few, otherwise by
    /// [`run`](crate::run::run).
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

/// One bound for all labels, or one per label.
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
        x: PyFeatures<'py>,
        k: usize,
        n_threads: usize,
    ) -> PyResult<CsrArrays<'py>> {
        let top = self.ask(py, &x, n_threads, |model, x, watch| model.topk(x, k, watch))?;
        csr_arrays(py, top)
    }

    /// The labels of each row whose scores are above their bound, as the arrays of a CSR matrix.
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

    /// All scores, (`n_rows`, `n_labels`).
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

    /// The scores of given labels of each row: one for each stored entry of `pairs` (`n_rows`, `n_labels`),
    /// in the order of the entries.
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

    /// The probability of every label, (`n_rows`, `n_labels`), for models that compute it themselves.
    /// `ValueError` for others.
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

    /// Number of labels.
    #[getter]
    fn n_labels(&self) -> usize {
        self.model().n_labels()
    }
}
