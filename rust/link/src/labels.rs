//! Which rows hold which label.

use manylabel_base::{Error, Watch, collected, extend, filled, reserved};
use manylabel_sparse::CsrOwned;

/// What is named if there is no memory for them.
pub(crate) const ENTRIES: &str = "number of entries of Y";

/// Which training rows hold which label.
pub(crate) struct Labels {
    /// For each label, the numbers of its rows among the training rows.
    pub(crate) positive: CsrOwned,
    /// Labels that some row holds.
    pub(crate) seen: Vec<u32>,
}

impl Labels {
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

    pub(crate) fn rows(&self, label: u32) -> &[u32] {
        self.positive.row(label as usize).0
    }
}
