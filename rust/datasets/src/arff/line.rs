//! The words of a line.

use crate::source::{BLOCK, Unfit, no_room, quote};
use manylabel_base::{Error, Watch, extend, push};
use std::borrow::Cow;

/// What is named if memory does not hold a word.
const WORD: &str = "a word of the file";

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
    watch: &'a Watch,
    /// Where the watch is looked at next: a line can be much longer than a block.
    next_look: usize,
}

impl<'a> Line<'a> {
    pub(crate) fn new(text: &'a [u8], watch: &'a Watch) -> Self {
        Self {
            text,
            at: 0,
            watch,
            next_look: BLOCK as usize,
        }
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
                let expected = format!("a closing {}", char::from(mark));
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
///
/// # Errors
///
/// [`Error::TooLarge`], here and below.
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

/// A copy of `text`.
pub(crate) fn copied_text(text: &str) -> Result<String, Error> {
    let mut copy = room(text.len())?;
    copy.push_str(text);
    Ok(copy)
}

/// An empty string with room for `n` bytes.
pub(crate) fn room(n: usize) -> Result<String, Error> {
    let mut text = String::new();
    text.try_reserve_exact(n).map_err(|_| no_room(WORD))?;
    Ok(text)
}
