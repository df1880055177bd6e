//! Parameters of the partition and their ranges.
//!
//! [`Params`] holds what the user chose. [`Params::check`] turns it into [`Checked`](crate::Checked),
//! which alone can fit. Each field names the parameter as users spell it.

use manylabel_base::range::{at_least_one, not_negative, positive};
use manylabel_base::{Error, checked};

/// Parameters as the user gave them. [`check`](Self::check) checks their ranges and makes them usable.
#[derive(Debug, Clone)]
pub struct Params {
    /// `n_blocks`: number of blocks to start with; ≥ 1. None searches for a number, see [`Checked::fit`].
    pub n_blocks: Option<usize>,
    /// `lam`: weight of squared label-set sizes, in counts of ones; finite, ≥ 0. It is an absolute count, so
    /// its useful range grows with the number of rows per block.
    pub lam: f64,
    /// `max_labels`: maximum number of labels of a block; ≥ 1. None is no limit.
    pub max_labels: Option<usize>,
    /// `n_init`: number of k-means starts, of which the one with the lowest objective is kept; ≥ 1.
    pub n_init: usize,
    /// `max_iter`: maximum number of rounds of a row step and a label step; ≥ 1.
    pub max_iter: usize,
    /// `tol`: the alternation ends with a round that lowers the objective by less; finite, > 0.
    pub tol: f64,
    /// Seed of the starts. Start i uses `seed + i`, with wrap-around.
    pub seed: u64,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            n_blocks: None,
            lam: 1.0,
            max_labels: None,
            n_init: 1,
            max_iter: 100,
            tol: 1e-5,
            seed: 0,
        }
    }
}

checked!(Params);

impl Params {
    /// Returns [`Error::Param`] for the first parameter out of its range.
    fn ranges(&self) -> Result<(), Error> {
        let counts = [
            ("n_blocks", self.n_blocks.unwrap_or(1)),
            ("max_labels", self.max_labels.unwrap_or(1)),
            ("n_init", self.n_init),
            ("max_iter", self.max_iter),
        ];
        for (name, count) in counts {
            at_least_one(name, count)?;
        }
        not_negative("lam", self.lam)?;
        positive("tol", self.tol)?;
        Ok(())
    }
}
