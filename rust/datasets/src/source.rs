//! A text file, plain or gzip, handed out in blocks of whole lines.

use flate2::bufread::MultiGzDecoder;
use manylabel_base::{Error, Watch};
use memchr::{memchr_iter, memrchr};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Bytes read at a time. Small enough to be parsed out of the cache, large enough that taking a
/// block costs nothing beside parsing it.
const BLOCK: u64 = 1 << 20;

/// Zero bytes behind every block, so that eight bytes can be read at any position in it.
const PADDING: [u8; 8] = [0; 8];

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
pub(crate) struct Source {
    path: PathBuf,
    reader: Box<dyn Read + Send>,
    /// The beginning of the line the last block ended in.
    carry: Vec<u8>,
    /// 1-based number of the first line not handed out.
    line: usize,
    /// Length of the text, where it is known beforehand.
    pub(crate) length: Option<u64>,
}

impl Source {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let refused = |source| Error::Io {
            path: path.into(),
            source,
        };
        let file = File::open(path).map_err(refused)?;
        let about = file.metadata().map_err(refused)?;
        let mut file = BufReader::new(file);
        let packed = file.fill_buf().map_err(refused)?.starts_with(&[0x1f, 0x8b]);
        let length = (about.is_file() && !packed).then_some(about.len());
        let reader: Box<dyn Read + Send> = if packed {
            Box::new(MultiGzDecoder::new(file))
        } else {
            Box::new(file)
        };
        Ok(Self {
            path: path.into(),
            reader,
            carry: Vec::new(),
            line: 1,
            length,
        })
    }

    /// Puts the next lines into `block`, at most one of them longer than [`BLOCK`]; false at the
    /// end of the file. A last line without a newline gets one.
    pub(crate) fn next(&mut self, block: &mut Block) -> Result<bool, Error> {
        let bytes = &mut block.bytes;
        block.first_line = self.line;
        bytes.clear();
        bytes.append(&mut self.carry);
        loop {
            let old = bytes.len();
            bytes.reserve(BLOCK as usize + PADDING.len() + 1);
            let got = match self.reader.by_ref().take(BLOCK).read_to_end(bytes) {
                Ok(got) => got,
                Err(error) => return Err(self.failed(error, bytes)),
            };
            if (got as u64) < BLOCK {
                if bytes.last().is_some_and(|&byte| byte != b'\n') {
                    bytes.push(b'\n');
                }
                break;
            }
            if let Some(newline) = memrchr(b'\n', &bytes[old..]) {
                self.carry.extend_from_slice(&bytes[old + newline + 1..]);
                bytes.truncate(old + newline + 1);
                break;
            }
        }
        let n_lines = memchr_iter(b'\n', bytes).count();
        self.line += n_lines;
        bytes.extend_from_slice(&PADDING);
        Ok(n_lines > 0)
    }

    /// Everything that is left, for small files.
    pub(crate) fn rest(&mut self, watch: &Watch) -> Result<Vec<u8>, Error> {
        let (mut text, mut block) = (Vec::new(), Block::default());
        while self.next(&mut block)? {
            text.extend_from_slice(block.text());
            watch.step(block.text().len())?;
        }
        Ok(text)
    }

    /// What the system refuses is its own error; what the decompressor refuses is the content's.
    fn failed(&self, error: io::Error, read: &[u8]) -> Error {
        if error.raw_os_error().is_some() {
            return Error::Io {
                path: self.path.clone(),
                source: error,
            };
        }
        let line = self.line + memchr_iter(b'\n', read).count();
        let got = match error.kind() {
            io::ErrorKind::UnexpectedEof => "a gzip stream that is cut short".into(),
            _ => format!("a damaged gzip stream ({error})"),
        };
        Unfit {
            expected: "more text".into(),
            got,
        }
        .at(&self.path, line)
    }
}

/// What a place in a file should hold and does not; [`at`](Self::at) says where.
#[derive(Debug)]
pub(crate) struct Unfit {
    pub(crate) expected: String,
    pub(crate) got: String,
}

impl Unfit {
    pub(crate) fn new(expected: impl Into<String>, got: impl Into<String>) -> Self {
        Self {
            expected: expected.into(),
            got: got.into(),
        }
    }

    pub(crate) fn at(self, path: &Path, line: usize) -> Error {
        Error::Parse {
            path: path.into(),
            line,
            expected: self.expected,
            got: self.got,
        }
    }
}

/// `text` as an error message shows it: printable, between backquotes and not too long.
pub(crate) fn quote(text: &[u8]) -> String {
    const LONGEST: usize = 40;
    let shown = String::from_utf8_lossy(&text[..text.len().min(4 * LONGEST)]);
    let mut quoted = String::new();
    for shown in shown.chars().take(LONGEST) {
        match shown {
            '\'' | '"' => quoted.push(shown),
            _ => quoted.extend(shown.escape_debug()),
        }
    }
    if shown.chars().count() > LONGEST || text.len() > 4 * LONGEST {
        quoted.push('…');
    }
    format!("`{quoted}`")
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
