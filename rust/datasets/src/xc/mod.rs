//! Reads and writes the text format of the Extreme Classification Repository (Bhatia et al., *The
//! extreme classification repository*, 2016).
//!
//! ```text
//! 3 6 4               number of examples, features and labels
//! 0,2 1:0.5 3:2       an example with the labels 0 and 2
//!  0:1 5:0.25         an example without labels
//! 1                   an example without features
//! ```
//!
//! The first line is the header. Each further line is one example. It lists the labels separated by commas,
//! then a blank, then `feature:value` pairs separated by blanks. Labels and features are counted from 0. If
//! an example has no labels, its line begins with a blank.
//!
//! `read.rs` parses blocks of lines in parallel. At the same time, the next blocks are read and
//! decompressed. `write.rs` writes a new file and renames it when it is complete.

mod read;
mod write;

pub use read::{Rows, Xc, XcFile, parse_lines};
pub use write::write_xc;
