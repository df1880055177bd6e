//! Which rows hold which label.

use manylabel_base::Error;
use manylabel_sparse::CsrOwned;

/// Which training rows hold which label.
pub(crate) struct Labels {
    /// For each label, the numbers of its rows among the training rows.
    pub(crate) positive: CsrOwned,
    /// Labels that some row holds.
    pub(crate) seen: Vec<u32>,
}

impl Labels {
    pub(crate) fn new(y: &CsrOwned, train: &[u32]) -> Result<Self, Error> {
        let by_label = y.transpose()?;
        let seen = (0..y.n_cols as u32)
            .filter(|&label| !by_label.row(label as usize).0.is_empty())
            .collect();
        if train.len() == y.n_rows() {
            return Ok(Self {
                positive: by_label,
                seen,
            });
        }
        let mut positive = CsrOwned {
            indptr: vec![0],
            indices: Vec::new(),
            values: Vec::new(),
            n_cols: train.len(),
        };
        for label in 0..y.n_cols {
            let rows = by_label.row(label).0.iter();
            let kept = rows.filter_map(|row| train.binary_search(row).ok());
            positive.indices.extend(kept.map(|at| at as u32));
            positive.indptr.push(positive.indices.len());
        }
        positive.values = vec![1.0; positive.indices.len()];
        Ok(Self { positive, seen })
    }

    pub(crate) fn rows(&self, label: u32) -> &[u32] {
        self.positive.row(label as usize).0
    }
}
