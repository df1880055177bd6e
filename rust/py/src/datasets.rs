//! Defines the Python functions of `manylabel.datasets`, which read and write files.
//!
//! Files are read while the GIL is released. The arrays are converted to numpy arrays afterwards.

use crate::arrays::{F32s, I32s, I64s, granted, handed};
use crate::csr::PyCsr;
use crate::run::run;
use manylabel_base::{Error, collected, filled};
use manylabel_datasets::{
    Arff, ArffOptions, Cells, Index, Missing, Real, Rows, XcFile, parse_lines,
    read_arff as read_relation, write_xc as write,
};
use manylabel_sparse::with_sparse;
use numpy::{Element, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use std::path::{Path, PathBuf};

/// The arrays `indptr`, `indices` and `data` of a CSR matrix.
type Csr<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Bound<'py, PyAny>);

/// A tuple of four items: the numbers of rows, features and labels; the arrays of X; the arrays of Y; and the
/// arrays of the unknown entries of Y.
type Examples<'py> = ((usize, usize, usize), Csr<'py>, Csr<'py>, Csr<'py>);

/// The content of an ARFF file: X, the arrays of Y, the arrays of the unknown entries of Y, the names of the
/// features, and the names of the labels. X is a flat array of dense values, or the arrays of a CSR matrix.
type Relation<'py> = (
    Bound<'py, PyAny>,
    Csr<'py>,
    Csr<'py>,
    Bound<'py, PyList>,
    Bound<'py, PyList>,
);

/// The content of a file that was read while the GIL was released. This function is called with the GIL and
/// creates the numpy arrays.
type Read = Box<dyn for<'py> FnOnce(Python<'py>) -> PyResult<Examples<'py>> + Send>;

/// Reads a file in the format of the Extreme Classification Repository. If `double` is true, X has double
/// precision, otherwise single precision.
#[pyfunction]
#[pyo3(signature = (path, *, double, n_threads))]
pub(crate) fn read_xc(
    py: Python<'_>,
    path: PathBuf,
    double: bool,
    n_threads: usize,
) -> PyResult<Examples<'_>> {
    let read = run(py, n_threads, None, |watch| {
        let file = XcFile::open(&path, watch)?;
        let (_, n_features, n_labels) = file.shape();
        let narrow = n_features.max(n_labels) as u64 <= <i32 as Index>::MAX;
        match (narrow, double) {
            (true, false) => read::<i32, f32>(file),
            (true, true) => read::<i32, f64>(file),
            (false, false) => read::<i64, f32>(file),
            (false, true) => read::<i64, f64>(file),
        }
    })?;
    read(py)
}

/// The arrays of X (ends of the rows, columns and values), the arrays of Y (ends of the rows and columns), and the
/// arrays of the unknown entries of Y.
type Lines<'py> = (
    (I64s<'py>, I32s<'py>, F32s<'py>),
    (I64s<'py>, I32s<'py>),
    (I64s<'py>, I32s<'py>),
);

/// Parses lines of a file in the format of the Extreme Classification Repository, without the header.
///
/// `before` has the number of rows before the lines, and the number of the first line. `shape` has the largest number
/// of rows in the file, and the numbers of features and labels.
#[pyfunction]
#[pyo3(signature = (path, text, before, shape, *, n_threads))]
pub(crate) fn parse_xc<'py>(
    py: Python<'py>,
    path: PathBuf,
    text: PyReadonlyArray1<'py, u8>,
    before: (usize, usize),
    shape: (usize, usize, usize),
    n_threads: usize,
) -> PyResult<Lines<'py>> {
    let text = text.as_slice()?;
    let data = run(py, n_threads, None, |watch| {
        parse_lines::<i32, f32>(&path, text, before, shape, watch)
    })?;
    let x = (
        handed(py, data.x.ends)?,
        handed(py, data.x.indices)?,
        handed(py, data.x.values)?,
    );
    let y = (handed(py, data.y.ends)?, handed(py, data.y.indices)?);
    let unknown = (
        handed(py, data.unknown.ends)?,
        handed(py, data.unknown.indices)?,
    );
    Ok((x, y, unknown))
}

fn read<I: Index + Element, V: Real + Element>(file: XcFile<'_>) -> Result<Read, Error> {
    let data = file.read::<I, V>()?;
    let (x, y) = (Arrays::new(data.x)?, Arrays::of_labels(data.y)?);
    let unknown = Arrays::of_labels(data.unknown)?;
    Ok(Box::new(move |py| {
        let y = y.into_py(py)?;
        Ok((data.shape, x.into_py(py)?, y, unknown.into_py(py)?))
    }))
}

/// The arrays of a CSR matrix. scipy expects the same integer type for indptr and indices. This type is `I`,
/// or a 64-bit integer if there are more entries than `I` can count.
enum Arrays<I, V> {
    Narrow(Vec<I>, Vec<I>, Vec<V>),
    Wide(Vec<i64>, Vec<i64>, Vec<V>),
}

impl<I: Index + Element, V: Element> Arrays<I, V> {
    fn new(rows: Rows<I, V>) -> Result<Self, Error> {
        let Rows {
            ends,
            indices,
            values,
        } = rows;
        if indices.len() as u64 <= I::MAX {
            let ends = ends.into_iter().map(|end| I::of(end as u64));
            let ends = collected("number of rows", ends)?;
            return Ok(Self::Narrow(ends, indices, values));
        }
        let indices = indices.into_iter().map(|index| index.get() as i64);
        let indices = collected("number of stored entries", indices)?;
        Ok(Self::Wide(ends, indices, values))
    }

    fn into_py(self, py: Python<'_>) -> PyResult<Csr<'_>> {
        Ok(match self {
            Self::Narrow(ends, indices, values) => (
                handed(py, ends)?.into_any(),
                handed(py, indices)?.into_any(),
                handed(py, values)?.into_any(),
            ),
            Self::Wide(ends, indices, values) => (
                handed(py, ends)?.into_any(),
                handed(py, indices)?.into_any(),
                handed(py, values)?.into_any(),
            ),
        })
    }
}

impl<I: Index + Element> Arrays<I, i32> {
    /// Returns a label matrix, which has a 1 for each label of each row.
    fn of_labels(rows: Rows<I, ()>) -> Result<Self, Error> {
        let values = filled("number of labels", 1, rows.indices.len())?;
        Self::new(Rows {
            ends: rows.ends,
            indices: rows.indices,
            values,
        })
    }
}

/// Writes a file in the format of the Extreme Classification Repository. Explicit zeros are left out.
#[pyfunction]
pub(crate) fn write_xc(py: Python<'_>, path: PathBuf, x: PyCsr<'_>, y: PyCsr<'_>) -> PyResult<()> {
    let (x, y) = (x.unchecked("X")?, y.unchecked("Y")?);
    run(py, 1, None, |watch| {
        let y = y.to_labels()?;
        with_sparse!(x.sparse()?, |x| write(&path, x, y.view(), watch))
    })
}

/// Reads an ARFF file.
///
/// `xml` is the path of the file that names the labels, or None. `ignore` lists the names of attributes to
/// skip. `missing_labels` is "error", "absent" or "unknown": what a missing label value means. If `double` is
/// true, X has double precision, otherwise single precision.
#[pyfunction]
#[pyo3(signature = (path, xml, *, ignore, missing_labels, double))]
pub(crate) fn read_arff(
    py: Python<'_>,
    path: PathBuf,
    xml: Option<PathBuf>,
    ignore: Vec<String>,
    missing_labels: String,
    double: bool,
) -> PyResult<Relation<'_>> {
    let options = ArffOptions {
        xml: xml.as_deref(),
        ignore: &ignore,
        missing: match missing_labels.as_str() {
            "absent" => Missing::Absent,
            "unknown" => Missing::Unknown,
            _ => Missing::Error,
        },
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
    let (x, y, unknown, feature_names, label_names) = run(py, 1, None, |watch| {
        let Arff {
            x,
            y,
            unknown,
            feature_names,
            label_names,
        } = read_relation::<V>(path, options, watch)?;
        let x = match x {
            Cells::Dense(values) => Features::Dense(values),
            Cells::Sparse(rows) => Features::Sparse(Arrays::new(rows)?),
        };
        let (y, unknown) = (Arrays::of_labels(y)?, Arrays::of_labels(unknown)?);
        Ok((x, y, unknown, feature_names, label_names))
    })?;
    let x = match x {
        Features::Dense(values) => handed(py, values)?.into_any(),
        Features::Sparse(x) => x.into_py(py)?.into_pyobject(py)?.into_any(),
    };
    Ok((
        x,
        y.into_py(py)?,
        unknown.into_py(py)?,
        names(py, &feature_names)?,
        names(py, &label_names)?,
    ))
}

/// The matrix X, dense or sparse as in the file.
enum Features<V> {
    Dense(Vec<V>),
    Sparse(Arrays<i32, V>),
}

/// Makes a Python list of strings.
///
/// # Errors
///
/// Raises `MemoryError` if there is no memory for the list.
fn names<'py>(py: Python<'py>, names: &[String]) -> PyResult<Bound<'py, PyList>> {
    granted(|| {
        let list = PyList::empty(py);
        for name in names {
            list.append(PyString::from_bytes(py, name.as_bytes())?)?;
        }
        Ok(list)
    })
}
