//! SIMD without intrinsics: plain loops that the compiler vectorizes for several instruction sets.
//!
//! [`wide`] compiles a function once for each instruction set and picks a version at run time. It is the
//! only place that names instruction sets. A crate that uses it must also depend on `multiversion`.
//! Functions called inside must be inlined (`#[inline(always)]`); otherwise they are compiled for the
//! baseline instruction set.
//!
//! [`Lanes`] are numbers side by side that fill one or two cache lines. [`exp()`], [`exp_f32`],
//! [`ln_ratio`], [`add_scaled`] and [`total`] are helpers that become part of the loop that calls them.
//!
//! Results do not depend on the instruction set. No sum is reordered, and no product is fused with an
//! addition unless the code calls `mul_add`. That is fused in every version: a single instruction where
//! the set has one, a slow library call in the baseline version.
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
mod lanes;

pub use exp::{exp, exp_f32, ln_ratio};
pub use lanes::{LANES, Lane, Lanes, STRETCH, add_scaled, total};
pub use manylabel_simd_macros::wide;
