//! Rows of which only some columns are wanted, made block by block.

use crate::CsrOwned;
use manylabel_base::{Error, extend, few, parts, reserved};
use rayon::prelude::*;
use std::ops::Range;

/// What some rows picked, row after row.
#[derive(Debug, Clone, Default)]
pub struct Picked {
    /// Columns with values; those of a row in increasing order.
    pub pairs: Vec<(u32, f32)>,
    /// Where each row ends among them.
    pub ends: Vec<usize>,
}

impl Picked {
    /// Says that the pairs of the next row are complete.
    pub fn end_row(&mut self) {
        self.ends.push(self.pairs.len());
    }

    /// Calls `block` with rows 0 to `n_rows`, `at_once` at a time, and with what to push them to;
    /// on this thread if they are so few, else on all of the pool, with one `scratch` each. Ends of
    /// rows have room; who pushes pairs sees to it himself.
    ///
    /// # Errors
    ///
    /// One that `scratch` or `block` returns, [`Error::TooLarge`].
    pub fn by_blocks<S>(
        n_rows: usize,
        at_once: usize,
        n_cols: usize,
        scratch: impl Fn() -> Result<S, Error> + Sync,
        block: impl Fn(&mut S, Range<usize>, &mut Self) -> Result<(), Error> + Sync,
    ) -> Result<CsrOwned, Error> {
        let of_block = |kept: &mut Option<S>, at: usize| {
            let scratch = match kept {
                Some(scratch) => scratch,
                None => kept.insert(scratch()?),
            };
            let rows = at * at_once..((at + 1) * at_once).min(n_rows);
            let mut picked = Self {
                pairs: Vec::new(),
                ends: reserved("number of rows", rows.len())?,
            };
            block(scratch, rows, &mut picked)?;
            Ok(picked)
        };
        let blocks = match n_rows.div_ceil(at_once) {
            1 => few([of_block(&mut None, 0)?]),
            n_blocks => parts((0..n_blocks).into_par_iter().map_init(|| None, of_block))?,
        };
        Self::joined(blocks, n_cols)
    }

    /// One matrix of the rows of all blocks.
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] if it does not fit in memory.
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
        // Row r has columns 0 to r % 3.
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
