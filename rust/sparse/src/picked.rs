//! Rows of which only some columns are wanted, made block by block.

use crate::CsrOwned;
use manylabel_base::Error;
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
    /// on this thread if they are so few, else on all of the pool, with one `scratch` each.
    ///
    /// # Errors
    ///
    /// The first that `block` returns.
    pub fn by_blocks<S>(
        n_rows: usize,
        at_once: usize,
        n_cols: usize,
        scratch: impl Fn() -> S + Sync,
        block: impl Fn(&mut S, Range<usize>, &mut Self) -> Result<(), Error> + Sync,
    ) -> Result<CsrOwned, Error> {
        let of_block = |scratch: &mut S, first: usize| {
            let mut picked = Self::default();
            block(scratch, first..(first + at_once).min(n_rows), &mut picked)?;
            Ok(picked)
        };
        let firsts: Vec<usize> = (0..n_rows).step_by(at_once).collect();
        let blocks: Vec<Self> = match firsts[..] {
            [first] => vec![of_block(&mut scratch(), first)?],
            _ => firsts
                .par_iter()
                .map_init(&scratch, |scratch, &first| of_block(scratch, first))
                .collect::<Result<_, Error>>()?,
        };
        Ok(Self::joined(blocks, n_cols))
    }

    /// One matrix of the rows of all blocks.
    pub fn joined(blocks: Vec<Self>, n_cols: usize) -> CsrOwned {
        let n_rows = blocks.iter().map(|block| block.ends.len()).sum::<usize>();
        let size = blocks.iter().map(|block| block.pairs.len()).sum();
        let mut out = CsrOwned {
            indptr: Vec::with_capacity(n_rows + 1),
            indices: Vec::with_capacity(size),
            values: Vec::with_capacity(size),
            n_cols,
        };
        out.indptr.push(0);
        for Self { pairs, ends } in blocks {
            let before = out.indices.len();
            out.indptr.extend(ends.iter().map(|end| before + end));
            out.indices.extend(pairs.iter().map(|&(col, _)| col));
            out.values.extend(pairs.iter().map(|&(_, value)| value));
        }
        out
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
                || (),
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
