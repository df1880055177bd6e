//! Computes products of a dense matrix with a panel of 32 columns.
//!
//! The type `RowBlocks` has the same products for sparse X. The argument `x` holds a range of consecutive,
//! complete rows of X. Each row has d values. Each value is multiplied by `scale`, which avoids a scaled copy
//! of X. Each pass over the panel processes four rows of X.
//!
//! Sums are computed in a fixed order, in the precision of X. [`add_transposed`] divides the rows of `x` into
//! groups of four, and adds the rows of a group in pairs. The first group starts at the first row of `x`. The
//! rounding of a sum therefore depends on how X is divided into ranges. The rounding does not depend on the
//! threads or the instruction set.

use manylabel_simd::wide;
use manylabel_sparse::{LANES, Lanes, Real};

/// Number of rows of X that are processed in one pass over the panel. Each row of the panel is
/// loaded once for all these rows of X.
const ROWS: usize = 4;

/// Iterates over the values of four consecutive rows with `d` values each, column by column.
#[inline(always)]
fn four_rows<T>(x: &[T], d: usize) -> impl Iterator<Item = ((&T, &T), (&T, &T))> {
    (x[..d].iter().zip(&x[d..2 * d])).zip(x[2 * d..3 * d].iter().zip(&x[3 * d..]))
}

/// Computes `out_i = scale Σ_j x_ij p_j` for the rows i of `x`. `p_j` is row j of the panel `p`.
#[wide]
pub(crate) fn times<T: Real>(x: &[T], scale: T, p: &[Lanes<T>], out: &mut [Lanes<T>]) {
    let d = p.len();
    for (x, out) in x.chunks(ROWS * d).zip(out.chunks_mut(ROWS)) {
        if let [a, b, c, e] = out {
            let mut sums = [Lanes::<T>::default(); ROWS];
            for (((&x0, &x1), (&x2, &x3)), p) in four_rows(x, d).zip(p) {
                sums[0].add_scaled(x0 * scale, p);
                sums[1].add_scaled(x1 * scale, p);
                sums[2].add_scaled(x2 * scale, p);
                sums[3].add_scaled(x3 * scale, p);
            }
            [*a, *b, *c, *e] = sums;
        } else {
            for (x, out) in x.chunks(d).zip(out) {
                let mut sum = Lanes::<T>::default();
                for (&x, p) in x.iter().zip(p) {
                    sum.add_scaled(x * scale, p);
                }
                *out = sum;
            }
        }
    }
}

/// Computes `g_j += scale Σ_i x_ij u_i` for the columns j of `x`. The sum is over the rows i of `x`, and
/// `u_i` is row i of the panel `u`.
#[wide]
pub(crate) fn add_transposed<T: Real>(x: &[T], scale: T, u: &[Lanes<T>], g: &mut [Lanes<T>]) {
    let d = g.len();
    for (x, u) in x.chunks(ROWS * d).zip(u.chunks(ROWS)) {
        if let [u0, u1, u2, u3] = u {
            for (((&x0, &x1), (&x2, &x3)), g) in four_rows(x, d).zip(g.iter_mut()) {
                let (x0, x1, x2, x3) = (x0 * scale, x1 * scale, x2 * scale, x3 * scale);
                for lane in 0..LANES {
                    let first = x0 * u0.0[lane] + x1 * u1.0[lane];
                    g.0[lane] += first + (x2 * u2.0[lane] + x3 * u3.0[lane]);
                }
            }
        } else {
            for (x, u) in x.chunks(d).zip(u) {
                for (&x, g) in x.iter().zip(g.iter_mut()) {
                    g.add_scaled(x * scale, u);
                }
            }
        }
    }
}
