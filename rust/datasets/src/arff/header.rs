//! Reads the header of an ARFF file: the lines `@relation`, `@attribute` and `@data` before the
//! examples.
//!
//! Keywords and types are case-insensitive, `%` begins a comment, and names may be quoted. The lines
//! must be in this order: `@relation`, one or more `@attribute`, `@data`. A byte order mark at the
//! beginning of the file is skipped.

use super::line::{Line, copied_text, decode};
use crate::source::{Unfit, no_room, quote, shorten};
use manylabel_base::{Error, Watch, copied, few, push};
use std::collections::HashMap;
use std::hash::Hash;

/// The largest length of an attribute name, in bytes. Each feature name of a nominal attribute repeats
/// the attribute name.
const LONGEST_NAME: usize = 4096;

/// The largest number of parts of a path in a hierarchy. Each ancestor of a path is a label whose name is the
/// path to the ancestor. So the names of these labels take memory proportional to the square of the number of
/// parts.
const DEEPEST: usize = 100;

/// An attribute that the header declares.
#[derive(Debug)]
pub(crate) struct Attribute {
    /// The name, without quotes.
    pub(crate) name: String,
    /// The type of the attribute.
    pub(crate) kind: Kind,
    /// The line of the declaration, counted from 1.
    pub(crate) line: usize,
}

/// The type of an attribute.
#[derive(Debug)]
pub(crate) enum Kind {
    /// `numeric`, `real` or `integer`.
    Numeric,
    /// A nominal attribute. Its declaration lists the values in braces.
    Nominal(Values),
    /// A hierarchical attribute. Its declaration lists the paths of a label hierarchy.
    Hierarchical(Vec<String>),
    /// An attribute of type `string` or `date`. It cannot be used as a feature.
    Other(&'static str),
}

/// The values of a nominal attribute.
#[derive(Debug)]
pub(crate) struct Values {
    /// The values in the order of their declaration. The position of a value is its index in this list.
    pub(crate) list: Vec<Vec<u8>>,
    /// The position of each value.
    positions: HashMap<Vec<u8>, usize>,
}

impl Values {
    /// The number of values or attributes that an error message shows.
    pub(crate) const FEW: usize = 5;

    /// Returns the first few values, separated by commas, for an error message.
    pub(crate) fn first_few(&self) -> String {
        let shown = self.list.iter().take(Self::FEW);
        let shown: Vec<String> = few(shown.map(|value| shorten(value)));
        shown.join(", ")
    }

    /// Returns the position of `value`, or `None` if the value is not declared. Up to eight values are
    /// compared one by one, which is faster than hashing.
    pub(crate) fn position(&self, value: &[u8]) -> Option<usize> {
        match self.list.len() {
            ..=8 => self.list.iter().position(|known| known == value),
            _ => self.positions.get(value).copied(),
        }
    }
}

/// The part of the header that has been read so far.
#[derive(Debug, Default)]
pub(crate) struct Header {
    /// The attributes, in the order of the file.
    pub(crate) attributes: Vec<Attribute>,
    /// The number `n` of `-C n` in the relation name, or `None` if the name does not contain `-C`. The number
    /// is never 0.
    pub(crate) n_labels: Option<i64>,
    /// The line of `@relation`, counted from 1. The line is 0 until `@relation` has been read.
    pub(crate) relation_line: usize,
    /// The position of each attribute name.
    names: HashMap<String, usize>,
}

impl Header {
    /// Reads one line. `number` is the line number, counted from 1. Returns true if the line was `@data`, the
    /// last line of the header. Empty lines and comments are skipped.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if the line is not allowed at this place or if a type is unknown. Also returns
    /// [`Unfit`] if a name is too long or used twice.
    pub(crate) fn push(
        &mut self,
        text: &[u8],
        number: usize,
        watch: &Watch,
    ) -> Result<bool, Unfit> {
        let text = text
            .strip_prefix(b"\xef\xbb\xbf")
            .filter(|_| number == 1)
            .unwrap_or(text);
        let mut line = Line::new(text, watch);
        if line.peek().is_none() {
            return Ok(false);
        }
        let wanted = self.wanted();
        let keyword = line.word(b" \t", wanted)?.text;
        let is = |known: &[u8]| keyword.eq_ignore_ascii_case(known);
        if self.relation_line == 0 && is(b"@relation") {
            self.relation_line = number;
            self.n_labels = n_labels(line.rest())?;
        } else if self.relation_line > 0 && is(b"@attribute") {
            self.push_attribute(line, number)?;
        } else if !self.attributes.is_empty() && is(b"@data") {
            line.end()?;
            return Ok(true);
        } else {
            return Err(Unfit::new(wanted, quote(text.trim_ascii())));
        }
        Ok(false)
    }

    /// Returns the error for a file that ends within the header.
    pub(crate) fn unfinished(&self) -> Unfit {
        Unfit::new(self.wanted(), "the end of the file")
    }

    /// Returns the position of the attribute with this name, or `None`.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    /// Returns the keywords that are allowed next, for error messages.
    fn wanted(&self) -> &'static str {
        match (self.relation_line, self.attributes.len()) {
            (0, _) => "@relation",
            (_, 0) => "@attribute",
            _ => "@attribute or @data",
        }
    }

    /// Reads the rest of an `@attribute` line: a name, followed by a type or by values in braces.
    fn push_attribute(&mut self, mut line: Line<'_>, number: usize) -> Result<(), Unfit> {
        let name = line.word(b" \t{", "the name of an attribute")?.text;
        if name.len() > LONGEST_NAME {
            let expected = format!("an attribute name of at most {LONGEST_NAME} bytes");
            return Err(Unfit::new(expected, quote(&name)));
        }
        let name = decode(&name)?;
        let kind = if line.take(b'{') {
            Kind::Nominal(values(&mut line)?)
        } else {
            typed(&mut line, &name)?
        };
        let first = insert(&mut self.names, copied_text(&name)?, self.attributes.len())?;
        if let Some(first) = first {
            let expected = format!(
                "an attribute name that differs from the name in line {}",
                self.attributes[first].line
            );
            return Err(Unfit::new(
                expected,
                format!("{} again", quote(name.as_bytes())),
            ));
        }
        let attribute = Attribute {
            name,
            kind,
            line: number,
        };
        push("number of attributes", &mut self.attributes, attribute)?;
        Ok(())
    }
}

/// Inserts a key with its value into `map`. Returns the previous value of the key, or `None` if the key is
/// new.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
pub(super) fn insert<K: Hash + Eq, V>(
    map: &mut HashMap<K, V>,
    key: K,
    value: V,
) -> Result<Option<V>, Error> {
    map.try_reserve(1).map_err(|_| no_room("number of names"))?;
    Ok(map.insert(key, value))
}

/// The name in error messages if the values of nominal attributes do not fit in memory.
const VALUES: &str = "number of nominal values";

/// Reads the values of a nominal attribute, after the opening brace.
fn values(line: &mut Line<'_>) -> Result<Values, Unfit> {
    let (mut list, mut positions) = (Vec::new(), HashMap::new());
    loop {
        let value = line.word(b",}", "a nominal value")?.text;
        let value = copied(VALUES, &value)?;
        if insert(&mut positions, copied(VALUES, &value)?, list.len())?.is_some() {
            return Err(Unfit::new(
                "each nominal value once",
                format!("{} twice", quote(&value)),
            ));
        }
        push(VALUES, &mut list, value)?;
        if line.take(b'}') {
            line.end()?;
            return Ok(Values { list, positions });
        }
        if !line.take(b',') {
            let got = if line.peek().is_none() {
                "the end of the line".into()
            } else {
                quote(line.rest())
            };
            return Err(Unfit::new("`,` or `}` after a nominal value", got));
        }
    }
}

/// Reads the type of an attribute that has no values in braces. `name` is the name of the attribute,
/// for error messages.
fn typed(line: &mut Line<'_>, name: &str) -> Result<Kind, Unfit> {
    let name = quote(name.as_bytes());
    let expected = format!(
        "the type of {name}: numeric, real, integer, string, date, hierarchical or {{values}}"
    );
    let word = line.word(b" \t", &expected)?.text;
    let is = |known: &[u8]| word.eq_ignore_ascii_case(known);
    if is(b"numeric") || is(b"real") || is(b"integer") {
        return line.end().map(|()| Kind::Numeric);
    }
    if let Some(other) = ["string", "date"]
        .into_iter()
        .find(|kind| is(kind.as_bytes()))
    {
        return Ok(Kind::Other(other));
    }
    if !is(b"hierarchical") {
        return Err(Unfit::new(expected, quote(&word)));
    }
    let mut paths = Vec::new();
    for path in decode(line.rest())?.split(',').map(str::trim) {
        if path.is_empty() {
            return Err(Unfit::new(
                format!("paths of {name}, separated by commas"),
                quote(line.rest()),
            ));
        }
        if path.split('/').count() > DEEPEST {
            let expected = format!("paths of {name} with at most {DEEPEST} parts");
            return Err(Unfit::new(expected, quote(path.as_bytes())));
        }
        push("number of paths", &mut paths, copied_text(path)?)?;
    }
    Ok(Kind::Hierarchical(paths))
}

/// Returns the number `n` of `-C n` in a relation name of MEKA, or `None` if the name does not contain `-C`.
///
/// # Errors
///
/// Returns [`Unfit`] if `-C` is not followed by an integer other than 0.
fn n_labels(relation: &[u8]) -> Result<Option<i64>, Unfit> {
    let name = decode(relation)?;
    let mut words = name.split_whitespace();
    if !words.any(|word| word.trim_matches(['\'', '"']) == "-C") {
        return Ok(None);
    }
    let number = words
        .next()
        .unwrap_or_default()
        .trim_end_matches(['\'', '"', ':', ',']);
    match number.parse() {
        Ok(n) if n != 0 => Ok(Some(n)),
        _ => Err(Unfit::new(
            "`-C n`, where n is the number of labels (negative if the labels are last)",
            quote(relation),
        )),
    }
}
