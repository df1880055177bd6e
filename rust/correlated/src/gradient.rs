//! One pass over the training rows: the gradient of the loss at a point, panel by panel of labels.
//!
//! For a panel of N labels and a block of rows, the pass computes the log-odds `E = X W + Y C + β`,
//! turns them into residuals `Ξ = Ω (σ(E) − Y)` and multiplies these back to `Xᵀ Ξ` and `Yᵀ Ξ`,
//! while the block is in cache. Ω holds the weights of the rows, which sum to 1. Nothing of size
//! rows × labels outlives a block.
//!
//! The gradient of a weight is an entry of `Xᵀ Ξ`. The gradient of the coupling of i and k is the
//! sum of two halves, entry (k, i) and entry (i, k) of `Yᵀ Ξ`, since the coupling is in the losses
//! of both labels.
//!
//! Columns of X and Y count as centred. Centring changes intercepts only, but makes longer steps
//! possible. It is implicit: a product with a centred matrix is one with the matrix itself,
//! corrected by its means.
//!
//! A pass costs O((stored values of X + stored values of Y of neighbouring labels) m). Work is
//! divided into (panel, range of blocks) by the sizes of the data alone, and partial sums are added
//! in order: results have the same bits for any number of threads.

mod eigenvalue;
mod pairs;

pub(crate) use self::pairs::Pairs;
use crate::design::Design;
use crate::iterate::Iterate;
use crate::labels::Labels;
use crate::wide::{Float, Wide, sigmoids, softplus};
use manylabel_base::{Error, Watch, collected, extend, few, filled, parts, push, reserved};
use rayon::prelude::*;
use std::ops::Range;

/// Smallest number of pieces of work, if there are that many blocks: enough to occupy a few
/// threads.
const PIECES: usize = 16;

/// The name of a block's rows in errors about memory.
const ROWS_OF_BLOCK: &str = "rows of a block";

/// The sums of one piece of work: one panel, some blocks.
struct Partial<T, const N: usize> {
    /// `Xᵀ Ξ` with X as stored; the last row, of the intercept, stays 0.
    weights: Vec<Wide<T, N>>,
    /// `Yᵀ Ξ` with Y as stored, one row per neighbour of the panel.
    pairs: Vec<Wide<T, N>>,
    /// `1ᵀ Ξ`, from which centred products follow.
    sum: [f64; N],
    /// The loss of each label, if it is asked for.
    loss: [f64; N],
}

impl<T: Float, const N: usize> Partial<T, N> {
    /// Zeros for a panel with `height` rows of weights and `n_neighbours` neighbours.
    fn new(height: usize, n_neighbours: usize) -> Result<Self, Error> {
        Ok(Self {
            weights: filled("weights", Wide::zero(), height)?,
            pairs: filled("couplings", Wide::zero(), n_neighbours)?,
            sum: [0.0; N],
            loss: [0.0; N],
        })
    }
}

/// What the log-odds of a row are turned into.
#[derive(Clone, Copy, PartialEq)]
enum Residual {
    /// `Ω (σ(E) − Y)`.
    Logistic,
    /// The same, and the loss is summed as well.
    WithLoss,
    /// `Ω E`, for products with the second moments `ZᵀΩZ`.
    Linear,
}

/// The data of a fit in one precision, and room for the sums of a pass.
pub(crate) struct Gradient<'a, T, const N: usize> {
    /// The features.
    pub(crate) design: Design<T>,
    /// The labels.
    pub(crate) labels: &'a Labels,
    /// The weight of each row; they sum to 1.
    omega: Vec<T>,
    /// The blocks of each piece of a panel's work.
    pieces: Vec<Range<usize>>,
    /// The sums of all pieces, panel after panel. After a pass the first piece of a panel has its
    /// total.
    partials: Vec<Partial<T, N>>,
    /// Couplings as the panels read them: for each panel one row per neighbour, see [`Pairs`].
    couplings: Vec<Wide<T, N>>,
    /// Whether labels are centred. Only the reference solver does without.
    centred: bool,
}

impl<'a, T: Float, const N: usize> Gradient<'a, T, N> {
    /// Prepares passes over a design and labels that were cut into the same blocks. `omega`:
    /// weights of the rows, which sum to 1.
    pub(crate) fn new(
        design: Design<T>,
        labels: &'a Labels,
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

    /// Number of panels of N labels, the last of which may be incomplete.
    pub(crate) fn n_panels(&self) -> usize {
        self.labels.len().div_ceil(N)
    }

    /// Rows of a panel's weights: features plus the intercept.
    pub(crate) fn height(&self) -> usize {
        self.design.width() + 1
    }

    /// The mean that is subtracted from a neighbour's indicator.
    fn mean(&self, label: u32) -> f64 {
        if self.centred {
            self.labels.share[label as usize]
        } else {
            0.0
        }
    }

    /// The intercepts that belong to uncentred columns, computed from weights whose last row has
    /// the intercepts of centred columns.
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

    /// Computes the sums of the `active` panels (one flag per panel) at a point whose couplings are
    /// those of `pairs`. The sums of other panels stay as they were.
    pub(crate) fn evaluate(
        &mut self,
        active: &[bool],
        at: &Iterate<T, N>,
        pairs: &Pairs,
        with_loss: bool,
        watch: &Watch,
    ) -> Result<(), Error> {
        self.place(pairs, &at.couplings)?;
        let weights = &at.weights;
        let residual = if with_loss {
            Residual::WithLoss
        } else {
            Residual::Logistic
        };
        let mut partials = std::mem::take(&mut self.partials);
        let height = self.height();
        let done = partials.par_iter_mut().enumerate().try_for_each_init(
            Vec::new,
            |scratch, (work, partial)| {
                let (panel, piece) = (work / self.pieces.len(), work % self.pieces.len());
                if !active[panel] {
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
        done?;
        partials
            .par_chunks_mut(self.pieces.len())
            .zip(active)
            .filter(|(_, active)| **active)
            .for_each(|(partials, _)| join_partials(partials));
        self.partials = partials;
        Ok(())
    }

    /// Writes the couplings where the panels read them: each at two places, one for either label.
    fn place(&mut self, pairs: &Pairs, values: &[T]) -> Result<(), Error> {
        let n = pairs.starts.last().copied().unwrap_or(0);
        if self.couplings.len() != n {
            self.couplings = filled("couplings", Wide::zero(), n)?;
        }
        for (at, partial) in self.partials.iter_mut().enumerate() {
            let n = pairs.neighbours[at / self.pieces.len()].len();
            if partial.pairs.len() != n {
                partial.pairs = filled("couplings", Wide::zero(), n)?;
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

    /// Computes the sums of one panel over some blocks of rows, and writes them to `partial`.
    ///
    /// `weights`: the panel's weights; `neighbours`, `couplings`: the labels it is coupled with and
    /// one row of couplings for each; `scratch`: room for the log-odds of a block.
    #[expect(clippy::too_many_arguments, reason = "one loop, called three ways")]
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

    /// Adds `Σ ω (log(1 + e^E) − y E)` over the rows of a block to each label's loss. `e`:
    /// log-odds.
    fn add_loss(
        &self,
        block: usize,
        of_panel: Range<u32>,
        e: &[Wide<T, N>],
        omega: &[T],
        loss: &mut [f64; N],
    ) {
        for (e, weight) in e.iter().zip(omega) {
            for lane in 0..N {
                loss[lane] += weight.f64() * softplus(e.0[lane].f64());
            }
        }
        for (label, rows) in self.labels.holders(block, of_panel) {
            let lane = label as usize % N;
            for &row in rows {
                loss[lane] -= omega[row as usize].f64() * e[row as usize].0[lane].f64();
            }
        }
    }

    /// The loss of each label of a panel, if the last pass was asked for it.
    pub(crate) fn losses(&self, panel: usize) -> &[f64; N] {
        &self.partials[panel * self.pieces.len()].loss
    }

    /// Writes the gradient of a panel's weights and intercepts from the sums of the last pass.
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

    /// For each pair, the gradients of its coupling in the losses of its first and of its second
    /// label.
    pub(crate) fn halves<'b>(
        &'b self,
        pairs: &'b Pairs,
    ) -> impl Iterator<Item = [f64; 2]> + use<'b, 'a, T, N> {
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

    /// Writes the columns `cols` of a block, each value multiplied by the weight of its row, into
    /// the lanes of `out`, which is zero so far. Features come first, then labels; columns are as
    /// stored.
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

    /// The pairs for which one half of the gradient has an absolute value ≥ `bound`, each once and
    /// in increasing order. The gradient of every other pair is below `2 · bound`.
    ///
    /// Takes one pass in which every panel has all labels as neighbours: O(stored values of Y × m)
    /// beside the features, and m rows of sums for each panel in work.
    pub(crate) fn beyond(
        &mut self,
        at: &Iterate<T, N>,
        pairs: &Pairs,
        bound: f64,
        watch: &Watch,
    ) -> Result<Vec<(u32, u32)>, Error> {
        self.place(pairs, &at.couplings)?;
        let (height, m) = (self.height(), self.labels.len());
        let all = collected("number of labels", 0..m as u32)?;
        let found = (0..self.n_panels()).into_par_iter().map(|panel| {
            let mut partial = Partial::new(height, m)?;
            let mut couplings = filled("couplings", Wide::zero(), m)?;
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
                        push("pairs of labels", &mut found, (i.min(k), i.max(k)))?;
                    }
                }
            }
            Ok(found)
        });
        let of_panels: Vec<Vec<_>> = parts(found)?;
        let mut all = reserved("pairs of labels", of_panels.iter().map(Vec::len).sum())?;
        for found in of_panels {
            extend("pairs of labels", &mut all, found)?;
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }
}

/// Multiplies rows by their weights and returns the sum of the products.
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

/// Adds all partial sums to the first, in order.
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
