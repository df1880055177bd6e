//! Compressed sparse rows: what is borrowed from scipy ([`CsrView`]), what we own ([`CsrOwned`]),
//! and the few kernels on rows that every method shares. [`RowBlocks`] is a copy made for products
//! with many dense columns, from both sides, thirty-two columns ([`Lanes`]) at a time.
//!
//! Invariant: structure is checked once, by [`CsrView::new`]; no kernel allocates in a row loop.
//! No losses and no labels here.
//!
//! ```
//! use manylabel_sparse::CsrView;
//!
//! // [[0, 2], [3, 0]]
//! let x = CsrView::new("X", &[0i32, 1, 2], &[1, 0], &[2.0f32, 3.0], 2).unwrap();
//! assert_eq!(x.row(0), (&[1][..], &[2.0f32][..]));
//! assert!(CsrView::new("X", &[0i32, 1, 2], &[7, 0], &[2.0f32, 3.0], 2).is_err());
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

mod blocks;
mod dense;
mod owned;
mod picked;
mod scalar;
mod standardize;
mod topk;
mod view;

pub use blocks::{ColumnOrder, RowBlock, RowBlocks};
pub use dense::DenseView;
pub use manylabel_simd::{LANES, Lanes};
pub use owned::CsrOwned;
pub use picked::Picked;
pub use scalar::{Index, Real, Value};
pub use standardize::ColumnScaling;
pub use topk::TopK;
pub use view::CsrView;
