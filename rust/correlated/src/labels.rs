//! Prepares the labels of the training rows for the fit. For each block of rows, it stores which
//! rows have which labels.
//!
//! Only labels that occur in some but not all of the rows for which they are known take part in the fit. They
//! are numbered by decreasing frequency, so that the labels of a panel (N consecutive labels) have similar
//! frequencies. Each block stores its entries twice: by label in 2 bytes per entry, and by row in 4 bytes per
//! entry. The fit multiplies the label matrix Y and its transpose by matrices with N columns. With the two
//! orders of entries, the sums of both products stay in registers.

use crate::wide::{Float, Wide};
use manylabel_base::{Error, Watch, collected, extend, filled, push, reserved};
use manylabel_simd::wide;
use manylabel_sparse::{CsrOwned, CsrView, Index};
use std::ops::Range;

/// The names of arrays in error messages about memory.
const LABELS: &str = "number of labels";
const STORED: &str = "number of entries of Y";

/// The labels that take part in the fit, sorted by decreasing frequency, and the rows that have them.
pub(crate) struct Labels {
    /// The original number of each label.
    pub(crate) kept: Vec<u32>,
    /// For each label, the weighted fraction of the rows that have it; in (0, 1).
    pub(crate) share: Vec<f64>,
    /// The entries of each block of rows.
    blocks: Vec<Holders>,
    /// For each block of rows, the pairs of label and row that are unknown, in increasing order. Rows are numbered
    /// within the block. Empty if all pairs are known.
    unknown: Vec<Vec<(u32, u16)>>,
}

/// The entries of one block of rows. Rows are numbered within the block.
struct Holders {
    /// The labels that occur in the block, in increasing order. Label `labels[f]` occurs in the
    /// rows `rows[ends[f]..ends[f + 1]]`.
    labels: Vec<u32>,
    /// The boundaries of the labels in `rows`, starting with 0.
    ends: Vec<u32>,
    /// The rows that have each label, label by label. A block has at most 4096 rows.
    rows: Vec<u16>,
    /// The boundaries of the rows in `labels_of_rows`, starting with 0. Row r has the labels
    /// `labels_of_rows[row_ends[r]..row_ends[r + 1]]`.
    row_ends: Vec<u32>,
    /// The labels of each row, row by row. They are the same entries as in `rows`.
    labels_of_rows: Vec<u32>,
}

impl Labels {
    /// Collects the labels of the rows of `y`. `counts` has the number of rows that have each original label.
    /// `n_known` has the number of rows for which each original label is known. `omega` holds the row weights,
    /// which sum to 1. `cuts` holds the rows of each block.
    ///
    /// Labels with equal counts keep their original order. Takes O(n log b) time, where n is the
    /// number of stored entries of `y`, and b is the number of stored entries in a block.
    pub(crate) fn new<I: Index, V: Copy>(
        y: CsrView<'_, I, V>,
        unknown: Option<&CsrOwned>,
        (counts, n_known): (&[usize], &[usize]),
        omega: &[f64],
        cuts: &[Range<usize>],
        watch: &Watch,
    ) -> Result<Self, Error> {
        let varies = |label: &u32| (1..n_known[*label as usize]).contains(&counts[*label as usize]);
        let mut kept = collected(LABELS, (0..y.n_cols() as u32).filter(varies))?;
        kept.sort_unstable_by_key(|&label| (std::cmp::Reverse(counts[label as usize]), label));
        let mut places = filled(LABELS, u32::MAX, y.n_cols())?;
        for (place, &label) in (0..).zip(&kept) {
            places[label as usize] = place;
        }
        let mut share = filled(LABELS, 0.0, kept.len())?;
        let mut blocks = reserved("number of rows", cuts.len())?;
        let mut entries: Vec<(u32, u16)> = Vec::new();
        for cut in cuts {
            watch.step(0)?;
            entries.clear();
            let mut row_ends = reserved("number of rows", cut.len() + 1)?;
            row_ends.push(0);
            let mut labels_of_rows = Vec::new();
            for row in cut.clone() {
                for label in y.row(row).0 {
                    let place = places[label.get()];
                    if place != u32::MAX {
                        push(STORED, &mut entries, (place, (row - cut.start) as u16))?;
                        push(STORED, &mut labels_of_rows, place)?;
                        share[place as usize] += omega[row];
                    }
                }
                row_ends.push(labels_of_rows.len() as u32);
            }
            entries.sort_unstable();
            let (mut labels, mut ends) = (Vec::new(), Vec::new());
            push(STORED, &mut ends, 0)?;
            for run in entries.chunk_by(|a, b| a.0 == b.0) {
                push(STORED, &mut labels, run[0].0)?;
                let end = ends[ends.len() - 1] + run.len() as u32;
                push(STORED, &mut ends, end)?;
            }
            blocks.push(Holders {
                labels,
                ends,
                rows: collected(STORED, entries.iter().map(|&(_, row)| row))?,
                row_ends,
                labels_of_rows,
            });
        }
        for share in &mut share {
            // If only one row lacks the label, the weight of this row may be tiny. This limit keeps
            // the log-odds finite.
            *share = share.min(1.0 - f64::EPSILON);
        }
        let unknown = unknown.map(|unknown| unknown_pairs(unknown, &places, cuts));
        Ok(Self {
            kept,
            share,
            blocks,
            unknown: unknown.transpose()?.unwrap_or_default(),
        })
    }

    /// Returns the number of labels.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Returns the number of stored entries. Each entry is a pair of a row and one of its labels.
    pub(crate) fn stored(&self) -> usize {
        self.blocks.iter().map(|block| block.rows.len()).sum()
    }

    /// Returns the labels of a block that are within `range`. Each label comes with the rows that
    /// have it.
    pub(crate) fn holders(
        &self,
        block: usize,
        range: Range<u32>,
    ) -> impl Iterator<Item = (u32, &[u16])> {
        let of = &self.blocks[block];
        let first = of.labels.partition_point(|&label| label < range.start);
        let last = of.labels.partition_point(|&label| label < range.end);
        (first..last).map(|f| (of.labels[f], of.rows(f)))
    }

    /// Returns the unknown pairs of label and row of a block, for the labels within `range`.
    pub(crate) fn unknown(&self, block: usize, range: &Range<u32>) -> &[(u32, u16)] {
        let Some(pairs) = self.unknown.get(block) else {
            return &[];
        };
        let first = pairs.partition_point(|&(label, _)| label < range.start);
        let last = pairs.partition_point(|&(label, _)| label < range.end);
        &pairs[first..last]
    }

    /// Computes `out_i += Σ_k y_ik c_k` for the rows i of a block. The sum is over the labels k in
    /// a given list, which must be in increasing order. `c` has one entry per label of the list.
    ///
    /// If all labels are in the list, the block is read row by row. Otherwise only the entries of
    /// the listed labels are read.
    pub(crate) fn times<T: Float, const N: usize>(
        &self,
        block: usize,
        labels: &[u32],
        c: &[Wide<T, N>],
        out: &mut [Wide<T, N>],
    ) {
        let block = &self.blocks[block];
        if labels.len() == self.len() {
            by_rows(block, c, out);
        } else {
            scatter(Shared { block, labels }, c, out);
        }
    }

    /// Computes `g_k += Σ_i y_ik u_i` for the labels k in a given list, which must be in increasing
    /// order. The sum is over the rows i of a block. `g` has one entry per label of the list.
    pub(crate) fn add_transposed<T: Float, const N: usize>(
        &self,
        block: usize,
        labels: &[u32],
        u: &[Wide<T, N>],
        g: &mut [Wide<T, N>],
    ) {
        let block = &self.blocks[block];
        gather(Shared { block, labels }, u, g);
    }
}

/// Returns the unknown pairs of label and row for each block of rows. `places` has the number of each original
/// label in the fit, or `u32::MAX` if it does not take part.
fn unknown_pairs(
    unknown: &CsrOwned,
    places: &[u32],
    cuts: &[Range<usize>],
) -> Result<Vec<Vec<(u32, u16)>>, Error> {
    let mut blocks = reserved("number of rows", cuts.len())?;
    for cut in cuts {
        let mut pairs = Vec::new();
        for row in cut.clone() {
            let of_row = unknown.row(row).0.iter();
            let of_row = of_row.map(|&label| (places[label as usize], (row - cut.start) as u16));
            let taking_part = of_row.filter(|&(place, _)| place != u32::MAX);
            extend("number of unknown pairs", &mut pairs, taking_part)?;
        }
        pairs.sort_unstable();
        blocks.push(pairs);
    }
    Ok(blocks)
}

/// Implements [`Labels::times`] for all labels. The sum of each row is computed in registers.
#[wide]
fn by_rows<T: Float, const N: usize>(holders: &Holders, c: &[Wide<T, N>], out: &mut [Wide<T, N>]) {
    for (ends, out) in holders.row_ends.windows(2).zip(out) {
        let labels = &holders.labels_of_rows[ends[0] as usize..ends[1] as usize];
        *out = plus(*out, c, labels, |label| label as usize);
    }
}

/// Implements [`Labels::times`] for some of the labels. The entry of `c` for each label is added to
/// all rows that have the label.
#[wide]
fn scatter<T: Float, const N: usize>(of: Shared<'_>, c: &[Wide<T, N>], out: &mut [Wide<T, N>]) {
    of.each(|at, rows| {
        let c = c[at];
        for &row in rows {
            out[row as usize].add(&c);
        }
    });
}

/// Implements [`Labels::add_transposed`]. The sum of each label is computed in registers.
#[wide]
fn gather<T: Float, const N: usize>(of: Shared<'_>, u: &[Wide<T, N>], g: &mut [Wide<T, N>]) {
    of.each(|at, rows| {
        g[at] = plus(g[at], u, rows, usize::from);
    });
}

/// Returns `first` plus the numbers at the given positions, added in a fixed order.
#[inline(always)]
fn plus<T: Float, const N: usize, I: Copy>(
    first: Wide<T, N>,
    numbers: &[Wide<T, N>],
    places: &[I],
    position: impl Fn(I) -> usize,
) -> Wide<T, N> {
    // Two independent sums are used, so that no addition waits for the previous addition.
    let (mut a, mut b) = (first, Wide::zero());
    let pairs = places.chunks_exact(2);
    for &place in pairs.remainder() {
        a.add(&numbers[position(place)]);
    }
    for places in pairs {
        a.add(&numbers[position(places[0])]);
        b.add(&numbers[position(places[1])]);
    }
    a.add(&b);
    a
}

impl Holders {
    /// Returns the rows of the f-th label of the block.
    fn rows(&self, f: usize) -> &[u16] {
        &self.rows[self.ends[f] as usize..self.ends[f + 1] as usize]
    }
}

/// The labels that are in a block and also in a given list. The labels of the block and of the list
/// are in increasing order.
#[derive(Clone, Copy)]
struct Shared<'a> {
    /// The block of rows.
    block: &'a Holders,
    /// The list of labels.
    labels: &'a [u32],
}

impl Shared<'_> {
    /// Calls `then` for each label that is in the block and in the list. The arguments are the
    /// position of the label in the list and the rows that have the label. Takes O(labels of the
    /// block + labels of the list) time.
    #[inline(always)]
    fn each(self, mut then: impl FnMut(usize, &[u16])) {
        let Self { block, labels } = self;
        let (mut at, mut f) = (0, 0);
        while at < labels.len() && f < block.labels.len() {
            match labels[at].cmp(&block.labels[f]) {
                std::cmp::Ordering::Less => at += 1,
                std::cmp::Ordering::Greater => f += 1,
                std::cmp::Ordering::Equal => {
                    then(at, block.rows(f));
                    (at, f) = (at + 1, f + 1);
                }
            }
        }
    }
}
