//! Defines the Python functions of `manylabel.rules`. They fit boosted rules and make the scorer of the
//! rules.

use crate::arrays::{F32s, F64s, I32s, I64s, U8s, handed};
use crate::csr::{CsrArrays, Examples, PyCsr, csr_arrays, values};
use crate::error::to_py;
use crate::held::{Held, HeldCsr, HeldSparse, interruptible, with_held};
use crate::params::{Named, from_named};
use crate::run::{Job, score};
use crate::scorer::{Scorer, Source};
use manylabel_base::{Error, collected};
use manylabel_rules::{
    Binning, Bodies, Checked, Ensemble, Head, Hessian, LabelSets, Loss, Model, Params, Predictor,
    ROWS_AT_ONCE, Rules, Search, Stage, Step,
};
use manylabel_sparse::{Index, with_sparse};
use numpy::{Element, PyReadonlyArray1, PyReadwriteArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

/// Reads and checks the parameters of a fit. Python has already replaced `max_features` by a number, and the
/// value "auto" of `step` by one of the other values.
fn checked(params: &Named<'_>) -> PyResult<Checked> {
    let binning: Option<f64> = params.get("label_binning")?;
    let (min_bins, max_bins): (_, Option<_>) = (params.get("min_bins")?, params.get("max_bins")?);
    let max_conditions: Option<_> = params.get("max_conditions")?;
    from_named!(params, Params {
        seed, n_rules, learning_rate, l2, bootstrap, max_features, min_coverage, n_iter_no_change;
        loss: params.choice("loss", &[
            ("example-wise-logistic", Loss::ExampleWise),
            ("label-wise-logistic", Loss::LabelWise)
        ])?,
        head: params.choice("head", &[
            ("complete", Head::Complete), ("single-label", Head::Single)
        ])?,
        binning: binning.map(|ratio| Binning {
            ratio,
            min_bins,
            max_bins: max_bins.unwrap_or(usize::MAX),
        }),
        hessian: params.choice("hessian", &[
            ("paper", Hessian::Paper), ("restricted", Hessian::Restricted)
        ])?,
        step: params.choice("step", &[
            ("newton", Step::Newton), ("safeguarded", Step::Safeguarded)
        ])?,
        search: params.choice("search", &[("fast", Search::Fast), ("exact", Search::Exact)])?,
        max_conditions: max_conditions.unwrap_or(usize::MAX),
    })
}

/// The attributes of a fitted estimator that describe its rules. Scoring and warm starts need these
/// attributes.
#[derive(FromPyObject)]
pub(crate) struct PyRules {
    #[pyo3(attribute("body_indptr_"))]
    indptr: Held<i64>,
    #[pyo3(attribute("body_feature_"))]
    feature: Held<i32>,
    #[pyo3(attribute("body_operator_"))]
    operator: Held<u8>,
    #[pyo3(attribute("body_threshold_"))]
    threshold: Held<f32>,
    #[pyo3(attribute("heads_"))]
    heads: HeldCsr<f32>,
    #[pyo3(attribute("coverage_"))]
    coverage: Held<f64>,
    #[pyo3(attribute("validation_loss_"))]
    validation_loss: Held<f64>,
    #[pyo3(attribute("label_sets_"))]
    label_sets: HeldCsr<f32>,
    #[pyo3(attribute("n_features_in_"))]
    n_features: usize,
    #[pyo3(attribute("label_set_weights_"))]
    label_set_weights: Held<f64>,
    #[pyo3(attribute("_decision"))]
    decision: Decision,
}

/// How a fitted estimator predicts label sets. If `power` is not None, one of the known label sets is predicted,
/// and `power` is the power of their weights. Otherwise, the labels with scores above `bound` are predicted, and
/// if `best` is true, also the label with the highest score.
#[derive(FromPyObject)]
struct Decision {
    power: Option<f64>,
    bound: f32,
    best: bool,
}

impl Decision {
    fn predictor(&self) -> Predictor {
        match self.power {
            Some(_) => Predictor::KnownSets,
            None => Predictor::Above {
                bound: self.bound,
                best: self.best,
            },
        }
    }
}

impl PyRules {
    /// Returns the checked view of the rules.
    fn rules<'a, I: Element + Index>(
        &'a self,
        heads: &'a HeldSparse<I, f32>,
    ) -> Result<Rules<'a, I>, Error> {
        let bodies = Bodies {
            indptr: &self.indptr,
            feature: &self.feature,
            operator: &self.operator,
            threshold: &self.threshold,
        };
        Rules::new(bodies, heads.rows("heads_")?, self.n_features)
    }

    /// Copies the rules, so that a fit can continue from these rules.
    fn start(&self) -> Result<Model, Error> {
        with_held!(&self.heads, |heads| self
            .rules(heads)?
            .to_model(&self.coverage, &self.validation_loss))
    }
}

impl Source for PyRules {
    fn model(&self) -> Result<Box<dyn manylabel_score::Model + '_>, Error> {
        with_held!(&self.heads, |heads| {
            let rules = self.rules(heads)?;
            let sets = with_held!(&self.label_sets, |sets| LabelSets::new(
                sets.rows("label_sets_")?,
                rules.n_labels()
            )?);
            let power = self.decision.power.unwrap_or(0.0);
            let sets = sets.with_weights(&self.label_set_weights, power)?;
            let predictor = self.decision.predictor();
            Ok(Box::new(Ensemble::new(rules, sets, predictor)?))
        })
    }
}

/// Prepares a fitted estimator for scoring.
#[pyfunction]
pub(crate) fn rules_scorer(
    #[pyo3(from_py_with = interruptible)] model: PyRules,
) -> PyResult<Scorer> {
    Scorer::new(model)
}

/// Fits boosted rules.
///
/// `held_out` marks the held-out rows, whose loss determines when the fit stops. `categorical` lists the
/// categorical features. `start` is a fitted estimator or None. If it is not None, the fit adds rules to the
/// rules of `start`.
///
/// Returns a tuple:
///
/// - the end of each rule in the arrays of conditions;
/// - the features of the conditions;
/// - the operators of the conditions;
/// - the thresholds of the conditions;
/// - the arrays of the rules' heads in compressed rows;
/// - the coverage of the rules;
/// - the held-out losses.
#[pyfunction]
pub(crate) fn fit_rules<'py>(
    py: Python<'py>,
    examples: Examples<'py>,
    held_out: Option<PyReadonlyArray1<'py, bool>>,
    categorical: PyReadonlyArray1<'py, i32>,
    #[pyo3(from_py_with = interruptible)] start: Option<PyRules>,
    params: Named<'py>,
    job: Job,
) -> PyResult<(
    I64s<'py>,
    I32s<'py>,
    U8s<'py>,
    F32s<'py>,
    CsrArrays<'py>,
    F64s<'py>,
    F64s<'py>,
)> {
    let params = checked(&params)?;
    let held_out = values(held_out.as_ref())?;
    let categorical = categorical.as_slice()?.iter().map(|at| at.get());
    let categorical = collected("categorical_features", categorical).map_err(to_py)?;
    let start = start.as_ref().map(PyRules::start).transpose();
    let start = start.map_err(to_py)?;
    let (x, y, sample_weight) = examples.unchecked()?;
    let model = job.run(py, |watch| {
        let y = y.to_labels()?;
        params.fit(
            x.sparse()?,
            y.view(),
            sample_weight,
            held_out,
            &categorical,
            start,
            watch,
        )
    })?;
    Ok((
        handed(py, model.body_indptr)?,
        handed(py, model.body_feature)?,
        handed(py, model.body_operator)?,
        handed(py, model.body_threshold)?,
        csr_arrays(py, model.heads)?,
        handed(py, model.coverage)?,
        handed(py, model.validation_loss)?,
    ))
}

/// Adds the heads of the rules `begin..end` to `scores`, in place. A head is added to the scores of
/// each row that its rule covers. `scores` must have shape (`n_rows`, `n_labels`) and be in C order.
#[pyfunction]
pub(crate) fn rules_add<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = interruptible)] model: PyRules,
    x: PyCsr<'py>,
    mut scores: PyReadwriteArray2<'py, f64>,
    begin: usize,
    end: usize,
    n_threads: usize,
) -> PyResult<()> {
    let n_rows = x.shape().0;
    let x = x.unchecked("X")?;
    with_held!(&model.heads, |heads| {
        let rules = model.rules(heads).map_err(to_py)?;
        let n_labels = rules.n_labels();
        let stage = Stage::new(rules, begin..end).map_err(to_py)?;
        if !scores.is_c_contiguous() || scores.shape() != [n_rows, n_labels] {
            return Err(to_py(Error::Param {
                name: "scores",
                expected: "of shape (n_rows, n_labels), laid out in C order",
                got: format!(
                    "shape {:?}, strides {:?} for {n_rows} rows and {n_labels} labels",
                    scores.shape(),
                    scores.strides(),
                ),
            }));
        }
        let scores = scores.as_slice_mut()?;
        score(py, n_rows <= ROWS_AT_ONCE, n_threads, |watch| {
            with_sparse!(x.sparse()?, |x| stage.add(x, scores, watch))
        })
    })
}

/// Returns the rules that cover each row, as the arrays of a CSR matrix (`n_rows`, `n_rules`) of ones.
#[pyfunction]
pub(crate) fn rules_fired<'py>(
    py: Python<'py>,
    #[pyo3(from_py_with = interruptible)] model: PyRules,
    x: PyCsr<'py>,
    n_threads: usize,
) -> PyResult<CsrArrays<'py>> {
    let n_rows = x.shape().0;
    let x = x.unchecked("X")?;
    let fired = with_held!(&model.heads, |heads| {
        let rules = model.rules(heads).map_err(to_py)?;
        let all = Stage::new(rules, 0..rules.n_rules()).map_err(to_py)?;
        score(py, n_rows <= ROWS_AT_ONCE, n_threads, |watch| {
            with_sparse!(x.sparse()?, |x| all.fired(x, watch))
        })?
    });
    csr_arrays(py, fired)
}
