//! Stores the training rows of each label.
//!
//! The fit processes Y label by label. It needs sums of features over the rows of a label, and the
//! targets of groups of labels. Y is therefore transposed once and restricted to the training rows,
//! in O(stored entries of Y) time.

use manylabel_base::{Error, Watch, collected, extend, filled, reserved};
use manylabel_sparse::{CsrOwned, Labels as Known};

/// Name of the entries in error messages about memory.
pub(crate) const ENTRIES: &str = "number of entries of Y";

/// The training rows of each label.
pub(crate) struct Labels {
    /// One row per label, which lists the training rows with this label in increasing order. A
    /// training row is given by its position in the list of training rows.
    pub(crate) positive: CsrOwned,
    /// The labels that occur in at least one row, in increasing order. Rows that are not used for
    /// training also count.
    pub(crate) seen: Vec<u32>,
    /// The training rows for which each label is unknown, in the form of `positive`. `None` if all pairs are
    /// known.
    pub(crate) unknown: Option<CsrOwned>,
}

impl Labels {
    /// Transposes `y` and keeps only the training rows. `train` lists these rows in increasing
    /// order.
    pub(crate) fn new(y: Known<'_>, train: &[u32], watch: &Watch) -> Result<Self, Error> {
        let Known { ones: y, unknown } = y;
        let unknown = unknown.map(|unknown| by_label(unknown, train, watch));
        let unknown = unknown.transpose()?;
        let by_label = y.transpose()?;
        let is_seen = |label: &u32| !by_label.row(*label as usize).0.is_empty();
        let seen = collected("number of labels", (0..y.n_cols as u32).filter(is_seen))?;
        if train.len() == y.n_rows() {
            return Ok(Self {
                positive: by_label,
                seen,
                unknown,
            });
        }
        Ok(Self {
            positive: restricted(&by_label, train, watch)?,
            seen,
            unknown,
        })
    }

    /// Returns the training rows that have the given label, as positions in the list of training
    /// rows.
    pub(crate) fn rows(&self, label: u32) -> &[u32] {
        self.positive.row(label as usize).0
    }

    /// Returns the training rows for which the given label is unknown, as positions in the list of training rows.
    pub(crate) fn unknown_rows(&self, label: u32) -> &[u32] {
        let unknown = self.unknown.as_ref();
        unknown.map_or(&[], |unknown| unknown.row(label as usize).0)
    }
}

/// Transposes `y` and keeps only the training rows.
fn by_label(y: &CsrOwned, train: &[u32], watch: &Watch) -> Result<CsrOwned, Error> {
    let by_label = y.transpose()?;
    if train.len() == y.n_rows() {
        return Ok(by_label);
    }
    restricted(&by_label, train, watch)
}

/// Keeps only the training rows of a transposed matrix. `train` lists these rows in increasing order.
fn restricted(by_label: &CsrOwned, train: &[u32], watch: &Watch) -> Result<CsrOwned, Error> {
    let n_labels = by_label.n_rows();
    let mut kept = CsrOwned {
        indptr: reserved("number of labels", n_labels + 1)?,
        indices: reserved(ENTRIES, by_label.indices.len())?,
        values: Vec::new(),
        n_cols: train.len(),
    };
    kept.indptr.push(0);
    for label in 0..n_labels {
        watch.step(0)?;
        let rows = by_label.row(label).0.iter();
        let places = rows.filter_map(|row| train.binary_search(row).ok());
        extend(ENTRIES, &mut kept.indices, places.map(|at| at as u32))?;
        kept.indptr.push(kept.indices.len());
    }
    kept.values = filled(ENTRIES, 1.0, kept.indices.len())?;
    Ok(kept)
}
