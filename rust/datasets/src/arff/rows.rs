//! Reads the examples after `@data`, one example per line.
//!
//! A dense example lists the values of all attributes. A sparse example lists pairs `index value` in braces.
//! A numeric attribute that a sparse example omits has the value 0. A nominal attribute that a sparse example
//! omits has its first declared value. The first example determines whether all examples must be dense or
//! sparse.
//!
//! The [`Role`] of an attribute determines where its values are stored. X is dense or sparse like the
//! examples of the file. Y is always sparse.

use super::columns::{Columns, Role};
use super::header::Values;
use super::line::{Line, Word, decode};
use super::{Arff, ArffOptions, Cells, Missing};
use crate::number::{Real, decimal};
use crate::source::{Unfit, quote};
use crate::xc::Rows;
use manylabel_base::{Error, Watch, collected, extend, filled, push};

/// The name in error messages if an example does not fit in memory.
const VALUES: &str = "number of values of an example";

/// The name in error messages if the examples do not fit in memory.
const ENTRIES: &str = "number of stored entries";

/// The examples read so far.
pub(crate) struct Examples<V> {
    /// The attributes with their roles.
    columns: Columns,
    /// What a missing label value means.
    missing: Missing,
    /// The features, dense or sparse like the first example. `None` before the first example.
    x: Option<Cells<V>>,
    /// The labels.
    y: Rows<i32, ()>,
    /// The unknown labels.
    unknown: Rows<i32, ()>,
    /// The attributes with a nonzero default, each with an entry of X or Y. If a sparse example omits the
    /// attribute, this entry is 1.
    implied: Vec<(usize, Entry)>,
    /// For each attribute, the number of the last sparse example that contains it. Examples are counted
    /// from 1.
    given: Vec<usize>,
    /// The example that is being read.
    row: Row<V>,
}

/// The example that is being read. Its allocations are reused.
struct Row<V> {
    /// Columns of X with their values, in the order of the attributes in the file.
    cells: Vec<(i32, V)>,
    /// Labels in the order found. A label may occur several times.
    labels: Vec<i32>,
    /// Unknown labels in the order found.
    unknown: Vec<i32>,
    /// A number followed by the padding that [`decimal`] needs.
    padded: Vec<u8>,
}

/// The place of an entry of 1 in X or Y.
#[derive(Clone, Copy)]
enum Entry {
    /// A column of X.
    Feature(i32),
    /// A column of Y.
    Label(i32),
}

impl<V: Real> Examples<V> {
    /// Returns a collection without examples.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn new(columns: Columns, options: &ArffOptions<'_>) -> Result<Self, Error> {
        // An omitted attribute has its first declared value if it is nominal, and the value 0 if it is
        // numeric.
        let first = |role: &Role| match role {
            Role::Pair { column, one: 0 } | Role::Choice { column } => {
                Some(Entry::Feature(*column))
            }
            Role::Label { label, on } if on[0] => Some(Entry::Label(*label)),
            _ => None,
        };
        let implied = columns.attributes.iter().enumerate();
        let implied = implied.filter_map(|(position, (role, ..))| Some((position, first(role)?)));
        let what = "number of attributes";
        Ok(Self {
            implied: collected(what, implied)?,
            given: filled(what, 0, columns.attributes.len())?,
            missing: options.missing,
            x: None,
            y: Rows::default(),
            unknown: Rows::default(),
            row: Row {
                cells: Vec::new(),
                labels: Vec::new(),
                unknown: Vec::new(),
                padded: Vec::new(),
            },
            columns,
        })
    }

    /// Reads the example of one line. Empty lines and comments are skipped.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if the line is malformed, or if an attribute does not allow a value. Also returns
    /// [`Unfit`] if earlier examples are sparse and this example is dense, or the other way round.
    pub(crate) fn push(&mut self, text: &[u8], watch: &Watch) -> Result<(), Unfit> {
        let mut line = Line::new(text, watch);
        let Some(start) = line.peek() else {
            return Ok(());
        };
        let sparse = start == b'{';
        let empty = || {
            if sparse {
                Cells::Sparse(Rows::default())
            } else {
                Cells::Dense(Vec::new())
            }
        };
        let x = self.x.get_or_insert_with(empty);
        if sparse != matches!(x, Cells::Sparse(_)) {
            let expected = if sparse {
                "values without braces, as in the first example"
            } else {
                "values in braces, as in the first example"
            };
            return Err(Unfit::new(expected, quote(text.trim_ascii())));
        }
        self.row.cells.clear();
        self.row.labels.clear();
        self.row.unknown.clear();
        if sparse {
            self.sparse(&mut line)?;
        } else {
            self.dense(&mut line)?;
        }
        line.end()?;
        self.keep().map_err(Unfit::from)
    }

    /// Reads the values of all attributes into `row`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`push`](Self::push).
    fn dense(&mut self, line: &mut Line<'_>) -> Result<(), Unfit> {
        let n = self.columns.attributes.len();
        for (position, attribute) in self.columns.attributes.iter().enumerate() {
            let word = line.word(b",", "a value")?;
            self.row.place(&word, attribute, self.missing)?;
            if position + 1 < n && !line.take(b',') {
                return Err(Unfit::new(
                    format!("{n} values"),
                    (position + 1).to_string(),
                ));
            }
        }
        if line.peek() == Some(b',') {
            return Err(Unfit::new(format!("{n} values"), "more values"));
        }
        Ok(())
    }

    /// Reads the pairs `index value` in braces into `row`. Then adds an entry of 1 for each omitted
    /// attribute with a default that is not 0.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`push`](Self::push).
    fn sparse(&mut self, line: &mut Line<'_>) -> Result<(), Unfit> {
        let n = self.columns.attributes.len();
        let number = self.y.n_rows() + 1;
        line.take(b'{');
        while !line.take(b'}') {
            let word = line.word(b" \t,}", "a pair `index value`")?;
            let index = std::str::from_utf8(&word.text)
                .ok()
                .and_then(|text| text.parse::<usize>().ok());
            let Some(index) = index.filter(|&index| index < n) else {
                let expected = format!("an attribute index below {n} (counted from 0)");
                return Err(Unfit::new(expected, quote(&word.text)));
            };
            if std::mem::replace(&mut self.given[index], number) == number {
                return Err(Unfit::new(
                    "each attribute once",
                    format!("attribute {index} twice"),
                ));
            }
            let word = line.word(b",}", "a value")?;
            self.row
                .place(&word, &self.columns.attributes[index], self.missing)?;
            if !line.take(b',') && line.peek() != Some(b'}') {
                let got = if line.peek().is_none() {
                    "the end of the line".into()
                } else {
                    quote(line.rest())
                };
                return Err(Unfit::new("`,` or `}`", got));
            }
        }
        for &(position, entry) in &self.implied {
            if self.given[position] != number {
                self.row.push(entry)?;
            }
        }
        Ok(())
    }

    /// Appends the example in `row` to X and Y.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn keep(&mut self) -> Result<(), Error> {
        let Row {
            cells,
            labels,
            unknown,
            ..
        } = &mut self.row;
        labels.sort_unstable();
        labels.dedup();
        extend(ENTRIES, &mut self.y.indices, labels.drain(..))?;
        self.y.end_row()?;
        unknown.sort_unstable();
        extend(ENTRIES, &mut self.unknown.indices, unknown.drain(..))?;
        self.unknown.end_row()?;
        match &mut self.x {
            Some(Cells::Dense(values)) => {
                let (start, width) = (values.len(), self.columns.feature_names.len());
                // If there are many nominal values, the dense matrix can be far larger than the file, so a
                // lack of memory is possible here.
                let zeros = std::iter::repeat_n(V::default(), width);
                extend("the dense matrix of features", values, zeros)?;
                for &(column, value) in &*cells {
                    values[start + column as usize] = value;
                }
            }
            Some(Cells::Sparse(rows)) => {
                cells.sort_unstable_by_key(|&(column, _)| column);
                let columns = cells.iter().map(|&(column, _)| column);
                extend(ENTRIES, &mut rows.indices, columns)?;
                extend(
                    ENTRIES,
                    &mut rows.values,
                    cells.iter().map(|&(_, value)| value),
                )?;
                rows.end_row()?;
            }
            None => {}
        }
        Ok(())
    }

    /// Returns the data set. If the file has no examples, X is dense with zero rows.
    pub(crate) fn finish(self) -> Arff<V> {
        Arff {
            x: self.x.unwrap_or(Cells::Dense(Vec::new())),
            y: self.y,
            unknown: self.unknown,
            feature_names: self.columns.feature_names,
            label_names: self.columns.label_names,
        }
    }
}

impl<V: Real> Row<V> {
    /// Stores one value of an attribute according to the role of the attribute.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if the attribute does not allow the value.
    fn place(
        &mut self,
        word: &Word<'_>,
        (role, values, name): &(Role, Option<Values>, String),
        missing: Missing,
    ) -> Result<(), Unfit> {
        if word.is_missing() {
            return self.place_missing(role, values.as_ref(), name, missing);
        }
        match (role, values) {
            (Role::Ignored, _) => {}
            (Role::Number { column }, _) => {
                let value = self.number(&word.text, name)?;
                if value != V::default() {
                    push(VALUES, &mut self.cells, (*column, value))?;
                }
            }
            (Role::NumberLabel { label }, _) => {
                let value = self.number(&word.text, name)?;
                if value == V::from(1) {
                    push(VALUES, &mut self.labels, *label)?;
                } else if value != V::default() {
                    return Err(Unfit::new(
                        format!("0 or 1 for label {}", quote(name.as_bytes())),
                        quote(&word.text),
                    ));
                }
            }
            (Role::Paths(hierarchy), _) => {
                for path in decode(&word.text)?.split('@') {
                    if !hierarchy.closure(path.trim(), &mut self.labels)? {
                        let name = quote(name.as_bytes());
                        let expected = format!("declared paths of {name}, joined by @");
                        return Err(Unfit::new(expected, quote(path.as_bytes())));
                    }
                }
            }
            (_, Some(values)) => {
                let Some(position) = values.position(&word.text) else {
                    let more = if values.list.len() > Values::FEW {
                        ", …"
                    } else {
                        ""
                    };
                    let (few, name) = (values.first_few(), quote(name.as_bytes()));
                    let expected = format!("one of {{{few}{more}}} for {name}");
                    return Err(Unfit::new(expected, quote(&word.text)));
                };
                match role {
                    Role::Pair { column, one } if position == *one => {
                        self.push(Entry::Feature(*column))?;
                    }
                    Role::Choice { column } => {
                        self.push(Entry::Feature(column + position as i32))?;
                    }
                    Role::Label { label, on } if on[position] => self.push(Entry::Label(*label))?,
                    _ => {}
                }
            }
            (_, None) => unreachable!("only nominal attributes are pairs, choices or labels"),
        }
        Ok(())
    }

    /// Stores a missing value. If the attribute is a label, the label is absent or unknown, depending on
    /// `missing`. If the attribute lists all labels, the example has no labels. If the attribute is a
    /// feature, all of its columns are NaN.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if the attribute is a label and `missing` is [`Missing::Error`]. Also returns
    /// [`Unfit`] if the attribute lists all labels and `missing` is not [`Missing::Absent`].
    fn place_missing(
        &mut self,
        role: &Role,
        values: Option<&Values>,
        name: &str,
        missing: Missing,
    ) -> Result<(), Unfit> {
        match role {
            Role::Number { column } | Role::Pair { column, .. } => {
                push(VALUES, &mut self.cells, (*column, V::MISSING))?;
            }
            Role::Choice { column } => {
                let n = values.map_or(0, |values| values.list.len()) as i32;
                let missing = (*column..column + n).map(|column| (column, V::MISSING));
                extend(VALUES, &mut self.cells, missing)?;
            }
            Role::Label { label, .. } | Role::NumberLabel { label, .. }
                if missing == Missing::Unknown =>
            {
                push(VALUES, &mut self.unknown, *label)?;
            }
            Role::Label { .. } | Role::NumberLabel { .. } | Role::Paths(_)
                if missing != Missing::Absent =>
            {
                let name = quote(name.as_bytes());
                let expected =
                    format!("a value for label {name} (or set `missing_labels=\"absent\"`)");
                return Err(Unfit::new(expected, "`?`"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds an entry of 1 to the example.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn push(&mut self, entry: Entry) -> Result<(), Error> {
        match entry {
            Entry::Feature(column) => push(VALUES, &mut self.cells, (column, V::from(1))),
            Entry::Label(label) => push(VALUES, &mut self.labels, label),
        }
    }

    /// Reads a number. `name` is the name of the attribute, for error messages.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if the text is not a finite number.
    fn number(&mut self, text: &[u8], name: &str) -> Result<V, Unfit> {
        self.padded.clear();
        extend(VALUES, &mut self.padded, text.iter().copied().chain([0; 8]))?;
        match decimal(&self.padded, 0) {
            Some((value, end)) if end == text.len() => Ok(value),
            _ => Err(Unfit::new(
                format!("{} for {}", V::FINITE, quote(name.as_bytes())),
                quote(text),
            )),
        }
    }
}
