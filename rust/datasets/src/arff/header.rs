//! What stands before the examples: `@relation`, `@attribute`, `@data`.

use super::line::{Line, decode};
use crate::source::{Unfit, quote};
use std::collections::HashMap;

/// One declared attribute.
#[derive(Debug)]
pub(crate) struct Attribute {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// 1-based line of its declaration.
    pub(crate) line: usize,
}

/// The type of an attribute.
#[derive(Debug)]
pub(crate) enum Kind {
    Numeric,
    Nominal(Values),
    /// Paths of a label hierarchy, as declared.
    Hierarchical(Vec<String>),
    /// `string` or `date`: no feature.
    Other(String),
}

/// The values of a nominal attribute.
#[derive(Debug)]
pub(crate) struct Values {
    pub(crate) list: Vec<Vec<u8>>,
    positions: HashMap<Vec<u8>, usize>,
}

impl Values {
    /// How many values a message shows.
    pub(crate) const FEW: usize = 5;

    /// The first of them, for a message.
    pub(crate) fn first_few(&self) -> String {
        let shown = self.list.iter().take(Self::FEW);
        let shown: Vec<String> = shown.map(|value| decode(value)).collect();
        shown.join(", ")
    }

    /// Position of `value`. Comparing a few short values beats hashing one.
    pub(crate) fn position(&self, value: &[u8]) -> Option<usize> {
        match self.list.len() {
            ..=8 => self.list.iter().position(|known| known == value),
            _ => self.positions.get(value).copied(),
        }
    }
}

/// The header so far.
#[derive(Debug, Default)]
pub(crate) struct Header {
    pub(crate) attributes: Vec<Attribute>,
    /// `n` of `-C n`, if the relation's name has one.
    pub(crate) n_labels: Option<i64>,
    /// 1-based line of `@relation`; 0 before it.
    pub(crate) relation_line: usize,
    names: HashMap<String, usize>,
}

impl Header {
    /// Takes a line; true once it was `@data`.
    pub(crate) fn push(&mut self, text: &[u8], number: usize) -> Result<bool, Unfit> {
        let text = text
            .strip_prefix(b"\xef\xbb\xbf")
            .filter(|_| number == 1)
            .unwrap_or(text);
        let mut line = Line::new(text);
        if line.peek().is_none() {
            return Ok(false);
        }
        let wanted = self.wanted();
        let keyword = line.word(b" \t", wanted)?.text.to_ascii_lowercase();
        match (&*keyword, self.relation_line) {
            (b"@relation", 0) => {
                self.relation_line = number;
                self.n_labels = n_labels(line.rest())?;
            }
            (b"@attribute", 1..) => self.push_attribute(line, number)?,
            (b"@data", 1..) if !self.attributes.is_empty() => {
                line.end()?;
                return Ok(true);
            }
            _ => return Err(Unfit::new(wanted, quote(text.trim_ascii()))),
        }
        Ok(false)
    }

    /// The fault of a file that ends here.
    pub(crate) fn unfinished(&self) -> Unfit {
        Unfit::new(self.wanted(), "the end of the file")
    }

    /// Position of the attribute of this name.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.names.get(name).copied()
    }

    fn wanted(&self) -> &'static str {
        match (self.relation_line, self.attributes.len()) {
            (0, _) => "@relation",
            (_, 0) => "@attribute",
            _ => "@attribute or @data",
        }
    }

    fn push_attribute(&mut self, mut line: Line<'_>, number: usize) -> Result<(), Unfit> {
        let name = decode(&line.word(b" \t{", "the name of an attribute")?.text);
        let kind = if line.take(b'{') {
            Kind::Nominal(values(&mut line)?)
        } else {
            typed(&mut line, &name)?
        };
        if let Some(first) = self.names.insert(name.clone(), self.attributes.len()) {
            let expected = format!("a name unlike that of line {}", self.attributes[first].line);
            return Err(Unfit::new(expected, format!("`{name}` again")));
        }
        self.attributes.push(Attribute {
            name,
            kind,
            line: number,
        });
        Ok(())
    }
}

fn values(line: &mut Line<'_>) -> Result<Values, Unfit> {
    let (mut list, mut positions) = (Vec::new(), HashMap::new());
    loop {
        let value = line.word(b",}", "a nominal value")?.text.into_owned();
        if positions.insert(value.clone(), list.len()).is_some() {
            return Err(Unfit::new(
                "each nominal value once",
                format!("{} twice", quote(&value)),
            ));
        }
        list.push(value);
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

fn typed(line: &mut Line<'_>, name: &str) -> Result<Kind, Unfit> {
    let expected = format!(
        "the type of `{name}`: numeric, real, integer, string, date, hierarchical or {{values}}"
    );
    let word = line.word(b" \t", &expected)?.text.to_ascii_lowercase();
    match &*word {
        b"numeric" | b"real" | b"integer" => line.end().map(|()| Kind::Numeric),
        b"string" | b"date" => Ok(Kind::Other(decode(&word))),
        b"hierarchical" => {
            let paths: Vec<String> = decode(line.rest())
                .split(',')
                .map(|path| path.trim().into())
                .collect();
            if paths.iter().any(String::is_empty) {
                return Err(Unfit::new(
                    format!("paths of `{name}`, comma between them"),
                    quote(line.rest()),
                ));
            }
            Ok(Kind::Hierarchical(paths))
        }
        _ => Err(Unfit::new(expected, quote(&word))),
    }
}

/// `n` of `-C n` in the name of a relation, as MEKA writes it.
fn n_labels(relation: &[u8]) -> Result<Option<i64>, Unfit> {
    let name = decode(relation);
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
            "`-C n` with the number of labels, negative if they are last",
            quote(relation),
        )),
    }
}
