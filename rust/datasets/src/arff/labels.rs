//! Reads the label lists of MULAN, which are XML files: `<labels><label name="…">…</label></labels>`. In a
//! hierarchy, the element of a label contains the elements of its children.
//!
//! Only the names of the labels are used. The nesting of elements is still checked, so that a truncated file
//! causes an error. Comments, declarations and other elements are skipped, and namespace prefixes are
//! ignored. This is not a full XML parser. It reads the files that MULAN and its tools write.

use super::line::{decode, room};
use crate::source::{Source, Unfit, quote, shorten};
use manylabel_base::{Error, Watch, push};
use memchr::memchr_iter;
use memchr::memmem::find;
use std::path::Path;

/// Returns the names of the labels in the order of the file, each with its line number (counted from
/// 1).
///
/// # Errors
///
/// Returns [`Error::Parse`] if the file is malformed or has no labels. Also returns the errors of
/// [`Source`].
pub(crate) fn read_labels(path: &Path, watch: &Watch) -> Result<Vec<(String, usize)>, Error> {
    let text = Source::open(path, watch)?.rest()?;
    labels(&text, watch).map_err(|(unfit, at)| unfit.at(path, line_of(&text, at)))
}

/// Returns the line number of a position, counted from 1.
fn line_of(text: &[u8], at: usize) -> usize {
    1 + memchr_iter(b'\n', &text[..at]).count()
}

/// Does the work of [`read_labels`] for the text of a file.
///
/// # Errors
///
/// Returns the error and its position in the text.
fn labels(text: &[u8], watch: &Watch) -> Result<Vec<(String, usize)>, (Unfit, usize)> {
    let mut labels = Vec::new();
    let mut open: Vec<&[u8]> = Vec::new();
    let mut at = 0;
    // `n_lines` is the number of lines that end before the latest label. `counted` is the position up
    // to which lines have been counted.
    let (mut n_lines, mut counted) = (0, 0);
    while let Some(offset) = memchr::memchr(b'<', &text[at..]) {
        let start = at + offset;
        let other = |error: Error| (Unfit::from(error), start);
        watch.step(0).map_err(other)?;
        let left = &text[start..];
        let close: &[u8] = if left.starts_with(b"<!--") {
            b"-->"
        } else {
            b">"
        };
        let Some(length) = find(left, close) else {
            let expected = format!("`{}`", String::from_utf8_lossy(close));
            return Err((Unfit::new(expected, quote(left)), start));
        };
        at = start + length + close.len();
        let tag = &left[1..length];
        if tag.starts_with(b"!") || tag.starts_with(b"?") {
            continue;
        }
        if let Some(name) = tag.strip_prefix(b"/") {
            let innermost = open.pop();
            if innermost != Some(name.trim_ascii()) {
                let expected = innermost.map_or("no closing tag".into(), |name| {
                    format!("</{}>", shorten(name))
                });
                return Err((Unfit::new(expected, quote(&left[..=length])), start));
            }
            continue;
        }
        let alone = tag.ends_with(b"/");
        let tag = tag.strip_suffix(b"/").unwrap_or(tag).trim_ascii();
        let end = tag
            .iter()
            .position(u8::is_ascii_whitespace)
            .unwrap_or(tag.len());
        if tag[..end].rsplit(|&byte| byte == b':').next() == Some(b"label") {
            let name = name_attribute(&tag[end..]).map_err(other)?.ok_or_else(|| {
                (
                    Unfit::new("<label name=\"…\">", quote(&left[..=length])),
                    start,
                )
            })?;
            n_lines += memchr_iter(b'\n', &text[counted..start]).count();
            counted = start;
            push("number of labels", &mut labels, (name, 1 + n_lines)).map_err(other)?;
        }
        if !alone {
            push("depth of the labels", &mut open, &tag[..end]).map_err(other)?;
        }
    }
    if let Some(name) = open.pop() {
        return Err((
            Unfit::new(format!("</{}>", shorten(name)), "the end of the file"),
            text.len(),
        ));
    }
    if labels.is_empty() {
        return Err((Unfit::new("<label name=\"…\"> elements", "none"), 0));
    }
    Ok(labels)
}

/// Returns the value of the attribute `name` of a tag, or `None` if the attribute is missing or
/// malformed.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
fn name_attribute(mut attributes: &[u8]) -> Result<Option<String>, Error> {
    while let Some((key, value, behind)) = attribute(attributes) {
        if key == b"name" {
            return unescape(&decode(value)?);
        }
        attributes = behind;
    }
    Ok(None)
}

/// Returns the key and the value of the first attribute of a tag, and the text after the attribute. Returns
/// `None` if there is no attribute or the attribute is malformed.
fn attribute(attributes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let equals = attributes.iter().position(|&byte| byte == b'=')?;
    let key = attributes[..equals].trim_ascii();
    let rest = attributes[equals + 1..].trim_ascii_start();
    let (mark, rest) = rest.split_first()?;
    if !matches!(mark, b'"' | b'\'') {
        return None;
    }
    let length = rest.iter().position(|byte| byte == mark)?;
    Some((key, &rest[..length], &rest[length + 1..]))
}

/// Replaces entities such as `&amp;` by their characters. Returns `None` if an entity is unknown.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
fn unescape(text: &str) -> Result<Option<String>, Error> {
    // This capacity suffices, because a character is never longer than its entity.
    let mut out = room(text.len())?;
    let mut parts = text.split('&');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let Some((meant, rest)) = part
            .split_once(';')
            .and_then(|(entity, rest)| Some((meaning(entity)?, rest)))
        else {
            return Ok(None);
        };
        out.push(meant);
        out.push_str(rest);
    }
    Ok(Some(out))
}

/// Returns the character of an entity. The entity is given without `&` and `;`.
fn meaning(entity: &str) -> Option<char> {
    Some(match entity {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let number = entity.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_entities_and_comments() {
        let text = b"<?xml version='1.0'?>\n<!-- <label name=\"no\"> -->\n<m:labels>\n\
            <m:label id='7' name = 'a &amp; b'><m:label name=\"&#228;&#x41;\"/>\n</m:label ><other/></m:labels>";
        assert_eq!(
            labels(text, &Watch::new()).expect("well formed"),
            [("a & b".into(), 4), ("äA".into(), 4)]
        );
    }

    #[test]
    fn faults_are_told_with_their_place() {
        for (text, expected, line) in [
            ("<labels>\n<label name='a'>\n</labels>", "</label>", 3),
            ("<labels>\n<label name='a'/>\n", "</labels>", 3),
            ("<labels>\n<label name='a'", "`>`", 2),
            (
                "<labels><label title='a'/></labels>",
                "<label name=\"…\">",
                1,
            ),
            (
                "<labels><label name='&wrong;'/></labels>",
                "<label name=\"…\">",
                1,
            ),
            ("\n</labels>", "no closing tag", 2),
            ("red, green", "<label name=\"…\"> elements", 1),
        ] {
            let (unfit, at) = labels(text.as_bytes(), &Watch::new()).expect_err(text);
            let found = line_of(text.as_bytes(), at);
            let Unfit::Content { expected: told, .. } = unfit else {
                panic!("{text}: {unfit:?}");
            };
            assert_eq!((&*told, found), (expected, line), "{text}");
        }
    }
}
