//! Defines the Python functions of `manylabel.partition`. They compute blocks of rows and labels, run
//! k-means, fit the router, and score rows with the models of the blocks.

use crate::arrays::{F32s, F64s, I32s, I64s, handed};
use crate::csr::{CsrArrays, PyCsr, csr_arrays, values};
use crate::error::to_py;
use crate::features::PyFeatures;
use crate::held::{Held, HeldCsr, HeldMatrix, with_held};
use crate::params::{Named, from_named};
use crate::run::{Job, run, run_here, score};
use crate::scorer::{Scorer, Source};
use crate::table::{PyTableOrCsr, rows};
use manylabel_base::range::same;
use manylabel_base::{Error, collected, extend, few, push, reserved};
use manylabel_linear as linear;
use manylabel_partition::{
    Answer, Block, BlockModel, ByLabel, Inner, KMeans, Link, Named as ByName, Params, Part, Parts,
    ROWS_AT_ONCE, Router, Routing, Turned, Until, label_step, merge,
};
use manylabel_score::Model;
use manylabel_sparse::{CsrOwned, CsrView, Index, TopK, Value, with_sparse};
use numpy::{PyReadonlyArray1, PyReadonlyArray2, PyUntypedArray};
use pyo3::prelude::*;

/// Converts numbers of rows, labels or clusters to a numpy array. The numbers must be below 2³¹.
fn to_i32<'py>(py: Python<'py>, numbers: &[u32]) -> PyResult<I32s<'py>> {
    let numbers = numbers.iter().map(|&number| number as i32);
    handed(py, collected("number of rows", numbers).map_err(to_py)?)
}

/// Converts cluster numbers from a numpy array. A negative number becomes larger than all valid numbers, so
/// it causes an error later.
fn to_u32(numbers: &PyReadonlyArray1<'_, i32>) -> PyResult<Vec<u32>> {
    let numbers = numbers.as_slice()?.iter();
    collected("number of rows", numbers.map(|&number| number as u32)).map_err(to_py)
}

/// Converts the ends of label sets to a numpy array.
fn to_i64<'py>(py: Python<'py>, ends: &[usize]) -> PyResult<I64s<'py>> {
    let ends = ends.iter().map(|&end| end as i64);
    handed(py, collected("number of blocks", ends).map_err(to_py)?)
}

/// Partitions rows and labels into blocks.
///
/// Returns a tuple:
///
/// - the block of each row;
/// - the ends of the label sets;
/// - the labels of the sets;
/// - the objective after each half step (a new assignment of the rows or of the labels);
/// - the number of captured labels.
///
/// A label of a row is captured if the label set of the row's block contains it.
#[pyfunction]
pub(crate) fn fit_partition<'py>(
    py: Python<'py>,
    x: PyTableOrCsr<'py>,
    y: PyCsr<'py>,
    params: Named<'py>,
    job: Job,
) -> PyResult<(I32s<'py>, I64s<'py>, I32s<'py>, F64s<'py>, u64)> {
    let params = from_named!(params, Params {
        seed, n_blocks, lam, max_labels, n_init, max_iter, tol;
    })?;
    let (x, y) = (x.arrays()?, y.unchecked("Y")?);
    let found = job.run(py, |watch| {
        let y = y.to_owned()?;
        params.fit(rows(x, None, true, watch)?, &y, watch)
    })?;
    Ok((
        to_i32(py, &found.row_blocks)?,
        to_i64(py, &found.ends)?,
        to_i32(py, &found.labels)?,
        handed(py, found.history)?,
        found.captured,
    ))
}

/// Finds the best label sets for given blocks of rows. Returns the ends of the sets, their labels, and the
/// number of captured labels. A label of a row is captured if the label set of the row's block contains it.
#[pyfunction]
pub(crate) fn partition_labels<'py>(
    py: Python<'py>,
    y: PyCsr<'py>,
    row_blocks: PyReadonlyArray1<'py, i32>,
    n_blocks: usize,
    lam: f64,
    max_labels: Option<usize>,
    n_threads: usize,
) -> PyResult<(I64s<'py>, I32s<'py>, u64)> {
    let row_blocks = to_u32(&row_blocks)?;
    let y = y.unchecked("Y")?;
    let most = max_labels.unwrap_or(usize::MAX);
    let sets = run(py, n_threads, None, |watch| {
        let y = y.to_owned()?;
        label_step(&y, &row_blocks, n_blocks, lam, most, watch)
    })?;
    Ok((
        to_i64(py, &sets.ends)?,
        to_i32(py, &sets.labels)?,
        sets.captured,
    ))
}

/// Scales rows to unit length and divides them into clusters. The number of clusters is `n_clusters`. If
/// `n_clusters` is None, clusters have about `leaf_size` rows.
///
/// Returns a tuple:
///
/// - the cluster of each row;
/// - the arrays of the centers (`n_features`, `n_clusters`) in compressed rows;
/// - the intercepts;
/// - the inertia.
#[pyfunction]
pub(crate) fn fit_kmeans<'py>(
    py: Python<'py>,
    x: PyTableOrCsr<'py>,
    sample_weight: Option<PyReadonlyArray1<'py, f32>>,
    params: Named<'py>,
    job: Job,
) -> PyResult<(I32s<'py>, CsrArrays<'py>, F32s<'py>, f64)> {
    let n_clusters: Option<usize> = params.get("n_clusters")?;
    let kmeans = KMeans {
        until: match n_clusters {
            Some(n_clusters) => Until::Clusters(n_clusters),
            None => Until::RowsEach(params.get("leaf_size")?),
        },
        n_init: params.get("n_init")?,
        seed: params.get("random_state")?,
    };
    let weights = values(sample_weight.as_ref())?;
    let x = x.arrays()?;
    let found = job.run(py, |watch| {
        kmeans.fit(rows(x, None, true, watch)?, weights, watch)
    })?;
    Ok((
        to_i32(py, &found.row_clusters)?,
        csr_arrays(py, found.centers)?,
        handed(py, found.intercept)?,
        found.inertia,
    ))
}

/// Fits the router, which predicts the blocks of a row.
///
/// Returns a tuple:
///
/// - the arrays of the weights (`n_features`, `n_classes`) in compressed rows;
/// - the intercepts;
/// - the number of passes for each class.
#[pyfunction]
pub(crate) fn fit_router<'py>(
    py: Python<'py>,
    x: PyTableOrCsr<'py>,
    classes: PyReadonlyArray1<'py, i32>,
    n_classes: usize,
    sample_weight: Option<PyReadonlyArray1<'py, f32>>,
    params: Named<'py>,
    job: Job,
) -> PyResult<(CsrArrays<'py>, F32s<'py>, I32s<'py>)> {
    let router = Router {
        c: params.get("C")?,
        fit_intercept: params.get("fit_intercept")?,
        tol: params.get("tol")?,
        max_iter: params.get("max_iter")?,
        seed: params.get("random_state")?,
    };
    let classes = to_u32(&classes)?;
    let weights = values(sample_weight.as_ref())?;
    let x = x.arrays()?;
    let routes = job.run(py, |watch| {
        let rows = rows(x, None, true, watch)?;
        router.fit(rows, &classes, n_classes, weights, watch)
    })?;
    Ok((
        csr_arrays(py, routes.weights)?,
        handed(py, routes.intercept)?,
        to_i32(py, &routes.n_iter)?,
    ))
}

/// Determines how many blocks each row is sent to. A row is sent to at most `most` blocks, which are its most
/// probable blocks. If `share` is given, the row is sent to only as many of these blocks as needed, in order
/// of decreasing probability: their probabilities must sum to at least the fraction `share` of the total
/// probability of the `most` blocks.
#[derive(FromPyObject, Clone, Copy)]
pub(crate) struct PyRouting {
    most: usize,
    share: Option<f64>,
}

impl From<PyRouting> for Routing {
    fn from(PyRouting { most, share }: PyRouting) -> Self {
        match share {
            None => Self::Best(most),
            Some(share) => Self::Doubt { most, share },
        }
    }
}

/// Computes with the router which blocks each row is sent to. Returns the scores of these blocks as the
/// arrays of a CSR matrix.
#[pyfunction]
pub(crate) fn route<'py>(
    py: Python<'py>,
    router: &Scorer,
    x: PyFeatures<'py>,
    routing: PyRouting,
    n_threads: usize,
) -> PyResult<CsrArrays<'py>> {
    let routes = router.ask(py, &x, n_threads, |model, x, watch| {
        Routing::from(routing).routes(model, x, watch)
    })?;
    csr_arrays(py, routes)
}

/// The attributes of a block that scoring needs.
#[derive(FromPyObject)]
pub(crate) struct PyBlock {
    /// The labels of the block, in increasing order.
    labels: Held<i32>,
    /// The scorer of the block, or None for a block without labels.
    scorer: Option<Py<Scorer>>,
    /// The numbers of the block's labels in `scorer`. The numbers are needed only if `scorer` has more labels
    /// than the block.
    places: Option<Held<i32>>,
    /// The factor that converts scores to log-odds. The log-odds are `factor · (score − zero)`.
    factor: f32,
    zero: f32,
    /// The threshold. Labels with higher scores are predicted. If the threshold is None, the best label is
    /// predicted.
    least: Option<f32>,
}

impl PyBlock {
    /// Converts the block to the type of the algorithm crate.
    fn block(&self) -> Result<Block<'_>, Error> {
        let model = match (&self.scorer, &self.places) {
            (None, _) => None,
            (Some(scorer), None) => Some(Inner::Own(scorer.get().model())),
            (Some(scorer), Some(places)) => {
                Some(Inner::Part(Part::new(scorer.get().model(), places)?))
            }
        };
        Ok(Block {
            labels: &self.labels,
            model,
            link: Link {
                factor: self.factor,
                zero: self.zero,
            },
            named: self.least.map_or(ByName::Best, ByName::Above),
        })
    }
}

/// The weights of a linear model: a matrix (`n_labels`, `n_features`) that is dense or in compressed columns.
pub(crate) enum Coef {
    Dense(HeldMatrix<f32>),
    Csc(HeldCsr<f32>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Coef {
    type Error = PyErr;

    /// Tests the type first, so that an exception of `HeldCsr`, such as `KeyboardInterrupt`, is passed on.
    fn extract(coef: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if coef.cast::<PyUntypedArray>().is_ok() {
            coef.extract().map(Self::Dense)
        } else {
            coef.extract().map(Self::Csc)
        }
    }
}

/// A linear model for the labels of all blocks. It has three items: the weights, the intercepts, and true if rows
/// are scaled to unit length.
struct Weights(Coef, Held<f32>, bool);

impl Parts for Weights {
    fn by_label(&self) -> Result<Box<dyn ByLabel + '_>, Error> {
        let Self(coef, intercept, normalize) = self;
        let n_labels = intercept.len();
        let coef = match coef {
            Coef::Dense(coef) => {
                same("labels of coef_", n_labels, coef.shape.0)?;
                return Ok(Box::new(DenseByLabel {
                    coef: coef.by_rows("coef_")?,
                    n_features: coef.shape.1,
                    intercept,
                    normalize: *normalize,
                }));
            }
            Coef::Csc(coef) => coef,
        };
        with_held!(coef, |coef| {
            let by_feature =
                CsrView::new("coef_", &coef.indptr, &coef.indices, &coef.data, n_labels)?;
            let n_features = by_feature.n_rows();
            Ok(Box::new(WeightsByLabel {
                coef: Turned::new(n_features, n_labels, |feature| by_feature.row(feature))?,
                n_features,
                intercept,
                normalize: *normalize,
            }))
        })
    }
}

/// A linear model like [`Weights`], with sparse weights stored by label.
struct WeightsByLabel<'a> {
    coef: Turned,
    n_features: usize,
    intercept: &'a [f32],
    normalize: bool,
}

impl ByLabel for WeightsByLabel<'_> {
    fn with_part(
        &self,
        labels: &[i32],
        then: &mut dyn FnMut(&dyn Model) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let of_label = |at: usize| self.coef.column(labels[at].get());
        let part = Turned::new(labels.len(), self.n_features, of_label)?;
        let intercept = labels.iter().map(|label| self.intercept[label.get()]);
        let intercept = collected("number of labels of a block", intercept)?;
        let Turned { ends, rows, values } = &part;
        then(&linear::Scorer::new(
            ends,
            rows,
            values,
            &intercept,
            self.normalize,
        )?)
    }
}

/// A linear model like [`Weights`] with dense weights.
struct DenseByLabel<'a> {
    coef: &'a [f32],
    n_features: usize,
    intercept: &'a [f32],
    normalize: bool,
}

impl ByLabel for DenseByLabel<'_> {
    fn with_part(
        &self,
        labels: &[i32],
        then: &mut dyn FnMut(&dyn Model) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let size = labels.len().saturating_mul(self.n_features);
        let mut weights = reserved("number of weights of a block", size)?;
        for label in labels {
            let first = label.get() * self.n_features;
            let of_label = &self.coef[first..first + self.n_features];
            extend(
                "number of weights of a block",
                &mut weights,
                of_label.iter().copied(),
            )?;
        }
        let intercept = labels.iter().map(|label| self.intercept[label.get()]);
        let intercept = collected("number of labels of a block", intercept)?;
        then(&linear::DenseScorer::new(
            &weights,
            &intercept,
            self.n_features,
            self.normalize,
        )?)
    }
}

/// The prepared models of a block classifier. A [`Scorer`] keeps the models alive.
struct PyBlockModel {
    router: Py<Scorer>,
    blocks: Vec<PyBlock>,
    weights: Option<Weights>,
    n_labels: usize,
    routing: Routing,
}

impl Source for PyBlockModel {
    fn model(&self) -> Result<Box<dyn Model + '_>, Error> {
        let blocks = self.blocks.iter().map(PyBlock::block);
        let blocks: Result<Vec<_>, Error> = few(blocks);
        let blocks = blocks?;
        let router = self.router.get().model();
        for scorer in self.blocks.iter().filter_map(|block| block.scorer.as_ref()) {
            let n_features = scorer.get().model().n_features();
            same("columns of router_coef_", n_features, router.n_features())?;
        }
        let model = BlockModel::new(router, blocks, self.n_labels, self.routing)?;
        Ok(Box::new(match &self.weights {
            None => model,
            Some(weights) => model.with_parts(weights),
        }))
    }
}

/// Prepares a block classifier for scoring.
///
/// `blocks` must be in the order of the router's labels. If the blocks are parts of one linear model,
/// `weights` is the tuple `(coef_, intercept_, normalize)` of this model. With `weights`, scoring many rows
/// is faster.
#[pyfunction]
pub(crate) fn block_scorer(
    router: Py<Scorer>,
    blocks: Vec<PyBlock>,
    n_labels: usize,
    routing: PyRouting,
    weights: Option<(Coef, Held<f32>, bool)>,
) -> PyResult<Scorer> {
    Scorer::new(PyBlockModel {
        router,
        blocks,
        weights: weights.map(|(coef, intercept, normalize)| Weights(coef, intercept, normalize)),
        n_labels,
        routing: routing.into(),
    })
}

/// Merges the scores of the blocks that rows were sent to.
///
/// `labels` and `scores` have one array for each block. Returns the arrays of a CSR matrix (`n_rows`,
/// `n_labels`). Each row of this matrix has the `k` best labels, or all labels with a score if `k` is None.
#[pyfunction]
pub(crate) fn merge_blocks<'py>(
    py: Python<'py>,
    routes: PyCsr<'py>,
    labels: Vec<PyReadonlyArray1<'py, i32>>,
    scores: Vec<PyReadonlyArray2<'py, f32>>,
    n_labels: usize,
    k: Option<usize>,
    n_threads: usize,
) -> PyResult<CsrArrays<'py>> {
    let answers = labels.iter().zip(&scores).map(|(labels, scores)| {
        Ok(Answer {
            labels: labels.as_slice()?,
            scores: scores.as_slice()?,
        })
    });
    let answers: PyResult<Vec<_>> = few(answers);
    let answers = answers?;
    let few = routes.shape().0 <= ROWS_AT_ONCE;
    let routes = routes.unchecked("routes")?;
    let merged = score(py, few, n_threads, |watch| {
        with_sparse!(routes.sparse()?, |routes| merge(
            routes, &answers, n_labels, k, watch
        ))
    })?;
    csr_arrays(py, merged)
}

/// Returns the `k` largest values of each row, as the arrays of a CSR matrix with columns in increasing
/// order. If values are equal, the lower column is preferred.
#[pyfunction]
pub(crate) fn topk_of_rows<'py>(
    py: Python<'py>,
    scores: PyCsr<'py>,
    k: usize,
) -> PyResult<CsrArrays<'py>> {
    let scores = scores.unchecked("scores")?;
    let out = run_here(py, |watch| {
        with_sparse!(scores.sparse()?, |scores| {
            let most = (0..scores.n_rows()).map(|row| scores.row(row).0.len().min(k));
            let most = most.sum();
            let mut out = CsrOwned {
                indptr: reserved("number of rows", scores.n_rows() + 1)?,
                indices: reserved("number of labels to keep", most)?,
                values: reserved("number of labels to keep", most)?,
                n_cols: scores.n_cols(),
            };
            out.indptr.push(0);
            let mut best = TopK::new(k.min(scores.n_cols()))?;
            for row in 0..scores.n_rows() {
                watch.step(0)?;
                let (cols, values) = scores.row(row);
                for (&col, &value) in cols.iter().zip(values) {
                    best.push(col.get() as u32, value.f64() as f32);
                }
                for (col, value) in best.drain_by_label() {
                    push("number of predicted labels", &mut out.indices, col)?;
                    push("number of predicted labels", &mut out.values, value)?;
                }
                out.indptr.push(out.indices.len());
            }
            Ok(out)
        })
    })?;
    csr_arrays(py, out)
}
