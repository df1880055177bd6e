//! Stores the scores and gradients of the training rows, and computes sums over sets of rows.
//!
//! [`Statistics`] holds a padded row of scores and a padded row of gradients for each training row. These
//! numbers take 16 bytes per row and label. Boosting adds heads to the scores of covered rows and updates
//! their gradients.
//!
//! [`Sums`] holds the sums over a set of rows from which a head and its quality are computed. [`Sums`] does
//! not hold products of the gradients of different labels. In the formulas, w is the weight of a row, and g
//! is its gradient. `Σ` is the sum over the rows of the set, and `Σ_k` is the sum over labels.
//!
//! | sum | formula | used for |
//! |---|---|---|
//! | g | `Σ w g` | all heads |
//! | h | `Σ w |g| (1 − |g|)` | diagonal of the Hessian |
//! | d | `Σ w |g|` | `H = diag(d) − Σ w g gᵀ` under the example-wise loss |
//! | f | `Σ w |g| (1 − Σ_k |g_k|)` | `H − diag(f)` is positive semidefinite; for bounds of the quality |
//!
//! Sums over rows are computed in blocks of [`ROWS`] rows, and the sums of the blocks are added in order. The
//! result therefore does not depend on whether blocks run in parallel. Updates of rows are independent of one
//! another.

use crate::Loss;
use crate::batch::{Batch, ROWS_AT_ONCE};
use crate::lanes::{Aligned, WIDTH, add_scaled, padded, total};
use crate::loss::{self, Factors, PADDING};
use crate::pace::Pace;
use manylabel_base::{Error, Tasks, Watch, collected, filled, parts};
use manylabel_simd::wide;
use manylabel_sparse::CsrOwned;
use rayon::prelude::*;

/// Number of rows per block. The size is fixed, so that results do not depend on the number of
/// threads.
pub(crate) const ROWS: usize = 512;

/// Scores and gradients of all training rows. Each array has shape (`n_rows`, `stride`), row after
/// row.
///
/// Long operations process rows in blocks. For each block, the operation checks whether the caller has
/// requested a stop.
#[derive(Debug)]
pub(crate) struct Statistics<'w> {
    /// The watch, which is checked for a stop request of the caller after each block of rows.
    watch: &'w Watch,
    /// The loss function that the gradients belong to.
    pub(crate) loss: Loss,
    /// Number of labels, without padding.
    pub(crate) n_labels: usize,
    /// Padded length of a row.
    pub(crate) stride: usize,
    /// Scores of all rows.
    scores: Aligned,
    /// Gradients of all rows. Their sign bits encode the labels (see `loss.rs`).
    gradients: Aligned,
    /// `1 − Σ_k |g_k|` of each row under the example-wise loss, and 0 under the label-wise loss.
    rest: Vec<f64>,
    /// The pairs of row and label that are unknown. An unknown label counts as absent. Its score starts at
    /// [`PADDING`], which is so low that it stays low when heads are added. So the loss and the gradient of
    /// the pair are 0.
    unknown: Option<&'w CsrOwned>,
}

impl<'w> Statistics<'w> {
    /// Sets all scores and all gradients to 0, except that the scores of unknown pairs of row and label are
    /// [`PADDING`]. The sign bits of the gradients encode the labels. Afterwards [`refresh`](Self::refresh)
    /// must be called to compute the gradients. The time is O(rows · labels), and the memory is 16 bytes per
    /// row and label.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Also returns the errors of [`Watch::step`].
    pub(crate) fn new(
        loss: Loss,
        ones: &CsrOwned,
        unknown: Option<&'w CsrOwned>,
        watch: &'w Watch,
    ) -> Result<Self, Error> {
        let (n_rows, n_labels) = (ones.n_rows(), ones.n_cols);
        let stride = padded(n_labels);
        let too_large = || Error::TooLarge {
            what: "the matrix of gradients",
            got: format!("{n_rows} x {n_labels} numbers"),
        };
        let size = n_rows.checked_mul(stride).ok_or_else(too_large)?;
        let mut scores = Aligned::zeros_watched("the matrix of scores", size, watch)?;
        let mut gradients = Aligned::zeros_watched("the matrix of gradients", size, watch)?;
        let rest = filled("number of rows", 0.0, n_rows)?;
        for row in 0..n_rows {
            if row % ROWS == 0 {
                watch.step(0)?;
            }
            scores[row * stride + n_labels..(row + 1) * stride].fill(PADDING);
            for &label in ones.row(row).0 {
                gradients[row * stride + label as usize] = -0.0;
            }
        }
        let mut statistics = Self {
            watch,
            loss,
            n_labels,
            stride,
            scores,
            gradients,
            rest,
            unknown,
        };
        statistics.hide_unknown();
        Ok(statistics)
    }

    /// Sets the scores of unknown pairs of row and label to [`PADDING`].
    fn hide_unknown(&mut self) {
        let Some(unknown) = self.unknown else {
            return;
        };
        for row in 0..unknown.n_rows() {
            for &label in unknown.row(row).0 {
                self.scores[row * self.stride + label as usize] = PADDING;
            }
        }
    }

    /// Returns the gradients of one row, padded to a multiple of eight labels.
    #[inline(always)]
    pub(crate) fn gradient(&self, row: u32) -> &[f64] {
        let at = row as usize * self.stride;
        &self.gradients[at..at + self.stride]
    }

    /// Splits `rows` into batches. `weights` has one entry for every training row.
    #[inline(always)]
    pub(crate) fn batches(&self, rows: &[u32], weights: &[f64]) -> impl Iterator<Item = Batch<'_>> {
        let few = rows.chunks(ROWS_AT_ONCE);
        few.map(|rows| Batch::new(&self.gradients, self.stride, rows, weights, &self.rest))
    }

    /// Checks whether the caller has requested a stop.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`].
    pub(crate) fn ask(&self) -> Result<(), Error> {
        self.watch.step(0)
    }

    /// Returns a counter for long loops that check at intervals for a stop request of the caller.
    pub(crate) fn pace(&self) -> Pace<'_> {
        Pace::new(self.watch)
    }

    /// Adds `head` to the scores of `rows`, and computes the gradients of these rows from the scores. `rows`
    /// must be in increasing order.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`]. After an error, only some rows may have been updated.
    pub(crate) fn add(&mut self, rows: &[u32], head: &[f64]) -> Result<(), Error> {
        let Self { loss, stride, .. } = *self;
        self.for_blocks(rows, |rows, block| {
            for &row in rows {
                let (scores, gradients, rest) = block.row(row, stride);
                add_scaled(scores, 1.0, head);
                *rest = loss::refresh(loss, scores, gradients);
            }
        })
    }

    /// Does the same as [`add`](Self::add), but faster under the example-wise loss. Under this loss,
    /// gradients are multiplied by [`Factors`]. This multiplication needs no exponential per row. If a score
    /// of the head is too large, gradients are computed from the scores. For rows with a gradient that
    /// becomes too small, gradients are also computed from the scores.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`]. Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn advance(&mut self, rows: &[u32], head: &[f64]) -> Result<(), Error> {
        let factors = match self.loss {
            Loss::ExampleWise => Factors::new(1.0, head)?,
            Loss::LabelWise => None,
        };
        let Some(factors) = factors else {
            return self.add(rows, head);
        };
        let Self {
            n_labels, stride, ..
        } = *self;
        self.for_blocks(rows, |rows, block| {
            advance_rows(&factors, head, n_labels, stride, rows, block);
        })
    }

    /// Computes the gradients of all rows from their scores.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`]. Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn refresh(&mut self) -> Result<(), Error> {
        let all = collected("number of rows", 0..self.rest.len() as u32)?;
        let none = filled("number of labels", 0.0, self.stride)?;
        self.add(&all, &none)
    }

    /// Calls `work` for each block of training rows that contains at least one of `rows`. `rows` must be in
    /// increasing order. `work` receives the rows in the block and the block. Blocks run in parallel if there
    /// is enough work.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`].
    fn for_blocks(
        &mut self,
        rows: &[u32],
        work: impl Fn(&[u32], &mut Block<'_>) + Sync,
    ) -> Result<(), Error> {
        let Self { watch, stride, .. } = *self;
        let long = stride * ROWS;
        let of_block = |(at, ((scores, gradients), rest)): (usize, Arrays<'_>)| {
            let first = at * ROWS;
            let from = rows.partition_point(|&row| (row as usize) < first);
            let to = rows.partition_point(|&row| (row as usize) < first + ROWS);
            if from < to {
                watch.step(0)?;
                let mut block = Block {
                    first,
                    scores,
                    gradients,
                    rest,
                };
                work(&rows[from..to], &mut block);
            }
            Ok(())
        };
        if rows.len() * stride < PARALLEL_FROM {
            (self.scores.chunks_mut(long))
                .zip(self.gradients.chunks_mut(long))
                .zip(self.rest.chunks_mut(ROWS))
                .enumerate()
                .try_for_each(of_block)
        } else {
            (self.scores.par_chunks_mut(long))
                .zip(self.gradients.par_chunks_mut(long))
                .zip(self.rest.par_chunks_mut(ROWS))
                .enumerate()
                .try_each(of_block)
        }
    }

    /// Sets all scores of known pairs to 0. Gradients keep their old values until [`add`](Self::add) computes them
    /// again.
    pub(crate) fn reset(&mut self) {
        for scores in self.scores.chunks_mut(self.stride.max(1)) {
            scores[..self.n_labels].fill(0.0);
        }
        self.hide_unknown();
    }

    /// Returns the weighted sum of the losses of `rows`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`]. Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn loss(
        &self,
        rows: &[u32],
        weight: impl Fn(u32) -> f64 + Sync,
    ) -> Result<f64, Error> {
        // Under the example-wise loss, `rest` is e^{−loss}.
        if self.loss == Loss::ExampleWise
            && rows
                .iter()
                .all(|&row| self.rest[row as usize] > f64::MIN_POSITIVE)
        {
            return self.sum_over(rows, |row| -weight(row) * self.rest[row as usize].ln());
        }
        let head = &filled("number of labels", 0.0, self.stride)?;
        self.loss_after(rows, weight, Scaled { scale: 0.0, head })
    }

    /// Returns the change of the weighted sum of the losses of `rows` if `step` is added to their scores.
    /// Under the example-wise loss, the change is computed from the [`Factors`] of the step, unless the step
    /// is very long. This method avoids the difference of two large sums.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`]. Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn loss_change(
        &self,
        rows: &[u32],
        weight: impl Fn(u32) -> f64 + Sync,
        step: Scaled<'_>,
    ) -> Result<f64, Error> {
        let factors = match self.loss {
            Loss::ExampleWise => Factors::new(step.scale, step.head)?,
            Loss::LabelWise => None,
        };
        if let Some(factors) = factors {
            return self.sum_blocks(rows, |rows| change_of_rows(&factors, self, rows, &weight));
        }
        Ok(self.loss_after(rows, &weight, step)? - self.loss(rows, weight)?)
    }

    /// Returns the weighted sum of the losses of `rows`, with `step` added to their scores.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`].
    fn loss_after(
        &self,
        rows: &[u32],
        weight: impl Fn(u32) -> f64 + Sync,
        Scaled { scale, head }: Scaled<'_>,
    ) -> Result<f64, Error> {
        self.sum_over(rows, |row| {
            let at = row as usize * self.stride;
            let scores = &self.scores[at..at + self.stride];
            weight(row) * loss::value(self.loss, scores, scale, head, self.gradient(row))
        })
    }

    /// Returns the sum of `value` over `rows`.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`].
    fn sum_over(&self, rows: &[u32], value: impl Fn(u32) -> f64 + Sync) -> Result<f64, Error> {
        self.sum_blocks(rows, |rows| rows.iter().map(|&row| value(row)).sum())
    }

    /// Divides `rows` into blocks and returns the sum of `value` over the blocks. Blocks are added in order.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`].
    fn sum_blocks(&self, rows: &[u32], value: impl Fn(&[u32]) -> f64 + Sync) -> Result<f64, Error> {
        let sum = |rows: &[u32]| {
            self.ask()?;
            Ok(value(rows))
        };
        if rows.len() * self.stride < PARALLEL_FROM {
            rows.chunks(ROWS).map(sum).sum()
        } else {
            Ok(parts(rows.par_chunks(ROWS).map(sum))?.iter().sum())
        }
    }
}

/// A step `scale · head` that is added to the scores of rows.
#[derive(Clone, Copy)]
pub(crate) struct Scaled<'a> {
    /// The factor that multiplies the head.
    pub(crate) scale: f64,
    /// A head, padded to a multiple of eight labels.
    pub(crate) head: &'a [f64],
}

/// The scores, the gradients and the numbers `1 − Σ_k |g_k|` of a block of training rows.
type Arrays<'a> = ((&'a mut [f64], &'a mut [f64]), &'a mut [f64]);

/// The data of a block of training rows, accessed by row number. `rest` is `1 − Σ_k |g_k|` of a row.
struct Block<'a> {
    /// The first row of the block.
    first: usize,
    /// Scores, row after row.
    scores: &'a mut [f64],
    /// Gradients, row after row.
    gradients: &'a mut [f64],
    /// The number `1 − Σ_k |g_k|` of each row.
    rest: &'a mut [f64],
}

impl Block<'_> {
    /// Returns the scores, the gradients and the number `1 − Σ_k |g_k|` of a training row. The row must be in
    /// the block.
    #[inline(always)]
    fn row(&mut self, row: u32, stride: usize) -> (&mut [f64], &mut [f64], &mut f64) {
        let at = row as usize - self.first;
        let range = at * stride..(at + 1) * stride;
        (
            &mut self.scores[range.clone()],
            &mut self.gradients[range],
            &mut self.rest[at],
        )
    }
}

/// Adds a head to the scores of some rows of a block, and multiplies their gradients by
/// [`Factors`]. If a gradient of a row becomes too small, the gradients of the row are computed
/// from its scores instead.
#[wide]
fn advance_rows(
    factors: &Factors,
    head: &[f64],
    n_labels: usize,
    stride: usize,
    rows: &[u32],
    block: &mut Block<'_>,
) {
    for rows in rows.chunks(ROWS_AT_ONCE) {
        // The lanes of each row are added in a second loop. By then, the stores of the first loop have
        // completed.
        let mut ratios = [[0.0; WIDTH]; ROWS_AT_ONCE];
        for (&row, ratio) in rows.iter().zip(&mut ratios) {
            let (scores, gradients, _) = block.row(row, stride);
            add_scaled(scores, 1.0, head);
            *ratio = factors.advance(gradients);
        }
        for (&row, ratio) in rows.iter().zip(&ratios) {
            let (scores, gradients, rest) = block.row(row, stride);
            if !loss::scale(n_labels, total(ratio), gradients, rest) {
                *rest = loss::refresh(Loss::ExampleWise, scores, gradients);
            }
        }
    }
}

/// Computes how much a step changes the weighted sum of the losses of `rows`. `factors` belong to this step.
#[wide]
fn change_of_rows<W: Fn(u32) -> f64>(
    factors: &Factors,
    statistics: &Statistics<'_>,
    rows: &[u32],
    weight: W,
) -> f64 {
    // Ratios of consecutive rows with equal weight are multiplied, so that one logarithm serves
    // many rows. Each ratio is between e^-200 and e^200.
    let mut sum = 0.0;
    let (mut product, mut weight_of_product) = (1.0f64, 0.0);
    for rows in rows.chunks(ROWS_AT_ONCE) {
        let mut ratios = [[0.0; WIDTH]; ROWS_AT_ONCE];
        for (&row, ratio) in rows.iter().zip(&mut ratios) {
            *ratio = factors.ratio(statistics.gradient(row));
        }
        for (&row, ratio) in rows.iter().zip(&ratios) {
            let weight = weight(row);
            if weight != weight_of_product || !(1e-100..1e100).contains(&product) {
                sum += weight_of_product * product.ln();
                (product, weight_of_product) = (1.0, weight);
            }
            product *= statistics.rest[row as usize] + total(ratio);
        }
    }
    sum + weight_of_product * product.ln()
}

/// Smallest number of processed numbers for which several threads are used. With fewer numbers, starting the
/// threads would take longer than the work.
pub(crate) const PARALLEL_FROM: usize = 1 << 15;

/// The sums that a method for computing heads needs. Each kind includes the sums of all previous kinds. The
/// discriminant is the number of sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kinds {
    /// Gradients g and Hessian diagonals h.
    Diagonal = 2,
    /// The sums of `Diagonal`, and `d = Σ w |g|`.
    Magnitudes = 3,
    /// The sums of `Magnitudes`, and `f = Σ w |g| (1 − Σ_k |g_k|)`. The Hessian minus `diag(f)` is positive
    /// semidefinite.
    Bounds = 4,
}

/// Weighted sums over a set of rows. Each sum has one number per label and is padded to a multiple of eight
/// labels. The sums are in the order of [`Kinds`].
#[derive(Debug)]
pub(crate) struct Sums {
    /// Padded length of each sum.
    pub(crate) stride: usize,
    /// The kinds of sums that are stored.
    kinds: Kinds,
    /// The numbers of all sums, one sum after the other.
    data: Aligned,
}

impl Sums {
    /// Returns the sums over an empty set of rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the sums do not fit in memory.
    pub(crate) fn new(stride: usize, kinds: Kinds) -> Result<Self, Error> {
        Ok(Self {
            stride,
            kinds,
            data: Aligned::zeros("number of labels", stride * kinds as usize)?,
        })
    }

    /// Returns sums of the same kinds over an empty set of rows.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the sums do not fit in memory.
    pub(crate) fn emptied(&self) -> Result<Self, Error> {
        Self::new(self.stride, self.kinds)
    }

    /// Returns a copy of the sums.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the copy does not fit in memory.
    pub(crate) fn copied(&self) -> Result<Self, Error> {
        let data = self.data.copied("number of labels")?;
        Ok(Self { data, ..*self })
    }

    /// Adds `scale · x` to the sum of gradients. If the scores already contain the head `x` and `scale` is
    /// the L2 weight, the regularization of the next head then applies to the sum of `x` and this head.
    pub(crate) fn shift_gradients(&mut self, scale: f64, x: &[f64]) {
        let stride = self.stride;
        add_scaled(&mut self.data[..stride], scale, x);
    }

    /// Removes all rows from the set.
    pub(crate) fn clear(&mut self) {
        self.data.fill(0.0);
    }

    /// Adds the rows of a batch.
    #[inline(always)]
    pub(crate) fn add(&mut self, batch: &Batch<'_>) {
        let stride = self.stride;
        let (g, others) = self.data.split_at_mut(stride);
        let (h, others) = others.split_at_mut(stride);
        match self.kinds {
            Kinds::Diagonal => batch.add_moments_to([g, h]),
            Kinds::Magnitudes => batch.add_moments_to([g, h, others]),
            Kinds::Bounds => {
                let (d, f) = others.split_at_mut(stride);
                batch.add_moments_to([g, h, d, f]);
            }
        }
    }

    /// Sets the sums to `all − part`. Rounding may make entries slightly negative, even if the exact sums are
    /// not negative.
    #[inline(always)]
    pub(crate) fn set_difference(&mut self, all: &Self, part: &Self) {
        for (out, (all, part)) in self
            .data
            .iter_mut()
            .zip(all.data.iter().zip(part.data.iter()))
        {
            *out = all - part;
        }
    }

    /// Subtracts the sums of `rows`. `weights` has one entry for every training row.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`over`](Self::over).
    pub(crate) fn remove(
        &mut self,
        statistics: &Statistics<'_>,
        rows: &[u32],
        weights: &[f64],
    ) -> Result<(), Error> {
        let gone = Self::over(statistics, self.kinds, rows, weights)?;
        add_scaled(&mut self.data, -1.0, &gone.data);
        Ok(())
    }

    /// Adds `other`, which must hold the same kinds of sums.
    fn add_sums(&mut self, other: &Self) {
        add_scaled(&mut self.data, 1.0, &other.data);
    }

    /// Returns the sums of gradients.
    #[inline(always)]
    pub(crate) fn g(&self) -> &[f64] {
        &self.data[..self.stride]
    }

    /// Returns the sums of Hessian diagonals.
    #[inline(always)]
    pub(crate) fn h(&self) -> &[f64] {
        &self.data[self.stride..2 * self.stride]
    }

    /// Returns the sums of absolute gradients. The stored kind must be at least [`Kinds::Magnitudes`].
    #[inline(always)]
    pub(crate) fn d(&self) -> &[f64] {
        &self.data[2 * self.stride..3 * self.stride]
    }

    /// Returns the sums f, for which the Hessian minus `diag(f)` is positive semidefinite. The stored kind
    /// must be [`Kinds::Bounds`].
    #[inline(always)]
    pub(crate) fn f(&self) -> &[f64] {
        &self.data[3 * self.stride..4 * self.stride]
    }

    /// Computes sums over `rows`. `weights` has one entry for every training row. The time is O(rows ·
    /// labels).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Watch::step`]. Returns [`Error::TooLarge`] if there is not enough memory.
    pub(crate) fn over(
        statistics: &Statistics<'_>,
        kinds: Kinds,
        rows: &[u32],
        weights: &[f64],
    ) -> Result<Self, Error> {
        #[wide]
        fn add_all(sums: &mut Sums, statistics: &Statistics<'_>, rows: &[u32], weights: &[f64]) {
            for batch in statistics.batches(rows, weights) {
                sums.add(&batch);
            }
        }
        let stride = statistics.stride;
        let sum = |rows: &[u32]| {
            statistics.ask()?;
            let mut sums = Self::new(stride, kinds)?;
            add_all(&mut sums, statistics, rows, weights);
            Ok(sums)
        };
        let mut sums = Self::new(stride, kinds)?;
        if rows.len() * stride < PARALLEL_FROM {
            for rows in rows.chunks(ROWS) {
                sums.add_sums(&sum(rows)?);
            }
        } else {
            for part in &parts(rows.par_chunks(ROWS).map(sum))? {
                sums.add_sums(part);
            }
        }
        Ok(sums)
    }
}
