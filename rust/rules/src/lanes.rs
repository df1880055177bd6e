//! Arithmetic on rows of labels, eight at a time.
//!
//! All rows of scores, gradients and sums are padded to a multiple of [`WIDTH`] labels, whose
//! gradients are 0. Functions here are `#[inline(always)]`, so that they become part of the loop
//! that uses them, which `wide` compiles for several instruction sets. Each label is added
//! up on its own and in the order of rows: labels with equal gradients have equal sums.

use manylabel_base::{Error, filled};
pub(crate) use manylabel_simd::{add_scaled, total};
use std::ops::{Deref, DerefMut};

/// Labels to a chunk; eight `f64` fill one cache line.
pub(crate) const WIDTH: usize = 8;

/// Numbers that begin with a cache line: no chunk of a padded row among them lies across two, which
/// would take twice as long to read or write.
#[derive(Debug)]
pub(crate) struct Aligned {
    room: Vec<f64>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Zeros; `what` is named if they do not fit in memory.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] then.
    pub(crate) fn zeros(what: &'static str, len: usize) -> Result<Self, Error> {
        let room = filled(what, 0.0, len.saturating_add(WIDTH - 1))?;
        let start = room.as_ptr().align_offset(size_of::<[f64; WIDTH]>());
        let start = start.min(WIDTH - 1);
        Ok(Self { room, start, len })
    }

    /// The same numbers at another place.
    ///
    /// # Errors
    ///
    /// As [`zeros`](Self::zeros).
    pub(crate) fn copied(&self, what: &'static str) -> Result<Self, Error> {
        let mut copy = Self::zeros(what, self.len)?;
        copy.copy_from_slice(self);
        Ok(copy)
    }
}

impl Deref for Aligned {
    type Target = [f64];

    #[inline(always)]
    fn deref(&self) -> &[f64] {
        &self.room[self.start..self.start + self.len]
    }
}

impl DerefMut for Aligned {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [f64] {
        &mut self.room[self.start..self.start + self.len]
    }
}

/// `n` rounded up to whole chunks.
pub(crate) fn padded(n: usize) -> usize {
    n.next_multiple_of(WIDTH)
}

/// The chunks of a padded row.
#[inline(always)]
pub(crate) fn chunks(row: &[f64]) -> &[[f64; WIDTH]] {
    row.as_chunks().0
}

/// The chunks of a padded row, to write.
#[inline(always)]
pub(crate) fn chunks_mut(row: &mut [f64]) -> &mut [[f64; WIDTH]] {
    row.as_chunks_mut().0
}

/// `Σ_k x_k y_k`.
#[inline(always)]
pub(crate) fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0; WIDTH];
    for (x, y) in chunks(x).iter().zip(chunks(y)) {
        for lane in 0..WIDTH {
            sums[lane] += x[lane] * y[lane];
        }
    }
    total(&sums)
}
