//! `manylabel.rules`: boosted rules, and scoring by them.

use crate::csr::{Borrowed, CsrArrays, PyCsr, PyCsr32, csr_arrays, with_view};
use crate::error::to_py;
use crate::named::named;
use crate::run::{run, score};
use manylabel_base::Error;
use manylabel_rules::{
    Binning, Head, Hessian, LabelSets, Loss, Model, Params, ROWS_AT_ONCE, Rules, Scorer, Search,
    Step,
};
use manylabel_sparse::{CsrOwned, Index};
use numpy::{
    Element, IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray2,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use std::ops::Range;

/// Parameters by the names the user knows; `step` and `max_features` are settled in Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PyParams {
    n_rules: usize,
    loss: String,
    head: String,
    label_binning: Option<f64>,
    min_bins: usize,
    max_bins: Option<usize>,
    hessian: String,
    step: String,
    search: String,
    learning_rate: f64,
    l2: f64,
    bootstrap: bool,
    max_features: usize,
    min_coverage: usize,
    max_conditions: Option<usize>,
    n_iter_no_change: usize,
    seed: u64,
}

impl TryFrom<PyParams> for Params {
    type Error = Error;

    fn try_from(params: PyParams) -> Result<Self, Error> {
        Ok(Self {
            n_rules: params.n_rules,
            loss: named(
                "loss",
                "\"example-wise-logistic\" or \"label-wise-logistic\"",
                &[
                    ("example-wise-logistic", Loss::ExampleWise),
                    ("label-wise-logistic", Loss::LabelWise),
                ],
                &params.loss,
            )?,
            head: named(
                "head",
                "\"complete\" or \"single-label\"",
                &[("complete", Head::Complete), ("single-label", Head::Single)],
                &params.head,
            )?,
            binning: params.label_binning.map(|ratio| Binning {
                ratio,
                min_bins: params.min_bins,
                max_bins: params.max_bins.unwrap_or(usize::MAX),
            }),
            hessian: named(
                "hessian",
                "\"paper\" or \"restricted\"",
                &[
                    ("paper", Hessian::Paper),
                    ("restricted", Hessian::Restricted),
                ],
                &params.hessian,
            )?,
            step: named(
                "step",
                "\"newton\" or \"safeguarded\"",
                &[("newton", Step::Newton), ("safeguarded", Step::Safeguarded)],
                &params.step,
            )?,
            search: named(
                "search",
                "\"fast\" or \"exact\"",
                &[("fast", Search::Fast), ("exact", Search::Exact)],
                &params.search,
            )?,
            learning_rate: params.learning_rate,
            l2: params.l2,
            bootstrap: params.bootstrap,
            max_features: params.max_features,
            min_coverage: params.min_coverage,
            max_conditions: params.max_conditions.unwrap_or(usize::MAX),
            n_iter_no_change: params.n_iter_no_change,
            seed: params.seed,
        })
    }
}

/// The fitted attributes of an estimator that describe its rules.
#[derive(FromPyObject)]
pub(crate) struct PyRules<'py> {
    #[pyo3(attribute("body_indptr_"))]
    indptr: PyReadonlyArray1<'py, i64>,
    #[pyo3(attribute("body_feature_"))]
    feature: PyReadonlyArray1<'py, i32>,
    #[pyo3(attribute("body_operator_"))]
    operator: PyReadonlyArray1<'py, u8>,
    #[pyo3(attribute("body_threshold_"))]
    threshold: PyReadonlyArray1<'py, f32>,
    #[pyo3(attribute("heads_"))]
    heads: PyCsr32<'py>,
    #[pyo3(attribute("coverage_"))]
    coverage: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("validation_loss_"))]
    validation_loss: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("label_sets_"))]
    label_sets: PyCsr32<'py>,
    #[pyo3(attribute("n_features_in_"))]
    n_features: usize,
}

impl PyRules<'_> {
    fn rules<'a, I: Element + Index>(
        &'a self,
        heads: &'a Borrowed<'_, I, f32>,
    ) -> PyResult<Rules<'a, I>> {
        Rules::new(
            self.indptr.as_slice()?,
            self.feature.as_slice()?,
            self.operator.as_slice()?,
            self.threshold.as_slice()?,
            heads.view("heads_").map_err(to_py)?,
            self.n_features,
        )
        .map_err(to_py)
    }

    fn label_sets(&self, n_labels: usize) -> PyResult<LabelSets> {
        let sets = match &self.label_sets {
            PyCsr32::I32(sets) => {
                LabelSets::new(sets.view("label_sets_").map_err(to_py)?, n_labels)
            }
            PyCsr32::I64(sets) => {
                LabelSets::new(sets.view("label_sets_").map_err(to_py)?, n_labels)
            }
        };
        sets.map_err(to_py)
    }

    fn model(&self) -> PyResult<Model> {
        let noted = (self.coverage.as_slice()?, self.validation_loss.as_slice()?);
        match &self.heads {
            PyCsr32::I32(heads) => self.rules(heads)?.to_model(noted.0, noted.1),
            PyCsr32::I64(heads) => self.rules(heads)?.to_model(noted.0, noted.1),
        }
        .map_err(to_py)
    }
}

/// Fits boosted rules: ends, features, operators and thresholds of the bodies, heads, coverage,
/// held-out losses.
#[expect(clippy::type_complexity, reason = "a tuple is what Python unpacks")]
#[expect(clippy::too_many_arguments, reason = "Python names them all")]
#[pyfunction]
#[pyo3(signature = (x, y, sample_weight, held_out, categorical, start, params, n_threads, progress))]
pub(crate) fn fit_rules<'py>(
    py: Python<'py>,
    x: PyCsr<'py>,
    y: PyCsr<'py>,
    sample_weight: Option<PyReadonlyArray1<'py, f32>>,
    held_out: Option<PyReadonlyArray1<'py, bool>>,
    categorical: PyReadonlyArray1<'py, i32>,
    start: Option<PyRules<'py>>,
    params: PyParams,
    n_threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<(
    Bound<'py, PyArray1<i64>>,
    Bound<'py, PyArray1<i32>>,
    Bound<'py, PyArray1<u8>>,
    Bound<'py, PyArray1<f32>>,
    CsrArrays<'py>,
    Bound<'py, PyArray1<f64>>,
    Bound<'py, PyArray1<f64>>,
)> {
    let params = Params::try_from(params)
        .and_then(Params::check)
        .map_err(to_py)?;
    let sample_weight = sample_weight
        .as_ref()
        .map(|weights| weights.as_slice())
        .transpose()?;
    let held_out = held_out.as_ref().map(|mask| mask.as_slice()).transpose()?;
    let categorical: Vec<usize> = categorical.as_slice()?.iter().map(|at| at.get()).collect();
    let start = start.as_ref().map(PyRules::model).transpose()?;
    let y = with_view!(y, "Y", |y| CsrOwned::from_view(y, false).map_err(to_py)?);
    let model = with_view!(x, "X", |x| run(
        py,
        n_threads,
        progress.as_ref(),
        |watch| {
            params.fit(
                x,
                &y,
                sample_weight,
                held_out,
                &categorical,
                start.as_ref(),
                watch,
            )
        }
    )?);
    Ok((
        model.body_indptr.into_pyarray(py),
        model.body_feature.into_pyarray(py),
        model.body_operator.into_pyarray(py),
        model.body_threshold.into_pyarray(py),
        csr_arrays(py, model.heads),
        model.coverage.into_pyarray(py),
        model.validation_loss.into_pyarray(py),
    ))
}

/// Evaluates `$body` with `$scorer` bound to the scorer by the rules in `$range`, whatever the
/// index type of their heads, and `$n_labels` to the number of labels.
macro_rules! with_scorer {
    ($model:expr, $range:expr, |$scorer:ident, $n_labels:ident| $body:expr) => {
        match &$model.heads {
            PyCsr32::I32(heads) => with_scorer!(@ $model, heads, $range, $scorer, $n_labels, $body),
            PyCsr32::I64(heads) => with_scorer!(@ $model, heads, $range, $scorer, $n_labels, $body),
        }
    };
    (@ $model:expr, $heads:ident, $range:expr, $scorer:ident, $n_labels:ident, $body:expr) => {{
        let rules = $model.rules($heads)?;
        let range = Option::unwrap_or($range, 0..rules.n_rules());
        let $n_labels = rules.n_labels();
        let $scorer = Scorer::new(rules, range).map_err(to_py)?;
        $body
    }};
}

/// All the rules.
const ALL: Option<Range<usize>> = None;

/// All scores, (`n_rows`, `n_labels`); −∞ for labels in no label set.
#[pyfunction]
#[pyo3(signature = (model, x, n_threads))]
pub(crate) fn rules_decision<'py>(
    py: Python<'py>,
    model: PyRules<'py>,
    x: PyCsr<'py>,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray2<f32>>> {
    with_view!(x, "X", |x| with_scorer!(model, ALL, |scorer, n_labels| {
        let sets = model.label_sets(n_labels)?;
        let scores = score(py, x.n_rows() <= ROWS_AT_ONCE, n_threads, |watch| {
            scorer.decision(x, &sets, watch)
        })?;
        scores.into_pyarray(py).reshape([x.n_rows(), n_labels])
    }))
}

/// The `k` best labels of each row, as the arrays of a CSR matrix.
#[pyfunction]
#[pyo3(signature = (model, x, k, n_threads))]
pub(crate) fn rules_topk<'py>(
    py: Python<'py>,
    model: PyRules<'py>,
    x: PyCsr<'py>,
    k: usize,
    n_threads: usize,
) -> PyResult<CsrArrays<'py>> {
    let top = with_view!(x, "X", |x| with_scorer!(model, ALL, |scorer, n_labels| {
        let sets = model.label_sets(n_labels)?;
        score(py, x.n_rows() <= ROWS_AT_ONCE, n_threads, |watch| {
            scorer.topk(x, k, &sets, watch)
        })?
    }));
    Ok(csr_arrays(py, top))
}

/// The labels of each row with scores above 0, as the arrays of a CSR matrix.
#[pyfunction]
#[pyo3(signature = (model, x, n_threads))]
pub(crate) fn rules_above<'py>(
    py: Python<'py>,
    model: PyRules<'py>,
    x: PyCsr<'py>,
    n_threads: usize,
) -> PyResult<CsrArrays<'py>> {
    let above = with_view!(x, "X", |x| with_scorer!(model, ALL, |scorer, n_labels| {
        let sets = model.label_sets(n_labels)?;
        score(py, x.n_rows() <= ROWS_AT_ONCE, n_threads, |watch| {
            scorer.above(x, &sets, watch)
        })?
    }));
    Ok(csr_arrays(py, above))
}

/// The row of `label_sets_` nearest to each row's scores, (`n_rows`,).
#[pyfunction]
#[pyo3(signature = (model, x, n_threads))]
pub(crate) fn rules_known<'py>(
    py: Python<'py>,
    model: PyRules<'py>,
    x: PyCsr<'py>,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let nearest = with_view!(x, "X", |x| with_scorer!(model, ALL, |scorer, n_labels| {
        let sets = model.label_sets(n_labels)?;
        score(py, x.n_rows() <= ROWS_AT_ONCE, n_threads, |watch| {
            scorer.known(x, &sets, watch)
        })?
    }));
    Ok(nearest.into_pyarray(py))
}

/// Probabilities of the labels over the label sets, (`n_rows`, `n_labels`).
#[pyfunction]
#[pyo3(signature = (model, x, n_threads))]
pub(crate) fn rules_marginals<'py>(
    py: Python<'py>,
    model: PyRules<'py>,
    x: PyCsr<'py>,
    n_threads: usize,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    with_view!(x, "X", |x| with_scorer!(model, ALL, |scorer, n_labels| {
        let sets = model.label_sets(n_labels)?;
        let marginals = score(py, x.n_rows() <= ROWS_AT_ONCE, n_threads, |watch| {
            scorer.marginals(x, &sets, watch)
        })?;
        marginals.into_pyarray(py).reshape([x.n_rows(), n_labels])
    }))
}

/// Adds the heads of the rules `begin..end` to `scores`, a C array (`n_rows`, `n_labels`), in place.
#[pyfunction]
#[pyo3(signature = (model, x, scores, begin, end, n_threads))]
pub(crate) fn rules_add<'py>(
    py: Python<'py>,
    model: PyRules<'py>,
    x: PyCsr<'py>,
    mut scores: PyReadwriteArray2<'py, f64>,
    begin: usize,
    end: usize,
    n_threads: usize,
) -> PyResult<()> {
    with_view!(x, "X", |x| with_scorer!(
        model,
        Some(begin..end),
        |scorer, n_labels| {
            if !scores.is_c_contiguous() || scores.shape() != [x.n_rows(), n_labels] {
                return Err(to_py(Error::Param {
                    name: "scores",
                    expected: "of shape (n_rows, n_labels), laid out in C order",
                    got: format!(
                        "shape {:?}, strides {:?} for {} rows and {n_labels} labels",
                        scores.shape(),
                        scores.strides(),
                        x.n_rows()
                    ),
                }));
            }
            let scores = scores.as_slice_mut()?;
            score(py, x.n_rows() <= ROWS_AT_ONCE, n_threads, |watch| {
                scorer.add(x, scores, watch)
            })
        }
    ))
}

/// Which rules cover which rows, as the arrays of a CSR matrix (`n_rows`, `n_rules`) of ones.
#[pyfunction]
#[pyo3(signature = (model, x, n_threads))]
pub(crate) fn rules_fired<'py>(
    py: Python<'py>,
    model: PyRules<'py>,
    x: PyCsr<'py>,
    n_threads: usize,
) -> PyResult<CsrArrays<'py>> {
    let fired = with_view!(x, "X", |x| with_scorer!(model, ALL, |scorer, _n_labels| {
        score(py, x.n_rows() <= ROWS_AT_ONCE, n_threads, |watch| {
            scorer.fired(x, watch)
        })?
    }));
    Ok(csr_arrays(py, fired))
}
