//! Which attribute becomes which column of X or Y.

use super::ArffOptions;
use super::header::{Attribute, Header, Kind, Values};
use super::labels::read_labels;
use super::line::decode;
use crate::source::Unfit;
use manylabel_base::{Error, Watch};
use std::collections::{HashMap, HashSet};
use std::path::Path;

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
    /// The label of `path`; ancestors nobody declared come before the first path below them.
    fn declare(&mut self, path: &str, names: &mut Vec<String>) -> i32 {
        if let Some(&known) = self.labels.get(path) {
            return known;
        }
        let parent = path
            .rsplit_once('/')
            .map(|(ancestors, _)| self.declare(ancestors, names));
        let label = self.parents.len() as i32;
        self.labels.insert(path.into(), label);
        self.parents.push(parent);
        names.push(path.into());
        label
    }

    /// Hands the label of `path` and all its ancestors to `take`; false if there is no such path.
    pub(crate) fn closure(&self, path: &str, mut take: impl FnMut(i32)) -> bool {
        let mut next = self.labels.get(path).copied();
        let known = next.is_some();
        while let Some(label) = next {
            take(label);
            next = self.parents[label as usize];
        }
        known
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
            attributes: Vec::new(),
            feature_names: Vec::new(),
            label_names: Vec::new(),
        };
        let mut unusable: Vec<(usize, String)> = Vec::new();
        for (position, attribute) in header.attributes.into_iter().enumerate() {
            let Attribute { name, kind, line } = attribute;
            let role = match &kind {
                _ if ignored.contains(&position) => Role::Ignored,
                Kind::Hierarchical(paths) if labels.contains(&position) => {
                    let mut hierarchy = Hierarchy::default();
                    for path in paths {
                        hierarchy.declare(path, &mut columns.label_names);
                    }
                    Role::Paths(hierarchy)
                }
                Kind::Other(kind) => {
                    unusable.push((line, format!("the {kind} attribute `{name}`")));
                    Role::Ignored
                }
                Kind::Hierarchical(_) => {
                    let expected = "no hierarchical attribute where others are the labels (`ignore` leaves it out)";
                    return Err(Unfit::new(expected, format!("`{name}`")).at(path, line));
                }
                kind if labels.contains(&position) => columns
                    .label(&name, kind)
                    .map_err(|unfit| unfit.at(path, line))?,
                Kind::Numeric => Role::Number {
                    column: columns.feature(name.clone()),
                },
                Kind::Nominal(values) => columns.nominal(&name, &values.list),
            };
            let values = match kind {
                Kind::Nominal(values) => Some(values),
                _ => None,
            };
            columns.attributes.push((role, values, name));
        }
        if let [(line, _), ..] = unusable[..] {
            let expected = "numeric or nominal features (`ignore` leaves attributes out)";
            let got: Vec<String> = unusable.into_iter().map(|(_, got)| got).collect();
            return Err(Unfit::new(expected, got.join(", ")).at(path, line));
        }
        if i32::try_from(columns.feature_names.len()).is_err() {
            return Err(Error::TooLarge {
                what: "number of features",
                got: columns.feature_names.len().to_string(),
            });
        }
        Ok(columns)
    }

    fn feature(&mut self, name: String) -> i32 {
        self.feature_names.push(name);
        self.feature_names.len() as i32 - 1
    }

    fn nominal(&mut self, name: &str, values: &[Vec<u8>]) -> Role {
        let named = |value: &[u8]| format!("{name}={}", decode(value));
        if let [first, second] = values {
            return match (truth(first), truth(second)) {
                (Some(true), Some(false)) => Role::Pair {
                    column: self.feature(name.into()),
                    one: 0,
                },
                (Some(false), Some(true)) => Role::Pair {
                    column: self.feature(name.into()),
                    one: 1,
                },
                _ => Role::Pair {
                    column: self.feature(named(second)),
                    one: 1,
                },
            };
        }
        let column = self.feature_names.len() as i32;
        self.feature_names
            .extend(values.iter().map(|value| named(value)));
        Role::Choice { column }
    }

    fn label(&mut self, name: &str, kind: &Kind) -> Result<Role, Unfit> {
        self.label_names.push(name.into());
        let label = self.label_names.len() as i32 - 1;
        match kind {
            Kind::Nominal(values) => {
                let on: Option<Vec<bool>> = values.list.iter().map(|value| truth(value)).collect();
                on.map(|on| Role::Label { label, on }).ok_or_else(|| {
                    let expected =
                        format!("values 0 and 1 (or no and yes, false and true) of label `{name}`");
                    Unfit::new(expected, format!("{{{}}}", values.first_few()))
                })
            }
            _ => Ok(Role::NumberLabel { label }),
        }
    }
}

/// Words that say whether something holds.
fn truth(word: &[u8]) -> Option<bool> {
    match &*word.to_ascii_lowercase() {
        b"1" | b"yes" | b"y" | b"true" | b"t" => Some(true),
        b"0" | b"no" | b"n" | b"false" | b"f" => Some(false),
        _ => None,
    }
}

fn label_positions(
    path: &Path,
    header: &Header,
    options: &ArffOptions<'_>,
    watch: &Watch,
) -> Result<HashSet<usize>, Error> {
    if let Some(xml) = options.xml {
        let found = |(name, line): (String, usize)| {
            header.position(&name).ok_or_else(|| {
                Unfit::new(
                    format!("names of attributes of {}", path.display()),
                    format!("`{name}`"),
                )
                .at(xml, line)
            })
        };
        return read_labels(xml, watch)?.into_iter().map(found).collect();
    }
    let n = header.attributes.len();
    let is_hierarchy =
        |&position: &usize| matches!(header.attributes[position].kind, Kind::Hierarchical(_));
    let hierarchies: HashSet<usize> = (0..n).filter(is_hierarchy).collect();
    match (hierarchies.len(), header.n_labels) {
        (1, _) => Ok(hierarchies),
        (0, Some(n_labels)) => {
            let count = usize::try_from(n_labels.unsigned_abs()).unwrap_or(usize::MAX);
            if count > n {
                let expected =
                    format!("`-C n` with at most {n} labels, for there are {n} attributes");
                return Err(
                    Unfit::new(expected, format!("-C {n_labels}")).at(path, header.relation_line)
                );
            }
            Ok(if n_labels > 0 {
                (0..count).collect()
            } else {
                (n - count..n).collect()
            })
        }
        (0, None) => {
            let expected = "to be told the labels: by `xml`, a file that names them, or by `-C n` in @relation, \
                            or by a hierarchical attribute";
            Err(Unfit::new(expected, "none of these").at(path, header.relation_line))
        }
        (several, _) => {
            let got = format!("{several} hierarchical attributes");
            Err(Unfit::new("one hierarchical attribute", got).at(path, header.relation_line))
        }
    }
}

fn ignored_positions(
    path: &Path,
    header: &Header,
    options: &ArffOptions<'_>,
) -> Result<HashSet<usize>, Error> {
    let found = |name: &String| {
        header.position(name).ok_or_else(|| {
            let got = format!("`{name}`, which {} does not have", path.display());
            Error::Param {
                name: "ignore",
                expected: "names of attributes",
                got,
            }
        })
    };
    options.ignore.iter().map(found).collect()
}
