//! Readers and writers of the text files multi-label data comes in.
//!
//! - [`XcFile`], [`write_xc`]: the form of the Extreme Classification Repository, plain or gzip.
//! - [`read_arff`]: ARFF with the label conventions of MULAN, MEKA and Clus.
//!
//! Invariants: a file is read in blocks of whole lines, so memory is the result and a few blocks,
//! never the text; what a header claims is never allocated before it is there; memory that cannot be
//! had is an error; whatever waits for text can be stopped; every complaint about the content names file
//! and line. Nothing here computes with the data.
//!
//! ```
//! use manylabel_base::Watch;
//! use manylabel_datasets::{Xc, XcFile};
//!
//! let path = std::env::temp_dir().join(format!("manylabel-doc-{}.txt", std::process::id()));
//! std::fs::write(&path, "2 4 3\n0,2 1:0.5 3:2\n 0:1\n").unwrap();
//! let watch = Watch::new();
//! let Xc { x, y, shape, .. } = XcFile::open(&path, &watch).unwrap().read::<i32, f32>().unwrap();
//! assert_eq!(shape, (2, 4, 3));
//! assert_eq!((&x.ends[..], &x.indices[..], &x.values[..]), (&[0, 2, 3][..], &[1, 3, 0][..], &[0.5, 2.0, 1.0][..]));
//! assert_eq!((&y.ends[..], &y.indices[..]), (&[0, 2, 2][..], &[0, 2][..]));
//! std::fs::remove_file(&path).unwrap();
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

mod arff;
mod number;
mod pipe;
mod source;
mod xc;

pub use arff::{Arff, ArffOptions, Cells, read_arff};
pub use number::Real;
pub use source::Index;
pub use xc::{Rows, Xc, XcFile, write_xc};
