//! Arithmetic on rows of labels, eight labels at a time.
//!
//! All rows of scores, gradients and sums are padded to a multiple of [`WIDTH`] labels. Padding
//! labels have gradients of 0, so sums over a padded row equal those over the labels.
//!
//! Functions here are `#[inline(always)]`: they become part of the calling loop, which the `wide`
//! attribute compiles for several instruction sets. Sums over rows treat each label on its own and
//! in the order of rows, so labels with equal gradients have equal sums to the last bit.

use manylabel_base::{Error, filled};
pub(crate) use manylabel_simd::{add_scaled, total};
use std::ops::{Deref, DerefMut};

/// Labels per chunk; eight `f64` fill one cache line.
pub(crate) const WIDTH: usize = 8;

/// A vector of `f64` that starts at a cache line. No chunk of a padded row in it crosses two lines,
/// which would take twice as long to read or write. Where the allocation cannot be aligned, access
/// is slower and results are the same.
#[derive(Debug)]
pub(crate) struct Aligned {
    /// The allocation, up to seven numbers longer than the vector.
    room: Vec<f64>,
    /// Index of the first number in `room`.
    start: usize,
    /// Length of the vector.
    len: usize,
}

impl Aligned {
    /// `len` zeros; `what` is named in the error.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if they do not fit in memory.
    pub(crate) fn zeros(what: &'static str, len: usize) -> Result<Self, Error> {
        let room = filled(what, 0.0, len.saturating_add(WIDTH - 1))?;
        let start = room.as_ptr().align_offset(size_of::<[f64; WIDTH]>());
        let start = start.min(WIDTH - 1);
        Ok(Self { room, start, len })
    }

    /// A copy of the vector; `what` is named in the error.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if it does not fit in memory.
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

/// `n` rounded up to a multiple of [`WIDTH`].
pub(crate) fn padded(n: usize) -> usize {
    n.next_multiple_of(WIDTH)
}

/// The chunks of a padded row.
#[inline(always)]
pub(crate) fn chunks(row: &[f64]) -> &[[f64; WIDTH]] {
    row.as_chunks().0
}

/// The chunks of a padded row, mutable.
#[inline(always)]
pub(crate) fn chunks_mut(row: &mut [f64]) -> &mut [[f64; WIDTH]] {
    row.as_chunks_mut().0
}

/// `Σ_k x_k y_k` of two padded rows. Labels are summed by lane, then the eight lanes are added, so
/// the order of the sum is fixed.
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
