//! The text form of the Extreme Classification Repository (Bhatia et al., "The extreme
//! classification repository", 2016).
//!
//! The first line holds the numbers of examples, features and labels; each further line one
//! example: its labels, comma between them, a blank, then `feature:value` pairs, blank between
//! them. Labels and features count from 0. A line without labels begins with the blank.

mod read;
mod write;

pub use read::{Rows, Xc, XcFile};
pub use write::write_xc;
