//! The labels of the training rows as the fit wants them: for each block of rows, who holds which label.

use crate::wide::{Float, Wide};
use manylabel_base::{Error, Watch, collected, filled, push, reserved};
use manylabel_simd::wide;
use manylabel_sparse::{CsrView, Index};
use std::ops::Range;

/// What is named if there is no memory for it.
const LABELS: &str = "number of labels";
const STORED: &str = "number of entries of Y";

/// The labels that some rows hold and some do not, most frequent first, and who holds them.
pub(crate) struct Labels {
    /// The original label at each place.
    pub(crate) kept: Vec<u32>,
    /// The weight of the rows that hold it.
    pub(crate) share: Vec<f64>,
    blocks: Vec<Holders>,
}

/// Who holds the labels, in one block of rows.
struct Holders {
    /// The labels with rows, in increasing order; the f-th is held by `rows[ends[f]..ends[f + 1]]`.
    labels: Vec<u32>,
    ends: Vec<u32>,
    rows: Vec<u16>,
    /// The same by row: row r holds `labels_of_rows[row_ends[r]..row_ends[r + 1]]`.
    row_ends: Vec<u32>,
    labels_of_rows: Vec<u32>,
}

impl Labels {
    /// `counts`: rows of each label.
    pub(crate) fn new<I: Index, V: Copy>(
        y: CsrView<'_, I, V>,
        counts: &[usize],
        omega: &[f64],
        cuts: &[Range<usize>],
        watch: &Watch,
    ) -> Result<Self, Error> {
        let varies = |label: &u32| (1..y.n_rows()).contains(&counts[*label as usize]);
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
            // A row of hardly any weight may be all that lacks a label.
            *share = share.min(1.0 - f64::EPSILON);
        }
        Ok(Self {
            kept,
            share,
            blocks,
        })
    }

    /// Number of labels.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Number of labels of all rows.
    pub(crate) fn stored(&self) -> usize {
        self.blocks.iter().map(|block| block.rows.len()).sum()
    }

    /// The labels of a block in `range`, each with the rows that hold it.
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

    /// `out_i += Σ_k y_ik c_k` for the rows of a block, over some labels in increasing order.
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

    /// `g_k += Σ_i y_ik u_i` over the rows of a block, for some labels in increasing order.
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

/// Adds up in registers what [`scatter`] adds to memory: for all labels.
#[wide]
fn by_rows<T: Float, const N: usize>(holders: &Holders, c: &[Wide<T, N>], out: &mut [Wide<T, N>]) {
    for (ends, out) in holders.row_ends.windows(2).zip(out) {
        let labels = &holders.labels_of_rows[ends[0] as usize..ends[1] as usize];
        *out = plus(*out, c, labels, |label| label as usize);
    }
}

#[wide]
fn scatter<T: Float, const N: usize>(of: Shared<'_>, c: &[Wide<T, N>], out: &mut [Wide<T, N>]) {
    of.each(|at, rows| {
        let c = c[at];
        for &row in rows {
            out[row as usize].add(&c);
        }
    });
}

#[wide]
fn gather<T: Float, const N: usize>(of: Shared<'_>, u: &[Wide<T, N>], g: &mut [Wide<T, N>]) {
    of.each(|at, rows| {
        g[at] = plus(g[at], u, rows, usize::from);
    });
}

/// Adds the numbers at some places to the first.
#[inline(always)]
fn plus<T: Float, const N: usize, I: Copy>(
    first: Wide<T, N>,
    numbers: &[Wide<T, N>],
    places: &[I],
    position: impl Fn(I) -> usize,
) -> Wide<T, N> {
    // Two sums by name, so that additions do not wait for one another.
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
    fn rows(&self, f: usize) -> &[u16] {
        &self.rows[self.ends[f] as usize..self.ends[f + 1] as usize]
    }
}

/// The labels of a block that are also in a list; both increase.
#[derive(Clone, Copy)]
struct Shared<'a> {
    block: &'a Holders,
    labels: &'a [u32],
}

impl Shared<'_> {
    /// Calls `then` with the position in the list and the rows of each label that is in both.
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
