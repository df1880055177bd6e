//! Splits a line of an ARFF file into words.
//!
//! A [`Line`] holds the text of one line and the position of the next byte to read. Blanks between words are
//! skipped, and an unquoted `%` begins a comment. A word may be enclosed in single or double quotes. Within
//! quotes, a backslash escapes the next character, and `\n`, `\t` and `\r` have the same meaning as in C.

use crate::source::{BLOCK, Unfit, no_room, quote};
use manylabel_base::{Error, Watch, extend, push};
use std::borrow::Cow;

/// The name in error messages if a word does not fit in memory.
const WORD: &str = "a word of the file";

/// A word of a line.
#[derive(Debug)]
pub(crate) struct Word<'a> {
    /// The text of the word, without quotes and escapes.
    pub(crate) text: Cow<'a, [u8]>,
    /// True if the word was quoted.
    quoted: bool,
}

impl Word<'_> {
    /// Returns true if the word is a missing value, which is `?` without quotes.
    pub(crate) fn is_missing(&self) -> bool {
        !self.quoted && *self.text == *b"?"
    }
}

/// The text of a line, with the position of the next byte to read.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    /// The whole line.
    text: &'a [u8],
    /// The position of the next byte to read.
    at: usize,
    /// The watch, which is checked for a stop request of the caller at intervals within very long lines.
    watch: &'a Watch,
    /// The position at which the watch is checked next. Reading a very long line takes so much time that the
    /// watch must be checked within the line.
    next_look: usize,
}

impl<'a> Line<'a> {
    /// Returns a `Line` at the beginning of the text.
    pub(crate) fn new(text: &'a [u8], watch: &'a Watch) -> Self {
        Self {
            text,
            at: 0,
            watch,
            next_look: BLOCK as usize,
        }
    }

    /// Skips blanks and returns the next byte, or `None` at the end of the line or before a
    /// comment.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        self.text.get(self.at).copied().filter(|&byte| byte != b'%')
    }

    /// Skips blanks, and then skips the next byte if it equals `byte`. Returns true if `byte` was skipped.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Returns the text that has not been read, without blanks at its ends.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.text[self.at..].trim_ascii()
    }

    /// Checks that only blanks and a comment are left on the line.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if any other text is left.
    pub(crate) fn end(&mut self) -> Result<(), Unfit> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(Unfit::new("the end of the line", quote(self.rest()))),
        }
    }

    /// Reads a word. A word without quotes ends before one of the bytes `stops` or before a comment. Blanks
    /// at the ends of the word are removed. `what` describes the word in error messages.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if there is no word, if a quote is not closed, if the caller requested a stop, or if
    /// memory is short.
    pub(crate) fn word(&mut self, stops: &[u8], what: &str) -> Result<Word<'a>, Unfit> {
        if self.at >= self.next_look {
            self.next_look = self.at + BLOCK as usize;
            self.watch.step(0)?;
        }
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
                let expected = format!("a closing quotation mark `{}`", char::from(mark));
                return Err(Unfit::new(expected, quote(&self.text[start..])));
            };
            self.at += length + 1;
            let run = &self.text[plain..plain + length];
            if self.text[plain + length] == mark {
                let text = match unescaped {
                    None => Cow::Borrowed(run),
                    Some(mut text) => {
                        extend(WORD, &mut text, run.iter().copied())?;
                        Cow::Owned(text)
                    }
                };
                return Ok(Word { text, quoted: true });
            }
            let text = unescaped.get_or_insert_default();
            extend(WORD, text, run.iter().copied())?;
            let meant = match self.text.get(self.at) {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'r') => b'\r',
                Some(&other) => other,
                None => continue,
            };
            push(WORD, text, meant)?;
            self.at += 1;
        }
    }

    /// Does the work of [`word`](Self::word) for a word without quotes.
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

/// Decodes `bytes` as UTF-8. If they are not valid UTF-8, decodes them as Latin-1, the encoding of many
/// old files.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
pub(crate) fn decode(bytes: &[u8]) -> Result<String, Error> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        let mut text = room(2 * bytes.len())?;
        for &byte in bytes {
            text.push(char::from(byte));
        }
        return Ok(text);
    };
    copied_text(text)
}

/// Returns a copy of `text`.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
pub(crate) fn copied_text(text: &str) -> Result<String, Error> {
    let mut copy = room(text.len())?;
    copy.push_str(text);
    Ok(copy)
}

/// Returns an empty string with capacity for `n` bytes.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if memory is short.
pub(crate) fn room(n: usize) -> Result<String, Error> {
    let mut text = String::new();
    text.try_reserve_exact(n).map_err(|_| no_room(WORD))?;
    Ok(text)
}
