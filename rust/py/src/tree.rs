//! Defines the Python functions of `manylabel.tree`. They fit label trees, add labels to them, and make
//! the scorer of the trees.

use crate::arrays::handed;
use crate::csr::{PyCsr, PyFactors, Unchecked, values};
use crate::held::{Held, HeldHalf};
use crate::linear::{loss, scaled_columns};
use crate::params::Named;
use crate::run::Job;
use crate::scorer::{Scorer, Source};
use crate::table::{AnyExamples, PyColumns, rows, slices};
use manylabel_base::Error;
use manylabel_linear::dismec::{self, Solver, Targets};
use manylabel_score::Model;
use manylabel_tree::{
    Arrays, Checked, Combine, Link, Negatives, Params, Precision, Scaling, Weights, WeightsOwned,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Converts the parameters of a fit and checks their ranges.
pub(crate) fn checked(params: &Named<'_>) -> PyResult<Checked> {
    let linear = dismec::Params {
        c: params.get("C")?,
        prune: params.get("prune")?,
        fit_intercept: params.get("fit_intercept")?,
        normalize: params.get("normalize")?,
        loss: loss(params)?,
        solver: params.choice(
            "solver",
            &[("fast", Solver::Fast), ("exact", Solver::Exact)],
        )?,
        tol: params.get("tol")?,
        max_iter: params.get("max_iter")?,
        learn_cut: params.get("learn_cut")?,
        seed: params.get("random_state")?,
    };
    let by_leaf = params.choice("combine", &[("product", false), ("leaf", true)])?;
    let path_weight: Option<f64> = params.unless_auto("path_weight")?;
    let combine = if by_leaf {
        Some(Combine::Leaf)
    } else {
        path_weight.map(|path_weight| Combine::Product { path_weight })
    };
    let negatives = params.choice(
        "negatives",
        &[
            ("routed", Negatives::Routed),
            ("siblings", Negatives::Siblings),
        ],
    )?;
    let weights = params.choice(
        "weights",
        &[
            ("float32", Precision::Float32),
            ("float16", Precision::Float16),
            ("int8", Precision::Int8),
        ],
    )?;
    crate::params::from_named!(params, Params {
        n_trees, branching, max_leaf, beam, balanced, measurements;
        linear,
        negatives,
        combine,
        weights,
    })
}

/// Fits label trees. `columns`, if given, has the shift and the scale of each column of a dense X. `vectors`, if given, has
/// the vector of each label that has a row. `factors`, if given, has the factors of the costs of each label.
///
/// Returns a tuple:
///
/// - a dict from attribute names to the fitted arrays and the exponent of the probability of the leaf (`path_weight_`);
/// - the learned threshold or None;
/// - the largest number of steps of a classifier;
/// - the number of classifiers that did not converge.
#[pyfunction]
pub(crate) fn fit_tree<'py>(
    py: Python<'py>,
    examples: AnyExamples<'py>,
    columns: Option<PyColumns<'py>>,
    factors: Option<PyFactors<'py>>,
    params: Named<'py>,
    vectors: Option<PyCsr<'py>>,
    job: Job,
) -> PyResult<(Bound<'py, PyDict>, Option<f32>, u32, usize)> {
    let params = checked(&params)?;
    let (x, y, sample_weight) = &examples;
    let (x, y) = (x.arrays()?, y.unchecked("Y")?);
    let (columns, sample_weight) = (slices(columns.as_ref())?, values(sample_weight.as_ref())?);
    let vectors = vectors
        .as_ref()
        .map(|vectors| vectors.unchecked("label_vectors"));
    let vectors = vectors.transpose()?;
    let factors = factors.map(|factors| factors.to_owned()).transpose()?;
    let model = job.run(py, |watch| {
        let y = y.to_labels()?;
        let targets = Targets {
            labels: y.view(),
            factors: factors.as_deref(),
        };
        let vectors = vectors.map(Unchecked::to_owned).transpose()?;
        let rows = rows(x, columns, params.normalizes(), watch)?;
        params.fit(rows, targets, sample_weight, vectors, watch)
    })?;
    let path_weight = match model.combine {
        Combine::Product { path_weight } => path_weight,
        Combine::Leaf => 0.0,
    };
    let (cut, n_iter, n_unfinished) = (model.cut, model.n_iter, model.n_unfinished);
    let arrays = arrays(py, model)?;
    arrays.set_item("path_weight_", path_weight)?;
    Ok((arrays, cut, n_iter, n_unfinished))
}

/// Adds labels to fitted label trees. `columns`, if given, has the shift and the scale of each column of a dense X. The
/// parameter `max_leaf` is the largest number of labels that a leaf can have afterwards.
///
/// Returns a tuple:
///
/// - a dict from attribute names to the arrays of the larger model;
/// - the largest number of steps of a new classifier;
/// - the number of new classifiers that did not converge.
#[pyfunction]
pub(crate) fn tree_add_labels<'py>(
    py: Python<'py>,
    model: PyTree,
    examples: AnyExamples<'py>,
    columns: Option<PyColumns<'py>>,
    factors: Option<PyFactors<'py>>,
    params: Named<'py>,
    job: Job,
) -> PyResult<(Bound<'py, PyDict>, u32, usize)> {
    let params = checked(&params)?;
    let (x, y, sample_weight) = &examples;
    let (x, y) = (x.arrays()?, y.unchecked("Y")?);
    let (columns, sample_weight) = (slices(columns.as_ref())?, values(sample_weight.as_ref())?);
    let factors = factors.map(|factors| factors.to_owned()).transpose()?;
    let grown = job.run(py, |watch| {
        let y = y.to_labels()?;
        let targets = Targets {
            labels: y.view(),
            factors: factors.as_deref(),
        };
        let rows = rows(x, columns, params.normalizes(), watch)?;
        params.add_labels(&model.arrays(), &rows, targets, sample_weight, watch)
    })?;
    let (n_iter, n_unfinished) = (grown.n_iter, grown.n_unfinished);
    Ok((arrays(py, grown)?, n_iter, n_unfinished))
}

/// Returns a dict from attribute names to the arrays of a model.
pub(crate) fn arrays(py: Python<'_>, model: manylabel_tree::Model) -> PyResult<Bound<'_, PyDict>> {
    let arrays = PyDict::new(py);
    arrays.set_item("node_children_", handed(py, model.children)?)?;
    arrays.set_item("node_label_ends_", handed(py, model.label_ends)?)?;
    arrays.set_item("node_intercept_", handed(py, model.node_intercept)?)?;
    arrays.set_item("leaf_labels_", handed(py, model.labels)?)?;
    arrays.set_item("leaf_intercept_", handed(py, model.label_intercept)?)?;
    arrays.set_item("chunk_bucket_ends_", handed(py, model.bucket_ends)?)?;
    arrays.set_item("chunk_feature_ends_", handed(py, model.feature_ends)?)?;
    arrays.set_item("chunk_weight_ends_", handed(py, model.weight_ends)?)?;
    arrays.set_item("chunk_buckets_", handed(py, model.buckets)?)?;
    arrays.set_item("chunk_features_", handed(py, model.features)?)?;
    arrays.set_item("chunk_row_ends_", handed(py, model.row_ends)?)?;
    arrays.set_item("chunk_outputs_", handed(py, model.outputs)?)?;
    let weights = match model.weights {
        WeightsOwned::Float32(weights) => handed(py, weights)?.into_any(),
        WeightsOwned::Float16(bits) => handed(py, bits)?.call_method1("view", ("float16",))?,
        WeightsOwned::Int8(codes) => {
            arrays.set_item("node_scale_", handed(py, model.node_scale)?)?;
            arrays.set_item("leaf_scale_", handed(py, model.label_scale)?)?;
            handed(py, codes)?.into_any()
        }
    };
    arrays.set_item("chunk_weights_", weights)?;
    Ok(arrays)
}

/// The weights of a model, of any type in which they can be stored.
#[derive(FromPyObject)]
enum HeldWeights {
    Float32(Held<f32>),
    Float16(HeldHalf),
    Int8(Held<i8>),
}

impl HeldWeights {
    /// Borrows the weights.
    fn view(&self) -> Weights<'_> {
        match self {
            Self::Float32(weights) => Weights::Float32(weights),
            Self::Float16(weights) => Weights::Float16(weights.bits()),
            Self::Int8(codes) => Weights::Int8(codes),
        }
    }
}

/// The attributes of a fitted estimator that a scorer and [`tree_add_labels`] need.
#[derive(FromPyObject)]
pub(crate) struct PyTree {
    #[pyo3(attribute("node_children_"))]
    children: Held<i64>,
    #[pyo3(attribute("node_label_ends_"))]
    label_ends: Held<i64>,
    #[pyo3(attribute("node_intercept_"))]
    node_intercept: Held<f32>,
    #[pyo3(attribute("leaf_labels_"))]
    labels: Held<i32>,
    #[pyo3(attribute("leaf_intercept_"))]
    label_intercept: Held<f32>,
    #[pyo3(attribute("chunk_bucket_ends_"))]
    bucket_ends: Held<i64>,
    #[pyo3(attribute("chunk_feature_ends_"))]
    feature_ends: Held<i64>,
    #[pyo3(attribute("chunk_weight_ends_"))]
    weight_ends: Held<i64>,
    #[pyo3(attribute("chunk_buckets_"))]
    buckets: Held<u32>,
    #[pyo3(attribute("chunk_features_"))]
    features: Held<u32>,
    #[pyo3(attribute("chunk_row_ends_"))]
    row_ends: Held<u32>,
    #[pyo3(attribute("chunk_outputs_"))]
    outputs: Held<u16>,
    #[pyo3(attribute("chunk_weights_"))]
    weights: HeldWeights,
    /// The scales of nodes and of labels. Both arrays are empty if weights are floats.
    #[pyo3(attribute("_scales"))]
    scales: (Held<f32>, Held<f32>),
    #[pyo3(attribute("n_features_in_"))]
    n_features: usize,
    #[pyo3(attribute("_n_labels"))]
    n_labels: usize,
    #[pyo3(attribute("threshold_"))]
    threshold: f32,
    #[pyo3(attribute("_normalizes_rows"))]
    normalize: bool,
    /// The shift and the scale of each column. Both arrays are empty if columns are not scaled.
    #[pyo3(attribute("_columns"))]
    columns: (Held<f64>, Held<f64>),
    /// The parameter `beam`, already checked.
    #[pyo3(attribute("_beam"))]
    beam: usize,
    /// True if the classifiers were fitted with the logistic loss.
    #[pyo3(attribute("_is_logistic"))]
    is_logistic: bool,
    #[pyo3(attribute("by_leaf_"))]
    by_leaf: bool,
    #[pyo3(attribute("path_weight_"))]
    path_weight: f64,
    /// The exponent of the probabilities of margins.
    #[pyo3(attribute("_power"))]
    power: u8,
}

impl PyTree {
    /// Borrows the arrays of the model.
    fn arrays(&self) -> Arrays<'_> {
        Arrays {
            n_features: self.n_features,
            n_labels: self.n_labels,
            children: &self.children,
            label_ends: &self.label_ends,
            labels: &self.labels,
            node_intercept: &self.node_intercept,
            label_intercept: &self.label_intercept,
            bucket_ends: &self.bucket_ends,
            buckets: &self.buckets,
            feature_ends: &self.feature_ends,
            features: &self.features,
            row_ends: &self.row_ends,
            weight_ends: &self.weight_ends,
            outputs: &self.outputs,
            weights: self.weights.view(),
            node_scale: &self.scales.0,
            label_scale: &self.scales.1,
            link: match (self.is_logistic, self.power) {
                (true, _) => Link::Logistic,
                (false, 2) => Link::Squared,
                (false, _) => Link::Cubed,
            },
        }
    }
}

impl Source for PyTree {
    fn model(&self) -> Result<Box<dyn Model + '_>, Error> {
        let combine = if self.by_leaf {
            Combine::Leaf
        } else {
            Combine::Product {
                path_weight: self.path_weight,
            }
        };
        let (shift, scale) = (&self.columns.0[..], &self.columns.1[..]);
        let scaling = match self.normalize {
            true => Scaling::Rows,
            false if shift.is_empty() && scale.is_empty() => Scaling::None,
            false => Scaling::Columns(scaled_columns(shift, scale)?),
        };
        Ok(Box::new(manylabel_tree::Scorer::new(
            self.arrays(),
            self.beam,
            combine,
            self.threshold,
            scaling,
        )?))
    }
}

/// Prepares fitted label trees for scoring.
#[pyfunction]
pub(crate) fn tree_scorer(model: PyTree) -> PyResult<Scorer> {
    Scorer::new(model)
}
