//! The words of a line.

use crate::source::{Unfit, quote};
use std::borrow::Cow;

/// A word and whether it stood in quotes; `?` means missing only without them.
#[derive(Debug)]
pub(crate) struct Word<'a> {
    pub(crate) text: Cow<'a, [u8]>,
    quoted: bool,
}

impl Word<'_> {
    pub(crate) fn is_missing(&self) -> bool {
        !self.quoted && *self.text == *b"?"
    }
}

/// A position in a line.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Line<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The next byte that is no blank; `None` at the end or before a comment.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied().filter(|&byte| byte != b'%')
    }

    /// Steps over `byte`, if it comes next.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// What has not been read, without blanks around it.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.text[self.at..].trim_ascii()
    }

    /// An error unless nothing but a comment is left.
    pub(crate) fn end(&mut self) -> Result<(), Unfit> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(Unfit::new("the end of the line", quote(self.rest()))),
        }
    }

    /// A quoted word, or what comes before one of `stops` or a comment, without blanks around it.
    pub(crate) fn word(&mut self, stops: &[u8], what: &str) -> Result<Word<'a>, Unfit> {
        let Some(mark @ (b'\'' | b'"')) = self.peek() else {
            return self.bare(stops, what);
        };
        let start = self.at;
        self.at += 1;
        let mut unescaped: Option<Vec<u8>> = None;
        loop {
            let plain = self.at;
            let length = self.text[plain..]
                .iter()
                .position(|&byte| byte == mark || byte == b'\\');
            let Some(length) = length else {
                let expected = format!("a closing {}", char::from(mark));
                return Err(Unfit::new(expected, quote(&self.text[start..])));
            };
            self.at += length + 1;
            let run = &self.text[plain..plain + length];
            if self.text[plain + length] == mark {
                let text = match unescaped {
                    None => Cow::Borrowed(run),
                    Some(mut text) => {
                        text.extend_from_slice(run);
                        Cow::Owned(text)
                    }
                };
                return Ok(Word { text, quoted: true });
            }
            let text = unescaped.get_or_insert_default();
            text.extend_from_slice(run);
            match self.text.get(self.at) {
                Some(b'n') => text.push(b'\n'),
                Some(b't') => text.push(b'\t'),
                Some(b'r') => text.push(b'\r'),
                Some(&other) => text.push(other),
                None => {}
            }
            self.at += 1;
            self.at = self.at.min(self.text.len());
        }
    }

    fn bare(&mut self, stops: &[u8], what: &str) -> Result<Word<'a>, Unfit> {
        let left = &self.text[self.at..];
        let length = left
            .iter()
            .position(|byte| *byte == b'%' || stops.contains(byte))
            .unwrap_or(left.len());
        let text = left[..length].trim_ascii_end();
        if text.is_empty() {
            let got = if left.is_empty() {
                "the end of the line".into()
            } else {
                quote(left)
            };
            return Err(Unfit::new(what, got));
        }
        self.at += length;
        Ok(Word {
            text: Cow::Borrowed(text),
            quoted: false,
        })
    }
}

/// `bytes` as text: UTF-8 if they are, else Latin-1, in which old files are written.
pub(crate) fn decode(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => bytes.iter().map(|&byte| char::from(byte)).collect(),
    }
}
