//! The training rows as the fit wants them: features of unit variance, in dense or sparse blocks of
//! rows, and the rows of every label in each block.

use crate::wide::{
    Float, Wide, dense_add_transposed, dense_times, sparse_add_transposed, sparse_times,
};
use manylabel_base::{Error, Watch, filled};
use manylabel_simd::wide;
use manylabel_sparse::{ColumnOrder, CsrView, Index, RowBlocks, Value};
use std::ops::Range;

/// Rows of a dense block, which stays in the second-level cache while it is used twice.
const DENSE_ROWS: usize = 256;

/// Rows of a sparse block if labels are too few to share out among threads.
const FEW_ROWS: usize = 512;

/// Means and standard deviations of the features.
pub(crate) struct Scales {
    pub(crate) mean: Vec<f64>,
    /// 0 for a feature that is the same in all rows.
    pub(crate) deviation: Vec<f64>,
    /// The mean of features that no row lacks, which is taken off their values also where these are
    /// sparse: the others' deviations are of the size of their means, but that of a date is not.
    offset: Vec<f64>,
    /// Whether most values of the features that vary are not zero.
    pub(crate) dense: bool,
    /// The mean squared length of a row of the features that vary, as they are used.
    pub(crate) square: f64,
}

impl Scales {
    /// Two passes over `x`; `omega`: weights of the rows, of sum 1.
    pub(crate) fn new<I: Index, V: Value>(
        x: CsrView<'_, I, V>,
        omega: &[f64],
    ) -> Result<Self, Error> {
        let mut mean = filled("number of features", 0.0, x.n_cols())?;
        let mut stored = filled("number of features", 0.0, x.n_cols())?;
        let mut counts = filled("number of features", 0usize, x.n_cols())?;
        for (row, &weight) in omega.iter().enumerate() {
            let (cols, values) = x.row(row);
            for (col, value) in cols.iter().zip(values) {
                // Stored zeros are as good as absent, down to the last bit.
                if value.f64() != 0.0 {
                    mean[col.get()] += weight * value.f64();
                    stored[col.get()] += weight;
                    counts[col.get()] += 1;
                }
            }
        }
        let mut deviation = filled("number of features", 0.0, x.n_cols())?;
        for (row, &weight) in omega.iter().enumerate() {
            let (cols, values) = x.row(row);
            for (col, value) in cols.iter().zip(values) {
                let col = col.get();
                if value.f64() != 0.0 {
                    deviation[col] += weight * (value.f64() - mean[col]).powi(2);
                }
            }
        }
        let mut offset = filled("number of features", 0.0, x.n_cols())?;
        // What rounding may leave of a feature that is the same in all rows, as a share of its mean.
        let rounding = x.n_rows() as f64 * f64::EPSILON;
        let (mut kept, mut nonzero) = (0, 0);
        for col in 0..x.n_cols() {
            let rest = (1.0 - stored[col]).max(0.0) * mean[col].powi(2);
            let found = (deviation[col] + rest).sqrt();
            deviation[col] = 0.0;
            if counts[col] == x.n_rows() {
                offset[col] = mean[col];
            }
            if found > rounding * mean[col].abs() {
                deviation[col] = found;
                kept += 1;
                nonzero += counts[col];
            }
        }
        Ok(Self {
            mean,
            deviation,
            offset,
            dense: nonzero > kept * x.n_rows() / 2,
            square: kept as f64,
        })
    }

    /// To use the features as they are.
    pub(crate) fn unscaled(mut self) -> Self {
        self.square = 0.0;
        for (mean, deviation) in self.mean.iter_mut().zip(&mut self.deviation) {
            if *deviation > 0.0 {
                self.square += *mean * *mean + *deviation * *deviation;
                *deviation = 1.0;
            }
            *mean = 0.0;
        }
        self.offset.fill(0.0);
        self
    }

    /// Cuts rows into blocks; `few_labels`: whether threads must share rows.
    pub(crate) fn cut<I: Index, V: Value>(
        &self,
        x: CsrView<'_, I, V>,
        few_labels: bool,
    ) -> Vec<Range<usize>> {
        let most = match (self.dense, few_labels) {
            (true, _) => DENSE_ROWS,
            (false, true) => FEW_ROWS,
            (false, false) => RowBlocks::<f32>::MAX_ROWS,
        };
        let cuts = RowBlocks::<f32>::cut(x.n_rows(), |row| x.row(row).0.len());
        let split = cuts.into_iter().flat_map(|rows| {
            let end = rows.end;
            rows.step_by(most)
                .map(move |first| first..end.min(first + most))
        });
        split.collect()
    }
}

enum Rows<T> {
    /// Row after row, centred.
    Dense(Vec<T>),
    Sparse(RowBlocks<T>),
}

/// The features that vary, each divided by its standard deviation.
pub(crate) struct Design<T> {
    rows: Rows<T>,
    cuts: Vec<Range<usize>>,
    /// The original feature at each place.
    pub(crate) columns: Vec<u32>,
    /// What is to be taken off each value for a mean of zero; none where that is done.
    pub(crate) shift: Vec<f64>,
}

impl<T: Float> Design<T> {
    pub(crate) fn new<I: Index, V: Value>(
        x: CsrView<'_, I, V>,
        scales: &Scales,
        cuts: &[Range<usize>],
        watch: &Watch,
    ) -> Result<Self, Error> {
        let cuts = cuts.to_vec();
        if scales.dense {
            let columns: Vec<u32> = (0..x.n_cols() as u32)
                .filter(|&col| scales.deviation[col as usize] > 0.0)
                .collect();
            let d = columns.len();
            let mut values = filled("features", T::default(), x.n_rows() * d)?;
            let mut row_of = vec![0.0; x.n_cols()];
            for (row, out) in values.chunks_exact_mut(d).enumerate() {
                if row % DENSE_ROWS == 0 {
                    watch.step(0)?;
                }
                let (cols, vals) = x.row(row);
                for (col, value) in cols.iter().zip(vals) {
                    row_of[col.get()] = value.f64();
                }
                for (out, &col) in out.iter_mut().zip(&columns) {
                    let col = col as usize;
                    *out = T::of((row_of[col] - scales.mean[col]) / scales.deviation[col]);
                }
                for col in cols {
                    row_of[col.get()] = 0.0;
                }
            }
            return Ok(Self {
                rows: Rows::Dense(values),
                cuts,
                columns,
                shift: Vec::new(),
            });
        }
        let mut indptr = filled("features", 0i64, x.n_rows() + 1)?;
        let mut indices = filled("features", 0i64, x.nnz())?;
        let mut scaled = filled("features", 0.0, x.nnz())?;
        let mut at = 0;
        for row in 0..x.n_rows() {
            let (cols, values) = x.row(row);
            for (col, value) in cols.iter().zip(values) {
                let deviation = scales.deviation[col.get()];
                indices[at] = col.get() as i64;
                if deviation > 0.0 {
                    scaled[at] = (value.f64() - scales.offset[col.get()]) / deviation;
                }
                at += 1;
            }
            indptr[row + 1] = at as i64;
        }
        let x = CsrView::new("X", &indptr, &indices, &scaled, x.n_cols())?;
        let order = ColumnOrder::new(x)?;
        let columns = order.columns().to_vec();
        let shift = columns
            .iter()
            .map(|&col| {
                let col = col as usize;
                (scales.mean[col] - scales.offset[col]) / scales.deviation[col]
            })
            .collect();
        Ok(Self {
            rows: Rows::Sparse(RowBlocks::new(x, &order, false, 1.0, &cuts, watch)?),
            cuts,
            columns,
            shift,
        })
    }

    /// Number of features that vary.
    pub(crate) fn width(&self) -> usize {
        self.columns.len()
    }

    /// Number of values that a product goes through.
    pub(crate) fn stored(&self) -> usize {
        match &self.rows {
            Rows::Dense(values) => values.len(),
            Rows::Sparse(blocks) => {
                let blocks = blocks.blocks().iter();
                blocks
                    .map(|block| {
                        (0..block.n_rows())
                            .map(|row| block.row(row).0.len())
                            .sum::<usize>()
                    })
                    .sum()
            }
        }
    }

    /// The rows of each block.
    pub(crate) fn cuts(&self) -> &[Range<usize>] {
        &self.cuts
    }

    /// `out_i = first + Σ_j x_ij p_j` for the rows of a block, before centring.
    pub(crate) fn times<const N: usize>(
        &self,
        block: usize,
        first: Wide<T, N>,
        p: &[Wide<T, N>],
        out: &mut [Wide<T, N>],
    ) {
        match &self.rows {
            Rows::Dense(values) => dense_times(self.dense(values, block), first, p, out),
            Rows::Sparse(blocks) => sparse_times(&blocks.blocks()[block], first, p, out),
        }
    }

    /// `g_j += Σ_i x_ij u_i` over the rows of a block, before centring.
    pub(crate) fn add_transposed<const N: usize>(
        &self,
        block: usize,
        u: &[Wide<T, N>],
        g: &mut [Wide<T, N>],
    ) {
        match &self.rows {
            Rows::Dense(values) => dense_add_transposed(self.dense(values, block), u, g),
            Rows::Sparse(blocks) => sparse_add_transposed(&blocks.blocks()[block], u, g),
        }
    }

    /// Copies features in `cols` to the first lanes of a block's rows, zeros so far, before centring.
    pub(crate) fn columns<const N: usize>(
        &self,
        block: usize,
        cols: Range<usize>,
        out: &mut [Wide<T, N>],
    ) {
        match &self.rows {
            Rows::Dense(values) => {
                let rows = self.dense(values, block).chunks_exact(self.width().max(1));
                for (row, out) in rows.zip(out) {
                    for (value, out) in row[cols.clone()].iter().zip(&mut out.0) {
                        *out = *value;
                    }
                }
            }
            Rows::Sparse(blocks) => {
                for (col, rows, values) in blocks.blocks()[block].columns(cols.clone()) {
                    for (&row, &value) in rows.iter().zip(values) {
                        out[row as usize].0[col - cols.start] = value;
                    }
                }
            }
        }
    }

    fn dense<'a>(&self, values: &'a [T], block: usize) -> &'a [T] {
        let rows = &self.cuts[block];
        &values[rows.start * self.width()..rows.end * self.width()]
    }
}

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
    ) -> Result<Self, Error> {
        let mut kept: Vec<u32> = (0..y.n_cols() as u32)
            .filter(|&label| (1..y.n_rows()).contains(&counts[label as usize]))
            .collect();
        kept.sort_by_key(|&label| (std::cmp::Reverse(counts[label as usize]), label));
        let mut places = filled("number of labels", u32::MAX, y.n_cols())?;
        for (place, &label) in (0..).zip(&kept) {
            places[label as usize] = place;
        }
        let mut share = vec![0.0; kept.len()];
        let mut blocks = Vec::with_capacity(cuts.len());
        let mut entries: Vec<(u32, u16)> = Vec::new();
        for cut in cuts {
            entries.clear();
            let (mut row_ends, mut labels_of_rows) = (vec![0], Vec::new());
            for row in cut.clone() {
                for label in y.row(row).0 {
                    let place = places[label.get()];
                    if place != u32::MAX {
                        entries.push((place, (row - cut.start) as u16));
                        labels_of_rows.push(place);
                        share[place as usize] += omega[row];
                    }
                }
                row_ends.push(labels_of_rows.len() as u32);
            }
            entries.sort_unstable();
            let (mut labels, mut ends) = (Vec::new(), vec![0]);
            for run in entries.chunk_by(|a, b| a.0 == b.0) {
                labels.push(run[0].0);
                ends.push(ends[ends.len() - 1] + run.len() as u32);
            }
            blocks.push(Holders {
                labels,
                ends,
                rows: entries.iter().map(|&(_, row)| row).collect(),
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
            scatter(block, labels, c, out);
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
        gather(&self.blocks[block], labels, u, g);
    }
}

/// Adds up in registers what [`scatter`] adds to memory: for all labels.
#[wide]
fn by_rows<T: Float, const N: usize>(holders: &Holders, c: &[Wide<T, N>], out: &mut [Wide<T, N>]) {
    for (ends, out) in holders.row_ends.windows(2).zip(out) {
        // Two sums by name, so that additions do not wait for one another.
        let (mut a, mut b) = (*out, Wide::zero());
        let labels = &holders.labels_of_rows[ends[0] as usize..ends[1] as usize];
        let pairs = labels.chunks_exact(2);
        for &label in pairs.remainder() {
            a.add(&c[label as usize]);
        }
        for labels in pairs {
            a.add(&c[labels[0] as usize]);
            b.add(&c[labels[1] as usize]);
        }
        a.add(&b);
        *out = a;
    }
}

#[wide]
fn scatter<T: Float, const N: usize>(
    holders: &Holders,
    labels: &[u32],
    c: &[Wide<T, N>],
    out: &mut [Wide<T, N>],
) {
    holders.each(labels, |at, rows| {
        let c = c[at];
        for &row in rows {
            out[row as usize].add(&c);
        }
    });
}

#[wide]
fn gather<T: Float, const N: usize>(
    holders: &Holders,
    labels: &[u32],
    u: &[Wide<T, N>],
    g: &mut [Wide<T, N>],
) {
    holders.each(labels, |at, rows| {
        // Two sums by name, so that additions do not wait for one another.
        let (mut a, mut b) = (g[at], Wide::zero());
        let pairs = rows.chunks_exact(2);
        for &row in pairs.remainder() {
            a.add(&u[row as usize]);
        }
        for rows in pairs {
            a.add(&u[rows[0] as usize]);
            b.add(&u[rows[1] as usize]);
        }
        a.add(&b);
        g[at] = a;
    });
}

impl Holders {
    fn rows(&self, f: usize) -> &[u16] {
        &self.rows[self.ends[f] as usize..self.ends[f + 1] as usize]
    }

    /// Calls `then` with the position in `labels` and the rows of each label that is in both lists.
    #[inline(always)]
    fn each(&self, labels: &[u32], mut then: impl FnMut(usize, &[u16])) {
        let (mut at, mut f) = (0, 0);
        while at < labels.len() && f < self.labels.len() {
            match labels[at].cmp(&self.labels[f]) {
                std::cmp::Ordering::Less => at += 1,
                std::cmp::Ordering::Greater => f += 1,
                std::cmp::Ordering::Equal => {
                    then(at, self.rows(f));
                    (at, f) = (at + 1, f + 1);
                }
            }
        }
    }
}
