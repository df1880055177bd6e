//! ARFF, Weka's attribute-relation file form, with the conventions by which multi-label files tell
//! labels from features:
//!
//! - MULAN (Tsoumakas et al., JMLR 2011): a second file in XML names the label attributes;
//! - MEKA (Read et al., JMLR 2016): `-C n` in the relation name makes the first n attributes
//!   labels, or the last n if n is negative;
//! - Clus (Vens et al., Machine Learning 2008): one attribute of type `hierarchical` lists paths
//!   `a/b/c`, and an example gives some of them, joined by `@`.
//!
//! The XML file wins over the other two, for it is given on purpose.

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
    /// The XML file that names the labels.
    pub xml: Option<&'a Path>,
    /// Names of attributes to leave out.
    pub ignore: &'a [String],
    /// Whether a missing label value (`?`) means absent; it is an error otherwise.
    pub missing_is_absent: bool,
}

/// Feature values, in the form the file has them in.
#[derive(Debug, Clone, PartialEq)]
pub enum Cells<V> {
    /// Row after row.
    Dense(Vec<V>),
    /// Of a file with rows in braces.
    Sparse(Rows<i32, V>),
}

/// A data set. Missing feature values are NaN.
#[derive(Debug, Clone, PartialEq)]
pub struct Arff<V> {
    /// Features.
    pub x: Cells<V>,
    /// Labels, without values.
    pub y: Rows<i32, ()>,
    /// One name a column of `x`.
    pub feature_names: Vec<String>,
    /// One name a column of `y`.
    pub label_names: Vec<String>,
}

/// Reads an ARFF file, plain or gzip. `watch` counts bytes of text, and is looked at while there is nothing
/// to read: a file may be a pipe.
///
/// A numeric attribute is one feature. A nominal one of two values is one 0/1 feature, otherwise
/// one 0/1 feature per value. Features and labels are in the order of the attributes.
///
/// Memory is that of the result and a block of text; a single pass, linear time.
///
/// # Errors
///
/// [`Error::Parse`] if a file is malformed, does not say which attributes are labels, or has
/// attributes that are neither numbers nor nominal; [`Error::Param`] if `ignore` names no
/// attribute; [`Error::Io`]; [`Error::Stopped`]; [`Error::TooLarge`].
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
