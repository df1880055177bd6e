//! Copies the rows that belong to each of many lists, if the matrix is larger than memory.
//!
//! If a matrix is in a file and does not fit in memory, reading the rows of a list takes up to one pass over the file. So
//! if there is a file for memory beyond the limit ([`budget`]), the rows of many lists are copied in one pass, in increasing
//! order. The copies may be in the file, too. The rows of a list are then read from its copy, which is much shorter.

use crate::{CsrOwned, CsrRef};
use manylabel_base::streams::{complete, growing};
use manylabel_base::{Error, Watch, budget, extend, filled, push};

/// The number of rows that are copied between two checks for a stop request.
const ROWS_PER_STEP: usize = 1 << 12;

/// The name of copied entries in error messages.
const ENTRIES: &str = "number of entries of copied rows";

/// The name of copied rows in error messages.
const ROWS: &str = "number of copied rows";

/// The rows of a list, in increasing order and without duplicates, and their copies in this order.
pub type CopiedRows = (Vec<u32>, CsrOwned);

impl CsrRef<'_> {
    /// Returns the largest number of entries that [`copy_lists`](Self::copy_lists) should copy at once on each thread.
    /// The copies of all threads together are then as large as the matrix. Returns `None` if rows can be read from the
    /// matrix: there is no file for memory beyond the limit, or the matrix is not larger than a [portion](budget::portion)
    /// of the limit.
    pub fn room_for_copies(self) -> Option<usize> {
        let n_entries = self.n_entries(0, self.n_rows());
        let size = n_entries.saturating_mul(size_of::<u32>() + size_of::<f32>());
        let is_large = budget::portion().is_some_and(|bytes| bytes < size);
        is_large.then(|| n_entries / rayon::current_num_threads())
    }

    /// Copies the rows of the first lists in one pass over the matrix: of the first list, and of as many of the following
    /// lists as have at most `room` entries together. A list may have rows in any order and several times.
    ///
    /// # Errors
    ///
    /// Returns any error of `lists`. Returns [`Error::TooLarge`] if there is not enough memory, and [`Error::Stopped`] if
    /// the caller requested a stop.
    pub fn copy_lists(
        self,
        lists: impl Iterator<Item = Result<Vec<u32>, Error>>,
        room: usize,
        watch: &Watch,
    ) -> Result<Vec<CopiedRows>, Error> {
        let mut copies: Vec<CopiedRows> = Vec::new();
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        let mut total = 0;
        for (at, rows) in (0..).zip(lists) {
            let mut rows = rows?;
            rows.sort_unstable();
            rows.dedup();
            let n_entries = rows.iter().map(|&row| self.row(row as usize).0.len()).sum();
            total += n_entries;
            if at > 0 && total > room {
                break;
            }
            let mut copy = CsrOwned {
                indptr: filled(ROWS, 0, rows.len() + 1)?,
                indices: growing(ENTRIES, n_entries)?,
                values: growing(ENTRIES, n_entries)?,
                n_cols: self.n_cols(),
            };
            for (place, &row) in rows.iter().enumerate() {
                copy.indptr[place + 1] = copy.indptr[place] + self.row(row as usize).0.len();
            }
            extend(ROWS, &mut pairs, rows.iter().map(|&row| (row, at)))?;
            push("number of lists", &mut copies, (rows, copy))?;
        }
        pairs.sort_unstable();
        for (step, &(row, at)) in pairs.iter().enumerate() {
            if step % ROWS_PER_STEP == 0 {
                watch.step(0)?;
            }
            let (cols, values) = self.row(row as usize);
            let (_, copy) = &mut copies[at as usize];
            extend(ENTRIES, &mut copy.indices, cols.iter().copied())?;
            extend(ENTRIES, &mut copy.values, values.iter().copied())?;
        }
        for (_, copy) in &copies {
            complete(&copy.indices);
            complete(&copy.values);
        }
        Ok(copies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_get_their_rows(
            lengths in prop::collection::vec(0..5usize, 1..12),
            lists in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..6), 1..9),
            room in 0..40usize,
        ) {
            let mut x = CsrOwned { indptr: vec![0], indices: Vec::new(), values: Vec::new(), n_cols: 5 };
            for (row, &length) in lengths.iter().enumerate() {
                x.indices.extend(0..length as u32);
                x.values.extend((0..length).map(|at| (10 * row + at) as f32));
                x.indptr.push(x.indices.len());
            }
            let rows = |at: usize| lists[at].iter().map(|row| row.index(lengths.len()) as u32).collect::<Vec<_>>();
            let mut begin = 0;
            while begin < lists.len() {
                let of_rest = (begin..lists.len()).map(|at| Ok(rows(at)));
                let copies = x.view().copy_lists(of_rest, room, &Watch::new()).expect("small");
                prop_assert!(copies.len() == 1 || copies.iter().map(|(_, copy)| copy.values.len()).sum::<usize>() <= room);
                for (found, copy) in &copies {
                    let mut expected = rows(begin);
                    expected.sort_unstable();
                    expected.dedup();
                    prop_assert_eq!(found, &expected);
                    prop_assert_eq!(copy.n_rows(), expected.len());
                    for (place, &row) in expected.iter().enumerate() {
                        prop_assert_eq!(copy.view().row(place), x.view().row(row as usize));
                    }
                    begin += 1;
                }
            }
        }
    }
}
