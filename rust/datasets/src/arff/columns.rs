//! Which attribute becomes which column of X or Y.

use super::ArffOptions;
use super::header::{Attribute, Header, Kind, Values, insert};
use super::labels::read_labels;
use super::line::{copied_text, decode, room};
use crate::source::{Unfit, quote};
use manylabel_base::{Error, Watch, few, filled, push, reserved};
use std::collections::HashMap;
use std::path::Path;

/// What is named if memory does not hold the names of features, and if there are too many of them.
const FEATURES: &str = "number of features";

/// The same of labels.
const LABELS: &str = "number of labels";

/// What an attribute is to the data set.
#[derive(Debug)]
pub(crate) enum Role {
    Ignored,
    /// A feature as it stands.
    Number {
        column: i32,
    },
    /// Two values: the feature is 1 for the one at `one`.
    Pair {
        column: i32,
        one: usize,
    },
    /// Any other number of values: a feature each, from `column` on.
    Choice {
        column: i32,
    },
    /// A label, present for the values where `on` says so.
    Label {
        label: i32,
        on: Vec<bool>,
    },
    /// A label, present if 1.
    NumberLabel {
        label: i32,
    },
    /// All labels, as paths of a hierarchy.
    Paths(Hierarchy),
}

/// Labels that bring their ancestors along.
#[derive(Debug, Default)]
pub(crate) struct Hierarchy {
    labels: HashMap<String, i32>,
    parents: Vec<Option<i32>>,
}

impl Hierarchy {
    /// Takes in a path; ancestors nobody declared come before the first path below them.
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

    /// Appends the label of `path` and all its ancestors to `labels`; false if there is no such path.
    pub(crate) fn closure(&self, path: &str, labels: &mut Vec<i32>) -> Result<bool, Error> {
        let mut next = self.labels.get(path).copied();
        let known = next.is_some();
        while let Some(label) = next {
            push("labels of an example", labels, label)?;
            next = self.parents[label as usize];
        }
        Ok(known)
    }
}

/// The attributes with their roles, in the order of the file.
#[derive(Debug)]
pub(crate) struct Columns {
    pub(crate) attributes: Vec<(Role, Option<Values>, String)>,
    pub(crate) feature_names: Vec<String>,
    pub(crate) label_names: Vec<String>,
}

impl Columns {
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
                    let expected = "no hierarchical attribute where others are the labels (`ignore` leaves it out)";
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

    fn feature(&mut self, name: String) -> Result<i32, Error> {
        push(FEATURES, &mut self.feature_names, name)?;
        Ok(self.feature_names.len() as i32 - 1)
    }

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

    fn label(&mut self, name: &str, kind: &Kind) -> Result<Role, Unfit> {
        push(LABELS, &mut self.label_names, copied_text(name)?)?;
        let label = self.label_names.len() as i32 - 1;
        match kind {
            Kind::Nominal(values) => {
                // Few words are true or false, and each value is declared once.
                let on: Option<Vec<bool>> = few(values.list.iter().map(|value| truth(value)));
                on.map(|on| Role::Label { label, on }).ok_or_else(|| {
                    let expected = format!(
                        "values 0 and 1 (or no and yes, false and true) of label {}",
                        quote(name.as_bytes())
                    );
                    Unfit::new(expected, format!("{{{}}}", values.first_few()))
                })
            }
            _ => Ok(Role::NumberLabel { label }),
        }
    }
}

/// Attributes that are neither numbers nor nominal and not left out, as a message tells of them.
#[derive(Default)]
struct Unusable {
    count: usize,
    first_line: usize,
    shown: String,
}

impl Unusable {
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

    /// An error if there is one.
    fn refuse(self, path: &Path) -> Result<(), Error> {
        if self.count == 0 {
            return Ok(());
        }
        let expected = "numeric or nominal features (`ignore` leaves attributes out)";
        let more = if self.count > Values::FEW {
            ", …"
        } else {
            ""
        };
        Err(Unfit::new(expected, self.shown + more).at(path, self.first_line))
    }
}

/// Words that say whether something holds.
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

/// By attribute, whether it is a label.
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
                    format!("`-C n` with at most {n} labels, for there are {n} attributes");
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
            let expected = "to be told the labels: by `xml`, a file that names them, or by `-C n` in @relation, \
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

/// By attribute, whether it is left out.
fn ignored_positions(
    path: &Path,
    header: &Header,
    options: &ArffOptions<'_>,
) -> Result<Vec<bool>, Error> {
    let mut ignored = filled("number of attributes", false, header.attributes.len())?;
    for name in options.ignore {
        let Some(position) = header.position(name) else {
            let got = format!("`{name}`, which {} does not have", path.display());
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
