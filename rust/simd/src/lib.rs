//! Wide arithmetic: plain loops, compiled for several instruction sets.
//!
//! [`wide`] compiles a function once for each instruction set and chooses among them when it is
//! called. It is the one place that names them; the crate that uses it also depends on
//! `multiversion`. What the function calls must be inlined, or it stays narrow.
//!
//! [`Lanes`] are numbers side by side, as many as fill a cache line or two; [`exp`], [`ln_ratio`],
//! [`add_scaled`] and [`total`] become part of the loop that calls them.
//!
//! Results do not depend on the instruction set: no sum is reordered and no product fused with an
//! addition unless the code says so (`mul_add`), and then by all sets but the smallest.
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
