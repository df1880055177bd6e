//! Compiles plain loops for several instruction sets, without intrinsics.
//!
//! [`wide`] compiles a function once for each instruction set. The program chooses one of the compiled
//! versions at run time. No other code of the workspace names instruction sets. A crate that uses [`wide`]
//! must also depend on `multiversion`. Functions called inside a `wide` function must be inlined
//! (`#[inline(always)]`). Otherwise these functions are compiled for the baseline instruction set.
//!
//! [`Lanes`] is an array of numbers that fills one or two cache lines. [`exp()`], [`exp_f32`],
//! [`ln_ratio`], [`add_scaled`] and [`total`] are helper functions that are inlined into the loops that
//! call them.
//!
//! [`has_512_bits`] and [`has_fused_multiply_add`] return what the processor has, for code that chooses the
//! size of its tiles or another method.
//!
//! Results do not depend on the instruction set. No sum is reordered. Only calls of `mul_add` fuse a product
//! with an addition, and they do so in every version. An instruction set with fused multiply-add needs a
//! single instruction for `mul_add`. The baseline version calls a slow library function.
//!
//! ```
//! use manylabel_simd::{exp, wide};
//!
//! #[wide]
//! fn softmax(row: &mut [f64]) {
//!     let highest = row.iter().fold(f64::NEG_INFINITY, |a, &b| a.max(b));
//!     for x in row.iter_mut() {
//!         *x = exp(*x - highest);
//!     }
//!     let total: f64 = row.iter().sum();
//!     for x in row {
//!         *x /= total;
//!     }
//! }
//!
//! let mut row = [0.0, 0.0, -1000.0];
//! softmax(&mut row);
//! assert_eq!(row, [0.5, 0.5, 0.0]);
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        reason = "tests choose their sizes"
    )
)]

mod exp;
mod features;
mod lanes;

pub use exp::{exp, exp_f32, ln_ratio};
pub use features::{has_512_bits, has_fused_multiply_add};
pub use lanes::{LANES, Lane, Lanes, STRETCH, add_scaled, total};
pub use manylabel_simd_macros::wide;
