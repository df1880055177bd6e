//! Defines the parameters of the partition and their ranges.
//!
//! [`Params`] holds the values that the user gave. [`Params::check`] checks them and returns a
//! [`Checked`], which has the method `fit`. The documentation of each field starts with the name of
//! the parameter in Python.

use manylabel_base::range::{at_least_one, not_negative, positive};
use manylabel_base::{Error, checked};

/// The parameters as the user gave them. [`check`](Self::check) checks their ranges.
#[derive(Debug, Clone)]
pub struct Params {
    /// `n_blocks`: number of blocks at the start; ≥ 1. With None, the fit searches for a good
    /// number; see [`Checked::fit`].
    pub n_blocks: Option<usize>,
    /// `lam`: weight of the squared sizes of label sets in the objective; finite, ≥ 0. The
    /// objective subtracts the number of captured labels. (A label of a row is captured if it is in
    /// the label set of the row's block.) This number is not divided by the number of rows. So the
    /// useful values of `lam` grow with the number of rows per block.
    pub lam: f64,
    /// `max_labels`: maximum number of labels of a block; ≥ 1. None means no limit.
    pub max_labels: Option<usize>,
    /// `n_init`: number of k-means starts; ≥ 1. The result with the lowest objective is kept.
    pub n_init: usize,
    /// `max_iter`: maximum number of rounds; ≥ 1. A round moves rows to their best blocks (row
    /// step), and then chooses new label sets (label step).
    pub max_iter: usize,
    /// `tol`: the fit ends after the first round that lowers the objective by less than this
    /// number; finite, > 0. A round moves rows to their best blocks, and then chooses new label
    /// sets.
    pub tol: f64,
    /// The seed of the random numbers. Start i uses the seed `seed + i`, with wrap-around.
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
    /// Returns [`Error::Param`] for the first parameter that is out of its range.
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
