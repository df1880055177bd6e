//! Defines matrix types in compressed sparse row (CSR) form, and operations on rows that all algorithms
//! share.
//!
//! A CSR matrix consists of three arrays. Row `r` has the columns `indices[indptr[r]..indptr[r + 1]]`, and
//! `values` holds the values at the same positions. Entries that are not stored are 0.
//!
//! | type | content | made by |
//! |---|---|---|
//! | [`CsrView`] | a borrowed matrix with any index and value type of scipy | the Python bindings |
//! | [`DenseView`] | a borrowed dense matrix in C order | the Python bindings |
//! | [`Table`] | a borrowed dense matrix of any float type and strides; input of dense fits | the Python bindings |
//! | [`Sparse`] | a [`CsrView`] of any of four types; input of fits | the Python bindings |
//! | [`Features`] | a [`CsrView`] or [`DenseView`]; input of predictions | the Python bindings |
//! | [`CsrOwned`] | an owned matrix of `u32` columns and `f32` values | solvers |
//! | [`RowBlocks`] | a copy for products with dense matrices | `pls`, LEML, `correlated` |
//! | [`ColumnScaling`], [`ScaledColumns`] | shifts and scales that give columns unit variance | estimators that standardize |
//! | [`TopK`], [`Picked`] | the best scores of a row; the rows of a sparse result | scoring |
//!
//! The structure of a borrowed matrix is checked once, by [`CsrView::new`], in one pass over its indices. All
//! code that takes a view relies on this check. Array accesses are still bounds-checked, because another
//! Python thread may write to a borrowed array at the same time. Such a write causes at worst a panic. Loops
//! over rows do not allocate memory. Functions that copy the input return
//! [`Error::TooLarge`](manylabel_base::Error::TooLarge) if memory is short.
//!
//! The crate contains no losses and no models.
//!
//! ```
//! use manylabel_sparse::CsrView;
//!
//! // [[0, 2], [3, 0]]
//! let x = CsrView::new("X", &[0i32, 1, 2], &[1, 0], &[2.0f32, 3.0], 2).unwrap();
//! assert_eq!(x.row(0), (&[1][..], &[2.0f32][..]));
//! assert!(CsrView::new("X", &[0i32, 1, 2], &[7, 0], &[2.0f32, 3.0], 2).is_err());
//! ```
//!
//! The second example makes an owned copy with rows of unit length, and the transpose of this copy:
//!
//! ```
//! use manylabel_sparse::{CsrOwned, CsrView};
//!
//! // [[3, 4], [0, 2]]
//! let x = CsrView::new("X", &[0i32, 2, 3], &[0, 1, 1], &[3.0f32, 4.0, 2.0], 2)?;
//! let unit = CsrOwned::from_view(x, true)?;
//! assert_eq!(unit.values, [0.6, 0.8, 1.0]);
//! let transposed = unit.transpose()?;
//! assert_eq!(transposed.row(1), (&[0, 1][..], &[0.8, 1.0][..]));
//! # Ok::<(), manylabel_base::Error>(())
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
mod copies;
mod dense;
mod features;
mod full;
mod labels;
mod owned;
mod picked;
mod rows;
mod scalar;
mod standardize;
mod stored;
mod table;
mod topk;
mod transpose;
mod view;

pub use blocks::{ColumnOrder, RowBlock, RowBlocks};
pub use copies::CopiedRows;
pub use dense::DenseView;
pub use features::{Arrays, AsSparse, Dense, DenseEntries, Features, Sparse};
pub use full::FullRows;
pub use labels::{Labels, LabelsOwned};
pub use manylabel_simd::{LANES, Lanes};
pub use owned::CsrOwned;
pub use picked::Picked;
pub use rows::{Rows, RowsRef};
pub use scalar::{Index, Real, Value, from_half};
pub use standardize::{ColumnScaling, ScaledColumns};
pub use stored::{CsrMut, CsrRef, Stored, scale_into};
pub use table::{Table, TableRows};
pub use topk::TopK;
pub use view::CsrView;
