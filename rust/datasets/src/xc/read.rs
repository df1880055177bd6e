//! Reads the text format of the Extreme Classification Repository into the arrays of CSR matrices.
//!
//! The file is read in batches of blocks, one block per thread. While one batch is read and
//! decompressed, the blocks of the previous batch are parsed in parallel. Each block is parsed into its
//! own rows, which are then appended in order. The allocations of the two batches are reused.
//!
//! After the first batch is parsed, the size of the result is estimated from the fraction of the file
//! that the batch covers. Memory for the result is then reserved, so that the arrays rarely have to be
//! moved to a larger allocation.

use crate::number::{Real, decimal, digits};
use crate::source::{Block, Index, Source, Unfit, quote, shorten};
use manylabel_base::{Error, Watch, extend, few, push};
use std::path::{Path, PathBuf};

/// The name in error messages if the rows do not fit in memory.
const ENTRIES: &str = "number of stored entries";

/// Collects the rows of a sparse matrix in the arrays of a CSR matrix.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows<I, V> {
    /// The number 0, followed by the end of each row in `indices`.
    pub ends: Vec<i64>,
    /// The columns, strictly increasing within a row.
    pub indices: Vec<I>,
    /// The values. No value is 0. Empty for matrices whose values are all 1.
    pub values: Vec<V>,
}

impl<I, V> Default for Rows<I, V> {
    /// Returns a matrix without rows.
    fn default() -> Self {
        Self {
            ends: few([0]),
            indices: Vec::new(),
            values: Vec::new(),
        }
    }
}

impl<I, V> Rows<I, V> {
    /// Returns the number of rows.
    pub fn n_rows(&self) -> usize {
        self.ends.len() - 1
    }

    /// Ends the current row, after its entries were appended.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    pub(crate) fn end_row(&mut self) -> Result<(), Error> {
        push("number of rows", &mut self.ends, self.indices.len() as i64)
    }

    /// Moves the rows of `other` to the end of `self`. `other` keeps its capacity for the next rows.
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

    /// Keeps the first `n_rows` rows. The dropped rows must not have entries.
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
    /// The features.
    pub x: Rows<I, V>,
    /// The labels, without values.
    pub y: Rows<I, ()>,
    /// The unknown labels of each example, without values. In the file, a question mark follows an unknown
    /// label.
    pub unknown: Rows<I, ()>,
    /// The sizes (`n_examples`, `n_features`, `n_labels`) in the header. The rows have these sizes.
    pub shape: (usize, usize, usize),
}

impl<I, V> Xc<I, V> {
    /// Reserves capacity for `share` times the present content. Otherwise the arrays would be copied whenever
    /// they grow. Reserved pages take no physical memory until they are written. A failed allocation is not an
    /// error here, because the size is an estimate.
    fn reserve(&mut self, share: f64) {
        fn make_room<T>(vec: &mut Vec<T>, share: f64) {
            // Reserve three per cent more, because parts of a file differ.
            let more = vec.len() as f64 * (share * 1.03 - 1.0).max(0.0);
            let _ = vec.try_reserve(more as usize);
        }
        make_room(&mut self.x.ends, share);
        make_room(&mut self.x.indices, share);
        make_room(&mut self.x.values, share);
        make_room(&mut self.y.ends, share);
        make_room(&mut self.y.indices, share);
        make_room(&mut self.unknown.ends, share);
        make_room(&mut self.unknown.indices, share);
    }
}

/// An open file whose header has been read.
pub struct XcFile<'w> {
    /// The path, for error messages.
    path: PathBuf,
    /// The remainder of the file.
    source: Source<'w>,
    /// The watch, which counts bytes of text and is checked for a stop request of the caller.
    watch: &'w Watch,
    /// The first block of the file, including the header.
    first: Block<'static>,
    /// The length of the header line in bytes.
    header_length: usize,
    /// The numbers in the header.
    shape: (usize, usize, usize),
}

impl<'w> XcFile<'w> {
    /// Opens a file, plain or gzip, and reads its header. If the file is a pipe, the function checks for a
    /// stop request while it waits for text.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Io`] if the file cannot be read. Returns [`Error::Parse`] if the first line is not a
    /// header. Returns [`Error::Stopped`] if the caller requested a stop. Returns [`Error::TooLarge`] if
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

    /// Returns the sizes (`n_examples`, `n_features`, `n_labels`) in the header.
    pub fn shape(&self) -> (usize, usize, usize) {
        self.shape
    }

    /// Reads the examples on the threads of the current rayon pool. The result does not depend on the
    /// number of threads. The progress of the watch is counted in bytes of text.
    ///
    /// The reader accepts carriage returns before newlines, trailing blanks, tabs in place of blanks, and empty
    /// lines at the end of the file. It also accepts features and labels in any order, and repeated labels. A
    /// question mark after a label, as in `7?`, means that the label is unknown. A feature that occurs twice in
    /// an example is an error. A number of examples that differs from the header is also an error. Values of 0
    /// are dropped.
    ///
    /// The text is read in a single pass. The time is linear in the length of the text, plus the time
    /// to sort examples with unsorted columns. The function needs memory for the result and for a few
    /// blocks of text.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Parse`] if the file is malformed or a gzip stream is damaged. Returns [`Error::Io`]
    /// if the file cannot be read. Returns [`Error::Stopped`] if the caller requested a stop. Returns
    /// [`Error::TooLarge`] if column numbers do not fit in the type `I`, or if the result does not fit in
    /// memory.
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
            let got = format!(
                "{} features and {} labels; at most {} of each are supported",
                shape.1,
                shape.2,
                I::MAX
            );
            return Err(Error::TooLarge {
                what: "number of columns",
                got,
            });
        }
        let mut all = Xc {
            x: Rows::default(),
            y: Rows::default(),
            unknown: Rows::default(),
            shape,
        };
        let n_blocks = rayon::current_num_threads();
        let (mut now, mut next) = (Batch::new(n_blocks), Batch::new(n_blocks));
        now.parts[0].block = first;
        now.parts[0].start = header_length;
        now.filled = 1;
        while now.filled > 0 {
            // While one batch is read and decompressed, the previous batch is parsed.
            let (filled, ()) = rayon::join(|| next.fill(&mut source), || now.parse(&limits));
            for part in &mut now.parts[..now.filled] {
                watch.step(part.block.text().len())?;
                part.append_to(&mut all, 0)
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
            let expected = format!("{} examples, as line 1 states", shape.0);
            let got = format!("the end of the file after {n_rows} examples");
            return Err(Unfit::new(expected, got).at(&path, n_rows + 2));
        }
        all.x.shrink();
        all.y.shrink();
        all.unknown.shrink();
        Ok(all)
    }
}

/// Parses lines without a header, on the threads of the current rayon pool. The caller has read the lines from
/// the file `path`, which has `n_before` examples before them. `first_line` is the number of the first line,
/// counted from 1. `text` must end with a newline, unless it is empty.
///
/// `shape` is the largest number of examples in the file, and the numbers of features and labels. After the last
/// example, only empty lines are allowed. All other rules are those of [`XcFile::read`].
///
/// The function needs memory for the result and for a few blocks of text.
///
/// # Errors
///
/// Returns [`Error::Parse`] if a line is malformed. Returns [`Error::Stopped`] if the caller requested a stop.
/// Returns [`Error::TooLarge`] if the result does not fit in memory.
pub fn parse_lines<I: Index, V: Real>(
    path: &Path,
    text: &[u8],
    (n_before, first_line): (usize, usize),
    shape: (usize, usize, usize),
    watch: &Watch,
) -> Result<Xc<I, V>, Error> {
    let limits = Limits {
        n_features: shape.1 as u64,
        n_labels: shape.2 as u64,
    };
    let mut all = Xc {
        x: Rows::default(),
        y: Rows::default(),
        unknown: Rows::default(),
        shape,
    };
    let mut batch = Batch::new(rayon::current_num_threads());
    let (mut rest, mut line) = (text, first_line);
    while !rest.is_empty() {
        let is_first = rest.len() == text.len();
        batch.take_from(&mut rest, &mut line)?;
        batch.parse(&limits);
        for part in &mut batch.parts[..batch.filled] {
            watch.step(0)?;
            part.append_to(&mut all, n_before)
                .map_err(|(unfit, line)| unfit.at(path, line))?;
        }
        if is_first {
            all.reserve(text.len() as f64 / batch.text_len() as f64);
        }
    }
    Ok(all)
}

/// Returns the numbers in the header, and the length of the header line.
///
/// # Errors
///
/// Returns [`Error::Parse`] unless the line consists of three whole numbers.
fn shape(path: &Path, block: &Block<'_>) -> Result<((usize, usize, usize), usize), Error> {
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
        // Sizes must fit in a signed 64-bit integer, because scipy stores them in this type.
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

/// Exclusive upper bounds of the feature numbers and label numbers in a line.
struct Limits {
    /// Number of features.
    n_features: u64,
    /// Number of labels.
    n_labels: u64,
}

/// Consecutive blocks, which are parsed in parallel.
struct Batch<'t, I, V> {
    /// The blocks with their rows, one block per thread.
    parts: Vec<Part<'t, I, V>>,
    /// The number of entries of `parts` that hold a block.
    filled: usize,
}

impl<'t, I: Index, V: Real> Batch<'t, I, V> {
    /// Returns a batch for `n_blocks` blocks, which are still empty.
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
    /// Returns the same errors as [`Source::next`]. The blocks that were read before the error stay in the
    /// batch.
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

    /// Takes the next lines of `text`, and removes them from `text`. `line` is the number of the first line of
    /// `text`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short.
    fn take_from(&mut self, text: &mut &'t [u8], line: &mut usize) -> Result<(), Error> {
        self.filled = 0;
        for part in &mut self.parts {
            if text.is_empty() {
                break;
            }
            part.block.take_first_of(text, *line)?;
            *text = &text[part.block.text().len()..];
            *line += part.block.n_lines();
            self.filled += 1;
        }
        Ok(())
    }

    /// Returns the number of bytes of text in the batch.
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

/// A block and the rows that were read from the block. Their allocations are reused for the next blocks.
struct Part<'t, I, V> {
    /// The text of the block.
    block: Block<'t>,
    /// The position where the examples begin. In the first block, it is the position after the header.
    start: usize,
    /// The features.
    x: Rows<I, V>,
    /// The labels.
    y: Rows<I, ()>,
    /// The unknown labels.
    unknown: Rows<I, ()>,
    /// The first error, with its line number. Parsing of the block ends at this error.
    fault: Option<(Unfit, usize)>,
    /// A workspace for the entries of an example whose features are not sorted.
    unsorted: Vec<(I, V)>,
}

impl<I, V> Default for Part<'_, I, V> {
    fn default() -> Self {
        Self {
            block: Block::default(),
            start: 0,
            x: Rows::default(),
            y: Rows::default(),
            unknown: Rows::default(),
            fault: None,
            unsorted: Vec::new(),
        }
    }
}

impl<I: Index, V: Real> Part<'_, I, V> {
    /// Parses the block up to its end or up to the first error.
    fn parse(&mut self, limits: &Limits) {
        let block = std::mem::take(&mut self.block);
        let (mut at, end) = (self.start, block.text().len());
        while at < end {
            match self.example(block.padded(), at, limits) {
                Ok(behind) => at = behind,
                Err(unfit) => {
                    // Every line so far was one row. The first block also contains the header line.
                    let header = usize::from(self.start > 0);
                    self.fault = Some((unfit, block.first_line + header + self.y.n_rows()));
                    break;
                }
            }
        }
        self.block = block;
    }

    /// Reads the example that begins at `at`. Returns the position where the next example begins.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if the line is malformed.
    #[inline]
    fn example(&mut self, text: &[u8], mut at: usize, limits: &Limits) -> Result<usize, Unfit> {
        let (x_start, y_start) = (self.x.indices.len(), self.y.indices.len());
        let unknown_start = self.unknown.indices.len();
        let mut next = 0;
        let mut sorted = true;
        if !is_blank(text[at]) && !ends_line(text, at) {
            loop {
                let (label, mut end) = digits(text, at);
                let is_unknown = end > at && text[end] == b'?';
                end += usize::from(is_unknown);
                if end == at || !(text[end] == b',' || ends_word(text, end)) {
                    return Err(wrong_label(text, at));
                }
                if label >= limits.n_labels {
                    return Err(out_of_range("label", limits.n_labels, text, at));
                }
                sorted &= label >= next;
                next = label + 1;
                let labels = if is_unknown {
                    &mut self.unknown.indices
                } else {
                    &mut self.y.indices
                };
                push(ENTRIES, labels, I::of(label))?;
                at = end;
                if text[at] != b',' {
                    break;
                }
                at += 1;
            }
            if !sorted {
                sort_labels(&mut self.y.indices, y_start);
                sort_labels(&mut self.unknown.indices, unknown_start);
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
        self.unknown.end_row()?;
        Ok(at + 1 + usize::from(text[at] == b'\r'))
    }

    /// Sorts the features from index `start` on.
    ///
    /// # Errors
    ///
    /// Returns [`Unfit`] if a feature is repeated, because it would have two values.
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

    /// Moves the examples to the end of `all`. The file has `n_before` examples before the first example of
    /// `all`. After the last example that the header announces, only empty lines are allowed.
    ///
    /// # Errors
    ///
    /// Returns the first error and its line number. The error is an error of parsing, or the block has more
    /// examples than the header announces.
    fn append_to(&mut self, all: &mut Xc<I, V>, n_before: usize) -> Result<(), (Unfit, usize)> {
        let n_rows = self.x.n_rows();
        let n_wanted = n_rows.min(all.shape.0 - n_before - all.x.n_rows());
        if n_wanted < n_rows {
            let header = usize::from(self.start > 0);
            let lines = self.block.lines().skip(header + n_wanted);
            let mut surplus = lines.take(n_rows - n_wanted);
            if let Some((line, text)) = surplus.find(|(_, text)| !text.is_empty()) {
                let expected = format!(
                    "the end of the file after {} examples, as line 1 states",
                    all.shape.0
                );
                return Err((Unfit::new(expected, quote(text)), line));
            }
            self.x.truncate(n_wanted);
            self.y.truncate(n_wanted);
            self.unknown.truncate(n_wanted);
        }
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        all.x
            .append(&mut self.x)
            .and_then(|()| all.y.append(&mut self.y))
            .and_then(|()| all.unknown.append(&mut self.unknown))
            .map_err(|error| (error.into(), 0))
    }
}

/// Sorts the labels from index `start` on, and drops repeated labels.
#[cold]
fn sort_labels<I: Index>(labels: &mut Vec<I>, start: usize) {
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

/// Returns true if a byte separates words.
#[inline]
fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Returns true if a line ends at `at`. Every block ends with a newline, so at least one byte follows
/// each carriage return.
#[inline]
fn ends_line(text: &[u8], at: usize) -> bool {
    text[at] == b'\n' || (text[at] == b'\r' && text[at + 1] == b'\n')
}

/// Returns true if a word ends at `at`.
#[inline]
fn ends_word(text: &[u8], at: usize) -> bool {
    is_blank(text[at]) || ends_line(text, at)
}

/// Returns the text from `at` up to the next blank or the end of the line.
fn word(text: &[u8], at: usize) -> &[u8] {
    let mut end = at;
    while !ends_word(text, end) {
        end += 1;
    }
    &text[at..end]
}

/// Returns the error for a label or feature that is not below `limit`.
#[cold]
fn out_of_range(what: &str, limit: u64, text: &[u8], at: usize) -> Unfit {
    let (_, end) = digits(text, at);
    Unfit::new(
        format!("a {what} below {limit} (counted from 0)"),
        shorten(&text[at..end]),
    )
}

/// Returns the error for text that should be labels but is not.
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

/// Returns the error for text that should be a pair `feature:value` but is not.
#[cold]
fn wrong_pair(text: &[u8], at: usize) -> Unfit {
    Unfit::new("a pair `feature:value`", quote(word(text, at)))
}
