//! Defines the Python functions of `manylabel.decision`. They fit and apply the curves that convert scores to
//! probabilities, and choose label sets.

use crate::arrays::{F32s, F64s, I32s, I64s, handed};
use crate::csr::{CsrArrays, PyCsr, csr_arrays};
use crate::error::to_py;
use crate::params::Named;
use crate::run::{Job, score};
use manylabel_base::{Error, collected, copied};
use manylabel_decision as decision;
use manylabel_decision::hierarchy::Hierarchy;
use manylabel_decision::pooled::Knots;
use manylabel_decision::{Curves, Pairs, Pooling, Sigmoids, Steps, f1};
use manylabel_sparse::with_sparse;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// For at most this number of rows, no threads are started. Starting them would take longer than the conversion
/// of the scores.
const FEW_ROWS: usize = 32;

/// The curves of a calibrator that was fitted by one of the two methods.
enum Fitted {
    Sigmoid(Sigmoids),
    Isotonic(Steps),
}

/// Returns the stored scores of held-out rows. Each score has a hit: true if the row has the label.
fn pairs(
    scores: &PyCsr<'_>,
    y: &PyCsr<'_>,
) -> PyResult<impl FnOnce() -> Result<Pairs, Error> + Send> {
    let (scores, y) = (scores.unchecked("scores")?, y.unchecked("Y")?);
    Ok(move || {
        with_sparse!(scores.sparse()?, |scores| with_sparse!(y.sparse()?, |y| {
            Pairs::new(scores, y)
        }))
    })
}

/// Fits the curves that convert scores to probabilities.
///
/// `scores` has the scores of the candidates of held-out rows, and `y` the true labels of these rows.
/// `frequency` has the number of training rows of each label. The parameters are `method` and `pooling`.
///
/// Returns a dict of arrays, which [`calibrated`] accepts.
#[pyfunction]
pub(crate) fn fit_calibration<'py>(
    py: Python<'py>,
    scores: PyCsr<'py>,
    y: PyCsr<'py>,
    frequency: PyReadonlyArray1<'py, i32>,
    params: Named<'py>,
    job: Job,
) -> PyResult<Bound<'py, PyDict>> {
    let pooling = params.choice(
        "pooling",
        &[
            ("frequency", Pooling::Frequency),
            ("none", Pooling::None),
            ("all", Pooling::All),
        ],
    )?;
    let isotonic = params.choice("method", &[("sigmoid", false), ("isotonic", true)])?;
    let frequency = frequency.as_slice()?.iter().map(|&count| count as u32);
    let frequency = collected("number of labels", frequency).map_err(to_py)?;
    let pairs = pairs(&scores, &y)?;
    let fitted = job.run(py, |watch| {
        let pairs = pairs()?;
        Ok(if isotonic {
            Fitted::Isotonic(decision::fit_steps(&pairs, &frequency, pooling, watch)?)
        } else {
            Fitted::Sigmoid(decision::fit_sigmoids(&pairs, &frequency, pooling, watch)?)
        })
    })?;
    let arrays = PyDict::new(py);
    match fitted {
        Fitted::Sigmoid(curves) => {
            arrays.set_item("knot_scores", handed(py, curves.knots.at)? as F64s<'py>)?;
            arrays.set_item(
                "knot_log_odds",
                handed(py, curves.knots.log_odds)? as F64s<'py>,
            )?;
            arrays.set_item("intercept", handed(py, curves.intercept)? as F64s<'py>)?;
            arrays.set_item("slope", handed(py, curves.slope)? as F64s<'py>)?;
            arrays.set_item("variance", curves.variance)?;
        }
        Fitted::Isotonic(curves) => {
            let ends = curves.ends.iter().map(|&end| end as i64);
            let ends: I64s<'py> = handed(py, collected("number of curves", ends).map_err(to_py)?)?;
            arrays.set_item("curves", handed(py, curves.curve_of)? as I32s<'py>)?;
            arrays.set_item("curve_ends", ends)?;
            arrays.set_item("curve_scores", handed(py, curves.at)? as F64s<'py>)?;
            arrays.set_item(
                "curve_probabilities",
                handed(py, curves.probability)? as F64s<'py>,
            )?;
        }
    }
    Ok(arrays)
}

/// Returns a copy of an array of a fitted calibrator.
fn array<'py, T: numpy::Element + Clone + 'static>(
    curves: &Named<'py>,
    name: &str,
) -> PyResult<Vec<T>> {
    let array: PyReadonlyArray1<'py, T> = curves.get(name)?;
    copied("number of curves", array.as_slice()?).map_err(to_py)
}

/// Converts stored scores to probabilities, in their order. `curves` is the result of [`fit_calibration`], whose
/// arrays have been checked.
#[pyfunction]
pub(crate) fn calibrated<'py>(
    py: Python<'py>,
    scores: PyCsr<'py>,
    curves: Named<'py>,
    n_threads: usize,
) -> PyResult<F32s<'py>> {
    fn convert(
        py: Python<'_>,
        scores: &PyCsr<'_>,
        curves: &(impl Curves + Send),
        n_threads: usize,
    ) -> PyResult<Vec<f32>> {
        let n_rows = scores.shape().0;
        let scores = scores.unchecked("scores")?;
        let few = n_rows <= FEW_ROWS;
        score(py, few, n_threads, |watch| {
            with_sparse!(scores.sparse()?, |scores| decision::probabilities(
                scores, curves, watch
            ))
        })
    }
    let found = if curves.get::<Option<String>>("method")?.as_deref() == Some("isotonic") {
        let ends = array::<i64>(&curves, "curve_ends")?;
        let steps = Steps {
            curve_of: array(&curves, "curves")?,
            ends: collected("number of curves", ends.iter().map(|&end| end as usize))
                .map_err(to_py)?,
            at: array(&curves, "curve_scores")?,
            probability: array(&curves, "curve_probabilities")?,
        };
        convert(py, &scores, &steps, n_threads)?
    } else {
        let sigmoids = Sigmoids {
            knots: Knots {
                at: array(&curves, "knot_scores")?,
                log_odds: array(&curves, "knot_log_odds")?,
            },
            intercept: array(&curves, "intercept")?,
            slope: array(&curves, "slope")?,
            variance: 0.0,
        };
        convert(py, &scores, &sigmoids, n_threads)?
    };
    handed(py, found)
}

/// Chooses the label set of every row with the largest expected F1. `of_empty` is the F1 of an empty set for a
/// row without labels.
///
/// Returns the arrays of a CSR matrix with the chosen probabilities.
#[pyfunction]
pub(crate) fn expected_f1_sets<'py>(
    py: Python<'py>,
    probabilities: PyCsr<'py>,
    of_empty: f64,
    job: Job,
) -> PyResult<CsrArrays<'py>> {
    let probabilities = probabilities.unchecked("probabilities")?;
    let sets = job.run(py, |watch| {
        with_sparse!(probabilities.sparse()?, |p| f1::best_sets(
            p, of_empty, watch
        ))
    })?;
    csr_arrays(py, sets)
}

/// Corrects probabilities so that no label is more probable than its parents. `hierarchy` has pairs (parent,
/// child).
///
/// Returns the arrays of a CSR matrix, which also has the ancestors of the stored labels.
#[pyfunction]
pub(crate) fn coherent<'py>(
    py: Python<'py>,
    probabilities: PyCsr<'py>,
    hierarchy: Vec<[u32; 2]>,
    job: Job,
) -> PyResult<CsrArrays<'py>> {
    let n_labels = probabilities.shape().1;
    let probabilities = probabilities.unchecked("probabilities")?;
    let found = job.run(py, |watch| {
        let hierarchy = Hierarchy::new(&hierarchy, n_labels)?;
        with_sparse!(probabilities.sparse()?, |p| decision::hierarchy::coherent(
            p, &hierarchy, watch
        ))
    })?;
    csr_arrays(py, found)
}
