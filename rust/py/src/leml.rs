//! Defines the Python functions of `manylabel.linear` for LEML. They fit the model and make the scorer of
//! low-rank factors.

use crate::arrays::{F32Rows, F32s, F64s, I32s, handed};
use crate::csr::{PyCsr, Unchecked, values};
use crate::held::{Held, HeldMatrix};
use crate::params::{Named, from_named};
use crate::run::Job;
use crate::scorer::{Scorer, Source};
use crate::table::{PyColumns, PyTableOrCsr, TableOrCsr, slices};
use manylabel_base::Error;
use manylabel_base::range::same;
use manylabel_linear::leml::{self, Checked, Loss, Params, Targets};
use manylabel_score::Model;
use manylabel_sparse::TableRows;
use numpy::{PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;

/// Reads and checks the parameters of a fit.
fn checked(params: &Named<'_>) -> PyResult<Checked> {
    from_named!(params, Params {
        seed, rank, max_iter, tol, cg_max_iter, cg_tol, fit_intercept, normalize, learn_cut;
        alpha: params.unless_auto("alpha")?,
        loss: params.choice("loss", &[
            ("squared", Loss::Squared), ("logistic", Loss::Logistic),
            ("squared-hinge", Loss::SquaredHinge)
        ])?,
    })
}

/// The result of [`fit_leml`].
type Fitted<'py> = (
    I32s<'py>,
    F32Rows<'py>,
    F32Rows<'py>,
    F32s<'py>,
    F64s<'py>,
    f64,
    Option<f64>,
);

/// Fits LEML. X is sparse or dense. If X is dense, `columns`, if given, has the shift and the scale of each column.
///
/// `observed` stores the entries of Y that are known. None means that all entries are known. `label_weight` has
/// the weights of the labels. None means equal weights.
///
/// Returns a tuple:
///
/// - the features in use;
/// - the factors of these features (features, rank);
/// - the transposed factors of the labels (rank, `n_labels`);
/// - the intercepts;
/// - the objective after each iteration;
/// - the regularization weight alpha;
/// - the learned threshold or None.
#[pyfunction]
pub(crate) fn fit_leml<'py>(
    py: Python<'py>,
    examples: (
        PyTableOrCsr<'py>,
        PyCsr<'py>,
        Option<PyReadonlyArray1<'py, f32>>,
    ),
    columns: Option<PyColumns<'py>>,
    observed: Option<PyCsr<'py>>,
    label_weight: Option<PyReadonlyArray1<'py, f32>>,
    params: Named<'py>,
    job: Job,
) -> PyResult<Fitted<'py>> {
    let by_row: bool = params.get("normalize")?;
    let ones: bool = params.get("fit_intercept")?;
    let params = checked(&params)?;
    let (x, y, sample_weight) = &examples;
    let (y, sample_weight) = (y.unchecked("Y")?, values(sample_weight.as_ref())?);
    let x = x.arrays()?;
    let columns = slices(columns.as_ref())?;
    let observed = observed.as_ref().map(|known| known.unchecked("observed"));
    let observed = observed.transpose()?;
    let label_weight = values(label_weight.as_ref())?;
    let model = job.run(py, |watch| {
        let y = y.to_labels()?;
        let observed = observed.map(Unchecked::to_owned).transpose()?;
        let targets = Targets {
            labels: y.view(),
            observed: observed.as_ref(),
            weights: sample_weight,
            label_weights: label_weight,
        };
        match x {
            TableOrCsr::Csr(x) => params.fit(x.sparse()?, &targets, watch),
            TableOrCsr::Table(x) => {
                let rows = TableRows::new(x, columns, by_row, ones, watch)?;
                params.fit_dense(rows, &targets, watch)
            }
        }
    })?;
    let (n_features, n_labels) = (model.features.len(), model.intercept.len());
    Ok((
        handed(py, model.features)?,
        handed(py, model.w)?.reshape([n_features, model.rank])?,
        handed(py, model.ht)?.reshape([model.rank, n_labels])?,
        handed(py, model.intercept)?,
        handed(py, model.objective)?,
        model.alpha,
        model.cut.map(f64::from),
    ))
}

/// The attributes of a fitted estimator with low-rank factors that scoring needs.
#[derive(FromPyObject)]
pub(crate) struct PyLowRank {
    #[pyo3(attribute("features_"))]
    features: Held<i32>,
    #[pyo3(attribute("feature_factors_"))]
    w: HeldMatrix<f32>,
    #[pyo3(attribute("label_factors_"))]
    ht: HeldMatrix<f32>,
    #[pyo3(attribute("intercept_"))]
    intercept: Held<f32>,
    n_features_in_: usize,
    #[pyo3(attribute("_normalizes_rows"))]
    normalize: bool,
}

impl Source for PyLowRank {
    fn model(&self) -> Result<Box<dyn Model + '_>, Error> {
        let rank = self.ht.shape.0;
        for (what, expected, got) in [
            (
                "rows of feature_factors_",
                self.features.len(),
                self.w.shape.0,
            ),
            ("columns of feature_factors_", rank, self.w.shape.1),
            (
                "columns of label_factors_",
                self.intercept.len(),
                self.ht.shape.1,
            ),
        ] {
            same(what, expected, got)?;
        }
        Ok(Box::new(leml::Scorer::new(
            &self.features,
            self.w.by_rows("feature_factors_")?,
            self.ht.by_rows("label_factors_")?,
            &self.intercept,
            (self.n_features_in_, rank),
            self.normalize,
        )?))
    }
}

/// Prepares a fitted estimator with low-rank factors for scoring.
#[pyfunction]
pub(crate) fn low_rank_scorer(model: PyLowRank) -> PyResult<Scorer> {
    Scorer::new(model)
}
