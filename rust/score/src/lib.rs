//! Makes predictions from a fitted model. Predictions are the best labels of each row, the labels above a
//! threshold, scores, or probabilities.
//!
//! The crate of an algorithm implements the traits [`Model`] and [`Rows`], which compute the scores of a few
//! rows at a time. All other predictions are implemented here once for all models: [`Model::topk`],
//! [`Model::above`], [`Model::decision`], [`Model::probabilities`] and [`at`]. These functions process rows
//! in parallel. If there are few rows, the functions run on the calling thread. The functions stop early if
//! the caller requests a stop. Their results depend neither on the number of threads nor on which rows are
//! scored together.
//!
//! ```
//! use manylabel_base::{Error, Watch};
//! use manylabel_score::{Model, Options, Rows, Task};
//! use manylabel_sparse::{CsrView, Features, Sparse};
//! use std::ops::Range;
//!
//! /// The score of label j is the value of feature j.
//! struct Identity(usize);
//!
//! impl Model for Identity {
//!     fn n_labels(&self) -> usize {
//!         self.0
//!     }
//!     fn n_features(&self) -> usize {
//!         self.0
//!     }
//!     fn rows<'a>(&'a self, x: Features<'a>, _: Options) -> Result<Box<dyn Rows + 'a>, Error> {
//!         match x {
//!             Features::Sparse(Sparse::I32F32(x)) => Ok(Box::new(Batch(x))),
//!             _ => unimplemented!("other types in the same way"),
//!         }
//!     }
//! }
//!
//! struct Batch<'a>(CsrView<'a, i32, f32>);
//!
//! impl Rows for Batch<'_> {
//!     fn n_labels(&self) -> usize {
//!         self.0.n_cols()
//!     }
//!     fn score(&self, rows: Range<usize>, scores: &mut [f32], _: &mut Task) -> Result<(), Error> {
//!         for (row, scores) in rows.zip(scores.chunks_mut(self.n_labels())) {
//!             scores.fill(0.0);
//!             let (labels, values) = self.0.row(row);
//!             for (&label, &value) in labels.iter().zip(values) {
//!                 scores[label as usize] = value;
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! // [[0, 2], [3, 0]]
//! let x = CsrView::new("X", &[0i32, 1, 2], &[1, 0], &[2.0f32, 3.0], 2)?;
//! let top = Identity(2).topk(x.into(), 1, &Watch::new())?;
//! assert_eq!(top.indices, [1, 0]);
//! # Ok::<(), Error>(())
//! ```
#![forbid(unsafe_code)]

mod finite;
mod model;
mod rank;

pub use finite::keep_finite;
pub use model::{Bounds, Model, Options, Purpose, Rows, Search, Task, Work};
pub use rank::{at, room_for_all};
