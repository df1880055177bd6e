//! Computes the loss over the known entries of Y, its gradient, and products with its Hessian.
//!
//! The score of an entry is `z_ij = a_i · h_j`, where `a_i` is a row of `A = X W` and `h_j` is a row of
//! H. The code handles the two factors A and H in the same way. It calls one of them the *own* factor
//! and the other one the *other* factor. Derivatives are taken with respect to the own factor. The own
//! factor is A for [`Entries::of_rows`] and H for [`Entries::of_labels`].
//!
//! Let z be the score of an entry, ω the weight of the entry, and ℓ(z) its loss. The weight of an entry is the
//! product of the weights of its row and its label in Y. An entry e belongs to one row of each factor. Let o be the number of the row in the own factor,
//! and let the vector p be the row of the other factor. Let t be a direction, which is a matrix of the shape
//! of the own factor, and let `t_o` be its row o. Row o of a result is a sum over the known entries e of row
//! o of the own factor:
//!
//! ```text
//! gradient    Σ_e ω ℓ'(z) p
//! Hessian·t   Σ_e ω ℓ''(z) (t_o · p) p
//! ```
//!
//! Threads work on blocks of rows of the own factor, so no two threads add to the same sum. If only
//! some entries are known, they are visited one by one, in O(r) time each, where r is the number of
//! columns of the factors. If all entries are known, or only unknown entries are stored besides the ones, scores
//! are computed by matrix products. Unknown entries then have the weight 0.
//!
//! Squared loss needs no scores of entries that are 0. Let G be `Σ ω p pᵀ` over all rows of the other factor,
//! where ω is the weight of the row or label of p, and let `ω_o` be the weight of the label or row of o. Row o of
//! the gradient is then `ω_o G a_o − Σ_ones ω p − Σ_unknown ω z p`, and row o of the product with the Hessian is
//! `ω_o G t_o − Σ_unknown ω (t_o · p) p`. So one product with G and the stored entries are enough.

use super::loss::{Stretch, Wanted};
use super::params::Loss;
use super::turns::Labels;
use faer::{Accum, MatMut, MatRef};
use manylabel_base::{Error, Watch, collected, extend, filled, parts, reserved};
use manylabel_dense::{matmul, zeros};
use manylabel_sparse::CsrOwned;
use rayon::prelude::*;
use std::ops::Range;

/// Number of rows of the own factor in a block. The own factor is the one for which derivatives are
/// computed.
const OWN_ROWS: usize = 64;

/// Number of rows of the other factor that are multiplied with a block at a time.
const OTHER_ROWS: usize = 512;

/// The quantity to compute from the known entries.
#[derive(Clone, Copy)]
pub(super) enum Ask<'a> {
    /// Only the loss.
    Value,
    /// The loss, and its gradient with respect to the own factor (the factor that is being
    /// updated).
    Gradient,
    /// The product of the Hessian with a direction. The Hessian is taken with respect to the own
    /// factor (the factor that is being updated). The direction has the shape of this factor.
    Product(&'a [f32]),
}

impl Ask<'_> {
    /// Returns the result to compute for each entry.
    fn wanted(&self) -> Wanted {
        match self {
            Self::Value => Wanted::Value,
            Self::Gradient => Wanted::Slope,
            Self::Product(_) => Wanted::Product,
        }
    }
}

/// The known entries of Y, their loss, and the weights of the rows.
#[derive(Clone, Copy)]
pub(super) struct Entries<'a> {
    pub(super) labels: &'a Labels,
    pub(super) loss: Loss,
    /// The weights of the rows; shape (n). If this is None, all weights are 1.
    pub(super) weights: Option<&'a [f32]>,
}

/// The known entries of Y, grouped by the rows of one factor, which is called the own factor.
pub(super) struct Side<'a> {
    entries: Entries<'a>,
    /// The known entries: one row for each row of the own factor, one column for each row of the
    /// other factor.
    own: &'a CsrOwned,
    /// True if the own factor (the factor that is being updated) has one row for each row of Y. False if it has
    /// one row for each label.
    of_rows: bool,
    /// The matrix G of the other factor, row by row; shape (rank, rank). It is given for squared loss if all
    /// entries that are not stored are 0.
    gram: Option<Vec<f32>>,
}

impl<'a> Entries<'a> {
    /// Returns the known entries, grouped by row of Y. Derivatives are then taken with respect to A
    /// = X W.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(super) fn of_rows(self, other: &[f32], rank: usize) -> Result<Side<'a>, Error> {
        Ok(Side {
            entries: self,
            own: &self.labels.by_row,
            of_rows: true,
            gram: self.gram(other, rank, self.labels.weights.as_deref())?,
        })
    }

    /// Returns the known entries, grouped by label. Derivatives are then taken with respect to H.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    pub(super) fn of_labels(self, other: &[f32], rank: usize) -> Result<Side<'a>, Error> {
        Ok(Side {
            entries: self,
            own: &self.labels.by_label,
            of_rows: false,
            gram: self.gram(other, rank, self.weights)?,
        })
    }

    /// Returns the weight of a row of Y.
    fn weight(&self, row: usize) -> f32 {
        self.weights.map_or(1.0, |weights| weights[row])
    }

    /// Returns the matrix G of a factor whose rows have the given weights, if it is needed.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory.
    fn gram(
        &self,
        factor: &[f32],
        rank: usize,
        weights: Option<&[f32]>,
    ) -> Result<Option<Vec<f32>>, Error> {
        if self.loss != Loss::Squared || !self.labels.all {
            return Ok(None);
        }
        let mut gram = filled("the Gram matrix", 0.0f64, rank * rank)?;
        gram.par_chunks_mut(rank).enumerate().for_each(|(k, sums)| {
            for (row, p) in factor.chunks_exact(rank).enumerate() {
                let weight = weights.map_or(1.0, |weights| f64::from(weights[row]));
                let scale = weight * f64::from(p[k]);
                for (sum, &p) in sums.iter_mut().zip(p) {
                    *sum += scale * f64::from(p);
                }
            }
        });
        let gram = gram.iter().map(|&sum| sum as f32);
        Ok(Some(collected("the Gram matrix", gram)?))
    }
}

impl Side<'_> {
    /// Computes the loss over all known entries, and the requested gradient or product. For
    /// [`Ask::Product`], the returned loss is 0. The gradient or product has one row for each row
    /// of `own`. For [`Ask::Value`], it is empty.
    ///
    /// The two factors `own` and `other` are stored row by row, with `rank` numbers per row.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if there is not enough memory. Returns [`Error::Stopped`] if the caller
    /// requested a stop.
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
                out: filled("the gradient matrix", 0.0, rows.len() * out_rank)?,
            };
            if let Some(gram) = &self.gram {
                block.implicit(gram, watch)?;
            } else if self.entries.labels.all {
                block.all(watch)?;
            } else {
                block.stored(watch)?;
            }
            Ok((block.loss, block.out))
        });
        let blocks = parts(blocks)?;
        let loss = blocks.iter().map(|(loss, _)| loss).sum();
        let mut all = reserved("the gradient matrix", n_rows * out_rank)?;
        for (_, out) in blocks {
            extend("the gradient matrix", &mut all, out)?;
        }
        Ok((loss, all))
    }

    /// Returns the weight of an entry. `own` and `other` are the numbers of the rows that belong to the entry in
    /// the two factors.
    fn weight(&self, own: usize, other: usize) -> f32 {
        let (row, label) = if self.of_rows {
            (own, other)
        } else {
            (other, own)
        };
        self.entries.weight(row) * self.entries.labels.weight(label)
    }

    /// Returns the weight of the row of Y, or of the label, that belongs to a row of the own factor.
    fn own_weight(&self, own: usize) -> f32 {
        if self.of_rows {
            self.entries.weight(own)
        } else {
            self.entries.labels.weight(own)
        }
    }
}

/// A block of rows of the own factor, and the results for these rows. The own factor is the one for
/// which derivatives are computed.
struct Block<'a> {
    side: &'a Side<'a>,
    ask: Ask<'a>,
    /// The range of the rows of the block.
    rows: Range<usize>,
    /// The numbers of the own factor in these rows.
    own: &'a [f32],
    /// All rows of the other factor.
    other: &'a [f32],
    rank: usize,
    /// The loss of the known entries in these rows.
    loss: f64,
    /// The gradient or product for these rows.
    out: Vec<f32>,
}

impl Block<'_> {
    /// Returns the rows of the direction that belong to the block. Returns None unless a product
    /// with a direction is requested.
    fn directions(&self) -> Option<&[f32]> {
        match self.ask {
            Ask::Product(direction) => {
                Some(&direction[self.rows.start * self.rank..self.rows.end * self.rank])
            }
            _ => None,
        }
    }

    /// Replaces the scores `z` of entries by the factors of p in the formulas of the module documentation:
    /// `ω ℓ'(z)` for a gradient, and `ω ℓ''(z) (t_o · p)` for a product. If only the loss is requested, the
    /// scores do not change. `t` holds the numbers `t_o · p`, and is empty unless a product is requested.
    /// Returns the sum of the losses, or 0 for a product.
    fn pull(&self, z: &mut [f32], t: &[f32], y: &[f32], weights: &[f32]) -> f64 {
        let stretch = Stretch { z, t, y, weights };
        let loss = self.side.entries.loss;
        f64::from(loss.of_stretch(self.ask.wanted(), stretch))
    }

    /// Processes the stored entries row by row, and up to [`OTHER_ROWS`] entries of a row at a time.
    fn stored(&mut self, watch: &Watch) -> Result<(), Error> {
        let rank = self.rank;
        let (mut all_z, mut all_t) = ([0.0; OTHER_ROWS], [0.0; OTHER_ROWS]);
        let mut all_weights = [1.0; OTHER_ROWS];
        let mut out = filled("the gradient matrix", 0.0, self.out.len().min(rank))?;
        for (at, row) in self.rows.clone().enumerate() {
            watch.step(0)?;
            out.fill(0.0);
            let own = &self.own[at * rank..][..rank];
            let direction = self.directions().map(|all| &all[at * rank..][..rank]);
            let part = |other: u32| &self.other[other as usize * rank..][..rank];
            let (others, values) = self.side.own.row(row);
            let mut loss = 0.0;
            for (others, values) in others.chunks(OTHER_ROWS).zip(values.chunks(OTHER_ROWS)) {
                let n = others.len();
                let (z, weights) = (&mut all_z[..n], &mut all_weights[..n]);
                let t = &mut all_t[..if direction.is_some() { n } else { 0 }];
                for (at, &other) in others.iter().enumerate() {
                    z[at] = dot(own, part(other));
                    if let Some(direction) = direction {
                        t[at] = dot(direction, part(other));
                    }
                    weights[at] = self.side.weight(row, other as usize);
                }
                loss += self.pull(z, t, values, weights);
                if !out.is_empty() {
                    for (&pull, &other) in z.iter().zip(others) {
                        for (out, part) in out.iter_mut().zip(part(other)) {
                            *out += pull * part;
                        }
                    }
                }
            }
            self.loss += loss;
            if !out.is_empty() {
                self.out[at * rank..][..rank].copy_from_slice(&out);
            }
        }
        Ok(())
    }

    /// Processes all entries of squared loss. Entries that are not stored are 0, and their scores are not
    /// computed.
    fn implicit(&mut self, gram: &[f32], watch: &Watch) -> Result<(), Error> {
        let rank = self.rank;
        let mut sums = filled("the gradient matrix", 0.0, rank)?;
        for (at, row) in self.rows.clone().enumerate() {
            watch.step(0)?;
            let own = &self.own[at * rank..][..rank];
            let direction = self.directions().map(|all| &all[at * rank..][..rank]);
            // The weights of the other factor are in G.
            let weight = self.side.own_weight(row);
            for (sum, of_gram) in sums.iter_mut().zip(gram.chunks_exact(rank)) {
                *sum = weight * dot(direction.unwrap_or(own), of_gram);
            }
            let mut loss = match direction {
                Some(_) => 0.0,
                None => f64::from(dot(own, &sums)) / 2.0,
            };
            let (others, values) = self.side.own.row(row);
            for (&other, &value) in others.iter().zip(values) {
                let part = &self.other[other as usize * rank..][..rank];
                let weight = self.side.weight(row, other as usize);
                let z = dot(direction.unwrap_or(own), part);
                let pull = match (value.is_nan(), direction) {
                    (true, Some(_)) => z,
                    (true, None) => {
                        loss -= f64::from(weight * z * z) / 2.0;
                        z
                    }
                    (false, Some(_)) => 0.0,
                    (false, None) => {
                        loss += f64::from(weight) * (0.5 - f64::from(z));
                        1.0
                    }
                };
                for (sum, part) in sums.iter_mut().zip(part) {
                    *sum -= weight * pull * part;
                }
            }
            self.loss += loss;
            if !self.out.is_empty() {
                self.out[at * rank..][..rank].copy_from_slice(&sums);
            }
        }
        Ok(())
    }

    /// Processes all entries, in groups of rows and labels. Entries that are not stored are 0.
    fn all(&mut self, watch: &Watch) -> Result<(), Error> {
        let (rank, n_own) = (self.rank, self.rows.len());
        let n_other = self.other.len() / rank;
        let mut next = [0; OWN_ROWS];
        let mut y = [0.0; OTHER_ROWS];
        let mut weights = [1.0; OTHER_ROWS];
        for first in (0..n_other).step_by(OTHER_ROWS) {
            watch.step(0)?;
            let others = first..(first + OTHER_ROWS).min(n_other);
            let width = others.len();
            let part = &self.other[others.start * rank..others.end * rank];
            let part = MatRef::from_row_major_slice(part, width, rank);
            // There is one column for each row of the own factor, so that the scores of such a row are
            // contiguous.
            let scores = |own: &[f32]| {
                let own = MatRef::from_row_major_slice(own, n_own, rank);
                let mut scores = zeros::<f32>("number of scores", width, n_own)?;
                matmul(&mut scores, Accum::Replace, part, own.transpose(), 1.0);
                Ok::<_, Error>(scores)
            };
            let mut pulls = scores(self.own)?;
            let rises = self.directions().map(scores).transpose()?;
            for (at, next) in next[..n_own].iter_mut().enumerate() {
                let row = self.rows.start + at;
                let (stored, values) = self.side.own.row(row);
                let begin = *next;
                let of_tile = stored[begin..].iter().zip(&values[begin..]);
                for (&other, &value) in
                    of_tile.take_while(|&(&other, _)| (other as usize) < others.end)
                {
                    y[other as usize - first] = value;
                    *next += 1;
                }
                let Entries {
                    labels,
                    weights: of_rows,
                    ..
                } = self.side.entries;
                if of_rows.is_some() || labels.weights.is_some() || !labels.complete {
                    for (weight, other) in weights.iter_mut().zip(others.clone()) {
                        *weight = self.side.weight(row, other);
                    }
                }
                for &other in &stored[begin..*next] {
                    let at = other as usize - first;
                    if y[at].is_nan() {
                        (y[at], weights[at]) = (0.0, 0.0);
                    }
                }
                let z = pulls.col_as_slice_mut(at);
                let t = rises
                    .as_ref()
                    .map_or(&[][..], |rises| rises.col_as_slice(at));
                self.loss += self.pull(z, t, &y[..width], &weights[..width]);
                for &other in &stored[begin..*next] {
                    y[other as usize - first] = 0.0;
                }
            }
            if !self.out.is_empty() {
                let out = MatMut::from_row_major_slice_mut(&mut self.out, n_own, rank);
                matmul(out, Accum::Add, pulls.transpose(), part, 1.0);
            }
        }
        Ok(())
    }
}

/// Returns the dot product of two vectors, computed with sixteen partial sums.
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
