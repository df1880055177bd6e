//! The examples after `@data`, one per line.
//!
//! A dense example lists the values of all attributes. A sparse example lists pairs `index value`
//! in braces; attributes that it omits have the number 0, or the first declared value if they are
//! nominal. All examples of a file must have the form of the first one.
//!
//! Each value is placed by the [`Role`] of its attribute. X stays dense or sparse as in the file; Y
//! is sparse in both cases.

use super::columns::{Columns, Role};
use super::header::Values;
use super::line::{Line, Word, decode};
use super::{Arff, ArffOptions, Cells};
use crate::number::{Real, decimal};
use crate::source::{Unfit, quote};
use crate::xc::Rows;
use manylabel_base::{Error, Watch, collected, extend, filled, push};

/// What errors name if memory does not hold an example.
const VALUES: &str = "values of an example";

/// What errors name if memory does not hold the examples.
const ENTRIES: &str = "number of stored entries";

/// The examples read so far.
pub(crate) struct Examples<V> {
    /// The attributes with their roles.
    columns: Columns,
    /// Whether a missing label value means that the label is absent.
    missing_is_absent: bool,
    /// The features, in the form of the first example; `None` before it.
    x: Option<Cells<V>>,
    /// The labels.
    y: Rows<i32, ()>,
    /// Attributes whose omission from a sparse example implies an entry of 1, with that entry.
    implied: Vec<(usize, Entry)>,
    /// For each attribute the number of the last sparse example that gives it. Examples count from
    /// 1.
    given: Vec<usize>,
    /// The example being read.
    row: Row<V>,
}

/// The example being read. Its allocations are reused.
struct Row<V> {
    /// Columns of X with their values, in the order of the attributes given.
    cells: Vec<(i32, V)>,
    /// Labels, in the order found; they may repeat.
    labels: Vec<i32>,
    /// A number followed by the padding that [`decimal`] needs.
    padded: Vec<u8>,
}

/// An entry of 1.
#[derive(Clone, Copy)]
enum Entry {
    /// In this column of X.
    Feature(i32),
    /// In this column of Y.
    Label(i32),
}

impl<V: Real> Examples<V> {
    /// Starts without examples.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn new(columns: Columns, options: &ArffOptions<'_>) -> Result<Self, Error> {
        // An omitted attribute has its first declared value, or the number 0.
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
            missing_is_absent: options.missing_is_absent,
            x: None,
            y: Rows::default(),
            row: Row {
                cells: Vec::new(),
                labels: Vec::new(),
                padded: Vec::new(),
            },
            columns,
        })
    }

    /// Reads the example on a line. Empty lines and comments are skipped.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if the line is malformed, has a value that its attribute does not allow, or
    /// has another form than the lines before.
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
                "values without braces, as above"
            } else {
                "values in braces, as above"
            };
            return Err(Unfit::new(expected, quote(text.trim_ascii())));
        }
        self.row.cells.clear();
        self.row.labels.clear();
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
            self.row.place(&word, attribute, self.missing_is_absent)?;
            if position + 1 < n && !line.take(b',') {
                return Err(Unfit::new(
                    format!("{n} values"),
                    (position + 1).to_string(),
                ));
            }
        }
        if line.peek() == Some(b',') {
            return Err(Unfit::new(format!("{n} values"), "more"));
        }
        Ok(())
    }

    /// Reads pairs `index value` in braces into `row`, and adds the entries that omitted attributes
    /// imply.
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
                let expected =
                    format!("the index of an attribute, below {n} (indices count from 0)");
                return Err(Unfit::new(expected, quote(&word.text)));
            };
            if std::mem::replace(&mut self.given[index], number) == number {
                return Err(Unfit::new(
                    "each attribute once",
                    format!("attribute {index} twice"),
                ));
            }
            let word = line.word(b",}", "a value")?;
            self.row.place(
                &word,
                &self.columns.attributes[index],
                self.missing_is_absent,
            )?;
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
        let Row { cells, labels, .. } = &mut self.row;
        labels.sort_unstable();
        labels.dedup();
        extend(ENTRIES, &mut self.y.indices, labels.drain(..))?;
        self.y.end_row()?;
        match &mut self.x {
            Some(Cells::Dense(values)) => {
                let (start, width) = (values.len(), self.columns.feature_names.len());
                // With many nominal values, the dense matrix can be far larger than the file.
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

    /// The data set. A file without examples has dense features of zero rows.
    pub(crate) fn finish(self) -> Arff<V> {
        Arff {
            x: self.x.unwrap_or(Cells::Dense(Vec::new())),
            y: self.y,
            feature_names: self.columns.feature_names,
            label_names: self.columns.label_names,
        }
    }
}

impl<V: Real> Row<V> {
    /// Places one value of one attribute, given with its role.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if the attribute does not allow the value.
    fn place(
        &mut self,
        word: &Word<'_>,
        (role, values, name): &(Role, Option<Values>, String),
        missing_is_absent: bool,
    ) -> Result<(), Unfit> {
        if word.is_missing() {
            return self.place_missing(role, values.as_ref(), name, missing_is_absent);
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

    /// Places a missing value: NaN in all features of the attribute, or an absent label.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] for a label, unless `missing_is_absent`.
    fn place_missing(
        &mut self,
        role: &Role,
        values: Option<&Values>,
        name: &str,
        missing_is_absent: bool,
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
            Role::Label { .. } | Role::NumberLabel { .. } | Role::Paths(_)
                if !missing_is_absent =>
            {
                let name = quote(name.as_bytes());
                let expected =
                    format!("a known value of label {name} (or `missing_labels=\"absent\"`)");
                return Err(Unfit::new(expected, "`?`"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Adds an entry of 1.
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

    /// Reads a number; `name` is that of the attribute, for messages.
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
