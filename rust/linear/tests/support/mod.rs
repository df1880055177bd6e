//! Makes random matrices for tests.

use manylabel_sparse::CsrOwned;
use proptest::prelude::*;

/// Returns a random sparse matrix with rows of up to `nnz` entries.
pub(crate) fn sparse(
    n_rows: usize,
    n_cols: usize,
    nnz: usize,
    values: impl Strategy<Value = f32>,
) -> impl Strategy<Value = CsrOwned> {
    let row = prop::collection::btree_map(0..n_cols as u32, values, 0..=nnz);
    prop::collection::vec(row, n_rows).prop_map(move |rows| {
        let mut out = CsrOwned {
            indptr: vec![0],
            indices: Vec::new(),
            values: Vec::new(),
            n_cols,
        };
        for row in rows {
            out.indices.extend(row.keys());
            out.values.extend(row.values());
            out.indptr.push(out.indices.len());
        }
        out
    })
}
