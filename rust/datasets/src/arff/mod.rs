//! ARFF, Weka's attribute-relation file format, with three conventions for telling labels from
//! features:
//!
//! - MULAN (Tsoumakas et al., JMLR 2011): a second file in XML names the label attributes.
//! - MEKA (Read et al., JMLR 2016): `-C n` in the relation name makes the first n attributes
//!   labels, or the last |n| if n is negative.
//! - Clus (Vens et al., Machine Learning 2008): one attribute of type `hierarchical` lists paths
//!   `a/b/c`, and an example gives some of them, joined by `@`. The ancestors of a path are labels
//!   too.
//!
//! An XML file, if given, takes precedence over the other two.
//!
//! Reading has three steps. `header.rs` collects the attributes up to `@data`, with words split by
//! `line.rs`. `columns.rs` decides which attribute becomes which column of X or Y, with the names
//! from `labels.rs` if there is an XML file. `rows.rs` then reads one example per line.

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

/// What a caller of [`read_arff`] may choose.
#[derive(Debug, Default)]
pub struct ArffOptions<'a> {
    /// The XML file that names the labels, in MULAN's format.
    pub xml: Option<&'a Path>,
    /// Names of attributes to leave out. Each must exist.
    pub ignore: &'a [String],
    /// Whether a missing label value (`?`) means that the label is absent. Otherwise it is an
    /// error.
    pub missing_is_absent: bool,
}

/// Feature values, dense or sparse as in the file. The first example decides.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells<V> {
    /// Row after row, with as many values per row as there are features.
    Dense(Vec<V>),
    /// The values other than 0, of a file with examples in braces.
    Sparse(Rows<i32, V>),
}

/// A data set as read from an ARFF file.
#[derive(Debug, Clone, PartialEq)]
pub struct Arff<V> {
    /// Features. Missing values are NaN.
    pub x: Cells<V>,
    /// Labels of each example, ascending, without values.
    pub y: Rows<i32, ()>,
    /// One name per column of `x`.
    pub feature_names: Vec<String>,
    /// One name per column of `y`.
    pub label_names: Vec<String>,
}

/// Reads an ARFF file, plain or gzip. `watch` counts bytes of text, and is called at intervals
/// while there is nothing to read: the file may be a pipe.
///
/// Features and labels are in the order of the attributes:
///
/// - A numeric attribute is one feature.
/// - A nominal attribute with two values is one 0/1 feature. It is 1 for the value that means yes if
///   the other one means no, else for the second value.
/// - Any other nominal attribute is one 0/1 feature per value, named `attribute=value`.
/// - A label attribute must be numeric with values 0 and 1, or nominal with values that mean no and
///   yes.
///
/// Takes linear time in a single pass. Memory is that of the result and a block of text.
///
/// # Errors
///
/// Returns [`Error::Parse`] if a file is malformed, does not say which attributes are labels, or has
/// attributes that are neither numeric nor nominal and not ignored. Returns [`Error::Param`] if a name
/// in `ignore` is not that of an attribute; [`Error::Io`]; [`Error::Stopped`]. Returns
/// [`Error::TooLarge`] if memory is short.
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
