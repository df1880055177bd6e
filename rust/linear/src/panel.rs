//! Sixteen labels side by side: what every pass over the features works on.
//!
//! All labels share X, so the products `X w` of sixteen labels are one pass over X in which each
//! stored value meets one cache line of sixteen weights. Lane by lane the arithmetic is that of a
//! label on its own, in the same order whichever labels share the panel and whatever the vector
//! width of the machine, so results depend on neither.

use manylabel_simd::{STRETCH, wide};
use manylabel_sparse::CsrOwned;

/// Labels that share one pass over the features; sixteen `f32` fill one cache line.
pub(crate) const LANES: usize = 16;

/// A set of lanes, one bit each.
pub(crate) type Mask = u16;

/// One `f64` for each label of a panel: sums over whole columns.
pub(crate) type Sums = [f64; LANES];

/// One `f32` for each label of a panel.
pub(crate) type Lanes = manylabel_simd::Lanes<f32, LANES>;

/// The lanes above `bound`.
#[inline(always)]
pub(crate) fn above(lanes: &Lanes, bound: f32) -> Mask {
    (0..LANES).fold(0, |mask, lane| {
        mask | Mask::from(lanes.0[lane] > bound) << lane
    })
}

/// `sum_j row_j p_j` for one sparse row.
#[inline(always)]
fn row_times_panel(cols: &[u32], vals: &[f32], p: &[Lanes]) -> Lanes {
    // Four sums by name (an indexed array of them would live in memory), so that additions do not
    // wait for one another.
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

/// `out_i = sum_j x_ij p_j` for the rows `first..first + out.len()` of `x`.
///
/// With the transpose of X for `x` this is the gradient's half of the work, `Xᵀ u`: gathering
/// from both sides is twice as fast as scattering along rows, whose stores stall later loads.
#[wide]
pub(crate) fn times_panel(x: &CsrOwned, first: usize, p: &[Lanes], out: &mut [Lanes]) {
    for (i, out) in out.iter_mut().enumerate() {
        let (cols, vals) = x.row(first + i);
        *out = row_times_panel(cols, vals, p);
    }
}

/// Lane by lane `sum_j a_j b_j`.
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
