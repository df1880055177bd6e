//! From text to arrays.

use crate::number::{Real, decimal, digits};
use crate::source::{Block, Index, Source, Unfit, quote, shorten};
use manylabel_base::{Error, Watch, extend, few, push};
use std::path::{Path, PathBuf};

/// What is named if memory does not hold the rows.
const ENTRIES: &str = "number of stored entries";

/// Rows of a sparse matrix as they are collected: what the arrays of a CSR matrix are made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows<I, V> {
    /// 0, then the end of each row.
    pub ends: Vec<i64>,
    /// Columns, strictly increasing within a row.
    pub indices: Vec<I>,
    /// Values, none of them zero; empty where every stored value is one.
    pub values: Vec<V>,
}

impl<I, V> Default for Rows<I, V> {
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

    /// # Errors
    ///
    /// [`Error::TooLarge`], here and below.
    pub(crate) fn end_row(&mut self) -> Result<(), Error> {
        push("number of rows", &mut self.ends, self.indices.len() as i64)
    }

    /// Moves the rows of `other` behind these; its memory stays, for the next rows.
    fn append(&mut self, other: &mut Self) -> Result<(), Error> {
        let offset = self.indices.len() as i64;
        let ends = other.ends.drain(1..).map(|end| end + offset);
        extend("number of rows", &mut self.ends, ends)?;
        extend(ENTRIES, &mut self.indices, other.indices.drain(..))?;
        extend(ENTRIES, &mut self.values, other.values.drain(..))
    }

    /// Leaves out the rows from `n_rows` on, which have no entries.
    fn truncate(&mut self, n_rows: usize) {
        self.ends.truncate(n_rows + 1);
    }

    fn shrink(&mut self) {
        self.ends.shrink_to_fit();
        self.indices.shrink_to_fit();
        self.values.shrink_to_fit();
    }
}

/// A data set: `shape` is (`n_examples`, `n_features`, `n_labels`).
#[derive(Debug, Clone, PartialEq)]
pub struct Xc<I, V> {
    /// Features.
    pub x: Rows<I, V>,
    /// Labels, without values.
    pub y: Rows<I, ()>,
    /// What the first line says and the rest holds to.
    pub shape: (usize, usize, usize),
}

impl<I, V> Xc<I, V> {
    /// Makes room for `share` times what is here. Growing step by step would copy, and pages once
    /// reserved cost nothing until they are written. What is not granted need not be: it was a guess.
    fn reserve(&mut self, share: f64) {
        fn make_room<T>(vec: &mut Vec<T>, share: f64) {
            // A little more, for no part of a file is quite like another.
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

/// An open file of which the first line has been read.
pub struct XcFile<'w> {
    path: PathBuf,
    source: Source<'w>,
    watch: &'w Watch,
    /// The beginning of the file.
    first: Block,
    header_length: usize,
    shape: (usize, usize, usize),
}

impl<'w> XcFile<'w> {
    /// Opens a file, plain or gzip, and reads its first line. `watch` is looked at while there is nothing
    /// to read; it may be a pipe.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if it cannot be read, [`Error::Parse`] if its first line is no header,
    /// [`Error::Stopped`], [`Error::TooLarge`].
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

    /// What the first line says: (`n_examples`, `n_features`, `n_labels`).
    pub fn shape(&self) -> (usize, usize, usize) {
        self.shape
    }

    /// Reads the examples, on the threads of the current rayon pool; the result does not depend on
    /// their number. The watch counts bytes of text.
    ///
    /// Carriage returns before newlines, trailing blanks, tabs for blanks, empty lines at the end of the
    /// file, features and labels out of order, and repeated labels are let through; a
    /// feature given twice in one example is not, nor are more examples than the first line says. Zero
    /// values are dropped.
    ///
    /// Memory is that of the result and a few blocks of text; a single pass, linear time.
    ///
    /// # Errors
    ///
    /// [`Error::Parse`] if the file is malformed or a gzip stream damaged, [`Error::Io`] if it
    /// cannot be read, [`Error::Stopped`], [`Error::TooLarge`] if columns do not fit `I` or the result
    /// does not fit in memory.
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

/// The numbers of the first line, and its length.
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
        // scipy holds sizes in 64 bits with sign.
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

/// Exclusive bounds of what lines may name.
struct Limits {
    n_features: u64,
    n_labels: u64,
}

/// Consecutive blocks, parsed side by side.
struct Batch<I, V> {
    parts: Vec<Part<I, V>>,
    filled: usize,
}

impl<I: Index, V: Real> Batch<I, V> {
    fn new(n_blocks: usize) -> Self {
        Self {
            parts: few((0..n_blocks).map(|_| Part::default())),
            filled: 0,
        }
    }

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

    fn text_len(&self) -> usize {
        self.parts[..self.filled]
            .iter()
            .map(|part| part.block.text().len())
            .sum()
    }

    fn parse(&mut self, limits: &Limits) {
        use rayon::prelude::*;
        self.parts[..self.filled]
            .par_iter_mut()
            .for_each(|part| part.parse(limits));
    }
}

/// A block and what was read from it. The memory of both serves block after block.
struct Part<I, V> {
    block: Block,
    /// Where the examples begin.
    start: usize,
    x: Rows<I, V>,
    y: Rows<I, ()>,
    /// The first fault, with its line.
    fault: Option<(Unfit, usize)>,
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
    fn parse(&mut self, limits: &Limits) {
        let block = std::mem::take(&mut self.block);
        let (mut at, end) = (self.start, block.text().len());
        while at < end {
            match self.example(block.padded(), at, limits) {
                Ok(behind) => at = behind,
                Err(unfit) => {
                    // The rows so far are whole, so they tell the line; the first block has the header.
                    let header = usize::from(self.start > 0);
                    self.fault = Some((unfit, block.first_line + header + self.y.n_rows()));
                    break;
                }
            }
        }
        self.block = block;
    }

    /// Reads the example that begins at `at`; returns where the next one does.
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

    /// Sorts the labels from `start` on; a repeated one says nothing new.
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

    /// Sorts the features from `start` on; a repeated one has two values, and no rule says which holds.
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

    /// Moves the examples behind `all`. Only empty lines, which are no examples at the end of a file, may
    /// follow the last declared example; a fault comes with its line.
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

#[inline]
fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

/// Every block ends with a newline, so there is always one ahead.
#[inline]
fn ends_line(text: &[u8], at: usize) -> bool {
    text[at] == b'\n' || (text[at] == b'\r' && text[at + 1] == b'\n')
}

#[inline]
fn ends_word(text: &[u8], at: usize) -> bool {
    is_blank(text[at]) || ends_line(text, at)
}

/// What stands at `at`, up to the next blank.
fn word(text: &[u8], at: usize) -> &[u8] {
    let mut end = at;
    while !ends_word(text, end) {
        end += 1;
    }
    &text[at..end]
}

#[cold]
fn out_of_range(what: &str, limit: u64, text: &[u8], at: usize) -> Unfit {
    let (_, end) = digits(text, at);
    Unfit::new(
        format!("a {what} below {limit} (they count from 0)"),
        shorten(&text[at..end]),
    )
}

#[cold]
fn wrong_label(text: &[u8], at: usize) -> Unfit {
    let found = word(text, at);
    let expected = if found.contains(&b':') {
        "labels, or a blank before the first feature of an example without labels"
    } else {
        "labels as whole numbers with commas between them"
    };
    Unfit::new(expected, quote(found))
}

#[cold]
fn wrong_pair(text: &[u8], at: usize) -> Unfit {
    Unfit::new("a pair `feature:value`", quote(word(text, at)))
}
