//! Assigns the attributes of an ARFF file to the columns of X and Y.
//!
//! [`Columns::new`] gives each attribute of the header a [`Role`]. If there is an XML file, this file
//! names the labels. Otherwise the labels are the paths of a hierarchical attribute, or the attributes
//! that `-C n` in the relation name selects. Ignored attributes are read but produce no column. All
//! other attributes are features. If attributes have types without a numeric meaning, a single error
//! reports these attributes. The error lists the names of the first few attributes.

use super::ArffOptions;
use super::header::{Attribute, Header, Kind, Values, insert};
use super::labels::read_labels;
use super::line::{copied_text, decode, room};
use crate::source::{Unfit, quote};
use manylabel_base::{Error, Watch, few, filled, push, reserved};
use std::collections::HashMap;
use std::path::Path;

/// The name in error messages if there are too many features or their names do not fit in memory.
const FEATURES: &str = "number of features";

/// The name in error messages if there are too many labels or their names do not fit in memory.
const LABELS: &str = "number of labels";

/// The role of an attribute: how its values become entries of X or Y.
#[derive(Debug)]
pub(crate) enum Role {
    /// An ignored attribute. Its values are read and dropped.
    Ignored,
    /// A numeric feature. Its value is stored unchanged.
    Number { column: i32 },
    /// A nominal attribute with two values. Its feature is 1 for the value at position `one`, and 0 for the
    /// other value.
    Pair { column: i32, one: usize },
    /// A nominal attribute whose number of values is not two. Each value becomes a feature. `column` is the
    /// column of the first value.
    Choice { column: i32 },
    /// A nominal label. `on` has one entry for each value, which is true if the value means that the label
    /// is present.
    Label { label: i32, on: Vec<bool> },
    /// A numeric label. It is present if the value is 1 and absent if the value is 0.
    NumberLabel { label: i32 },
    /// The attribute that holds all labels, as paths of a hierarchy.
    Paths(Hierarchy),
}

/// The labels of a hierarchy. If an example has a label, it also has all ancestors of the label.
#[derive(Debug, Default)]
pub(crate) struct Hierarchy {
    /// The label number of each path.
    labels: HashMap<String, i32>,
    /// The parent of each label, or `None` for a label at the top.
    parents: Vec<Option<i32>>,
}

impl Hierarchy {
    /// Adds the label of a path. Ancestors that have not been declared are added first. The names of new
    /// labels are appended to `names`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn declare(&mut self, path: &str, names: &mut Vec<String>) -> Result<(), Error> {
        let mut parent = None;
        let ends = path.match_indices('/').map(|(slash, _)| slash);
        for end in ends.chain([path.len()]) {
            let ancestor = &path[..end];
            if let Some(&known) = self.labels.get(ancestor) {
                parent = Some(known);
                continue;
            }
            let label = self.parents.len() as i32;
            insert(&mut self.labels, copied_text(ancestor)?, label)?;
            push(LABELS, &mut self.parents, parent)?;
            push(LABELS, names, copied_text(ancestor)?)?;
            parent = Some(label);
        }
        Ok(())
    }

    /// Appends the label of `path` and all ancestors of this label to `labels`, as label numbers. Returns
    /// false if the path has not been declared.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn closure(&self, path: &str, labels: &mut Vec<i32>) -> Result<bool, Error> {
        let mut next = self.labels.get(path).copied();
        let known = next.is_some();
        while let Some(label) = next {
            push("number of labels of an example", labels, label)?;
            next = self.parents[label as usize];
        }
        Ok(known)
    }
}

/// The attributes with their roles, and the column names of X and Y.
#[derive(Debug)]
pub(crate) struct Columns {
    /// The role, the values (if nominal) and the name of each attribute, in the order of the file.
    pub(crate) attributes: Vec<(Role, Option<Values>, String)>,
    /// The names of the columns of X.
    pub(crate) feature_names: Vec<String>,
    /// The names of the columns of Y.
    pub(crate) label_names: Vec<String>,
}

impl Columns {
    /// Assigns roles to the attributes of a header. `path` is the path of the ARFF file, for error
    /// messages.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`read_arff`](super::read_arff).
    pub(crate) fn new(
        path: &Path,
        header: Header,
        options: &ArffOptions<'_>,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let labels = label_positions(path, &header, options, watch)?;
        let ignored = ignored_positions(path, &header, options)?;
        let mut columns = Self {
            attributes: reserved("number of attributes", header.attributes.len())?,
            feature_names: Vec::new(),
            label_names: Vec::new(),
        };
        let mut unusable = Unusable::default();
        for (position, attribute) in header.attributes.into_iter().enumerate() {
            let Attribute { name, kind, line } = attribute;
            watch.step(0)?;
            let role = match &kind {
                _ if ignored[position] => Role::Ignored,
                Kind::Hierarchical(paths) if labels[position] => {
                    let mut hierarchy = Hierarchy::default();
                    for path in paths {
                        watch.step(0)?;
                        hierarchy.declare(path, &mut columns.label_names)?;
                    }
                    Role::Paths(hierarchy)
                }
                Kind::Other(kind) => {
                    unusable.push(line, kind, &name);
                    Role::Ignored
                }
                Kind::Hierarchical(_) => {
                    let expected =
                        "hierarchical attributes only as labels (`ignore` can exclude others)";
                    return Err(Unfit::new(expected, quote(name.as_bytes())).at(path, line));
                }
                kind if labels[position] => columns
                    .label(&name, kind)
                    .map_err(|unfit| unfit.at(path, line))?,
                Kind::Numeric => Role::Number {
                    column: columns.feature(copied_text(&name)?)?,
                },
                Kind::Nominal(values) => columns.nominal(&name, &values.list, watch)?,
            };
            let values = match kind {
                Kind::Nominal(values) => Some(values),
                _ => None,
            };
            columns.attributes.push((role, values, name));
        }
        unusable.refuse(path)?;
        for (what, names) in [
            (FEATURES, &columns.feature_names),
            (LABELS, &columns.label_names),
        ] {
            if i32::try_from(names.len()).is_err() {
                return Err(Error::TooLarge {
                    what,
                    got: names.len().to_string(),
                });
            }
        }
        Ok(columns)
    }

    /// Adds a feature and returns its column.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn feature(&mut self, name: String) -> Result<i32, Error> {
        push(FEATURES, &mut self.feature_names, name)?;
        Ok(self.feature_names.len() as i32 - 1)
    }

    /// Adds the features of a nominal attribute. If the two values mean no and yes, the only feature has the
    /// name of the attribute. Otherwise the features are named `attribute=value`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short, and [`Error::Stopped`] if the caller requested a stop.
    fn nominal(&mut self, name: &str, values: &[Vec<u8>], watch: &Watch) -> Result<Role, Error> {
        let named = |value: &[u8]| {
            let value = decode(value)?;
            let mut both = room(name.len() + 1 + value.len())?;
            both.push_str(name);
            both.push('=');
            both.push_str(&value);
            Ok::<_, Error>(both)
        };
        if let [first, second] = values {
            let (name, one) = match (truth(first), truth(second)) {
                (Some(true), Some(false)) => (copied_text(name)?, 0),
                (Some(false), Some(true)) => (copied_text(name)?, 1),
                _ => (named(second)?, 1),
            };
            let column = self.feature(name)?;
            return Ok(Role::Pair { column, one });
        }
        let column = self.feature_names.len() as i32;
        for value in values {
            watch.step(0)?;
            self.feature(named(value)?)?;
        }
        Ok(Role::Choice { column })
    }

    /// Adds a label to Y.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if a nominal label has a value that means neither yes nor no.
    fn label(&mut self, name: &str, kind: &Kind) -> Result<Role, Unfit> {
        push(LABELS, &mut self.label_names, copied_text(name)?)?;
        let label = self.label_names.len() as i32 - 1;
        match kind {
            Kind::Nominal(values) => {
                // The list is short, because it ends at the first value that does not mean yes or no. Only
                // ten words mean yes or no, if case is ignored.
                let on: Option<Vec<bool>> = few(values.list.iter().map(|value| truth(value)));
                on.map(|on| Role::Label { label, on }).ok_or_else(|| {
                    let expected = format!(
                        "label {} with the values 0/1, no/yes or false/true",
                        quote(name.as_bytes())
                    );
                    Unfit::new(expected, format!("{{{}}}", values.first_few()))
                })
            }
            _ => Ok(Role::NumberLabel { label }),
        }
    }
}

/// Attributes that cannot be features, because they are neither numeric nor nominal. They are reported in one
/// error message.
#[derive(Default)]
struct Unusable {
    /// The number of attributes that cannot be features.
    count: usize,
    /// The line of the first attribute that cannot be a feature, counted from 1.
    first_line: usize,
    /// The description of the first few attributes, for the error message.
    shown: String,
}

impl Unusable {
    /// Adds an attribute to the error message.
    fn push(&mut self, line: usize, kind: &str, name: &str) {
        self.count += 1;
        if self.count == 1 {
            self.first_line = line;
        }
        if self.count <= Values::FEW {
            let separator = if self.count > 1 { ", " } else { "" };
            let attribute = format!("{separator}the {kind} attribute {}", quote(name.as_bytes()));
            self.shown.push_str(&attribute);
        }
    }

    /// Returns the error for the collected attributes.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Parse`] if at least one attribute was added.
    fn refuse(self, path: &Path) -> Result<(), Error> {
        if self.count == 0 {
            return Ok(());
        }
        let expected = "only numeric and nominal features (`ignore` can exclude others)";
        let more = if self.count > Values::FEW {
            ", …"
        } else {
            ""
        };
        Err(Unfit::new(expected, self.shown + more).at(path, self.first_line))
    }
}

/// Returns true for a word that means yes, false for a word that means no, and `None` for any other
/// word.
fn truth(word: &[u8]) -> Option<bool> {
    let is = |known: &&str| word.eq_ignore_ascii_case(known.as_bytes());
    if ["1", "yes", "y", "true", "t"].iter().any(is) {
        Some(true)
    } else if ["0", "no", "n", "false", "f"].iter().any(is) {
        Some(false)
    } else {
        None
    }
}

/// Returns, for each attribute, whether it is a label.
///
/// # Errors
///
/// Returns [`Error::Parse`] if the XML file names an attribute that does not exist. Also returns
/// [`Error::Parse`] if the file does not determine which attributes are labels. Also returns the errors of
/// reading the XML file.
fn label_positions(
    path: &Path,
    header: &Header,
    options: &ArffOptions<'_>,
    watch: &Watch,
) -> Result<Vec<bool>, Error> {
    let n = header.attributes.len();
    let mut is_label = filled("number of attributes", false, n)?;
    if let Some(xml) = options.xml {
        for (name, line) in read_labels(xml, watch)? {
            let Some(position) = header.position(&name) else {
                let expected = format!("names of attributes of {}", path.display());
                return Err(Unfit::new(expected, quote(name.as_bytes())).at(xml, line));
            };
            is_label[position] = true;
        }
        return Ok(is_label);
    }
    let mut n_hierarchies = 0;
    for (is_label, attribute) in is_label.iter_mut().zip(&header.attributes) {
        *is_label = matches!(attribute.kind, Kind::Hierarchical(_));
        n_hierarchies += usize::from(*is_label);
    }
    match (n_hierarchies, header.n_labels) {
        (1, _) => {}
        (0, Some(n_labels)) => {
            let count = usize::try_from(n_labels.unsigned_abs()).unwrap_or(usize::MAX);
            if count > n {
                let expected =
                    format!("`-C n` with at most {n} labels, because there are {n} attributes");
                return Err(
                    Unfit::new(expected, format!("-C {n_labels}")).at(path, header.relation_line)
                );
            }
            if n_labels > 0 {
                is_label[..count].fill(true);
            } else {
                is_label[n - count..].fill(true);
            }
        }
        (0, None) => {
            let expected = "label attributes, given by the file `xml`, by `-C n` in @relation, \
                            or by a hierarchical attribute";
            return Err(Unfit::new(expected, "none of these").at(path, header.relation_line));
        }
        (several, _) => {
            let got = format!("{several} hierarchical attributes");
            return Err(
                Unfit::new("one hierarchical attribute", got).at(path, header.relation_line)
            );
        }
    }
    Ok(is_label)
}

/// Returns, for each attribute, whether it is ignored.
///
/// # Errors
///
/// Returns [`Error::Param`] if a name in `ignore` is not the name of an attribute.
fn ignored_positions(
    path: &Path,
    header: &Header,
    options: &ArffOptions<'_>,
) -> Result<Vec<bool>, Error> {
    let mut ignored = filled("number of attributes", false, header.attributes.len())?;
    for name in options.ignore {
        let Some(position) = header.position(name) else {
            let got = format!("`{name}`, which is not an attribute of {}", path.display());
            return Err(Error::Param {
                name: "ignore",
                expected: "names of attributes",
                got,
            });
        };
        ignored[position] = true;
    }
    Ok(ignored)
}
