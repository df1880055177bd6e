//! Reads text files, plain or gzip, as blocks of whole lines. Also makes error messages about the content of
//! these files.
//!
//! [`Source::next`] reads [`BLOCK`] bytes at a time and ends the block after the last newline. The text after
//! this newline begins the next block. So parsers always get whole lines, and can parse several blocks in
//! parallel. Eight bytes of padding follow a block, so that eight bytes can be loaded at any position
//! of the text.
//!
//! A parser that rejects content returns an [`Unfit`], which does not contain the place in the file.
//! [`Unfit::at`] adds the file and the line. [`quote`] and [`shorten`] make any bytes of the file printable
//! for error messages.

use crate::pipe;
use flate2::bufread::MultiGzDecoder;
use manylabel_base::{Error, Watch, extend};
use memchr::{memchr, memchr_iter, memrchr};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Number of bytes read at a time. A block is small enough to be parsed from the cache, and large
/// enough that the overhead per block is negligible.
pub(crate) const BLOCK: u64 = 1 << 20;

/// The largest length of a line in bytes. About twenty million `feature:value` pairs fit on such a line. A
/// file without newlines, such as a disk image, is rejected at this length and not read into memory as a
/// whole.
pub(crate) const LONGEST_LINE: usize = 256 << 20;

/// The zero bytes at the end of every block.
const PADDING: [u8; 8] = [0; 8];

/// The name in error messages if the text does not fit in memory.
const TEXT: &str = "a line of the file";

/// A block of whole lines of a file.
#[derive(Debug, Default)]
pub(crate) struct Block<'t> {
    /// The lines, each with its newline, followed by [`PADDING`].
    bytes: Vec<u8>,
    /// The lines, if they are part of a text in memory. They are followed by eight bytes of this text, and `bytes` is
    /// not used.
    borrowed: Option<&'t [u8]>,
    /// The line number of the first line of the block, counted from 1.
    pub(crate) first_line: usize,
}

impl<'t> Block<'t> {
    /// Replaces the content by the first lines of `text`, about [`BLOCK`] bytes. `first_line` is the
    /// number of the first line. If the last line of `text` has no newline, it is left out unless it is the
    /// only line. The lines are copied only if `text` ends less than eight bytes after them.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn take_first_of(&mut self, text: &'t [u8], first_line: usize) -> Result<(), Error> {
        let start = text.len().min(BLOCK as usize);
        let newline = memchr(b'\n', &text[start.saturating_sub(1)..]);
        let end = newline.map_or(text.len(), |newline| start.max(1) + newline);
        self.first_line = first_line;
        self.borrowed = text.get(..end + PADDING.len());
        if self.borrowed.is_some() {
            return Ok(());
        }
        self.bytes.clear();
        extend(TEXT, &mut self.bytes, text[..end].iter().copied())?;
        extend(TEXT, &mut self.bytes, PADDING)
    }

    /// Returns the lines, each with its newline.
    ///
    /// # Panics
    ///
    /// Panics if the block has never been filled.
    pub(crate) fn text(&self) -> &[u8] {
        let padded = self.padded();
        &padded[..padded.len() - PADDING.len()]
    }

    /// Returns the number of lines.
    pub(crate) fn n_lines(&self) -> usize {
        memchr_iter(b'\n', self.text()).count()
    }

    /// Returns the lines, followed by eight bytes.
    pub(crate) fn padded(&self) -> &[u8] {
        self.borrowed.unwrap_or(&self.bytes)
    }

    /// Returns the lines with their line numbers, counted from 1. Newlines, and carriage returns before
    /// them, are removed.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let lines = self.text().split_inclusive(|&byte| byte == b'\n');
        (self.first_line..).zip(lines.map(|line| {
            let line = &line[..line.len() - 1];
            line.strip_suffix(b"\r").unwrap_or(line)
        }))
    }
}

/// An open text file. The first two bytes determine whether a file is gzip. A gzip file may have any number
/// of members.
pub(crate) struct Source<'w> {
    /// The path, for error messages.
    path: PathBuf,
    /// The text, decompressed.
    reader: Box<dyn Read + Send + 'w>,
    /// The watch, which is checked for a stop request of the caller while text is read.
    watch: &'w Watch,
    /// The part of a line that was at the end of the last read.
    carry: Vec<u8>,
    /// The line number of the first line that has not been returned, counted from 1.
    line: usize,
    /// The length of the text in bytes for regular files without compression. `None` for other files, because
    /// the length is not known in advance.
    pub(crate) length: Option<u64>,
}

impl<'w> Source<'w> {
    /// Opens a file and reads its first bytes. If the file is a pipe, the function checks for a stop request
    /// while it waits for text.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if the file cannot be opened. Returns [`Error::Stopped`] if the caller requested
    /// a stop. Returns [`Error::TooLarge`] if the system reports a lack of memory.
    pub(crate) fn open(path: &Path, watch: &'w Watch) -> Result<Self, Error> {
        let (file, about) = pipe::open(path, watch).map_err(|error| refused(path, error))?;
        let mut file = BufReader::new(file);
        let start = file.fill_buf().map_err(|error| refused(path, error))?;
        let packed = start.starts_with(&[0x1f, 0x8b]);
        let length = (about.is_file() && !packed).then_some(about.len());
        let reader: Box<dyn Read + Send + 'w> = if packed {
            Box::new(MultiGzDecoder::new(file))
        } else {
            Box::new(file)
        };
        Ok(Self {
            path: path.into(),
            reader,
            watch,
            carry: Vec::new(),
            line: 1,
            length,
        })
    }

    /// Replaces the content of `block` by the next lines. At most one of these lines is longer than
    /// [`BLOCK`]. Returns false at the end of the file. If the last line has no newline, a newline is
    /// added.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Parse`] if a line is longer than [`LONGEST_LINE`] or a gzip stream is damaged.
    /// Returns [`Error::Io`] if the file cannot be read. Returns [`Error::Stopped`] if the caller requested a
    /// stop. Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn next(&mut self, block: &mut Block<'_>) -> Result<bool, Error> {
        let bytes = &mut block.bytes;
        block.borrowed = None;
        block.first_line = self.line;
        bytes.clear();
        extend(TEXT, bytes, self.carry.drain(..))?;
        loop {
            let old = bytes.len();
            bytes
                .try_reserve(BLOCK as usize + PADDING.len() + 1)
                .map_err(|_| no_room(TEXT))?;
            let got = match self.reader.by_ref().take(BLOCK).read_to_end(bytes) {
                Ok(got) => got,
                Err(error) => return Err(self.failed(error, bytes)),
            };
            if bytes.len() > LONGEST_LINE {
                // All text before `old` belongs to one line.
                let newline = memchr(b'\n', &bytes[old..]);
                if newline.map_or(bytes.len(), |newline| old + newline) > LONGEST_LINE {
                    let expected = format!("lines of at most {LONGEST_LINE} bytes");
                    return Err(Unfit::new(expected, "a longer line").at(&self.path, self.line));
                }
            }
            if (got as u64) < BLOCK {
                if bytes.last().is_some_and(|&byte| byte != b'\n') {
                    bytes.push(b'\n');
                }
                break;
            }
            if let Some(newline) = memrchr(b'\n', &bytes[old..]) {
                let behind = old + newline + 1;
                extend(TEXT, &mut self.carry, bytes[behind..].iter().copied())?;
                bytes.truncate(behind);
                break;
            }
            self.watch.step(0)?;
        }
        let n_lines = memchr_iter(b'\n', bytes).count();
        self.line += n_lines;
        extend(TEXT, bytes, PADDING)?;
        Ok(n_lines > 0)
    }

    /// Returns all remaining text, for small files. The watch counts the bytes.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`next`](Self::next).
    pub(crate) fn rest(&mut self) -> Result<Vec<u8>, Error> {
        let (mut text, mut block) = (Vec::new(), Block::default());
        while self.next(&mut block)? {
            extend("the file", &mut text, block.text().iter().copied())?;
            self.watch.step(block.text().len())?;
        }
        Ok(text)
    }

    /// Returns the error for a failed read. It is [`Error::Io`] if the system failed, and [`Error::Parse`] if
    /// decompression failed. `read` is the text after the last block that [`next`](Self::next) returned, as
    /// far as it has been read. The error contains the number of the last line of `read`.
    fn failed(&self, error: io::Error, read: &[u8]) -> Error {
        let line = self.line + memchr_iter(b'\n', read).count();
        let got = match error.kind() {
            _ if error.raw_os_error().is_some() => return refused(&self.path, error),
            io::ErrorKind::UnexpectedEof => "a truncated gzip stream".into(),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                format!("a damaged gzip stream ({error})")
            }
            _ => return refused(&self.path, error),
        };
        Unfit::new("a valid gzip stream", got).at(&self.path, line)
    }
}

/// Returns the error for a file that the system could not open or read.
fn refused(path: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::OutOfMemory {
        return no_room(TEXT);
    }
    // The watch is checked while the reader waits for text. An error of the watch is returned unchanged.
    error.downcast().unwrap_or_else(|source| Error::Io {
        path: path.into(),
        source,
    })
}

/// Returns the error for a lack of memory. `what` is the purpose of the memory.
pub(crate) fn no_room(what: &'static str) -> Error {
    Error::TooLarge {
        what,
        got: "memory ran out".into(),
    }
}

/// The reason why content was rejected, without the place in the file. [`at`](Self::at) adds the place.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// Wrong content. `expected` is the text that the format requires at this place, and `got` is the text
    /// that was found.
    Content { expected: String, got: String },
    /// An error that is not about the content: a lack of memory or a stop request.
    Other(Error),
}

impl Unfit {
    /// Makes an error for wrong content. The two texts follow the words "expected" and "got" in the
    /// message of [`Error::Parse`].
    pub(crate) fn new(expected: impl Into<String>, got: impl Into<String>) -> Self {
        Self::Content {
            expected: expected.into(),
            got: got.into(),
        }
    }

    /// Converts the reason to an error. If the reason is about content, the error contains the file and the
    /// line number (counted from 1).
    pub(crate) fn at(self, path: &Path, line: usize) -> Error {
        match self {
            Self::Content { expected, got } => Error::Parse {
                path: path.into(),
                line,
                expected,
                got,
            },
            Self::Other(error) => error,
        }
    }
}

impl From<Error> for Unfit {
    /// Stores an error that is not about content.
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Returns `text` in backquotes, for error messages. The text is shortened by [`shorten`].
pub(crate) fn quote(text: &[u8]) -> String {
    format!("`{}`", shorten(text))
}

/// Returns `text` for error messages, without backquotes. Control characters are escaped, and bytes
/// that are not UTF-8 are replaced. At most 40 characters are returned, followed by … if there are
/// more.
pub(crate) fn shorten(text: &[u8]) -> String {
    const LONGEST: usize = 40;
    let shown = String::from_utf8_lossy(&text[..text.len().min(4 * LONGEST)]);
    let mut short = String::new();
    for shown in shown.chars().take(LONGEST) {
        match shown {
            '\'' | '"' => short.push(shown),
            _ => shown.escape_debug().for_each(|part| short.push(part)),
        }
    }
    if shown.chars().count() > LONGEST || text.len() > 4 * LONGEST {
        short.push('…');
    }
    short
}

/// The index types of scipy: `i32`, and `i64` for larger sizes.
pub trait Index: manylabel_sparse::Index + Ord {
    /// The largest size that this type can represent.
    const MAX: u64;
    /// Converts a position below [`MAX`](Self::MAX).
    fn of(position: u64) -> Self;
}

impl Index for i32 {
    const MAX: u64 = i32::MAX as u64;
    #[inline]
    fn of(position: u64) -> Self {
        position as i32
    }
}

impl Index for i64 {
    const MAX: u64 = i64::MAX as u64;
    #[inline]
    fn of(position: u64) -> Self {
        position as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_short_and_printable() {
        assert_eq!(quote(b"a\t'b'\0\xff"), "`a\\t'b'\\0\u{fffd}`");
        assert_eq!(quote(&[b'x'; 1000]), format!("`{}…`", "x".repeat(40)));
        assert_eq!(quote(&[b'x'; 40]), format!("`{}`", "x".repeat(40)));
    }
}
