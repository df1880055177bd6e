//! Reads and writes the text files in which multi-label data sets are distributed.
//!
//! - [`XcFile`] reads the format of the Extreme Classification Repository, and [`write_xc`] writes it.
//! - [`read_arff`] reads ARFF with the label conventions of MULAN, MEKA and Clus.
//!
//! Files are plain text or gzip. The content of a file determines whether the file is gzip. Files may be
//! pipes. The results are dense rows or the arrays of CSR matrices. The Python code wraps these arrays in
//! scipy matrices.
//!
//! # Invariants
//!
//! - A file is read in one pass, in blocks of whole lines. The functions need memory for the result and for a
//!   few blocks of text. The whole text is never in memory.
//! - Memory is allocated only for content that has been read. A size in the header never causes an
//!   allocation.
//! - If memory is short, the functions return an error and do not abort.
//! - All functions that wait for text can be stopped with a [`Watch`](manylabel_base::Watch).
//! - Errors in the content name the file and the line.
//! - Numbers are rounded correctly when they are read. A number that is written and read again has the same
//!   value.
//! - The result does not depend on the number of threads.
//!
//! | file | content |
//! |---|---|
//! | `source.rs` | blocks of whole lines from plain or gzip files; error messages about the content of files |
//! | `pipe.rs` | pipes and other files that may have no text yet |
//! | `number.rs` | conversion of decimal text to numbers and back |
//! | `xc/` | the format of the Extreme Classification Repository |
//! | `arff/` | ARFF and the XML label lists of MULAN |
//!
//! # Example
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
//! assert_eq!((x.ends, x.indices, x.values), (vec![0, 2, 3], vec![1, 3, 0], vec![0.5, 2.0, 1.0]));
//! assert_eq!((y.ends, y.indices), (vec![0, 2, 2], vec![0, 2])); // the second row has no labels
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

pub use arff::{Arff, ArffOptions, Cells, Missing, read_arff};
pub use number::Real;
pub use source::Index;
pub use xc::{Rows, Xc, XcFile, parse_lines, write_xc};
