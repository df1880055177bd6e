//! Computes products of X with the weights of sixteen labels at once. A group of sixteen labels is
//! called a panel. `DiSMEC` uses this module.
//!
//! All labels share X, so the products `X w` for sixteen labels need only one pass over X. In this
//! pass, each stored value is multiplied by sixteen weights, which fill one cache line. A dense
//! (rows, 16) matrix is stored as a slice of [`Lanes`], one per row.
//!
//! The result for a label does not depend on the other labels of the panel or on the vector width
//! of the machine.

use manylabel_simd::{STRETCH, wide};
use manylabel_sparse::CsrRef;

/// The number of labels that are processed together (a panel). Sixteen `f32` numbers fill one cache
/// line.
pub(crate) const LANES: usize = 16;

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

/// Computes `out_i = Σ_j x_ij p_j` for the rows `first..first + out.len()` of `x`. The time is O(16
/// · number of entries of these rows).
///
/// If `x` is the transpose of X, the function computes gradients, `Xᵀ u`. The products with X and
/// with its transpose both read (gather) rows of `p`. This is twice as fast as writing (scattering)
/// to rows of the result, because stores delay later loads.
#[wide]
pub(crate) fn times_panel(x: CsrRef<'_>, first: usize, p: &[Lanes], out: &mut [Lanes]) {
    for (i, out) in out.iter_mut().enumerate() {
        let (cols, vals) = x.row(first + i);
        *out = row_times_panel(cols, vals, p);
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
