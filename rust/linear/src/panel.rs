//! Products with X for a panel of sixteen labels side by side, used by `DiSMEC`.
//!
//! All labels share X, so the products `X w` of sixteen labels take one pass over X, in which each stored
//! value meets one cache line of sixteen weights. A dense (rows, 16) matrix is a slice of [`Lanes`], one per
//! row.
//!
//! Each lane is computed as if its label were alone, in the same order. So results depend neither on which
//! labels share a panel nor on the vector width of the machine.

use manylabel_simd::{STRETCH, wide};
use manylabel_sparse::CsrOwned;

/// The number of labels in a panel: sixteen `f32` fill one cache line.
pub(crate) const LANES: usize = 16;

/// A set of lanes, one bit each.
pub(crate) type Mask = u16;

/// One `f64` for each label of a panel: sums over whole columns.
pub(crate) type Sums = [f64; LANES];

/// One `f32` for each label of a panel.
pub(crate) type Lanes = manylabel_simd::Lanes<f32, LANES>;

/// The set of lanes whose numbers exceed `bound`.
#[inline(always)]
pub(crate) fn above(lanes: &Lanes, bound: f32) -> Mask {
    (0..LANES).fold(0, |mask, lane| {
        mask | Mask::from(lanes.0[lane] > bound) << lane
    })
}

/// `Σ_j row_j p_j` for one sparse row, in four partial sums.
#[inline(always)]
fn row_times_panel(cols: &[u32], vals: &[f32], p: &[Lanes]) -> Lanes {
    // Four independent sums, so that an addition does not wait for the one before. They are separate
    // variables because an indexed array of them would be kept in memory instead of registers.
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

/// `out_i = Σ_j x_ij p_j` for the rows `first..first + out.len()` of `x`. O(their entries · 16).
///
/// Called with the transpose of X, this computes gradients, `Xᵀ u`. Gathering for both products is twice as
/// fast as scattering along rows for the second, where stores stall later loads.
#[wide]
pub(crate) fn times_panel(x: &CsrOwned, first: usize, p: &[Lanes], out: &mut [Lanes]) {
    for (i, out) in out.iter_mut().enumerate() {
        let (cols, vals) = x.row(first + i);
        *out = row_times_panel(cols, vals, p);
    }
}

/// `Σ_j a_j b_j` for each lane: in `f32` over [`STRETCH`] terms, then in `f64`.
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
