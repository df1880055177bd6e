//! Label vectors: each label is the sum of the rows that have it, scaled to unit length.
//!
//! This is the representation that the literature calls PIFA (positive instance feature aggregation):
//! `z_l = Σ_{i: y_il = 1} x_i / ‖…‖`. It is one sparse product, `Yᵀ X`, computed label by label.

use crate::gather::Columns;
use manylabel_base::{Error, Watch, extend, parts, push, reserved};
use manylabel_linear::dismec::Spare;
use manylabel_sparse::CsrOwned;
use rayon::prelude::*;

/// Labels in a unit of work.
const LABELS_AT_ONCE: usize = 64;

/// The name of entries in error messages.
const ENTRIES: &str = "stored values of label vectors";

/// The vectors of some labels, one after the other.
#[derive(Default)]
struct Part {
    ends: Vec<usize>,
    cols: Vec<u32>,
    values: Vec<f32>,
}

/// The vectors of `labels`; (labels, features). A label whose rows have no features has an empty vector.
///
/// Takes O(stored values of the rows of all labels) time.
///
/// # Errors
///
/// [`Error::TooLarge`], [`Error::Stopped`].
pub(crate) fn label_vectors(
    x: &CsrOwned,
    rows_of_label: &CsrOwned,
    labels: &[u32],
    watch: &Watch,
) -> Result<CsrOwned, Error> {
    let spare = Spare::default();
    let found = parts(labels.par_chunks(LABELS_AT_ONCE).map(|labels| {
        spare.with(
            || Ok((Columns::new(x.n_cols)?, Vec::new())),
            |(columns, sums)| {
                watch.step(0)?;
                let mut part = Part::default();
                for &label in labels {
                    add_label(
                        x,
                        rows_of_label.row(label as usize).0,
                        columns,
                        sums,
                        &mut part,
                    )?;
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
        n_cols: x.n_cols,
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

/// Appends the vector of the label that has the given rows, in increasing order of feature. Sums are in
/// double precision. The vector is empty if they are 0 or overflow.
///
/// # Errors
///
/// [`Error::TooLarge`].
fn add_label(
    x: &CsrOwned,
    rows: &[u32],
    columns: &mut Columns,
    sums: &mut Vec<f64>,
    part: &mut Part,
) -> Result<(), Error> {
    let rows = columns.gather(x, rows.iter().copied())?;
    sums.clear();
    extend(
        ENTRIES,
        sums,
        std::iter::repeat_n(0.0, columns.kept().len()),
    )?;
    for (&col, &value) in rows.indices.iter().zip(&rows.values) {
        sums[col as usize] += f64::from(value);
    }
    let norm = sums.iter().map(|sum| sum * sum).sum::<f64>().sqrt();
    if norm > 0.0 && norm.is_finite() {
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
        let found = label_vectors(&x, &rows_of_label, &[0, 2], &Watch::new()).expect("small");
        assert_eq!(found.row(0), (&[0, 1][..], &[0.6, 0.8][..]));
        assert_eq!(found.row(1), (&[2][..], &[1.0][..]));
    }
}
