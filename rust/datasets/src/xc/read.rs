//! Reading: from text to the arrays of CSR matrices.
//!
//! The file is read in batches of blocks, one block per thread. While a batch is read and
//! decompressed, the blocks of the batch before are parsed in parallel, each into rows of its own,
//! which are then appended in order. The allocations of both batches are reused.
//!
//! Once the first batch is parsed, its share of the file tells about how large the result will be,
//! and capacity for it is reserved, so that the arrays rarely move.

use crate::number::{Real, decimal, digits};
use crate::source::{Block, Index, Source, Unfit, quote, shorten};
use manylabel_base::{Error, Watch, extend, few, push};
use std::path::{Path, PathBuf};

/// What errors name if memory does not hold the rows.
const ENTRIES: &str = "number of stored entries";

/// Rows of a sparse matrix as they are collected: the arrays of a CSR matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows<I, V> {
    /// 0, then the end of each row in `indices`.
    pub ends: Vec<i64>,
    /// Columns, strictly increasing within a row.
    pub indices: Vec<I>,
    /// Values, none of them 0; empty for matrices of ones.
    pub values: Vec<V>,
}

impl<I, V> Default for Rows<I, V> {
    /// No rows.
    fn default() -> Self {
        Self {
            ends: few([0]),
            indices: Vec::new(),
            values: Vec::new(),
        }
    }
}

impl<I, V> Rows<I, V> {
    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.ends.len() - 1
    }

    /// Ends the row to which entries were appended.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn end_row(&mut self) -> Result<(), Error> {
        push("number of rows", &mut self.ends, self.indices.len() as i64)
    }

    /// Moves the rows of `other` behind these. Its capacity stays, for the next rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn append(&mut self, other: &mut Self) -> Result<(), Error> {
        let offset = self.indices.len() as i64;
        let ends = other.ends.drain(1..).map(|end| end + offset);
        extend("number of rows", &mut self.ends, ends)?;
        extend(ENTRIES, &mut self.indices, other.indices.drain(..))?;
        extend(ENTRIES, &mut self.values, other.values.drain(..))
    }

    /// Drops the rows from `n_rows` on, which must not have entries.
    fn truncate(&mut self, n_rows: usize) {
        self.ends.truncate(n_rows + 1);
    }

    /// Releases unused capacity.
    fn shrink(&mut self) {
        self.ends.shrink_to_fit();
        self.indices.shrink_to_fit();
        self.values.shrink_to_fit();
    }
}

/// A data set in the format of the Extreme Classification Repository.
#[derive(Debug, Clone, PartialEq)]
pub struct Xc<I, V> {
    /// Features.
    pub x: Rows<I, V>,
    /// Labels, without values.
    pub y: Rows<I, ()>,
    /// (`n_examples`, `n_features`, `n_labels`), as in the header. The rows agree with it.
    pub shape: (usize, usize, usize),
}

impl<I, V> Xc<I, V> {
    /// Reserves capacity for `share` times the present content. Growing step by step would copy the
    /// arrays, and reserved pages cost nothing until they are written. Memory that is not granted
    /// is not an error, since the size is an estimate.
    fn reserve(&mut self, share: f64) {
        fn make_room<T>(vec: &mut Vec<T>, share: f64) {
            // Three per cent more, since parts of a file differ.
            let more = vec.len() as f64 * (share * 1.03 - 1.0).max(0.0);
            let _ = vec.try_reserve(more as usize);
        }
        make_room(&mut self.x.ends, share);
        make_room(&mut self.x.indices, share);
        make_room(&mut self.x.values, share);
        make_room(&mut self.y.ends, share);
        make_room(&mut self.y.indices, share);
    }
}

/// An open file whose header has been read.
pub struct XcFile<'w> {
    /// The path, for messages.
    path: PathBuf,
    /// The rest of the file.
    source: Source<'w>,
    /// Called at each block, and while there is nothing to read.
    watch: &'w Watch,
    /// The first block of the file, header included.
    first: Block,
    /// Length of the header line in bytes.
    header_length: usize,
    /// The numbers in the header.
    shape: (usize, usize, usize),
}

impl<'w> XcFile<'w> {
    /// Opens a file, plain or gzip, and reads its header. `watch` is called at intervals while
    /// there is nothing to read: the file may be a pipe.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if it cannot be read. Returns [`Error::Parse`] if its first line is not a
    /// header. Returns [`Error::Stopped`] if the watch was stopped. Returns [`Error::TooLarge`] if
    /// memory is short.
    pub fn open(path: &Path, watch: &'w Watch) -> Result<Self, Error> {
        let (mut source, mut first) = (Source::open(path, watch)?, Block::default());
        source.next(&mut first)?;
        let (shape, header_length) = shape(path, &first)?;
        Ok(Self {
            path: path.into(),
            source,
            watch,
            first,
            header_length,
            shape,
        })
    }

    /// (`n_examples`, `n_features`, `n_labels`), as in the header.
    pub fn shape(&self) -> (usize, usize, usize) {
        self.shape
    }

    /// Reads the examples, on the threads of the current rayon pool. The result does not depend on
    /// their number. The watch counts bytes of text.
    ///
    /// Accepted are carriage returns before newlines, trailing blanks, tabs instead of blanks,
    /// empty lines at the end of the file, features and labels in any order, and repeated labels. A
    /// feature given twice in one example is an error, and so are more or fewer examples than the
    /// header says. Values of 0 are dropped.
    ///
    /// Takes linear time in a single pass, apart from sorting examples that are not in order.
    /// Memory is that of the result and a few blocks of text.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Parse`] if the file is malformed or a gzip stream damaged. Returns
    /// [`Error::Io`] if it cannot be read. Returns [`Error::Stopped`] if the watch was stopped. Returns
    /// [`Error::TooLarge`] if columns do not fit `I` or the result does not fit in memory.
    pub fn read<I: Index, V: Real>(self) -> Result<Xc<I, V>, Error> {
        let Self {
            path,
            mut source,
            watch,
            first,
            header_length,
            shape,
        } = self;
        let limits = Limits {
            n_features: shape.1 as u64,
            n_labels: shape.2 as u64,
        };
        if limits.n_features.max(limits.n_labels) > I::MAX {
            let got = format!("{} features and {} labels", shape.1, shape.2);
            return Err(Error::TooLarge {
                what: "number of columns",
                got,
            });
        }
        let mut all = Xc {
            x: Rows::default(),
            y: Rows::default(),
            shape,
        };
        let n_blocks = rayon::current_num_threads();
        let (mut now, mut next) = (Batch::new(n_blocks), Batch::new(n_blocks));
        now.parts[0].block = first;
        now.parts[0].start = header_length;
        now.filled = 1;
        while now.filled > 0 {
            // While one batch is read (and unpacked), the one before it is parsed.
            let (filled, ()) = rayon::join(|| next.fill(&mut source), || now.parse(&limits));
            for part in &mut now.parts[..now.filled] {
                watch.step(part.block.text().len())?;
                part.append_to(&mut all)
                    .map_err(|(unfit, line)| unfit.at(&path, line))?;
            }
            filled?;
            if let Some(length) = source.length.take() {
                all.reserve(length as f64 / now.text_len() as f64);
            }
            std::mem::swap(&mut now, &mut next);
        }
        let n_rows = all.x.n_rows();
        if n_rows < shape.0 {
            let expected = format!("{} examples, as line 1 says", shape.0);
            let got = format!("the end of the file after {n_rows}");
            return Err(Unfit::new(expected, got).at(&path, n_rows + 2));
        }
        all.x.shrink();
        all.y.shrink();
        Ok(all)
    }
}

/// The numbers in the header, and the length of its line.
///
/// # Errors
///
/// Returns [`Error::Parse`] unless the line consists of three whole numbers.
fn shape(path: &Path, block: &Block) -> Result<((usize, usize, usize), usize), Error> {
    let text = block.text();
    let length = text
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or(0, |newline| newline + 1);
    let line = &text[..length];
    let line = line
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(line)
        .trim_ascii();
    let mut words = line
        .split(|&byte| is_blank(byte))
        .filter(|word| !word.is_empty());
    let mut number = || {
        let word = words
            .next()
            .filter(|word| word.iter().all(u8::is_ascii_digit))?;
        // scipy stores sizes as signed 64-bit integers.
        std::str::from_utf8(word)
            .ok()?
            .parse::<i64>()
            .ok()
            .map(|size| size as usize)
    };
    let numbers = (number(), number(), number());
    if let ((Some(n), Some(d), Some(m)), None) = (numbers, words.next()) {
        return Ok(((n, d, m), length));
    }
    let got = if length == 0 {
        "an empty file".into()
    } else {
        quote(line)
    };
    let expected = "the numbers of examples, features and labels, as in `100 5000 20`";
    Err(Unfit::new(expected, got).at(path, 1))
}

/// Exclusive upper bounds of the numbers on a line.
struct Limits {
    /// Number of features.
    n_features: u64,
    /// Number of labels.
    n_labels: u64,
}

/// Consecutive blocks, parsed in parallel.
struct Batch<I, V> {
    /// One part per thread.
    parts: Vec<Part<I, V>>,
    /// How many parts hold a block.
    filled: usize,
}

impl<I: Index, V: Real> Batch<I, V> {
    /// Empty parts.
    fn new(n_blocks: usize) -> Self {
        Self {
            parts: few((0..n_blocks).map(|_| Part::default())),
            filled: 0,
        }
    }

    /// Reads the next blocks of the file.
    ///
    /// # Errors
    ///
    /// As [`Source::next`]; the parts read before it remain.
    fn fill(&mut self, source: &mut Source) -> Result<(), Error> {
        self.filled = 0;
        for part in &mut self.parts {
            part.start = 0;
            if !source.next(&mut part.block)? {
                break;
            }
            self.filled += 1;
        }
        Ok(())
    }

    /// Bytes of text in the batch.
    fn text_len(&self) -> usize {
        self.parts[..self.filled]
            .iter()
            .map(|part| part.block.text().len())
            .sum()
    }

    /// Parses all blocks of the batch.
    fn parse(&mut self, limits: &Limits) {
        use rayon::prelude::*;
        self.parts[..self.filled]
            .par_iter_mut()
            .for_each(|part| part.parse(limits));
    }
}

/// A block and the rows read from it. The allocations of both are reused from block to block.
struct Part<I, V> {
    /// The text.
    block: Block,
    /// The position where examples begin: behind the header in the first block.
    start: usize,
    /// Features.
    x: Rows<I, V>,
    /// Labels.
    y: Rows<I, ()>,
    /// The first error, with its line. Parsing of the block ends there.
    fault: Option<(Unfit, usize)>,
    /// Working space: the entries of an example that is not in order.
    unsorted: Vec<(I, V)>,
}

impl<I, V> Default for Part<I, V> {
    fn default() -> Self {
        Self {
            block: Block::default(),
            start: 0,
            x: Rows::default(),
            y: Rows::default(),
            fault: None,
            unsorted: Vec::new(),
        }
    }
}

impl<I: Index, V: Real> Part<I, V> {
    /// Parses the block up to its end or its first error.
    fn parse(&mut self, limits: &Limits) {
        let block = std::mem::take(&mut self.block);
        let (mut at, end) = (self.start, block.text().len());
        while at < end {
            match self.example(block.padded(), at, limits) {
                Ok(behind) => at = behind,
                Err(unfit) => {
                    // Every line so far was one row. The first block also has the header.
                    let header = usize::from(self.start > 0);
                    self.fault = Some((unfit, block.first_line + header + self.y.n_rows()));
                    break;
                }
            }
        }
        self.block = block;
    }

    /// Reads the example that begins at `at`; returns the position where the next one begins.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if the line is malformed.
    #[inline]
    fn example(&mut self, text: &[u8], mut at: usize, limits: &Limits) -> Result<usize, Unfit> {
        let (x_start, y_start) = (self.x.indices.len(), self.y.indices.len());
        let mut next = 0;
        let mut sorted = true;
        if !is_blank(text[at]) && !ends_line(text, at) {
            loop {
                let (label, end) = digits(text, at);
                if end == at || !(text[end] == b',' || ends_word(text, end)) {
                    return Err(wrong_label(text, at));
                }
                if label >= limits.n_labels {
                    return Err(out_of_range("label", limits.n_labels, text, at));
                }
                sorted &= label >= next;
                next = label + 1;
                push(ENTRIES, &mut self.y.indices, I::of(label))?;
                at = end;
                if text[at] != b',' {
                    break;
                }
                at += 1;
            }
            if !sorted {
                self.sort_labels(y_start);
            }
        }

        (next, sorted) = (0, true);
        loop {
            while is_blank(text[at]) {
                at += 1;
            }
            if ends_line(text, at) {
                break;
            }
            let (feature, colon) = digits(text, at);
            if colon == at || text[colon] != b':' {
                return Err(wrong_pair(text, at));
            }
            if feature >= limits.n_features {
                return Err(out_of_range("feature", limits.n_features, text, at));
            }
            match decimal::<V>(text, colon + 1) {
                Some((value, end)) if ends_word(text, end) => {
                    if value != V::default() {
                        sorted &= feature >= next;
                        next = feature + 1;
                        push(ENTRIES, &mut self.x.indices, I::of(feature))?;
                        push(ENTRIES, &mut self.x.values, value)?;
                    }
                    at = end;
                }
                _ => {
                    return Err(Unfit::new(
                        format!("{} after `{feature}:`", V::FINITE),
                        quote(word(text, colon + 1)),
                    ));
                }
            }
        }
        if !sorted {
            self.sort_features(x_start)?;
        }
        self.x.end_row()?;
        self.y.end_row()?;
        Ok(at + 1 + usize::from(text[at] == b'\r'))
    }

    /// Sorts the labels from index `start` on and drops repeated ones.
    #[cold]
    fn sort_labels(&mut self, start: usize) {
        let labels = &mut self.y.indices;
        labels[start..].sort_unstable();
        let mut kept = start;
        for at in start..labels.len() {
            if at == start || labels[at] != labels[kept - 1] {
                labels[kept] = labels[at];
                kept += 1;
            }
        }
        labels.truncate(kept);
    }

    /// Sorts the features from index `start` on.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if a feature is repeated: it would have two values.
    #[cold]
    fn sort_features(&mut self, start: usize) -> Result<(), Unfit> {
        let pairs = &mut self.unsorted;
        pairs.clear();
        let (indices, values) = (&mut self.x.indices, &mut self.x.values);
        extend(
            ENTRIES,
            pairs,
            indices.drain(start..).zip(values.drain(start..)),
        )?;
        pairs.sort_unstable_by_key(|&(feature, _)| feature);
        if let Some(twice) = pairs.windows(2).find(|two| two[0].0 == two[1].0) {
            return Err(Unfit::new(
                "each feature once",
                format!("feature {} twice", twice[0].0),
            ));
        }
        extend(ENTRIES, indices, pairs.iter().map(|&(feature, _)| feature))?;
        extend(ENTRIES, values, pairs.iter().map(|&(_, value)| value))?;
        Ok(())
    }

    /// Moves the examples behind those of `all`. After the last declared example only empty lines
    /// may follow.
    ///
    /// # Errors
    ///
    /// The error of parsing, or that of a surplus example, with its line.
    fn append_to(&mut self, all: &mut Xc<I, V>) -> Result<(), (Unfit, usize)> {
        let n_rows = self.x.n_rows();
        let n_wanted = n_rows.min(all.shape.0 - all.x.n_rows());
        if n_wanted < n_rows {
            let header = usize::from(self.start > 0);
            let lines = self.block.lines().skip(header + n_wanted);
            let mut surplus = lines.take(n_rows - n_wanted);
            if let Some((line, text)) = surplus.find(|(_, text)| !text.is_empty()) {
                let expected = format!(
                    "the end of the file after {} examples, as line 1 says",
                    all.shape.0
                );
                return Err((Unfit::new(expected, quote(text)), line));
            }
            self.x.truncate(n_wanted);
            self.y.truncate(n_wanted);
        }
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        all.x
            .append(&mut self.x)
            .and_then(|()| all.y.append(&mut self.y))
            .map_err(|error| (error.into(), 0))
    }
}

/// Whether a byte separates words.
#[inline]
fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Whether a line ends at `at`. Every block ends with a newline, so a byte follows each carriage
/// return.
#[inline]
fn ends_line(text: &[u8], at: usize) -> bool {
    text[at] == b'\n' || (text[at] == b'\r' && text[at + 1] == b'\n')
}

/// Whether a word ends at `at`.
#[inline]
fn ends_word(text: &[u8], at: usize) -> bool {
    is_blank(text[at]) || ends_line(text, at)
}

/// The text from `at` up to the next blank or the end of the line.
fn word(text: &[u8], at: usize) -> &[u8] {
    let mut end = at;
    while !ends_word(text, end) {
        end += 1;
    }
    &text[at..end]
}

/// The error for a label or feature that is not below `limit`.
#[cold]
fn out_of_range(what: &str, limit: u64, text: &[u8], at: usize) -> Unfit {
    let (_, end) = digits(text, at);
    Unfit::new(
        format!("a {what} below {limit} (they count from 0)"),
        shorten(&text[at..end]),
    )
}

/// The error for text in place of labels.
#[cold]
fn wrong_label(text: &[u8], at: usize) -> Unfit {
    let found = word(text, at);
    let expected = if found.contains(&b':') {
        "labels, or a blank before the first feature if there are no labels"
    } else {
        "labels as whole numbers separated by commas"
    };
    Unfit::new(expected, quote(found))
}

/// The error for text in place of a pair.
#[cold]
fn wrong_pair(text: &[u8], at: usize) -> Unfit {
    Unfit::new("a pair `feature:value`", quote(word(text, at)))
}
