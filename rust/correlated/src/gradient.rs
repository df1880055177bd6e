//! Computes the gradient of the loss at a point, in one pass over the training rows. A point
//! consists of all weights, intercepts and couplings.
//!
//! Labels are divided into panels of N labels. The pass processes one panel and one block of rows
//! at a time. It computes the log-odds `E = X W + Y C + β` from the features X, the labels Y, the
//! weights W, the couplings C and the intercepts β. It converts the log-odds to residuals
//! `Ξ = Ω (σ(E) − Y)`, where σ is the logistic function. It then computes the products `Xᵀ Ξ` and
//! `Yᵀ Ξ`. The block stays in the cache during these steps. Ω is the diagonal matrix of the row
//! weights, which sum to 1. Arrays of size rows × labels exist only for one block.
//!
//! The gradient of a weight is an entry of `Xᵀ Ξ`. The coupling of labels i and k is in the losses
//! of both labels. Its gradient is therefore the sum of the entries (k, i) and (i, k) of `Yᵀ Ξ`.
//!
//! Columns of X and Y are treated as centred. Centring changes only the intercepts, but it allows
//! longer steps. No centred copy is stored: products are computed with the uncentred matrix and
//! then corrected by the column means.
//!
//! The residuals of unknown pairs of row and label are set to 0, so these pairs have no effect on
//! the gradient. In the log-odds of other labels, an unknown label counts as 0.
//!
//! A pass takes O((stored values of X + stored values of Y of coupled labels) m) time for m labels.
//! Work is divided into units of one panel and several blocks. This division depends only on the
//! sizes of the data, and the sums of the units are added in order. Results are therefore exactly
//! the same for any number of threads.

mod eigenvalue;
mod pairs;
mod units;

pub(crate) use self::pairs::Pairs;
use crate::design::Design;
use crate::iterate::Iterate;
use crate::labels::Labels;
use crate::wide::{Float, Wide, add_softplus, sigmoids, softplus};
use manylabel_base::{Error, Tasks, Watch, collected, extend, few, filled, parts, push, reserved};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Smallest number of units of work into which a pass over the rows is divided, if there are enough
/// blocks of rows. With this number, a few threads are busy.
const PIECES: usize = 16;

/// Name of the rows of a block in error messages about memory.
const ROWS_OF_BLOCK: &str = "number of rows of a block";

/// The sums of one unit of work. A unit is one panel (group of N labels) and several blocks of
/// rows.
struct Partial<T, const N: usize> {
    /// `Xᵀ Ξ` for the stored values of X, without the correction for centring. The last row, which
    /// belongs to the intercept, stays 0.
    weights: Vec<Wide<T, N>>,
    /// `Yᵀ Ξ` for the uncentred Y. It has one row for each label that is coupled with a label of
    /// the panel. A panel is a group of N labels.
    pairs: Vec<Wide<T, N>>,
    /// `1ᵀ Ξ`, the sum of the residuals over the rows. Products are corrected for centring with it.
    sum: [f64; N],
    /// The loss of each label, if it was requested.
    loss: [f64; N],
}

impl<T: Float, const N: usize> Partial<T, N> {
    /// Returns zeros for a panel (group of N labels). The panel has `height` rows of weights and
    /// `n_neighbours` neighbours. Neighbours are the labels that are coupled with a label of the
    /// panel.
    fn new(height: usize, n_neighbours: usize) -> Result<Self, Error> {
        Ok(Self {
            weights: filled("number of weights", Wide::zero(), height)?,
            pairs: filled("number of couplings", Wide::zero(), n_neighbours)?,
            sum: [0.0; N],
            loss: [0.0; N],
        })
    }
}

/// The function that is applied to the log-odds E of a row.
#[derive(Clone, Copy, PartialEq)]
enum Residual {
    /// Computes the residuals `Ω (σ(E) − Y)`.
    Logistic,
    /// Computes the residuals `Ω (σ(E) − Y)` and also sums the loss.
    WithLoss,
    /// Computes `Ω E`, to multiply by the second moments `ZᵀΩZ` of the columns Z.
    Linear,
}

/// A pass over the rows: the point and the panels (groups of N labels) whose sums are computed.
#[derive(Clone, Copy)]
pub(crate) struct Pass<'a, T, const N: usize> {
    /// One flag per panel. The sums of panels that are not active do not change.
    pub(crate) active: &'a [bool],
    /// The point. Its couplings belong to the pairs of the objective.
    pub(crate) at: &'a Iterate<T, N>,
    /// Whether the loss of each label is also computed.
    pub(crate) with_loss: bool,
}

/// The data of a fit in one precision, and a workspace for the sums of a pass.
pub(crate) struct Gradient<T, const N: usize> {
    /// The features.
    pub(crate) design: Design<T>,
    /// The labels.
    pub(crate) labels: Arc<Labels>,
    /// The weight of each row. The weights sum to 1.
    omega: Vec<T>,
    /// For each unit of work, the range of its blocks of rows. All panels (groups of N labels) have
    /// the same units.
    pieces: Vec<Range<usize>>,
    /// The sums of all units of work, panel by panel. A panel is a group of N labels. After a pass,
    /// the first unit of a panel holds the total of the panel.
    partials: Vec<Partial<T, N>>,
    /// Couplings, stored panel by panel. A panel is a group of N labels. It has one row of N
    /// couplings for each label that is coupled with one of its labels; see [`Pairs`].
    couplings: Vec<Wide<T, N>>,
    /// Whether the columns of labels are centred. Only the reference solver does not centre them.
    centred: bool,
}

impl<T: Float, const N: usize> Gradient<T, N> {
    /// Prepares passes over the rows. `design` and `labels` must be divided into the same blocks of
    /// rows. `omega` holds the row weights, which sum to 1.
    pub(crate) fn new(
        design: Design<T>,
        labels: Arc<Labels>,
        omega: &[f64],
        centred: bool,
    ) -> Result<Self, Error> {
        let n_panels = labels.len().div_ceil(N);
        let n_blocks = design.cuts().len();
        let n_pieces = PIECES.div_ceil(n_panels.max(1)).clamp(1, n_blocks.max(1));
        let piece = |at: usize| at * n_blocks / n_pieces;
        let pieces = few((0..n_pieces).map(|at| piece(at)..piece(at + 1)));
        let mut partials = reserved("number of labels", n_panels * n_pieces)?;
        for _ in 0..n_panels * n_pieces {
            partials.push(Partial::new(design.width() + 1, 0)?);
        }
        Ok(Self {
            labels,
            omega: collected("number of rows", omega.iter().map(|&weight| T::of(weight)))?,
            pieces,
            partials,
            couplings: Vec::new(),
            centred,
            design,
        })
    }

    /// Returns the number of panels, which are groups of N labels. The last panel may be
    /// incomplete.
    pub(crate) fn n_panels(&self) -> usize {
        self.labels.len().div_ceil(N)
    }

    /// Returns the number of rows in the weights of a panel (group of N labels). It is the number
    /// of features plus one for the intercept.
    pub(crate) fn height(&self) -> usize {
        self.design.width() + 1
    }

    /// Returns the number that is subtracted from the 0/1 column of a label. It is the mean of the
    /// column, or 0 if labels are not centred.
    fn mean(&self, label: u32) -> f64 {
        if self.centred {
            self.labels.share[label as usize]
        } else {
            0.0
        }
    }

    /// Converts intercepts for centred columns to intercepts for uncentred columns. The intercepts
    /// for centred columns are in the last row of the weights.
    pub(crate) fn intercepts(
        &self,
        weights: &[Wide<T, N>],
        neighbours: &[u32],
        couplings: &[Wide<T, N>],
    ) -> [f64; N] {
        let mut intercepts = weights[self.design.width()]
            .0
            .map(manylabel_sparse::Value::f64);
        for (&shift, weights) in self.design.shift.iter().zip(weights) {
            for lane in 0..N {
                intercepts[lane] -= shift * weights.0[lane].f64();
            }
        }
        for (&label, couplings) in neighbours.iter().zip(couplings) {
            let mean = self.mean(label);
            for lane in 0..N {
                intercepts[lane] -= mean * couplings.0[lane].f64();
            }
        }
        intercepts
    }

    /// Makes a pass over the rows: computes all units of work and adds up their sums.
    pub(crate) fn evaluate(
        &mut self,
        pass: Pass<'_, T, N>,
        pairs: &Pairs,
        watch: &Watch,
    ) -> Result<(), Error> {
        self.compute(pass, &(0..usize::MAX), pairs, watch)?;
        self.join(pass.active);
        Ok(())
    }

    /// Computes the sums of some units of work of a pass. The units of the active panels are numbered panel by
    /// panel.
    fn compute(
        &mut self,
        pass: Pass<'_, T, N>,
        units: &Range<usize>,
        pairs: &Pairs,
        watch: &Watch,
    ) -> Result<(), Error> {
        self.place(pairs, &pass.at.couplings)?;
        let weights = &pass.at.weights;
        let residual = if pass.with_loss {
            Residual::WithLoss
        } else {
            Residual::Logistic
        };
        let firsts = self.first_units(pass.active)?;
        let mut partials = std::mem::take(&mut self.partials);
        let height = self.height();
        let done = partials.par_iter_mut().enumerate().try_each_with(
            || Ok(Vec::new()),
            |scratch, (work, partial)| {
                let (panel, piece) = (work / self.pieces.len(), work % self.pieces.len());
                if !pass.active[panel] || !units.contains(&(firsts[panel] + piece)) {
                    return Ok(());
                }
                self.add_up(
                    panel,
                    self.pieces[piece].clone(),
                    &weights[panel * height..][..height],
                    &pairs.neighbours[panel],
                    &self.couplings[pairs.of_panel(panel)],
                    residual,
                    scratch,
                    partial,
                    watch,
                )
            },
        );
        self.partials = partials;
        done
    }

    /// Adds up the sums of all units of each active panel, in order.
    fn join(&mut self, active: &[bool]) {
        self.partials
            .par_chunks_mut(self.pieces.len())
            .zip(active)
            .filter(|(_, active)| **active)
            .for_each(|(partials, _)| join_partials(partials));
    }

    /// Stores the couplings panel by panel, because a pass processes one panel (group of N labels)
    /// at a time. Each coupling is stored twice, once for each of its labels.
    fn place(&mut self, pairs: &Pairs, values: &[T]) -> Result<(), Error> {
        let n = pairs.starts.last().copied().unwrap_or(0);
        if self.couplings.len() != n {
            self.couplings = filled("number of couplings", Wide::zero(), n)?;
        }
        for (at, partial) in self.partials.iter_mut().enumerate() {
            let n = pairs.neighbours[at / self.pieces.len()].len();
            if partial.pairs.len() != n {
                partial.pairs = filled("number of couplings", Wide::zero(), n)?;
            }
        }
        for couplings in &mut self.couplings {
            *couplings = Wide::zero();
        }
        for (&(a, b), &value) in pairs.places.iter().zip(values) {
            for place in [a, b] {
                self.couplings[place as usize / N].0[place as usize % N] = value;
            }
        }
        Ok(())
    }

    /// Computes the sums of one panel of labels over several blocks of rows, and writes them to
    /// `partial`.
    ///
    /// `weights` holds the weights of the panel. `neighbours` lists the labels that are coupled
    /// with a label of the panel, and `couplings` has one row of couplings for each of these
    /// labels. `scratch` is a workspace for the log-odds of a block.
    #[expect(
        clippy::too_many_arguments,
        reason = "a single loop for three kinds of residuals"
    )]
    fn add_up(
        &self,
        panel: usize,
        blocks: Range<usize>,
        weights: &[Wide<T, N>],
        neighbours: &[u32],
        couplings: &[Wide<T, N>],
        residual: Residual,
        scratch: &mut Vec<Wide<T, N>>,
        partial: &mut Partial<T, N>,
        watch: &Watch,
    ) -> Result<(), Error> {
        let zero = Wide::zero();
        partial.weights.fill(zero);
        partial.pairs.fill(zero);
        (partial.sum, partial.loss) = ([0.0; N], [0.0; N]);
        let width = self.design.width();
        let intercepts = Wide(
            self.intercepts(weights, neighbours, couplings)
                .map(|value| T::of(value)),
        );
        let of_panel = (panel * N) as u32..((panel + 1) * N) as u32;
        for block in blocks {
            watch.step(0)?;
            let rows = self.design.cuts()[block].clone();
            let omega = &self.omega[rows.clone()];
            if scratch.len() < rows.len() {
                *scratch = filled(ROWS_OF_BLOCK, zero, rows.len())?;
            }
            let out = &mut scratch[..rows.len()];
            self.design.times(block, intercepts, &weights[..width], out);
            self.labels.times(block, neighbours, couplings, out);
            let sum;
            if residual == Residual::Linear {
                sum = scaled(out, omega);
            } else {
                if residual == Residual::WithLoss {
                    self.add_loss(block, of_panel.clone(), out, omega, &mut partial.loss);
                }
                sum = sigmoids(out, omega);
                for (label, rows) in self.labels.holders(block, of_panel.clone()) {
                    let lane = label as usize % N;
                    for &row in rows {
                        out[row as usize].0[lane] -= omega[row as usize];
                        partial.sum[lane] -= omega[row as usize].f64();
                    }
                }
                for &(label, row) in self.labels.unknown(block, &of_panel) {
                    let residual = &mut out[row as usize].0[label as usize % N];
                    partial.sum[label as usize % N] -= residual.f64();
                    *residual = T::default();
                }
            }
            for lane in 0..N {
                partial.sum[lane] += sum.0[lane].f64();
            }
            self.design
                .add_transposed(block, out, &mut partial.weights[..width]);
            self.labels
                .add_transposed(block, neighbours, out, &mut partial.pairs);
        }
        Ok(())
    }

    /// Adds `Σ ω (log(1 + e^E) − y E)` over the rows of a block to the loss of each label. Here ω
    /// is the weight of a row, E is the log-odds of the label, and y is 1 if the row has the label
    /// and 0 otherwise. `e` holds the log-odds.
    fn add_loss(
        &self,
        block: usize,
        of_panel: Range<u32>,
        e: &[Wide<T, N>],
        omega: &[T],
        loss: &mut [f64; N],
    ) {
        add_softplus(e, omega, loss);
        for &(label, row) in self.labels.unknown(block, &of_panel) {
            let (lane, row) = (label as usize % N, row as usize);
            loss[lane] -= omega[row].f64() * softplus(e[row].0[lane].f64());
        }
        for (label, rows) in self.labels.holders(block, of_panel) {
            let lane = label as usize % N;
            for &row in rows {
                loss[lane] -= omega[row as usize].f64() * e[row as usize].0[lane].f64();
            }
        }
    }

    /// Returns the loss of each label of a panel (group of N labels). The last pass over the rows
    /// must have computed the loss.
    pub(crate) fn losses(&self, panel: usize) -> &[f64; N] {
        &self.partials[panel * self.pieces.len()].loss
    }

    /// Computes the gradient of the weights and intercepts of a panel (group of N labels) from the
    /// sums of the last pass. Writes the gradient to `out`.
    pub(crate) fn write(&self, panel: usize, out: &mut [Wide<T, N>]) {
        let partial = &self.partials[panel * self.pieces.len()];
        out.copy_from_slice(&partial.weights);
        for (out, &shift) in out.iter_mut().zip(&self.design.shift) {
            for lane in 0..N {
                out.0[lane] = T::of(out.0[lane].f64() - shift * partial.sum[lane]);
            }
        }
        out[self.design.width()] = Wide(partial.sum.map(|sum| T::of(sum)));
    }

    /// Returns two derivatives with respect to the coupling of each pair of labels. The first
    /// derivative is of the loss of the first label, and the second derivative is of the loss of
    /// the second label.
    pub(crate) fn halves<'b>(
        &'b self,
        pairs: &'b Pairs,
    ) -> impl Iterator<Item = [f64; 2]> + use<'b, T, N> {
        let read = |i: u32, k: u32, place: u32| {
            let panel = i as usize / N;
            let partial = &self.partials[panel * self.pieces.len()];
            let lane = place as usize % N;
            let raw = partial.pairs[place as usize / N - pairs.starts[panel]].0[lane].f64();
            raw - partial.sum[lane] * self.mean(k)
        };
        let places = pairs.list.iter().zip(&pairs.places);
        places.map(move |(&(i, k), &(a, b))| [read(i, k, a), read(k, i, b)])
    }

    /// Copies the columns `cols` of a block of rows to `out`, one column per lane. Each value is
    /// multiplied by the weight of its row. `out` must be zero. Column numbers start with the
    /// features, and the labels follow. Columns are not centred.
    pub(crate) fn columns(&self, block: usize, cols: Range<usize>, out: &mut [Wide<T, N>]) {
        let width = self.design.width();
        let rows = self.design.cuts()[block].clone();
        self.design
            .columns(block, cols.start.min(width)..cols.end.min(width), out);
        let place = |col: usize| col.saturating_sub(width) as u32;
        for (label, rows) in self
            .labels
            .holders(block, place(cols.start)..place(cols.end))
        {
            for &row in rows {
                out[row as usize].0[width + label as usize - cols.start] = T::of(1.0);
            }
        }
        for (out, &weight) in out.iter_mut().zip(&self.omega[rows]) {
            for value in &mut out.0 {
                *value = *value * weight;
            }
        }
    }

    /// Returns the pairs of labels for which at least one of the two derivatives from
    /// [`halves`](Self::halves) has an absolute value of `bound` or more, for the labels of some panels (groups of
    /// N labels). Each panel has its own list, in no particular order. The gradient of every other pair is below
    /// `2 · bound`; [`sorted`] joins the lists of all panels.
    ///
    /// Takes one pass over the rows, in which the products with Y are computed for all labels. For
    /// m labels, this takes O(stored values of Y × m) time in addition to the products with the
    /// features. The memory is m rows of sums for each panel that is being processed.
    pub(crate) fn beyond(
        &mut self,
        at: &Iterate<T, N>,
        pairs: &Pairs,
        bound: f64,
        panels: &Range<usize>,
        watch: &Watch,
    ) -> Result<Vec<Vec<(u32, u32)>>, Error> {
        self.place(pairs, &at.couplings)?;
        let (height, m) = (self.height(), self.labels.len());
        let all = collected("number of labels", 0..m as u32)?;
        let found = panels.clone().into_par_iter().map(|panel| {
            let mut partial = Partial::new(height, m)?;
            let mut couplings = filled("number of couplings", Wide::zero(), m)?;
            let known = &self.couplings[pairs.of_panel(panel)];
            for (&label, &known) in pairs.neighbours[panel].iter().zip(known) {
                couplings[label as usize] = known;
            }
            self.add_up(
                panel,
                0..self.design.cuts().len(),
                &at.weights[panel * height..][..height],
                &all,
                &couplings,
                Residual::Logistic,
                &mut Vec::new(),
                &mut partial,
                watch,
            )?;
            let mut found = Vec::new();
            for (&k, raw) in all.iter().zip(&partial.pairs) {
                for lane in 0..N.min(m - panel * N) {
                    let i = (panel * N + lane) as u32;
                    let half = raw.0[lane].f64() - partial.sum[lane] * self.mean(k);
                    if i != k && half.abs() >= bound {
                        push(
                            "number of pairs of labels",
                            &mut found,
                            (i.min(k), i.max(k)),
                        )?;
                    }
                }
            }
            Ok(found)
        });
        parts(found)
    }
}

/// Joins lists of pairs of labels to one list in increasing order without repetition.
pub(crate) fn sorted(lists: &[Vec<(u32, u32)>]) -> Result<Vec<(u32, u32)>, Error> {
    let n = lists.iter().map(Vec::len).sum();
    let mut all = reserved("number of pairs of labels", n)?;
    for found in lists {
        extend("number of pairs of labels", &mut all, found.iter().copied())?;
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

/// Multiplies each row by its weight. Returns the sum of the multiplied rows.
fn scaled<T: Float, const N: usize>(rows: &mut [Wide<T, N>], weights: &[T]) -> Wide<T, N> {
    let mut sum = Wide::zero();
    for (row, &weight) in rows.iter_mut().zip(weights) {
        for value in &mut row.0 {
            *value = *value * weight;
        }
        sum.add(row);
    }
    sum
}

/// Adds all sums of the list to its first entry, in order.
fn join_partials<T: Float, const N: usize>(partials: &mut [Partial<T, N>]) {
    let Some((first, others)) = partials.split_first_mut() else {
        return;
    };
    for other in others {
        for (sum, other) in first.weights.iter_mut().zip(&other.weights) {
            sum.add(other);
        }
        for (sum, other) in first.pairs.iter_mut().zip(&other.pairs) {
            sum.add(other);
        }
        for lane in 0..N {
            first.sum[lane] += other.sum[lane];
            first.loss[lane] += other.loss[lane];
        }
    }
}
