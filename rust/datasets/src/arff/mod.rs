//! Reads files in ARFF, the attribute-relation file format of Weka. Three conventions determine which
//! attributes are labels:
//!
//! - MULAN (Tsoumakas et al., JMLR 2011): a second file in XML names the label attributes.
//! - MEKA (Read et al., JMLR 2016): the relation name contains `-C n`. The first n attributes are then
//!   labels. If n is negative, the last |n| attributes are labels.
//! - Clus (Vens et al., Machine Learning 2008): one attribute of type `hierarchical` lists paths `a/b/c`. The
//!   value of an example is one or more of these paths, joined by `@`. The ancestors of a path are labels
//!   too.
//!
//! If an XML file is given, the other two conventions are not used.
//!
//! Reading has three steps. `header.rs` collects the attributes up to `@data`, and `line.rs` splits lines
//! into words. `columns.rs` assigns the attributes to the columns of X and Y. If there is an XML file,
//! `labels.rs` reads the names of the labels for `columns.rs`. Then `rows.rs` reads one example per line.

mod columns;
mod header;
mod labels;
mod line;
mod rows;

use crate::number::Real;
use crate::source::{Block, Source};
use crate::xc::Rows;
use columns::Columns;
use header::Header;
use manylabel_base::{Error, Watch};
use rows::Examples;
use std::path::Path;

/// The options of [`read_arff`].
#[derive(Debug, Default)]
pub struct ArffOptions<'a> {
    /// The XML file that names the labels, in MULAN's format. `None` if there is no such file.
    pub xml: Option<&'a Path>,
    /// The names of attributes to leave out. Each name must exist in the file.
    pub ignore: &'a [String],
    /// What a missing label value (`?`) means.
    pub missing: Missing,
}

/// What a missing label value (`?`) means.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Missing {
    /// It is an error.
    #[default]
    Error,
    /// The label is absent.
    Absent,
    /// The label is unknown. A missing value of a hierarchical attribute, which holds all labels, is an error.
    Unknown,
}

/// The feature values. They are dense or sparse, like the first example of the file.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells<V> {
    /// Dense values, row after row. Each row has one value for each feature.
    Dense(Vec<V>),
    /// The nonzero values, for a file whose examples are in braces.
    Sparse(Rows<i32, V>),
}

/// The data set read from an ARFF file.
#[derive(Debug, Clone, PartialEq)]
pub struct Arff<V> {
    /// The features. Missing values are NaN.
    pub x: Cells<V>,
    /// The labels of each example, in increasing order, without values.
    pub y: Rows<i32, ()>,
    /// The unknown labels of each example, in increasing order, without values.
    pub unknown: Rows<i32, ()>,
    /// The name of each column of `x`.
    pub feature_names: Vec<String>,
    /// The name of each column of `y`.
    pub label_names: Vec<String>,
}

/// Reads an ARFF file, which may be compressed with gzip. `watch` counts the bytes of text that have been
/// read. If the file is a pipe, the function also checks for a stop request while it waits for text.
///
/// Features and labels are in the order of the attributes:
///
/// - A numeric attribute is one feature.
/// - A nominal attribute with two values is one 0/1 feature. If one value means yes and the other means
///   no, the feature is 1 for yes. Otherwise the feature is 1 for the second value.
/// - Any other nominal attribute has one 0/1 feature per value, named `attribute=value`.
/// - A label attribute must be numeric with the values 0 and 1, or nominal with values that mean no and
///   yes.
///
/// The time is linear, in a single pass over the file. The function needs memory for the result and for one
/// block of text.
///
/// # Errors
///
/// Returns [`Error::Parse`] if a file is malformed, or if it does not determine which attributes are labels.
/// Also returns [`Error::Parse`] if an attribute is neither numeric nor nominal and is not ignored. Returns
/// [`Error::Param`] if a name in `ignore` is not the name of an attribute. Returns [`Error::Io`] if a file
/// cannot be read. Returns [`Error::TooLarge`] if memory is short, and [`Error::Stopped`] if the caller
/// requested a stop.
pub fn read_arff<V: Real>(
    path: &Path,
    options: &ArffOptions<'_>,
    watch: &Watch,
) -> Result<Arff<V>, Error> {
    let (mut source, mut block) = (Source::open(path, watch)?, Block::default());
    let mut header = Header::default();
    let mut examples: Option<Examples<V>> = None;
    while source.next(&mut block)? {
        for (number, line) in block.lines() {
            if let Some(examples) = &mut examples {
                examples
                    .push(line, watch)
                    .map_err(|unfit| unfit.at(path, number))?;
            } else if header
                .push(line, number, watch)
                .map_err(|unfit| unfit.at(path, number))?
            {
                examples = Some(Examples::new(
                    Columns::new(path, std::mem::take(&mut header), options, watch)?,
                    options,
                )?);
            }
        }
        watch.step(block.text().len())?;
    }
    match examples {
        Some(examples) => Ok(examples.finish()),
        None => Err(header.unfinished().at(path, block.first_line)),
    }
}
