//! Lists the rows of every cluster. The input is the cluster number of every row.

use manylabel_base::{Error, copied, filled, push};

/// The rows of every cluster, in increasing order.
#[derive(Debug)]
pub(crate) struct Members {
    ends: Vec<usize>,
    rows: Vec<u32>,
}

impl Members {
    /// Groups rows by their cluster, in O(`n_rows` + `n_clusters`) time.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    ///
    /// # Panics
    ///
    /// Panics if a cluster number is not below `n_clusters`.
    pub(crate) fn new(cluster_of: &[u32], n_clusters: usize) -> Result<Self, Error> {
        let mut ends = filled("number of clusters", 0, n_clusters + 1)?;
        for &cluster in cluster_of {
            ends[cluster as usize + 1] += 1;
        }
        for cluster in 0..n_clusters {
            ends[cluster + 1] += ends[cluster];
        }
        let mut next = copied("number of clusters", &ends)?;
        let mut rows = filled("number of rows", 0, cluster_of.len())?;
        for (row, &cluster) in (0..).zip(cluster_of) {
            rows[next[cluster as usize]] = row;
            next[cluster as usize] += 1;
        }
        Ok(Self { ends, rows })
    }

    /// Returns the number of clusters, including clusters without rows.
    pub(crate) fn n_clusters(&self) -> usize {
        self.ends.len() - 1
    }

    /// Returns the rows of one cluster, in increasing order.
    pub(crate) fn rows(&self, cluster: usize) -> &[u32] {
        &self.rows[self.ends[cluster]..self.ends[cluster + 1]]
    }
}

/// Removes the numbers of clusters without rows, and renumbers the other clusters in order. Returns
/// the old number of each remaining cluster.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory.
pub(crate) fn drop_empty(cluster_of: &mut [u32], n_clusters: usize) -> Result<Vec<u32>, Error> {
    let mut new = filled("number of clusters", u32::MAX, n_clusters)?;
    for &cluster in &*cluster_of {
        new[cluster as usize] = 0;
    }
    let mut kept = Vec::new();
    for (old, new) in (0..).zip(&mut new) {
        if *new == 0 {
            *new = kept.len() as u32;
            push("number of clusters", &mut kept, old)?;
        }
    }
    for cluster in cluster_of {
        *cluster = new[*cluster as usize];
    }
    Ok(kept)
}
