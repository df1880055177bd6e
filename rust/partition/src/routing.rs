//! Determines the blocks that each row is sent to.
//!
//! If a row is sent to more blocks, prediction takes longer. However, the predictions can then contain
//! labels that are not in the best block. A router is any [`Model`] whose labels are the blocks. Its
//! scores are interpreted as log-odds.

use manylabel_base::{Error, Watch, extend, reserved};
use manylabel_score::Model;
use manylabel_sparse::{CsrOwned, Features};

/// The rule that determines how many blocks a row is sent to. It uses the router's scores of the
/// blocks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Routing {
    /// Each row is sent to a fixed number of blocks: the blocks with the highest scores.
    Best(usize),
    /// A row is sent to more blocks if the router is less certain. The probability of a block is
    /// the logistic function of its score. Let P be the sum of the probabilities of the `most` best
    /// blocks of a row. The row is sent to only as many of its best blocks as needed: their
    /// probabilities must sum to at least `share` times P.
    Doubt {
        /// The maximum number of blocks of a row.
        most: usize,
        /// The fraction of the sum P of probabilities, from 0 to 1. With 0, each row is sent only
        /// to its best block.
        share: f64,
    },
}

impl Routing {
    /// Returns the blocks that each row is sent to, with the router's scores. The result is a
    /// matrix (`n_rows`, `n_blocks`). The blocks of a row are in increasing order.
    ///
    /// If blocks have equal scores, the block with the lower number is preferred. A row is never sent to a
    /// block with the score −∞. So a row may be sent to fewer blocks than the rule says, or to none.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Model::topk`].
    pub fn routes(
        &self,
        router: &dyn Model,
        x: Features<'_>,
        watch: &Watch,
    ) -> Result<CsrOwned, Error> {
        match *self {
            Self::Best(n_routes) => router.topk(x, n_routes, watch),
            Self::Doubt { most, share } => fewest(&router.topk(x, most, watch)?, share),
        }
    }
}

/// Keeps only the best entries of each row. Entries are kept in order of decreasing probability,
/// until their probabilities sum to the fraction `share` of the sum of all probabilities of the
/// row. At least one entry is kept, unless the row is empty.
///
/// # Errors
///
/// Returns [`Error::TooLarge`] if there is not enough memory.
fn fewest(routes: &CsrOwned, share: f64) -> Result<CsrOwned, Error> {
    let mut kept = CsrOwned {
        indptr: reserved("number of rows", routes.indptr.len())?,
        indices: reserved("number of routes", routes.indices.len())?,
        values: reserved("number of routes", routes.values.len())?,
        n_cols: routes.n_cols,
    };
    kept.indptr.push(0);
    let (mut order, mut keep) = (Vec::new(), Vec::new());
    for row in 0..routes.n_rows() {
        let (blocks, scores) = routes.row(row);
        // Sort by decreasing probability. If probabilities are equal, the block with the lower number comes
        // first.
        order.clear();
        let chances = scores.iter().enumerate().map(|(at, &score)| {
            let chance = 1.0 / (1.0 + (-f64::from(score)).exp());
            (chance, at)
        });
        extend("number of blocks", &mut order, chances)?;
        order.sort_unstable_by(|a: &(f64, usize), b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let total: f64 = order.iter().map(|&(chance, _)| chance).sum();
        let mut before = 0.0;
        keep.clear();
        extend("number of blocks", &mut keep, order.iter().map(|_| false))?;
        for (n_kept, &(chance, at)) in order.iter().enumerate() {
            if n_kept > 0 && before >= share * total {
                break;
            }
            keep[at] = true;
            before += chance;
        }
        for at in (0..blocks.len()).filter(|&at| keep[at]) {
            kept.indices.push(blocks[at]);
            kept.values.push(scores[at]);
        }
        kept.indptr.push(kept.indices.len());
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_blocks_that_hold_the_share() {
        let logit = |p: f64| (p / (1.0 - p)).ln() as f32;
        // The rows have the probabilities 0.6, 0.3 and 0.1 in two orders. The last row has no blocks.
        let rows = [[0.1, 0.6, 0.3], [0.6, 0.3, 0.1]];
        let routes = CsrOwned {
            indptr: vec![0, 3, 6, 6],
            indices: vec![0, 2, 5, 1, 3, 4],
            values: rows.concat().into_iter().map(logit).collect(),
            n_cols: 6,
        };
        let fewest = |share| fewest(&routes, share).expect("small");
        let blocks = |share| fewest(share).indices;
        assert_eq!(blocks(0.0), [2, 1]);
        assert_eq!(blocks(0.5), [2, 1]);
        assert_eq!(blocks(0.7), [2, 5, 1, 3]);
        assert_eq!(blocks(0.95), [0, 2, 5, 1, 3, 4]);
        assert_eq!(fewest(0.7).indptr, [0, 2, 4, 4]);
    }

    #[test]
    fn equal_blocks_come_in_order() {
        let routes = CsrOwned {
            indptr: vec![0, 3],
            indices: vec![1, 4, 7],
            values: vec![0.5; 3],
            n_cols: 9,
        };
        let blocks = |share| fewest(&routes, share).expect("small").indices;
        assert_eq!(blocks(0.3), [1]);
        assert_eq!(blocks(0.5), [1, 4]);
    }
}
