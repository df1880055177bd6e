//! Parameters of the partition and their ranges.

use manylabel_base::range::{at_least_one, not_negative, positive};
use manylabel_base::{Error, checked};

/// Parameters as the user gave them; [`check`](Self::check) makes them usable.
#[derive(Debug, Clone)]
pub struct Params {
    /// `n_blocks`: blocks to begin with; ≥ 1. None searches, see [`Checked::fit`].
    pub n_blocks: Option<usize>,
    /// `lam`: weight of squared label-set sizes, in counts of ones; finite, ≥ 0.
    pub lam: f64,
    /// `max_labels`: most labels of a block; ≥ 1.
    pub max_labels: Option<usize>,
    /// `n_init`: starts, of which the one with the lowest objective is kept; ≥ 1.
    pub n_init: usize,
    /// `max_iter`: rounds of a label step and a row step; ≥ 1.
    pub max_iter: usize,
    /// `tol`: a round that lowers the objective by less is the last; finite, > 0.
    pub tol: f64,
    /// Seeds the starts.
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
