//! Compressed sparse rows: what is borrowed from scipy ([`CsrView`]), what we own ([`CsrOwned`]),
//! and the few kernels on rows that every method shares.
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

mod owned;
mod scalar;
mod topk;
mod view;

pub use owned::CsrOwned;
pub use scalar::{Index, Value};
pub use topk::TopK;
pub use view::CsrView;
