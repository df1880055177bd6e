//! Builds sparse results block by block. A sparse result holds a few columns with values for each row.
//!
//! Rankings, labels above a threshold and merged predictions of several models are sparse results. Threads
//! process blocks of rows, and each block fills its own [`Picked`]. Then [`Picked::joined`] concatenates the
//! blocks in order of rows, so the result does not depend on the number of threads.

use crate::CsrOwned;
use manylabel_base::{Error, extend, few, parts_with, reserved};
use rayon::prelude::*;
use std::ops::Range;

/// Collects the columns and values of consecutive rows.
///
/// The caller appends the pairs of a row to [`pairs`](Self::pairs) and then calls
/// [`end_row`](Self::end_row).
#[derive(Debug, Clone, Default)]
pub struct Picked {
    /// Pairs of column and value, row after row. Within a row, columns are in increasing order.
    pub pairs: Vec<(u32, f32)>,
    /// The end of each finished row in `pairs`.
    pub ends: Vec<usize>,
}

impl Picked {
    /// Ends the current row. Within [`by_blocks`](Self::by_blocks) this call does not allocate, because
    /// `by_blocks` reserves the memory in advance.
    pub fn end_row(&mut self) {
        self.ends.push(self.pairs.len());
    }

    /// Returns the pairs of each finished row.
    pub fn rows(&self) -> impl Iterator<Item = &[(u32, f32)]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins
            .zip(&self.ends)
            .map(|(begin, &end)| &self.pairs[begin..end])
    }

    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.pairs.clear();
        self.ends.clear();
    }

    /// Computes a matrix of shape (`n_rows`, `n_cols`) in blocks of `at_once` rows.
    ///
    /// The function `block` receives a workspace, a range of rows and a [`Picked`]. It appends the results of
    /// these rows to the [`Picked`]. The function `scratch` creates the workspaces. A workspace is reused for
    /// several blocks. A single block runs on the calling thread. Several blocks run on the current thread
    /// pool. The memory for row ends is reserved in advance. The memory for pairs is not reserved: `block`
    /// appends pairs with [`extend`].
    ///
    /// # Errors
    ///
    /// Returns any error of `scratch` or `block`. Returns [`Error::TooLarge`] if the result does not
    /// fit in memory.
    ///
    /// # Panics
    ///
    /// Panics if `at_once` is 0.
    pub fn by_blocks<S: Send>(
        n_rows: usize,
        at_once: usize,
        n_cols: usize,
        scratch: impl Fn() -> Result<S, Error> + Sync + Send,
        block: impl Fn(&mut S, Range<usize>, &mut Self) -> Result<(), Error> + Sync + Send,
    ) -> Result<CsrOwned, Error> {
        let of_block = |scratch: &mut S, at: usize| {
            let rows = at * at_once..((at + 1) * at_once).min(n_rows);
            let mut picked = Self {
                pairs: Vec::new(),
                ends: reserved("number of rows", rows.len())?,
            };
            block(scratch, rows, &mut picked)?;
            Ok(picked)
        };
        let blocks = match n_rows.div_ceil(at_once) {
            1 => few([of_block(&mut scratch()?, 0)?]),
            n_blocks => parts_with((0..n_blocks).into_par_iter(), scratch, of_block)?,
        };
        Self::joined(blocks, n_cols)
    }

    /// Concatenates the rows of all blocks, in order, into one matrix with `n_cols` columns.
    ///
    /// Each block is freed after it is copied. The function does not check that columns are below
    /// `n_cols`.
    ///
    /// # Errors
    ///
    /// Returns [`Error::TooLarge`] if the result does not fit in memory.
    pub fn joined(blocks: Vec<Self>, n_cols: usize) -> Result<CsrOwned, Error> {
        const PAIRS: &str = "number of pairs of row and label";
        let n_rows = blocks.iter().map(|block| block.ends.len()).sum::<usize>();
        let size = blocks.iter().map(|block| block.pairs.len()).sum();
        let mut out = CsrOwned {
            indptr: reserved("number of rows", n_rows + 1)?,
            indices: reserved(PAIRS, size)?,
            values: reserved(PAIRS, size)?,
            n_cols,
        };
        out.indptr.push(0);
        for Self { pairs, ends } in blocks {
            let before = out.indices.len();
            let ends = ends.iter().map(|end| before + end);
            extend("number of rows", &mut out.indptr, ends)?;
            extend(PAIRS, &mut out.indices, pairs.iter().map(|&(col, _)| col))?;
            let values = pairs.iter().map(|&(_, value)| value);
            extend(PAIRS, &mut out.values, values)?;
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_size_make_the_same_rows() {
        // Row r has all columns below r % 3.
        for at_once in [1, 2, 5, 9] {
            let found = Picked::by_blocks(
                5,
                at_once,
                3,
                || Ok(()),
                |(), rows, picked| {
                    for row in rows {
                        let cols = 0..row as u32 % 3;
                        picked.pairs.extend(cols.map(|col| (col, row as f32)));
                        picked.end_row();
                    }
                    Ok(())
                },
            )
            .expect("rows");
            assert_eq!(found.indptr, [0, 0, 1, 3, 3, 4], "{at_once}");
            assert_eq!(found.indices, [0, 0, 1, 0], "{at_once}");
            assert_eq!(found.values, [1.0, 2.0, 2.0, 4.0], "{at_once}");
        }
    }
}
