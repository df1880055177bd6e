//! A text file, plain or gzip, handed out in blocks of whole lines.

use crate::pipe;
use flate2::bufread::MultiGzDecoder;
use manylabel_base::{Error, Watch, extend};
use memchr::{memchr, memchr_iter, memrchr};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes read at a time. Small enough to be parsed out of the cache, large enough that taking a
/// block costs nothing beside parsing it.
pub(crate) const BLOCK: u64 = 1 << 20;

/// Bytes of the longest line that is read: a row of some twenty million `feature:value` pairs. What has no
/// newlines at all (a disk image, a file with a hole) is refused here and not taken into memory.
pub(crate) const LONGEST_LINE: usize = 256 << 20;

/// Zero bytes behind every block, so that eight bytes can be read at any position in it.
const PADDING: [u8; 8] = [0; 8];

/// What is named if memory does not hold the text being read.
const TEXT: &str = "a line of the file";

/// Whole lines of a file.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// The lines, each with its newline, then [`PADDING`].
    bytes: Vec<u8>,
    /// 1-based number of the first of them.
    pub(crate) first_line: usize,
}

impl Block {
    /// The lines, each with its newline.
    pub(crate) fn text(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - PADDING.len()]
    }

    /// The lines and at least eight zero bytes behind them.
    pub(crate) fn padded(&self) -> &[u8] {
        &self.bytes
    }

    /// The lines with their 1-based numbers, without newline and carriage return.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let lines = self.text().split_inclusive(|&byte| byte == b'\n');
        (self.first_line..).zip(lines.map(|line| {
            let line = &line[..line.len() - 1];
            line.strip_suffix(b"\r").unwrap_or(line)
        }))
    }
}

/// An open text file; gzip (of any number of members) is recognised by its first two bytes.
pub(crate) struct Source<'w> {
    path: PathBuf,
    reader: Box<dyn Read + Send + 'w>,
    watch: &'w Watch,
    /// The beginning of the line the last block ended in.
    carry: Vec<u8>,
    /// 1-based number of the first line not handed out.
    line: usize,
    /// Length of the text, where it is known beforehand.
    pub(crate) length: Option<u64>,
}

impl<'w> Source<'w> {
    /// Opens a file. Whatever waits for text looks at `watch` meanwhile.
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

    /// Puts the next lines into `block`, at most one of them longer than [`BLOCK`]; false at the
    /// end of the file. A last line without a newline gets one.
    ///
    /// # Errors
    ///
    /// [`Error::Parse`] if a line is longer than [`LONGEST_LINE`] or a gzip stream damaged, [`Error::Io`],
    /// [`Error::Stopped`], [`Error::TooLarge`].
    pub(crate) fn next(&mut self, block: &mut Block) -> Result<bool, Error> {
        let bytes = &mut block.bytes;
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
                // All before `old` is the beginning of one line.
                let newline = memchr(b'\n', &bytes[old..]);
                if newline.map_or(bytes.len(), |newline| old + newline) > LONGEST_LINE {
                    let expected = format!("lines of at most {LONGEST_LINE} bytes");
                    return Err(Unfit::new(expected, "a longer one").at(&self.path, self.line));
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

    /// Everything that is left, for small files.
    pub(crate) fn rest(&mut self) -> Result<Vec<u8>, Error> {
        let (mut text, mut block) = (Vec::new(), Block::default());
        while self.next(&mut block)? {
            extend("the file", &mut text, block.text().iter().copied())?;
            self.watch.step(block.text().len())?;
        }
        Ok(text)
    }

    /// What the system refuses is its own error; what the decompressor refuses is the content's.
    fn failed(&self, error: io::Error, read: &[u8]) -> Error {
        let line = self.line + memchr_iter(b'\n', read).count();
        let got = match error.kind() {
            _ if error.raw_os_error().is_some() => return refused(&self.path, error),
            io::ErrorKind::UnexpectedEof => "a gzip stream that is cut short".into(),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                format!("a damaged gzip stream ({error})")
            }
            _ => return refused(&self.path, error),
        };
        Unfit::new("more text", got).at(&self.path, line)
    }
}

/// Why a file cannot be read on.
fn refused(path: &Path, error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::OutOfMemory {
        return no_room(TEXT);
    }
    // The watch was looked at while waiting for text.
    error.downcast().unwrap_or_else(|source| Error::Io {
        path: path.into(),
        source,
    })
}

/// Memory does not hold `what`.
pub(crate) fn no_room(what: &'static str) -> Error {
    Error::TooLarge {
        what,
        got: "memory ran out".into(),
    }
}

/// Why a place in a file was not taken; [`at`](Self::at) says which.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// What should stand there, and what does.
    Content { expected: String, got: String },
    /// What is not the file's fault: memory was refused, or the caller asked to stop.
    Other(Error),
}

impl Unfit {
    pub(crate) fn new(expected: impl Into<String>, got: impl Into<String>) -> Self {
        Self::Content {
            expected: expected.into(),
            got: got.into(),
        }
    }

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
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// `text` as an error message shows it: printable, between backquotes and not too long.
pub(crate) fn quote(text: &[u8]) -> String {
    format!("`{}`", shorten(text))
}

/// `text` as an error message shows it where it needs no backquotes: printable and not too long.
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

/// An index type of scipy's: `i32`, or `i64` where sizes ask for it.
pub trait Index: manylabel_sparse::Index + Ord {
    /// The largest size it can count.
    const MAX: u64;
    /// A position below [`MAX`](Self::MAX).
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
