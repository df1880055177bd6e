//! Files of data sets in and out.

use crate::arrays::{granted, handed};
use crate::csr::PyCsr;
use crate::error::to_py;
use crate::run::run;
use manylabel_base::{collected, filled};
use manylabel_datasets::{
    ArffOptions, Cells, Index, Real, XcFile, read_arff as read_relation, write_xc as write,
};
use manylabel_score::with_sparse;
use numpy::Element;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// `indptr`, `indices` and `data` of a CSR matrix.
type Csr<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Shape, arrays of X and arrays of Y.
type Examples<'py> = ((usize, usize, usize), Csr<'py>, Csr<'py>);

/// Flat dense values or arrays of X, arrays of Y, names of features and of labels.
type Relation<'py> = (
    Bound<'py, PyAny>,
    Csr<'py>,
    Bound<'py, PyAny>,
    Bound<'py, PyAny>,
);

/// Reads a file in Extreme Classification form.
#[pyfunction]
#[pyo3(signature = (path, *, double, n_threads))]
pub(crate) fn read_xc(
    py: Python<'_>,
    path: PathBuf,
    double: bool,
    n_threads: usize,
) -> PyResult<Examples<'_>> {
    let file = py.detach(|| XcFile::open(&path)).map_err(to_py)?;
    let (_, n_features, n_labels) = file.shape();
    let narrow = n_features.max(n_labels) as u64 <= <i32 as Index>::MAX;
    match (narrow, double) {
        (true, false) => read::<i32, f32>(py, file, n_threads),
        (true, true) => read::<i32, f64>(py, file, n_threads),
        (false, false) => read::<i64, f32>(py, file, n_threads),
        (false, true) => read::<i64, f64>(py, file, n_threads),
    }
}

fn read<I: Index + Element, V: Real + Element>(
    py: Python<'_>,
    file: XcFile,
    n_threads: usize,
) -> PyResult<Examples<'_>> {
    let data = run(py, n_threads, None, |watch| file.read::<I, V>(watch))?;
    Ok((
        data.shape,
        csr(py, data.x.ends, data.x.indices, data.x.values)?,
        ones(py, data.y.ends, data.y.indices)?,
    ))
}

/// A matrix of ones.
fn ones<I: Index + Element>(py: Python<'_>, ends: Vec<i64>, indices: Vec<I>) -> PyResult<Csr<'_>> {
    let ones = filled("entries of Y", 1i32, indices.len()).map_err(to_py)?;
    csr(py, ends, indices, ones)
}

/// scipy wants one type for both index arrays: `I`, unless there are more entries than it can count.
fn csr<I: Index + Element, V: Element>(
    py: Python<'_>,
    ends: Vec<i64>,
    indices: Vec<I>,
    data: Vec<V>,
) -> PyResult<Csr<'_>> {
    let data = handed(py, data)?.into_any();
    if indices.len() as u64 <= I::MAX {
        let ends = ends.into_iter().map(|end| I::of(end as u64));
        let ends = collected("indptr", ends).map_err(to_py)?;
        Ok((
            handed(py, ends)?.into_any(),
            handed(py, indices)?.into_any(),
            data,
        ))
    } else {
        let indices = indices.into_iter().map(|index| index.get() as i64);
        let indices = collected("indices", indices).map_err(to_py)?;
        Ok((
            handed(py, ends)?.into_any(),
            handed(py, indices)?.into_any(),
            data,
        ))
    }
}

/// Writes a file in Extreme Classification form; stored zeros are left out.
#[pyfunction]
pub(crate) fn write_xc(py: Python<'_>, path: PathBuf, x: PyCsr<'_>, y: PyCsr<'_>) -> PyResult<()> {
    let (x, y) = (x.unchecked("X")?, y.unchecked("Y")?);
    run(py, 1, None, |watch| {
        let y = y.to_owned()?;
        with_sparse!(x.sparse()?, |x| write(&path, x, &y, watch))
    })
}

/// Reads an ARFF file.
#[pyfunction]
#[pyo3(signature = (path, xml, *, ignore, missing_is_absent, double))]
pub(crate) fn read_arff(
    py: Python<'_>,
    path: PathBuf,
    xml: Option<PathBuf>,
    ignore: Vec<String>,
    missing_is_absent: bool,
    double: bool,
) -> PyResult<Relation<'_>> {
    let options = ArffOptions {
        xml: xml.as_deref(),
        ignore: &ignore,
        missing_is_absent,
    };
    if double {
        relation::<f64>(py, &path, &options)
    } else {
        relation::<f32>(py, &path, &options)
    }
}

fn relation<'py, V: Real + Element>(
    py: Python<'py>,
    path: &Path,
    options: &ArffOptions<'_>,
) -> PyResult<Relation<'py>> {
    let data = run(py, 1, None, |watch| {
        read_relation::<V>(path, options, watch)
    })?;
    let x = match data.x {
        Cells::Dense(values) => handed(py, values)?.into_any(),
        Cells::Sparse(x) => csr(py, x.ends, x.indices, x.values)?
            .into_pyobject(py)?
            .into_any(),
    };
    Ok((
        x,
        ones(py, data.y.ends, data.y.indices)?,
        granted(|| data.feature_names.into_pyobject(py))?,
        granted(|| data.label_names.into_pyobject(py))?,
    ))
}
