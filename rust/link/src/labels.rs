//! Stores the training rows of each label.
//!
//! The fit processes Y label by label. It needs sums of features over the rows of a label, and
//! targets of a few labels. Y is therefore transposed once, in O(stored labels), and restricted to
//! the training rows.

use manylabel_base::{Error, Watch, collected, extend, filled, reserved};
use manylabel_sparse::CsrOwned;

/// The name of the entries in memory errors.
pub(crate) const ENTRIES: &str = "number of entries of Y";

/// The training rows of each label.
pub(crate) struct Labels {
    /// One row per label. It holds the positions of the label's rows in the list of training rows,
    /// in increasing order.
    pub(crate) positive: CsrOwned,
    /// The labels that occur in at least one row, in increasing order. Rows that are not training
    /// rows also count.
    pub(crate) seen: Vec<u32>,
}

impl Labels {
    /// Transposes `y` and keeps the rows in `train`, which are in increasing order.
    pub(crate) fn new(y: &CsrOwned, train: &[u32], watch: &Watch) -> Result<Self, Error> {
        let by_label = y.transpose()?;
        let is_seen = |label: &u32| !by_label.row(*label as usize).0.is_empty();
        let seen = collected("number of labels", (0..y.n_cols as u32).filter(is_seen))?;
        if train.len() == y.n_rows() {
            return Ok(Self {
                positive: by_label,
                seen,
            });
        }
        let mut positive = CsrOwned {
            indptr: reserved("number of labels", y.n_cols + 1)?,
            indices: reserved(ENTRIES, by_label.indices.len())?,
            values: Vec::new(),
            n_cols: train.len(),
        };
        positive.indptr.push(0);
        for label in 0..y.n_cols {
            watch.step(0)?;
            let rows = by_label.row(label).0.iter();
            let kept = rows.filter_map(|row| train.binary_search(row).ok());
            extend(ENTRIES, &mut positive.indices, kept.map(|at| at as u32))?;
            positive.indptr.push(positive.indices.len());
        }
        positive.values = filled(ENTRIES, 1.0, positive.indices.len())?;
        Ok(Self { positive, seen })
    }

    /// Returns the training rows of one label, as positions in the list of training rows.
    pub(crate) fn rows(&self, label: u32) -> &[u32] {
        self.positive.row(label as usize).0
    }
}
