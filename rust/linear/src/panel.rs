//! Computes products of X with the weights of sixteen labels at once. A group of sixteen labels is
//! called a panel. `DiSMEC` uses this module.
//!
//! All labels share X, so the products `X w` for sixteen labels need only one pass over X. In this
//! pass, each stored value is multiplied by sixteen weights, which fill one cache line. A dense
//! (rows, 16) matrix is stored as a slice of [`Lanes`], one per row. Rows without zeros, such as those of dense features,
//! are multiplied four at a time, with exactly the same results.
//!
//! The result for a label does not depend on the other labels of the panel or on the vector width
//! of the machine.

use manylabel_simd::{STRETCH, wide};
use manylabel_sparse::CsrRef;

/// The number of labels that are processed together (a panel). Sixteen `f32` numbers fill one cache
/// line.
pub(crate) const LANES: usize = 16;

/// The number of rows without zeros that are multiplied together. A row of the panel that is loaded is used for all of
/// them, and one of their partial sums fills half of the registers of AVX2.
const DENSE_ROWS: usize = 4;

/// A set of labels of a panel (a group of sixteen labels), with one bit for each label.
pub(crate) type Mask = u16;

/// One `f64` for each label of a panel (a group of sixteen labels). It is used for sums over whole
/// columns.
pub(crate) type Sums = [f64; LANES];

/// One `f32` for each label of a panel (a group of sixteen labels).
pub(crate) type Lanes = manylabel_simd::Lanes<f32, LANES>;

/// Returns `Σ_j row_j p_j` for one sparse row, computed with four partial sums.
#[inline(always)]
fn row_times_panel(cols: &[u32], vals: &[f32], p: &[Lanes]) -> Lanes {
    // Four independent sums are used, so that no addition waits for the previous addition. They are
    // separate variables, because the compiler would keep an array with a variable index in memory
    // and not in registers.
    let (mut a, mut b, mut c, mut d) = (
        Lanes::default(),
        Lanes::default(),
        Lanes::default(),
        Lanes::default(),
    );
    let (cols4, vals4) = (cols.chunks_exact(4), vals.chunks_exact(4));
    for (&col, &val) in cols4.remainder().iter().zip(vals4.remainder()) {
        a.add_scaled(val, &p[col as usize]);
    }
    for (col, val) in cols4.zip(vals4) {
        a.add_scaled(val[0], &p[col[0] as usize]);
        b.add_scaled(val[1], &p[col[1] as usize]);
        c.add_scaled(val[2], &p[col[2] as usize]);
        d.add_scaled(val[3], &p[col[3] as usize]);
    }
    for lane in 0..LANES {
        a.0[lane] = (a.0[lane] + b.0[lane]) + (c.0[lane] + d.0[lane]);
    }
    a
}

/// Does the same as [`row_times_panel`] for [`DENSE_ROWS`] rows with all columns. Each number has the same partial sums,
/// which are added in the same order.
#[inline(always)]
fn dense_rows_times_panel(rows: [&[f32]; DENSE_ROWS], p: &[Lanes], out: &mut [Lanes]) {
    /// The number of partial sums.
    const SUMS: usize = 4;
    /// The number of groups of rows of the panel that are read for one partial sum before the next one. They take 8 kB, so
    /// that they stay in the first-level cache.
    const AT_ONCE: usize = 32;
    let mut sums = [[Lanes::default(); DENSE_ROWS]; SUMS];
    let (groups, last) = p.as_chunks::<SUMS>();
    for (sum, row) in sums[0].iter_mut().zip(rows) {
        for (&val, p) in row.as_chunks::<SUMS>().1.iter().zip(last) {
            sum.add_scaled(val, p);
        }
    }
    for (block, groups) in groups.chunks(AT_ONCE).enumerate() {
        let vals = rows.map(|row| &row.as_chunks::<SUMS>().0[block * AT_ONCE..][..groups.len()]);
        for (which, sums) in sums.iter_mut().enumerate() {
            let mut of_rows = *sums;
            for (at, p) in groups.iter().enumerate() {
                for (sum, vals) in of_rows.iter_mut().zip(vals) {
                    sum.add_scaled(vals[at][which], &p[which]);
                }
            }
            *sums = of_rows;
        }
    }
    let [a, b, c, d] = sums;
    for (row, out) in out.iter_mut().enumerate() {
        for lane in 0..LANES {
            out.0[lane] = (a[row].0[lane] + b[row].0[lane]) + (c[row].0[lane] + d[row].0[lane]);
        }
    }
}

/// Computes `out_i = Σ_j x_ij p_j` for the rows `first..first + out.len()` of `x`. The time is O(16
/// · number of entries of these rows).
///
/// If `x` is the transpose of X, the function computes gradients, `Xᵀ u`. The products with X and
/// with its transpose both read (gather) rows of `p`. This is twice as fast as writing (scattering)
/// to rows of the result, because stores delay later loads.
///
/// The columns of a row must be sorted and unique, and less than `p.len()`.
#[wide]
pub(crate) fn times_panel(x: CsrRef<'_>, first: usize, p: &[Lanes], out: &mut [Lanes]) {
    // If most values are zero, all rows form one group, and no further rows are counted.
    let is_dense = x.n_entries(first, out.len()) > out.len() * p.len() / 2;
    let group = if is_dense { DENSE_ROWS } else { out.len() };
    for (at, out) in (0..)
        .step_by(group.max(1))
        .zip(out.chunks_mut(group.max(1)))
    {
        let first = first + at;
        // A row has at most `p.len()` entries.
        if out.len() == DENSE_ROWS && x.n_entries(first, DENSE_ROWS) == DENSE_ROWS * p.len() {
            dense_rows_times_panel(std::array::from_fn(|i| x.row(first + i).1), p, out);
            continue;
        }
        let rows = x.rows(first..first + out.len());
        for (out, (cols, vals)) in out.iter_mut().zip(rows) {
            *out = row_times_panel(cols, vals, p);
        }
    }
}

/// Returns the dot product `Σ_j a_j b_j` for each lane. Sums over [`STRETCH`] terms are computed in
/// `f32` and then added in `f64`.
#[wide]
pub(crate) fn dot(a: &[Lanes], b: &[Lanes]) -> Sums {
    let mut sums = [0.0; LANES];
    for (a, b) in a.chunks(STRETCH).zip(b.chunks(STRETCH)) {
        let mut part = Lanes::default();
        for (a, b) in a.iter().zip(b) {
            part.add_product(a, b);
        }
        part.add_to(&mut sums);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use manylabel_sparse::CsrOwned;

    #[test]
    fn dense_rows_have_the_same_results_as_single_rows() {
        let mut rng = Rng::with_seed(5);
        for n_cols in [1, 3, 4, 127, 133, 300] {
            let p: Vec<Lanes> = (0..n_cols)
                .map(|_| manylabel_simd::Lanes(std::array::from_fn(|_| rng.f32() - 0.5)))
                .collect();
            // All rows have all columns, except for one row in the middle.
            let mut x = CsrOwned {
                indptr: vec![0],
                indices: Vec::new(),
                values: Vec::new(),
                n_cols,
            };
            for row in 0..15 {
                x.indices.extend(u32::from(row == 6)..n_cols as u32);
                x.values.resize_with(x.indices.len(), || rng.f32() - 0.5);
                x.indptr.push(x.indices.len());
            }
            let mut found = vec![Lanes::default(); 14];
            times_panel(x.view(), 1, &p, &mut found);
            for (row, found) in (1..).zip(&found) {
                let (cols, vals) = x.row(row);
                let expected = row_times_panel(cols, vals, &p);
                assert_eq!(
                    found.0.map(f32::to_bits),
                    expected.0.map(f32::to_bits),
                    "row {row} of {n_cols} columns"
                );
            }
        }
    }
}
