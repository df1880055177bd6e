//! Provides arithmetic on arrays with one number per label. Eight labels are processed at a time.
//!
//! All rows of scores, gradients and sums are padded to a multiple of [`WIDTH`] labels. Padding
//! labels have gradients of 0. Sums over a padded row therefore equal sums over the labels.
//!
//! The functions here are inlined into the loops that call them (`#[inline(always)]`). The `wide` attribute
//! compiles these loops for several instruction sets. Each label is summed separately, in the order of the
//! rows. Labels with equal gradients therefore have exactly equal sums.

use manylabel_base::{Error, Watch, filled, reserved};
pub(crate) use manylabel_simd::{add_scaled, total};
use std::ops::{Deref, DerefMut};

/// Number of labels per chunk. Eight `f64` fill one cache line.
pub(crate) const WIDTH: usize = 8;

/// Number of zeros that are written between two checks whether the computation should stop: 8 MiB.
const ZEROS_AT_ONCE: usize = 1 << 20;

/// A vector of `f64` that starts at the beginning of a cache line. A chunk of eight numbers then lies in one
/// cache line. Reading or writing a chunk in two cache lines would take twice as long. If the allocation
/// cannot be aligned, access is slower, but results are the same.
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
    /// Allocates `len` zeros. The error message contains `what`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the zeros do not fit in memory.
    pub(crate) fn zeros(what: &'static str, len: usize) -> Result<Self, Error> {
        Ok(Self::of_room(
            filled(what, 0.0, len.saturating_add(WIDTH - 1))?,
            len,
        ))
    }

    /// Does the same as [`zeros`](Self::zeros), and checks regularly whether the computation should stop. The
    /// first write to a page of new memory can be slow: 1 GB can take seconds.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the zeros do not fit in memory, or the error of `watch`.
    #[expect(clippy::disallowed_methods, reason = "the memory is reserved")]
    pub(crate) fn zeros_watched(
        what: &'static str,
        len: usize,
        watch: &Watch,
    ) -> Result<Self, Error> {
        let size = len.saturating_add(WIDTH - 1);
        let mut room = reserved(what, size)?;
        while room.len() < size {
            watch.step(0)?;
            room.resize(size.min(room.len() + ZEROS_AT_ONCE), 0.0);
        }
        Ok(Self::of_room(room, len))
    }

    /// Returns the vector of `len` numbers in `room` that starts at the beginning of a cache line.
    fn of_room(room: Vec<f64>, len: usize) -> Self {
        let start = room.as_ptr().align_offset(size_of::<[f64; WIDTH]>());
        let start = start.min(WIDTH - 1);
        Self { room, start, len }
    }

    /// Returns a copy of the vector. The error message contains `what`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the copy does not fit in memory.
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

/// Returns `n` rounded up to a multiple of [`WIDTH`].
pub(crate) fn padded(n: usize) -> usize {
    n.next_multiple_of(WIDTH)
}

/// Returns the chunks of eight labels of a padded row.
#[inline(always)]
pub(crate) fn chunks(row: &[f64]) -> &[[f64; WIDTH]] {
    row.as_chunks().0
}

/// Returns the mutable chunks of eight labels of a padded row.
#[inline(always)]
pub(crate) fn chunks_mut(row: &mut [f64]) -> &mut [[f64; WIDTH]] {
    row.as_chunks_mut().0
}

/// Returns `Σ_k x_k y_k` of two padded rows. First, eight partial sums are computed, each over every eighth
/// label. Then the partial sums are added. The order of the sum is therefore fixed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watched_zeros_are_zeros_and_end_when_stopped() {
        let watch = Watch::default();
        for len in [0, 5, ZEROS_AT_ONCE, ZEROS_AT_ONCE + 3] {
            let plain = Aligned::zeros("zeros", len).expect("small");
            let watched = Aligned::zeros_watched("zeros", len, &watch).expect("small");
            assert_eq!(*watched, *plain);
            assert_eq!(watched.as_ptr() as usize % size_of::<[f64; WIDTH]>(), 0);
        }
        watch.stop();
        let stopped = Aligned::zeros_watched("zeros", 5, &watch);
        assert!(matches!(stopped, Err(Error::Stopped)));
    }
}
