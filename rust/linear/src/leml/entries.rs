//! The loss over the known entries of Y, its gradient, and products with its Hessian.
//!
//! The score of an entry is `z_ij = a_i · h_j`, with a row of `A = X W` and a row of H. The loss is
//! symmetric in the two factors. So the code here speaks of the *own* factor, in which derivatives are taken,
//! and the *other* one: for W the own rows are those of A, for H those of H ([`Entries::of_rows`],
//! [`Entries::of_labels`]).
//!
//! With `ω_ij` the weight of the entry's row, and own and other rows o and p of entry e,
//!
//! ```text
//! gradient    Σ_e ω ℓ'(z) p
//! Hessian·t   Σ_e ω ℓ''(z) (t_o · p) p
//! ```
//!
//! Threads work on blocks of own rows, so that sums are not shared between them. Stored entries are visited
//! one by one, in O(r) each. If all entries are known, scores are computed by matrix products of tiles.

use super::params::Loss;
use super::turns::Labels;
use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use manylabel_base::{Error, Watch, extend, filled, parts, reserved};
use manylabel_dense::zeros;
use manylabel_sparse::CsrOwned;
use rayon::prelude::*;
use std::ops::Range;

/// Rows of the own factor in a block of work.
const OWN_ROWS: usize = 64;

/// Rows of the other factor whose scores with a block are computed together.
const OTHER_ROWS: usize = 512;

impl Loss {
    /// The loss `ℓ(z)` of an entry y.
    pub(super) fn value(self, z: f32, y: f32) -> f32 {
        let margin = (2.0 * y - 1.0) * z;
        match self {
            Self::Squared => (z - y).powi(2) / 2.0,
            // Stable for large |z|: the exponential is at most 1.
            Self::Logistic => (-margin.abs()).exp().ln_1p() + (-margin).max(0.0),
            Self::SquaredHinge => (1.0 - margin).max(0.0).powi(2) / 2.0,
        }
    }

    /// The derivative `ℓ'(z)`.
    fn slope(self, z: f32, y: f32) -> f32 {
        let sign = 2.0 * y - 1.0;
        match self {
            Self::Squared => z - y,
            Self::Logistic => -sign / (1.0 + (sign * z).exp()),
            Self::SquaredHinge => -sign * (1.0 - sign * z).max(0.0),
        }
    }

    /// The second derivative `ℓ''(z)`; for squared hinge a generalized one.
    fn curvature(self, z: f32, y: f32) -> f32 {
        match self {
            Self::Squared => 1.0,
            Self::Logistic => {
                let e = (-z.abs()).exp();
                e / (1.0 + e).powi(2)
            }
            Self::SquaredHinge => f32::from(u8::from((2.0 * y - 1.0) * z < 1.0)),
        }
    }
}

/// What to compute.
#[derive(Clone, Copy)]
pub(super) enum Ask<'a> {
    /// The loss alone.
    Value,
    /// The loss, and its gradient in the own factor.
    Gradient,
    /// The product of the Hessian in the own factor with a direction, which has the shape of that factor.
    Product(&'a [f32]),
}

/// The known entries of Y, their loss, and the weights of rows.
#[derive(Clone, Copy)]
pub(super) struct Entries<'a> {
    pub(super) labels: &'a Labels,
    pub(super) loss: Loss,
    /// (n); all are 1 without them.
    pub(super) weights: Option<&'a [f32]>,
}

/// Entries ordered by the rows of the own factor.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    entries: Entries<'a>,
    /// The stored entries of each own row: columns are other rows.
    own: &'a CsrOwned,
    /// Whether own rows are rows of Y; otherwise they are labels.
    of_rows: bool,
}

impl<'a> Entries<'a> {
    /// The side of A: an own row for each row of Y.
    pub(super) fn of_rows(self) -> Side<'a> {
        Side {
            entries: self,
            own: &self.labels.by_row,
            of_rows: true,
        }
    }

    /// The side of H: an own row for each label.
    pub(super) fn of_labels(self) -> Side<'a> {
        Side {
            entries: self,
            own: &self.labels.by_label,
            of_rows: false,
        }
    }
}

impl Side<'_> {
    /// The loss over all known entries (0 for [`Ask::Product`]), and the gradient or product that is asked
    /// for, with a row for each row of `own` (empty for [`Ask::Value`]).
    ///
    /// Both factors are stored row after row, `rank` numbers each.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if memory is short. Returns [`Error::Stopped`] if the watch was
    /// stopped.
    pub(super) fn answer(
        &self,
        ask: Ask<'_>,
        own: &[f32],
        other: &[f32],
        rank: usize,
        watch: &Watch,
    ) -> Result<(f64, Vec<f32>), Error> {
        let out_rank = if matches!(ask, Ask::Value) { 0 } else { rank };
        let n_rows = own.len() / rank;
        let blocks = (0..n_rows.div_ceil(OWN_ROWS)).into_par_iter();
        let blocks = blocks.map(|block| {
            let rows = block * OWN_ROWS..((block + 1) * OWN_ROWS).min(n_rows);
            let mut block = Block {
                side: self,
                ask,
                rows: rows.clone(),
                own: &own[rows.start * rank..rows.end * rank],
                other,
                rank,
                loss: 0.0,
                out: filled("rows of a gradient", 0.0, rows.len() * out_rank)?,
            };
            if self.entries.labels.all {
                block.all(watch)?;
            } else {
                block.stored(watch)?;
            }
            Ok((block.loss, block.out))
        });
        let blocks = parts(blocks)?;
        let loss = blocks.iter().map(|(loss, _)| loss).sum();
        let mut all = reserved("rows of a gradient", n_rows * out_rank)?;
        for (_, out) in blocks {
            extend("rows of a gradient", &mut all, out)?;
        }
        Ok((loss, all))
    }

    /// The weight of the row of Y to which an entry belongs.
    fn weight(&self, own: usize, other: usize) -> f32 {
        let row = if self.of_rows { own } else { other };
        self.entries.weights.map_or(1.0, |weights| weights[row])
    }
}

/// Some rows of the own factor, and what has been computed for them so far.
struct Block<'a> {
    side: &'a Side<'a>,
    ask: Ask<'a>,
    /// Which rows these are.
    rows: Range<usize>,
    /// These rows of the own factor.
    own: &'a [f32],
    /// All rows of the other factor.
    other: &'a [f32],
    rank: usize,
    /// The loss of their entries.
    loss: f64,
    /// Their rows of the gradient or product.
    out: Vec<f32>,
}

impl Block<'_> {
    /// The rows of the direction that belong to the block, for [`Ask::Product`].
    fn directions(&self) -> Option<&[f32]> {
        match self.ask {
            Ask::Product(direction) => {
                Some(&direction[self.rows.start * self.rank..self.rows.end * self.rank])
            }
            _ => None,
        }
    }

    /// The coefficient of the other row in the gradient or product, for an entry y with the score z. `t` is
    /// the product of the direction with the other row. Adds the loss to `sum`, unless a product is asked
    /// for.
    fn pull(loss: Loss, ask: Ask<'_>, z: f32, t: f32, y: f32, weight: f32, sum: &mut f32) -> f32 {
        match ask {
            Ask::Value => {
                *sum += weight * loss.value(z, y);
                0.0
            }
            Ask::Gradient => {
                *sum += weight * loss.value(z, y);
                weight * loss.slope(z, y)
            }
            Ask::Product(_) => weight * loss.curvature(z, y) * t,
        }
    }

    /// Visits the stored entries one by one.
    fn stored(&mut self, watch: &Watch) -> Result<(), Error> {
        let rank = self.rank;
        let mut out = filled("rows of a gradient", 0.0, self.out.len().min(rank))?;
        for (at, row) in self.rows.clone().enumerate() {
            watch.step(0)?;
            out.fill(0.0);
            let own = &self.own[at * rank..][..rank];
            let direction = self.directions().map(|all| &all[at * rank..][..rank]);
            let (others, values) = self.side.own.row(row);
            let mut sum = 0.0;
            for (&other, &y) in others.iter().zip(values) {
                let part = &self.other[other as usize * rank..][..rank];
                let z = dot(own, part);
                let t = direction.map_or(0.0, |direction| dot(direction, part));
                let weight = self.side.weight(row, other as usize);
                let loss = self.side.entries.loss;
                let pull = Self::pull(loss, self.ask, z, t, y, weight, &mut sum);
                for (out, part) in out.iter_mut().zip(part) {
                    *out += pull * part;
                }
            }
            self.loss += f64::from(sum);
            if !out.is_empty() {
                self.out[at * rank..][..rank].copy_from_slice(&out);
            }
        }
        Ok(())
    }

    /// Visits all entries, tile by tile; those that are not stored are 0.
    fn all(&mut self, watch: &Watch) -> Result<(), Error> {
        let (rank, n_own) = (self.rank, self.rows.len());
        let n_other = self.other.len() / rank;
        let mut next = [0; OWN_ROWS];
        for first in (0..n_other).step_by(OTHER_ROWS) {
            watch.step(0)?;
            let others = first..(first + OTHER_ROWS).min(n_other);
            let width = others.len();
            let part = &self.other[others.start * rank..others.end * rank];
            let part = MatRef::from_row_major_slice(part, width, rank);
            // A column for each own row, so that the scores of an own row are contiguous.
            let scores = |own: &[f32]| {
                let own = MatRef::from_row_major_slice(own, n_own, rank);
                let mut scores = zeros::<f32>("scores of some rows", width, n_own)?;
                matmul(
                    &mut scores,
                    Accum::Replace,
                    part,
                    own.transpose(),
                    1.0,
                    Par::Seq,
                );
                Ok::<_, Error>(scores)
            };
            let mut pulls = scores(self.own)?;
            let rises = self.directions().map(scores).transpose()?;
            for (at, next) in next[..n_own].iter_mut().enumerate() {
                let row = self.rows.start + at;
                let (stored, values) = self.side.own.row(row);
                let mut sum = 0.0;
                for (i, pull) in pulls.col_mut(at).iter_mut().enumerate() {
                    let other = first + i;
                    let mut y = 0.0;
                    if stored
                        .get(*next)
                        .is_some_and(|&next| next as usize == other)
                    {
                        y = values[*next];
                        *next += 1;
                    }
                    let t = rises.as_ref().map_or(0.0, |rises| rises[(i, at)]);
                    let weight = self.side.weight(row, other);
                    let loss = self.side.entries.loss;
                    *pull = Self::pull(loss, self.ask, *pull, t, y, weight, &mut sum);
                }
                self.loss += f64::from(sum);
            }
            if !self.out.is_empty() {
                let out = MatMut::from_row_major_slice_mut(&mut self.out, n_own, rank);
                matmul(out, Accum::Add, pulls.transpose(), part, 1.0, Par::Seq);
            }
        }
        Ok(())
    }
}

/// The dot product, in sixteen partial sums.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (a16, b16) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = (a16.remainder().iter().zip(b16.remainder()))
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in a16.zip(b16) {
        for lane in 0..16 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    rest + lanes.iter().sum::<f32>()
}
