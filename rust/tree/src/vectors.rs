//! Computes the label vectors, from which similar labels are found.
//!
//! The vector of a label is the sum of the rows that have the label, scaled to unit length:
//! `z_l = Σ_{i: y_il = 1} x_i / ‖Σ_{i: y_il = 1} x_i‖`. This representation is called PIFA (positive instance
//! feature aggregation) in the literature. Held-out rows are left out of the sum, unless a label has no other rows. The
//! sums of all labels are the sparse product `Yᵀ X`. It is computed label by label.

use crate::gather::Columns;
use manylabel_base::range::same;
use manylabel_base::{
    Error, Spare, Tasks, Watch, collected, copied, extend, filled, parts, push, reserved,
};
use manylabel_sparse::{CsrOwned, CsrRef, FullRows, RowsRef, Stored, TableRows};
use rayon::prelude::*;

/// The number of labels in a unit of work of a thread.
const LABELS_AT_ONCE: usize = 64;

/// The name of the stored values in error messages.
const ENTRIES: &str = "number of stored values of label vectors";

/// The name of rows in error messages.
const ROWS: &str = "number of rows of a label";

/// The vectors of the labels of a unit of work, one after the other.
#[derive(Default)]
struct Part {
    /// The position after the last stored value of each label.
    ends: Vec<usize>,
    /// The feature of each stored value.
    cols: Vec<u32>,
    /// The stored values.
    values: Vec<f32>,
}

/// Returns the vectors of `labels`, with shape (labels, features). If the rows of a label are empty, the
/// vector of the label is empty too.
///
/// The held-out rows are left out, unless they are the only rows of a label. `held` has their numbers in increasing
/// order. Otherwise, a rare label would be in the leaf that its held-out rows are sent to because of these rows, and
/// rankings of the held-out rows would favour the path.
///
/// The time is proportional to the number of stored values in the rows of each label, summed over all labels.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the caller requested a stop.
pub(crate) fn label_vectors(
    x: RowsRef<'_, '_>,
    rows_of_label: &CsrOwned,
    held: &[u32],
    labels: &[u32],
    watch: &Watch,
) -> Result<Stored<'static>, Error> {
    let is_used = |row: &u32| held.binary_search(row).is_err();
    let rows_of = |label: &u32| {
        let all = rows_of_label.row(*label as usize).0;
        let used = all.iter().copied().filter(is_used);
        let used: Vec<u32> = collected(ROWS, used)?;
        if used.is_empty() {
            return copied(ROWS, all);
        }
        Ok(used)
    };
    match x {
        RowsRef::Sparse(x) => sparse_vectors(x, rows_of, labels, watch).map(Stored::Owned),
        RowsRef::Dense(x) => dense_vectors(x, rows_of, labels, watch).map(Stored::Full),
    }
}

/// Returns the vectors of labels with dense rows. `rows_of` returns the rows of a label.
///
/// # Errors
///
/// Returns the same errors as [`label_vectors`].
fn dense_vectors(
    x: &TableRows<'_>,
    rows_of: impl Fn(&u32) -> Result<Vec<u32>, Error> + Sync,
    labels: &[u32],
    watch: &Watch,
) -> Result<FullRows, Error> {
    let dim = x.dim();
    let mut values = filled(ENTRIES, 0.0, labels.len().saturating_mul(dim))?;
    let units = values.par_chunks_mut(LABELS_AT_ONCE * dim.max(1));
    units
        .zip(labels.par_chunks(LABELS_AT_ONCE))
        .try_each(|(out, labels)| {
            let mut of_row = filled(ENTRIES, 0.0f32, dim)?;
            let mut sums = filled(ENTRIES, 0.0f64, dim)?;
            for (label, out) in labels.iter().zip(out.chunks_mut(dim)) {
                sums.fill(0.0);
                watch.step(0)?;
                for row in rows_of(label)? {
                    x.read(row as usize..row as usize + 1, &mut of_row);
                    for (sum, &value) in sums.iter_mut().zip(&of_row) {
                        *sum += f64::from(value);
                    }
                }
                if let Some(norm) = norm(&sums) {
                    for (out, sum) in out.iter_mut().zip(&sums) {
                        *out = (sum / norm) as f32;
                    }
                }
            }
            Ok(())
        })?;
    FullRows::new(values, labels.len(), dim)
}

/// Returns the norm of a sum of rows, or `None` if it is 0 or not finite.
fn norm(sums: &[f64]) -> Option<f64> {
    let norm = sums.iter().map(|sum| sum * sum).sum::<f64>().sqrt();
    (norm > 0.0 && norm.is_finite()).then_some(norm)
}

/// Returns the vectors of labels with sparse rows. `rows_of` returns the rows of a label.
///
/// # Errors
///
/// Returns the same errors as [`label_vectors`].
fn sparse_vectors(
    x: CsrRef<'_>,
    rows_of: impl Fn(&u32) -> Result<Vec<u32>, Error> + Sync,
    labels: &[u32],
    watch: &Watch,
) -> Result<CsrOwned, Error> {
    let spare = Spare::default();
    let found = parts(labels.par_chunks(LABELS_AT_ONCE).map(|labels| {
        spare.with(
            || Ok((Columns::new(x.n_cols())?, Vec::new())),
            |(columns, sums)| {
                watch.step(0)?;
                let mut part = Part::default();
                let Some(room) = x.room_for_copies() else {
                    for label in labels {
                        let rows = rows_of(label)?;
                        add_label(x, rows.iter().copied(), columns, sums, &mut part)?;
                    }
                    return Ok(part);
                };
                let mut rest = labels;
                while !rest.is_empty() {
                    let copies = x.copy_lists(rest.iter().map(&rows_of), room, watch)?;
                    rest = &rest[copies.len()..];
                    for (rows, copy) in copies {
                        let rows = 0..rows.len() as u32;
                        add_label(copy.view(), rows, columns, sums, &mut part)?;
                    }
                }
                Ok(part)
            },
        )
    }))?;
    let size = found.iter().map(|part| part.cols.len()).sum();
    let mut all = CsrOwned {
        indptr: reserved("number of labels", labels.len() + 1)?,
        indices: reserved(ENTRIES, size)?,
        values: reserved(ENTRIES, size)?,
        n_cols: x.n_cols(),
    };
    all.indptr.push(0);
    for part in found {
        let before = all.indices.len();
        extend(
            "number of labels",
            &mut all.indptr,
            part.ends.iter().map(|end| before + end),
        )?;
        extend(ENTRIES, &mut all.indices, part.cols)?;
        extend(ENTRIES, &mut all.values, part.values)?;
    }
    Ok(all)
}

/// Scales given label vectors to unit length. Vectors without a finite, positive norm become zero vectors.
///
/// # Errors
///
/// Returns [`Error::Shape`] if there are not `n_labels` vectors.
pub(crate) fn unit_vectors(mut vectors: CsrOwned, n_labels: usize) -> Result<CsrOwned, Error> {
    same("number of label vectors", n_labels, vectors.n_rows())?;
    for label in 0..n_labels {
        let values = vectors.indptr[label]..vectors.indptr[label + 1];
        let values = &mut vectors.values[values];
        let squares = values.iter().map(|&value| f64::from(value).powi(2));
        let norm = squares.sum::<f64>().sqrt();
        let scale = if norm > 0.0 && norm.is_finite() {
            1.0 / norm
        } else {
            0.0
        };
        for value in values {
            // A value that is not finite would stay NaN if it were multiplied by 0.
            *value = if scale > 0.0 {
                (f64::from(*value) * scale) as f32
            } else {
                0.0
            };
        }
    }
    Ok(vectors)
}

/// Appends the vector of a label to `part`, in increasing order of feature. `rows` has the rows of the label.
/// Sums are computed in double precision. The vector is empty if all sums are 0 or if the norm overflows.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
fn add_label(
    x: CsrRef<'_>,
    rows: impl Iterator<Item = u32> + Clone,
    columns: &mut Columns,
    sums: &mut Vec<f64>,
    part: &mut Part,
) -> Result<(), Error> {
    let rows = columns.gather(x, rows)?;
    sums.clear();
    extend(
        ENTRIES,
        sums,
        std::iter::repeat_n(0.0, columns.kept().len()),
    )?;
    for (&col, &value) in rows.indices.iter().zip(&rows.values) {
        sums[col as usize] += f64::from(value);
    }
    if let Some(norm) = norm(sums) {
        for (&col, &sum) in columns.kept().iter().zip(&*sums) {
            let value = (sum / norm) as f32;
            if value != 0.0 {
                push(ENTRIES, &mut part.cols, col)?;
                push(ENTRIES, &mut part.values, value)?;
            }
        }
    }
    push("number of labels", &mut part.ends, part.cols.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_vectors_are_scaled_to_unit_length() {
        let given = CsrOwned {
            indptr: vec![0, 2, 3],
            indices: vec![0, 1, 1],
            values: vec![3.0, 4.0, 0.0],
            n_cols: 2,
        };
        let found = unit_vectors(given.clone(), 2).expect("two vectors");
        assert_eq!(found.values, [0.6, 0.8, 0.0]);
        assert!(unit_vectors(given, 3).is_err());
    }

    #[test]
    fn vectors_are_sums_of_rows_at_unit_length() {
        // X = [[3, 0, 0], [0, 4, 0], [0, 0, 1]]; label 0 has rows 0 and 1, label 1 has none, label 2 row 2.
        let x = CsrOwned {
            indptr: vec![0, 1, 2, 3],
            indices: vec![0, 1, 2],
            values: vec![3.0, 4.0, 1.0],
            n_cols: 3,
        };
        let rows_of_label = CsrOwned {
            indptr: vec![0, 2, 2, 3],
            indices: vec![0, 1, 2],
            values: vec![1.0; 3],
            n_cols: 3,
        };
        let x = RowsRef::Sparse(x.view());
        let found = label_vectors(x, &rows_of_label, &[], &[0, 2], &Watch::new()).expect("small");
        assert_eq!(found.row(0), (&[0, 1][..], &[0.6, 0.8][..]));
        assert_eq!(found.row(1), (&[2][..], &[1.0][..]));
        // Row 0 is left out of label 0. Row 2 is the only row of label 2.
        let held = [0, 2];
        let found = label_vectors(x, &rows_of_label, &held, &[0, 2], &Watch::new());
        let found = found.expect("small");
        assert_eq!(found.row(0), (&[1][..], &[1.0][..]));
        assert_eq!(found.row(1), (&[2][..], &[1.0][..]));
    }
}
